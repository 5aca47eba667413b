/* Creates a planned graph from a configuration. */
#include "feed.h"
#include "programs.h"
#include "reduce_tree.h"
#include "inputs.h"
#include "session.h"

#include "device/loss_scale.h"
#include "device/plan_cache.h"
#include "base/clock.h"
#include "trainer/log.h"
#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void take_order(tr_data_settings_t *data, const tr_sampler_t *order) {
    if (data->micro_batch < 0) data->micro_batch = order->micro_batch;
    if (data->block < 0) data->block = order->block;
    if (data->shuffle < 0) data->shuffle = order->shuffle;
}

static void read_settings(tr_session_t *s) {
    tr_config_read(s->config, &tr_main_config, &s->main);
    tr_config_read(s->config, &tr_train_config, &s->train);
    tr_config_read(s->config, &tr_data_config, &s->data);
    tr_config_read(s->config, &tr_model_config, &s->model);
    tr_config_read(s->config, &tr_optim_config, &s->optim);
    s->optim.halts = s->train.on_nan == TR_ON_NAN_STOP;
    tr_config_read(s->config, &tr_schedule_config, &s->schedule);
    tr_config_read(s->config, &tr_parallel_config, &s->parallel);
    if (s->main.precision == TR_PRECISION_AUTO) s->main.precision = (int)s->params.precision;
    if (s->params.order) take_order(&s->data, s->params.order);
    if (s->params.trained_preprocess && !s->params.training && s->data.classes < 0)
        s->data.classes = s->params.trained_preprocess->classes;
}

/* A language model determines how its data are divided into samples. */
static tr_status_t read_model_of_tokens(tr_session_t *s) {
    const tr_model_t *model;
    TR_TRY(tr_model_find(s->model.type, &model));
    if (model->tokens) model->tokens(s->config, &s->data.context, &s->data.vocab_size);
    return TR_OK;
}

/* -- data -------------------------------------------------------------------------------------- */

static tr_status_t check_split(const tr_session_t *s, tr_split_t split, tr_split_t main_split) {
    const tr_dataset_info_t *info = &s->dataset[split]->info, *wanted = &s->info;
    bool same = info->field_count == wanted->field_count;
    if (info->field_count + wanted->field_count == 3) { /* inputs with labels, and only inputs */
        const bool lacks = info->field_count == 1;
        return TR_FAIL(
            TR_ERR_DATA,
            "data.%s (%s) has no labels or targets, but data.%s has: set data.y, or put them into "
            "a file NAME_y.h5 beside NAME_x.h5",
            tr_split_name(lacks ? split : main_split),
            lacks ? info->description : wanted->description,
            tr_split_name(lacks ? main_split : split));
    }
    for (int f = 0; same && f < wanted->field_count; f++)
        same = tr_shape_equal(&info->field[f].shape, &wanted->field[f].shape) &&
               info->field[f].dtype == wanted->field[f].dtype;
    for (int list = 0; same && list < TR_NAMES_LISTS; list++)
        TR_TRY(tr_names_check(list, &wanted->names[list], &info->names[list]));
    if (same) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "data.%s (%s) does not match data.%s (%s): fields, types and shapes must be the "
                   "same",
                   tr_split_name(split), info->description, tr_split_name(main_split),
                   wanted->description);
}

static bool has_data(const tr_session_t *s, tr_split_t split) {
    tr_dataset_t *dataset = NULL;
    if (tr_dataset_open(&s->data, split, &dataset) != TR_OK) tr_error_clear();
    const bool found = dataset != NULL;
    tr_dataset_close(&dataset);
    return found;
}

/* For a score, the user may have meant another split. */
static tr_status_t fail_no_data(const tr_session_t *s, tr_split_t wanted) {
    static const tr_split_t order[] = {TR_SPLIT_VALID, TR_SPLIT_TEST, TR_SPLIT_TRAIN};
    const bool scores = !s->params.training && !s->params.prediction;
    char other[64] = "";
    for (int i = 0; i < 3 && scores && !*other; i++)
        if (order[i] != wanted && has_data(s, order[i]))
            snprintf(other, sizeof other, ", or evaluate data.%s with --split %s",
                     tr_split_name(order[i]), tr_split_name(order[i]));
    return TR_FAIL(TR_ERR_CONFIG,
                   "data.%s is not set: set it to an HDF5 file (`trainer import` creates one, "
                   "`trainer data FILE` shows its contents)%s",
                   tr_split_name(wanted), other);
}

