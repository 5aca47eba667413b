/* Finds and reads run folders. */
#include "runs.h"
#include "base/file.h"
#include "base/str.h"
#include "trainer/log.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the folder is that of an earlier report, which a pattern of run folders may match. */
static bool is_report(const char *dir) {
    char table[4096], metrics[4096];
    return tr_path_join(dir, "scaling.csv", table) == TR_OK && access(table, F_OK) == 0 &&
           tr_path_join(dir, "metrics.jsonl", metrics) == TR_OK && access(metrics, F_OK) != 0;
}

/* Reads a run folder, unless it was read before or is a report. */
static tr_status_t runs_add(tr_runs_t *r, const char *dir) {
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
    TR_TRY(tr_record_read(dir, &r->asked, &record));
    const tr_status_t status = tr_vec_push(&r->records, record);
    if (status != TR_OK) tr_record_free(&record);
    return status;
}

/* The runs that a folder holds, as that of a sweep, in the order of ls -v. */
static tr_status_t runs_add_inside(tr_runs_t *r, const char *dir) {
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

static tr_status_t runs_add_all(tr_runs_t *r, char *const *paths, size_t count) {
    const char *file = NULL; /* the first of those left out */
    int files = 0;
    for (size_t i = 0; i < count; i++) {
        const char *path = paths[i];
        struct stat info;
        if (stat(path, &info) != 0) return tr_io_fail("open the run folder", path, errno);
        if (!S_ISDIR(info.st_mode)) {
            if (files++ == 0) file = path; /* a log, where a pattern names all of a sweep */
        } else if (tr_is_run(path)) {
            TR_TRY(runs_add(r, path));
        } else {
            TR_TRY(runs_add_inside(r, path));
        }
    }
    if (r->records.count == 0)
        return TR_FAIL(TR_ERR_NOINPUT,
                       "expected run folders, or folders of runs as that of a sweep; found "
                       "none in %s%s",
                       paths[0], count > 1 ? " and the others" : "");
    if (files > 0)
        TR_WARN("%d file%s left out, for only folders can be runs: %s%s", files,
                files > 1 ? "s are" : " is", file, files > 1 ? ", ..." : "");
    return TR_OK;
}

tr_status_t tr_runs_tell_apart(tr_runs_t *r) {
    for (size_t i = 0; i < r->records.count; i++) {
        tr_record_t *one = &r->records.data[i];
        const char *path = one->path, *end = path + strlen(path);
        bool is_alone = true;
        for (size_t k = 0; k < r->records.count; k++)
            is_alone &= k == i || strcmp(tr_file_name(r->records.data[k].name), one->name) != 0;
        while (end > path && end[-1] == '/') end--;
        const char *at = end;
        for (int slashes = 0; at > path && slashes < 2; at--)
            if (at[-1] == '/' && ++slashes == 2) break;
        if (is_alone || at == end || strchr(one->name, '/')) continue;
        char *longer = NULL;
        tr_str_t text = {0};
        tr_str_append_bytes(&text, at, (size_t)(end - at));
        TR_TRY(tr_str_take(&text, &longer));
        tr_free(&one->name);
        one->name = longer;
    }
    return TR_OK;
}

tr_status_t tr_runs_read(char *const *paths, size_t count, const tr_asked_t *asked,
                         tr_runs_t *out) {
    *out = (tr_runs_t){.asked = *asked};
    const tr_status_t status = runs_add_all(out, paths, count);
    if (status != TR_OK) tr_runs_free(out);
    return status;
}

void tr_runs_free(tr_runs_t *r) {
    for (size_t i = 0; i < r->records.count; i++) tr_record_free(&r->records.data[i]);
    for (size_t i = 0; i < r->paths.count; i++) tr_free(&r->paths.data[i]);
    tr_vec_free(&r->records);
    tr_vec_free(&r->paths);
}
