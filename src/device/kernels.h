/*
 * The contracts of the kernels in kernels.def: inputs, outputs and attributes.
 *
 * Notation: "in0: name (shape)". B is the batch, N a batch of images, D H W are spatial dimensions,
 * C channels, K output channels, F features; "S..." is one to three spatial dimensions [D] [H] W.
 * "?" marks an input or output that may be absent. Types are f32 unless stated otherwise. Outputs
 * are overwritten unless the entry says that they are read, or the call adds to them
 * (tr_kernel_call_t.adds). An output may share the memory of an input only if the entry says "in
 * place". Attribute structs are in trainer/attributes.h, in this
 * order.
 *
 * Alignment: every pointer of a call, including scratch, is a multiple of TR_KERNEL_ALIGN bytes.
 * Two exceptions are only multiples of the element size: a range of a block that an optimizer or a
 * reduction works on, and a single number in a block of sums.
 *
 * Results do not depend on timing. They are bitwise equal for equal numbers of threads, and for
 * kernels not marked (t) for any number of threads.
 *
 * bf16 and f16: from ADD to DROPOUT, except CAST_NORMALIZE and AUGMENT, and in the kernels of
 * sequences, activations and their gradients (x y dx dy a b, A B C, and the w of convolutions) may
 * all be bf16, or all be f16. Scales, biases, statistics and their gradients stay f32. Sums are
 * computed in f32 or better, and results are rounded once.
 */
#ifndef TR_DEVICE_KERNELS_H
#define TR_DEVICE_KERNELS_H

#include "trainer/attributes.h"

typedef enum {
#define KERNEL(name, ...) TR_K_##name,
#include "device/kernels.def"
#undef KERNEL
    TR_K_COUNT,
    TR_K_NONE = -1
} tr_kernel_id_t;

/* Maximum number of inputs and outputs of one op. */
#define TR_KERNEL_MAX_IN  8
#define TR_KERNEL_MAX_OUT 8
/* Elements whose squares BLOCK_SQUARES adds up to one sum. */
#define TR_SQUARES_BLOCK 4096
/* Added to both parts of a Dice coefficient, as MONAI does. */
#define TR_DICE_SMOOTH 1e-5
/* The alignment of pointers that kernels get, in bytes. */
#define TR_KERNEL_ALIGN 64

typedef enum {
    TR_KERNEL_PRODUCT, /* products of matrices and convolutions, by matrix units where there are any */
    TR_KERNEL_ATTENTION,  /* of training */
    TR_KERNEL_NORM,       /* normalisation in training */
    TR_KERNEL_ACTIVATION, /* and sums of residual branches, biases */
    TR_KERNEL_HEAD,       /* products and softmax of the last layer of a language model */
    TR_KERNEL_OPTIMIZER,
    TR_KERNEL_OTHER,
    TR_KERNEL_KINDS
} tr_kernel_kind_t;

/* What holds for a kernel on every device, and how device cuda computes it. */
typedef struct {
    const char *name; /* "CONV_FWD" */
    bool is_required;
    tr_kernel_kind_t kind;
    int linear_inputs; /* the kernel is linear in each of its first inputs, so many */
    uint64_t in_place; /* bit 8 o + i: output o may be the memory of input i */
    int launches;      /* of CUDA kernels; 0: one */
    int rereads;       /* times that device cuda reads the inputs beyond the first */
} tr_kernel_facts_t;

/* Of a kernel; not TR_K_NONE. */
const tr_kernel_facts_t *tr_kernel_facts(tr_kernel_id_t id);
const char *tr_kernel_name(tr_kernel_id_t id);

/*
 * Values that change with every step: a small block on the device, an input of the kernels that
 * need it (u8 of sizeof(tr_step_t)). Attributes of ops never contain them.
 */
typedef struct {
    uint64_t seed;
    int64_t step;             /* from 0; part of the random key of dropout and augmentation */
    float lr;                 /* learning rate of this step */
    float weight_decay_scale; /* decay schedule, 1 by default */
} tr_step_t;

/* The result of a step: written by GRAD_NORM in `update`, copied to the host with the metrics. */
typedef struct {
    float grad_norm; /* global L2 norm of the unscaled, count-corrected gradient, before clipping */
    /* the optimizer's factor for gradients: count correction, unscaling, clipping; if !finite 0, or
     * -1: halted */
    float scale;
    int32_t finite;  /* 1: norm and loss are finite; 0: the whole update is skipped */
    int32_t applied; /* number of updates applied so far, including this one */
} tr_step_result_t;

