/*
 * Models and layers: C functions that compose ops. A layer of the config's text is one row in layers.def; a
 * model is one row in models.def, or is registered at run time by an embedding program.
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "trainer/config.h"
#include "trainer/ops.h"

#define TR_MAX_FIELDS 8

/* The batch as a model sees it: named inputs on the device, made by the caller from the data set's fields. */
typedef struct {
    int count;
    const char *name[TR_MAX_FIELDS]; /* "x", "y", ... */
    tr_tensor_t tensor[TR_MAX_FIELDS];
    tr_tensor_t sample_id; /* i64 (B) */
    tr_tensor_t weight;    /* f32 (B): 1, or 0 for a padded sample */
    int64_t classes;       /* of an integer y; 0: y is a regression target */
    tr_dtype_t dtype;      /* of activations that a model makes itself: f32 or bf16 */
    int64_t step_samples;  /* data.batch_size, for the loss seed; 0: as many as this batch has */
    /* What may be wrong with the labels, for an error about their number; NULL or "": nothing; borrowed */
    const char *label_note;
} tr_model_batch_t;

/* What a model gives back. A loss has R terms, 1 or several a sample: (R), weighted. Absent ones are
 * TR_NONE. */
typedef struct {
    tr_tensor_t output; /* logits (B, V) or prediction (B, F). Binary cross-entropy in eval programs: probabilities */
    tr_tensor_t loss;
    tr_tensor_t terms; /* (R) what each term of the loss counts for; TR_NONE: its sample's weight */
    tr_tensor_t correct;      /* (B) top-1, where y are classes */
    tr_tensor_t correct_topk; /* (B) top-k, where model.topk > 1 */
} tr_model_result_t;

typedef struct {
    const char *name, *help;
    const tr_config_table_t *config; /* section "model": the model's own keys; may be NULL */
    /* Of a model of tokens: how many a sample has, and the size of the vocabulary, 0 where the data
     * say it. NULL for other models. */
    void (*tokens)(const tr_config_t *config, int64_t *out_context, int64_t *out_vocab_size);
    /* Appends the model to the open program. Called once per program with the same config: equal calls give
     * equal ops. */
    tr_status_t (*build)(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                         tr_model_result_t *out);
} tr_model_t;

/* Keys that every model has: model.type, model.loss, model.label_smoothing, model.huber_delta, model.class_weights, model.topk, model.init,
 * model.freeze. */
typedef struct {
    const char *type;
    int loss; /* tr_loss_kind_t */
    double label_smoothing;
    double huber_delta;
    const char *class_weights; /* a number per class, comma separated; "": all 1 */
    int64_t topk;
    const char *init;   /* run folder, checkpoint folder or .safetensors file to start from, "" none */
    const char *freeze; /* patterns of parameter names, comma separated */
} tr_model_settings_t;
typedef enum {
    TR_LOSS_AUTO,
    TR_LOSS_CROSS_ENTROPY,
    TR_LOSS_MSE,
    TR_LOSS_HUBER,
    TR_LOSS_BINARY_CROSS_ENTROPY
} tr_loss_kind_t;
extern const tr_config_table_t tr_model_config;

const tr_model_t *const *tr_model_list(size_t *out_count);
tr_status_t tr_model_register(
    const tr_model_t *model); /* borrowed: must outlive every use; TR_ERR_CONFIG for a name that is taken */
tr_status_t tr_model_find(const char *name, const tr_model_t **out);
/* Finds model.type and builds it: the one entry for train, eval and plan. A pattern of model.freeze that
 * matches no parameter is an error. */
tr_status_t tr_model_build(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                           tr_model_result_t *out);
/* The constant (terms) that backward begins with: 1 / (terms of a whole step), so that the gradient
 * is that of the mean over the terms. For a model whose loss needs it while it is built. */
tr_status_t tr_model_loss_seed(tr_graph_t *g, const tr_model_batch_t *batch, int64_t terms,
                               tr_tensor_t *out);
/* Appends loss and metrics on `output` by model.loss; for models. A batch without "y" (prediction) gets the
 * output alone. */
tr_status_t tr_model_loss(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                          tr_tensor_t output, tr_model_result_t *out);

/* -- layers of the config's text ------------------------------------------------------------------------- */

/* One word behind a layer's name: "5x5" (key NULL) or "pad=same". */
typedef struct {
    char *key, *value;
    int line, column; /* where it stands in the text, from 1 */
} tr_layer_word_t;

typedef struct tr_layer_spec tr_layer_spec_t;
typedef struct {
    tr_layer_spec_t *specs;
    int count;
} tr_layer_block_t;

