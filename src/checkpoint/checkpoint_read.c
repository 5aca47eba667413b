/* Opens checkpoints and verifies them. */
#include "checkpoint_int.h"
#include "safetensors_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static tr_status_t checkpoint_check_length(const char *path, int64_t found, int64_t wanted) {
    if (found == wanted) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "%s has %lld bytes, but MANIFEST lists %lld.", path,
                   (long long)found, (long long)wanted);
}

static tr_status_t checkpoint_check_sum(const char *path, uint64_t found, uint64_t wanted) {
    if (found == wanted) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "%s is damaged: its checksum differs from MANIFEST.", path);
}

static tr_status_t checkpoint_open_text(const tr_manifest_file_t *row, const char *path,
                                        char **out) {
    int64_t bytes = 0;
    TR_TRY(tr_read_text(path, TR_TEXT_MAX_BYTES, out, &bytes));
    TR_TRY(checkpoint_check_length(path, bytes, row->bytes));
    return checkpoint_check_sum(path, tr_checksum_bytes(*out, (size_t)bytes), row->checksum);
}

/* Of the data of tensors, what is verified: those tensors that begin in this part. */
typedef struct {
    int part, parts;
} checkpoint_share_t;

/* Header and MANIFEST describe the same tensors, and the bytes on disk have their checksums. */
static tr_status_t checkpoint_open_tensors(const tr_manifest_t *m, size_t file,
                                           const checkpoint_share_t *share, const char *path,
                                           tr_safetensors_t **out) {
    const tr_manifest_tensor_t *rows = m->tensors.data;
    size_t first = 0, count = 0;
    int64_t offset = 0, bytes = 0;
    struct stat st;
    tr_checksum_t *whole = NULL;
    tr_status_t status = TR_OK;
    if (stat(path, &st) != 0) return tr_io_fail("open", path, errno);
    TR_TRY(checkpoint_check_length(path, st.st_size, m->files.data[file].bytes));
    TR_TRY(tr_safetensors_open(path, out));
    TR_TRY(tr_checksum_create(&whole));
    const tr_safetensors_t *f = *out;
    const int64_t start = tr_safetensors_data_start(f), data = st.st_size - start;
    while (first < m->tensors.count && rows[first].file != file) first++;
    while (first + count < m->tensors.count && rows[first + count].file == file) count++;
    if (count != tr_safetensors_count(f)) {
        status = TR_FAIL(TR_ERR_DATA, "%s has %zu tensors, but MANIFEST lists %zu.", path,
                         tr_safetensors_count(f), count);
        goto done;
    }
    TR_TRY_GOTO(tr_checksum_read(whole, NULL, tr_safetensors_fd(f), path, 0, start), done);
    for (size_t i = 0; i < count; i++, offset += bytes) {
        const tr_manifest_tensor_t *row = &rows[first + i];
        const tr_named_tensor_t *t = tr_safetensors_at(f, i);
        if (strcmp(row->name, t->name) != 0 || row->dtype != t->dtype ||
            !tr_shape_equal(&row->shape, &t->shape) || row->offset != offset) {
            status = TR_FAIL(TR_ERR_DATA,
                             "%s: tensor %zu differs from its entry in MANIFEST ('%.200s').", path,
                             i, row->name);
            goto done;
        }
        tr_tensor_bytes(row->dtype, &row->shape, &bytes);
        if (bytes == 0 || offset * share->parts / data != share->part) continue;
        tr_checksum_begin_part(whole);
        TR_TRY_GOTO(
            tr_checksum_read(whole, NULL, tr_safetensors_fd(f), path, start + offset, bytes), done);
        if (tr_checksum_part(whole) != row->checksum) {
            status = TR_FAIL(TR_ERR_DATA,
                             "%s: the data of tensor '%.200s' is damaged (checksum mismatch).",
                             path, row->name);
            goto done;
        }
    }
    if (share->parts == 1 && share->part == 0)
        status = checkpoint_check_sum(path, tr_checksum_value(whole), m->files.data[file].checksum);
done:
    tr_checksum_destroy(&whole);
    return status;
}

