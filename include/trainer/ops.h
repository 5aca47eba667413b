/*
 * Ops. Each function appends one or a few records to the open program and returns the result
 * tensor. Not collective.
 *
 * Letters in shapes: B samples or N images of a batch, S... one to three spatial dimensions [D] [H]
 * W, C channels, F features, K outputs, T tokens, V classes; "..." is any leading dimensions.
 *
 * Activations are f32, bf16 or f16, and the result has the type of the input x: a layer computes in
 * bf16 if its x is bf16. Weights are passed as f32; tr_linear and tr_conv cast them. Scales, biases,
 * statistics, losses and parameter gradients are f32. Mismatched shapes are TR_ERR_CONFIG with the
 * scope, both shapes and a remedy.
 */
#ifndef TRAINER_OPS_H
#define TRAINER_OPS_H

#include "trainer/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = act(x w^T + b): x (..., F), w (K, F) as in PyTorch, b (K) or TR_NONE -> (..., K). */
tr_status_t tr_linear(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t b, tr_act_t act,
                      tr_tensor_t *out);
/* As tr_linear with w (F, K), as in GPT-2. */
tr_status_t tr_linear_in_out(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t b,
                             tr_act_t act, tr_tensor_t *out);
/* alpha op(a) op(b), then act: a (..., M, K), or (..., K, M) if trans_a; b (..., K, N), or (..., N, K)
 * if trans_b, without leading dimensions or with those of a -> (..., M, N). alpha 0 means 1; beta is 0.
 * Differentiable in both. */
tr_status_t tr_matmul(tr_graph_t *g, tr_tensor_t a, tr_tensor_t b, const tr_matmul_attr_t *attr,
                      tr_tensor_t *out);
/* x (N, S..., C), w (K, kernel..., C / groups), b (K) or TR_NONE -> (N, S'..., K). */
tr_status_t tr_conv(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t b,
                    const tr_conv_attr_t *attr, tr_tensor_t *out);
/* The gradient of tr_conv by its input, as PyTorch's ConvTranspose without a bias: x (N, S..., C), w
 * (C, kernel..., K / groups) -> (N, S'..., K), S' = (S - 1) stride - padding + dilation (kernel - 1) +
 * out_pad + 1. attr->act is NONE; out_pad [spatial]: from 0, less than the stride. */
tr_status_t tr_conv_transpose(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w,
                              const tr_conv_attr_t *attr, const int *out_pad, tr_tensor_t *out);
/* act(x + b): x (..., K), b (K); act NONE or RELU. */
tr_status_t tr_bias(tr_graph_t *g, tr_tensor_t x, tr_tensor_t b, tr_act_t act, tr_tensor_t *out);
/* x (N, S..., C) -> (N, S'..., C) */
tr_status_t tr_pool(tr_graph_t *g, tr_tensor_t x, const tr_pool_attr_t *attr, tr_tensor_t *out);
/* x (N, S..., C) -> (N, S'..., C), as PyTorch's interpolate with a scale factor and
 * align_corners=False. */
tr_status_t tr_upsample(tr_graph_t *g, tr_tensor_t x, const tr_upsample_attr_t *attr,
                        tr_tensor_t *out);
/* (N, S..., C) -> (N, C) */
tr_status_t tr_global_avgpool(tr_graph_t *g, tr_tensor_t x, tr_tensor_t *out);
/*
 * Batch normalisation, then act NONE or RELU. running_mean, running_var: model state (C). Training
 * programs write batch moments to the reduced block, from which the `update` program updates the
 * running moments; several uses in one program are averaged. Eval programs normalise with the
 * running moments.
 */
tr_status_t tr_batchnorm(tr_graph_t *g, tr_tensor_t x, tr_tensor_t gamma, tr_tensor_t beta,
                         tr_tensor_t running_mean, tr_tensor_t running_var, float eps,
                         float momentum, tr_act_t act, tr_tensor_t *out);
/* For the `update` program: appends the update of all running moments of the training programs of
 * g. slots: micro-batches per step. */
tr_status_t tr_update_moments(tr_graph_t *g, int slots);
/* The running mean of a batch normalisation in the training program `program` that has one value per
 * channel, so that its output does not depend on its input; TR_NONE: there is none. */
tr_tensor_t tr_lone_moments(const tr_graph_t *g, int program);
/* Over the last dimension: x (..., C), gamma and beta (C) -> (..., C). */
tr_status_t tr_layernorm(tr_graph_t *g, tr_tensor_t x, tr_tensor_t gamma, tr_tensor_t beta,
                         float eps, tr_tensor_t *out);
/* Each sample over its positions and the channels of a group: x (N, ..., C), gamma and beta (C) ->
 * (N, ..., C). attr->groups divides C. */
tr_status_t tr_groupnorm(tr_graph_t *g, tr_tensor_t x, tr_tensor_t gamma, tr_tensor_t beta,
                         const tr_groupnorm_attr_t *attr, tr_tensor_t *out);
