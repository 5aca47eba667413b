/*
 * The loader: workers that fill sample streams ahead of the consumer. loader_int.h has a diagram.
 */
#include "loader_int.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/trace.h"
#include <string.h>
#include <unistd.h>

#define DIRECT_BYTES  (128 << 10) /* larger pieces: a read costs less than a second copy */
#define REQUEST_BYTES (1 << 20)   /* fits in the cache of a core, from which the copy reads */
#define CACHE_BYTES   (16 << 20)  /* larger windows do not stay in the caches until they are used */
#define AHEAD_BYTES   (32 << 20)  /* keeps a disk busy, and stays in a small page cache */
#define FILES_AHEAD   64          /* if each sample is a file, which is opened to announce it */
#define ALIGN         256

int tr_loader_workers(const tr_data_settings_t *settings, int cores) {
    if (settings->workers > 0) return (int)settings->workers;
    return cores < 8 ? 1 : cores / 4 < 4 ? cores / 4 : 4;
}

/* -- the queue of requests: all with the lock held -----------------------------------------------
 */

static void loader_fail(tr_loader_t *l) {
    if (!l->failed) l->error = *tr_error_last();
    l->failed = true;
    pthread_cond_broadcast(&l->work);
    pthread_cond_signal(&l->ready);
}

/* The window at `position` of the stream. In evaluation a window is one micro-batch; *valid of its
 * samples exist. */
static void window_at(const tr_loader_t *l, const sample_stream_t *stream, int64_t position,
                      tr_sampler_window_t *out, int64_t *valid) {
    if (!l->params.evaluation) {
        tr_sampler_window(&l->params.order, stream->slot, position, out);
        *valid = out->count;
        return;
    }
    int64_t batch = position / l->micro * l->slots + stream->slot,
            samples = l->params.order.samples;
    *out = (tr_sampler_window_t){.slot = stream->slot,
                                 .first = position,
                                 .count = l->micro,
                                 .sequence = min64(samples, batch * l->micro)};
    *valid = min64(l->micro, samples - out->sequence);
}

/* The stream whose next window to open (or to announce) the consumer needs first; NULL: all are at
 * their end. */
static sample_stream_t *stream_needed_first(const tr_loader_t *l, bool to_announce) {
    sample_stream_t *best = NULL;
    int64_t first = l->steps >= 0 ? l->steps * l->micro : INT64_MAX;
    for (int64_t i = 0; i < l->params.slot_count; i++) {
        int64_t next = to_announce ? l->stream[i].announced : l->stream[i].next;
        if (next >= first) continue;
        first = next;
        best = &l->stream[i];
    }
    return best;
}

static void loader_advance(tr_loader_t *l, sample_stream_t *stream) {
    int64_t before = stream->ready;
    while (stream->pending_count && !stream->pending[stream->pending_first].samples_left) {
        stream->ready = stream->pending[stream->pending_first].end;
        stream->pending_first = (stream->pending_first + 1) % PENDING_WINDOWS;
        stream->pending_count--;
    }
    if (stream->ready != before) pthread_cond_signal(&l->ready);
}

/* The `index`-th sample of a window: its number in the data set, and how many follow it there. */
static void loader_run_at(const tr_loader_t *l, const tr_sampler_window_t *window, int64_t index,
                          int64_t *out_sample, int64_t *out_count) {
    *out_sample = window->sequence + index;
    *out_count = l->params.order.samples - *out_sample;
    if (!l->params.evaluation)
        tr_sampler_run(&l->params.order, window->epoch, window->sequence + index, out_sample,
                       out_count);
}

/* Announces the next run of samples to the system: one reading thread alone does not keep a disk
 * busy. The lock is released meanwhile. False: AHEAD_BYTES are announced, or all samples. */
