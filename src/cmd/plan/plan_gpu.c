/* trainer plan CONFIG --gpu MODEL: what a run takes on a GPU that need not be in this machine. */
#include "plan.h"
#include "plan_price.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Ops of one kind, with equal shapes, share one plan. */
typedef struct {
    const char *op;
    char label[96], shapes[200], how[128];
    size_t workspace;
    int count;
} gpu_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(gpu_row_t, "count", "count", INT, count),
    TR_COLUMN(gpu_row_t, "op", "op", STRING, op, .is_left = true, .width = 20),
    TR_COLUMN(gpu_row_t, "layer", "first", CHARS, label, .is_left = true, .width = 24),
    TR_COLUMN(gpu_row_t, "computed_by", "computed by", CHARS, how, .is_left = true, .width = 26),
    TR_COLUMN(gpu_row_t, "workspace_bytes", "workspace", SIZE, workspace, .people = tr_format_bytes,
              .width = 11),
    TR_COLUMN(gpu_row_t, "shapes", "shapes", CHARS, shapes, .is_left = true),
};
static const tr_table_t table = TR_TABLE(columns, gpu_row_t);

typedef struct {
    tr_session_t *s;
    TR_VEC(gpu_row_t) rows;
    int made, restored; /* plans of cuDNN */
    plan_step_t step;
} gpu_plan_t;

static const char *const not_counted[][2] = {
    {"cuda_context", "CUDA context and the kernels that CUDA's libraries load"},
    {"nccl", "NCCL's buffers, which depend on the number of ranks and their links"}};

/* Adds the ops that a library computes. */
static tr_status_t plan_gpu_add_program(gpu_plan_t *p, int program) {
    const tr_graph_t *g = p->s->g;
    for (int i = 0; i < tr_program_op_count(g, program); i++) {
        const tr_op_t *op = tr_program_op(g, program, i);
        gpu_row_t row = {.count = 1};
        char shape[96];
        size_t used = 0, k = 0;
        TR_TRY(tr_op_describe(g, op, row.how, sizeof row.how, &row.workspace));
        if (!*row.how) continue;
        row.op = op->row->name;
        tr_snprintf(row.label, sizeof row.label, "%s", op->label);
        /* "(32, 56, 56, 64), (64, 3, 3, 64) -> (32, 56, 56, 64)" */
        for (int in = 0; in < op->n_in && in < 2 && used < sizeof row.shapes; in++)
            if (!tr_is_none(op->in[in]))
                used += (size_t)tr_snprintf(row.shapes + used, sizeof row.shapes - used, "%s%s",
                                            in > 0 ? ", " : "",
                                            tr_shape_format(tr_shape_of(g, op->in[in]), shape));
        if (op->n_out > 0 && !tr_is_none(op->out[0]) && used < sizeof row.shapes)
            tr_snprintf(row.shapes + used, sizeof row.shapes - used, " -> %s",
                        tr_shape_format(tr_shape_of(g, op->out[0]), shape));
        for (; k < p->rows.count; k++) {
            const gpu_row_t *known = &p->rows.data[k];
            if (known->op == row.op && strcmp(known->shapes, row.shapes) == 0 &&
                strcmp(known->how, row.how) == 0 && known->workspace == row.workspace)
                break;
        }
        if (k < p->rows.count)
            p->rows.data[k].count++;
        else
            TR_TRY(tr_vec_push(&p->rows, row));
    }
    return TR_OK;
}

/* From the device's report. */
static void plan_gpu_take_count(void *self, const char *name, const char *value) {
    gpu_plan_t *p = self;
    if (strcmp(name, "plans made") == 0) p->made = atoi(value);
    if (strcmp(name, "plans restored") == 0) p->restored = atoi(value);
}

