/* Records spans: each thread takes the next place of one array. */
#include "trace.h"
#include "mem.h"

#include <sched.h>

atomic_bool tr_trace_on;
static tr_span_t *places; /* [room] */
static size_t room;
static atomic_size_t taken; /* places, and spans for which there was none */
static _Atomic int64_t step;
static atomic_int writers; /* threads that may be about to write to a place */

tr_status_t tr_trace_start(size_t most) {
    if (tr_trace_is_on()) return TR_FAIL(TR_ERR_INTERNAL, "the trace is on already");
    TR_TRY(tr_alloc(most * sizeof *places, "spans of the trace", &places));
    room = most;
    atomic_store(&taken, 0);
    atomic_store(&step, 0);
    atomic_store(&tr_trace_on, true);
    return TR_OK;
}

tr_spans_t tr_trace_stop(void) {
    if (!atomic_exchange(&tr_trace_on, false)) return (tr_spans_t){0};
    while (atomic_load(&writers) > 0) sched_yield(); /* moments: they only copy a span */
    const size_t count = atomic_load(&taken);
    tr_spans_t spans = {places, count < room ? count : room, 0};
    spans.dropped = (int64_t)(count - spans.count);
    places = NULL;
    return spans;
}

void tr_trace_set_step(int64_t new_step) {
    atomic_store_explicit(&step, new_step, memory_order_relaxed);
}

int64_t tr_trace_step(void) {
    return atomic_load_explicit(&step, memory_order_relaxed);
}

void tr_trace_add(const tr_span_t *span) {
    atomic_fetch_add(&writers, 1);
    if (atomic_load(&tr_trace_on)) {
        const size_t place = atomic_fetch_add(&taken, 1);
        if (place < room) places[place] = *span;
    }
    atomic_fetch_sub(&writers, 1);
}

void tr_trace_end(double begin_sec, const tr_span_t *span) {
    if (begin_sec == 0) return;
    tr_span_t timed = *span;
    timed.step = tr_trace_step();
    timed.begin_sec = begin_sec;
    timed.end_sec = tr_clock_sec();
    tr_trace_add(&timed);
}
