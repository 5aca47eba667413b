/* From a config to a planned graph. */
#include "programs.h"
#include "reduce_tree.h"
#include "inputs.h"
#include "targets.h"
#include "session.h"

#include "trainer/log.h"
#include "trainer/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void take_resumed(tr_data_settings_t *data, const tr_resumed_t *resumed) {
    const char **const texts[] = {&data->mean, &data->std, &data->target_mean, &data->target_std};
    const char *const kept[] = {resumed->mean, resumed->std, resumed->target_mean, resumed->target_std};
    if (data->micro_batch < 0) data->micro_batch = resumed->order.micro_batch;
    if (data->block < 0) data->block = resumed->order.block;
    if (data->shuffle < 0) data->shuffle = resumed->order.shuffle;
    for (size_t i = 0; i < TR_COUNT(texts); i++)
        if (strcmp(*texts[i], "auto") == 0 && *kept[i]) *texts[i] = kept[i];
}

static void read_settings(tr_session_t *s) {
    tr_config_read(s->config, &tr_main_config, &s->main);
    tr_config_read(s->config, &tr_train_config, &s->train);
    tr_config_read(s->config, &tr_data_config, &s->data);
    tr_config_read(s->config, &tr_model_config, &s->model);
    tr_config_read(s->config, &tr_optim_config, &s->optim);
    tr_config_read(s->config, &tr_schedule_config, &s->schedule);
    tr_config_read(s->config, &tr_parallel_config, &s->parallel);
    if (s->params.resumed) take_resumed(&s->data, s->params.resumed);
}

/* A model of tokens says how its data are cut. */
static tr_status_t read_model_of_tokens(tr_session_t *s) {
    const tr_model_t *model;
    TR_TRY(tr_model_find(s->model.type, &model));
    if (model->tokens) model->tokens(s->config, &s->data.context, &s->data.vocab_size);
    return TR_OK;
}

/* -- data ------------------------------------------------------------------------------------------------ */

/* Labels that are not read are no reason to refuse inputs. */
static tr_status_t check_names(const tr_session_t *s, const tr_names_t *found) {
    const tr_names_t *expected = s->params.names ? s->params.names : s->info.names;
    for (int list = 0; list < TR_NAMES_LISTS; list++) {
        const tr_status_t status = tr_names_check(list, &expected[list], &found[list]);
        if (status == TR_OK) continue;
        if (!s->params.prediction || list != TR_NAMES_CLASSES) return status;
        TR_WARN("%s numbers its classes otherwise than the training data (class_names): the predictions have "
                "numbers and names of the training",
                found[list].from);
        tr_error_clear();
    }
    return TR_OK;
}

static tr_status_t check_split(const tr_session_t *s, tr_split_t split, tr_split_t main_split) {
    const tr_dataset_info_t *info = &s->dataset[split]->info, *wanted = &s->info;
    bool same = info->field_count == wanted->field_count;
    if (info->field_count + wanted->field_count == 3) { /* inputs and labels, and inputs alone */
        const bool lacks = info->field_count == 1;
        return TR_FAIL(
            TR_ERR_DATA,
            "data.%s (%s) has no labels or targets, but data.%s has: name them with data.y, or put them in a "
            "file NAME_y.h5 beside NAME_x.h5",
            tr_split_name(lacks ? split : main_split), lacks ? info->description : wanted->description,
            tr_split_name(lacks ? main_split : split));
    }
    for (int f = 0; same && f < wanted->field_count; f++)
        same = tr_shape_equal(&info->field[f].shape, &wanted->field[f].shape) &&
               info->field[f].dtype == wanted->field[f].dtype;
    if (same) return check_names(s, info->names);
    return TR_FAIL(TR_ERR_DATA,
                   "data.%s (%s) does not look like data.%s (%s): fields, types and shapes must be the same",
                   tr_split_name(split), info->description, tr_split_name(main_split), wanted->description);
}

static bool has_data(const tr_session_t *s, tr_split_t split) {
    tr_dataset_t *dataset = NULL;
    if (tr_dataset_open(&s->data, split, &dataset) != TR_OK) tr_error_clear();
    const bool found = dataset != NULL;
    tr_dataset_close(&dataset);
    return found;
}

