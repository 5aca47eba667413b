/* The loader: workers that fill lanes ahead of the consumer (loader_int.h draws the picture). */
#include "loader_int.h"
#include "trainer/clock.h"
#include "trainer/mem.h"
#include "trainer/thread.h"
#include <string.h>
#include <unistd.h>

#define DIRECT_BYTES (128 << 10) /* from here on a read of its own costs less than a second copy */
#define PIECE_BYTES                                                                                \
    (1 << 20) /* fits a core's cache, so that the copy into place comes from there */
#define CACHE_BYTES (16 << 20) /* more than this is not kept by the caches until it is used */
#define AHEAD_BYTES                                                                                \
    (32 << 20) /* keeps a disk busy, and stays in a small page cache until it is read */
#define ALIGN 256

int tr_loader_workers(const tr_data_settings_t *settings, int cores) {
    if (settings->workers > 0) return (int)settings->workers;
    return cores < 8 ? 1 : cores / 4 < 4 ? cores / 4 : 4;
}

/* -- the queue of pieces: all with the lock held ----------------------------------------------- */

static void fail(tr_loader_t *l) {
    if (!l->failed) l->error = *tr_error_last();
    l->failed = true;
    pthread_cond_broadcast(&l->work);
    pthread_cond_signal(&l->ready);
}

/* The window at `position` of the lane. In evaluation a window is one micro-batch; *valid of its
 * samples exist. */
static void window_at(const tr_loader_t *l, const lane_t *lane, int64_t position,
                      tr_order_window_t *out, int64_t *valid) {
    if (!l->params.evaluation) {
        tr_order_window(&l->params.order, lane->slot, position, out);
        *valid = out->count;
        return;
    }
    int64_t batch = position / l->micro * l->slots + lane->slot, samples = l->params.order.samples;
    *out = (tr_order_window_t){.slot = lane->slot,
                               .first = position,
                               .count = l->micro,
                               .sequence = min64(samples, batch * l->micro)};
    *valid = min64(l->micro, samples - out->sequence);
}

/* The lane whose next window to open (or to announce) the consumer wants first, NULL where all are
 * at their end. */
static lane_t *neediest(const tr_loader_t *l, bool to_announce) {
    lane_t *best = NULL;
    int64_t first = l->steps >= 0 ? l->steps * l->micro : INT64_MAX;
    for (int64_t i = 0; i < l->params.slot_count; i++) {
        int64_t next = to_announce ? l->lane[i].announced : l->lane[i].next;
        if (next >= first) continue;
        first = next;
        best = &l->lane[i];
    }
    return best;
}

static void advance(tr_loader_t *l, lane_t *lane) {
    int64_t before = lane->ready;
    while (lane->flight_count && !lane->flight[lane->flight_first].pending) {
        lane->ready = lane->flight[lane->flight_first].end;
        lane->flight_first = (lane->flight_first + 1) % LANE_FLIGHTS;
        lane->flight_count--;
    }
    if (lane->ready != before) pthread_cond_signal(&l->ready);
}

/* The `index`-th sample of a window: its number in the data set, and how many follow it there. */
static void run_at(const tr_loader_t *l, const tr_order_window_t *window, int64_t index,
                   int64_t *out_sample, int64_t *out_count) {
    *out_sample = window->sequence + index;
    *out_count = l->params.order.samples - *out_sample;
    if (!l->params.evaluation)
        tr_order_run(&l->params.order, window->epoch, window->sequence + index, out_sample,
                     out_count);
}

/*
 * Lets the system fetch the next run of samples that is not yet under way: one thread alone keeps
 * no disk busy. The lock is left meanwhile. False: AHEAD_BYTES are under way, or all there is.
 */
static bool announce(tr_loader_t *l) {
    int64_t sample, run;
    if (!l->dataset->ops->expect || l->announcing || l->ahead >= l->ahead_max) return false;
    if (l->coming_given == l->coming_valid) {
        lane_t *lane = neediest(l, true);
        if (!lane) return false;
        window_at(l, lane, lane->announced, &l->coming, &l->coming_valid);
        lane->announced = l->coming.first + l->coming.count;
        l->coming_given = 0;
        if (!l->coming_valid) return true;
    }
    run_at(l, &l->coming, l->coming_given, &sample, &run);
    run = min64(min64(run, l->piece_max), l->coming_valid - l->coming_given);
    l->coming_given += run;
    l->ahead += run;
    l->announcing = true;
    pthread_mutex_unlock(&l->lock);
    l->dataset->ops->expect(l->dataset, sample, run);
    pthread_mutex_lock(&l->lock);
    l->announcing = false;
    return true;
}

