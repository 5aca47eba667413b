/* The watchdog thread. It receives and sends heartbeats, evaluates them, and ends the job. Its
 * clock counts only the time during which the thread itself ran: if the whole job is suspended and
 * continued, no rank counts as late. */
#include "watchdog.h"
#include "base/clock.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "watchdog_int.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_MIN_SEC  0.02
#define TICK_MAX_SEC  0.2
#define SUSPENDED_SEC 1.0   /* a tick that took longer does not count */
#define GONE_SEC      1.5   /* the launcher notices within about 1.1 s, and knows the exit code */
#define START_SEC     600.0 /* limit of a start without a sign of progress */
#define STOP_SEC      2.0
#define STOP_STEPS    3
#define ABORT_SEC     2
#define LISTEN_SEC    0.01 /* while reports are awaited */
#define ERROR_WORDS   "trainer: error: "
/* Of the ranks that detect the same, the lowest reports it; the next one if the first did not, and
 * the others if neither could, because they do not hear of each other. */
#define NEXT_SEC   0.5
#define OTHERS_SEC 2.5

/* Bytes of tr_watchdog.wake. */
enum { WAKE_TO_END = 'e', WAKE_TO_REPORT = 'r' };

struct tr_watchdog {
    tr_world_t *world;
    double tick_sec;
    _Atomic double timeout_sec;
    int (*_Atomic asked_to_stop)(void);
    void (*_Atomic ended)(const char *why, const char *host);
    _Atomic bool ending; /* this rank has reported why it ends the job */
    pthread_t thread;
    /* guards the heartbeats in peers; the end of a job does not wait for it */
    pthread_mutex_t times_lock;
    int wake[2];                 /* a byte ends the thread, or has it send a report */
    _Atomic bool awaits_reports; /* a thread of rank 0 does: listen more often */
    bool linked;      /* to other ranks */
    tr_peer_t *peers; /* rank 0: [size], its own too; else [1], rank 0 */
    int peer_count;
    /* the thread's own */
    double now_sec, clock_sec; /* its time; the clock's at the last tick */
    double changed_sec;        /* when the last progress of any rank was seen */
    _Atomic double silent_sec; /* now_sec - changed_sec, for other threads */
    double stop_sec;           /* when the signal was seen, 0: none */
    int64_t own_seen;          /* progress of this rank */
    double own_changed_sec;
    int64_t granted; /* ticks that counted as progress although nothing moved */
    int64_t job;     /* rank 0: grows with the progress of any rank */
    char line[512];
    size_t length;
};

/* -- what this rank does ----------------------------------------------------------------------- */

void tr_watchdog_phase(tr_world_t *world, tr_phase_t phase, int64_t step) {
    tr_heartbeat_t *p = &world->heartbeat;
    const double now = tr_clock_sec();
    if (TR_HEARTBEAT_GET(p->phase) == TR_PHASE_STEP) {
        const int64_t n = TR_HEARTBEAT_GET(p->steps_timed);
        TR_HEARTBEAT_SET(p->step_sec[n % TR_RECENT_STEPS], (float)(now - p->begin_sec));
        TR_HEARTBEAT_SET(p->steps_timed, n + 1);
    }
    p->begin_sec = now;
    TR_HEARTBEAT_SET(p->step, step);
    TR_HEARTBEAT_SET(p->phase, (int)phase);
    TR_HEARTBEAT_ADD(p->marks, 1);
}

void tr_watchdog_mark(tr_world_t *world) {
    if (world) TR_HEARTBEAT_ADD(world->heartbeat.marks, 1);
}

/* One thread writes: no addition is lost. */
static void watchdog_add_sec(_Atomic double *sum, double value) {
    TR_HEARTBEAT_SET(*sum, TR_HEARTBEAT_GET(*sum) + value);
}