static bool loader_announce(tr_loader_t *l) {
    int64_t sample, run;
    if (!l->dataset->ops->expect || l->announcing || l->ahead >= l->ahead_max) return false;
    if (l->coming_given == l->coming_valid) {
        sample_stream_t *stream = stream_needed_first(l, true);
        if (!stream) return false;
        window_at(l, stream, stream->announced, &l->coming, &l->coming_valid);
        stream->announced = l->coming.first + l->coming.count;
        l->coming_given = 0;
        if (!l->coming_valid) return true;
    }
    loader_run_at(l, &l->coming, l->coming_given, &sample, &run);
    run = min64(min64(run, l->request_max), l->coming_valid - l->coming_given);
    l->coming_given += run;
    l->ahead += run;
    l->announcing = true;
    pthread_mutex_unlock(&l->lock);
    l->dataset->ops->expect(l->dataset, sample, run);
    pthread_mutex_lock(&l->lock);
    l->announcing = false;
    return true;
}

/* Takes the next window of the stream that is needed first if there is space for it. The lock is
 * released while the window is prepared. */
static bool window_open(tr_loader_t *l) {
    tr_sampler_window_t window;
    int64_t valid;
    sample_stream_t *stream = l->opening ? NULL : stream_needed_first(l, false);
    if (!stream || stream->pending_count == PENDING_WINDOWS) return false;
    window_at(l, stream, stream->next, &window, &valid);
    /* After a resume the first window may begin before the requested position: `ready` keeps its
     * space until it is complete. */
    if (window.first + window.count - min64(stream->released, stream->ready) > l->capacity)
        return false;
    const int pending = (stream->pending_first + stream->pending_count++) % PENDING_WINDOWS;
    stream->pending[pending] =
        (pending_window_t){.end = window.first + window.count, .samples_left = window.count};
    stream->next = window.first + window.count;
    l->opening = true;
    pthread_mutex_unlock(&l->lock);
    tr_loader_window_prepare(l, stream, &window, valid);
    pthread_mutex_lock(&l->lock);
    l->opening = false;
    stream->pending[pending].samples_left = valid;
    if (valid) {
        l->open = stream;
        l->open_window = pending;
        l->window = window;
        l->valid = valid;
        l->given = 0;
    } else {
        loader_advance(l, stream);
    }
    pthread_cond_broadcast(&l->work);
    return true;
}

static bool request_take(tr_loader_t *l, read_request_t *out) {
    if (!l->open) return false;
    int64_t run;
    *out = (read_request_t){.stream = l->open,
                            .window = l->open_window,
                            .base = stream_at(l, l->window.first),
                            .index = l->given};
    loader_run_at(l, &l->window, l->given, &out->sample, &run);
    out->count = min64(min64(run, l->request_max), l->valid - l->given);
    l->given += out->count;
    l->ahead -= out->count;
    if (l->given == l->valid) l->open = NULL;
    return true;
}

