/* Plans the graph of a session: the order of samples, the programs, and the micro-batch that fits
 * the memory of every rank. */
#include "device/plan_cache.h"
#include "feed.h"
#include "plan.h"
#include "programs.h"
#include "reduce_tree.h"
#include "remedies.h"
#include "share_choices.h"
#include "trainer/log.h"

#include <math.h>

/* If the batch is not a multiple of the share, the next smaller divisor is used; with a much
 * smaller one, a step is slow. */
static int64_t session_auto_micro_batch(const tr_session_t *s) {
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

int64_t tr_session_steps(const tr_train_settings_t *train, double steps_per_epoch) {
    if (train->steps > 0) return train->steps;
    return (int64_t)ceil((double)train->epochs * steps_per_epoch - 1e-9);
}

/* With sharded gradients, all ranks reduce after each micro-batch. */
static tr_status_t session_check_sharded(const tr_session_t *s) {
    const long long ranks = s->params.size, batch = s->order.batch_size,
                    unit = ranks * s->order.micro_batch, whole = (batch + unit - 1) / unit * unit;
    if (!tr_session_trains(s) || s->parallel.zero != 2 || ranks == 1) return TR_OK;
    if (s->parallel.reproducible)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "parallel.zero = 2 cannot be used with parallel.reproducible = yes, which adds "
            "up whole gradients on a rank: set parallel.zero = 1, or reproducible = no");
    if (s->slots % ranks == 0) return TR_OK;
    if (s->params.order && s->params.order->micro_batch == s->order.micro_batch)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "parallel.zero = 2 expects as many micro-batches on each rank, but the "
            "checkpoint has %lld in a step for %lld ranks, and a resumed run keeps them: "
            "set parallel.zero = 1, or use %lld ranks",
            (long long)s->slots, ranks, (long long)s->slots);
    return TR_FAIL(TR_ERR_CONFIG,
                   "parallel.zero = 2 expects as many micro-batches on each rank, found %lld in a "
                   "step (data.batch_size %lld / data.micro_batch %lld) for %lld ranks: set "
                   "data.batch_size = %lld, or parallel.zero = 1",
                   (long long)s->slots, batch, (long long)s->order.micro_batch, ranks, whole);
}

/* Block and shuffle sizes depend on the data and the batch only, so that the order does not depend
 * on ranks. */
static tr_status_t session_resolve_order(tr_session_t *s) {
    int64_t batch = s->data.batch_size;
    int64_t micro = s->params.micro_batch > 0 ? s->params.micro_batch : s->data.micro_batch;
    if (!tr_session_trains(s)) {
        /* Scores do not depend on the grouping of samples, so every rank gets at least one whole
         * micro-batch. */
        const int64_t size = s->params.size;
        if (micro < 0) micro = batch > size ? batch / size : 1;
        const int64_t slots = batch / micro;
        batch = micro * (slots > size ? slots : size);
    } else if (micro < 0) {
        micro = session_auto_micro_batch(s);
    }
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
    if (tr_session_trains(s) && s->info.samples < batch)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.train has %lld samples, fewer than data.batch_size = %lld: use a "
                       "smaller batch_size or more data",
                       (long long)s->info.samples, (long long)batch);
    TR_TRY(session_check_sharded(s));
    tr_sampler_slots_of_rank(s->slots, s->params.rank, s->params.size, &s->first_slot,
                             &s->slot_count);
    s->steps_per_epoch = (double)s->info.samples / (double)batch;
    s->total_steps = tr_session_steps(&s->train, s->steps_per_epoch);
    return TR_OK;
}

void tr_session_drop_graph(tr_session_t *s) {
    tr_reduce_tree_destroy(&s->tree);
    tr_graph_destroy(&s->g);
    s->parameters = 0;
}

