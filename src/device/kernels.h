/*
 * The kernels' contracts: inputs, outputs and attributes of every slot in kernels.def.
 *
 * Notation: in0: name (shape); letters B batch, N batch of images, D H W spatial, C channels,
 * K output channels, F features. "S..." stands for one to three spatial dimensions [D] [H] W.
 * Everything is f32 unless the entry says otherwise. Outputs are overwritten unless the entry says
 * that they are read. An output may be the same memory as an input only where the entry says "in
 * place". "?" marks an input or output that may be absent. Attribute structs are in
 * trainer/attributes.h, in the same order.
 *
 * Alignment: every pointer of a call, scratch included, is a multiple of TR_KERNEL_ALIGN bytes,
 * with
 * two exceptions, which are multiples of the element size: a range of a block that an optimizer or
 * a
 * reduction works on, and a single number in a block of sums.
 *
 * Results do not depend on timing. With equal threads they are equal bit for bit, and those of
 * kernels not marked (t) also for any number of threads.
 *
 * bf16: from ADD to DROPOUT, AUGMENT excepted, activations and their gradients (x y dx dy a b, A B
 * C,
 * and the w of convolutions) may all be bf16. Scales, biases, statistics and their gradients stay
 * f32;
 * sums are f32 or better, and a result is rounded once.
 */
#ifndef TRAINER_KERNELS_H
#define TRAINER_KERNELS_H

#include "trainer/attributes.h"

typedef enum {
#define KERNEL(name, required) TR_K_##name,
#include "device/kernels.def"
#undef KERNEL
    TR_K_COUNT,
    TR_K_NONE = -1
} tr_kernel_id_t;

/* The alignment of pointers that kernels get, in bytes. */
#define TR_KERNEL_ALIGN 64

const char *tr_kernel_name(tr_kernel_id_t id);

/*
 * What changes from step to step: one small block on the device, an input of the kernels that need
 * it (raw bytes,
 * u8 of sizeof(tr_step_t)). Never baked into an op.
 */
typedef struct {
    uint64_t seed;
    /* optimizer steps begun, from 0; the key of dropout and augmentation */
    int64_t step;
    float lr;                 /* learning rate of this step */
    float loss_scale;         /* gradients carry this factor */
    float weight_decay_scale; /* schedule of decay, 1 by default */
    float reserved;
} tr_step_t;

/* What a step tells the host: written by GRAD_NORM in `update`, copied back with the metrics. */
typedef struct {
    float grad_norm; /* global L2 norm of the unscaled, count-corrected gradient, before clipping */
    /* factor that the optimizer applies to the gradient: correction, unscale, clip */
    float scale;
    int32_t finite;  /* 1: norm and loss are finite; 0: the update is skipped as a whole */
    int32_t applied; /* number of updates applied so far, this one included; Adam's t */
} tr_step_result_t;

/* COPY           in0: x (any shape, dtype) -> out0: y (the same dtype, the same number of
 *                elements) */
/* ACCUMULATE     in0: x (n) -> out0: y (n): y += x. out0 is read too. */
/* ADD            in0: a (any), in1: b (same) -> out0: act(a + b); in place over a or b. attr:
 *                tr_add_attr_t */
/* CONCAT         in0 .. in7?: x_i (..., C_i), equal but for C_i -> out0: (..., sum of C_i), the
 *                inputs side by side in their order */
/* COLUMNS        in0: x (..., C) -> out0: y (..., count) = x[..., first .. first + count - 1].
 *                attr: tr_columns_attr_t */
/* SCALE          in0: x -> out0: factor * x; in place. attr: tr_scale_attr_t */

/* CAST_NORMALIZE in0: x (B, ..., C) of any dtype, in1?: scale (C), in2?: shift (C) -> out0: y
 * f32 or bf16 = x * scale[c] + shift[c] */

