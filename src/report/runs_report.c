/* `trainer report`: reads run folders, and writes their tables and page. */
#include "base/file.h"
#include "page.h"
#include "runs_report.h"
#include "tables.h"
#include "trainer/log.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Creates the folder and its parents if missing. */
static tr_status_t report_make_folder(const char *dir) {
    char path[4096];
    struct stat found;
    if (strlen(dir) >= sizeof path || !*dir)
        return TR_FAIL(TR_ERR_USAGE, "--out requires the name of a folder");
    strcpy(path, dir);
    for (char *c = path + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) return tr_io_fail("create", path, errno);
        *c = '/';
    }
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) return tr_io_fail("create", dir, errno);
    if (stat(dir, &found) == 0 && !S_ISDIR(found.st_mode))
        return TR_FAIL(TR_ERR_USAGE, "--out %s: expected a folder, found a file", dir);
    return TR_OK;
}

/* Its summary.json must not be replaced. */
static tr_status_t report_check_no_run(const char *dir) {
    static const char *const files[] = {"config.ini", "metrics.jsonl", "sessions.jsonl"};
    for (size_t i = 0; i < TR_COUNT(files); i++) {
        char path[4096];
        TR_TRY(tr_path_join(dir, files[i], path));
        if (access(path, F_OK) == 0)
            return TR_FAIL(TR_ERR_USAGE, "--out %s is a run folder; choose another folder", dir);
    }
    return TR_OK;
}

static tr_status_t report_write_file(const char *dir, const char *name, const tr_str_t *text) {
    char path[4096], temporary[4096];
    TR_TRY(tr_path_join(dir, name, path));
    TR_TRY(text->status);
    if (tr_snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid()) >=
        (int)sizeof temporary)
        return tr_io_fail("create", path, ENAMETOOLONG);
    FILE *file = tr_create_stream(temporary);
    if (!file) return tr_io_fail("create", temporary, errno);
    const bool written = fwrite(text->text, 1, text->length, file) == text->length;
    int error = written ? 0 : errno;
    if (fclose(file) != 0 && error == 0) error = errno;
    if (error == 0 && rename(temporary, path) != 0) error = errno;
    if (error == 0) return TR_OK;
    unlink(temporary);
    return tr_io_fail("write", path, error);
}

static tr_status_t report_write(const tr_runs_report_settings_t *settings,
                                const tr_record_t *records, size_t count) {
    static const struct {
        const char *name;
        tr_status_t (*compose)(const tr_study_t *, tr_str_t *);
    } files[] = {{"scaling.csv", tr_tables_csv},
                 {"summary.json", tr_tables_json},
                 {"index.html", tr_page_write}};
    tr_sweeps_t sweeps = {0};
    tr_str_t text = {0};
    const tr_study_t study = {records, count, &sweeps, settings->version};
    tr_status_t status;
    TR_TRY_GOTO(tr_sweeps_make(records, count, &sweeps), done);
    if (settings->predicted) TR_TRY_GOTO(tr_sweeps_predict(&sweeps, settings->predicted), done);
    TR_TRY_GOTO(report_make_folder(settings->out), done);
    for (size_t i = 0; i < TR_COUNT(files); i++) {
        TR_TRY_GOTO(files[i].compose(&study, &text), done);
        TR_TRY_GOTO(report_write_file(settings->out, files[i].name, &text), done);
        tr_str_free(&text);
    }
done:
    tr_str_free(&text);
    tr_sweeps_free(&sweeps);
    return status;
}

/* Whether the folder is that of an earlier report, which a pattern of run folders may match. */
static bool is_report(const char *dir) {
    char table[4096], metrics[4096];
    return tr_path_join(dir, "scaling.csv", table) == TR_OK && access(table, F_OK) == 0 &&
           tr_path_join(dir, "metrics.jsonl", metrics) == TR_OK && access(metrics, F_OK) != 0;
}

