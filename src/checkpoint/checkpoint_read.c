#include "checkpoint_int.h"
#include "safetensors_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- verification ------------------------------------------------------------------------------ */

static bool same_tensor(const tr_manifest_tensor_t *row, const tr_named_tensor_t *t,
                        int64_t offset) {
    return strcmp(row->name, t->name) == 0 && row->dtype == t->dtype &&
           tr_shape_equal(&row->shape, &t->shape) && row->offset == offset;
}

static void find_rows(const tr_manifest_t *m, size_t file, size_t *first, size_t *count) {
    *first = 0;
    while (*first < m->tensors.count && m->tensors.data[*first].file != file) ++*first;
    *count = 0;
    while (*first + *count < m->tensors.count && m->tensors.data[*first + *count].file == file)
        ++*count;
}

/* Header and MANIFEST describe the same tensors, and the bytes on disk have their checksums. */
static tr_status_t verify_tensors(const tr_manifest_t *m, size_t file, const char *path,
                                  const tr_safetensors_t *f, tr_checksum_t *whole) {
    size_t first = 0, count = 0;
    int64_t start = tr_safetensors_data_start(f), bytes = 0, offset = 0;
    uint64_t checksum = 0;
    find_rows(m, file, &first, &count);
    if (count != tr_safetensors_count(f))
        return TR_FAIL(TR_ERR_DATA, "%s has %zu tensors, but MANIFEST lists %zu.", path,
                       tr_safetensors_count(f), count);
    TR_TRY(tr_checksum_read(whole, tr_safetensors_fd(f), path, 0, start, NULL));
    for (size_t i = 0; i < count; i++) {
        const tr_manifest_tensor_t *row = &m->tensors.data[first + i];
        if (!same_tensor(row, tr_safetensors_at(f, i), offset))
            return TR_FAIL(TR_ERR_DATA,
                           "%s: tensor %zu differs from its entry in MANIFEST ('%.200s').", path, i,
                           row->name);
        tr_tensor_bytes(row->dtype, &row->shape, &bytes);
        TR_TRY(
            tr_checksum_read(whole, tr_safetensors_fd(f), path, start + offset, bytes, &checksum));
        if (checksum != row->checksum)
            return TR_FAIL(TR_ERR_DATA,
                           "%s: the data of tensor '%.200s' is damaged (checksum mismatch).", path,
                           row->name);
        offset += bytes;
    }
    return TR_OK;
}

static tr_status_t check_length(const char *path, int64_t found, int64_t wanted) {
    if (found == wanted) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "%s has %lld bytes, but MANIFEST lists %lld.", path,
                   (long long)found, (long long)wanted);
}

static tr_status_t check_value(const char *path, const tr_checksum_t *whole, uint64_t wanted) {
    return tr_checksum_value(whole) == wanted
               ? TR_OK
               : TR_FAIL(TR_ERR_DATA, "%s is damaged: its checksum differs from MANIFEST.", path);
}

static tr_status_t open_tensors(const tr_manifest_t *m, size_t file, const char *path,
                                tr_safetensors_t **out) {
    const tr_manifest_file_t *row = &m->files.data[file];
    struct stat st;
    tr_checksum_t *whole = NULL;
    if (stat(path, &st) != 0) return tr_io_fail("open", path, errno);
    TR_TRY(check_length(path, st.st_size, row->bytes));
    TR_TRY(tr_safetensors_open(path, out));
    tr_status_t status = tr_checksum_create(&whole);
    if (status == TR_OK) status = verify_tensors(m, file, path, *out, whole);
    if (status == TR_OK) status = check_value(path, whole, row->checksum);
    tr_checksum_destroy(&whole);
    return status;
}

static tr_status_t open_text(const tr_manifest_file_t *row, const char *path, char **out) {
    int64_t bytes = 0;
    TR_TRY(tr_read_text(path, TR_TEXT_MAX_BYTES, out, &bytes));
    TR_TRY(check_length(path, bytes, row->bytes));
    if (tr_checksum_bytes(*out, (size_t)bytes) == row->checksum) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "%s is damaged: its checksum differs from MANIFEST.", path);
}

/* A file for other programs. */
static tr_status_t check_text(const tr_manifest_file_t *row, const char *path) {
    char *text = NULL;
    const tr_status_t status = open_text(row, path, &text);
    tr_free(&text);
    return status;
}

