/*
 * HDF5 files as data sets: finds the arrays with the inputs and labels of a split.
 *
 *   hdf5_source.c   opens the files of data.train, a path or a glob
 *   hdf5_detect.c   finds the inputs and the labels
 *   hdf5_foreign.c  recognises files of other programs that need a conversion
 *   hdf5_meta.c     reads attributes; hdf5_labels.c: determines the kind of labels
 *   hdf5_values.c   values that stand for classes
 *   hdf5_dense.c    labels or targets of each position
 *   hdf5_packing.c  missing and packed values, as netCDF and CF declare them
 *   hdf5_cost.c     estimates the cost of reading a layout
 *   hdf5_pool.c     memory of the reading threads
 *   dataset_hdf5.c  the data set; dataset_tokens.c: the data set of tokens
 */
#ifndef TR_DATA_HDF5_SOURCE_H
#define TR_DATA_HDF5_SOURCE_H

#include "h5/h5.h"
#include "data/shared.h"
#include <glob.h>

/* size of messages that name a file twice */
enum { H5_SENTENCE_BYTES = 2 * 4096 + 512 };

/* -- hdf5_detect.c ----------------------------------------------------------------------------- */

typedef struct {
    /* paths in the file; y "" if there is none; scope "" for the root */
    char x[256], y[256], scope[256];
    char mask[256]; /* of data.mask; "": none */
    /* if there is no y: the entry that is named like labels but contains text; "": none */
    char text_y[256];
    bool is_tokens; /* x is a token stream, which has no y */
} h5_names_t;

/* What to search for. `implied`: the file was given for training, so the names must contain the
 * split, and *out_found false is not an error. */
typedef struct {
    const char *key, *group, *x, *y, *mask;
    tr_split_t split;
    bool implied;
    bool inputs_only; /* do not search for y */
    bool is_sample;   /* a file is one sample; y may be a scalar */
    bool stored;      /* values as stored, without the attributes of netCDF and CF */
    /* for a language model: a given x with one integer per sample is a token stream */
    bool tokens;
} h5_wanted_t;
tr_status_t tr_h5_detect(const h5_file_t *file, const h5_list_t *list, const h5_wanted_t *wanted,
                         h5_names_t *out, bool *out_found);

/* Whether the entry can be inputs: numbers, with samples along the first dimension. */
bool tr_h5_has_numbers(const h5_entry_t *entry);

/* Whether the entry that is named like labels contains text. If so, writes the finding and the
 * remedy. */
bool tr_h5_labels_are_text(const h5_names_t *names, char out[512]);

/* Finds the labels in a separate file of labels, by the usual names or data.y, and data.mask; "": none.
 */
tr_status_t tr_h5_detect_labels(const h5_file_t *file, const h5_list_t *list,
                                const h5_wanted_t *wanted, h5_names_t *names);
/* Records the error that data.y does not exist. */
tr_status_t tr_h5_fail_labels(const h5_file_t *file, const h5_list_t *list,
                              const h5_wanted_t *wanted, const h5_names_t *names);
/* The same of data.mask. */
tr_status_t tr_h5_fail_mask(const h5_file_t *file, const h5_list_t *list,
                            const h5_wanted_t *wanted);

/* -- hdf5_foreign.c ---------------------------------------------------------------------------- */

/* Whether the file, in which no inputs were found, is a table of pandas or a sparse matrix. If so,
 * writes what it is and what to do, without a full stop. */
bool tr_h5_foreign(const h5_file_t *file, const h5_list_t *list, char out[1024]);
/* The same for inputs that were found: whether they are the entries of a sparse matrix. */
bool tr_h5_foreign_inputs(const h5_file_t *file, const h5_list_t *list, const char *x,
                          char out[1024]);

/* -- hdf5_packing.c ---------------------------------------------------------------------------- */

#define H5_HOLES_MAX 16
/* How the values of an array are decoded: stored * scale + offset, unless the stored value is
 * declared missing. */
