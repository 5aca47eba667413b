/*
 * A trace: spans of time in which a thread of this process, or a stream of its device, did
 * something. Process-wide like the log, and off unless it is started: a place that records spans
 * then costs one branch. It records into memory that is allocated at the start; spans for which
 * there is no room are counted. Not collective.
 */
#ifndef TR_BASE_TRACE_H
#define TR_BASE_TRACE_H

#include "clock.h"
#include "trainer/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    TR_SPAN_STEP,       /* a training step */
    TR_SPAN_OP,         /* item: its record, a tr_op_t */
    TR_SPAN_WAIT,       /* the device waits for collectives */
    TR_SPAN_COLLECTIVE, /* number: the bucket */
    TR_SPAN_PROGRESS,   /* the computing thread works for the communication */
    TR_SPAN_DATA,       /* training waits for a batch */
    TR_SPAN_READ,       /* a thread of the loader, number `lane`, reads; number: samples */
    TR_SPAN_COPY,       /* of a batch to the device */
    TR_SPAN_VALIDATION, /* as a whole */
    TR_SPAN_SNAPSHOT,   /* of a checkpoint; training waits */
    TR_SPAN_CHECKPOINT, /* it is written; number: its step */
    TR_SPAN_KINDS
} tr_span_kind_t;

typedef struct {
    tr_span_kind_t kind;
    int lane;
    const char *name, *detail; /* of an op: its row and its layer; else NULL. Not copied */
    const void *item;
    int64_t step; /* during which it was recorded or enqueued, from 1; 0: between steps */
    int64_t number, bytes;
    double begin_sec, end_sec; /* tr_clock_sec */
} tr_span_t;

typedef struct {
    tr_span_t *data; /* tr_free; in the order in which they were recorded */
    size_t count;
    int64_t dropped; /* for which there was no room */
} tr_spans_t;

/* Starts with room for `most` spans. TR_ERR_MEMORY; TR_ERR_INTERNAL if it is on. */
tr_status_t tr_trace_start(size_t most);
/* Ends the trace, and hands over its spans. Empty if it is not on. */
tr_spans_t tr_trace_stop(void);
/* The step of the spans that are recorded from now on, from 1; 0: none. */
void tr_trace_set_step(int64_t step);
int64_t tr_trace_step(void);
/* All below: any thread. */

extern atomic_bool tr_trace_on; /* read it by tr_trace_is_on */
static inline bool tr_trace_is_on(void) {
    return atomic_load_explicit(&tr_trace_on, memory_order_relaxed);
}
/* Records a span with its times, in the step that it has. Nothing if the trace is off. */
void tr_trace_add(const tr_span_t *span);
/* Around what is recorded: _begin gives its time, or 0 where the trace is off; with 0, _end does
 * nothing. `span` has everything but its times and its step. */
static inline double tr_trace_begin(void) {
    return tr_trace_is_on() ? tr_clock_sec() : 0;
}
void tr_trace_end(double begin_sec, const tr_span_t *span);

#endif
