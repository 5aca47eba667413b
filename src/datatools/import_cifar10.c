/* CIFAR-10, binary version: records of a label byte and 3072 bytes (3, 32, 32). */
#include "h5/h5.h" /* tr_channels_last */
#include "import_int.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define IMAGE  3072
#define RECORD (IMAGE + 1)
#define FILES  6 /* the last file is for testing */

static const char *const file_names[FILES] = {"data_batch_1.bin", "data_batch_2.bin",
                                              "data_batch_3.bin", "data_batch_4.bin",
                                              "data_batch_5.bin", "test_batch.bin"};

typedef struct {
    const tr_import_params_t *params;
    const char *out;
    char folder[4096];
    tr_writer_t *writer;
    tr_moments_t moments;
    int64_t records[FILES], done, total;
    uint8_t record[IMPORT_ROWS * RECORD], x[IMPORT_ROWS * IMAGE], y[IMPORT_ROWS];
} import_t;

/* Copies a file to the arrays of its group, x and y. */
static tr_status_t cifar10_copy_file(import_t *m, int index, const int *array) {
    const bool training = index < FILES - 1;
    char path[4200];
    tr_status_t status = TR_OK;
    snprintf(path, sizeof path, "%s/%s", m->folder, file_names[index]);
    TR_TRY(tr_import_check_place(path, m->out));
    FILE *file = fopen(path, "rbe");
    if (!file)
        return TR_FAIL(tr_status_of_errno(errno), "cannot open '%s': %s.", path, strerror(errno));
    for (int64_t first = 0; first < m->records[index]; first += IMPORT_ROWS) {
        const int64_t count = min64(IMPORT_ROWS, m->records[index] - first);
        if (fread(m->record, RECORD, (size_t)count, file) != (size_t)count) {
            status = TR_FAIL(TR_ERR_IO, "cannot read '%s': %s.", path,
                             ferror(file) ? strerror(errno) : "it was truncated");
            goto done;
        }
        for (int64_t i = 0; i < count; i++) {
            const uint8_t *record = m->record + i * RECORD;
            if (record[0] > 9) {
                status = TR_FAIL(TR_ERR_DATA,
                                 "'%s': the label of image %lld is %d; expected 0 to 9. Is this "
                                 "the binary version of CIFAR-10?",
                                 path, (long long)(first + i), record[0]);
                goto done;
            }
            m->y[i] = record[0];
            tr_channels_last(record + 1, 3, IMAGE / 3, 1, m->x + i * IMAGE);
        }
        if (training) tr_moments_add(&m->moments, TR_U8, m->x, count * IMAGE);
        TR_TRY_GOTO(tr_writer_append(m->writer, array[0], count, m->x), done);
        TR_TRY_GOTO(tr_writer_append(m->writer, array[1], count, m->y), done);
        m->done += count;
        TR_TRY_GOTO(tr_import_progress(m->params, m->done, m->total), done);
    }
done:
    fclose(file);
    return status;
}

/* The number of records of each file. */
static tr_status_t cifar10_count_records(import_t *m) {
    for (int f = 0; f < FILES; f++) {
        char path[4200];
        struct stat found;
        snprintf(path, sizeof path, "%s/%s", m->folder, file_names[f]);
        if (stat(path, &found))
            return TR_FAIL(
                tr_status_of_errno(errno),
                "cannot find '%s': %s. Expected the binary version of CIFAR-10 (data_batch_1.bin "
                "and so on).",
                path, strerror(errno));
        if (found.st_size == 0 || found.st_size % RECORD)
            return TR_FAIL(TR_ERR_DATA,
                           "'%s' has %lld bytes, which is not a multiple of the record size, %d "
                           "bytes. Expected a complete file of the binary version of CIFAR-10.",
                           path, (long long)found.st_size, RECORD);
        m->records[f] = found.st_size / RECORD;
        m->total += m->records[f];
    }
    return TR_OK;
}

static tr_status_t cifar10_import(const char *in, const char *out,
                                  const tr_import_params_t *params) {
    static const char *const names[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                        "dog",      "frog",       "horse", "ship", "truck"};
    const tr_shape_t image = TR_SHAPE(32, 32, 3), scalar = {0};
    int train[2], test[2];
    import_t *m = NULL;
    struct stat found;
    tr_status_t status;
    TR_TRY(tr_alloc(sizeof *m, "import", &m));
    m->params = params;
    m->out = out;
    /* The archive is unpacked to a subfolder. */
    snprintf(m->folder, sizeof m->folder, "%s/cifar-10-batches-bin", in);
    if (stat(m->folder, &found)) snprintf(m->folder, sizeof m->folder, "%s", in);
    TR_TRY_GOTO(tr_moments_begin(&m->moments, 3), done);
    TR_TRY_GOTO(cifar10_count_records(m), done);
    TR_TRY_GOTO(tr_writer_create(out, &params->writer, &m->writer), done);
    const int64_t testing = m->records[FILES - 1], training = m->total - testing;
    TR_TRY_GOTO(tr_writer_array(m->writer, "train/x", TR_U8, training, &image, &train[0]), done);
    TR_TRY_GOTO(tr_writer_array(m->writer, "train/y", TR_U8, training, &scalar, &train[1]), done);
    TR_TRY_GOTO(tr_writer_array(m->writer, "test/x", TR_U8, testing, &image, &test[0]), done);
    TR_TRY_GOTO(tr_writer_array(m->writer, "test/y", TR_U8, testing, &scalar, &test[1]), done);
    for (int f = 0; f < FILES; f++)
        TR_TRY_GOTO(cifar10_copy_file(m, f, f < FILES - 1 ? train : test), done);
    TR_TRY_GOTO(tr_moments_write(&m->moments, m->writer), done);
    TR_TRY_GOTO(tr_writer_texts(m->writer, "/", "class_names", 10, names), done);
    TR_TRY_GOTO(tr_writer_commit(m->writer), done);
    tr_import_say_classes(params, 10, names);
done:
    tr_writer_destroy(&m->writer);
    tr_moments_free(&m->moments);
    tr_free(&m);
    return status;
}

const tr_importer_t tr_importer_cifar10 = {
    "cifar10", "DIR OUT.h5",
    "Converts the binary version of CIFAR-10 (data_batch_1.bin to 5, test_batch.bin) in DIR to the "
    "groups train and test.",
    .run = cifar10_import};
