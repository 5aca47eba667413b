/* plan --gpu: what a step takes by the roofline model, from the ops of its programs. */
#include "plan_step.h"
#include "base/mem.h"
#include "scaling/forecast.h"

#include <string.h>

static double plan_step_bytes(const tr_graph_t *g, tr_tensor_t t) {
    return tr_is_none(t) ? 0 : (double)tr_tensor_info(g, t)->bytes;
}

/* -- ops --------------------------------------------------------------------------------------- */

static tr_status_t plan_step_describe(const tr_graph_t *g, const tr_op_t *op, tr_step_op_t *out) {
    enum { FORWARD_BYTES = 16, BACKWARD_BYTES = 34, MASK_BYTES = 4 };
    const tr_kernel_facts_t *facts = tr_kernel_facts(op->row->kernel);
    char how[128];
    size_t scratch;
    *out = (tr_step_op_t){.group = facts->kind,
                          .unit = facts->kind == TR_KERNEL_PRODUCT     ? TR_UNIT_PRODUCT
                                  : facts->kind == TR_KERNEL_ATTENTION ? TR_UNIT_ATTENTION
                                                                       : TR_UNIT_NONE,
                          .launches = facts->launches ? facts->launches : 1};
    out->flops = tr_op_flops(g, op);
    out->bytes = tr_op_bytes(g, op);
    for (int i = 0; i < op->n_in; i++) out->bytes += facts->rereads * plan_step_bytes(g, op->in[i]);
    if (out->unit == TR_UNIT_PRODUCT) /* two FLOPs for each term of each element */
        out->terms = out->flops / 2 / (double)tr_shape_elems(tr_shape_of(g, op->out[0]));
    if (out->unit != TR_UNIT_ATTENTION) return TR_OK;
    TR_TRY(tr_op_describe(g, op, how, sizeof how, &scratch));
    if (strstr(how, "own kernel")) out->unit = TR_UNIT_CORES;
    const bool backward = op->row->kernel == TR_K_ATTENTION_BWD;
    const tr_shape_t *qkv = tr_shape_of(g, op->in[backward ? 1 : 0]);
    const tr_attention_attr_t *attr = op->attr;
    const double scores = (double)qkv->dim[0] * attr->heads * (double)(qkv->dim[1] * qkv->dim[1]);
    if (strstr(how, "standard")) {
        /* Attention by products (cuda_plain_attention.h): all T x T scores are computed, kept in
         * f32, read twice by the softmax of each direction, and written in the type of the
         * activations. */
        out->unit = TR_UNIT_PRODUCT;
        out->terms = (double)qkv->dim[2] / 3 / attr->heads;
        out->flops *= 2;
        out->bytes += scores * (backward ? BACKWARD_BYTES : FORWARD_BYTES);
        out->launches = (double)qkv->dim[0] * (backward ? 9 : 5);
    } else if (out->unit == TR_UNIT_ATTENTION && attr->p > 0) {
        /* Fused attention reads a mask of dropout, which is written before (cuda_attention.c). */
        out->bytes += scores * MASK_BYTES;
        out->launches++;
    }
    return TR_OK;
}

/* head_loss: up to three products with the logits, and a pass over them. Of a training step that
 * pass reads f32 logits twice and writes their gradient in the type of x; the products read that. */
static double plan_step_head_sec(const tr_roofline_t *on, const tr_graph_t *g, const tr_op_t *op) {
    enum { X, W, DX = 2, DW = 3, F32 = 4 };
    const double rows_of = (double)tr_shape_of(g, op->in[X])->dim[0],
                 channels = (double)tr_shape_of(g, op->in[X])->dim[1],
                 words = (double)tr_shape_of(g, op->in[W])->dim[0],
                 size = plan_step_bytes(g, op->in[X]) / (rows_of * channels),
                 logits = rows_of * words,
                 operands = plan_step_bytes(g, op->in[X]) + plan_step_bytes(g, op->in[W]);
    tr_step_op_t product = {.group = TR_KERNEL_HEAD,
                            .unit = TR_UNIT_PRODUCT,
                            .flops = 2 * rows_of * words * channels,
                            .terms = channels,
                            .bytes = F32 * logits + operands,
                            .launches = 1};
    const tr_step_op_t softmax = {
        .group = TR_KERNEL_HEAD, .bytes = (2 * F32 + size) * logits, .launches = 1};
    double sec = tr_roofline_op_sec(on, &product) + tr_roofline_op_sec(on, &softmax);
    product.terms = words;
    product.bytes = size * logits + operands;
    if (!tr_is_none(op->out[DX])) sec += tr_roofline_op_sec(on, &product);
    product.terms = rows_of;
    if (!tr_is_none(op->out[DW])) sec += tr_roofline_op_sec(on, &product);
    return sec;
}

