/* A session from a configuration: its settings, data, device and planned graph. */
#include "base/clock.h"
#include "base/int_math.h"
#include "base/mem.h"
#include "device/loss_scale.h"
#include "eval.h"
#include "feed.h"
#include "open_data.h"
#include "open_device.h"
#include "plan.h"
#include "self_test.h"
#include "share_choices.h"
#include "trainer/log.h"

#include <string.h>

static void session_read_settings(tr_session_t *s) {
    const tr_sampler_t *order = s->params.order;
    const tr_preprocess_t *trained = s->params.trained_preprocess;
    tr_config_read(s->config, &tr_main_config, &s->main);
    tr_config_read(s->config, &tr_train_config, &s->train);
    tr_config_read(s->config, &tr_data_config, &s->data);
    tr_config_read(s->config, &tr_model_config, &s->model);
    tr_config_read(s->config, &tr_optim_config, &s->optim);
    s->optim.halts = s->train.on_nan == TR_ON_NAN_STOP;
    tr_config_read(s->config, &tr_schedule_config, &s->schedule);
    tr_config_read(s->config, &tr_parallel_config, &s->parallel);
    /* What is auto is as in the resumed or evaluated run. */
    if (s->main.precision == TR_PRECISION_AUTO) s->main.precision = (int)s->params.precision;
    if (order && s->data.micro_batch < 0) s->data.micro_batch = order->micro_batch;
    if (order && s->data.block < 0) s->data.block = order->block;
    if (order && s->data.shuffle < 0) s->data.shuffle = order->shuffle;
    s->data.trained = trained;
    if (trained && !tr_session_trains(s) && s->data.classes < 0) s->data.classes = trained->classes;
    if (trained && s->data.targets == TR_TARGETS_AUTO)
        s->data.targets = trained->is_dense ? TR_TARGETS_POSITION : TR_TARGETS_SAMPLE;
}

tr_status_t tr_session_agree(const tr_session_t *s, tr_status_t status) {
    return s->world ? tr_world_agree(s->world, status) : status;
}

/* Batches of samples that are sorted by label have few classes, unless blocks from many places are mixed. */
static void session_warn_sorted(const tr_session_t *s) {
    enum { MANY = 8 };
    const tr_sampler_t *order = &s->order;
    const int64_t mixed =
        s->slots *
        (order->shuffle > 0 ? max64(tr_sampler_window_max(order), order->micro_batch) : 0);
    if (!tr_session_trains(s) || !s->info.is_sorted || mixed >= order->samples ||
        mixed / order->block >= MANY)
        return;
    TR_WARN(
        "the samples of data.train are sorted by label, and data.shuffle = %lld with data.block = "
        "%lld mixes few places, so that most batches have few classes. Set both to auto, set "
        "data.block = 1, or shuffle the samples when you create the file",
        (long long)order->shuffle, (long long)order->block);
}

/* The accuracy that a model has without learning, where it is high. */
static void session_say_largest(const tr_session_t *s) {
    const tr_dataset_t *train = tr_session_trains(s) ? s->dataset[TR_SPLIT_TRAIN] : NULL;
    const int64_t *count = train ? train->info.label_count : NULL;
    int64_t most = 0, all = 0, largest = 0;
    for (int64_t c = 0; count && c < train->info.classes; c++) {
        all += count[c];
        if (count[c] > most) most = count[largest = c];
    }
    if (most < all && !train->info.is_dense && (double)most >= 0.9 * (double)all)
        TR_INFO(
            "%.3g %% of the labels are of class %lld, which is the accuracy of a model that always "
            "predicts it: see F1 of each class (trainer eval), and model.class_weights = balanced",
            100 * (double)most / (double)all, (long long)largest);
}

static tr_status_t session_open_device(tr_session_t *s) {
    const tr_world_info_t *w = s->world ? tr_world_info(s->world) : NULL;
    const bool tf32 = s->main.precision == TR_PRECISION_TF32;
    s->cores = tr_cores_of_rank(w);
    if (s->params.device) {
        s->device = s->params.device;
        return TR_OK;
    }
    if (s->params.gpu) return tr_open_gpu_model(s->config, s->params.gpu, tf32, &s->device);
    if (!tr_session_builds(s) && strcmp(s->main.device, "auto") == 0)
        TR_TRY(tr_device_choose(s, &s->device));
    return s->device ? TR_OK
                     : tr_open_device(s->config, NULL, (uint64_t)s->train.seed, tf32, s->world,
                                      &s->device);
}

/* Sets up the session. Collective if there is a world: errors are those of all ranks. */
static tr_status_t session_open(tr_session_t *s) {
    const double begin_sec = tr_clock_sec();
    const bool has_data = !tr_session_builds(s);
    TR_TRY(tr_session_agree(s, has_data ? tr_session_open_data(s) : TR_OK));
    if (has_data) TR_TRY(tr_session_open_preprocess(s));
    if (s->world && !s->params.device) TR_TRY(tr_share_isa(s->world));
    TR_TRY(tr_session_agree(s, session_open_device(s)));
    if (s->world) TR_TRY(tr_check_own_device(s->world, s->config, s->device));
    if (s->world) TR_TRY(tr_session_check_alike(s));
    tr_precision_t precision = (tr_precision_t)s->main.precision;
    TR_TRY(tr_session_agree(s, tr_precision_resolve(s->world, s->device, &precision)));
    s->main.precision = (int)precision;
    if (tr_session_predicts(s) && !s->params.device)
        s->device->alone = s->device->threads > 0 && precision == TR_PRECISION_FP32;
    s->data_sec = tr_clock_sec() - begin_sec;
    TR_TRY(tr_session_plan(s));
    s->plan_sec = tr_clock_sec() - begin_sec - s->data_sec;
    const bool is_part = s->data.valid_fraction > 0 || strcmp(s->data.fold, "none") != 0;
    if (tr_session_trains(s) && s->info.label_shares)
        TR_INFO("classes of data.train%s: %s", is_part ? ", with the part for validation" : "",
                s->info.label_shares);
    session_warn_sorted(s);
    session_say_largest(s);
    if (tr_session_trains(s) && s->info.counts_from_1)
        TR_WARN("%s, and make the model's outputs one fewer; no sample has class 0",
                s->info.label_note);
    return TR_OK;
}

