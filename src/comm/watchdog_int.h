/* Private: the watchdog's links to other ranks. */
#ifndef TRAINER_WATCHDOG_INT_H
#define TRAINER_WATCHDOG_INT_H

#include "world_int.h"

/* The last heartbeat of a rank: it leaves in good order and closes the link; or it has reported why
 * the job ends, and ends it. */
enum { TR_LEAVING = 1, TR_ENDING };

/* What a rank reports about itself. */
typedef struct {
    /* grows with any progress; that of rank 0 with the progress of any rank */
    int64_t progress;
    int64_t step, entered, completed;
    double compute_sec, data_sec, wait_sec; /* of all steps so far */
    int32_t rank, phase;
    int32_t blocked; /* waits for other ranks */
    int32_t leaving; /* 0, TR_LEAVING or TR_ENDING */
} tr_beat_t;

/* A rank that is listened to. */
typedef struct {
    int fd; /* -1: none: this rank itself, or one that left or is gone */
    char host[64];
    tr_beat_t last;
    double heard_sec; /* when `last` came */
    double gone_sec;  /* when the link broke, 0: it did not */
    size_t got;       /* bytes of a beat that has come in part */
    tr_beat_t coming;
} tr_peer_t;

/* Rank 0 gets a link to every other rank, peers[rank]; the others one to rank 0, peers[0].
 * TR_ERR_RETRY if it could not be made. Collective. */
tr_status_t tr_links_open(tr_world_t *world, tr_peer_t *peers);
/* Never blocks. If the link is full, the heartbeat is dropped. */
void tr_link_send(tr_peer_t *peer, const tr_beat_t *beat);
/* Receives what has arrived; true if that was a heartbeat, now `last`. A broken link is closed and
 * gone_sec set to `now_sec`. Never blocks. */
bool tr_link_receive(tr_peer_t *peer, double now_sec);

#endif
