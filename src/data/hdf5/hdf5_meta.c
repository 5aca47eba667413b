/* Attributes of the data: mean and std, number of classes, and names. Texts beside the inputs. */
#include "hdf5_source.h"
#include <stdio.h>
#include <string.h>

#define NAMES_MAX (1 << 20) /* limit of a list; a longer one is ignored */

typedef enum { OF_INPUTS, OF_LABELS } whose_t;

/* What may have the attributes: the data sets, their group and the files. */
typedef struct {
    char group[258];
    struct {
        hid_t file;
        const char *path;
        whose_t whose;
    } of[5];
} meta_objects_t;

static void meta_find_objects(const h5_part_t *part, meta_objects_t *out) {
    const hid_t file = part->file.id, y_file = part->y_file.path ? part->y_file.id : file;
    const meta_objects_t objects = {.of = {{file, part->x.name, OF_INPUTS},
                                           {y_file, part->has_y ? part->y.name : "/", OF_LABELS},
                                           {file, out->group, OF_INPUTS},
                                           {file, "/", OF_INPUTS},
                                           {y_file, "/", OF_LABELS}}};
    *out = objects;
    snprintf(out->group, sizeof out->group, "/%s", part->names->scope);
}

/* Opens an attribute; negative if there is none. Attributes of the labels do not describe the
 * inputs. */
static hid_t meta_attribute_of(const h5_part_t *part, whose_t whose, const char *name) {
    meta_objects_t objects;
    meta_find_objects(part, &objects);
    for (size_t i = 0; i < TR_COUNT(objects.of); i++)
        if (objects.of[i].whose <= whose &&
            H5Aexists_by_name(objects.of[i].file, objects.of[i].path, name, H5P_DEFAULT) > 0)
            return H5Aopen_by_name(objects.of[i].file, objects.of[i].path, name, H5P_DEFAULT,
                                   H5P_DEFAULT);
    return -1;
}

static herr_t meta_note(hid_t object, const char *name, const H5A_info_t *info, void *found) {
    static const char *const names[] = {"mean",    "std",         "class_names",
                                        "classes", "label_names", "feature_names"};
    for (size_t i = 0; i < TR_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) *(bool *)found = true;
    return 0;
}

bool tr_h5_has_meta(const h5_part_t *part) {
    meta_objects_t objects;
    bool found = false;
    meta_find_objects(part, &objects);
    for (size_t i = 0; i < TR_COUNT(objects.of) && !found; i++)
        H5Aiterate_by_name(objects.of[i].file, objects.of[i].path, H5_INDEX_NAME, H5_ITER_NATIVE,
                           NULL, meta_note, &found, H5P_DEFAULT);
    return found;
}

static int64_t meta_attribute_elems(hid_t attribute) {
    hid_t space = H5Aget_space(attribute);
    int64_t elems = H5Sget_simple_extent_npoints(space);
    H5Sclose(space);
    return elems;
}

static bool meta_attribute_numbers(hid_t attribute) {
    hid_t type = H5Aget_type(attribute);
    H5T_class_t class = H5Tget_class(type);
    H5Tclose(type);
    return class == H5T_FLOAT || class == H5T_INTEGER;
}

static bool meta_fits(int64_t elems, int64_t channels) {
    return elems > 0 && (elems == 1 || elems == channels);
}

/* Reads one number, or one per channel, from the attribute `name`; *out stays empty if none fits.
 * *out_elems: the size of the attribute. */
static tr_status_t meta_attribute_moments(const h5_part_t *part, int64_t channels, const char *name,
                                          tr_floats_t *out, int64_t *out_elems) {
    hid_t attribute = meta_attribute_of(part, OF_INPUTS, name);
    tr_status_t status = TR_OK;
    *out_elems = 0;
    if (attribute < 0) return TR_OK;
    *out_elems = meta_attribute_numbers(attribute) ? meta_attribute_elems(attribute) : 0;
    if (meta_fits(*out_elems, channels)) {
        status = tr_vec_reserve_(&out->data, &out->capacity, (size_t)*out_elems, sizeof *out->data);
        if (status == TR_OK && H5Aread(attribute, H5T_NATIVE_FLOAT, out->data) >= 0)
            out->count = (size_t)*out_elems;
    }
    H5Aclose(attribute);
    return status;
}

static void meta_say_unfit(const h5_part_t *part, int64_t channels, const char *name, int64_t elems,
                           char out[H5_SENTENCE_BYTES]) {
    snprintf(out, H5_SENTENCE_BYTES,
             "%s: the attribute '%s' has %lld numbers, but /%s has %lld channel%s: it is ignored. "
             "Expected one number, or one per channel",
             part->file.path, name, (long long)elems, part->names->x, (long long)channels,
             channels == 1 ? "" : "s");
}

