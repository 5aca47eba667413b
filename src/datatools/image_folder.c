/* Lists the images in folders, one per class. */
#include "image_folder.h"
#include "base/file.h"
#include "base/str.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* -- folders in a folder ----------------------------------------------------------------------- */

static tr_status_t folders_read(const char *folder, tr_entries_t *out) {
    char path[4096];
    int kept = 0;
    TR_TRY(tr_entries_read(folder, out));
    for (int i = 0; i < out->count; i++) {
        struct dirent *entry = out->entry[i];
        if (entry->d_type != DT_REG && tr_left_out_kind(entry->d_name) != TR_LEFT_HIDDEN &&
            tr_path_join(folder, entry->d_name, path) == TR_OK && tr_is_folder(path))
            out->entry[kept++] = entry;
        else
            free(entry);
    }
    out->count = kept;
    return TR_OK;
}

static bool folder_has_folders(const char *path) {
    tr_entries_t names = {0};
    const bool found = folders_read(path, &names) == TR_OK && names.count > 0;
    tr_entries_free(&names);
    return found;
}

/* -- which of them are groups ------------------------------------------------------------------ */

/* [TR_PICTURES_GROUPS]: the name of the folder of a group; NULL: none */
typedef const char *parts_t[TR_PICTURES_GROUPS];

static int group_of(const char *name) {
    static const struct {
        const char *name;
        int group;
    } groups[] = {{"train", TR_PICTURES_TRAIN},      {"training", TR_PICTURES_TRAIN},
                  {"valid", TR_PICTURES_VALID},      {"val", TR_PICTURES_VALID},
                  {"validation", TR_PICTURES_VALID}, {"dev", TR_PICTURES_VALID},
                  {"test", TR_PICTURES_TEST},        {"testing", TR_PICTURES_TEST}};
    for (size_t i = 0; i < TR_COUNT(groups); i++)
        if (strcasecmp(groups[i].name, name) == 0) return groups[i].group;
    return -1;
}

/* TR_ERR_DATA if the folders are named as training data and as data to validate or test, although
 * they stand where classes do. */
static tr_status_t groups_are_no_classes(const char *folder, const tr_entries_t *names) {
    parts_t named = {NULL};
    for (int i = 0; i < names->count; i++) {
        const char *name = names->entry[i]->d_name;
        char word[16]; /* "train2017" and "test1" are no classes, either */
        snprintf(word, sizeof word, "%.*s", (int)strcspn(name, "0123456789"), name);
        const int group = group_of(word);
        if (group >= 0) named[group] = name;
    }
    const char *other =
        named[TR_PICTURES_VALID] ? named[TR_PICTURES_VALID] : named[TR_PICTURES_TEST];
    if (!named[TR_PICTURES_TRAIN] || !other) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s' has the folders '%s' and '%s', which are no classes by their names. "
                   "Expected a folder per class in each of them (FOLDER/%s/CLASS/FILE).",
                   folder, named[TR_PICTURES_TRAIN], other, named[TR_PICTURES_TRAIN]);
}

/* A folder of a group has folders in it, of the classes; a class of that name has its images. */
static tr_status_t groups_find(const char *folder, const tr_entries_t *names, parts_t out) {
    char path[4096];
    for (int i = 0; i < names->count; i++) {
        const char *name = names->entry[i]->d_name;
        const int group = group_of(name);
        TR_TRY(tr_path_join(folder, name, path));
        if (group < 0 || !folder_has_folders(path)) continue;
        if (out[group])
            return TR_FAIL(TR_ERR_DATA,
                           "'%s' has the folders '%s' and '%s', which are both named as the same "
                           "group. Remove or merge one of them.",
                           folder, out[group], name);
        out[group] = name;
    }
    const char *other = out[TR_PICTURES_VALID] ? out[TR_PICTURES_VALID] : out[TR_PICTURES_TEST];
    if (out[TR_PICTURES_TRAIN]) return TR_OK;
    if (!other) return groups_are_no_classes(folder, names);
    return TR_FAIL(
        TR_ERR_DATA,
        "'%s' has the folder '%s' with folders in it, as validation or test data, but "
        "no folder 'train'. Expected FOLDER/train/CLASS/FILE; if '%s' is a class, rename "
        "it.",
        folder, other, other);
}

