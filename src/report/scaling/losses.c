/* Where the time of a step goes, in numbers and in words. */
#include "losses.h"

#include <math.h>
#include <string.h>

/* Fractions of the step below this are not reported. */
#define NOTICE      0.02
#define GOOD        0.95 /* efficiency */
#define DOUBTFUL    1.1  /* caches that grow with the ranks explain less */
#define NOTICE_RUN  0.05
#define FEW_CORES   0.60 /* in use, of those of the threads */
#define MUCH_LAUNCH 0.10 /* start-up as a fraction of the time of a session */

const char *tr_cause_name(tr_cause_t cause) {
    static const char *const names[TR_CAUSES] = {"compute", "slow rank",  "data",
                                                 "network", "checkpoint", "cores"};
    return names[cause];
}

/* "Most is lost to ..." */
static const char *cause_in_words(tr_cause_t cause) {
    static const char *const words[TR_CAUSES] = {"slower computing", "a slow rank",
                                                 "waiting for data", "the network",
                                                 "checkpoints",      "waiting for cores"};
    return words[cause];
}

/* -- the split --------------------------------------------------------------------------------- */

static double known_or_zero(double value) {
    return isfinite(value) ? fmax(0, value) : 0;
}

/* Threads that wait for a core are late in all that they do: `shared` is that part of their time. */
static void losses_split(const tr_step_times_t *t, const tr_spread_t *over, double shared,
                         double out[TR_CAUSES]) {
    const bool all = isfinite(over->wait_min);
    const double step = known_or_zero(t->compute) + known_or_zero(t->comm_exposed) +
                        known_or_zero(t->data_stall) + known_or_zero(t->checkpoint);
    out[TR_CAUSE_CHECKPOINT] = known_or_zero(t->checkpoint);
    out[TR_CAUSE_NETWORK] = all ? known_or_zero(over->wait_min) : known_or_zero(t->comm_exposed);
    out[TR_CAUSE_DATA] = all ? known_or_zero(over->data_stall_max) : known_or_zero(t->data_stall);
    out[TR_CAUSE_COMPUTE] = all ? known_or_zero(over->compute_min) : known_or_zero(t->compute);
    out[TR_CAUSE_SLOW_RANK] =
        all ? fmax(0, step - out[TR_CAUSE_CHECKPOINT] - out[TR_CAUSE_NETWORK] - out[TR_CAUSE_DATA] -
                          out[TR_CAUSE_COMPUTE])
            : 0;
    out[TR_CAUSE_CORES] = 0;
    for (int i = 0; i < TR_CAUSES; i++) {
        if (i == TR_CAUSE_CHECKPOINT || i == TR_CAUSE_CORES) continue;
        out[TR_CAUSE_CORES] += shared * out[i];
        out[i] *= 1 - shared;
    }
}

/* The mean over the repeats. */
static double losses_shared(const tr_point_t *point) {
    double sum = 0;
    for (size_t i = 0; i < point->runs.count; i++) sum += tr_record_shared(point->runs.data[i]);
    return sum / (double)point->runs.count;
}

static double losses_sum(const double part[TR_CAUSES]) {
    double all = 0;
    for (int i = 0; i < TR_CAUSES; i++) all += part[i];
    return all;
}

bool tr_losses_of(const tr_sweep_t *sweep, const tr_point_t *point, tr_losses_t *out) {
    const tr_point_t *ref = tr_sweep_reference(sweep);
    double base[TR_CAUSES];
    if (sweep->mode == TR_MODE_NONE || !ref || ref == point || point->runs.count == 0 ||
        !isfinite(point->times.compute) || !isfinite(ref->times.compute))
        return false;
    const double scale =
        sweep->mode == TR_MODE_STRONG ? (double)ref->ranks / (double)point->ranks : 1;
    losses_split(&ref->times, &ref->spread, losses_shared(ref), base);
    losses_split(&point->times, &point->spread, losses_shared(point), out->cause);
    out->step = losses_sum(out->cause);
    out->whole = out->step - scale * losses_sum(base);
    for (int i = 0; i < TR_CAUSES; i++) out->cause[i] -= scale * base[i];
    return true;
}

static tr_cause_t losses_largest(const double part[TR_CAUSES]) {
    int most = 0;
    for (int i = 1; i < TR_CAUSES; i++)
        if (part[i] > part[most]) most = i;
    return (tr_cause_t)most;
}

/* -- words ------------------------------------------------------------------------------------- */

