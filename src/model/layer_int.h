/* Shared by the layers. Private to src/model. */
#ifndef TR_MODEL_LAYER_INT_H
#define TR_MODEL_LAYER_INT_H

#include "model/layer.h"
#include "trainer/ops.h"

#define LAYER(symbol) extern const tr_layer_t tr_layer_##symbol;
#include "layers.def"
#undef LAYER

#define TR_COUNT_INT(array) ((int)TR_COUNT(array))

/* Options common to all layers. */
typedef struct {
    const char *name; /* "" if not given */
    bool trainable;
    double lr_factor;
    bool recompute;
} tr_layer_common_t;

/* The layer with that name or alias; NULL if there is none. */
const tr_layer_t *tr_layer_find(const char *name);
/* Parses the words of `spec` to *out_settings and *out_common (each may be NULL). TR_ERR_CONFIG
 * with line and column. */
tr_status_t tr_layer_read(const tr_layer_t *layer, const tr_layer_spec_t *spec, void *out_settings,
                          tr_layer_common_t *out_common);
/* Appends a checked layer, without its blocks, in normal form: options in the order of the table,
 * without defaults. */
void tr_layer_write(const tr_layer_spec_t *spec, tr_str_t *out);
/* Checks name, words and blocks of a parsed layer, and the layers in its blocks. */
tr_status_t tr_layer_check(const tr_layer_spec_t *spec);

/* Segments of layers that the backward pass recomputes (model.recompute, recompute=yes). */
struct tr_layer_recompute {
    int64_t every; /* layers per segment; 0: a segment is marked layers that follow each other */
    int64_t open;  /* layers in the open segment; 0: none is open */
};
void tr_layers_recompute_end(const tr_layer_context_t *context); /* closes the open segment */

/* A tensor that `save` keeps. */
typedef struct {
    const char *name; /* borrowed from spec */
    const tr_layer_spec_t *spec;
    tr_tensor_t tensor;
    bool is_used;
} tr_layer_tap_t;
typedef struct tr_layer_taps {
    TR_VEC(tr_layer_tap_t) list;
    /* by what the layers so far have divided each size, and the most that they had; 0: 1 */
    int64_t down[3], most[3];
} tr_layer_taps_t;
/* After a layer of the model that is in no block: counts how it has changed the sizes. */
void tr_layer_taps_count(const tr_layer_context_t *context, tr_tensor_t x, tr_tensor_t y);
/* For sizes that do not fit: what those of a sample must be multiples of, without a full stop. */
void tr_layer_say_multiple(const tr_layer_context_t *context, char out[256]);
/* The tensor that was saved as `name`. TR_ERR_CONFIG if there is none. */
tr_status_t tr_layer_tap(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                         const char *name, tr_tensor_t *out);
/* TR_ERR_CONFIG if one is not used. */
tr_status_t tr_layer_taps_check(const tr_layer_taps_t *taps);

/* Builds layers on x in the open scope and continues its numbering. For transparent layers. */
tr_status_t tr_layers_build_inside(const tr_layer_context_t *context, const tr_layer_spec_t *specs,
                                   int count, tr_tensor_t x, tr_tensor_t *out);

/* Whether `next` is a plain relu, which the previous layer can fuse into its op. */
bool tr_layer_is_plain_relu(const tr_layer_spec_t *next);

/* A parameter of the layer, "<label>.<name>", frozen if the options or model.freeze say so. */
tr_status_t tr_layer_param(const tr_layer_context_t *context, const char *name,
                           const tr_shape_t *shape, tr_init_t init, tr_tensor_t *out);

/* The shape of one sample, "(28, 28, 1)", without the batch dimension. */
char *tr_layer_sample_text(const tr_graph_t *g, tr_tensor_t x, char text[96]);
/* Number of spatial dimensions of x (N, S..., C), or -1. */
int tr_layer_spatial(const tr_graph_t *g, tr_tensor_t x);

/* A sliding window, resolved for the spatial dimensions of its input. */
typedef struct {
    int spatial, kernel[3], stride[3], pad_lo[3], pad_hi[3], dilation[3];
} tr_layer_window_t;
/*
 * Resolves the window of a convolution or pooling over x. A stride with count 0 equals the kernel
 * size. TR_ERR_CONFIG if x has no spatial dimensions, the numbers of dimensions differ, or the
 * window is larger than the padded input.
 */
tr_status_t tr_layer_window(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                            tr_tensor_t x, const tr_sizes_t *kernel, const tr_sizes_t *stride,
                            const tr_pad_t *pad, const tr_sizes_t *dilation,
                            tr_layer_window_t *out);

/* One number for each of `spatial` dimensions, from one for all or one for each. `what` names them in
 * the message. */
tr_status_t tr_layer_expand(const tr_layer_spec_t *spec, const char *what, const tr_sizes_t *sizes,
                            int spatial, int out[3]);
/* TR_ERR_CONFIG if x has no spatial dimensions; else their number. */
tr_status_t tr_layer_need_spatial(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                  tr_tensor_t x, int *out);

/* Records TR_ERR_CONFIG as "model.layers, line 3, column 5: ...". */
#define TR_LAYER_FAIL(where, format, ...)                                                          \
    TR_FAIL(TR_ERR_CONFIG, "model.layers, line %d, column %d: " format, (where)->line,             \
            (where)->column, ##__VA_ARGS__)

#endif
