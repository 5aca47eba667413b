/* Imports images in folders, one per class. They are decoded on all cores and written in random
 * order. */
#include "data/images/image.h"
#include "image_folder.h"
#include "import_int.h"
#include "base/rng.h"

#include "trainer/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES (32 << 20) /* decoded at once, about */

typedef struct {
    const tr_import_params_t *params;
    const char *folder;
    tr_image_folder_t pictures;
    int64_t height, width; /* of a sample; 0: not yet known */
    int channels;
    int64_t deep; /* images with more than 8 bits per channel, */
    const char *first_deep;
    tr_writer_t *writer;
    tr_moments_t moments;
    uint8_t *pixels; /* [batch] samples */
    int32_t *label;  /* [batch] */
    int64_t batch, done, total;
} import_t;

/* -- which images, and of what size ------------------------------------------------------------ */

/* Sizes without --size must be equal; one image in colour makes all of them three channels. */
static tr_status_t images_probe_group(import_t *m, int group, const char **first) {
    for (size_t i = 0; i < m->pictures.group[group].count; i++) {
        const char *path = m->pictures.group[group].data[i].path;
        tr_image_t found;
        TR_TRY(tr_image_probe(path, &found));
        if (found.bits > 8 && m->deep++ == 0) m->first_deep = path;
        if (!m->params->grey && found.channels > m->channels) m->channels = found.channels;
        if (m->params->shape) continue;
        if (!*first) *first = path, m->height = found.height, m->width = found.width;
        if (found.height != m->height || found.width != m->width)
            return TR_FAIL(TR_ERR_USAGE,
                           "'%s' has %lld x %lld pixels (height x width), '%s' has %lld x %lld. "
                           "Samples have one size: set it with --size, as in --size 64x64.",
                           *first, (long long)m->height, (long long)m->width, path,
                           (long long)found.height, (long long)found.width);
        TR_TRY(tr_import_progress(m->params, 0, 0));
    }
    return TR_OK;
}

/* Finds the files and the size of a sample; divides them into groups, in random order. */
static tr_status_t images_choose(import_t *m, const char *in) {
    tr_shape_t size;
    const char *first = NULL;
    TR_TRY(tr_image_folder_list(in, &m->pictures));
    for (int g = 0; g < TR_PICTURES_GROUPS && m->params->skip_corrupt; g++)
        TR_TRY(tr_pictures_skip_corrupt(in, &m->pictures.group[g]));
    m->channels = 1;
    if (m->params->shape) {
        TR_TRY(tr_data_parse_shape("--size", m->params->shape, &size));
        if (size.ndim != 2)
            return TR_FAIL(TR_ERR_USAGE, "--size: expected HEIGHTxWIDTH, found '%s'.",
                           m->params->shape);
        m->height = size.dim[0];
        m->width = size.dim[1];
    }
    for (int g = 0; g < TR_PICTURES_GROUPS; g++) TR_TRY(images_probe_group(m, g, &first));
    if (m->deep > 0)
        TR_WARN(
            "%lld image%s more than 8 bits per channel, such as '%s': the lower bits are "
            "dropped, and of values below 4096 (12 bits) only 16 levels remain. Scale such values "
            "first, or write them to an HDF5 file with 16 bits (docs/data.md)",
            (long long)m->deep, m->deep == 1 ? " has" : "s have", m->first_deep);

    /* Random order: files sorted by class would be shuffled badly in training. */
    for (int g = 0; g < TR_PICTURES_GROUPS; g++) {
        tr_rng_t rng = tr_rng_make(m->params->seed, TR_RNG_SYNTHETIC, 5, (uint64_t)g);
        tr_picture_t *picture = m->pictures.group[g].data;
        for (size_t i = m->pictures.group[g].count; i > 1; i--) {
            const uint64_t other = tr_rng_below(&rng, i);
            const tr_picture_t kept = picture[i - 1];
            picture[i - 1] = picture[other];
            picture[other] = kept;
        }
    }

    /* Without a folder for validation, the last images of the training data are used. */
    const int64_t all = (int64_t)m->pictures.group[TR_PICTURES_TRAIN].count,
                  kept = (int64_t)ceil((double)all * (1 - m->params->valid_fraction));
    if (m->pictures.group[TR_PICTURES_VALID].count > 0) return TR_OK;
    for (int64_t i = kept; i < all; i++)
        TR_TRY(tr_vec_push(&m->pictures.group[TR_PICTURES_VALID],
                           m->pictures.group[TR_PICTURES_TRAIN].data[i]));
    m->pictures.group[TR_PICTURES_TRAIN].count = (size_t)kept;
    return TR_OK;
}

/* -- conversion -------------------------------------------------------------------------------- */

static tr_status_t images_read_sample(const import_t *m, const char *path, uint8_t *out) {
    tr_image_t image;
    TR_TRY(tr_image_read(path, m->channels, &image));
    const tr_status_t status = tr_image_resize(&image, m->height, m->width, out);
    tr_image_free(&image);
    return status;
}

/* Decodes with all threads. Errors are recorded per thread, so the first image that cannot be read
 * is read again by this thread. */
static tr_status_t images_read_batch(const import_t *m, const tr_picture_t *picture,
                                     int64_t count) {
    const int64_t bytes = m->height * m->width * m->channels;
    int64_t failed = count;
#pragma omp parallel for schedule(dynamic) reduction(min : failed)
    for (int64_t i = 0; i < count; i++) {
        m->label[i] = picture[i].label;
        if (images_read_sample(m, picture[i].path, m->pixels + i * bytes) != TR_OK && i < failed)
            failed = i;
    }
    if (failed == count) return TR_OK;
    TR_TRY(images_read_sample(m, picture[failed].path, m->pixels + failed * bytes));
    return TR_FAIL(TR_ERR_IO, "'%s' could not be read at first, and then could be: run it again.",
                   picture[failed].path);
}