/* Opens the files that the MANIFEST of the folder c->path lists. */
static tr_status_t checkpoint_open_files(tr_checkpoint_t *c, const tr_manifest_t *m,
                                         const checkpoint_share_t *share) {
    c->step = m->step;
    int64_t named = c->step;
    if (tr_checkpoint_parse_name(tr_file_name(c->path), &named) && named != c->step)
        return TR_FAIL(TR_ERR_DATA, "%s holds step %lld: the folder was renamed.", c->path,
                       (long long)c->step);
    for (size_t i = 0; i < m->files.count; i++) {
        const char *name = m->files.data[i].name;
        char path[4096], *unused = NULL;
        TR_TRY(tr_path_join(c->path, name, path));
        if (strcmp(name, TR_CHECKPOINT_STATE) == 0 && !c->state_json) {
            TR_TRY(checkpoint_open_text(&m->files.data[i], path, &c->state_json));
            c->state = json_loads(c->state_json, 0, NULL);
        } else if (strcmp(name, TR_CHECKPOINT_MODEL) == 0 && !c->model) {
            TR_TRY(checkpoint_open_tensors(m, i, share, path, &c->model));
        } else if (strcmp(name, TR_CHECKPOINT_OPTIMIZER) == 0 && !c->optimizer) {
            TR_TRY(checkpoint_open_tensors(m, i, share, path, &c->optimizer));
        } else { /* for other programs */
            const tr_status_t status = checkpoint_open_text(&m->files.data[i], path, &unused);
            tr_free(&unused);
            TR_TRY(status);
        }
    }
    if (!c->model || !c->state_json)
        return TR_FAIL(TR_ERR_DATA, "%s: MANIFEST must list %s and %s.", c->path,
                       TR_CHECKPOINT_MODEL, TR_CHECKPOINT_STATE);
    return TR_OK;
}

tr_status_t tr_checkpoint_open_part(const char *path, int part, int parts, tr_checkpoint_t **out) {
    tr_checkpoint_t *c = NULL;
    tr_manifest_t m = {0};
    char manifest_path[4096], *real = NULL, *text = NULL;
    int64_t bytes = 0;
    struct stat st;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *c, "checkpoint", &c));
    real = realpath(path, NULL);
    if (!real) {
        status = tr_io_fail("open", path, errno);
        goto done;
    }
    TR_TRY_GOTO(tr_strdup(real, &c->path), done);
    if (stat(c->path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        status = TR_FAIL(TR_ERR_DATA, "%s is not a checkpoint: expected a folder with %s.", path,
                         TR_CHECKPOINT_MANIFEST);
        goto done;
    }
    TR_TRY_GOTO(tr_path_join(c->path, TR_CHECKPOINT_MANIFEST, manifest_path), done);
    TR_TRY_GOTO(tr_read_text(manifest_path, TR_TEXT_MAX_BYTES, &text, &bytes), done);
    TR_TRY_GOTO(tr_manifest_parse(text, (size_t)bytes, manifest_path, &m), done);
    c->checksum = tr_checksum_bytes(text, (size_t)bytes);
    TR_TRY_GOTO(checkpoint_open_files(c, &m, &(checkpoint_share_t){part, parts}), done);
done:
    free(real);
    tr_free(&text);
    tr_manifest_free(&m);
    if (status != TR_OK)
        tr_checkpoint_close(&c);
    else
        *out = c;
    return status;
}

tr_status_t tr_checkpoint_open(const char *path, tr_checkpoint_t **out) {
    return tr_checkpoint_open_part(path, 0, 1, out);
}

void tr_checkpoint_close(tr_checkpoint_t **checkpoint) {
    tr_checkpoint_t *c = *checkpoint;
    if (!c) return;
    tr_safetensors_close(&c->model);
    tr_safetensors_close(&c->optimizer);
    tr_free(&c->path);
    tr_free(&c->state_json);
    json_decref(c->state);
    tr_free(checkpoint);
}

tr_status_t tr_checkpoint_open_newest(const char *dir, const tr_checkpoint_opener_t *opener,
                                      tr_checkpoint_t **out, tr_str_t *skipped) {
    tr_steps_t steps = {0};
    tr_status_t status = tr_checkpoint_list(dir, &steps);
    *out = NULL;
    for (size_t i = 0; status == TR_OK && i < steps.count; i++) {
        char name[32], path[4096];
        tr_checkpoint_name(steps.data[i], name);
        status = tr_path_join(dir, name, path);
        if (status == TR_OK)
            status = opener ? opener->open(opener->self, path, out) : tr_checkpoint_open(path, out);
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
