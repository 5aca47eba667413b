/*
 * How threads of OpenMP's teams wait for each other: they spin while every thread has a core of its
 * own, and sleep while other programs use the same cores. Not collective.
 */
#ifndef TR_DEVICE_WAITS_H
#define TR_DEVICE_WAITS_H

#include <pthread.h>
#include <stdbool.h>

/* A thread that looks up to ten times a second whether threads of this process lack cores, and
 * switches all teams of the process. threads: of the team that computes. NULL in *out: there is
 * nothing to switch, because only one thread computes or the user decides. */
typedef struct tr_waits tr_waits_t;
void tr_waits_start(int threads, tr_waits_t **out);
/* Ends it, and lets the teams spin again; NULL is allowed. */
void tr_waits_stop(tr_waits_t **waits);

/* The first variable of `environment` by which a user determines how OpenMP waits, such as
 * OMP_WAIT_POLICY; NULL: none. */
const char *tr_waits_variable(char *const *environment);

typedef struct {
    bool sleep;
    int against; /* samples in a row that speak for the other way */
} tr_waits_choice_t;
/* Chooses anew. crowd: how many threads of this process were ready to run and had no core, on
 * average since the last sample. */
void tr_waits_choose(tr_waits_choice_t *choice, double crowd);

/* While it exists, waits sleep. False: the process cannot start as many threads as that takes, or
 * its OpenMP is not GCC's. threads: of the team that computes. */
typedef struct {
    int size;
    pthread_t first;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool exists, ends;
} tr_spare_team_t;
bool tr_spare_team_start(tr_spare_team_t *team, int threads);
void tr_spare_team_end(tr_spare_team_t *team);

#endif
