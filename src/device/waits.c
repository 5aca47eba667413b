/*
 * A thread of an OpenMP team that waits for the others spins for some milliseconds before it sleeps.
 * That is the fastest way if every thread has a core. If other programs use the cores too, it burns
 * the time that the awaited thread needs, and a step takes many times longer than its share of the
 * cores explains.
 *
 * GCC's runtime spins for a moment only (100 rounds) while it manages more threads than the process
 * has processors. The threads of a spare team, which sleep all the time, make up that number.
 */
#include "device/waits.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/thread.h"
#include <math.h>
#include <omp.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CROWDED         0.4 /* waits sleep from so many threads without a core on, */
#define CROWDED_SAMPLES 2   /* in so many samples in a row: new threads begin on one core */
#define CALM            0.2 /* and spin again below this */
#define CALM_SAMPLES    5
#define SAMPLE_SEC      0.1
#define SAMPLE_COST     1000 /* a sample covers at least so many times the time that it takes */
#define SPARE_MOST      512

const char *tr_waits_variable(char *const *environment) {
    static const char *const names[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME",
                                        "KMP_LIBRARY"};
    for (; environment && *environment; environment++)
        for (size_t i = 0; i < TR_COUNT(names); i++) {
            const size_t length = strlen(names[i]);
            if (strncmp(*environment, names[i], length) == 0 && (*environment)[length] == '=')
                return names[i];
        }
    return NULL;
}

void tr_waits_choose(tr_waits_choice_t *choice, double crowd) {
    const bool is_against = choice->sleep ? crowd < CALM : crowd >= CROWDED;
    choice->against = is_against ? choice->against + 1 : 0;
    if (choice->against < (choice->sleep ? CALM_SAMPLES : CROWDED_SAMPLES)) return;
    choice->sleep = !choice->sleep;
    choice->against = 0;
}

/* -- the spare team ---------------------------------------------------------------------------- */

/* The first thread of the team. The runtime ends the others when this one ends. */
static void *spare_team_main(void *self) {
    tr_spare_team_t *t = self;
    omp_set_dynamic(0);
#pragma omp parallel num_threads(t->size)
    {
#pragma omp master
        {
            pthread_mutex_lock(&t->lock);
            t->exists = true;
            pthread_cond_signal(&t->changed);
            pthread_mutex_unlock(&t->lock);
        }
    }
    pthread_mutex_lock(&t->lock);
    while (!t->ends) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void *spare_team_pass(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* The runtime ends the process if it cannot start a thread: whether it can is tried before. */
static bool spare_team_can_start(int count) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread[SPARE_MOST];
    int started = 0;
    if (count > SPARE_MOST) return false;
    pthread_mutex_lock(&gate);
    while (started < count &&
           tr_thread_start("trainer-spare", spare_team_pass, &gate, &thread[started]) == 0)
        started++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
    return started == count;
}

bool tr_spare_team_start(tr_spare_team_t *t, int threads) {
    const int missing = omp_get_num_procs() - threads; /* processors without a thread */
#ifdef __clang__
    return false;
#endif
    *t = (tr_spare_team_t){.size = missing > 0 ? missing + 2 : 2,
                           .lock = PTHREAD_MUTEX_INITIALIZER,
                           .changed = PTHREAD_COND_INITIALIZER};
    if (!spare_team_can_start(t->size)) return false;
    if (tr_thread_start("trainer-spare", spare_team_main, t, &t->first) != 0) return false;
    pthread_mutex_lock(&t->lock);
    while (!t->exists) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    return true;
}

void tr_spare_team_end(tr_spare_team_t *t) {
    pthread_mutex_lock(&t->lock);
    t->ends = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->first, NULL);
}

/* -- samples ----------------------------------------------------------------------------------- */

struct tr_waits {
    int threads;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    bool stops;
};

/* False: it is to stop. */
static bool waits_pause(tr_waits_t *w, double sec) {
    const struct timespec until = tr_clock_deadline(sec);
    pthread_mutex_lock(&w->lock);
    while (!w->stops && pthread_cond_timedwait(&w->stopped, &w->lock, &until) == 0) continue;
    const bool goes_on = !w->stops;
    pthread_mutex_unlock(&w->lock);
    return goes_on;
}

static void *waits_main(void *self) {
    tr_waits_t *w = self;
    tr_waits_choice_t choice = {0};
    tr_spare_team_t team;
    double pause_sec = SAMPLE_SEC, sampled_sec = tr_clock_sec(),
           delay_sec = tr_host_cores_wait_sec();
    bool can_switch = isfinite(delay_sec), has_team = false; /* the kernel may not tell */
    while (can_switch && waits_pause(w, pause_sec)) {
        const double began_sec = tr_clock_thread_sec(), before_sec = sampled_sec,
                     delay_before_sec = delay_sec;
        sampled_sec = tr_clock_sec();
        delay_sec = tr_host_cores_wait_sec();
        /* less than 0 where a thread has ended */
        tr_waits_choose(&choice, (delay_sec - delay_before_sec) / (sampled_sec - before_sec));
        if (choice.sleep && !has_team)
            can_switch = has_team = tr_spare_team_start(&team, w->threads);
        if (!choice.sleep && has_team) tr_spare_team_end(&team);
        has_team = has_team && choice.sleep;
        const double cost_sec = tr_clock_thread_sec() - began_sec;
        pause_sec = SAMPLE_COST * cost_sec > SAMPLE_SEC ? SAMPLE_COST * cost_sec : SAMPLE_SEC;
    }
    if (has_team) tr_spare_team_end(&team);
    return NULL;
}

static void waits_free(tr_waits_t **waits) {
    pthread_cond_destroy(&(*waits)->stopped);
    pthread_mutex_destroy(&(*waits)->lock);
    tr_free(waits);
}

void tr_waits_start(int threads, tr_waits_t **out) {
    tr_waits_t *w = NULL;
    pthread_condattr_t monotonic;
    *out = NULL;
    if (threads < 2 || tr_waits_variable(environ)) return;
    if (tr_alloc(sizeof *w, "waits", &w) != TR_OK) {
        tr_error_clear();
        return;
    }
    w->threads = threads;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (tr_thread_start("trainer-waits", waits_main, w, &w->thread) == 0)
        *out = w;
    else
        waits_free(&w);
}

void tr_waits_stop(tr_waits_t **waits) {
    tr_waits_t *w = *waits;
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stops = true;
    pthread_cond_signal(&w->stopped);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    waits_free(waits);
}
