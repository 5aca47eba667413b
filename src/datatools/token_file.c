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

typedef struct {
    tr_token_file_t *file;
    tr_writer_t *writer;
    const tr_import_params_t *params;
    int64_t done; /* tokens */
} write_t;

static tr_status_t write_tokens(write_t *w, const char *group, int64_t count) {
    tr_token_file_t *f = w->file;
    char name[32];
    int array;
    snprintf(name, sizeof name, "%s/tokens", group);
    TR_TRY(tr_writer_array(w->writer, name, f->dtype, count, &(tr_shape_t){0}, &array));
    for (int64_t i = 0; i < count; i += ROWS) {
        const int64_t part = min64(ROWS, count - i);
        TR_TRY(spool_read(&f->tokens, f->path, f->row, (size_t)part));
        TR_TRY(tr_writer_append(w->writer, array, part, f->row));
        w->done += part;
        TR_TRY(tr_import_progress(w->params, w->done, f->tokens.count));
    }
    return TR_OK;
}

/* Writes the starts of documents in the tokens [first, first + count) to `array`; -1: only counts
 * them. The first token always starts one. */
static tr_status_t walk_documents(write_t *w, int64_t first, int64_t count, int array,
                                  int64_t *out_count) {
    spool_t *documents = &w->file->documents;
    *out_count = 0;
    TR_TRY(spool_rewind(documents, w->file->path));
    for (int64_t i = -1; i < documents->count; i++) {
        int64_t start = 0;
        if (i >= 0) {
            TR_TRY(spool_read(documents, w->file->path, &start, 1));
            start -= first;
            if (start <= 0 || start >= count) continue;
        }
        if (array >= 0) TR_TRY(tr_writer_append(w->writer, array, 1, &start));
        ++*out_count;
    }
    return TR_OK;
}

static tr_status_t write_documents(write_t *w, const char *group, int64_t first, int64_t count) {
    char name[32];
    int array;
    int64_t documents;
    snprintf(name, sizeof name, "%s/documents", group);
    TR_TRY(walk_documents(w, first, count, -1, &documents));
    TR_TRY(tr_writer_array(w->writer, name, TR_I64, documents, &(tr_shape_t){0}, &array));
    return walk_documents(w, first, count, array, &documents);
}

static tr_status_t write_vocab(write_t *w, const tr_token_vocab_t *vocab) {
    char *json = NULL;
    TR_TRY(tr_writer_numbers(w->writer, "/", "vocab_size", 1, &(double){vocab->vocab_size}));
    if (vocab->end >= 0)
        TR_TRY(tr_writer_numbers(w->writer, "/", "end_of_text", 1, &(double){vocab->end}));
    if (!vocab->tokenizer) return TR_OK;
    TR_TRY(tr_tokenizer_to_json(vocab->tokenizer, &json));
    tr_status_t status = tr_writer_texts(w->writer, "/", "tokenizer", 1, &(const char *){json});
    tr_free(&json);
    return status;
}

static void say(const write_t *w, const tr_token_vocab_t *vocab, int64_t train) {
    const tr_token_file_t *f = w->file;
    if (!w->params->tokens) return;
    tr_str_printf(w->params->tokens, "%lld for training, %lld for validation, %lld document%s; ",
                  (long long)train, (long long)(f->tokens.count - train),
                  (long long)f->documents.count, f->documents.count == 1 ? "" : "s");
    tr_str_printf(w->params->tokens, "a vocabulary of %d", (int)vocab->vocab_size);
    if (vocab->tokenizer)
        tr_str_printf(w->params->tokens, " (%s)", tr_tokenizer_name(vocab->tokenizer));
}

static tr_status_t write_all(write_t *w, const tr_token_vocab_t *vocab, int64_t train) {
    const int64_t valid = w->file->tokens.count - train;
    TR_TRY(spool_rewind(&w->file->tokens, w->file->path));
    TR_TRY(write_tokens(w, "train", train));
    TR_TRY(write_documents(w, "train", 0, train));
    if (valid > 0) {
        TR_TRY(write_tokens(w, "valid", valid));
        TR_TRY(write_documents(w, "valid", train, valid));
    }
    TR_TRY(write_vocab(w, vocab));
    return tr_writer_commit(w->writer);
}

tr_status_t tr_token_file_write(tr_token_file_t *f, const tr_token_vocab_t *vocab,
                                const tr_import_params_t *params) {
    write_t w = {.file = f, .params = params};
    /* rounded as nanoGPT does */
    const int64_t train = (int64_t)((double)f->tokens.count * (1 - params->valid_fraction));
    if (train < 1)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s': %lld token%s, which leaves none for training with --valid-fraction "
                       "%g: add text.",
                       f->path, (long long)f->tokens.count, f->tokens.count == 1 ? "" : "s",
                       params->valid_fraction);
    TR_TRY(tr_writer_create(f->path, &params->writer, &w.writer));
    tr_status_t status = write_all(&w, vocab, train);
    tr_writer_destroy(&w.writer);
    if (status == TR_OK) say(&w, vocab, train);
    return status;
}
