/*
 * Input sets: every input has several places, so that one is filled while another is used. A
 * program's calls are resolved once for each set; running it changes none.
 */
#include "graph_int.h"
#include <string.h>

tr_status_t tr_graph_input_sets(tr_graph_t *g, int count) {
    if (g->planned || count < 1)
        return TR_FAIL(TR_ERR_INTERNAL, "%d input sets are asked for %s", count,
                       g->planned ? "after the plan" : "");
    g->input_sets = count;
    return TR_OK;
}

static void *inputs_place_of(const tr_graph_t *g, const tr_tensor_info_t *info, int set) {
    return (char *)g->region[TR_ROLE_INPUT] + (size_t)set * g->input_set_bytes + info->offset_bytes;
}

tr_status_t tr_inputs_list(tr_graph_t *g) {
    for (size_t i = 1; i < g->tensors.count; i++)
        if (g->tensors.data[i]->info.role == TR_ROLE_INPUT)
            TR_TRY(tr_vec_push(&g->inputs, (int32_t)i));
    return TR_OK;
}

static bool inputs_have(const tr_graph_t *g, tr_tensor_t t) {
    return !tr_is_none(t) && tr_rec_base(g, t)->info.role == TR_ROLE_INPUT;
}

tr_status_t tr_inputs_resolve(tr_graph_t *g, tr_node_t *node) {
    const tr_op_t *op = &node->op;
    bool reads = false;
    for (int k = 0; k < op->n_in; k++) reads = reads || inputs_have(g, op->in[k]);
    if (!reads || g->input_sets == 1) return TR_OK;
    TR_TRY(tr_alloc((size_t)g->input_sets * sizeof *node->set_calls, "calls by input set",
                    &node->set_calls));
    for (int set = 0; set < g->input_sets; set++) {
        tr_kernel_call_t *call = &node->set_calls[set];
        *call = node->call;
        for (int k = 0; k < op->n_in; k++)
            if (inputs_have(g, op->in[k]))
                call->in[k].data = (char *)call->in[k].data + (size_t)set * g->input_set_bytes;
    }
    return TR_OK;
}

void tr_graph_use_inputs(tr_graph_t *g, int set) {
    if (set == g->input_set) return;
    g->input_set = set;
    for (size_t i = 0; i < g->inputs.count; i++) {
        tr_tensor_info_t *info = &g->tensors.data[g->inputs.data[i]]->info;
        info->data = inputs_place_of(g, info, set);
    }
}

tr_status_t tr_input_bind(tr_graph_t *g, tr_tensor_t input, void *data) {
    tr_tensor_info_t *info = &tr_rec(g, input)->info;
    if (info->role != TR_ROLE_INPUT)
        return TR_FAIL(TR_ERR_INTERNAL, "'%s' is no input", info->name);
    if (g->input_sets > 1)
        return TR_FAIL(TR_ERR_INTERNAL, "'%s' is bound in a graph with %d input sets", info->name,
                       g->input_sets);
    void *to = data ? data : inputs_place_of(g, info, 0);
    if (info->data == to) return TR_OK;
    info->data = to;
    for (size_t i = 0; i < g->programs.count; i++) tr_replay_destroy(g, g->programs.data[i]);
    for (size_t i = 0; i < g->patches.count; i++)
        if (g->patches.data[i].input == input.id)
            *g->patches.data[i].slot = (char *)to + g->patches.data[i].offset_bytes;
    return TR_OK;
}