static void *loader_work(void *argument) {
    worker_t *self = argument;
    tr_loader_t *l = self->loader;
    read_request_t request;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && !l->failed) {
        if (loader_announce(l)) continue;
        if (!request_take(l, &request)) {
            if (!window_open(l)) pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        const double begin_sec = l->params.evaluation ? 0 : tr_trace_begin();
        tr_status_t status = tr_loader_request_read(l, self, &request);
        tr_trace_end(begin_sec, &(tr_span_t){.kind = TR_SPAN_READ,
                                             .lane = (int)(self - l->worker),
                                             .number = request.count,
                                             .bytes = request.count * l->sample_bytes});
        pthread_mutex_lock(&l->lock);
        if (status != TR_OK) {
            loader_fail(l);
            break;
        }
        pending_window_t *window = &request.stream->pending[request.window];
        window->samples_left -= request.count;
        if (!window->samples_left) loader_advance(l, request.stream);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* -- creation ---------------------------------------------------------------------------------- */

/* The field of labels, -1: none. */
static int loader_label_field(const tr_dataset_info_t *info) {
    for (int f = 0; f < info->field_count; f++)
        if (info->field[f].kind == TR_FIELD_LABELS) return f;
    return -1;
}

static tr_status_t loader_check_label_field(const tr_dataset_info_t *info) {
    const int label = loader_label_field(info);
    if (label < 0 || (info->field[label].dtype == TR_I32 && info->classes > 0)) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "%s: field '%s': expected labels of type i32 and the number of classes, found "
                   "%s and %lld classes. Correct the open function of the data set.",
                   info->description, info->field[label].name,
                   tr_dtype_name(info->field[label].dtype), (long long)info->classes);
}

static tr_status_t loader_check(const tr_dataset_t *dataset, const tr_loader_params_t *p) {
    const tr_sampler_t *o = &p->order;
    TR_TRY(loader_check_label_field(&dataset->info));
    bool good = o->samples > 0 && o->samples <= dataset->info.samples &&
                (o->samples == dataset->info.samples || p->evaluation) && o->micro_batch > 0 &&
                o->batch_size % o->micro_batch == 0 && o->block > 0 && o->shuffle >= 0 &&
                p->first_slot >= 0 && p->slot_count > 0 &&
                p->first_slot + p->slot_count <= tr_sampler_slots(o) && p->workers > 0 &&
                p->prefetch > 0 && p->first_step >= 0;
    if (good) return TR_OK;
    return TR_FAIL(TR_ERR_INTERNAL,
                   "Invalid loader parameters: %lld samples (data set: %lld), batch %lld, "
                   "micro-batch %lld, block %lld, shuffle %lld, slots %lld + %lld, %d workers, "
                   "prefetch %d.",
                   (long long)o->samples, (long long)dataset->info.samples,
                   (long long)o->batch_size, (long long)o->micro_batch, (long long)o->block,
                   (long long)o->shuffle, (long long)p->first_slot, (long long)p->slot_count,
                   p->workers, p->prefetch);
}

static void loader_measure(tr_loader_t *l) {
    const tr_sampler_t *o = &l->params.order;
    const tr_dataset_info_t *info = &l->dataset->info;
    int64_t largest = 1;
    l->micro = o->micro_batch;
    l->slots = tr_sampler_slots(o);
    l->label = loader_label_field(info);
    l->shuffled = !l->params.evaluation && tr_sampler_shuffles(o);
    l->steps = l->params.evaluation ? ceil_div(o->samples, o->batch_size) : -1;
    l->window_max = l->params.evaluation ? l->micro : tr_sampler_window_max(o);
    for (int f = 0; f < info->field_count; f++) {
        largest = max64(largest, info->field[f].sample_bytes);
        l->sample_bytes += info->field[f].sample_bytes;
        l->direct[f] = info->read_unit == 1 && info->field[f].sample_bytes >= DIRECT_BYTES;
    }
    /* no data set twice */
    l->ahead_max = max64(min64(AHEAD_BYTES / max64(l->sample_bytes, 1), o->samples), 1);
    if (info->is_file_each) l->ahead_max = min64(l->ahead_max, FILES_AHEAD);
    l->request_max = max64(REQUEST_BYTES / largest, max64(info->read_unit, 1));
    /* One window in use and one being filled, the micro-batches that the consumer may hold, and the
     * micro-batch that spans two windows. */
    int64_t held = 1 + ceil_div(l->params.prefetch, l->params.slot_count);
    l->capacity = (ceil_div(2 * l->window_max, l->micro) + held) * l->micro;
}

/* Returns aligned parts of a block; with a NULL block it only counts. */
static void *loader_carve(char *block, size_t *used, size_t bytes) {
    void *part = block ? block + *used : NULL;
    *used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return part;
}

static void loader_lay_out(tr_loader_t *l, char *pinned, char *host) {
    const tr_dataset_info_t *info = &l->dataset->info;
    size_t capacity = (size_t)l->capacity, batches = (size_t)(l->capacity / l->micro);
    l->pinned_bytes = l->host_bytes = 0;
    for (int64_t i = 0; i < l->params.slot_count; i++) {
        sample_stream_t unused, *stream = l->stream ? &l->stream[i] : &unused;
        for (int f = 0; f < info->field_count; f++)
            stream->field[f] = loader_carve(pinned, &l->pinned_bytes,
                                            capacity * (size_t)info->field[f].sample_bytes);
        stream->sample_id =
            loader_carve(pinned, &l->pinned_bytes, capacity * sizeof *stream->sample_id);
        stream->weight = loader_carve(pinned, &l->pinned_bytes, capacity * sizeof *stream->weight);
        stream->place = loader_carve(
            host, &l->host_bytes,
            l->shuffled ? (capacity + (size_t)l->window_max) * sizeof *stream->place : 0);
        stream->batch = loader_carve(host, &l->host_bytes, batches * sizeof *stream->batch);
        stream->out = loader_carve(host, &l->host_bytes, batches * sizeof *stream->out);
    }
    for (int w = 0; w < l->params.workers; w++)
        for (int f = 0; f < info->field_count; f++) {
            size_t bytes = l->shuffled && !l->direct[f]
                               ? (size_t)(l->request_max * info->field[f].sample_bytes)
                               : 0;
            char *staging = loader_carve(host, &l->host_bytes, bytes);
            if (l->worker) l->worker[w].staging[f] = staging;
        }
}

static void loader_set_streams(tr_loader_t *l) {
    const tr_dataset_info_t *info = &l->dataset->info;
    int64_t batches = l->capacity / l->micro;
    l->step = l->params.first_step;
    for (int64_t i = 0; i < l->params.slot_count; i++) {
        sample_stream_t *stream = &l->stream[i];
        stream->slot = l->params.first_slot + i;
        stream->next = stream->taken = stream->released = l->step * l->micro;
        if (!l->params.evaluation) {
            tr_sampler_window_t window;
            tr_sampler_window(&l->params.order, stream->slot, stream->taken, &window);
            stream->next = window.first;
        }
        stream->ready = stream->announced = stream->next;
        for (int64_t b = 0; b < batches; b++) {
            size_t at = (size_t)(b * l->micro);
            tr_batch_t *batch = &stream->batch[b];
            *batch = (tr_batch_t){.slot = stream->slot,
                                  .ring = (int)(i * batches + b),
                                  .field_count = info->field_count,
                                  .sample_id = stream->sample_id + at,
                                  .weight = stream->weight + at};
            for (int f = 0; f < info->field_count; f++)
                batch->field[f] = stream->field[f] + at * (size_t)info->field[f].sample_bytes;
            stream->out[b] = false;
        }
    }
}

static tr_status_t loader_allocate(tr_loader_t *l) {
    TR_TRY(
        tr_alloc((size_t)l->params.slot_count * sizeof *l->stream, "loader's streams", &l->stream));
    TR_TRY(tr_alloc((size_t)l->params.workers * sizeof *l->worker, "loader's workers", &l->worker));
    loader_lay_out(l, NULL, NULL);
    TR_TRY(l->device->ops->host_alloc(l->device, l->pinned_bytes, (void **)&l->pinned));
    /* Samples are written to random places of a large buffer: with small pages each write would
     * miss the TLB. */
    if (l->device->host_visible) tr_use_large_pages(l->pinned, l->pinned_bytes);
    TR_TRY(tr_alloc_aligned(l->host_bytes, ALIGN, "loader's windows", &l->host));
    loader_lay_out(l, l->pinned, l->host);
    l->past_caches = l->pinned_bytes > CACHE_BYTES;
    loader_set_streams(l);
    return TR_OK;
}

static tr_status_t loader_start_workers(tr_loader_t *l) {
    int error = 0;
    for (int w = 0; w < l->params.workers && !error; w++) {
        l->worker[w].loader = l;
        error = tr_thread_start("trainer-load", loader_work, &l->worker[w], &l->worker[w].thread);
        l->workers_started += !error;
    }
    return error
               ? TR_FAIL(TR_ERR_MEMORY, "Cannot start %d loader threads: %s. Reduce data.workers.",
                         l->params.workers, strerror(error))
               : TR_OK;
}

tr_status_t tr_loader_create(tr_dataset_t *dataset, tr_device_t *device,
                             const tr_loader_params_t *params, tr_loader_t **out) {
    tr_status_t status;
    tr_loader_t *l = NULL;
    *out = NULL;
    TR_TRY(loader_check(dataset, params));
    TR_TRY(tr_alloc(sizeof *l, "loader", &l));
    l->dataset = dataset;
    l->device = device;
    l->params = *params;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    loader_measure(l);
    TR_TRY_GOTO(loader_allocate(l), failed);
    TR_TRY_GOTO(loader_start_workers(l), failed);
    *out = l;
    return TR_OK;
failed:
    tr_loader_destroy(&l);
    return status;
}

void tr_loader_destroy(tr_loader_t **loader) {
    tr_loader_t *l = *loader;
    *loader = NULL;
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int w = 0; w < l->workers_started; w++) pthread_join(l->worker[w].thread, NULL);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    if (l->pinned) l->device->ops->host_free(l->device, l->pinned);
    tr_free(&l->host);
    tr_free(&l->worker);
    tr_free(&l->stream);
    tr_free(&l);
}

