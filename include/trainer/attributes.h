/*
 * The attributes of ops: constants that an op is built with and its kernel reads. What each means
 * is beside the function that takes it (ops.h); the arithmetic is in src/device/kernels.h.
 */
#ifndef TRAINER_ATTRIBUTES_H
#define TRAINER_ATTRIBUTES_H

#include <stdbool.h>
#include <stdint.h>

/* GELU is exact, with erf; GELU_TANH is its approximation (Hendrycks and Gimpel 2016),
 * x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). SILU: x sigmoid(x). NaN passes through all of
 * them; the gradient of RELU at 0 is 0. */
typedef enum {
    TR_ACT_NONE,
    TR_ACT_RELU,
    TR_ACT_GELU,
    TR_ACT_SIGMOID,
    TR_ACT_TANH,
    TR_ACT_GELU_TANH,
    TR_ACT_SILU
} tr_act_t;
/* Whether the gradient needs the input; that of the others is a function of the output. */
static inline bool tr_act_keeps_input(tr_act_t act) {
    return act == TR_ACT_GELU || act == TR_ACT_GELU_TANH || act == TR_ACT_SILU;
}

typedef struct {
    tr_act_t act; /* NONE or RELU */
} tr_add_attr_t;

typedef struct {
    float factor;
} tr_scale_attr_t;

/* A range of the last dimension. */
typedef struct {
    int64_t first, count;
} tr_columns_attr_t;

/* One random affine map per image, then a shift by whole pixels of at most crop_pad, then a flip.
 * */
typedef struct {
    float rotate_deg, translate, zoom, shear_deg, fill;
    int crop_pad;
    bool flip;
} tr_augment_attr_t;

/* act(alpha op(A) op(B) + bias) + beta C */
typedef struct {
    bool trans_a, trans_b;
    float alpha, beta;
    tr_act_t act;
} tr_matmul_attr_t;

/* spatial: 1, 2 or 3; only that many entries of each array count, in the order of the spatial
 * dimensions. */
typedef struct {
    int spatial, kernel[3], stride[3], pad_lo[3], pad_hi[3], dilation[3], groups;
    tr_act_t act;
} tr_conv_attr_t;

/* The same. max: the largest element of a window, else the mean of those inside the image. */
typedef struct {
    int spatial, kernel[3], stride[3], pad_lo[3], pad_hi[3];
    bool max;
} tr_pool_attr_t;

/* Batch and layer normalisation; act NONE or RELU. */
typedef struct {
    float eps;
    tr_act_t act;
} tr_norm_attr_t;

/* Running moments that are updated alike: `count` elements from sums[sum] and running[running]. */
typedef struct {
    int64_t sum, running, count;
    float momentum;
    int32_t slots; /* how many moments were added up */
} tr_moments_range_t;

typedef struct {
    tr_act_t act;
} tr_act_attr_t;

/* p: the probability of a zero; stream: a number of its own for each use in a model. */
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
} tr_grad_norm_attr_t;

/* Elements of a block that an optimizer updates alike: from the end of the range before it, 0 for
 * the first, up to `end`, a multiple of 16 for all but the last. */
typedef struct {
    int64_t end;
    float decay; /* weight decay */
    float lr_factor;
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
    float p; /* of dropout */
    uint32_t stream;
} tr_attention_attr_t;

#endif
