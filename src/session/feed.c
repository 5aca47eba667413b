/* Passes batches to the inputs of programs. */
#include "feed.h"
#include "base/mem.h"
#include "device/device_trace.h"
#include <string.h>

typedef struct {
    tr_feed_step_t *host; /* pinned source of the copy */
    tr_event_t *copied;   /* on the copy stream: the set has been filled */
    tr_event_t *used;     /* on the compute stream: the set can be refilled */
    bool under_way;       /* the host has not yet waited for `copied` */
} set_t;

struct tr_feed {
    tr_session_t *s;
    tr_stream_t *stream; /* for copies; the compute stream if inputs are bound */
    bool bound;
    int sets;
    int fed[2]; /* the sets fed last, and before that */
    set_t set_of[TR_FEED_SETS];
};

static bool binds(const tr_device_t *device) {
    return device->host_visible && device->immediate;
}

int tr_feed_sets(const tr_session_t *s) {
    if (binds(s->device)) return 1;
    return s->slots % s->params.size == 0 ? 2 : TR_FEED_SETS;
}

tr_status_t tr_feed_create(tr_session_t *s, tr_feed_t **out) {
    const tr_device_ops_t *ops = s->device->ops;
    tr_feed_t *f = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *f, "the feeding of inputs", &f));
    f->s = s;
    f->bound = binds(s->device);
    f->sets = tr_feed_sets(s);
    TR_TRY_GOTO(ops->stream_create(s->device, "copies", TR_PRIORITY_NORMAL, &f->stream), fail);
    for (int i = 0; i < f->sets; i++) {
        void *host = NULL;
        TR_TRY_GOTO(ops->host_alloc(s->device, sizeof *f->set_of[i].host, &host), fail);
        f->set_of[i].host = host;
        TR_TRY_GOTO(ops->event_create(s->device, 0, &f->set_of[i].copied), fail);
        TR_TRY_GOTO(ops->event_create(s->device, 0, &f->set_of[i].used), fail);
    }
    *out = f;
    return TR_OK;
fail:
    tr_feed_destroy(&f);
    return status;
}

void tr_feed_destroy(tr_feed_t **feed) {
    tr_feed_t *f = *feed;
    if (!f) return;
    tr_device_t *device = f->s->device;
    if (f->stream) (void)device->ops->stream_sync(device, f->stream);
    for (int i = 0; i < f->sets; i++) {
        if (f->set_of[i].used) device->ops->event_destroy(device, f->set_of[i].used);
        if (f->set_of[i].copied) device->ops->event_destroy(device, f->set_of[i].copied);
        if (f->set_of[i].host) device->ops->host_free(device, f->set_of[i].host);
    }
    if (f->stream) device->ops->stream_destroy(device, f->stream);
    tr_free(feed);
}

static tr_status_t feed_copy(tr_feed_t *f, tr_tensor_t input, const void *host) {
    if (tr_is_none(input)) return TR_OK;
    const tr_tensor_info_t *info = tr_tensor_info(f->s->g, input);
    return f->s->device->ops->copy(f->s->device, f->stream, info->data, host, info->bytes,
                                   TR_COPY_TO_DEVICE);
}

static tr_status_t give(tr_feed_t *f, tr_tensor_t input, void *host) {
    if (tr_is_none(input)) return TR_OK;
    return f->bound ? tr_input_bind(f->s->g, input, host) : feed_copy(f, input, host);
}

static tr_status_t give_batch(tr_feed_t *f, const tr_batch_t *batch) {
    for (int i = 0; i < batch->field_count; i++) TR_TRY(give(f, f->s->field[i], batch->field[i]));
    TR_TRY(give(f, f->s->batch.sample_id, batch->sample_id));
    return give(f, f->s->batch.weight, batch->weight);
}

static tr_status_t wait_for_copy(tr_feed_t *f, set_t *set) {
    if (!set->under_way || f->bound) return TR_OK;
    set->under_way = false;
    return f->s->device->ops->event_sync(f->s->device, set->copied);
}

tr_status_t tr_feed_next(tr_feed_t *f, int64_t number, const tr_batch_t *batch,
                         const tr_feed_step_t *step) {
    tr_device_t *device = f->s->device;
    f->fed[1] = f->fed[0];
    f->fed[0] = (int)(number % f->sets);
    set_t *set = &f->set_of[f->fed[0]];
    TR_TRY(wait_for_copy(f, set)); /* before writing its pinned block */
    tr_graph_use_inputs(f->s->g, f->fed[0]);
    TR_TRY(device->ops->event_wait(device, set->used, f->stream));
    const tr_device_span_t begun =
        f->bound ? (tr_device_span_t){0} : tr_device_trace_begin(device, f->stream);
    TR_TRY(give_batch(f, batch));
    if (step) {
        *set->host = *step;
        TR_TRY(feed_copy(f, tr_graph_step(f->s->g), &set->host->step));
        TR_TRY(feed_copy(f, f->s->asks, &set->host->asks));
    }
    tr_device_trace_end(device, f->stream, begun, &(tr_span_t){.kind = TR_SPAN_COPY});
    TR_TRY(device->ops->event_record(device, set->copied, f->stream));
    set->under_way = true;
    return device->ops->event_wait(device, set->copied, tr_graph_stream(f->s->g));
}

tr_status_t tr_feed_used(tr_feed_t *f) {
    return f->s->device->ops->event_record(f->s->device, f->set_of[f->fed[0]].used,
                                           tr_graph_stream(f->s->g));
}

tr_status_t tr_feed_wait(tr_feed_t *f, int back) {
    return wait_for_copy(f, &f->set_of[f->fed[back - 1]]);
}

void tr_feed_copies_done(tr_feed_t *f, int newest) {
    for (int i = 0; i < f->sets; i++)
        if (newest == 0 || i != f->fed[0]) f->set_of[i].under_way = false;
}

void tr_feed_use(tr_feed_t *f, int64_t number) {
    tr_graph_use_inputs(f->s->g, (int)(number % f->sets));
}