/* COPY           in0: x (any shape, type) -> out0: y (same type, same number of elements) */
/* ACCUMULATE     in0: x (n) -> out0: y (n): y += x. Reads out0. */
/* ADD            in0: a, in1: b (same shape) -> out0: act(a + b); in place over a or b.
 *                attr: tr_add_attr_t */
/* BIAS           in0: x (..., K), in1: b (K) -> out0: act(x + b); in place over x.
 *                attr: tr_add_attr_t */
/* LEAKY_RELU_FWD in0: x -> out0: y = x > 0 ? x : slope * x; in place.
 *                attr: tr_leaky_relu_attr_t */
/* LEAKY_RELU_BWD in0: dy, in1: y -> out0: dx = y > 0 ? dy : slope * dy; in place over dy. attr: as
 *                above */
/* CONCAT         in0 .. in7?: x_i (..., C_i), equal except for C_i -> out0: (..., sum of C_i), the
 *                inputs concatenated in order */
/* COLUMNS        in0: x (..., C) -> out0: y (..., count) = x[..., first .. first + count - 1].
 *                attr: tr_columns_attr_t */
/* SCALE          in0: x -> out0: factor * x; in place. attr: tr_scale_attr_t */

/* CAST_NORMALIZE in0: x (B, ..., C) of any type, in1?: scale (C), in2?: shift (C) -> out0: y f32,
 *                bf16 or f16 = x * scale[c] + shift[c] */

/*
 * AUGMENT        in0: x f32 or u8 (B, H, W, C), in1: sample_id i64 (B), in2: step block, in3?:
 *                scale (C), in4?: shift (C) -> out0: y f32, bf16 or f16 (B, H, W, C). x * scale[c]
 *                + shift[c] is transformed, then rounded once.
 * Per image: one random affine map about the centre of the image, bilinear, with `fill` outside.
 * Its rotation is uniform in [-rotate_deg, rotate_deg], its translation uniform in [-translate,
 * translate] of width and height, its scale uniform in [1 - zoom, 1 + zoom], its shear (x) uniform
 * in [-shear_deg, shear_deg]. Then a shift by whole pixels uniform in [-crop_pad, crop_pad] (the
 * random crop of a padded image), then a horizontal flip with probability 1/2.
 * With x to the right, y downwards, centre c and translation t, a point p is mapped to
 * c + t + R Z (p - c), where R = (cos -sin; sin cos) and Z = scale (1 tan shear; 0 1). Without the
 * affine part, pixels are moved exactly.
 * Random numbers: with u in [0, 1) from a word (tr_rng_to_float), a value uniform in [-a, a] is
 * (2u - 1) a; a shift is floor(word (2 crop_pad + 1) / 2^32) - crop_pad; an image is flipped if the
 * highest bit is set. The words of Philox(seed, AUGMENT, stream 0, a = step, b = sample id) are
 * rotation, translation x, translation y, scale; those of stream 1 shear, shift x, shift y, flip.
 */

/*
 * MATMUL (t)     in0: A, in1: B, in2?: bias (N), in3?: the bias in the type of C, which a device
 *                may read instead -> out0: C = act(alpha op(A) op(B) + bias) + beta C
 * A (..., M, K) or (..., K, M) if trans_a, B (..., K, N) or (..., N, K) if trans_b, C (..., M, N).
 * The leading dimensions of A and C are equal; B has the same or none. If B has none and trans_a is
 * false, the leading dimensions of A are folded into M. A and B have the same type; C has that type
 * or f32. With bf16 and f16, beta is 0, and alpha is 1 if there is a bias.
 */
/* MATMUL_ACT_FWD (t)  in0 .. in3: as of MATMUL -> out0: C, without the activation, out1: act(C);
 *                attr: tr_matmul_attr_t with alpha 1, beta 0 and an activation that keeps its input */
/* MATMUL_ACT_BWD (t)  in0: A, in1: B, in2, in3: absent, in4: x -> out0: act'(x) op(A) op(B), all of
 *                one type. attr: likewise */
/* COLUMN_SUM     in0: x (R, C) -> out0: f32 (C), the sum over rows */