/* Takes the next window of the neediest lane if its room is free. The lock is left while the window
 * is prepared. */
static bool window_open(tr_loader_t *l) {
    tr_order_window_t window;
    int64_t valid;
    lane_t *lane = l->opening ? NULL : neediest(l, false);
    if (!lane || lane->flight_count == LANE_FLIGHTS) return false;
    window_at(l, lane, lane->next, &window, &valid);
    /* After a resume the first window begins before what is wanted: `ready` keeps its room until it
     * is complete. */
    if (window.first + window.count - min64(lane->released, lane->ready) > l->capacity)
        return false;
    int flight = (lane->flight_first + lane->flight_count++) % LANE_FLIGHTS;
    lane->flight[flight] = (flight_t){.end = window.first + window.count, .pending = window.count};
    lane->next = window.first + window.count;
    l->opening = true;
    pthread_mutex_unlock(&l->lock);
    tr_loader_window_prepare(l, lane, &window, valid);
    pthread_mutex_lock(&l->lock);
    l->opening = false;
    lane->flight[flight].pending = valid;
    if (valid) {
        l->open = lane;
        l->open_flight = flight;
        l->window = window;
        l->valid = valid;
        l->given = 0;
    } else {
        advance(l, lane);
    }
    pthread_cond_broadcast(&l->work);
    return true;
}

static bool piece_take(tr_loader_t *l, piece_t *out) {
    if (!l->open) return false;
    int64_t run;
    *out = (piece_t){.lane = l->open,
                     .flight = l->open_flight,
                     .base = lane_at(l, l->window.first),
                     .index = l->given};
    run_at(l, &l->window, l->given, &out->sample, &run);
    out->count = min64(min64(run, l->piece_max), l->valid - l->given);
    l->given += out->count;
    l->ahead -= out->count;
    if (l->given == l->valid) l->open = NULL;
    return true;
}

