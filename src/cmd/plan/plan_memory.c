/* trainer plan CONFIG: parameters, work, memory on several numbers of ranks; with --ops the
 * programs. */
#include "plan.h"
#include "base/mem.h"
#include "weights/state.h"

#include <math.h>
#include <string.h>

/* -- parameters -------------------------------------------------------------------------------- */

typedef struct {
    char name[96];
    char pattern[96]; /* the name with * for its numbers; the name of a group of several */
    char shape[96], note[32];
    int64_t elems;
    int count; /* tensors of the group */
} parameter_row_t;

static const tr_table_column_t parameter_columns[] = {
    TR_COLUMN(parameter_row_t, NULL, "", CHARS, name, .is_left = true, .width = 39),
    TR_COLUMN(parameter_row_t, NULL, "", INT, count, .format = "%.0f x", .zero_is_missing = true,
              .missing = "", .width = 5),
    TR_COLUMN(parameter_row_t, NULL, "", CHARS, shape, .is_left = true, .missing = "", .width = 20),
    TR_COLUMN(parameter_row_t, NULL, "", INT64, elems, .width = 11),
    TR_COLUMN(parameter_row_t, NULL, "", CHARS, note, .is_left = true, .missing = ""),
};

typedef TR_VEC(parameter_row_t) parameter_rows_t;

/* Adds a tensor to the rows: tensors of one shape, whose names differ in their numbers, are one row. */
static tr_status_t plan_add_parameter(parameter_rows_t *rows, parameter_row_t row) {
    size_t bytes = 0;
    for (const char *at = row.name; *at; at++) {
        if (*at < '0' || *at > '9')
            row.pattern[bytes++] = *at;
        else if (at == row.name || at[-1] < '0' || at[-1] > '9')
            row.pattern[bytes++] = '*';
    }
    row.pattern[bytes] = '\0';
    for (size_t i = 0; i < rows->count; i++) {
        parameter_row_t *group = &rows->data[i];
        if (strcmp(group->pattern, row.pattern) != 0 || strcmp(group->shape, row.shape) != 0 ||
            strcmp(group->note, row.note) != 0)
            continue;
        memcpy(group->name, row.pattern, sizeof group->name);
        group->count++;
        group->elems += row.elems;
        return TR_OK;
    }
    return tr_vec_push(rows, row);
}

