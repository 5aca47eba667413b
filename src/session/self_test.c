/* The self-test of a device, and the choice of device = auto. */
#include "self_test.h"
#include "open_device.h"
#include "step.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/host.h"
#include "base/rng.h"
#include "base/str.h"
#include "device/loss_scale.h"
#include "config/config.h"
#include "trainer/log.h"
#include "trainer/version.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- inputs ------------------------------------------------------------------------------------ */

/* Random samples: bytes, tokens and labels below the number of classes, else values in [0, 1). */
static void self_test_fill(const tr_session_t *s, const tr_tensor_info_t *info, void *data) {
    const int64_t count = tr_shape_elems(&info->shape);
    const uint64_t most = info->dtype == TR_U8  ? 256
                          : s->info.classes > 0 ? (uint64_t)s->info.classes
                                                : 2;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = tr_rng_philox(2, TR_RNG_INIT, 0, (uint64_t)i, 0).v[0];
        const uint64_t whole = (uint64_t)bits * most >> 32;
        if (info->dtype == TR_F32)
            ((float *)data)[i] = (float)bits * 0x1p-32f;
        else
            memcpy((char *)data + (size_t)i * tr_dtype_bytes(info->dtype), &whole,
                   tr_dtype_bytes(info->dtype));
    }
}

static tr_status_t self_test_write(tr_session_t *s, tr_tensor_t input, const void *value) {
    void *data = NULL;
    if (tr_is_none(input)) return TR_OK;
    if (value) return tr_tensor_write(s->g, input, value);
    const tr_tensor_info_t *info = tr_tensor_info(s->g, input);
    TR_TRY(tr_alloc(info->bytes, "samples of the self-test", &data));
    self_test_fill(s, info, data);
    const tr_status_t status = tr_tensor_write(s->g, input, data);
    tr_free(&data);
    return status;
}

/* -- running ----------------------------------------------------------------------------------- */

static tr_status_t self_test_compare(tr_session_t *s, tr_device_t *reference,
                                     tr_comparisons_t *rows) {
    const int programs[] = {s->first, s->micro, s->last, s->update, s->eval};
    const tr_step_t step = {.seed = 1, .lr = 1e-3f, .weight_decay_scale = 1};
    const int64_t id[2] = {0, 1};
    const float weight[2] = {1, 1}, asks = TR_ASK_NOTHING;
    /* gradients of logits up to 1: f16 has few digits of smaller ones, and larger ones overflow */
    const double terms = (double)(s->data.batch_size * s->sample_terms);
    const tr_loss_scale_t scale = {.scale = (float)ldexp(1, ilogb(terms))};
    TR_TRY(tr_session_start(s, NULL));
    for (int f = 0; f < s->info.field_count; f++) TR_TRY(self_test_write(s, s->field[f], NULL));
    TR_TRY(self_test_write(s, s->batch.sample_id, id));
    TR_TRY(self_test_write(s, s->batch.weight, weight));
    if (tr_session_trains(s)) {
        TR_TRY(self_test_write(s, s->asks, &asks));
        TR_TRY(self_test_write(s, s->loss_scale, &scale));
        TR_TRY(self_test_write(s, tr_graph_step(s->g), &step));
    }
    for (size_t i = 0; i < TR_COUNT(programs); i++)
        if (programs[i] >= 0) TR_TRY(tr_program_compare(s->g, programs[i], reference, rows));
    return TR_OK;
}

/* The session's programs on the device, for few samples, and for one rank. */
static tr_status_t self_test_open(const tr_session_t *s, tr_device_t *device, tr_session_t **out) {
    tr_session_params_t params = s->params;
    const int64_t batch = s->data.batch_size;
    params.device = device;
    params.rank = 0;
    params.size = 1;
    params.loaded = false;
    params.inputs = &s->info; /* no data are read */
    params.trained_preprocess = s->preprocess;
    params.order = NULL;
    /* one sample alone is no batch for batch normalisation */
    for (params.micro_batch = 2; params.micro_batch < batch && batch % params.micro_batch != 0;)
        params.micro_batch++;
    if (params.micro_batch > batch) params.micro_batch = batch;
    params.precision = (tr_precision_t)s->main.precision;
    const tr_log_level_t level = tr_log_set_level(TR_LOG_ERROR); /* the session itself says it */
    const tr_status_t status = tr_session_create(s->config, NULL, &params, out);
    tr_log_set_level(level);
    return status;
}

size_t tr_self_test_compared(const tr_self_test_t *test) {
    size_t count = 0;
    for (size_t i = 0; i < test->rows.count; i++) count += !test->rows.data[i].skipped;
    return count;
}

const tr_comparison_t *tr_self_test_worst(const tr_self_test_t *test) {
    const tr_comparison_t *worst = NULL;
    for (size_t i = 0; i < test->rows.count; i++) {
        const tr_comparison_t *row = &test->rows.data[i];
        if (!row->skipped && (!worst || tr_comparison_is_worse(row, worst))) worst = row;
    }
    return worst;
}