/* sum = a + b and y = layernorm(sum); a and b (..., C) have the same shape. */
tr_status_t tr_residual_layernorm(tr_graph_t *g, tr_tensor_t a, tr_tensor_t b, tr_tensor_t gamma,
                                  tr_tensor_t beta, float eps, tr_tensor_t *out_sum,
                                  tr_tensor_t *out);
/* id u16, u32 or i32 (B, T), wte (V, C), wpe (P, C) or TR_NONE -> (B, T, C) of `dtype`, f32,
 * bf16 or f16. In half precision, rows of the tables' copies are added (tr_param_copy). */
tr_status_t tr_embedding(tr_graph_t *g, tr_tensor_t id, tr_tensor_t wte, tr_tensor_t wpe,
                         tr_dtype_t dtype, tr_tensor_t *out);
/* Causal self-attention: qkv (B, T, 3 C) -> (B, T, C). p: dropout of the probabilities, not applied
 * in eval programs. keeps_probabilities: keep them, (B, heads, T, T), for the gradient; otherwise
 * the backward pass recomputes them. */
tr_status_t tr_attention(tr_graph_t *g, tr_tensor_t qkv, int heads, tr_tensor_t sample_id, float p,
                         bool keeps_probabilities, tr_tensor_t *out);
/* act(x), of any shape; TR_ACT_NONE returns x itself. */
tr_status_t tr_activation(tr_graph_t *g, tr_tensor_t x, tr_act_t act, tr_tensor_t *out);
/* x, or slope x where x is not above 0; slope from 0. */
tr_status_t tr_leaky_relu(tr_graph_t *g, tr_tensor_t x, float slope, tr_tensor_t *out);
/* Identity in eval programs and for p = 0. sample_id: i64 (B). */
tr_status_t tr_dropout(tr_graph_t *g, tr_tensor_t x, tr_tensor_t sample_id, float p,
                       tr_tensor_t *out);
/* act(a + b), act NONE or RELU. */
tr_status_t tr_add(tr_graph_t *g, tr_tensor_t a, tr_tensor_t b, tr_act_t act, tr_tensor_t *out);
/* Concatenates 1 to 8 inputs along the last dimension: (..., C_i) -> (..., sum of C_i). */
tr_status_t tr_concat(tr_graph_t *g, const tr_tensor_t *x, int count, tr_tensor_t *out);
/* factor x, of any shape. */
tr_status_t tr_scale(tr_graph_t *g, tr_tensor_t x, float factor, tr_tensor_t *out);
/* Converts between f32, bf16 and f16; returns x itself if it has that type already. The gradient
 * has the type of x. */
tr_status_t tr_cast(tr_graph_t *g, tr_tensor_t x, tr_dtype_t dtype, tr_tensor_t *out);

/* Ops for generation, without gradients. The results of a sample do not depend on the other samples
 * in the batch. */
/* y = act(x w + b) for few rows: x f32 (..., F), w f32, bf16 or f16 (F, K), or (K, F) if trans_w. */
tr_status_t tr_linear_rows(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t b, bool trans_w,
                           tr_act_t act, tr_tensor_t *out);
/* Writes the keys and values of the new tokens into the caches keys, values (R, P, C), both f32, bf16
 * or f16, then attends to all tokens of each text so far, as the caches have them: qkv (B, T, 3 C),
 * place i32 (B, 3) -> (B, T, C). */
tr_status_t tr_attention_cached(tr_graph_t *g, tr_tensor_t qkv, tr_tensor_t place, tr_tensor_t keys,
                                tr_tensor_t values, int heads, tr_tensor_t *out);
/* into = x; each is f32, bf16 or f16. */
tr_status_t tr_cast_into(tr_graph_t *g, tr_tensor_t x, tr_tensor_t into);

/* Ops without gradients. */
/* scale, shift: (C) or TR_NONE. */
tr_status_t tr_cast_normalize(tr_graph_t *g, tr_tensor_t x, tr_tensor_t scale, tr_tensor_t shift,
                              tr_tensor_t *out);
/* Returns x itself in eval programs and if attr enables nothing. */
tr_status_t tr_augment(tr_graph_t *g, tr_tensor_t x, tr_tensor_t sample_id,
                       const tr_augment_attr_t *attr, tr_tensor_t *out);
/* logits (B, V), label i32 or i64 (B), weight (B) -> (B): the weight of a sample whose label is among
 * its k largest logits, else 0. */
tr_status_t tr_topk_correct(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t label,
                            tr_tensor_t weight, int k, tr_tensor_t *out);
/* into += sum(x * weight). into (1) is a reduced or kept tensor; weight may be TR_NONE. */
tr_status_t tr_weighted_sum(tr_graph_t *g, tr_tensor_t x, tr_tensor_t weight, tr_tensor_t into);

/*
 * Losses per sample, (B). Weight 0 masks a sample. Logits may be (..., V) with labels and weights
 * (...); the result then has one loss per label, as one dimension. Predictions may be (B, ...).
 */
tr_status_t tr_cross_entropy(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t label,
                             tr_tensor_t weight, float smoothing, tr_tensor_t *out);