/* Who wants a score has perhaps other data than those of this split. */
static tr_status_t fail_no_data(const tr_session_t *s, tr_split_t wanted) {
    static const tr_split_t order[] = {TR_SPLIT_VALID, TR_SPLIT_TEST, TR_SPLIT_TRAIN};
    const bool scores = !s->params.training && !s->params.prediction;
    char other[64] = "";
    for (int i = 0; i < 3 && scores && !*other; i++)
        if (order[i] != wanted && has_data(s, order[i]))
            snprintf(other, sizeof other, ", or score data.%s with --split %s", tr_split_name(order[i]),
                     tr_split_name(order[i]));
    return TR_FAIL(TR_ERR_CONFIG,
                   "data.%s is not set: name an HDF5 file (`trainer import` makes one, `trainer data FILE` "
                   "shows what is in it)%s",
                   tr_split_name(wanted), other);
}

/* By more than rounding, as a part of the deviation or of what is larger. */
static bool differ(float a, float b, float deviation) {
    return fabsf(a - b) > 1e-3F * fmaxf(deviation, fmaxf(fabsf(a), fabsf(b)));
}

/* A split's own attributes are not used, which is right only where its values are in the units of the training's. */
static void warn_of_moments(const tr_session_t *s, tr_split_t split) {
    const tr_dataset_info_t *own = &s->dataset[split]->info, *used = &s->info;
    for (int c = 0; c < own->channels; c++) {
        const int u = used->channels > 1 ? c : 0;
        const float none = used->field[0].dtype == TR_U8 ? 255 : 1;
        const float mean = used->channels > 0 ? used->mean[u] : 0,
                    std = used->channels > 0 ? used->std[u] : none;
        if (!differ(own->mean[c], mean, std) && !differ(own->std[c], std, 0)) continue;
        TR_WARN("data.%s (%s) has mean %.6g and std %.6g of its own, data.train %.6g and %.6g: both are "
                "normalised by the latter, so their values must be in the same units",
                tr_split_name(split), own->description, (double)own->mean[c], (double)own->std[c],
                (double)mean, (double)std);
        return;
    }
}

static tr_status_t open_data(tr_session_t *s) {
    const tr_split_t main_split = s->params.training ? TR_SPLIT_TRAIN : s->params.split;
    s->data.inputs_only = s->params.prediction;
    s->data.inputs = s->params.inputs;
    for (int split = 0; split < 3; split++)
        if (s->params.training || split == (int)main_split)
            TR_TRY(tr_dataset_open(&s->data, (tr_split_t)split, &s->dataset[split]));
    const tr_dataset_t *shapes = s->dataset[main_split];
    if (!shapes) return fail_no_data(s, main_split);
    s->info = shapes->info;
    if (s->params.prediction) s->info.classes = s->data.classes > 0 ? s->data.classes : 0;
    for (int split = 0; split < 3; split++) {
        const tr_dataset_t *d = s->dataset[split];
        if (!d) continue;
        if (d->info.classes > s->info.classes) {
            s->info.classes = d->info.classes;
            memcpy(s->info.largest_label, d->info.largest_label, sizeof s->info.largest_label);
        }
        TR_TRY(check_split(s, (tr_split_t)split, main_split));
        if (split != (int)main_split) warn_of_moments(s, (tr_split_t)split);
    }
    return TR_OK;
}

static const tr_field_t *input_field(const tr_session_t *s) {
    for (int f = 0; f < s->info.field_count; f++)
        if (strcmp(s->info.field[f].name, "x") == 0) return &s->info.field[f];
    return NULL;
}

/* Numbers for inputs of the same type and as many channels. */
static bool take_moments(const tr_resumed_t *init, const tr_field_t *x, tr_dataset_info_t *info) {
    const int64_t channels = x->shape.ndim > 0 ? x->shape.dim[x->shape.ndim - 1] : 1;
    int means, stds;
    if (strcmp(init->x, tr_dtype_name(x->dtype)) != 0 ||
        !tr_parse_floats(init->mean, TR_CHANNELS_MAX, info->mean, &means) ||
        !tr_parse_floats(init->std, TR_CHANNELS_MAX, info->std, &stds) || means != stds ||
        (means != 1 && means != channels))
        return false;
    info->channels = means;
    return true;
}

