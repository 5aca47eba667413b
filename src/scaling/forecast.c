/* Predicts step times: computation of the ranks, reductions, and waiting for each other. */
#include "forecast.h"
#include "base/int_math.h"

#include <math.h>

/* -- the batch --------------------------------------------------------------------------------- */

/* Micro-batches of the profile's size if every rank gets at least one, else one smaller micro-batch
 * per rank. */
static tr_status_t forecast_share_batch(const tr_forecast_setup_t *s, int nodes,
                                        tr_forecast_t *out) {
    const int64_t micro = s->profile->micro_batch,
                  batch = s->batch_size * (s->mode == TR_SCALING_WEAK ? nodes : 1),
                  ranks = (int64_t)nodes * s->ranks_per_node;
    *out = (tr_forecast_t){.nodes = nodes, .ranks = (int)ranks, .batch_size = batch};
    if (batch % micro == 0 && batch / micro >= ranks) {
        out->micro_batch = micro;
        out->slots = ceil_div(batch / micro, ranks);
        return TR_OK;
    }
    if (batch % ranks != 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.batch_size = %lld does not divide among %lld ranks, and is not a "
                       "multiple of the profile's micro_batch of %lld with one for each rank",
                       (long long)batch, (long long)ranks, (long long)micro);
    out->micro_batch = batch / ranks;
    out->slots = 1;
    return TR_OK;
}

/* -- the timeline of one micro-batch and the reduction of its buckets --------------------------- */

tr_timeline_t tr_timeline(const double *op_sec, int ops, double scale, const tr_bucket_t *buckets,
                          const double *bucket_sec, int bucket_count, bool is_polled) {
    double compute = 0, computing = 0, communicating = 0;
    int b = 0;
    for (int i = -1; i < ops; i++) {
        if (i >= 0) {
            compute += op_sec[i] * scale;
            computing += op_sec[i] * scale;
        }
        for (; b < bucket_count && (buckets[b].after_op <= i || i == ops - 1); b++) {
            const double start = communicating > computing ? communicating : computing;
            communicating = start + bucket_sec[b];
            if (is_polled) computing = communicating;
        }
    }
    const double end = communicating > computing ? communicating : computing;
    return (tr_timeline_t){compute, end, end - compute};
}

/* -- one step ---------------------------------------------------------------------------------- */

/* Quantile q of ascending values, with linear interpolation. */
static double forecast_quantile(const double *values, size_t count, double q) {
    const double at = q * (double)(count - 1);
    const size_t i = (size_t)at;
    return i + 1 >= count ? values[count - 1]
                          : values[i] + (at - (double)i) * (values[i + 1] - values[i]);
}

/* The time of the slowest of `ranks` relative to the median step, at quantile q. */
static double forecast_slowest(const tr_profile_t *p, int ranks, double q) {
    const double *sec = p->compute_sec.data;
    const size_t n = p->compute_sec.count;
    return forecast_quantile(sec, n, pow(q, 1.0 / ranks)) / forecast_quantile(sec, n, 0.5);
}

static double forecast_allreduce_sec(const tr_forecast_setup_t *s, int nodes, double bytes,
                                     tr_network_stat_t stat, bool *measured) {
    bool inside_measured = true, between_measured;
    double whole;
    *measured = true;
    if (s->ranks_per_node > 1 && nodes > 1 &&
        tr_network_measured_sec(s->between, nodes * s->ranks_per_node, nodes, bytes, stat, &whole))
        return whole;
    const double between =
        nodes > 1 ? tr_network_allreduce_sec(s->between, nodes, bytes, stat, &between_measured)
                  : (between_measured = true, 0);
    const double inside =
        s->ranks_per_node > 1
            ? tr_network_allreduce_sec(s->inside, s->ranks_per_node, bytes, stat, &inside_measured)
            : 0;
    *measured = inside_measured && between_measured;
    return between + inside;
}

/* Seconds of a step whose compute time is `factor` times its median. */
static tr_status_t forecast_step(const tr_forecast_setup_t *s, double factor,
                                 tr_network_stat_t stat, tr_forecast_t *row, double *out_sec,
                                 double *out_exposed_sec) {
    const tr_profile_t *p = s->profile;
    const double median = forecast_quantile(p->compute_sec.data, p->compute_sec.count, 0.5),
                 resized = (double)row->micro_batch / (double)p->micro_batch,
                 micro_sec = fmax(0, median - p->update_sec) / (double)p->slots * resized * factor;
    const bool scatters_each = s->shards_gradients && row->ranks > 1 && row->slots > 1,
               is_polled =
                   row->nodes > 1 ? s->between->is_polled : s->inside && s->inside->is_polled;
    double op_sum = 0, *bucket_sec = NULL;
    bool all_measured = true;
    TR_TRY(tr_alloc(p->buckets.count * sizeof *bucket_sec, "buckets", &bucket_sec));
    for (size_t b = 0; b < p->buckets.count; b++) {
        bool measured;
        bucket_sec[b] =
            forecast_allreduce_sec(s, row->nodes, p->buckets.data[b].bytes, stat, &measured);
        all_measured &= measured;
    }
    for (size_t i = 0; i < p->op_sec.count; i++) op_sum += p->op_sec.data[i];
    tr_timeline_t last, other = {micro_sec, micro_sec, 0}; /* micro-batches */
    for (int is_last = scatters_each ? 0 : 1; is_last < 2; is_last++) {
        for (size_t b = 0; scatters_each && b < p->buckets.count; b++)
            bucket_sec[b] *= is_last ? 2 : 0.5;
        *(is_last ? &last : &other) =
            tr_timeline(p->op_sec.data, (int)p->op_sec.count, op_sum > 0 ? micro_sec / op_sum : 0,
                        p->buckets.data, bucket_sec, (int)p->buckets.count, is_polled);
    }
    tr_free(&bucket_sec);
    row->network = row->ranks == 1 ? TR_ORIGIN_NONE
                   : all_measured  ? TR_ORIGIN_MEASURED
                                   : TR_ORIGIN_FITTED;
    const double others = (double)(row->slots - 1);
    *out_exposed_sec = others * other.exposed_sec + last.exposed_sec;
    *out_sec = others * other.end_sec + last.end_sec + p->update_sec * factor;
    return TR_OK;
}

