/* Where a run is. */
#include "newest.h"
#include "base/mem.h"

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

void tr_newest_ask(tr_asked_t *asked) {
    static const char *const keys[] = {"loss", "gpu_util", "cpu_util", "cpu_wait"};
    for (size_t i = 0; i < TR_COUNT(keys); i++) tr_ask(asked, keys[i]);
}

/* How much longer other ranks wait than `rank`, as a fraction, if it was the slowest of this line. */
static double newest_waits_for(const tr_rows_t *lines, size_t i, double rank) {
    if (tr_rows_number(lines, i, "slowest_rank") != rank) return 0;
    return newest_or_zero(tr_rows_number(lines, i, "wait_max") -
                          tr_rows_number(lines, i, "wait_min"));
}

static recent_t newest_recent(const tr_record_t *r, double rank) {
    const tr_rows_t *lines = &r->training;
    const size_t last = lines->count - 1;
    const double session = tr_rows_number(lines, last, "session");
    double steps = 0, sec = 0, data = 0, comm = 0, slow = 0, ranks_sec = 0;
    size_t i;
    for (i = 1; i <= PACE_LINES && i <= last; i++) {
        const size_t line = last - i + 1, before = last - i;
        const double took =
            tr_rows_number(lines, line, "unix_time") - tr_rows_number(lines, before, "unix_time");
        if (tr_rows_number(lines, before, "session") != session || !(took > 0)) break;
        steps += tr_rows_number(lines, line, "step") - tr_rows_number(lines, before, "step");
        sec += took;
        data += took * newest_or_zero(tr_rows_number(lines, line, "data_stall"));
        comm += took * newest_or_zero(tr_rows_number(lines, line, "comm_exposed"));
        slow += took * newest_waits_for(lines, line, rank);
        if (!isnan(tr_rows_number(lines, line, "slowest_rank"))) ranks_sec += took;
    }
    if (sec > 0)
        return (recent_t){steps / sec, data / sec, comm / sec, sec / (double)(i - 1),
                          ranks_sec > 0 ? slow / ranks_sec : 0};
    return (recent_t){tr_rows_number(lines, last, "samples_per_sec") / (double)r->batch,
                      tr_rows_number(lines, last, "data_stall"),
                      tr_rows_number(lines, last, "comm_exposed"), NAN,
                      newest_waits_for(lines, last, rank)};
}

/* Of the newest of the last lines that has it: not every line follows a sample. NaN: none has. */
static double newest_number(const tr_rows_t *lines, const char *key) {
    double value = NAN;
    for (size_t i = 0; i < PACE_LINES && i < lines->count && isnan(value); i++)
        value = tr_rows_number(lines, lines->count - 1 - i, key);
    return value;
}

tr_newest_t tr_newest_of(const tr_record_t *r) {
    const tr_rows_t *lines = &r->training, *validations = &r->validation;
    const size_t last = lines->count - 1;
    size_t best = validations->count;
    while (best-- > 0 && tr_rows_number(validations, best, "best") != 1) {
    }
    const double rank = newest_number(lines, "slowest_rank"),
                 best_step = tr_rows_number(validations, best, "step"),
                 step = tr_rows_number(lines, last, "step");
    const recent_t recent =
        lines->count > 0 ? newest_recent(r, rank) : (recent_t){NAN, NAN, NAN, NAN, 0};
    tr_newest_t n = {.step = isnan(step) ? -1 : (int64_t)step,
                     .steps = r->steps > 0 ? r->steps : -1,
                     .epoch = tr_rows_number(lines, last, "epoch"),
                     .loss = tr_rows_number(lines, last, "loss"),
                     .best_loss = tr_rows_number(validations, best, "valid_loss"),
                     .best_step = isnan(best_step) ? -1 : (int64_t)best_step,
                     .samples_per_sec = r->batch > 0
                                            ? (double)r->batch * recent.steps_per_sec
                                            : tr_rows_number(lines, last, "samples_per_sec"),
                     .eta_sec = NAN,
                     .data_stall = recent.data_stall,
                     .comm_exposed = recent.comm_exposed,
                     .gpu_util = newest_number(lines, "gpu_util"),
                     .unix_sec = tr_rows_number(lines, last, "unix_time"),
                     .line_sec = recent.line_sec,
                     .slow_rank = recent.slow_rank >= least_slow ? (int)rank : -1,
                     .slow_share = recent.slow_rank,
                     .slow_host = tr_rows_text(lines, newest_number(lines, "slowest_host"))};
    if (n.steps > 0 && recent.steps_per_sec > 0)
        n.eta_sec = fmax(0, (double)(n.steps - n.step)) / recent.steps_per_sec;
    return n;
}