void tr_watchdog_add_times(tr_world_t *world, double compute_sec, double data_sec,
                           double wait_sec) {
    watchdog_add_sec(&world->heartbeat.compute_sec, compute_sec);
    watchdog_add_sec(&world->heartbeat.data_sec, data_sec);
    watchdog_add_sec(&world->heartbeat.wait_sec, wait_sec);
}

void tr_watchdog_set_values(tr_world_t *world, const double value[TR_RANK_VALUES]) {
    tr_heartbeat_t *p = &world->heartbeat;
    const int64_t n = TR_HEARTBEAT_GET(p->value_sets) + 1;
    for (int i = 0; i < TR_RANK_VALUES; i++) TR_HEARTBEAT_SET(p->values[n % 2][i], value[i]);
    atomic_store_explicit(&p->value_sets, n, memory_order_release);
}

static void watchdog_get_values(const tr_heartbeat_t *p, double out[TR_RANK_VALUES]) {
    const int64_t n = atomic_load_explicit(&p->value_sets, memory_order_acquire);
    for (int i = 0; i < TR_RANK_VALUES; i++) out[i] = TR_HEARTBEAT_GET(p->values[n % 2][i]);
}

static tr_rank_report_t watchdog_get_report(const tr_heartbeat_t *p) {
    const int64_t n = atomic_load_explicit(&p->report_sets, memory_order_acquire) % 2;
    return (tr_rank_report_t){
        TR_HEARTBEAT_GET(p->reports[n].number),
        TR_HEARTBEAT_GET(p->reports[n].status),
        {TR_HEARTBEAT_GET(p->reports[n].value[0]), TR_HEARTBEAT_GET(p->reports[n].value[1])}};
}

static float watchdog_median_step_sec(const tr_heartbeat_t *p) {
    const int64_t timed = TR_HEARTBEAT_GET(p->steps_timed);
    const int n = timed < TR_RECENT_STEPS ? (int)timed : TR_RECENT_STEPS;
    float sorted[TR_RECENT_STEPS];
    for (int i = 0; i < n; i++) {
        const float v = TR_HEARTBEAT_GET(p->step_sec[i]);
        int k = i;
        for (; k > 0 && sorted[k - 1] > v; k--) sorted[k] = sorted[k - 1];
        sorted[k] = v;
    }
    return n ? sorted[n / 2] : 0;
}

static tr_heartbeat_message_t watchdog_message(const tr_watchdog_t *w) {
    tr_heartbeat_t *p = &w->world->heartbeat;
    tr_heartbeat_message_t b = {.step = TR_HEARTBEAT_GET(p->step),
                                .compute_sec = TR_HEARTBEAT_GET(p->compute_sec),
                                .data_sec = TR_HEARTBEAT_GET(p->data_sec),
                                .wait_sec = TR_HEARTBEAT_GET(p->wait_sec),
                                .rank = w->world->info.rank,
                                .phase = TR_HEARTBEAT_GET(p->phase),
                                .blocked = TR_HEARTBEAT_GET(p->blocked)};
    watchdog_get_values(p, b.value);
    b.report = watchdog_get_report(p);
    tr_heartbeat_collectives(p, &b.entered, &b.completed);
    b.progress = TR_HEARTBEAT_GET(p->marks) + b.entered + b.completed + w->granted;
    return b;
}

/* The time for which the current work of this rank counts as progress by itself. */
static double watchdog_patience_sec(const tr_watchdog_t *w, const tr_heartbeat_message_t *own) {
    if (own->blocked) return 0;
    if (own->phase == TR_PHASE_CHECKPOINT) return TR_CHECKPOINT_SEC;
    return own->phase == TR_PHASE_START && w->stop_sec == 0 ? START_SEC : 0;
}

static void watchdog_send_to_peers(tr_watchdog_t *w, int leaving) {
    tr_heartbeat_message_t message = watchdog_message(w);
    message.leaving = leaving;
    if (w->world->info.rank == 0) message.progress = w->job;
    for (int i = 0; i < w->peer_count; i++) tr_link_send(&w->peers[i], &message);
}

