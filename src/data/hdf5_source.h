/*
 * HDF5 files as data sets: which arrays of a file are the inputs and the labels of a split.
 *
 *   hdf5_source.c   from data.train, a file or a glob, to open files
 *   hdf5_detect.c   which arrays are the inputs and the labels
 *   hdf5_meta.c     attributes; hdf5_labels.c: what the labels are
 *   hdf5_cost.c     what reading a layout costs
 *   hdf5_pool.c     memory of the threads that read
 *   dataset_hdf5.c  puts these together; dataset_tokens.c for tokens
 */
#ifndef DATA_HDF5_SOURCE_H
#define DATA_HDF5_SOURCE_H

#include "h5/h5.h"
#include "shared.h"
#include <glob.h>

enum {
    H5_SENTENCE_BYTES = 2 * 4096 + 512
}; /* of messages that name a file twice; the remedy is last */

/* -- hdf5_detect.c ----------------------------------------------------------------------------- */

typedef struct {
    /* paths in the file; y "" where there is none; scope "" for the root */
    char x[256], y[256], scope[256];
    /* if there is no y: the entry that is named like it but holds text; "" none */
    char text_y[256];
    bool is_tokens; /* x is a stream of tokens, and y is not looked for */
} h5_names_t;

/* What to search for. `implied`: the file was given for training, so names must show the split;
 * *out_found false is then not an error. */
typedef struct {
    const char *key, *group, *x, *y;
    tr_split_t split;
    bool implied;
    bool inputs_only; /* y is not looked for */
    /* for a model of tokens: a given x of whole numbers, one a sample, is a stream */
    bool tokens;
} h5_wanted_t;
tr_status_t tr_h5_detect(const h5_file_t *file, const h5_list_t *list, const h5_wanted_t *wanted,
                         h5_names_t *out, bool *out_found);

/* Whether its type allows inputs, with samples along the first dimension. */
bool tr_h5_has_numbers(const h5_entry_t *entry);

/* Whether the entry that is named like labels holds text, and the remedy. */
bool tr_h5_labels_are_text(const h5_names_t *names, char out[512]);

/* The labels of a file that has nothing else, by their usual names or data.y; "" in out_y: none. */
tr_status_t tr_h5_detect_labels(const h5_file_t *file, const h5_list_t *list,
                                const h5_wanted_t *wanted, char out_y[256]);
/* Records the error that data.y does not exist. */
tr_status_t tr_h5_fail_labels(const h5_file_t *file, const h5_list_t *list,
                              const h5_wanted_t *wanted, const h5_names_t *names);

/* -- hdf5_source.c ----------------------------------------------------------------------------- */

/* One of the files of a split. */
typedef struct {
    h5_file_t file;
    h5_file_t y_file; /* of the separate file of labels; else its path is NULL */
    h5_names_t names;
    h5_array_t x, y;
    bool has_y;
    int64_t first; /* its first sample's index in the data set */
} h5_part_t;

typedef struct {
    h5_part_t *data;
    int count;
} h5_parts_t;

typedef struct {
    h5_wanted_t wanted;
    char pattern[4096]; /* file or glob */
    char group[256];
} h5_source_t;

/* From data.train, data.valid or data.test; pattern "" where the split is not given. wanted.group
 * points into *out. */
tr_status_t tr_h5_source_parse(const tr_data_settings_t *settings, tr_split_t split,
                               h5_source_t *out);
/* The files that match the pattern: at least one. */
typedef struct {
    char **path;
    size_t count;
    glob_t found;
    char *plain[1];
} h5_paths_t;
tr_status_t tr_h5_paths(const h5_source_t *source, h5_paths_t *out);
void tr_h5_paths_free(h5_paths_t *paths);
/* Opens all files; none, with TR_OK, if an implied split does not exist. Both require the lock;
 * parts are closed in any case. */
tr_status_t tr_h5_parts_open(const h5_source_t *source, h5_parts_t *out);
void tr_h5_parts_close(h5_parts_t *parts);
/* If data.direct_io selects it, the parts are read past the page cache. *out: NULL if not; closed
 * with tr_h5_direct_close before the parts. */
