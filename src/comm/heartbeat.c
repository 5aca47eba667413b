/* The counters of a rank that its watchdog reads. */
#include "heartbeat.h"
#include <stddef.h>

/* The memory of the old words may be freed after this: their counts are kept. */
void tr_heartbeat_watch(tr_heartbeat_t *p, const tr_progress_words_t *words) {
    pthread_mutex_lock(&p->words_lock);
    if (p->words) {
        TR_HEARTBEAT_ADD(p->entered, TR_HEARTBEAT_GET(p->words->entered));
        TR_HEARTBEAT_ADD(p->completed, TR_HEARTBEAT_GET(p->words->completed));
    }
    p->words = words;
    pthread_mutex_unlock(&p->words_lock);
}

/* Never waits: the watchdog must be able to end a process that is stuck anywhere. */
void tr_heartbeat_collectives(tr_heartbeat_t *p, int64_t *out_entered, int64_t *out_completed) {
    *out_entered = TR_HEARTBEAT_GET(p->entered);
    *out_completed = TR_HEARTBEAT_GET(p->completed);
    if (pthread_mutex_trylock(&p->words_lock) != 0) return;
    if (p->words) {
        *out_entered += TR_HEARTBEAT_GET(p->words->entered);
        *out_completed += TR_HEARTBEAT_GET(p->words->completed);
    }
    pthread_mutex_unlock(&p->words_lock);
}