static void *work(void *argument) {
    worker_t *self = argument;
    tr_loader_t *l = self->loader;
    piece_t piece;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && !l->failed) {
        if (announce(l)) continue;
        if (!piece_take(l, &piece)) {
            if (!window_open(l)) pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        tr_status_t status = tr_loader_piece_read(l, self, &piece);
        pthread_mutex_lock(&l->lock);
        if (status != TR_OK) {
            fail(l);
            break;
        }
        flight_t *flight = &piece.lane->flight[piece.flight];
        flight->pending -= piece.count;
        if (!flight->pending) advance(l, piece.lane);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* -- creation ---------------------------------------------------------------------------------- */

/* The field of labels, -1: none. */
static int label_field(const tr_dataset_info_t *info) {
    for (int f = 0; f < info->field_count; f++)
        if (info->field[f].kind == TR_FIELD_LABELS) return f;
    return -1;
}

static tr_status_t check_label_field(const tr_dataset_info_t *info) {
    const int label = label_field(info);
    if (label < 0 || (info->field[label].dtype == TR_I32 && info->classes > 0)) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "%s: field '%s': expected labels of type i32 and the number of classes, found "
                   "%s and %lld classes. Correct the open function of the data set.",
                   info->description, info->field[label].name,
                   tr_dtype_name(info->field[label].dtype), (long long)info->classes);
}

static tr_status_t check(const tr_dataset_t *dataset, const tr_loader_params_t *p) {
    const tr_order_t *o = &p->order;
    TR_TRY(check_label_field(&dataset->info));
    bool good = o->samples > 0 && o->samples <= dataset->info.samples &&
                (o->samples == dataset->info.samples || p->evaluation) && o->micro_batch > 0 &&
                o->batch_size % o->micro_batch == 0 && o->block > 0 && o->shuffle >= 0 &&
                p->first_slot >= 0 && p->slot_count > 0 &&
                p->first_slot + p->slot_count <= tr_order_slots(o) && p->workers > 0 &&
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

static void measure(tr_loader_t *l) {
    const tr_order_t *o = &l->params.order;
    const tr_dataset_info_t *info = &l->dataset->info;
    int64_t largest = 1, sample_bytes = 0;
    l->micro = o->micro_batch;
    l->slots = tr_order_slots(o);
    l->label = label_field(info);
    l->shuffled = !l->params.evaluation && tr_order_shuffles(o);
    l->steps = l->params.evaluation ? ceil_div(o->samples, o->batch_size) : -1;
    l->window_max = l->params.evaluation ? l->micro : tr_order_window_max(o);
    for (int f = 0; f < info->field_count; f++) {
        largest = max64(largest, info->field[f].sample_bytes);
        sample_bytes += info->field[f].sample_bytes;
        l->direct[f] = info->read_unit == 1 && info->field[f].sample_bytes >= DIRECT_BYTES;
    }
    /* no data set twice */
    l->ahead_max = max64(min64(AHEAD_BYTES / max64(sample_bytes, 1), o->samples), 1);
    l->piece_max = max64(PIECE_BYTES / largest, max64(info->read_unit, 1));
    /* One window in use and one being filled; beyond, what the consumer may hold and the
     * micro-batch that straddles windows. */
    int64_t held = 1 + ceil_div(l->params.prefetch, l->params.slot_count);
    l->capacity = (ceil_div(2 * l->window_max, l->micro) + held) * l->micro;
}

/* Hands out aligned parts of a block; with a NULL block only counts. */
static void *carve(char *block, size_t *used, size_t bytes) {
    void *part = block ? block + *used : NULL;
    *used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return part;
}

static void lay_out(tr_loader_t *l, char *pinned, char *host) {
    const tr_dataset_info_t *info = &l->dataset->info;
    size_t capacity = (size_t)l->capacity, batches = (size_t)(l->capacity / l->micro);
    l->pinned_bytes = l->host_bytes = 0;
    for (int64_t i = 0; i < l->params.slot_count; i++) {
        lane_t unused, *lane = l->lane ? &l->lane[i] : &unused;
        for (int f = 0; f < info->field_count; f++)
            lane->field[f] =
                carve(pinned, &l->pinned_bytes, capacity * (size_t)info->field[f].sample_bytes);
        lane->sample_id = carve(pinned, &l->pinned_bytes, capacity * sizeof *lane->sample_id);
        lane->weight = carve(pinned, &l->pinned_bytes, capacity * sizeof *lane->weight);
        lane->place =
            carve(host, &l->host_bytes,
                  l->shuffled ? (capacity + (size_t)l->window_max) * sizeof *lane->place : 0);
        lane->batch = carve(host, &l->host_bytes, batches * sizeof *lane->batch);
        lane->out = carve(host, &l->host_bytes, batches * sizeof *lane->out);
    }
    for (int w = 0; w < l->params.workers; w++)
        for (int f = 0; f < info->field_count; f++) {
            size_t bytes = l->shuffled && !l->direct[f]
                               ? (size_t)(l->piece_max * info->field[f].sample_bytes)
                               : 0;
            char *bounce = carve(host, &l->host_bytes, bytes);
            if (l->worker) l->worker[w].bounce[f] = bounce;
        }
}

static void set_lanes(tr_loader_t *l) {
    const tr_dataset_info_t *info = &l->dataset->info;
    int64_t batches = l->capacity / l->micro;
    l->step = l->params.first_step;
    for (int64_t i = 0; i < l->params.slot_count; i++) {
        lane_t *lane = &l->lane[i];
        lane->slot = l->params.first_slot + i;
        lane->next = lane->taken = lane->released = l->step * l->micro;
        if (!l->params.evaluation) {
            tr_order_window_t window;
            tr_order_window(&l->params.order, lane->slot, lane->taken, &window);
            lane->next = window.first;
        }
        lane->ready = lane->announced = lane->next;
        for (int64_t b = 0; b < batches; b++) {
            size_t at = (size_t)(b * l->micro);
            tr_batch_t *batch = &lane->batch[b];
            *batch = (tr_batch_t){.slot = lane->slot,
                                  .ring = (int)(i * batches + b),
                                  .field_count = info->field_count,
                                  .sample_id = lane->sample_id + at,
                                  .weight = lane->weight + at};
            for (int f = 0; f < info->field_count; f++)
                batch->field[f] = lane->field[f] + at * (size_t)info->field[f].sample_bytes;
            lane->out[b] = false;
        }
    }
}

static tr_status_t allocate(tr_loader_t *l) {
    TR_TRY(tr_alloc((size_t)l->params.slot_count * sizeof *l->lane, "loader's lanes", &l->lane));
    TR_TRY(tr_alloc((size_t)l->params.workers * sizeof *l->worker, "loader's workers", &l->worker));
    lay_out(l, NULL, NULL);
    TR_TRY(l->device->ops->host_alloc(l->device, l->pinned_bytes, (void **)&l->pinned));
    /* Samples go to random places of a large buffer: with small pages each is a miss in the table
     * of pages. */
    if (l->device->host_visible) tr_use_large_pages(l->pinned, l->pinned_bytes);
    TR_TRY(tr_alloc_aligned(l->host_bytes, ALIGN, "loader's windows", &l->host));
    lay_out(l, l->pinned, l->host);
    l->past_caches = l->pinned_bytes > CACHE_BYTES;
    set_lanes(l);
    return TR_OK;
}

static tr_status_t start_workers(tr_loader_t *l) {
    int error = 0;
    for (int w = 0; w < l->params.workers && !error; w++) {
        l->worker[w].loader = l;
        error = tr_thread_start("trainer-load", work, &l->worker[w], &l->worker[w].thread);
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
    TR_TRY(check(dataset, params));
    TR_TRY(tr_alloc(sizeof *l, "loader", &l));
    l->dataset = dataset;
    l->device = device;
    l->params = *params;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    measure(l);
    TR_TRY_GOTO(allocate(l), failed);
    TR_TRY_GOTO(start_workers(l), failed);
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
    tr_free(&l->lane);
    tr_free(&l);
}

/* -- the consumer ------------------------------------------------------------------------------ */

static tr_status_t wait_ready(tr_loader_t *l, const lane_t *lane) {
    if (lane->ready >= lane->taken + l->micro) return TR_OK;
    double begin = tr_clock_sec();
    while (lane->ready < lane->taken + l->micro && !l->failed)
        pthread_cond_wait(&l->ready, &l->lock);
    l->stall_sec += tr_clock_sec() - begin;
    return lane->ready < lane->taken + l->micro ? tr_error_set(&l->error) : TR_OK;
}

static void describe(const tr_loader_t *l, const lane_t *lane, tr_batch_t *batch) {
    int64_t next, last = lane->taken + l->micro - 1;
    batch->step = l->step;
    batch->valid = l->micro;
    batch->epoch = 0;
    if (!l->params.evaluation) {
        batch->epoch = tr_order_epoch(&l->params.order, lane->slot, lane->taken, NULL, &next);
        batch->ends_epoch = next <= last + 1;
        return;
    }
    int64_t begin = (l->step * l->slots + lane->slot) * l->micro, samples = l->params.order.samples;
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
    lane_t *lane = &l->lane[l->turn];
    int64_t index = lane_at(l, lane->taken) / l->micro;
    pthread_mutex_lock(&l->lock);
    tr_status_t status = wait_ready(l, lane);
    if (status == TR_OK) {
        *out = &lane->batch[index];
        lane->out[index] = true;
        describe(l, lane, *out);
        lane->taken += l->micro;
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
    lane_t *lane = &l->lane[batch->slot - l->params.first_slot];
    pthread_mutex_lock(&l->lock);
    bool held = lane->out[batch->ring % batches];
    lane->out[batch->ring % batches] = false;
    while (lane->released < lane->taken && !lane->out[lane_at(l, lane->released) / l->micro])
        lane->released += l->micro;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    l->held -= held;
    return held ? TR_OK
                : TR_FAIL(TR_ERR_INTERNAL,
                          "A micro-batch was released twice (step %lld, slot %lld).",
                          (long long)batch->step, (long long)batch->slot);
}

double tr_loader_stall_sec(const tr_loader_t *l) {
    return l->stall_sec;
}
size_t tr_loader_bytes(const tr_loader_t *l) {
    return l->pinned_bytes + l->host_bytes;
}
