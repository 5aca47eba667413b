/* Spans of a device, from timed events. */
#include "device_trace.h"
#include "base/mem.h"
#include <string.h>

enum { COLLECTIVES = 1024 }; /* that may be started and not settled */

typedef struct {
    tr_span_t span;
    tr_event_t *begin, *end;
} pending_span_t;

/* Of the one trace of this process. */
static struct {
    tr_device_t *device; /* NULL: none, or it is immediate */
    tr_collectives_t *collectives;
    tr_event_t *origin; /* recorded at origin_sec of the host's clock */
    double origin_sec;
    TR_VEC(pending_span_t) pending; /* in the order in which they were enqueued */
    TR_VEC(tr_event_t *) idle;
    tr_span_t collective[COLLECTIVES]; /* by ticket */
} trace;

bool tr_device_trace_can(const tr_device_t *device) {
    return device->immediate || device->ops->event_elapsed;
}

/* Called by the engine when it settles; times are since the origin. */
static void trace_take_collective(void *self, tr_ticket_t ticket, double begin_sec,
                                  double end_sec) {
    tr_span_t *span = &trace.collective[ticket % COLLECTIVES];
    (void)self;
    if (span->item != &trace.collective) return; /* not one of a program */
    span->item = NULL;
    span->begin_sec = trace.origin_sec + begin_sec;
    span->end_sec = trace.origin_sec + end_sec;
    tr_trace_add(span);
}

tr_status_t tr_device_trace_start(tr_device_t *device, tr_stream_t *stream,
                                  tr_collectives_t *collectives) {
    const tr_device_ops_t *ops = device->ops;
    if (device->immediate) return TR_OK;
    trace.device = device;
    TR_TRY(ops->event_create(device, TR_EVENT_TIMED, &trace.origin));
    TR_TRY(ops->stream_sync(device, stream));
    const double before_sec = tr_clock_sec();
    TR_TRY(ops->event_record(device, trace.origin, stream));
    TR_TRY(ops->stream_sync(device, stream));
    trace.origin_sec = 0.5 * (before_sec + tr_clock_sec());
    trace.collectives = collectives;
    memset(trace.collective, 0, sizeof trace.collective);
    if (collectives)
        collectives->trace =
            (tr_collectives_trace_t){.origin = trace.origin, .take = trace_take_collective};
    return TR_OK;
}

void tr_device_trace_stop(void) {
    tr_device_t *device = trace.device;
    if (!device) return;
    if (trace.collectives) trace.collectives->trace = (tr_collectives_trace_t){0};
    for (size_t i = 0; i < trace.pending.count; i++) {
        device->ops->event_destroy(device, trace.pending.data[i].begin);
        device->ops->event_destroy(device, trace.pending.data[i].end);
    }
    for (size_t i = 0; i < trace.idle.count; i++)
        device->ops->event_destroy(device, trace.idle.data[i]);
    if (trace.origin) device->ops->event_destroy(device, trace.origin);
    tr_vec_free(&trace.pending);
    tr_vec_free(&trace.idle);
    trace.device = NULL;
    trace.collectives = NULL;
    trace.origin = NULL;
}

/* An event that is recorded on the stream now; NULL: there is none. */
static tr_event_t *trace_record(tr_device_t *device, tr_stream_t *stream) {
    tr_event_t *event = NULL;
    if (trace.idle.count > 0)
        event = trace.idle.data[--trace.idle.count];
    else if (device->ops->event_create(device, TR_EVENT_TIMED, &event) != TR_OK)
        tr_error_clear();
    if (!event || device->ops->event_record(device, event, stream) == TR_OK) return event;
    tr_error_clear();
    device->ops->event_destroy(device, event);
    return NULL;
}

tr_device_span_t tr_device_trace_begin(tr_device_t *device, tr_stream_t *stream) {
    if (!tr_trace_is_on() || tr_trace_step() == 0) return (tr_device_span_t){0};
    if (device->immediate) return (tr_device_span_t){.begin_sec = tr_clock_sec()};
    return (tr_device_span_t){.begin = trace_record(device, stream)};
}

void tr_device_trace_end(tr_device_t *device, tr_stream_t *stream, tr_device_span_t begun,
                         const tr_span_t *span) {
    pending_span_t pending = {.span = *span, .begin = begun.begin};
    tr_trace_end(begun.begin_sec, span);
    if (!begun.begin) return;
    pending.span.step = tr_trace_step();
    pending.end = trace_record(device, stream);
    if (pending.end && tr_vec_push(&trace.pending, pending) == TR_OK) return;
    tr_error_clear();
    device->ops->event_destroy(device, begun.begin);
    if (pending.end) device->ops->event_destroy(device, pending.end);
}

void tr_device_trace_collective(tr_ticket_t ticket, const tr_span_t *span) {
    tr_span_t *to = &trace.collective[ticket % COLLECTIVES];
    if (!trace.collectives) return;
    *to = *span;
    to->step = tr_trace_step();
    to->item = &trace.collective;
}

void tr_device_trace_settle(tr_device_t *device, int64_t step) {
    const tr_device_ops_t *ops = device->ops;
    size_t kept = 0;
    for (size_t i = 0; i < trace.pending.count; i++) {
        pending_span_t *p = &trace.pending.data[i];
        double begin_sec = 0, end_sec = 0;
        if (p->span.step > step) {
            trace.pending.data[kept++] = *p;
            continue;
        }
        if (ops->event_elapsed(device, trace.origin, p->begin, &begin_sec) == TR_OK &&
            ops->event_elapsed(device, trace.origin, p->end, &end_sec) == TR_OK) {
            p->span.begin_sec = trace.origin_sec + begin_sec;
            p->span.end_sec = trace.origin_sec + end_sec;
            tr_trace_add(&p->span);
        } else {
            tr_error_clear();
        }
        if (tr_vec_push(&trace.idle, p->begin) != TR_OK) ops->event_destroy(device, p->begin);
        if (tr_vec_push(&trace.idle, p->end) != TR_OK) ops->event_destroy(device, p->end);
    }
    trace.pending.count = kept;
}
