/* Samples the GPU and the process of a rank, on a thread of its own. */
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/thread.h"
#include "telemetry_int.h"
#include "trainer/log.h"
#include <math.h>
#include <string.h>
#include <time.h>

enum { STOP_SEC = 2 };
#define LEAST_SEC 0.01 /* tr_watchdog_set_values */

/* -- a sample ---------------------------------------------------------------------------------- */

static void series_add(series_t *series, double value) {
    if (!isfinite(value)) return;
    series->most = series->count == 0 ? value : fmax(series->most, value);
    series->count++;
    series->sum += value;
}

static void sample_process(tr_telemetry_t *t, double now_sec) {
    const double rss = (double)tr_host_resident_bytes();
    const double cpu_sec = tr_host_cpu_sec(), cores_wait_sec = tr_host_cores_wait_sec();
    if (t->sampled_sec > 0 && now_sec > t->sampled_sec) {
        const double sec = now_sec - t->sampled_sec,
                     waited_sec = cores_wait_sec - t->cores_wait_sec;
        series_add(&t->totals.series[SERIES_CPU], (cpu_sec - t->cpu_sec) / sec);
        /* the time of threads that have ended since is missing; an unknown one stays NaN */
        series_add(&t->totals.series[SERIES_CPU_WAIT], (waited_sec < 0 ? 0 : waited_sec) / sec);
    }
    t->cpu_sec = cpu_sec;
    t->cores_wait_sec = cores_wait_sec;
    series_add(&t->totals.series[SERIES_RSS], rss > 0 ? rss : NAN);
    if (!t->backend) t->memory_bytes = rss;
}

static void sample_gpu(tr_telemetry_t *t, double now_sec) {
    totals_t *totals = &t->totals;
    tr_gpu_sample_t gpu;
    if (t->backend->sample(t->bus_id, &gpu, 1) != 1) return;
    totals->gpu_samples++;
    series_add(&totals->series[SERIES_GPU_UTIL], gpu.util);
    series_add(&totals->series[SERIES_GPU_MEM], gpu.used_bytes);
    series_add(&totals->series[SERIES_GPU_TEMP], gpu.celsius);
    series_add(&totals->series[SERIES_GPU_POWER], gpu.watts);
    series_add(&totals->series[SERIES_GPU_CLOCK], 1e-6 * gpu.sm_hertz);
    if (gpu.used_bytes > 0) t->memory_bytes = gpu.used_bytes;
    if (gpu.slowed) {
        totals->slowed_samples++;
        totals->slowed = gpu.slowed;
    }
    if (!t->is_watched) return;
    totals->watched = 1;
    if (isnan(t->first_joules)) t->first_joules = gpu.joules;
    if (isfinite(gpu.joules)) /* a reset of the driver begins at 0 */
        totals->joules = fmax(totals->joules, gpu.joules - t->first_joules);
    else if (isfinite(gpu.watts) && isnan(t->first_joules) && t->sampled_sec > 0)
        totals->joules += gpu.watts * (now_sec - t->sampled_sec);
    if (isfinite(gpu.ecc_errors)) totals->ecc_errors = gpu.ecc_errors;
    if (isfinite(gpu.nvlink_errors)) totals->nvlink_errors = gpu.nvlink_errors;
}

