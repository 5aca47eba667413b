/* trainer plan CONFIG --nodes: predicted step times on more nodes. */
#include "cmd/cmd.h"
#include "plan.h"
#include "scaling/forecast.h"
#include "trainer/session.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    tr_profile_t profile;
    tr_network_t between, inside;
    tr_forecast_setup_t setup;
    tr_forecast_t row[CMD_LIST_MAX];
    tr_str_t assumptions;
} nodes_prediction_t;

/* -- the inputs -------------------------------------------------------------------------------- */

static tr_status_t plan_nodes_compare_key(const tr_config_t *config, const tr_config_t *measured,
                                          const char *key, const char *path) {
    const char *here = tr_config_get(config, key), *there = tr_config_get(measured, key);
    if (strcmp(here, there) == 0) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s was measured with %s = %s, and this configuration has %s. Measure again with "
        "`trainer bench step`.",
        path, key, there, here);
}

/* auto: as measured. */
static tr_status_t plan_nodes_compare_count(const tr_config_t *config, const char *key,
                                            int64_t measured, const char *path) {
    int64_t asked;
    if (!tr_parse_int(tr_config_get(config, key), &asked) || asked == measured) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "%s was measured with %s = %lld, and this configuration has %lld. Measure again "
                   "with `trainer bench step`.",
                   path, key, (long long)measured, (long long)asked);
}

/* Refuses a profile of another configuration. The time of a micro-batch depends on the model and the
 * precision. */
static tr_status_t plan_nodes_check_profile(const tr_config_t *config, const tr_profile_t *p,
                                            const char *path) {
    const tr_config_table_t *const *tables;
    size_t n;
    tr_config_t *measured = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_all_tables(&tables, &n));
    TR_TRY(tr_config_create(tables, n, &measured));
    TR_TRY_GOTO(tr_config_load_text(measured, path, p->config, strlen(p->config)), done);
    TR_TRY_GOTO(plan_nodes_compare_key(config, measured, "precision", path), done);
    for (size_t t = 0; t < n; t++) {
        if (strcmp(tables[t]->section, "model") != 0) continue;
        for (size_t i = 0; i < tables[t]->count; i++) {
            char key[64];
            snprintf(key, sizeof key, "model.%s", tables[t]->fields[i].name);
            if (strcmp(key, "model.init") != 0)
                TR_TRY_GOTO(plan_nodes_compare_key(config, measured, key, path), done);
        }
    }
    TR_TRY_GOTO(plan_nodes_compare_count(config, "data.micro_batch", p->micro_batch, path), done);
    TR_TRY_GOTO(plan_nodes_compare_count(config, "threads", p->threads, path), done);
done:
    tr_config_destroy(&measured);
    return status;
}

static tr_status_t plan_nodes_predict(const tr_config_t *config, const plan_options_t *o,
                                      nodes_prediction_t *p) {
    tr_data_settings_t data;
    if (!o->network || !o->profile)
        return TR_FAIL(TR_ERR_USAGE,
                       "plan --nodes requires --network FILE (of `trainer bench allreduce --json "
                       "FILE`) and --profile FILE (of `trainer bench step CONFIG --json FILE`)");
    if (o->ranks_per_node > 1 && !o->network_inside)
        return TR_FAIL(TR_ERR_USAGE,
                       "--ranks-per-node %lld requires --network-inside FILE, measured by `trainer "
                       "bench allreduce` on the ranks of one node",
                       (long long)o->ranks_per_node);
    tr_config_read(config, &tr_data_config, &data);
    TR_TRY(tr_profile_read(o->profile, &p->profile));
    TR_TRY(plan_nodes_check_profile(config, &p->profile, o->profile));
    TR_TRY(tr_network_read(o->network, &p->between));
    if (o->network_inside) TR_TRY(tr_network_read(o->network_inside, &p->inside));
    p->setup = (tr_forecast_setup_t){.profile = &p->profile,
                                     .between = &p->between,
                                     .inside = o->network_inside ? &p->inside : NULL,
                                     .ranks_per_node = (int)o->ranks_per_node,
                                     .mode = (tr_scaling_t)o->mode,
                                     .batch_size = data.batch_size};
    for (int i = 0; i < o->nodes.count; i++)
        TR_TRY(tr_forecast(&p->setup, o->nodes.value[i], &p->row[i]));
    tr_forecast_assumptions(&p->setup, &p->assumptions);
    return TR_OK;
}

/* -- showing ----------------------------------------------------------------------------------- */

static const char *const mode_names[] = {
    [TR_SCALING_WEAK] = "weak", [TR_SCALING_STRONG] = "strong"};
