/* Finds the largest losses of a step, and says what helps. */
#include "advice.h"
#include "base/stats.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST_SHARE 0.1 /* of a step: a smaller loss is not worth a sentence */

const char *tr_loss_name(tr_loss_t loss) {
    static const char *const names[TR_LOSSES] = {
        "cores", "input", "communication", "slow_rank", "launch_gaps", "memory_bound", "small_ops"};
    return names[loss];
}

/* -- who --------------------------------------------------------------------------------------- */

/* Work for the communication takes time of an immediate device, whose thread does it. */
static double advice_communication_sec(const tr_step_profile_t *p, const tr_rank_profile_t *r) {
    return r->wait_sec + (p->is_immediate ? r->progress_sec : 0);
}

/* A host that is ahead of its device waits for batches while the device computes: only what the
 * device is idle for counts. */
static double advice_input_sec(const tr_step_profile_t *p, const tr_rank_profile_t *r) {
    const double idle_sec =
        tr_step_profile_sec(p) - r->compute_sec - advice_communication_sec(p, r);
    return fmax(0, fmin(r->data_sec, idle_sec));
}

/* The rank that waits longest for its loader: all others wait for it in the collectives. */
static int advice_starved_rank(const tr_step_profile_t *p) {
    int most = 0;
    for (int i = 1; i < (int)p->ranks.count; i++)
        if (advice_input_sec(p, &p->ranks.data[i]) > advice_input_sec(p, &p->ranks.data[most]))
            most = i;
    return most;
}

static int advice_slow_rank(const tr_step_profile_t *p) {
    int most = 0;
    for (int i = 1; i < (int)p->ranks.count; i++)
        if (p->ranks.data[i].compute_sec > p->ranks.data[most].compute_sec) most = i;
    return most;
}

/* The median of compute_sec over all ranks but one; NaN: there is no other. */
static double advice_median_of_others(const tr_step_profile_t *p, int rank) {
    TR_VEC(double) others = {0};
    for (int i = 0; i < (int)p->ranks.count; i++)
        if (i != rank && tr_vec_push(&others, p->ranks.data[i].compute_sec) != TR_OK) break;
    if (others.count > 0) tr_sort(others.data, (int64_t)others.count);
    const double median = others.count > 0 ? others.data[(others.count - 1) / 2] : NAN;
    tr_vec_free(&others);
    return median;
}

/* The bucket that is exposed longest; -1: none is. */
static int advice_late_bucket(const tr_step_profile_t *p) {
    int most = -1;
    for (int i = 0; i < (int)p->buckets.count; i++)
        if (p->buckets.data[i].exposed_sec > (most < 0 ? 0 : p->buckets.data[most].exposed_sec))
            most = i;
    return most;
}

/* The time that an op moves bytes beyond that of its FLOPs. In a cache it may be below its floor. */
static double advice_memory_sec(const tr_step_profile_t *p, const tr_op_profile_t *op) {
    return fmax(0, fmin(op->sec, op->floor_sec) - op->least_flops / p->peak_flops);
}

/* Of a step of this rank: the share of the time of its threads that waited for cores. */
static double advice_cores_sec(const tr_rank_profile_t *r) {
    const double sec = r->step_sec * r->cores_waited / fmax(1, r->cores_used + r->cores_waited);
    return isfinite(sec) ? sec : 0;
}

static int advice_crowded_rank(const tr_step_profile_t *p) {
    int most = 0;
    for (int i = 1; i < (int)p->ranks.count; i++)
        if (advice_cores_sec(&p->ranks.data[i]) > advice_cores_sec(&p->ranks.data[most])) most = i;
    return most;
}

static double advice_distance_sec(const tr_op_profile_t *op) {
    return fmax(0, op->sec - op->floor_sec);
}

/* -- how much ---------------------------------------------------------------------------------- */

void tr_advice_losses(const tr_step_profile_t *p, double lost[TR_LOSSES]) {
    const tr_rank_profile_t *ranks = p->ranks.data;
    const int slow = advice_slow_rank(p);
    double least_wait = INFINITY, gaps = 0;
    /* the threads of another device's rank only launch */
    lost[TR_LOSS_CORES] = p->is_immediate ? advice_cores_sec(&ranks[advice_crowded_rank(p)]) : 0;
    for (size_t i = 0; i < p->ranks.count; i++) {
        const double wait = advice_communication_sec(p, &ranks[i]);
        least_wait = fmin(least_wait, wait);
        gaps += tr_step_profile_launched_sec(p) - ranks[i].compute_sec - wait -
                advice_input_sec(p, &ranks[i]);
    }
    lost[TR_LOSS_INPUT] = advice_input_sec(p, &ranks[advice_starved_rank(p)]);
    /* The rank that all others wait for waits for the network alone. */
    lost[TR_LOSS_COMMUNICATION] = least_wait;
    lost[TR_LOSS_SLOW_RANK] =
        p->ranks.count > 1 ? ranks[slow].compute_sec - advice_median_of_others(p, slow) : 0;
    lost[TR_LOSS_LAUNCH_GAPS] = fmax(0, gaps / (double)p->ranks.count);
    lost[TR_LOSS_MEMORY_BOUND] = lost[TR_LOSS_SMALL_OPS] = isnan(p->peak_flops) ? NAN : 0;
    for (size_t i = 0; i < p->ops.count; i++) {
        const tr_op_profile_t *op = &p->ops.data[i];
        lost[TR_LOSS_MEMORY_BOUND] += advice_memory_sec(p, op);
        lost[TR_LOSS_SMALL_OPS] += advice_distance_sec(op);
    }
}

