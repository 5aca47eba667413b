#include "checkpoint_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- the files --------------------------------------------------------------------------------- */

static tr_status_t list_tensors(tr_manifest_t *m, const tr_named_tensor_t *tensors, size_t count,
                                const uint64_t *checksums) {
    int64_t offset = 0, bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const tr_named_tensor_t *t = &tensors[i];
        tr_manifest_tensor_t row = {.name = (char *)t->name,
                                    .dtype = t->dtype,
                                    .shape = t->shape,
                                    .offset = offset,
                                    .checksum = checksums[i]};
        TR_TRY(tr_manifest_add_tensor(m, &row));
        tr_tensor_bytes(t->dtype, &t->shape, &bytes);
        offset += bytes;
    }
    return TR_OK;
}

static tr_status_t write_tensors(const char *dir, const char *name,
                                 const tr_named_tensor_t *tensors, size_t count,
                                 const char *metadata, tr_manifest_t *m) {
    char path[4096];
    uint64_t *checksums = NULL, checksum = 0;
    int64_t bytes = 0;
    tr_status_t status = TR_OK;
    TR_TRY(tr_path_join(dir, name, path));
    TR_TRY(tr_alloc(count * sizeof *checksums, "checksums", &checksums));
    TR_TRY_GOTO(tr_safetensors_write(path, tensors, count, metadata, checksums, &checksum, &bytes),
                done);
    TR_TRY_GOTO(tr_manifest_add_file(m, name, bytes, checksum), done);
    TR_TRY_GOTO(list_tensors(m, tensors, count, checksums), done);
done:
    tr_free(&checksums);
    return status;
}

static tr_status_t write_text(const char *dir, const char *name, const char *text, size_t length,
                              uint64_t *checksum, int64_t *bytes) {
    char path[4096];
    tr_sink_t *sink = NULL;
    TR_TRY(tr_path_join(dir, name, path));
    TR_TRY(tr_sink_open(path, &sink));
    tr_status_t status = tr_sink_write(sink, text, length);
    if (status == TR_OK) status = tr_sink_commit(sink, checksum, bytes);
    tr_sink_close(&sink);
    return status;
}

static tr_status_t write_manifest(const char *dir, const tr_manifest_t *m) {
    tr_str_t text = {0};
    tr_status_t status = tr_manifest_format(m, &text);
    if (status == TR_OK)
        status = write_text(dir, TR_CHECKPOINT_MANIFEST, text.text, text.length, NULL, NULL);
    tr_str_free(&text);
    return status;
}

static tr_status_t write_listed_text(const char *dir, const char *name, const char *text,
                                     tr_manifest_t *m) {
    uint64_t checksum = 0;
    int64_t bytes = 0;
    TR_TRY(write_text(dir, name, text, strlen(text), &checksum, &bytes));
    return tr_manifest_add_file(m, name, bytes, checksum);
}

static tr_status_t write_files(const char *dir, const tr_checkpoint_content_t *content,
                               tr_manifest_t *m) {
    const char *state = content->state_json ? content->state_json : "{}";
    m->step = content->step;
    TR_TRY(write_tensors(dir, TR_CHECKPOINT_MODEL, content->model, content->model_count,
                         content->metadata, m));
    if (content->optimizer_count > 0)
        TR_TRY(write_tensors(dir, TR_CHECKPOINT_OPTIMIZER, content->optimizer,
                             content->optimizer_count, NULL, m));
    TR_TRY(write_listed_text(dir, TR_CHECKPOINT_STATE, state, m));
    for (size_t i = 0; i < content->text_count; i++)
        TR_TRY(write_listed_text(dir, content->texts[i].name, content->texts[i].text, m));
    TR_TRY(write_manifest(dir, m));
    return tr_sync_directory(dir);
}

void tr_checkpoint_texts_free(tr_checkpoint_texts_t *texts) {
    for (size_t i = 0; i < texts->count; i++) {
        tr_free(&texts->data[i].name);
        tr_free(&texts->data[i].text);
    }
    tr_vec_free(texts);
}

/* -- the commit -------------------------------------------------------------------------------- */

/* For a file system that cannot exchange two names: for a moment no checkpoint of this step exists;
 * those of other steps do. */
static tr_status_t replace_in_two(const char *dir, const char *temporary, const char *final) {
    char gone[64], aside[4096];
    snprintf(gone, sizeof gone, ".del-replaced-%d", (int)getpid());
    TR_TRY(tr_path_join(dir, gone, aside));
    TR_TRY(tr_remove_tree(aside));
    if (rename(final, aside) != 0) return tr_io_fail("rename", final, errno);
    if (rename(temporary, final) != 0) {
        int why = errno;
        (void)!rename(aside, final);
        return tr_io_fail("rename", temporary, why);
    }
    return tr_remove_tree(aside);
}