static void *telemetry_main(void *self) {
    tr_telemetry_t *t = self;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&t->lock);
    while (!t->has_ended) {
        pthread_mutex_unlock(&t->lock);
        const double now_sec = tr_clock_sec();
        sample_process(t, now_sec);
        if (t->backend) sample_gpu(t, now_sec);
        t->sampled_sec = now_sec;
        double values[TR_RANK_VALUES] = {0};
        memcpy(values, &t->totals, sizeof t->totals);
        pthread_mutex_lock(&t->lock);
        if (t->has_ended) break; /* the driver was slow: the world may be gone */
        tr_watchdog_set_values(t->world, values);
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_sec += (time_t)t->interval_sec;
        next.tv_nsec += (long)(1e9 * fmod(t->interval_sec, 1));
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        while (!t->has_ended && pthread_cond_timedwait(&t->end, &t->lock, &next) == 0) continue;
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* -- start and stop ---------------------------------------------------------------------------- */

typedef struct {
    int node;
    char bus_id[32];
} gpu_place_t;

/* Whether no lower rank has this GPU. Parts of one GPU have its address. */
static tr_status_t telemetry_find_owner(tr_telemetry_t *t) {
    const tr_world_info_t *info = tr_world_info(t->world);
    gpu_place_t mine = {.node = info->node}, *all = NULL;
    memcpy(mine.bus_id, t->bus_id, sizeof mine.bus_id);
    tr_status_t status = tr_alloc((size_t)info->size * sizeof *all, "places of GPUs", &all);
    TR_TRY(tr_world_agree(t->world, status));
    status = tr_world_allgather(t->world, &mine, sizeof mine, all);
    t->is_watched = true;
    for (int i = 0; i < info->rank; i++)
        if (memcmp(&all[i], &mine, sizeof mine) == 0) t->is_watched = false;
    tr_free(&all);
    return status;
}

static tr_status_t telemetry_allocate(tr_telemetry_t **out) {
    pthread_condattr_t monotonic;
    TR_TRY(tr_alloc(sizeof **out, "telemetry", out));
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&(*out)->end, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&(*out)->lock, NULL);
    (*out)->first_joules = NAN;
    return TR_OK;
}

static void telemetry_free(tr_telemetry_t **freeing) {
    tr_telemetry_t *t = *freeing;
    tr_free(&t->base);
    tr_free(&t->now);
    pthread_cond_destroy(&t->end);
    pthread_mutex_destroy(&t->lock);
    tr_free(freeing);
}

tr_status_t tr_telemetry_start(tr_world_t *world, const tr_device_t *device, double interval_sec,
                               tr_telemetry_t **out) {
    tr_telemetry_t *t = NULL;
    size_t backends;
    const tr_backend_t *const *list = tr_backend_list(&backends);
    const int size = tr_world_info(world)->size;
    *out = NULL;
    if (interval_sec == 0) return TR_OK;
    TR_TRY(tr_world_agree(world, telemetry_allocate(&t)));
    tr_status_t status = TR_OK;
    t->world = world;
    t->interval_sec = fmax(interval_sec, LEAST_SEC);
    memcpy(t->bus_id, device->bus_id, sizeof t->bus_id);
    for (size_t i = 0; i < backends; i++)
        if (list[i]->sample && device->bus_id[0] && strcmp(list[i]->name, device->ops->name) == 0)
            t->backend = list[i];
    if (tr_world_info(world)->rank == 0) {
        status = tr_alloc((size_t)size * sizeof *t->base, "telemetry", &t->base);
        if (status == TR_OK) status = tr_alloc((size_t)size * sizeof *t->now, "telemetry", &t->now);
    }
    status = tr_world_agree(world, status);
    if (status == TR_OK) status = telemetry_find_owner(t);
    if (status != TR_OK) {
        telemetry_free(&t);
        return status;
    }
    if (tr_thread_start("telemetry", telemetry_main, t, &t->thread) == 0) {
        *out = t;
        return TR_OK;
    }
    TR_WARN_ALL("no thread for telemetry: this rank is missing in the samples");
    telemetry_free(&t);
    return TR_OK;
}

double tr_telemetry_memory(const tr_telemetry_t *t) {
    return t ? t->memory_bytes : 0;
}

void tr_telemetry_stop(tr_telemetry_t **stopping) {
    tr_telemetry_t *t = *stopping;
    struct timespec limit;
    *stopping = NULL;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->has_ended = true;
    pthread_cond_signal(&t->end);
    pthread_mutex_unlock(&t->lock);
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += STOP_SEC;
    if (pthread_timedjoin_np(t->thread, NULL, &limit) == 0)
        telemetry_free(&t);
    else
        TR_WARN_ALL("the driver of the GPU has not answered for %d s", STOP_SEC);
}