/* Weights to begin with want inputs as they were in their training; numbers of the data or of the configuration come first. */
static void normalize_as_init(tr_session_t *s) {
    const tr_resumed_t *init = s->params.init;
    const tr_field_t *x = input_field(s);
    if (!init || !*init->mean || !x || s->info.channels > 0) return;
    if (strcmp(init->x, tr_dtype_name(TR_U8)) == 0 && !strcmp(init->mean, "0") && !strcmp(init->std, "255"))
        return; /* what is done with bytes anyway */
    if (take_moments(init, x, &s->info))
        TR_INFO("model.init: the training data have no mean and std; those of its training are taken: "
                "data.mean = %.300s, data.std = %.300s",
                init->mean, init->std);
    else
        TR_WARN(
            "model.init: its training normalised inputs of type %s by mean %.300s and std %.300s, which do "
            "not fit the inputs of %s: set data.mean and data.std to what brings them to the same units",
            init->x, init->mean, init->std, s->info.description);
}

/* A share that the batch is no multiple of gives way to the next smaller one that is; far below it a step is slow. */
static int64_t auto_micro_batch(const tr_session_t *s) {
    const int64_t batch = s->data.batch_size, size = s->params.size, share = batch / size;
    int64_t m = share > 0 ? share : 1;
    while (batch % m != 0) m--;
    if (2 * m <= share)
        TR_WARN(
            "data.batch_size = %lld does not divide among %lld ranks, and data.micro_batch = auto is %lld "
            "for want of a larger divisor: steps are slow. Set data.batch_size = %lld, or another "
            "multiple of %lld",
            (long long)batch, (long long)size, (long long)m, (long long)((share + 1) * size),
            (long long)size);
    return m;
}

/* Scores do not depend on how samples are put together: as many whole micro-batches as there are ranks, at least. */
static void resolve_evaluation(const tr_session_t *s, int64_t *batch, int64_t *micro) {
    const int64_t size = s->params.size;
    if (*micro < 0) *micro = *batch > size ? *batch / size : 1;
    const int64_t slots = *batch / *micro;
    *batch = *micro * (slots > size ? slots : size);
}

/* Block and shuffle sizes depend on the data and the batch only, so that the order does not depend on ranks. */
static tr_status_t resolve_order(tr_session_t *s) {
    int64_t batch = s->data.batch_size;
    int64_t micro = s->params.micro_batch > 0 ? s->params.micro_batch : s->data.micro_batch;
    if (!s->params.training)
        resolve_evaluation(s, &batch, &micro);
    else if (micro < 0)
        micro = auto_micro_batch(s);
    TR_TRY(tr_order_make(&s->data, &s->info, (uint64_t)s->train.seed, batch, micro, &s->order));
    s->slots = tr_order_slots(&s->order);
    if (s->slots < s->params.size)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%d ranks, but only %lld micro-batches a step (data.batch_size %lld / "
            "data.micro_batch %lld): %s",
            s->params.size, (long long)s->slots, (long long)batch, (long long)micro,
            s->params.resumed && s->params.resumed->order.micro_batch > 0
                ? "use fewer ranks, as a run goes on with the micro-batches of its checkpoint; a new one "
                  "that may grow wants a smaller data.micro_batch"
                : "use fewer ranks, a larger batch_size or a smaller micro_batch");
    if (s->params.training && s->info.samples < batch)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.train has %lld samples, fewer than data.batch_size = %lld: use a smaller "
                       "batch_size or more data",
                       (long long)s->info.samples, (long long)batch);
    tr_order_slots_of_rank(s->slots, s->params.rank, s->params.size, &s->first_slot, &s->slot_count);
    s->steps_per_epoch = (double)s->info.samples / (double)batch;
    s->total_steps = s->train.steps > 0 ? s->train.steps
                                        : (int64_t)ceil((double)s->train.epochs * s->steps_per_epoch - 1e-9);
    return TR_OK;
}

/* -- the whole ------------------------------------------------------------------------------------------- */

