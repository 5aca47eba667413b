/* trainer plan CONFIG --gpu MODEL: what a run takes on a GPU that need not be in this machine. */
#include "cmd/cmd.h"
#include "plan.h"
#include "plan_price.h"
#include "plan_step.h"
#include "base/clock.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
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
    double sec;
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

/* -- printing ---------------------------------------------------------------------------------- */

static void plan_gpu_print(const gpu_plan_t *p, const plan_options_t *o) {
    const tr_memory_plan_t m = tr_graph_memory(p->s->g);
    const struct {
        const char *name;
        size_t bytes;
    } kinds[] = {{"parameters", m.params},
                 {"half-precision copies", m.copies},
                 {"gradients", m.reduced},
                 {"optimizer state", m.optim_state},
                 {"model state", m.model_state},
                 {"inputs, constants", m.inputs + m.consts},
                 {"arena: activations and workspaces", m.arena},
                 {"total", m.total}};
    char text[32];
    printf("%s on %d rank%s, micro-batch %lld, precision %s\n%s\n", o->path, o->ranks.value[0],
           o->ranks.value[0] > 1 ? "s" : "", (long long)p->s->order.micro_batch,
           tr_precision_name((tr_precision_t)p->s->main.precision), p->s->device->description);
    printf("cuDNN plans: %d made, %d restored, in %.1f s\n\n", p->made, p->restored, p->sec);
    printf("device memory per rank\n");
    for (size_t i = 0; i < TR_COUNT(kinds); i++)
        printf("  %-36s %12s\n", kinds[i].name, tr_format_bytes((double)kinds[i].bytes, text));
    for (size_t i = 0; i < TR_COUNT(not_counted); i++)
        printf("  %-12s %s\n", "not counted:", not_counted[i][1]);
    printf("  the plan %s the %s that cuda.memory_limit allows\n",
           m.total <= p->s->device->memory_bytes ? "fits in" : "DOES NOT FIT in",
           tr_format_bytes((double)p->s->device->memory_bytes, text));
    plan_print_pinned(p->s);
    plan_step_print(&p->step);
    printf("\nops that CUDA's libraries compute (count: ops with the same plan; the first is "
           "named)\n");
    cmd_table_print(&table, p->rows.data, p->rows.count);
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
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:o, s:i, s:i, s:f, s:o, s:o}", "kind",
                     "gpu", "config", o->path, "gpu", o->gpu, "device", p->s->device->description,
                     "precision", tr_precision_name((tr_precision_t)p->s->main.precision), "ranks",
                     o->ranks.value[0], "micro_batch", (json_int_t)p->s->order.micro_batch,
                     "memory_bytes", memory, "plans_made", p->made, "plans_restored", p->restored,
                     "plan_sec", p->sec, "ops", tr_table_json(&table, p->rows.data, p->rows.count),
                     "step", plan_step_json(&p->step));
}

/* Plans the session on a GPU of this kind, and predicts its step. */
static tr_status_t plan_gpu_predict(tr_config_t *config, const plan_options_t *o, const char *gpu,
                                    gpu_plan_t *p) {
    const int ranks = o->ranks.value[0];
    const bool is_auto = strcmp(tr_config_get(config, "data.micro_batch"), "auto") == 0;
    const tr_session_params_t params = {.training = true,
                                        .evaluation = true,
                                        .any_size = !is_auto, /* auto: reduced until it fits */
                                        .gpu = gpu,
                                        .split = TR_SPLIT_TRAIN,
                                        .rank = ranks - 1,
                                        .size = ranks};
    const tr_gpu_kind_t *kind = NULL;
    tr_status_t status = TR_OK;
    tr_str_t assignment = {0};
    TR_TRY(tr_gpu_kind_find(gpu, &kind));
    /* only --warm writes plans: those of a model are no choice for the GPUs of this machine */
    tr_str_printf(&assignment, "cuda.plan_cache=%s", o->warm ? o->warm : "none");
    TR_TRY_GOTO(tr_config_set(config, assignment.text, "plan --gpu"), done);
    TR_TRY_GOTO(tr_session_create(config, NULL, &params, &p->s), done);
    p->sec = p->s->plan_sec;
    status = plan_step_predict(p->s, kind, &p->step);
done:
    tr_str_free(&assignment);
    return status;
}

tr_status_t plan_gpu(tr_config_t *config, const plan_options_t *o) {
    gpu_plan_t p = {0};
    plan_price_t price;
    int priced = 0;
    json_t *json = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(plan_price_parse(o, 1, &price, &priced));
    TR_TRY_GOTO(plan_gpu_predict(config, o, o->gpu, &p), done);
    TR_TRY_GOTO(plan_gpu_add_program(&p, p.s->last), done);
    TR_TRY_GOTO(plan_gpu_add_program(&p, p.s->eval), done);
    TR_TRY_GOTO(p.s->device->ops->report(p.s->device, plan_gpu_take_count, &p), done);
    if (priced) plan_price_set(&price, p.s, &p.step);
    if (!cmd_json_is_stdout(o->json)) plan_gpu_print(&p, o);
    if (!cmd_json_is_stdout(o->json) && priced)
        TR_TRY_GOTO(plan_price_print(&price, priced, p.s), done);
    if (o->json) {
        json = plan_gpu_json(&p, o);
        if (priced) json_object_set_new(json, "prices", plan_price_json(&price, priced));
        status = cmd_json_write(json, o->json);
    }
done:
    tr_session_destroy(&p.s);
    tr_vec_free(&p.rows);
    return status;
}

tr_status_t plan_prices(tr_config_t *config, const plan_options_t *o) {
    enum { MOST = 16 };
    plan_price_t rows[MOST];
    int count = 0;
    tr_session_t *s = NULL; /* of the last GPU */
    tr_status_t status = TR_OK;
    TR_TRY(plan_price_parse(o, MOST, rows, &count));
    for (int i = 0; i < count; i++) {
        gpu_plan_t p = {0};
        tr_session_destroy(&s);
        status = plan_gpu_predict(config, o, rows[i].gpu, &p);
        s = p.s;
        TR_TRY_GOTO(status, done);
        plan_price_set(&rows[i], s, &p.step);
    }
    if (!cmd_json_is_stdout(o->json)) TR_TRY_GOTO(plan_price_print(rows, count, s), done);
    if (o->json)
        status = cmd_json_write(json_pack("{s:s, s:s, s:I, s:o}", "kind", "prices", "config",
                                          o->path, "steps", (json_int_t)s->total_steps, "prices",
                                          plan_price_json(rows, count)),
                                o->json);
done:
    tr_session_destroy(&s);
    return status;
}