static tr_status_t plan_step_op(plan_step_t *p, const tr_graph_t *g, const tr_op_t *op,
                                double times, double *out_sec) {
    tr_step_op_t step;
    *out_sec = 0;
    if (op->kind != TR_OP_KERNEL) return TR_OK;
    TR_TRY(plan_step_describe(g, op, &step));
    *out_sec = step.group == TR_KERNEL_HEAD ? plan_step_head_sec(&p->on, g, op)
                                            : tr_roofline_op_sec(&p->on, &step);
    p->sec[step.group] += times * *out_sec;
    p->launches += times * step.launches;
    return TR_OK;
}

/* Of a program that runs `times` times in a step; its reductions only the last time, except those of
 * `micro`, which it has where gradients are sharded. */
static tr_status_t plan_step_program(plan_step_t *p, const tr_session_t *s, int program,
                                     double times) {
    const int count = program < 0 || times <= 0 ? 0 : tr_program_op_count(s->g, program);
    TR_VEC(double) op_sec = {0}, bucket_sec = {0};
    TR_VEC(tr_bucket_t) buckets = {0};
    tr_status_t status = TR_OK;
    for (int i = 0; i < count; i++) {
        const tr_op_t *op = tr_program_op(s->g, program, i);
        double sec;
        TR_TRY_GOTO(plan_step_op(p, s->g, op, times, &sec), done);
        TR_TRY_GOTO(tr_vec_push(&op_sec, sec), done);
        if (op->kind != TR_OP_COLLECTIVE) continue;
        const tr_bucket_t bucket = {i, (double)op->collective.count *
                                           (double)tr_dtype_bytes(op->collective.type)};
        TR_TRY_GOTO(tr_vec_push(&buckets, bucket), done);
        /* an all-reduce is a reduce-scatter and a gather */
        sec = tr_roofline_allreduce_sec(&p->on, s->params.size, bucket.bytes) /
              (op->collective.kind == TR_ALLREDUCE ? 1 : 2);
        TR_TRY_GOTO(tr_vec_push(&bucket_sec, sec), done);
    }
    p->sec[TR_STEP_COMMUNICATION] +=
        tr_timeline(op_sec.data, count, 1, buckets.data, bucket_sec.data, (int)buckets.count, false)
            .exposed_sec *
        (program == s->micro ? times : 1);
done:
    tr_vec_free(&op_sec);
    tr_vec_free(&bucket_sec);
    tr_vec_free(&buckets);
    return status;
}

static double plan_step_peak(const tr_gpu_kind_t *gpu, int precision) {
    switch (precision) {
    case TR_PRECISION_TF32: return gpu->tf32 > 0 ? gpu->tf32 : gpu->fp32;
    case TR_PRECISION_BF16: return gpu->bf16;
    case TR_PRECISION_FP16: return gpu->fp16;
    default: return gpu->fp32;
    }
}