/*
 * AUGMENT        in0: x f32 (B, H, W, C), in1: sample_id i64 (B), in2: step block -> out0: y (B, H,
 *                W, C)
 * Per image, one random affine map about the image's centre, bilinear, `fill` outside: rotation
 * uniform in
 * [-rotate_deg, rotate_deg], translation uniform in [-translate, translate] of the width and
 * height, scale uniform
 * in [1 - zoom, 1 + zoom], shear (x, degrees); then a shift by whole pixels uniform in [-crop_pad,
 * crop_pad] (the random crop
 * of a padded image), then with probability 1/2 a horizontal flip. With x to the right, y
 * downwards, c the centre and t the translation, a
 * point p goes to c + t + R Z (p - c): R = (cos -sin; sin cos), Z = zoom (1 tan shear; 0 1).
 * Without affine part whole pixels move, exactly.
 * Numbers: with u in [0, 1) from a word (tr_rng_to_float), uniform in [-a, a] is (2u - 1) a; a
 * shift is floor(word (2 crop_pad + 1) / 2^32) -
 * crop_pad; flip where the highest bit is set. Words of Philox(seed, AUGMENT, stream 0, a = step, b
 * = sample id): rotation, translation x,
 * translation y, zoom; of stream 1: shear, shift x, shift y, flip.
 */

/*
 * MATMUL (t)     in0: A, in1: B, in2?: bias (N) -> out0: C = act(alpha op(A) op(B) + bias) + beta C
 * A (..., M, K) or (..., K, M) if trans_a, B (..., K, N) or (..., N, K) if trans_b, C (..., M, N).
 * Leading dimensions of A and C
 * equal; B has the same or none. Where B has none and trans_a is false, the leading dimensions of A
 * fold into M. A and B are of one
 * type, C of the same or f32. In bf16 beta is 0, and alpha 1 where there is a bias.
 */
/* COLUMN_SUM     in0: x (R, C) -> out0: f32 (C), the sum over rows */

/*
 * Convolution (cross-correlation), NHWC. spatial = 1, 2 or 3; only the first `spatial` entries of
 * the arrays count,
 * in the order of the shape's spatial dimensions. Weights: (K, kernel..., C / groups). Output size
 * per dimension:
 * floor((in + pad_lo + pad_hi - dilation (kernel - 1) - 1) / stride) + 1.
 * CONV_FWD (t)         in0: x (N, S..., C), in1: w, in2?: bias (K) -> out0: y (N, S'..., K) =
 *                      act(conv + bias)
 * CONV_BWD_DATA (t)    in0: dy (N, S'..., K), in1: w -> out0: dx (N, S..., C)
 * CONV_BWD_WEIGHTS (t) in0: x, in1: dy -> out0: dw f32, out1?: dbias (K)
 */

/*
 * Pooling, NHWC. avg divides by the number of elements inside the image (padding not counted).
 * Global: kernel = the image.
 * POOL_FWD       in0: x (N, S..., C) -> out0: y (N, S'..., C), out1 (max only)?: index i32 (N,
 *                S'..., C), the flat spatial position
 *                of the maximum in the image; the first one where several are equal. NaN counts as
 *                the maximum.
 * POOL_BWD       in0: dy, in1 (max only): index -> out0: dx (N, S..., C)
 */

/*
 * Batch normalisation over all dimensions but the last (Ioffe and Szegedy 2015), with an activation
 * fused behind (NONE or RELU).
 * BATCHNORM_TRAIN in0: x (..., C), in1: gamma (C), in2: beta (C) -> out0: y, out1: mean (C), out2:
 * rstd (C) = 1/sqrt(var + eps), var biased;
 *                 out3?: moments (2, C): mean and unbiased variance (biased where there is one
 *                 row) are added to what is there, for the running moments
 * BATCHNORM_EVAL  in0: x, in1: gamma, in2: beta, in3: running mean (C), in4: running variance (C)
 *                 -> out0: y
 * BATCHNORM_BWD   in0: dy, in1: x, in2: gamma, in3: beta, in4: mean, in5: rstd -> out0?: dx, out1:
 *                 dgamma (C), out2: dbeta (C).
 *                 With act = RELU the mask is recomputed from x. dx in place over dy.
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

/* ACT_FWD        in0: x -> out0: act(x); in place. attr: tr_act_attr_t */
/* ACT_BWD        in0: dy, in1: x where tr_act_keeps_input, else y -> out0: dx; in place over dy.
 *                attr: tr_act_attr_t */

