/*
 * Data sets, the order of samples, and the loader that fills batches ahead of the training loop.
 *
 * HDF5 is called for metadata and unusual layouts, by one thread at a time (a lock in the module).
 * Plain data is read with pread.
 */
#ifndef TRAINER_DATA_H
#define TRAINER_DATA_H

#include "trainer/config.h"
#include "base/stats.h"
#include "trainer/tensor_types.h"

typedef struct tr_device tr_device_t; /* src/device/device.h */

typedef enum {
    TR_LAYOUT_AUTO,
    TR_LAYOUT_NHWC,
    TR_LAYOUT_NCHW,
    TR_LAYOUT_NHW /* all dimensions spatial, one channel */
} tr_data_layout_t;

typedef enum { TR_DIRECT_AUTO, TR_DIRECT_YES, TR_DIRECT_NO } tr_direct_io_t;

/* The keys data.*; -1 is auto. docs/config.md describes them. */
typedef struct {
    const char *format;               /* "hdf5" or a registered data set: "synthetic", ... */
    const char *train, *valid, *test; /* FILE, FILE:GROUP or a glob; "": none */
    double valid_fraction;            /* > 0: share of train, instead of valid */
    const char *x, *y;                /* names in the file; "": the usual names */
    int64_t batch_size;               /* global */
    int64_t micro_batch;
    int64_t workers;  /* loader threads per rank */
    int64_t prefetch; /* micro-batches to prefetch, per rank */
    /* samples per contiguous read; auto: 256 KiB to 1 MiB, or a chunk of the file */
    int64_t block;
    int64_t shuffle; /* samples in the shuffle buffer of a sample stream; 0: no shuffling */
    int layout;      /* tr_data_layout_t */
    int direct_io;   /* tr_direct_io_t */
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
    int64_t classes; /* auto: from the labels */
    int64_t limit;   /* use only this many samples; 0: all */
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
} tr_data_settings_t;
extern const tr_config_table_t tr_data_config;

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
typedef TR_VEC(float) tr_floats_t;

/* Optional lists of names of a data set: classes, and inputs (columns) of a table. */
enum { TR_NAMES_CLASSES, TR_NAMES_INPUTS, TR_NAMES_LISTS };
typedef struct {
    char **name; /* [count] */
    int64_t count;
    const char *from; /* source of the names, for messages; borrowed */
} tr_names_t;
/* "class_names" or "feature_names": the name of the attribute and of the key in state.json. */
const char *tr_names_key(int list);
void tr_names_free(tr_names_t *names);
/* TR_ERR_DATA if an index has different names. A shorter or missing list is not a difference. */
tr_status_t tr_names_check(int list, const tr_names_t *expected, const tr_names_t *found);

typedef struct {
    int64_t samples;
    int field_count;
    tr_field_t field[TR_DATASET_MAX_FIELDS];
    /* f32 fields that the file stores with more precision; read_exact returns the stored values */
    bool is_rounded[TR_DATASET_MAX_FIELDS];
    /* samples of x are two-dimensional in the file and assumed to be images */
    bool is_image_guessed;
    int64_t classes; /* of integer labels, or the vocabulary size; 0: regression or no labels */
    /* length of a token stream; each token but the first is a label once per epoch; 0: no stream */
    int64_t tokens;
    /* the tokenizer as JSON, NULL if unknown; valid as long as the data set */
    const char *tokenizer;
    /* a warning that y is read as regression targets although nearly all values are labels; "" */
    char label_doubt[640];
    /*
     * A sentence about a suspicious label, for errors about the number of classes: "the largest
     * label, 7, is that of sample 7 of a.h5:/y: correct it if it is wrong"; "" if there is none.
     */
    char label_note[256];
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
/* [classes], or NULL unless all classes have names. Valid as long as the data set. */
const char *const *tr_class_names(const tr_dataset_info_t *info);

typedef enum { TR_SPLIT_TRAIN, TR_SPLIT_VALID, TR_SPLIT_TEST } tr_split_t;
const char *tr_split_name(tr_split_t split); /* "train", ...; the key is "data.train" */

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
    /* Optional: opens the inputs only (prediction). NULL: `open` is used. */
    tr_status_t (*open_inputs)(const tr_data_settings_t *settings, tr_split_t split,
                               tr_dataset_t **out);
} tr_dataset_ops_t;

/* Implementations embed this as their first member. `open` sets info.samples, fields, read_unit. */
struct tr_dataset {
    const tr_dataset_ops_t *ops;
    tr_dataset_info_t info;
};
/* Registered data sets; NULL after the last. */
const tr_dataset_ops_t *tr_dataset_at(size_t index);
tr_status_t tr_dataset_register(const tr_dataset_ops_t *ops);
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

/* -- order ------------------------------------------------------------------------------------- */

/*
 * The order of samples is a pure function of the members below. A checkpoint needs to save only the
 * step.
 *
 * A step has `slots` = batch_size / micro_batch slots. Slot s draws from sample stream s. In epoch
 * e, the blocks of the data set are permuted by Philox(seed, BLOCKS, e). Stream s takes a
 * contiguous share of n_s(e) samples of the resulting sequence, where the shares of epochs 0 .. e-1
 * of stream s sum to floor((e N + s) / slots). By Hermite's identity the streams together take
 * every sample exactly once per epoch, and their lengths never differ by more than one sample. A
 * stream is the concatenation of its shares; within a share, windows of `shuffle` samples are
 * permuted by Philox(seed, WINDOW, stream, epoch, window). Ranks take ranges of slots, so the order
 * does not depend on the number of ranks.
 */
