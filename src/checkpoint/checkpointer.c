/* The writer thread. It writes one checkpoint at a time, from memory that must not change until the
 * thread is idle. */
#include "checkpoint_int.h"
#include "base/clock.h"
#include "trainer/log.h"
#include "base/thread.h"
#include "base/trace.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITER_NICE 10 /* training has priority where cores are shared */

struct tr_checkpointer {
    char *dir;
    int64_t keep;
    tr_status_t (*before)(void *self);
    void *self;
    bool writes_part;
    /* of the thread: seen by this run; not yet saved; -1: none */
    int64_t best_step, best_missed;
    pthread_t thread;
    pthread_mutex_t *lock; /* separate, so that queries can take a const checkpointer */
    pthread_cond_t changed;
    /* these and below are guarded by the lock; content belongs to the thread while it writes */
    bool writing, stop;
    int64_t best_wanted; /* the step that is to become the best; -1: none */
    tr_checkpoint_content_t content;
    tr_checkpointer_stats_t stats;
};

static bool checkpointer_has_work(const tr_checkpointer_t *c) {
    return c->writing || c->best_wanted >= 0;
}

/* -- the thread -------------------------------------------------------------------------------- */

/* Sets the links and deletes old checkpoints. The checkpoint is already committed: a failure here
 * is reported and retried after the next one. */
static void checkpointer_tidy(tr_checkpointer_t *c, int64_t step) {
    char best[32];
    tr_checkpoint_name(c->best_step < 0 ? step : c->best_step, best);
    const char *keep[] = {"best", best};
    tr_status_t status = tr_checkpoint_link(c->dir, "latest", step);
    if (status == TR_OK && c->best_step >= 0)
        status = tr_checkpoint_link(c->dir, "best", c->best_step);
    if (status != TR_OK) TR_WARN("%s", tr_error_last()->message);
    if (tr_checkpoint_retain(c->dir, c->keep, keep, 2) != TR_OK)
        TR_WARN("Old checkpoints were not deleted: %s", tr_error_last()->message);
}

