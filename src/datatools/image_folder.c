/* Lists the images in folders, one per class. */
#include "image_folder.h"
#include "base/file.h"
#include "data/image.h"
#include "trainer/log.h"
#include "base/str.h"

#include <dirent.h>
#include <string.h>

/* -- one class --------------------------------------------------------------------------------- */

static tr_status_t pictures_add_files(const char *folder, int label, tr_pictures_t *out,
                                      int group) {
    tr_entries_t names = {0};
    char path[4096] = "", other[4096] = "";
    int64_t others = 0;
    const size_t before = out->group[group].count;
    tr_status_t status = tr_entries_read(folder, &names);
    for (int i = 0; i < names.count && status == TR_OK; i++) {
        tr_picture_t picture = {.label = label};
        status = tr_path_join(folder, names.entry[i]->d_name, path);
        if (status != TR_OK) break;
        if (!tr_image_is_named(path) || tr_is_folder(path)) {
            if (others++ == 0) memcpy(other, path, sizeof other);
            continue;
        }
        status = tr_strdup(path, &picture.path);
        if (status == TR_OK) status = tr_vec_push(&out->group[group], picture);
    }
    tr_entries_free(&names);
    TR_TRY(status);
    if (others > 0)
        TR_WARN("'%s': left out %lld entries that are not .jpg, .jpeg or .png files, such as '%s'",
                folder, (long long)others, other);
    if (out->group[group].count > before) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s' has no .jpg, .jpeg or .png files. Expected a folder per class with its "
                   "images; remove the folder if it is not a class.",
                   folder);
}

/* -- classes ----------------------------------------------------------------------------------- */

/* The folder of a group: every folder in it is a class, which must also be in the training data. */
static tr_status_t pictures_add_group(const char *folder, tr_pictures_t *out, int group) {
    tr_entries_t names = {0};
    char path[4096];
    tr_status_t status = tr_entries_read(folder, &names);
    for (int i = 0; i < names.count && status == TR_OK; i++) {
        const char *name = names.entry[i]->d_name;
        status = tr_path_join(folder, name, path);
        if (status != TR_OK || !tr_is_folder(path)) continue;
        const int classes = (int)out->class_name.count;
        int label = 0;
        while (label < classes && strcmp(out->class_name.data[label], name) != 0) label++;
        if (label == classes && group == TR_PICTURES_TRAIN) {
            char *copy = NULL;
            status = tr_strdup(name, &copy);
            if (status == TR_OK) status = tr_vec_push(&out->class_name, copy);
            if (status != TR_OK) tr_free(&copy);
        } else if (label == classes) {
            status = TR_FAIL(TR_ERR_DATA, "'%s': the training data has no class '%s'.", path, name);
        }
        if (status == TR_OK) status = pictures_add_files(path, label, out, group);
    }
    tr_entries_free(&names);
    TR_TRY(status);
    if (out->group[group].count > 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "'%s' has no folders. Expected a folder per class with its images.",
                   folder);
}

/* Whether `path` is a folder with folders in it: a group, not a class. */
static bool folder_has_folders(const char *path) {
    tr_entries_t names = {0};
    char inner[4096];
    bool found = false;
    if (!tr_is_folder(path) || tr_entries_read(path, &names) != TR_OK) return false;
    for (int i = 0; i < names.count && !found; i++)
        found = tr_path_join(path, names.entry[i]->d_name, inner) == TR_OK && tr_is_folder(inner);
    tr_entries_free(&names);
    return found;
}

tr_status_t tr_pictures_list(const char *folder, tr_pictures_t *out) {
    static const struct {
        const char *name;
        int group;
    } splits[] = {{"train", TR_PICTURES_TRAIN},
                  {"valid", TR_PICTURES_VALID},
                  {"val", TR_PICTURES_VALID},
                  {"validation", TR_PICTURES_VALID},
                  {"test", TR_PICTURES_TEST}};
    char path[4096];
    *out = (tr_pictures_t){0};
    TR_TRY(tr_path_join(folder, splits[0].name, path));
    if (!folder_has_folders(path)) return pictures_add_group(folder, out, TR_PICTURES_TRAIN);
    for (size_t i = 0; i < TR_COUNT(splits); i++) {
        TR_TRY(tr_path_join(folder, splits[i].name, path));
        if (folder_has_folders(path) && out->group[splits[i].group].count == 0)
            TR_TRY(pictures_add_group(path, out, splits[i].group));
    }
    return TR_OK;
}

void tr_pictures_free(tr_pictures_t *pictures) {
    for (size_t i = 0; i < pictures->class_name.count; i++) tr_free(&pictures->class_name.data[i]);
    tr_vec_free(&pictures->class_name);
    for (int g = 0; g < TR_PICTURES_GROUPS; g++) {
        for (size_t i = 0; i < pictures->group[g].count; i++)
            tr_free(&pictures->group[g].data[i].path);
        tr_vec_free(&pictures->group[g]);
    }
}