static tr_status_t open_device(tr_session_t *s) {
    tr_device_params_t p = {.threads = (int)s->main.threads,
                            .index = -1,
                            .seed = (uint64_t)s->train.seed,
                            .direct = !s->main.winograd};
    const tr_world_info_t *w = s->world ? tr_world_info(s->world) : NULL;
    s->cores = w && w->cores > w->cores_shared_by ? w->cores / w->cores_shared_by : 1;
    if (s->main.threads < 0 && w) p.threads = s->cores;
    if (p.threads < 1) p.threads = s->main.threads < 0 && !w ? 0 : 1;
    TR_TRY(tr_device_open(s->main.device, &p, &s->device));
    if (s->device->threads > 0 && s->device->threads < s->main.threads)
        TR_WARN("threads = %d: OpenMP makes no more than %d; set OMP_THREAD_LIMIT higher or unset it",
                (int)s->main.threads, s->device->threads);
    if (s->main.precision == TR_PRECISION_BF16 && !s->device->fast_bf16)
        TR_WARN("precision = bf16: this processor has no instructions for products of bf16; they are "
                "emulated, and f32 is "
                "faster here");
    return TR_OK;
}

/* Ranks of a node share its memory where the device computes in it. */
static size_t memory_limit(const tr_session_t *s) {
    const size_t bytes = s->device->memory_bytes;
    return s->world && s->device->threads > 0 ? bytes / (size_t)tr_world_info(s->world)->local_size : bytes;
}

static void count_parameters(tr_session_t *s) {
    const int32_t count = tr_graph_tensor_count(s->g);
    for (int32_t id = 1; id <= count; id++) {
        const tr_tensor_t t = {id};
        if (tr_is_param(s->g, t)) s->parameters += tr_shape_elems(tr_shape_of(s->g, t));
    }
}

static tr_status_t build_graph(tr_session_t *s) {
    TR_TRY(resolve_order(s));
    TR_TRY(tr_graph_create(s->device, &s->g));
    TR_TRY(tr_programs_build(s));
    count_parameters(s);
    return tr_graph_plan(s->g, memory_limit(s));
}

static void drop_graph(tr_session_t *s) {
    tr_reduce_tree_destroy(&s->tree);
    tr_graph_destroy(&s->g);
    s->parameters = 0;
}

static bool is_auto(const tr_session_t *s) {
    return s->data.micro_batch < 0 && s->params.micro_batch == 0;
}

/* micro_batch = auto: the next smaller one until the plan fits; on all ranks what fits the one with the least memory. */
static tr_status_t fit_graph(tr_session_t *s) {
    const bool choose = is_auto(s);
    tr_status_t status = build_graph(s);
    while (status == TR_ERR_MEMORY && choose && s->order.micro_batch > 1) {
        int64_t micro = s->order.micro_batch - 1;
        while (s->data.batch_size % micro != 0) micro--;
        drop_graph(s);
        s->params.micro_batch = micro;
        status = build_graph(s);
    }
    if (s->world) status = tr_world_agree(s->world, status);
    TR_TRY(status);
    if (!choose || !s->world) return TR_OK;
    int64_t least = s->order.micro_batch;
    TR_TRY(tr_world_allreduce_int(s->world, &least, 1, TR_REDUCE_MIN));
    if (least == s->order.micro_batch) return TR_OK;
    drop_graph(s);
    s->params.micro_batch = least;
    return build_graph(s);
}

static tr_status_t open_parts(tr_session_t *s) {
    TR_TRY(read_model_of_tokens(s));
    TR_TRY(open_data(s));
    normalize_as_init(s);
    TR_TRY(tr_targets_resolve(s));
    TR_TRY(tr_inputs_check(s));
    return open_device(s);
}

static void describe_split(const tr_dataset_info_t *info, tr_str_t *text) {
    char shape[96];
    tr_str_printf(text, "%lld %lld", (long long)info->samples, (long long)info->classes);
    for (int f = 0; f < info->field_count; f++)
        tr_str_printf(text, " %s %s %s", info->field[f].name, tr_dtype_name(info->field[f].dtype),
                      tr_shape_format(&info->field[f].shape, shape));
    for (int c = 0; c < info->channels; c++)
        tr_str_printf(text, " %a %a", (double)info->mean[c], (double)info->std[c]);
    tr_str_append(text, "\n");
}

