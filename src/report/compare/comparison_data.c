/* Writes comparisons as CSV and JSON. */
#include "comparison_table.h"
#include "base/json_text.h"

#include <math.h>
#include <string.h>

/* -- CSV --------------------------------------------------------------------------------------- */

/* RFC 4180: quoted where it has to be. */
static void csv_text(const char *text, tr_str_t *out) {
    const bool is_quoted = strpbrk(text, ",\"\r\n") != NULL;
    tr_str_append(out, is_quoted ? ",\"" : ",");
    for (; *text; text++)
        tr_str_append_bytes(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    if (is_quoted) tr_str_append(out, "\"");
}

static void csv_number(double value, tr_str_t *out) {
    tr_str_printf(out, isfinite(value) ? ",%.9g" : ",", value);
}

static void csv_keys(const tr_comparison_t *c, const tr_entry_t *e, bool with_seeds,
                     tr_str_t *out) {
    for (size_t k = 0; k < c->keys.count + c->seeds.count; k++) {
        const bool is_seed = k >= c->keys.count;
        const char *key = is_seed ? c->seeds.data[k - c->keys.count] : c->keys.data[k],
                   *value = tr_record_key(e->record, key);
        csv_text(value && (with_seeds || !is_seed) ? value : "", out);
    }
}

void tr_comparison_csv(const tr_comparison_t *c, tr_str_t *out) {
    tr_str_append(out, "kind,rank,run,n");
    for (size_t k = 0; k < c->keys.count; k++) csv_text(c->keys.data[k], out);
    for (size_t k = 0; k < c->seeds.count; k++) csv_text(c->seeds.data[k], out);
    for (int f = 0; f < c->figures; f++)
        tr_str_printf(out, ",%s,%s_sd", c->figure[f], c->figure[f]);
    tr_str_append(out, ",at_step,steps,of_steps,sec,state\n");
    for (size_t g = 0; g < c->groups.count; g++) {
        const tr_group_t *group = &c->groups.data[g];
        const tr_entry_t *first = &c->entries.data[group->runs.data[0]];
        tr_str_printf(out, "group,%zu", g + 1);
        csv_text(first->record->name, out);
        tr_str_printf(out, ",%d", group->counted);
        csv_keys(c, first, false, out);
        for (int f = 0; f < c->figures; f++) {
            csv_number(group->mean[f], out);
            csv_number(group->deviation[f], out);
        }
        tr_str_append(out, ",,,,,\n");
        for (size_t i = 0; i < group->runs.count; i++) {
            const tr_entry_t *e = &c->entries.data[group->runs.data[i]];
            tr_str_printf(out, "run,%zu", g + 1);
            csv_text(e->record->name, out);
            tr_str_append(out, ",1");
            csv_keys(c, e, true, out);
            for (int f = 0; f < c->figures; f++) {
                csv_number(e->figure[f], out);
                tr_str_append(out, ",");
            }
            csv_number(e->best_step, out);
            csv_number(e->steps, out);
            csv_number(e->of_steps, out);
            csv_number(e->sec, out);
            csv_text(e->state.text, out);
            tr_str_append(out, "\n");
        }
    }
}

/* -- JSON -------------------------------------------------------------------------------------- */

static json_t *json_keys(const char *const *keys, size_t count, const tr_entry_t *e) {
    json_t *out = json_object();
    for (size_t k = 0; k < count; k++) {
        const char *value = tr_record_key(e->record, keys[k]);
        json_object_set_new(out, keys[k], value ? json_string(value) : json_null());
    }
    return out;
}

static json_t *json_figures(const tr_comparison_t *c, const double *values) {
    json_t *out = json_object();
    for (int f = 0; f < c->figures; f++)
        json_object_set_new(out, c->figure[f], tr_json_finite(values[f]));
    return out;
}

static json_t *json_run(const tr_comparison_t *c, const tr_entry_t *e) {
    const tr_record_t *r = e->record;
    static const char *const kinds[] = {"done",   "stopped", "failed", "running",
                                        "killed", "unknown", "pending"};
    json_t *out = json_pack(
        "{s:s, s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", r->name, "state",
        kinds[e->state.kind], "state_text", e->state.text, "code",
        r->code >= 0 && e->state.kind <= TR_RUN_FAILED ? json_integer(r->code) : json_null(),
        "reason", r->reason, "silent_sec", tr_json_finite(e->state.silent_sec), "seeds",
        json_keys(c->seeds.data, c->seeds.count, e), "figures", json_figures(c, e->figure),
        "at_step", tr_json_finite(e->best_step), "steps", tr_json_finite(e->steps), "of_steps",
        tr_json_finite(e->of_steps), "sec", tr_json_finite(e->sec));
    json_t *path = json_string(r->path); /* none for a path that is not UTF-8 */
    json_object_set_new(out, "path", path ? path : json_null());
    return out;
}

json_t *tr_comparison_json(const tr_comparison_t *c) {
    json_t *groups = json_array();
    for (size_t g = 0; g < c->groups.count; g++) {
        const tr_group_t *group = &c->groups.data[g];
        json_t *runs = json_array();
        for (size_t i = 0; i < group->runs.count; i++)
            json_array_append_new(runs, json_run(c, &c->entries.data[group->runs.data[i]]));
        json_array_append_new(groups, json_pack("{s:I, s:i, s:o, s:o, s:o, s:o}", "rank",
                                                (json_int_t)(g + 1), "n", group->counted, "keys",
                                                json_keys(c->keys.data, c->keys.count,
                                                          &c->entries.data[group->runs.data[0]]),
                                                "mean", json_figures(c, group->mean), "deviation",
                                                json_figures(c, group->deviation), "runs", runs));
    }
    return json_pack("{s:o, s:s, s:s, s:o}", "by",
                     c->is_ranked ? json_string(c->figure[0]) : json_null(), "better",
                     c->is_up ? "higher" : "lower", "note", c->note, "groups", groups);
}
