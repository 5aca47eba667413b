/* Copies parameters, model state and optimizer state to host memory under their checkpoint names,
 * and back to the graph. */
#include "base/int_math.h"
#include "huggingface.h"
#include "state.h"
#include "torch_layout.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "base/thread.h"

#include <omp.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

enum { REGIONS = 3 };
static const tr_role_t roles[REGIONS] = {TR_ROLE_PARAM, TR_ROLE_MODEL_STATE, TR_ROLE_OPTIM_STATE};

typedef TR_VEC(tr_named_tensor_t) names_t;

/* The contents of the two tensor files: names are owned, data point into one copy of the regions.
 * */
typedef struct {
    names_t model, optimizer;
} files_t;

/* A copy of the regions: in host memory, or that of the graph itself. */
typedef struct {
    char *region[REGIONS];
} copy_t;

struct tr_snapshot {
    tr_session_t *s;
    copy_t host;
    size_t bytes[REGIONS];
    files_t files;       /* as they are saved */
    tr_stream_t *stream; /* of copies while programs run */
    tr_event_t *taken;
    pthread_t toucher; /* provides the pages of `host` */
    bool is_touching;
};

/* With optimizer.ema, the model's file has the averages, which are used in validation, and the
 * optimizer's file the trained weights as NAME.raw. In older checkpoints it is the other way round,
 * with the averages as NAME.ema. */
#define RAW_SUFFIX "raw"
typedef enum { AVERAGES_FIRST, TRAINED_FIRST } kind_t;

/* -- names ------------------------------------------------------------------------------------- */

static tr_status_t add_name(names_t *list, const char *name, const char *suffix,
                            const tr_tensor_info_t *info, const void *data) {
    tr_str_t text = {0};
    char *full = NULL;
    tr_str_printf(&text, suffix ? "%s.%s" : "%s", name, suffix);
    TR_TRY(tr_str_take(&text, &full));
    const tr_named_tensor_t tensor = {full, info->dtype, info->shape, data};
    const tr_status_t status = tr_vec_push(list, tensor);
    if (status != TR_OK) tr_free(&full);
    return status;
}

static bool is_trainable(const tr_graph_t *g, const tr_tensor_info_t *param) {
    return param->block_elems < tr_graph_layout(g).trainable_elems;
}

static const char *mirrored(const copy_t *at, const tr_tensor_info_t *state,
                            const tr_tensor_info_t *param) {
    return at->region[2] + state->offset_bytes + (size_t)param->block_elems * sizeof(float);
}

/* A state that mirrors the parameters is saved per parameter, "conv1.weight.adam.m", so that the
 * order of the block may change. */
static tr_status_t name_mirror(const tr_graph_t *g, const copy_t *at, const tr_tensor_info_t *state,
                               kind_t kind, names_t *list) {
    const bool is_raw = kind == AVERAGES_FIRST && strcmp(state->name, TR_EMA_STATE) == 0;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *p = tr_tensor_info(g, (tr_tensor_t){id});
        if (!tr_is_param(g, (tr_tensor_t){id}) || !is_trainable(g, p)) continue;
        TR_TRY(add_name(list, p->name, is_raw ? RAW_SUFFIX : state->name, p,
                        is_raw ? at->region[0] + p->offset_bytes : mirrored(at, state, p)));
    }
    return TR_OK;
}

static tr_status_t name_param(const tr_graph_t *g, const copy_t *at, const tr_tensor_info_t *param,
                              kind_t kind, names_t *list) {
    const tr_tensor_t average = tr_graph_find(g, TR_EMA_STATE);
    const bool averaged = kind == AVERAGES_FIRST && !tr_is_none(average) && is_trainable(g, param);
    return add_name(list, param->name, NULL, param,
                    averaged ? mirrored(at, tr_tensor_info(g, average), param)
                             : at->region[0] + param->offset_bytes);
}