static const char *const origin_names[] = {"none", "measured", "fitted"};

static void plan_nodes_print(const nodes_prediction_t *p, const plan_options_t *o) {
    printf("predicted, not measured: %s scaling of %s, %lld rank%s per node\n\n",
           mode_names[o->mode], o->path, (long long)o->ranks_per_node,
           o->ranks_per_node > 1 ? "s" : "");
    printf("%6s %6s %8s %12s %32s %26s %23s %9s\n", "", "", "", "", "step ms",
           "exposed communication ms", "efficiency %", "");
    printf("%6s %6s %8s %12s %10s %10s %10s %8s %8s %8s %7s %7s %7s %9s\n", "nodes", "ranks",
           "batch", "per rank", "low", "expected", "high", "low", "expected", "high", "low",
           "expected", "high", "network");
    for (int i = 0; i < o->nodes.count; i++) {
        const tr_forecast_t *r = &p->row[i];
        char share[48];
        snprintf(share, sizeof share, "%lld x %lld", (long long)r->slots,
                 (long long)r->micro_batch);
        printf("%6d %6d %8lld %12s %10.3f %10.3f %10.3f %8.3f %8.3f %8.3f %7.1f %8.1f %7.1f %9s\n",
               r->nodes, r->ranks, (long long)r->batch_size, share, r->step_sec.low * 1e3,
               r->step_sec.expected * 1e3, r->step_sec.high * 1e3, r->exposed_sec.low * 1e3,
               r->exposed_sec.expected * 1e3, r->exposed_sec.high * 1e3, r->efficiency.low * 100,
               r->efficiency.expected * 100, r->efficiency.high * 100, origin_names[r->network]);
    }
    printf("\nassumptions\n");
    for (const char *line = p->assumptions.text; *line;) {
        const int length = (int)strcspn(line, "\n");
        printf("  %.*s\n", length, line);
        line += length + 1;
    }
}

static json_t *plan_nodes_band_json(const tr_band_t *band, double scale) {
    return json_pack("{s:f, s:f, s:f}", "low", band->low * scale, "expected",
                     band->expected * scale, "high", band->high * scale);
}

static tr_status_t plan_nodes_write_json(const nodes_prediction_t *p, const tr_config_t *config,
                                         const plan_options_t *o) {
    json_t *rows = json_array(), *assumptions = json_array();
    for (int i = 0; i < o->nodes.count; i++) {
        const tr_forecast_t *r = &p->row[i];
        json_array_append_new(
            rows,
            json_pack("{s:i, s:i, s:I, s:I, s:I, s:o, s:f, s:o, s:o, s:s}", "nodes", r->nodes,
                      "ranks", r->ranks, "batch_global", (json_int_t)r->batch_size, "micro_batch",
                      (json_int_t)r->micro_batch, "slots", (json_int_t)r->slots, "step_ms",
                      plan_nodes_band_json(&r->step_sec, 1e3), "comm_exposed_ms",
                      r->exposed_sec.expected * 1e3, "comm_exposed_band_ms",
                      plan_nodes_band_json(&r->exposed_sec, 1e3), "efficiency",
                      plan_nodes_band_json(&r->efficiency, 1), "network",
                      origin_names[r->network]));
    }
    for (const char *line = p->assumptions.text; *line;) {
        const size_t length = strcspn(line, "\n");
        json_array_append_new(assumptions, json_stringn(line, length));
        line += length + 1;
    }
    json_t *file =
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:i, s:o, s:o}", "kind", "prediction", "mode",
                  mode_names[o->mode], "config", o->path, "ranks_per_node",
                  (json_int_t)o->ranks_per_node, "precision", tr_config_get(config, "precision"),
                  "threads", p->profile.threads, "rows", rows, "assumptions", assumptions);
    if (p->profile.parameters > 0)
        json_object_set_new(file, "parameters", json_integer(p->profile.parameters));
    return cmd_json_write(file, o->json);
}

tr_status_t plan_nodes(const tr_config_t *config, const plan_options_t *o) {
    nodes_prediction_t p = {0};
    tr_status_t status = plan_nodes_predict(config, o, &p);
    if (status == TR_OK && !cmd_json_is_stdout(o->json)) plan_nodes_print(&p, o);
    if (status == TR_OK && o->json) status = plan_nodes_write_json(&p, config, o);
    tr_profile_free(&p.profile);
    tr_network_free(&p.between);
    tr_network_free(&p.inside);
    tr_str_free(&p.assumptions);
    return status;
}