/* Unsuitable labels would be refused first and hide that this is another table. */
static tr_status_t explain_data(const tr_session_t *s, tr_split_t split, tr_status_t status) {
    const tr_error_t error = *tr_error_last();
    tr_dataset_t *inputs = NULL;
    if (status != TR_ERR_DATA || !s->params.trained_preprocess || s->params.training) return status;
    tr_status_t match = tr_dataset_open_inputs(&s->data, split, &inputs);
    if (match == TR_OK && inputs)
        match = tr_preprocess_match(s->params.trained_preprocess, &inputs->info, true);
    tr_dataset_close(&inputs);
    return match == TR_ERR_DATA ? match : tr_error_set(&error);
}

static tr_status_t open_split(tr_session_t *s, tr_split_t split) {
    if (s->params.prediction) return tr_dataset_open_inputs(&s->data, split, &s->dataset[split]);
    const tr_status_t status = tr_dataset_open(&s->data, split, &s->dataset[split]);
    return status == TR_OK ? TR_OK : explain_data(s, split, status);
}

static tr_status_t open_data(tr_session_t *s) {
    const tr_split_t main_split = s->params.training ? TR_SPLIT_TRAIN : s->params.split;
    TR_TRY(read_model_of_tokens(s));
    if (s->params.inputs) return s->info = *s->params.inputs, TR_OK;
    for (int split = 0; split < 3; split++)
        if (s->params.training || split == (int)main_split)
            TR_TRY(open_split(s, (tr_split_t)split));
    const tr_dataset_t *shapes = s->dataset[main_split];
    if (!shapes) return fail_no_data(s, main_split);
    s->info = shapes->info;
    if (s->params.prediction) s->info.classes = s->data.classes > 0 ? s->data.classes : 0;
    for (int split = 0; split < 3; split++) {
        const tr_dataset_t *d = s->dataset[split];
        if (!d) continue;
        if (d->info.classes > s->info.classes) {
            s->info.classes = d->info.classes;
            memcpy(s->info.label_note, d->info.label_note, sizeof s->info.label_note);
        }
        if (split != (int)main_split) TR_TRY(check_split(s, (tr_split_t)split, main_split));
    }
    return s->params.trained_preprocess
               ? tr_preprocess_match(s->params.trained_preprocess, &s->info, s->params.prediction)
               : TR_OK;
}

/* -- preprocessing ----------------------------------------------------------------------------- */

static tr_status_t resolve_preprocess(tr_session_t *s) {
    const bool squares =
        s->model.loss != TR_LOSS_CROSS_ENTROPY && s->model.loss != TR_LOSS_BINARY_CROSS_ENTROPY;
    const tr_preprocess_sources_t sources = {
        .settings = &s->data,
        .info = &s->info,
        .classes = s->info.classes,
        .squares = squares && s->info.classes == 0,
        .train = s->params.training ? s->dataset[TR_SPLIT_TRAIN] : NULL,
        .kept = s->params.trained_preprocess,
        .init = s->params.init_preprocess};
    TR_TRY(tr_preprocess_resolve(&sources, &s->preprocess));
    const bool are_own = strcmp(s->data.mean, "auto") == 0 && strcmp(s->data.std, "auto") == 0;
    for (int split = TR_SPLIT_VALID; split <= TR_SPLIT_TEST && s->params.training && are_own;
         split++) {
        char key[32];
        snprintf(key, sizeof key, "data.%s", tr_split_name((tr_split_t)split));
        if (s->dataset[split])
            tr_preprocess_warn_units(s->preprocess, &s->dataset[split]->info, key);
    }
    return tr_inputs_check(s);
}

/* Only rank 0 reads samples for it. */
static tr_status_t share_preprocess(tr_session_t *s) {
    const bool is_root = tr_world_info(s->world)->rank == 0;
    json_t *data = is_root ? tr_preprocess_json(s->preprocess) : NULL;
    char *dumped = data ? json_dumps(data, JSON_COMPACT) : NULL, *text = NULL;
    tr_status_t status = TR_OK;
    if (is_root)
        status = dumped ? tr_strdup(dumped, &text)
                        : TR_FAIL(TR_ERR_MEMORY, "not enough memory for the data section");
    free(dumped);
    json_decref(data);
    TR_TRY(tr_world_agree(s->world, status));
    TR_TRY(tr_world_broadcast_text(s->world, &text, 0));
    if (!is_root) {
        data = json_loads(text, 0, NULL);
        status = tr_preprocess_from_json(data, "rank 0", &s->preprocess);
        json_decref(data);
    }
    tr_free(&text);
    return tr_world_agree(s->world, status);
}

