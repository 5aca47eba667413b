/* What of the arena is in use during an op. */
#include "graph_int.h"

tr_live_t tr_program_live(const tr_graph_t *g, int program, int op) {
    const tr_program_t *p = g->programs.data[program];
    tr_live_t live = {.scratch = tr_arena_align(p->nodes.data[op]->scratch_bytes)};
    for (size_t i = 1; i < g->tensors.count; i++) {
        const tr_tensor_rec_t *rec = g->tensors.data[i];
        const tr_tensor_info_t *info = &rec->info;
        if (info->role != TR_ROLE_ACTIVATION || info->program != program || info->first_op < 0 ||
            rec->storage != (int32_t)i || op < info->first_op || op > info->last_op)
            continue;
        size_t *kind = p->nodes.data[info->first_op]->op.backward ? &live.backward : &live.forward;
        *kind += tr_arena_align(info->bytes);
    }
    return live;
}
