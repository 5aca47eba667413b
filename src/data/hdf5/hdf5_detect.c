/* Finds the inputs and labels of a split in a file by their usual names: in a group named after the
 * split (train/x), at the root with the split in the name (x_train, train_images, train_set_x), or
 * at the root. */
#include "hdf5_source.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char *const x_names[] = {"x",       "images", "image",        "data",   "features",
                                      "feature", "inputs", "input",        "fields", "field",
                                      "samples", "full",   "climate/data", NULL};
static const char *const y_names[] = {
    "y",       "labels",    "label",    "targets", "target",           "class",
    "classes", "responses", "response", "unitpar", "climate/labels_0", NULL};
static const char *const token_names[] = {"tokens", NULL};
/* In order of preference. A file with train and test but without valid validates on test. */
static const char *const aliases[][6] = {
    [TR_SPLIT_TRAIN] = {"train", "training", NULL},
    [TR_SPLIT_VALID] = {"valid", "val", "validation", "dev", "test", NULL},
    [TR_SPLIT_TEST] = {"test", "testing", NULL},
};

static const h5_entry_t *detect_entry_at(const h5_list_t *list, const char *path) {
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->data[i].path, path))
            return list->data[i].ndim < 0 ? NULL : &list->data[i];
    return NULL;
}

static bool detect_has_group(const h5_list_t *list, const char *group) {
    const size_t length = strlen(group);
    for (size_t i = 0; i < list->count; i++)
        if (!strncmp(list->data[i].path, group, length) && list->data[i].path[length] == '/')
            return true;
    return false;
}

bool tr_h5_has_numbers(const h5_entry_t *entry) {
    return entry->ndim >= 1 && (entry->type == H5T_INTEGER || entry->type == H5T_FLOAT ||
                                entry->type == H5T_ENUM || entry->type == H5T_BITFIELD);
}

/* Whether `name` is a usual name, or one combined with `alias` (NULL: none) in a usual way. */
static bool detect_usual(const char *name, const char *const *names, const char *alias) {
    static const char *const forms[] = {"%2$s_%1$s", "%1$s_%2$s", "%1$s_set_%2$s", "%2$s%1$s",
                                        NULL};
    for (; *names; names++) {
        char text[128];
        if (!alias && !strcasecmp(name, *names)) return true;
        for (int f = 0; alias && forms[f]; f++) {
            snprintf(text, sizeof text, forms[f], alias, *names);
            if (!strcasecmp(name, text)) return true;
        }
    }
    return false;
}

typedef struct {
    const h5_file_t *file;
    const h5_list_t *list;
    const h5_wanted_t *wanted;
} search_t;

/* Writes " (did you mean 'masks'?)", or nothing. */
static void detect_say_near(const search_t *s, const char *asked, char out[300]) {
    TR_VEC(const char *) names = {0};
    tr_status_t status = TR_OK;
    *out = '\0';
    for (size_t i = 0; i < s->list->count && status == TR_OK; i++)
        status = tr_vec_push(&names, tr_file_name(s->list->data[i].path));
    const char *near =
        status == TR_OK ? tr_nearest(tr_file_name(asked), names.data, names.count) : NULL;
    if (near) snprintf(out, 300, " (did you mean '%.256s'?)", near);
    tr_vec_free(&names);
}

static tr_status_t detect_fail_with_list(const search_t *s, tr_status_t code, const char *what) {
    tr_str_t text = {0};
    tr_h5_list_text(s->list, 20, &text);
    TR_FAIL(code, "%s: '%s': %s. In it: %s.", s->wanted->key, s->file->path, what,
            text.text ? text.text : "nothing");
    tr_str_free(&text);
    return code;
}

