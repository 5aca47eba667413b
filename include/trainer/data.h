/*
 * Data sets of an embedding program. Not collective.
 */
#ifndef TRAINER_DATA_H
#define TRAINER_DATA_H

#include "trainer/status.h"
#include "trainer/tensor_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    TR_LAYOUT_AUTO,
    TR_LAYOUT_NHWC,
    TR_LAYOUT_NCHW,
    TR_LAYOUT_NHW /* all dimensions spatial, one channel */
} tr_data_layout_t;

/* What y holds: labels or targets of a sample, or of each position of x. */
typedef enum { TR_TARGETS_AUTO, TR_TARGETS_SAMPLE, TR_TARGETS_POSITION } tr_data_targets_t;

/* What a sample of an HDF5 file is. */
typedef enum {
    TR_SAMPLE_ROW, /* of the first dimension of x and y */
    TR_SAMPLE_FILE /* all of x and y */
} tr_data_sample_t;

typedef enum { TR_DIRECT_AUTO, TR_DIRECT_YES, TR_DIRECT_NO } tr_direct_io_t;

/* The keys data.*; -1 is auto. docs/config.md describes them. */
typedef struct {
    const char *format;               /* "hdf5" or a registered data set: "synthetic", ... */
    const char *train, *valid, *test; /* FILE, FILE:GROUP or a glob; "": none */
    double valid_fraction;            /* > 0: share of train, instead of valid */
    const char *fold;                 /* "2/5": fold 2 of 5 of train instead of valid; or "none" */
    const char *x, *y;                /* names in the file; "": the usual names */
    int64_t batch_size;               /* global */
    int64_t micro_batch;
    int64_t workers;  /* loader threads per rank */
    int64_t prefetch; /* micro-batches to prefetch, per rank */
    /* samples per contiguous read; auto: 256 KiB to 1 MiB, or a chunk of the file */
    int64_t block;
    int64_t shuffle; /* samples in the shuffle buffer of a sample stream; 0: no shuffling */
    int layout;      /* tr_data_layout_t */
    int sample;      /* tr_data_sample_t */
    int direct_io;   /* tr_direct_io_t */
    int targets;     /* tr_data_targets_t */
    const char *ignore_label; /* label of positions without one; "none" */
    const char *label_values; /* "0,255": labels that are the classes 0 and 1; "": class numbers */
    const char *mask;         /* name in the file: positions that count; "": all */
    /*
     * Mean and std of the inputs, in units of the file's values: one number or one per channel;
     * "compute": from the training data; "auto": the attributes of the data set, if any.
     */
    const char *mean, *std;
    /*
     * Mean and std of regression targets: numbers; "auto" or "compute": from the training data.
     * Mean 0 and std 1 leave the targets unchanged.
     */
    const char *target_mean, *target_std;
    bool skip_corrupt; /* image files that cannot be decoded are left out */
    int64_t classes;   /* auto: from the labels */
    int64_t limit;     /* use only this many samples; 0: all */
    /* synthetic */
    int64_t synthetic_samples;
    const char *synthetic_shape; /* "28x28x1" */
    int64_t synthetic_targets;   /* number of regression targets if classes = 0 */
    /* augmentation, training only */
    double rotate, translate, zoom, shear;
    int64_t crop_pad;
    bool flip;
    /* Not keys, set from the model: */
    int64_t context;    /* tokens per sample of a language model; 0: not a language model */
    int64_t vocab_size; /* of a language model; 0: from the data */
    bool is_again;      /* the training data once more, for validation: it has given its warnings */
    /* The preprocessing of trained weights, by which tables and image files are read. Borrowed; NULL:
     * none. */
    const struct tr_preprocess *trained;
} tr_data_settings_t;

/* -- data sets --------------------------------------------------------------------------------- */

#define TR_DATASET_MAX_FIELDS 8
/* The kind of the values in a field, independent of its name. See the table in docs/embedding.md.
 * */
typedef enum {
    TR_FIELD_VALUES, /* inputs (u8, i8, u16, i16, i32, f32), or regression targets (f32) */
    TR_FIELD_LABELS, /* i32: classes or tokens to predict; -1: no label */
    TR_FIELD_TOKENS  /* i32: token ids, never normalised or converted */
} tr_field_kind_t;

typedef struct {
    char name[32]; /* "x", "y" */
    /*
     * Type in a batch: the file's type if a kernel supports it (u8, i16, u16, i32, f32, ...), in
     * native byte order. Labels are i32.
     */
    tr_dtype_t dtype;
    /*
     * Shape of one sample: images (H, W, C) for any file layout; a label () with ndim 0; tokens and
     * their labels (T).
     */
    tr_shape_t shape;
    int64_t sample_bytes;
    tr_field_kind_t kind;
} tr_field_t;

/* One number for all channels, or one per channel; {0}: none. */
typedef struct {
    float *data; /* [count] */
    size_t count, capacity;
} tr_floats_t;

