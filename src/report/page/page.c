/* The page of `trainer report`. */
#include "html.h"
#include "page.h"
#include "base/clock.h"

#include <string.h>

#define MAX_SECTIONS 4

static const char style[] =
    ":root { color-scheme: light dark; --text: #222; --page: #fff; --quiet: #595959; --line: "
    "#e4e4e4; --panel: #f3f6fa; --accent: #0b6bb8; --on-accent: #fff; --good: #dcefdc; "
    "--bad: #f6d5d5; --best: #eef5ea; }\n"
    "@media (prefers-color-scheme: dark) { :root { --text: #d6dade; --page: #14171a; "
    "--quiet: #9aa3ad; --line: #33383e; --panel: #1e242b; --accent: #5aa9e6; "
    "--on-accent: #14171a; --good: #20422a; --bad: #5a2a2a; --best: #1d2f20; } }\n"
    "body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); "
    "max-width: 1280px; margin: 1.5em auto; padding: 0 1em; overflow-wrap: anywhere; }\n"
    "h1 { font-size: 1.6em; margin: 0 0 .3em; } h2 { font-size: 1.25em; margin-top: 2em; "
    "border-bottom: 1px solid var(--line); } h3 { font-size: 1em; margin: 1.6em 0 .3em; }\n"
    "table { display: block; overflow-x: auto; border-collapse: collapse; font-size: 13px; "
    "margin: .6em 0; overflow-wrap: normal; }\n"
    "th { text-align: right; font-weight: 600; vertical-align: bottom; }\n"
    "th, td { padding: .2em .5em; border-bottom: 1px solid var(--line); }\n"
    "td { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }\n"
    "th:first-child, td:first-child, th.text, td.text { text-align: left; }\n"
    "tr.best td { font-weight: 600; background: var(--best); }\n"
    "td.long { text-align: left; white-space: normal; min-width: 16em; }\n"
    "p { max-width: 1060px; } table.compared { font-size: 12px; } "
    "table.compared th, table.compared td { padding: .2em .45em; }\n"
    ".plots { display: grid; gap: 1em; align-items: end; margin: 1em 0; "
    "grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); } "
    ".plots > div { align-self: start; overflow-x: auto; }\n"
    ".wide { grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }\n"
    ".plots svg { width: 100%; max-width: 640px; height: auto; }\n"
    ".swatch { margin-right: .5em; vertical-align: middle; }\n"
    ".words { background: var(--panel); border-left: 4px solid var(--accent); padding: .6em 1em; "
    "margin: 1em 0; }\n"
    "pre.words { font: 14px/1.5 ui-monospace, monospace; white-space: pre-wrap; min-height: "
    "1.5em; }\n"
    ".note, .kinds { color: var(--quiet); font-size: 13px; }\n"
    ".kind { border: 1px solid; border-left-width: .5em; border-radius: 3px; padding: 0 .4em; "
    "font-size: 12px; font-weight: 400; }\n"
    ".state { border-radius: 3px; padding: .1em .5em; font-size: 14px; font-weight: 400; "
    "background: var(--good); } .state.bad { background: var(--bad); }\n"
    ".bar { background: var(--line); border-radius: 3px; height: 10px; margin: 1em 0; } "
    ".bar div { background: var(--accent); border-radius: 3px; height: 10px; }\n"
    "dl { display: flex; flex-wrap: wrap; gap: .6em 2em; margin: 1em 0; } "
    "dt { color: var(--quiet); font-size: 12px; } "
    "dd { margin: 0; font-size: 17px; font-variant-numeric: tabular-nums; }\n"
    "label { color: var(--quiet); font-size: 12px; } .form { display: flex; flex-wrap: wrap; "
    "gap: 1em; align-items: end; }\n"
    "textarea, input, button { display: block; box-sizing: border-box; font: inherit; "
    "font-size: 15px; color: var(--text); background: var(--page); border: 1px solid "
    "var(--quiet); border-radius: 4px; padding: .4em .6em; }\n"
    "textarea { width: 100%; } input { width: 7em; } button { cursor: pointer; padding: .4em "
    "1.2em; color: var(--on-accent); background: var(--accent); border-color: var(--accent); }\n"
    "button.quiet { color: var(--text); background: var(--page); }\n";

