/*
 * The inside of a graph's programs: op rows and records, planning, running. For those who write
 * ops, build whole programs or run them; models need trainer/graph.h alone.
 */
#ifndef TR_GRAPH_PROGRAM_H
#define TR_GRAPH_PROGRAM_H

#include "device/collectives.h"
#include "trainer/graph.h"

/* -- ops --------------------------------------------------------------------------------------- */

typedef struct tr_op tr_op_t;
typedef enum { TR_OP_KERNEL, TR_OP_ZERO, TR_OP_COLLECTIVE, TR_OP_WAIT } tr_op_kind_t;

enum {
    TR_OP_ONCE = 1,        /* recompute never repeats it (it writes into something that lasts) */
    TR_OP_READS_OUTPUT = 2 /* out0 is read as well as written */
};

/* One row: everything about an op. Rows are const and outlive the graph; see src/graph/ops/op_*.c. */
typedef struct {
    const char *name;
    tr_kernel_id_t kernel; /* the slot that computes it */
    /* Checks op->in and attr, sets the dtype and shape of every output with tr_op_output. Messages
     * name op->label. */
    tr_status_t (*shape)(tr_graph_t *g, tr_op_t *op);
    /* Appends the gradient ops: for each input with need[i], din[i] from dout[] (an entry of which
     * is TR_NONE where no gradient arrives). NULL: the op has no gradient and stops it. */
    tr_status_t (*grad)(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout, const bool *need,
                        tr_tensor_t *din);
    double (*flops)(const tr_graph_t *g, const tr_op_t *op); /* NULL: one per output element */
    /* Of the way with the fewest that the device has; NULL: `flops` */
    double (*least_flops)(const tr_graph_t *g, const tr_op_t *op);
    double (*bytes)(const tr_graph_t *g, const tr_op_t *op); /* NULL: all inputs and outputs once */
    unsigned flags;
    /* Of a kernel that is optional: appends ops of required kernels that give the same outputs,
     * from op->in and op->attr; out[i] only where want[i]. Called instead of appending where the
     * device lacks the kernel. */
    tr_status_t (*compose)(tr_graph_t *g, const tr_op_t *op, const bool *want, tr_tensor_t *out);
} tr_op_row_t;

/* What a COLLECTIVE record works on: elements of a tensor, by the group of ranks. */
typedef struct {
    tr_collective_kind_t kind;
    tr_tensor_t tensor;
    int64_t first, count;
    tr_dtype_t type;
    int group; /* TR_GROUP_ALL, or what tr_collectives split gave */
} tr_collective_op_t;

/* One record. Read-only outside src/graph. */
struct tr_op {
    tr_op_kind_t kind;
    const tr_op_row_t *row; /* only of KERNEL */
    const char *label;      /* the scope that asked for it: "conv1" */
    int n_in, n_out;
    tr_tensor_t in[TR_KERNEL_MAX_IN], out[TR_KERNEL_MAX_OUT];
    void *attr;
    size_t attr_bytes;
    unsigned adds;                 /* bit i: output i is added to what is there */
    bool backward;                 /* appended by tr_backward */
    bool recomputed;               /* repeats an op of the forward pass in the backward pass */
    int segment;                   /* recompute segment, 0: none */
    tr_collective_op_t collective; /* COLLECTIVE */
    /* COLLECTIVE: index of the bucket, -1: none; WAIT: for this one and those before; -1: for all */
    int bucket;
};

/* Appends an op of `row` to the open program; `attr` is copied. Absent inputs are TR_NONE. `want`
 * says which outputs are wanted (NULL: all); an output not wanted is TR_NONE. out[] receives
 * row-defined outputs. */
tr_status_t tr_op_append(tr_graph_t *g, const tr_op_row_t *row, const tr_tensor_t *in, int n_in,
                         const void *attr, size_t attr_bytes, const bool *want, tr_tensor_t *out,
                         int n_out);
/* For a row's shape rule: output `i` is a new activation of this type and shape (or checks an
 * output given by the caller). */
tr_status_t tr_op_output(tr_graph_t *g, tr_op_t *op, int i, tr_dtype_t dtype,
                         const tr_shape_t *shape);
/* Appends an op that writes into tensors that exist (accumulations, updates): out[] is given, not
 * made. */
tr_status_t tr_op_append_into(tr_graph_t *g, const tr_op_row_t *row, const tr_tensor_t *in,
                              int n_in, const void *attr, size_t attr_bytes, const tr_tensor_t *out,
                              int n_out);
/* The same where only some outputs exist: those of out[] that are not TR_NONE. Of the others those
 * that are wanted (NULL: all) are made, and given back in out[]. */
tr_status_t tr_op_append_given(tr_graph_t *g, const tr_op_row_t *row, const tr_tensor_t *in,
                               int n_in, const void *attr, size_t attr_bytes, const bool *want,
                               tr_tensor_t *out, int n_out);
