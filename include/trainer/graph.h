/*
 * The graph: tensors, op records, autodiff, the memory planner and the executor.
 *
 * A model is a C function that appends ops to the open program; each op checks its shapes and returns a tensor
 * handle. Nothing is allocated until every program is there: then one plan places all activations, gradients and
 * scratch in one arena, programs overlapping, and nothing is allocated after it.
 *
 *     tr_graph_create(device, &g);
 *     tr_program_begin(g, "last", TR_TRAIN, &last);
 *     tr_input(g, "x", TR_F32, &shape, &x);  model(g, x, &loss);  tr_backward(g, loss, seed, false);
 *     tr_program_end(g);
 *     ... "update", "eval" ...
 *     tr_graph_plan(g, limit_bytes);   tr_graph_allocate(g);   tr_graph_init_params(g, seed);
 *     tr_program_run(g, last, collectives);
 *
 * Persistent tensors (parameters, state, inputs, constants) belong to the graph and are shared by its programs, by
 * name. Activations belong to one program and one pass of it.
 *
 * Blocks: all parameters are one block of f32 and their gradients another, the *reduced block*, in the order in which
 * backward finishes them; behind the gradients come sums that ride along (batch-norm moments, loss, counts). So a bucket
 * is a range of elements, and one sum over ranks makes everything common.
 *
 * Not collective, except tr_program_run with collectives.
 */
#ifndef TRAINER_GRAPH_H
#define TRAINER_GRAPH_H

#include "trainer/collectives.h"
#include "trainer/device.h"
#include "trainer/str.h"

typedef struct tr_graph tr_graph_t;
typedef struct {
    int32_t id;
} tr_tensor_t; /* 0: none */
#define TR_NONE ((tr_tensor_t){0})
static inline bool tr_is_none(tr_tensor_t t) {
    return t.id == 0;
}

typedef enum {
    TR_ROLE_ACTIVATION,  /* in the arena, for one pass of its program */
    TR_ROLE_VIEW,        /* another shape on, or a range of elements of, `base` */
    TR_ROLE_INPUT,       /* a field of the batch */
    TR_ROLE_PARAM,       /* in the parameter block */
    TR_ROLE_REDUCED,     /* in the reduced block: gradients, then sums that ride along */
    TR_ROLE_MODEL_STATE, /* kept from step to step and saved with the model: running moments */
    TR_ROLE_OPTIM_STATE, /* kept and saved with the optimizer */
    TR_ROLE_CONST,       /* filled once; not saved */
    TR_ROLE_COUNT
} tr_role_t;

typedef enum { TR_INIT_CONST, TR_INIT_NORMAL, TR_INIT_UNIFORM } tr_init_kind_t;
typedef struct {
    tr_init_kind_t kind;
    double value; /* the constant, the standard deviation, or the half-width of [-value, value] */
} tr_init_t;

typedef struct {
    tr_init_t init;
    bool trainable;
    bool decay; /* weight decay applies */
    float lr_factor;
} tr_param_spec_t;

typedef struct {
    const char *name; /* "conv1.weight"; "" for an unnamed activation */
    tr_role_t role;
    tr_dtype_t dtype;
    tr_shape_t shape;
    tr_tensor_t base;      /* VIEW: what it looks at; never itself a view */
    int64_t view_elems;    /* VIEW: offset in elements of base */
    tr_param_spec_t param; /* PARAM; CONST and states use param.init */
    int64_t block_elems;   /* PARAM and its gradient: offset in elements in the block; others: -1 */
    /* OPTIM_STATE: one element per element of the trainable parameters, in the block's order */
    bool mirrors_params;
    bool kept;                      /* ACTIVATION: stays valid until the program's next run */
    int program, first_op, last_op; /* ACTIVATION: lifetime, indices into the program's ops */
    size_t bytes, offset_bytes;     /* of its storage, in the arena or its region; after the plan */
    void *data;                     /* device address after tr_graph_allocate */
} tr_tensor_info_t;

/* -- ops ------------------------------------------------------------------------------------------------- */

typedef struct tr_op tr_op_t;
typedef enum { TR_OP_KERNEL, TR_OP_ALLREDUCE, TR_OP_WAIT } tr_op_kind_t;