/* -- rows -------------------------------------------------------------------------------------- */

static tr_status_t forecast_times(const tr_forecast_setup_t *s, int nodes, tr_forecast_t *out) {
    TR_TRY(forecast_share_batch(s, nodes, out));
    TR_TRY(forecast_step(s, 1, TR_NETWORK_MEDIAN, out, &out->step_sec.low, &out->exposed_sec.low));
    TR_TRY(forecast_step(s, forecast_slowest(s->profile, out->ranks, 0.5), TR_NETWORK_MEDIAN, out,
                         &out->step_sec.expected, &out->exposed_sec.expected));
    TR_TRY(forecast_step(s, forecast_slowest(s->profile, out->ranks, 0.95), TR_NETWORK_P90, out,
                         &out->step_sec.high, &out->exposed_sec.high));
    tr_band_t *e = &out->exposed_sec; /* slower ops hide more communication */
    e->low = fmin(e->low, e->expected);
    e->high = fmax(e->high, e->expected);
    return TR_OK;
}

tr_status_t tr_forecast(const tr_forecast_setup_t *s, int nodes, tr_forecast_t *out) {
    tr_forecast_t one;
    TR_TRY(forecast_times(s, 1, &one));
    TR_TRY(forecast_times(s, nodes, out));
    out->efficiency = (tr_band_t){1, 1, 1};
    if (nodes == 1) return TR_OK;
    const double perfect =
        one.step_sec.expected / (s->mode == TR_SCALING_STRONG ? (double)nodes : 1);
    out->efficiency = (tr_band_t){perfect / out->step_sec.high, perfect / out->step_sec.expected,
                                  perfect / out->step_sec.low};
    return TR_OK;
}

/* -- assumptions ------------------------------------------------------------------------------- */

static void forecast_describe_network(const char *where, const tr_network_t *n, tr_str_t *out) {
    const tr_link_t *link = &n->link[TR_NETWORK_MEDIAN];
    tr_str_printf(out, "network %s: measured on", where);
    for (size_t i = 0; i < n->tables.count; i++)
        tr_str_printf(out, "%s %d rank%s of %d node%s", i ? "," : "", n->tables.data[i].ranks,
                      n->tables.data[i].ranks == 1 ? "" : "s", n->tables.data[i].nodes,
                      n->tables.data[i].nodes > 1 ? "s" : "");
    tr_str_printf(out,
                  "; elsewhere the better of ring and tree with latency %.3g us and bandwidth %.3g "
                  "GB/s, fitted to these tables with an error of %.0f %%\n",
                  link->latency_sec * 1e6,
                  link->sec_per_byte > 0 ? 1e-9 / link->sec_per_byte : INFINITY, 100 * n->error);
    if (n->is_polled)
        tr_str_printf(out,
                      "network %s: its engine polls in the computing thread, so no communication "
                      "is hidden\n",
                      where);
}

void tr_forecast_assumptions(const tr_forecast_setup_t *s, tr_str_t *out) {
    const tr_profile_t *p = s->profile;
    const double *sec = p->compute_sec.data;
    const size_t n = p->compute_sec.count;
    tr_str_printf(
        out,
        "compute: the profile's %d rank%s with %d thread%s, %lld x %lld samples per rank; "
        "time per sample is the same in other batches and beside other ranks\n",
        p->ranks, p->ranks > 1 ? "s" : "", p->threads, p->threads > 1 ? "s" : "",
        (long long)p->slots, (long long)p->micro_batch);
    tr_str_printf(out,
                  "ranks: vary independently, as %zu steps of the profile do (median %.3f ms, 95th "
                  "percentile %.3f ms, slowest %.3f ms); a step ends with its slowest rank\n",
                  n, forecast_quantile(sec, n, 0.5) * 1e3, forecast_quantile(sec, n, 0.95) * 1e3,
                  sec[n - 1] * 1e3);
    tr_str_printf(out,
                  "overlap: %zu bucket%s, reduced in order by one stream of communication, "
                  "each as soon as its last op is done%s\n",
                  p->buckets.count, p->buckets.count == 1 ? "" : "s",
                  s->shards_gradients ? ", in every micro-batch" : "");
    forecast_describe_network("between nodes", s->between, out);
    if (s->ranks_per_node > 1) forecast_describe_network("inside a node", s->inside, out);
    tr_str_printf(out, "not included: data loading, checkpoints, validation, congestion of the "
                       "network by other jobs\n");
    tr_str_printf(out, "low: no rank waits for a slower one. high: 95 %% of the steps are faster, "
                       "with the network at its 90th percentile\n");
}