tr_status_t tr_h5_parts_open_direct(h5_parts_t *parts, const tr_data_settings_t *settings,
                                    h5_direct_t **out);
/* Samples that are best read together, because chunks must be decoded whole or are read in
 * pieces. */
int64_t tr_h5_parts_read_unit(const h5_parts_t *parts);
/* Of the names, sizes, times and shapes of the files. */
uint64_t tr_h5_parts_fingerprint(const h5_parts_t *parts);

/* -- hdf5_pool.c ------------------------------------------------------------------------------- */

/* Scratch memory that reading threads take and give back. */
typedef struct h5_pool h5_pool_t;
/* Threads that read at once, at most. */
int tr_h5_pool_size(const tr_data_settings_t *settings);
/* Allocates memory for `count` threads and the arrays of the parts, with scratch->rows and
 * scratch->converted of these sizes. */
tr_status_t tr_h5_pool_create(const h5_parts_t *parts, int count, size_t rows_bytes,
                              size_t converted_bytes, h5_pool_t **out);
void tr_h5_pool_destroy(h5_pool_t **pool);
/* Waits for a free one; prefers the one that holds the chunks of `row`. */
h5_scratch_t *tr_h5_pool_take(h5_pool_t *pool, const h5_array_t *array, int64_t row);
void tr_h5_pool_give(h5_pool_t *pool, h5_scratch_t *scratch);

/* -- dataset_tokens.c -------------------------------------------------------------------------- */

/* Windows of a stream of tokens. Takes ownership of the parts, also when it fails. */
tr_status_t tr_tokens_open(h5_parts_t *parts, const tr_data_settings_t *settings,
                           tr_dataset_t **out);

/* -- hdf5_meta.c: from the attributes of x, y, their group or the file; wants the lock --------- */

/* info->mean and std from the attributes, unchanged. */
tr_status_t tr_h5_moments(const h5_part_t *part, int64_t channels, tr_dataset_info_t *info);
/* A sentence if the attributes mean and std do not fit and are ignored, or if joined files differ
 * in them (those of the first file are used); "" none. The caller holds the lock. */
tr_status_t tr_h5_doubtful_moments(const h5_parts_t *parts, int64_t channels,
                                   const tr_data_settings_t *settings, char out[H5_SENTENCE_BYTES]);
/* The attribute `classes`: 0 regression, -1 not set. */
int64_t tr_h5_attribute_classes(const h5_part_t *part);
/* The integer attribute `name` of the inputs, -1: none. */
int64_t tr_h5_attribute_whole(const h5_part_t *part, const char *name);
/* The text attribute `name` of the inputs; tr_free. *out is NULL if there is none. */
tr_status_t tr_h5_attribute_text(const h5_part_t *part, const char *name, char **out);
/* One of the lists of names (TR_NAMES_CLASSES, ...) into *out, which is empty and is freed in any
 * case; stays empty if there is none. */
tr_status_t tr_h5_names(const h5_part_t *part, int list, tr_names_t *out);

/* -- hdf5_labels.c ----------------------------------------------------------------------------- */

/* The labels of all parts as class indices in *out (owned by the caller), or NULL where y holds
 * numbers to predict. `classes`: as data.classes; info->classes becomes their number, label_note
 * says what may be wrong with them, label_doubt is set where a few samples alone made them numbers.
 * Without the lock. */
tr_status_t tr_h5_labels(const h5_parts_t *parts, int64_t classes, h5_scratch_t *scratch,
                         int32_t **out, tr_dataset_info_t *info);

/* -- hdf5_cost.c ------------------------------------------------------------------------------- */

typedef struct {
    int64_t reads;
    double amplification; /* bytes read per byte requested */
} h5_cost_t;
/* Of reading `rows` rows, at most all, from the beginning of a chunk. */
h5_cost_t tr_h5_cost(const h5_array_t *array, int64_t rows);
const char *tr_h5_way_text(const h5_array_t *array);
/* Whether rewriting the file would pay. Then `text` gets the reason and the command. */
bool tr_h5_costly(const h5_array_t *array, int64_t block, char text[H5_SENTENCE_BYTES]);

#endif
