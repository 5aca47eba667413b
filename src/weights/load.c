/* Loads the state of a graph: from a checkpoint, or weights alone from any file. */
#include "base/half.h"
#include "base/int_math.h"
#include "huggingface.h"
#include "snapshot_int.h"
#include "torch_layout.h"
#include "trainer/log.h"

#include <omp.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

/* Tensors are loaded to the memory of the graph if the host sees it, else to the snapshot, which has
 * the current state. Where ranks share, their data are NULL: load_read writes to the graph. */
static tr_status_t load_begin(tr_snapshot_t *n, snapshot_kind_t kind, snapshot_files_t *out) {
    const tr_session_t *s = n->s;
    snapshot_memory_t at = n->host;
    for (int i = 0; i < TR_SNAPSHOT_REGIONS; i++) {
        size_t bytes;
        const void *from = tr_graph_region(s->g, tr_snapshot_roles[i], &bytes);
        if (tr_graph_is_sharded(s->g))
            at.region[i] = NULL;
        else if (s->device->host_visible)
            at.region[i] = tr_graph_region_to_write(s->g, tr_snapshot_roles[i], &bytes);
        else if (bytes > 0)
            TR_TRY(s->device->ops->copy(s->device, tr_graph_stream(s->g), at.region[i], from, bytes,
                                        TR_COPY_TO_HOST));
    }
    TR_TRY(tr_graph_sync(s->g));
    return tr_snapshot_name_tensors(s->g, &at, kind, out);
}

static tr_status_t load_end(tr_snapshot_t *n) {
    const tr_session_t *s = n->s;
    const bool is_there = s->device->host_visible || tr_graph_is_sharded(s->g);
    for (int i = 0; i < TR_SNAPSHOT_REGIONS && !is_there; i++) {
        size_t bytes;
        void *to = tr_graph_region_to_write(s->g, tr_snapshot_roles[i], &bytes);
        if (bytes > 0)
            TR_TRY(s->device->ops->copy(s->device, tr_graph_stream(s->g), to, n->host.region[i],
                                        bytes, TR_COPY_TO_DEVICE));
    }
    return tr_graph_sync(s->g);
}

static size_t tensor_bytes(const tr_named_tensor_t *t) {
    return (size_t)tr_shape_elems(&t->shape) * tr_dtype_bytes(t->dtype);
}

static bool load_is_float(tr_dtype_t type) {
    return type == TR_F32 || tr_dtype_is_half(type);
}

static bool load_fits(const tr_named_tensor_t *want, const tr_named_tensor_t *have) {
    const bool converts = load_is_float(want->dtype) && load_is_float(have->dtype);
    return (converts || have->dtype == want->dtype) && tr_shape_equal(&have->shape, &want->shape);
}

/* Between f32, bf16 and f16. */
static void load_convert(tr_dtype_t from, const void *in, int64_t count, tr_dtype_t to, void *out) {
    enum { BLOCK = 1024 };
    float block[BLOCK];
    for (int64_t at = 0; at < count; at += BLOCK) {
        const int64_t n = min64(BLOCK, count - at);
        const uint16_t *halves = (const uint16_t *)in + at;
        uint16_t *narrow = (uint16_t *)out + at;
        if (from == TR_F32) memcpy(block, (const float *)in + at, (size_t)n * sizeof *block);
        for (int64_t i = 0; i < n && from == TR_BF16; i++) block[i] = tr_float_of_bf16(halves[i]);
        for (int64_t i = 0; i < n && from == TR_F16; i++) block[i] = tr_float_of_f16(halves[i]);
        if (to == TR_F32) memcpy((float *)out + at, block, (size_t)n * sizeof *block);
        for (int64_t i = 0; i < n && to == TR_BF16; i++) narrow[i] = tr_bf16_of_float(block[i]);
        for (int64_t i = 0; i < n && to == TR_F16; i++) narrow[i] = tr_f16_of_float(block[i]);
    }
}

