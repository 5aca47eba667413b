/* trainer compare RUNS...: prints the differences and results of runs, best first. */
#include "cmd.h"
#include "report/compare/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct {
    cmd_words_t runs;
    const char *by, *out, *json, *csv;
} compare_options_t;

int cmd_terminal_columns(void) {
    const char *text = getenv("COLUMNS");
    struct winsize size;
    int64_t columns;
    if (text && tr_parse_int(text, &columns) && columns > 0 && columns < 100000)
        return (int)columns;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static tr_status_t compare_write(const compare_options_t *o) {
    const tr_compare_settings_t settings = {.runs = o->runs.word,
                                            .count = (size_t)o->runs.count,
                                            .by = o->by,
                                            .out = o->out,
                                            .columns = cmd_terminal_columns(),
                                            .version = cmd_version};
    tr_compare_texts_t texts = {.json = NULL};
    tr_status_t status;
    TR_TRY_GOTO(tr_compare(&settings, &texts), done);
    if (!cmd_json_is_stdout(o->json) && !cmd_json_is_stdout(o->csv)) {
        fputs(texts.table.text, stdout);
        if (o->out) printf("\n%s/index.html\n", o->out);
    }
    if (o->csv) TR_TRY_GOTO(cmd_text_write("--csv", o->csv, texts.csv.text), done);
    if (o->json) status = cmd_json_write(json_incref(texts.json), o->json);
done:
    tr_compare_texts_free(&texts);
    return status;
}

tr_status_t cmd_compare_folder(const char *folder, const char *out) {
    char *word = (char *)folder;
    return compare_write(&(compare_options_t){.runs = {1, &word}, .out = out});
}

static tr_status_t compare_run(void *options) {
    const compare_options_t *o = options;
    if (o->runs.count == 0) return cmd_fail_missing(&cmd_compare, "RUNS");
    if (cmd_json_is_stdout(o->json) && cmd_json_is_stdout(o->csv))
        return TR_FAIL(TR_ERR_USAGE, "--json - and --csv -: only one of them can be -");
    return compare_write(o);
}

static const cmd_argument_t arguments[] = {
    {"RUNS...", offsetof(compare_options_t, runs), CMD_WORDS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_TEXT(compare_options_t, by, "--by", "KEY", NULL,
                    "The number that ranks the runs: one of metrics.jsonl or summary.json, such as "
                    "valid_accuracy, test_loss or samples_per_sec. Default: valid_loss, or "
                    "valid_accuracy or valid_r2 if the losses cannot be compared."),
    CMD_OPTION_TEXT(compare_options_t, out, "--out", "DIR", NULL,
                    "The folder that gets index.html: the table, and the curves of all runs."),
    CMD_OPTION_JSON(compare_options_t,
                    "Also writes all groups and runs as JSON; - writes only JSON to standard "
                    "output."),
    CMD_OPTION_TEXT(compare_options_t, csv, "--csv", "FILE", NULL,
                    "Also writes them as CSV; - writes only CSV to standard output."),
};

const cmd_command_t cmd_compare = {
    .name = "compare",
    .runs = CMD_ON_FIRST,
    .summary = "Prints what differs between runs, and their results, best first.",
    .help = "RUNS are run folders, or folders of runs. Runs that are running, killed or failed are "
            "listed, too. Runs that differ only in train.seed are one row: the mean and the sample "
            "standard deviation of those that are done. Losses are compared only if loss function, "
            "targets and validation data are the same. The lock of a run is not touched, so runs "
            "may start at any time.",
    CMD_ARGUMENTS(compare_options_t),
    CMD_OPTIONS,
    .run = compare_run,
};