static tr_status_t plan_append_parameters(const tr_session_t *s, bool all, tr_str_t *out) {
    const tr_table_t table =
        TR_TABLE(parameter_columns, parameter_row_t, .indent = 2, .has_no_heads = true);
    parameter_rows_t rows = {0};
    parameter_row_t sum = {.name = "in all", .elems = s->parameters};
    char count[32];
    tr_status_t status = TR_OK;
    for (int32_t id = 1; id <= tr_graph_tensor_count(s->g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(s->g, (tr_tensor_t){id});
        parameter_row_t row = {.elems = tr_shape_elems(&info->shape), .count = all ? 0 : 1};
        if (!tr_is_param(s->g, (tr_tensor_t){id})) continue;
        tr_snprintf(row.name, sizeof row.name, "%s", info->name);
        tr_shape_format(&info->shape, row.shape);
        tr_snprintf(row.note, sizeof row.note, "%s%s", info->param.trainable ? "" : "frozen",
                    info->param.decay       ? ""
                    : info->param.trainable ? "no decay"
                                            : "  no decay");
        TR_TRY_GOTO(all ? tr_vec_push(&rows, row) : plan_add_parameter(&rows, row), done);
    }
    tr_snprintf(sum.note, sizeof sum.note, "(%s)", tr_format_count((double)s->parameters, count));
    TR_TRY_GOTO(tr_vec_push(&rows, sum), done);
    tr_str_append(out, all ? "parameters\n" : "parameters (--verbose lists each tensor)\n");
    tr_table_text(&table, rows.data, rows.count, 0, out);
    tr_str_append(out, "\n");
done:
    tr_vec_free(&rows);
    return status;
}

/* -- ops --------------------------------------------------------------------------------------- */

typedef struct {
    int index;
    const char *op;
    char label[128], shape[96];
    double flops, bytes; /* NAN: of a record that is no op */
} op_row_t;

static const tr_table_column_t op_columns[] = {
    TR_COLUMN(op_row_t, NULL, "", INT, index, .width = 4),
    TR_COLUMN(op_row_t, NULL, "", STRING, op, .is_left = true, .width = 17),
    TR_COLUMN(op_row_t, NULL, "", CHARS, label, .is_left = true, .missing = "", .width = 27),
    TR_COLUMN(op_row_t, NULL, "", CHARS, shape, .is_left = true, .missing = "", .width = 22),
    TR_COLUMN(op_row_t, NULL, "", REAL, flops, .format = "%.3f MFLOP", .scale = 1e-6, .missing = "",
              .width = 15),
    TR_COLUMN(op_row_t, NULL, "", REAL, bytes, .format = "%.3f MB", .scale = 1e-6, .missing = "",
              .width = 12),
};

static op_row_t plan_op_row(const tr_session_t *s, const tr_op_t *op, int index) {
    op_row_t row = {.index = index, .flops = NAN, .bytes = NAN};
    if (op->kind == TR_OP_COLLECTIVE) {
        static const char *const names[] = {[TR_ALLREDUCE] = "all-reduce",
                                            [TR_REDUCE_SCATTER] = "reduce-scatter",
                                            [TR_ALLGATHER] = "all-gather"};
        row.op = names[op->collective.kind];
        if (op->bucket >= 0)
            tr_snprintf(row.label, sizeof row.label, "bucket %d: %lld elements", op->bucket,
                        (long long)op->collective.count);
        else
            tr_snprintf(row.label, sizeof row.label, "%lld sums", (long long)op->collective.count);
    } else if (op->kind == TR_OP_WAIT) {
        row.op = "wait";
        tr_snprintf(row.label, sizeof row.label, "for the ranks");
    } else if (op->kind == TR_OP_ZERO) {
        row.op = "zero";
        tr_snprintf(row.label, sizeof row.label, "the sums");
    } else {
        row.op = op->row->name;
        tr_snprintf(row.label, sizeof row.label, "%s", op->label);
        if (op->n_out > 0 && op->out[0].id)
            tr_shape_format(tr_shape_of(s->g, op->out[0]), row.shape);
        row.flops = tr_op_flops(s->g, op);
        row.bytes = tr_op_bytes(s->g, op);
    }
    return row;
}

static tr_status_t plan_append_ops(const tr_session_t *s, int program, tr_str_t *out) {
    const tr_table_t table = TR_TABLE(op_columns, op_row_t, .indent = 2, .has_no_heads = true);
    const int count = tr_program_op_count(s->g, program);
    const char *fused;
    op_row_t *rows = NULL;
    TR_TRY(tr_alloc((size_t)count * sizeof *rows, "list of ops", &rows));
    for (int i = 0; i < count; i++) rows[i] = plan_op_row(s, tr_program_op(s->g, program, i), i);
    tr_str_printf(out, "program %s\n", tr_program_name(s->g, program));
    tr_table_text(&table, rows, (size_t)count, 0, out);
    for (int k = 0, times; (fused = tr_program_fused(s->g, program, k, &times)); k++)
        if (times > 0) tr_str_printf(out, "  fused: %s (%d times)\n", fused, times);
    tr_str_append(out, "\n");
    tr_free(&rows);
    return TR_OK;
}

/* -- work -------------------------------------------------------------------------------------- */

static double plan_program_sum(const tr_session_t *s, int program,
                               double (*of)(const tr_graph_t *, const tr_op_t *)) {
    double sum = 0;
    for (int i = 0; i < tr_program_op_count(s->g, program); i++)
        sum += of(s->g, tr_program_op(s->g, program, i));
    return sum;
}

static void plan_append_work(const tr_session_t *s, tr_str_t *out) {
    const double n = (double)s->order.micro_batch,
                 flops = plan_program_sum(s, s->last, tr_op_flops);
    tr_str_printf(
        out,
        "work      %.4g MFLOP per sample, forward and backward; %.4g MB of memory traffic per "
        "sample, without fusion or caching\n",
        flops / n / 1e6, plan_program_sum(s, s->last, tr_op_bytes) / n / 1e6);
    tr_str_printf(out, "ops       %d forward and backward, %d update, %d evaluation\n",
                  tr_program_op_count(s->g, s->last), tr_program_op_count(s->g, s->update),
                  tr_program_op_count(s->g, s->eval));
    tr_str_printf(
        out,
        "data      %s; %lld samples, %.6g steps per epoch at batch size %lld; %lld steps in total\n"
        "\n",
        s->info.description, (long long)s->info.samples, s->steps_per_epoch,
        (long long)s->order.batch_size, (long long)s->total_steps);
}

/* -- memory ------------------------------------------------------------------------------------ */

typedef struct {
    int ranks;
    char slots[48]; /* "3", or "2-3" where ranks differ */
    int64_t micro_batch;
    size_t parameters, gradients, optimizer, model_state, activations, inputs, total;
    size_t sharded;    /* of the total: this rank's parts of what ranks share */
    size_t checkpoint; /* besides, in host memory: the copy that is written; of rank 0 */
} memory_row_t;

#define MEMORY_COLUMN(heading, member)                                                             \
    TR_COLUMN(memory_row_t, NULL, heading, SIZE, member, .people = tr_format_bytes, .width = 11)
static const tr_table_column_t memory_columns[] = {
    TR_COLUMN(memory_row_t, NULL, "ranks", INT, ranks, .width = 6),
    TR_COLUMN(memory_row_t, NULL, "slots", CHARS, slots),
    TR_COLUMN(memory_row_t, NULL, "micro", INT64, micro_batch),
    MEMORY_COLUMN("parameters", parameters),
    MEMORY_COLUMN("gradients", gradients),
    MEMORY_COLUMN("optimizer", optimizer),
    MEMORY_COLUMN("model state", model_state),
    MEMORY_COLUMN("activations", activations),
    MEMORY_COLUMN("inputs", inputs),
    MEMORY_COLUMN("total", total),
    TR_COLUMN(memory_row_t, NULL, "of it sharded", SIZE, sharded, .people = tr_format_bytes,
              .width = 13),
    MEMORY_COLUMN("checkpoint", checkpoint),
};
static const tr_table_t memory_table = TR_TABLE(memory_columns, memory_row_t);

/* This rank's parts of the optimizer's state, of the average, of the parameters and of the gradients,
 * without what every rank has. */
static size_t plan_sharded_bytes(const tr_session_t *s) {
    const tr_layout_t layout = tr_graph_layout(s->g);
    const size_t part =
        (size_t)(layout.sharded_elems / tr_graph_sharding(s->g)->ranks) * sizeof(float);
    size_t bytes = tr_region_is_sharded(s->g, TR_ROLE_PARAM) ? part : 0;
    if (tr_gradients_are_sharded(s->g)) bytes += part;
    for (int32_t id = 1; id <= tr_graph_tensor_count(s->g); id++)
        if (tr_tensor_info(s->g, (tr_tensor_t){id})->mirrors_params) bytes += part;
    return tr_graph_is_sharded(s->g) ? bytes : 0;
}

static memory_row_t plan_memory_row(const tr_session_t *s) {
    const tr_memory_plan_t m = tr_graph_memory(s->g);
    memory_row_t row = {.ranks = s->params.size,
                        .micro_batch = s->order.micro_batch,
                        .parameters = m.params + m.copies,
                        .gradients = m.reduced,
                        .optimizer = m.optim_state,
                        .model_state = m.model_state,
                        .activations = m.arena,
                        .inputs = m.inputs + m.consts,
                        .total = m.total,
                        .sharded = plan_sharded_bytes(s),
                        .checkpoint = tr_snapshot_plan_bytes(s)};
    int64_t first, least;
    tr_sampler_slots_of_rank(s->slots, 0, s->params.size, &first, &least);
    if (least < s->slot_count)
        tr_snprintf(row.slots, sizeof row.slots, "%lld-%lld", (long long)least,
                    (long long)s->slot_count);
    else
        tr_snprintf(row.slots, sizeof row.slots, "%lld", (long long)s->slot_count);
    return row;
}

void plan_append_pinned(const tr_session_t *s, tr_str_t *out) {
    char checkpoint[32], piece[32];
    if (s->device->host_visible) return;
    tr_str_printf(
        out,
        "pinned host memory at the start, without batches: %s on %s for checkpoints; at most "
        "%s on each rank where MPI broadcasts the weights, none where NCCL does\n",
        tr_format_bytes((double)tr_snapshot_plan_bytes(s), checkpoint),
        tr_graph_is_sharded(s->g) ? "each rank" : "rank 0",
        tr_format_bytes((double)TR_STATE_PIECE, piece));
}

static tr_status_t plan_memory_find(tr_config_t *config, const plan_options_t *o,
                                    plan_result_t *out) {
    tr_str_t details = {0}; /* of the first number of ranks */
    memory_row_t *rows = NULL;
    char limit[32];
    tr_status_t status = tr_alloc(CMD_LIST_MAX * sizeof *rows, "memory by ranks", &rows);
    out->rows = rows;
    for (int i = 0; i < o->ranks.count && status == TR_OK; i++) {
        tr_session_t *s = NULL;
        TR_TRY_GOTO(plan_session(config, o->ranks.value[i], false, &s), done); /* or: too large */
        rows[out->count++] = plan_memory_row(s);
        if (i == 0) {
            plan_append_work(s, &details);
            status = plan_append_parameters(s, o->verbose, &details);
            for (int p = 0; o->ops && status == TR_OK && p < tr_graph_program_count(s->g); p++)
                status = plan_append_ops(s, p, &details);
        }
        if (i == o->ranks.count - 1) {
            tr_str_printf(&out->before,
                          "memory per rank on device %s (slots: micro-batches per rank and step)\n",
                          s->device->ops->name);
            const bool is_shared = s->device->host_visible && s->params.size > 1;
            const size_t fit = s->device->memory_bytes / rows[i].total;
            tr_str_printf(&out->after, "fits      the device has %s",
                          tr_format_bytes((double)s->device->memory_bytes, limit));
            if (is_shared && fit < (size_t)s->params.size)
                tr_str_printf(&out->after, ", enough for %zu such ranks on a node", fit);
            else if (is_shared)
                tr_str_append(&out->after, ", which the ranks of a node share");
            tr_str_append(&out->after, "\n");
            plan_append_pinned(s, &out->after);
            tr_str_append(&out->after, "\n");
        }
        tr_session_destroy(&s);
    }
    if (details.text) tr_str_append(&out->after, details.text);
done:
    tr_str_free(&details);
    return status;
}

const plan_mode_t plan_mode_memory = {.table = &memory_table, .find = plan_memory_find};