/* Reads `count` values from `first` on. */
static tr_status_t load_part(const tr_named_tensor_t *have, int64_t first, int64_t count,
                             tr_dtype_t type, char *out) {
    const int64_t unit = (int64_t)tr_dtype_bytes(have->dtype);
    void *values = NULL;
    if (have->dtype == type) return tr_safetensors_read(have, first * unit, count * unit, out);
    TR_TRY(tr_alloc((size_t)(count * unit), "values of a tensor to convert", &values));
    const tr_status_t status = tr_safetensors_read(have, first * unit, count * unit, values);
    if (status == TR_OK) load_convert(have->dtype, values, count, type, out);
    tr_free(&values);
    return status;
}

enum { LOAD_PART = 1 << 18 }; /* 1 MiB of F32 */

/* The same with the device's threads. Errors are recorded per thread: from the first part that could
 * not be read on, this thread reads again. */
static tr_status_t load_values(const tr_session_t *s, const tr_named_tensor_t *have, int64_t first,
                               int64_t count, tr_dtype_t type, char *out) {
    const int64_t parts = (count + LOAD_PART - 1) / LOAD_PART,
                  bytes = LOAD_PART * (int64_t)tr_dtype_bytes(type);
    if (parts < 2) return load_part(have, first, count, type, out);
    const int threads = s->device->threads > 0 ? s->device->threads : omp_get_max_threads();
    int64_t failed = parts;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(min : failed)
    for (int64_t i = 0; i < parts; i++)
        if (load_part(have, first + i * LOAD_PART, min64(LOAD_PART, count - i * LOAD_PART), type,
                      out + i * bytes) != TR_OK &&
            i < failed)
            failed = i;
    for (int64_t i = failed; i < parts; i++)
        TR_TRY(load_part(have, first + i * LOAD_PART, min64(LOAD_PART, count - i * LOAD_PART), type,
                         out + i * bytes));
    return TR_OK;
}

/* Where the values of a tensor come from: a tensor of a file, or memory with all of them; else they
 * are 0. */
typedef struct {
    const tr_named_tensor_t *file;
    const char *memory;
} load_source_t;

/* `bytes` of a tensor from its byte `first` on, to the host memory `to`. */
static tr_status_t load_to_host(const tr_session_t *s, const load_source_t *from, tr_dtype_t type,
                                size_t first, size_t bytes, char *to) {
    const size_t unit = tr_dtype_bytes(type);
    if (from->file)
        return load_values(s, from->file, (int64_t)(first / unit), (int64_t)(bytes / unit), type,
                           to);
    if (from->memory)
        memcpy(to, from->memory + first, bytes);
    else
        memset(to, 0, bytes);
    return TR_OK;
}

/* The same to the memory of the device, which the host may not see. */
static tr_status_t load_to_device(const tr_session_t *s, const load_source_t *from, tr_dtype_t type,
                                  size_t first, size_t bytes, char *to) {
    enum { PIECE = LOAD_PART * sizeof(float) };
    const tr_device_ops_t *ops = s->device->ops;
    void *host = NULL;
    tr_status_t status = TR_OK;
    if (s->device->host_visible) return load_to_host(s, from, type, first, bytes, to);
    TR_TRY(ops->host_alloc(s->device, PIECE, &host));
    for (size_t at = 0; at < bytes && status == TR_OK; at += PIECE) {
        const size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        status = load_to_host(s, from, type, first + at, n, host);
        if (status == TR_OK)
            status =
                ops->copy(s->device, tr_graph_stream(s->g), to + at, host, n, TR_COPY_TO_DEVICE);
        if (status == TR_OK) status = tr_graph_sync(s->g);
    }
    ops->host_free(s->device, host);
    return status;
}

/* Gives tensor `i` of the list its values. Where ranks share, those that this rank reads. */
static tr_status_t load_fill(const tr_snapshot_t *n, const tensor_list_t *list, size_t i,
                             const load_source_t *from) {
    const tr_session_t *s = n->s;
    const tr_named_tensor_t *want = &list->data[i];
    if (want->data)
        return load_to_host(s, from, want->dtype, 0, tensor_bytes(want),
                            (char *)(uintptr_t)want->data);
    for (size_t k = 0; k < n->reads.list.count; k++) {
        const tr_range_t *range = &n->reads.list.data[k];
        const tr_place_t *place = &list->places.data[i];
        size_t first, count, bytes;
        if (!tr_range_common(range, place, tensor_bytes(want), &first, &count)) continue;
        char *region = tr_graph_region_to_write(s->g, tr_snapshot_roles[range->region], &bytes);
        TR_TRY(load_to_device(s, from, want->dtype, first, count,
                              region + range->device + (place->at + first - range->at)));
    }
    return TR_OK;
}