static tr_status_t tell(tr_session_t *s) {
    if (!s->world) return resolve_preprocess(s);
    const bool is_root = tr_world_info(s->world)->rank == 0;
    TR_TRY(tr_world_agree(s->world, is_root ? resolve_preprocess(s) : TR_OK));
    return tr_world_info(s->world)->size > 1 ? share_preprocess(s) : TR_OK;
}

/* If the batch is not a multiple of the share, the next smaller divisor is used; with a much
 * smaller one, a step is slow. */
static int64_t auto_micro_batch(const tr_session_t *s) {
    const int64_t batch = s->data.batch_size, size = s->params.size, share = batch / size;
    int64_t m = share > 0 ? share : 1;
    while (batch % m != 0) m--;
    if (2 * m <= share)
        TR_WARN(
            "data.batch_size = %lld is not a multiple of %lld ranks, and data.micro_batch = auto "
            "is only %lld, the largest common divisor: steps are slow. Set data.batch_size = %lld, "
            "or another multiple of %lld",
            (long long)batch, (long long)size, (long long)m, (long long)((share + 1) * size),
            (long long)size);
    return m;
}

/* Scores do not depend on the grouping of samples, so every rank gets at least one whole
 * micro-batch. */
static void resolve_evaluation(const tr_session_t *s, int64_t *batch, int64_t *micro) {
    const int64_t size = s->params.size;
    if (*micro < 0) *micro = *batch > size ? *batch / size : 1;
    const int64_t slots = *batch / *micro;
    *batch = *micro * (slots > size ? slots : size);
}

/* Block and shuffle sizes depend on the data and the batch only, so that the order does not depend
 * on ranks. */
static tr_status_t resolve_order(tr_session_t *s) {
    int64_t batch = s->data.batch_size;
    int64_t micro = s->params.micro_batch > 0 ? s->params.micro_batch : s->data.micro_batch;
    if (!s->params.training)
        resolve_evaluation(s, &batch, &micro);
    else if (micro < 0)
        micro = auto_micro_batch(s);
    TR_TRY(tr_sampler_init(&s->data, &s->info, (uint64_t)s->train.seed, batch, micro, &s->order));
    s->slots = tr_sampler_slots(&s->order);
    if (s->slots < s->params.size)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%d ranks, but only %lld micro-batches per step (data.batch_size %lld / "
            "data.micro_batch %lld): %s",
            s->params.size, (long long)s->slots, (long long)batch, (long long)micro,
            s->params.order && s->params.order->micro_batch > 0
                ? "use fewer ranks: a resumed run keeps the micro-batches of its checkpoint. For a "
                  "new run that may grow, choose a smaller data.micro_batch"
                : "use fewer ranks, a larger batch_size or a smaller micro_batch");
    if (s->params.training && s->info.samples < batch)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.train has %lld samples, fewer than data.batch_size = %lld: use a "
                       "smaller batch_size or more data",
                       (long long)s->info.samples, (long long)batch);
    tr_sampler_slots_of_rank(s->slots, s->params.rank, s->params.size, &s->first_slot,
                             &s->slot_count);
    s->steps_per_epoch = (double)s->info.samples / (double)batch;
    s->total_steps = s->train.steps > 0
                         ? s->train.steps
                         : (int64_t)ceil((double)s->train.epochs * s->steps_per_epoch - 1e-9);
    return TR_OK;
}

/* -- the whole --------------------------------------------------------------------------------- */

static tr_status_t open_device(tr_session_t *s) {
    const tr_world_info_t *w = s->world ? tr_world_info(s->world) : NULL;
    s->cores = tr_cores_of_rank(w);
    if (s->params.gpu)
        return tr_open_gpu_model(s->config, s->params.gpu, s->main.precision == TR_PRECISION_TF32,
                                 &s->device);
    return tr_open_device(s->config, (uint64_t)s->train.seed,
                          s->main.precision == TR_PRECISION_TF32, w, &s->device);
}

static tr_status_t resolve_precision(tr_session_t *s) {
    tr_precision_t precision = (tr_precision_t)s->main.precision;
    TR_TRY(tr_precision_resolve(s->world, s->device, &precision));
    s->main.precision = (int)precision;
    return TR_OK;
}

/* Ranks of a node share its memory if the device uses host memory. */
static size_t memory_limit(const tr_session_t *s) {
    const size_t bytes = s->device->memory_bytes;
    return s->world && s->device->threads > 0 ? bytes / (size_t)tr_world_info(s->world)->local_size
                                              : bytes;
}