typedef struct {
    bool scales; /* scale is not 1 or offset not 0: the values travel as f32 */
    double scale, offset;
    bool has_holes; /* stored values may be missing, for one of these reasons: */
    double hole[H5_HOLES_MAX];
    int holes;
    bool nan_is_hole, has_range;
    bool wraps;         /* the values are read as unsigned, the attributes are signed (_Unsigned) */
    double least, most; /* has_range: values outside are missing */
} h5_packing_t;
/* Reads the attributes of the array; _Unsigned changes array->dtype. TR_ERR_DATA if one has no
 * number. Requires the lock. */
tr_status_t tr_h5_packing_read(h5_array_t *array, h5_packing_t *out);
/* Whether the stored value of an array with has_holes is declared missing. */
bool tr_h5_is_missing(const h5_packing_t *packing, tr_dtype_t stored, double value);
/* "decoded as stored value * 0.01 + 273.15 (scale_factor, add_offset); missing if stored as NaN" */
void tr_h5_packing_text(const h5_packing_t *packing, tr_str_t *out);

/* What takes the place of missing values: element e has value[e / run % channels]. */
typedef struct {
    double *value; /* [channels] */
    int64_t channels, run;
} h5_fill_t;
/* Rounds the values to what the type can hold. */
void tr_h5_fill_round(tr_dtype_t as, int64_t count, double *values);
/*
 * Decodes `elems` values of type `from`, beginning with that of the first channel, to `as`: f32,
 * f64, or `from` without scales (in and out may then be the same). Missing values become those of
 * `fill`; NULL: NaN. Returns the index of the first value that is not missing and not finite in
 * f32; -1: none.
 */
int64_t tr_h5_unpack(const h5_packing_t *packing, tr_dtype_t from, const void *in, int64_t elems,
                     const h5_fill_t *fill, tr_dtype_t as, void *out);

/* -- hdf5_source.c ----------------------------------------------------------------------------- */

/* One of the files of a split. */
typedef struct {
    h5_file_t file;
    h5_file_t y_file; /* separate file of labels; path NULL if there is none */
    h5_names_t *names; /* of its own, or those of the first file */
    h5_array_t x, y, mask;
    h5_packing_t x_packing, y_packing;
    bool has_y, has_mask;
    bool has_meta; /* attributes that hdf5_meta.c reads; else the file need not be awake for it */
    int64_t first; /* index in the data set of its first sample */
} h5_part_t;

/* The files that match a pattern, at least one. */
typedef struct {
    char **path;
    size_t count;
    glob_t found;
    char *plain[1];
} h5_paths_t;

/*
 * The files of a split. With data.sample = file, the headers of the first H5_EARLY files are read
 * when the split is opened, and that of another one when its sample is read first.
 */
#define H5_EARLY 256
typedef struct {
    h5_part_t *data; /* [count] */
    int count;
    h5_part_t **late; /* [late_count], of one sample each, behind those of `data`; NULL: not read */
    int late_count;
    h5_paths_t paths;   /* of all files, if some are late */
    h5_wanted_t wanted; /* the same */
} h5_parts_t;

typedef struct {
    h5_wanted_t wanted;
    char pattern[4096]; /* file or glob */
    char group[256];
} h5_source_t;

/* For x and y with different numbers of samples: " ..." with the likely cause and the remedy; "" if
 * unknown (hdf5_foreign.c). Requires the lock. */
void tr_h5_foreign_rows(const h5_part_t *part, char out[512]);
/* The type of the inputs of a part in a batch. */
tr_dtype_t tr_h5_part_travels_as(const h5_part_t *part);
/* From data.train, data.valid or data.test; pattern "" if the split is not set. wanted.group points
 * into *out. */
tr_status_t tr_h5_source_parse(const tr_data_settings_t *settings, tr_split_t split,
                               h5_source_t *out);
tr_status_t tr_h5_paths(const h5_source_t *source, h5_paths_t *out);
void tr_h5_paths_free(h5_paths_t *paths);
/* Opens the files that are not late; none, with TR_OK, if an implied split does not exist. Close the
 * parts also after an error. Of many files, all but the first are at rest then. Open and close require
 * the lock. */
tr_status_t tr_h5_parts_open(const h5_source_t *source, h5_parts_t *out);
void tr_h5_parts_close(h5_parts_t *parts);
/* The attributes of a file can be read while it is awake. A part of few stays awake. Both require the
 * lock. */