static tr_status_t load_tensor(const tr_snapshot_t *n, const tensor_list_t *list, size_t i,
                               const tr_named_tensor_t *have) {
    return load_fill(n, list, i, &(load_source_t){.file = have});
}

/* From PyTorch's order of dimensions. */
static tr_status_t load_torch_tensor(const tr_snapshot_t *n, const tensor_list_t *list, size_t i,
                                     const tr_torch_order_t *order, const tr_named_tensor_t *have) {
    const tr_named_tensor_t *want = &list->data[i];
    float *there = NULL, *here = NULL;
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(tr_alloc(tensor_bytes(want), "a weight of model.init", &there), done);
    TR_TRY_GOTO(tr_alloc(tensor_bytes(want), "a weight of model.init", &here), done);
    TR_TRY_GOTO(
        load_values(n->s, have, 0, tr_shape_elems(&want->shape), want->dtype, (char *)there), done);
    tr_torch_exchange(there, order->outer, order->channels, order->pixels, here);
    TR_TRY_GOTO(load_fill(n, list, i, &(load_source_t){.memory = (const char *)here}), done);
done:
    tr_free(&there);
    tr_free(&here);
    return status;
}

/* Only fp16 runs have a loss scale. A run may resume from a checkpoint of another precision. */
static bool load_is_optional(const char *name) {
    return strcmp(name, TR_LOSS_SCALE_STATE) == 0;
}

static bool load_has_suffix(const tr_safetensors_t *optimizer, const char *suffix) {
    const size_t length = strlen(suffix);
    for (size_t i = 0; optimizer && i < tr_safetensors_count(optimizer); i++) {
        const char *name = tr_safetensors_at(optimizer, i)->name;
        const size_t at = strlen(name) - length;
        if (strlen(name) > length && name[at - 1] == '.' && strcmp(name + at, suffix) == 0)
            return true;
    }
    return false;
}

/* -- optimizer state that begins or ends with a resume ----------------------------------------- */

/* A resumed run may train other parameters, with another optimizer, with or without an average. */
typedef struct {
    const tr_graph_t *g;
    const tr_snapshot_t *n;
    const tr_safetensors_t *model, *optimizer;
    const snapshot_files_t *files;
    const char *was_frozen, *is_frozen; /* model.freeze */
    bool other_optimizer, other_average;
    int32_t updates; /* of the run */
} load_changes_t;

static load_changes_t load_compare(const tr_snapshot_t *n, const snapshot_files_t *files,
                                   const tr_checkpoint_t *checkpoint, const tr_config_t *then) {
    const tr_named_tensor_t *result = tr_safetensors_find(checkpoint->optimizer, "step_result");
    tr_step_result_t values = {0};
    tr_model_settings_t model;
    tr_optim_settings_t was;
    const tr_optim_settings_t *is = &n->s->optim;
    tr_config_read(then, &tr_model_config, &model);
    tr_config_read(then, &tr_optim_config, &was);
    if (!result || tensor_bytes(result) != sizeof values ||
        tr_safetensors_read(result, 0, sizeof values, &values) != TR_OK)
        tr_error_clear(); /* an error of the tensor, which is read again with the others */
    return (load_changes_t){.g = n->s->g,
                            .n = n,
                            .model = checkpoint->model,
                            .optimizer = checkpoint->optimizer,
                            .files = files,
                            .was_frozen = model.freeze,
                            .is_frozen = n->s->model.freeze,
                            .other_optimizer = strcmp(was.type, is->type) != 0 ||
                                               (was.momentum > 0) != (is->momentum > 0),
                            .other_average = (was.ema > 0) != (is->ema > 0),
                            .updates = values.applied};
}