/*
 * DROPOUT        in0: x (B, ...), in1: sample_id i64 (B), in2: step block -> out0: x * mask / (1 -
 *                p); in place. The gradient is the same
 * kernel on dy. The mask need not be stored: element e of a sample (counted from 0 among the
 * elements / B of it) takes word e % 4 of
 * Philox(seed, DROPOUT, stream, a = sample id, b = step << 32 | e / 4) and is kept, times (float)(1
 * / (1 - p)), where the word is at
 * least floor(p 2^32). Else it is 0, even where x is not finite.
 */

/*
 * Softmax cross-entropy with label smoothing: target (1 - s) one-hot + s / V.
 * XENT_FWD       in0: logits (R, V), in1: label i64 or i32 (R), in2: weight f32 (R) -> out0: loss
 *                (R), weighted; out1: lse (R), log sum exp of the row.
 *                A label of -1 is ignored (loss 0); other labels outside [0, V) give NaN (the
 *                loader refuses them before).
 *                In all losses a row of weight 0 gives loss and gradient 0 whatever it holds.
 * XENT_BWD       in0: logits, in1: label, in2: weight, in3: lse, in4: dloss (R) -> out0: dlogits;
 *                in place over logits
 * MSE_FWD        in0: y (B, F), in1: target f32 (B, F), in2: weight (B) -> out0: loss (B) = weight
 *                * mean over F of (y - target)^2
 * MSE_BWD        in0: y, in1: target, in2: weight, in3: dloss (B) -> out0: dy
 * HUBER_FWD, HUBER_BWD  as MSE's, of e^2 / 2 where |e| <= delta, else delta (|e| - delta / 2),
 *                e = y - target. attr: tr_huber_attr_t
 * BCE_FWD, BCE_BWD      as MSE's, of binary cross-entropy: -t log s - (1 - t) log(1 - s),
 *                s = sigmoid(y), target t in [0, 1]
 * CLASS_WEIGHT   in0: weight (R), in1: label (R), in2: weights of the classes (V)
 *                -> out0 (R): weight * the weight of its class; 0 for label -1
 * TOPK_CORRECT   in0: logits (R, V), in1: label (R), in2: weight (R) -> out0: correct (R) f32:
 *                weight if the label is among the k largest, else 0; ties
 *                count as larger where their index is smaller; rows with NaN count as wrong. attr:
 *                tr_topk_attr_t
 */

/* WEIGHTED_SUM   in0: x (n), in1?: weight (n) -> out0: y (1): y += sum x * weight, in a fixed
 *                order. Reads out0. */

/*
 * GRAD_NORM      in0: gradient, a range of the reduced block (n), in1: counts (2): {terms, loss
 *                sum} as reduced, in2: step block
 *                -> out0: result (tr_step_result_t as u8). Computes norm, correction batch_size /
 *                terms (attr.batch_size: terms of a full step), unscale by loss_scale, clip factor
 *                min(1, clip / norm) where clip > 0, finite (scale is 0 where not); adds one to
 *                `applied` where finite. Reads out0.applied.
 * SGD            in0: gradient (n), in1: step block, in2: result, in3: ranges (tr_update_range_t as
 *                u8) that end at n, each with its decay and lr_factor -> out0: parameters (n),
 *                out1?: momentum (n). Reads its outputs. Nothing if !finite.
 *                g = grad * scale + decay * p; v = momentum v + g; p -= lr * lr_factor * (nesterov
 *                ? g + momentum v : v)
 * ADAM           in0: gradient (n), in1: step block, in2: result, in3: ranges, as SGD -> out0:
 *                parameters (n), out1: m (n), out2: v (n). Kingma and Ba 2015; decoupled: Loshchilov
 *                and Hutter 2019, p -= lr * decay * p; else decay is added to the gradient.
 *                Bias-corrected with t = applied.
 * EMA_UPDATE     in0: parameters (n), in1: result -> out0: average (n) = d * average + (1 - d) *
 *                parameters, d = min(decay, (1 + t) / (10 + t)),
 *                t = applied, so that the first weights are soon forgotten. Nothing if !finite.
 */

