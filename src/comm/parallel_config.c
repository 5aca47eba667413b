/* The keys of [parallel]. */
#include "comm/comm.h"

static const tr_config_field_t fields[] = {
    TR_FIELD_ENUM(
        tr_parallel_settings_t, engine, "auto", "auto|nccl|thread|poll",
        "Engine that reduces the gradients. nccl: NCCL, on the device. thread: shared memory "
        "or MPI in a communication thread, which needs a core of its own. poll: the same in "
        "the computing thread, between ops. auto: the first of these that all ranks support.",
        TR_RESUME_FREE),
    TR_FIELD_BOOL(tr_parallel_settings_t, reproducible, "no",
                  "Sum gradients in a fixed tree over micro-batches, so that results are "
                  "bit-identical for any number of ranks. This costs memory and time.",
                  TR_RESUME_FREE),
    TR_FIELD_ENUM(
        tr_parallel_settings_t, zero, "none", "none|1|2",
        "Stage of ZeRO: what ranks share instead of each having all of it. none: nothing. 1: the "
        "optimizer's state, the moving average of the weights and, in half precision, the fp32 "
        "weights: each rank has a part of them and updates its part. 2: the gradients, too, with "
        "as many micro-batches on each rank, and not with parallel.reproducible. Checkpoints are "
        "the same, and can be resumed with any value on any number of ranks.",
        TR_RESUME_FREE),
    TR_FIELD_DURATION(tr_parallel_settings_t, timeout, TR_PARALLEL_TIMEOUT, TR_PARALLEL_TIMEOUT_MIN,
                      TR_PARALLEL_TIMEOUT_MAX,
                      "How long communication may make no progress before the run ends with code "
                      "75. MPI itself starts before the configuration is read: there the limit is "
                      "TRAINER_PARALLEL_TIMEOUT or the default.",
                      TR_RESUME_FREE),
    TR_FIELD_BYTES(tr_parallel_settings_t, bucket_first, "1M", 1, 1 << 30,
                   "Bytes of gradients in the bucket that is reduced first. A small bucket starts "
                   "communication early.",
                   TR_RESUME_FREE),
    TR_FIELD_BYTES(tr_parallel_settings_t, bucket, "25M", 1, 1 << 30,
                   "Bytes of gradients in each further bucket.", TR_RESUME_FREE),
    TR_FIELD_ENUM(tr_parallel_settings_t, windows, "auto", "auto|on|off",
                  "NCCL's symmetric windows: the gradients are registered with all ranks, which "
                  "makes all-reduces in a node faster. auto: off, because they have not run on a "
                  "real node with several GPUs yet. NCCL 2.28 to 2.31.1 failed or hung with them "
                  "(vllm#28901, nccl#2241). NCCL_WIN_ENABLE=0 turns them off in NCCL itself.",
                  TR_RESUME_FREE),
    TR_FIELD_BOOL(tr_parallel_settings_t, overlap, "yes",
                  "Reduce a bucket while the backward pass computes the next ones.",
                  TR_RESUME_FREE),
    TR_FIELD_INT(
        tr_parallel_settings_t, check, "1000", 0, INT64_MAX,
        "Steps after which the ranks compare their weights, moments of batch normalisation and "
        "optimizer states, which must be the same bits on all of them. They also compare them "
        "before each checkpoint. A difference ends the run before a checkpoint of it is written: "
        "with code 75, or with 70 if it comes back. 0: they are never compared.",
        TR_RESUME_FREE),
};

const tr_config_table_t tr_parallel_config = {"parallel", fields, TR_COUNT(fields),
                                              sizeof(tr_parallel_settings_t)};
