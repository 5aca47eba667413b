/* The keys of section [data]. */
#include "trainer/data.h"

typedef tr_data_settings_t S;

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(S, format, "hdf5",
                    "Kind of data set: hdf5, synthetic, synthetic_tokens, or one that the program registers.", TR_RESUME_NOTE),
    TR_FIELD_STRING(S, train, "",
                    "Training data: FILE, FILE:GROUP, or a glob of files that are joined in the order of "
                    "their names. A file "
                    "with the groups train and valid or test serves for all three.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(S, valid, "",
                    "Validation data, written as for data.train; empty: from data.train's file, where it has "
                    "such a group.",
                    TR_RESUME_FREE),
    TR_FIELD_FLOAT(S, valid_fraction, "0", 0, 0.9,
                   "Keeps this part of the training data for validation: stretches spread evenly over the "
                   "file. In place of data.valid."),
    TR_FIELD_STRING(
        S, test, "",
        "Test data, written as for data.train; empty: from data.train's file, where it has such a group.",
        TR_RESUME_FREE),
    TR_FIELD_STRING(S, x, "", "Name of the inputs in the file (images, data/x); empty: the usual names.",
                    TR_RESUME_NOTE),
    TR_FIELD_STRING(S, y, "",
                    "Name of the labels or targets in the file, or in NAME_y.h5 beside NAME_x.h5; empty: the "
                    "usual names.",
                    TR_RESUME_NOTE),
    TR_FIELD_INT(S, batch_size, "128", 1, 1e9, "Samples a step, over all ranks."),
    TR_FIELD_AUTO_INT(S, micro_batch, "auto", 1, 1e9,
                      "Samples that go through the network at once; batch_size is a multiple of it. auto: "
                      "batch_size / ranks, "
                      "less where memory is short.",
                      TR_RESUME_KEEP),
    TR_FIELD_AUTO_INT(S, workers, "auto", 1, 256,
                      "Threads a rank that read data. auto: by the rank's cores, at most 4.", TR_RESUME_FREE),
    TR_FIELD_INT(S, prefetch, "4", 1, 1024,
                 "Micro-batches a rank that are ready or in use at the same time, at least.", TR_RESUME_FREE),
    TR_FIELD_AUTO_INT(S, block, "auto", 1, 1e12,
                      "Samples that follow each other in the file and are read together. auto: about 256 "
                      "KiB, or a chunk of the file.",
                      TR_RESUME_KEEP),
    TR_FIELD_AUTO_INT(S, shuffle, "auto", 0, 1e12,
                      "Samples of a lane that are shuffled among each other, on top of the shuffled blocks. "
                      "0: file order, 1: blocks only. "
                      "auto: all of them if they fit into 64 MiB a step's lanes.",
                      TR_RESUME_KEEP),
    TR_FIELD_ENUM(
        S, layout, "auto", "auto|nhwc|nchw|nhw",
        "Order of the dimensions of images, volumes and series in the file. nhw: no channel dimension. "
        "auto: by the sizes; (N, A, B) are images of A x B with one channel. Series of T steps of C "
        "channels are nhwc if they are stored as (N, T, C), nchw if as (N, C, T).",
        TR_RESUME_NOTE),
    TR_FIELD_ENUM(
        S, direct_io, "auto", "auto|yes|no",
        "Whether inputs of HDF5 files are read past the page cache (O_DIRECT). auto: if the files are "
        "together larger than three quarters of the memory.",
        TR_RESUME_FREE),
    TR_FIELD_STRING(S, mean, "auto",
                    "Subtracted from the inputs: one number, or one for each channel, in units of the file's "
                    "values. compute: the mean of the training data, from at most 256 MiB of them. auto: the "
                    "file's attribute, else 0.",
                    TR_RESUME_KEEP),
    TR_FIELD_STRING(
        S, std, "auto",
        "The inputs are divided by it; values as for data.mean. auto: the file's attribute, else 1. "
        "Bytes for which neither mean nor std is known become 0 to 1.",
        TR_RESUME_KEEP),
    TR_FIELD_STRING(
        S, target_mean, "auto",
        "Subtracted from numbers to predict, in the loss: one number, or one for each target. auto: the "
        "mean of the training data. 0: as they are. Predictions and the scores of eval stay in units of the "
        "data.",
        TR_RESUME_KEEP),
    TR_FIELD_STRING(
        S, target_std, "auto",
        "Numbers to predict are divided by it; values as for data.target_mean. auto: the standard "
        "deviation of the training data. 1: as they are.",
        TR_RESUME_KEEP),
    TR_FIELD_AUTO_INT(S, classes, "auto", 0, 1e9,
                      "Number of classes. auto: from the labels; 0: the targets are numbers (regression).",
                      TR_RESUME_FREE),
    TR_FIELD_INT(
        S, limit, "0", 0, 1e18,
        "Use only the first so many samples of the training data, and as many of the validation and the "
        "test data; 0: all."),
    TR_FIELD_INT(S, synthetic_samples, "4096", 1, 1e12, "format = synthetic or synthetic_tokens: samples an epoch, or windows of tokens."),
    TR_FIELD_STRING(S, synthetic_shape, "28x28x1",
                    "format = synthetic: shape of a sample, channels last (224x224x3).", TR_RESUME_NOTE),
    TR_FIELD_INT(S, synthetic_targets, "1", 1, 4096,
                 "format = synthetic: numbers to predict where data.classes = 0.", TR_RESUME_NOTE),
    TR_FIELD_FLOAT(S, rotate, "0", 0, 180,
                   "Augmentation: rotation, uniform in plus or minus so many degrees.", TR_RESUME_NOTE),
    TR_FIELD_FLOAT(S, translate, "0", 0, 1,
                   "Augmentation: shift, uniform in plus or minus this part of width and height.",
                   TR_RESUME_NOTE),
    TR_FIELD_FLOAT(S, zoom, "0", 0, 0.9, "Augmentation: scale, uniform in 1 plus or minus this.",
                   TR_RESUME_NOTE),
    TR_FIELD_FLOAT(S, shear, "0", 0, 60, "Augmentation: shear, uniform in plus or minus so many degrees.",
                   TR_RESUME_NOTE),
    TR_FIELD_INT(S, crop_pad, "0", 0, 4096,
                 "Augmentation: random crop of the image padded by so many pixels on each side.",
                 TR_RESUME_NOTE),
    TR_FIELD_BOOL(S, flip, "no", "Augmentation: mirror left and right with probability 1/2.", TR_RESUME_NOTE),
};

const tr_config_table_t tr_data_config = {"data", fields, TR_COUNT(fields), sizeof(tr_data_settings_t)};