/* -- the end ----------------------------------------------------------------------------------- */

static void watchdog_put(tr_watchdog_t *w, const char *text) {
    for (; *text && w->length < sizeof w->line - 1; text++) w->line[w->length++] = *text;
}

static void watchdog_put_int(tr_watchdog_t *w, int64_t value) {
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    watchdog_put(w, digits + at);
}

static void watchdog_put_sec(tr_watchdog_t *w, double sec) {
    const int64_t tenths = (int64_t)(10 * sec + 0.5);
    watchdog_put_int(w, tenths / 10);
    watchdog_put(w, ".");
    watchdog_put_int(w, tenths % 10);
    watchdog_put(w, " s");
}

static void watchdog_put_rank(tr_watchdog_t *w, const char *host, int rank) {
    watchdog_put(w, "rank ");
    watchdog_put_int(w, rank);
    watchdog_put(w, " (");
    watchdog_put(w, host);
    watchdog_put(w, ")");
}

static void watchdog_put_message(tr_watchdog_t *w, const tr_heartbeat_message_t *b) {
    static const char *const phases[] = {"start", "training", "evaluation", "checkpoint", "end"};
    watchdog_put(w, " in phase ");
    watchdog_put(w, phases[b->phase >= 0 && b->phase <= TR_PHASE_END ? b->phase : 0]);
    watchdog_put(w, ", step ");
    watchdog_put_int(w, b->step);
    watchdog_put(w, ", collective ");
    watchdog_put_int(w, b->entered);
    watchdog_put(w, b->completed < b->entered ? " entered, " : " completed");
    if (b->completed < b->entered) {
        watchdog_put_int(w, b->completed);
        watchdog_put(w, " completed");
    }
}

static void watchdog_end_now(int number) {
    (void)number;
    _exit(TR_ERR_RETRY);
}

/* MPI_Abort may hang: the alarm ends the process wherever this thread is. If the launcher is
 * already ending the job, which is why TERM came, MPI_Abort would only wait for it. */
static void watchdog_end_job(tr_watchdog_t *w, const char *host, bool launcher_knows) {
    void (*ended)(const char *, const char *) = w->ended;
    struct sigaction action = {.sa_handler = watchdog_end_now};
    sigset_t alarm_only;
    watchdog_put(
        w, ". Start the job again: it resumes from its last checkpoint, if it has saved one.\n");
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm(ABORT_SEC);
    (void)!write(STDERR_FILENO, w->line, w->length);
    w->line[w->length - 1] = '\0'; /* instead of the end of the line */
    const char *line = w->line + (w->line[0] == '\n');
    tr_log_write_files(TR_LOG_ERROR, "%s", line);
    if (ended) ended(line + strlen(ERROR_WORDS), host);
    watchdog_send_to_peers(w, TR_ENDING);
    if (!launcher_knows) tr_world_abort(w->world, TR_ERR_RETRY);
    _exit(TR_ERR_RETRY);
}

static void watchdog_begin_line(tr_watchdog_t *w) {
    w->length = 0;
    watchdog_put(w, isatty(STDERR_FILENO) ? "\n" ERROR_WORDS : ERROR_WORDS);
}

/* -- judging ----------------------------------------------------------------------------------- */

static void watchdog_end_for_peer(tr_watchdog_t *w, const tr_peer_t *p, int rank, bool gone) {
    watchdog_begin_line(w);
    watchdog_put_rank(w, p->host, rank);
    if (gone) {
        watchdog_put(w, " is gone");
    } else {
        watchdog_put(w, " has not responded for ");
        watchdog_put_sec(w, w->now_sec - p->heard_sec);
        watchdog_put(w, " (the process was stopped, or its node or the network is down)");
    }
    watchdog_put(w, "; last seen");
    watchdog_put_message(w, &p->last);
    watchdog_end_job(w, p->host, gone && w->stop_sec > 0);
}

/* The rank that the others wait for: of those that entered the fewest collectives, one that does
 * not wait itself. */
