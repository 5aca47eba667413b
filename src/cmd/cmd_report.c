/* trainer report RUNS... --out DIR: writes a page about runs and their scaling. */
#include "cmd.h"
#include "report/runs_report.h"

#include <stdio.h>
#include <unistd.h>

typedef struct {
    cmd_words_t runs;
    const char *out, *predicted;
    int64_t every;
} report_options_t;

static tr_status_t report_run(void *options) {
    const report_options_t *o = options;
    const tr_runs_report_settings_t settings = {.runs = o->runs.word,
                                                .count = (size_t)o->runs.count,
                                                .out = o->out,
                                                .predicted = o->predicted,
                                                .every_sec = (int)o->every,
                                                .version = cmd_version};
    if (o->runs.count == 0) return cmd_fail_missing(&cmd_report, "RUNS");
    bool is_running, has_printed = false;
    do {
        if (has_printed) sleep((unsigned)o->every);
        TR_TRY(tr_runs_report(&settings, &is_running));
        if (!has_printed) printf("%s/index.html\n", o->out);
        fflush(stdout);
        has_printed = true;
    } while (o->every > 0 && is_running);
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
    CMD_OPTION_INT(report_options_t, every, "--every", "SECONDS", NULL, 1, 86400,
                   "Writes the page again after this time, until none of the runs is running. "
                   "Browsers load it again as often."),
};

const cmd_command_t cmd_report = {
    .name = "report",
    .runs = CMD_ON_FIRST,
    .summary = "Makes one page about runs and how they scale.",
    .help =
        "RUNS are run folders, or the folder of a scaling sweep; logs are left out. Runs on "
        "different numbers of ranks are compared as weak or strong scaling; they must have the "
        "same threads, precision, device and commit. Runs that failed are listed. Plots of several "
        "runs need gnuplot; without it, the page has their tables only.",
    CMD_ARGUMENTS(report_options_t),
    CMD_OPTIONS,
    .run = report_run,
};
