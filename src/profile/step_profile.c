/* Sums the spans of the trace. */
#include "step_profile.h"
#include "base/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tr_step_profile_free(tr_step_profile_t *p) {
    tr_vec_free(&p->ranks);
    tr_vec_free(&p->ops);
    tr_vec_free(&p->buckets);
}

static double span_sec(const tr_span_t *span) {
    return span->end_sec - span->begin_sec;
}

/* The median of the steps, and the longest of them. */
static void rank_profile_take_steps(const tr_spans_t *spans, tr_rank_profile_t *out) {
    TR_VEC(double) steps = {0};
    out->median_sec = out->longest_sec = NAN;
    for (size_t i = 0; i < spans->count; i++) {
        const tr_span_t *span = &spans->data[i];
        if (span->kind != TR_SPAN_STEP || tr_vec_push(&steps, span_sec(span)) != TR_OK) continue;
        if (span_sec(span) <= out->longest_sec) continue;
        out->longest_sec = span_sec(span);
        out->longest_step = span->step;
    }
    if (steps.count > 0) {
        tr_sort(steps.data, (int64_t)steps.count);
        out->median_sec = steps.data[steps.count / 2];
    }
    tr_vec_free(&steps);
}

bool tr_rank_profile_take(const tr_spans_t *spans, tr_rank_profile_t *out) {
    double sec[TR_SPAN_KINDS] = {0}, bytes[TR_SPAN_KINDS] = {0};
    int64_t steps = 0;
    for (size_t i = 0; i < spans->count; i++) {
        const tr_span_t *span = &spans->data[i];
        if (span->step == 0 && span->kind != TR_SPAN_READ) continue; /* a validation */
        sec[span->kind] += span_sec(span);
        bytes[span->kind] += (double)span->bytes;
        steps += span->kind == TR_SPAN_STEP;
    }
    const double n = (double)steps;
    out->dropped = (double)spans->dropped;
    if (steps == 0) return false;
    rank_profile_take_steps(spans, out);
    out->step_sec = sec[TR_SPAN_STEP] / n;
    out->compute_sec = sec[TR_SPAN_OP] / n;
    out->data_sec = sec[TR_SPAN_DATA] / n;
    out->wait_sec = sec[TR_SPAN_WAIT] / n;
    out->progress_sec = sec[TR_SPAN_PROGRESS] / n;
    out->read_sec = sec[TR_SPAN_READ] / n;
    out->read_bytes = bytes[TR_SPAN_READ] / n;
    return true;
}

/* -- buckets ----------------------------------------------------------------------------------- */

/* The layers whose parameters are in elements [first, end) of the block, in the order of the model. */
static void bucket_name_layers(const tr_graph_t *g, int64_t first, int64_t end,
                               char text[static 96]) {
    enum { BYTES = 96, MOST = 4 };
    const char *layers[MOST];
    size_t lengths[MOST], used = 0;
    int count = 0;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
        if (!tr_is_param(g, (tr_tensor_t){id}) || info->block_elems >= end ||
            info->block_elems + tr_shape_elems(&info->shape) <= first)
            continue;
        const char *dot = strrchr(info->name, '.');
        const size_t length = dot ? (size_t)(dot - info->name) : strlen(info->name);
        bool is_known = false;
        for (int k = 0; k < count && k < MOST; k++)
            is_known |= lengths[k] == length && strncmp(layers[k], info->name, length) == 0;
        if (is_known) continue;
        if (count < MOST) layers[count] = info->name, lengths[count] = length;
        count++;
    }
    text[0] = '\0';
    for (int k = 0; k < count && k < MOST && used < BYTES; k++)
        used += (size_t)snprintf(text + used, BYTES - used, "%s%.*s", k ? ", " : "",
                                 (int)lengths[k], layers[k]);
    if (count > MOST && used < BYTES) snprintf(text + used, BYTES - used, ", ...");
}

/* The elements of the block that a collective has summed: sharded gradients are in a window then. */
static void bucket_find_range(const tr_graph_t *g, const tr_op_t *op, int64_t *first,
                              int64_t *end) {
    *first = op->collective.first;
    *end = *first + op->collective.count;
    for (tr_part_t part = {0};
         tr_gradients_are_sharded(g) && part.number <= op->bucket && tr_next_part(g, 0, &part);)
        *first = part.bucket, *end = part.end;
}

typedef TR_VEC(tr_span_t) span_list_t;

/* The part of `span` in which the device waited: the waits of its step begin at waits[*first]. Steps
 * are in their order in both. */
static double bucket_exposed_sec(const span_list_t *waits, const tr_span_t *span, size_t *first) {
    double sec = 0;
    while (*first < waits->count && waits->data[*first].step < span->step) ++*first;
    for (size_t i = *first; i < waits->count && waits->data[i].step == span->step; i++)
        sec += fmax(0, fmin(waits->data[i].end_sec, span->end_sec) -
                           fmax(waits->data[i].begin_sec, span->begin_sec));
    return sec;
}