/*
 * Convolution (cross-correlation), NHWC. spatial is 1, 2 or 3; only the first `spatial` entries of
 * the arrays are used, in the order of the spatial dimensions. Weights: (K, kernel..., C / groups).
 * Output size per dimension:
 * floor((in + pad_lo + pad_hi - dilation (kernel - 1) - 1) / stride) + 1.
 * CONV_FWD (t)         in0: x (N, S..., C), in1: w, in2?: bias (K), in3?: as for MATMUL -> out0: y
 *                      (N, S'..., K) = act(conv + bias)
 * CONV_BWD_DATA (t)    in0: dy (N, S'..., K), in1: w, in2?: a, of the type and shape of dx ->
 *                      out0: dx (N, S..., C) + a, rounded once; in place over a. With a: only
 *                      where the kernel's `adds` has bit 0, with kernel 1, stride 1, no padding,
 *                      one group
 * CONV_BWD_WEIGHTS (t) in0: x, in1: dy -> out0: dw f32, out1?: dbias (K)
 */

/*
 * Pooling, NHWC. avg divides by the number of elements inside the image (padding is not counted).
 * Global: kernel = the image.
 * POOL_FWD       in0: x (N, S..., C) -> out0: y (N, S'..., C), out1 (max only)?: index i32 (N,
 *                S'..., C), the flat spatial position of the maximum in the image, the first of
 *                equal ones. NaN counts as the maximum.
 * POOL_BWD       in0: dy, in1 (max only): index -> out0: dx (N, S..., C)
 */

/*
 * Upsampling, NHWC; attr: tr_upsample_attr_t. The weights are those of upsample.h.
 * UPSAMPLE_FWD   in0: x (N, S..., C) -> out0: y (N, S'..., C), S' = S * factor
 * UPSAMPLE_BWD   in0: dy (N, S'..., C) -> out0: dx (N, S..., C)
 */

/*
 * Batch normalisation over all dimensions but the last (Ioffe and Szegedy 2015), followed by a
 * fused activation (NONE or RELU).
 * BATCHNORM_TRAIN in0: x (..., C), in1: gamma (C), in2: beta (C) -> out0: y, out1: mean (C), out2:
 *                 rstd (C) = 1/sqrt(var + eps) with biased var, out3?: moments (2, C), for the
 *                 running moments: mean and unbiased variance (biased for a single row) are added
 * BATCHNORM_EVAL  in0: x, in1: gamma, in2: beta, in3: running mean (C), in4: running variance (C)
 *                 -> out0: y
 * BATCHNORM_BWD   in0: dy, in1: x, in2: gamma, in3: beta, in4: mean, in5: rstd -> out0?: dx, out1:
 *                 dgamma (C), out2: dbeta (C). dx is in place over dy. With act = RELU, the mask is
 *                 recomputed from x.
 * BATCHNORM_ADD_TRAIN as BATCHNORM_TRAIN, with in3: a, of the type and shape of x -> out0: y =
 *                 act(normalised x + a), in place over a. The normalised x is rounded to the type
 *                 of x before the addition.
 * BATCHNORM_ADD_BWD the gradient of y = relu(normalised x + a). in0: dy, in1 to in5: as
 *                 BATCHNORM_BWD, in6: y -> out0?: dx, out1: dgamma, out2: dbeta, out3: dsum (...,
 *                 C) = dy where y > 0, else 0, which is the gradient of a; in place over dy. attr:
 *                 act is NONE
 * MOMENTS_UPDATE  in0: sums of moments over slots (n), in1: result (tr_step_result_t), in2: ranges
 *                 (tr_moments_range_t as u8), disjoint -> out0: running (m): in each range
 *                 running += momentum (sum / slots - running), unless result.finite is 0. Reads
 *                 out0.
 */

/*
 * Layer normalisation over the last dimension (Ba et al. 2016).
 * LAYERNORM_FWD  in0: x (R, C), in1: gamma, in2: beta -> out0: y, out1: mean (R), out2: rstd (R)
 * LAYERNORM_BWD  in0: dy, in1: x, in2: gamma, in3: mean, in4: rstd -> out0?: dx, out1: dgamma,
 *                out2: dbeta
 */