enum {
    TR_OP_ONCE = 1,        /* recompute never repeats it (it writes into something that lasts) */
    TR_OP_READS_OUTPUT = 2 /* out0 is read as well as written */
};

/* One row: all there is to know of an op. Rows are const and outlive the graph; see src/graph/op_*.c. */
typedef struct {
    const char *name;
    tr_kernel_id_t kernel; /* the slot that computes it */
    /* Checks op->in and attr, sets the dtype and shape of every output with tr_op_output. Messages name op->label. */
    tr_status_t (*shape)(tr_graph_t *g, tr_op_t *op);
    /* Appends the gradient ops: for each input with need[i], din[i] from dout[] (an entry of which is TR_NONE where no
     * gradient arrives). NULL: the op has no gradient and stops it. */
    tr_status_t (*grad)(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout, const bool *need,
                        tr_tensor_t *din);
    double (*flops)(const tr_graph_t *g, const tr_op_t *op); /* NULL: one per output element */
    double (*bytes)(const tr_graph_t *g, const tr_op_t *op); /* NULL: all inputs and outputs once */
    /* 1 + index of the input whose memory output i may take when it dies here; 0: none */
    int inplace[TR_KERNEL_MAX_OUT];
    unsigned flags;
} tr_op_row_t;

/* One record. Read-only outside src/graph. */
struct tr_op {
    tr_op_kind_t kind;
    const tr_op_row_t *row; /* NULL for ALLREDUCE and WAIT */
    const char *label;      /* the scope that asked for it: "conv1" */
    int n_in, n_out;
    tr_tensor_t in[TR_KERNEL_MAX_IN], out[TR_KERNEL_MAX_OUT];
    void *attr;
    size_t attr_bytes;
    bool backward;                      /* appended by tr_backward */
    int segment;                        /* recompute segment, 0: none */
    int64_t reduce_first, reduce_count; /* ALLREDUCE: elements of the reduced block */
    int bucket;                         /* ALLREDUCE and WAIT: index of the bucket; WAIT -1: all */
};

/* Appends an op of `row` to the open program; `attr` is copied. Absent inputs are TR_NONE. `want` says which outputs are
 * wanted (NULL: all); an output not wanted is TR_NONE. out[] receives row-defined outputs. */
tr_status_t tr_op_append(tr_graph_t *g, const tr_op_row_t *row, const tr_tensor_t *in, int n_in,
                         const void *attr, size_t attr_bytes, const bool *want, tr_tensor_t *out, int n_out);
/* For a row's shape rule: output `i` is a new activation of this type and shape (or checks an output given by the caller). */
tr_status_t tr_op_output(tr_graph_t *g, tr_op_t *op, int i, tr_dtype_t dtype, const tr_shape_t *shape);
/* Appends an op that writes into tensors that exist (accumulations, updates): out[] is given, not made. */
tr_status_t tr_op_append_into(tr_graph_t *g, const tr_op_row_t *row, const tr_tensor_t *in, int n_in,
                              const void *attr, size_t attr_bytes, const tr_tensor_t *out, int n_out);

/* For a row's grad: the gradient of `t` that the ops after this one gave, where an op may add to it
 * in place; else TR_NONE. A row that adds to it leaves din as it is. */
tr_tensor_t tr_gradient_so_far(const tr_graph_t *g, tr_tensor_t t);
/* Whether the graph's device has this kernel. */
bool tr_graph_has_kernel(const tr_graph_t *g, tr_kernel_id_t kernel);

/* -- building -------------------------------------------------------------------------------------------- */

typedef enum { TR_TRAIN, TR_EVAL, TR_PLAIN } tr_mode_t;

/* device is borrowed and must outlive the graph. */
tr_status_t tr_graph_create(tr_device_t *device, tr_graph_t **out);
void tr_graph_destroy(tr_graph_t **g);

tr_status_t tr_program_begin(tr_graph_t *g, const char *name, tr_mode_t mode, int *out_program);
tr_status_t tr_program_end(tr_graph_t *g);
tr_mode_t tr_graph_mode(const tr_graph_t *g); /* of the open program: dropout and batch-norm ask */

