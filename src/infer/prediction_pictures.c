/* Writes predictions of positions as PNG files. */
#include "prediction_pictures.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/images/image.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS = 6 }; /* of a file name, at least */

struct tr_prediction_pictures {
    tr_predictions_t what;
    char *path, *part;
    int64_t row; /* rows so far */
    int digits;
    tr_image_t image; /* of numbers; of classes its pixels are borrowed */
    char title[96];   /* which numbers are black and white */
};

bool tr_prediction_pictures_are_meant(const char *path) {
    const size_t length = strlen(path);
    return (length > 0 && path[length - 1] == '/') || tr_is_folder(path);
}

/* The path without slashes at its end, and PATH.part-PID. */
static tr_status_t pictures_paths(const char *path, char **out_path, char **out_part) {
    tr_str_t part = {0};
    TR_TRY(tr_strdup(path, out_path));
    for (size_t n = strlen(*out_path); n > 1 && (*out_path)[n - 1] == '/';) (*out_path)[--n] = '\0';
    tr_str_printf(&part, "%s.part-%ld", *out_path, (long)getpid());
    return tr_str_take(&part, out_part);
}

static tr_status_t pictures_check(const tr_predictions_t *w) {
    char shape[96];
    tr_shape_t sample = w->positions;
    if (w->positions.ndim == 0)
        return TR_FAIL(TR_ERR_USAGE,
                       "a folder of PNG files is for predictions of each position, and the model "
                       "predicts for each sample: OUT must end in .csv or .h5");
    if (w->has_probability)
        return TR_FAIL(TR_ERR_USAGE,
                       "--probabilities: PNG files hold classes alone: OUT must end in .h5");
    if (!w->is_class) sample.dim[sample.ndim++] = w->width;
    if (w->positions.ndim != 2 || (!w->is_class && w->width != 1 && w->width != 3))
        return TR_FAIL(TR_ERR_USAGE,
                       "PNG files hold images of classes, or of 1 or 3 numbers for each position, "
                       "and the model predicts %s: OUT must end in .h5",
                       tr_shape_format(&sample, shape));
    if (w->is_class && w->class_type != TR_U8)
        return TR_FAIL(TR_ERR_USAGE,
                       "PNG files hold at most %d classes, and the model predicts %lld: OUT must "
                       "end in .h5",
                       TR_CLASS_NONE, (long long)w->width);
    if (!w->is_class && !(w->black < w->white))
        return TR_FAIL(TR_ERR_USAGE,
                       "the range of the numbers is not known, because the targets of the model "
                       "are not normalised: --range MIN,MAX sets which are black and white");
    return TR_OK;
}

/* "000012.png" */
static bool pictures_is_name(const char *name) {
    const size_t digits = strspn(name, "0123456789");
    return digits >= DIGITS && strcmp(name + digits, ".png") == 0;
}

/* A folder that is replaced must not have other files. */
static tr_status_t pictures_check_folder(const char *path, bool force) {
    tr_entries_t entries;
    const char *other = NULL, *name = tr_file_name(path);
    struct stat own, above;
    tr_str_t parent = {0};
    if (!tr_is_folder(path)) return TR_OK;
    /* the new folder is made beside it, and takes its place by a rename */
    tr_str_printf(&parent, "%s/..", path);
    const bool is_fixed = strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
                          parent.status != TR_OK || stat(path, &own) != 0 ||
                          stat(parent.text, &above) != 0 || own.st_dev != above.st_dev ||
                          own.st_ino == above.st_ino;
    tr_str_free(&parent);
    if (is_fixed)
        return TR_FAIL(TR_ERR_USAGE,
                       "'%s' is the current folder or a mount point, which cannot be replaced: "
                       "name a folder inside it, such as '%s/pictures/'",
                       path, path);
    TR_TRY(tr_entries_read(path, &entries));
    for (int i = 0; i < entries.count && !other; i++)
        if (!force || !pictures_is_name(entries.entry[i]->d_name)) other = entries.entry[i]->d_name;
    if (other && force)
        TR_FAIL(TR_ERR_CONFIG,
                "'%s' has other files than pictures of predictions, such as '%s', and --force "
                "would remove them: choose another folder",
                path, other);
    else if (other)
        TR_FAIL(TR_ERR_CONFIG, "'%s' already has files; --force replaces pictures of predictions.",
                path);
    tr_entries_free(&entries);
    return other ? TR_ERR_CONFIG : TR_OK;
}

