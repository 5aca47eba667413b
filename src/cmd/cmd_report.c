/* trainer report RUNS... --out DIR: writes a page about runs and their scaling. */
#include "cmd.h"
#include "report/runs_report.h"

#include <stdio.h>

typedef struct {
    cmd_words_t runs;
    const char *out, *predicted;
} report_options_t;

static tr_status_t report_run(void *options) {
    const report_options_t *o = options;
    const tr_runs_report_settings_t settings = {.runs = o->runs.word,
                                                .count = (size_t)o->runs.count,
                                                .out = o->out,
                                                .predicted = o->predicted,
                                                .version = cmd_version};
    if (o->runs.count == 0) return cmd_fail_missing(&cmd_report, "RUNS");
    TR_TRY(tr_runs_report(&settings));
    printf("%s/index.html\n", o->out);
    return TR_OK;
}

static const cmd_argument_t arguments[] = {
    {"RUNS...", offsetof(report_options_t, runs), CMD_WORDS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_TEXT(report_options_t, out, "--out", "DIR", NULL,
                    "The folder that gets index.html, scaling.csv and summary.json.",
                    .required = true),
    CMD_OPTION_TEXT(report_options_t, predicted, "--predicted", "FILE", NULL,
                    "Adds the prediction of trainer plan --nodes ... --json."),
};

const cmd_command_t cmd_report = {
    .name = "report",
    .runs = CMD_ON_FIRST,
    .summary = "Makes one page about runs and how they scale.",
    .help = "RUNS are run folders, or the folder of a scaling sweep; logs are left out. Runs on "
            "different numbers of ranks are compared as weak or strong scaling; they must have the "
            "same threads, precision, device and commit. Runs that failed are listed. Plots need "
            "gnuplot; without it the page has tables only.",
    CMD_ARGUMENTS(report_options_t),
    CMD_OPTIONS,
    .run = report_run,
};