/* Names nest: ops get the path as label, parameters "path.name" with dots. Where there is no memory for a path, the next op or parameter says so. */
void tr_scope_push(tr_graph_t *g, const char *name);
void tr_scope_pop(tr_graph_t *g);
const char *tr_scope(const tr_graph_t *g);

/* Each of these gives the tensor of that name, made at first use; a second use with another type or shape is an error.
 * tr_param and tr_model_state put the scope before the name ("conv1.weight"); the others take it as it is. */
tr_status_t tr_param(tr_graph_t *g, const char *name, const tr_shape_t *shape, const tr_param_spec_t *spec,
                     tr_tensor_t *out);
tr_status_t tr_model_state(tr_graph_t *g, const char *name, const tr_shape_t *shape, double fill,
                           tr_tensor_t *out);
tr_status_t tr_optim_state(tr_graph_t *g, const char *name, tr_dtype_t dtype, const tr_shape_t *shape,
                           bool mirrors_params, tr_tensor_t *out);
tr_status_t tr_input(tr_graph_t *g, const char *name, tr_dtype_t dtype, const tr_shape_t *shape,
                     tr_tensor_t *out);
tr_status_t tr_const(tr_graph_t *g, const char *name, const tr_shape_t *shape, double fill, tr_tensor_t *out);
/* A CONST filled from `count` host values when the graph is initialised (normalisation tables). */
tr_status_t tr_const_values(tr_graph_t *g, const char *name, const float *values, int64_t count,
                            tr_tensor_t *out);
/* `count` f32 that are summed over slots and ranks with the gradients; zero at the start of every step. */
tr_status_t tr_reduced(tr_graph_t *g, const char *name, int64_t count, tr_tensor_t *out);
/* The step block (tr_step_t) and its result (tr_step_result_t), as u8 tensors. */
tr_tensor_t tr_graph_step(const tr_graph_t *g);
tr_tensor_t tr_graph_result(const tr_graph_t *g);

/* The same elements in another shape. No op. */
tr_status_t tr_reshape(tr_graph_t *g, tr_tensor_t x, const tr_shape_t *shape, tr_tensor_t *out);
/* `count` elements of x's storage from element `first`, as one dimension. No op. */
tr_status_t tr_slice(tr_graph_t *g, tr_tensor_t x, int64_t first, int64_t count, tr_tensor_t *out);
/* Marks an activation of the open program as readable after the run. */
tr_status_t tr_keep(tr_graph_t *g, tr_tensor_t x);

/* Ops between the two are run again before their gradients instead of their activations being kept. */
void tr_recompute_begin(tr_graph_t *g);
void tr_recompute_end(tr_graph_t *g);

/*
 * Appends the gradient of sum(loss * seed) with respect to every trainable parameter that loss depends on. loss and seed have
 * the same shape. Gradients are written to the reduced block, or added to it where `accumulate`. The first call of a graph
 * lays the parameter and reduced blocks out, in the order in which gradients are finished; later calls must finish the same
 * parameters in the same order.
 */
tr_status_t tr_backward(tr_graph_t *g, tr_tensor_t loss, tr_tensor_t seed, bool accumulate);

/* The parameter block's and reduced block's elements: gradients come first, [0, trainable). */
typedef struct {
    int64_t trainable_elems; /* parameters with a gradient; padded parameters count as laid out */
    int64_t frozen_elems;
    int64_t reduced_elems; /* gradients and riders */
} tr_layout_t;
tr_layout_t tr_graph_layout(const tr_graph_t *g);
bool tr_is_param(const tr_graph_t *g, tr_tensor_t t); /* one that was declared: not the block */
/* Views of ranges of the blocks, for optimizers and buckets. */
tr_status_t tr_param_range(tr_graph_t *g, int64_t first, int64_t count, tr_tensor_t *out);
tr_status_t tr_reduced_range(tr_graph_t *g, int64_t first, int64_t count, tr_tensor_t *out);

/* Maximal ranges of trainable parameters with equal decay and lr_factor, in the block's order. */
typedef struct {
    int64_t first, count;
    bool decay;
    float lr_factor;
} tr_param_group_t;
tr_status_t tr_graph_param_groups(const tr_graph_t *g, tr_param_group_t **out /* tr_free */,
                                  size_t *out_count);