/* Counts the images in a folder that is of no group. Without a folder for validation or a test, it
 * may be a class, and `train` another one. */
static tr_status_t groups_count_other(const char *folder, const char *path, const parts_t parts,
                                      tr_left_out_t *left) {
    const char *train = parts[TR_PICTURES_TRAIN];
    tr_pictures_t pictures = {0};
    tr_status_t status = tr_pictures_below(path, 0, &pictures, left);
    if (status == TR_OK && pictures.count > 0) {
        tr_left_out_add(left, TR_LEFT_CLASSLESS, pictures.data[0].path, (int64_t)pictures.count);
        if (!parts[TR_PICTURES_VALID] && !parts[TR_PICTURES_TEST])
            status = TR_FAIL(
                TR_ERR_DATA,
                "'%s' has the folder '%s' with folders in it, as training data, and "
                "'%s' with images, as if both were classes. Import '%s/%s' alone (`trainer "
                "predict` reads the other images), or move '%s' to another place; if '%s' is "
                "a class, rename it.",
                folder, train, path, folder, train, path, train);
    }
    tr_pictures_free(&pictures);
    return status;
}

static tr_status_t groups_count_others(const char *folder, const parts_t parts,
                                       tr_left_out_t *left) {
    char path[4096];
    tr_entries_t names = {0};
    tr_status_t status = tr_entries_read(folder, &names);
    for (int i = 0; i < names.count && status == TR_OK; i++) {
        const char *name = names.entry[i]->d_name;
        const int group = group_of(name), kind = tr_left_out_kind(name);
        status = tr_path_join(folder, name, path);
        if (status != TR_OK || (group >= 0 && parts[group] && strcmp(parts[group], name) == 0))
            continue;
        if (kind != TR_LEFT_HIDDEN && tr_is_folder(path))
            status = groups_count_other(folder, path, parts, left);
        else
            tr_left_out_add(left, kind, path, 1);
    }
    tr_entries_free(&names);
    return status;
}

/* -- classes ----------------------------------------------------------------------------------- */

/* The label of a class; of the training data, a new one for a new name. */
static tr_status_t class_find(const char *path, tr_image_folder_t *out, int group, int *label) {
    const char *name = tr_file_name(path);
    const int classes = (int)out->class_name.count;
    char *copy = NULL;
    *label = 0;
    while (*label < classes && strcmp(out->class_name.data[*label], name) != 0) ++*label;
    if (*label < classes) return TR_OK;
    if (group != TR_PICTURES_TRAIN)
        return TR_FAIL(TR_ERR_DATA, "'%s': the training data has no class '%s'.", path, name);
    TR_TRY(tr_strdup(name, &copy));
    const tr_status_t status = tr_vec_push(&out->class_name, copy);
    if (status != TR_OK) tr_free(&copy);
    return status;
}

static tr_status_t class_add(const char *path, tr_image_folder_t *out, int group,
                             tr_left_out_t *left) {
    const size_t before = out->group[group].count;
    tr_entries_t inside = {0};
    int label;
    TR_TRY(class_find(path, out, group, &label));
    tr_status_t status = folders_read(path, &inside);
    if (status == TR_OK) status = groups_are_no_classes(path, &inside);
    tr_entries_free(&inside);
    TR_TRY(status);
    TR_TRY(tr_pictures_below(path, label, &out->group[group], left));
    if (out->group[group].count > before) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s' has no .jpg, .jpeg or .png files. Expected a folder per class with its "
                   "images; remove the folder if it is not a class.",
                   path);
}