static tr_status_t self_test_judge(const tr_self_test_t *test, const tr_device_t *device) {
    const tr_comparison_t *worst = tr_self_test_worst(test);
    if (!worst || !tr_comparison_failed(worst)) return TR_OK;
    return TR_FAIL(TR_ERR_INTERNAL,
                   "the self-test of %s (%s, node %s) failed: %s %s of %s, shapes %s, differs from "
                   "the CPU by %.3g of the largest value; %.3g is allowed. Report the output of "
                   "`trainer doctor CONFIG device=cuda`",
                   device->description, device->uuid, tr_host_name(), tr_kernel_name(worst->kernel),
                   tr_dtype_name(worst->dtype), worst->label, worst->shapes, worst->difference,
                   worst->tolerance);
}

/* -- passes that are kept ---------------------------------------------------------------------- */

/* Versions of libraries and of the driver, which come before the GPUs. */
static void key_add_version(void *self, const char *name, const char *value) {
    tr_str_t *key = self;
    if (strncmp(name, "GPU", 3) == 0 || !*name) return;
    tr_str_printf(key, "%s %s\n", name, value);
}

static void key_add_build(const void *address, tr_str_t *key) {
    Dl_info place;
    struct stat about;
    if (dladdr(address, &place) && stat(place.dli_fname, &about) == 0)
        tr_str_printf(key, "build %lld %lld\n", (long long)about.st_size,
                      (long long)about.st_mtime);
}

/* The settings that choose kernels and their attributes: not where data and results are, and not
 * how long to train. */
static tr_status_t key_add_settings(const tr_config_t *config, tr_str_t *key) {
    static const char *const left_out[] = {"[run]",      "[checkpoint]", "[log]", "[train]",
                                           "[schedule]", "[parallel]",   "[text]"},
                             *const keys[] = {"train =",  "valid =",   "test =",
                                              "resume =", "threads =", "device ="};
    tr_str_t all = {0};
    bool wanted = true;
    tr_status_t status = tr_config_serialize(config, &all);
    for (char *line = all.text, *next; status == TR_OK && line && *line; line = next) {
        const size_t length = strcspn(line, "\n");
        bool keep = true;
        next = line + length + (line[length] == '\n');
        for (size_t i = 0; *line == '[' && i < TR_COUNT(left_out); i++)
            if (i == 0 || wanted) wanted = strncmp(line, left_out[i], strlen(left_out[i])) != 0;
        for (size_t i = 0; i < TR_COUNT(keys); i++)
            keep &= strncmp(line, keys[i], strlen(keys[i])) != 0;
        if (wanted && keep) tr_str_append_bytes(key, line, (size_t)(next - line));
    }
    tr_str_free(&all);
    return status;
}

/* What a pass is good for. */
static tr_status_t self_test_key(const tr_session_t *s, const tr_device_t *device, tr_str_t *key) {
    const tr_backend_t *backend = NULL;
    tr_str_printf(key, "trainer %s\n%s %s\n", TRAINER_VERSION_STRING, device->description,
                  device->uuid);
    key_add_build(device->ops, key);
    TR_TRY(tr_backend_find(device->ops->name, &backend));
    if (backend->report) TR_TRY(backend->report(key_add_version, key));
    tr_str_printf(key, "purpose %d\nprecision %s\n",
                  s->params.purpose == TR_SESSION_PLAN ? TR_SESSION_TRAIN : s->params.purpose,
                  tr_precision_name((tr_precision_t)s->main.precision));
    for (int f = 0; f < s->info.field_count; f++) {
        const tr_field_t *field = &s->info.field[f];
        tr_str_printf(key, "%s %s %lld bytes\n", field->name, tr_dtype_name(field->dtype),
                      (long long)field->sample_bytes);
        for (int d = 0; d < field->shape.ndim; d++)
            tr_str_printf(key, "dimension %lld\n", (long long)field->shape.dim[d]);
    }
    tr_str_printf(key, "classes %lld\n", (long long)s->info.classes);
    TR_TRY(key_add_settings(s->config, key));
    return key->status;
}

static bool kept_path(const tr_session_t *s, const char *key, char path[PATH_MAX]) {
    char folder[PATH_MAX];
    tr_plan_folder(s->config, folder);
    return *folder && snprintf(path, PATH_MAX, "%s/%016" PRIx64 ".self-test", folder,
                               tr_hash_name(key)) < PATH_MAX;
}

static bool self_test_is_kept(const tr_session_t *s, const char *key) {
    char path[PATH_MAX], *text = NULL;
    int64_t bytes = 0;
    if (!kept_path(s, key, path) || access(path, R_OK) != 0) return false;
    const bool same = tr_read_text(path, 1 << 20, &text, &bytes) == TR_OK && !strcmp(text, key);
    tr_error_clear();
    tr_free(&text);
    return same;
}

/* Another run may read it meanwhile. What cannot be kept is tested again. */
static void self_test_keep(const tr_session_t *s, const char *key) {
    char folder[PATH_MAX], path[PATH_MAX];
    tr_plan_folder(s->config, folder);
    if (!kept_path(s, key, path) || !tr_make_folders(folder)) return;
    if (tr_replace_file(path, key, strlen(key), 0) != TR_OK) tr_error_clear();
}

