/*
 * Data sets for the program: keys, opening, names, statistics.
 *
 * HDF5 is called for metadata and unusual layouts, by one thread at a time (a lock in the module).
 * Plain data is read with pread.
 */
#ifndef TR_DATA_DATA_H
#define TR_DATA_DATA_H

#include "base/stats.h"
#include "config/config.h"
#include "trainer/data.h"
#include <string.h>

extern const tr_config_table_t tr_data_config;
/* Whether a key such as data.mean is to be found out: "auto", or not set. */
static inline bool tr_data_is_auto(const char *text) {
    return !*text || strcmp(text, "auto") == 0;
}

/* "class_names" or "feature_names": the name of the attribute and of the key in state.json. */
const char *tr_names_key(int list);
void tr_names_free(tr_names_t *names);
/* *out is a copy that names `from`, borrowed, as its source. Free *out also after an error. */
tr_status_t tr_names_copy(const tr_names_t *names, const char *from, tr_names_t *out);
/* TR_ERR_DATA if an index has different names. A shorter or missing list is not a difference. */
tr_status_t tr_names_check(int list, const tr_names_t *expected, const tr_names_t *found);
/* [classes], or NULL unless all classes have names. Valid as long as the data set. */
const char *const *tr_class_names(const tr_dataset_info_t *info);
const char *tr_split_name(tr_split_t split); /* "train", ...; the key is "data.train" */

/* How many samples to look at, if of each `sample_bytes` are read: up to `bytes`, at least one; of
 * files that are opened for it, few. */
static inline int64_t tr_samples_within(const tr_dataset_info_t *info, int64_t sample_bytes,
                                        int64_t bytes) {
    enum { FILES_MOST = 256 };
    int64_t most = bytes / sample_bytes > 1 ? bytes / sample_bytes : 1;
    if (info->is_file_each && most > FILES_MOST) most = FILES_MOST;
    return most < info->samples ? most : info->samples;
}

/* Registered data sets; NULL after the last. */
const tr_dataset_ops_t *tr_dataset_at(size_t index);
/* Converts any type but bf16 to TR_F32 or TR_F64. in and out must not overlap. */
void tr_convert(tr_dtype_t from, const void *in, int64_t elems, tr_dtype_t to, void *out);
/* Adds `count` values, whole rows of `width`, to stats[width], computed in doubles. */
void tr_stats_add_values(tr_stats_t *stats, int64_t width, tr_dtype_t dtype, const void *values,
                         int64_t count);
/*
 * Adds `pieces` segments of up to `rows` samples of a field, spread evenly over the data set, to
 * stats[width]. Uses the stored values, before rounding to 32-bit floats. Adds the read time to
 * *read_sec unless that is NULL.
 */
tr_status_t tr_dataset_stats(tr_dataset_t *dataset, int field, int64_t pieces, int64_t rows,
                             int64_t width, tr_stats_t *stats, double *read_sec);
/* Statistics of a field per channel (last dimension). */
typedef struct {
    int64_t channels, samples; /* samples: number read */
    int64_t missing;           /* values that are declared missing, not in the statistics */
    tr_stats_t *of;            /* [channels]; tr_free */
    double read_sec;
} tr_sample_stats_t;
/*
 * Reads at most `bytes` of the field (at least one sample) in up to `pieces` segments spread evenly
 * over the data set. Stops early after `most_sec` (INFINITY: no limit). Not collective. The caller
 * frees `out->of`, also after an error.
 */
tr_status_t tr_dataset_sample(tr_dataset_t *dataset, int field, int64_t bytes, int64_t pieces,
                              double most_sec, tr_sample_stats_t *out);
/* Writes "12 of the 600 values read (2 %) are declared missing: ..." for statistics of the field.
 * Returns `text`. */
const char *tr_missing_text(const tr_sample_stats_t *stats, const tr_field_t *field,
                            char text[160]);
/* The index of field `name`; -1 if there is none. */
int tr_field_find(const tr_dataset_info_t *info, const char *name);
/* The last dimension of a field; 1 for a scalar. */
int64_t tr_field_channels(const tr_field_t *field);
/*
 * Writes "taken as images of 28 x 28 with one channel; ..." and how to override this, for data with
 * is_image_guessed. Returns `text`.
 */
const char *tr_image_guess_text(const tr_shape_t *shape, char text[256]);
/*
 * Whether rounding to 32-bit floats loses most of the information in one of `count` columns of the
 * inputs or regression targets. If so, writes the finding and the remedy to `text`.
 */
bool tr_is_rounded_away(const tr_stats_t *stats, int64_t count, bool are_targets, char text[640]);
/* Appends a sentence if y is read as numbers, its data set does not say so (info.is_regression), and
 * those of at most 4 MiB of it look like labels: they are few whole numbers, near few levels, or rows
 * that add up to 1. The first and the last suit the loss binary_cross_entropy. Not collective. */
tr_status_t tr_targets_doubt(tr_dataset_t *dataset, tr_str_t *out);
/* Compares the labels of data.valid or data.test, `held`, with those of data.train, as far as both are known.
 * TR_ERR_DATA if their values probably stand for other classes: a tenth of them does not occur in
 * data.train, or all are shifted, or they go far beyond; and there are more classes than in data.train, or
 * it is data.valid and no key or name says what the classes are (are_given). Otherwise warns of those that
 * do not occur there. Not collective. */
tr_status_t tr_labels_check(const tr_dataset_info_t *train, const tr_dataset_info_t *held,
                            tr_split_t split, bool are_given);
/* Whether a column of the field probably has numbers that stand for missing values. If so, writes
 * which and the remedy to `text`. */
bool tr_has_sentinel(const tr_sample_stats_t *stats, const tr_field_t *field, char text[640]);
/*
 * Opens a data set and reads its metadata. Returns TR_OK with *out NULL if the split is not set.
 * Not collective: every rank opens it.
 */
tr_status_t tr_dataset_open(const tr_data_settings_t *settings, tr_split_t split,
                            tr_dataset_t **out);
/* As tr_dataset_open, but without labels or targets: the data need not have any. */
tr_status_t tr_dataset_open_inputs(const tr_data_settings_t *settings, tr_split_t split,
                                   tr_dataset_t **out);
void tr_dataset_close(tr_dataset_t **dataset);
/* Whether two splits are the same samples, or one is a part of the other (data.valid_fraction):
 * files of the same name, size and time, or data sets of a program with the same fingerprint.
 * false if one is NULL. Not collective. */
bool tr_dataset_shares(const tr_dataset_t *a, const tr_dataset_t *b);
/* Warns if the validation or the test data [TR_SPLIT_VALID, TR_SPLIT_TEST], NULL: none, are the training
 * data, or share samples with it. A bounded part of each is read, in about a second at most. Errors of
 * reading end the search, and are not reported. Not collective. */
void tr_dataset_warn_overlap(tr_dataset_t *const dataset[3]);
/* A checksum of the first `samples` samples: their number, types and shapes, and the values of some of
 * them. A copy of a file, or one with other chunks, has the same. 0: unknown, because samples cannot be
 * read, or not in 2 s. Not collective. */
uint64_t tr_dataset_checksum(tr_dataset_t *dataset, int64_t samples);

#endif
