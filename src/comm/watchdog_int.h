/* TCP links of the watchdog. Private to src/comm. */
#ifndef TR_COMM_WATCHDOG_INT_H
#define TR_COMM_WATCHDOG_INT_H

#include "watchdog.h"
#include "world_int.h"

/* In the last heartbeat of a rank. LEAVING: normal end, the rank closes the link; ENDING: the rank
 * has reported the error and ends the job. */
enum { TR_LEAVING = 1, TR_ENDING };

/* A heartbeat. */
typedef struct {
    /* increases with any progress; on rank 0 with the progress of any rank */
    int64_t progress;
    int64_t step, entered, completed;
    double compute_sec, data_sec, wait_sec; /* of all steps so far */
    double value[TR_RANK_VALUES];           /* tr_watchdog_set_values */
    tr_rank_report_t report;
    int32_t rank, phase;
    int32_t blocked; /* the rank waits for other ranks */
    int32_t leaving; /* 0, TR_LEAVING or TR_ENDING */
} tr_heartbeat_message_t;

/* A connected rank. */
typedef struct {
    int fd; /* -1: this rank itself, or a rank that left or is gone */
    char host[64];
    tr_heartbeat_message_t last;
    double heard_sec; /* when `last` was received */
    double gone_sec;  /* when the link broke; 0: it has not */
    size_t got;       /* bytes of `coming` received so far */
    tr_heartbeat_message_t coming;
} tr_peer_t;

/* Connects rank 0 to every other rank: peers[rank] on rank 0, peers[0] on the others. TR_ERR_RETRY
 * if a connection fails. Collective. */
tr_status_t tr_links_open(tr_world_t *world, tr_peer_t *peers);
/* Never blocks. If the link is full, the heartbeat is dropped. */
void tr_link_send(tr_peer_t *peer, const tr_heartbeat_message_t *message);
/* Receives available bytes. Returns true if they complete a heartbeat, which is then `last`. Closes
 * a broken link and sets gone_sec to `now_sec`. Never blocks. */
bool tr_link_receive(tr_peer_t *peer, double now_sec);

#endif