/* -- in words ---------------------------------------------------------------------------------- */

static void advice_say_cores(const tr_step_profile_t *p, tr_advice_t *a) {
    const tr_rank_profile_t *r = &p->ranks.data[a->rank];
    tr_snprintf(
        a->text, sizeof a->text,
        "the threads of rank %d (%s) computed on %.2g cores and waited for %.2g more, %.0f %% "
        "of a step: other programs use the cores, or there are more threads than cores, and "
        "all times of this profile are longer for it. trainer doctor under the same launcher "
        "shows the cores of each rank and what else uses them",
        a->rank, r->host, r->cores_used, r->cores_waited, 100 * a->sec / tr_step_profile_sec(p));
}

static void advice_say_input(const tr_step_profile_t *p, tr_advice_t *a) {
    const tr_rank_profile_t *r = &p->ranks.data[a->rank];
    const double busy = r->read_sec / ((double)p->workers * tr_step_profile_sec(p));
    char rate[32], remedy[160];
    if (busy > 0.7)
        tr_snprintf(remedy, sizeof remedy,
                    "set data.workers above %lld, or move the data to a faster disk",
                    (long long)p->workers);
    else
        tr_snprintf(remedy, sizeof remedy, "reads come in bursts: set data.prefetch above %lld",
                    (long long)p->prefetch);
    tr_snprintf(
        a->text, sizeof a->text,
        "rank %d (%s) waits for data for %.3g ms a step, %.0f %%: its loader delivers %s/s, "
        "and its %lld thread%s read%s for %.0f %% of the time; %s",
        a->rank, r->host, 1e3 * a->sec, 100 * a->sec / tr_step_profile_sec(p),
        tr_format_bytes(r->read_bytes / tr_step_profile_sec(p), rate), (long long)p->workers,
        p->workers == 1 ? "" : "s", p->workers == 1 ? "s" : "", 100 * fmin(1, busy), remedy);
}

static void advice_say_communication(const tr_step_profile_t *p, tr_advice_t *a) {
    const char *remedy = !p->overlaps ? "set parallel.overlap = yes"
                         : p->polls
                             ? "give each rank a core that does not compute (fewer ranks on the "
                               "node, or fewer threads), for parallel.engine = thread"
                         : a->bucket + 1 == (int)p->buckets.count
                             ? "set parallel.bucket lower, so that the last part is short, or "
                               "data.batch_size higher"
                             : "set data.batch_size higher";
    char bucket[256] = "", bytes[32];
    if (a->bucket >= 0) {
        const tr_bucket_profile_t *b = &p->buckets.data[a->bucket];
        tr_snprintf(bucket, sizeof bucket,
                    " The bucket that is exposed longest is number %d, %s "
                    "(%s): %.3g ms.",
                    a->bucket, tr_format_bytes(b->bytes, bytes), b->layers, 1e3 * b->exposed_sec);
    }
    tr_snprintf(a->text, sizeof a->text,
                "exposed communication takes %.3g ms a step, %.0f %%: %s.%s", 1e3 * a->sec,
                100 * a->sec / tr_step_profile_sec(p), remedy, bucket);
}

static void advice_say_slow_rank(const tr_step_profile_t *p, tr_advice_t *a) {
    const tr_rank_profile_t *r = &p->ranks.data[a->rank];
    tr_snprintf(a->text, sizeof a->text,
                "rank %d (%s) computes for %.3g ms a step, %.3g ms more than the median of the "
                "others, which wait for it: look for other programs, a low clock or a hot GPU on "
                "its node (trainer doctor), or leave the node out",
                a->rank, r->host, 1e3 * r->compute_sec, 1e3 * a->sec);
}

/* The key that makes ops larger. */
static const char *advice_batch_key(const tr_step_profile_t *p) {
    return p->micro_batch < p->batch_size / (int64_t)p->ranks.count ? "data.micro_batch"
                                                                    : "data.batch_size";
}

