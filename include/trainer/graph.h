/*
 * The graph: tensors, programs of ops, gradients, memory, running.
 *
 * A model is a C function that appends ops (ops.h) to the open program; each op checks its shapes
 * and returns a tensor handle. Memory is allocated once, after all programs are complete: one plan
 * places all activations, gradients and scratch in one arena, which the programs share.
 *
 *     tr_device_open("cpu", NULL, &device);  tr_graph_create(device, &g);
 *     tr_program_begin(g, "train", TR_TRAIN, &train);
 *     tr_input(g, "x", TR_F32, &TR_SHAPE(8, 2), &x);  model(g, x, &loss);
 *     tr_backward(g, loss, seed, false);
 *     tr_program_end(g);
 *     tr_graph_plan(g, 0);  tr_graph_allocate(g);  tr_graph_init_params(g, 1);
 *     tr_tensor_write(g, x, values);  tr_graph_run(g, train);
 *     tr_tensor_read(g, tr_gradient(g, w), gradient);
 *
 * examples/graph.c is complete. Persistent tensors (parameters, state, inputs, constants) belong to
 * the graph and are shared by its programs, by name. Activations belong to one program and are valid
 * for one run of it.
 *
 * Blocks: all parameters form one f32 block. Their gradients form another, the *reduced block*, in
 * the order in which the backward pass finishes them, followed by other sums (batch-norm moments,
 * loss, counts). A bucket is therefore a range of elements, and one sum over ranks reduces
 * everything.
 *
 * A function that appends an op or a tensor fails with TR_ERR_CONFIG for shapes and types that do
 * not fit, TR_ERR_MEMORY, or TR_ERR_INTERNAL for calls in the wrong order. Names are copied. Not
 * collective. One thread at a time may use a graph.
 */
#ifndef TRAINER_GRAPH_H
#define TRAINER_GRAPH_H

#include "trainer/attributes.h"
#include "trainer/device.h"
#include "trainer/tensor_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_graph tr_graph_t; /* opaque */
typedef struct {
    int32_t id;
} tr_tensor_t; /* 0: none */
#ifdef __cplusplus
#define TR_NONE (tr_tensor_t{0})
#else
#define TR_NONE ((tr_tensor_t){0})
#endif
static inline bool tr_is_none(tr_tensor_t t) {
    return t.id == 0;
}

typedef enum {
    TR_ROLE_ACTIVATION,  /* in the arena, for one run of its program */
    TR_ROLE_VIEW,        /* `base` with another shape, or a range of its elements */
    TR_ROLE_INPUT,       /* a field of the batch */
    TR_ROLE_PARAM,       /* in the parameter block */
    TR_ROLE_COPY,        /* half-precision copy of a parameter; not saved */
    TR_ROLE_REDUCED,     /* in the reduced block: gradients, then other sums */
    TR_ROLE_MODEL_STATE, /* persists between steps, saved with the model: running moments */
    TR_ROLE_OPTIM_STATE, /* persists between steps, saved with the optimizer */
    TR_ROLE_CONST,       /* filled once; not saved */
    TR_ROLE_CACHE,       /* any type, initially zero, persists between runs; not saved */
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
    tr_tensor_t base;      /* VIEW: the viewed tensor; never itself a view. COPY: the parameter */
    int64_t view_elems;    /* VIEW: offset in elements of base */
    tr_param_spec_t param; /* PARAM; CONST and states use param.init */
    /* f32 PARAM, REDUCED and MODEL_STATE: offset in elements in the block; others: -1 */
    int64_t block_elems;
    /* OPTIM_STATE: one element per element of the trainable parameters, in the block's order; or of
     * this rank's parts of them */
    bool mirrors_params;
    int32_t updates_before;         /* PARAM: of the run, before its optimizer state began */
    bool kept;                      /* ACTIVATION: valid until the program's next run */
    int program, first_op, last_op; /* ACTIVATION: lifetime, indices into the program's ops */
    size_t bytes, offset_bytes;     /* storage, in the arena or its region; set by the plan */
    void *data;                     /* device address after tr_graph_allocate */
} tr_tensor_info_t;

