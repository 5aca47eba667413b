/*
 * replay PROFILE.json OUT [--steps N] [--mode weak|strong] [--network FILES]
 *
 * Under mpirun, on at most 4 ranks of one machine: replays the step that `trainer bench step --json`
 * measured, without computing it. Each rank sleeps through the measured op times to absolute
 * deadlines. The time of a step varies as it did in the profile, independently on each rank. Buckets
 * are reduced by MPI or, with --network, take the time of that network (`trainer bench allreduce
 * --json`). Each rank counts as a node. OUT is a run folder that `trainer report` reads; its
 * summary.json has "kind": "replay".
 *
 * Above 4 ranks, and with ops far below a millisecond, the machine itself takes longer than what is
 * replayed.
 */
#include "scaling/forecast.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { MAX_RANKS = 4, MAX_BUCKETS = 256, LINES = 10 };

typedef struct {
    const char *profile_path, *out, *network_path;
    int steps;
    bool is_strong;
    int rank, size;
    tr_profile_t profile;
    tr_network_t network;
    double median_sec, op_scale; /* op_scale: so that the ops of a slot sum to its part of a step */
    int64_t slots, micro_batch, batch_size;
    float *gradients;
    double *step_sec, *exposed_sec; /* [steps] */
} replay_t;

static void die(const char *text) {
    fprintf(stderr, "replay: %s\n", text);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void check(tr_status_t status) {
    if (status != TR_OK) die(tr_error_last()->message);
}

/* -- setting up -------------------------------------------------------------------------------- */

static void parse(int argc, char **argv, replay_t *r) {
    r->steps = 100;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            r->steps = atoi(argv[++i]);
        else if (strcmp(argv[i], "--mode") == 0 && i + 1 < argc)
            r->is_strong = strcmp(argv[++i], "strong") == 0;
        else if (strcmp(argv[i], "--network") == 0 && i + 1 < argc)
            r->network_path = argv[++i];
        else if (argv[i][0] == '-')
            die("usage: replay PROFILE.json OUT [--steps N] [--mode weak|strong] [--network "
                "FILES]");
        else if (!r->profile_path)
            r->profile_path = argv[i];
        else
            r->out = argv[i];
    }
    if (!r->out || r->steps < LINES)
        die("usage: replay PROFILE.json OUT [--steps N, at least 10] [--mode weak|strong] "
            "[--network FILES]");
    if (r->size > MAX_RANKS) die("at most 4 ranks: above that, replays are not accurate");
}

/* In strong scaling the ranks share the batch: whole slots, or parts of one. */
static void set_up(replay_t *r) {
    const tr_profile_t *p = &r->profile;
    double op_sum = 0, bytes = 0;
    r->batch_size = p->batch_size * (r->is_strong ? 1 : r->size);
    r->slots = p->slots / (r->is_strong ? r->size : 1);
    r->micro_batch = p->micro_batch;
    if (r->slots == 0) {
        r->slots = 1;
        r->micro_batch = p->batch_size / r->size;
    }
    if (r->slots * r->micro_batch * r->size != r->batch_size)
        die("the batch of the profile does not divide among the ranks");
    if (p->buckets.count > MAX_BUCKETS) die("the profile has more than 256 buckets");
    for (size_t i = 0; i < p->op_sec.count; i++) op_sum += p->op_sec.data[i];
    r->median_sec = p->compute_sec.data[p->compute_sec.count / 2];
    r->op_scale = fmax(0, r->median_sec - p->update_sec) / (double)p->slots / op_sum *
                  (double)r->micro_batch / (double)p->micro_batch;
    for (size_t i = 0; i < p->buckets.count; i++) bytes += p->buckets.data[i].bytes;
    check(tr_alloc((size_t)bytes, "gradients", &r->gradients));
    check(tr_alloc((size_t)r->steps * sizeof(double), "step times", &r->step_sec));
    check(tr_alloc((size_t)r->steps * sizeof(double), "step times", &r->exposed_sec));
}

/* -- one step ---------------------------------------------------------------------------------- */

/* The same on no two ranks and steps: how much longer than the median this step computes. */
static double draw_factor(const replay_t *r) {
    const tr_profile_t *p = &r->profile;
    return p->compute_sec.data[(size_t)rand() % p->compute_sec.count] / r->median_sec;
}

