/*
 * The folder "checkpoints": names, listing, links, retention, and cleaning up after dead writers.
 */
#include "checkpoint_int.h"
#include "trainer/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tr_checkpoint_name(int64_t step, char out[32]) {
    snprintf(out, 32, "step-%08lld", (long long)step);
}

bool tr_checkpoint_parse_name(const char *name, int64_t *out_step) {
    char again[32];
    int64_t step = -1;
    if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") != strlen(name + 5))
        return false;
    if (!tr_parse_int(name + 5, &step)) return false;
    tr_checkpoint_name(step, again);
    if (strcmp(again, name) != 0) return false;
    *out_step = step;
    return true;
}

/* Calls `visit` for each entry of `dir` except "." and ".."; a missing dir has none. */
typedef tr_status_t (*visit_fn)(const char *dir, const char *name, void *arg);
static tr_status_t checkpoint_dir_visit(const char *dir, visit_fn visit, void *arg) {
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT) return TR_OK;
    if (!d) return tr_io_fail("open", dir, errno);
    tr_status_t status = TR_OK;
    errno = 0;
    for (struct dirent *e; status == TR_OK && (e = readdir(d)); errno = 0)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            status = visit(dir, e->d_name, arg);
    if (status == TR_OK && errno != 0) status = tr_io_fail("list", dir, errno);
    closedir(d);
    return status;
}

static tr_status_t checkpoint_list_step(const char *dir, const char *name, void *arg) {
    tr_steps_t *steps = arg;
    int64_t step = 0;
    return tr_checkpoint_parse_name(name, &step) ? tr_vec_push(steps, step) : TR_OK;
}

static int checkpoint_newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

tr_status_t tr_checkpoint_list(const char *dir, tr_steps_t *out) {
    tr_status_t status = checkpoint_dir_visit(dir, checkpoint_list_step, out);
    if (out->count) qsort(out->data, out->count, sizeof *out->data, checkpoint_newest_first);
    return status;
}

/* -- leftovers --------------------------------------------------------------------------------- */

/* Removes an entry that is a leftover: of a dead writer, of this process, or of `all`. */
static tr_status_t checkpoint_clean_entry(const char *dir, const char *name, void *all) {
    char path[4096];
    int64_t pid = 0;
    if (strncmp(name, ".tmp-", 5) != 0 && strncmp(name, ".del-", 5) != 0) return TR_OK;
    const bool known = tr_parse_int(strrchr(name, '-') + 1, &pid);
    const bool over = known && (pid == getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH));
    if (!*(bool *)all && !over) return TR_OK;
    TR_TRY(tr_path_join(dir, name, path));
    return tr_remove_tree(path);
}

tr_status_t tr_checkpoint_clean(const char *dir, bool all) {
    return checkpoint_dir_visit(dir, checkpoint_clean_entry, &all);
}

/* -- retention --------------------------------------------------------------------------------- */

/* The step of a link ("best"), a name or a path; -1: it is not one of a step. */
static int64_t checkpoint_step_of(const char *dir, const char *keep) {
    char path[4096], target[4096];
    int64_t step = -1;
    if (strchr(keep, '/'))
        snprintf(path, sizeof path, "%s", keep);
    else if (tr_path_join(dir, keep, path) != TR_OK)
        return -1;
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length >= 0)
        target[length] = '\0';
    else
        memcpy(target, path, sizeof target);
    for (size_t n = strlen(target); n > 0 && target[n - 1] == '/'; n--) target[n - 1] = '\0';
    return tr_checkpoint_parse_name(tr_file_name(target), &step) ? step : -1;
}

/* Renamed first, so that a directory named step-* is complete at any moment. */
static tr_status_t checkpoint_delete(const char *dir, int64_t step) {
    char name[32], gone[64], from[4096], to[4096];
    tr_checkpoint_name(step, name);
    snprintf(gone, sizeof gone, ".del-%s-%d", name, (int)getpid());
    TR_TRY(tr_path_join(dir, name, from));
    TR_TRY(tr_path_join(dir, gone, to));
    TR_TRY(tr_remove_tree(to));
    if (rename(from, to) != 0) return tr_io_fail("rename", from, errno);
    return tr_remove_tree(to);
}

tr_status_t tr_checkpoint_retain(const char *dir, int64_t keep, const char *const *keep_paths,
                                 size_t keep_count) {
    tr_steps_t steps = {0};
    tr_status_t status = tr_checkpoint_list(dir, &steps);
    int64_t seen = 0;
    for (size_t i = 0; status == TR_OK && i < steps.count; i++) {
        bool kept = keep <= 0 || ++seen <= keep;
        for (size_t k = 0; k < keep_count; k++)
            kept = kept || checkpoint_step_of(dir, keep_paths[k]) == steps.data[i];
        if (!kept) status = checkpoint_delete(dir, steps.data[i]);
    }
    tr_vec_free(&steps);
    TR_TRY(status);
    return tr_checkpoint_clean(dir, false);
}

/* -- links and skipped checkpoints ------------------------------------------------------------- */

static tr_status_t checkpoint_link_to(const char *dir, const char *name, const char *target) {
    char temporary[64], from[4096], to[4096];
    snprintf(temporary, sizeof temporary, ".tmp-link-%d", (int)getpid());
    TR_TRY(tr_path_join(dir, temporary, from));
    TR_TRY(tr_path_join(dir, name, to));
    TR_TRY(tr_remove_tree(from));
    if (symlink(target, from) != 0) return tr_io_fail("create the link", from, errno);
    const tr_status_t status = tr_replace_by(from, to, true);
    if (status != TR_OK) (void)unlink(from);
    return status;
}

tr_status_t tr_checkpoint_link(const char *dir, const char *name, int64_t step) {
    char target[32];
    tr_checkpoint_name(step, target);
    return checkpoint_link_to(dir, name, target);
}

tr_status_t tr_checkpoint_set_aside(const char *dir, int64_t newest) {
    tr_steps_t steps = {0};
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(tr_checkpoint_list(dir, &steps), done);
    for (size_t i = 0; i < steps.count && steps.data[i] > newest; i++) {
        char name[32], aside[64], from[4096], to[4096];
        const bool is_best = checkpoint_step_of(dir, "best") == steps.data[i];
        tr_checkpoint_name(steps.data[i], name);
        snprintf(aside, sizeof aside, "skipped-%s", name);
        TR_TRY_GOTO(tr_path_join(dir, name, from), done);
        TR_TRY_GOTO(tr_path_join(dir, aside, to), done);
        TR_TRY_GOTO(tr_remove_tree(to), done);
        if (rename(from, to) != 0) {
            status = tr_io_fail("rename", from, errno);
            goto done;
        }
        TR_WARN("renamed %s to %s; the run resumes from an earlier checkpoint", from, aside);
        /* The best link is kept: another checkpoint of its step will be written. */
        if (is_best) TR_TRY_GOTO(checkpoint_link_to(dir, "best", aside), done);
    }
    if (steps.count > 0 && steps.data[0] > newest) TR_TRY_GOTO(tr_sync_directory(dir), done);
done:
    tr_vec_free(&steps);
    return status;
}
