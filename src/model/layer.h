/* The layers of model.layers: text, kinds and building. A layer is one file and one line in
 * layers.def. */
#ifndef TR_MODEL_LAYER_H
#define TR_MODEL_LAYER_H

#include "model/model.h"

/* One word after the name of a layer: "5x5" (key NULL) or "pad=same". */
typedef struct {
    char *key, *value;
    int line, column; /* position in the text, counted from 1 */
} tr_layer_word_t;

#define TR_LAYER_MAX_BLOCKS 8 /* blocks in braces per layer */

typedef struct tr_layer_spec tr_layer_spec_t;
typedef struct {
    tr_layer_spec_t *specs;
    int count;
} tr_layer_block_t;

/* One layer of the text. */
struct tr_layer_spec {
    char *name; /* "conv" */
    int line, column;
    int word_count;
    tr_layer_word_t *words;
    int block_count;
    tr_layer_block_t blocks[TR_LAYER_MAX_BLOCKS]; /* the { ... } after the words */
};

/*
 * Parses a list of layers and checks every name, argument and option. Layers are separated by
 * commas or new lines, and # starts a comment:
 *
 *   conv 32 5x5 pad=same, batchnorm, relu
 *   residual { conv 32 3 pad=same, batchnorm } { conv 32 1, batchnorm }, relu
 *
 * TR_ERR_CONFIG with line and column, the expected and the found text.
 */
tr_status_t tr_layers_parse(const char *text, tr_layer_spec_t **out, int *out_count);
void tr_layers_free(tr_layer_spec_t **specs, int count);
/*
 * Appends parsed layers in normal form, one per line. Lists that build the same model with the same
 * names give the same text, regardless of comments, spaces, aliases, defaults and repeats. A block
 * starts with " {" after its layer and ends with the line "}".
 */
void tr_layers_write(const tr_layer_spec_t *specs, int count, tr_str_t *out);

/* The context in which layers are built. The caller sets the first three members and zeros the
 * others. */
typedef struct {
    tr_graph_t *g;
    const tr_model_batch_t *batch; /* sample ids */
    /* patterns of parameter names, comma-separated; NULL or "": none */
    const char *freeze;
    bool frozen;                          /* trainable=no of an enclosing layer */
    double lr_factor;                     /* lr_factor of the enclosing layers; 0 means 1 */
    struct tr_layer_names *names;         /* labels used so far in this scope */
    struct tr_layer_taps *taps;           /* what `save` keeps, of the whole model */
    int *built;                           /* layers built so far in the model */
    bool is_recomputed;                   /* recompute=yes of an enclosing repeat */
    struct tr_layer_recompute *recompute; /* segments; NULL: inside a block, or none */
} tr_layer_context_t;

/*
 * One kind of layer. The first `positional` fields may be given by position, all by name. build
 * appends the layer, x -> *out, to the open program, in a scope with the label of the layer. `next`
 * is the following layer or NULL. A layer that fuses a following activation into its own op sets
 * *out_fused = true, and the caller skips next.
 */
typedef struct {
    const char *name, *alias; /* alias: a second name, or NULL */
    /* names in other libraries for "did you mean", separated by spaces; or NULL */
    const char *elsewhere;
    const char *help;
    const tr_config_field_t *fields;
    int field_count, positional;
    int min_blocks, max_blocks;
    bool transparent; /* opens no scope: its layers are counted in the enclosing scope */
    tr_status_t (*build)(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                         const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                         bool *out_fused);
} tr_layer_t;
const tr_layer_t *const *tr_layer_list(size_t *out_count);
/* The layer that other libraries call `name`, in upper or lower case; NULL if there is none. */
const char *tr_layer_elsewhere(const char *name);
/* The options common to all layers. */
const tr_config_field_t *tr_layer_common_fields(int *out_count);
/* Appends "conv CHANNELS KERNEL [stride=1] ..." to out. */
void tr_layer_usage(const tr_layer_t *layer, tr_str_t *out);

/*
 * Builds a list of layers on x. The label of a layer is its kind and its number among the layers of
 * this kind in its scope ("conv2"), or name=. Residual and concat open a scope. Parameters are
 * therefore named conv1.weight, batchnorm1.running_mean, residual3.conv1.weight,
 * residual3.shortcut.conv1.weight, concat1.branch2.conv1.weight. repeat N { ... } is equivalent to
 * writing the layers N times.
 */
tr_status_t tr_layers_build(const tr_layer_context_t *context, const tr_layer_spec_t *specs,
                            int count, tr_tensor_t x, tr_tensor_t *out);

#endif
