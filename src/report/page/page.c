/* The page of `trainer report`. */
#include "html.h"
#include "page.h"
#include "base/clock.h"

#include <string.h>

#define MAX_SECTIONS 4

static const char style[] =
    ":root { color-scheme: light dark; --text: #222; --page: #fff; --quiet: #595959; --line: "
    "#e4e4e4; "
    "--panel: #f3f6fa; --accent: #0b6bb8; --good: #dcefdc; --bad: #f6d5d5; --replay: #fdeccb; "
    "--predicted: #e3e0f5; --best: #eef5ea; }\n"
    "@media (prefers-color-scheme: dark) { :root { --text: #d6dade; --page: #14171a; "
    "--quiet: #9aa3ad; --line: #33383e; --panel: #1e242b; --accent: #5aa9e6; --good: #20422a; "
    "--bad: #5a2a2a; --replay: #4d3c14; --predicted: #37305c; --best: #1d2f20; } }\n"
    "body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); "
    "max-width: 1280px; margin: 2em auto; padding: 0 1em; }\n"
    "h1 { font-size: 1.6em; margin-bottom: 0; } h2 { font-size: 1.25em; margin-top: 2em; "
    "border-bottom: 1px solid var(--line); } h3 { font-size: 1em; margin-bottom: .3em; }\n"
    "table { display: block; overflow-x: auto; border-collapse: collapse; font-size: 13px; "
    "margin: .6em 0; }\n"
    "th { text-align: right; font-weight: 600; vertical-align: bottom; }\n"
    "th, td { padding: .2em .7em; border-bottom: 1px solid var(--line); }\n"
    "td { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }\n"
    "th:first-child, td:first-child, th.text, td.text { text-align: left; }\n"
    "tr.best td { font-weight: 600; background: var(--best); }\n"
    "td.long { text-align: left; white-space: normal; }\n"
    "p { max-width: 1060px; } table.compared { font-size: 12px; } "
    "table.compared th, table.compared td { padding: .2em .45em; }\n"
    ".plots { display: grid; gap: 1em; align-items: end; "
    "grid-template-columns: repeat(auto-fill, minmax(min(100%, 420px), 1fr)); }\n"
    ".plots svg { width: 100%; height: auto; }\n"
    ".words { background: var(--panel); border-left: 4px solid var(--accent); padding: .6em 1em; "
    "}\n"
    ".note, .kinds { color: var(--quiet); font-size: 13px; }\n"
    ".measured, .replay, .predicted { border-radius: 3px; padding: 0 .4em; font-size: 12px; }\n"
    ".measured { background: var(--good); } .replay { background: var(--replay); } "
    ".predicted { background: var(--predicted); }\n"
    ".state { border-radius: 3px; padding: .1em .5em; font-size: 14px; font-weight: 400; "
    "background: var(--good); } .state.bad { background: var(--bad); }\n"
    ".bar { background: var(--line); border-radius: 3px; height: 10px; margin: 1em 0; } "
    ".bar div { background: var(--accent); border-radius: 3px; height: 10px; }\n"
    "dl { display: flex; flex-wrap: wrap; gap: .4em 2em; margin: .6em 0; } "
    "dt { color: var(--quiet); font-size: 12px; } "
    "dd { margin: 0; font-size: 17px; font-variant-numeric: tabular-nums; }\n";

static const char kinds[] =
    "<p class=\"kinds\"><span class=\"measured\">measured</span> trainer ran on these ranks. "
    "<span class=\"replay\">replay</span> the ranks waited for measured op times instead of "
    "computing. <span class=\"predicted\">predicted</span> computed by <code>trainer plan</code>, "
    "nothing was run.</p>\n";

void tr_page_head(const char *title, int refresh_sec, tr_str_t *out) {
    tr_str_append(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width\">\n");
    if (refresh_sec > 0)
        tr_str_printf(out, "<meta http-equiv=\"refresh\" content=\"%d\">\n", refresh_sec);
    tr_html_element(out, "title", title);
    tr_str_append(out, "<style>\n");
    tr_str_append(out, style);
    tr_svg_style(out);
    tr_str_append(out, "</style></head><body>\n");
}

static void page_append_state(const tr_record_t *r, tr_str_t *out) {
    const tr_run_state_t state = tr_run_state(r);
    tr_html_element(out, "td class=\"text\"", state.text);
    if (r->code >= 0)
        tr_str_printf(out, "<td>%d</td>", r->code);
    else
        tr_str_append(out, "<td>-</td>");
}