tr_status_t tr_prediction_pictures_create(const char *path, bool force, const tr_predictions_t *w,
                                          tr_prediction_pictures_t **out) {
    tr_prediction_pictures_t *p = NULL;
    TR_TRY(pictures_check(w));
    TR_TRY(tr_alloc(sizeof *p, "pictures of predictions", &p));
    *out = p;
    p->what = *w;
    TR_TRY(pictures_paths(path, &p->path, &p->part));
    TR_TRY(pictures_check_folder(p->path, force));
    const int digits = snprintf(NULL, 0, "%lld", (long long)w->t->s->info.samples - 1);
    p->digits = digits > DIGITS ? digits : DIGITS;
    p->image = (tr_image_t){.height = w->positions.dim[0],
                            .width = w->positions.dim[1],
                            .channels = w->is_class ? 1 : (int)w->width,
                            .bits = 8};
    if (!w->is_class) {
        const size_t bytes = (size_t)(p->image.height * p->image.width * p->image.channels);
        TR_TRY(tr_alloc(bytes, "a picture", &p->image.pixels));
        tr_snprintf(p->title, sizeof p->title, "0 is %.6g, 255 is %.6g", w->black, w->white);
    }
    if (mkdir(p->part, 0777) == 0) return TR_OK;
    const tr_status_t status = tr_io_fail("create the folder", p->part, errno);
    tr_free(&p->part); /* it is not of this process */
    return status;
}

/* NaN becomes black. */
static void pictures_scale(const tr_prediction_pictures_t *p, const float *values) {
    const double unit = 255 / (p->what.white - p->what.black);
    const int64_t count = p->image.height * p->image.width * p->image.channels;
    for (int64_t i = 0; i < count; i++)
        p->image.pixels[i] =
            (uint8_t)fmin(255, fmax(0, ((double)values[i] - p->what.black) * unit + 0.5));
}

tr_status_t tr_prediction_pictures_append(tr_prediction_pictures_t *p, int64_t rows,
                                          const void *prediction) {
    const bool is_class = p->what.is_class;
    const int64_t values = p->image.height * p->image.width * p->image.channels;
    for (int64_t i = 0; i < rows; i++, p->row++) {
        tr_image_t image = p->image;
        tr_str_t file = {0}, name = {0};
        if (is_class)
            image.pixels = (uint8_t *)(uintptr_t)prediction + i * values;
        else
            pictures_scale(p, (const float *)prediction + i * values);
        tr_str_printf(&name, "%s/%0*lld.png", p->part, p->digits, (long long)p->row);
        tr_status_t status = name.status;
        if (status == TR_OK)
            status = tr_png_write(&image, is_class, is_class ? NULL : p->title, &file);
        if (status == TR_OK)
            status = tr_replace_file(name.text, file.text, file.length, TR_REPLACE_OFTEN);
        tr_str_free(&name);
        tr_str_free(&file);
        TR_TRY(status);
    }
    return TR_OK;
}

tr_status_t tr_prediction_pictures_commit(tr_prediction_pictures_t *p) {
    if (tr_is_folder(p->path)) TR_TRY(tr_remove_tree(p->path));
    return tr_replace_by(p->part, p->path, true);
}

void tr_prediction_pictures_destroy(tr_prediction_pictures_t **pictures) {
    tr_prediction_pictures_t *p = *pictures;
    if (!p) return;
    if (p->part && tr_is_folder(p->part)) (void)tr_remove_tree(p->part);
    tr_free(&p->path);
    tr_free(&p->part);
    tr_image_free(&p->image);
    tr_free(pictures);
}

bool tr_prediction_pictures_remove_part(const char *path) {
    char *plain = NULL, *part = NULL;
    const bool removes = pictures_paths(path, &plain, &part) == TR_OK && tr_is_folder(part);
    if (removes) (void)tr_remove_tree(part);
    tr_free(&plain);
    tr_free(&part);
    return removes;
}