/* Ranks of a node share its memory if the device uses host memory. 0: no limit. */
static size_t session_memory_limit(const tr_session_t *s) {
    const size_t limit = s->params.any_size ? 0 : s->device->memory_bytes;
    return s->world && s->device->threads > 0 ? limit / (size_t)tr_world_info(s->world)->local_size
                                              : limit;
}

static tr_status_t session_build_graph(tr_session_t *s) {
    if (!tr_session_builds(s)) TR_TRY(session_resolve_order(s));
    TR_TRY(tr_graph_create(s->device, &s->g));
    const bool shares = tr_session_trains(s) && s->parallel.zero > 0;
    tr_graph_shard(s->g, &(tr_sharding_t){.first_bytes = (size_t)s->parallel.bucket_first,
                                          .bytes = (size_t)s->parallel.bucket,
                                          .ranks = shares ? s->params.size : 1,
                                          .rank = shares ? s->params.rank : 0,
                                          .gradients = s->parallel.zero == 2});
    if (!s->main.capture) tr_graph_run_op_by_op(s->g);
    if (!s->main.fuse) tr_graph_fuse_nothing(s->g);
    if (tr_session_builds(s)) {
        TR_TRY(s->params.build(s, s->params.build_self));
    } else {
        TR_TRY(tr_graph_input_sets(s->g, tr_feed_sets(s)));
        TR_TRY(tr_programs_build(s));
    }
    const int32_t count = tr_graph_tensor_count(s->g);
    for (int32_t id = 1; id <= count; id++) {
        const tr_tensor_t t = {id};
        if (tr_is_param(s->g, t)) s->parameters += tr_shape_elems(tr_shape_of(s->g, t));
    }
    return tr_graph_plan(s->g, session_memory_limit(s));
}

/* The error of a run that is too large, with the remedies that make it fit. */
static tr_status_t session_fail_too_large(const tr_session_t *s) {
    const tr_error_t error = *tr_error_last();
    tr_remedies_t remedies = {0};
    tr_str_t text = {0};
    if (tr_remedies_plan(s->config, s->params.size, s->device, &remedies) == TR_OK)
        tr_remedies_name(&remedies, session_memory_limit(s), &text);
    tr_error_set(&error);
    const tr_status_t status = text.length > 0 && text.status == TR_OK
                                   ? TR_FAIL(TR_ERR_MEMORY, "%s%s", error.message, text.text)
                                   : TR_ERR_MEMORY;
    tr_str_free(&text);
    tr_remedies_free(&remedies);
    return status;
}

/* Plans on this rank. choose: reduces the micro-batch until the plan fits. */
static tr_status_t session_plan_local(tr_session_t *s, bool choose) {
    tr_status_t status = session_build_graph(s);
    while (status == TR_ERR_MEMORY && choose && s->order.micro_batch > 1) {
        const tr_error_t too_large = *tr_error_last();
        int64_t micro = s->order.micro_batch - 1;
        while (s->data.batch_size % micro != 0) micro--;
        tr_session_drop_graph(s);
        s->params.micro_batch = micro;
        status = session_build_graph(s);
        if (status == TR_ERR_CONFIG) status = tr_error_set(&too_large); /* too small to train */
    }
    return status == TR_ERR_MEMORY && tr_session_trains(s) ? session_fail_too_large(s) : status;
}

/* Plans on all ranks. Rank 0 makes the choices of its device, so that all ranks compute in the same
 * way. The others plan at the same time from the choices that are kept from earlier runs; only if
 * those differ from rank 0's do they plan again. */
