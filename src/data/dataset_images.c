/* Image files as data sets of a trained model: those of a folder and of the folders in it, or of a
 * list. They are decoded when they are read, to the size and the channels of the training. */
#include "image.h"
#include "preprocess.h"
#include "shared.h"
#include "base/file.h"
#include "base/mem.h"
#include "trainer/log.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_BYTES ((int64_t)1 << 30)
#define DEPTH      4 /* folders in folders */

typedef struct {
    tr_dataset_t base;
    const char *root; /* the folder or the list */
    TR_VEC(char *) path;
    TR_VEC(const char *) text; /* the paths from the folder, or from that of the list, on */
    TR_VEC(int32_t) label;
} images_t;

static const char *const text_name[] = {"file"};

bool tr_images_are_named(const char *path) {
    return tr_is_folder(path) || tr_path_ends_in(path, ".txt");
}

static void close_images(tr_dataset_t *dataset) {
    images_t *self = (images_t *)dataset;
    for (size_t i = 0; i < self->path.count; i++) tr_free(&self->path.data[i]);
    tr_vec_free(&self->path);
    tr_vec_free(&self->text);
    tr_vec_free(&self->label);
    for (int list = 0; list < TR_NAMES_LISTS; list++) tr_names_free(&dataset->info.names[list]);
    tr_free(&self);
}

/* -- which files ------------------------------------------------------------------------------- */

static tr_status_t images_add(images_t *self, const char *path) {
    char *copy = NULL;
    TR_TRY(tr_strdup(path, &copy));
    const tr_status_t status = tr_vec_push(&self->path, copy);
    if (status != TR_OK) tr_free(&copy);
    return status;
}

static tr_status_t images_list_folder(images_t *self, const char *folder, int depth) {
    tr_entries_t entries = {0};
    char path[4096];
    tr_status_t status = tr_entries_read(folder, &entries);
    for (int i = 0; i < entries.count && status == TR_OK; i++) {
        status = tr_path_join(folder, entries.entry[i]->d_name, path);
        if (status == TR_OK && tr_is_folder(path) && depth < DEPTH)
            status = images_list_folder(self, path, depth + 1);
        else if (status == TR_OK && tr_image_is_named(path))
            status = images_add(self, path);
    }
    tr_entries_free(&entries);
    return status;
}

/* One path a line, from the folder of the list on. */
static tr_status_t images_list_lines(images_t *self, const char *list) {
    char *text = NULL, path[4096], folder[4096];
    int64_t bytes;
    snprintf(folder, sizeof folder, "%.*s", (int)(tr_file_name(list) - list), list);
    TR_TRY(tr_read_text(list, LIST_BYTES, &text, &bytes));
    tr_status_t status = TR_OK;
    for (char *rest = text, *line; status == TR_OK && (line = strsep(&rest, "\n"));) {
        line[strcspn(line, "\r")] = '\0';
        if (!*line) continue;
        snprintf(path, sizeof path, "%s%s", *line == '/' ? "" : folder, line);
        status = images_add(self, path);
    }
    tr_free(&text);
    return status;
}

static tr_status_t images_list(images_t *self) {
    if (tr_is_folder(self->root)) {
        TR_TRY(images_list_folder(self, self->root, 0));
    } else {
        TR_TRY(images_list_lines(self, self->root));
    }
    if (self->path.count > 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s' has no images: expected a folder with .jpg, .jpeg or .png files, or a "
                   "list of them in a .txt file, one path a line.",
                   self->root);
}

/* -- one file ---------------------------------------------------------------------------------- */

static tr_status_t images_read_one(const images_t *self, int64_t i, uint8_t *out) {
    const int64_t *dim = self->base.info.field[0].shape.dim;
    tr_image_t image;
    TR_TRY(tr_image_read(self->path.data[i], (int)dim[2], &image));
    const tr_status_t status = tr_image_resize(&image, dim[0], dim[1], out);
    tr_image_free(&image);
    return status;
}

static tr_status_t read_images(tr_dataset_t *dataset, int64_t first, int64_t count,
                               void *const *dst) {
    const images_t *self = (const images_t *)dataset;
    const int64_t bytes = dataset->info.field[0].sample_bytes;
    for (int64_t i = 0; dst[0] && i < count; i++)
        TR_TRY(images_read_one(self, first + i, (uint8_t *)dst[0] + i * bytes));
    if (dataset->info.field_count > 1 && dst[1])
        memcpy(dst[1], self->label.data + first, (size_t)count * sizeof *self->label.data);
    return TR_OK;
}