static tr_status_t open_file(tr_checkpoint_t *c, const tr_manifest_t *m, size_t file) {
    const char *name = m->files.data[file].name;
    char path[4096];
    TR_TRY(tr_path_join(c->path, name, path));
    if (strcmp(name, TR_CHECKPOINT_STATE) == 0 && !c->state_json)
        return open_text(&m->files.data[file], path, &c->state_json);
    if (strcmp(name, TR_CHECKPOINT_MODEL) == 0 && !c->model)
        return open_tensors(m, file, path, &c->model);
    if (strcmp(name, TR_CHECKPOINT_OPTIMIZER) == 0 && !c->optimizer)
        return open_tensors(m, file, path, &c->optimizer);
    return check_text(&m->files.data[file], path);
}

static tr_status_t read_manifest(const char *dir, tr_manifest_t *out) {
    char path[4096], *text = NULL;
    int64_t bytes = 0;
    TR_TRY(tr_path_join(dir, TR_CHECKPOINT_MANIFEST, path));
    TR_TRY(tr_read_text(path, TR_TEXT_MAX_BYTES, &text, &bytes));
    tr_status_t status = tr_manifest_parse(text, (size_t)bytes, path, out);
    tr_free(&text);
    return status;
}

/* A directory named after a step must hold that step. */
static tr_status_t check_step(const char *path, int64_t step) {
    int64_t named = step;
    if (!tr_checkpoint_parse_name(tr_file_name(path), &named) || named == step) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "%s holds step %lld: the folder was renamed.", path,
                   (long long)step);
}

static tr_status_t open_files(tr_checkpoint_t *c, const tr_manifest_t *m) {
    c->step = m->step;
    TR_TRY(check_step(c->path, c->step));
    for (size_t i = 0; i < m->files.count; i++) TR_TRY(open_file(c, m, i));
    if (!c->model || !c->state_json)
        return TR_FAIL(TR_ERR_DATA, "%s: MANIFEST must list %s and %s.", c->path,
                       TR_CHECKPOINT_MODEL, TR_CHECKPOINT_STATE);
    return TR_OK;
}

/* -- opening ----------------------------------------------------------------------------------- */

static tr_status_t resolve(const char *path, tr_checkpoint_t *c) {
    struct stat st;
    char *real = realpath(path, NULL);
    if (!real) return tr_io_fail("open", path, errno);
    tr_status_t status = tr_strdup(real, &c->path);
    free(real);
    TR_TRY(status);
    if (stat(c->path, &st) != 0 || !S_ISDIR(st.st_mode))
        return TR_FAIL(TR_ERR_DATA, "%s is not a checkpoint: expected a folder with %s.", path,
                       TR_CHECKPOINT_MANIFEST);
    return TR_OK;
}

tr_status_t tr_checkpoint_open(const char *path, tr_checkpoint_t **out) {
    tr_checkpoint_t *c = NULL;
    tr_manifest_t m = {0};
    TR_TRY(tr_alloc(sizeof *c, "checkpoint", &c));
    tr_status_t status = resolve(path, c);
    if (status == TR_OK) status = read_manifest(c->path, &m);
    if (status == TR_OK) status = open_files(c, &m);
    tr_manifest_free(&m);
    if (status != TR_OK)
        tr_checkpoint_close(&c);
    else
        *out = c;
    return status;
}

void tr_checkpoint_close(tr_checkpoint_t **checkpoint) {
    tr_checkpoint_t *c = *checkpoint;
    if (!c) return;
    tr_safetensors_close(&c->model);
    tr_safetensors_close(&c->optimizer);
    tr_free(&c->path);
    tr_free(&c->state_json);
    tr_free(checkpoint);
}

static tr_status_t open_step(const char *dir, int64_t step, tr_checkpoint_t **out) {
    char name[32], path[4096];
    tr_checkpoint_name(step, name);
    TR_TRY(tr_path_join(dir, name, path));
    return tr_checkpoint_open(path, out);
}

tr_status_t tr_checkpoint_open_newest(const char *dir, tr_checkpoint_t **out, tr_str_t *skipped) {
    tr_steps_t steps = {0};
    tr_status_t status = tr_checkpoint_list(dir, &steps);
    *out = NULL;
    for (size_t i = 0; status == TR_OK && i < steps.count; i++) {
        status = open_step(dir, steps.data[i], out);
        if (status == TR_OK || status == TR_ERR_MEMORY) break;
        if (skipped)
            tr_str_printf(skipped, "step %lld: %s\n", (long long)steps.data[i],
                          tr_error_last()->message);
        status = TR_OK;
    }
    if (status == TR_OK && steps.count > 0 && !*out) {
        tr_error_t last = *tr_error_last();
        status = TR_FAIL(TR_ERR_DATA,
                         "%s holds %zu checkpoints, and none is complete. Restore one, or start a "
                         "new run in another run.dir. The oldest: %.1000s",
                         dir, steps.count, last.message);
    }
    tr_vec_free(&steps);
    return status;
}
