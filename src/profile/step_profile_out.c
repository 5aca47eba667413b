/* The profile of some steps as JSON, and as lines of the log. */
#include "advice.h"
#include "base/str.h"
#include "base/json_text.h"
#include "trainer/log.h"

#include <math.h>

enum { TOP_OPS = 10 };

static json_t *out_json_op(const tr_step_profile_t *p, const tr_op_profile_t *op) {
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "op", op->name, "layer",
                     op->layer, "phase", op->phase, "calls", tr_json_measured(op->calls), "ms",
                     tr_json_measured(1e3 * op->sec), "share",
                     tr_json_measured(op->sec / tr_step_profile_sec(p)), "gflops",
                     tr_json_measured(op->flops / op->sec / 1e9), "gbytes_per_sec",
                     tr_json_measured(op->bytes / op->sec / 1e9), "floor_ms",
                     tr_json_measured(1e3 * op->floor_sec), "bound",
                     isnan(op->floor_sec)  ? json_null()
                     : op->is_memory_bound ? json_string("memory")
                                           : json_string("compute"));
}

static json_t *out_json_rank(const tr_rank_profile_t *r) {
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "host",
        r->host, "step_ms", tr_json_measured(1e3 * r->step_sec), "median_ms",
        tr_json_measured(1e3 * r->median_sec), "longest_ms", tr_json_measured(1e3 * r->longest_sec),
        "longest_step", (json_int_t)r->longest_step, "compute_ms",
        tr_json_measured(1e3 * r->compute_sec), "data_ms", tr_json_measured(1e3 * r->data_sec),
        "wait_ms", tr_json_measured(1e3 * r->wait_sec), "progress_ms",
        tr_json_measured(1e3 * r->progress_sec), "read_ms", tr_json_measured(1e3 * r->read_sec),
        "read_bytes", tr_json_measured(r->read_bytes), "spans_dropped",
        tr_json_measured(r->dropped), "clock_error_us", tr_json_measured(1e6 * r->clock_error_sec),
        "cores_used", tr_json_measured(r->cores_used), "cores_waited",
        tr_json_measured(r->cores_waited));
}

static json_t *out_json_advice(const tr_step_profile_t *p, const tr_advice_t *a) {
    json_t *o = json_pack("{s:s, s:o, s:o, s:s}", "loss", tr_loss_name(a->loss), "ms",
                          tr_json_measured(1e3 * a->sec), "share",
                          tr_json_measured(a->sec / tr_step_profile_sec(p)), "text", a->text);
    if (a->rank >= 0) {
        json_object_set_new(o, "rank", json_integer(a->rank));
        json_object_set_new(o, "host", json_string(p->ranks.data[a->rank].host));
    }
    if (a->bucket >= 0) json_object_set_new(o, "bucket", json_integer(a->bucket));
    return o;
}

json_t *tr_step_profile_json(const tr_step_profile_t *p) {
    json_t *ops = json_array(), *ranks = json_array(), *buckets = json_array(),
           *losses = json_object(), *advice = json_array();
    double lost[TR_LOSSES];
    tr_advice_t found[TR_ADVICE];
    for (size_t i = 0; i < p->ops.count; i++)
        json_array_append_new(ops, out_json_op(p, &p->ops.data[i]));
    for (size_t i = 0; i < p->ranks.count; i++)
        json_array_append_new(ranks, out_json_rank(&p->ranks.data[i]));
    for (size_t i = 0; i < p->buckets.count; i++) {
        const tr_bucket_profile_t *b = &p->buckets.data[i];
        json_array_append_new(buckets,
                              json_pack("{s:o, s:s, s:o, s:o}", "bytes", tr_json_measured(b->bytes),
                                        "layers", b->layers, "ms", tr_json_measured(1e3 * b->sec),
                                        "exposed_ms", tr_json_measured(1e3 * b->exposed_sec)));
    }
    tr_advice_losses(p, lost);
    for (int i = 0; i < TR_LOSSES; i++)
        json_object_set_new(losses, tr_loss_name((tr_loss_t)i), tr_json_measured(1e3 * lost[i]));
    const int count = tr_advice_take(p, found);
    for (int i = 0; i < count; i++) json_array_append_new(advice, out_json_advice(p, &found[i]));
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:f, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "first_step", (json_int_t)p->first, "last_step", (json_int_t)p->last,
                     "step_ms", tr_json_measured(1e3 * tr_step_profile_sec(p)), "untraced_step_ms",
                     tr_json_measured(1e3 * p->untraced_sec), "utilisation",
                     tr_json_measured(tr_step_profile_utilisation(p)), "utilisation_mark",
                     TR_UTILISATION_MARK, "ops_are_uncaptured", p->is_captured, "peak_gflops",
                     tr_json_measured(p->peak_flops / 1e9), "peak_gbytes_per_sec",
                     tr_json_measured(p->peak_bytes / 1e9), "ranks", ranks, "ops", ops, "buckets",
                     buckets, "lost_ms", losses, "advice", advice);
}

