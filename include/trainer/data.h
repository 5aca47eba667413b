/*
 * Data: data sets, the order of samples, and the loader that fills batches ahead of the training
 * loop.
 *
 * Only one thread at a time calls HDF5 (a lock in the module), for metadata and unusual layouts;
 * plain data is read with pread.
 */
#ifndef TRAINER_DATA_H
#define TRAINER_DATA_H

#include "trainer/config.h"
#include "trainer/stats.h"
#include "trainer/tensor_types.h"

typedef struct tr_device tr_device_t; /* src/device/device.h */

typedef enum {
    TR_LAYOUT_AUTO,
    TR_LAYOUT_NHWC,
    TR_LAYOUT_NCHW,
    TR_LAYOUT_NHW /* all dimensions spatial, one channel */
} tr_data_layout_t;

typedef enum { TR_DIRECT_AUTO, TR_DIRECT_YES, TR_DIRECT_NO } tr_direct_io_t;

/*
 * data.*: train, valid, test, x, y, batch_size, micro_batch, workers, prefetch, block, shuffle,
 * layout, mean, std, classes, ...
 */
typedef struct {
    const char *format;               /* "hdf5" or a registered data set: "synthetic", ... */
    const char *train, *valid, *test; /* FILE, FILE:GROUP, a glob; "" none */
    double valid_fraction;            /* > 0: of train, instead of valid */
    const char *x, *y;                /* names in the file; "": the common names */
    int64_t batch_size;               /* global */
    int64_t micro_batch;              /* -1 auto */
    int64_t workers;                  /* loader threads per rank; -1 auto */
    int64_t prefetch;                 /* micro-batches to prefetch, per rank */
    /* samples that are read together; -1 auto: 256 KiB to 1 MiB, or a chunk of the file */
    int64_t block;
    /* shuffle buffer of a sample stream, in samples; -1 auto; 0: no shuffling */
    int64_t shuffle;
    int layout;    /* tr_data_layout_t */
    int direct_io; /* tr_direct_io_t */
    /*
     * Of inputs, in units of the file's values: numbers, one or one for each channel; "compute": of
     * the training data; "auto": the data's own (attributes), else none.
     */
    const char *mean, *std;
    /*
     * Of regression targets: numbers, or "auto", "compute": of the training data; "0" and "1":
     * unchanged.
     */
    const char *target_mean, *target_std;
    int64_t classes; /* -1 auto: from the labels */
    int64_t limit;   /* use only this many samples; 0: all */
    /* synthetic */
    int64_t synthetic_samples;
    const char *synthetic_shape; /* "28x28x1" */
    int64_t synthetic_targets;   /* number of regression targets if classes = 0 */
    /* augmentation, training only */
    double rotate, translate, zoom, shear;
    int64_t crop_pad;
    bool flip;
    /* no key: tokens of a window, for a model of tokens; 0: for another model */
    int64_t context;
    int64_t vocab_size; /* no key: of a model of tokens; 0: as the data say */
} tr_data_settings_t;
extern const tr_config_table_t tr_data_config;

/* -- data sets --------------------------------------------------------------------------------- */

#define TR_DATASET_MAX_FIELDS 8
/* The kind of values in a field, independent of its name. docs/embedding.md has a table. */
typedef enum {
    TR_FIELD_VALUES, /* inputs (u8, i8, u16, i16, i32, f32), or regression targets (f32) */
    TR_FIELD_LABELS, /* i32: classes or tokens to predict; -1: none */
    TR_FIELD_TOKENS  /* i32: ids, never normalised or converted */
} tr_field_kind_t;

typedef struct {
    char name[32]; /* "x", "y" */
    /*
     * type in a batch: that of the file if a kernel supports it (u8, i16, u16, i32, f32, ...), in
     * native byte order; labels: i32
     */
    tr_dtype_t dtype;
    /*
     * of one sample: images (H, W, C) whatever the file has; a label: scalar (ndim 0); tokens, and
     * the labels of tokens: (T)
     */
    tr_shape_t shape;
    int64_t sample_bytes;
    tr_field_kind_t kind;
} tr_field_t;

/* One number for all channels, or one per channel. {0}: none. */
typedef TR_VEC(float) tr_floats_t;

