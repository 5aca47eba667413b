/*
 * Spans of what a device does, for the trace (base/trace.h). On an immediate device they have the
 * times of the host. On others timed events are recorded on the stream before and behind the work,
 * and read when it is known to be complete; nothing here waits, except the start. A span that
 * cannot be measured is left out and is no error, and so is what is enqueued between steps, such as
 * the many ops of a validation. Not collective. The thread that enqueues the work.
 */
#ifndef TR_DEVICE_DEVICE_TRACE_H
#define TR_DEVICE_DEVICE_TRACE_H

#include "base/trace.h"
#include "device/collectives.h"

/* Whether spans of the device can be measured. */
bool tr_device_trace_can(const tr_device_t *device);
/* After tr_trace_start. Waits for `stream`, and relates the clock of the device to the host's.
 * collectives: of this device; NULL: none. */
tr_status_t tr_device_trace_start(tr_device_t *device, tr_stream_t *stream,
                                  tr_collectives_t *collectives);
/* Before tr_trace_stop. Spans that were not settled are left out. */
void tr_device_trace_stop(void);

typedef struct {
    double begin_sec; /* immediate devices; 0: nothing is recorded */
    tr_event_t *begin;
} tr_device_span_t;
/* Around the work that is enqueued on `stream`. `span` has everything but its times and its step. */
tr_device_span_t tr_device_trace_begin(tr_device_t *device, tr_stream_t *stream);
void tr_device_trace_end(tr_device_t *device, tr_stream_t *stream, tr_device_span_t begun,
                         const tr_span_t *span);
/* Behind the start of a collective of an engine that settles: what it is. */
void tr_device_trace_collective(tr_ticket_t ticket, const tr_span_t *span);
/* Records the spans of the steps up to `step`, whose work is complete. */
void tr_device_trace_settle(tr_device_t *device, int64_t step);

#endif
