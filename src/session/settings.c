/* The key tables of src/session, and the list of all tables of the program. */
#include "settings.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "data/data.h"
#include "model/model.h"
#include "monitor/recorder.h"
#include "optim/optim.h"
#include "profile/profiler.h"
#include "run/run.h"
#include "trainer/session.h"

static const tr_config_field_t train_fields[] = {
    TR_FIELD_INT(tr_train_settings_t, epochs, "10", 1, 1e9,
                 "Passes over the training data. train.steps overrides it.", TR_RESUME_NOTE),
    TR_FIELD_INT(tr_train_settings_t, steps, "0", 0, 1e15,
                 "Optimizer steps. 0: the number given by train.epochs.", TR_RESUME_NOTE),
    TR_FIELD_INT(tr_train_settings_t, seed, "1", 0, 9e15,
                 "Seed of initial weights, sample order, dropout and augmentation."),
    TR_FIELD_ENUM(
        tr_train_settings_t, on_nan, "stop", "stop|skip",
        "If a loss or gradient is not finite: stop the run (exit code 93), or skip the update and "
        "continue. The run also stops after 100 skipped updates in a row.",
        TR_RESUME_NOTE),
    TR_FIELD_STRING(tr_train_settings_t, valid_every, "1epoch",
                    "How often to validate: steps (\"500\"), epochs (\"1epoch\"), a share of the "
                    "run (\"10%\"), or 0 for never.",
                    TR_RESUME_FREE),
    TR_FIELD_INT(tr_train_settings_t, valid_samples, "0", 0, 1e15,
                 "Samples of a validation, the first ones of data.valid; 0: all.", TR_RESUME_FREE),
    TR_FIELD_INT(
        tr_train_settings_t, patience, "0", 0, 1e9,
        "Early stopping: the run ends after this many validations in a row without a new best by "
        "checkpoint.best_by; 0: it never ends early.",
        TR_RESUME_NOTE),
};
const tr_config_table_t tr_train_config = {"train", train_fields, TR_COUNT(train_fields),
                                           sizeof(tr_train_settings_t)};

static const tr_config_field_t main_fields[] = {
    TR_FIELD_STRING(
        tr_main_settings_t, device, "auto",
        "Device to train on: one listed by `trainer info`, or auto: cuda if each rank has a GPU "
        "whose self-test passes, else cpu. Where GPUs were allocated to the job "
        "(SLURM_JOB_GPUS, CUDA_VISIBLE_DEVICES), a GPU that fails is an error.",
        TR_RESUME_FREE),
    TR_FIELD_ENUM(
        tr_main_settings_t, precision, "fp32", "auto|fp32|tf32|bf16|fp16",
        "Data type of activations and matrix products. Sums, statistics, weights, gradients and "
        "optimizer state are always fp32. auto: the type of the checkpoint in a resumed run, else "
        "bf16 if the devices of all ranks have instructions for it, else fp16 on GPUs, which then "
        "have tensor cores for it alone (T4), else fp32. tf32: fp32, with "
        "the matrix products of GPUs in TF32; on CPUs the same as fp32.",
        TR_RESUME_NOTE),
    TR_FIELD_STRING(tr_main_settings_t, resume, "auto",
                    "auto: resume from the newest complete checkpoint in the run folder, if there "
                    "is one. no: start a new run in a folder without checkpoints. PATH: resume "
                    "from this checkpoint, or from the newest one of a run folder.",
                    TR_RESUME_FREE),
    TR_FIELD_AUTO_INT(tr_main_settings_t, threads, "auto", 1, 4096,
                      "CPU threads per rank. auto: the rank's share of the available cores.",
                      TR_RESUME_FREE),
    TR_FIELD_BOOL(
        tr_main_settings_t, winograd, "yes",
        "Use Winograd's algorithm on CPUs for convolutions of images and volumes with stride 1 and "
        "filters that are 3x3 or 5x5 in their last two sizes, where it is faster. It needs a "
        "quarter to a third of the multiplications; its rounding errors are 1.5 to 4 times those "
        "of direct sums. no: direct sums.",
        TR_RESUME_NOTE),
    TR_FIELD_BOOL(
        tr_main_settings_t, capture, "yes",
        "Capture the work of a step once and launch it again in every step (CUDA graphs), "
        "on devices that can. no: launch every operation. The results are the same.",
        TR_RESUME_FREE),
    TR_FIELD_BOOL(
        tr_main_settings_t, fuse, "yes",
        "Merge groups of operations into one where the device has a kernel for the group; `trainer "
        "plan --ops` lists them. no: run each operation by itself. The results are the same up to "
        "rounding.",
        TR_RESUME_NOTE),
};
const tr_config_table_t tr_main_config = {"", main_fields, TR_COUNT(main_fields),
                                          sizeof(tr_main_settings_t)};

