/* Writes the files of --out. */
#include "out_folder.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tr_status_t tr_out_folder_make(const char *dir) {
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

tr_status_t tr_out_folder_check(const char *dir) {
    static const char *const files[] = {"config.ini", "metrics.jsonl", "sessions.jsonl"};
    for (size_t i = 0; i < TR_COUNT(files); i++) {
        char path[4096];
        TR_TRY(tr_path_join(dir, files[i], path));
        if (access(path, F_OK) == 0)
            return TR_FAIL(TR_ERR_USAGE, "--out %s is a run folder; choose another folder", dir);
    }
    return TR_OK;
}

tr_status_t tr_out_folder_write(const char *dir, const char *name, const tr_str_t *text) {
    char path[4096];
    TR_TRY(tr_path_join(dir, name, path));
    TR_TRY(text->status);
    return tr_replace_file(path, text->text, text->length, TR_REPLACE_LINKED);
}
