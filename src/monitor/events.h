/*
 * An event file of TensorBoard: scalars, one text summary, and the start of a session. The format
 * is that of TFRecord files (length, masked CRC-32C, data, masked CRC-32C) with Event messages of
 * Protocol Buffers (tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto). One
 * writer per folder and one write() per record. Not collective.
 */
#ifndef TR_MONITOR_EVENTS_H
#define TR_MONITOR_EVENTS_H

#include "trainer/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct tr_events tr_events_t;

#define TR_EVENTS_ENDING ".trainer" /* of a name: other programs have other ones */
/* Creates the next file of the folder, events.out.tfevents.<unix time>.<host>.0.trainer, which sorts
 * behind those that are there; the folder is made if it is missing. TR_ERR_IO, TR_ERR_PERMISSION. */
tr_status_t tr_events_create(const char *folder, tr_events_t **out);
/* Readers drop what earlier files have of steps >= `step`. */
tr_status_t tr_events_start(tr_events_t *events, int64_t step, double unix_sec);
tr_status_t tr_events_scalar(tr_events_t *events, const char *tag, int64_t step, double unix_sec,
                             double value);
/* `text` is Markdown. */
tr_status_t tr_events_text(tr_events_t *events, const char *tag, int64_t step, double unix_sec,
                           const char *text);
void tr_events_close(tr_events_t **events);

/* The masked CRC-32C of a record. */
uint32_t tr_events_crc(const void *data, size_t bytes);

#endif