/* The one entry in `scope` with a usual name; *out NULL: none. */
static tr_status_t detect_find_usual(const search_t *s, const char *scope, const char *alias,
                                     const char *const *names, const char *key,
                                     const h5_entry_t **out) {
    char what[256];
    size_t length = strlen(scope);
    const h5_entry_t *other = NULL;
    *out = NULL;
    for (size_t i = 0; i < s->list->count; i++) {
        const h5_entry_t *entry = &s->list->data[i];
        const bool has_numbers = tr_h5_has_numbers(entry) ||
                                 (s->wanted->is_sample && names == y_names && entry->ndim == 0 &&
                                  (entry->type == H5T_INTEGER || entry->type == H5T_FLOAT));
        if (strncmp(entry->path, scope, length) || !has_numbers ||
            !detect_usual(entry->path + length, names, alias))
            continue;
        if (!alias && !strcmp(entry->path + length, names[0])) {
            *out = entry; /* the names x and y are not ambiguous */
            return TR_OK;
        }
        if (*out)
            other = entry;
        else
            *out = entry;
    }
    if (!other) return TR_OK;
    snprintf(what, sizeof what, "both '%.80s' and '%.80s' match; set %s", (*out)->path, other->path,
             key);
    return detect_fail_with_list(s, TR_ERR_CONFIG, what);
}

/* data.x or data.y as given: relative to the scope or, if allowed, to the root. */
static const h5_entry_t *detect_find_given(const search_t *s, const char *scope, const char *name,
                                           bool root) {
    char path[512];
    if (*name == '/') return root || !*scope ? detect_entry_at(s->list, name + 1) : NULL;
    snprintf(path, sizeof path, "%s%s", scope, name);
    const h5_entry_t *entry = detect_entry_at(s->list, path);
    return entry || !root ? entry : detect_entry_at(s->list, name);
}

/* A usual name in the scope, or else in the group of x. */
static tr_status_t detect_find_usual_y(const search_t *s, const char *scope, const char *alias,
                                       const h5_entry_t *x, const h5_entry_t **out) {
    char group[512];
    const char *slash = strrchr(x->path, '/');
    TR_TRY(detect_find_usual(s, scope, alias, y_names, "data.y", out));
    if (*out || !slash) return TR_OK;
    snprintf(group, sizeof group, "%.*s", (int)(slash - x->path) + 1, x->path);
    return detect_find_usual(s, group, NULL, y_names, "data.y", out);
}

/* The labels next to `x`; *out NULL: none. */
static tr_status_t detect_find_y(const search_t *s, const char *scope, const char *alias,
                                 const h5_entry_t *x, const h5_entry_t **out) {
    const h5_wanted_t *w = s->wanted;
    if (w->inputs_only) return TR_OK;
    if (!*w->y) return detect_find_usual_y(s, scope, alias, x, out);
    *out = detect_find_given(s, scope, w->y, true);
    return TR_OK;
}

/* A data set that is named like labels but is not numeric; NULL: none. */
static const h5_entry_t *detect_find_text_y(const search_t *s, const char *scope, const char *alias,
                                            const h5_entry_t *x) {
    const char *slash = strrchr(x->path, '/');
    const size_t length = strlen(scope), group = slash ? (size_t)(slash - x->path) + 1 : 0;
    for (size_t i = 0; i < s->list->count; i++) {
        const h5_entry_t *e = &s->list->data[i];
        if (e->type != H5T_STRING) continue;
        if ((!strncmp(e->path, scope, length) && detect_usual(e->path + length, y_names, alias)) ||
            (!strncmp(e->path, x->path, group) && detect_usual(e->path + group, y_names, NULL)))
            return e;
    }
    return NULL;
}

/* Of integers, one per sample. */
static bool detect_is_stream(const h5_entry_t *entry) {
    return entry->ndim == 1 && entry->type == H5T_INTEGER;
}

/* Searches one place; *out_found false: it has no inputs. */
static tr_status_t detect_look_in(const search_t *s, const char *scope, const char *alias,
                                  bool root, h5_names_t *out, bool *out_found) {
    const h5_wanted_t *w = s->wanted;
    const h5_entry_t *x = NULL, *y = NULL;
    if (*w->x)
        x = alias ? NULL : detect_find_given(s, scope, w->x, root);
    else
        TR_TRY(detect_find_usual(s, scope, alias, x_names, "data.x", &x));
    if (!x && !*w->x) TR_TRY(detect_find_usual(s, scope, alias, token_names, "data.x", &x));
    if (!x) return TR_OK;
    out->is_tokens =
        detect_is_stream(x) &&
        ((*w->x && w->tokens) || detect_usual(tr_file_name(x->path), token_names, alias));
    if (!out->is_tokens) TR_TRY(detect_find_y(s, scope, alias, x, &y));
    *out_found = true;
    const h5_entry_t *text = y || out->is_tokens ? NULL : detect_find_text_y(s, scope, alias, x);
    snprintf(out->text_y, sizeof out->text_y, "%s", text ? text->path : "");
    snprintf(out->x, sizeof out->x, "%s", x->path);
    snprintf(out->y, sizeof out->y, "%s", y ? y->path : "");
    snprintf(out->scope, sizeof out->scope, "%s", scope);
    const h5_entry_t *mask = y && *w->mask ? detect_find_given(s, scope, w->mask, true) : NULL;
    snprintf(out->mask, sizeof out->mask, "%s", mask ? mask->path : "");
    return TR_OK;
}

