/* Streams as queues of recorded work, run in a random legal order. */
#include "strict_int.h"
#include <string.h>

/* The scheduler switches streams once in so many times: long runs of one stream find more errors
 * than a fair mixture. */
#define STRICT_SWITCH 4

static const char *const kind_name[] = {
    [STRICT_KERNEL] = "kernel", [STRICT_COPY] = "copy",     [STRICT_FILL] = "fill",
    [STRICT_CALL] = "call",     [STRICT_RECORD] = "record", [STRICT_WAIT] = "wait"};

tr_status_t tr_strict_push(strict_device_t *strict, tr_stream_t *stream,
                           const strict_work_t *work) {
    bool taken = false;
    TR_TRY(tr_strict_capture(strict, stream, work, &taken));
    if (taken) return TR_OK;
    strict->given[work->kind]++;
    tr_strict_note(strict, stream, kind_name[work->kind], work->bytes);
    return tr_strict_enqueue(strict, stream, work);
}

/* Removes finished work. A stream may never be empty, if the host is always ahead. */
static void forget_done(tr_stream_t *stream) {
    strict_work_t *work = stream->work.data;
    stream->work.count -= stream->head;
    if (stream->head > 0 && stream->work.count > 0)
        memmove(work, work + stream->head, stream->work.count * sizeof *work);
    stream->head = 0;
}

tr_status_t tr_strict_enqueue(strict_device_t *strict, tr_stream_t *stream,
                              const strict_work_t *work) {
    TR_TRY(tr_strict_order(strict, stream, work));
    if (2 * stream->head >= stream->work.count) forget_done(stream);
    return tr_vec_push(&stream->work, *work);
}

static bool is_empty(const tr_stream_t *stream) {
    return stream->head == stream->work.count;
}

static bool is_runnable(const tr_stream_t *stream) {
    if (is_empty(stream)) return false;
    const strict_work_t *work = &stream->work.data[stream->head];
    return work->kind != STRICT_WAIT || work->event->done >= work->count;
}

/* NULL if no stream can continue. */
static tr_stream_t *strict_stream_choose(strict_device_t *strict) {
    bool keep = tr_rng_below(&strict->rng, STRICT_SWITCH) != 0;
    if (keep && strict->favourite && is_runnable(strict->favourite)) return strict->favourite;
    tr_stream_t *chosen = NULL;
    uint64_t seen = 0;
    for (size_t i = 0; i < strict->streams.count; i++) {
        tr_stream_t *stream = strict->streams.data[i];
        if (is_runnable(stream) && tr_rng_below(&strict->rng, ++seen) == 0) chosen = stream;
    }
    return strict->favourite = chosen;
}

static tr_status_t perform(const strict_device_t *strict, const strict_work_t *work) {
    switch (work->kind) {
    case STRICT_KERNEL:
        return strict->cpu->ops->kernels[work->kernel].run(strict->cpu, strict->cpu_stream,
                                                           &work->call);
    case STRICT_COPY: memmove(work->dst, work->src, work->bytes); break;
    case STRICT_FILL: memset(work->dst, work->fill, work->bytes); break;
    case STRICT_CALL: return work->host_call(work->self, work->dst, work->bytes);
    case STRICT_RECORD: work->event->done = work->count; break;
    case STRICT_WAIT: break;
    }
    return TR_OK;
}

/* After an error, recorded work is not run, and waits for it return. */
static void discard(strict_device_t *strict) {
    for (size_t i = 0; i < strict->streams.count; i++) {
        tr_stream_t *stream = strict->streams.data[i];
        for (; !is_empty(stream); stream->head++) {
            const strict_work_t *work = &stream->work.data[stream->head];
            if (work->kind == STRICT_RECORD) work->event->done = work->count;
        }
    }
}

static tr_status_t run_one(strict_device_t *strict) {
    tr_stream_t *stream = strict_stream_choose(strict);
    tr_status_t status =
        stream
            ? perform(strict, &stream->work.data[stream->head])
            : TR_FAIL(TR_ERR_INTERNAL, "device strict: every stream waits for an event of another");
    if (status == TR_OK)
        stream->head++;
    else
        discard(strict);
    return status;
}

static tr_status_t take_error(strict_device_t *strict) {
    if (!strict->failed) return TR_OK;
    strict->failed = false;
    return tr_error_set(&strict->error);
}

tr_status_t tr_strict_run_stream(strict_device_t *strict, const tr_stream_t *stream) {
    TR_TRY(take_error(strict));
    while (!is_empty(stream)) TR_TRY(run_one(strict));
    return TR_OK;
}

tr_status_t tr_strict_run_event(strict_device_t *strict, const tr_event_t *event, uint64_t count) {
    TR_TRY(take_error(strict));
    while (event->done < count) TR_TRY(run_one(strict));
    return TR_OK;
}

void tr_strict_run_all(strict_device_t *strict) {
    for (size_t i = 0; i < strict->streams.count; i++)
        while (!is_empty(strict->streams.data[i])) {
            if (run_one(strict) == TR_OK) continue;
            strict->failed = true;
            strict->error = *tr_error_last();
        }
    for (size_t i = 0; i < strict->streams.count; i++)
        tr_strict_host_waited(strict, &strict->streams.data[i]->clock);
}
