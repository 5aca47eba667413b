/* Writes the files of --out. */
#include "out_folder.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/mem.h"

#include <errno.h>
#include <unistd.h>

tr_status_t tr_out_folder_make(const char *dir) {
    if (!*dir) return TR_FAIL(TR_ERR_USAGE, "--out requires the name of a folder");
    if (!tr_make_folders(dir)) return tr_io_fail("create", dir, errno);
    if (!tr_is_folder(dir))
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