/* Copies of a file on the nodes' own disks may differ: then ranks would take unlike numbers of steps, and wait for ever. */
static tr_status_t check_alike(const tr_session_t *s) {
    tr_str_t text = {0};
    for (int split = 0; split < 3; split++)
        if (s->dataset[split]) describe_split(&s->dataset[split]->info, &text);
    tr_targets_text(s, s->target_mean, "", &text);
    tr_targets_text(s, s->target_std, "\n", &text);
    tr_str_append(&text, s->device->ops->name);
    tr_status_t status = tr_world_same(s->world, "what is in the data files, and the device",
                                       text.text ? text.text : "", text.length);
    tr_str_free(&text);
    if (status == TR_ERR_INTERNAL) {
        tr_error_t error = *tr_error_last();
        error.code = TR_ERR_DATA;
        status = tr_error_set(&error);
    }
    return tr_world_agree(s->world, status);
}

tr_status_t tr_session_create(const tr_config_t *config, tr_world_t *world, const tr_session_params_t *params,
                              tr_session_t **out) {
    tr_session_t *s = NULL;
    TR_TRY(tr_alloc(sizeof *s, "session", &s));
    s->config = config;
    s->world = world;
    s->params = *params;
    read_settings(s);
    tr_status_t status = open_parts(s);
    if (world) status = tr_world_agree(world, status);
    if (status == TR_OK && world) status = check_alike(s);
    if (status == TR_OK) status = fit_graph(s);
    if (status != TR_OK) {
        tr_session_destroy(&s);
        return status;
    }
    *out = s;
    return TR_OK;
}

tr_status_t tr_session_start(tr_session_t *s) {
    TR_TRY(tr_graph_allocate(s->g));
    TR_TRY(tr_graph_init_params(s->g, (uint64_t)s->train.seed));
    return s->params.training ? tr_optimizer_start(s->g) : TR_OK;
}

void tr_session_destroy(tr_session_t **session) {
    tr_session_t *s = *session;
    if (!s) return;
    drop_graph(s);
    tr_device_close(&s->device);
    for (int split = 0; split < 3; split++) tr_dataset_close(&s->dataset[split]);
    tr_free(session);
}

/* -- feeding --------------------------------------------------------------------------------------------- */

static tr_status_t feed(tr_session_t *s, tr_tensor_t input, const void *host) {
    if (tr_is_none(input)) return TR_OK;
    if (s->device->host_visible && s->device->immediate) return tr_input_bind(s->g, input, (void *)host);
    const tr_tensor_info_t *info = tr_tensor_info(s->g, input);
    return s->device->ops->copy(s->device, tr_graph_stream(s->g), info->data, host, info->bytes,
                                TR_COPY_TO_DEVICE);
}

tr_status_t tr_session_feed(tr_session_t *s, const tr_batch_t *batch) {
    for (int f = 0; f < batch->field_count; f++) TR_TRY(feed(s, s->field[f], batch->field[f]));
    TR_TRY(feed(s, s->batch.sample_id, batch->sample_id));
    return feed(s, s->batch.weight, batch->weight);
}

tr_status_t tr_session_loader(tr_session_t *s, tr_split_t split, bool evaluation, int64_t first_step,
                              tr_loader_t **out) {
    tr_loader_params_t p = {.order = s->order,
                            .first_slot = s->first_slot,
                            .slot_count = s->slot_count,
                            .first_step = first_step,
                            .evaluation = evaluation,
                            .workers = tr_loader_workers(&s->data, s->cores),
                            .prefetch = s->data.prefetch > 0 ? (int)s->data.prefetch : 2};
    if (!s->dataset[split]) return TR_FAIL(TR_ERR_CONFIG, "there are no data for this pass");
    p.order.samples = s->dataset[split]->info.samples;
    if (split == TR_SPLIT_VALID && s->params.training && s->train.valid_samples > 0 &&
        s->train.valid_samples < p.order.samples)
        p.order.samples = s->train.valid_samples;
    return tr_loader_create(s->dataset[split], s->device, &p, out);
}
