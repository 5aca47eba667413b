/*
 * What a model was told about its data: normalisation of inputs and regression targets, the names
 * of classes and inputs, and the tokenizer. It is resolved once, when training begins, and belongs
 * to the weights from then on: checkpoints store it, and resuming, evaluation and prediction treat
 * other data the same way. Not collective: rank 0 resolves, and the others read the text of its
 * tr_preprocess_json.
 */
#ifndef DATA_PREPROCESS_H
#define DATA_PREPROCESS_H

#include "trainer/data.h"
#include "trainer/graph.h"

struct json_t; /* of jansson */

/* v -> (v - mean) / std. Both vectors have the same count: 0: unchanged; 1: one pair for all
 * channels; else one pair per channel (the last dimension). std > 0. */
typedef struct {
    tr_floats_t mean, std;
} tr_normalize_t;

typedef struct {
    tr_dtype_t type;              /* of inputs in a batch */
    tr_shape_t shape;             /* of an input sample; ndim 0: not known */
    int64_t classes;              /* 0: regression */
    tr_normalize_t input, target; /* in units of the data */
    tr_names_t names[TR_NAMES_LISTS];
    char *tokenizer; /* of tokens, as tr_tokenizer_to_json writes it; NULL: not known */
    char *origin;    /* where it comes from, for messages: a data set or a checkpoint */
} tr_preprocess_t;

void tr_preprocess_destroy(tr_preprocess_t **preprocess);

/* -- resolving --------------------------------------------------------------------------------- */

typedef struct {
    const tr_data_settings_t *settings; /* data.mean, std, target_mean, target_std */
    const tr_dataset_info_t *info;      /* of the data whose inputs these are */
    int64_t classes;
    bool squares; /* the loss is of numbers: targets that are auto are normalised */
    /* read for compute, and for targets that are auto; NULL: no training data */
    tr_dataset_t *train;
    const tr_preprocess_t *kept; /* of the weights that are resumed or evaluated; NULL: none */
    const tr_preprocess_t *init; /* of the initial weights (model.init); NULL: none */
} tr_preprocess_sources_t;

/*
 * A key that is a number is used. For auto and compute, the value in `kept` is used. Without
 * `kept`, compute measures at most 256 MiB of the training data. Without `kept`, auto is, for
 * inputs: the attributes of the data, else the values of `init`, else bytes are scaled to 0 to 1
 * and other types are unchanged; for targets: the same as compute if they are f32 and the loss is
 * of numbers. TR_ERR_CONFIG: a key does not fit, or compute without training data.
 */
tr_status_t tr_preprocess_resolve(const tr_preprocess_sources_t *sources, tr_preprocess_t **out);

/* -- in the graph ------------------------------------------------------------------------------ */

/* In the open program: inputs x (B, ..., C) of any type, *x becomes f32 and normalised. */
tr_status_t tr_preprocess_input(tr_graph_t *g, const tr_preprocess_t *preprocess, tr_tensor_t *x);
/* Targets y (B, ..., T): *y becomes normalised; and the inverse for a model's output of that shape
 * (TR_NONE: nothing). */
tr_status_t tr_preprocess_target(tr_graph_t *g, const tr_preprocess_t *preprocess, tr_tensor_t *y);
tr_status_t tr_preprocess_restore(tr_graph_t *g, const tr_preprocess_t *preprocess,
                                  tr_tensor_t *output);
/* The normalised value of black if there is one pair of numbers, else 0, the mean colour: for
 * augmentation. */
float tr_preprocess_fill(const tr_preprocess_t *preprocess);

/* -- as JSON ----------------------------------------------------------------------------------- */

/* The member "data" of state.json. New reference; NULL: no memory. A list of names with invalid
 * UTF-8 is left out. */
struct json_t *tr_preprocess_json(const tr_preprocess_t *preprocess);
/* The inverse; `origin` names the checkpoint in messages. *out is NULL with TR_OK if `data` is NULL
 * or has no mean and std. */
tr_status_t tr_preprocess_from_json(const struct json_t *data, const char *origin,
                                    tr_preprocess_t **out);

/* -- comparing and checking -------------------------------------------------------------------- */

/* Appends "\n  data.mean: 1,2 in the checkpoint, 3,2 now" for each difference in normalisation, and
 * a line for another tokenizer; nothing if both agree. */
void tr_preprocess_compare(const tr_preprocess_t *was, const tr_preprocess_t *is, tr_str_t *out);
/*
 * Whether a data set fits: TR_ERR_DATA if it is a table of another width, one index has two names,
 * or its tokens come from another tokenizer. With `inputs_only`, different names of classes are
 * only a warning. Warns if its inputs have another type.
 */
tr_status_t tr_preprocess_match(const tr_preprocess_t *preprocess, const tr_dataset_info_t *info,
                                bool inputs_only);
/* Warns if the attributes mean and std of a data set differ from what is used; `key` is its key,
 * "data.valid". */
void tr_preprocess_warn_units(const tr_preprocess_t *preprocess, const tr_dataset_info_t *info,
                              const char *key);
/*
 * The check of inputs: whether channels that vary have, after normalisation, |mean| over 3 or a
 * deviation outside 0.1 to 10. If so, it appends a sentence with the numbers, the likely cause and
 * the keys to set. `stats` are of the inputs as stored.
 */
void tr_preprocess_check(const tr_preprocess_t *preprocess, const tr_sample_stats_t *stats,
                         tr_str_t *out);
/*
 * The sample for this check: 8 places of the data set, about 262,000 values, at most 16 MiB. If
 * reading takes longer than 20 ms, one sample of each place. *out has no channels if one sample is
 * larger than that.
 */
tr_status_t tr_preprocess_sample(tr_dataset_t *dataset, tr_sample_stats_t *out);

#endif
