/* trainer plan CONFIG --stages: the memory of each stage of a step. */
#include "plan.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

typedef enum { LOADED, FORWARD_PEAK, FORWARD_END, BACKWARD, UPDATE, EVALUATION, STAGES } stage_t;
static const char *const stage_keys[] = {"loaded",        "forward_peak", "forward_end",
                                         "backward_peak", "update",       "evaluation"};

enum { KEPT = 6, KINDS = 9 };
/* The first six are there from the beginning to the end, the others are in the arena. */
static const char *const kind_names[KINDS] = {
    "parameters",          "half-precision copies", "gradients",
    "optimizer state",     "model state",           "inputs, constants",
    "forward activations", "backward activations",  "scratch"};
static const char *const kind_keys[KINDS] = {
    "parameters",          "half_precision_copies", "gradients",
    "optimizer_state",     "model_state",           "inputs_constants",
    "forward_activations", "backward_activations",  "scratch"};

typedef struct {
    const char *precision;
    tr_svg_role_t role; /* in plots */
    tr_memory_plan_t memory;
    int64_t micro_batch;
    size_t bytes[STAGES][KINDS];
    char peak_op[160], peak_label[160]; /* of backward */
    int peak_index;
    TR_VEC(double) ops; /* GiB in use during each op of the last micro-batch and of the update */
} stages_t;

/* The op of most memory among ops [first, end) of `program`. */
static int plan_stages_peak(const tr_graph_t *g, int program, int first, int end) {
    size_t most = 0;
    int peak = first;
    for (int i = first; i < end; i++) {
        const tr_live_t live = tr_program_live(g, program, i);
        const size_t bytes = live.forward + live.backward + live.scratch;
        if (bytes <= most) continue;
        most = bytes;
        peak = i;
    }
    return peak;
}

static void plan_stages_take(const tr_session_t *s, int program, int op, size_t bytes[KINDS]) {
    const tr_live_t live = tr_program_live(s->g, program, op);
    bytes[KEPT] = live.forward;
    bytes[KEPT + 1] = live.backward;
    bytes[KEPT + 2] = live.scratch;
}

static void plan_stages_measure(const tr_session_t *s, stages_t *out) {
    const tr_memory_plan_t m = tr_graph_memory(s->g);
    const size_t kept[KEPT] = {m.params,      m.copies,      m.reduced,
                               m.optim_state, m.model_state, m.inputs + m.consts};
    const int last_count = tr_program_op_count(s->g, s->last);
    int forward = 0;
    out->memory = m;
    out->micro_batch = s->order.micro_batch;
    for (int stage = 0; stage < STAGES; stage++)
        for (int k = 0; k < KEPT; k++) out->bytes[stage][k] = kept[k];
    while (forward + 1 < last_count && !tr_program_op(s->g, s->last, forward + 1)->backward)
        forward++;
    plan_stages_take(s, s->last, plan_stages_peak(s->g, s->last, 0, forward + 1),
                     out->bytes[FORWARD_PEAK]);
    plan_stages_take(s, s->last, forward, out->bytes[FORWARD_END]);
    out->peak_index = plan_stages_peak(s->g, s->last, forward + 1, last_count);
    const tr_op_t *op = tr_program_op(s->g, s->last, out->peak_index);
    tr_snprintf(out->peak_op, sizeof out->peak_op, "%s", op->row ? op->row->name : op->label);
    tr_snprintf(out->peak_label, sizeof out->peak_label, "%s", op->label);
    plan_stages_take(s, s->last, out->peak_index, out->bytes[BACKWARD]);
    plan_stages_take(s, s->update,
                     plan_stages_peak(s->g, s->update, 0, tr_program_op_count(s->g, s->update)),
                     out->bytes[UPDATE]);
    plan_stages_take(s, s->eval,
                     plan_stages_peak(s->g, s->eval, 0, tr_program_op_count(s->g, s->eval)),
                     out->bytes[EVALUATION]);
}