static bool meta_are_unlike(const tr_floats_t *first, const tr_floats_t *other) {
    return other->count > 0 &&
           (other->count != first->count ||
            memcmp(first->data, other->data, other->count * sizeof *other->data) != 0);
}

static tr_status_t meta_say_unlike(const h5_parts_t *parts, int64_t channels, const char *name,
                                   char out[H5_SENTENCE_BYTES]) {
    tr_floats_t first = {0};
    int64_t elems, others;
    tr_status_t status = meta_attribute_moments(&parts->data[0], channels, name, &first, &elems);
    if (status == TR_OK && elems > 0 && !meta_fits(elems, channels))
        meta_say_unfit(&parts->data[0], channels, name, elems, out);
    for (int p = 1; p < parts->count && status == TR_OK && !*out; p++) {
        tr_floats_t other = {0};
        if (!parts->data[p].has_meta) continue;
        TR_TRY_GOTO(tr_h5_part_wake(&parts->data[p]), done);
        status = meta_attribute_moments(&parts->data[p], channels, name, &other, &others);
        tr_h5_part_rest(parts, &parts->data[p]);
        if (status == TR_OK && meta_are_unlike(&first, &other))
            snprintf(out, H5_SENTENCE_BYTES,
                     "%s has a different attribute '%s' than %s, %s: set data.mean and data.std to "
                     "choose other values",
                     parts->data[p].file.path, name, parts->data[0].file.path,
                     first.count ? "whose values apply to all files"
                                 : "which has none, so it is ignored");
        tr_vec_free(&other);
    }
done:
    tr_vec_free(&first);
    return status;
}

tr_status_t tr_h5_doubtful_moments(const h5_parts_t *parts, int64_t channels,
                                   const tr_data_settings_t *settings,
                                   char out[H5_SENTENCE_BYTES]) {
    *out = '\0';
    if (tr_data_is_auto(settings->mean)) TR_TRY(meta_say_unlike(parts, channels, "mean", out));
    return tr_data_is_auto(settings->std) && !*out ? meta_say_unlike(parts, channels, "std", out)
                                                   : TR_OK;
}

tr_status_t tr_h5_moments(const h5_part_t *part, int64_t channels, tr_dataset_info_t *info) {
    int64_t elems;
    TR_TRY(meta_attribute_moments(part, channels, "mean", &info->mean, &elems));
    return meta_attribute_moments(part, channels, "std", &info->std, &elems);
}

/* Strings of fixed or variable length, as our own copies. */
static tr_status_t hdf5_meta_read_names(hid_t attribute, int64_t count, const char *path,
                                        char **out) {
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    size_t bytes = H5Tget_size(type);
    bool variable = H5Tis_variable_str(type) > 0, padded = H5Tget_strpad(type) == H5T_STR_SPACEPAD;
    char *data = NULL;
    tr_status_t status =
        tr_alloc((size_t)count * (variable ? sizeof(char *) : bytes + 1), "names", &data);
    bool read = status == TR_OK && H5Aread(attribute, type, data) >= 0;
    if (status == TR_OK && !read)
        status = H5_FAIL(TR_ERR_DATA,
                         "%s: cannot read an attribute with names; the file is damaged", path);
    for (int64_t i = 0; i < count && status == TR_OK; i++) {
        char text[256];
        const char *name = variable ? ((char **)data)[i] : data + (size_t)i * bytes;
        snprintf(text, sizeof text, "%.*s", variable ? 255 : (int)bytes, name ? name : "");
        for (size_t end = strlen(text); padded && end > 0 && text[end - 1] == ' ';)
            text[--end] = '\0';
        status = tr_strdup(text, &out[i]);
    }
    if (read && variable) H5Dvlen_reclaim(type, space, H5P_DEFAULT, data);
    tr_free(&data);
    H5Sclose(space);
    H5Tclose(type);
    return status;
}

/* Opens a data set of the group of the inputs; negative if there is none. */
static hid_t hdf5_meta_open_texts(const h5_part_t *part, const char *name) {
    char path[512];
    const char *x = part->names->x;
    snprintf(path, sizeof path, "%.*s%s", (int)(tr_file_name(x) - x), x, name);
    return H5Lexists(part->file.id, path, H5P_DEFAULT) > 0 &&
                   H5Oexists_by_name(part->file.id, path, H5P_DEFAULT) > 0
               ? H5Dopen2(part->file.id, path, H5P_DEFAULT)
               : -1;
}

bool tr_h5_has_texts(const h5_part_t *part, const char *name) {
    hid_t id = hdf5_meta_open_texts(part, name);
    if (id < 0) return false;
    hid_t type = H5Dget_type(id), space = H5Dget_space(id);
    const bool found = H5Tget_class(type) == H5T_STRING && H5Sget_simple_extent_ndims(space) == 1 &&
                       H5Sget_simple_extent_npoints(space) == part->x.rows;
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(id);
    return found;
}

