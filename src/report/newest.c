/* Where a run is. */
#include "newest.h"

#include <math.h>

enum { PACE_LINES = 20 };
static const double least_slow = 0.1; /* below, ranks differ by chance */

/* Over the last lines of this session, weighted by their times: data may come, and checkpoints be
 * written, in bursts. */
typedef struct {
    double steps_per_sec, data_stall, comm_exposed, line_sec, slow_rank;
} recent_t;

static double newest_or_zero(double value) {
    return isfinite(value) ? value : 0;
}

/* How much longer other ranks wait than `rank`, as a fraction, if it was the slowest of this line. */
static double newest_waits_for(const json_t *line, const json_t *rank) {
    if (!rank || !json_equal(json_object_get(line, "slowest_rank"), rank)) return 0;
    return newest_or_zero(tr_json_number(line, "wait_max") - tr_json_number(line, "wait_min"));
}

static recent_t newest_recent(const tr_record_t *r, const json_t *rank) {
    const size_t last = json_array_size(r->training) - 1;
    const json_t *newest = json_array_get(r->training, last), *line = newest,
                 *session = json_object_get(newest, "session");
    double steps = 0, sec = 0, data = 0, comm = 0, slow = 0, ranks_sec = 0;
    size_t i;
    for (i = 1; i <= PACE_LINES && i <= last; i++) {
        const json_t *before = json_array_get(r->training, last - i);
        const double took = tr_json_number(line, "unix_time") - tr_json_number(before, "unix_time");
        if (!json_equal(json_object_get(before, "session"), session) || !(took > 0)) break;
        steps += tr_json_number(line, "step") - tr_json_number(before, "step");
        sec += took;
        data += took * newest_or_zero(tr_json_number(line, "data_stall"));
        comm += took * newest_or_zero(tr_json_number(line, "comm_exposed"));
        slow += took * newest_waits_for(line, rank);
        if (json_object_get(line, "slowest_rank")) ranks_sec += took;
        line = before;
    }
    if (sec > 0)
        return (recent_t){steps / sec, data / sec, comm / sec, sec / (double)(i - 1),
                          ranks_sec > 0 ? slow / ranks_sec : 0};
    return (recent_t){tr_json_number(newest, "samples_per_sec") / (double)r->batch,
                      tr_json_number(newest, "data_stall"), tr_json_number(newest, "comm_exposed"),
                      NAN, newest_waits_for(newest, rank)};
}

/* The newest of the last lines that has `key`: not every line follows a sample. */
static const json_t *newest_with(const tr_record_t *r, const char *key) {
    const size_t count = json_array_size(r->training);
    for (size_t i = 0; i < PACE_LINES && i < count; i++) {
        const json_t *line = json_array_get(r->training, count - 1 - i);
        if (json_object_get(line, key)) return line;
    }
    return NULL;
}

tr_newest_t tr_newest_of(const tr_record_t *r) {
    const size_t validations = json_array_size(r->validation);
    const json_t *line = json_array_get(r->training, json_array_size(r->training) - 1),
                 *best = NULL;
    for (size_t i = validations; i-- > 0 && !best;)
        if (json_is_true(json_object_get(json_array_get(r->validation, i), "best")))
            best = json_array_get(r->validation, i);
    const json_t *ranks = newest_with(r, "slowest_rank"),
                 *rank = json_object_get(ranks, "slowest_rank");
    const recent_t recent = line ? newest_recent(r, rank) : (recent_t){NAN, NAN, NAN, NAN, 0};
    tr_newest_t n = {.step = line ? json_integer_value(json_object_get(line, "step")) : -1,
                     .steps = r->steps > 0 ? r->steps : -1,
                     .epoch = tr_json_number(line, "epoch"),
                     .loss = tr_json_number(line, "loss"),
                     .best_loss = tr_json_number(best, "valid_loss"),
                     .best_step = best ? json_integer_value(json_object_get(best, "step")) : -1,
                     .samples_per_sec = r->batch > 0 ? (double)r->batch * recent.steps_per_sec
                                                     : tr_json_number(line, "samples_per_sec"),
                     .eta_sec = NAN,
                     .data_stall = recent.data_stall,
                     .comm_exposed = recent.comm_exposed,
                     .gpu_util = tr_json_number(newest_with(r, "gpu_util"), "gpu_util"),
                     .cpu_util = tr_json_number(newest_with(r, "cpu_util"), "cpu_util"),
                     .unix_sec = tr_json_number(line, "unix_time"),
                     .line_sec = recent.line_sec,
                     .slow_rank =
                         recent.slow_rank >= least_slow ? (int)json_integer_value(rank) : -1,
                     .slow_share = recent.slow_rank,
                     .slow_host = json_string_value(json_object_get(ranks, "slowest_host"))};
    if (n.steps > 0 && recent.steps_per_sec > 0)
        n.eta_sec = fmax(0, (double)(n.steps - n.step)) / recent.steps_per_sec;
    return n;
}
