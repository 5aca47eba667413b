/* Writes token files: the tokens wait in temporary files until their number is known. */
#include "token_file.h"
#include "import_int.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS 65536 /* converted at once */

/* Rows in an unnamed temporary file until the end. */
typedef struct {
    FILE *file;
    int64_t count, row_bytes;
} spool_t;

struct tr_token_file {
    char *path;
    tr_dtype_t dtype;
    spool_t tokens, documents;
    void *row; /* [ROWS]: in the file's type */
};

/* -- waiting rows ------------------------------------------------------------------------------ */

static tr_status_t spool_open(spool_t *spool, const char *path, int64_t row_bytes) {
    tr_str_t name = {0};
    tr_str_printf(&name, "%s.tokens-XXXXXX", path);
    TR_TRY(name.status);
    const int fd = mkstemp(name.text), reason = errno;
    if (fd >= 0) unlink(name.text);
    tr_str_free(&name);
    spool->row_bytes = row_bytes;
    spool->file = fd >= 0 ? fdopen(fd, "w+") : NULL;
    if (spool->file) return TR_OK;
    if (fd >= 0) close(fd);
    return TR_FAIL(tr_status_of_errno(reason), "cannot create a temporary file beside '%s': %s.",
                   path, strerror(reason));
}

static tr_status_t spool_write(spool_t *spool, const char *path, const void *rows, size_t count) {
    if (fwrite(rows, (size_t)spool->row_bytes, count, spool->file) != count)
        return TR_FAIL(TR_ERR_IO, "cannot write the tokens of '%s': %s.", path, strerror(errno));
    spool->count += (int64_t)count;
    return TR_OK;
}

static tr_status_t spool_read(spool_t *spool, const char *path, void *rows, size_t count) {
    if (fread(rows, (size_t)spool->row_bytes, count, spool->file) == count) return TR_OK;
    return TR_FAIL(TR_ERR_IO, "cannot read back the tokens of '%s': %s.", path, strerror(errno));
}

static tr_status_t spool_rewind(spool_t *spool, const char *path) {
    if (fflush(spool->file) == 0 && fseeko(spool->file, 0, SEEK_SET) == 0) return TR_OK;
    return TR_FAIL(TR_ERR_IO, "cannot write the tokens of '%s': %s.", path, strerror(errno));
}

/* -- collecting -------------------------------------------------------------------------------- */

tr_status_t tr_token_file_create(const char *path, tr_dtype_t dtype, tr_token_file_t **out) {
    tr_token_file_t *f = NULL;
    tr_status_t status;
    TR_TRY(tr_alloc(sizeof *f, "file of tokens", &f));
    f->dtype = dtype;
    TR_TRY_GOTO(tr_strdup(path, &f->path), done);
    TR_TRY_GOTO(tr_alloc(ROWS * sizeof(int64_t), "tokens", &f->row), done);
    TR_TRY_GOTO(spool_open(&f->tokens, path, (int64_t)tr_dtype_bytes(dtype)), done);
    TR_TRY_GOTO(spool_open(&f->documents, path, sizeof(int64_t)), done);
done:
    if (status != TR_OK) tr_token_file_destroy(&f);
    *out = f;
    return status;
}

void tr_token_file_destroy(tr_token_file_t **file) {
    tr_token_file_t *f = *file;
    *file = NULL;
    if (!f) return;
    if (f->tokens.file) fclose(f->tokens.file);
    if (f->documents.file) fclose(f->documents.file);
    tr_free(&f->path);
    tr_free(&f->row);
    tr_free(&f);
}

int64_t tr_token_file_count(const tr_token_file_t *f) {
    return f->tokens.count;
}

tr_status_t tr_token_file_document(tr_token_file_t *f) {
    return spool_write(&f->documents, f->path, &f->tokens.count, 1);
}

tr_status_t tr_token_file_add(tr_token_file_t *f, const int32_t *ids, size_t count) {
    if (f->dtype == TR_U32) return spool_write(&f->tokens, f->path, ids, count);
    for (size_t i = 0; i < count;) {
        uint16_t *row = f->row;
        const size_t part = count - i < ROWS ? count - i : ROWS;
        for (size_t j = 0; j < part; j++) row[j] = (uint16_t)ids[i + j];
        TR_TRY(spool_write(&f->tokens, f->path, row, part));
        i += part;
    }
    return TR_OK;
}

/* -- writing ----------------------------------------------------------------------------------- */

