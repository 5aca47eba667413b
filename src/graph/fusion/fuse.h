/*
 * The fusion pass: when a program is complete, before its buckets and its plan, it replaces groups
 * of records by one record each where the device has a kernel for the group. The results have the
 * same bits, except where a pattern says otherwise. One pattern is one function.
 */
#ifndef TR_GRAPH_FUSION_FUSE_H
#define TR_GRAPH_FUSION_FUSE_H

#include "graph/program.h"

enum { TR_FUSIONS = 10 }; /* patterns */

/* Of the tensors that share one base: how many records read and write them, the last record that
 * writes and the first that reads; -1: none. */
typedef struct {
    int reads, writes, writer, reader;
} tr_fuse_use_t;

typedef struct {
    tr_graph_t *g;
    tr_fuse_use_t *use; /* [tensors], by the id of the base */
    int32_t count;
    int first_free; /* records from here on are not part of the program yet */
} tr_fuse_t;

/* -- for patterns ------------------------------------------------------------------------------ */

/* Record number i; its row is NULL where it was merged into another one. */
tr_op_t *tr_fuse_op(const tr_fuse_t *f, int i);
/* Whether record i is of this kernel. */
bool tr_fuse_is(const tr_fuse_t *f, int i, tr_kernel_id_t kernel);
/* How t is used; of a tensor that is no activation, NULL. */
const tr_fuse_use_t *tr_fuse_use(const tr_fuse_t *f, tr_tensor_t t);
/* Whether t is all of an activation that one record reads. */
bool tr_fuse_is_read_once(const tr_fuse_t *f, tr_tensor_t t);
/* Whether one record writes it, too, so that no memory is needed for it where the two are one. */
bool tr_fuse_is_private(const tr_fuse_t *f, tr_tensor_t t);
/* Which output of the record `t` is; -1: none. */
int tr_fuse_output(const tr_fuse_t *f, const tr_op_t *op, tr_tensor_t t);
/* Puts a new record in the place of record i, and removes record `merged`. Outputs that are TR_NONE do
 * not exist. */
tr_status_t tr_fuse_replace(tr_fuse_t *f, int i, int merged, const tr_op_row_t *row,
                            const tr_tensor_t *in, int n_in, const void *attr, size_t attr_bytes,
                            const tr_tensor_t *out, int n_out);
/* Removes record i. */
void tr_fuse_remove(tr_fuse_t *f, int i);

/* -- patterns: each tries record i, and says whether it merged it -------------------------------
 * */

tr_status_t tr_fuse_batchnorm_add(tr_fuse_t *f, int i, bool *out_done);
tr_status_t tr_fuse_batchnorm_add_bwd(tr_fuse_t *f, int i, bool *out_done);
tr_status_t tr_fuse_bias_sum(tr_fuse_t *f, int i, bool *out_done);
tr_status_t tr_fuse_accumulate(tr_fuse_t *f, int i, bool *out_done);
tr_status_t tr_fuse_add(tr_fuse_t *f, int i, bool *out_done);
tr_status_t tr_fuse_copies(tr_fuse_t *f, int i, bool *out_done);
tr_status_t tr_fuse_matmul_act(tr_fuse_t *f, int i, bool *out_done);
tr_status_t tr_fuse_matmul_act_bwd(tr_fuse_t *f, int i, bool *out_done);
tr_status_t tr_fuse_normalize_augment(tr_fuse_t *f, int i, bool *out_done);
tr_status_t tr_fuse_input_cast(tr_fuse_t *f, int i, bool *out_done);

#endif
