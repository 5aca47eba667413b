/* Writes a checkpoint: the files into a hidden folder, then one rename. */
#include "checkpoint_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tr_checkpoint_texts_free(tr_checkpoint_texts_t *texts) {
    for (size_t i = 0; i < texts->count; i++) {
        tr_free(&texts->data[i].name);
        tr_free(&texts->data[i].text);
    }
    tr_vec_free(texts);
}

/* -- space ------------------------------------------------------------------------------------- */

static int64_t checkpoint_content_bytes(const tr_checkpoint_content_t *c) {
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

tr_status_t tr_checkpoint_room(const char *dir, const tr_checkpoint_content_t *content,
                               int64_t count) {
    char each[32], all[32], left[32];
    const int64_t bytes = tr_free_bytes(dir);
    const double wanted = (double)checkpoint_content_bytes(content);
    if (bytes == INT64_MAX || (double)bytes >= wanted * (double)count) return TR_OK;
    return TR_FAIL(TR_ERR_IO,
                   "%s: expected space for %lld more checkpoint%s of %s, %s in total, found %s "
                   "free. Free some space there, or choose another run.dir%s",
                   dir, (long long)count, count > 1 ? "s" : "", tr_format_bytes(wanted, each),
                   tr_format_bytes(wanted * (double)count, all),
                   tr_format_bytes((double)bytes, left),
                   count > 1 ? " or a smaller checkpoint.keep" : "");
}

/* Reports the consequence for the user first. The code is always IO: the caller continues training
 * and retries. */
static tr_status_t checkpoint_explain(const char *dir, const tr_checkpoint_content_t *content) {
    tr_error_t cause = *tr_error_last();
    char wanted[32], left[32];
    const int64_t bytes = tr_free_bytes(dir), needed = checkpoint_content_bytes(content);
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

/* -- one checkpoint ---------------------------------------------------------------------------- */

/* Writes a file of tensors and lists it, with its tensors, in the manifest. */
static tr_status_t checkpoint_write_tensors(const char *dir, const char *name,
                                            const tr_named_tensor_t *tensors, size_t count,
                                            const char *metadata, tr_manifest_t *m) {
    char path[4096];
    uint64_t *checksums = NULL, checksum = 0;
    int64_t bytes = 0, offset = 0;
    tr_status_t status = TR_OK;
    TR_TRY(tr_path_join(dir, name, path));
    TR_TRY(tr_alloc(count * sizeof *checksums, "checksums", &checksums));
    TR_TRY_GOTO(tr_safetensors_write(path, tensors, count, metadata, checksums, &checksum, &bytes),
                done);
    TR_TRY_GOTO(tr_manifest_add_file(m, name, bytes, checksum), done);
    for (size_t i = 0; i < count; i++) {
        const tr_named_tensor_t *t = &tensors[i];
        tr_manifest_tensor_t row = {.name = (char *)t->name,
                                    .dtype = t->dtype,
                                    .shape = t->shape,
                                    .offset = offset,
                                    .checksum = checksums[i]};
        TR_TRY_GOTO(tr_manifest_add_tensor(m, &row), done);
        tr_tensor_bytes(t->dtype, &t->shape, &bytes);
        offset += bytes;
    }
done:
    tr_free(&checksums);
    return status;
}

/* The folder and its files of tensors, after the status of what came before. */
static tr_status_t checkpoint_write_own(const char *temporary, const tr_checkpoint_content_t *c,
                                        tr_status_t status, tr_manifest_t *m) {
    TR_TRY(status);
    TR_TRY(tr_remove_tree(temporary));
    if (mkdir(temporary, 0777) != 0) return tr_io_fail("create", temporary, errno);
    TR_TRY(checkpoint_write_tensors(temporary, TR_CHECKPOINT_MODEL, c->model, c->model_count,
                                    c->metadata, m));
    return c->optimizer_count == 0
               ? TR_OK
               : checkpoint_write_tensors(temporary, TR_CHECKPOINT_OPTIMIZER, c->optimizer,
                                          c->optimizer_count, NULL, m);
}

/* Writes a file of text and lists it in the manifest, which may be NULL. */
static tr_status_t checkpoint_write_text(const char *dir, const char *name, const char *text,
                                         tr_manifest_t *m) {
    char path[4096];
    tr_sink_t *sink = NULL;
    uint64_t checksum = 0;
    int64_t bytes = 0;
    TR_TRY(tr_path_join(dir, name, path));
    TR_TRY(tr_sink_open(path, &sink));
    tr_status_t status = tr_sink_write(sink, text, strlen(text));
    if (status == TR_OK) status = tr_sink_commit(sink, &checksum, &bytes);
    tr_sink_close(&sink);
    TR_TRY(status);
    return m ? tr_manifest_add_file(m, name, bytes, checksum) : TR_OK;
}

/* For a file system that cannot exchange two names: for a moment no checkpoint of this step exists;
 * those of other steps do. */
static tr_status_t checkpoint_replace_in_two(const char *dir, const char *temporary,
                                             const char *final) {
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

tr_status_t tr_checkpoint_write(const char *dir, const tr_checkpoint_content_t *content,
                                char **out_path) {
    const tr_checkpoint_content_t *c = content;
    char name[32], hidden[64], temporary[4096], final[4096];
    tr_manifest_t manifest = {.step = c->step};
    tr_str_t listing = {0};
    bool exchanged = false;
    tr_status_t status = TR_OK;
    tr_checkpoint_name(c->step, name);
    snprintf(hidden, sizeof hidden, ".tmp-%s-%d", name, (int)getpid());
    TR_TRY(tr_path_join(dir, c->sharing ? c->sharing->attempt.folder : hidden, temporary));
    TR_TRY(tr_path_join(dir, name, final));

    /* A temporary folder, where there is space. The files, each with fsync; MANIFEST, which makes
     * them complete, is the last. */
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        status = tr_io_fail("create", dir, errno);
    else if (tr_free_bytes(dir) < checkpoint_content_bytes(c))
        status = TR_FAIL(
            TR_ERR_IO,
            "Free some space there, or choose another run.dir or a smaller checkpoint.keep.");
    status = c->sharing ? tr_checkpoint_write_shared(temporary, c, status, &manifest)
                        : checkpoint_write_own(temporary, c, status, &manifest);
    if (status != TR_OK) goto done;
    TR_TRY_GOTO(checkpoint_write_text(temporary, TR_CHECKPOINT_STATE,
                                      c->state_json ? c->state_json : "{}", &manifest),
                done);
    for (size_t i = 0; i < c->text_count; i++)
        TR_TRY_GOTO(checkpoint_write_text(temporary, c->texts[i].name, c->texts[i].text, &manifest),
                    done);
    TR_TRY_GOTO(tr_manifest_format(&manifest, &listing), done);
    TR_TRY_GOTO(checkpoint_write_text(temporary, TR_CHECKPOINT_MANIFEST, listing.text, NULL), done);
    TR_TRY_GOTO(tr_sync_directory(temporary), done);

    /* The commit. rename() refuses to replace a folder that is not empty, so trying it loses
     * nothing; a checkpoint of this step is exchanged with the new one and deleted. */
    if (rename(temporary, final) != 0) {
        if (errno != EEXIST && errno != ENOTEMPTY) {
            status = tr_io_fail("rename", temporary, errno);
            goto done;
        }
        exchanged = renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0;
        if (!exchanged) TR_TRY_GOTO(checkpoint_replace_in_two(dir, temporary, final), done);
    }
    TR_TRY_GOTO(tr_sync_directory(dir), done);
    if (exchanged) TR_TRY_GOTO(tr_remove_tree(temporary), done);
done:
    tr_manifest_free(&manifest);
    tr_str_free(&listing);
    if (status != TR_OK) {
        status = checkpoint_explain(dir, c);
        const tr_error_t cause = *tr_error_last();
        tr_remove_tree(temporary);
        tr_error_set(&cause);
        return status;
    }
    return out_path ? tr_strdup(final, out_path) : TR_OK;
}
