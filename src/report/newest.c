/* Where a run is. */
#include "newest.h"

#include <math.h>

enum { PACE_LINES = 20 };

/* Steps per second over the last lines of this session; one line has only its own rate. */
static double newest_pace(const tr_record_t *r) {
    const size_t count = json_array_size(r->training), last = count - 1;
    const json_t *newest = json_array_get(r->training, last), *session, *before = NULL;
    session = json_object_get(newest, "session");
    for (size_t i = 1; i <= PACE_LINES && i <= last; i++) {
        const json_t *line = json_array_get(r->training, last - i);
        if (!json_equal(json_object_get(line, "session"), session)) break;
        before = line;
    }
    if (!before) return tr_json_number(newest, "samples_per_sec") / (double)r->batch;
    return (tr_json_number(newest, "step") - tr_json_number(before, "step")) /
           (tr_json_number(newest, "unix_time") - tr_json_number(before, "unix_time"));
}

tr_newest_t tr_newest_of(const tr_record_t *r) {
    const size_t validations = json_array_size(r->validation);
    const json_t *line = json_array_get(r->training, json_array_size(r->training) - 1),
                 *best = NULL;
    for (size_t i = validations; i-- > 0 && !best;)
        if (json_is_true(json_object_get(json_array_get(r->validation, i), "best")))
            best = json_array_get(r->validation, i);
    const json_t *rank = json_object_get(line, "slowest_rank");
    tr_newest_t n = {.step = line ? json_integer_value(json_object_get(line, "step")) : -1,
                     .steps = r->steps > 0 ? r->steps : -1,
                     .epoch = tr_json_number(line, "epoch"),
                     .loss = tr_json_number(line, "loss"),
                     .best_loss = tr_json_number(best, "valid_loss"),
                     .best_step = best ? json_integer_value(json_object_get(best, "step")) : -1,
                     .samples_per_sec = tr_json_number(line, "samples_per_sec"),
                     .eta_sec = NAN,
                     .data_stall = tr_json_number(line, "data_stall"),
                     .comm_exposed = tr_json_number(line, "comm_exposed"),
                     .gpu_util = tr_json_number(line, "gpu_util"),
                     .cpu_util = tr_json_number(line, "cpu_util"),
                     .unix_sec = tr_json_number(line, "unix_time"),
                     .slowest_rank = json_is_integer(rank) ? (int)json_integer_value(rank) : -1,
                     .slowest_host = json_string_value(json_object_get(line, "slowest_host"))};
    const double pace = line ? newest_pace(r) : NAN;
    if (n.steps > 0 && pace > 0) n.eta_sec = fmax(0, (double)(n.steps - n.step)) / pace;
    return n;
}