static tr_status_t name_tensors(const tr_graph_t *g, const copy_t *at, kind_t kind, files_t *out) {
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
        if (tr_is_param(g, (tr_tensor_t){id})) TR_TRY(name_param(g, at, info, kind, &out->model));
        if (tr_is_model_state(g, (tr_tensor_t){id}))
            TR_TRY(
                add_name(&out->model, info->name, NULL, info, at->region[1] + info->offset_bytes));
        if (info->role != TR_ROLE_OPTIM_STATE) continue;
        if (info->mirrors_params)
            TR_TRY(name_mirror(g, at, info, kind, &out->optimizer));
        else
            TR_TRY(add_name(&out->optimizer, info->name, NULL, info,
                            at->region[2] + info->offset_bytes));
    }
    return TR_OK;
}

/* -- life -------------------------------------------------------------------------------------- */

static void free_names(names_t *list) {
    for (size_t i = 0; i < list->count; i++) tr_free(&list->data[i].name);
    tr_vec_free(list);
}

static void free_files(files_t *files) {
    free_names(&files->model);
    free_names(&files->optimizer);
}

static void *touch(void *self) {
    tr_snapshot_t *n = self;
    for (int i = 0; i < REGIONS; i++)
        if (n->bytes[i] > 0) memset(n->host.region[i], 0, n->bytes[i]);
    return NULL;
}

void tr_snapshot_touch(tr_snapshot_t *n) {
    if (!n->s->device->host_visible) return; /* pinned memory has its pages */
    n->is_touching = tr_thread_start("snapshot", touch, n, &n->toucher) == 0;
}

static void end_touching(tr_snapshot_t *n) {
    if (n->is_touching) pthread_join(n->toucher, NULL);
    n->is_touching = false;
}

void tr_snapshot_destroy(tr_snapshot_t **snapshot) {
    tr_snapshot_t *n = *snapshot;
    if (!n) return;
    end_touching(n);
    const tr_device_ops_t *ops = n->s->device->ops;
    if (n->stream) (void)ops->stream_sync(n->s->device, n->stream);
    if (n->taken) ops->event_destroy(n->s->device, n->taken);
    if (n->stream) ops->stream_destroy(n->s->device, n->stream);
    for (int i = 0; i < REGIONS; i++)
        if (n->host.region[i]) n->s->device->ops->host_free(n->s->device, n->host.region[i]);
    free_files(&n->files);
    tr_free(snapshot);
}

tr_status_t tr_snapshot_create(tr_session_t *s, tr_snapshot_t **out) {
    tr_snapshot_t *n = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *n, "snapshot", &n));
    n->s = s;
    for (int i = 0; i < REGIONS; i++) {
        void *host = NULL;
        (void)tr_graph_region(s->g, roles[i], &n->bytes[i]);
        if (n->bytes[i] == 0) continue;
        TR_TRY_GOTO(s->device->ops->host_alloc(s->device, n->bytes[i], &host), fail);
        n->host.region[i] = host;
    }
    const tr_device_ops_t *ops = s->device->ops;
    TR_TRY_GOTO(ops->stream_create(s->device, "snapshot", TR_PRIORITY_NORMAL, &n->stream), fail);
    TR_TRY_GOTO(ops->event_create(s->device, 0, &n->taken), fail);
    TR_TRY_GOTO(name_tensors(s->g, &n->host, AVERAGES_FIRST, &n->files), fail);
    *out = n;
    return TR_OK;
fail:
    tr_snapshot_destroy(&n);
    return status;
}

size_t tr_snapshot_bytes(const tr_snapshot_t *n) {
    return n->bytes[0] + n->bytes[1] + n->bytes[2];
}

static tr_status_t enqueue(tr_snapshot_t *n, tr_stream_t *stream) {
    const tr_session_t *s = n->s;
    end_touching(n);
    for (int i = 0; i < REGIONS; i++) {
        size_t bytes;
        const void *from = tr_graph_region(s->g, roles[i], &bytes);
        if (bytes > 0)
            TR_TRY(s->device->ops->copy(s->device, stream, n->host.region[i], from, bytes,
                                        TR_COPY_TO_HOST));
    }
    return TR_OK;
}

tr_status_t tr_snapshot_take(tr_snapshot_t *n) {
    TR_TRY(enqueue(n, tr_graph_stream(n->s->g)));
    return tr_graph_sync(n->s->g);
}