/* TR_ERR_DATA if the two classes are named as images and as their masks. */
static tr_status_t classes_are_no_masks(const char *folder, const tr_image_folder_t *found) {
    static const char images[] = "image images img imgs input inputs picture pictures photo photos",
                      masks[] = "mask masks label labels annotation annotations segmentation "
                                "segmentations groundtruth ground_truth gt target targets";
    char *const *name = found->class_name.data;
    for (int i = 0; i < 2 && found->class_name.count == 2; i++)
        if (tr_has_word(images, name[i]) && tr_has_word(masks, name[1 - i]))
            return TR_FAIL(TR_ERR_DATA,
                           "'%s' has the folders '%s' and '%s', which are images and their masks "
                           "by their names. Expected a folder per class. For a label of each "
                           "position, write both to an HDF5 file as x and y; if these are classes, "
                           "rename the folders.",
                           folder, name[i], name[1 - i]);
    return TR_OK;
}

/* The folder of a group: every folder in it is a class, which must also be in the training data. */
static tr_status_t group_add(const char *folder, tr_image_folder_t *out, int group,
                             tr_left_out_t *left) {
    tr_entries_t names = {0};
    char path[4096];
    tr_status_t status = tr_entries_read(folder, &names);
    for (int i = 0; i < names.count && status == TR_OK; i++) {
        const int kind = tr_left_out_kind(names.entry[i]->d_name);
        status = tr_path_join(folder, names.entry[i]->d_name, path);
        if (status == TR_OK && kind != TR_LEFT_HIDDEN && tr_is_folder(path))
            status = class_add(path, out, group, left);
        else if (status == TR_OK)
            tr_left_out_add(left, kind, path, 1);
    }
    tr_entries_free(&names);
    TR_TRY(status);
    if (out->group[group].count == 0)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' has no folders. Expected a folder per class with its images.", folder);
    if (group != TR_PICTURES_TRAIN) return TR_OK;
    if (out->class_name.count > 1) return classes_are_no_masks(folder, out);
    TR_TRY(tr_path_join(folder, out->class_name.data[0], path));
    if (!folder_has_folders(path)) return TR_OK;
    return TR_FAIL(
        TR_ERR_DATA,
        "'%s' has one folder, '%s', which would be the only class, and which has folders "
        "in it: import '%s' itself.",
        folder, out->class_name.data[0], path);
}

static tr_status_t image_folder_list(const char *folder, const tr_entries_t *names,
                                     tr_image_folder_t *out, tr_left_out_t *left) {
    char path[4096];
    parts_t parts = {NULL};
    TR_TRY(groups_find(folder, names, parts));
    if (!parts[TR_PICTURES_TRAIN]) return group_add(folder, out, TR_PICTURES_TRAIN, left);
    TR_TRY(groups_count_others(folder, parts, left));
    for (int group = 0; group < TR_PICTURES_GROUPS; group++) {
        if (!parts[group]) continue;
        TR_TRY(tr_path_join(folder, parts[group], path));
        TR_TRY(group_add(path, out, group, left));
    }
    return TR_OK;
}

tr_status_t tr_image_folder_list(const char *folder, tr_image_folder_t *out) {
    tr_entries_t names = {0};
    tr_left_out_t *left = NULL;
    tr_status_t status;
    *out = (tr_image_folder_t){0};
    TR_TRY(tr_alloc(sizeof *left, "images", &left));
    status = folders_read(folder, &names);
    if (status == TR_OK) status = image_folder_list(folder, &names, out, left);
    tr_left_out_say(left, folder);
    tr_entries_free(&names);
    tr_free(&left);
    return status;
}

void tr_image_folder_free(tr_image_folder_t *folder) {
    for (size_t i = 0; i < folder->class_name.count; i++) tr_free(&folder->class_name.data[i]);
    tr_vec_free(&folder->class_name);
    for (int g = 0; g < TR_PICTURES_GROUPS; g++) tr_pictures_free(&folder->group[g]);
}
