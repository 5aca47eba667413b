/*
 * Models of an embedding program: C functions that compose ops. Letters in shapes: B samples of a
 * micro-batch, F features, V classes. Not collective.
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "trainer/config.h"
#include "trainer/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    bool is_dense;          /* y has labels (B, S...) or numbers (B, S..., K) for x (B, S..., C) */
    tr_dtype_t dtype;       /* of the activations: f32, bf16 or f16 */
    int64_t step_samples;   /* data.batch_size, for the loss seed; 0: the size of this batch */
    tr_tensor_t loss_scale; /* f32 (4), tr_loss_scale; TR_NONE: no loss scaling */
    /* [classes] for model.class_weights = balanced; NULL: unknown; borrowed */
    const float *class_weights;
    /* a suspicious label, for messages about the number of classes; NULL or "": none; borrowed */
    const char *label_note;
} tr_model_batch_t;

/* The outputs of a model. The loss has R weighted terms, one or more per sample. Absent outputs are
 * TR_NONE. */
typedef struct {
    /* logits (B, V) or prediction (B, F), of each position (B, S..., V or K) for a dense y;
     * probabilities in eval programs with binary cross-entropy */
    tr_tensor_t output;
    tr_tensor_t loss;         /* (R) */
    tr_tensor_t seed;         /* (R) loss seed, if the model uses it; else TR_NONE */
    tr_tensor_t terms;        /* (R) weight of each term; TR_NONE: the weight of its sample */
    tr_tensor_t correct;      /* top-1 of each term; classes only */
    tr_tensor_t correct_topk; /* (B) top-k, if model.topk > 1 */
    /* Of a dense y, in eval programs: i64 (V, V + 1) of tr_confusion, or f64 (K, 5) of
     * tr_target_sums, in units of the loss. */
    tr_tensor_t scores;
} tr_model_result_t;

/* The inputs of a generation program: T new tokens of each of B texts. */
typedef struct {
    tr_tensor_t id, position; /* i32 (B, T): tokens, and their positions in their texts */
    tr_tensor_t place;        /* i32 (B, 3): row of the caches, first position, number of tokens */
    tr_tensor_t last;         /* i32 (B, 1): index in B*T of the last new token of each text */
    int64_t rows;             /* of the caches */
    int64_t context;          /* tokens of a row of the caches, at most those of the model */
    int64_t vocab_size;
    tr_dtype_t weights; /* of matrices, the table of tokens and the caches: f32, bf16 or f16 */
} tr_model_texts_t;

struct tr_str; /* a text, private to the library */

typedef struct {
    const char *name, *help;
    const tr_config_table_t *config; /* section "model": the model's own keys; may be NULL */
    /* Language models: tokens per sample and the vocabulary size, 0 if it comes from the data.
     * NULL for other models. */
    void (*tokens)(const tr_config_t *config, int64_t *out_context, int64_t *out_vocab_size);
    /* Language models with `generate`: bytes of the caches for each token of a text, with weights of
     * this type. */
    double (*cache_bytes)(const tr_config_t *config, tr_dtype_t weights);
    /* Appends the config.json with which Hugging Face transformers loads the weights of this model.
     * end: id of the end-of-text token, -1: none. NULL: transformers has no such model. */
    void (*describe)(const tr_config_t *config, int64_t vocab_size, int64_t end,
                     struct tr_str *out);
    /* Language models: appends the generation of one token to the open program, an eval program.
     * Keys and values of earlier tokens are in caches (tr_cache). *out_logits: f32 (B, vocab_size)
     * of the next token of each text. NULL: not supported. */
    tr_status_t (*generate)(tr_graph_t *g, const tr_config_t *config, const tr_model_texts_t *texts,
                            tr_tensor_t *out_logits);
    /* Appends the model to the open program. Called once per program with the same config; equal
     * calls must append equal ops. Programs may differ in the number of samples. */
    tr_status_t (*build)(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                         tr_model_result_t *out);
} tr_model_t;

/* model is borrowed and must outlive every use. TR_ERR_CONFIG if the name is already registered. */
tr_status_t tr_model_register(const tr_model_t *model);
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

/*
 * Appends the layers of `text`, in the syntax of model.layers ("linear 64, relu"), x -> *out. Their
 * labels count from 1: open a scope before a second call. Parameters that match model.freeze are not
 * trained. TR_ERR_CONFIG with line and column, the expected and the found text.
 */
tr_status_t tr_layers_append(tr_graph_t *g, const tr_config_t *config,
                             const tr_model_batch_t *batch, const char *text, tr_tensor_t x,
                             tr_tensor_t *out);

/* Whether `name` matches one of the comma-separated patterns (* and ?). For models that create
 * their own parameters. */
bool tr_model_freezes(const char *patterns, const char *name);

#ifdef __cplusplus
}
#endif

#endif
