/* Checks of the run folder: writing, locks, free space. Rank 0 writes; the other nodes try its
 * lock. */
#include "doctor.h"
#include "run/folder_probe.h"

#include <stdio.h>

#define SLOW_SYNC_SEC 1.0

static const char *doctor_folder_remedy(tr_status_t code) {
    if (code == TR_ERR_PERMISSION) return "Choose a run.dir that you may write to.";
    if (code == TR_ERR_IO)
        return "Free some space, look at quotas (quota -s, lfs quota) and at limits (ulimit -f), "
               "or "
               "choose another run.dir.";
    return "Choose another run.dir.";
}

/* The free space, and what checkpoints of CONFIG take. */
static void doctor_folder_check_room(doctor_t *d, const tr_folder_probe_t *p) {
    const tr_memory_plan_t m = d->s ? tr_graph_memory(d->s->g) : (tr_memory_plan_t){0};
    const double one = (double)(m.params + m.optim_state + m.model_state), /* without headers */
        free_bytes = (double)p->free_bytes;
    const int64_t keep =
        d->checkpoint.keep > 0 ? d->checkpoint.keep + 2 : 1; /* best, and a new one */
    char a[32], b[32];
    const char *left = tr_format_bytes(free_bytes, a);
    if (p->free_bytes == INT64_MAX)
        doctor_find(d, "room", DOCTOR_OK, TR_OK, NULL, "the free space in %s is unknown",
                    p->folder);
    else if (one <= 0)
        doctor_find(d, "room", DOCTOR_OK, TR_OK, NULL, "%s free in %s", left, p->folder);
    else if (free_bytes < one)
        doctor_find(d, "room", DOCTOR_ERROR, TR_ERR_IO, doctor_folder_remedy(TR_ERR_IO),
                    "%s free in %s, a checkpoint takes %s", left, p->folder,
                    tr_format_bytes(one, b));
    else if (free_bytes < one * (double)keep)
        doctor_find(d, "room", DOCTOR_WARNING, TR_OK,
                    "Free some space, or set a smaller checkpoint.keep.",
                    "%s free in %s, a checkpoint takes %s, and a run may have %lld at a time "
                    "(checkpoint.keep)",
                    left, p->folder, tr_format_bytes(one, b), (long long)keep);
    else
        doctor_find(d, "room", DOCTOR_OK, TR_OK, NULL, "%s free in %s, a checkpoint takes %s", left,
                    p->folder, tr_format_bytes(one, b));
}

static void doctor_folder_check_lock(doctor_t *d, const tr_folder_probe_t *p,
                                     const int64_t *states) {
    tr_lock_state_t worst = p->lock;
    const char *host = d->info->host;
    for (int r = 0; r < d->info->size; r++)
        if (states[r] > (int64_t)worst) worst = (tr_lock_state_t)states[r], host = d->ranks[r].host;
    if (worst == TR_LOCK_WORKS)
        doctor_find(d, "locks", DOCTOR_OK, TR_OK, NULL, "locks work in %s%s", p->folder,
                    d->info->nodes > 1 ? ", between nodes too" : "");
    else if (worst == TR_LOCK_UNSEEN)
        doctor_find(
            d, "locks", DOCTOR_WARNING, TR_OK,
            "Choose a run.dir in a file system that all nodes share: a job that restarts on "
            "other nodes would not find its checkpoints.",
            "%s on %s is not to be seen on %s", p->folder, d->info->host, host);
    else
        doctor_find(d, "locks", DOCTOR_WARNING, TR_OK,
                    "Mount with locks (flock on Lustre, no nolock on NFS), or choose another "
                    "run.dir: two runs could write to the same folder.",
                    "locks in %s %s on %s", p->folder,
                    worst == TR_LOCK_IGNORED ? "have no effect" : "are not supported", host);
}

tr_status_t doctor_check_folder(doctor_t *d) {
    const char *dir = d->run.dir && d->run.dir[0] ? d->run.dir : "runs";
    tr_folder_probe_t p = {.fd = -1};
    char path[4096] = "";
    int64_t mine = TR_LOCK_WORKS, *states = NULL; /* tr_lock_state_t of each rank */
    tr_status_t status = TR_OK, opened = TR_OK;
    TR_TRY(tr_alloc((size_t)d->info->size * sizeof *states, "states of locks", &states));
    if (d->info->rank == 0) opened = tr_folder_probe_open(dir, &p);
    if (opened != TR_OK) {
        doctor_find(d, "folder", DOCTOR_ERROR, opened, doctor_folder_remedy(opened), "%s",
                    tr_error_last()->message);
        tr_error_clear();
    }
    /* Do the first ranks of the other nodes see the lock held by rank 0? */
    if (opened == TR_OK && d->info->rank == 0) snprintf(path, sizeof path, "%s", p.file);
    TR_TRY_GOTO(tr_world_broadcast(d->world, path, sizeof path, 0), done);
    if (path[0] && d->info->node > 0 && d->info->local_rank == 0) mine = tr_folder_probe_try(path);
    TR_TRY_GOTO(tr_world_allgather(d->world, &mine, sizeof mine, states), done);
    if (d->info->rank == 0 && opened == TR_OK) {
        const bool slow = p.sync_sec > SLOW_SYNC_SEC;
        doctor_find(d, "folder", slow ? DOCTOR_WARNING : DOCTOR_OK, TR_OK,
                    slow ? "Checkpoints will take long: choose a faster file system for run.dir."
                         : NULL,
                    "write, fsync and rename of 1 MiB in %s: %.3f s", p.folder, p.sync_sec);
        doctor_folder_check_lock(d, &p, states);
    }
    if (d->info->rank == 0 && p.folder[0]) doctor_folder_check_room(d, &p);
done:
    tr_folder_probe_close(&p);
    tr_free(&states);
    return status;
}