tr_status_t tr_h5_part_wake(h5_part_t *part);
void tr_h5_part_rest(const h5_parts_t *parts, h5_part_t *part);
/* The number of samples of all parts. */
int64_t tr_h5_parts_samples(const h5_parts_t *parts);
/* The part that has a sample. The header of a late file is read now; errors as those of
 * tr_h5_parts_open. Thread-safe. Call it without the lock. */
tr_status_t tr_h5_part_at(h5_parts_t *parts, int64_t sample, h5_part_t **out);
/* Asks the system to prefetch samples. Thread-safe. */
void tr_h5_parts_expect(h5_parts_t *parts, int64_t first, int64_t count);
/* Makes reads of the parts bypass the page cache if data.direct_io selects it; *out is NULL if not.
 * Close it with tr_h5_direct_close before the parts. */
tr_status_t tr_h5_parts_open_direct(h5_parts_t *parts, const tr_data_settings_t *settings,
                                    h5_direct_t **out);
/* The efficient read size in samples: chunks must be decoded whole, or are read in parts. */
int64_t tr_h5_parts_read_unit(const h5_parts_t *parts);
/* A hash of the names, sizes, times and shapes of the files; of late files, of their names. */
uint64_t tr_h5_parts_fingerprint(const h5_parts_t *parts);

/* -- hdf5_pool.c ------------------------------------------------------------------------------- */

/* A pool of scratch memory for reading threads. */
typedef struct h5_pool h5_pool_t;
/* The maximum number of threads that read at the same time. */
int tr_h5_pool_size(const tr_data_settings_t *settings);
/* Allocates memory for `count` threads and the arrays of the parts, with scratch->rows and
 * scratch->converted of these sizes. */
tr_status_t tr_h5_pool_create(const h5_parts_t *parts, int count, size_t rows_bytes,
                              size_t converted_bytes, h5_pool_t **out);
void tr_h5_pool_destroy(h5_pool_t **pool);
/* Waits for free scratch memory; prefers the one that contains the chunks of `row`. */
h5_scratch_t *tr_h5_pool_take(h5_pool_t *pool, const h5_array_t *array, int64_t row);
void tr_h5_pool_give(h5_pool_t *pool, h5_scratch_t *scratch);

/* -- dataset_tokens.c -------------------------------------------------------------------------- */

/* A data set of windows of a token stream. Takes ownership of the parts, also after an error. */
tr_status_t tr_tokens_open(h5_parts_t *parts, const tr_data_settings_t *settings,
                           tr_dataset_t **out);

/* -- hdf5_meta.c: attributes of x, y, their group or the file, texts; requires the lock -------- */

/* Sets info->mean and std from the attributes. */
tr_status_t tr_h5_moments(const h5_part_t *part, int64_t channels, tr_dataset_info_t *info);
/* Writes a warning if the attributes mean and std do not fit and are ignored, or if joined files
 * differ in them (those of the first file are used); "" if neither. */
tr_status_t tr_h5_doubtful_moments(const h5_parts_t *parts, int64_t channels,
                                   const tr_data_settings_t *settings, char out[H5_SENTENCE_BYTES]);
/* The attribute `classes`: 0: regression; -1: not set. */
int64_t tr_h5_attribute_classes(const h5_part_t *part);
/* Whether there are any of the attributes that are read of each file: mean, std, names. */
bool tr_h5_has_meta(const h5_part_t *part);
/* The integer attribute `name` of the inputs; -1: not set. */
int64_t tr_h5_attribute_whole(const h5_part_t *part, const char *name);
/* The text attribute `name` of the inputs; tr_free. *out is NULL if there is none. */
tr_status_t tr_h5_attribute_text(const h5_part_t *part, const char *name, char **out);
/* Whether `name` is a data set of strings beside the inputs, with one for each sample. */
bool tr_h5_has_texts(const h5_part_t *part, const char *name);
/* Reads these strings to out[0], out[stride], ...; tr_free each, also after an error. */
tr_status_t tr_h5_read_texts(const h5_part_t *part, const char *name, int64_t stride, char **out);
/* Reads a list of names (TR_NAMES_CLASSES, ...) to the empty *out, which stays empty if there is
 * none. The caller frees it also after an error. */