/*
 * Group normalisation of each sample over its positions and the channels of a group (Wu and He
 * 2018), followed by a fused activation (NONE or RELU); attr: tr_groupnorm_attr_t. N is at most
 * 65535. The variance is biased.
 * GROUPNORM_FWD  in0: x (N, S..., C), in1: gamma (C), in2: beta (C) -> out0: y, out1: mean (N, G),
 *                out2: rstd (N, G) = 1/sqrt(var + eps)
 * GROUPNORM_BWD  in0: dy, in1: x, in2: gamma, in3: beta, in4: mean, in5: rstd -> out0?: dx, in
 *                place over dy, out1: dgamma (C), out2: dbeta (C). With act = RELU, the mask is
 *                recomputed from x.
 */

/* ACT_FWD        in0: x -> out0: act(x); in place. attr: tr_act_attr_t */
/* ACT_BWD        in0: dy, in1: x if tr_act_keeps_input, else y -> out0: dx; in place over dy;
 *                out1?: f32 (C), the sum of dx over all but the last dimension.
 *                attr: tr_act_attr_t */

/*
 * DROPOUT        in0: x (B, ...), in1: sample_id i64 (B), in2: step block -> out0: x * mask / (1 -
 *                p); in place
 * The gradient is the same kernel applied to dy, so the mask need not be stored. Element e of a
 * sample uses word e % 4 of Philox(seed, DROPOUT, stream, a = sample id, b = step << 32 | e / 4).
 * It is kept and multiplied by (float)(1 / (1 - p)) if the word is at least floor(p 2^32).
 * Otherwise it is 0, even if x is not finite.
 */

/*
 * Losses. A row of weight 0 has loss and gradient 0, whatever it contains. Softmax cross-entropy
 * has label smoothing s: the target is (1 - s) one-hot + s / V.
 * XENT_FWD       in0: logits (R, V), in1: label i64 or i32 (R), in2: weight f32 (R) -> out0: loss
 *                (R), weighted; out1: lse (R), log sum exp of the row. A label of -1 is ignored
 *                (loss 0). Other labels outside [0, V) give NaN; the loader refuses them.
 * XENT_BWD       in0: logits, in1: label, in2: weight, in3: lse, in4: dloss (R) -> out0: dlogits;
 *                in place over logits
 * MSE_FWD        in0: y (B, F), in1: target f32 (B, F), in2: weight (B) -> out0: loss (B) = weight
 *                * mean over F of (y - target)^2
 * MSE_BWD        in0: y, in1: target, in2: weight, in3: dloss (B) -> out0: dy
 * MAE_FWD, MAE_BWD      as MSE, with |y - target|, whose slope at 0 is 0
 * HUBER_FWD, HUBER_BWD  as MSE, with e^2 / 2 if |e| <= delta, else delta (|e| - delta / 2), where
 *                e = y - target. attr: tr_huber_attr_t
 * BCE_FWD, BCE_BWD      as MSE, with binary cross-entropy -t log s - (1 - t) log(1 - s), where
 *                s = sigmoid(y) and the target t is in [0, 1]
 * CLASS_WEIGHT   in0: weight (R), in1: label (R), in2: weights of the classes (V)
 *                -> out0 (R): weight * the weight of its class; 0 for label -1
 * TERM_WEIGHT    in0: weight (B), in1: label i64 or i32 (R), or target f32 (R), R a multiple of B
 *                -> out0 (R): the weight of the sample of row r, r / (R / B), if the row counts, else
 *                0. A label counts unless it is -1, a target unless it is NaN.
 * DICE_FWD       in0: logits (R, V), in1: label (R), in2: weight (R), in3?: weight of the
 *                cross-entropy (R) -> out0: loss (B), R a multiple of B; out1: lse (R); out2: slopes
 *                (B, 2 V + 2). Of the rows of a sample whose weight is not 0, with p = softmax and
 *                t = one-hot: D_c = (2 sum p_c t_c + e) / (sum p_c + sum t_c + e), e =
 *                TR_DICE_SMOOTH; loss = 1 - mean over c of D_c (Milletari et al. 2016, with sums
 *                that are not squared), plus, with in3, the mean over these rows of in3 *
 *                cross-entropy. A sample without such rows has loss 0. slopes: A_c = D_c / (V d_c)
 *                with the divisor d_c, B_c = -2 / (V d_c), 1 / the number of rows (0: none), the
 *                mean. attr: tr_xent_attr_t, of the cross-entropy
 * DICE_BWD       in0: logits, in1: label, in2: weight, in3?: weight of the cross-entropy, in4: lse,
 *                in5: slopes, in6: dloss (B) -> out0: dlogits; in place over logits. attr: as above
 * CONFUSION      in0: logits (R, V), in1: label (R), in2: weight (R) -> out0: i64 (V, V + 1): the
 *                rows of each label whose largest logit, the first of equal ones, is that of each
 *                class; the last column: rows with NaN. Rows of weight 0 or label -1 do not count.
 * TARGET_SUMS    in0: y (R, K), in1: target (R, K), in2: weight (R K) -> out0: f64 (K, 8): number,
 *                sum |y - target|, sum (y - target)^2, sum target, sum target^2 of the elements of
 *                each column whose weight is not 0; number of these of which both, y, and target
 *                are at least 1/2
 * TOPK_CORRECT   in0: logits (R, V), in1: label (R), in2: weight (R) -> out0: correct (R) f32:
 *                weight if the label is among the k largest, else 0. Of equal logits, the one with
 *                the smaller index counts as larger. Rows with NaN count as wrong.
 *                attr: tr_topk_attr_t
 */