/* -- the consumer ------------------------------------------------------------------------------ */

static tr_status_t loader_wait_ready(tr_loader_t *l, const sample_stream_t *stream) {
    if (stream->ready >= stream->taken + l->micro) return TR_OK;
    double begin = tr_clock_sec();
    while (stream->ready < stream->taken + l->micro && !l->failed)
        pthread_cond_wait(&l->ready, &l->lock);
    l->stall_sec += tr_clock_sec() - begin;
    if (!l->params.evaluation && tr_trace_is_on())
        tr_trace_end(begin, &(tr_span_t){.kind = TR_SPAN_DATA});
    return stream->ready < stream->taken + l->micro ? tr_error_set(&l->error) : TR_OK;
}

static void loader_describe(const tr_loader_t *l, const sample_stream_t *stream,
                            tr_batch_t *batch) {
    int64_t next, last = stream->taken + l->micro - 1;
    batch->step = l->step;
    batch->valid = l->micro;
    batch->epoch = 0;
    if (!l->params.evaluation) {
        batch->epoch = tr_sampler_epoch(&l->params.order, stream->slot, stream->taken, NULL, &next);
        batch->ends_epoch = next <= last + 1;
        return;
    }
    int64_t begin = (l->step * l->slots + stream->slot) * l->micro,
            samples = l->params.order.samples;
    batch->valid = max64(0, min64(l->micro, samples - begin));
    batch->ends_epoch = begin + l->micro >= samples && begin < samples;
}

