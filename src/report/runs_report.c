/* `trainer report`: reads run folders, and writes their tables and page. */
#include "report/scaling/losses.h"
#include "out_folder.h"
#include "report/page/page.h"
#include "report/record/runs.h"
#include "runs_report.h"
#include "report/scaling/tables.h"
#include "base/mem.h"
#include "trainer/log.h"

static tr_status_t report_write(const tr_runs_report_settings_t *settings,
                                const tr_record_t *records, size_t count, bool is_running) {
    static const struct {
        const char *name;
        tr_status_t (*compose)(const tr_study_t *, tr_str_t *);
    } files[] = {{"scaling.csv", tr_tables_csv},
                 {"summary.json", tr_tables_json},
                 {"index.html", tr_page_write}};
    tr_sweeps_t sweeps = {0};
    tr_comparison_t comparison = {.note = ""};
    tr_str_t text = {0};
    tr_study_t study = {
        .records = records, .count = count, .sweeps = &sweeps, .version = settings->version};
    bool has_scaling = false;
    tr_status_t status;
    TR_TRY_GOTO(tr_sweeps_make(records, count, &sweeps), done);
    if (settings->predicted) TR_TRY_GOTO(tr_sweeps_predict(&sweeps, settings->predicted), done);
    for (size_t i = 0; i < sweeps.count; i++) {
        has_scaling |= sweeps.data[i].mode != TR_MODE_NONE;
        tr_losses_doubt(&sweeps.data[i], &text);
        if (text.length > 0 && !is_running) TR_WARN("%s", text.text);
        tr_str_free(&text);
    }
    if (count > 1 && !has_scaling) {
        TR_TRY_GOTO(tr_comparison_make(records, count, NULL, false, &comparison), done);
        study.comparison = &comparison;
    }
    TR_TRY_GOTO(tr_out_folder_make(settings->out), done);
    for (size_t i = 0; i < TR_COUNT(files); i++) {
        TR_TRY_GOTO(files[i].compose(&study, &text), done);
        TR_TRY_GOTO(tr_out_folder_write(settings->out, files[i].name, &text), done);
        tr_str_free(&text);
    }
done:
    tr_str_free(&text);
    tr_comparison_free(&comparison);
    tr_sweeps_free(&sweeps);
    return status;
}

tr_status_t tr_runs_report(const tr_runs_report_settings_t *settings) {
    tr_asked_t asked = {.lines = TR_LINES_ALL};
    tr_runs_t r;
    bool is_running = false;
    TR_TRY(tr_out_folder_check(settings->out));
    tr_page_ask(&asked);
    TR_TRY(tr_runs_read(settings->runs, settings->count, &asked, &r));
    for (size_t i = 0; i < r.records.count; i++) {
        const tr_run_kind_t kind = tr_run_state(&r.records.data[i]).kind;
        is_running |= kind == TR_RUN_RUNNING || kind == TR_RUN_UNKNOWN || kind == TR_RUN_PENDING;
    }
    const tr_status_t status = report_write(settings, r.records.data, r.records.count, is_running);
    tr_runs_free(&r);
    return status;
}