static void page_append_runs(const tr_study_t *study, tr_str_t *out) {
    tr_html_element(out, "h2", "All runs");
    tr_html_table(out, "run|kind|nodes|ranks|batch|micro-batch|threads|precision|device|step, "
                       "median (ms)|samples/s|state|code");
    for (size_t i = 0; i < study->count; i++) {
        const tr_record_t *r = &study->records[i];
        static const char *const keys[] = {"precision", "device"};
        tr_str_append(out, "<tr>");
        tr_html_element(out, "td", r->name);
        tr_html_element(out, "td class=\"text\"", tr_kind_name(r->kind));
        tr_html_count(out, r->nodes);
        tr_html_count(out, r->ranks);
        tr_html_count(out, r->batch);
        tr_html_count(out, r->micro_batch);
        tr_html_number(out, tr_json_number(r->summary, "threads"), 0);
        for (size_t k = 0; k < TR_COUNT(keys); k++) {
            const char *value = json_string_value(json_object_get(r->summary, keys[k]));
            tr_html_element(out, "td class=\"text\"", value ? value : "-");
        }
        tr_html_number(out, r->times.step, 2);
        tr_html_number(out, r->times.samples_per_sec, 0);
        page_append_state(r, out);
        tr_str_append(out, "</tr>\n");
    }
    tr_str_append(out, "</table>\n");
}

static void page_append_failed(const tr_study_t *study, tr_str_t *out) {
    size_t failed = 0;
    for (size_t i = 0; i < study->count; i++) failed += !study->records[i].is_complete;
    if (failed == 0) return;
    tr_html_element(out, "h2", "Runs that are not complete");
    tr_html_table(out, "run|state|code|reason");
    for (size_t i = 0; i < study->count; i++) {
        const tr_record_t *r = &study->records[i];
        if (r->is_complete) continue;
        tr_str_append(out, "<tr>");
        tr_html_element(out, "td", r->name);
        page_append_state(r, out);
        tr_html_element(out, "td class=\"long\"", r->reason);
        tr_str_append(out, "</tr>\n");
    }
    tr_str_append(out, "</table>\n");
}

/* Each run outside a sweep has a section, unless there are many and they are compared. */
static void page_append_sections(const tr_study_t *study, tr_str_t *out) {
    bool has_sweep = false;
    if (study->comparison && study->count > MAX_SECTIONS) return;
    for (size_t i = 0; i < study->sweeps->count; i++)
        has_sweep = has_sweep || study->sweeps->data[i].mode != TR_MODE_NONE;
    for (size_t i = 0; i < study->sweeps->count; i++) {
        const tr_sweep_t *sweep = &study->sweeps->data[i];
        if (sweep->mode != TR_MODE_NONE) {
            tr_page_sweep(sweep, out);
            continue;
        }
        for (size_t p = 0; p < sweep->points.count; p++) {
            const tr_point_t *point = &sweep->points.data[p];
            for (size_t k = 0; k < point->runs.count; k++) {
                tr_html_element(out, "h2", point->runs.data[k]->name);
                tr_page_run(point->runs.data[k], out);
                if (has_sweep)
                    tr_html_element(out, "p class=\"note\"",
                                    "This run is not compared with a sweep above: its folder is "
                                    "not named weak-n* or strong-n*.");
            }
        }
    }
}

tr_status_t tr_page_write(const tr_study_t *study, tr_str_t *out) {
    tr_str_t body = {0};
    char now[32];
    if (study->comparison) tr_page_compare(study, &body);
    page_append_sections(study, &body);
    tr_clock_iso8601(now);
    tr_page_head("Training report", 0, out);
    tr_html_element(out, "h1", "Training report");
    tr_str_printf(out, "<p class=\"note\">%zu run%s, %s, trainer ", study->count,
                  study->count == 1 ? "" : "s", now);
    tr_html_text(out, study->version);
    tr_str_append(out, "</p>\n");
    if (study->sweeps->count > 0) tr_str_append(out, kinds);
    if (body.text) tr_str_append_bytes(out, body.text, body.length);
    page_append_failed(study, out);
    page_append_runs(study, out);
    tr_str_append(out, "</body></html>\n");
    const tr_status_t status = body.status != TR_OK ? body.status : out->status;
    tr_str_free(&body);
    return status;
}