static tr_status_t detect_look_in_split(const search_t *s, tr_split_t split, h5_names_t *out,
                                        bool *out_found) {
    char scope[256];
    for (const char *const *alias = aliases[split]; *alias && !*out_found; alias++) {
        snprintf(scope, sizeof scope, "%s/", *alias);
        TR_TRY(detect_look_in(s, scope, NULL, false, out, out_found));
        if (!*out_found) TR_TRY(detect_look_in(s, "", *alias, false, out, out_found));
    }
    return TR_OK;
}

/* Prediction accepts any split. */
static tr_status_t detect_look_everywhere(const search_t *s, h5_names_t *out, bool *out_found) {
    const h5_wanted_t *w = s->wanted;
    char scope[256];
    if (*w->group) {
        snprintf(scope, sizeof scope, "%s/", w->group);
        return detect_look_in(s, scope, NULL, true, out, out_found);
    }
    TR_TRY(detect_look_in_split(s, w->split, out, out_found));
    if (!*out_found && !w->implied) TR_TRY(detect_look_in(s, "", NULL, true, out, out_found));
    for (int split = 0; split < 3 && w->inputs_only && !*out_found; split++)
        TR_TRY(detect_look_in_split(s, (tr_split_t)split, out, out_found));
    return TR_OK;
}

/* An entry that is named like inputs but cannot be inputs, or the first one of a file without any
 * numbers: it is probably the intended one. NULL: none. */
static const h5_entry_t *detect_find_misfit(const h5_list_t *list) {
    const h5_entry_t *first = NULL;
    bool has_numbers = false;
    for (size_t i = 0; i < list->count; i++) {
        const h5_entry_t *entry = &list->data[i];
        const bool numbers = tr_h5_has_numbers(entry);
        if (!numbers && detect_usual(tr_file_name(entry->path), x_names, NULL)) return entry;
        if (!numbers && !first) first = entry;
        has_numbers = has_numbers || numbers;
    }
    return has_numbers ? NULL : first;
}

/* Writes the location of another split's inputs, and how to select them, to `what`. They are not
 * used unless selected. */
static tr_status_t detect_find_other_split(const search_t *s, char *what, size_t bytes,
                                           bool *out_found) {
    const char *own = aliases[s->wanted->split][0];
    h5_names_t other;
    *out_found = false;
    for (int split = 0; split < 3 && !*s->wanted->group && !*out_found; split++)
        TR_TRY(detect_look_in_split(s, (tr_split_t)split, &other, out_found));
    if (!*out_found) return TR_OK;
    other.scope[strcspn(other.scope, "/")] = '\0';
    if (*other.scope)
        snprintf(what, bytes, "it has no %s data, but has /%.200s; FILE:%.100s selects it", own,
                 other.x, other.scope);
    else
        snprintf(what, bytes, "it has no %s data, but has /%.200s; set data.x and data.y to use it",
                 own, other.x);
    return TR_OK;
}

static void detect_find_type_remedy(const h5_file_t *file, const h5_entry_t *entry, char out[512]) {
    hid_t id = entry->ndim < 0 ? -1 : H5Dopen2(file->id, entry->path, H5P_DEFAULT);
    snprintf(out, 512,
             entry->ndim == 0 ? "is a scalar, not an array with one row per sample"
                              : "cannot be read");
    if (id < 0) return;
    hid_t type = H5Dget_type(id);
    if (entry->ndim > 0) tr_h5_type_remedy(type, entry->path, out);
    H5Tclose(type);
    H5Dclose(id);
}