tr_status_t tr_snapshot_begin(tr_snapshot_t *n, tr_event_t **out_taken) {
    tr_device_t *device = n->s->device;
    TR_TRY(enqueue(n, n->stream));
    *out_taken = n->taken;
    return device->ops->event_record(device, n->taken, n->stream);
}

tr_status_t tr_snapshot_end(tr_snapshot_t *n) {
    return n->s->device->ops->event_sync(n->s->device, n->taken);
}

void tr_snapshot_content(const tr_snapshot_t *n, tr_checkpoint_content_t *out) {
    *out = (tr_checkpoint_content_t){.model = n->files.model.data,
                                     .model_count = n->files.model.count,
                                     .optimizer = n->files.optimizer.data,
                                     .optimizer_count = n->files.optimizer.count};
}

/* -- restoring --------------------------------------------------------------------------------- */

/* Where tensors are loaded: in the memory of the graph if the host sees it, else in `host`. */
static tr_status_t begin_load(tr_snapshot_t *n, kind_t kind, files_t *out) {
    copy_t at = n->host;
    if (!n->s->device->host_visible) TR_TRY(tr_snapshot_take(n));
    for (int i = 0; i < REGIONS && n->s->device->host_visible; i++)
        at.region[i] = tr_graph_region_to_write(n->s->g, roles[i], &(size_t){0});
    return name_tensors(n->s->g, &at, kind, out);
}

static tr_status_t end_load(tr_snapshot_t *n) {
    const tr_session_t *s = n->s;
    if (s->device->host_visible) return TR_OK;
    for (int i = 0; i < REGIONS; i++) {
        size_t bytes;
        void *to = tr_graph_region_to_write(s->g, roles[i], &bytes);
        if (bytes > 0)
            TR_TRY(s->device->ops->copy(s->device, tr_graph_stream(s->g), to, n->host.region[i],
                                        bytes, TR_COPY_TO_DEVICE));
    }
    return tr_graph_sync(s->g);
}

static size_t tensor_bytes(const tr_named_tensor_t *t) {
    return (size_t)tr_shape_elems(&t->shape) * tr_dtype_bytes(t->dtype);
}

static bool fits(const tr_named_tensor_t *want, const tr_named_tensor_t *have) {
    const bool widens = want->dtype == TR_F32 && (have->dtype == TR_F16 || have->dtype == TR_BF16);
    return (widens || have->dtype == want->dtype) && tr_shape_equal(&have->shape, &want->shape);
}

/* Reads `count` values from `first` on. Converts F16 and BF16 to F32. */
static tr_status_t read_part(const tr_named_tensor_t *want, const tr_named_tensor_t *have,
                             int64_t first, int64_t count) {
    const int64_t unit = (int64_t)tr_dtype_bytes(have->dtype);
    char *out = (char *)(uintptr_t)want->data + first * (int64_t)tr_dtype_bytes(want->dtype);
    if (have->dtype == want->dtype)
        return tr_safetensors_read(have, first * unit, count * unit, out);
    uint16_t *half = NULL;
    TR_TRY(tr_alloc((size_t)(count * unit), "values of a tensor to convert", &half));
    const tr_status_t status = tr_safetensors_read(have, first * unit, count * unit, half);
    if (status == TR_OK && have->dtype == TR_F16)
        tr_convert(TR_F16, half, count, TR_F32, (float *)out);
    for (int64_t i = 0; i < count && status == TR_OK && have->dtype == TR_BF16; i++) {
        const uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(out + i * (int64_t)sizeof bits, &bits, sizeof bits);
    }
    tr_free(&half);
    return status;
}

/* With the device's threads. Errors are recorded per thread: from the first part that could not be
 * read on, this thread reads again. */