static void checkpointer_save(tr_checkpointer_t *c) {
    tr_checkpointer_stats_t now = c->stats;
    const double begin = tr_clock_sec(), traced = tr_trace_begin();
    char *path = NULL;
    tr_error_clear();
    tr_status_t status = c->before ? c->before(c->self) : TR_OK;
    if (c->writes_part)
        status = tr_checkpoint_write_part(c->dir, &c->content);
    else if (status == TR_OK)
        status = tr_checkpoint_write(c->dir, &c->content, &path);
    else if (c->content.sharing)
        tr_checkpoint_abandon(c->dir, &c->content);
    if (status == TR_OK && c->writes_part) {
        now.saved++;
    } else if (status == TR_OK) {
        if (c->content.step == c->best_missed) c->best_step = c->best_missed;
        checkpointer_tidy(c, c->content.step);
        now.saved++;
        now.last_step = c->content.step;
        now.last_error = (tr_error_t){0};
        /* its bytes: those of the files in its folder, which has no folders in it */
        DIR *dir = opendir(path);
        now.last_bytes = 0;
        for (struct dirent *entry; dir && (entry = readdir(dir));) {
            struct stat st;
            if (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
                now.last_bytes += st.st_size;
        }
        if (dir) closedir(dir);
    } else {
        now.failed++;
        now.last_error = *tr_error_last();
    }
    now.last_write_sec = tr_clock_sec() - begin;
    if (now.last_write_sec > now.slowest_write_sec) now.slowest_write_sec = now.last_write_sec;
    tr_trace_end(traced, &(tr_span_t){.kind = TR_SPAN_CHECKPOINT,
                                      .number = c->content.step,
                                      .bytes = now.last_bytes});
    tr_free(&path);
    pthread_mutex_lock(c->lock);
    c->stats = now;
    pthread_mutex_unlock(c->lock);
}

/* If its checkpoint could not be saved, it becomes the best once a retry succeeds. */
static void checkpointer_make_best(tr_checkpointer_t *c, int64_t step) {
    char name[32], path[4096];
    tr_checkpoint_name(step, name);
    c->best_missed = step;
    if (tr_path_join(c->dir, name, path) != TR_OK || access(path, F_OK) != 0) return;
    c->best_step = step;
    checkpointer_tidy(c, step);
}

static void *checkpointer_main(void *self) {
    tr_checkpointer_t *c = self;
    setpriority(PRIO_PROCESS, (id_t)gettid(), WRITER_NICE);
    pthread_mutex_lock(c->lock);
    for (;;) {
        while (!checkpointer_has_work(c) && !c->stop) pthread_cond_wait(&c->changed, c->lock);
        if (!checkpointer_has_work(c)) break;
        /* A checkpoint first: it may be the one that becomes the best. */
        const bool writes = c->writing;
        const int64_t best = c->best_wanted;
        pthread_mutex_unlock(c->lock);
        if (writes)
            checkpointer_save(c);
        else
            checkpointer_make_best(c, best);
        pthread_mutex_lock(c->lock);
        if (writes)
            c->writing = false;
        else if (c->best_wanted == best)
            c->best_wanted = -1;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(c->lock);
    return NULL;
}

/* -- the interface ----------------------------------------------------------------------------- */

/* Tests whether checkpoints can be written: all that a commit does, with a small file. */
static tr_status_t checkpointer_probe(const char *dir) {
    char from[4096], to[4096], name[64];
    tr_sink_t *sink = NULL;
    tr_status_t status = TR_OK;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        status = tr_io_fail("create", dir, errno);
        goto done;
    }
    snprintf(name, sizeof name, ".tmp-probe-%d", (int)getpid());
    TR_TRY_GOTO(tr_path_join(dir, name, from), done);
    snprintf(name, sizeof name, ".del-probe-%d", (int)getpid());
    TR_TRY_GOTO(tr_path_join(dir, name, to), done);
    TR_TRY_GOTO(tr_checkpoint_clean(dir, true), done);
    TR_TRY_GOTO(tr_remove_tree(from), done);
    TR_TRY_GOTO(tr_sink_open(from, &sink), done);
    TR_TRY_GOTO(tr_sink_write(sink, "probe\n", 6), done);
    TR_TRY_GOTO(tr_sink_commit(sink, NULL, NULL), done);
    status = tr_replace_by(from, to, true);
    if (status != TR_OK) {
        (void)unlink(from);
        goto done;
    }
    TR_TRY_GOTO(tr_remove_tree(to), done);
done:
    tr_sink_close(&sink);
    if (status != TR_ERR_NOINPUT) return status;
    /* A missing parent folder is an error of the place to write to, not missing input. */
    tr_error_t error = *tr_error_last();
    error.code = TR_ERR_IO;
    return tr_error_set(&error);
}

static void checkpointer_free(tr_checkpointer_t **checkpointer) {
    tr_checkpointer_t *c = *checkpointer;
    if (c->lock) {
        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(c->lock);
    }
    tr_free(&c->lock);
    tr_free(&c->dir);
    tr_free(checkpointer);
}

tr_status_t tr_checkpointer_create(const tr_checkpointer_params_t *params,
                                   tr_checkpointer_t **out) {
    tr_checkpointer_t *c = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *c, "checkpoint writer", &c));
    c->keep = params->keep;
    c->before = params->before;
    c->self = params->self;
    c->writes_part = params->writes_part;
    c->best_step = c->best_missed = c->best_wanted = -1;
    TR_TRY_GOTO(tr_strdup(params->dir, &c->dir), failed);
    if (!c->writes_part) TR_TRY_GOTO(checkpointer_probe(c->dir), failed);
    TR_TRY_GOTO(tr_alloc(sizeof *c->lock, "checkpoint writer", &c->lock), failed);
    pthread_mutex_init(c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    const int error = tr_thread_start("trainer-save", checkpointer_main, c, &c->thread);
    if (error) {
        status = TR_FAIL(TR_ERR_MEMORY, "Cannot start the thread of the checkpoint writer: %s.",
                         strerror(error));
        goto failed;
    }
    *out = c;
    return TR_OK;
failed:
    checkpointer_free(&c);
    return status;
}

tr_status_t tr_checkpointer_submit(tr_checkpointer_t *c, const tr_checkpoint_content_t *content) {
    pthread_mutex_lock(c->lock);
    bool busy = checkpointer_has_work(c);
    if (!busy) {
        c->content = *content;
        c->writing = true;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(c->lock);
    return busy ? TR_FAIL(TR_ERR_INTERNAL,
                          "A checkpoint was submitted while the checkpoint of step %lld is being "
                          "written.",
                          (long long)c->content.step)
                : TR_OK;
}

void tr_checkpointer_best(tr_checkpointer_t *c, int64_t step) {
    pthread_mutex_lock(c->lock);
    c->best_wanted = step;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(c->lock);
}

bool tr_checkpointer_busy(const tr_checkpointer_t *c) {
    pthread_mutex_lock(c->lock);
    bool busy = checkpointer_has_work(c);
    pthread_mutex_unlock(c->lock);
    return busy;
}

tr_status_t tr_checkpointer_wait(tr_checkpointer_t *c) {
    pthread_mutex_lock(c->lock);
    while (checkpointer_has_work(c)) pthread_cond_wait(&c->changed, c->lock);
    tr_error_t error = c->stats.last_error;
    pthread_mutex_unlock(c->lock);
    return error.code == TR_OK ? TR_OK : tr_error_set(&error);
}

tr_checkpointer_stats_t tr_checkpointer_stats(const tr_checkpointer_t *c) {
    pthread_mutex_lock(c->lock);
    tr_checkpointer_stats_t stats = c->stats;
    pthread_mutex_unlock(c->lock);
    return stats;
}

void tr_checkpointer_destroy(tr_checkpointer_t **checkpointer) {
    tr_checkpointer_t *c = *checkpointer;
    if (!c) return;
    pthread_mutex_lock(c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(c->lock);
    pthread_join(c->thread, NULL);
    checkpointer_free(checkpointer);
}