/* Splits "conv1.weight.adam.m" into a parameter and the name of its state, which is returned; NULL:
 * there is no such parameter. */
static const char *load_split(const tr_graph_t *g, const char *name, tr_tensor_t *out_param) {
    char param[512];
    for (size_t at = strlen(name); at-- > 0;) {
        if (name[at] != '.' || at >= sizeof param) continue;
        snprintf(param, sizeof param, "%.*s", (int)at, name);
        *out_param = tr_graph_find(g, param);
        if (!tr_is_none(*out_param) && tr_is_param(g, *out_param)) return name + at + 1;
    }
    return NULL;
}

static bool load_is_average(const char *state) {
    return strcmp(state, TR_RAW_SUFFIX) == 0 || strcmp(state, TR_EMA_STATE) == 0;
}

/* Whether a changed key explains that only the checkpoint, or only the graph, has this state. The
 * optimizer's type explains a state of all parameters, model.freeze all states of a parameter. */
static bool load_is_explained(const load_changes_t *c, tr_tensor_t param, const char *state,
                              bool begins) {
    const char *name = tr_tensor_info(c->g, param)->name;
    const bool was_frozen = tr_model_freezes(c->was_frozen, name);
    if (begins ? was_frozen : tr_model_freezes(c->is_frozen, name) && !was_frozen) return true;
    const char *in_graph = load_is_average(state) ? TR_EMA_STATE : state;
    return (load_is_average(state) ? c->other_average : c->other_optimizer) &&
           (begins ? !load_has_suffix(c->optimizer, state)
                   : tr_is_none(tr_graph_find(c->g, in_graph)));
}

/* A state that the checkpoint does not have: moments begin at zero, the average at the weights, which
 * the model's file has. Returns false if no changed key explains it. */
static bool load_begin_state(const load_changes_t *c, const tensor_list_t *wanted, size_t i,
                             tr_status_t *status) {
    tr_tensor_t param;
    const char *state = load_split(c->g, wanted->data[i].name, &param);
    if (!state || !load_is_explained(c, param, state, true)) return false;
    const bool is_average = load_is_average(state);
    const load_source_t from = {
        .file = is_average ? tr_hf_find(c->model, tr_tensor_info(c->g, param)->name) : NULL};
    if (!is_average) tr_param_began(c->n->s->g, param, c->updates);
    *status = load_fill(c->n, wanted, i, &from);
    return true;
}

/* A state that only the checkpoint has is dropped. But the trained weights replace their average,
 * which is no longer computed. Returns false if no changed key explains it. */
static bool load_end_state(const load_changes_t *c, const tr_named_tensor_t *have,
                           tr_status_t *status) {
    tr_tensor_t param;
    const char *state = load_split(c->g, have->name, &param);
    if (!state || !load_is_explained(c, param, state, false)) return false;
    if (strcmp(state, TR_RAW_SUFFIX) != 0) return true;
    const tensor_list_t *model = &c->files->model;
    size_t i = 0;
    while (strcmp(model->data[i].name, tr_tensor_info(c->g, param)->name) != 0) i++;
    if (!load_fits(&model->data[i], have)) return false;
    *status = load_tensor(c->n, model, i, have);
    return true;
}

/* -- tensors by name --------------------------------------------------------------------------- */

/* Reads the tensors that fit, and adds a line to `problems` for each that does not; problems->status
 * is that of reading. torch: if the file has PyTorch's layout, else NULL. changes: explain tensors
 * that are not there; NULL: none. */