/* Writes the starts of documents in the tokens [first, first + count) to `array`; -1: only counts
 * them. The first token always starts one. */
static tr_status_t token_file_walk_documents(tr_token_file_t *f, tr_writer_t *writer, int64_t first,
                                             int64_t count, int array, int64_t *out_count) {
    *out_count = 0;
    TR_TRY(spool_rewind(&f->documents, f->path));
    for (int64_t i = -1; i < f->documents.count; i++) {
        int64_t start = 0;
        if (i >= 0) {
            TR_TRY(spool_read(&f->documents, f->path, &start, 1));
            start -= first;
            if (start <= 0 || start >= count) continue;
        }
        if (array >= 0) TR_TRY(tr_writer_append(writer, array, 1, &start));
        ++*out_count;
    }
    return TR_OK;
}

/* Writes the tokens [first, first + count), the next ones of the spool, and their documents. */
static tr_status_t token_file_write_group(tr_token_file_t *f, tr_writer_t *writer,
                                          const tr_import_params_t *params, const char *group,
                                          int64_t first, int64_t count) {
    char name[32];
    int array;
    int64_t documents;
    snprintf(name, sizeof name, "%s/tokens", group);
    TR_TRY(tr_writer_array(writer, name, f->dtype, count, &(tr_shape_t){0}, &array));
    for (int64_t i = 0; i < count; i += ROWS) {
        const int64_t part = min64(ROWS, count - i);
        TR_TRY(spool_read(&f->tokens, f->path, f->row, (size_t)part));
        TR_TRY(tr_writer_append(writer, array, part, f->row));
        TR_TRY(tr_import_progress(params, first + i + part, f->tokens.count));
    }
    snprintf(name, sizeof name, "%s/documents", group);
    TR_TRY(token_file_walk_documents(f, writer, first, count, -1, &documents));
    TR_TRY(tr_writer_array(writer, name, TR_I64, documents, &(tr_shape_t){0}, &array));
    return token_file_walk_documents(f, writer, first, count, array, &documents);
}

tr_status_t tr_token_file_write(tr_token_file_t *f, const tr_token_vocab_t *vocab,
                                const tr_import_params_t *params) {
    /* rounded as nanoGPT does */
    const int64_t all = f->tokens.count,
                  train = (int64_t)((double)all * (1 - params->valid_fraction));
    tr_writer_t *writer = NULL;
    char *json = NULL;
    tr_status_t status;
    if (all == 0) return TR_FAIL(TR_ERR_DATA, "'%s': the input has no tokens.", f->path);
    if (train < 1)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s': %lld token%s, which leaves none for training with --valid-fraction "
                       "%g: add text, or give a smaller --valid-fraction.",
                       f->path, (long long)all, all == 1 ? "" : "s", params->valid_fraction);
    TR_TRY(tr_writer_create(f->path, &params->writer, &writer));
    TR_TRY_GOTO(spool_rewind(&f->tokens, f->path), done);
    TR_TRY_GOTO(token_file_write_group(f, writer, params, "train", 0, train), done);
    if (train < all)
        TR_TRY_GOTO(token_file_write_group(f, writer, params, "valid", train, all - train), done);

    TR_TRY_GOTO(tr_writer_numbers(writer, "/", "vocab_size", 1, &(double){vocab->vocab_size}),
                done);
    if (vocab->end >= 0)
        TR_TRY_GOTO(tr_writer_numbers(writer, "/", "end_of_text", 1, &(double){vocab->end}), done);
    if (vocab->tokenizer) {
        TR_TRY_GOTO(tr_tokenizer_to_json(vocab->tokenizer, &json), done);
        TR_TRY_GOTO(tr_writer_texts(writer, "/", "tokenizer", 1, &(const char *){json}), done);
    }
    TR_TRY_GOTO(tr_writer_commit(writer), done);

    if (params->tokens) {
        tr_str_printf(params->tokens, "%lld for training, %lld for validation, %lld document%s; ",
                      (long long)train, (long long)(all - train), (long long)f->documents.count,
                      f->documents.count == 1 ? "" : "s");
        tr_str_printf(params->tokens, "a vocabulary of %d", (int)vocab->vocab_size);
        if (vocab->tokenizer)
            tr_str_printf(params->tokens, " (%s)", tr_tokenizer_name(vocab->tokenizer));
    }
done:
    tr_writer_destroy(&writer);
    tr_free(&json);
    return status;
}
