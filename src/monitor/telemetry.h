/*
 * Telemetry: a thread of each rank samples the rank's GPU by the driver, and the memory and CPU
 * time of its process. The watchdog carries the samples to rank 0, which adds them to its lines. It
 * never touches the device, and no step waits for it: what the driver does not tell, and ranks that
 * no watchdog connects, are missing.
 */
#ifndef TR_MONITOR_TELEMETRY_H
#define TR_MONITOR_TELEMETRY_H

#include "comm/comm.h"
#include "device/device.h"
#include <jansson.h>

typedef struct tr_telemetry tr_telemetry_t;

/* Starts the thread; *out is NULL if interval_sec is 0 or there can be none, which is a warning.
 * world is borrowed until the end. Collective. */
tr_status_t tr_telemetry_start(tr_world_t *world, const tr_device_t *device, double interval_sec,
                               tr_telemetry_t **out);
/* All below: not collective; telemetry may be NULL. Lines and summaries: rank 0. */

/* Adds the samples since the last call: means of ranks over their samples, and the mean, the least
 * and the most of these over ranks, with the host of the worst. Nothing if there is no new one. */
void tr_telemetry_line(tr_telemetry_t *telemetry, json_t *line);
/* Adds the mean utilisation, the largest values and the energy. */
void tr_telemetry_summary(tr_telemetry_t *telemetry, json_t *summary);
/* Bytes in use on this rank's GPU, or else of its process; 0: unknown. Cheap. */
double tr_telemetry_memory(const tr_telemetry_t *telemetry);
/* Joules of all GPUs; NaN: unknown. Sessions before this one count with what was set. */
double tr_telemetry_joules(tr_telemetry_t *telemetry);
void tr_telemetry_set_joules(tr_telemetry_t *telemetry, double of_earlier_sessions);
/* A thread that the driver keeps is left alone. */
void tr_telemetry_stop(tr_telemetry_t **telemetry);

#endif