static size_t load_matching(const tr_snapshot_t *n, const tensor_list_t *wanted,
                            const tr_safetensors_t *file, const tr_torch_layout_t *torch,
                            const load_changes_t *changes, tr_str_t *problems) {
    size_t copied = 0;
    for (size_t i = 0; i < wanted->count; i++) {
        tr_named_tensor_t in_file = wanted->data[i];
        const tr_named_tensor_t *want = &in_file, *have = tr_hf_find(file, want->name);
        tr_torch_order_t order;
        const bool is_torch = torch && tr_torch_order(torch, want->name, &order);
        char a[96], b[96];
        if (is_torch) in_file.shape = order.shape;
        tr_status_t status = TR_OK;
        if (!have && load_is_optional(want->name)) continue;
        if (!have && changes && load_begin_state(changes, wanted, i, &status)) {
            if (status != TR_OK) problems->status = status;
        } else if (!have) {
            tr_str_printf(problems, "\n  %s %s: not in the checkpoint", want->name,
                          tr_shape_format(&want->shape, a));
        } else if (!load_fits(want, have)) {
            tr_str_printf(problems, "\n  %s: %s %s here, %s %s in the checkpoint%s", want->name,
                          tr_dtype_name(want->dtype), tr_shape_format(&want->shape, a),
                          tr_dtype_name(have->dtype), tr_shape_format(&have->shape, b),
                          tr_shape_equal(&have->shape, &want->shape) ? " (convert it there)" : "");
        } else {
            status = is_torch ? load_torch_tensor(n, wanted, i, &order, have)
                              : load_tensor(n, wanted, i, have);
            if (status != TR_OK) problems->status = status;
            copied++;
        }
        if (status != TR_OK) return copied;
    }
    return copied;
}

static int compare_addresses(const void *a, const void *b) {
    return (a > b) - (a < b);
}

/* For tdestroy: the file owns its tensors. */
static void free_nothing(void *tensor) {
    (void)tensor;
}

static void load_list_left_over(const tensor_list_t *wanted, const tr_safetensors_t *file,
                                const load_changes_t *changes, tr_str_t *problems) {
    void *found = NULL; /* tensors that are wanted */
    for (size_t i = 0; i < wanted->count; i++) {
        const tr_named_tensor_t *have = tr_hf_find(file, wanted->data[i].name);
        if (have && !tsearch(have, &found, compare_addresses))
            problems->status = TR_FAIL(TR_ERR_MEMORY, "not enough memory for a list of tensors");
    }
    for (size_t k = 0; k < tr_safetensors_count(file); k++) {
        const tr_named_tensor_t *have = tr_safetensors_at(file, k);
        const bool known = tr_hf_is_extra(have->name) || load_is_optional(have->name);
        char text[96];
        if (!known && !tfind(have, &found, compare_addresses) &&
            !(changes && load_end_state(changes, have, &problems->status)))
            tr_str_printf(problems, "\n  %s %s: only in the checkpoint", have->name,
                          tr_shape_format(&have->shape, text));
    }
    tdestroy(found, free_nothing);
}

/* Truncates to the size of an error message. */
static void load_shorten(tr_str_t *problems) {
    if (problems->length <= 1500) return;
    problems->length = 1500;
    tr_str_append(problems, "\n  ...");
}

/* The optimizer state differs if the parameters do. */
static void load_optimizer(const tr_snapshot_t *n, const snapshot_files_t *files,
                           const tr_checkpoint_t *checkpoint, tr_str_t *out) {
    tr_config_t *then = tr_state_config(checkpoint->state);
    load_changes_t changes = {0};
    if (then) changes = load_compare(n, files, checkpoint, then);
    load_matching(n, &files->optimizer, checkpoint->optimizer, NULL, then ? &changes : NULL, out);
    if (out->status == TR_OK)
        load_list_left_over(&files->optimizer, checkpoint->optimizer, then ? &changes : NULL, out);
    tr_config_destroy(&then);
}

/* Reads all tensors of a checkpoint, and says why they do not match: by the settings that explain it,
 * or else by the tensors. */
static void load_all(const tr_snapshot_t *n, const snapshot_files_t *files,
                     const tr_checkpoint_t *checkpoint, tr_str_t *out_model,
                     tr_str_t *out_optimizer) {
    const tr_preprocess_t *trained = n->s->params.trained_preprocess, *used = n->s->preprocess;
    const tr_field_t *was = trained ? tr_preprocess_field(trained, "x") : NULL,
                     *is = used ? tr_preprocess_field(used, "x") : NULL;
    tr_str_t tensors = {0};
    char a[96], b[96];
    load_matching(n, &files->model, checkpoint->model, NULL, NULL, &tensors);
    load_list_left_over(&files->model, checkpoint->model, NULL, &tensors);
    /* Samples of another shape give weights of another shape. */
    if (tensors.length > 0 && was && is && was->shape.ndim > 0 &&
        !tr_shape_equal(&was->shape, &is->shape))
        tr_str_printf(out_model,
                      "\n"
                      "  data.train: its samples were %s in the checkpoint, they are %s now",
                      tr_shape_format(&was->shape, a), tr_shape_format(&is->shape, b));
    if (out_model->length == 0 && tensors.text) tr_str_append(out_model, tensors.text);
    if (tensors.status != TR_OK) out_model->status = tensors.status;
    tr_str_free(&tensors);
    if (out_model->length == 0 && out_model->status == TR_OK)
        load_optimizer(n, files, checkpoint, out_optimizer);
}