/* -- building ---------------------------------------------------------------------------------- */

/* TRAIN: dropout and the moments of the batch. EVAL: neither. PLAIN: a program without a
 * model, such as an update. */
typedef enum { TR_TRAIN, TR_EVAL, TR_PLAIN } tr_mode_t;

/* device is borrowed and must outlive the graph. */
tr_status_t tr_graph_create(tr_device_t *device, tr_graph_t **out);
/* Waits for what runs. Sets *g to NULL; NULL is allowed. */
void tr_graph_destroy(tr_graph_t **g);

/* Opens a program, to which ops are appended; one at a time. *out_program: its number, for
 * tr_graph_run. */
tr_status_t tr_program_begin(tr_graph_t *g, const char *name, tr_mode_t mode, int *out_program);
/* Completes the open program: merges ops where the device can. */
tr_status_t tr_program_end(tr_graph_t *g);
tr_mode_t tr_graph_mode(const tr_graph_t *g); /* of the open program; for dropout, batch-norm */

/* Scopes nest. An op's label is the path; a parameter's name is "path.name" with dots. If memory
 * for the path cannot be allocated, the next op or parameter returns the error. */
void tr_scope_push(tr_graph_t *g, const char *name);
void tr_scope_pop(tr_graph_t *g);
const char *tr_scope(const tr_graph_t *g);

/* Each of these returns the tensor of that name and creates it at first use. Using it again with
 * another type or shape is an error. tr_param, tr_weight and tr_model_state prefix the name with the scope
 * ("conv1.weight"); the others do not. */
tr_status_t tr_param(tr_graph_t *g, const char *name, const tr_shape_t *shape,
                     const tr_param_spec_t *spec, tr_tensor_t *out);
/* A parameter that is loaded, not trained, and begins with zeros: f32, bf16 or f16. The halves are
 * behind the parameter block. */
tr_status_t tr_weight(tr_graph_t *g, const char *name, tr_dtype_t dtype, const tr_shape_t *shape,
                      tr_tensor_t *out);
tr_status_t tr_model_state(tr_graph_t *g, const char *name, const tr_shape_t *shape, double fill,
                           tr_tensor_t *out);
tr_status_t tr_optim_state(tr_graph_t *g, const char *name, tr_dtype_t dtype,
                           const tr_shape_t *shape, bool mirrors_params, tr_tensor_t *out);
tr_status_t tr_input(tr_graph_t *g, const char *name, tr_dtype_t dtype, const tr_shape_t *shape,
                     tr_tensor_t *out);
tr_status_t tr_const(tr_graph_t *g, const char *name, const tr_shape_t *shape, double fill,
                     tr_tensor_t *out);
/* The copy of a parameter in bf16 or f16, which follows its value; its gradient is that of the
 * parameter, in f32. The graph keeps copies of one type, and only if the first is requested before
 * the blocks are laid out. In all other cases, and for tensors that are not parameters, this
 * appends a cast. */
tr_status_t tr_param_copy(tr_graph_t *g, tr_tensor_t param, tr_dtype_t dtype, tr_tensor_t *out);
/* A CONST, filled from `count` host values when the graph is initialised (normalisation tables). */
tr_status_t tr_const_values(tr_graph_t *g, const char *name, const float *values, int64_t count,
                            tr_tensor_t *out);
tr_status_t tr_cache(tr_graph_t *g, const char *name, tr_dtype_t dtype, const tr_shape_t *shape,
                     tr_tensor_t *out);
/* `count` f32 values that are summed over slots and ranks with the gradients. They are zero at the
 * start of every step. */
tr_status_t tr_reduced(tr_graph_t *g, const char *name, int64_t count, tr_tensor_t *out);

