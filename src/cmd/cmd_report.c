/* trainer report RUNS... --out DIR: writes a page about runs and their scaling. */
#include "cmd.h"
#include "base/file.h"
#include "monitor/tensorboard.h"
#include "report/record/runs.h"
#include "report/runs_report.h"

#include <stdio.h>

typedef struct {
    cmd_words_t runs;
    const char *out, *predicted, *tensorboard;
} report_options_t;

static tr_status_t report_convert(const tr_record_t *run, const char *to) {
    char folder[4096], metrics[4096], config[4096], *text = NULL;
    tr_tensorboard_t *board = NULL;
    int64_t bytes;
    tr_status_t status;
    TR_TRY(tr_path_join(to, run->name, folder));
    TR_TRY(tr_path_join(run->path, "metrics.jsonl", metrics));
    TR_TRY(tr_path_join(run->path, "config.ini", config));
    TR_TRY_GOTO(tr_read_text(config, 4 << 20, &text, &bytes), done);
    TR_TRY_GOTO(tr_tensorboard_open(folder, metrics, text, &board), done);
    tr_tensorboard_close(&board);
    printf("%s\n", folder);
done:
    tr_free(&text);
    return status;
}

/* The curves of runs that are over, or were trained without log.tensorboard. */
static tr_status_t report_tensorboard(const report_options_t *o) {
    const tr_asked_t asked = {.lines = TR_LINES_NEWEST};
    tr_runs_t runs;
    tr_status_t status;
    TR_TRY(tr_runs_read(o->runs.word, (size_t)o->runs.count, &asked, &runs));
    TR_TRY_GOTO(tr_runs_tell_apart(&runs), done);
    for (size_t i = 0; i < runs.records.count; i++)
        TR_TRY_GOTO(report_convert(&runs.records.data[i], o->tensorboard), done);
done:
    tr_runs_free(&runs);
    return status;
}

static tr_status_t report_run(void *options) {
    const report_options_t *o = options;
    const tr_runs_report_settings_t settings = {.runs = o->runs.word,
                                                .count = (size_t)o->runs.count,
                                                .out = o->out,
                                                .predicted = o->predicted,
                                                .version = cmd_version};
    if (o->runs.count == 0) return cmd_fail_missing(&cmd_report, "RUNS");
    if (!o->out && !o->tensorboard) return cmd_fail_missing(&cmd_report, "--out DIR");
    if (o->tensorboard) TR_TRY(report_tensorboard(o));
    if (!o->out) return TR_OK;
    TR_TRY(tr_runs_report(&settings));
    printf("%s/index.html\n", o->out);
    return TR_OK;
}

static const cmd_argument_t arguments[] = {
    {"RUNS...", offsetof(report_options_t, runs), CMD_WORDS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_TEXT(report_options_t, out, "--out", "DIR", NULL,
                    "The folder that gets index.html, scaling.csv and summary.json."),
    CMD_OPTION_TEXT(
        report_options_t, tensorboard, "--tensorboard", "DIR", NULL,
        "Writes the curves of each run for TensorBoard, in DIR/RUN. Without --out, only "
        "that."),
    CMD_OPTION_TEXT(report_options_t, predicted, "--predicted", "FILE", NULL,
                    "Adds the prediction of trainer plan --nodes ... --json."),
};

const cmd_command_t cmd_report = {
    .name = "report",
    .runs = CMD_ON_FIRST,
    .summary = "Makes one page about runs and how they scale.",
    .help = "RUNS are run folders, or the folder of a scaling sweep; logs are left out. Runs on "
            "different numbers of ranks are compared as weak or strong scaling; they must have the "
            "same threads, precision, device and commit. Runs that failed are listed.",
    CMD_ARGUMENTS(report_options_t),
    CMD_OPTIONS,
    .run = report_run,
};