/* data.skip_corrupt: decodes every file once, and leaves out those that cannot be. */
static tr_status_t images_skip_corrupt(images_t *self) {
    size_t kept = 0;
    const int64_t count = (int64_t)self->path.count;
    const size_t bytes = (size_t)self->base.info.field[0].sample_bytes;
    char *is_bad = NULL;
    TR_TRY(tr_alloc((size_t)count, "images", &is_bad));
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < count; i++) {
        uint8_t *pixels = NULL;
        is_bad[i] = tr_alloc(bytes, "an image", &pixels) != TR_OK ||
                    images_read_one(self, i, pixels) != TR_OK;
        tr_free(&pixels);
        tr_error_clear();
    }
    for (int64_t i = 0; i < count; i++) {
        if (is_bad[i])
            TR_WARN("'%s' cannot be decoded and is left out (data.skip_corrupt)",
                    self->path.data[i]);
        if (is_bad[i])
            tr_free(&self->path.data[i]);
        else
            self->path.data[kept++] = self->path.data[i];
    }
    self->path.count = kept;
    tr_free(&is_bad);
    if (kept > 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "'%s': none of its %lld images can be decoded.", self->root,
                   (long long)count);
}

/* -- the data set ------------------------------------------------------------------------------ */

/* The class of a file is the folder that it is in. */
static tr_status_t images_add_label(images_t *self, const tr_names_t *classes, const char *path) {
    const char *end = tr_file_name(path) - 1, *begin = end;
    int32_t label = 0;
    while (begin > path && begin[-1] != '/') begin--;
    const size_t length = end >= path ? (size_t)(end - begin) : 0;
    while (label < classes->count && (strlen(classes->name[label]) != length ||
                                      memcmp(classes->name[label], begin, length) != 0))
        label++;
    if (label < classes->count) return tr_vec_push(&self->label, label);
    tr_str_t known = {0};
    tr_names_say((const char *const *)classes->name, classes->count, &known);
    TR_FAIL(TR_ERR_DATA,
            "'%s': its folder must be named as its class, one of the training data (%s), found "
            "'%.*s'.",
            path, known.text ? known.text : "they have no names", (int)length, begin);
    tr_str_free(&known);
    return TR_ERR_DATA;
}

static tr_status_t images_describe(images_t *self, const tr_preprocess_t *trained,
                                   bool inputs_only) {
    tr_dataset_info_t *info = &self->base.info;
    const tr_names_t *classes = &trained->names[TR_NAMES_CLASSES];
    const bool is_list = !tr_is_folder(self->root);
    const size_t folder =
        is_list ? (size_t)(tr_file_name(self->root) - self->root) : strlen(self->root);
    char shape[96];
    info->samples = (int64_t)self->path.count;
    for (size_t i = 0; i < self->path.count; i++) {
        const bool is_inside = folder > 0 && strncmp(self->path.data[i], self->root, folder) == 0;
        const char *text = self->path.data[i] + (is_inside ? folder : 0);
        info->fingerprint = info->fingerprint * 1099511628211u ^ tr_hash_name(self->path.data[i]);
        TR_TRY(tr_vec_push(&self->text, text + (is_inside ? strspn(text, "/") : 0)));
        if (!inputs_only) TR_TRY(images_add_label(self, classes, self->path.data[i]));
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

static tr_status_t images_open(images_t *self, const tr_data_settings_t *settings,
                               bool inputs_only) {
    const tr_preprocess_t *trained = settings->trained;
    const tr_field_t *x = tr_preprocess_field(trained, "x");
    const tr_shape_t *shape = x ? &x->shape : NULL;
    if (!x || x->dtype != TR_U8 || shape->ndim != 3 || (shape->dim[2] != 1 && shape->dim[2] != 3))
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' holds image files, but %s was not trained on images of bytes with one "
                       "or three channels, as `trainer import images` writes them. Name an HDF5 "
                       "file.",
                       self->root, trained->origin);
    self->base.info.field_count = 1;
    self->base.info.field[0] = (tr_field_t){
        .name = "x", .dtype = TR_U8, .shape = *shape, .sample_bytes = tr_shape_elems(shape)};
    TR_TRY(images_list(self));
    if (settings->skip_corrupt) TR_TRY(images_skip_corrupt(self));
    return images_describe(self, trained, inputs_only);
}

static tr_status_t images_open_split(const tr_data_settings_t *settings, tr_split_t split,
                                     bool inputs_only, tr_dataset_t **out) {
    const char *const paths[] = {settings->train, settings->valid, settings->test};
    images_t *self = NULL;
    if (!*paths[split]) return TR_OK;
    if (!settings->trained)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.format = images is only for eval and predict of a trained model: "
                       "`trainer import images` converts image files for training.");
    TR_TRY(tr_alloc(sizeof *self, "images", &self));
    self->root = paths[split];
    const tr_status_t status = images_open(self, settings, inputs_only);
    if (status == TR_OK)
        *out = &self->base;
    else
        close_images(&self->base);
    return status;
}

static tr_status_t open_images(const tr_data_settings_t *settings, tr_split_t split,
                               tr_dataset_t **out) {
    return images_open_split(settings, split, false, out);
}

static tr_status_t open_images_inputs(const tr_data_settings_t *settings, tr_split_t split,
                                      tr_dataset_t **out) {
    return images_open_split(settings, split, true, out);
}

const tr_dataset_ops_t tr_dataset_images_ops = {.name = "images",
                                                .help = "Image files, for eval and predict",
                                                .open = open_images,
                                                .open_inputs = open_images_inputs,
                                                .close = close_images,
                                                .read = read_images};