static const tr_peer_t *watchdog_furthest_behind(const tr_watchdog_t *w) {
    const tr_peer_t *worst = NULL;
    for (int i = 0; i < w->peer_count; i++) {
        const tr_peer_t *p = &w->peers[i];
        if (p->last.leaving) continue;
        if (!worst || p->last.entered < worst->last.entered ||
            (p->last.entered == worst->last.entered && !p->last.blocked && worst->last.blocked))
            worst = p;
    }
    return worst ? worst : &w->peers[0];
}

/* The ranks of which the same holds, `p` included. */
static int watchdog_count_equal(const tr_watchdog_t *w, const tr_peer_t *p) {
    int count = 0;
    for (int i = 0; i < w->peer_count; i++) {
        const tr_heartbeat_message_t *b = &w->peers[i].last;
        if (!b->leaving && b->entered == p->last.entered && b->blocked == p->last.blocked) count++;
    }
    return count;
}

/* Several ranks that are equally far are not named: none of them is the cause more than others. */
static void watchdog_put_slowest(tr_watchdog_t *w, const tr_peer_t *p) {
    const int equal = watchdog_count_equal(w, p);
    if (equal < 2) {
        watchdog_put(w, "; the slowest rank is ");
        watchdog_put_rank(w, p->host, (int)(p - w->peers));
    } else {
        watchdog_put(w, "; ");
        watchdog_put_int(w, equal);
        watchdog_put(w, " of ");
        watchdog_put_int(w, w->peer_count);
        watchdog_put(w, " ranks are equally far,");
    }
    watchdog_put_message(w, &p->last);
}

static void watchdog_end_for_all(tr_watchdog_t *w, const char *why, double sec) {
    const bool root = w->world->info.rank == 0;
    const tr_heartbeat_message_t own = watchdog_message(w);
    const tr_peer_t *p = root && w->linked ? watchdog_furthest_behind(w) : NULL;
    watchdog_begin_line(w);
    watchdog_put(w, why);
    watchdog_put_sec(w, sec);
    if (p) {
        watchdog_put_slowest(w, p);
    } else {
        watchdog_put(w, "; this rank is ");
        watchdog_put_rank(w, w->world->info.host, own.rank);
        watchdog_put_message(w, &own);
    }
    watchdog_end_job(w, "", false); /* the rank with the fewest collectives may only be slow */
}

static void watchdog_judge_peer(tr_watchdog_t *w, int rank, double later_sec) {
    const tr_peer_t *p = &w->peers[rank];
    if (rank == w->world->info.rank || p->last.leaving == TR_LEAVING) return;
    if (p->last.leaving == TR_ENDING) {
        if (w->stop_sec > 0 || w->now_sec - p->heard_sec > ABORT_SEC) _exit(TR_ERR_RETRY);
    } else if (p->gone_sec > 0) {
        /* TERM after the end of a peer: the launcher has noticed and waits for us, and only one
         * rank needs to report it. */
        if (w->stop_sec > 0 && w->world->info.rank > 1) _exit(TR_ERR_RETRY);
        if (w->stop_sec > 0 || w->now_sec - p->gone_sec > GONE_SEC + later_sec)
            watchdog_end_for_peer(w, p, rank, true);
    } else if (w->now_sec - p->heard_sec > w->timeout_sec + w->tick_sec + later_sec) {
        watchdog_end_for_peer(w, p, rank, false);
    }
}

static void watchdog_judge_stop(tr_watchdog_t *w, double later_sec) {
    int (*asked)(void) = w->asked_to_stop;
    const int number = asked ? asked() : 0;
    if (number != SIGTERM && number != SIGINT && number != SIGHUP) return;
    if (w->stop_sec == 0) w->stop_sec = w->now_sec;
    const double steps = STOP_STEPS * (double)watchdog_median_step_sec(&w->world->heartbeat),
                 limit = steps > STOP_SEC ? steps : STOP_SEC;
    const double since = w->changed_sec > w->stop_sec ? w->changed_sec : w->stop_sec;
    if (w->now_sec - since > limit + later_sec)
        watchdog_end_for_all(w, "stop requested, and no progress for ", w->now_sec - since);
}

