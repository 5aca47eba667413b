/* trainer plan CONFIG --nodes: predicted step times on more nodes. */
#include "plan.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "scaling/forecast.h"
#include "trainer/session.h"

#include <string.h>

/* A forecast, and its texts. */
typedef struct {
    tr_forecast_t f;
    char share[48];      /* "2 x 16" */
    const char *network; /* where the times of the network come from */
} nodes_row_t;

#define NODES_BAND(key, member, text, factor, json_factor, columns, over)                          \
    TR_COLUMN(nodes_row_t, key ".low", "low", REAL, f.member.low, .format = text, .scale = factor, \
              .key_scale = json_factor, .width = columns, .above = over),                          \
        TR_COLUMN(nodes_row_t, key ".expected", "expected", REAL, f.member.expected,               \
                  .format = text, .scale = factor, .key_scale = json_factor, .width = columns,     \
                  .above = over),                                                                  \
        TR_COLUMN(nodes_row_t, key ".high", "high", REAL, f.member.high, .format = text,           \
                  .scale = factor, .key_scale = json_factor, .width = columns, .above = over)
static const tr_table_column_t columns[] = {
    TR_COLUMN(nodes_row_t, "nodes", "nodes", INT, f.nodes, .width = 6),
    TR_COLUMN(nodes_row_t, "ranks", "ranks", INT, f.ranks),
    TR_COLUMN(nodes_row_t, "batch_global", "batch", INT64, f.batch_size, .width = 7),
    TR_COLUMN(nodes_row_t, "slots", NULL, INT64, f.slots),
    TR_COLUMN(nodes_row_t, "micro_batch", NULL, INT64, f.micro_batch),
    TR_COLUMN(nodes_row_t, NULL, "per rank", CHARS, share, .width = 11),
    NODES_BAND("step_ms", step_sec, "%.3f", 1e3, 1e3, 9, "step ms"),
    TR_COLUMN(nodes_row_t, "comm_exposed_ms", NULL, REAL, f.exposed_sec.expected, .key_scale = 1e3),
    NODES_BAND("comm_exposed_band_ms", exposed_sec, "%.3f", 1e3, 1e3, 7,
               "exposed communication ms"),
    NODES_BAND("efficiency", efficiency, "%.1f", 100, 1, 6, "efficiency %"),
    TR_COLUMN(nodes_row_t, "network", "network", STRING, network, .width = 8),
};
static const tr_table_t table = TR_TABLE(columns, nodes_row_t);
static const char *const origin_names[] = {"none", "measured", "fitted"};

typedef struct {
    tr_profile_t profile;
    tr_network_t between, inside;
    tr_forecast_setup_t setup;
    nodes_row_t *row; /* [o->nodes.count] */
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
            tr_snprintf(key, sizeof key, "model.%s", tables[t]->fields[i].name);
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
    tr_parallel_settings_t parallel;
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
    tr_config_read(config, &tr_parallel_config, &parallel);
    TR_TRY(tr_profile_read(o->profile, &p->profile));
    TR_TRY(plan_nodes_check_profile(config, &p->profile, o->profile));
    TR_TRY(tr_network_read(o->network, &p->between));
    if (o->network_inside) TR_TRY(tr_network_read(o->network_inside, &p->inside));
    p->setup = (tr_forecast_setup_t){.profile = &p->profile,
                                     .between = &p->between,
                                     .inside = o->network_inside ? &p->inside : NULL,
                                     .ranks_per_node = (int)o->ranks_per_node,
                                     .mode = (tr_scaling_t)o->mode,
                                     .batch_size = data.batch_size,
                                     .shards_gradients = parallel.zero == 2};
    TR_TRY(tr_alloc((size_t)o->nodes.count * sizeof *p->row, "forecasts", &p->row));
    for (int i = 0; i < o->nodes.count; i++) {
        nodes_row_t *row = &p->row[i];
        TR_TRY(tr_forecast(&p->setup, o->nodes.value[i], &row->f));
        row->network = origin_names[row->f.network];
        tr_snprintf(row->share, sizeof row->share, "%lld x %lld", (long long)row->f.slots,
                    (long long)row->f.micro_batch);
    }
    tr_forecast_assumptions(&p->setup, &p->assumptions);
    return TR_OK;
}

/* -- showing ----------------------------------------------------------------------------------- */

static const char *const mode_names[] = {
    [TR_SCALING_WEAK] = "weak", [TR_SCALING_STRONG] = "strong"};

static void plan_nodes_show(const nodes_prediction_t *p, const tr_config_t *config,
                            const plan_options_t *o, plan_result_t *out) {
    out->count = (size_t)o->nodes.count;
    tr_str_printf(&out->before,
                  "predicted, not measured: %s scaling of %s, %lld rank%s per node\n\n",
                  mode_names[o->mode], o->path, (long long)o->ranks_per_node,
                  o->ranks_per_node > 1 ? "s" : "");
    tr_str_append(&out->after, "\nassumptions\n");
    plan_append_lines(p->assumptions.text, "  ", &out->after);
    out->json = json_pack("{s:s, s:I, s:s, s:i, s:o}", "mode", mode_names[o->mode],
                          "ranks_per_node", (json_int_t)o->ranks_per_node, "precision",
                          tr_config_get(config, "precision"), "threads", p->profile.threads,
                          "assumptions", plan_lines_json(p->assumptions.text));
    if (p->profile.parameters > 0)
        json_object_set_new(out->json, "parameters", json_integer(p->profile.parameters));
}

static tr_status_t plan_nodes_find(tr_config_t *config, const plan_options_t *o,
                                   plan_result_t *out) {
    nodes_prediction_t p = {0};
    const tr_status_t status = plan_nodes_predict(config, o, &p);
    out->rows = p.row;
    if (status == TR_OK) plan_nodes_show(&p, config, o, out);
    tr_profile_free(&p.profile);
    tr_network_free(&p.between);
    tr_network_free(&p.inside);
    tr_str_free(&p.assumptions);
    return status;
}

const plan_mode_t plan_mode_nodes = {
    .kind = "prediction", .table = &table, .find = plan_nodes_find};