tr_status_t tr_snapshot_restore(tr_snapshot_t *n, const tr_checkpoint_t *checkpoint) {
    snapshot_files_t files = {0};
    tr_str_t model = {0}, optimizer = {0};
    if (!checkpoint->optimizer)
        return TR_FAIL(TR_ERR_DATA, "%s has only weights; to start from them set model.init",
                       checkpoint->path);
    const bool is_old = load_has_suffix(checkpoint->optimizer, TR_EMA_STATE);
    tr_state_ages(n->s->g, checkpoint->state);
    tr_status_t status = load_begin(n, is_old ? TR_TRAINED_FIRST : TR_AVERAGES_FIRST, &files);
    if (status == TR_OK) {
        load_all(n, &files, checkpoint, &model, &optimizer);
        status = model.status != TR_OK ? model.status : optimizer.status;
    }
    tr_str_t *problems = model.length > 0 ? &model : &optimizer;
    if (status == TR_OK && problems->length > 0) {
        load_shorten(problems);
        status = TR_FAIL(
            TR_ERR_CONFIG,
            "checkpoint %s belongs to a different %s:%s\n"
            "Restore these settings (config.ini in the run folder), or start a new run (another "
            "run.dir), with model.init = %s to start from the weights that fit",
            checkpoint->path, problems == &model ? "model" : "optimizer", problems->text,
            checkpoint->path);
    }
    if (status == TR_OK) status = load_end(n);
    tr_str_free(&model);
    tr_str_free(&optimizer);
    tr_snapshot_files_free(&files);
    return status;
}

/* -- weights alone ----------------------------------------------------------------------------- */

/* Kernels such as 3x3 with 3 channels have the same shape in both layouts. */
static void load_warn_of_order(const tr_torch_layout_t *torch, const tensor_list_t *wanted,
                               const tr_weights_t *weights) {
    tr_torch_order_t order;
    size_t i = 0;
    while (i < wanted->count && !tr_torch_order(torch, wanted->data[i].name, &order)) i++;
    if (i < wanted->count)
        TR_WARN("%s does not record the order of its dimensions; it is read with channels "
                "last: convolution weights as (outputs, kernel, inputs). For PyTorch's order "
                "set model.init_layout = torch; to keep this order without a warning, set it "
                "to trainer",
                weights->path);
}

/* Reads parameters (not their averages) and model state; returns the number of tensors that fit. */
static size_t load_weights(const tr_snapshot_t *n, const tensor_list_t *wanted,
                           const tr_weights_t *weights, tr_str_t *problems) {
    tr_torch_layout_t *torch = NULL;
    problems->status = tr_torch_layout_create(n->s, &torch);
    if (problems->status != TR_OK) return 0;
    /* The layout is recorded in the file, or else set by model.init_layout. */
    tr_init_layout_t layout = weights->layout;
    if (layout == TR_INIT_LAYOUT_AUTO) layout = n->s->model.init_layout;
    if (layout == TR_INIT_LAYOUT_AUTO && !weights->is_complete)
        load_warn_of_order(torch, wanted, weights);
    const size_t copied = load_matching(
        n, wanted, weights->model, layout == TR_INIT_LAYOUT_TORCH ? torch : NULL, NULL, problems);
    tr_torch_layout_destroy(&torch);
    /* Of an older checkpoint: the averages replace the trained weights. */
    const tr_safetensors_t *optimizer = weights->checkpoint ? weights->checkpoint->optimizer : NULL;
    for (size_t i = 0; optimizer && i < wanted->count && problems->status == TR_OK; i++) {
        const tr_named_tensor_t *want = &wanted->data[i];
        char name[512];
        snprintf(name, sizeof name, "%s." TR_EMA_STATE, want->name);
        const tr_named_tensor_t *have = tr_safetensors_find(optimizer, name);
        if (have && load_fits(want, have)) problems->status = load_tensor(n, wanted, i, have);
    }
    return copied;
}