/* Whose threads run on the cores. Older runs did not record how many there are. */
static void losses_append_cores(const tr_record_t *r, tr_str_t *out) {
    const tr_use_t use = tr_record_use(r);
    const bool is_crowded = use.threads > use.share;
    char threads[48] = "The threads";
    if (isfinite(use.threads))
        tr_snprintf(threads, sizeof threads, "The %.0f thread%s", use.threads,
                    use.threads == 1 ? "" : "s");
    if (is_crowded)
        tr_str_append(out, " The ranks have more threads than cores.");
    else if (isfinite(use.share))
        tr_str_append(out, " Other programs use the cores of the ranks.");
    else
        tr_str_append(out, " Other programs use the cores of the ranks, or the ranks have more "
                           "threads than cores.");
    tr_str_printf(out,
                  " %s of a rank computed on %.2g cores and waited for %.2g more, so a step takes "
                  "about %.1f times as long as on free cores.",
                  threads, use.used, use.waited, (use.used + use.waited) / use.used);
    tr_str_append(out, is_crowded
                           ? " Start fewer ranks on a node, or set threads = auto."
                           : " trainer doctor under the same launcher shows the cores of each "
                             "rank and what else uses them. Take a node for the job alone "
                             "(--exclusive with SLURM), or repeat the run when the other "
                             "programs have ended.");
}

/* Older runs did not record the engine of the reductions. */
static void losses_append_remedy(tr_cause_t cause, tr_scaling_mode_t mode, const tr_record_t *r,
                                 tr_str_t *out) {
    const char *engine = json_string_value(json_object_get(r->summary, "engine"));
    switch (cause) {
    case TR_CAUSE_COMPUTE:
        tr_str_append(out,
                      mode == TR_MODE_STRONG
                          ? " The work of a rank does not shrink in proportion: small "
                            "micro-batches compute less efficiently, or ranks share cores. "
                            "Use a larger data.batch_size or fewer ranks; trainer doctor under "
                            "the launcher shows the cores of each rank."
                          : " Ranks compute more slowly side by side: they share cores, memory "
                            "bandwidth or a power limit. trainer doctor under the launcher "
                            "shows the cores of each rank. Give each rank cores of its own, or "
                            "use fewer ranks per node.");
        break;
    case TR_CAUSE_SLOW_RANK:
        if (r->slowest.rank >= 0)
            tr_str_printf(out,
                          " Rank %d on %s was the slowest in %d of %d line%s of metrics.jsonl.",
                          r->slowest.rank, r->slowest.host, r->slowest.lines, r->slowest.of_lines,
                          r->slowest.of_lines == 1 ? "" : "s");
        tr_str_append(out, " Look for other programs and a low clock on its node, and compare the "
                           "cores of the ranks with trainer doctor under the launcher. Exclude the "
                           "node if it stays slow.");
        break;
    case TR_CAUSE_DATA:
        tr_str_append(out, " trainer data FILE shows what reading costs, and trainer repack "
                           "makes files that are fast to read. STAGE_DIR copies the data to the "
                           "disk of each node first.");
        break;
    case TR_CAUSE_NETWORK:
        tr_str_append(out, " Reductions take longer than the backward pass can hide.");
        tr_str_append(out, r->nodes == 1
                               ? " All ranks are on one node: trainer doctor under the launcher "
                                 "shows whether they share cores."
                               : " trainer doctor under the launcher times the network and "
                                 "names a slow node; slurm/env.sh sets the interfaces.");
        if (engine && strcmp(engine, "thread") == 0)
            tr_str_append(out, " Leave a core free for the communication thread.");
        if (engine && strcmp(engine, "poll") == 0)
            tr_str_append(out, " The engine poll reduces in the computing thread, which hides "
                               "little. If each rank can spare a core, set parallel.engine = "
                               "thread.");
        if (engine && strcmp(engine, "nccl") == 0)
            tr_str_append(out, " NCCL_DEBUG=INFO shows which network and links NCCL uses.");
        tr_str_append(out, " More samples per rank (data.batch_size) give each reduction more "
                           "computation to hide behind.");
        break;
    case TR_CAUSE_CHECKPOINT:
        tr_str_append(out, " Save less often: checkpoint.every; a new best is saved at each "
                           "validation that finds one (train.valid_every, checkpoint.best).");
        break;
    case TR_CAUSE_CORES: losses_append_cores(r, out); break;
    case TR_CAUSES: break;
    }
}

/* Start-up is not part of a step, but part of the time that a user waits. */
static void losses_append_startup(const tr_record_t *r, tr_str_t *out) {
    const size_t count = json_array_size(r->sessions);
    const json_t *end = json_object_get(json_array_get(r->sessions, count - 1), "end");
    const double wall = tr_json_number(end, "wall_sec"),
                 first = count > 0 ? tr_record_first_step_sec(r, count - 1) : NAN;
    if (!(first > MUCH_LAUNCH * wall)) return;
    tr_str_printf(out,
                  " Start-up took %.1f s of %.1f s until the first step was done (%.0f %%); it is "
                  "not part of the efficiency. It matters less in longer runs.",
                  first, wall, 100 * first / wall);
}