static const tr_config_field_t cuda_fields[] = {
    TR_FIELD_FLOAT(tr_cuda_settings_t, memory_limit, "0.95", 0.01, 1,
                   "Part of a GPU's memory that a run may plan for, of what is free after the GPU "
                   "is opened. At least 2 GB, or an eighth of it, stay free for NCCL, modules and "
                   "graphs.",
                   TR_RESUME_FREE),
    TR_FIELD_ENUM(tr_cuda_settings_t, debug, "no", "no|sync|nvtx",
                  "sync: wait after every kernel, so that an error names the op that failed. This "
                  "is slow. nvtx: name the ops in a profile of Nsight Systems; captured steps show "
                  "none, so also set capture = no.",
                  TR_RESUME_FREE),
    TR_FIELD_BOOL(tr_cuda_settings_t, share, "no",
                  "Allow several ranks of a node to use the same GPU. Gradients are then reduced "
                  "by MPI.",
                  TR_RESUME_FREE),
    TR_FIELD_BOOL(
        tr_cuda_settings_t, tune, "no",
        "Time several algorithms for each product, convolution and attention, and use the "
        "fastest. Rank 0 does this at the first start, and cuda.plan_cache keeps the "
        "result. Without that folder, two runs may choose differently, and their results "
        "then differ by rounding. no: use the first algorithm that the library suggests.",
        TR_RESUME_NOTE),
    TR_FIELD_STRING(
        tr_cuda_settings_t, plan_cache, "auto",
        "Folder that keeps the execution plans that cuDNN compiled, the algorithms that cuda.tune "
        "chose, and peak rates, by version and GPU. Several ranks and jobs may share it. auto: "
        "trainer/cudnn in $XDG_CACHE_HOME or ~/.cache. none: compile them in each run.",
        TR_RESUME_FREE),
    TR_FIELD_BOOL(tr_cuda_settings_t, deterministic, "yes",
                  "cuda.tune leaves out algorithms that give other last bits in each run. no: it "
                  "may choose them where they are the fastest; then no two runs are equal bit for "
                  "bit, and neither are a resumed and an uninterrupted one.",
                  TR_RESUME_NOTE),
    TR_FIELD_BOOL(
        tr_cuda_settings_t, measure_peak, "yes",
        "At the start, measure the GPU's peak rate of matrix products, which is needed to compute "
        "mfu. It takes about 0.1 s and is kept in cuda.plan_cache, by GPU, type and "
        "driver. With cuda.share it is not measured.",
        TR_RESUME_FREE),
};
const tr_config_table_t tr_cuda_config = {"cuda", cuda_fields, TR_COUNT(cuda_fields),
                                          sizeof(tr_cuda_settings_t)};

static const tr_config_field_t log_fields[] = {
    TR_FIELD_INT(
        tr_log_settings_t, every, "50", 1, 1e9,
        "Steps between lines of metrics.jsonl and, without a terminal, of the log. The log "
        "has at most one of these lines every five seconds.",
        TR_RESUME_FREE),
};
const tr_config_table_t tr_log_config = {"log", log_fields, TR_COUNT(log_fields),
                                         sizeof(tr_log_settings_t)};

static const tr_config_field_t checkpoint_fields[] = {
    TR_FIELD_STRING(tr_checkpoint_settings_t, every, "1epoch",
                    "How often to save: steps (\"1000\"), epochs (\"1epoch\"), time (\"10min\"). "
                    "0: only at the end. If writing takes longer than the interval, the next save "
                    "starts when the previous one is complete.",
                    TR_RESUME_FREE),
    TR_FIELD_INT(tr_checkpoint_settings_t, keep, "3", 0, 1e6,
                 "Number of checkpoints to keep, in addition to the best one. 0: all.",
                 TR_RESUME_FREE),
    TR_FIELD_BOOL(tr_checkpoint_settings_t, best, "yes",
                  "Also keep the best checkpoint by checkpoint.best_by.", TR_RESUME_FREE),
    TR_FIELD_ENUM(
        tr_checkpoint_settings_t, best_by, "valid_loss", "valid_loss|valid_accuracy|valid_iou",
        "How the best checkpoint is chosen: by the lowest validation loss, or by the highest "
        "validation accuracy or, for labels of positions, mean IoU, and of equal ones by the "
        "lowest loss. train.patience uses the same measure; equal scores count as no improvement.",
        TR_RESUME_NOTE),
    TR_FIELD_DURATION(tr_checkpoint_settings_t, patience, "10min", 0, 1e6,
                      "How long to retry the final checkpoint if it cannot be written (for "
                      "example, if the disk is full).",
                      TR_RESUME_FREE),
};
const tr_config_table_t tr_checkpoint_config = {
    "checkpoint", checkpoint_fields, TR_COUNT(checkpoint_fields), sizeof(tr_checkpoint_settings_t)};

tr_status_t tr_all_tables(const tr_config_table_t *const **out, size_t *out_count) {
    static const tr_config_table_t *tables[64];
    const tr_config_table_t *fixed[] = {
        &tr_main_config,       &tr_run_config,      &tr_data_config,  &tr_model_config,
        &tr_optim_config,      &tr_schedule_config, &tr_train_config, &tr_log_config,
        &tr_checkpoint_config, &tr_parallel_config, &tr_cuda_config,  &tr_record_config,
        &tr_monitor_config,    &tr_profiler_config};
    size_t n = 0;
    for (; n < TR_COUNT(fixed); n++) tables[n] = fixed[n];
    const tr_model_t *model;
    for (size_t i = 0; (model = tr_model_at(i)) != NULL && n < TR_COUNT(tables); i++)
        if (model->config) tables[n++] = model->config;
    *out = tables;
    *out_count = n;
    return TR_OK;
}