/* WEIGHTED_SUM   in0: x (n), in1?: weight (n) -> out0: y (1): y += sum x * weight, in a fixed
 *                order. Reads out0. */

/*
 * BLOCK_SQUARES  in0: gradient, a range of the reduced block (n) -> out0: f64 (ceil(n /
 *                TR_SQUARES_BLOCK)): the sum of the squares of each block of TR_SQUARES_BLOCK
 *                elements, in double. It depends on the elements of its block alone, so ranges that
 *                begin at multiples of a block give the sums of the whole.
 * GRAD_NORM      in0: sums of squares f64 (p), in1: counts (2): {terms, loss sum} after the
 *                reduction, in2: step block, in3?: i32 (m), the places of the sums in the order in
 *                which they are added; absent: as they lie -> out0: result (tr_step_result_t as
 *                u8), out1?: loss scale (tr_loss_scale_t as f32 (4), loss_scale.h). Computes the
 *                norm, the count correction batch_size / terms (attr.batch_size: terms of a full
 *                step), the unscaling by the loss scale (1 if absent), the clip factor min(1, clip
 *                / norm) if clip > 0, and finite (if 0, scale is 0). Adds one to `applied` if
 *                finite, then updates the loss scale. With attr.halts, after a step that is not
 *                finite and did not overflow (loss_scale.h), no step is finite. Reads its outputs.
 * SGD            in0: gradient (n), in1: step block, in2: result, in3: ranges (tr_update_range_t as
 *                u8) that end at n, each with its decay and lr_factor; those that end where the one
 *                before them does, or at 0, are empty -> out0: parameters (n), out1?: momentum (n), out2?: the new parameters as bf16 or f16 (n). Reads out0 and
 *                out1. Does nothing if !finite. g = grad * scale + decay * p; v = momentum v + g;
 *                p -= lr * lr_factor * (nesterov ? g + momentum v : v)
 * ADAM           in0: gradient (n), in1: step block, in2: result, in3: ranges, as SGD -> out0:
 *                parameters (n), out1: m (n), out2: v (n), out3?: the new parameters as bf16 or f16
 *                (n). Reads out0 to out2. Does nothing if !finite. Kingma and Ba 2015. decoupled: p
 *                -= lr * decay * p (Loshchilov and Hutter 2019); otherwise decay is added to the
 *                gradient. Bias correction with t = applied - before, of each range.
 * EMA_UPDATE     in0: parameters (n), in1: result -> out0: average (n) = d * average + (1 - d) *
 *                parameters, with d = min(decay, (1 + t) / (10 + t)) and t = applied, so that the
 *                initial weights are soon forgotten. Reads out0. Does nothing if !finite.
 */

/*
 * Sequences of B samples with T tokens each; C = H D channels in H heads; V tokens in the
 * vocabulary, P positions.
 *
 * EMBEDDING_FWD  in0: id u16, u32 or i32 (B, T), in1: wte (V, C), in2?: wpe (P, C) with P >= T,
 *                both f32, bf16 or f16 -> out0: x f32, bf16 or f16 (B, T, C) = wte[id] + wpe[t].
 *                An id outside [0, V) gives NaN.
 * EMBEDDING_BWD  in0: dx (B, T, C), in1: id -> out0?: dwte f32 (V, C), out1?: dwpe f32 (P, C). The
 *                gradients of equal ids are added in the order of (b, t). With attr.add, dwte is
 *                added to out0, which is then read.
 */