/* One layer as the text has it. */
struct tr_layer_spec {
    char *name; /* "conv" */
    int line, column;
    int word_count;
    tr_layer_word_t *words;
    int block_count;
    tr_layer_block_t blocks[2]; /* the { ... } behind it */
};

/*
 * Parses a list of layers and checks every name, argument and option. Layers are separated by commas or ends
 * of lines, # starts a comment: conv 32 5x5 pad=same, batchnorm, relu residual { conv 32 3 pad=same,
 * batchnorm } { conv 32 1, batchnorm }, relu TR_ERR_CONFIG says line and column, what was expected and what
 * was found.
 */
tr_status_t tr_layers_parse(const char *text, tr_layer_spec_t **out, int *out_count);
void tr_layers_free(tr_layer_spec_t **specs, int count);
/*
 * Appends parsed layers in their normal form, a line each: lists that build the same model with the same names give the same text, whatever
 * the comments, blanks, aliases, defaults and repeats they are written with. A block begins with " {" behind its layer and ends with the
 * line "}".
 */
void tr_layers_write(const tr_layer_spec_t *specs, int count, tr_str_t *out);

/* What layers are built into. The caller gives the first three and zeros the rest. */
typedef struct {
    tr_graph_t *g;
    const tr_model_batch_t *batch; /* sample ids */
    const char *freeze;            /* patterns of parameter names, comma separated; NULL or "": none */
    bool frozen;                   /* trainable=no of a layer around */
    double lr_factor;              /* lr_factor of the layers around; 0 counts as 1 */
    struct tr_layer_names *names;  /* labels given so far in this scope */
    int *built;                    /* layers built so far in the model */
} tr_layer_context_t;

/* Types of a layer's arguments; the member of its settings struct they are written to. */
typedef enum {
    TR_ARG_INT,    /* int */
    TR_ARG_FLOAT,  /* double */
    TR_ARG_BOOL,   /* bool */
    TR_ARG_TEXT,   /* const char *, owned by the spec */
    TR_ARG_CHOICE, /* int, the index into choices */
    TR_ARG_SIZES,  /* tr_layer_sizes_t: "5", "5x5", "3x3x3" */
    TR_ARG_PAD     /* tr_layer_pad_t: "same", "valid", "1", "1x2" */
} tr_layer_arg_type_t;
typedef struct {
    int count, size[3];
} tr_layer_sizes_t; /* count 1: the same in all spatial dimensions; 0: not given */
typedef struct {
    bool same;
    tr_layer_sizes_t sizes;
} tr_layer_pad_t;

typedef struct {
    const char *name;
    tr_layer_arg_type_t type;
    size_t offset;        /* in the layer's settings struct */
    const char *fallback; /* default as text, "" for sizes that are not given; NULL: must be given */
    double min, max;      /* of numbers and sizes, inclusive */
    const char *choices;  /* "a|b|c" */
    const char *help;
} tr_layer_field_t;

/*
 * One kind of layer. The first `positional` fields may be given by place, all of them by name. build appends
 * the layer to the open program, x -> *out, in a scope of the layer's label. `next` is the layer behind it or
 * NULL; a layer that takes an activation behind it into its own op sets *out_fused = true, and the caller
 * skips next.
 */
typedef struct {
    const char *name, *alias; /* alias: another name for it, or NULL */
    const char *elsewhere;    /* what others call it, blanks between the names: for "did you mean"; or NULL */
    const char *help;
    const tr_layer_field_t *fields;
    int field_count, positional;
    int min_blocks, max_blocks;
    bool transparent; /* it opens no scope: its layers are counted with those around it */
    tr_status_t (*build)(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                         const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out, bool *out_fused);
} tr_layer_t;
const tr_layer_t *const *tr_layer_list(size_t *out_count);
/* The options that every layer takes besides its own. */
const tr_layer_field_t *tr_layer_common_fields(int *out_count);
/* Appends "conv CHANNELS KERNEL [stride=1] ..." to out. */
void tr_layer_usage(const tr_layer_t *layer, tr_str_t *out);

/*
 * Builds a list of layers on x. A layer's label is its name and count among the layers of its kind in its
 * scope ("conv2"), or name=; a residual is a scope of its own. So parameters are named conv1.weight,
 * batchnorm1.running_mean, residual3.conv1.weight, residual3.shortcut.conv1.weight. repeat N { ... } is the
 * same as writing the layers N times.
 */
tr_status_t tr_layers_build(const tr_layer_context_t *context, const tr_layer_spec_t *specs, int count,
                            tr_tensor_t x, tr_tensor_t *out);

/* Whether `name` matches one of the comma-separated patterns (* and ?). For models that make parameters of
 * their own. */
bool tr_model_freezes(const char *patterns, const char *name);

#endif