static int picture_order(const void *a, const void *b) {
    return strcmp(((const tr_picture_t *)a)->path, ((const tr_picture_t *)b)->path);
}

/* The paths from the imported folder on, in the order of the samples. */
static tr_status_t images_write_names(const import_t *m, int group, const char *name) {
    const int64_t count = (int64_t)m->pictures.group[group].count;
    const char **file = NULL;
    char object[32];
    TR_TRY(tr_alloc((size_t)count * sizeof *file, "names of files", &file));
    for (int64_t i = 0; i < count; i++) {
        const char *path = m->pictures.group[group].data[i].path + strlen(m->folder);
        file[i] = path + strspn(path, "/");
    }
    snprintf(object, sizeof object, "%s/file", name);
    const tr_status_t status = tr_writer_strings(m->writer, object, count, file);
    tr_free(&file);
    return status;
}

static tr_status_t images_copy_group(import_t *m, int group, const char *name) {
    const tr_picture_t *picture = m->pictures.group[group].data;
    const int64_t all = (int64_t)m->pictures.group[group].count;
    const tr_shape_t image = TR_SHAPE(m->height, m->width, m->channels), scalar = {0};
    char x_name[32], y_name[32];
    int x, y;
    if (all == 0) return TR_OK;
    if (m->params->in_order)
        qsort(m->pictures.group[group].data, (size_t)all, sizeof *picture, picture_order);
    snprintf(x_name, sizeof x_name, "%s/x", name);
    snprintf(y_name, sizeof y_name, "%s/y", name);
    TR_TRY(tr_writer_array(m->writer, x_name, TR_U8, all, &image, &x));
    TR_TRY(tr_writer_array(m->writer, y_name, TR_I32, all, &scalar, &y));
    for (int64_t i = 0; i < all; i += m->batch) {
        const int64_t count = min64(m->batch, all - i);
        TR_TRY(images_read_batch(m, picture + i, count));
        if (group == TR_PICTURES_TRAIN)
            tr_moments_add(&m->moments, TR_U8, m->pixels, count * tr_shape_elems(&image));
        TR_TRY(tr_writer_append(m->writer, x, count, m->pixels));
        TR_TRY(tr_writer_append(m->writer, y, count, m->label));
        m->done += count;
        TR_TRY(tr_import_progress(m->params, m->done, m->total));
    }
    return images_write_names(m, group, name);
}

static tr_status_t images_import(const char *in, const char *out,
                                 const tr_import_params_t *params) {
    static const char *const names[TR_PICTURES_GROUPS] = {"train", "valid", "test"};
    import_t m = {.params = params, .folder = in};
    tr_status_t status;
    TR_TRY_GOTO(images_choose(&m, in), done);
    const char *const *classes = (const char *const *)m.pictures.class_name.data;
    const int64_t count = (int64_t)m.pictures.class_name.count,
                  bytes = m.height * m.width * m.channels;
    m.batch = min64(IMPORT_ROWS, BATCH_BYTES / bytes + 1);
    for (int g = 0; g < TR_PICTURES_GROUPS; g++) m.total += (int64_t)m.pictures.group[g].count;
    TR_TRY_GOTO(tr_alloc((size_t)(m.batch * bytes), "images", &m.pixels), done);
    TR_TRY_GOTO(tr_alloc((size_t)m.batch * sizeof *m.label, "labels", &m.label), done);
    TR_TRY_GOTO(tr_moments_begin(&m.moments, m.channels), done);
    TR_TRY_GOTO(tr_writer_create(out, &params->writer, &m.writer), done);
    for (int g = 0; g < TR_PICTURES_GROUPS; g++)
        TR_TRY_GOTO(images_copy_group(&m, g, names[g]), done);
    TR_TRY_GOTO(tr_moments_write(&m.moments, m.writer), done);
    TR_TRY_GOTO(tr_writer_texts(m.writer, "/", "class_names", count, classes), done);
    tr_import_say_classes(params, count, classes);
    TR_TRY_GOTO(tr_writer_commit(m.writer), done);
done:
    tr_writer_destroy(&m.writer);
    tr_moments_free(&m.moments);
    tr_free(&m.pixels);
    tr_free(&m.label);
    tr_image_folder_free(&m.pictures);
    return status;
}

const tr_importer_t tr_importer_images = {
    "images",
    "FOLDER OUT.h5 [--size HxW] [--grey] [--no-shuffle] [--skip-corrupt] "
    "[--valid-fraction F] [--seed N]",
    "Converts JPEG and PNG files, one folder per class (FOLDER/CLASS/FILE, or deeper), to the "
    "groups train and valid, in random order. --size scales every image to H x W pixels, bilinear "
    "with antialiasing "
    "and without keeping the aspect ratio; without it all images must have one size. Images have "
    "three channels if one of them is in colour, one with --grey. If FOLDER has a folder train "
    "(training) with the classes, and valid (val, validation, dev) or test (testing), these become "
    "the groups; else the part F (default 0.1) "
    "goes to valid. --no-shuffle keeps the order of the names, class by class. --skip-corrupt "
    "leaves out files that cannot be decoded, with a warning. The data sets `file` hold the paths.",
    .run = images_import, .unit = "images"};