/* A view of the same elements with another shape. Adds no op. */
tr_status_t tr_reshape(tr_graph_t *g, tr_tensor_t x, const tr_shape_t *shape, tr_tensor_t *out);
/* A one-dimensional view of `count` elements of x's storage from element `first`. Adds no op. */
tr_status_t tr_slice(tr_graph_t *g, tr_tensor_t x, int64_t first, int64_t count, tr_tensor_t *out);
/* Keeps an activation of the open program readable after the run. */
tr_status_t tr_keep(tr_graph_t *g, tr_tensor_t x);

/* The activations of ops between these two calls are not kept: the backward pass recomputes them.
 * */
void tr_recompute_begin(tr_graph_t *g);
void tr_recompute_end(tr_graph_t *g);

/*
 * Appends the gradient of sum(loss * seed) with respect to every trainable parameter that loss
 * depends on. loss and seed have the same shape. Gradients are written to the reduced block, or
 * added to it if `accumulate`. The first call of a graph lays out the parameter and reduced blocks
 * in the order in which gradients are finished; later calls must finish the same parameters in the
 * same order.
 */
tr_status_t tr_backward(tr_graph_t *g, tr_tensor_t loss, tr_tensor_t seed, bool accumulate);

/* The gradient of a parameter, f32 of its shape, after tr_backward; TR_NONE if it has none. */
tr_tensor_t tr_gradient(const tr_graph_t *g, tr_tensor_t param);

/* Sizes of the parameter and reduced blocks. Both begin with the trainable parameters. */
typedef struct {
    int64_t trainable_elems; /* parameters with a gradient, padding included */
    int64_t sharded_elems;   /* of these, matrices and kernels, which are first, with padding */
    int64_t param_elems;     /* trainable and frozen ones */
    int64_t frozen_elems;
    int64_t reduced_elems; /* gradients and other sums */
} tr_layout_t;
tr_layout_t tr_graph_layout(const tr_graph_t *g);
/* Views of ranges of the blocks, for optimizers and buckets. With parallel.zero = 2 there is no range of
 * the sharded gradients: TR_ERR_CONFIG. */
tr_status_t tr_param_range(tr_graph_t *g, int64_t first, int64_t count, tr_tensor_t *out);
tr_status_t tr_reduced_range(tr_graph_t *g, int64_t first, int64_t count, tr_tensor_t *out);
/* -- running ----------------------------------------------------------------------------------- */

/* Plans the memory of all programs, which must have ended. No tensor or program can be added after
 * it. TR_ERR_MEMORY with a table of what takes how much, if the total exceeds limit_bytes (0: no
 * limit). Allocates no device memory. */
tr_status_t tr_graph_plan(tr_graph_t *g, size_t limit_bytes);
/* Allocates the planned memory. TR_ERR_MEMORY. */
tr_status_t tr_graph_allocate(tr_graph_t *g);
/* Fills parameters and states with their first values, which depend only on seed and name, inputs
 * and caches with zeros. Call it once after tr_graph_allocate. */
tr_status_t tr_graph_init_params(tr_graph_t *g, uint64_t seed);
/*
 * Copies a whole tensor to or from `host`: its elements, dense, in its own type, owned by the
 * caller. Waits for the programs that run. Valid are persistent tensors, gradients, and activations
 * kept by tr_keep; other activations share memory and may hold anything.
 */
tr_status_t tr_tensor_read(tr_graph_t *g, tr_tensor_t t, void *host);
tr_status_t tr_tensor_write(tr_graph_t *g, tr_tensor_t t, const void *host);
/* Starts a program. It may still run when this returns; tr_tensor_read waits for it. */
tr_status_t tr_graph_run(tr_graph_t *g, int program);

/* -- queries ----------------------------------------------------------------------------------- */

/* The results of these two are read-only and valid until the next tensor is created. */
const tr_tensor_info_t *tr_tensor_info(const tr_graph_t *g, tr_tensor_t t);
const tr_shape_t *tr_shape_of(const tr_graph_t *g, tr_tensor_t t);
int32_t tr_graph_tensor_count(const tr_graph_t *g);               /* ids 1 .. count */
tr_tensor_t tr_graph_find(const tr_graph_t *g, const char *name); /* TR_NONE if not found */

#ifdef __cplusplus
}
#endif

#endif
