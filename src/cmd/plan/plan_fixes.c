/* trainer plan CONFIG --fixes: the memory and work of the run with each setting that makes it
 * smaller, alone and together. */
#include "plan.h"
#include "base/mem.h"
#include "session/remedies.h"

#include <math.h>

/* A plan in text; bytes 0: none. */
typedef struct {
    size_t bytes;
    double extra;
    const char *fits;
} fixes_cell_t;
typedef struct {
    const char *settings, *note;
    char shared[64];
    fixes_cell_t alone, together;
} fixes_row_t;

#define FIXES_COLUMNS(member, over)                                                                \
    TR_COLUMN(fixes_row_t, NULL, "memory", SIZE, member.bytes, .people = tr_format_bytes,          \
              .zero_is_missing = true, .missing = "", .width = 11, .above = over),                 \
        TR_COLUMN(fixes_row_t, NULL, "FLOPs", REAL, member.extra, .format = "%+.1f %%",            \
                  .missing = "", .width = 8, .above = over),                                       \
        TR_COLUMN(fixes_row_t, NULL, "", STRING, member.fits, .missing = "", .width = 4,           \
                  .above = over)
static const tr_table_column_t columns[] = {
    TR_COLUMN(fixes_row_t, NULL, "settings", STRING, settings, .is_left = true, .missing = ""),
    FIXES_COLUMNS(alone, "alone"),
    FIXES_COLUMNS(together, "with those above"),
    TR_COLUMN(fixes_row_t, NULL, "", STRING, note, .is_left = true, .missing = ""),
};
static const tr_table_t table = TR_TABLE(columns, fixes_row_t);

static fixes_cell_t plan_fixes_cell(const tr_remedies_t *r, const tr_remedy_plan_t *plan,
                                    size_t limit) {
    if (plan->bytes == 0) return (fixes_cell_t){.extra = NAN};
    return (fixes_cell_t){plan->bytes, tr_remedies_extra(r, plan),
                          plan->bytes <= limit ? "fits" : NULL};
}

static tr_status_t plan_fixes_append(const tr_remedies_t *r, size_t limit, tr_str_t *out) {
    const size_t count = r->rows.count + 1;
    fixes_row_t *rows = NULL;
    TR_TRY(tr_alloc(count * sizeof *rows, "table of remedies", &rows));
    rows[0] = (fixes_row_t){.settings = "as configured",
                            .alone = plan_fixes_cell(r, &r->now, limit),
                            .together = {.extra = NAN}};
    for (size_t i = 1; i < count; i++) {
        const tr_remedy_t *remedy = &r->rows.data[i - 1];
        const bool is_counted =
            remedy->shares > 0 || remedy->is_used || remedy->together.bytes == 0;
        rows[i] = (fixes_row_t){.settings = remedy->settings,
                                .note = is_counted ? NULL : "not used below: not smaller",
                                .alone = plan_fixes_cell(r, &remedy->alone, limit),
                                .together = plan_fixes_cell(r, &remedy->together, limit)};
        if (remedy->shares == 0) continue;
        tr_snprintf(rows[i].shared, sizeof rows[i].shared, "parallel.zero=1 on %d ranks (computed)",
                    remedy->shares);
        rows[i].settings = rows[i].shared;
    }
    tr_table_text(&table, rows, count, 0, out);
    tr_free(&rows);
    return TR_OK;
}

static json_t *plan_fixes_json(const tr_remedies_t *r, const tr_remedy_plan_t *plan, size_t limit) {
    return plan->bytes == 0 ? json_null()
                            : json_pack("{s:I, s:f, s:b}", "bytes", (json_int_t)plan->bytes,
                                        "extra_flops_percent", tr_remedies_extra(r, plan), "fits",
                                        plan->bytes <= limit);
}

static json_t *plan_fixes_list(const tr_remedies_t *r, size_t limit) {
    json_t *rows = json_array();
    for (size_t i = 0; i < r->rows.count; i++) {
        const tr_remedy_t *row = &r->rows.data[i];
        json_array_append_new(rows, json_pack("{s:s, s:s, s:b, s:i, s:o, s:o, s:b}", "settings",
                                              row->settings, "what", row->what, "computed",
                                              row->shares > 0, "shared_by", row->shares, "alone",
                                              plan_fixes_json(r, &row->alone, limit), "together",
                                              plan_fixes_json(r, &row->together, limit), "used",
                                              row->is_used));
    }
    return rows;
}

static tr_status_t plan_fixes_find(tr_config_t *config, const plan_options_t *o,
                                   plan_result_t *out) {
    const int ranks = o->ranks.value[0];
    tr_remedies_t remedies = {0};
    tr_session_t *s = NULL;
    size_t limit = (size_t)o->memory;
    tr_status_t status = TR_OK;
    char text[32];
    TR_TRY(plan_session(config, ranks, true, &s));
    if (limit == 0) limit = s->device->memory_bytes;
    TR_TRY_GOTO(tr_remedies_plan(config, ranks, s->device, &remedies), done);
    tr_str_printf(&out->before,
                  "memory per rank of %s on %d rank%s, and more FLOPs per sample; limit %s\n",
                  o->path, ranks, ranks > 1 ? "s" : "", tr_format_bytes((double)limit, text));
    TR_TRY_GOTO(plan_fixes_append(&remedies, limit, &out->before), done);
    out->json =
        json_pack("{s:i, s:I, s:o, s:o, s:o}", "ranks", ranks, "memory_bytes", (json_int_t)limit,
                  "now", plan_fixes_json(&remedies, &remedies.now, limit), "least",
                  plan_fixes_json(&remedies, &remedies.least, limit), "rows",
                  plan_fixes_list(&remedies, limit));
done:
    tr_remedies_free(&remedies);
    tr_session_destroy(&s);
    return status;
}

/* A plan in JSON is an object, or null: the rows are not those of the table. */
const plan_mode_t plan_mode_fixes = {.kind = "fixes", .find = plan_fixes_find};
