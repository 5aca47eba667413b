/*
 * Checks the order of work with vector clocks. Work may access bytes only after all other accesses
 * to them in other streams, if one of the two writes; "after" means by streams, events and host
 * waits. The check is made when work is enqueued, so that a missing event is found in every run,
 * whatever the order in which the work then runs.
 */
#include "strict_int.h"
#include <string.h>

static void strict_order_merge(strict_clock_t *into, const strict_clock_t *from) {
    for (int i = 0; i < STRICT_STREAMS; i++)
        if (from->tick[i] > into->tick[i]) into->tick[i] = from->tick[i];
}

static bool strict_order_is_before(const strict_access_t *a, const strict_clock_t *now) {
    return a->tick <= now->tick[a->stream];
}

/* An earlier access that `now` follows and covers is no longer needed: work after `now` is also
 * after that access. */
static bool is_replaced(const strict_access_t *old, const strict_access_t *by) {
    return by->first <= old->first && old->last <= by->last &&
           (by->write || (!old->write && old->stream == by->stream));
}

static tr_status_t touch(strict_device_t *strict, const tr_stream_t *stream, const void *data,
                         size_t bytes, bool write, const char *what) {
    const char *first = data;
    const strict_access_t now = {first, first + bytes, stream->id, stream->clock.tick[stream->id],
                                 write, what};
    if (bytes == 0) return TR_OK;
    for (size_t i = 0; i < strict->accesses.count;) {
        strict_access_t *old = &strict->accesses.data[i];
        const bool conflict =
            (old->write || write) && old->first < now.last && now.first < old->last;
        if (conflict && !strict_order_is_before(old, &stream->clock))
            return TR_FAIL(TR_ERR_INTERNAL,
                           "device strict: %s %s %zu bytes that %s %s in stream '%s': no event "
                           "orders stream '%s' "
                           "after it",
                           what, write ? "writes" : "reads", bytes, old->what,
                           old->write ? "writes" : "reads", strict->stream_name[old->stream],
                           strict->stream_name[stream->id]);
        if (strict_order_is_before(old, &stream->clock) && is_replaced(old, &now))
            *old = strict->accesses.data[--strict->accesses.count];
        else
            i++;
    }
    return tr_vec_push(&strict->accesses, now);
}

static tr_status_t touch_views(strict_device_t *strict, const tr_stream_t *stream,
                               const tr_view_t *view, int count, bool write, const char *what) {
    for (int i = 0; i < count; i++)
        if (view[i].shape.ndim >= 0)
            TR_TRY(touch(strict, stream, view[i].data,
                         (size_t)tr_shape_elems(&view[i].shape) * tr_dtype_bytes(view[i].dtype),
                         write, what));
    return TR_OK;
}

tr_status_t tr_strict_order(strict_device_t *strict, tr_stream_t *stream,
                            const strict_work_t *work) {
    const char *name = work->kind == STRICT_KERNEL ? tr_kernel_name(work->kernel) : "";
    strict_order_merge(&stream->clock, &strict->host_clock);
    stream->clock.tick[stream->id] = ++strict->last_tick[stream->id];
    switch (work->kind) {
    case STRICT_KERNEL:
        TR_TRY(touch_views(strict, stream, work->call.in, work->call.n_in, false, name));
        return touch_views(strict, stream, work->call.out, work->call.n_out, true, name);
    case STRICT_COPY:
        TR_TRY(touch(strict, stream, work->src, work->bytes, false, "a copy"));
        return touch(strict, stream, work->dst, work->bytes, true, "a copy");
    case STRICT_FILL:
        return touch(strict, stream, work->dst, work->bytes, true, work->fill ? "poison" : "zero");
    case STRICT_CALL:
        return touch(strict, stream, work->dst, work->bytes, true, "a call of the host");
    case STRICT_RECORD: work->event->clock = stream->clock; break;
    case STRICT_WAIT: strict_order_merge(&stream->clock, &work->event->clock); break;
    }
    return TR_OK;
}

/* All work before `clock` precedes all work that is enqueued later. */
void tr_strict_host_waited(strict_device_t *strict, const strict_clock_t *clock) {
    strict_order_merge(&strict->host_clock, clock);
    for (size_t i = 0; i < strict->accesses.count;)
        if (strict_order_is_before(&strict->accesses.data[i], &strict->host_clock))
            strict->accesses.data[i] = strict->accesses.data[--strict->accesses.count];
        else
            i++;
}
