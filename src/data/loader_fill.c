/* Fills a shuffle window: permutation, padding, reading, and writing each sample to its place. */
#include "loader_int.h"
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

void tr_loader_window_prepare(tr_loader_t *l, sample_stream_t *stream,
                              const tr_sampler_window_t *window, int64_t valid) {
    int64_t head = min64(window->count, l->capacity - stream_at(l, window->first));
    if (l->shuffled) {
        /* The permutation is stored at the positions of the window; if these wrap, it is made in
         * the spare space after the buffer. */
        int64_t *place =
            stream->place + (head < window->count ? l->capacity : stream_at(l, window->first));
        tr_sampler_permutation(&l->params.order, window, place);
        if (head < window->count) {
            memcpy(stream->place + stream_at(l, window->first), place,
                   (size_t)head * sizeof *place);
            memcpy(stream->place, place + head, (size_t)(window->count - head) * sizeof *place);
        }
    }
    for (int64_t i = valid; i < window->count; i++) {
        int64_t at = stream_at(l, window->first + i);
        for (int f = 0; f < l->dataset->info.field_count; f++) {
            size_t bytes = (size_t)l->dataset->info.field[f].sample_bytes;
            /* labels: -1 */
            memset(stream->field[f] + (size_t)at * bytes, f == l->label ? 0xFF : 0, bytes);
        }
        stream->sample_id[at] = -1;
        stream->weight[at] = 0;
    }
}

static inline int64_t loader_wrap(const tr_loader_t *l, int64_t at) {
    return at < l->capacity ? at : at - l->capacity;
}

/* The destination of sample i of the request: offset in the buffer of the stream. */
static inline int64_t loader_destination(const tr_loader_t *l, const read_request_t *p, int64_t i) {
    int64_t at = loader_wrap(l, p->base + p->index + i);
    return l->shuffled ? loader_wrap(l, p->base + p->stream->place[at]) : at;
}

/* A window is larger than the caches: non-temporal stores avoid reading each cache line before it
 * is overwritten. (One thread, warm page cache, samples of 3 KiB: 8 GB/s instead of 4.5.) */
static void loader_copy_past_caches(char *to, const char *from, size_t bytes) {
#ifdef __SSE2__
    size_t head = (16 - ((uintptr_t)to & 15)) & 15, i = head;
    memcpy(to, from, head);
    for (; i + 64 <= bytes;
         /* all loads of a line before its stores: 20 % faster than alternating */
         i += 64) {
        const __m128i *source = (const __m128i *)(from + i);
        __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3),
                *target = (__m128i *)(to + i);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    memcpy(to + i, from + i, bytes - i);
#else
    memcpy(to, from, bytes);
#endif
}

/* Makes non-temporal stores visible before another thread is notified. */
static void loader_finish_copies(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

static void loader_copy_sample(const tr_loader_t *l, char *to, const char *from, size_t bytes) {
    if (bytes == 4)
        memcpy(to, from, 4); /* labels: a constant size for the compiler */
    else if (l->past_caches && bytes >= 256)
        loader_copy_past_caches(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

/* Sample ids, the fields in the staging buffers, and weights, which depend on labels already in
 * place. */
static void loader_scatter(const tr_loader_t *l, const worker_t *worker, const read_request_t *p) {
    sample_stream_t *stream = p->stream;
    const int32_t *label =
        l->label >= 0 && l->dataset->info.field[l->label].sample_bytes == sizeof *label
            ? (const int32_t *)stream->field[l->label]
            : NULL; /* one a sample */
    for (int64_t i = 0; i < p->count; i++) {
        int64_t at = loader_destination(l, p, i);
        stream->sample_id[at] = p->sample + i;
        for (int f = 0; l->shuffled && f < l->dataset->info.field_count; f++) {
            size_t bytes = (size_t)l->dataset->info.field[f].sample_bytes;
            if (!l->direct[f])
                loader_copy_sample(l, stream->field[f] + (size_t)at * bytes,
                                   worker->staging[f] + (size_t)i * bytes, bytes);
        }
        stream->weight[at] = label && label[at] == -1 ? 0 : 1;
    }
    if (l->past_caches) loader_finish_copies();
}

/* Kernels and counts index by labels, and a data set of an embedding program may not have checked
 * its own. */
static tr_status_t loader_check_labels(const tr_loader_t *l, int64_t first, int64_t count,
                                       const int32_t *label) {
    const tr_dataset_info_t *info = &l->dataset->info;
    const tr_field_t *field = &info->field[l->label];
    const int64_t each = field->sample_bytes / (int64_t)sizeof *label;
    for (int64_t i = 0; i < count * each; i++)
        if (label[i] < -1 || label[i] >= info->classes)
            return TR_FAIL(TR_ERR_DATA,
                           "%s: field '%s', sample %lld: expected a class from 0 to %lld (or -1 "
                           "for none), found %d. Correct the data set, or the number of classes in "
                           "its open function.",
                           info->description, field->name, (long long)(first + i / each),
                           (long long)info->classes - 1, (int)label[i]);
    return TR_OK;
}

static tr_status_t loader_read_samples(const tr_loader_t *l, int64_t first, int64_t count,
                                       void *const *dst) {
    TR_TRY(l->dataset->ops->read(l->dataset, first, count, dst));
    return l->label >= 0 && dst[l->label] ? loader_check_labels(l, first, count, dst[l->label])
                                          : TR_OK;
}

/* In file order the request fills one segment, or two if the buffer wraps. */
static tr_status_t loader_read_straight(tr_loader_t *l, const read_request_t *p) {
    for (int64_t i = 0; i < p->count;) {
        int64_t at = loader_destination(l, p, i), run = min64(p->count - i, l->capacity - at);
        void *dst[TR_DATASET_MAX_FIELDS] = {0};
        for (int f = 0; f < l->dataset->info.field_count; f++)
            dst[f] = p->stream->field[f] + (size_t)(at * l->dataset->info.field[f].sample_bytes);
        TR_TRY(loader_read_samples(l, p->sample + i, run, dst));
        i += run;
    }
    return TR_OK;
}

static tr_status_t loader_read_each(tr_loader_t *l, const read_request_t *p, int f) {
    for (int64_t i = 0; i < p->count; i++) {
        void *dst[TR_DATASET_MAX_FIELDS] = {0};
        dst[f] = p->stream->field[f] +
                 (size_t)(loader_destination(l, p, i) * l->dataset->info.field[f].sample_bytes);
        TR_TRY(loader_read_samples(l, p->sample + i, 1, dst));
    }
    return TR_OK;
}

tr_status_t tr_loader_request_read(tr_loader_t *l, worker_t *worker, const read_request_t *p) {
    int fields = l->dataset->info.field_count;
    bool any = false;
    void *dst[TR_DATASET_MAX_FIELDS] = {0};
    if (!l->shuffled) {
        TR_TRY(loader_read_straight(l, p));
        loader_scatter(l, worker, p);
        return TR_OK;
    }
    for (int f = 0; f < fields; f++) {
        if (l->direct[f])
            TR_TRY(loader_read_each(l, p, f));
        else
            dst[f] = worker->staging[f];
        any |= !l->direct[f];
    }
    if (any) TR_TRY(loader_read_samples(l, p->sample, p->count, dst));
    loader_scatter(l, worker, p);
    return TR_OK;
}
