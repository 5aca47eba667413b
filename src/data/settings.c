/* The keys of section [data]. */
#include "data/data.h"

typedef tr_data_settings_t S;

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(S, format, "hdf5",
                    "Kind of data set: hdf5, synthetic, synthetic_tokens, or one that the program "
                    "registers.",
                    TR_RESUME_NOTE),
    TR_FIELD_STRING(S, train, "",
                    "Training data: FILE, FILE:GROUP, or a glob of files, which are concatenated "
                    "in the order of their names. A file with the groups train and valid or test "
                    "provides all three splits.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(S, valid, "",
                    "Validation data, in the form of data.train. Empty: the file of data.train, if "
                    "it has such a group.",
                    TR_RESUME_FREE),
    TR_FIELD_FLOAT(S, valid_fraction, "0", 0, 0.9,
                   "Fraction of the training data to hold out for validation, in segments spread "
                   "evenly over the file. An alternative to data.valid."),
    TR_FIELD_STRING(S, fold, "none",
                    "Cross-validation: k/K, such as 2/5, divides the training data into K folds, "
                    "and fold k is the validation data. Each class has the same part of every "
                    "fold. The folds do not depend on train.seed. An alternative to data.valid. A "
                    "group valid of the file is not used."),
    TR_FIELD_STRING(
        S, test, "",
        "Test data, in the form of data.train. Empty: the file of data.train, if it has such a "
        "group.",
        TR_RESUME_FREE),
    TR_FIELD_STRING(S, x, "",
                    "Name of the inputs in the file (images, data/x). Empty: the common "
                    "names are tried.",
                    TR_RESUME_NOTE),
    TR_FIELD_STRING(S, y, "",
                    "Name of the labels or targets in the file, or in NAME_y.h5 beside NAME_x.h5. "
                    "Empty: the common names are tried.",
                    TR_RESUME_NOTE),
    TR_FIELD_INT(S, batch_size, "128", 1, 1e9, "Samples per step, over all ranks."),
    TR_FIELD_AUTO_INT(S, micro_batch, "auto", 1, 1e9,
                      "Samples per forward and backward pass. batch_size must be a multiple of it. "
                      "auto: batch_size / ranks, or less if memory is short.",
                      TR_RESUME_KEEP),
    TR_FIELD_AUTO_INT(S, workers, "auto", 1, 256,
                      "Data-loading threads per rank. auto: by the number of cores per rank, at "
                      "most 4.",
                      TR_RESUME_FREE),
    TR_FIELD_INT(S, prefetch, "4", 1, 1024,
                 "Micro-batches per rank to prefetch: the minimum number that are ready or in use "
                 "at a time.",
                 TR_RESUME_FREE),
    TR_FIELD_AUTO_INT(S, block, "auto", 1, 1e12,
                      "Consecutive samples in the file that are read together. auto: about 256 "
                      "KiB, or a chunk of the file.",
                      TR_RESUME_KEEP),
    TR_FIELD_AUTO_INT(S, shuffle, "auto", 0, 1e12,
                      "Size of the shuffle buffer in samples per sample stream, in addition to "
                      "shuffling the order of blocks. 0: file order; 1: only blocks are shuffled. "
                      "auto: all samples if they fit into 64 MiB for the streams of a step.",
                      TR_RESUME_KEEP),
    TR_FIELD_ENUM(
        S, layout, "auto", "auto|nhwc|nchw|nhw",
        "Order of the dimensions of images, volumes and time series in the file. nhw: no channel "
        "dimension. auto: from the sizes; (N, A, B) are images of A x B with one channel. Time "
        "series of T steps and C channels are nhwc if stored as (N, T, C), and nchw if stored as "
        "(N, C, T).",
        TR_RESUME_NOTE),
    TR_FIELD_ENUM(
        S, targets, "auto", "auto|sample|position",
        "What y holds. sample: a label, or numbers, of each sample. position: a label, or numbers, "
        "of each position of x, as in segmentation: (N, S...) or (N, S..., K) beside x (N, S..., "
        "C) with one to three dimensions S. auto: position, if y has these dimensions, and at "
        "least three with N; else sample.",
        TR_RESUME_NOTE),
    TR_FIELD_STRING(S, ignore_label, "none",
                    "Label of positions without a class, such as 255 or -1: no loss and no score "
                    "counts them. none: every position has a class.",
                    TR_RESUME_NOTE),
    TR_FIELD_STRING(S, label_values, "",
                    "The values in y that are the classes 0, 1, 2, ..., in this order: 0,255 for "
                    "black and white masks, 1,2,3 for labels that count from 1. Each label must be "
                    "one of them, or data.ignore_label. Empty: the labels are class numbers.",
                    TR_RESUME_NOTE),
    TR_FIELD_STRING(S, mask, "",
                    "Name of a data set beside y that says which positions count: integers of the "
                    "dimensions of x without its channels. No loss and no score counts positions "
                    "where it is 0. Empty: all positions count.",
                    TR_RESUME_NOTE),
    TR_FIELD_ENUM(
        S, sample, "row", "row|file",
        "What a sample is: a row, which is an index of the first dimension of x and y, or "
        "a file: x and y then have no dimension of samples.",
        TR_RESUME_NOTE),
    TR_FIELD_ENUM(
        S, direct_io, "auto", "auto|yes|no",
        "Whether to read HDF5 files with direct I/O (O_DIRECT), bypassing the page cache. auto: if "
        "the files together exceed three quarters of the memory.",
        TR_RESUME_FREE),
    TR_FIELD_STRING(S, mean, "auto",
                    "Subtracted from the inputs: one number, or one per channel, in the units of "
                    "the file; or a file that has them: FILE:NAME (HDF5) or FILE.npy. compute: the "
                    "mean of the training data, from at most 256 MiB. auto: "
                    "the file's attribute, else 0.",
                    TR_RESUME_KEEP),
    TR_FIELD_STRING(
        S, std, "auto",
        "Divides the inputs. Values as for data.mean. auto: the file's attribute, else 1. Bytes "
        "without a known mean and std are scaled to 0..1.",
        TR_RESUME_KEEP),
    TR_FIELD_STRING(
        S, target_mean, "auto",
        "Subtracted from regression targets in the loss: one number, or one per target. auto: the "
        "mean of the training data. 0: targets are unchanged. Predictions and the scores of eval "
        "are in the units of the data.",
        TR_RESUME_KEEP),
    TR_FIELD_STRING(
        S, target_std, "auto",
        "Divides regression targets in the loss. Values as for data.target_mean. auto: the "
        "standard deviation of the training data. 1: targets are unchanged.",
        TR_RESUME_KEEP),
    TR_FIELD_AUTO_INT(S, classes, "auto", 0, 1e9,
                      "Number of classes. auto: from the labels. 0: the targets are numbers "
                      "(regression).",
                      TR_RESUME_FREE),
    TR_FIELD_INT(
        S, limit, "0", 0, 1e18,
        "Use only this many samples of the training data, and as many of the validation and the "
        "test data. 0: all."),
    TR_FIELD_BOOL(S, skip_corrupt, "no",
                  "Folders and lists of image files, for eval and predict: leaves out files that "
                  "cannot be decoded, with a warning. no: they are an error.",
                  TR_RESUME_FREE),
    TR_FIELD_INT(S, synthetic_samples, "4096", 1, 1e12,
                 "format = synthetic or synthetic_tokens: samples per epoch, or "
                 "windows of tokens."),
    TR_FIELD_STRING(S, synthetic_shape, "28x28x1",
                    "format = synthetic: shape of a sample, channels last (224x224x3).",
                    TR_RESUME_NOTE),
    TR_FIELD_INT(S, synthetic_targets, "1", 1, 4096,
                 "format = synthetic: number of regression targets if data.classes = 0.",
                 TR_RESUME_NOTE),
    TR_FIELD_FLOAT(S, rotate, "0", 0, 180,
                   "Augmentation: rotation, uniform within plus or minus this many degrees.",
                   TR_RESUME_NOTE),
    TR_FIELD_FLOAT(S, translate, "0", 0, 1,
                   "Augmentation: shift, uniform within plus or minus this fraction of the width "
                   "and height.",
                   TR_RESUME_NOTE),
    TR_FIELD_FLOAT(S, zoom, "0", 0, 0.9,
                   "Augmentation: scale, uniform within 1 plus or minus this value.",
                   TR_RESUME_NOTE),
    TR_FIELD_FLOAT(S, shear, "0", 0, 60,
                   "Augmentation: shear, uniform within plus or minus this many degrees.",
                   TR_RESUME_NOTE),
    TR_FIELD_INT(S, crop_pad, "0", 0, 4096,
                 "Augmentation: random crop of the image after padding each side by this many "
                 "pixels.",
                 TR_RESUME_NOTE),
    TR_FIELD_BOOL(S, flip, "no", "Augmentation: horizontal flip with probability 1/2.",
                  TR_RESUME_NOTE),
};

const tr_config_table_t tr_data_config = {"data", fields, TR_COUNT(fields),
                                          sizeof(tr_data_settings_t)};
