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
} import_counter_t;

/* The received signal; 0: none. */
static volatile sig_atomic_t stop;

static void import_note_stop(int number) {
    stop = number;
}

/* The first signal ends the work between two rows, so that no partial file is left; a second one
 * of the same kind ends the process. Ignored signals (nohup, background jobs of scripts) stay
 * ignored. */
static void import_watch_signals(void) {
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = import_note_stop,
                                     .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    struct sigaction before;
    for (size_t i = 0; i < TR_COUNT(watched); i++)
        if (sigaction(watched[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(watched[i], &action, NULL);
}

static tr_status_t import_count_rows(void *self, int64_t done, int64_t total) {
    import_counter_t *counter = self;
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

/* Runs import or repack, and reports the outcome. After a signal, the process ends by that signal,
 * so that a calling script ends, too. */
static tr_status_t import_convert(tr_status_t (*run)(const char *in, const char *out,
                                                     const tr_import_params_t *params),
                                  const char *in, const char *out, tr_import_params_t *p,
                                  import_counter_t *counter) {
    struct stat found;
    char bytes[32];
    import_watch_signals();
    counter->out = out;
    counter->begin_sec = tr_clock_sec();
    p->progress = import_count_rows;
    p->self = counter;
    p->y = &counter->y;
    p->tokens = &counter->tokens;
    const tr_status_t status = run(in, out, p);
    if (counter->shown) fprintf(stderr, status == TR_OK ? "\r\033[K" : "\n");
    if (status == TR_OK && stat(out, &found) == 0) {
        printf("%s: %lld %s, %s, in %.1f s\n", out, (long long)counter->done, counter->unit,
               tr_format_bytes((double)found.st_size, bytes), tr_clock_sec() - counter->begin_sec);
        if (counter->y.text) printf("y: %s\n", counter->y.text);
        if (counter->tokens.text) printf("tokens: %s\n", counter->tokens.text);
    }
    tr_str_free(&counter->y);
    tr_str_free(&counter->tokens);
    if (!stop) return status;
    if (status != TR_OK) cmd_say_error(status);
    fflush(stdout);
    raise(stop);
    return status;
}

/* -- import ------------------------------------------------------------------------------------ */

typedef struct {
    const char *format, *delimiter;
    cmd_words_t files; /* input or inputs, OUT.h5 */
    int decimal;       /* index of '.', ',' */
    int unknown;       /* index of code, error */
    int missing;       /* tr_import_missing_t */
    int header;        /* tr_import_header_t */
    tr_import_params_t params;
} import_options_t;

void cmd_import_list(tr_str_t *out) {
    size_t count;
    const tr_importer_t *const *list = tr_importer_list(&count);
    for (size_t i = 0; i < count; i++)
        tr_str_printf(out, "\n  trainer import %s %s\n      %s", list[i]->name, list[i]->usage,
                      list[i]->help);
}

static const tr_importer_t *import_find(const import_options_t *o) {
    size_t count;
    const tr_importer_t *const *list = tr_importer_list(&count);
    for (size_t i = 0; i < count && o->format; i++)
        if (strcmp(list[i]->name, o->format) == 0) return list[i];
    return NULL;
}

/* Whether the usage has the option, not only a longer one. */
static bool import_has(const char *usage, const char *option) {
    const size_t length = strlen(option);
    while ((usage = strstr(usage, option)) &&
           (isalpha((unsigned char)usage[length]) || usage[length] == '-'))
        usage += length;
    return usage != NULL;
}

/* Refuses an option that is not in the usage of the importer; --chunk and --force apply to all. */
static tr_status_t import_check(void *options, const char *option) {
    import_options_t *o = options;
    const tr_importer_t *importer = import_find(o);
    if (strcmp(option, "--valid-fraction") == 0) o->params.is_valid_given = true;
    if (!importer || strstr("--chunk --force", option) || import_has(importer->usage, option))
        return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "%s does not accept %s; usage: trainer import %s %s",
                   importer->name, option, importer->name, importer->usage);
}

static tr_status_t import_run(void *options) {
    import_options_t *o = options;
    tr_import_params_t *p = &o->params;
    import_counter_t counter = {.what = "import", .unit = "samples"};
    const int count = o->files.count;
    const tr_importer_t *importer = import_find(o);
    if (!importer) {
        tr_str_t list = {0};
        cmd_import_list(&list);
        TR_FAIL(TR_ERR_USAGE, "%s%s%s. There are:%s",
                o->format ? "'" : "missing the format to import", o->format ? o->format : "",
                o->format ? "' cannot be imported" : "", list.text ? list.text : "");
        tr_str_free(&list);
        return TR_ERR_USAGE;
    }
    if (count < 2)
        return TR_FAIL(TR_ERR_USAGE, "usage: trainer import %s %s", importer->name,
                       importer->usage);
    if (count > 2 && !importer->takes_many)
        return TR_FAIL(TR_ERR_USAGE, "trainer import: unexpected argument '%s'.", o->files.word[2]);
    TR_TRY(tr_import_check_name(o->files.word[0], o->files.word[count - 1]));
    if (o->delimiter) {
        const char *text = o->delimiter;
        if (strcmp(text, "tab") == 0 || strcmp(text, "\\t") == 0) text = "\t";
        const unsigned char c = strlen(text) == 1 ? (unsigned char)*text : '\0';
        if (c != '\t' && c != ' ' && (!ispunct(c) || strchr("\"+-._", c)))
            return TR_FAIL(TR_ERR_USAGE,
                           "--delimiter: expected the column separator, such as ';' or tab, found "
                           "'%s'.",
                           text);
        p->delimiter = *text;
    }
    p->decimal = ".,"[o->decimal];
    p->refuses_unknown = o->unknown == 1;
    p->missing = (tr_import_missing_t)o->missing;
    p->header = (tr_import_header_t)o->header;
    p->what = o->files.word[0];
    p->input = (const char *const *)o->files.word;
    p->input_count = count - 1;
    if (importer->unit) counter.unit = importer->unit;
    return import_convert(importer->run, p->what, o->files.word[count - 1], p, &counter);
}

typedef struct {
    const char *in, *out;
    tr_import_params_t params;
} repack_options_t;

static tr_status_t repack_run(void *options) {
    repack_options_t *o = options;
    import_counter_t counter = {.what = "repack", .unit = "rows"};
    return import_convert(tr_repack, o->in, o->out, &o->params, &counter);
}

/* -- the rows ---------------------------------------------------------------------------------- */

static const char formats[] = ""
#define IMPORTER(name) "|" #name
#include "datatools/importers.def"
#undef IMPORTER
    ;

static const cmd_argument_t arguments[] = {
    {formats + 1, offsetof(import_options_t, format), CMD_OPTIONAL, formats + 1},
    {"IN OUT.h5", offsetof(import_options_t, files), CMD_WORDS, NULL},
};

#define CHUNK(S)                                                                                   \
    CMD_OPTION_BYTES(S, params.writer.chunk_bytes, "--chunk", "SIZE", "1MiB", 1, CMD_NO_LIMIT,     \
                     "The approximate size of the chunks.")
#define FORCE(S) CMD_OPTION_FLAG(S, params.writer.force, "--force", "Replaces an existing OUT.h5.")
#define BELOW_1  0.999999999

/* The importers that accept an option have it in their usage, and explain it. */
static const cmd_option_t options[] = {
    CHUNK(import_options_t),
    FORCE(import_options_t),
    CMD_OPTION_ENUM(import_options_t, header, "--header", NULL, "auto|yes|no", ""),
    CMD_OPTION_TEXT(import_options_t, params.label, "--label", "NAME|COLUMN|none", NULL, ""),
    CMD_OPTION_FLAG(import_options_t, params.regression, "--regression", ""),
    CMD_OPTION_TEXT(import_options_t, params.target, "--target", "NAMES", NULL, ""),
    CMD_OPTION_TEXT(import_options_t, params.drop, "--drop", "NAMES", NULL, ""),
    CMD_OPTION_TEXT(import_options_t, params.id, "--id", "NAME", NULL, ""),
    CMD_OPTION_TEXT(import_options_t, params.one_hot, "--one-hot", "NAMES", NULL, ""),
    CMD_OPTION_TEXT(import_options_t, params.ordinal, "--ordinal", "NAMES", NULL, ""),
    CMD_OPTION_ENUM(import_options_t, unknown, "--unknown", NULL, "code|error", ""),
    CMD_OPTION_ENUM(import_options_t, missing, "--missing", NULL, "refuse|mean|median|zero", ""),
    CMD_OPTION_FLAG(import_options_t, params.missing_indicator, "--missing-indicator", "",
                    .with = "--missing"),
    CMD_OPTION_TEXT(import_options_t, delimiter, "--delimiter", "CHARACTER|tab", NULL, ""),
    CMD_OPTION_ENUM(import_options_t, decimal, "--decimal", NULL, ".|,", ""),
    CMD_OPTION_FLOAT(import_options_t, params.test_fraction, "--test-fraction", "PART", NULL, 0,
                     BELOW_1, ""),
    CMD_OPTION_FLOAT(import_options_t, params.valid_fraction, "--valid-fraction", "PART", "0.1", 0,
                     BELOW_1, ""),
    CMD_OPTION_TEXT(import_options_t, params.shape, "--size", "HxW", NULL, ""),
    CMD_OPTION_TEXT(import_options_t, params.shape, "--shape", "SHAPE", NULL, ""),
    CMD_OPTION_FLAG(import_options_t, params.grey, "--grey", ""),
    CMD_OPTION_FLAG(import_options_t, params.in_order, "--no-shuffle", ""),
    CMD_OPTION_FLAG(import_options_t, params.skip_corrupt, "--skip-corrupt", ""),
    CMD_OPTION_AUTO_INT(import_options_t, params.samples, "--samples", "N", 1, CMD_NO_LIMIT, ""),
    CMD_OPTION_AUTO_INT(import_options_t, params.classes, "--classes", "N", 0, CMD_NO_LIMIT, ""),
    CMD_OPTION_INT(import_options_t, params.seed, "--seed", "N", "0", 0, CMD_NO_LIMIT, ""),
    CMD_OPTION_TEXT(import_options_t, params.tokenizer, "--tokenizer", "TOKENIZER", NULL, ""),
    CMD_OPTION_TEXT(import_options_t, params.ids, "--ids", "FORM", NULL, ""),
    CMD_OPTION_TEXT(import_options_t, params.field, "--field", "NAME", NULL, ""),
};

const cmd_command_t cmd_import = {
    .name = "import",
    .runs = CMD_ON_FIRST,
    .summary = "Converts other formats to an HDF5 file that is fast to read.",
    CMD_ARGUMENTS(import_options_t),
    CMD_OPTIONS,
    .check = import_check,
    .run = import_run,
};

static const cmd_argument_t repack_arguments[] = {
    {"IN.h5", offsetof(repack_options_t, in), CMD_REQUIRED, NULL},
    {"OUT.h5", offsetof(repack_options_t, out), CMD_REQUIRED, NULL},
};

static const cmd_option_t repack_options[] = {CHUNK(repack_options_t), FORCE(repack_options_t)};

const cmd_command_t cmd_repack = {
    .name = "repack",
    .runs = CMD_ON_FIRST,
    .summary = "Rewrites an HDF5 file in the layout that is fastest to read, with checksums.",
    .help = "Chunks hold whole samples. Groups, links, values, attributes and references are kept. "
            "The targets of links into other files are copied. If IN is named NAME_x.h5 and has no "
            "labels, NAME_y.h5 beside it is repacked too; OUT must then be named NAME_x.h5 as "
            "well.",
    .arguments = repack_arguments,
    .argument_count = TR_COUNT(repack_arguments),
    .options = repack_options,
    .option_count = TR_COUNT(repack_options),
    .options_bytes = sizeof(repack_options_t),
    .run = repack_run,
};
