/*
 * tokens: converts .bin files of nanoGPT (16-bit ids) and of llm.c (with a header) to a token file.
 */
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

/* A .bin file; header 0: nanoGPT's format, without a header. */
typedef struct {
    const char *path;
    FILE *file;
    long header_bytes;
    int64_t expected; /* number of tokens in the header; -1: no header */
    size_t id_bytes;
} bin_t;

/* llm.c: 256 int32: magic, version, number of tokens. */
static tr_status_t read_header(bin_t *bin) {
    static const struct {
        int32_t magic, version;
        size_t id_bytes;
    } forms[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    int32_t header[HEADER_INTS];
    bin->expected = -1;
    bin->id_bytes = 2;
    const size_t got = fread(header, 1, sizeof header, bin->file);
    if (got == 0) return TR_FAIL(TR_ERR_DATA, "'%s' is empty: it has no tokens.", bin->path);
    for (size_t i = 0; i < TR_COUNT(forms) && got == sizeof header; i++) {
        if (header[0] != forms[i].magic || header[1] != forms[i].version) continue;
        bin->expected = (uint32_t)header[2];
        bin->id_bytes = forms[i].id_bytes;
        return TR_OK;
    }
    rewind(bin->file);
    return TR_OK;
}

/* The largest possible id. */
static int64_t most_of(const import_t *m) {
    if (m->tokenizer) return m->tokenizer->vocab_size - 1;
    return m->type == TR_U16 ? UINT16_MAX : INT32_MAX - 1;
}

static tr_status_t take(import_t *m, const bin_t *bin, int64_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint32_t id = bin->id_bytes == 2 ? m->raw.u16[i] : m->raw.u32[i];
        if (id > most_of(m))
            return TR_FAIL(TR_ERR_DATA, "'%s': token %lld has the id %u; expected 0 to %lld.",
                           bin->path, (long long)(first + (int64_t)i), (unsigned)id,
                           (long long)most_of(m));
        m->id[i] = (int32_t)id;
        if (m->id[i] > m->largest) m->largest = m->id[i];
    }
    for (size_t i = 0, begin = 0; i < count; i++) {
        if (m->has_ended) {
            TR_TRY(tr_token_file_add(m->file, m->id + begin, i - begin));
            TR_TRY(tr_token_file_document(m->file));
            begin = i;
        }
        m->has_ended = m->tokenizer && m->id[i] == m->tokenizer->end;
        if (i + 1 == count) TR_TRY(tr_token_file_add(m->file, m->id + begin, count - begin));
    }
    return tr_import_progress(m->params, tr_token_file_count(m->file), 0);
}

static tr_status_t read_ids(import_t *m, const bin_t *bin) {
    int64_t done = 0;
    for (size_t bytes; (bytes = fread(&m->raw, 1, ROWS * bin->id_bytes, bin->file)) > 0;) {
        const size_t count = bytes / bin->id_bytes;
        if (bytes % bin->id_bytes)
            return TR_FAIL(TR_ERR_DATA, "'%s' ends within token %lld: it has ids of %zu bytes.",
                           bin->path, (long long)(done + (int64_t)count), bin->id_bytes);
        TR_TRY(take(m, bin, done, count));
        done += (int64_t)count;
    }
    if (ferror(bin->file))
        return TR_FAIL(TR_ERR_IO, "cannot read '%s': %s.", bin->path, strerror(errno));
    if (bin->expected >= 0 && bin->expected != done)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' has %lld tokens, but its header states %lld. Download it again.",
                       bin->path, (long long)done, (long long)bin->expected);
    return TR_OK;
}

/* The first file determines the type of all files. */
static tr_status_t read_file(import_t *m, const char *path, const char *out) {
    bin_t bin = {.path = path, .file = fopen(path, "re")};
    if (!bin.file)
        return TR_FAIL(tr_status_of_errno(errno), "cannot open '%s': %s.", path, strerror(errno));
    tr_status_t status = read_header(&bin);
    if (status == TR_OK && !m->file) {
        m->type = m->tokenizer        ? tr_token_type(m->tokenizer->vocab_size)
                  : bin.id_bytes == 2 ? TR_U16
                                      : TR_U32;
        status = tr_token_file_create(out, m->type, &m->file);
    }
    m->has_ended = true;
    if (status == TR_OK) status = read_ids(m, &bin);
    fclose(bin.file);
    return status;
}

static tr_status_t import(import_t *m, const char *out) {
    const tr_import_params_t *p = m->params;
    for (int i = 0; i < p->input_count; i++) TR_TRY(read_file(m, p->input[i], out));
    const tr_token_vocab_t vocab = {m->tokenizer ? m->tokenizer->vocab_size : m->largest + 1,
                                    m->tokenizer ? m->tokenizer->end : -1, m->tokenizer};
    return tr_token_file_write(m->file, &vocab, p);
}

static tr_status_t run(const char *in, const char *out, const tr_import_params_t *params) {
    import_t *m = NULL;
    tr_status_t status;
    for (int i = 0; i < params->input_count; i++)
        TR_TRY(tr_import_check_place(params->input[i], out));
    for (int i = 0; i < params->input_count; i++)
        TR_TRY(tr_import_check_regular(params->input[i], "its first bytes are read twice"));
    TR_TRY(tr_alloc(sizeof *m, "tokens", &m));
    m->params = params;
    if (params->tokenizer) TR_TRY_GOTO(tr_tokenizer_create(params->tokenizer, &m->tokenizer), done);
    if (m->tokenizer && m->tokenizer->is_learning)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_USAGE,
                            "--tokenizer %s: its vocabulary is built from text, and the input is "
                            "tokens.",
                            params->tokenizer),
                    done);
    TR_TRY_GOTO(import(m, out), done);
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
    .run = run};