/* Optional lists of names of a data set: classes, and inputs (columns) of a table. */
enum { TR_NAMES_CLASSES, TR_NAMES_INPUTS, TR_NAMES_LISTS };
typedef struct {
    char **name; /* [count] */
    int64_t count;
    const char *from; /* source of the names, for messages; borrowed */
} tr_names_t;
typedef struct {
    int64_t samples;
    int field_count;
    tr_field_t field[TR_DATASET_MAX_FIELDS];
    /* fields that the file stores with more precision than f32, packed, or with missing values;
     * read_exact returns the exact values, NaN for missing ones */
    bool is_rounded[TR_DATASET_MAX_FIELDS];
    /* x may have missing values, which is_rounded[] includes: set_fill says what they become */
    bool has_missing;
    /* y has labels (S...) or numbers (S..., K) for each position of x (S..., C); numbers may be NaN,
     * which no loss and no score counts */
    bool is_dense;
    bool is_file_each; /* each sample is a file: to open it costs more than to read a small one */
    /* samples of x are two-dimensional in the file and assumed to be images */
    bool is_image_guessed;
    int64_t classes; /* of integer labels, or the vocabulary size; 0: regression or no labels */
    /* The data, or data.classes = 0, say that y has numbers to predict: no warning doubts it */
    bool is_regression;
    /* length of a token stream; each token but the first is a label once per epoch; 0: no stream */
    int64_t tokens;
    /* the tokenizer as JSON, NULL if unknown; valid as long as the data set */
    const char *tokenizer;
    /* how the columns of the imported table became inputs, as JSON; NULL: no table; as above */
    const char *columns;
    /* Texts that predictions carry along, such as ids: `text_count` columns, named text_name, with
     * texts text[sample * text_count + column]. Valid as long as the data set. */
    int64_t text_count;
    const char *const *text_name, *const *text;
    /*
     * Sentences for the user, valid as long as the data set; NULL if there is none. label_doubt: a
     * warning that y is probably not what it is read as.
     * label_note: for errors about the number of classes: "the largest label, 7, is that of sample 7
     * of a.h5:/y: correct it if it is wrong". label_shares: "0 (255): 75 %, 1 (0): 25 %", the part of
     * each class in labels of positions or of data.label_values, as far as they were read.
     */
    const char *label_doubt, *label_note, *label_shares;
    bool counts_from_1; /* the smallest label is 1, as label_note says */
    bool is_sorted;     /* labels that follow each other are mostly equal */
    bool is_one_hot;    /* the labels are one-hot rows of `classes` values */
    /* [classes]: how often each class occurs; NULL: unknown. Valid as long as the data set. */
    const int64_t *label_count;
    /* Mean and std of x recorded in the data, in units of its values: none, one number for all
     * channels, or one per channel (last dimension). Owned by the data set. */
    tr_floats_t mean, std;
    /* hash of names, shapes, sizes and times; identifies the data of a checkpoint */
    uint64_t fingerprint;
    /* efficient read size in samples (a compressed chunk); 1: any */
    int64_t read_unit;
    char description[256];            /* "mnist.h5:/train, x u8 (28, 28, 1) contiguous, pread" */
    tr_names_t names[TR_NAMES_LISTS]; /* owned by the data set */
} tr_dataset_info_t;
typedef enum { TR_SPLIT_TRAIN, TR_SPLIT_VALID, TR_SPLIT_TEST } tr_split_t;
typedef struct tr_dataset tr_dataset_t;
typedef struct {
    const char *name, *help;
    /* Returns TR_OK with *out NULL if the split is not set. */
    tr_status_t (*open)(const tr_data_settings_t *settings, tr_split_t split, tr_dataset_t **out);
    void (*close)(tr_dataset_t *dataset);
    /*
     * Reads samples [first, first + count) of each field f into dst[f] (count * sample_bytes,
     * dense; NULL: skip the field). Thread-safe. Invalid content (NaN in data that must be finite,
     * label out of range) is TR_ERR_DATA with file, field and sample.
     *
     * Labels (TR_FIELD_LABELS) are 0 to classes - 1, or -1 for no label. The loader checks them
     * again. If samples have one label each, a sample with label -1 has weight 0: it does not enter
     * losses, gradients or scores. Loss and gradient of a step are means over its labelled samples
     * of all micro-batches and ranks; without any, the gradient is 0. Batch normalisation uses all
     * samples.
     */
    tr_status_t (*read)(tr_dataset_t *dataset, int64_t first, int64_t count, void *const *dst);
    /* Optional hint: these samples will be read soon. Thread-safe; does not block. */
    void (*expect)(tr_dataset_t *dataset, int64_t first, int64_t count);
    /* For data sets with is_rounded fields: reads one field as doubles. */
    tr_status_t (*read_exact)(tr_dataset_t *dataset, int field, int64_t first, int64_t count,
                              double *dst);
    /*
     * For data sets with has_missing: missing values of x become `mean`, one number for all
     * channels, or one per channel; none: 0. Copied. Not while samples are read.
     */
    tr_status_t (*set_fill)(tr_dataset_t *dataset, const tr_floats_t *mean);
    /* Optional: opens the inputs only (prediction). NULL: `open` is used. */
    tr_status_t (*open_inputs)(const tr_data_settings_t *settings, tr_split_t split,
                               tr_dataset_t **out);
} tr_dataset_ops_t;

/* Implementations embed this as their first member. `open` sets info.samples, fields, read_unit. */
struct tr_dataset {
    const tr_dataset_ops_t *ops;
    tr_dataset_info_t info;
};
/* ops is borrowed and must outlive every use. TR_ERR_CONFIG if the name is already registered. */
tr_status_t tr_dataset_register(const tr_dataset_ops_t *ops);

#ifdef __cplusplus
}
#endif

#endif