static size_t plan_stages_sum(const size_t bytes[KINDS]) {
    size_t sum = 0;
    for (int k = 0; k < KINDS; k++) sum += bytes[k];
    return sum;
}

static tr_status_t plan_stages_follow(const tr_session_t *s, int program, stages_t *out) {
    size_t bytes[KINDS];
    for (int i = 0; i < tr_program_op_count(s->g, program); i++) {
        memcpy(bytes, out->bytes[LOADED], sizeof bytes);
        plan_stages_take(s, program, i, bytes);
        TR_TRY(tr_vec_push(&out->ops, (double)plan_stages_sum(bytes) / 0x1p30));
    }
    return TR_OK;
}

typedef struct {
    const char *kind;
    size_t bytes[STAGES];
} stages_row_t;

#define STAGES_COLUMN(stage, heading)                                                              \
    TR_COLUMN(stages_row_t, NULL, heading, SIZE, bytes[stage], .people = tr_format_bytes,          \
              .width = 15)
static const tr_table_column_t columns[] = {
    TR_COLUMN(stages_row_t, NULL, "", STRING, kind, .is_left = true, .width = 22),
    STAGES_COLUMN(LOADED, "loaded"),
    STAGES_COLUMN(FORWARD_PEAK, "peak of forward"),
    STAGES_COLUMN(FORWARD_END, "end of forward"),
    STAGES_COLUMN(BACKWARD, "peak of backward"),
    STAGES_COLUMN(UPDATE, "update"),
    STAGES_COLUMN(EVALUATION, "evaluation"),
};
static const tr_table_t table = TR_TABLE(columns, stages_row_t);

static void plan_stages_append(const stages_t *p, tr_str_t *out) {
    stages_row_t rows[KINDS + 1] = {[KINDS] = {.kind = "in use"}};
    char text[32];
    for (int k = 0; k < KINDS; k++) {
        rows[k].kind = kind_names[k];
        for (int stage = 0; stage < STAGES; stage++) {
            rows[k].bytes[stage] = p->bytes[stage][k];
            rows[KINDS].bytes[stage] += p->bytes[stage][k];
        }
    }
    tr_str_printf(out, "\nprecision = %s, micro-batch %lld\n", p->precision,
                  (long long)p->micro_batch);
    tr_table_text(&table, rows, TR_COUNT(rows), 0, out);
    tr_str_printf(out, "%-22s %16s, of which the arena (activations and scratch) is ", "allocated",
                  tr_format_bytes((double)p->memory.total, text));
    tr_str_printf(out, "%s\n", tr_format_bytes((double)p->memory.arena, text));
    tr_str_printf(out, "%-22s op %d of last: %s, %s\n", "peak of backward", p->peak_index,
                  p->peak_op, p->peak_label);
}

static json_t *plan_stages_json(const stages_t *p) {
    json_t *stages = json_object();
    for (int stage = 0; stage < STAGES; stage++) {
        json_t *kinds = json_object();
        for (int k = 0; k < KINDS; k++)
            json_object_set_new(kinds, kind_keys[k], json_integer((json_int_t)p->bytes[stage][k]));
        json_object_set_new(kinds, "total",
                            json_integer((json_int_t)plan_stages_sum(p->bytes[stage])));
        json_object_set_new(stages, stage_keys[stage], kinds);
    }
    return json_pack("{s:s, s:I, s:o, s:I, s:I, s:i, s:s, s:s}", "precision", p->precision,
                     "micro_batch", (json_int_t)p->micro_batch, "stages", stages, "allocated_bytes",
                     (json_int_t)p->memory.total, "arena_bytes", (json_int_t)p->memory.arena,
                     "peak_op_index", p->peak_index, "peak_op", p->peak_op, "peak_layer",
                     p->peak_label);
}