tr_status_t tr_h5_names(const h5_part_t *part, int list, tr_names_t *out);

/* -- hdf5_labels.c ----------------------------------------------------------------------------- */

/* The texts of info->label_doubt, label_note and label_shares, and its label_count, behind the number of
 * those that have no label; tr_free. */
typedef struct {
    char doubt[1024], note[512], shares[1400];
    int64_t *count;
} h5_label_notes_t;
/* Sets info->label_shares by count[1 + classes], with those that have no label first. */
void tr_h5_label_shares(const tr_label_values_t *values, const int64_t *count, int64_t classes,
                        h5_label_notes_t *notes, tr_dataset_info_t *info);
/* The different labels that occur; list: "0,128,255", with "..." if they are more than eight. is_mapping:
 * the list may be data.label_values. */
typedef struct {
    int64_t different;
    bool is_mapping;
    char list[256];
} h5_gaps_t;
/* Whether less than a quarter of the labels from 0 to the largest occur, so that they are probably no
 * class numbers. count: as above. */
bool tr_h5_labels_have_gaps(const int64_t *count, int64_t largest, h5_gaps_t *out);
/* Reads the labels of all parts as class indices to *out (owned by the caller), or sets it to NULL
 * if y holds regression targets. `classes`: data.classes. Sets info->classes and, if only a few
 * values are not labels or the labels are suspicious, sentences in *notes that info points to. Call
 * it without the lock. */
tr_status_t tr_h5_labels(h5_parts_t *parts, int64_t classes, const tr_label_values_t *values,
                         h5_scratch_t *scratch, int32_t **out, h5_label_notes_t *notes,
                         tr_dataset_info_t *info);

/* -- hdf5_dense.c ------------------------------------------------------------------------------ */

/* A y with a label or values for each position of x. */
typedef struct {
    bool is_on, is_training;         /* is_training: of the split for training, set by its owner */
    bool are_labels, channels_first; /* channels_first: in the file */
    int64_t points, channels;        /* of a sample; channels 1: none in the file, or one */
    int64_t classes;                 /* of labels; 0: not known yet */
    bool ignores;                    /* labels of value `ignored` are none */
    int64_t ignored;
    const tr_label_values_t *values; /* borrowed */
} h5_dense_t;
/* Decides by data.targets and the shapes of x (of the batch) and y whether y is of positions.
 * TR_ERR_DATA if it must be, as with data.ignore_label or data.mask, and is not. */
tr_status_t tr_h5_dense_find(const h5_parts_t *parts, const tr_data_settings_t *settings,
                             const tr_field_t *x, bool x_channels_first,
                             const tr_label_values_t *values, h5_dense_t *out);
/* Whether y holds labels, and of how many classes, from at most 64 MiB of it; `classes` and *notes as
 * for tr_h5_labels. Sets are_labels, classes and info->classes. Call it without the lock. */
tr_status_t tr_h5_dense_scan(h5_dense_t *dense, h5_parts_t *parts, int64_t classes,
                             h5_scratch_t *scratch, h5_label_notes_t *notes,
                             tr_dataset_info_t *info);
/* Reads rows [first, first + count) of the part as labels (i32, `as` does not count) or as numbers, NaN
 * where they are missing. scratch->rows has room for their y and then their mask, scratch->converted
 * for a double of each value. *out_bad: the first number that is infinite; -1: none. */
tr_status_t tr_h5_dense_read(const h5_dense_t *dense, const h5_part_t *part, h5_scratch_t *scratch,
                             int64_t first, int64_t count, tr_dtype_t as, char *out,
                             int64_t *out_bad);

/* -- hdf5_cost.c ------------------------------------------------------------------------------- */

typedef struct {
    int64_t reads;
    double amplification; /* bytes read per byte requested */
} h5_cost_t;
/* The cost of reading `rows` rows, at most all, from the start of a chunk. */
h5_cost_t tr_h5_cost(const h5_array_t *array, int64_t rows);
const char *tr_h5_way_text(const h5_array_t *array);
/* Whether rewriting the file would pay off. If so, writes the reason and the command to `text`. */
bool tr_h5_costly(const h5_array_t *array, int64_t block, char text[H5_SENTENCE_BYTES]);

#endif