/* -- showing ----------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    size_t bytes;
} kind_row_t;

static const tr_table_column_t kind_columns[] = {
    TR_COLUMN(kind_row_t, NULL, "", STRING, name, .is_left = true, .width = 36),
    TR_COLUMN(kind_row_t, NULL, "", SIZE, bytes, .people = tr_format_bytes, .width = 11),
};

static void plan_gpu_append(const gpu_plan_t *p, const plan_options_t *o, tr_str_t *out) {
    const tr_table_t kind_table =
        TR_TABLE(kind_columns, kind_row_t, .indent = 2, .has_no_heads = true);
    const tr_memory_plan_t m = tr_graph_memory(p->s->g);
    const kind_row_t kinds[] = {{"parameters", m.params},
                                {"half-precision copies", m.copies},
                                {"gradients", m.reduced},
                                {"optimizer state", m.optim_state},
                                {"model state", m.model_state},
                                {"inputs, constants", m.inputs + m.consts},
                                {"arena: activations and workspaces", m.arena},
                                {"total", m.total}};
    char text[32];
    tr_str_printf(
        out, "%s on %d rank%s, micro-batch %lld, precision %s\n%s\n", o->path, o->ranks.value[0],
        o->ranks.value[0] > 1 ? "s" : "", (long long)p->s->order.micro_batch,
        tr_precision_name((tr_precision_t)p->s->main.precision), p->s->device->description);
    tr_str_printf(out, "cuDNN plans: %d made, %d restored, in %.1f s\n\n", p->made, p->restored,
                  p->s->plan_sec);
    tr_str_append(out, "device memory per rank\n");
    tr_table_text(&kind_table, kinds, TR_COUNT(kinds), 0, out);
    for (size_t i = 0; i < TR_COUNT(not_counted); i++)
        tr_str_printf(out, "  not counted: %s\n", not_counted[i][1]);
    tr_str_printf(out, "  the plan %s the %s that cuda.memory_limit allows\n",
                  m.total <= p->s->device->memory_bytes ? "fits in" : "DOES NOT FIT in",
                  tr_format_bytes((double)p->s->device->memory_bytes, text));
    plan_append_pinned(p->s, out);
    plan_step_append(&p->step, out);
    tr_str_append(out, "\nops that CUDA's libraries compute (count: ops with the same plan; the "
                       "first is named)\n");
}

static json_t *plan_gpu_json(const gpu_plan_t *p, const plan_options_t *o) {
    const tr_memory_plan_t m = tr_graph_memory(p->s->g);
    json_t *memory = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "parameters", (json_int_t)m.params,
        "half_precision_copies", (json_int_t)m.copies, "gradients", (json_int_t)m.reduced,
        "optimizer_state", (json_int_t)m.optim_state, "model_state", (json_int_t)m.model_state,
        "inputs_constants", (json_int_t)(m.inputs + m.consts), "arena", (json_int_t)m.arena,
        "total", (json_int_t)m.total, "limit", (json_int_t)p->s->device->memory_bytes);
    for (size_t i = 0; i < TR_COUNT(not_counted); i++)
        json_object_set_new(memory, not_counted[i][0], json_null());
    return json_pack("{s:s, s:s, s:s, s:i, s:I, s:o, s:i, s:i, s:f, s:o}", "gpu", o->gpu, "device",
                     p->s->device->description, "precision",
                     tr_precision_name((tr_precision_t)p->s->main.precision), "ranks",
                     o->ranks.value[0], "micro_batch", (json_int_t)p->s->order.micro_batch,
                     "memory_bytes", memory, "plans_made", p->made, "plans_restored", p->restored,
                     "plan_sec", p->s->plan_sec, "step", plan_step_json(&p->step));
}

static tr_status_t plan_gpu_find(tr_config_t *config, const plan_options_t *o, plan_result_t *out) {
    gpu_plan_t p = {0};
    plan_price_t price;
    int priced = 0;
    tr_status_t status = TR_OK;
    TR_TRY(plan_price_parse(o, 1, &price, &priced));
    TR_TRY_GOTO(plan_step_on(config, o, o->gpu, &p.s, &p.step), done);
    TR_TRY_GOTO(plan_gpu_add_program(&p, p.s->last), done);
    TR_TRY_GOTO(plan_gpu_add_program(&p, p.s->eval), done);
    TR_TRY_GOTO(p.s->device->ops->report(p.s->device, plan_gpu_take_count, &p), done);
    plan_gpu_append(&p, o, &out->before);
    out->json = plan_gpu_json(&p, o);
    if (!priced) goto done;
    plan_price_set(&price, p.s, &p.step);
    json_object_set_new(out->json, "prices", plan_price_json(&price, 1));
    status = plan_price_append(&price, 1, p.s, &out->after);
done:
    out->rows = p.rows.data;
    out->count = p.rows.count;
    tr_session_destroy(&p.s);
    return status;
}

const plan_mode_t plan_mode_gpu = {
    .kind = "gpu", .table = &table, .rows_key = "ops", .find = plan_gpu_find};
