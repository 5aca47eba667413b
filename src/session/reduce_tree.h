/*
 * The fixed reduction tree of parallel.reproducible: the reduced block of every slot is a leaf of
 * one binary tree over all slots of a step, so the sum is bitwise equal for any number of ranks.
 * Node (level, index) covers slots [index << level, (index + 1) << level).
 */
#ifndef TR_SESSION_REDUCE_TREE_H
#define TR_SESSION_REDUCE_TREE_H

#include "graph/program.h"
#include "session.h"

/* Adds the tree's buffers and programs to g, after its last program and before its plan. Ranks have
 * the slots of tr_sampler_slots_of_rank. */
tr_status_t tr_reduce_tree_create(tr_graph_t *g, int64_t slots, int rank, int size,
                                  tr_reduce_tree_t **out);
void tr_reduce_tree_destroy(tr_reduce_tree_t **tree);
/* Adds the reduced block as the leaf of `slot`. Slots must be added in order. */
tr_status_t tr_reduce_tree_add(tr_reduce_tree_t *tree, int64_t slot);
/* After this rank's last slot: sets the reduced block to the sum over all slots. Collective.
 * collectives may be NULL with one rank. */
tr_status_t tr_reduce_tree_finish(tr_reduce_tree_t *tree, tr_collectives_t *collectives);

#endif