static tr_status_t read_tensor(const tr_session_t *s, const tr_named_tensor_t *want,
                               const tr_named_tensor_t *have) {
    enum { PART = 1 << 18 }; /* 1 MiB of F32 */
    const int64_t count = tr_shape_elems(&want->shape), parts = (count + PART - 1) / PART;
    if (parts < 2) return read_part(want, have, 0, count);
    const int threads = s->device->threads > 0 ? s->device->threads : omp_get_max_threads();
    int64_t failed = parts;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(min : failed)
    for (int64_t i = 0; i < parts; i++)
        if (read_part(want, have, i * PART, min64(PART, count - i * PART)) != TR_OK && i < failed)
            failed = i;
    for (int64_t i = failed; i < parts; i++)
        TR_TRY(read_part(want, have, i * PART, min64(PART, count - i * PART)));
    return TR_OK;
}

/* From PyTorch's order of dimensions. */
static tr_status_t read_torch(const tr_session_t *s, const tr_named_tensor_t *want,
                              const tr_torch_order_t *order, const tr_named_tensor_t *have) {
    tr_named_tensor_t there = {want->name, want->dtype, order->shape, NULL};
    float *values = NULL;
    TR_TRY(tr_alloc(tensor_bytes(want), "a weight of model.init", &values));
    there.data = values;
    const tr_status_t status = read_tensor(s, &there, have);
    if (status == TR_OK)
        tr_torch_exchange(values, order->outer, order->channels, order->pixels,
                          (float *)(uintptr_t)want->data);
    tr_free(&values);
    return status;
}

/* Only fp16 runs have a loss scale. A run may resume from a checkpoint of another precision. */
static bool is_optional(const char *name) {
    return strcmp(name, TR_LOSS_SCALE_STATE) == 0;
}

/* Reads the tensors that fit, and adds a line to `problems` for each that does not; problems->status
 * is that of reading. torch: if the file has PyTorch's layout, else NULL. */
static size_t read_matching(const tr_session_t *s, const names_t *wanted,
                            const tr_safetensors_t *file, const tr_torch_layout_t *torch,
                            tr_str_t *problems) {
    size_t copied = 0;
    for (size_t i = 0; i < wanted->count; i++) {
        tr_named_tensor_t in_file = wanted->data[i];
        const tr_named_tensor_t *want = &in_file, *have = tr_hf_find(file, want->name);
        tr_torch_order_t order;
        const bool is_torch = torch && tr_torch_order(torch, want->name, &order);
        char a[96], b[96];
        if (is_torch) in_file.shape = order.shape;
        if (!have && is_optional(want->name)) continue;
        if (!have) {
            tr_str_printf(problems, "\n  %s %s: not in the checkpoint", want->name,
                          tr_shape_format(&want->shape, a));
        } else if (!fits(want, have)) {
            tr_str_printf(problems, "\n  %s: %s %s here, %s %s in the checkpoint%s", want->name,
                          tr_dtype_name(want->dtype), tr_shape_format(&want->shape, a),
                          tr_dtype_name(have->dtype), tr_shape_format(&have->shape, b),
                          tr_shape_equal(&have->shape, &want->shape) ? " (convert it there)" : "");
        } else {
            const tr_status_t status =
                is_torch ? read_torch(s, want, &order, have) : read_tensor(s, want, have);
            if (status != TR_OK) {
                problems->status = status;
                return copied;
            }
            copied++;
        }
    }
    return copied;
}

static int by_address(const void *a, const void *b) {
    return (a > b) - (a < b);
}

/* For tdestroy: the file owns its tensors. */
static void keep(void *tensor) {
    (void)tensor;
}

static void list_left_over(const names_t *wanted, const tr_safetensors_t *file,
                           tr_str_t *problems) {
    void *found = NULL; /* tensors that are wanted */
    for (size_t i = 0; i < wanted->count; i++) {
        const tr_named_tensor_t *have = tr_hf_find(file, wanted->data[i].name);
        if (have && !tsearch(have, &found, by_address))
            problems->status = TR_FAIL(TR_ERR_MEMORY, "not enough memory for a list of tensors");
    }
    for (size_t k = 0; k < tr_safetensors_count(file); k++) {
        const tr_named_tensor_t *have = tr_safetensors_at(file, k);
        const bool known = tr_hf_is_extra(have->name) || is_optional(have->name);
        char text[96];
        if (!known && !tfind(have, &found, by_address))
            tr_str_printf(problems, "\n  %s %s: only in the checkpoint", have->name,
                          tr_shape_format(&have->shape, text));
    }
    tdestroy(found, keep);
}

