/* The graph's inside: shared by the files of src/graph only. */
#ifndef TR_GRAPH_GRAPH_INT_H
#define TR_GRAPH_GRAPH_INT_H

#include "graph/fusion/fuse.h"
#include "program.h"
#include "base/mem.h"
#include "base/str.h"

/* Every parameter begins at a multiple of this in its block, so that kernels may load whole vectors
 * (64 bytes) of it and of its half-precision copy. */
#define TR_BLOCK_ALIGN_ELEMS 32
/* The offset_bytes of a sharded parameter, of which the region has this rank's parts alone. */
#define TR_NO_PLACE SIZE_MAX
/* Every tensor in the arena begins at a multiple of this. */
#define TR_ARENA_ALIGN_BYTES 256
static inline size_t tr_arena_align(size_t bytes) {
    return (bytes + TR_ARENA_ALIGN_BYTES - 1) / TR_ARENA_ALIGN_BYTES * TR_ARENA_ALIGN_BYTES;
}

typedef struct {
    tr_tensor_info_t info; /* first: a public info pointer is a tensor pointer */
    char *name;
    void *values; /* CONST made from values; owned */
    int32_t id;
    /* ACTIVATION: id of the tensor whose place in the arena it shares (itself, or an in-place
     * input) */
    int32_t storage;
    tr_tensor_t gradient;      /* PARAM: in the reduced block; none: it is not trained */
    size_t whole_offset_bytes; /* in a copy of its region that has the parts of all ranks */
    bool survives; /* of a storage: some tensor in it is kept, though not this one */
    /* While gradients are appended, of a base tensor: the gradients held in it, the ops that read
     * and write it, and the forward tensor that it recomputes (0: none). */
    int held, reads, writes;
    int32_t recomputes;
} tr_tensor_rec_t;

/* An op and what the planner made of it. */
typedef struct {
    tr_op_t op; /* first */
    char *label;
    bool want[TR_KERNEL_MAX_OUT];
    const tr_kernel_t *kernel;
    tr_kernel_call_t call;
    tr_kernel_call_t
        *set_calls; /* [input_sets] where it reads inputs and there are several sets; else NULL */
    size_t scratch_bytes, scratch_offset;
    TR_VEC(int32_t) dying; /* storages whose last use this op is; for poisoning */
} tr_node_t;

/* Captured records of a program, with the tickets of the collectives among them. */
typedef struct {
    tr_executable_t *executable;
    tr_ticket_t first, last; /* last < first: none */
} tr_stretch_t;

/* A program with one set of inputs, captured (capture.c). */
typedef struct {
    int runs; /* op by op */
    TR_VEC(tr_stretch_t) stretch;
    tr_stretch_t both; /* with the records of a second program after it */
} tr_replay_t;

typedef struct {
    char *name;
    tr_mode_t mode;
    TR_VEC(tr_node_t *) nodes;
    bool ended;
    int fused[TR_FUSIONS]; /* how often the fusion pass found each pattern */
    size_t arena_bytes, arena_sum;
    tr_replay_t *replay;                 /* [input_sets]; NULL: runs op by op */
    const tr_collectives_t *replay_with; /* that the executables were captured with */
} tr_program_t;

/* A bucket of matrices whose gradients are sharded. They are complete in a window: elements of the
 * tensor `windows`, which other buckets have before and after it. */
typedef struct {
    int64_t first, used; /* its elements of the block, and the end of those that are no padding */
    int64_t window;
    tr_ticket_t ticket; /* of its last collective */
} tr_bucket_place_t;

/* Elements of the parameter block that belong to no parameter. */
typedef struct {
    int64_t first, count;
} tr_padding_t;

/* Where calls hold an input's address: patched when the input is bound. */
typedef struct {
    int32_t input;
    void **slot;
    size_t offset_bytes;
} tr_patch_t;

struct tr_graph {
    tr_device_t *device;
    tr_stream_t *stream;
    TR_VEC(tr_tensor_rec_t *) tensors; /* [0] is TR_NONE's */
    void *by_name;                     /* those that have one (tsearch) */
    TR_VEC(tr_program_t *) programs;
    int open; /* index of the open program, -1: none */

    tr_str_t scope;
    TR_VEC(size_t) scope_lengths;
    const char *label; /* overrides the scope while gradients are appended */
    bool in_backward;
    struct backward *backward; /* while gradients are appended */
    int segment, segments; /* recompute: the open one (0: none), and how many there were */

    TR_VEC(int32_t) order; /* parameters in the order in which backward finishes them */
    int64_t placed_elems[2]; /* of the trained ones: those that are first in the block, others */
    TR_VEC(tr_padding_t) padding; /* among the trained ones */
    TR_VEC(tr_bucket_place_t) buckets; /* where gradients are sharded */
    tr_tensor_t windows;               /* of these */
    tr_sharding_t sharding;
    tr_part_t part; /* tr_graph_use_part */
    tr_layout_t layout;
    bool laid_out; /* blocks are fixed: no new parameters or extra reductions */
    tr_tensor_t param_block, reduced_block, state_block, step, result, flag;

