/* trainer import and repack: convert data to HDF5 files in the layout that reads fastest. */
#include "cmd.h"
#include "base/clock.h"
#include "datatools/datatools.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRESS_SEC 0.2

/* A counter that is redrawn on a terminal; nothing without one. */
typedef struct {
    const char *what, *unit, *out;
    double begin_sec, shown_sec;
    int64_t done;
    bool shown;
    tr_str_t y, tokens; /* resulting labels */
} counter_t;

/* The received signal; 0: none. */
static volatile sig_atomic_t stop;

static void note_stop(int number) {
    stop = number;
}

/* The first signal ends the work between two rows, so that no partial file is left; a second one
 * of the same kind ends the process. Ignored signals (nohup, background jobs of scripts) stay
 * ignored. */
static void watch_signals(void) {
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = note_stop,
                                     .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    struct sigaction before;
    for (size_t i = 0; i < TR_COUNT(watched); i++)
        if (sigaction(watched[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(watched[i], &action, NULL);
}

static tr_status_t count_rows(void *self, int64_t done, int64_t total) {
    counter_t *counter = self;
    double now = tr_clock_sec();
    counter->done = done;
    if (stop)
        return TR_FAIL(TR_ERR_RETRY, "%s was stopped (%s): '%s' was not written", counter->what,
                       strsignal(stop), counter->out);
    if (!isatty(STDERR_FILENO) || now - counter->shown_sec < PROGRESS_SEC) return TR_OK;
    counter->shown_sec = now;
    counter->shown = true;
    fprintf(stderr, "\r%s: %lld", counter->what, (long long)done);
    if (total > 0) fprintf(stderr, " of %lld", (long long)total);
    fprintf(stderr, "\033[K");
    return TR_OK;
}

static tr_status_t number(const char *option, const char *text, int64_t least, int64_t *out) {
    if (text && tr_parse_int(text, out) && *out >= least) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "%s: expected an integer of at least %lld, found '%s'.", option,
                   (long long)least, text ? text : "nothing");
}

static tr_status_t delimiter(const char *text, char *out) {
    if (text && (!strcmp(text, "tab") || !strcmp(text, "\\t"))) text = "\t";
    const unsigned char c = text && strlen(text) == 1 ? (unsigned char)*text : '\0';
    if (c == '\t' || c == ' ' || (ispunct(c) && !strchr("\"+-._", c))) {
        *out = *text;
        return TR_OK;
    }
    return TR_FAIL(TR_ERR_USAGE,
                   "--delimiter: expected the column separator, such as ';' or tab, found '%s'.",
                   text ? text : "nothing");
}

static tr_status_t decimal(const char *text, char *out) {
    if (text && (!strcmp(text, ".") || !strcmp(text, ","))) {
        *out = text[0];
        return TR_OK;
    }
    return TR_FAIL(TR_ERR_USAGE, "--decimal: expected '.' or ',', found '%s'.",
                   text ? text : "nothing");
}

static tr_status_t fraction(const char *option, const char *text, double *out) {
    if (text && tr_parse_float(text, out) && *out >= 0 && *out < 1) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "%s: expected a number of at least 0 and below 1, found '%s'.",
                   option, text ? text : "nothing");
}

/* An option with any text as its value; *used becomes 0 if argv[0] is not this option. */
static tr_status_t text_option(const char *name, const char *value, tr_import_params_t *p,
                               int *used) {
    const struct {
        const char *name, **out;
    } options[] = {{"--label", &p->label},
                   {"--shape", &p->shape},
                   {"--size", &p->shape},
                   {"--tokenizer", &p->tokenizer},
                   {"--field", &p->field}};
    for (size_t i = 0; i < TR_COUNT(options); i++) {
        if (strcmp(name, options[i].name)) continue;
        *options[i].out = value;
        return value ? TR_OK : TR_FAIL(TR_ERR_USAGE, "%s requires a value.", name);
    }
    *used = 0;
    return TR_OK;
}

/* One option and its value. *used: the number of arguments consumed; 0 if argv[0] is not an
 * option. */
static tr_status_t option(char **argv, tr_import_params_t *p, int *used) {
    const char *name = argv[0], *value = argv[1];
    int64_t seed;
    *used = 2;
    if (!strcmp(name, "--force")) {
        p->writer.force = true;
        *used = 1;
        return TR_OK;
    }
    if (!strcmp(name, "--regression")) {
        p->regression = true;
        *used = 1;
        return TR_OK;
    }
    if (!strcmp(name, "--grey")) {
        p->grey = true;
        *used = 1;
        return TR_OK;
    }
    if (!strcmp(name, "--samples")) return number(name, value, 1, &p->samples);
    if (!strcmp(name, "--classes")) return number(name, value, 0, &p->classes);
    if (!strcmp(name, "--delimiter")) return delimiter(value, &p->delimiter);
    if (!strcmp(name, "--decimal")) return decimal(value, &p->decimal);
    if (!strcmp(name, "--seed")) {
        TR_TRY(number(name, value, 0, &seed));
        p->seed = (uint64_t)seed;
        return TR_OK;
    }
    if (!strcmp(name, "--chunk")) {
        if (value && tr_parse_bytes(value, &p->writer.chunk_bytes) && p->writer.chunk_bytes > 0)
            return TR_OK;
        return TR_FAIL(TR_ERR_USAGE, "--chunk: expected a size such as 1MiB, found '%s'.",
                       value ? value : "nothing");
    }
    if (!strcmp(name, "--test-fraction")) return fraction(name, value, &p->test_fraction);
    if (!strcmp(name, "--valid-fraction")) return fraction(name, value, &p->valid_fraction);
    return text_option(name, value, p, used);
}

/* Separates options from names; names[most]. */
static tr_status_t arguments(int argc, char **argv, tr_import_params_t *p, const char **names,
                             int most, int *out_count) {
    *out_count = 0;
    for (int i = 1; i < argc;) {
        int used = 0;
        if (!strncmp(argv[i], "--", 2)) TR_TRY(option(argv + i, p, &used));
        if (!strncmp(argv[i], "--", 2) && !used) return cmd_fail_option(argv[0], argv[i]);
        if (!used && *out_count == most)
            return TR_FAIL(TR_ERR_USAGE, "trainer %s: unexpected argument '%s'.", argv[0], argv[i]);
        if (!used) names[(*out_count)++] = argv[i];
        i += used ? used : 1;
    }
    return TR_OK;
}

/* Refuses options that are not in the usage of this importer or of repack. --chunk and --force
 * apply to all of them. */
static tr_status_t check_options(int argc, char **argv, const char *name, const char *usage) {
    tr_import_params_t ignored;
    for (int i = 1, used; i < argc; i += used ? used : 1) {
        used = 0;
        if (!strncmp(argv[i], "--", 2)) TR_TRY(option(argv + i, &ignored, &used));
        if (used && !strstr("--chunk --force", argv[i]) && !strstr(usage, argv[i]))
            return TR_FAIL(TR_ERR_USAGE, "%s does not accept %s; usage: trainer %s%s %s", name,
                           argv[i], name == argv[0] ? "" : "import ", name, usage);
    }
    return TR_OK;
}

static void report(const counter_t *counter) {
    struct stat status;
    char bytes[32];
    if (counter->shown) fprintf(stderr, "\r\033[K");
    if (stat(counter->out, &status)) return;
    printf("%s: %lld %s, %s, in %.1f s\n", counter->out, (long long)counter->done, counter->unit,
           tr_format_bytes((double)status.st_size, bytes), tr_clock_sec() - counter->begin_sec);
    if (counter->y.text) printf("y: %s\n", counter->y.text);
    if (counter->tokens.text) printf("tokens: %s\n", counter->tokens.text);
}

/* Reports the outcome. After a signal, the process ends by that signal, so that a calling script
 * ends, too. */
static tr_status_t finish(const counter_t *counter, tr_status_t status) {
    if (status == TR_OK)
        report(counter);
    else if (counter->shown)
        fprintf(stderr, "\n");
    if (!stop) return status;
    if (status != TR_OK) cmd_say_error(status);
    fflush(stdout);
    raise(stop);
    return status;
}

void cmd_import_list(tr_str_t *out) {
    size_t count;
    const tr_importer_t *const *list = tr_importer_list(&count);
    for (size_t i = 0; i < count; i++)
        tr_str_printf(out, "\n  trainer import %s %s\n      %s", list[i]->name, list[i]->usage,
                      list[i]->help);
}

static tr_status_t unknown(const char *name) {
    tr_str_t text = {0};
    cmd_import_list(&text);
    TR_FAIL(TR_ERR_USAGE, "%s%s%s. There are:%s", name ? "'" : "missing the format to import",
            name ? name : "", name ? "' cannot be imported" : "", text.text ? text.text : "");
    tr_str_free(&text);
    return TR_ERR_USAGE;
}

/* names: importer, input or inputs, OUT.h5. */
static tr_status_t import_names(int argc, char **argv, tr_import_params_t *p, const char **names,
                                counter_t *counter) {
    int count;
    size_t importers;
    const tr_importer_t *importer = NULL, *const *list = tr_importer_list(&importers);
    TR_TRY(arguments(argc, argv, p, names, argc, &count));
    for (size_t i = 0; count && i < importers; i++)
        if (!strcmp(list[i]->name, names[0])) importer = list[i];
    if (!importer) return unknown(count ? names[0] : NULL);
    if (count < 3)
        return TR_FAIL(TR_ERR_USAGE, "usage: trainer import %s %s", importer->name,
                       importer->usage);
    if (count > 3 && !importer->takes_many)
        return TR_FAIL(TR_ERR_USAGE, "trainer import: unexpected argument '%s'.", names[3]);
    TR_TRY(check_options(argc, argv, importer->name, importer->usage));
    p->what = names[1];
    p->input = names + 1;
    p->input_count = count - 2;
    counter->out = names[count - 1];
    if (importer->unit) counter->unit = importer->unit;
    watch_signals();
    return finish(counter, importer->run(names[1], counter->out, p));
}

tr_status_t cmd_import(int argc, char **argv) {
    const char **names = NULL;
    counter_t counter = {.what = "import", .unit = "samples", .begin_sec = tr_clock_sec()};
    tr_import_params_t p = {.samples = -1,
                            .classes = -1,
                            .valid_fraction = 0.1,
                            .progress = count_rows,
                            .self = &counter,
                            .y = &counter.y,
                            .tokens = &counter.tokens};
    TR_TRY(tr_alloc((size_t)argc * sizeof *names, "names", &names));
    tr_status_t status = import_names(argc, argv, &p, names, &counter);
    tr_str_free(&counter.y);
    tr_str_free(&counter.tokens);
    tr_free(&names);
    return status;
}

tr_status_t cmd_repack(int argc, char **argv) {
    const char *names[2];
    int count;
    counter_t counter = {.what = "repack", .unit = "rows", .begin_sec = tr_clock_sec()};
    tr_import_params_t p = {.progress = count_rows, .self = &counter};
    TR_TRY(arguments(argc, argv, &p, names, 2, &count));
    const char *usage = cmd_find("repack")->usage;
    if (count < 2) return TR_FAIL(TR_ERR_USAGE, "usage: trainer repack %s", usage);
    TR_TRY(check_options(argc, argv, argv[0], usage));
    counter.out = names[1];
    watch_signals();
    return finish(&counter, tr_repack(names[0], names[1], &p));
}
