/*
 * Preprocessing of a model's data: normalisation of inputs and regression targets, names of classes
 * and inputs, and the tokenizer. It is resolved once, when training starts, and then belongs to the
 * weights: checkpoints store it, and resumed training, evaluation and prediction use it. Not
 * collective: rank 0 resolves it and broadcasts the text of tr_preprocess_json.
 */
#ifndef TR_DATA_PREPROCESS_H
#define TR_DATA_PREPROCESS_H

#include "data/data.h"
#include "trainer/graph.h"

struct json_t; /* jansson */

/* v -> (v - mean) / std. Both vectors have the same count. 0: unchanged; 1: one pair for all
 * channels; otherwise one pair per channel (last dimension). std > 0. */
typedef struct {
    tr_floats_t mean, std;
} tr_normalize_t;

typedef struct tr_preprocess {
    /* The inputs, in the order of the training data: all fields but y. Of an earlier version: x
     * alone; its ndim is 0 if the shape is unknown. */
    tr_field_t field[TR_DATASET_MAX_FIELDS];
    int field_count;
    bool decodes;    /* missing and packed values are decoded; false: of releases up to 0.2 */
    int64_t classes; /* 0: regression */
    bool is_dense;   /* of y, as in tr_dataset_info_t */
    tr_normalize_t input, target; /* in units of the (decoded) data */
    tr_floats_t class_weights;    /* [classes] of model.class_weights = balanced; none: not set */
    tr_names_t names[TR_NAMES_LISTS];
    char *tokenizer; /* from tr_tokenizer_to_json; NULL: unknown */
    char *columns;   /* from tr_columns_to_json; NULL: no table, or unknown */
    char *origin;    /* its source, for messages: a data set or a checkpoint */
} tr_preprocess_t;

void tr_preprocess_destroy(tr_preprocess_t **preprocess);
/* The input `name`; NULL: none. */
const tr_field_t *tr_preprocess_field(const tr_preprocess_t *preprocess, const char *name);

/* -- resolving --------------------------------------------------------------------------------- */

typedef struct {
    const tr_data_settings_t *settings; /* data.mean, std, target_mean, target_std */
    const tr_dataset_info_t *info;      /* of the data */
    int64_t classes;
    bool squares;  /* a regression loss: auto normalises the targets */
    bool balances; /* model.class_weights = balanced */
    /* read for compute, and for targets with auto; NULL: no training data */
    tr_dataset_t *train;
    const tr_preprocess_t *kept; /* of the resumed or evaluated weights; NULL: none */
    const tr_preprocess_t *init; /* of the initial weights (model.init); NULL: none */
} tr_preprocess_sources_t;

/*
 * Resolves the keys. A number is used as it is. auto, compute and the names of files use the value in
 * `kept`, if any. Otherwise compute measures at most 256 MiB of the training data, and auto means:
 *   inputs   the attributes of the data, or the values of `init`, or as compute if values are
 *            declared missing, or 0 to 1 for bytes; other types are unchanged
 *   targets  as compute, if they are f32 and the loss is a regression loss
 * Balanced class weights are those in `kept`, if any, or samples / (classes that occur * samples of
 * the class) of all training labels, or of at most 64 MiB of labels of positions; 1 for a class
 * that does not occur. TR_ERR_CONFIG: a key does not fit the data, or compute or balanced without
 * training data.
 */
tr_status_t tr_preprocess_resolve(const tr_preprocess_sources_t *sources, tr_preprocess_t **out);

/* preprocess_file.c: whether the value of data.mean, std, target_mean or target_std names a file of
 * numbers, FILE:NAME (HDF5) or FILE.npy, and these numbers. */
bool tr_preprocess_names_file(const char *text);
tr_status_t tr_preprocess_read_file(const char *key, const char *text, tr_floats_t *out);

/* -- in the graph ------------------------------------------------------------------------------ */

/* Appends the normalisation of inputs x (B, ..., C) of any type to the open program; *x becomes
 * f32. */
tr_status_t tr_preprocess_input(tr_graph_t *g, const tr_preprocess_t *preprocess, tr_tensor_t *x);
/* The same for targets y (B, ..., T), and the inverse for an output of that shape (TR_NONE:
 * nothing). */
tr_status_t tr_preprocess_target(tr_graph_t *g, const tr_preprocess_t *preprocess, tr_tensor_t *y);
tr_status_t tr_preprocess_restore(tr_graph_t *g, const tr_preprocess_t *preprocess,
                                  tr_tensor_t *output);
/* The fill value for augmentation: normalised black if all channels share one mean and std,
 * otherwise 0, the mean colour. */
float tr_preprocess_fill(const tr_preprocess_t *preprocess);

/* -- as JSON ----------------------------------------------------------------------------------- */

/* The member "data" of state.json. New reference; NULL: no memory. Omits a list of names with
 * invalid UTF-8. */
struct json_t *tr_preprocess_json(const tr_preprocess_t *preprocess);
/* The inverse. `origin` names the checkpoint in messages. Returns TR_OK with *out NULL if `data` is
 * NULL or has no mean and std. */
tr_status_t tr_preprocess_from_json(const struct json_t *data, const char *origin,
                                    tr_preprocess_t **out);

/* -- comparing and checking -------------------------------------------------------------------- */

/* Appends "\n  data.mean: 1,2 in the checkpoint, 3,2 now" for each difference in normalisation, and
 * a line if the tokenizers differ. */
void tr_preprocess_compare(const tr_preprocess_t *was, const tr_preprocess_t *is, tr_str_t *out);
/*
 * Checks that a data set fits. TR_ERR_DATA if an input is missing, a table has another width, names
 * differ, columns of a table became inputs in another way, or the tokens come from another
 * tokenizer. With `inputs_only`, different class names are only a warning.
 * Warns if the inputs have another type.
 */
tr_status_t tr_preprocess_match(const tr_preprocess_t *preprocess, const tr_dataset_info_t *info,
                                bool inputs_only);
typedef enum {
    TR_CHECK_TRAINING_INPUTS,
    TR_CHECK_OTHER_INPUTS, /* of data.valid, data.test, or for trained weights */
    TR_CHECK_TARGETS       /* of data.valid or data.test */
} tr_preprocess_checked_t;
/*
 * Checks the normalised inputs: if a channel that varies has |mean| over 3 or a standard deviation
 * outside 0.1 to 10, appends a sentence with the numbers, the likely cause and the keys to set.
 * `stats` are those of the stored values. Of the training inputs, it also says that they are normalised
 * twice; of others, channels with few values are left out.
 */
void tr_preprocess_check(const tr_preprocess_t *preprocess, const tr_sample_stats_t *stats,
                         tr_preprocess_checked_t what, tr_str_t *out);
/*
 * Reads the values for this check: about 262,000 values from 8 places of the data set, at most 16
 * MiB. If reading takes longer than 20 ms, one sample from each place. *out has no channels if one
 * sample is larger than that.
 */
tr_status_t tr_preprocess_sample(tr_dataset_t *dataset, tr_sample_stats_t *out);

#endif