static tr_status_t plan_stages_plan(tr_config_t *config, int ranks, stages_t *out) {
    tr_session_t *s = NULL;
    TR_TRY(plan_try(config, "plan --stages", ranks, &s, "precision=%s", out->precision));
    plan_stages_measure(s, out);
    tr_status_t status = plan_stages_follow(s, s->last, out);
    if (status == TR_OK) status = plan_stages_follow(s, s->update, out);
    tr_session_destroy(&s);
    return status;
}

/* Two charts in one picture. */
static tr_status_t plan_stages_draw(const stages_t *plans, size_t count, tr_svg_t *out) {
    enum { MOST_PLANS = 4, MOST_OPS = 1 << 16 };
    static const char *const stage_names[STAGES] = {"loaded",   "forward", "its end",
                                                    "backward", "update",  "evaluation"};
    const tr_svg_chart_t by_stage = {.title = "Memory by stage of a step",
                                     .x_label = "stage",
                                     .y_label = "memory (GiB)",
                                     .x_scale = TR_SVG_CATEGORIES,
                                     .x_names = stage_names,
                                     .from_zero = true},
                         by_op = {.title = "Memory over the ops of a step",
                                  .x_label = "op of the last micro-batch and of the update",
                                  .y_label = "memory (GiB)",
                                  .from_zero = true};
    double y[MOST_PLANS][STAGES], *x = NULL;
    tr_svg_series_t stages[MOST_PLANS], ops[MOST_PLANS];
    TR_TRY(tr_alloc(MOST_OPS * sizeof *x, "plot", &x));
    for (int i = 0; i < MOST_OPS; i++) x[i] = i;
    for (size_t p = 0; p < count; p++) {
        const size_t n = plans[p].ops.count;
        for (int stage = 0; stage < STAGES; stage++)
            y[p][stage] = (double)plan_stages_sum(plans[p].bytes[stage]) / 0x1p30;
        stages[p] = (tr_svg_series_t){
            .title = plans[p].precision, .role = plans[p].role, .x = x, .y = y[p], .count = STAGES};
        ops[p] = stages[p];
        stages[p].kind = TR_SVG_COLUMN;
        ops[p].y = plans[p].ops.data;
        ops[p].count = n < MOST_OPS ? n : MOST_OPS;
    }
    tr_svg_add(out, &by_stage, stages, count);
    tr_svg_add(out, &by_op, ops, count);
    tr_free(&x);
    return TR_OK;
}

static tr_status_t plan_stages_find(tr_config_t *config, const plan_options_t *o,
                                    plan_result_t *out) {
    stages_t plans[] = {{.precision = "fp32", .role = TR_SHOWS_FP32},
                        {.precision = "bf16", .role = TR_SHOWS_BF16},
                        {.precision = "fp16", .role = TR_SHOWS_FP16}};
    const int ranks = o->ranks.value[0];
    tr_status_t status = TR_OK;
    json_t *list = json_array();
    out->json = json_pack("{s:i, s:o}", "ranks", ranks, "plans", list);
    for (size_t i = 0; i < TR_COUNT(plans); i++)
        TR_TRY_GOTO(plan_stages_plan(config, ranks, &plans[i]), done);
    tr_str_printf(&out->before, "memory per rank of %s on %d rank%s\n", o->path, ranks,
                  ranks > 1 ? "s" : "");
    for (size_t i = 0; i < TR_COUNT(plans); i++) {
        plan_stages_append(&plans[i], &out->before);
        json_array_append_new(list, plan_stages_json(&plans[i]));
    }
    if (o->svg) status = plan_stages_draw(plans, TR_COUNT(plans), &out->charts);
done:
    for (size_t i = 0; i < TR_COUNT(plans); i++) tr_vec_free(&plans[i].ops);
    return status;
}

/* A table for each precision; in the JSON an object for each. */
const plan_mode_t plan_mode_stages = {.kind = "stages", .find = plan_stages_find};