tr_status_t tr_session_create(const tr_config_t *config, tr_world_t *world,
                              const tr_session_params_t *params, tr_session_t **out) {
    tr_session_t *s = NULL;
    TR_TRY(tr_alloc(sizeof *s, "session", &s));
    s->config = config;
    s->world = world;
    s->params = *params;
    session_read_settings(s);
    const tr_status_t status = session_open(s);
    if (status == TR_OK)
        *out = s;
    else
        tr_session_destroy(&s);
    return status;
}

tr_status_t tr_session_start(tr_session_t *s, tr_collectives_t *collectives) {
    const bool shares = collectives && collectives->ops->share;
    s->collectives = collectives;
    size_t bytes = 0;
    if (shares) tr_graph_share(s->g);
    TR_TRY(tr_graph_allocate(s->g));
    for (int role = 0; shares && role < TR_ROLE_COUNT; role++) {
        if (!tr_region_is_collective(s->g, (tr_role_t)role)) continue;
        void *block = tr_graph_region_to_write(s->g, (tr_role_t)role, &bytes);
        TR_TRY(collectives->ops->share(collectives, block, bytes));
    }
    if (tr_session_builds(s)) return tr_graph_init_states(s->g); /* its weights are loaded */
    TR_TRY(tr_feed_create(s, &s->feed));
    return tr_session_reset(s);
}

static tr_status_t session_init(tr_session_t *s) {
    /* inputs that are bound to a batch get their own memory back: the first values are written */
    for (int32_t id = 1; id <= tr_graph_tensor_count(s->g) && tr_feed_sets(s) == 1; id++)
        if (tr_tensor_info(s->g, (tr_tensor_t){id})->role == TR_ROLE_INPUT)
            TR_TRY(tr_input_bind(s->g, (tr_tensor_t){id}, NULL));
    /* where each rank has only parts of the parameters, it draws them itself */
    TR_TRY(s->params.loaded && !tr_region_is_sharded(s->g, TR_ROLE_PARAM)
               ? tr_graph_init_states(s->g)
               : tr_graph_init_params(s->g, (uint64_t)s->train.seed));
    const tr_loss_scale_t scale = {.scale = (float)s->optim.loss_scale};
    if (!tr_is_none(s->loss_scale)) TR_TRY(tr_tensor_write(s->g, s->loss_scale, &scale));
    return tr_session_trains(s) ? tr_optimizer_start(s->g) : TR_OK;
}

tr_status_t tr_session_gather(tr_session_t *s, tr_status_t status) {
    if (!tr_graph_is_sharded(s->g)) return status;
    TR_TRY(tr_session_agree(s, status));
    return tr_graph_gather(s->g, s->collectives);
}

tr_status_t tr_session_reset(tr_session_t *s) {
    const tr_status_t status = session_init(s);
    return tr_region_is_sharded(s->g, TR_ROLE_PARAM) ? tr_session_gather(s, status) : status;
}

void tr_session_destroy(tr_session_t **session) {
    tr_session_t *s = *session;
    if (!s) return;
    tr_evaluation_destroy(&s->validation);
    tr_target_sums_destroy(&s->target_sums);
    tr_free(&s->confusion);
    tr_feed_destroy(&s->feed);
    tr_session_drop_graph(s);
    if (!s->params.device) tr_device_close(&s->device);
    tr_preprocess_destroy(&s->preprocess);
    for (int split = 0; split < 3; split++) tr_dataset_close(&s->dataset[split]);
    tr_free(session);
}

/* Of a pass over the split. */
static int64_t session_samples(const tr_session_t *s, tr_split_t split) {
    const int64_t samples = s->dataset[split]->info.samples, wanted = s->train.valid_samples;
    const bool is_part = split == TR_SPLIT_VALID && tr_session_trains(s) && wanted > 0;
    return is_part && wanted < samples ? wanted : samples;
}

tr_status_t tr_session_checksum(tr_session_t *s, tr_split_t last) {
    const tr_floats_t none = {0}; /* what missing values become is no content */
    TR_TRY(tr_session_set_fill(s, &none));
    for (int split = 0; split <= (int)last; split++)
        if (s->dataset[split])
            s->checksum[split] =
                tr_dataset_checksum(s->dataset[split], session_samples(s, (tr_split_t)split));
    return s->preprocess ? tr_session_set_fill(s, &s->preprocess->input.mean) : TR_OK;
}

uint64_t tr_config_data_checksum(const tr_config_t *config) {
    tr_session_t s = {.config = config, .params = {.purpose = TR_SESSION_TRAIN, .size = 1}};
    uint64_t sum = 1;
    session_read_settings(&s);
    bool is_known =
        tr_session_open_data(&s) == TR_OK && tr_session_checksum(&s, TR_SPLIT_TEST) == TR_OK;
    for (int split = 0; split < 3; split++) {
        if (s.dataset[split] && s.checksum[split] == 0) is_known = false;
        sum = (sum ^ s.checksum[split]) * 0x9E3779B97F4A7C15u;
        tr_dataset_close(&s.dataset[split]);
    }
    tr_error_clear();
    return is_known ? sum : 0;
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
    p.order.samples = session_samples(s, split);
    return tr_loader_create(s->dataset[split], s->device, &p, out);
}
