/* What the op rows share: checks with messages for people, sizes, and rows that other rows append.
 */
#ifndef TR_GRAPH_OPS_OP_INT_H
#define TR_GRAPH_OPS_OP_INT_H

#include "graph/program.h"
#include "trainer/ops.h"
#include "base/str.h"

/* Who asked for the op, for messages: its label, or the row's name where it has none. */
const char *tr_op_where(const tr_op_t *op);
tr_dtype_t tr_dtype_of(const tr_graph_t *g, tr_tensor_t t);
/* Elements of t as a double, 0 for TR_NONE; for FLOPs and bytes. */
double tr_op_elems(const tr_graph_t *g, tr_tensor_t t);
/* Product of dim[first] .. dim[last - 1]. */
int64_t tr_shape_product(const tr_shape_t *shape, int first, int last);
/* Appends `count` sizes joined by " x " ("28 x 28 x 1") to s. */
void tr_shape_describe(tr_str_t *s, const int64_t *dim, int count);

/* Each fails with TR_ERR_CONFIG naming the layer, what was expected and what was found. `what`
 * names the input in the message. An absent input passes tr_op_check_type and tr_op_check_shape. */
tr_status_t tr_op_check_present(const tr_op_t *op, int input, const char *what);
tr_status_t tr_op_check_type(const tr_graph_t *g, const tr_op_t *op, int input, tr_dtype_t dtype,
                             const char *what);
/* f32, bf16 or f16: what activations are stored as. */
tr_status_t tr_op_check_float(const tr_graph_t *g, const tr_op_t *op, int input, const char *what);
tr_status_t tr_op_check_shape(const tr_graph_t *g, const tr_op_t *op, int input,
                              const tr_shape_t *shape, const char *what);
/* f32 of one dimension with `count` elements: scales, biases, statistics. */
tr_status_t tr_op_check_vector(const tr_graph_t *g, const tr_op_t *op, int input, int64_t count,
                               const char *what);
/* i64 or i32. */
tr_status_t tr_op_check_label(const tr_graph_t *g, const tr_op_t *op, int input);
/* u8 of `bytes`: the step block or its result. */
tr_status_t tr_op_check_block(const tr_graph_t *g, const tr_op_t *op, int input, size_t bytes,
                              const char *what);

/* u8 of a whole number of rows of `row_bytes`, at least one: a table. */
tr_status_t tr_op_check_table(const tr_graph_t *g, const tr_op_t *op, int input, size_t row_bytes,
                              const char *what);

/* Output 0 has the type, f32 or bf16, and the shape of input 0. */
tr_status_t tr_op_shape_like_in0(tr_graph_t *g, tr_op_t *op);

/* Of a normalisation (x, gamma, beta -> y, mean, rstd): dx has the type and shape of in0, dgamma and
 * dbeta one f32 for each channel, which is its last dimension. */
tr_status_t tr_op_norm_bwd_shape(tr_graph_t *g, tr_op_t *op);
/* Appends its gradient as `row` (dy, x, gamma, beta, mean, rstd -> dx, dgamma, dbeta). */
tr_status_t tr_op_norm_grad(tr_graph_t *g, const tr_op_t *op, const tr_op_row_t *row,
                            const tr_tensor_t *dout, const bool *need, tr_tensor_t *din);
/* That of a tr_xent_attr_t: TR_ERR_CONFIG. */
tr_status_t tr_op_check_smoothing(const tr_op_t *op);

/* A shape rule for (R, C): x with all dimensions but the last folded. */
tr_status_t tr_fold_rows(tr_graph_t *g, tr_tensor_t x, tr_tensor_t *out);
/* x (...) as one dimension. */
tr_status_t tr_flatten(tr_graph_t *g, tr_tensor_t x, tr_tensor_t *out);

/* A weight for a product with x: where x is bf16 or f16, a copy of that type (tr_param_copy). */
tr_status_t tr_op_weight(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t *out);
/* The bias of a product with x as a copy of the type of x, which a device may read instead of b;
 * TR_NONE where that would need a cast. */
tr_status_t tr_op_bias_copy(tr_graph_t *g, tr_tensor_t x, tr_tensor_t b, tr_tensor_t *out);
/* in3 of a product: TR_NONE, or its bias, of `count` elements, in the type of in0. */
tr_status_t tr_op_check_bias_copy(const tr_graph_t *g, const tr_op_t *op, int64_t count);

/* The gradient before an activation that was fused into an op with output y: dy itself for NONE.
 * GELU cannot be undone from y: TR_ERR_INTERNAL. */
tr_status_t tr_op_unfuse_act(tr_graph_t *g, tr_act_t act, tr_tensor_t dy, tr_tensor_t y,
                             tr_tensor_t *out);
/* Whether `act` may be fused into an op of the open program: its gradient can be had from the
 * output, or none will be asked. */
bool tr_op_can_fuse(const tr_graph_t *g, tr_act_t act);

/* Appended by the fusion pass only, of devices that have their kernels (fuse_batchnorm.c). */
extern const tr_op_row_t tr_batchnorm_add_train_row, tr_batchnorm_add_bwd_row;
extern const tr_op_row_t tr_matmul_act_row, tr_matmul_act_bwd_row; /* fuse_matmul_act.c */

/* The stream of the next dropout of the open program, from the layer's path and its place among
 * the program's dropouts: equal programs get equal streams. */
uint32_t tr_op_dropout_stream(const tr_graph_t *g);

/* x (R, C), f32 or bf16 -> sum over rows (C), f32. */
tr_status_t tr_column_sum(tr_graph_t *g, tr_tensor_t x, tr_tensor_t *out);

#endif