static tr_status_t session_plan_alike(tr_session_t *s, bool choose) {
    const bool is_root = s->params.rank == 0;
    const int64_t micro = s->params.micro_batch;
    bool alike = false;
    if (!s->world || s->params.size == 1 || !s->device->ops->choices_get) {
        const tr_status_t status = session_plan_local(s, choose);
        return tr_session_agree(s, status);
    }
    s->device->chooses_nothing = !is_root;
    tr_status_t status = session_plan_local(s, choose);
    s->device->chooses_nothing = false;
    const bool planned = is_root || status != TR_ERR_NOINPUT;
    if (!planned) {
        tr_error_clear();
        tr_session_drop_graph(s);
        status = TR_OK;
    }
    TR_TRY(tr_world_agree(s->world, status));
    TR_TRY(tr_choices_are_alike(s->world, s->device, planned, &alike));
    if (alike) return TR_OK;
    status = tr_share_choices(s->world, s->device); /* may fail on one rank */
    if (status == TR_OK && !is_root) {
        if (planned) tr_session_drop_graph(s);
        s->params.micro_batch = micro;
        tr_plan_cache_clear(s->device);
        status = session_plan_local(s, choose);
    }
    return tr_world_agree(s->world, status);
}

/* micro_batch = auto: on all ranks the one that fits the rank with the least memory. */
tr_status_t tr_session_plan(tr_session_t *s) {
    const bool choose =
        !tr_session_builds(s) && s->data.micro_batch < 0 && s->params.micro_batch == 0;
    TR_TRY(session_plan_alike(s, choose));
    if (!choose || !s->world) return TR_OK;
    int64_t range[2] = {s->order.micro_batch, -s->order.micro_batch};
    TR_TRY(tr_world_allreduce_int(s->world, range, 2, TR_REDUCE_MIN));
    if (range[0] == -range[1]) return TR_OK;
    tr_session_drop_graph(s);
    s->params.micro_batch = range[0];
    return session_plan_alike(s, false);
}

/* What the plan may use of the device now. Executables and buffers that NCCL makes at the first
 * collective come later: 1 GiB, or a sixteenth of the device. */
static tr_status_t session_measure(const tr_session_t *s, size_t *out) {
    size_t available = 0, total = 0;
    TR_TRY(s->device->ops->memory_info(s->device, &available, &total));
    const size_t most = (size_t)1 << 30, later = total / 16 < most ? total / 16 : most;
    *out = available > later ? available - later : 0;
    return TR_OK;
}

static tr_status_t session_refuse(const tr_session_t *s, size_t measured, bool fits) {
    char need[32], left[32];
    if (fits) return TR_OK;
    return TR_FAIL(TR_ERR_MEMORY,
                   "%s: the plan needs %s, and %s are left since NCCL and the libraries are open. "
                   "Reduce data.micro_batch, or set it to auto",
                   s->device->description,
                   tr_format_bytes((double)tr_graph_memory(s->g).total, need),
                   tr_format_bytes((double)measured, left));
}

tr_status_t tr_session_fit(tr_session_t *s) {
    const bool is_auto = !tr_session_builds(s) && s->data.micro_batch < 0;
    size_t measured = 0;
    if (!s->device->ops->memory_info || s->device->host_visible) return TR_OK;
    tr_status_t status = session_measure(s, &measured);
    TR_TRY(tr_session_agree(s, status));
    const bool fits = tr_graph_memory(s->g).total <= measured;
    int64_t all_fit = fits;
    if (s->world) TR_TRY(tr_world_allreduce_int(s->world, &all_fit, 1, TR_REDUCE_MIN));
    if (all_fit) return TR_OK;
    if (s->params.order && s->params.order->micro_batch > 0) { /* resumed: it is fixed */
        TR_WARN(
            "little memory is left for NCCL and the libraries: if it is not enough, resume on more "
            "ranks or on GPUs with more memory");
        return TR_OK;
    }
    if (!is_auto || s->order.micro_batch == 1) {
        status = session_refuse(s, measured, fits);
        return tr_session_agree(s, status);
    }
    const int64_t before = s->order.micro_batch;
    if (measured < s->device->memory_bytes) s->device->memory_bytes = measured;
    tr_session_drop_graph(s);
    s->params.micro_batch = 0;
    TR_TRY(tr_session_plan(s));
    TR_INFO("micro_batch %lld instead of %lld: NCCL and the libraries have taken memory",
            (long long)s->order.micro_batch, (long long)before);
    return TR_OK;
}