/* Cross-entropy of the logits x w^T without storing them: x (B, T, C), w (V, C), label (B, T),
 * weight (B) -> loss (B T) and count (B T), the weight of each row: that of its sample, or 0 for
 * label -1. In training programs, dloss (B T) must be the seed passed to tr_backward. */
tr_status_t tr_head_loss(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t label,
                         tr_tensor_t weight, tr_tensor_t dloss, tr_tensor_t *out_loss,
                         tr_tensor_t *out_count);
tr_status_t tr_mse(tr_graph_t *g, tr_tensor_t y, tr_tensor_t target, tr_tensor_t weight,
                   tr_tensor_t *out);
/* The mean of |y - target|, as PyTorch's L1Loss. */
tr_status_t tr_mae(tr_graph_t *g, tr_tensor_t y, tr_tensor_t target, tr_tensor_t weight,
                   tr_tensor_t *out);
/* Quadratic for errors up to delta > 0, then linear, as PyTorch's HuberLoss. */
tr_status_t tr_huber(tr_graph_t *g, tr_tensor_t y, tr_tensor_t target, tr_tensor_t weight,
                     float delta, tr_tensor_t *out);
/* Targets in [0, 1], as PyTorch's BCEWithLogitsLoss. */
tr_status_t tr_binary_cross_entropy(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t target,
                                    tr_tensor_t weight, tr_tensor_t *out);
/* weight (B) times the weight of_class (V) of each label, for tr_cross_entropy; 0 for label -1. No
 * gradient. */
tr_status_t tr_class_weight(tr_graph_t *g, tr_tensor_t weight, tr_tensor_t label,
                            tr_tensor_t of_class, tr_tensor_t *out);

/*
 * For labels and targets of each position: y (B, S..., V or K), R = B * positions.
 */
/* weight (B), label i32 or i64 (R) or target f32 (R, in any shape) -> (R): the weight of the sample, or
 * 0 where the label is -1 or the target NaN. No gradient. */
tr_status_t tr_term_weight(tr_graph_t *g, tr_tensor_t weight, tr_tensor_t target, tr_tensor_t *out);
/* 1 - the mean Dice coefficient of all classes, of each sample: logits (B, ..., V), label (R), weight
 * (R) -> (B). With cross_weight (R), plus the mean over the rows of a sample, whose weight is not 0,
 * of cross_weight * cross-entropy; TR_NONE: without it. */
tr_status_t tr_dice(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t label, tr_tensor_t weight,
                    tr_tensor_t cross_weight, float smoothing, tr_tensor_t *out);
/* logits (B, ..., V), label (R), weight (R) -> i64 (V, V + 1): rows by their label and by the class
 * with the largest logit, in the last column those with NaN. No gradient. */
tr_status_t tr_confusion(tr_graph_t *g, tr_tensor_t logits, tr_tensor_t label, tr_tensor_t weight,
                         tr_tensor_t *out);
/* y and target (..., K), weight (all elements) -> f64 (K, TR_TARGET_SUM_COUNT): over the elements whose
 * weight is not 0, their number and the sums of |y - target|, (y - target)^2, target, target^2, and the
 * numbers of those of which both, y, and target are at least 1/2. No gradient. */
enum { TR_TARGET_SUM_COUNT = 8 };
tr_status_t tr_target_sums(tr_graph_t *g, tr_tensor_t y, tr_tensor_t target, tr_tensor_t weight,
                           tr_tensor_t *out);

/* For the `update` program. */
/* The optimizer state "loss_scale", f32 (4), whose first element is the loss scale. Only programs
 * with f16 activations need it. */
#define TR_LOSS_SCALE_STATE "loss_scale"
tr_status_t tr_loss_scale(tr_graph_t *g, tr_tensor_t *out);
/* loss_scale: the factor in the gradient, which is updated; TR_NONE: no loss scaling. */
tr_status_t tr_grad_norm(tr_graph_t *g, tr_tensor_t gradient, tr_tensor_t counts,
                         tr_tensor_t loss_scale, const tr_grad_norm_attr_t *attr);
/* Updates all elements. ranges: a table of tr_update_range_t as u8 (tr_const_bytes); the last range
 * ends at the last element. momentum may be TR_NONE. */
tr_status_t tr_sgd(tr_graph_t *g, tr_tensor_t gradient, tr_tensor_t param, tr_tensor_t momentum,
                   tr_tensor_t ranges, const tr_sgd_attr_t *attr);
tr_status_t tr_adam(tr_graph_t *g, tr_tensor_t gradient, tr_tensor_t param, tr_tensor_t m,
                    tr_tensor_t v, tr_tensor_t ranges, const tr_adam_attr_t *attr);
tr_status_t tr_ema(tr_graph_t *g, tr_tensor_t param, tr_tensor_t average, float decay);
tr_status_t tr_accumulate(tr_graph_t *g, tr_tensor_t x, tr_tensor_t into); /* into += x */
tr_status_t tr_copy(tr_graph_t *g, tr_tensor_t x, tr_tensor_t into);

#ifdef __cplusplus
}
#endif

#endif