static void out_log_ops(const tr_step_profile_t *p) {
    TR_INFO("%9s %6s %6s %10s %8s %8s  %s", "ms/step", "calls", "%", "GFLOP/s", "GB/s", "of floor",
            "op, layer, phase");
    for (size_t i = 0; i < p->ops.count && i < TOP_OPS; i++) {
        const tr_op_profile_t *op = &p->ops.data[i];
        char floor[16] = "-";
        if (isfinite(op->floor_sec))
            tr_snprintf(floor, sizeof floor, "%.1f x", op->sec / op->floor_sec);
        TR_INFO("%9.3f %6.4g %6.1f %10.1f %8.1f %8s  %s %s %s", 1e3 * op->sec, op->calls,
                100 * op->sec / tr_step_profile_sec(p), op->flops / op->sec / 1e9,
                op->bytes / op->sec / 1e9, floor, op->name, op->layer, op->phase);
    }
}

/* What the time of rank 0 is besides ops. */
static void out_log_rest(const tr_step_profile_t *p) {
    const tr_rank_profile_t *r = &p->ranks.data[0];
    const double wait = r->wait_sec + (p->is_immediate ? r->progress_sec : 0),
                 data = fmin(r->data_sec, fmax(0, r->step_sec - r->compute_sec - wait));
    const struct {
        const char *name;
        double sec;
    } rest[] = {{"all ops", r->compute_sec},
                {"waiting for other ranks and the network", wait},
                {"waiting for data", data},
                {"between ops", fmax(0, r->step_sec - r->compute_sec - wait - data)}};
    for (size_t i = 0; i < TR_COUNT(rest); i++)
        if (rest[i].sec > 0)
            TR_INFO("%9.3f %6s %6.1f %10s %8s %8s  %s", 1e3 * rest[i].sec, "",
                    100 * rest[i].sec / r->step_sec, "", "", "", rest[i].name);
}

void tr_step_profile_log(const tr_step_profile_t *p) {
    const double used = tr_step_profile_utilisation(p);
    double dropped = 0, error_sec = 0;
    char before[64] = "", clocks[64] = "", longest[64] = "";
    const tr_rank_profile_t *own = &p->ranks.data[0];
    tr_advice_t advice[TR_ADVICE];
    for (size_t i = 0; i < p->ranks.count; i++) {
        dropped += p->ranks.data[i].dropped;
        error_sec = fmax(error_sec, p->ranks.data[i].clock_error_sec);
    }
    if (isfinite(p->untraced_sec))
        tr_snprintf(before, sizeof before, ", %.3f in the steps before", 1e3 * p->untraced_sec);
    if (own->longest_sec > 3 * own->median_sec)
        tr_snprintf(longest, sizeof longest, ", %.3f in step %lld", 1e3 * own->longest_sec,
                    (long long)own->longest_step);
    if (p->ranks.count > 1)
        tr_snprintf(clocks, sizeof clocks, "; clocks agree within %.1f us", 1e6 * error_sec);
    TR_INFO(
        "profile of steps %lld to %lld: %.3f ms a step (median %.3f%s%s); the device computes for "
        "%.1f %% of the time, %s the target of %.0f %%%s",
        (long long)p->first, (long long)p->last, 1e3 * tr_step_profile_sec(p),
        1e3 * own->median_sec, longest, before, 100 * used,
        used < TR_UTILISATION_MARK ? "below" : "at or above", 100 * TR_UTILISATION_MARK, clocks);
    if (p->is_captured) TR_INFO("times of ops are uncaptured: traced steps are launched op by op");
    out_log_ops(p);
    out_log_rest(p);
    const int count = tr_advice_take(p, advice);
    for (int i = 0; i < count; i++) TR_INFO("profile: %s", advice[i].text);
    if (count == 0) TR_INFO("profile: nothing takes a tenth of a step away from computing");
    if (dropped > 0)
        TR_WARN("the profile lacks %.0f spans, for which there was no room: profile fewer steps",
                dropped);
}
