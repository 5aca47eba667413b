/*
 * tokens: converts .bin files of nanoGPT (16-bit ids) and of llm.c (with a header) to a token file.
 */
#include "base/file.h"
#include "import_int.h"
#include "token_file.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HEADER_INTS 256
#define ROWS        65536

typedef struct {
    const tr_import_params_t *params;
    tr_tokenizer_t *tokenizer; /* NULL: not known */
    tr_token_file_t *file;
    tr_dtype_t type; /* of the ids of the first file, or from the tokenizer */
    int32_t largest, id[ROWS];
    union {
        uint16_t u16[ROWS];
        uint32_t u32[ROWS];
    } raw;
    bool has_ended; /* the next token starts a document */
} import_t;

/* Reads the ids of a file, each of `id_bytes`; `expected` of them, -1: any number. */
static tr_status_t tokens_read_ids(import_t *m, FILE *file, const char *path, size_t id_bytes,
                                   int64_t expected) {
    const int64_t largest = m->tokenizer        ? m->tokenizer->vocab_size - 1
                            : m->type == TR_U16 ? UINT16_MAX
                                                : INT32_MAX - 1;
    int64_t done = 0;
    for (size_t bytes; (bytes = fread(&m->raw, 1, ROWS * id_bytes, file)) > 0;) {
        const size_t count = bytes / id_bytes;
        if (bytes % id_bytes)
            return TR_FAIL(TR_ERR_DATA, "'%s' ends within token %lld: it has ids of %zu bytes.",
                           path, (long long)(done + (int64_t)count), id_bytes);
        for (size_t i = 0; i < count; i++) {
            const uint32_t id = id_bytes == 2 ? m->raw.u16[i] : m->raw.u32[i];
            if (id > largest)
                return TR_FAIL(TR_ERR_DATA, "'%s': token %lld has the id %u; expected 0 to %lld.",
                               path, (long long)(done + (int64_t)i), (unsigned)id,
                               (long long)largest);
            m->id[i] = (int32_t)id;
            if (m->id[i] > m->largest) m->largest = m->id[i];
        }
        size_t begin = 0; /* a document begins at each token behind an end of text */
        for (size_t i = 0; i < count; i++) {
            if (m->has_ended) {
                TR_TRY(tr_token_file_add(m->file, m->id + begin, i - begin));
                TR_TRY(tr_token_file_document(m->file));
                begin = i;
            }
            m->has_ended = m->tokenizer && m->id[i] == m->tokenizer->end;
        }
        TR_TRY(tr_token_file_add(m->file, m->id + begin, count - begin));
        TR_TRY(tr_import_progress(m->params, tr_token_file_count(m->file), 0));
        done += (int64_t)count;
    }
    if (ferror(file)) return TR_FAIL(TR_ERR_IO, "cannot read '%s': %s.", path, strerror(errno));
    if (expected >= 0 && expected != done)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' has %lld tokens, but its header states %lld. Download it again.", path,
                       (long long)done, (long long)expected);
    return TR_OK;
}

static tr_status_t tokens_read_file(import_t *m, const char *path, const char *out) {
    /* llm.c's header is 256 int32: magic, version, number of tokens; nanoGPT's files have none. */
    static const struct {
        int32_t magic, version;
        size_t id_bytes;
    } forms[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    int32_t header[HEADER_INTS];
    size_t id_bytes = 2;
    int64_t expected = -1;
    tr_status_t status = TR_OK;
    FILE *file = fopen(path, "re");
    if (!file)
        return TR_FAIL(tr_status_of_errno(errno), "cannot open '%s': %s.", path, strerror(errno));
    const size_t got = fread(header, 1, sizeof header, file);
    if (got == 0) {
        status = TR_FAIL(TR_ERR_DATA, "'%s' is empty: it has no tokens.", path);
        goto done;
    }
    for (size_t i = 0; i < TR_COUNT(forms) && got == sizeof header; i++) {
        if (header[0] != forms[i].magic || header[1] != forms[i].version) continue;
        expected = (uint32_t)header[2];
        id_bytes = forms[i].id_bytes;
    }
    if (expected < 0) rewind(file);

    if (!m->file) { /* the first file determines the type of all files */
        m->type = m->tokenizer    ? tr_token_type(m->tokenizer->vocab_size)
                  : id_bytes == 2 ? TR_U16
                                  : TR_U32;
        TR_TRY_GOTO(tr_token_file_create(out, m->type, &m->file), done);
    }
    m->has_ended = true;
    TR_TRY_GOTO(tokens_read_ids(m, file, path, id_bytes, expected), done);
done:
    fclose(file);
    return status;
}

static tr_status_t tokens_import(const char *in, const char *out,
                                 const tr_import_params_t *params) {
    import_t *m = NULL;
    tr_status_t status;
    for (int i = 0; i < params->input_count; i++)
        TR_TRY(tr_import_check_place(params->input[i], out));
    for (int i = 0; i < params->input_count; i++)
        TR_TRY(tr_check_regular(params->input[i], "its first bytes are read twice"));
    TR_TRY(tr_alloc(sizeof *m, "tokens", &m));
    m->params = params;
    if (params->tokenizer) TR_TRY_GOTO(tr_tokenizer_create(params->tokenizer, &m->tokenizer), done);
    if (m->tokenizer && m->tokenizer->is_learning)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_USAGE,
                            "--tokenizer %s: its vocabulary is built from text, and the input is "
                            "tokens.",
                            params->tokenizer),
                    done);
    for (int i = 0; i < params->input_count; i++)
        TR_TRY_GOTO(tokens_read_file(m, params->input[i], out), done);
    const tr_token_vocab_t vocab = {m->tokenizer ? m->tokenizer->vocab_size : m->largest + 1,
                                    m->tokenizer ? m->tokenizer->end : -1, m->tokenizer};
    TR_TRY_GOTO(tr_token_file_write(m->file, &vocab, params), done);
done:
    tr_token_file_destroy(&m->file);
    tr_tokenizer_destroy(&m->tokenizer);
    tr_free(&m);
    return status;
}

const tr_importer_t tr_importer_tokens = {
    .name = "tokens",
    .usage = "FILE.bin... OUT.h5 [--tokenizer bytes|gpt2:DIR] [--valid-fraction PART]",
    .help =
        "Converts token files written by nanoGPT (16-bit ids) or llm.c (with a header), in the "
        "order given. With --tokenizer the ids are checked and the tokenizer is stored with them. "
        "The last PART (0.1) of the tokens is for validation.",
    .unit = "tokens",
    .takes_many = true,
    .run = tokens_import};