static void watchdog_judge(tr_watchdog_t *w) {
    const int rank = w->world->info.rank;
    const double later_sec = rank > 1 ? OTHERS_SEC : 0;
    if (w->linked || w->world->info.size == 1)
        watchdog_judge_stop(w, rank == 1 ? NEXT_SEC : later_sec);
    if (w->linked) {
        for (int i = 0; i < w->peer_count; i++) watchdog_judge_peer(w, i, later_sec);
        if (rank == 0 && w->now_sec - w->changed_sec > w->timeout_sec + w->tick_sec)
            watchdog_end_for_all(w, "no rank has made progress for ", w->now_sec - w->changed_sec);
    }
}

/* -- the thread -------------------------------------------------------------------------------- */

static void watchdog_note_change(tr_watchdog_t *w) {
    w->changed_sec = w->now_sec;
    w->job++;
}

static void watchdog_look_at_self(tr_watchdog_t *w) {
    tr_heartbeat_message_t own = watchdog_message(w);
    if (own.progress != w->own_seen) {
        w->own_changed_sec = w->now_sec;
    } else if (w->now_sec - w->own_changed_sec < watchdog_patience_sec(w, &own)) {
        w->granted++;
        own.progress++;
    }
    if (own.progress != w->own_seen) watchdog_note_change(w);
    w->own_seen = own.progress;
    if (w->world->info.rank != 0 || w->peer_count == 0) return;
    w->peers[0].last = own;
    w->peers[0].heard_sec = w->now_sec;
}

static void watchdog_listen_to_peers(tr_watchdog_t *w) {
    pthread_mutex_lock(&w->times_lock);
    for (int i = 0; i < w->peer_count; i++) {
        const int64_t before = w->peers[i].last.progress;
        if (tr_link_receive(&w->peers[i], w->now_sec) && w->peers[i].last.progress != before)
            watchdog_note_change(w);
    }
    pthread_mutex_unlock(&w->times_lock);
}

/* Waits for a tick. While reports are awaited, it only listens meanwhile. */
static int watchdog_wait(tr_watchdog_t *w) {
    struct pollfd wait = {.fd = w->wake[0], .events = POLLIN};
    double left = w->tick_sec;
    int woken = 0;
    char why = WAKE_TO_END;
    while (woken <= 0 && left > 0) {
        const double sec = w->awaits_reports ? fmin(left, LISTEN_SEC) : left;
        woken = poll(&wait, 1, (int)(1000 * sec));
        left -= sec;
        if (woken <= 0 && left > 0) watchdog_listen_to_peers(w);
    }
    return woken > 0 && read(w->wake[0], &why, 1) == 1 ? why : 0;
}

static void *watchdog_main(void *self) {
    tr_watchdog_t *w = self;
    do {
        const double clock = tr_clock_sec(), passed = clock - w->clock_sec;
        w->now_sec += passed < SUSPENDED_SEC ? passed : w->tick_sec;
        w->clock_sec = clock;
        watchdog_look_at_self(w);
        watchdog_listen_to_peers(w);
        w->silent_sec = w->now_sec - w->changed_sec;
        watchdog_send_to_peers(w, 0);
        watchdog_judge(w);
    } while (watchdog_wait(w) != WAKE_TO_END);
    if (w->ending) watchdog_send_to_peers(w, TR_ENDING);
    return NULL;
}

/* -- start and stop ---------------------------------------------------------------------------- */

