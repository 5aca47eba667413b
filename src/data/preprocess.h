/*
 * What a model was told about its data: how inputs and numbers to predict are normalised, the
 * names of classes and inputs, and the tokenizer. It is resolved once, when a training begins, and belongs to the
 * weights from then on: checkpoints keep it, and whoever resumes, evaluates or predicts with the
 * weights treats other data the same way.
 *
 * Not collective: rank 0 resolves, and the others read what its tr_preprocess_json says.
 */
#ifndef DATA_PREPROCESS_H
#define DATA_PREPROCESS_H

#include "trainer/data.h"
#include "trainer/graph.h"

struct json_t; /* of jansson */

/* v -> (v - mean) / std. Both vectors have the same count: 0, values are taken as they are; 1, one
 * pair of numbers for all channels; else one pair for each channel (the last dimension). std > 0.
 */
typedef struct {
    tr_floats_t mean, std;
} tr_normalize_t;

typedef struct {
    tr_dtype_t type;              /* of inputs, as they travel */
    tr_shape_t shape;             /* of a sample of inputs; ndim 0: not known */
    int64_t classes;              /* 0: numbers to predict */
    tr_normalize_t input, target; /* in units of the data */
    tr_names_t names[TR_NAMES_LISTS];
    char *tokenizer; /* of tokens, as tr_tokenizer_to_json writes it; NULL: not known */
    char *origin;    /* where it comes from, for messages: a data set, a checkpoint */
} tr_preprocess_t;

void tr_preprocess_destroy(tr_preprocess_t **preprocess);

/* -- resolving --------------------------------------------------------------------------------- */

typedef struct {
    const tr_data_settings_t *settings; /* data.mean, std, target_mean, target_std */
    const tr_dataset_info_t *info;      /* of the data whose inputs these are */
    int64_t classes;
    bool squares; /* the loss is of numbers: targets that are auto are normalised */
    /* is read for compute, and for targets that are auto; NULL: no training data */
    tr_dataset_t *train;
    const tr_preprocess_t *kept; /* of the weights that are resumed or evaluated; NULL none */
    const tr_preprocess_t *init; /* of the weights that training begins with; NULL none */
} tr_preprocess_sources_t;

/*
 * A key that is a number rules. One that is auto or compute is what `kept` has. Without `kept`,
 * compute measures at most 256 MiB of the training data, and auto is, of inputs, the data's own
 * numbers (attributes), else those of `init`, else bytes become 0 to 1 and other types stay as they
 * are; of targets, what compute gives where they are f32 and the loss is of numbers. TR_ERR_CONFIG:
 * a key that does not fit, or compute without training data.
 */
tr_status_t tr_preprocess_resolve(const tr_preprocess_sources_t *sources, tr_preprocess_t **out);

/* -- in the graph ------------------------------------------------------------------------------ */

/* In the open program: inputs x (B, ..., C) of any type, *x becomes f32 and normalised. */
tr_status_t tr_preprocess_input(tr_graph_t *g, const tr_preprocess_t *preprocess, tr_tensor_t *x);
/* Targets y (B, ..., T), *y becomes normalised; and the inverse for a model's output of that shape
 * (none: nothing). */
tr_status_t tr_preprocess_target(tr_graph_t *g, const tr_preprocess_t *preprocess, tr_tensor_t *y);
tr_status_t tr_preprocess_restore(tr_graph_t *g, const tr_preprocess_t *preprocess,
                                  tr_tensor_t *output);
/* What black becomes where there is one pair of numbers, else 0, the mean colour: for augmentation.
 */
float tr_preprocess_fill(const tr_preprocess_t *preprocess);

/* -- as JSON ----------------------------------------------------------------------------------- */

/* The member "data" of state.json. New reference; NULL: no memory. A list of names that are not all
 * UTF-8 is left out. */
struct json_t *tr_preprocess_json(const tr_preprocess_t *preprocess);
/* And back; `origin` names the checkpoint in messages. *out is NULL with TR_OK where it says
 * nothing (NULL, or without mean and std). */
tr_status_t tr_preprocess_from_json(const struct json_t *data, const char *origin,
                                    tr_preprocess_t **out);

/* -- comparing and checking -------------------------------------------------------------------- */

/* Appends "\n  data.mean: 1,2 in the checkpoint, 3,2 now" for what normalises otherwise, and a line
 * for another tokenizer; nothing where both agree. */
void tr_preprocess_compare(const tr_preprocess_t *was, const tr_preprocess_t *is, tr_str_t *out);
/* Whether a data set suits: TR_ERR_DATA where it is a table of another width, one index has two
 * names, or its tokens come from another tokenizer. With `inputs_only` other names of classes are a warning. Warns where its inputs have
 * another type. */
tr_status_t tr_preprocess_match(const tr_preprocess_t *preprocess, const tr_dataset_info_t *info,
                                bool inputs_only);
/* Warns where a data set has attributes mean and std that differ from what is used; `key` is its
 * key, "data.valid". */
void tr_preprocess_warn_units(const tr_preprocess_t *preprocess, const tr_dataset_info_t *info,
                              const char *key);
/*
 * The one check of inputs: whether channels that vary have, after normalisation, |mean| over 3 or a
 * deviation outside 0.1 to 10. Then it appends a sentence with the numbers, the likely cause and
 * the keys to set. `stats` are of the inputs as they are in the file.
 */
void tr_preprocess_check(const tr_preprocess_t *preprocess, const tr_sample_stats_t *stats,
                         tr_str_t *out);
/* The sample for it: 8 places of the data set, about 262,000 values, at most 16 MiB, and less where
 * reading it takes longer than 20 ms: one sample of each place then. *out has no channels where one
 * sample is larger than that. */
tr_status_t tr_preprocess_sample(tr_dataset_t *dataset, tr_sample_stats_t *out);

#endif