/*
 * Sequences of B samples with T tokens each; C = H D channels in H heads; V tokens in the
 * vocabulary, P positions.
 *
 * EMBEDDING_FWD  in0: id u16, u32 or i32 (B, T), in1: wte (V, C), in2?: wpe (P, C) with P >= T ->
 *                out0: x f32 or bf16 (B, T, C) = wte[id] + wpe[t]. An id outside [0, V) gives NaN.
 * EMBEDDING_BWD  in0: dx (B, T, C), in1: id -> out0?: dwte f32 (V, C), out1?: dwpe f32 (P, C). The
 *                gradients of equal ids are added in the order of (b, t). With attr.add, dwte is
 *                added to what out0 holds.
 */

/*
 * Causal self-attention (Vaswani et al. 2017): y = dropout(softmax(q k^T / sqrt(D))) v for each
 * head, where position t sees the positions up to t.
 * ATTENTION_FWD (t)  in0: qkv (B, T, 3 C): q, k, v, the heads of each one after another; in1?:
 *                sample_id i64 (B), in2?: step block, both present where p > 0 -> out0: y (B, T,
 *                C), out1: lse f32 (B, H, T), log sum exp of the scaled scores; out2?:
 *                probabilities f32 (B, H, T, T), before dropout, 0 for later positions
 * ATTENTION_BWD (t)  in0: dy, in1: qkv, in2: y, in3: lse, in4?: probabilities, in5?: sample_id,
 *                in6?: step block -> out0: dqkv (B, T, 3 C). Without probabilities the kernel
 *                computes them again from qkv and lse.
 * Dropout keeps and scales a probability as DROPOUT does for element (h T + t) T + t' of a sample.
 */

/*
 * RESIDUAL_LAYERNORM_FWD  in0: a (R, C), in1: b (R, C), in2: gamma (C), in3: beta (C) -> out0: sum
 *                = a + b, in place over a or b; out1: y = layernorm(sum), out2: mean (R), out3:
 *                rstd (R)
 * RESIDUAL_LAYERNORM_BWD  in0: dy, in1: sum, in2: gamma, in3: mean, in4: rstd, in5?: dsum -> out0:
 *                the gradient of a and of b: that of layernorm plus dsum, in place over dy or
 *                dsum; out1: dgamma, out2: dbeta
 * attr: tr_norm_attr_t with act NONE
 */

/*
 * HEAD_LOSS (t)  in0: x (R, C), in1: w (V, C) of x's type, in2: label i32 or i64 (R), in3: weight
 *                f32 (B) where R is a multiple of B and row r belongs to sample r / (R / B), in4?:
 *                dloss f32 (R) -> out0: loss (R), out1: count (R), out2?: dx (R, C) of x's type,
 *                out3?: dw f32 (V, C)
 * The cross-entropy of logits x w^T, weighted. A row counts with its weight, and as 0 where its
 * label is -1; a row that counts as 0 has loss and gradient 0. A label outside [-1, V) gives NaN.
 * The logits are never whole in memory: the kernel computes them for a slice of rows, and the
 * gradients of sum(loss * dloss) from them at once. So dloss is an input of the forward direction.
 */

/*
 * Generation: each sample continues a text of its own, row place[b][0] of the caches, with
 * place[b][2] new tokens from position place[b][1] on; the others of its T tokens are padding.
 * Results of a sample do not depend on the other samples, nor on how many there are.
 *
 * MATMUL_ROWS    in0: A f32 (..., K), in1: B f32 or bf16, (K, N), or (N, K) if trans_b, in2?: bias
 *                (N) -> out0: C f32 (..., N) = op(A) op(B) + bias. For few rows, whose time is that
 *                of reading B. attr: tr_matmul_attr_t with only trans_b set.
 * CACHE_APPEND   in0: qkv f32 (B, T, 3 C), in1: place i32 (B, 3) -> out0: keys f32 (R, P, C), out1:
 *                values (R, P, C): those of the new tokens are written at their positions.
 * ATTENTION_CACHED in0: qkv, in1: place, in2: keys, in3: values -> out0: y f32 (B, T, C), as
 *                ATTENTION_FWD over the positions of the caches; 0 for padding. attr:
 *                tr_attention_attr_t with p 0
 */

/* CHECK_FINITE   in0: x f32 or bf16 (n) -> out0: i32 (1): |= 1 where some element is not finite.
 *                Reads out0. */

#endif
