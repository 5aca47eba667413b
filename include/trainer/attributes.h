/*
 * Attributes of ops: constants that are fixed when the op is built and read by its kernel. ops.h
 * documents them at the functions that take them.
 */
#ifndef TRAINER_ATTRIBUTES_H
#define TRAINER_ATTRIBUTES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The activations of activations.def: TR_ACT_RELU, TR_ACT_GELU, ... GELU_TANH is the approximation of
 * Hendrycks and Gimpel (2016). All of them propagate NaN. The gradient of RELU at 0 is 0. */
typedef enum {
    TR_ACT_NONE,
#define ACTIVATION(NAME, ...) TR_ACT_##NAME,
#include "trainer/activations.def"
#undef ACTIVATION
    TR_ACT_COUNT
} tr_act_t;
/* Whether the gradient needs the input. Otherwise it is a function of the output. */
static inline bool tr_act_keeps_input(tr_act_t act) {
    static const bool keeps[TR_ACT_COUNT] = {
        false,
#define ACTIVATION(NAME, name, keeps_input, ...) keeps_input,
#include "trainer/activations.def"
#undef ACTIVATION
    };
    return keeps[act];
}

typedef struct {
    tr_act_t act; /* NONE or RELU */
} tr_add_attr_t;

typedef struct {
    float slope; /* for x <= 0; from 0 */
} tr_leaky_relu_attr_t;

typedef struct {
    float factor;
} tr_scale_attr_t;

/* A range of the last dimension. */
typedef struct {
    int64_t first, count;
} tr_columns_attr_t;

/* One random affine map per image, then a shift of at most crop_pad whole pixels, then a flip. */
typedef struct {
    float rotate_deg, translate, zoom, shear_deg, fill;
    int crop_pad;
    bool flip;
} tr_augment_attr_t;

/* act(alpha op(A) op(B) + bias) + beta C; for alpha 0, see tr_matmul */
typedef struct {
    bool trans_a, trans_b;
    float alpha, beta;
    tr_act_t act;
} tr_matmul_attr_t;

/* spatial: 1, 2 or 3 dimensions. Only the first `spatial` entries of each array are used. */
typedef struct {
    int spatial, kernel[3], stride[3], pad_lo[3], pad_hi[3], dilation[3], groups;
    tr_act_t act;
} tr_conv_attr_t;

/* As above. max: maximum of each window; otherwise the mean over its elements inside the image. */
typedef struct {
    int spatial, kernel[3], stride[3], pad_lo[3], pad_hi[3];
    bool max;
} tr_pool_attr_t;

/* Each size times its factor, 1 to 16. linear: linear in each dimension; otherwise nearest. */
typedef struct {
    int spatial, factor[3];
    bool linear;
} tr_upsample_attr_t;

/* Batch and layer normalisation; act NONE or RELU. */
typedef struct {
    float eps;
    tr_act_t act;
} tr_norm_attr_t;

/* Group normalisation; act NONE or RELU. groups divides the number of channels. */
typedef struct {
    float eps;
    tr_act_t act;
    int groups;
} tr_groupnorm_attr_t;

/* Running moments with equal attributes: `count` elements from sums[sum] and running[running]. */
typedef struct {
    int64_t sum, running, count;
    float momentum;
    int32_t slots; /* number of summed moments */
} tr_moments_range_t;

typedef struct {
    tr_act_t act;
} tr_act_attr_t;

/* p: probability of a zero; stream: random stream, unique to each use in a model. */
typedef struct {
    float p;
    uint32_t stream;
} tr_dropout_attr_t;

typedef struct {
    float smoothing;
} tr_xent_attr_t;

typedef struct {
    float delta;
} tr_huber_attr_t;

typedef struct {
    int k;
} tr_topk_attr_t;

typedef struct {
    double batch_size;
    float clip;
    int32_t growth_steps; /* steps without overflow after which the loss scale doubles; 0: never */
    bool halts;           /* after a step that is not finite and no overflow, no step is finite */
} tr_grad_norm_attr_t;

/* Elements of a block with equal settings: from the end of the previous range (0 for the first) to
 * `end`, which is a multiple of 16 except in the last range. */
typedef struct {
    int64_t end;
    float decay; /* weight decay */
    float lr_factor;
    int32_t before; /* updates of the run before the optimizer state of these parameters began */
} tr_update_range_t;

typedef struct {
    float momentum;
    bool nesterov;
} tr_sgd_attr_t;

typedef struct {
    float beta1, beta2, eps;
    bool decoupled;
} tr_adam_attr_t;

typedef struct {
    float decay;
} tr_ema_attr_t;

typedef struct {
    bool add;
} tr_embedding_attr_t;
typedef struct {
    int heads;
    float p; /* dropout probability */
    uint32_t stream;
} tr_attention_attr_t;

#ifdef __cplusplus
}
#endif

#endif