/*
 * Inserts the all-reduces of the reduced block into `program`, each right after the op that completes its range or the bucket before
 * it, and one WAIT at the end. Buckets are contiguous ranges in the order of completion: the first of about `first_bytes`, the others of `bucket_bytes`;
 * riders go with the last. overlap = false puts all of them at the end instead.
 */
tr_status_t tr_program_add_allreduce(tr_graph_t *g, int program, size_t first_bytes, size_t bucket_bytes,
                                     bool overlap);

/* -- looking --------------------------------------------------------------------------------------------- */

/* valid until the next tensor is made */
const tr_tensor_info_t *tr_tensor_info(const tr_graph_t *g, tr_tensor_t t);
const tr_shape_t *tr_shape_of(const tr_graph_t *g, tr_tensor_t t); /* the same */
int32_t tr_graph_tensor_count(const tr_graph_t *g);                /* ids 1 .. count */
tr_tensor_t tr_graph_find(const tr_graph_t *g, const char *name);  /* TR_NONE where there is none */
int tr_graph_program_count(const tr_graph_t *g);
const char *tr_program_name(const tr_graph_t *g, int program);
int tr_program_op_count(const tr_graph_t *g, int program);
const tr_op_t *tr_program_op(const tr_graph_t *g, int program, int index);
double tr_op_flops(const tr_graph_t *g, const tr_op_t *op);
double tr_op_bytes(const tr_graph_t *g, const tr_op_t *op);

/* -- planning and running -------------------------------------------------------------------------------- */

/* Bytes on the device by kind; after tr_graph_plan. */
typedef struct {
    size_t params, reduced, model_state, optim_state, consts, inputs;
    size_t arena;     /* what the programs share: activations and scratch, overlapping */
    size_t arena_sum; /* what they would take without overlap */
    size_t total;
} tr_memory_plan_t;

/* Prepares every kernel, plans lifetimes and offsets. TR_ERR_MEMORY with the table of what takes how much, and what to
 * change, where the total exceeds limit_bytes (0: no limit). Allocates no device memory. */
tr_status_t tr_graph_plan(tr_graph_t *g, size_t limit_bytes);
tr_memory_plan_t tr_graph_memory(const tr_graph_t *g);
tr_status_t tr_graph_allocate(tr_graph_t *g);
/* Fills parameters, states and constants: a function of seed and name, not of layout. */
tr_status_t tr_graph_init_params(tr_graph_t *g, uint64_t seed);

/* Zeroes the riders of the reduced block, and the gradients too where they are accumulated: the start of a step. */
tr_status_t tr_graph_zero_reduced(tr_graph_t *g, bool gradients_too);

/* The tensor's device memory is `data` from the next run on (INPUT only; at least its bytes, aligned to 64). NULL: its own. */
tr_status_t tr_input_bind(tr_graph_t *g, tr_tensor_t input, void *data);
/* Copies between host and any allocated tensor; waits for the compute stream. */
tr_status_t tr_tensor_read(tr_graph_t *g, tr_tensor_t t, void *host);
tr_status_t tr_tensor_write(tr_graph_t *g, tr_tensor_t t, const void *host);

/* Enqueues the program on the compute stream. collectives may be NULL: ALLREDUCE and WAIT then do nothing.
 * Collective where it is not. */
tr_status_t tr_program_run(tr_graph_t *g, int program, tr_collectives_t *collectives);
/* The device memory of all tensors of a role; a tensor lies at its info's offset_bytes in it. NULL and 0 where there are none. */
void *tr_graph_region(const tr_graph_t *g, tr_role_t role, size_t *out_bytes);
tr_stream_t *tr_graph_stream(const tr_graph_t *g); /* the compute stream */
tr_status_t tr_graph_sync(tr_graph_t *g);
/* Runs the program with a wait after every op; adds each op's seconds to sec[op]. Collectives are left out. */
tr_status_t tr_program_profile(tr_graph_t *g, int program, double *sec);
/* Runs the program op by op and gives the first whose output is not finite, or -1. */
tr_status_t tr_program_find_nonfinite(tr_graph_t *g, int program, int *out_op);

#endif
