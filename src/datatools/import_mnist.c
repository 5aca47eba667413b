/* Imports MNIST and data sets in its format (Fashion-MNIST, KMNIST, EMNIST):
 * train-images-idx3-ubyte etc., optionally compressed with gzip. */
#include "import_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const tr_import_params_t *params;
    const char *folder, *out;
    tr_writer_t *writer;
    tr_moments_t moments;
    int largest;
    int64_t done, total;
} import_t;

static tr_status_t mnist_open_idx(const import_t *m, const char *name, int ndim, tr_idx_t **out) {
    static const char *const forms[] = {"%s/%s-idx%d-ubyte.gz", "%s/%s-idx%d-ubyte",
                                        "%s/%s.idx%d-ubyte.gz", "%s/%s.idx%d-ubyte"};
    char path[4096];
    for (size_t i = 0; i < TR_COUNT(forms); i++) {
        if ((size_t)snprintf(path, sizeof path, forms[i], m->folder, name, ndim) >= sizeof path)
            break;
        TR_TRY(tr_import_check_place(path, m->out));
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) return tr_idx_open(fd, path, ndim, out);
        if (errno != ENOENT && errno != ENOTDIR)
            return TR_FAIL(tr_status_of_errno(errno), "cannot open '%s': %s.", path,
                           strerror(errno));
    }
    return TR_FAIL(TR_ERR_NOINPUT, "no %s-idx%d-ubyte or %s-idx%d-ubyte.gz in '%s'.", name, ndim,
                   name, ndim, m->folder);
}

static tr_status_t mnist_copy_images(import_t *m, tr_idx_t *idx, int array, bool training) {
    const int64_t *dim = tr_idx_dims(idx), bytes = dim[1] * dim[2];
    uint8_t *rows = NULL;
    tr_status_t status = tr_alloc((size_t)(IMPORT_ROWS * bytes), "images", &rows);
    for (int64_t i = 0; i < dim[0] && status == TR_OK; i += IMPORT_ROWS) {
        int64_t count = min64(IMPORT_ROWS, dim[0] - i);
        status = tr_idx_read(idx, rows, (size_t)(count * bytes));
        if (status != TR_OK) break;
        if (training) tr_moments_add(&m->moments, TR_U8, rows, count * bytes);
        status = tr_writer_append(m->writer, array, count, rows);
        m->done += count;
        if (status == TR_OK) status = tr_import_progress(m->params, m->done, m->total);
    }
    tr_free(&rows);
    TR_TRY(status);
    return tr_idx_at_end(idx);
}

static tr_status_t mnist_copy_group(import_t *m, const char *group, const char *prefix,
                                    bool training) {
    tr_idx_t *images = NULL, *labels = NULL;
    uint8_t rows[IMPORT_ROWS];
    char name[32];
    int x, y;
    tr_status_t status;
    snprintf(name, sizeof name, "%s-images", prefix);
    TR_TRY_GOTO(mnist_open_idx(m, name, 3, &images), done);
    snprintf(name, sizeof name, "%s-labels", prefix);
    TR_TRY_GOTO(mnist_open_idx(m, name, 1, &labels), done);
    const int64_t *dim = tr_idx_dims(images), count = tr_idx_dims(labels)[0];
    const tr_shape_t shape = TR_SHAPE(dim[1], dim[2], 1), scalar = {0};
    if (dim[0] != count) {
        status = TR_FAIL(TR_ERR_DATA, "'%s': %lld images for the group %s, but %lld labels.",
                         m->folder, (long long)dim[0], group, (long long)count);
        goto done;
    }
    snprintf(name, sizeof name, "%s/x", group);
    TR_TRY_GOTO(tr_writer_array(m->writer, name, TR_U8, count, &shape, &x), done);
    snprintf(name, sizeof name, "%s/y", group);
    TR_TRY_GOTO(tr_writer_array(m->writer, name, TR_U8, count, &scalar, &y), done);
    m->total += count;
    TR_TRY_GOTO(mnist_copy_images(m, images, x, training), done);
    for (int64_t i = 0; i < count; i += IMPORT_ROWS) {
        const int64_t part = min64(IMPORT_ROWS, count - i);
        TR_TRY_GOTO(tr_idx_read(labels, rows, (size_t)part), done);
        for (int64_t j = 0; j < part; j++)
            if (rows[j] > m->largest) m->largest = rows[j];
        TR_TRY_GOTO(tr_writer_append(m->writer, y, part, rows), done);
    }
    TR_TRY_GOTO(tr_idx_at_end(labels), done);
done:
    tr_idx_close(&images);
    tr_idx_close(&labels);
    return status;
}

static tr_status_t mnist_import(const char *in, const char *out, const tr_import_params_t *params) {
    import_t m = {.params = params, .folder = in, .out = out};
    tr_status_t status;
    TR_TRY(tr_writer_create(out, &params->writer, &m.writer));
    TR_TRY_GOTO(tr_moments_begin(&m.moments, 1), done);
    TR_TRY_GOTO(mnist_copy_group(&m, "train", "train", true), done);
    TR_TRY_GOTO(mnist_copy_group(&m, "test", "t10k", false), done);
    TR_TRY_GOTO(tr_moments_write(&m.moments, m.writer), done);
    TR_TRY_GOTO(tr_writer_numbers(m.writer, "/", "classes", 1, &(double){m.largest + 1}), done);
    tr_import_say_classes(params, m.largest + 1, NULL);
    TR_TRY_GOTO(tr_writer_commit(m.writer), done);
done:
    tr_writer_destroy(&m.writer);
    tr_moments_free(&m.moments);
    return status;
}

const tr_importer_t tr_importer_mnist = {
    "mnist", "DIR OUT.h5",
    "Converts the four IDX files of MNIST, Fashion-MNIST or similar data "
    "in DIR, plain or gzip, to the groups train and test.",
    .run = mnist_import};