static tr_status_t detect_fail(const search_t *s) {
    const h5_wanted_t *wanted = s->wanted;
    const h5_entry_t *misfit = *wanted->x ? NULL : detect_find_misfit(s->list);
    char what[1024], near[300];
    bool other;
    if (!*wanted->x && tr_h5_foreign(s->file, s->list, what))
        return detect_fail_with_list(s, TR_ERR_DATA, what);
    if (misfit) {
        char found[512];
        detect_find_type_remedy(s->file, misfit, found);
        snprintf(what, sizeof what, "/%.200s %s. data.x selects another data set", misfit->path,
                 found);
        return detect_fail_with_list(s, TR_ERR_DATA, what);
    }
    TR_TRY(detect_find_other_split(s, what, sizeof what, &other));
    if (other) return detect_fail_with_list(s, TR_ERR_NOINPUT, what);
    if (*wanted->group && !detect_has_group(s->list, wanted->group))
        snprintf(what, sizeof what, "no group '%.200s'", wanted->group);
    else if (*wanted->x) {
        detect_say_near(s, wanted->x, near);
        snprintf(what, sizeof what, "no data set '%.200s' (data.x)%s%.100s%s", wanted->x,
                 *wanted->group ? " in group " : "", wanted->group, near);
    } else if (*wanted->group)
        snprintf(what, sizeof what,
                 "the group '%.200s' has no data set with a common name for inputs (x, images, "
                 "data, features, ...); set data.x",
                 wanted->group);
    else
        snprintf(what, sizeof what,
                 "no data set has a common name for inputs (x, images, data, features, ...); set "
                 "data.x");
    return detect_fail_with_list(s, TR_ERR_NOINPUT, what);
}

tr_status_t tr_h5_detect(const h5_file_t *file, const h5_list_t *list, const h5_wanted_t *wanted,
                         h5_names_t *out, bool *out_found) {
    const search_t s = {file, list, wanted};
    *out_found = false;
    TR_TRY(detect_look_everywhere(&s, out, out_found));
    char what[1024];
    if (*out_found && tr_h5_foreign_inputs(file, list, out->x, what))
        return detect_fail_with_list(&s, TR_ERR_DATA, what);
    return *out_found || wanted->implied ? TR_OK : detect_fail(&s);
}

bool tr_h5_labels_are_text(const h5_names_t *names, char out[512]) {
    snprintf(out, 512,
             "/%s holds text, not numbers; store integers from 0 instead, and the class names in "
             "the attribute class_names of the file",
             names->text_y);
    return *names->text_y;
}

tr_status_t tr_h5_detect_labels(const h5_file_t *file, const h5_list_t *list,
                                const h5_wanted_t *wanted, h5_names_t *names) {
    search_t s = {file, list, wanted};
    const h5_entry_t *y = NULL,
                     *mask = *wanted->mask ? detect_find_given(&s, "", wanted->mask, true) : NULL;
    if (*wanted->y)
        y = detect_find_given(&s, "", wanted->y, true);
    else
        TR_TRY(detect_find_usual(&s, "", NULL, y_names, "data.y", &y));
    snprintf(names->y, sizeof names->y, "%s", y ? y->path : "");
    snprintf(names->mask, sizeof names->mask, "%s", mask ? mask->path : "");
    return TR_OK;
}

tr_status_t tr_h5_fail_mask(const h5_file_t *file, const h5_list_t *list,
                            const h5_wanted_t *wanted) {
    const search_t s = {file, list, wanted};
    char what[640], near[300];
    detect_say_near(&s, wanted->mask, near);
    snprintf(what, sizeof what, "no data set '%.200s' (data.mask) beside the labels%s",
             wanted->mask, near);
    return detect_fail_with_list(&s, TR_ERR_NOINPUT, what);
}

tr_status_t tr_h5_fail_labels(const h5_file_t *file, const h5_list_t *list,
                              const h5_wanted_t *wanted, const h5_names_t *names) {
    search_t s = {file, list, wanted};
    char what[768], near[300];
    const bool names_file = access(wanted->y, F_OK) == 0 || strstr(wanted->y, ".h5");
    detect_say_near(&s, wanted->y, near);
    snprintf(what, sizeof what, "no data set '%.200s' (data.y) beside '%.100s'%s", wanted->y,
             names->x,
             names_file ? "; data.y names a data set. A separate file of labels is found if the "
                          "two files are named NAME_x.h5 and NAME_y.h5 (links work)"
                        : near);
    return detect_fail_with_list(&s, TR_ERR_NOINPUT, what);
}
