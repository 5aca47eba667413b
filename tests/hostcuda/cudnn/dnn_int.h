/*
 * What the files of the fake libcudnn share.
 *
 * attributes.c   which attribute belongs to which descriptor, with type and number of elements
 * descriptor.c   descriptors: made, set, read
 * finalize.c     checks of one descriptor; an operation graph becomes a program
 * engine.c       which engines a program has, and which patterns have none
 * plan.c         plans, their JSON, execution
 * dense.c        tensors as dense arrays of f32 in the order of their dimensions
 * op_*.c         the operations
 */
#ifndef HOSTCUDA_DNN_INT_H
#define HOSTCUDA_DNN_INT_H

#include "hostcuda.h"
#include "numeric.h"
#include <cudnn.h>

#define EXPORT       __attribute__((visibility("default")))
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_DIMS     8
#define MAX_SLOTS    10
#define MAX_TENSORS  64
#define MAX_OPS      32
#define MAX_ENGINES  8
#define KNOB_ENGINE  5 /* on a B200, asked for by its number only */

/* -- programs: flat, so that a plan can be written and restored as it is ----------------------- */
typedef struct {
    int64_t uid, alignment, dim[MAX_DIMS], stride[MAX_DIMS];
    int32_t type, nd;             /* type: cudnnDataType_t */
    int32_t is_virtual, by_value; /* no padding: tensors are compared as bytes */
} tensor_t;

typedef struct {
    int32_t kind;                                /* cudnnBackendDescriptorType_t of the operation */
    int32_t in[MAX_SLOTS], out[MAX_SLOTS];       /* tensors of the program; -1: absent */
    int32_t mode, axis, spatial, compute;        /* mode: of pointwise, reduction */
    int64_t pre[3], post[3], step[3], dilation[3];
    double alpha, beta; /* of a convolution; alpha1 and alpha2 of pointwise */
    double lower_clip, upper_clip, lower_slope, elu_alpha, softplus_beta, swish_beta;
} op_t;

typedef struct {
    int32_t tensors, ops;
    tensor_t tensor[MAX_TENSORS];
    op_t op[MAX_OPS];
} program_t;

typedef struct {
    int64_t index; /* global index */
    bool tensor_core, tf32, deterministic, compiled;
    int64_t workspace;
} engine_t;

/* -- descriptors ------------------------------------------------------------------------------- */
typedef struct {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void *data;
} attribute_t;

typedef struct desc {
    int users; /* the program, and descriptors that hold it */
    cudnnBackendDescriptorType_t type;
    bool final;
    attribute_t *list;
    int count;
    program_t *program; /* of an operation graph and of a plan */
    engine_t engine;    /* of a plan */
} desc_t;

/* A row of the table of attributes. */
typedef struct {
    cudnnBackendAttributeName_t name;
    const char *text;
    cudnnBackendDescriptorType_t owner;
    cudnnBackendAttributeType_t type;
    int least, most; /* elements; least 0: need not be set */
    int slot;        /* operand of an operation: 1.. inputs, -1.. outputs; 0: none */
} row_t;
const row_t *dnn_row(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name);
const row_t *dnn_rows(size_t *count);
size_t dnn_type_size(cudnnBackendAttributeType_t type); /* 0: no such type */

/* Records why (cudnnGetLastErrorString) and returns status. */
cudnnStatus_t dnn_refuse(cudnnStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

desc_t *dnn_new(cudnnBackendDescriptorType_t type);
void dnn_drop(desc_t *desc);
const attribute_t *dnn_find(const desc_t *desc, cudnnBackendAttributeName_t name);
/* Stores without a check; descriptors in `data` get one more user. */
void dnn_store(desc_t *desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t count, const void *data);
int64_t dnn_int(const desc_t *desc, cudnnBackendAttributeName_t name, int at, int64_t otherwise);
double dnn_double(const desc_t *desc, cudnnBackendAttributeName_t name, double otherwise);
desc_t *dnn_child(const desc_t *desc, cudnnBackendAttributeName_t name, int at);

cudnnStatus_t dnn_finalize(desc_t *desc);
bool dnn_is_operation(int kind);
cudnnStatus_t dnn_finalize_plan(desc_t *desc);
cudnnStatus_t dnn_plan_json(const desc_t *plan, int64_t room, int64_t *count, char *text);
/* Shapes of the operands of one operation. */
cudnnStatus_t dnn_check_op(const program_t *p, const op_t *op);
/* The engines of a program, best first, as heuristics offer them; or why there are none. */
cudnnStatus_t dnn_engines(const program_t *p, engine_t out[MAX_ENGINES], int *count);
/* Results of heuristics and members of engines, which are made on request. */
cudnnStatus_t dnn_results(desc_t *heuristics, int64_t room, int64_t *count, void **configs);
cudnnStatus_t dnn_engine_of(const desc_t *engine, engine_t *out);
cudnnStatus_t dnn_check_config(const desc_t *config);

/* -- execution --------------------------------------------------------------------------------- */
typedef struct {
    int nd;
    int64_t dim[MAX_DIMS], count;
    float *data; /* row-major in the order of the dimensions */
} dense_t;

num_type_t dnn_num(int cudnn_type); /* NUM_COUNT: a type that the fake lacks */
dense_t dense_new(const tensor_t *shape);
void dense_read(dense_t *to, const tensor_t *t, const void *data);
void dense_write(const dense_t *from, const tensor_t *t, void *data);
/* Rounds as storing in this type would. */
void dense_round(dense_t *x, int cudnn_type);

/* Goes through all elements of a shape; `at[k]` is the place in operand k, which is broadcast
 * where its dimension is 1. */
typedef struct {
    int nd, operands;
    int64_t dim[MAX_DIMS], index[MAX_DIMS], step[6][MAX_DIMS], at[6];
} walk_t;
walk_t walk_begin(const dense_t *shape, int operands, const dense_t *const operand[]);
bool walk_next(walk_t *walk);

/* in[k], out[k]: operands by slot, NULL where absent; outputs are zero. */
typedef void op_run_t(const op_t *op, const dense_t *const in[], dense_t *const out[]);
op_run_t run_convolution, run_pointwise, run_reduction, run_matmul;

#endif