tr_status_t tr_step_profile_take_buckets(tr_step_profile_t *p, const tr_spans_t *spans,
                                         const tr_step_programs_t *programs) {
    const tr_graph_t *g = programs->g;
    span_list_t waits = {0};
    size_t first_wait = 0;
    tr_status_t status = TR_OK;
    for (int i = 0; i < tr_program_op_count(g, programs->last); i++) {
        const tr_op_t *op = tr_program_op(g, programs->last, i);
        tr_bucket_profile_t bucket = {0};
        if (op->kind != TR_OP_COLLECTIVE) continue;
        int64_t first, end;
        bucket_find_range(g, op, &first, &end);
        bucket_name_layers(g, first, end, bucket.layers);
        TR_TRY(tr_vec_push(&p->buckets, bucket));
    }
    /* An immediate device computes nothing while its thread works for the communication. */
    for (size_t i = 0; i < spans->count && status == TR_OK; i++)
        if (spans->data[i].kind == TR_SPAN_WAIT ||
            (spans->data[i].kind == TR_SPAN_PROGRESS && p->is_immediate))
            status = tr_vec_push(&waits, spans->data[i]);
    const double n = (double)(p->last - p->first + 1);
    for (size_t i = 0; i < spans->count && status == TR_OK; i++) {
        const tr_span_t *span = &spans->data[i];
        if (span->kind != TR_SPAN_COLLECTIVE || span->number < 0 ||
            span->number >= (int64_t)p->buckets.count)
            continue;
        tr_bucket_profile_t *bucket = &p->buckets.data[span->number];
        bucket->bytes += (double)span->bytes / n;
        bucket->sec += span_sec(span) / n;
        bucket->exposed_sec += bucket_exposed_sec(&waits, span, &first_wait) / n;
    }
    tr_vec_free(&waits);
    return status;
}

/* -- ops --------------------------------------------------------------------------------------- */

const char *tr_op_phase(const tr_op_t *op, const tr_step_programs_t *programs) {
    if (op->backward) return "backward";
    for (int i = 0; i < tr_program_op_count(programs->g, programs->update); i++)
        if (tr_program_op(programs->g, programs->update, i) == op) return "update";
    return "forward";
}

static int op_compare_items(const void *a, const void *b) {
    const char *x = ((const tr_span_t *)a)->item, *y = ((const tr_span_t *)b)->item;
    return (x > y) - (x < y);
}

static int op_compare_sec(const void *a, const void *b) {
    const double x = ((const tr_op_profile_t *)a)->sec, y = ((const tr_op_profile_t *)b)->sec;
    return (x < y) - (x > y);
}

/* Adds the ops of one record: to those of the same row and layer in another program of the step. */
static tr_status_t step_profile_add_op(tr_step_profile_t *p, const tr_op_profile_t *op) {
    for (size_t i = 0; i < p->ops.count; i++) {
        tr_op_profile_t *to = &p->ops.data[i];
        if (to->name != op->name || to->phase != op->phase || strcmp(to->layer, op->layer) != 0)
            continue;
        to->calls += op->calls;
        to->sec += op->sec;
        to->flops += op->flops;
        to->least_flops += op->least_flops;
        to->bytes += op->bytes;
        return TR_OK;
    }
    return tr_vec_push(&p->ops, *op);
}

tr_status_t tr_step_profile_take_ops(tr_step_profile_t *p, const tr_spans_t *spans,
                                     const tr_step_programs_t *programs) {
    const double n = (double)(p->last - p->first + 1);
    span_list_t ops = {0};
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < spans->count && status == TR_OK; i++)
        if (spans->data[i].kind == TR_SPAN_OP) status = tr_vec_push(&ops, spans->data[i]);
    if (ops.count > 0) qsort(ops.data, ops.count, sizeof *ops.data, op_compare_items);
    for (size_t first = 0, end; first < ops.count && status == TR_OK; first = end) {
        const tr_op_t *op = ops.data[first].item;
        double sec = 0;
        for (end = first; end < ops.count && ops.data[end].item == op; end++)
            sec += span_sec(&ops.data[end]);
        const double calls = (double)(end - first) / n;
        status = step_profile_add_op(
            p, &(tr_op_profile_t){.name = op->row->name,
                                  .layer = op->label,
                                  .phase = tr_op_phase(op, programs),
                                  .calls = calls,
                                  .sec = sec / n,
                                  .flops = calls * tr_op_flops(programs->g, op),
                                  .least_flops = calls * tr_op_least_flops(programs->g, op),
                                  .bytes = calls * tr_op_bytes(programs->g, op)});
    }
    for (size_t i = 0; i < p->ops.count; i++) {
        tr_op_profile_t *op = &p->ops.data[i];
        const double flops_sec = op->least_flops / p->peak_flops,
                     bytes_sec = op->bytes / p->peak_bytes;
        op->is_memory_bound = bytes_sec > flops_sec;
        op->floor_sec = isnan(p->peak_flops) ? NAN : fmax(flops_sec, bytes_sec);
    }
    if (p->ops.count > 0) qsort(p->ops.data, p->ops.count, sizeof *p->ops.data, op_compare_sec);
    tr_vec_free(&ops);
    return status;
}

/* -- the whole --------------------------------------------------------------------------------- */

double tr_step_profile_sec(const tr_step_profile_t *p) {
    double sum = 0;
    for (size_t i = 0; i < p->ranks.count; i++) sum += p->ranks.data[i].step_sec;
    return sum / (double)p->ranks.count;
}

double tr_step_profile_launched_sec(const tr_step_profile_t *p) {
    return p->is_captured && isfinite(p->untraced_sec) ? p->untraced_sec : tr_step_profile_sec(p);
}

double tr_step_profile_utilisation(const tr_step_profile_t *p) {
    double sum = 0;
    for (size_t i = 0; i < p->ranks.count; i++) sum += p->ranks.data[i].compute_sec;
    return fmin(1, sum / (double)p->ranks.count / tr_step_profile_launched_sec(p));
}