/* For a row's grad: the gradient of `t` that the ops after this one gave, where an op may add to it
 * in place; else TR_NONE. A row that adds to it leaves din as it is. */
tr_tensor_t tr_gradient_so_far(const tr_graph_t *g, tr_tensor_t t);
/* Appends a record that zeroes the extra reductions of the reduced block. */
tr_status_t tr_zero_extra_reductions(tr_graph_t *g);
/* Whether the graph's device has this kernel. */
bool tr_graph_has_kernel(const tr_graph_t *g, tr_kernel_id_t kernel);
/* Whether convolutions of a type may use Winograd's algorithm there; of bf16, only without products
 * of it. */
bool tr_graph_has_winograd(const tr_graph_t *g, tr_dtype_t dtype);

/*
 * Buckets are contiguous ranges of the reduced block: the first of about first_bytes, the others of
 * `bytes`.
 *
 * With ranks > 1, the optimizer's state is sharded among ranks (ZeRO stage 1, Rajbhandari et al.
 * 2020). Buckets then end at multiples of ranks x TR_SQUARES_BLOCK elements of the first
 * tr_layout_t.sharded_elems, and rank r has the r-th of `ranks` equal parts of every bucket. It
 * updates these. What follows in the block, biases and the parameters of norms, every rank has and
 * updates. A state of the optimizer that mirrors the parameters holds the rank's parts one behind
 * the other, then what every rank has. Where parameters have half-precision copies, the parameter
 * block, too, holds the rank's parts alone, and no op may read a sharded parameter itself.
 *
 * With `gradients`, these are sharded, too (stage 2): a matrix is in one bucket, which therefore may be
 * smaller or larger, and the gradients of a bucket are complete only from their first write to their
 * reduction, in memory that buckets share (windows). The reduced block holds the rank's parts, then
 * what is not sharded. tr_backward with `accumulate` adds to what is not sharded alone.
 */
typedef struct {
    size_t first_bytes, bytes;
    int ranks, rank;
    bool gradients;
} tr_sharding_t;
/* Before the first program. Without it: ranks = 1. */
void tr_graph_shard(tr_graph_t *g, const tr_sharding_t *sharding);
const tr_sharding_t *tr_graph_sharding(const tr_graph_t *g);
bool tr_graph_is_sharded(const tr_graph_t *g);
/* Whether this rank keeps only its parts of the gradients of matrices. */
bool tr_gradients_are_sharded(const tr_graph_t *g);
/* Elements that a rank updates: a part of a bucket, or what every rank has. */
typedef struct {
    int64_t first, count; /* in the blocks */
    int64_t place;        /* of `first`, in what holds the parts of one rank alone */
    /* the bucket [bucket, end) that it is a part of, which has padding from `used` on */
    int64_t bucket, used, end;
    int number; /* of the parts up to this one */
} tr_part_t;
/* Goes to the next part of `rank`: the first, where *part is {0}. false: there is none. Without
 * ranks that share, one part has all. It is a function of the layout alone. */
bool tr_next_part(const tr_graph_t *g, int rank, tr_part_t *part);
/* Elements that a rank has of a block of `elems` elements with the layout of the parameter block, of
 * which it has its parts and all that is not sharded. */
int64_t tr_sharded_elems(const tr_graph_t *g, int64_t elems);
/* The part that is being built, at first the first one; its elements of the parameter block, and their
 * gradients. */
void tr_graph_use_part(tr_graph_t *g, const tr_part_t *part);
tr_part_t tr_graph_part(const tr_graph_t *g);
tr_status_t tr_param_part(tr_graph_t *g, tr_tensor_t *out);
tr_status_t tr_gradient_part(tr_graph_t *g, tr_tensor_t *out);

typedef struct {
    bool overlap;   /* else no op runs while a bucket is reduced */
    bool adds;      /* the program adds to the parts of those before it */
    bool continues; /* what is not sharded is reduced by another program, later */
} tr_reductions_t;
/*
 * Inserts the reductions of the buckets into `program`, which has ended, each right after the op that
 * completes its range or the bucket before it, and one WAIT at the end: reduce-scatters of the buckets
 * that are sharded, and all-reduces of all else. Without overlap, all of them are at the end.
 *
 * Where gradients are sharded, each program of a step reduces its own, and copies or adds the rank's
 * parts to the reduced block. Before the first write into a window that was that of another bucket
 * there is a WAIT. Without overlap there is one behind each reduction.
 */
tr_status_t tr_program_add_reductions(tr_graph_t *g, int program, const tr_reductions_t *how);
/* Where ranks share: inserts into `program`, which has ended, the gather of `sums` of squares
 * (none: no gather) with a WAIT behind the last op that writes them; the gather of each bucket of
 * the parameters, or of their copies, behind the last op that uses this rank's part of it; and one
 * WAIT at the end. */