/* Lists of names that a data set may have. */
enum { TR_NAMES_CLASSES, TR_NAMES_INPUTS /* of a table */, TR_NAMES_LISTS };
typedef struct {
    char **name; /* [count] */
    int64_t count;
    const char *from; /* whose they are, for messages; borrowed */
} tr_names_t;
/* "class_names", "feature_names": of the attribute, and of state.json */
const char *tr_names_key(int list);
void tr_names_free(tr_names_t *names);
/* TR_ERR_DATA if one index has two names. A shorter or missing list is not a difference. */
tr_status_t tr_names_check(int list, const tr_names_t *expected, const tr_names_t *found);

typedef struct {
    int64_t samples;
    int field_count;
    tr_field_t field[TR_DATASET_MAX_FIELDS];
    /* fields of f32 that are stored with more bits, which read_exact tells */
    bool is_rounded[TR_DATASET_MAX_FIELDS];
    /* samples of x have two dimensions in the file, and nothing says what they are */
    bool is_image_guessed;
    int64_t classes; /* of integer labels; 0: regression or none; of tokens: the vocabulary */
    /* of a stream of tokens: how many; each but the first is a label once an epoch; 0: no stream */
    int64_t tokens;
    /* of the tokens, as JSON; NULL: not known. Valid as long as the data set */
    const char *tokenizer;
    char label_doubt
        /* y is taken for numbers, but nearly all of it are labels: a sentence; "" no doubt */
        [640];
    /*
     * A sentence on labels that may be wrong, for an error about the number of classes: "the
     * largest label, 7, is that of sample 7 of a.h5:/y: correct it if it is wrong"; "" none.
     */
    char label_note[256];
    /* What the data say of x, in units of its values: none, one number for all channels, or one for
     * each (the last dimension). Owned by the data set. */
    tr_floats_t mean, std;
    /* of names, shapes, sizes, times: tells whether a checkpoint's data are these */
    uint64_t fingerprint;
    /* samples that are best read together (a chunk that must be decoded whole); 1: any number */
    int64_t read_unit;
    char description[256];            /* "mnist.h5:/train, x u8 (28, 28, 1) contiguous, pread" */
    tr_names_t names[TR_NAMES_LISTS]; /* owned by the data set */
} tr_dataset_info_t;
/* [classes], or NULL where there are not as many names. Valid as long as the data set. */
const char *const *tr_class_names(const tr_dataset_info_t *info);

typedef enum { TR_SPLIT_TRAIN, TR_SPLIT_VALID, TR_SPLIT_TEST } tr_split_t;
const char *tr_split_name(tr_split_t split); /* "train", ...; its key is "data.train" */

typedef struct tr_dataset tr_dataset_t;
typedef struct {
    const char *name, *help;
    /* *out is NULL with TR_OK where the split is not given. */
    tr_status_t (*open)(const tr_data_settings_t *settings, tr_split_t split, tr_dataset_t **out);
    void (*close)(tr_dataset_t *dataset);
    /*
     * Reads samples [first, first + count) of each field f into dst[f] (count * sample_bytes,
     * dense; NULL: not wanted). Thread-safe. Bad content (NaN where finite is needed, label out of
     * range) is TR_ERR_DATA naming file, field and sample. Labels (a field of the kind
     * TR_FIELD_LABELS) are from 0 to classes - 1, or -1 for none. The loader looks at them once
     * more, and refuses others. Of one label a sample, -1 gives it the weight 0: it is no part of
     * losses, gradients and scores, and a step's loss and gradient are means over its samples that
     * have one, of all micro-batches and ranks; where none has, the gradient is 0. Batch
     * normalisation sees all samples.
     */
    tr_status_t (*read)(tr_dataset_t *dataset, int64_t first, int64_t count, void *const *dst);
    /*
     * Optional: these samples will be read soon, so the system may fetch them meanwhile.
     * Thread-safe; does not wait.
     */
    void (*expect)(tr_dataset_t *dataset, int64_t first, int64_t count);
    /* Where fields are rounded: as read, of field `field` alone, in doubles. */
    tr_status_t (*read_exact)(tr_dataset_t *dataset, int field, int64_t first, int64_t count,
                              double *dst);
    /* Optional: as open, for inputs alone (prediction); NULL: open serves. */
    tr_status_t (*open_inputs)(const tr_data_settings_t *settings, tr_split_t split,
                               tr_dataset_t **out);
} tr_dataset_ops_t;

/*
 * Implementations embed this as their first member; info.samples, fields and read_unit are set when
 * open returns.
 */