/* Truncates to the size of an error message. */
static void shorten(tr_str_t *problems) {
    if (problems->length <= 1500) return;
    problems->length = 1500;
    tr_str_append(problems, "\n  ...");
}

static bool has_suffix(const tr_safetensors_t *optimizer, const char *suffix) {
    for (size_t i = 0; optimizer && i < tr_safetensors_count(optimizer); i++) {
        const char *dot = strrchr(tr_safetensors_at(optimizer, i)->name, '.');
        if (dot && strcmp(dot + 1, suffix) == 0) return true;
    }
    return false;
}

/* Samples of another shape give weights of another shape. */
static void say_shape(const tr_session_t *s, tr_str_t *out) {
    const tr_preprocess_t *was = s->params.trained_preprocess, *is = s->preprocess;
    char a[96], b[96];
    if (!was || !is || was->shape.ndim == 0 || tr_shape_equal(&was->shape, &is->shape)) return;
    tr_str_printf(out,
                  "\n"
                  "  data.train: its samples were %s in the checkpoint, they are %s now",
                  tr_shape_format(&was->shape, a), tr_shape_format(&is->shape, b));
}

/* Tensors are named only if no setting explains the difference. */
static void compare_tensors(const tr_snapshot_t *n, const files_t *files,
                            const tr_checkpoint_t *checkpoint, tr_str_t *out_model,
                            tr_str_t *out_optimizer) {
    tr_str_t tensors = {0};
    read_matching(n->s, &files->model, checkpoint->model, NULL, &tensors);
    list_left_over(&files->model, checkpoint->model, &tensors);
    if (tensors.length > 0) say_shape(n->s, out_model);
    if (out_model->length == 0 && tensors.text) tr_str_append(out_model, tensors.text);
    if (tensors.status != TR_OK) out_model->status = tensors.status;
    tr_str_free(&tensors);
    /* the optimizer state differs if the parameters do */
    if (out_model->length > 0 || out_model->status != TR_OK) return;
    read_matching(n->s, &files->optimizer, checkpoint->optimizer, NULL, &tensors);
    list_left_over(&files->optimizer, checkpoint->optimizer, &tensors);
    if (tensors.length > 0)
        tr_state_compare_optimizer(checkpoint->state_json, n->s->config, out_optimizer);
    if (out_optimizer->length == 0 && tensors.text) tr_str_append(out_optimizer, tensors.text);
    if (tensors.status != TR_OK) out_optimizer->status = tensors.status;
    tr_str_free(&tensors);
}

static tr_status_t restore(tr_snapshot_t *n, const files_t *files,
                           const tr_checkpoint_t *checkpoint) {
    tr_str_t model = {0}, optimizer = {0}, *problems;
    compare_tensors(n, files, checkpoint, &model, &optimizer);
    problems = model.length > 0 ? &model : &optimizer;
    shorten(problems);
    tr_status_t status = model.status != TR_OK ? model.status : optimizer.status;
    if (status == TR_OK && problems->length > 0)
        status = TR_FAIL(
            TR_ERR_CONFIG,
            "checkpoint %s belongs to a different %s:%s\n"
            "Restore these settings (config.ini in the run folder), or start a new run (another "
            "run.dir), with model.init = %s to start from the weights that fit",
            checkpoint->path, problems == &model ? "model" : "optimizer", problems->text,
            checkpoint->path);
    tr_str_free(&model);
    tr_str_free(&optimizer);
    return status == TR_OK ? end_load(n) : status;
}

tr_status_t tr_snapshot_restore(tr_snapshot_t *n, const tr_checkpoint_t *checkpoint) {
    files_t files = {0};
    if (!checkpoint->optimizer)
        return TR_FAIL(TR_ERR_DATA, "%s has only weights; to start from them set model.init",
                       checkpoint->path);
    const bool is_old = has_suffix(checkpoint->optimizer, TR_EMA_STATE);
    tr_status_t status = begin_load(n, is_old ? TRAINED_FIRST : AVERAGES_FIRST, &files);
    if (status == TR_OK) status = restore(n, &files, checkpoint);
    free_files(&files);
    return status;
}