void tr_losses_doubt(const tr_sweep_t *sweep, tr_str_t *out) {
    const tr_point_t *ref = tr_sweep_reference(sweep), *p = NULL; /* the most efficient */
    for (size_t i = 0; i < sweep->points.count; i++) {
        const tr_point_t *point = &sweep->points.data[i];
        if (point->efficiency > DOUBTFUL && !(p && p->efficiency >= point->efficiency)) p = point;
    }
    if (!p) return;
    const size_t runs = ref->runs.count;
    tr_str_printf(out,
                  "An efficiency of %.1f %% on %lld ranks is doubtful: the baseline, run%s %s%s, "
                  "was probably slowed down by other programs. Repeat it where nothing else runs.",
                  100 * p->efficiency, (long long)p->ranks, runs > 1 ? "s" : "",
                  ref->runs.data[0]->name, runs > 1 ? " and its repetitions" : "");
}

void tr_losses_explain(const tr_sweep_t *sweep, tr_str_t *out) {
    const tr_point_t *p = NULL; /* the one of most ranks */
    tr_losses_t losses;
    double widest = 0; /* the spread of repeated runs */
    for (size_t i = 0; i < sweep->points.count; i++) {
        const tr_point_t *point = &sweep->points.data[i];
        if (point->runs.count > 0) p = point;
        if (point->runs.count > 1)
            widest = fmax(widest, (point->step_max - point->step_min) / point->times.step);
    }
    if (!p) {
        tr_str_append(out, "Only predictions: nothing was run.");
        return;
    }
    if (!tr_losses_of(sweep, p, &losses)) {
        tr_str_append(out, "One number of ranks only: there is nothing to compare.");
        return;
    }
    tr_str_printf(out, "On %lld ranks the efficiency is %.1f %%.", (long long)p->ranks,
                  100 * p->efficiency);
    const tr_record_t *run = p->runs.data[0];
    const tr_cause_t cause = losses_largest(losses.cause);
    tr_str_t doubt = {0};
    tr_losses_doubt(sweep, &doubt);
    if (doubt.length > 0) {
        tr_str_printf(out, " %s", doubt.text);
    } else if (p->efficiency >= GOOD) {
        tr_str_append(out, " Nothing holds this sweep back.");
    } else if (losses_shared(p) > 0) { /* whatever the ranks wait for is late for this reason */
        losses_append_cores(run, out);
    } else if (losses.cause[cause] <= NOTICE * losses.step) {
        tr_str_append(out, " No part of the step grew by more than 2 %.");
    } else {
        tr_str_printf(out, " Most is lost to %s: %.2f ms of a step of %.2f ms (%.0f %%).",
                      cause_in_words(cause), losses.cause[cause], losses.step,
                      100 * losses.cause[cause] / losses.step);
        losses_append_remedy(cause, sweep->mode, run, out);
    }
    tr_str_free(&doubt);
    /* If repeats differ by more than the loss, the result is not significant. */
    if (widest > fmax(0.05, fabs(losses.whole) / losses.step))
        tr_str_printf(out,
                      " Repeated runs differ by up to %.0f %%, more than the loss: repeat the "
                      "sweep on nodes that nothing else uses.",
                      100 * widest);
    losses_append_startup(run, out);
}

void tr_losses_explain_run(const tr_record_t *r, tr_str_t *out) {
    double part[TR_CAUSES];
    losses_split(&r->times, &r->spread, tr_record_shared(r), part);
    const double step = losses_sum(part);
    const tr_use_t use = tr_record_use(r);
    part[TR_CAUSE_COMPUTE] = 0;
    const tr_cause_t cause = tr_record_shared(r) > 0 ? TR_CAUSE_CORES : losses_largest(part);
    if (step > 0 && cause == TR_CAUSE_CORES) {
        tr_str_printf(out, "%.0f %% of a step is waiting for cores.", 100 * part[cause] / step);
        losses_append_cores(r, out);
    } else if (step > 0 && part[cause] > NOTICE_RUN * step) {
        tr_str_printf(out,
                      "Besides computing, most time goes to %s: %.2f ms of a step of %.2f "
                      "ms (%.0f %%).",
                      cause_in_words(cause), part[cause], step, 100 * part[cause] / step);
        losses_append_remedy(cause, TR_MODE_NONE, r, out);
    } else if (step > 0) {
        tr_str_append(out, "At least 95 % of a step is computing.");
        if (isfinite(use.used) && use.threads > 0)
            tr_str_printf(
                out, " The %.0f thread%s of a rank kept%s %.2g cores busy%s.", use.threads,
                use.threads == 1 ? "" : "s", use.used < FEW_CORES * use.threads ? " only" : "",
                use.used,
                use.used < FEW_CORES * use.threads
                    ? ": parts of a step have work for fewer threads. Larger micro-batches "
                      "(data.micro_batch) use more cores, and fewer threads may be as fast"
                    : "");
    }
    losses_append_startup(r, out);
}
