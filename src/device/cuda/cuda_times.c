/* Op times of a step, from events. */
#include "cuda_times.h"
#include <string.h>

enum { INTERVALS_MAX = 1024 }; /* pending ones of a caller that never settles */

static cudaError_t record(const cuda_interval_t *i, cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, i->captured ? cudaEventRecordExternal : 0);
}

static void cuda_times_destroy(const cuda_interval_t *i) {
    if (i->from) cudaEventDestroy(i->from);
    if (i->to) cudaEventDestroy(i->to);
}

static void lose(cuda_times_t *times) {
    times->lost = true;
    tr_error_clear();
    (void)cudaGetLastError();
}

cuda_interval_t tr_cuda_times_begin(cuda_times_t *times, cudaStream_t stream, bool capturing) {
    cuda_interval_t i = {0};
    if (times->idle.count > 0)
        i = times->idle.data[--times->idle.count];
    else if (times->pending.count < INTERVALS_MAX && cudaEventCreate(&i.from) == cudaSuccess)
        (void)cudaEventCreate(&i.to);
    i.captured = capturing;
    if (i.to && record(&i, i.from, stream) == cudaSuccess) return i;
    cuda_times_destroy(&i);
    return (cuda_interval_t){0};
}

void tr_cuda_times_end(cuda_times_t *times, cuda_interval_t i, cudaStream_t stream, int64_t ticket,
                       double *sum) {
    i.ticket = ticket;
    i.sum = sum;
    if (i.to && record(&i, i.to, stream) == cudaSuccess &&
        (i.captured ? tr_vec_push(&times->captured, i) : tr_vec_push(&times->pending, i)) == TR_OK)
        return;
    cuda_times_destroy(&i);
    lose(times);
}

void tr_cuda_times_replayed(cuda_times_t *times, int64_t first, int64_t last, int64_t first_again) {
    for (size_t k = 0; k < times->captured.count; k++) {
        cuda_interval_t i = times->captured.data[k];
        if (i.ticket < first || i.ticket > last) continue;
        i.ticket += first_again - first;
        if (times->pending.count >= INTERVALS_MAX || tr_vec_push(&times->pending, i) != TR_OK)
            lose(times);
    }
}

void tr_cuda_times_settle(cuda_times_t *times, int64_t ticket, cuda_times_fn each, void *self) {
    size_t n = 0;
    for (; n < times->pending.count && times->pending.data[n].ticket <= ticket; n++) {
        const cuda_interval_t *i = &times->pending.data[n];
        float ms = 0;
        if (cudaEventElapsedTime(&ms, i->from, i->to) == cudaSuccess)
            *i->sum += ms * 1e-3;
        else
            lose(times);
        if (each) each(self, i);
        if (!i->captured && tr_vec_push(&times->idle, *i) != TR_OK) cuda_times_destroy(i);
    }
    times->pending.count -= n;
    if (n > 0)
        memmove(times->pending.data, times->pending.data + n,
                times->pending.count * sizeof *times->pending.data);
}

void tr_cuda_times_free(cuda_times_t *times) {
    for (size_t k = 0; k < times->pending.count; k++)
        if (!times->pending.data[k].captured) cuda_times_destroy(&times->pending.data[k]);
    for (size_t k = 0; k < times->captured.count; k++) cuda_times_destroy(&times->captured.data[k]);
    for (size_t k = 0; k < times->idle.count; k++) cuda_times_destroy(&times->idle.data[k]);
    tr_vec_free(&times->pending);
    tr_vec_free(&times->captured);
    tr_vec_free(&times->idle);
}