tr_status_t plan_step_predict(const tr_session_t *s, const tr_gpu_kind_t *gpu, plan_step_t *out) {
    const bool is_tokens = s->sample_terms > 1;
    const double slots = (double)s->slot_count, others = s->first < 0 ? 0 : slots - 2;
    *out = (plan_step_t){.on = {.gpu = gpu,
                                .peak = plan_step_peak(gpu, s->main.precision),
                                .eager = !s->main.capture},
                         .unit = is_tokens ? "tokens" : "samples"};
    TR_TRY(plan_step_program(out, s, s->first, 1));
    TR_TRY(plan_step_program(out, s, s->micro, others));
    TR_TRY(plan_step_program(out, s, s->last, s->first < 0 ? slots : 1));
    TR_TRY(plan_step_program(out, s, s->update, 1));
    for (int g = 0; g < TR_STEP_GROUPS; g++) out->step_sec += out->sec[g];
    out->per_sec =
        (double)(s->order.batch_size * (is_tokens ? s->sample_terms : 1)) / out->step_sec;
    return TR_OK;
}

tr_status_t plan_step_on(tr_config_t *config, const plan_options_t *o, const char *gpu,
                         tr_session_t **out, plan_step_t *out_step) {
    const int ranks = o->ranks.value[0];
    const bool is_auto = strcmp(tr_config_get(config, "data.micro_batch"), "auto") == 0;
    const tr_session_params_t params = {.purpose = TR_SESSION_PLAN,
                                        .any_size = !is_auto, /* auto: reduced until it fits */
                                        .gpu = gpu,
                                        .rank = ranks - 1,
                                        .size = ranks};
    const tr_gpu_kind_t *kind = NULL;
    tr_status_t status = TR_OK;
    tr_str_t assignment = {0};
    TR_TRY(tr_gpu_kind_find(gpu, &kind));
    /* only --warm writes plans: those of a model are no choice for the GPUs of this machine */
    tr_str_printf(&assignment, "cuda.plan_cache=%s", o->warm ? o->warm : "none");
    TR_TRY_GOTO(tr_config_set(config, assignment.text, "plan --gpu"), done);
    TR_TRY_GOTO(tr_session_create(config, NULL, &params, out), done);
    status = plan_step_predict(*out, kind, out_step);
done:
    tr_str_free(&assignment);
    return status;
}

/* -- showing ----------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    double sec, share;
} step_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(step_row_t, NULL, "", STRING, name, .is_left = true, .width = 24),
    TR_COLUMN(step_row_t, NULL, "", REAL, sec, .format = "%.3f ms", .scale = 1e3, .width = 12),
    TR_COLUMN(step_row_t, NULL, "", REAL, share, .format = "%.1f %%", .scale = 100, .width = 7),
};

void plan_step_append(const plan_step_t *p, tr_str_t *out) {
    const tr_table_t table = TR_TABLE(columns, step_row_t, .indent = 2, .has_no_heads = true);
    step_row_t rows[TR_STEP_GROUPS];
    tr_str_t lines = {0};
    tr_str_printf(
        out, "\nstep: predicted, not measured: %.*f ms, %.0f %s/s on all ranks, %.0f kernels%s\n",
        p->step_sec < 0.1 ? 2 : 0, 1e3 * p->step_sec, p->per_sec, p->unit, p->launches,
        p->on.eager ? "" : " in CUDA graphs");
    for (int g = 0; g < TR_STEP_GROUPS; g++)
        rows[g] = (step_row_t){tr_step_group_name(g), p->sec[g], p->sec[g] / p->step_sec};
    tr_table_text(&table, rows, TR_COUNT(rows), 0, out);
    tr_roofline_assumptions(&p->on, &lines);
    tr_str_append(out, "  assumptions\n");
    plan_append_lines(lines.text, "    ", out);
    tr_str_free(&lines);
}

json_t *plan_step_json(const plan_step_t *p) {
    json_t *groups = json_object();
    tr_str_t lines = {0};
    for (int g = 0; g < TR_STEP_GROUPS; g++)
        json_object_set_new(groups, tr_step_group_name(g), json_real(1e3 * p->sec[g]));
    tr_roofline_assumptions(&p->on, &lines);
    json_t *assumptions = plan_lines_json(lines.text);
    tr_str_free(&lines);
    return json_pack("{s:s, s:f, s:f, s:s, s:f, s:o, s:o}", "kind", "prediction", "step_ms",
                     1e3 * p->step_sec, "per_sec", p->per_sec, "unit", p->unit, "launches",
                     p->launches, "groups_ms", groups, "assumptions", assumptions);
}