typedef struct {
    uint64_t seed;
    int64_t samples, batch_size, micro_batch, block, shuffle; /* resolved, no -1 */
} tr_sampler_t;
/*
 * Fills *out. data.block and data.shuffle are resolved from the data, the batch and the micro-batch
 * only. TR_ERR_CONFIG if batch_size is not a multiple of micro_batch.
 */
tr_status_t tr_sampler_init(const tr_data_settings_t *settings, const tr_dataset_info_t *info,
                            uint64_t seed, int64_t batch_size, int64_t micro_batch,
                            tr_sampler_t *out);
int64_t tr_sampler_slots(const tr_sampler_t *order);
/*
 * Returns the epoch of a position (samples drawn by stream `slot` so far), the first position of
 * that epoch and that of the next.
 */
int64_t tr_sampler_epoch(const tr_sampler_t *order, int64_t slot, int64_t position,
                         int64_t *out_first, int64_t *out_next);
/*
 * Sample ids at positions [position, position + count) of stream `slot`. For tools and tests: it
 * computes the permutation of every window again.
 */
tr_status_t tr_sampler_samples(const tr_sampler_t *order, int64_t slot, int64_t position,
                               int64_t count, int64_t *out_ids);

/* A shuffle window: consecutive positions of a stream whose samples are shuffled together. */
typedef struct {
    int64_t slot, epoch, index; /* index of the window in the stream's share of the epoch */
    int64_t first, count;       /* positions in the stream */
    int64_t sequence;           /* first position in the epoch's sequence of samples */
} tr_sampler_window_t;
void tr_sampler_window(const tr_sampler_t *order, int64_t slot, int64_t position,
                       tr_sampler_window_t *out);
int64_t tr_sampler_window_max(const tr_sampler_t *order); /* count of the longest window */
/* Whether windows are permuted. */
bool tr_sampler_shuffles(const tr_sampler_t *order);
/* out_place[i], i < window->count: the position in the window of the i-th sample of the sequence.
 * */
void tr_sampler_permutation(const tr_sampler_t *order, const tr_sampler_window_t *window,
                            int64_t *out_place);
/*
 * The sample at position `sequence` of the epoch's sequence, and the length of the run of
 * consecutive samples of the data set that starts with it.
 */
void tr_sampler_run(const tr_sampler_t *order, int64_t epoch, int64_t sequence, int64_t *out_sample,
                    int64_t *out_count);
/* Rank `rank` of `size` takes slots [first, first + count). */
void tr_sampler_slots_of_rank(int64_t slots, int rank, int size, int64_t *out_first,
                              int64_t *out_count);

/* -- loader ------------------------------------------------------------------------------------ */

typedef struct {
    tr_sampler_t order;
    int64_t first_slot, slot_count; /* of this rank */
    int64_t first_step;             /* nonzero on resume */
    /*
     * One pass over the first order.samples samples in file order. Micro-batch m goes to slot
     * m mod slots; the last ones are padded with samples of weight 0.
     */
    bool evaluation;
    int workers, prefetch; /* resolved */
} tr_loader_params_t;

/*
 * One micro-batch in pinned host memory, valid until released. At most `prefetch` may be held at a
 * time, and at most ceil(prefetch / slot_count) of one slot.
 */
typedef struct {
    int64_t step, slot;
    int64_t epoch;   /* of its first sample */
    bool ends_epoch; /* holds the last sample of an epoch of its stream */
    int64_t valid;   /* number of samples; the rest is padding (evaluation) */
    int field_count;
    void *field[TR_DATASET_MAX_FIELDS]; /* (micro_batch, sample shape) */
    int64_t *sample_id;                 /* (micro_batch): index in the data set; -1 for padding */
    float *weight;                      /* (micro_batch): 1; 0 for padding or no label */
    int ring;                           /* index in the ring; each index has fixed addresses */
} tr_batch_t;

typedef struct tr_loader tr_loader_t;
/* Starts reading at once. dataset and device are borrowed. */
tr_status_t tr_loader_create(tr_dataset_t *dataset, tr_device_t *device,
                             const tr_loader_params_t *params, tr_loader_t **out);
void tr_loader_destroy(tr_loader_t **loader);
/* The number of workers: data.workers, or if auto, from the number of cores of a rank. */
int tr_loader_workers(const tr_data_settings_t *settings, int cores);
/*
 * Waits for the next micro-batch, ordered by step, then slot. *out is NULL at the end of an
 * evaluation pass, in which every rank gets the same number of micro-batches; some may be padding
 * only.
 */
tr_status_t tr_loader_next(tr_loader_t *loader, tr_batch_t **out);
/* Starts another evaluation pass with the same memory and threads. The previous pass must have
 * ended, with all of its micro-batches released. */
tr_status_t tr_loader_restart(tr_loader_t *loader);
/* In any order. Memory is reused once the earlier micro-batches of its stream are released too. */
tr_status_t tr_loader_release(tr_loader_t *loader, tr_batch_t *batch);
/* Total time that tr_loader_next has waited. */
double tr_loader_stall_sec(const tr_loader_t *loader);
/* Host memory of the ring and the shuffle windows. */
size_t tr_loader_bytes(const tr_loader_t *loader);

#endif