struct tr_dataset {
    const tr_dataset_ops_t *ops;
    tr_dataset_info_t info;
};
const tr_dataset_ops_t *
tr_dataset_at(size_t index); /* of the registered ones; NULL after the last */
tr_status_t tr_dataset_register(const tr_dataset_ops_t *ops);
/* To TR_F32 or TR_F64; from any type but bf16. in and out do not overlap. */
void tr_convert(tr_dtype_t from, const void *in, int64_t elems, tr_dtype_t to, void *out);
/* Adds `count` values, whole rows of `width`, to stats[width], in doubles a few at a time. */
void tr_stats_add_values(tr_stats_t *stats, int64_t width, tr_dtype_t dtype, const void *values,
                         int64_t count);
/*
 * The same of `pieces` segments of up to `rows` samples of a field, spread evenly over the data
 * set, before 32-bit floats round them. *read_sec grows by the time that reading takes; NULL: not
 * wanted.
 */
tr_status_t tr_dataset_stats(tr_dataset_t *dataset, int field, int64_t pieces, int64_t rows,
                             int64_t width, tr_stats_t *stats, double *read_sec);
/* Statistics of a field for each channel (its last dimension). */
typedef struct {
    int64_t channels, samples; /* samples: that were read */
    tr_stats_t *of;            /* [channels]; tr_free */
    double read_sec;
} tr_sample_stats_t;
/*
 * Of at most `bytes` of the field (but at least one sample), in up to `pieces` segments spread
 * evenly over the data set; reading ends early after `most_sec` (INFINITY: never). Not collective.
 * `out->of` is freed by the caller, also when this fails.
 */
tr_status_t tr_dataset_sample(tr_dataset_t *dataset, int field, int64_t bytes, int64_t pieces,
                              double most_sec, tr_sample_stats_t *out);
/* The index of the field `name`, -1: there is none; and its last dimension, 1 for a scalar. */
int tr_field_find(const tr_dataset_info_t *info, const char *name);
int64_t tr_field_channels(const tr_field_t *field);
/*
 * "taken as images of 28 x 28 with one channel; ...": of data so guessed, and how to say what they
 * are. Returns `text`.
 */
const char *tr_image_guess_text(const tr_shape_t *shape, char text[256]);
/*
 * Whether 32-bit floats round inputs, or regression targets, away in one of `count` columns; then
 * `text` says it, and what to do.
 */
bool tr_is_rounded_away(const tr_stats_t *stats, int64_t count, bool are_targets, char text[640]);
/*
 * Not collective: each rank opens; only metadata is read. NULL with TR_OK where the split is not
 * given.
 */
tr_status_t tr_dataset_open(const tr_data_settings_t *settings, tr_split_t split,
                            tr_dataset_t **out);
/* The same for inputs alone: labels or targets are neither looked for nor read. */
tr_status_t tr_dataset_open_inputs(const tr_data_settings_t *settings, tr_split_t split,
                                   tr_dataset_t **out);
void tr_dataset_close(tr_dataset_t **dataset);

/* -- order ------------------------------------------------------------------------------------- */

/*
 * Which sample stands where: a pure function, so that nothing has to be saved but the step.
 *
 * A step has `slots` = batch_size / micro_batch slots. Slot s draws from stream s. In epoch e the
 * data set's blocks are permuted by Philox(seed, BLOCKS, e); of the sequence of samples that
 * results, stream s takes a contiguous share of n_s(e) samples, where the shares of epochs 0 .. e-1
 * of stream s sum to floor((e N + s) / slots) (Hermite's identity: all streams together take every
 * sample exactly once an epoch, and streams never differ by more than one sample). A stream is
 * the concatenation of its shares; inside a share, windows of `shuffle` samples are permuted by
 * Philox(seed, WINDOW, stream, epoch, window). Ranks take ranges of slots, so the order depends on
 * no rank count.
 */
typedef struct {
    uint64_t seed;
    int64_t samples, batch_size, micro_batch, block, shuffle; /* resolved, no -1 */
} tr_sampler_t;
/*
 * Fills *out, with data.block and data.shuffle resolved from the data, batch and micro-batch alone.
 * TR_ERR_CONFIG where batch_size is no multiple of micro_batch.
 */
tr_status_t tr_sampler_init(const tr_data_settings_t *settings, const tr_dataset_info_t *info,
                            uint64_t seed, int64_t batch_size, int64_t micro_batch,
                            tr_sampler_t *out);
int64_t tr_sampler_slots(const tr_sampler_t *order);
/*
 * Epoch of position `position` (samples drawn by stream `slot` so far), and the first position of
 * that epoch and of the next.
 */