static void count_parameters(tr_session_t *s) {
    const int32_t count = tr_graph_tensor_count(s->g);
    for (int32_t id = 1; id <= count; id++) {
        const tr_tensor_t t = {id};
        if (tr_is_param(s->g, t)) s->parameters += tr_shape_elems(tr_shape_of(s->g, t));
    }
}

static tr_status_t build_programs(tr_session_t *s) {
    if (!s->main.capture) tr_graph_run_op_by_op(s->g);
    if (!s->main.fuse) tr_graph_fuse_nothing(s->g);
    if (s->params.build) return s->params.build(s, s->params.build_self);
    TR_TRY(tr_graph_input_sets(s->g, tr_feed_sets(s->device)));
    return tr_programs_build(s);
}

static tr_status_t build_graph(tr_session_t *s) {
    if (!s->params.build) TR_TRY(resolve_order(s));
    TR_TRY(tr_graph_create(s->device, &s->g));
    TR_TRY(build_programs(s));
    count_parameters(s);
    return tr_graph_plan(s->g, s->params.any_size ? 0 : memory_limit(s));
}

static void drop_graph(tr_session_t *s) {
    tr_reduce_tree_destroy(&s->tree);
    tr_graph_destroy(&s->g);
    s->parameters = 0;
}

static bool is_auto(const tr_session_t *s) {
    return !s->params.build && s->data.micro_batch < 0 && s->params.micro_batch == 0;
}

/* micro_batch = auto: reduces it until the plan fits. */
static tr_status_t fit_on_rank(tr_session_t *s, bool choose) {
    tr_status_t status = build_graph(s);
    while (status == TR_ERR_MEMORY && choose && s->order.micro_batch > 1) {
        int64_t micro = s->order.micro_batch - 1;
        while (s->data.batch_size % micro != 0) micro--;
        drop_graph(s);
        s->params.micro_batch = micro;
        status = build_graph(s);
    }
    return status;
}

/* Rank 0 makes the choices, so that all ranks compute in the same way. The others plan at the same
 * time from the choices that are kept from earlier runs; only if those differ from rank 0's do they
 * plan again. */
static tr_status_t fit_on_ranks(tr_session_t *s, bool choose) {
    const bool is_root = s->params.rank == 0;
    const int64_t micro = s->params.micro_batch;
    bool alike = false;
    s->device->chooses_nothing = !is_root;
    tr_status_t status = fit_on_rank(s, choose);
    s->device->chooses_nothing = false;
    const bool planned = is_root || status != TR_ERR_NOINPUT;
    if (!planned) {
        tr_error_clear();
        drop_graph(s);
        status = TR_OK;
    }
    TR_TRY(tr_world_agree(s->world, status));
    TR_TRY(tr_choices_are_alike(s->world, s->device, planned, &alike));
    if (alike) return TR_OK;
    TR_TRY(tr_share_choices(s->world, s->device));
    if (is_root) return TR_OK;
    if (planned) drop_graph(s);
    s->params.micro_batch = micro;
    tr_plan_cache_clear(s->device);
    return fit_on_rank(s, choose);
}

static tr_status_t fit(tr_session_t *s, bool choose) {
    const bool shares = s->world && s->params.size > 1 && s->device->ops->choices_get;
    const tr_status_t status = shares ? fit_on_ranks(s, choose) : fit_on_rank(s, choose);
    return s->world ? tr_world_agree(s->world, status) : status;
}

/* On all ranks the micro_batch that fits the one with the least memory. */
static tr_status_t fit_graph(tr_session_t *s) {
    const bool choose = is_auto(s);
    TR_TRY(fit(s, choose));
    if (!choose || !s->world) return TR_OK;
    int64_t range[2] = {s->order.micro_batch, -s->order.micro_batch};
    TR_TRY(tr_world_allreduce_int(s->world, range, 2, TR_REDUCE_MIN));
    if (range[0] == -range[1]) return TR_OK;
    drop_graph(s);
    s->params.micro_batch = range[0];
    return fit(s, false);
}

static void describe_split(const tr_dataset_info_t *info, tr_str_t *text) {
    char shape[96];
    tr_str_printf(text, "%lld %lld", (long long)info->samples, (long long)info->classes);
    for (int f = 0; f < info->field_count; f++)
        tr_str_printf(text, " %s %s %s", info->field[f].name, tr_dtype_name(info->field[f].dtype),
                      tr_shape_format(&info->field[f].shape, shape));
    tr_str_append(text, "\n");
}

/* Copies of a file on local disks of the nodes may differ. Ranks would then do different numbers of
 * steps and wait forever. */