static void sleep_until(double deadline) {
    const struct timespec when = {(time_t)deadline, (long)((deadline - floor(deadline)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        ;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Bucket b is ready on this rank at `ready`. With a modelled network its data do not travel; when
 * the last rank is ready does. */
static void start_bucket(replay_t *r, size_t b, double *ready, float *data, MPI_Request *request) {
    if (r->network_path)
        MPI_Iallreduce(MPI_IN_PLACE, ready, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, request);
    else
        MPI_Iallreduce(MPI_IN_PLACE, data, (int)(r->profile.buckets.data[b].bytes / sizeof(float)),
                       MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, request);
}

/* When the last bucket of the modelled network ends. */
static double modelled_end(const replay_t *r, const double *ready) {
    double end = 0;
    bool measured;
    for (size_t b = 0; b < r->profile.buckets.count && r->size > 1; b++)
        end = fmax(end, ready[b]) + tr_network_allreduce_sec(&r->network, r->size,
                                                             r->profile.buckets.data[b].bytes,
                                                             TR_NETWORK_MEDIAN, &measured);
    return end;
}

static void replay_step(replay_t *r, int step) {
    const tr_profile_t *p = &r->profile;
    MPI_Request requests[MAX_BUCKETS];
    double ready[MAX_BUCKETS];
    const double start = now(), factor = draw_factor(r);
    double deadline = start, micro = 0;
    float *data = r->gradients;
    size_t b = 0;
    int done;
    for (size_t i = 0; i < p->op_sec.count; i++) micro += p->op_sec.data[i] * r->op_scale * factor;
    deadline += (double)(r->slots - 1) * micro;
    for (size_t i = 0; i < p->op_sec.count; i++) {
        deadline += p->op_sec.data[i] * r->op_scale * factor;
        sleep_until(deadline);
        for (; b < p->buckets.count &&
               (p->buckets.data[b].after_op <= (int)i || i + 1 == p->op_sec.count);
             b++) {
            ready[b] = now();
            start_bucket(r, b, &ready[b], data, &requests[b]);
            data += (size_t)(p->buckets.data[b].bytes / sizeof(float));
        }
        MPI_Testall((int)b, requests, &done, MPI_STATUSES_IGNORE);
    }
    const double computed = now();
    MPI_Waitall((int)b, requests, MPI_STATUSES_IGNORE);
    if (r->network_path) sleep_until(modelled_end(r, ready));
    const double reduced = now();
    sleep_until(reduced + p->update_sec * factor);
    r->step_sec[step] = now() - start;
    r->exposed_sec[step] = reduced - computed;
}

/* -- the run folder ---------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* What metrics.jsonl and summary.json both say of steps [first, end). */
static json_t *describe(const replay_t *r, int first, int end) {
    double sum = 0, exposed = 0, *sorted = NULL;
    const int n = end - first;
    check(tr_alloc((size_t)n * sizeof *sorted, "step times", &sorted));
    for (int i = 0; i < n; i++) {
        sorted[i] = r->step_sec[first + i];
        sum += sorted[i];
        exposed += r->exposed_sec[first + i];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    json_t *o = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "samples_per_sec",
                          n * (double)r->batch_size / sum, "comm_exposed", exposed / sum,
                          "data_stall", 0., "compute", 1 - exposed / sum, "step_ms",
                          sorted[n / 2] * 1e3, "step_ms_p95", sorted[(n - 1) * 95 / 100] * 1e3);
    tr_free(&sorted);
    return o;
}

static FILE *open_file(const replay_t *r, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", r->out, name);
    FILE *f = fopen(path, "w");
    if (!f) die(path);
    return f;
}

static void write_folder(const replay_t *r) {
    double time = 0;
    if (mkdir(r->out, 0777) != 0 && errno != EEXIST) die(r->out);
    FILE *f = open_file(r, "metrics.jsonl");
    for (int line = 0; line < LINES; line++) {
        const int first = r->steps * line / LINES, end = r->steps * (line + 1) / LINES;
        json_t *o = describe(r, first, end);
        for (int i = first; i < end; i++) time += r->step_sec[i];
        json_object_set_new(o, "step", json_integer(end));
        json_object_set_new(o, "session", json_integer(1));
        json_object_set_new(o, "time", json_real(time));
        json_dumpf(o, f, JSON_COMPACT | JSON_SORT_KEYS);
        fputc('\n', f);
        json_decref(o);
    }
    fclose(f);
    json_t *o = describe(r, 0, r->steps);
    json_object_update_missing(
        o, json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:i, s:f, s:s}", "kind", "replay",
                     "status", "done", "steps", r->steps, "ranks", r->size, "hosts", r->size,
                     "batch_size", (json_int_t)r->batch_size, "micro_batch",
                     (json_int_t)r->micro_batch, "threads", r->profile.threads, "wall_sec", time,
                     "network", r->network_path ? "modelled" : "MPI"));
    f = open_file(r, "summary.json");
    json_dumpf(o, f, JSON_INDENT(1) | JSON_SORT_KEYS);
    fputc('\n', f);
    fclose(f);
    json_decref(o);
}

int main(int argc, char **argv) {
    replay_t r = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.size);
    parse(argc, argv, &r);
    check(tr_profile_read(r.profile_path, &r.profile));
    if (r.network_path) check(tr_network_read(r.network_path, &r.network));
    set_up(&r);
    srand((unsigned)r.rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < r.steps; i++) replay_step(&r, i);
    if (r.rank == 0) {
        const tr_profile_t *p = &r.profile;
        write_folder(&r);
        printf("replayed %d steps of %zu ops and %zu buckets on %d ranks: %s\n", r.steps,
               p->op_sec.count, p->buckets.count, r.size, r.out);
    }
    tr_profile_free(&r.profile);
    tr_network_free(&r.network);
    tr_free(&r.gradients);
    tr_free(&r.step_sec);
    tr_free(&r.exposed_sec);
    MPI_Finalize();
    return 0;
}