/* -- the test ---------------------------------------------------------------------------------- */

static tr_status_t self_test_now(const tr_session_t *s, tr_device_t *device, tr_self_test_t *out) {
    tr_session_t *small = NULL;
    tr_device_t *reference = NULL;
    const tr_device_params_t params = {.threads = s->cores, .direct = true};
    tr_status_t status = tr_device_open("cpu", &params, &reference);
    if (status == TR_OK) status = self_test_open(s, device, &small);
    if (status == TR_OK) status = self_test_compare(small, reference, &out->rows);
    tr_session_destroy(&small);
    tr_device_close(&reference);
    return status == TR_OK ? self_test_judge(out, device) : status;
}

tr_status_t tr_self_test_run(const tr_session_t *s, tr_device_t *device, bool again,
                             tr_self_test_t *out) {
    const double begin_sec = tr_clock_sec();
    tr_str_t key = {0};
    *out = (tr_self_test_t){0};
    tr_status_t status = self_test_key(s, device, &key);
    if (status == TR_OK) {
        out->was_kept = !again && self_test_is_kept(s, key.text);
        if (!out->was_kept) status = self_test_now(s, device, out);
        if (status == TR_OK && !out->was_kept) self_test_keep(s, key.text);
    }
    out->sec = tr_clock_sec() - begin_sec;
    tr_str_free(&key);
    return status;
}

void tr_self_test_free(tr_self_test_t *test) {
    tr_vec_free(&test->rows);
}

/* -- device = auto ----------------------------------------------------------------------------- */

/* The variable by which a launcher says that this job has GPUs; NULL: none. */
static const char *gpus_allocated(void) {
    static const char *const names[] = {"SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"};
    for (size_t i = 0; i < TR_COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value && strcmp(value, "-1") != 0 && strcmp(value, "NoDevFiles") != 0)
            return names[i];
    }
    return NULL;
}

/* Rank 0 first: the others find its plans in the plan cache. */
static tr_status_t choose_test(tr_session_t *s, tr_device_t *device) {
    const bool is_root = s->params.rank == 0;
    tr_precision_t precision = (tr_precision_t)s->main.precision;
    tr_self_test_t test = {0};
    TR_TRY(tr_session_agree(s, tr_precision_resolve(s->world, device, &precision)));
    s->main.precision = (int)precision;
    tr_status_t status =
        tr_session_agree(s, is_root ? tr_self_test_run(s, device, false, &test) : TR_OK);
    if (status == TR_OK)
        status = tr_session_agree(s, is_root ? TR_OK : tr_self_test_run(s, device, false, &test));
    if (status == TR_OK && test.was_kept)
        TR_INFO("device = auto: cuda; its self-test passed earlier");
    else if (status == TR_OK)
        TR_INFO("device = auto: cuda; its self-test passed: %zu kinds of kernel calls agree with "
                "the CPU, %.1f s",
                tr_self_test_compared(&test), test.sec);
    tr_self_test_free(&test);
    return status;
}

/* This rank's GPU, tested unless nothing will run. */
static tr_status_t choose_open(tr_session_t *s, tr_device_t **out) {
    const int precision = s->main.precision;
    tr_status_t status =
        tr_session_agree(s, tr_open_device(s->config, "cuda", (uint64_t)s->train.seed,
                                           precision == TR_PRECISION_TF32, s->world, out));
    if (status == TR_OK && s->world) status = tr_check_own_device(s->world, s->config, *out);
    if (status == TR_OK && s->params.purpose != TR_SESSION_PLAN) status = choose_test(s, *out);
    if (status == TR_OK) return TR_OK;
    s->main.precision = precision;
    tr_device_close(out);
    return status;
}

tr_status_t tr_device_choose(tr_session_t *s, tr_device_t **out) {
    const tr_backend_t *cuda = NULL;
    int64_t allocated = gpus_allocated() != NULL && s->params.purpose != TR_SESSION_PLAN;
    *out = NULL;
    if (s->world) TR_TRY(tr_world_allreduce_int(s->world, &allocated, 1, TR_REDUCE_MAX));
    tr_status_t status = tr_session_agree(s, tr_backend_find("cuda", &cuda));
    const bool usable = status == TR_OK;
    if (usable) status = choose_open(s, out);
    if (status == TR_OK) return TR_OK;
    tr_error_t error = *tr_error_last();
    if (allocated) {
        char cause[3072];
        snprintf(cause, sizeof cause, "%.3000s", error.message);
        snprintf(error.message, sizeof error.message,
                 "device = auto: this job has GPUs (%s), but %s%s",
                 gpus_allocated() ? gpus_allocated() : "of another rank", cause,
                 usable ? ". Set device = cpu to train on the CPU anyway" : "");
        return tr_error_set(&error);
    }
    if (usable) TR_WARN("device = auto: cpu, because %s", error.message);
    tr_error_clear();
    return TR_OK;
}