tr_status_t tr_program_add_gathers(tr_graph_t *g, int program, tr_tensor_t sums);

/* -- tensors ------------------------------------------------------------------------------------ */

/* The step block (tr_step_t) and its result (tr_step_result_t), as u8 tensors. */
tr_tensor_t tr_graph_step(const tr_graph_t *g);
tr_tensor_t tr_graph_result(const tr_graph_t *g);
/* A CONST of `bytes` u8 values with any content, for the tables of an update. */
tr_status_t tr_const_bytes(tr_graph_t *g, const char *name, const void *values, size_t bytes,
                           tr_tensor_t *out);
/* A CONST of i32 values. */
tr_status_t tr_const_indices(tr_graph_t *g, const char *name, const int32_t *values, int64_t count,
                             tr_tensor_t *out);
/* A declared tensor, not the block. */
bool tr_is_param(const tr_graph_t *g, tr_tensor_t t);
bool tr_is_model_state(const tr_graph_t *g, tr_tensor_t t);
/* The block of the model states declared before the blocks were laid out; TR_NONE if there are
 * none. */
tr_status_t tr_model_state_block(tr_graph_t *g, tr_tensor_t *out);

/* Sets updates_before of a parameter, which is 0 at first. */
void tr_param_began(tr_graph_t *g, tr_tensor_t param, int32_t updates_before);
/* Has a gradient, after tr_backward. */
bool tr_is_trained(const tr_graph_t *g, tr_tensor_t t);

/* Maximal ranges of trainable parameters with equal decay, lr_factor and updates_before, in block
 * order. */
typedef struct {
    int64_t first, count;
    bool decay;
    float lr_factor;
    int32_t before;
} tr_param_group_t;
tr_status_t tr_graph_param_groups(const tr_graph_t *g, tr_param_group_t **out /* tr_free */,
                                  size_t *out_count);

/* The norm in two parts, between which ranks may gather the sums of blocks (tr_grad_norm has both).
 * sums: f64, one for each TR_SQUARES_BLOCK elements of the gradient. order: i32, the places of the
 * sums in the order in which they are added; TR_NONE: as they lie. */
tr_status_t tr_block_squares(tr_graph_t *g, tr_tensor_t gradient, tr_tensor_t sums);
tr_status_t tr_grad_norm_of(tr_graph_t *g, tr_tensor_t sums, tr_tensor_t order, tr_tensor_t counts,
                            tr_tensor_t loss_scale, const tr_grad_norm_attr_t *attr);

/* -- looking ----------------------------------------------------------------------------------- */

int tr_graph_program_count(const tr_graph_t *g);
const char *tr_program_name(const tr_graph_t *g, int program);
int tr_program_op_count(const tr_graph_t *g, int program);
const tr_op_t *tr_program_op(const tr_graph_t *g, int program, int index);
/* What the fusion pass did in a program: the name of pattern number `index`, from 0, and how often
 * it was found; NULL after the last pattern. */
const char *tr_program_fused(const tr_graph_t *g, int program, int index, int *out_count);
double tr_op_flops(const tr_graph_t *g, const tr_op_t *op);
/* By the way with the fewest that the device has: a convolution's by Winograd's algorithm. */
double tr_op_least_flops(const tr_graph_t *g, const tr_op_t *op);
double tr_op_bytes(const tr_graph_t *g, const tr_op_t *op);

/* -- planning and running ---------------------------------------------------------------------- */

/* Bytes on the device by kind; after tr_graph_plan. */
typedef struct {
    size_t params, copies, reduced, model_state, optim_state, consts, caches, inputs;
    size_t arena;     /* what the programs share: activations and scratch, overlapping */
    size_t arena_sum; /* what they would take without overlap */
    size_t total;
} tr_memory_plan_t;

tr_memory_plan_t tr_graph_memory(const tr_graph_t *g);
/* How the device computes an op, in a few words, "" where it does not say; and its scratch memory.
 * After tr_graph_plan. */
tr_status_t tr_op_describe(const tr_graph_t *g, const tr_op_t *op, char *text, size_t text_bytes,
                           size_t *out_scratch_bytes);
/* Bytes of the arena that are in use during one op of a program: tensors that forward ops made,
 * tensors that backward ops made (gradients of activations, and what is recomputed), and the op's
 * scratch memory. After tr_graph_plan. */
typedef struct {
    size_t forward, backward, scratch;
} tr_live_t;
tr_live_t tr_program_live(const tr_graph_t *g, int program, int op);
/* As tr_graph_init_params without the parameters, which the caller writes. */
tr_status_t tr_graph_init_states(tr_graph_t *g);