static const char *layout_name(tr_init_layout_t layout) {
    return layout == TR_INIT_LAYOUT_TORCH ? "torch" : "trainer";
}

/* Checks model.init_layout against the record in the file. */
static tr_status_t load_check_layout(const tr_snapshot_t *n, const tr_weights_t *weights) {
    const tr_init_layout_t set = n->s->model.init_layout, recorded = weights->layout;
    if (set == TR_INIT_LAYOUT_AUTO || recorded == TR_INIT_LAYOUT_AUTO || set == recorded)
        return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "model.init_layout = %s, but the weights in %s have the layout %s: remove "
                   "model.init_layout, or set it to auto",
                   layout_name(set), weights->path, layout_name(recorded));
}

tr_status_t tr_snapshot_init(tr_snapshot_t *n, const tr_weights_t *weights) {
    snapshot_files_t files = {0};
    tr_str_t problems = {0};
    size_t copied = 0;
    TR_TRY(load_check_layout(n, weights));
    if (tr_hf_is_folder(weights->path)) TR_TRY(tr_hf_check_sizes(n->s->config, weights->path));
    tr_status_t status = load_begin(n, TR_TRAINED_FIRST, &files);
    const tensor_list_t *wanted = &files.model;
    if (status == TR_OK) {
        copied = load_weights(n, wanted, weights, &problems);
        status = problems.status;
    }
    if (status == TR_OK && weights->is_complete && problems.length > 0) {
        load_shorten(&problems);
        status = TR_FAIL(TR_ERR_CONFIG,
                         "model.init: the model in %s has other parameters than this one:%s",
                         weights->path, problems.text);
    } else if (status == TR_OK && copied > 0) {
        TR_INFO("model.init: %zu of %zu tensors from %s", copied, wanted->count, weights->path);
        if (problems.length > 0)
            TR_INFO("model.init: not loaded, initialised instead:%s", problems.text);
    } else if (status == TR_OK) {
        load_list_left_over(wanted, weights->model, NULL, &problems);
        load_shorten(&problems);
        status = TR_FAIL(TR_ERR_CONFIG,
                         "model.init: no tensor of %s matches this model by name and shape:%s",
                         weights->path, problems.text);
    }
    if (status == TR_OK) status = load_end(n);
    tr_str_free(&problems);
    tr_snapshot_files_free(&files);
    return status;
}

tr_status_t tr_snapshot_load(tr_snapshot_t *n, const tr_weights_t *weights) {
    const tr_safetensors_t *optimizer = weights->checkpoint ? weights->checkpoint->optimizer : NULL;
    snapshot_files_t files = {0};
    tr_str_t problems = {0};
    tr_status_t status = load_begin(n, TR_AVERAGES_FIRST, &files);
    if (status == TR_OK) {
        load_weights(n, &files.model, weights, &problems);
        load_list_left_over(&files.model, weights->model, NULL, &problems);
        status = problems.status;
    }
    if (status == TR_OK && problems.length > 0) {
        load_shorten(&problems);
        status = TR_FAIL(TR_ERR_CONFIG,
                         "%s has the weights of a different model:%s\n"
                         "Use the configuration it was trained with (config.ini in its run folder)",
                         weights->path, problems.text);
    }
    if (status == TR_OK &&
        (load_has_suffix(optimizer, TR_RAW_SUFFIX) || load_has_suffix(optimizer, TR_EMA_STATE)))
        TR_INFO("the weights are a moving average (optimizer.ema)");
    if (status == TR_OK) status = load_end(n);
    tr_str_free(&problems);
    tr_snapshot_files_free(&files);
    return status;
}
