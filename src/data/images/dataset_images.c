/* Image files as data sets of a trained model: those of a folder and of the folders in it, of a list,
 * or one file. They are decoded when they are read, to the size and the channels of the training. */
#include "image.h"
#include "pictures.h"
#include "data/preprocess/preprocess.h"
#include "data/shared.h"
#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_BYTES ((int64_t)1 << 30)

typedef struct {
    tr_dataset_t base;
    const char *root; /* the folder, the list or the file */
    bool is_list;     /* or a file, a list of one */
    tr_pictures_t pictures;
    TR_VEC(const char *) text; /* the paths from the folder, or from that of the list, on */
} images_t;

static const char *const text_name[] = {"file"};

bool tr_images_are_named(const char *path) {
    return tr_is_folder(path) || tr_path_ends_in(path, ".txt") || tr_image_is_named(path);
}

static void images_close(tr_dataset_t *dataset) {
    images_t *self = (images_t *)dataset;
    tr_pictures_free(&self->pictures);
    tr_vec_free(&self->text);
    for (int list = 0; list < TR_NAMES_LISTS; list++) tr_names_free(&dataset->info.names[list]);
    tr_free(&self);
}

/* -- which files ------------------------------------------------------------------------------- */

static tr_status_t images_add(images_t *self, const char *path) {
    tr_picture_t picture = {0};
    TR_TRY(tr_strdup(path, &picture.path));
    const tr_status_t status = tr_vec_push(&self->pictures, picture);
    if (status != TR_OK) tr_free(&picture.path);
    return status;
}

/* One path a line, from the folder of the list on. */
static tr_status_t images_list_lines(images_t *self, const char *list) {
    char *text = NULL, path[4096], folder[4096];
    int64_t bytes;
    snprintf(folder, sizeof folder, "%.*s", (int)(tr_file_name(list) - list), list);
    TR_TRY(tr_read_text(list, LIST_BYTES, &text, &bytes));
    tr_status_t status = TR_OK;
    char *begin = text + (strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0); /* a byte order mark */
    for (char *rest = begin, *line; status == TR_OK && (line = strsep(&rest, "\n"));) {
        line[strcspn(line, "\r")] = '\0';
        if (!*line) continue;
        snprintf(path, sizeof path, "%s%s", *line == '/' ? "" : folder, line);
        status = images_add(self, path);
    }
    tr_free(&text);
    return status;
}

/* The part of a path from the folder, or from that of the list, on. */
static const char *images_text(const images_t *self, const char *path) {
    const size_t folder =
        self->is_list ? (size_t)(tr_file_name(self->root) - self->root) : strlen(self->root);
    if (folder == 0 || strncmp(path, self->root, folder) != 0) return path;
    return path + folder + strspn(path + folder, "/");
}

/* Of a folder with folders, as in an import: the images beside them are of no class. */
static void images_leave_classless(images_t *self, tr_left_out_t *left) {
    tr_picture_t *picture = self->pictures.data;
    size_t kept = 0;
    for (size_t i = 0; i < self->pictures.count; i++)
        kept += strchr(images_text(self, picture[i].path), '/') != NULL;
    if (kept == 0) return;
    kept = 0;
    for (size_t i = 0; i < self->pictures.count; i++)
        if (strchr(images_text(self, picture[i].path), '/')) {
            picture[kept++] = picture[i];
        } else {
            tr_left_out_add(left, TR_LEFT_CLASSLESS, picture[i].path, 1);
            tr_free(&picture[i].path);
        }
    self->pictures.count = kept;
}

static tr_status_t images_list(images_t *self, bool inputs_only) {
    tr_left_out_t *left = NULL;
    if (self->is_list && tr_image_is_named(self->root)) {
        TR_TRY(images_add(self, self->root));
    } else if (self->is_list) {
        TR_TRY(images_list_lines(self, self->root));
    } else {
        TR_TRY(tr_alloc(sizeof *left, "images", &left));
        const tr_status_t status = tr_pictures_below(self->root, 0, &self->pictures, left);
        if (status == TR_OK && !inputs_only) images_leave_classless(self, left);
        tr_left_out_say(left, self->root);
        tr_free(&left);
        TR_TRY(status);
    }
    if (self->pictures.count > 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s' has no images: expected a .jpg, .jpeg or .png file, a folder with "
                   "such files, or a list of them in a .txt file, one path a line.",
                   self->root);
}

/* -- one file ---------------------------------------------------------------------------------- */

static tr_status_t images_read(tr_dataset_t *dataset, int64_t first, int64_t count,
                               void *const *dst) {
    const images_t *self = (const images_t *)dataset;
    const int64_t *dim = dataset->info.field[0].shape.dim,
                  bytes = dataset->info.field[0].sample_bytes;
    for (int64_t i = 0; dst[0] && i < count; i++) {
        tr_image_t image;
        TR_TRY(tr_image_read(self->pictures.data[first + i].path, (int)dim[2], &image));
        const tr_status_t status =
            tr_image_resize(&image, dim[0], dim[1], (uint8_t *)dst[0] + i * bytes);
        tr_image_free(&image);
        TR_TRY(status);
    }
    for (int64_t i = 0; dataset->info.field_count > 1 && dst[1] && i < count; i++)
        ((int32_t *)dst[1])[i] = self->pictures.data[first + i].label;
    return TR_OK;
}

/* -- the data set ------------------------------------------------------------------------------ */

/* The label of a class; their number if none has this name. */
static int32_t images_class_of(const tr_names_t *classes, const char *name, size_t length) {
    int32_t label = 0;
    while (label < classes->count && (strlen(classes->name[label]) != length ||
                                      memcmp(classes->name[label], name, length) != 0))
        label++;
    return label;
}