static tr_status_t check_alike(const tr_session_t *s) {
    tr_str_t text = {0};
    for (int split = 0; split < 3; split++)
        if (s->dataset[split]) describe_split(&s->dataset[split]->info, &text);
    tr_str_append(&text, s->device->ops->name);
    tr_status_t status = tr_world_same(s->world, "the contents of the data files, and the device",
                                       text.text ? text.text : "", text.length);
    tr_str_free(&text);
    if (status == TR_ERR_INTERNAL) {
        tr_error_t error = *tr_error_last();
        error.code = TR_ERR_DATA;
        status = tr_error_set(&error);
    }
    return tr_world_agree(s->world, status);
}

tr_status_t tr_session_create(const tr_config_t *config, tr_world_t *world,
                              const tr_session_params_t *params, tr_session_t **out) {
    tr_session_t *s = NULL;
    TR_TRY(tr_alloc(sizeof *s, "session", &s));
    s->config = config;
    s->world = world;
    s->params = *params;
    read_settings(s);
    const double begin_sec = tr_clock_sec();
    tr_status_t status = params->build ? TR_OK : open_data(s);
    if (world) status = tr_world_agree(world, status);
    if (status == TR_OK && !params->build) status = tell(s);
    if (status == TR_OK) {
        status = open_device(s);
        if (world) status = tr_world_agree(world, status);
    }
    if (status == TR_OK && world) status = tr_check_own_device(world, config, s->device);
    if (status == TR_OK && world) status = check_alike(s);
    if (status == TR_OK) status = resolve_precision(s);
    s->data_sec = tr_clock_sec() - begin_sec;
    if (status == TR_OK) status = fit_graph(s);
    s->plan_sec = tr_clock_sec() - begin_sec - s->data_sec;
    if (status != TR_OK) {
        tr_session_destroy(&s);
        return status;
    }
    *out = s;
    return TR_OK;
}

/* The block that is reduced. */
static tr_status_t share_block(tr_session_t *s, tr_collectives_t *collectives) {
    size_t bytes = 0;
    void *block = tr_graph_region_to_write(s->g, TR_ROLE_REDUCED, &bytes);
    if (!collectives || !collectives->ops->share) return TR_OK;
    return collectives->ops->share(collectives, block, bytes);
}

static tr_status_t start_loss_scale(tr_session_t *s) {
    const tr_loss_scale_t start = {.scale = (float)s->optim.loss_scale};
    return tr_is_none(s->loss_scale) ? TR_OK : tr_tensor_write(s->g, s->loss_scale, &start);
}

tr_status_t tr_session_start(tr_session_t *s, tr_collectives_t *collectives) {
    TR_TRY(tr_graph_allocate(s->g));
    TR_TRY(share_block(s, collectives));
    if (s->params.build) return tr_graph_init_states(s->g); /* its weights are loaded */
    TR_TRY(s->params.loaded ? tr_graph_init_states(s->g)
                            : tr_graph_init_params(s->g, (uint64_t)s->train.seed));
    TR_TRY(tr_feed_create(s, &s->feed));
    TR_TRY(start_loss_scale(s));
    return s->params.training ? tr_optimizer_start(s->g) : TR_OK;
}

void tr_session_destroy(tr_session_t **session) {
    tr_session_t *s = *session;
    if (!s) return;
    tr_evaluation_destroy(&s->validation);
    tr_feed_destroy(&s->feed);
    drop_graph(s);
    tr_device_close(&s->device);
    tr_preprocess_destroy(&s->preprocess);
    for (int split = 0; split < 3; split++) tr_dataset_close(&s->dataset[split]);
    tr_free(session);
}

tr_status_t tr_session_loader(tr_session_t *s, tr_split_t split, bool evaluation,
                              int64_t first_step, tr_loader_t **out) {
    tr_loader_params_t p = {.order = s->order,
                            .first_slot = s->first_slot,
                            .slot_count = s->slot_count,
                            .first_step = first_step,
                            .evaluation = evaluation,
                            .workers = tr_loader_workers(&s->data, s->cores),
                            .prefetch = s->data.prefetch > 0 ? (int)s->data.prefetch : 2};
    if (!s->dataset[split]) return TR_FAIL(TR_ERR_CONFIG, "there is no data for this pass");
    p.order.samples = s->dataset[split]->info.samples;
    if (split == TR_SPLIT_VALID && s->params.training && s->train.valid_samples > 0 &&
        s->train.valid_samples < p.order.samples)
        p.order.samples = s->train.valid_samples;
    return tr_loader_create(s->dataset[split], s->device, &p, out);
}
