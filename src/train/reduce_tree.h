/*
 * The fixed reduction tree of parallel.reproducible: every slot's reduced block is a leaf of one
 * binary tree over all slots of a step, so the sum has the same bits on any number of ranks. Node
 * (level, index) covers slots [index << level, (index + 1) << level).
 */
#ifndef TRAINER_REDUCE_TREE_H
#define TRAINER_REDUCE_TREE_H

#include "graph/program.h"
#include "session.h"

/* Adds the tree's buffers and small programs to g, between its last program and its plan. Rank r of
 * `size` has the slots that tr_sampler_slots_of_rank gives. */
tr_status_t tr_reduce_tree_create(tr_graph_t *g, int64_t slots, int rank, int size,
                                  tr_reduce_tree_t **out);
void tr_reduce_tree_destroy(tr_reduce_tree_t **tree);
/* The reduced block holds slot `slot`'s leaf; slots come in order. */
tr_status_t tr_reduce_tree_add(tr_reduce_tree_t *tree, int64_t slot);
/* After this rank's last slot: the block holds the sum over all slots. Collective. collectives may
 * be NULL with one rank. */
tr_status_t tr_reduce_tree_finish(tr_reduce_tree_t *tree, tr_collectives_t *collectives);

#endif