static tr_status_t watchdog_start_thread(tr_watchdog_t *w) {
    if (pipe2(w->wake, O_CLOEXEC) != 0)
        return TR_FAIL(TR_ERR_IO, "Cannot create the pipe of the watchdog: %s.", strerror(errno));
    pthread_mutex_init(&w->times_lock, NULL);
    w->clock_sec = tr_clock_sec();
    w->now_sec = w->changed_sec = w->own_changed_sec = 1; /* 0 means never */
    for (int i = 0; i < w->peer_count; i++) w->peers[i].heard_sec = w->now_sec;
    const int failed = tr_thread_start("trainer-watch", watchdog_main, w, &w->thread);
    if (failed == 0) return TR_OK;
    close(w->wake[0]);
    close(w->wake[1]);
    return TR_FAIL(TR_ERR_MEMORY, "Cannot start the thread of the watchdog: %s.", strerror(failed));
}

static void watchdog_release(tr_watchdog_t **watchdog) {
    for (int i = 0; i < (*watchdog)->peer_count; i++)
        if ((*watchdog)->peers[i].fd >= 0) close((*watchdog)->peers[i].fd);
    tr_free(&(*watchdog)->peers);
    tr_free(watchdog);
}

static tr_status_t watchdog_open_peers(tr_watchdog_t *w) {
    const tr_world_info_t *info = &w->world->info;
    const int count = info->rank == 0 ? info->size : 1;
    tr_status_t status = tr_alloc((size_t)count * sizeof *w->peers, "watchdog", &w->peers);
    if (status == TR_OK) w->peer_count = count;
    TR_TRY(tr_world_agree(w->world, status));
    for (int i = 0; i < count; i++) w->peers[i].fd = -1;
    if (tr_links_open(w->world, w->peers) == TR_OK) {
        w->linked = true;
        return TR_OK;
    }
    if (w->world->lost) return tr_error_last()->code;
    TR_WARN("No watchdog: a rank that hangs will not be reported. %s", tr_error_last()->message);
    return TR_OK;
}

tr_status_t tr_watchdog_start(tr_world_t *world, double timeout_sec, int (*asked_to_stop)(void)) {
    tr_watchdog_t *w = world->watchdog;
    if (w) {
        w->timeout_sec = timeout_sec;
        w->asked_to_stop = asked_to_stop;
        return TR_OK;
    }
    TR_TRY(tr_world_agree(world, tr_alloc(sizeof *w, "watchdog", &w)));
    *w = (tr_watchdog_t){.world = world,
                         .timeout_sec = timeout_sec,
                         .tick_sec = fmin(fmax(timeout_sec / 10, TICK_MIN_SEC), TICK_MAX_SEC),
                         .asked_to_stop = asked_to_stop};
    tr_status_t status = world->info.size > 1 ? watchdog_open_peers(w) : TR_OK;
    if (status == TR_OK) status = watchdog_start_thread(w);
    if (status == TR_OK)
        world->watchdog = w;
    else
        watchdog_release(&w);
    status = tr_world_agree(world, status);
    if (status != TR_OK) tr_watchdog_stop(world);
    return status;
}

void tr_watchdog_on_end(tr_world_t *world, void (*ended)(const char *why, const char *host)) {
    if (world->watchdog) atomic_load(&world->watchdog)->ended = ended;
}

bool tr_watchdog_times(tr_world_t *world, tr_rank_times_t *out) {
    tr_watchdog_t *w = world->watchdog;
    if (!w || !w->linked || world->info.rank != 0) return false;
    pthread_mutex_lock(&w->times_lock);
    for (int i = 0; i < w->peer_count; i++) {
        const tr_heartbeat_message_t own = watchdog_message(w),
                                     *b = i == 0 ? &own : &w->peers[i].last;
        out[i] = (tr_rank_times_t){
            .compute_sec = b->compute_sec, .data_sec = b->data_sec, .wait_sec = b->wait_sec};
        memcpy(out[i].host, i == 0 ? world->info.host : w->peers[i].host, sizeof out[i].host);
    }
    pthread_mutex_unlock(&w->times_lock);
    return true;
}

bool tr_watchdog_silent(tr_world_t *world, double *out_sec, double *out_limit_sec) {
    tr_watchdog_t *w = world->watchdog;
    if (!w) return false;
    *out_sec = w->silent_sec;
    *out_limit_sec = w->timeout_sec;
    return true;
}