static tr_status_t commit(const char *dir, const char *temporary, const char *final) {
    bool exchanged = false;
    /* rename() refuses to replace a directory that is not empty, so trying it loses nothing. */
    if (rename(temporary, final) != 0) {
        if (errno != EEXIST && errno != ENOTEMPTY) return tr_io_fail("rename", temporary, errno);
        exchanged = renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0;
        if (!exchanged) TR_TRY(replace_in_two(dir, temporary, final));
    }
    TR_TRY(tr_sync_directory(dir));
    return exchanged ? tr_remove_tree(temporary) : TR_OK;
}

/* -- space ------------------------------------------------------------------------------------- */

static int64_t wanted_bytes(const tr_checkpoint_content_t *c) {
    int64_t sum = 1 << 16, bytes = 0;
    for (size_t i = 0; i < c->model_count + c->optimizer_count; i++) {
        const tr_named_tensor_t *t =
            i < c->model_count ? &c->model[i] : &c->optimizer[i - c->model_count];
        if (tr_tensor_bytes(t->dtype, &t->shape, &bytes))
            sum += bytes + 256; /* its lines in header and MANIFEST */
    }
    for (size_t i = 0; i < c->text_count; i++) sum += (int64_t)strlen(c->texts[i].text);
    return sum + (c->state_json ? 2 * (int64_t)strlen(c->state_json)
                                : 0); /* part of it is in the metadata, too */
}

/* Reports the consequence for the user first. The code is always IO: the caller continues training
 * and retries. */
static tr_status_t explain(const char *dir, const tr_checkpoint_content_t *content) {
    tr_error_t cause = *tr_error_last();
    char wanted[32], left[32];
    const int64_t bytes = tr_free_bytes(dir), needed = wanted_bytes(content);
    if (cause.code != TR_ERR_IO && cause.code != TR_ERR_NOINPUT) return cause.code;
    tr_format_bytes((double)needed, wanted);
    if (bytes < needed)
        return TR_FAIL(TR_ERR_IO,
                       "The checkpoint of step %lld was not saved: it needs %s, and %s are free in "
                       "%s. %s",
                       (long long)content->step, wanted, tr_format_bytes((double)bytes, left), dir,
                       cause.message);
    return TR_FAIL(TR_ERR_IO, "The checkpoint of step %lld (%s) was not saved in %s. %s",
                   (long long)content->step, wanted, dir, cause.message);
}

static tr_status_t check_space(const char *dir, const tr_checkpoint_content_t *content) {
    if (tr_free_bytes(dir) >= wanted_bytes(content)) return TR_OK;
    return TR_FAIL(
        TR_ERR_IO,
        "Free some space there, or choose another run.dir or a smaller checkpoint.keep.");
}

tr_status_t tr_checkpoint_room(const char *dir, const tr_checkpoint_content_t *content,
                               int64_t count) {
    char each[32], all[32], left[32];
    const int64_t bytes = tr_free_bytes(dir);
    const double wanted = (double)wanted_bytes(content);
    if (bytes == INT64_MAX || (double)bytes >= wanted * (double)count) return TR_OK;
    return TR_FAIL(TR_ERR_IO,
                   "%s: expected space for %lld more checkpoint%s of %s, %s in total, found %s "
                   "free. Free some space there, or choose another run.dir%s",
                   dir, (long long)count, count > 1 ? "s" : "", tr_format_bytes(wanted, each),
                   tr_format_bytes(wanted * (double)count, all),
                   tr_format_bytes((double)bytes, left),
                   count > 1 ? " or a smaller checkpoint.keep" : "");
}

/* -- one checkpoint ---------------------------------------------------------------------------- */

static tr_status_t write_and_commit(const char *dir, const char *temporary, const char *final,
                                    const tr_checkpoint_content_t *content) {
    tr_manifest_t manifest = {0};
    TR_TRY(check_space(dir, content));
    TR_TRY(tr_remove_tree(temporary));
    if (mkdir(temporary, 0777) != 0) return tr_io_fail("create", temporary, errno);
    tr_status_t status = write_files(temporary, content, &manifest);
    tr_manifest_free(&manifest);
    TR_TRY(status);
    return commit(dir, temporary, final);
}

tr_status_t tr_checkpoint_write(const char *dir, const tr_checkpoint_content_t *content,
                                char **out_path) {
    char name[32], hidden[64], temporary[4096], final[4096];
    tr_checkpoint_name(content->step, name);
    snprintf(hidden, sizeof hidden, ".tmp-%s-%d", name, (int)getpid());
    TR_TRY(tr_path_join(dir, hidden, temporary));
    TR_TRY(tr_path_join(dir, name, final));
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) return tr_io_fail("create", dir, errno);
    if (write_and_commit(dir, temporary, final, content) != TR_OK) {
        tr_status_t status = explain(dir, content);
        tr_error_t cause = *tr_error_last();
        tr_remove_tree(temporary);
        tr_error_set(&cause);
        return status;
    }
    return out_path ? tr_strdup(final, out_path) : TR_OK;
}