/* The class of a file in a folder is the first folder below that one, as in an import, and of a file
 * directly in it that folder. In a list it is the nearest folder that is named as a class. `text` is
 * the part of the path from the folder on. */
static tr_status_t images_find_label(const images_t *self, const tr_names_t *classes,
                                     const char *text, tr_picture_t *picture) {
    const char *name = text, *path = picture->path, *end = tr_file_name(path);
    size_t length = strcspn(text, "/");
    if (self->is_list || !text[length]) {
        name = path;
        length = 0;
        while (end > path && images_class_of(classes, name, length) == classes->count) {
            while (end > path && end[-1] == '/') end--;
            for (name = end; name > path && name[-1] != '/';) name--;
            length = (size_t)(end - name);
            end = self->is_list ? name : path;
        }
    }
    picture->label = images_class_of(classes, name, length);
    if (picture->label < classes->count) return TR_OK;
    tr_str_t known = {0};
    tr_names_say((const char *const *)classes->name, classes->count, &known);
    if (self->is_list)
        TR_FAIL(TR_ERR_DATA,
                "'%s': expected a folder in this path that is named as a class of the training "
                "data (%s), found none.",
                path, known.text ? known.text : "they have no names");
    else
        TR_FAIL(TR_ERR_DATA,
                "'%s': expected a class of the training data (%s) as the first folder below '%s', "
                "found '%.*s'. Name the folder that has a folder for each class, as in data.test = "
                "FOLDER/test.",
                path, known.text ? known.text : "they have no names", self->root, (int)length,
                name);
    tr_str_free(&known);
    return TR_ERR_DATA;
}

static tr_status_t images_describe(images_t *self, const tr_preprocess_t *trained,
                                   bool inputs_only) {
    tr_dataset_info_t *info = &self->base.info;
    const tr_names_t *classes = &trained->names[TR_NAMES_CLASSES];
    char shape[96];
    info->samples = (int64_t)self->pictures.count;
    for (size_t i = 0; i < self->pictures.count; i++) {
        tr_picture_t *picture = &self->pictures.data[i];
        const char *text = images_text(self, picture->path);
        info->fingerprint = info->fingerprint * 1099511628211u ^ tr_hash_name(picture->path);
        TR_TRY(tr_vec_push(&self->text, text));
        if (!inputs_only) TR_TRY(images_find_label(self, classes, text, picture));
    }
    info->text_count = 1;
    info->text_name = text_name;
    info->text = self->text.data;
    snprintf(info->description, sizeof info->description, "%.*s, x u8 %s, image files",
             (int)tr_utf8_bytes(self->root, 150), self->root,
             tr_shape_format(&info->field[0].shape, shape));
    if (inputs_only) return TR_OK;
    info->field_count = 2;
    info->field[1] = (tr_field_t){
        .name = "y", .dtype = TR_I32, .sample_bytes = sizeof(int32_t), .kind = TR_FIELD_LABELS};
    info->classes = trained->classes;
    return tr_names_copy(classes, self->root, &info->names[TR_NAMES_CLASSES]);
}

static tr_status_t images_open_split(const tr_data_settings_t *settings, tr_split_t split,
                                     bool inputs_only, tr_dataset_t **out) {
    const char *const paths[] = {settings->train, settings->valid, settings->test};
    const tr_preprocess_t *trained = settings->trained;
    images_t *self = NULL;
    tr_status_t status = TR_OK;
    if (!*paths[split]) return TR_OK;
    if (!trained)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.format = images is only for eval and predict of a trained model: "
                       "`trainer import images` converts image files for training.");
    const tr_field_t *x = tr_preprocess_field(trained, "x");
    const tr_shape_t *shape = x ? &x->shape : NULL;
    if (!x || x->dtype != TR_U8 || shape->ndim != 3 || (shape->dim[2] != 1 && shape->dim[2] != 3))
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' holds image files, but %s was not trained on images of bytes with one "
                       "or three channels, as `trainer import images` writes them. Name an HDF5 "
                       "file.",
                       paths[split], trained->origin);
    TR_TRY(tr_alloc(sizeof *self, "images", &self));
    self->root = paths[split];
    self->is_list = !tr_is_folder(self->root);
    self->base.info.field_count = 1;
    self->base.info.field[0] = (tr_field_t){
        .name = "x", .dtype = TR_U8, .shape = *shape, .sample_bytes = tr_shape_elems(shape)};
    TR_TRY_GOTO(images_list(self, inputs_only), fail);
    if (settings->skip_corrupt)
        TR_TRY_GOTO(tr_pictures_skip_corrupt(self->root, &self->pictures), fail);
    TR_TRY_GOTO(images_describe(self, trained, inputs_only), fail);
    *out = &self->base;
    return TR_OK;
fail:
    images_close(&self->base);
    return status;
}

static tr_status_t images_open_samples(const tr_data_settings_t *settings, tr_split_t split,
                                       tr_dataset_t **out) {
    return images_open_split(settings, split, false, out);
}

static tr_status_t images_open_inputs(const tr_data_settings_t *settings, tr_split_t split,
                                      tr_dataset_t **out) {
    return images_open_split(settings, split, true, out);
}

const tr_dataset_ops_t tr_dataset_images_ops = {.name = "images",
                                                .help = "Image files, for eval and predict",
                                                .open = images_open_samples,
                                                .open_inputs = images_open_inputs,
                                                .close = images_close,
                                                .read = images_read};
