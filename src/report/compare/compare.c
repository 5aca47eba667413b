/* `trainer compare`: reads runs and writes their comparison. */
#include "compare.h"
#include "comparison_table.h"
#include "report/out_folder.h"
#include "report/page/page.h"
#include "report/record/runs.h"

static tr_status_t compare_write_page(const tr_compare_settings_t *settings, const tr_runs_t *runs,
                                      const tr_comparison_t *comparison) {
    const tr_sweeps_t none = {0};
    const tr_study_t study = {.records = runs->records.data,
                              .count = runs->records.count,
                              .sweeps = &none,
                              .comparison = comparison,
                              .version = settings->version};
    tr_str_t page = {0};
    TR_TRY(tr_out_folder_make(settings->out));
    tr_status_t status = tr_page_write(&study, &page);
    if (status == TR_OK) status = tr_out_folder_write(settings->out, "index.html", &page);
    tr_str_free(&page);
    return status;
}

tr_status_t tr_compare(const tr_compare_settings_t *settings, tr_compare_texts_t *out) {
    const tr_asked_t asked = {.lines = TR_LINES_ALL, .key = {"loss"}, .by = settings->by};
    tr_runs_t runs;
    tr_comparison_t comparison = {.note = ""};
    tr_status_t status;
    *out = (tr_compare_texts_t){.json = NULL};
    if (settings->out) TR_TRY(tr_out_folder_check(settings->out));
    TR_TRY(tr_runs_read(settings->runs, settings->count, &asked, &runs));
    TR_TRY_GOTO(tr_runs_tell_apart(&runs), done);
    TR_TRY_GOTO(tr_comparison_make(runs.records.data, runs.records.count, settings->by,
                                   settings->by != NULL, &comparison),
                done);
    if (settings->out) TR_TRY_GOTO(compare_write_page(settings, &runs, &comparison), done);
    tr_comparison_print(&comparison, settings->columns, &out->table);
    tr_comparison_csv(&comparison, &out->csv);
    out->json = tr_comparison_json(&comparison);
    status = out->table.status != TR_OK ? out->table.status : out->csv.status;
done:
    tr_comparison_free(&comparison);
    tr_runs_free(&runs);
    return status;
}

void tr_compare_texts_free(tr_compare_texts_t *texts) {
    tr_str_free(&texts->table);
    tr_str_free(&texts->csv);
    json_decref(texts->json);
    texts->json = NULL;
}