void tr_page_kind(tr_kind_t kind, tr_str_t *out) {
    tr_str_printf(out, "<span class=\"kind p-%s\">%s</span>", tr_kind_name(kind),
                  tr_kind_name(kind));
}

void tr_page_head(const char *title, const char *state, bool is_bad, int refresh_sec,
                  tr_str_t *out) {
    tr_str_append(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width, "
                       "initial-scale=1\">\n");
    if (refresh_sec > 0)
        tr_str_printf(out, "<meta http-equiv=\"refresh\" content=\"%d\">\n", refresh_sec);
    tr_html_element(out, "title", title);
    tr_str_append(out, "<style>\n");
    tr_str_append(out, style);
    tr_svg_style(out);
    tr_str_append(out, "</style></head><body>\n<h1>");
    tr_html_text(out, title);
    if (state) {
        tr_str_append(out, is_bad ? " <span class=\"state bad\">" : " <span class=\"state\">");
        tr_html_text(out, state);
        tr_str_append(out, "</span>");
    }
    tr_str_append(out, "</h1>\n");
}

const char *tr_page_title(const tr_record_t *r) {
    const char *name = json_string_value(json_object_get(r->config, "run.name"));
    return name && *name ? name : r->name;
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
    tr_html_table(out, "run|<kind|nodes|ranks|batch|micro-batch|threads|<precision|<device|step, "
                       "median (ms)|samples/s|<state|code");
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
    tr_html_table(out, "run|<state|code|<reason");
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
                if (study->count > 1) tr_html_element(out, "h2", point->runs.data[k]->name);
                tr_page_results(point->runs.data[k], out);
                tr_page_run(point->runs.data[k], out);
                if (has_sweep)
                    tr_html_element(out, "p class=\"note\"",
                                    "This run is not compared with a sweep above: its folder is "
                                    "not named weak-n* or strong-n*.");
            }
        }
    }
}

/* What the words mean, where a page has others than "measured". */
static void page_append_kinds(const tr_study_t *study, tr_str_t *out) {
    static const char *const words[] = {
        "trainer ran on these ranks.",
        "the ranks waited for measured op times instead of computing.",
        "computed by <code>trainer plan</code>, nothing was run."};
    bool has_kinds = false;
    for (size_t i = 0; i < study->count; i++)
        has_kinds = has_kinds || study->records[i].kind != TR_KIND_MEASURED;
    for (size_t i = 0; i < study->sweeps->count; i++)
        has_kinds = has_kinds || study->sweeps->data[i].mode != TR_MODE_NONE;
    if (!has_kinds) return;
    tr_str_append(out, "<p class=\"kinds\">");
    for (int kind = TR_KIND_MEASURED; kind <= TR_KIND_PREDICTED; kind++) {
        tr_page_kind((tr_kind_t)kind, out);
        tr_str_printf(out, " %s ", words[kind]);
    }
    tr_str_append(out, "</p>\n");
}

tr_status_t tr_page_write(const tr_study_t *study, tr_str_t *out) {
    const tr_record_t *run = study->count == 1 ? study->records : NULL; /* the only one */
    const tr_run_state_t state = run ? tr_run_state(run) : (tr_run_state_t){0};
    char now[32], title[64] = "Training report";
    if (study->comparison) tr_snprintf(title, sizeof title, "Comparison of %zu runs", study->count);
    tr_clock_iso8601(now);
    tr_page_head(run ? tr_page_title(run) : title, run ? state.text : NULL,
                 run && (state.kind == TR_RUN_FAILED || state.kind == TR_RUN_KILLED), 0, out);
    tr_str_append(out, "<p class=\"note\">");
    if (!run) tr_str_printf(out, "%zu runs, ", study->count);
    tr_str_printf(out, "%s, trainer ", now);
    tr_html_text(out, study->version);
    tr_str_append(out, "</p>\n");
    page_append_kinds(study, out);
    if (study->comparison) tr_page_compare(study, out);
    page_append_sections(study, out);
    page_append_failed(study, out);
    if (!run) page_append_runs(study, out);
    tr_str_append(out, "</body></html>\n");
    return out->status;
}
