/* Step times, and the times of all ranks, in metrics lines. */
#include "metrics_ranks.h"
#include "base/record_fields.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_SEC 0.05 /* reported by every rank before fractions are computed */

/* -- step times -------------------------------------------------------------------------------- */

void tr_metrics_ranks_step(tr_metrics_ranks_t *r, double seconds) {
    r->step_sec[r->count++ % TR_RECENT_TIMES] = (float)seconds;
}

static int metrics_ranks_compare(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Rounded up: the median of two is the larger. */
static double quantile_ms(const float *sorted, size_t count, double q) {
    const size_t at = (size_t)(q * (double)count);
    return 1000 * (double)sorted[at < count ? at : count - 1];
}

/* -- ranks ------------------------------------------------------------------------------------- */

static bool have_moved(const tr_metrics_ranks_t *r, int size) {
    for (int i = 0; i < size; i++) {
        const tr_rank_times_t *now = &r->now[i], *base = &r->base[i];
        if (now->compute_sec + now->data_sec + now->wait_sec - base->compute_sec - base->data_sec -
                base->wait_sec <
            LEAST_SEC)
            return false;
    }
    return true;
}

/* A step takes the same time on all ranks: the slowest rank is the one that waits least for the
 * others. */
static void summarize(const tr_metrics_ranks_t *r, int size, json_t *line) {
    static const tr_record_field_t fields[3][2] = {
        {TR_TRAINING_compute_min, TR_TRAINING_compute_max},
        {TR_TRAINING_data_stall_min, TR_TRAINING_data_stall_max},
        {TR_TRAINING_wait_min, TR_TRAINING_wait_max}};
    double least[3] = {INFINITY, INFINITY, INFINITY}, most[3] = {0};
    int slowest = 0;
    for (int rank = 0; rank < size; rank++) {
        const tr_rank_times_t *now = &r->now[rank], *base = &r->base[rank];
        double share[3] = {now->compute_sec - base->compute_sec, now->data_sec - base->data_sec,
                           now->wait_sec - base->wait_sec};
        const double sum = share[0] + share[1] + share[2];
        for (int i = 0; i < 3; i++) share[i] = sum > 0 ? share[i] / sum : 0;
        if (share[2] < least[2]) slowest = rank;
        for (int i = 0; i < 3; i++) {
            least[i] = fmin(least[i], share[i]);
            most[i] = fmax(most[i], share[i]);
        }
    }
    for (int i = 0; i < 3; i++) {
        tr_record_number(line, fields[i][0], least[i]);
        tr_record_number(line, fields[i][1], most[i]);
    }
    tr_record_number(line, TR_TRAINING_slowest_rank, slowest);
    tr_record_text(line, TR_TRAINING_slowest_host, r->now[slowest].host);
}

tr_status_t tr_metrics_ranks_line(tr_metrics_ranks_t *r, tr_world_t *world, json_t *line) {
    const size_t count = r->count < TR_RECENT_TIMES ? (size_t)r->count : TR_RECENT_TIMES;
    if (count > 0) {
        qsort(r->step_sec, count, sizeof *r->step_sec, metrics_ranks_compare);
        tr_record_number(line, TR_TRAINING_step_ms, quantile_ms(r->step_sec, count, 0.5));
        tr_record_number(line, TR_TRAINING_step_ms_p95, quantile_ms(r->step_sec, count, 0.95));
        r->count = 0;
    }
    if (!world || tr_world_info(world)->size == 1) return TR_OK;
    const int size = tr_world_info(world)->size;
    const size_t bytes = (size_t)size * sizeof *r->now;
    if (!r->now) TR_TRY(tr_alloc(bytes, "times of ranks", &r->now));
    if (!r->base) TR_TRY(tr_alloc(bytes, "times of ranks", &r->base));
    if (!tr_watchdog_times(world, r->now) || !have_moved(r, size)) return TR_OK;
    summarize(r, size, line);
    memcpy(r->base, r->now, bytes);
    return TR_OK;
}

void tr_metrics_ranks_close(tr_metrics_ranks_t *r) {
    tr_free(&r->base);
    tr_free(&r->now);
}