static void advice_say_gaps(const tr_step_profile_t *p, tr_advice_t *a) {
    const bool may_capture = !p->is_immediate && !p->is_captured;
    char key[48];
    tr_snprintf(key, sizeof key, "%s higher", advice_batch_key(p));
    tr_snprintf(a->text, sizeof a->text,
                "the device has nothing to do for %.3g ms a step, %.0f %%, between its ops: set %s",
                1e3 * a->sec, 100 * a->sec / tr_step_profile_sec(p),
                may_capture ? "capture = yes" : key);
}

/* The op that loses most: the time that its bytes take beyond its FLOPs, or its distance to both. */
static const tr_op_profile_t *advice_worst_op(const tr_step_profile_t *p, tr_loss_t loss) {
    const tr_op_profile_t *worst = &p->ops.data[0];
    double most = -1;
    for (size_t i = 0; i < p->ops.count; i++) {
        const tr_op_profile_t *op = &p->ops.data[i];
        const double sec =
            loss == TR_LOSS_SMALL_OPS ? advice_distance_sec(op) : advice_memory_sec(p, op);
        if (sec > most) worst = op, most = sec;
    }
    return worst;
}

static void advice_say_memory(const tr_step_profile_t *p, tr_advice_t *a) {
    const tr_op_profile_t *op = advice_worst_op(p, a->loss);
    tr_snprintf(
        a->text, sizeof a->text,
        "ops that move more bytes than they compute lose %.3g ms a step, %.0f %%, most of it "
        "%s %s: %s",
        1e3 * a->sec, 100 * a->sec / tr_step_profile_sec(p), op->name, op->layer,
        p->may_use_bf16 ? "set precision = bf16, which halves the bytes"
                        : "layers with more FLOPs for each byte use the device better");
}

static void advice_say_small(const tr_step_profile_t *p, tr_advice_t *a) {
    const tr_op_profile_t *op = advice_worst_op(p, a->loss);
    tr_snprintf(a->text, sizeof a->text,
                "ops take %.3g ms a step, %.0f %%, longer than the peaks of the device allow, most "
                "of it %s %s: set %s higher, because larger ops come closer to the peaks",
                1e3 * a->sec, 100 * a->sec / tr_step_profile_sec(p), op->name, op->layer,
                advice_batch_key(p));
}

static void advice_say(const tr_step_profile_t *p, tr_advice_t *a) {
    a->rank = a->loss == TR_LOSS_CORES       ? advice_crowded_rank(p)
              : a->loss == TR_LOSS_INPUT     ? advice_starved_rank(p)
              : a->loss == TR_LOSS_SLOW_RANK ? advice_slow_rank(p)
                                             : -1;
    a->bucket = a->loss == TR_LOSS_COMMUNICATION ? advice_late_bucket(p) : -1;
    switch (a->loss) {
    case TR_LOSS_CORES: advice_say_cores(p, a); break;
    case TR_LOSS_INPUT: advice_say_input(p, a); break;
    case TR_LOSS_COMMUNICATION: advice_say_communication(p, a); break;
    case TR_LOSS_SLOW_RANK: advice_say_slow_rank(p, a); break;
    case TR_LOSS_LAUNCH_GAPS: advice_say_gaps(p, a); break;
    case TR_LOSS_MEMORY_BOUND: advice_say_memory(p, a); break;
    default: advice_say_small(p, a); break;
    }
}

/* The largest of lost[first] to lost[end - 1]. */
static int advice_take_range(const tr_step_profile_t *p, const double *lost, int first, int end,
                             tr_advice_t out[TR_ADVICE]) {
    double bound = INFINITY;
    int count = 0;
    while (count < TR_ADVICE) {
        int most = -1;
        for (int i = first; i < end; i++)
            if (lost[i] >= LEAST_SHARE * tr_step_profile_sec(p) && lost[i] < bound &&
                (most < 0 || lost[i] > lost[most]))
                most = i;
        if (most < 0) break;
        bound = lost[most];
        out[count] = (tr_advice_t){.loss = (tr_loss_t)most, .sec = lost[most]};
        advice_say(p, &out[count++]);
    }
    return count;
}

int tr_advice_take(const tr_step_profile_t *p, tr_advice_t out[TR_ADVICE]) {
    double lost[TR_LOSSES];
    tr_advice_losses(p, lost);
    static const tr_loss_t first[] = {TR_LOSS_CORES, TR_LOSS_INPUT, TR_LOSS_MEMORY_BOUND,
                                      TR_LOSSES};
    int count = 0;
    for (int i = 0; count == 0 && first[i] < TR_LOSSES; i++)
        count = advice_take_range(p, lost, first[i], first[i + 1], out);
    return count;
}