tr_status_t tr_h5_read_texts(const h5_part_t *part, const char *name, int64_t stride, char **out) {
    hid_t id = hdf5_meta_open_texts(part, name), type = H5Dget_type(id), space = H5Dget_space(id);
    const bool variable = H5Tis_variable_str(type) > 0;
    const bool padded = !variable && H5Tget_strpad(type) == H5T_STR_SPACEPAD;
    const size_t bytes = H5Tget_size(type); /* of a pointer if `variable` */
    char *data = NULL;
    tr_status_t status = tr_alloc((size_t)part->x.rows * bytes, name, &data);
    const bool read =
        status == TR_OK && H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (status == TR_OK && !read)
        status = H5_FAIL(TR_ERR_DATA, "%s: cannot read the strings '%s'", part->file.path, name);
    for (int64_t i = 0; i < part->x.rows && status == TR_OK; i++) {
        const char *text = variable ? ((char **)data)[i] : data + (size_t)i * bytes;
        size_t length = text ? strnlen(text, variable ? SIZE_MAX : bytes) : 0;
        while (padded && length > 0 && text[length - 1] == ' ') length--;
        status = tr_alloc(length + 1, name, &out[i * stride]);
        if (status == TR_OK && length > 0) memcpy(out[i * stride], text, length);
    }
    if (read && variable) H5Dvlen_reclaim(type, space, H5P_DEFAULT, data);
    tr_free(&data);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(id);
    return status;
}

int64_t tr_h5_attribute_classes(const h5_part_t *part) {
    int64_t classes = -1;
    hid_t attribute = meta_attribute_of(part, OF_LABELS, "classes");
    if (attribute < 0) return -1;
    if (meta_attribute_numbers(attribute) && meta_attribute_elems(attribute) == 1)
        H5Aread(attribute, H5T_NATIVE_INT64, &classes);
    H5Aclose(attribute);
    return classes >= 0 && classes <= INT32_MAX ? classes : -1;
}

int64_t tr_h5_attribute_whole(const h5_part_t *part, const char *name) {
    int64_t value = -1;
    double number;
    hid_t attribute = meta_attribute_of(part, OF_INPUTS, name);
    if (attribute < 0) return -1;
    if (meta_attribute_numbers(attribute) && meta_attribute_elems(attribute) == 1 &&
        H5Aread(attribute, H5T_NATIVE_DOUBLE, &number) >= 0 && number >= 0 && number <= INT32_MAX)
        value = (int64_t)number;
    H5Aclose(attribute);
    return value;
}

tr_status_t tr_h5_attribute_text(const h5_part_t *part, const char *name, char **out) {
    hid_t attribute = meta_attribute_of(part, OF_INPUTS, name);
    *out = NULL;
    if (attribute < 0) return TR_OK;
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    char *text = NULL;
    tr_status_t status = TR_OK;
    if (H5Tis_variable_str(type) > 0 && meta_attribute_elems(attribute) == 1 &&
        H5Aread(attribute, type, &text) >= 0 && text) {
        status = tr_strdup(text, out);
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, &text);
    }
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    return status;
}

tr_status_t tr_h5_names(const h5_part_t *part, int list, tr_names_t *out) {
    static const struct {
        whose_t whose;
        const char *name[3];
    } lists[TR_NAMES_LISTS] = {
        [TR_NAMES_CLASSES] = {OF_LABELS, {"class_names", "classes", "label_names"}},
        [TR_NAMES_INPUTS] = {OF_INPUTS, {"feature_names"}},
    };
    for (size_t i = 0; i < TR_COUNT(lists[list].name) && lists[list].name[i] && !out->count; i++) {
        hid_t attribute = meta_attribute_of(part, lists[list].whose, lists[list].name[i]);
        if (attribute < 0) continue;
        const int64_t count = meta_attribute_elems(attribute);
        hid_t type = H5Aget_type(attribute);
        tr_status_t status = TR_OK;
        const int64_t most = list == TR_NAMES_INPUTS ? part->x.row_elems : NAMES_MAX;
        if (H5Tget_class(type) == H5T_STRING && count > 0 && count <= most) {
            status = tr_alloc((size_t)count * sizeof *out->name, "names", &out->name);
            if (status == TR_OK) *out = (tr_names_t){out->name, count, part->file.path};
            if (status == TR_OK)
                status = hdf5_meta_read_names(attribute, count, part->file.path, out->name);
        }
        H5Tclose(type);
        H5Aclose(attribute);
        TR_TRY(status);
    }
    return TR_OK;
}
