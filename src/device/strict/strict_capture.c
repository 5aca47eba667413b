/*
 * Capture and replay, with the rules of CUDA graphs. Between begin and end, work of the stream, and
 * of streams that wait for its events, is recorded but not run. A launch runs the recording with
 * the addresses and attributes at the time of capture. The order of captured streams was checked
 * when the same work ran op by op; a launch is checked against all other work.
 */
#include "strict_int.h"
#include <string.h>

tr_status_t tr_strict_not_capturing(const strict_device_t *strict, const char *what) {
    if (!strict->capture || !pthread_equal(strict->capture_thread, pthread_self())) return TR_OK;
    return TR_FAIL(TR_ERR_INTERNAL, "device strict: %s inside a capture", what);
}

/* -- recording --------------------------------------------------------------------------------- */

static void strict_capture_join(const strict_device_t *strict, tr_stream_t *stream) {
    stream->capture = strict->capture_number;
    stream->captured = stream->seen = 0;
}

/* As in CUDA, a launch keeps the values of scalars. */
static tr_status_t keep_attr(tr_executable_t *executable, tr_kernel_call_t *call) {
    void *attr = NULL;
    if (call->attr_bytes == 0) return TR_OK;
    TR_TRY(tr_alloc(call->attr_bytes, "attributes of a captured kernel", &attr));
    call->attr = memcpy(attr, call->attr, call->attr_bytes);
    return tr_vec_push(&executable->attrs, attr);
}

/* For a stream in the capture. Records and waits only determine which streams take part and that
 * they are waited for at the end: a launch runs the work in the order of enqueuing. */
static tr_status_t capture_take(strict_device_t *strict, tr_stream_t *stream,
                                const strict_work_t *work) {
    tr_event_t *event = work->event;
    if (work->kind == STRICT_RECORD) {
        event->capture = strict->capture_number;
        event->captured_on = stream;
        event->captured = stream->captured;
    } else if (work->kind != STRICT_WAIT) {
        strict_work_t own = *work;
        if (own.kind == STRICT_KERNEL) TR_TRY(keep_attr(strict->capture, &own.call));
        stream->captured++;
        return tr_vec_push(&strict->capture->work, own);
    } else if (event->capture != strict->capture_number) {
        return TR_FAIL(TR_ERR_INTERNAL,
                       "device strict: stream '%s' waits inside a capture for an event that was "
                       "recorded outside of it",
                       strict->stream_name[stream->id]);
    } else if (stream == strict->capture_origin && event->captured > event->captured_on->seen) {
        event->captured_on->seen = event->captured;
    }
    return TR_OK;
}

tr_status_t tr_strict_capture(strict_device_t *strict, tr_stream_t *stream,
                              const strict_work_t *work, bool *out_taken) {
    const uint64_t now = strict->capture ? strict->capture_number : 0;
    const bool waits = work->kind == STRICT_WAIT && work->event->capture != 0;
    if (now && waits && work->event->capture == now && stream->capture != now)
        strict_capture_join(strict, stream);
    *out_taken = now && stream->capture == now;
    if (*out_taken) return capture_take(strict, stream, work);
    if (waits)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "device strict: stream '%s' waits for an event that was recorded in a "
                       "capture: it never happens",
                       strict->stream_name[stream->id]);
    if (work->kind == STRICT_RECORD) work->event->capture = 0;
    return TR_OK;
}

static tr_status_t check_joined(const strict_device_t *strict) {
    for (size_t i = 0; i < strict->streams.count; i++) {
        const tr_stream_t *s = strict->streams.data[i];
        if (s->capture != strict->capture_number || s == strict->capture_origin) continue;
        if (s->seen < s->captured)
            return TR_FAIL(TR_ERR_INTERNAL,
                           "device strict: stream '%s' does not wait for stream '%s' before the "
                           "end of the capture",
                           strict->stream_name[strict->capture_origin->id],
                           strict->stream_name[s->id]);
    }
    return TR_OK;
}

static void free_executable(tr_executable_t *executable) {
    for (size_t i = 0; i < executable->attrs.count; i++) tr_free(&executable->attrs.data[i]);
    tr_vec_free(&executable->attrs);
    tr_vec_free(&executable->work);
    tr_free(&executable);
}

/* -- the table's entries ----------------------------------------------------------------------- */

tr_status_t tr_strict_capture_begin(tr_device_t *device, tr_stream_t *stream) {
    strict_device_t *strict = (strict_device_t *)device;
    pthread_mutex_lock(&strict->mutex);
    tr_status_t status =
        strict->capture ? TR_FAIL(TR_ERR_INTERNAL, "device strict: a capture inside a capture")
                        : tr_alloc(sizeof *strict->capture, "a captured program", &strict->capture);
    if (status == TR_OK) {
        strict->capture_number++;
        strict->capture_origin = stream;
        strict->capture_thread = pthread_self();
        strict_capture_join(strict, stream);
    }
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

tr_status_t tr_strict_capture_end(tr_device_t *device, tr_stream_t *stream, tr_executable_t **out) {
    strict_device_t *strict = (strict_device_t *)device;
    pthread_mutex_lock(&strict->mutex);
    tr_executable_t *executable = strict->capture;
    tr_status_t status = out ? check_joined(strict) : TR_OK;
    strict->capture = NULL;
    pthread_mutex_unlock(&strict->mutex);
    if (out) *out = status == TR_OK ? executable : NULL;
    if (!out || status != TR_OK) free_executable(executable);
    return status;
}

static size_t count_kernels(const tr_executable_t *executable) {
    size_t count = 0;
    for (size_t i = 0; i < executable->work.count; i++)
        count += executable->work.data[i].kind == STRICT_KERNEL;
    return count;
}

tr_status_t tr_strict_launch(tr_device_t *device, tr_executable_t *executable,
                             tr_stream_t *stream) {
    strict_device_t *strict = (strict_device_t *)device;
    pthread_mutex_lock(&strict->mutex);
    tr_status_t status = tr_strict_not_capturing(strict, "a launch of captured work");
    strict->launches++;
    tr_strict_note(strict, stream, "launch", count_kernels(executable));
    for (size_t i = 0; i < executable->work.count && status == TR_OK; i++)
        status = tr_strict_enqueue(strict, stream, &executable->work.data[i]);
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

void tr_strict_executable_destroy(tr_device_t *device, tr_executable_t *executable) {
    strict_device_t *strict = (strict_device_t *)device;
    pthread_mutex_lock(&strict->mutex);
    tr_strict_run_all(strict); /* launched work may still need the attributes */
    pthread_mutex_unlock(&strict->mutex);
    free_executable(executable);
}