/* -- weights alone ----------------------------------------------------------------------------- */

/* For an older checkpoint: replaces the trained weights by the averages. */
static tr_status_t read_averages(const tr_session_t *s, const names_t *wanted,
                                 const tr_safetensors_t *optimizer) {
    for (size_t i = 0; optimizer && i < wanted->count; i++) {
        const tr_named_tensor_t *want = &wanted->data[i], *have;
        char name[512];
        snprintf(name, sizeof name, "%s." TR_EMA_STATE, want->name);
        have = tr_safetensors_find(optimizer, name);
        if (have && fits(want, have)) TR_TRY(read_tensor(s, want, have));
    }
    return TR_OK;
}

/* Kernels such as 3x3 with 3 channels have the same shape in both layouts. */
static void warn_of_order(const tr_torch_layout_t *torch, const names_t *wanted,
                          const tr_weights_t *weights) {
    tr_torch_order_t order;
    for (size_t i = 0; i < wanted->count; i++)
        if (tr_torch_order(torch, wanted->data[i].name, &order)) {
            TR_WARN("%s does not record the order of its dimensions; it is read with channels "
                    "last: convolution weights as (outputs, kernel, inputs). For PyTorch's order "
                    "set model.init_layout = torch; to keep this order without a warning, set it "
                    "to trainer",
                    weights->path);
            return;
        }
}

/* Whether the weights have PyTorch's layout: as recorded in the file, else by model.init_layout. */
static bool is_torch_order(const tr_snapshot_t *n, const tr_torch_layout_t *torch,
                           const names_t *wanted, const tr_weights_t *weights) {
    const tr_init_layout_t set = n->s->model.init_layout;
    const tr_init_layout_t layout = weights->layout != TR_INIT_LAYOUT_AUTO ? weights->layout : set;
    if (layout == TR_INIT_LAYOUT_AUTO && !weights->is_complete)
        warn_of_order(torch, wanted, weights);
    return layout == TR_INIT_LAYOUT_TORCH;
}

/* Parameters (not their averages) and model state; returns the number of tensors that fit. */
static size_t read_weights(const tr_snapshot_t *n, const names_t *wanted,
                           const tr_weights_t *weights, tr_str_t *problems) {
    tr_torch_layout_t *torch = NULL;
    problems->status = tr_torch_layout_create(n->s, &torch);
    if (problems->status != TR_OK) return 0;
    const bool is_torch = is_torch_order(n, torch, wanted, weights);
    const size_t copied =
        read_matching(n->s, wanted, weights->model, is_torch ? torch : NULL, problems);
    tr_torch_layout_destroy(&torch);
    if (problems->status == TR_OK && weights->checkpoint)
        problems->status = read_averages(n->s, wanted, weights->checkpoint->optimizer);
    return copied;
}

static const char *layout_name(tr_init_layout_t layout) {
    return layout == TR_INIT_LAYOUT_TORCH ? "torch" : "trainer";
}

/* Checks model.init_layout against the record in the file. */
static tr_status_t check_layout(const tr_snapshot_t *n, const tr_weights_t *weights) {
    const tr_init_layout_t set = n->s->model.init_layout, recorded = weights->layout;
    if (set == TR_INIT_LAYOUT_AUTO || recorded == TR_INIT_LAYOUT_AUTO || set == recorded)
        return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "model.init_layout = %s, but the weights in %s have the layout %s: remove "
                   "model.init_layout, or set it to auto",
                   layout_name(set), weights->path, layout_name(recorded));
}