/* Zeroes the reduced block, for programs that add to all of it. */
tr_status_t tr_graph_zero_reduced(tr_graph_t *g);

/*
 * Gives every input `count` places, 1 by default, so that one set of inputs is filled while another
 * is used. Before the plan. Programs run with the set of tr_graph_use_inputs, and tr_tensor_info of
 * an input is of that set; at first it is set 0. A captured program keeps the set of its capture.
 */
tr_status_t tr_graph_input_sets(tr_graph_t *g, int count);
void tr_graph_use_inputs(tr_graph_t *g, int set);
/* The tensor's device memory is `data` from the next run on (an INPUT of a graph with one
 * input set; at least its bytes, aligned to 64). NULL: its own. */
tr_status_t tr_input_bind(tr_graph_t *g, tr_tensor_t input, void *data);
/*
 * Enqueues the program on the compute stream. collectives may be NULL: COLLECTIVE and WAIT then do
 * nothing. Collective where it is not.
 *
 * On a device that can capture, a program runs op by op twice with each set of inputs, is captured
 * in the third run, and launched from then on. Collectives that cannot be captured run between the
 * captured stretches. What cannot be captured runs op by op, with one line in the log that says
 * why, and so does everything while a trace is recorded (base/trace.h). If it holds collectives, it
 * does so on all ranks: the third run is at the same place on each. Binding an input (tr_input_bind) of a graph ends the capture of its programs for good.
 */
tr_status_t tr_program_run(tr_graph_t *g, int program, tr_collectives_t *collectives);
/* tr_program_run of `program`, then of `next` without collectives. Where `collectives` can be
 * captured, both are one executable. */
tr_status_t tr_program_run_both(tr_graph_t *g, int program, int next,
                                tr_collectives_t *collectives);
/* Programs that end from now on keep the records that were appended: nothing is fused. */
void tr_graph_fuse_nothing(tr_graph_t *g);
/* Runs every program op by op from now on, with the same results. Before the allocation. */
void tr_graph_run_op_by_op(tr_graph_t *g);
/* Whether a role's memory is shared for collectives: the reduced block and, where the parameters are
 * sharded, what is gathered of them. On GPUs only the first: NCCL's engine has one window. */
bool tr_region_is_collective(const tr_graph_t *g, tr_role_t role);
/* That memory is allocated with TR_ALLOC_SHARED_BY_RANKS. Before the allocation. */
void tr_graph_share(tr_graph_t *g);
/* Destroys the captured programs; work that was launched still completes. Before the collectives
 * that they hold are closed: NCCL waits for the captures. Does not wait. */
void tr_graph_drop_captures(tr_graph_t *g);
/* The device memory of all tensors of a role; a tensor lies at its info's offset_bytes in it. NULL
 * and 0 if there are none. The caller of _to_write may write to it before the next run of a
 * program, which refreshes the half-precision copies of parameters first. */
const void *tr_graph_region(const tr_graph_t *g, tr_role_t role, size_t *out_bytes);
void *tr_graph_region_to_write(tr_graph_t *g, tr_role_t role, size_t *out_bytes);
tr_stream_t *tr_graph_stream(const tr_graph_t *g); /* the compute stream */
tr_status_t tr_graph_sync(tr_graph_t *g);
/* As tr_tensor_read, of elements [first, first + count). */
tr_status_t tr_tensor_read_part(tr_graph_t *g, tr_tensor_t t, int64_t first, int64_t count,
                                void *host);
/* Where ranks share, after each has written its parts of the parameters: gives all ranks the
 * parameters, or the copies, of all. Else does nothing. Collective. */
tr_status_t tr_graph_gather(tr_graph_t *g, tr_collectives_t *collectives);
/* Enqueues a copy of this rank's parts of the parameters to a tensor that mirrors them (mirrors_params),
 * or with `to_params` from it. */
tr_status_t tr_params_copy(tr_graph_t *g, tr_tensor_t mirror, bool to_params);
/* Whether the region of a role holds only this rank's parts of some tensor. */
bool tr_region_is_sharded(const tr_graph_t *g, tr_role_t role);
/* A copy of the region that has the parts of all ranks: its size, and where a tensor lies in it. */
size_t tr_region_whole_bytes(const tr_graph_t *g, tr_role_t role);
size_t tr_whole_offset_bytes(const tr_graph_t *g, tr_tensor_t t);
/* Runs the program op by op; adds each op's seconds to sec[op]: of the device, by events, where it
 * has them, else with a wait after every op. Collectives are left out. */
tr_status_t tr_program_profile(tr_graph_t *g, int program, double *sec);
/* Runs the program op by op and gives the first whose output is not finite, or -1. */
tr_status_t tr_program_find_nonfinite(tr_graph_t *g, int program, int *out_op);

#endif
