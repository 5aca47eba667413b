/* What telemetry collects. Private: telemetry.c samples, telemetry_lines.c writes. */
#ifndef TR_MONITOR_TELEMETRY_INT_H
#define TR_MONITOR_TELEMETRY_INT_H

#include "comm/watchdog.h"
#include "telemetry.h"
#include <pthread.h>
#include <stdatomic.h>

/* The series, in the order of their keys in telemetry_lines.c. */
enum {
    SERIES_GPU_UTIL,
    SERIES_GPU_MEM,
    SERIES_GPU_TEMP,
    SERIES_GPU_POWER,
    SERIES_GPU_CLOCK,
    SERIES_CPU,
    SERIES_CPU_WAIT,
    SERIES_RSS,
    SERIES_COUNT
};

typedef struct {
    double count, sum, most;
} series_t;

/* Of one rank since its start. The watchdog carries it as plain numbers. */
typedef struct {
    series_t series[SERIES_COUNT];
    double gpu_samples, slowed_samples; /* slowed: by heat or the power supply */
    double slowed;                      /* TR_GPU_HOT | ... of the last of these */
    double watched;                     /* 1: the GPU's energy and errors count here */
    double joules, ecc_errors, nvlink_errors;
} totals_t;
_Static_assert(sizeof(totals_t) <= TR_RANK_VALUES * sizeof(double), "fits a heartbeat");

struct tr_telemetry {
    tr_world_t *world;
    const tr_backend_t *backend; /* NULL: no GPU */
    char bus_id[32];
    bool is_watched; /* no lower rank has this GPU, whose energy must count once */
    double interval_sec;
    pthread_t thread;
    pthread_mutex_t lock; /* guards has_ended */
    pthread_cond_t end;
    bool has_ended;
    _Atomic double memory_bytes;
    /* of the thread */
    totals_t totals;
    double sampled_sec, cpu_sec, cores_wait_sec; /* of the last sample */
    double first_joules;         /* of the driver's counter; NaN: none yet */
    /* of rank 0: [size], at the last line and now */
    tr_rank_values_t *base, *now;
    double earlier_joules;
};

#endif