    tr_dtype_t copy_dtype; /* of the copies of parameters; F32: there are none */
    tr_tensor_t copy_block;
    int refresh;         /* the program that writes all copies, and gathers; -1: none */
    bool copies_are_old; /* the next run refreshes them, unless they have to be gathered */

    tr_memory_plan_t memory;
    bool planned, allocated;
    bool is_blank; /* all memory is zero: the device allocates zeros, and nothing was written */
    size_t whole_bytes[TR_ROLE_COUNT]; /* of the regions, with the parts of all ranks */
    void *region[TR_ROLE_COUNT]; /* device memory per role; ACTIVATION: the arena */
    TR_VEC(tr_patch_t) patches;
    bool op_by_op; /* nothing is captured */
    bool fuses_nothing;
    int input_sets, input_set; /* how many; the one in use */
    size_t input_set_bytes;
    TR_VEC(int32_t) inputs; /* after the allocation */
    bool is_shared;         /* tr_graph_share */
};

/* graph.c */
tr_tensor_rec_t *tr_rec(const tr_graph_t *g, tr_tensor_t t);
/* The record that owns t's memory: t itself, or what it is a view of. */
tr_tensor_rec_t *tr_rec_base(const tr_graph_t *g, tr_tensor_t t);
tr_tensor_t tr_base(const tr_graph_t *g, tr_tensor_t t);
tr_status_t tr_tensor_make(tr_graph_t *g, const char *name, tr_role_t role, tr_dtype_t dtype,
                           const tr_shape_t *shape, tr_tensor_t *out);
tr_program_t *tr_open_program(const tr_graph_t *g); /* NULL where none is open */
/* program.c */
void tr_node_destroy(tr_node_t **node);
/* fuse.c */
/* Merges the records of the open program, which is complete, by the patterns of fuse.h. */
tr_status_t tr_fuse(tr_graph_t *g, tr_program_t *p);
/* layout.c */
/* Fixes the blocks: gradients, extra reductions, frozen parameters. Idempotent. */
tr_status_t tr_layout_fix(tr_graph_t *g);
/* The reduced-block tensor that holds `param`'s gradient, made at the first call. */
tr_status_t tr_layout_gradient(tr_graph_t *g, tr_tensor_t param, tr_tensor_t *out);
/* Whether this rank has only its parts of the parameters, and copies of all. */
bool tr_masters_are_sharded(const tr_graph_t *g);
/* Whether this rank keeps only its part of the gradient. */
bool tr_gradient_is_sharded(const tr_graph_t *g, tr_tensor_t param);
/* Where element `at` of the reduced block, which is not of a sharded gradient, lies in its memory. */
int64_t tr_reduced_place(const tr_graph_t *g, int64_t at);
/* End of the bucket that begins at `first`, where gradients are not sharded. Without parts of ranks,
 * the last one takes the sums that follow the gradients. */
int64_t tr_bucket_end(const tr_graph_t *g, int64_t first);
/* plan.c */
/* Memory that is in use during the ops [first, last] of a program. */
typedef struct {
    int first, last;
    size_t bytes, offset;
    int32_t storage; /* tensor id, or 0 for scratch; any number of the caller */
    tr_node_t *node; /* of scratch */
} tr_block_t;
/* Gives each block an offset, and sorts them, the largest first. *out_bytes: of all together. */
tr_status_t tr_plan_place(tr_block_t *blocks, size_t count, size_t *out_bytes);
/* inputs.c */
tr_status_t tr_inputs_list(tr_graph_t *g);
/* Makes the node's call for every input set, from the one for set 0. */
tr_status_t tr_inputs_resolve(tr_graph_t *g, tr_node_t *node);
/* copies.c */
bool tr_has_copies(const tr_graph_t *g);
/* Makes the block of copies, which follows the parameter block. */
tr_status_t tr_copies_lay_out(tr_graph_t *g);
/* Appends casts to the open program, which is complete, so that it writes the copies of the
 * parameters that it writes. */
tr_status_t tr_copies_follow(tr_graph_t *g, tr_program_t *p);
/* Makes the program that refreshes all copies; and runs it if parameters have changed. */
tr_status_t tr_copies_plan(tr_graph_t *g);
tr_status_t tr_copies_refresh(tr_graph_t *g);
/* capture.c */
tr_status_t tr_replay_create(tr_graph_t *g, tr_program_t *p);
void tr_replay_destroy(tr_graph_t *g, tr_program_t *p);
/* exec.c */
/* Enqueues the nodes [first, end) of the program. *last: the last collective started, 0: none. */
tr_status_t tr_exec_enqueue(tr_graph_t *g, const tr_program_t *p, size_t first, size_t end,
                            tr_collectives_t *collectives, tr_ticket_t *last);
void tr_exec_release(tr_graph_t *g);
/* The node's kernel call with the input set in use. */
static inline const tr_kernel_call_t *tr_exec_call(const tr_graph_t *g, const tr_node_t *node) {
    return node->set_calls ? &node->set_calls[g->input_set] : &node->call;
}
/* The last error, which is of a kernel, with the op that it belongs to. Returns `status`. */
tr_status_t tr_exec_name_op(const tr_op_t *op, tr_status_t status);
/* Runs a ZERO record: zeroes the extra reductions. */
tr_status_t tr_exec_zero_extra(tr_graph_t *g);

#endif
