/* trainer plan CONFIG --fixes: the memory and work of the run with each setting that makes it
 * smaller, alone and together. */
#include "cmd/cmd.h"
#include "plan.h"
#include "base/mem.h"
#include "session/remedies.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

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

static tr_status_t plan_fixes_print(const tr_remedies_t *r, const plan_options_t *o, size_t limit) {
    const size_t count = r->rows.count + 1;
    fixes_row_t *rows = NULL;
    char text[32];
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
        tr_snprintf(rows[i].shared, sizeof rows[i].shared,
                    "optimizer state shared by %d ranks (computed, not provided)", remedy->shares);
        rows[i].settings = rows[i].shared;
    }
    printf("memory per rank of %s on %d rank%s, and more FLOPs per sample; limit %s\n", o->path,
           o->ranks.value[0], o->ranks.value[0] > 1 ? "s" : "",
           tr_format_bytes((double)limit, text));
    cmd_table_print(&table, rows, count);
    tr_free(&rows);
    return TR_OK;
}

static json_t *plan_fixes_json(const tr_remedies_t *r, const tr_remedy_plan_t *plan, size_t limit) {
    return plan->bytes == 0 ? json_null()
                            : json_pack("{s:I, s:f, s:b}", "bytes", (json_int_t)plan->bytes,
                                        "extra_flops_percent", tr_remedies_extra(r, plan), "fits",
                                        plan->bytes <= limit);
}

static tr_status_t plan_fixes_write_json(const tr_remedies_t *r, const plan_options_t *o,
                                         size_t limit) {
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
    return cmd_json_write(json_pack("{s:s, s:s, s:i, s:I, s:o, s:o, s:o}", "kind", "fixes",
                                    "config", o->path, "ranks", o->ranks.value[0], "memory_bytes",
                                    (json_int_t)limit, "now", plan_fixes_json(r, &r->now, limit),
                                    "least", plan_fixes_json(r, &r->least, limit), "rows", rows),
                          o->json);
}

tr_status_t plan_fixes(const tr_config_t *config, const plan_options_t *o) {
    tr_remedies_t remedies = {0};
    tr_session_t *s = NULL;
    size_t limit = (size_t)o->memory;
    tr_status_t status = TR_OK;
    TR_TRY(plan_session(config, o->ranks.value[0], true, &s));
    if (limit == 0) limit = s->device->memory_bytes;
    status = tr_remedies_plan(config, o->ranks.value[0], s->device, &remedies);
    if (status == TR_OK && !cmd_json_is_stdout(o->json))
        status = plan_fixes_print(&remedies, o, limit);
    if (status == TR_OK && o->json) status = plan_fixes_write_json(&remedies, o, limit);
    tr_remedies_free(&remedies);
    tr_session_destroy(&s);
    return status;
}