int64_t tr_sampler_epoch(const tr_sampler_t *order, int64_t slot, int64_t position,
                         int64_t *out_first, int64_t *out_next);
/*
 * Sample ids at the positions [position, position + count) of stream `slot`. For tools and tests:
 * shuffles each window touched anew.
 */
tr_status_t tr_sampler_samples(const tr_sampler_t *order, int64_t slot, int64_t position,
                               int64_t count, int64_t *out_ids);

/*
 * A stream in pieces, as the loader fills it: a window holds the samples that are shuffled
 * among each other.
 */
typedef struct {
    int64_t slot, epoch, index; /* index of the window in the stream's share of the epoch */
    int64_t first, count;       /* positions of the stream */
    int64_t sequence;           /* where in the epoch's sequence of samples it begins */
} tr_sampler_window_t;
void tr_sampler_window(const tr_sampler_t *order, int64_t slot, int64_t position,
                       tr_sampler_window_t *out);
int64_t tr_sampler_window_max(const tr_sampler_t *order); /* the longest window's count */
/* false: a window's order is the sequence's */
bool tr_sampler_shuffles(const tr_sampler_t *order);
/* out_place[i] (window->count): where in the window the i-th sample of the sequence stands. */
void tr_sampler_permutation(const tr_sampler_t *order, const tr_sampler_window_t *window,
                            int64_t *out_place);
/*
 * The sample at place `sequence` of the epoch's sequence, and how many follow it in the data set's
 * own order, itself included.
 */
void tr_sampler_run(const tr_sampler_t *order, int64_t epoch, int64_t sequence, int64_t *out_sample,
                    int64_t *out_count);
/* Ranges of slots: rank r of `size` takes [first, first + count). */
void tr_sampler_slots_of_rank(int64_t slots, int rank, int size, int64_t *out_first,
                              int64_t *out_count);

/* -- loader ------------------------------------------------------------------------------------ */

typedef struct {
    tr_sampler_t order;
    int64_t first_slot, slot_count; /* this rank's */
    int64_t first_step;             /* where to begin (resume) */
    /*
     * The first order.samples samples in file order, once; slots in turn: micro-batch m of the pass
     * goes to slot m mod slots; the tail is padding, of weight 0
     */
    bool evaluation;
    int workers, prefetch; /* resolved */
} tr_loader_params_t;

/*
 * One micro-batch in pinned host memory; valid until released. Several may be held: at most
 * `prefetch`, and of one slot prefetch / slot_count, rounded up, for which it has room.
 */
typedef struct {
    int64_t step, slot;
    int64_t epoch;   /* of its first sample */
    bool ends_epoch; /* holds the last sample of an epoch of its stream */
    int64_t valid;   /* samples; the rest is padding (evaluation) */
    int field_count;
    void *field[TR_DATASET_MAX_FIELDS]; /* (micro_batch, sample shape) */
    int64_t *sample_id;                 /* (micro_batch): index in the data set; -1 padding */
    float *weight;                      /* (micro_batch): 1; 0 padding, or without a label */
    /* index in the ring; the addresses of an index never change */
    int ring;
} tr_batch_t;

typedef struct tr_loader tr_loader_t;
/* dataset and device are borrowed. Starts reading at once. */
tr_status_t tr_loader_create(tr_dataset_t *dataset, tr_device_t *device,
                             const tr_loader_params_t *params, tr_loader_t **out);
void tr_loader_destroy(tr_loader_t **loader);
/* Workers for this many cores of a rank, where data.workers is auto. */
int tr_loader_workers(const tr_data_settings_t *settings, int cores);
/*
 * The next micro-batch, in the order step, slot; waits for it. *out is NULL at the end of an
 * evaluation pass. Evaluation: every rank gets the same number of micro-batches (those beyond the
 * data are all padding).
 */
tr_status_t tr_loader_next(tr_loader_t *loader, tr_batch_t **out);
/* Begins an evaluation pass again, with the same memory and threads. The pass is at its end, and all
 * of its micro-batches are released. */
tr_status_t tr_loader_restart(tr_loader_t *loader);
/* In any order; the memory is filled again once the stream's earlier ones are released too. */
tr_status_t tr_loader_release(tr_loader_t *loader, tr_batch_t *batch);
/* time that tr_loader_next has waited, in all */
double tr_loader_stall_sec(const tr_loader_t *loader);
size_t tr_loader_bytes(const tr_loader_t *loader); /* host memory of ring and windows */

#endif