static tr_status_t init(tr_snapshot_t *n, const names_t *wanted, const tr_weights_t *weights) {
    tr_str_t problems = {0};
    TR_TRY(check_layout(n, weights));
    const size_t copied = read_weights(n, wanted, weights, &problems);
    tr_status_t status = problems.status;
    if (status == TR_OK && weights->is_complete && problems.length > 0) {
        shorten(&problems);
        status = TR_FAIL(TR_ERR_CONFIG,
                         "model.init: the model in %s has other parameters than this one:%s\nSet "
                         "model.n_layer, n_head, n_embd, context and vocab_size to auto, or as in "
                         "its config.json",
                         weights->path, problems.text);
    } else if (status == TR_OK && copied > 0) {
        TR_INFO("model.init: %zu of %zu tensors from %s", copied, wanted->count, weights->path);
        if (problems.length > 0)
            TR_INFO("model.init: not loaded, initialised instead:%s", problems.text);
    } else if (status == TR_OK) {
        list_left_over(wanted, weights->model, &problems);
        shorten(&problems);
        status = TR_FAIL(TR_ERR_CONFIG,
                         "model.init: no tensor of %s matches this model by name and shape:%s",
                         weights->path, problems.text);
    }
    tr_str_free(&problems);
    return status == TR_OK ? end_load(n) : status;
}

tr_status_t tr_snapshot_init(tr_snapshot_t *n, const tr_weights_t *weights) {
    files_t files = {0};
    tr_status_t status = begin_load(n, TRAINED_FIRST, &files);
    if (status == TR_OK) status = init(n, &files.model, weights);
    free_files(&files);
    return status;
}

static tr_status_t load(tr_snapshot_t *n, const names_t *wanted, const tr_weights_t *weights) {
    const tr_safetensors_t *optimizer = weights->checkpoint ? weights->checkpoint->optimizer : NULL;
    tr_str_t problems = {0};
    read_weights(n, wanted, weights, &problems);
    list_left_over(wanted, weights->model, &problems);
    shorten(&problems);
    tr_status_t status = problems.status;
    if (status == TR_OK && problems.length > 0)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "%s has the weights of a different model:%s\n"
                         "Use the configuration it was trained with (config.ini in its run folder)",
                         weights->path, problems.text);
    tr_str_free(&problems);
    TR_TRY(status);
    if (has_suffix(optimizer, RAW_SUFFIX) || has_suffix(optimizer, TR_EMA_STATE))
        TR_INFO("the weights are a moving average (optimizer.ema)");
    return end_load(n);
}

tr_status_t tr_snapshot_load(tr_snapshot_t *n, const tr_weights_t *weights) {
    files_t files = {0};
    tr_status_t status = begin_load(n, AVERAGES_FIRST, &files);
    if (status == TR_OK) status = load(n, &files.model, weights);
    free_files(&files);
    return status;
}

static tr_status_t broadcast_staged(tr_session_t *s, void *device, size_t bytes) {
    const tr_device_ops_t *ops = s->device->ops;
    tr_stream_t *stream = tr_graph_stream(s->g);
    tr_status_t status = TR_OK;
    void *host = NULL;
    TR_TRY(ops->host_alloc(s->device, bytes, &host));
    TR_TRY_GOTO(ops->copy(s->device, stream, host, device, bytes, TR_COPY_TO_HOST), done);
    TR_TRY_GOTO(tr_graph_sync(s->g), done);
    TR_TRY_GOTO(tr_world_broadcast(s->world, host, bytes, 0), done);
    TR_TRY_GOTO(ops->copy(s->device, stream, device, host, bytes, TR_COPY_TO_DEVICE), done);
    TR_TRY_GOTO(tr_graph_sync(s->g), done);
done:
    ops->host_free(s->device, host);
    return status;
}

tr_status_t tr_state_broadcast(tr_session_t *s, bool optimizer_too) {
    if (!s->world || tr_world_info(s->world)->size == 1) return TR_OK;
    TR_TRY(tr_graph_sync(s->g));
    for (int i = 0; i < REGIONS; i++) {
        size_t bytes;
        void *device = tr_graph_region_to_write(s->g, roles[i], &bytes);
        if (bytes == 0 || (roles[i] == TR_ROLE_OPTIM_STATE && !optimizer_too)) continue;
        TR_TRY(s->device->host_visible ? tr_world_broadcast(s->world, device, bytes, 0)
                                       : broadcast_staged(s, device, bytes));
    }
    return TR_OK;
}
