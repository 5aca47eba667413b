/* The run folder. Files that others read as a whole are replaced by a rename; growing files are
 * appended to with one write per line. */
#include "base/file.h"
#include "base/host.h"
#include "base/json_text.h"
#include "run.h"
#include "base/clock.h"
#include "trainer/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RESTARTED_WAIT_SEC 300

struct tr_run {
    char *dir, *checkpoint_dir, *metrics_path;
    int lock_fd, metrics_fd;
    int dir_fd;    /* of the folder itself; -1: unknown */
    bool is_new;   /* this session created the folder, and the run has not begun */
    tr_str_t line; /* kept, so that metrics lines after the first allocate nothing */
};

static tr_status_t run_join(const char *dir, const char *name, char **out) {
    tr_str_t path = {0};
    tr_str_printf(&path, "%s/%s", dir, name);
    return tr_str_take(&path, out);
}

/* The n-th of the same second: "runs/NAME-DATE-TIME", "runs/NAME-DATE-TIME-2", ... */
static tr_status_t run_own_dir(const tr_run_settings_t *settings, const char *config_path, int n,
                               char **out) {
    const char *name = tr_file_name(config_path), *dot = strrchr(name, '.');
    int length = dot && dot > name ? (int)(dot - name) : (int)strlen(name);
    if (settings->name && *settings->name) {
        name = settings->name;
        length = (int)strlen(name);
    }
    char date[32];
    time_t now = time(NULL);
    struct tm local;
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    tr_str_t path = {0};
    tr_str_printf(&path, "runs/%.*s-%s", length, name, date);
    if (n > 1) tr_str_printf(&path, "-%d", n);
    return tr_str_take(&path, out);
}

/* -- folder and lock --------------------------------------------------------------------------- */

/* A folder survives a crash once its parent is on the disk. */
static tr_status_t run_sync_parent(const char *path) {
    char *parent = NULL;
    TR_TRY(tr_strdup(path, &parent));
    char *slash = strrchr(parent, '/');
    if (slash) slash[slash == parent] = '\0';
    const char *dir = slash ? parent : ".";
    const tr_status_t status =
        access(dir, R_OK) == 0 ? tr_sync_directory(dir) : TR_OK; /* may be write-only */
    tr_free(&parent);
    return status;
}

/* With all parents. It is not an error if one exists, or if another process creates it at the same
 * time. *out_new: dir itself was created, by this process. */
static tr_status_t run_make_dirs(const char *dir, bool *out_new) {
    char *path = NULL;
    tr_status_t status = TR_OK;
    *out_new = false;
    TR_TRY(tr_strdup(dir, &path));
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/';) path[--end] = '\0';
    for (char *c = path + 1; status == TR_OK; c++) {
        if (*c != '/' && *c != '\0') continue;
        char end = *c;
        *c = '\0';
        struct stat info;
        const bool made = mkdir(path, 0777) == 0;
        *out_new = made;
        if (!made && (errno != EEXIST || stat(path, &info) != 0))
            status = tr_io_fail("create the run folder", path, errno);
        else if (made)
            status = run_sync_parent(path);
        else if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
            status = TR_FAIL(
                TR_ERR_CONFIG,
                "cannot create the run folder %s: %s is a file; choose another run.dir", dir, path);
        *c = end;
        if (!end) break;
    }
    tr_free(&path);
    return status;
}

static tr_status_t run_fail_locked(const tr_run_t *run, double waited_sec) {
    char holder[256] = "";
    ssize_t length = pread(run->lock_fd, holder, sizeof holder - 1, 0);
    holder[length > 0 ? length : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    if (waited_sec > 0)
        return TR_FAIL(TR_ERR_RETRY,
                       "the run folder %s is still in use by %s after %.0f s (run.lock_wait); "
                       "start the run again later",
                       run->dir, *holder ? holder : "another process", waited_sec);
    return TR_FAIL(
        TR_ERR_CONFIG,
        "the run folder %s is in use by %s; wait for that run to end, set run.lock_wait, or choose "
        "another run.dir",
        run->dir, *holder ? holder : "another process");
}

/* A job that SLURM restarts may arrive before a parallel file system notices that the former node
 * is dead. */
static tr_status_t run_read_lock_wait(const tr_run_settings_t *settings, double *out_sec) {
    const char *restarts = getenv("SLURM_RESTART_COUNT"), *text = settings->lock_wait;
    *out_sec = restarts && strcmp(restarts, "0") != 0 ? RESTARTED_WAIT_SEC : 0;
    if (!text || !*text || strcmp(text, "auto") == 0 || tr_parse_duration(text, out_sec))
        return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG, "run.lock_wait = %s: expected a time (5min), 0 or auto", text);
}

