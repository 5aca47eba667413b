/* trainer plan CONFIG --fixes: the memory and work of the run with each setting that makes it
 * smaller, alone and together. */
#include "cmd/cmd.h"
#include "plan.h"
#include "session/remedies.h"

#include <jansson.h>
#include <stdio.h>

static void plan_fixes_print_plan(const tr_remedies_t *r, const tr_remedy_plan_t *plan,
                                  size_t limit) {
    char bytes[32];
    if (plan->bytes == 0)
        printf(" %12s %8s %5s", "", "", "");
    else
        printf(" %12s %+6.1f %% %5s", tr_format_bytes((double)plan->bytes, bytes),
               tr_remedies_extra(r, plan), plan->bytes <= limit ? "fits" : "");
}

static void plan_fixes_print(const tr_remedies_t *r, const plan_options_t *o, size_t limit) {
    char text[32];
    printf("memory per rank of %s on %d rank%s, and more FLOPs per sample; limit %s\n", o->path,
           o->ranks.value[0], o->ranks.value[0] > 1 ? "s" : "",
           tr_format_bytes((double)limit, text));
    printf("%-64s %28s %28s\n%-64s", "", "alone", "with those above", "as configured");
    plan_fixes_print_plan(r, &r->now, limit);
    printf("\n");
    for (size_t i = 0; i < r->rows.count; i++) {
        const tr_remedy_t *row = &r->rows.data[i];
        if (row->shares > 0)
            printf("optimizer state shared by %d ranks (computed, not provided)%6s", row->shares,
                   "");
        else
            printf("%-64s", row->settings);
        plan_fixes_print_plan(r, &row->alone, limit);
        plan_fixes_print_plan(r, &row->together, limit);
        printf("%s\n", row->shares > 0 || row->is_used || row->together.bytes == 0
                           ? ""
                           : "  not used below: not smaller");
    }
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
    if (status == TR_OK && !cmd_json_is_stdout(o->json)) plan_fixes_print(&remedies, o, limit);
    if (status == TR_OK && o->json) status = plan_fixes_write_json(&remedies, o, limit);
    tr_remedies_free(&remedies);
    tr_session_destroy(&s);
    return status;
}
