/*
 * Models and layers: C functions that compose ops. A layer of model.layers is one row in
 * layers.def. A model is one row in models.def, or registered at run time by an embedding program.
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "trainer/config.h"
#include "trainer/ops.h"

#define TR_MAX_FIELDS 8

/* The batch of a model: named inputs on the device, created by the caller from the fields of the
 * data set. */
typedef struct {
    int count;
    const char *name[TR_MAX_FIELDS]; /* "x", "y", ... */
    tr_tensor_t tensor[TR_MAX_FIELDS];
    tr_tensor_t sample_id;  /* i64 (B) */
    tr_tensor_t weight;     /* f32 (B): 1, or 0 for a padded sample */
    int64_t classes;        /* of an integer y; 0: y is a regression target */
    tr_dtype_t dtype;       /* of the activations: f32, bf16 or f16 */
    int64_t step_samples;   /* data.batch_size, for the loss seed; 0: the size of this batch */
    tr_tensor_t loss_scale; /* tr_loss_scale; TR_NONE: no loss scaling */
    /* a suspicious label, for messages about the number of classes; NULL or "": none; borrowed */
    const char *label_note;
} tr_model_batch_t;

/* The outputs of a model. The loss has R weighted terms, one or more per sample. Absent outputs are
 * TR_NONE. */
typedef struct {
    /* logits (B, V) or prediction (B, F); probabilities in eval programs with binary cross-entropy
     * */
    tr_tensor_t output;
    tr_tensor_t loss;         /* (R) */
    tr_tensor_t seed;         /* (R) loss seed, if the model uses it; else TR_NONE */
    tr_tensor_t terms;        /* (R) weight of each term; TR_NONE: the weight of its sample */
    tr_tensor_t correct;      /* (B) top-1; classes only */
    tr_tensor_t correct_topk; /* (B) top-k, if model.topk > 1 */
} tr_model_result_t;

/* The inputs of a generation program: T new tokens of each of B texts. */
typedef struct {
    tr_tensor_t id, position; /* i32 (B, T): tokens, and their positions in their texts */
    tr_tensor_t place;        /* i32 (B, 3): row of the caches, first position, number of tokens */
    tr_tensor_t last;         /* i32 (B, 1): index in B*T of the last new token of each text */
    int64_t rows;             /* of the caches */
    int64_t vocab_size;
    tr_dtype_t weights; /* bf16: matrix products use copies of the weights, in caches NAME.bf16 */
} tr_model_texts_t;

typedef struct {
    const char *name, *help;
    const tr_config_table_t *config; /* section "model": the model's own keys; may be NULL */
    /* Language models: tokens per sample and the vocabulary size, 0 if it comes from the data.
     * NULL for other models. */
    void (*tokens)(const tr_config_t *config, int64_t *out_context, int64_t *out_vocab_size);
    /* Appends the config.json with which Hugging Face transformers loads the weights of this model.
     * end: id of the end-of-text token, -1: none. NULL: transformers has no such model. */
    void (*describe)(const tr_config_t *config, int64_t vocab_size, int64_t end, tr_str_t *out);
    /* Language models: appends the generation of one token to the open program, an eval program.
     * Keys and values of earlier tokens are in caches (tr_cache). *out_logits: f32 (B, vocab_size)
     * of the next token of each text. NULL: not supported. */
    tr_status_t (*generate)(tr_graph_t *g, const tr_config_t *config, const tr_model_texts_t *texts,
                            tr_tensor_t *out_logits);
    /* Appends the model to the open program. Called once per program with the same config; equal
     * calls must append equal ops. */
    tr_status_t (*build)(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                         tr_model_result_t *out);
} tr_model_t;

/* Keys of every model: model.type, model.loss, model.label_smoothing, model.huber_delta,
 * model.class_weights, model.topk, model.init, model.init_layout, model.recompute,
 * model.freeze. */
typedef struct {
    const char *type;
    int loss; /* tr_loss_kind_t */
    double label_smoothing;
    double huber_delta;
    const char *class_weights; /* one number per class, comma-separated; "": all 1 */
    int64_t topk;
    /* run folder, checkpoint folder or .safetensors file to start from; "": none */
    const char *init;
    int init_layout;       /* tr_init_layout_t */
    const char *recompute; /* "none", a number of layers or blocks, or a keyword of the model */
    const char *freeze;    /* patterns of parameter names, comma-separated */
} tr_model_settings_t;
typedef enum { TR_INIT_LAYOUT_AUTO, TR_INIT_LAYOUT_TRAINER, TR_INIT_LAYOUT_TORCH } tr_init_layout_t;
typedef enum {
    TR_LOSS_AUTO,
    TR_LOSS_CROSS_ENTROPY,
    TR_LOSS_MSE,
    TR_LOSS_HUBER,
    TR_LOSS_BINARY_CROSS_ENTROPY
} tr_loss_kind_t;
extern const tr_config_table_t tr_model_config;

const tr_model_t *tr_model_at(size_t index); /* of the registered models; NULL after the last */
/* model is borrowed and must outlive every use. TR_ERR_CONFIG if the name is already registered. */
tr_status_t tr_model_register(const tr_model_t *model);
tr_status_t tr_model_find(const char *name, const tr_model_t **out);
/* Finds model.type and builds the model. A pattern of model.freeze that matches no parameter is an
 * error. */
tr_status_t tr_model_build(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                           tr_model_result_t *out);
/* The loss seed (terms): 1 / (terms of a full step), so that the gradient is that of the mean over
 * the terms, times the loss scale if the batch has one. Models whose loss op needs the seed return
 * it in their result. */
tr_status_t tr_model_loss_seed(tr_graph_t *g, const tr_model_batch_t *batch, int64_t terms,
                               tr_tensor_t *out);
/*
 * Appends the loss and metrics of `output` according to model.loss. Models call it. For a batch
 * without "y" (prediction) it only sets the output.
 */
tr_status_t tr_model_loss(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                          tr_tensor_t output, tr_model_result_t *out);

/* -- layers of model.layers -------------------------------------------------------------------- */

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
    bool frozen;                  /* trainable=no of an enclosing layer */
    double lr_factor;             /* lr_factor of the enclosing layers; 0 means 1 */
    struct tr_layer_names *names; /* labels used so far in this scope */
    int *built;                   /* layers built so far in the model */
    /* layers per recompute segment, and the number in the open segment; NULL: no recomputation */
    struct tr_layer_recompute *recompute;
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

/* Whether `name` matches one of the comma-separated patterns (* and ?). For models that create
 * their own parameters. */
bool tr_model_freezes(const char *patterns, const char *name);

#endif