/* -- the runs ---------------------------------------------------------------------------------- */

typedef struct {
    TR_VEC(tr_record_t) records;
    TR_VEC(char *) paths; /* of records found in a folder; owned */
    int files;            /* left out */
    const char *file;     /* the first of them */
} runs_t;

/* Reads a run folder, unless it was read before or is a report. */
static tr_status_t runs_add(runs_t *r, const char *dir) {
    struct stat one, other;
    const bool exists = stat(dir, &one) == 0;
    tr_record_t record;
    for (size_t i = 0; i < r->records.count && exists; i++)
        if (stat(r->records.data[i].path, &other) == 0 && one.st_dev == other.st_dev &&
            one.st_ino == other.st_ino) {
            TR_WARN("%s is the same folder as %s: it counts once", dir, r->records.data[i].path);
            return TR_OK;
        }
    if (is_report(dir)) {
        TR_WARN("%s is left out: it is a report, not a run", dir);
        return TR_OK;
    }
    TR_TRY(tr_record_read(dir, &record));
    const tr_status_t status = tr_vec_push(&r->records, record);
    if (status != TR_OK) tr_record_free(&record);
    return status;
}

/* The runs that a folder holds, as that of a sweep, in the order of ls -v. */
static tr_status_t runs_add_inside(runs_t *r, const char *dir) {
    struct dirent **entries = NULL;
    char path[4096];
    tr_status_t status = TR_OK;
    int found = 0;
    const int count = scandir(dir, &entries, NULL, versionsort);
    if (count < 0) return tr_io_fail("read the folder", dir, errno);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (status == TR_OK && name[0] != '.') status = tr_path_join(dir, name, path);
        if (status == TR_OK && name[0] != '.' && tr_is_run(path) && !is_report(path)) {
            char *own = NULL;
            status = tr_strdup(path, &own);
            if (status == TR_OK) status = tr_vec_push(&r->paths, own);
            if (status == TR_OK)
                status = runs_add(r, own);
            else
                tr_free(&own);
            found++;
        }
        free(entries[i]);
    }
    free(entries);
    if (status == TR_OK && found == 0) TR_WARN("%s is left out: no run folder is in it", dir);
    return status;
}

static tr_status_t runs_read(runs_t *r, const tr_runs_report_settings_t *settings) {
    for (size_t i = 0; i < settings->count; i++) {
        const char *path = settings->runs[i];
        struct stat info;
        if (stat(path, &info) != 0) return tr_io_fail("open the run folder", path, errno);
        if (!S_ISDIR(info.st_mode)) {
            if (r->files++ == 0) r->file = path; /* a log, where a pattern names all of a sweep */
        } else if (tr_is_run(path)) {
            TR_TRY(runs_add(r, path));
        } else {
            TR_TRY(runs_add_inside(r, path));
        }
    }
    if (r->records.count == 0)
        return TR_FAIL(TR_ERR_NOINPUT,
                       "report: expected run folders, or folders of runs as that of a sweep; found "
                       "none in %s%s",
                       settings->runs[0], settings->count > 1 ? " and the others" : "");
    if (r->files > 0)
        TR_WARN("%d file%s left out, for only folders can be runs: %s%s", r->files,
                r->files > 1 ? "s are" : " is", r->file, r->files > 1 ? ", ..." : "");
    return TR_OK;
}

tr_status_t tr_runs_report(const tr_runs_report_settings_t *settings) {
    runs_t r = {.file = NULL};
    TR_TRY(report_check_no_run(settings->out));
    tr_status_t status = runs_read(&r, settings);
    if (status == TR_OK) status = report_write(settings, r.records.data, r.records.count);
    for (size_t i = 0; i < r.records.count; i++) tr_record_free(&r.records.data[i]);
    for (size_t i = 0; i < r.paths.count; i++) tr_free(&r.paths.data[i]);
    tr_vec_free(&r.records);
    tr_vec_free(&r.paths);
    return status;
}