tr_status_t tr_loader_next(tr_loader_t *l, tr_batch_t **out) {
    *out = NULL;
    if (l->steps >= 0 && l->step >= l->steps) return TR_OK;
    if (l->held >= l->params.prefetch)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "%lld micro-batches are held and none has been released; the limit is "
                       "data.prefetch (%d).",
                       (long long)l->held, l->params.prefetch);
    sample_stream_t *stream = &l->stream[l->turn];
    int64_t index = stream_at(l, stream->taken) / l->micro;
    pthread_mutex_lock(&l->lock);
    tr_status_t status = loader_wait_ready(l, stream);
    if (status == TR_OK) {
        *out = &stream->batch[index];
        stream->out[index] = true;
        loader_describe(l, stream, *out);
        stream->taken += l->micro;
    }
    pthread_mutex_unlock(&l->lock);
    TR_TRY(status);
    l->held++;
    l->turn = (l->turn + 1) % l->params.slot_count;
    l->step += l->turn == 0;
    return TR_OK;
}

tr_status_t tr_loader_release(tr_loader_t *l, tr_batch_t *batch) {
    int64_t batches = l->capacity / l->micro;
    sample_stream_t *stream = &l->stream[batch->slot - l->params.first_slot];
    pthread_mutex_lock(&l->lock);
    bool held = stream->out[batch->ring % batches];
    stream->out[batch->ring % batches] = false;
    while (stream->released < stream->taken &&
           !stream->out[stream_at(l, stream->released) / l->micro])
        stream->released += l->micro;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    l->held -= held;
    return held ? TR_OK
                : TR_FAIL(TR_ERR_INTERNAL,
                          "A micro-batch was released twice (step %lld, slot %lld).",
                          (long long)batch->step, (long long)batch->slot);
}

/* All windows have been read; a worker may still be announcing samples to the system. */
tr_status_t tr_loader_restart(tr_loader_t *l) {
    if (l->steps < 0 || l->step < l->steps || l->held > 0)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "A loader may be restarted after an evaluation pass; found step %lld of "
                       "%lld, and %lld micro-batches in use.",
                       (long long)l->step, (long long)l->steps, (long long)l->held);
    pthread_mutex_lock(&l->lock);
    loader_set_streams(l);
    l->turn = 0;
    l->ahead = l->coming_given = l->coming_valid = 0;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return TR_OK;
}

double tr_loader_stall_sec(const tr_loader_t *l) {
    return l->stall_sec;
}
size_t tr_loader_bytes(const tr_loader_t *l) {
    return l->pinned_bytes + l->host_bytes;
}