/* False: another process holds it. */
static bool run_try_lock(const tr_run_t *run) {
    if (flock(run->lock_fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
    TR_WARN("the file system of %s does not support locks (%s): a second run in this folder cannot "
            "be prevented",
            run->dir, strerror(errno));
    return true;
}

static tr_status_t run_wait_for_lock(const tr_run_t *run, double wait_sec,
                                     int (*asked_to_stop)(void)) {
    const double begin = tr_clock_sec();
    if (run_try_lock(run)) return TR_OK;
    if (wait_sec <= 0) return run_fail_locked(run, 0);
    TR_WARN("another process uses the run folder %s: waiting for up to %.0f s (run.lock_wait)",
            run->dir, wait_sec);
    while (tr_clock_sec() - begin < wait_sec && !(asked_to_stop && asked_to_stop())) {
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
        if (run_try_lock(run)) return TR_OK;
    }
    return run_fail_locked(run, tr_clock_sec() - begin);
}

/* The kernel releases the lock when the process ends, in any way. */
static tr_status_t run_take_lock(tr_run_t *run, double wait_sec, int (*asked_to_stop)(void)) {
    char *path = NULL, date[32], text[512];
    TR_TRY(run_join(run->dir, "lock", &path));
    run->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    tr_status_t status = run->lock_fd < 0 ? tr_io_fail("open", path, errno) : TR_OK;
    tr_free(&path);
    TR_TRY(status);
    TR_TRY(run_wait_for_lock(run, wait_sec, asked_to_stop));
    tr_clock_iso8601(date);
    int length = snprintf(text, sizeof text, "process %ld on %s since %s\n", (long)getpid(),
                          tr_host_name(), date);
    /* The contents are only for messages; the lock works without them. */
    if (ftruncate(run->lock_fd, 0) != 0 || pwrite(run->lock_fd, text, (size_t)length, 0) != length)
        TR_WARN("cannot write %s/lock: %s", run->dir, strerror(errno));
    return TR_OK;
}

/* -- whole files ------------------------------------------------------------------------------- */

static tr_status_t run_replace_file(const tr_run_t *run, const char *name, const char *text,
                                    size_t bytes) {
    char *path = NULL;
    TR_TRY(run_join(run->dir, name, &path));
    const tr_status_t status = tr_replace_file(path, text, bytes, TR_REPLACE_DURABLE);
    tr_free(&path);
    return status;
}

static int run_append_json(const char *bytes, size_t count, void *text) {
    tr_str_append_bytes(text, bytes, count);
    return 0;
}

/* Into `to`, ending in a newline. Its room is that of a usual summary, so that the number of
 * allocations does not depend on how many digits the values have. */
static tr_status_t run_dump_json(const tr_run_t *run, const json_t *value, size_t flags,
                                 tr_str_t *to) {
    enum { USUAL_BYTES = 4096 };
    to->length = 0;
    to->status = TR_OK;
    TR_TRY(tr_vec_reserve_(&to->text, &to->capacity, USUAL_BYTES, 1));
    if (!json_is_object(value))
        return TR_FAIL(TR_ERR_INTERNAL, "%s: expected a JSON object per line", run->dir);
    if (json_dump_callback(value, run_append_json, to, flags) != 0)
        return TR_FAIL(TR_ERR_INTERNAL, "%s: a value cannot be represented in JSON", run->dir);
    TR_TRY(to->status);
    tr_json_shorten(to->text);
    to->length = strlen(to->text);
    tr_str_append(to, "\n");
    return to->status;
}

tr_status_t tr_run_summary(tr_run_t *run, json_t *summary) {
    tr_str_t text = {0}; /* a thread may still write run->line */
    tr_status_t status =
        run_dump_json(run, summary, JSON_INDENT(2) | JSON_REAL_PRECISION(9), &text);
    json_decref(summary);
    if (status == TR_OK) status = run_replace_file(run, "summary.json", text.text, text.length);
    tr_str_free(&text);
    return status;
}

/* -- metrics ----------------------------------------------------------------------------------- */

tr_status_t tr_run_metrics(tr_run_t *run, json_t *line) {
    /* Reals read back as the same doubles, so that equal runs can be distinguished from nearly
     * equal ones. */
    tr_status_t status = run_dump_json(run, line, JSON_COMPACT, &run->line);
    json_decref(line);
    TR_TRY(status);
    off_t before = lseek(run->metrics_fd, 0, SEEK_END);
    status = tr_write_all(run->metrics_fd, run->metrics_path, run->line.text, run->line.length);
    /* Half a line (disk full) would damage the next one, too. */
    if (status != TR_OK && before >= 0 && ftruncate(run->metrics_fd, before) != 0)
        TR_WARN("%s ends with an incomplete line", run->metrics_path);
    return status;
}

/* Looks for what is cut from the end of the metrics: all from the first line of a step after `last`,
 * or of its validation, and an incomplete last line. Steps never fall, so a line of an earlier step
 * ends the search. */
typedef struct {
    int64_t last;
    bool with_valid;
    off_t seen, cut; /* bytes at the end of the file */
} tail_t;

static bool tail_take(void *self, const char *text, size_t bytes) {
    tail_t *tail = self;
    tail->seen += (off_t)bytes;
    if (text[bytes - 1] != '\n') {
        tail->cut = tail->seen;
        return true;
    }
    json_t *line = json_loadb(text, bytes, 0, NULL), *step = json_object_get(line, "step");
    const int64_t of = json_integer_value(step);
    const bool is_known = json_is_integer(step); /* an unreadable line tells nothing */
    if (of > tail->last ||
        (of == tail->last && !tail->with_valid && json_object_get(line, "valid_loss")))
        tail->cut = tail->seen;
    json_decref(line);
    return !is_known || of >= tail->last;
}

tr_status_t tr_run_metrics_rewind(tr_run_t *run, int64_t step, bool with_valid) {
    struct stat info;
    tail_t tail = {.last = step, .with_valid = with_valid};
    if (access(run->metrics_path, F_OK) != 0) return tr_io_fail("open", run->metrics_path, errno);
    TR_TRY(tr_each_line_back(run->metrics_path, tail_take, &tail));
    if (fstat(run->metrics_fd, &info) != 0) return tr_io_fail("examine", run->metrics_path, errno);
    /* In place, so that programs that follow the file keep following it. */
    if (tail.cut > 0 && ftruncate(run->metrics_fd, info.st_size - tail.cut) != 0)
        return tr_io_fail("shorten", run->metrics_path, errno);
    return TR_OK;
}

static tr_status_t run_open_metrics(tr_run_t *run) {
    TR_TRY(run_join(run->dir, "metrics.jsonl", &run->metrics_path));
    run->metrics_fd =
        open(run->metrics_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (run->metrics_fd < 0) return tr_io_fail("open", run->metrics_path, errno);
    /* a run that was killed may have left half a line */
    TR_TRY(tr_run_metrics_rewind(run, INT64_MAX, true));
    return TR_OK;
}

/* -- open and close ---------------------------------------------------------------------------- */

static tr_status_t run_add_log(const char *dir) {
    char *path = NULL;
    TR_TRY(run_join(dir, "log.txt", &path));
    tr_log_close_files();
    tr_status_t status = tr_log_add_file(path);
    tr_free(&path);
    return status;
}

/* How a run is opened. */
typedef struct {
    bool only_new; /* an existing folder is refused */
    double lock_wait_sec;
    int (*asked_to_stop)(void);
} way_t;

/* *out stays NULL if only a new folder is allowed and this one exists. */
static tr_status_t run_open_dir(const char *dir, const way_t *way, tr_run_t **out) {
    tr_run_t *run = NULL;
    tr_status_t status = TR_OK;
    bool is_new, made;
    TR_TRY(run_make_dirs(dir, &is_new));
    if (way->only_new && !is_new) return TR_OK;
    TR_TRY(tr_alloc(sizeof *run, "run", &run));
    run->lock_fd = run->metrics_fd = -1;
    run->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    TR_TRY_GOTO(tr_strdup(dir, &run->dir), fail);
    TR_TRY_GOTO(run_join(dir, "checkpoints", &run->checkpoint_dir), fail);
    TR_TRY_GOTO(run_take_lock(run, way->lock_wait_sec, way->asked_to_stop), fail);
    run->is_new = is_new; /* without the lock nothing is removed */
    TR_TRY_GOTO(run_make_dirs(run->checkpoint_dir, &made), fail);
    TR_TRY_GOTO(run_open_metrics(run), fail);
    TR_TRY_GOTO(run_add_log(run->dir), fail);
    *out = run;
    return TR_OK;
fail:
    tr_run_close(&run);
    return status;
}

tr_status_t tr_run_open(const tr_run_settings_t *settings, const char *config_path,
                        int (*asked_to_stop)(void), tr_run_t **out) {
    way_t way = {.only_new = !settings->dir[0], .asked_to_stop = asked_to_stop};
    *out = NULL;
    TR_TRY(run_read_lock_wait(settings, &way.lock_wait_sec));
    if (settings->dir[0]) return run_open_dir(settings->dir, &way, out);
    for (int n = 1; !*out; n++) {
        char *dir = NULL;
        TR_TRY(run_own_dir(settings, config_path, n, &dir));
        const tr_status_t status = run_open_dir(dir, &way, out);
        tr_free(&dir);
        TR_TRY(status);
    }
    return TR_OK;
}

tr_status_t tr_run_begin(tr_run_t *run, const char *config_text) {
    TR_TRY(run_replace_file(run, "config.ini", config_text, strlen(config_text)));
    run->is_new = false;
    return TR_OK;
}

void tr_run_join_log(const char *dir) {
    if (access(dir, W_OK) == 0 && run_add_log(dir) != TR_OK)
        TR_WARN_ALL("%s", tr_error_last()->message);
}

/* Only what tr_run_open created; a folder with other contents stays. */
static void run_remove_new(const tr_run_t *run) {
    static const char *const names[] = {"log.txt", "metrics.jsonl", "lock", "token"};
    rmdir(run->checkpoint_dir);
    for (size_t i = 0; i < TR_COUNT(names); i++) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s", run->dir, names[i]) < (int)sizeof path)
            unlink(path);
    }
    rmdir(run->dir);
}

void tr_run_close(tr_run_t **closing) {
    tr_run_t *run = *closing;
    if (!run) return;
    if (run->is_new && run->checkpoint_dir) run_remove_new(run);
    if (run->metrics_fd >= 0) close(run->metrics_fd);
    if (run->lock_fd >= 0) close(run->lock_fd);
    if (run->dir_fd >= 0) close(run->dir_fd);
    tr_str_free(&run->line);
    tr_free(&run->metrics_path);
    tr_free(&run->checkpoint_dir);
    tr_free(&run->dir);
    tr_free(closing);
}

tr_status_t tr_run_check_there(const tr_run_t *run) {
    struct stat opened, found;
    if (run->dir_fd < 0 || fstat(run->dir_fd, &opened) != 0) return TR_OK;
    const bool exists = stat(run->dir, &found) == 0;
    if (exists ? opened.st_dev == found.st_dev && opened.st_ino == found.st_ino
               : errno != ENOENT && errno != ENOTDIR)
        return TR_OK;
    return TR_FAIL(TR_ERR_IO,
                   "the run folder %s %s while this run was in it: it was renamed or deleted. The "
                   "run ends, because its checkpoints would be lost. If the folder was renamed, "
                   "give it its name again and start the run again: it resumes from its newest "
                   "checkpoint",
                   run->dir, exists ? "became another folder" : "disappeared");
}

const char *tr_run_dir(const tr_run_t *run) {
    return run->dir;
}
const char *tr_run_checkpoint_dir(const tr_run_t *run) {
    return run->checkpoint_dir;
}

bool tr_run_has(const tr_run_t *run, const char *path) {
    char *own = realpath(run->dir, NULL), *other = realpath(path, NULL);
    const size_t length = own ? strlen(own) : 0;
    const bool has = own && other && strncmp(own, other, length) == 0 && strchr("/", other[length]);
    free(own);
    free(other);
    return has;
}