void tr_watchdog_values(tr_world_t *world, tr_rank_values_t *out) {
    tr_watchdog_t *w = world->watchdog;
    memset(out, 0, (size_t)world->info.size * sizeof *out);
    memcpy(out[0].host, world->info.host, sizeof out[0].host);
    watchdog_get_values(&world->heartbeat, out[0].value);
    if (!w || !w->linked || world->info.rank != 0) return;
    pthread_mutex_lock(&w->times_lock);
    for (int i = 1; i < w->peer_count; i++) {
        memcpy(out[i].host, w->peers[i].host, sizeof out[i].host);
        memcpy(out[i].value, w->peers[i].last.value, sizeof out[i].value);
    }
    pthread_mutex_unlock(&w->times_lock);
}

/* -- reports ----------------------------------------------------------------------------------- */

bool tr_watchdog_is_linked(const tr_world_t *world) {
    return world->watchdog && world->watchdog->linked;
}

void tr_watchdog_report(tr_world_t *world, const tr_rank_report_t *report) {
    tr_watchdog_t *w = world->watchdog;
    tr_heartbeat_t *p = &world->heartbeat;
    const int64_t n = TR_HEARTBEAT_GET(p->report_sets) + 1;
    TR_HEARTBEAT_SET(p->reports[n % 2].number, report->number);
    TR_HEARTBEAT_SET(p->reports[n % 2].status, report->status);
    for (int i = 0; i < 2; i++) TR_HEARTBEAT_SET(p->reports[n % 2].value[i], report->value[i]);
    atomic_store_explicit(&p->report_sets, n, memory_order_release);
    if (w) (void)!write(w->wake[1], &(char){WAKE_TO_REPORT}, 1);
}

tr_status_t tr_watchdog_wait_report(tr_world_t *world, int64_t number, int rank,
                                    tr_rank_report_t *out) {
    tr_watchdog_t *w = world->watchdog;
    int gone = 0;
    if (!tr_watchdog_is_linked(world))
        return TR_FAIL(TR_ERR_INTERNAL, "reports of ranks are awaited without a watchdog");
    for (bool is_first = true;; is_first = false) {
        pthread_mutex_lock(&w->times_lock);
        *out = w->peers[rank].last.report;
        for (int i = 1; i < w->peer_count && out->number != number; i++)
            if (w->peers[i].fd < 0 && w->peers[i].last.report.number != number) gone = i;
        pthread_mutex_unlock(&w->times_lock);
        if (out->number == number || gone > 0) break;
        w->awaits_reports = true;
        /* a tick may have just begun */
        if (is_first) (void)!write(w->wake[1], &(char){WAKE_TO_REPORT}, 1);
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * LISTEN_SEC / 2)}, NULL);
    }
    w->awaits_reports = false;
    if (gone == 0) return TR_OK;
    return TR_FAIL(TR_ERR_RETRY, "rank %d (%s) ended before its work was done", gone,
                   w->peers[gone].host);
}

void tr_watchdog_end(tr_world_t *world) {
    tr_watchdog_t *w = world->watchdog;
    if (!w || pthread_equal(pthread_self(), w->thread) || atomic_exchange(&w->ending, true)) return;
    (void)!write(w->wake[1], &(char){WAKE_TO_END}, 1);
    pthread_join(w->thread, NULL);
}

void tr_watchdog_stop(tr_world_t *world) {
    tr_watchdog_t *w = world->watchdog;
    if (!w) return;
    world->watchdog = NULL;
    if (!w->ending) {
        (void)!write(w->wake[1], &(char){WAKE_TO_END}, 1);
        pthread_join(w->thread, NULL);
        if (!world->lost) watchdog_send_to_peers(w, TR_LEAVING);
    }
    close(w->wake[0]);
    close(w->wake[1]);
    watchdog_release(&w);
}