/*
 * Causal self-attention (Vaswani et al. 2017): y = dropout(softmax(q k^T / sqrt(D))) v per head;
 * position t attends to positions up to t.
 * ATTENTION_FWD (t)  in0: qkv (B, T, 3 C): q, k, v, each with its heads in order; in1?: sample_id
 *                i64 (B), in2?: step block, both present if p > 0 -> out0: y (B, T, C), out1: lse
 *                f32 (B, H, T), log sum exp of the scaled scores; out2?: probabilities f32 (B, H,
 *                T, T), before dropout, 0 for later positions
 * ATTENTION_BWD (t)  in0: dy, in1: qkv, in2: y, in3: lse, in4?: probabilities, in5?: sample_id,
 *                in6?: step block -> out0: dqkv (B, T, 3 C). Without probabilities, the kernel
 *                recomputes them from qkv and lse.
 * Dropout treats a probability as DROPOUT treats element (h T + t) T + t' of a sample.
 */

/*
 * RESIDUAL_LAYERNORM_FWD  in0: a (R, C), in1: b (R, C), in2: gamma (C), in3: beta (C) -> out0: sum
 *                = a + b, in place over a or b; out1: y = layernorm(sum), out2: mean (R), out3:
 *                rstd (R)
 * RESIDUAL_LAYERNORM_BWD  in0: dy, in1: sum, in2: gamma, in3: mean, in4: rstd, in5?: dsum -> out0:
 *                the gradient of a and of b: that of layernorm plus dsum, in place over dy or
 *                dsum; out1: dgamma, out2: dbeta, out3?: f32 (C), the sum over the rows of out0
 * attr: tr_norm_attr_t with act NONE
 */

/*
 * HEAD_LOSS (t)  in0: x (R, C), in1: w (V, C) of x's type, in2: label i32 or i64 (R), in3: weight
 *                f32 (B), where R is a multiple of B and row r belongs to sample r / (R / B), in4?:
 *                dloss f32 (R) -> out0: loss (R), out1: count (R), out2?: dx (R, C) of x's type,
 *                out3?: dw f32 (V, C)
 * The weighted cross-entropy of the logits x w^T. The count of a row is its weight, or 0 if its
 * label is -1; a row with count 0 has loss and gradient 0. A label outside [-1, V) gives NaN. The
 * kernel never stores all logits: it computes them for a slice of rows and, from them, the
 * gradients of sum(loss * dloss). Therefore dloss is an input of the forward pass.
 */

/*
 * Generation: sample b continues its own text, in row place[b][0] of the caches, with place[b][2]
 * new tokens from position place[b][1]; the rest of its T tokens are padding. The results of a
 * sample do not depend on the other samples or their number.
 *
 * MATMUL_ROWS    in0: A f32 (..., K), in1: B f32, bf16 or f16, (K, N), or (N, K) if trans_b,
 *                in2?: bias (N) -> out0: C f32 (..., N) = op(A) op(B) + bias. For few rows, where reading B
 *                dominates. attr: tr_matmul_attr_t with only trans_b set
 * CACHE_APPEND   in0: qkv f32 (B, T, 3 C), in1: place i32 (B, 3) -> out0: keys (R, P, C), out1:
 *                values (R, P, C), both f32, bf16 or f16: writes those of the new tokens, rounded, at their
 *                positions.
 * ATTENTION_CACHED in0: qkv, in1: place, in2: keys, in3: values -> out0: y f32 (B, T, C), as
 *                ATTENTION_FWD over the positions of the caches; 0 for padding.
 *                attr: tr_attention_attr_t with p 0
 */

/* CHECK_FINITE   in0: x f32, bf16 or f16 (n) -> out0: i32 (1): |= 1 if some element is not finite.
 *                Reads out0.
 * FINGERPRINT    in0: x i32 (n), any values of 4 bytes -> out0: sum i64 (1): += the fingerprint of
 *                the bits of x (fingerprint.h), modulo 2^64. Reads out0. The same on every device. */

#endif
