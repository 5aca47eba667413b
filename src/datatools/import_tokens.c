/* tokens: converts token files of other programs to a token file. */
#include "base/file.h"
#include "import_int.h"
#include "token_file.h"
#include "token_source.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROWS 65536

typedef struct {
    const tr_import_params_t *params;
    tr_tokenizer_t *tokenizer; /* NULL: not known */
    tr_token_file_t *file;
    tr_dtype_t type; /* of the ids of the first file, or from the tokenizer */
    int32_t largest, id[ROWS];
    uint8_t raw[ROWS * sizeof(int64_t)];
    bool has_ended; /* the next token starts a document */
} import_t;

/* Reads the ids of a file. */
static tr_status_t tokens_read_ids(import_t *m, FILE *file, const char *path,
                                   const tr_token_form_t *form) {
    const int64_t largest = m->tokenizer        ? m->tokenizer->vocab_size - 1
                            : m->type == TR_U16 ? UINT16_MAX
                                                : INT32_MAX - 1;
    const size_t id_bytes = (size_t)form->bytes;
    int64_t done = 0;
    for (size_t bytes; (bytes = fread(m->raw, 1, ROWS * id_bytes, file)) > 0;) {
        const size_t count = bytes / id_bytes;
        if (bytes % id_bytes)
            return TR_FAIL(TR_ERR_DATA, "'%s' ends within token %lld: it has ids of %zu bytes.",
                           path, (long long)(done + (int64_t)count), id_bytes);
        for (size_t i = 0; i < count; i++) {
            const int64_t id = tr_token_form_id(form, m->raw + i * id_bytes);
            if (id < 0 || id > largest)
                return TR_FAIL(TR_ERR_DATA, "'%s': token %lld has the id %lld; expected 0 to %lld.",
                               path, (long long)(done + (int64_t)i), (long long)id,
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
    if (form->count >= 0 && form->count != done)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' has %lld tokens, but its header states %lld. Download it again.", path,
                       (long long)done, (long long)form->count);
    return TR_OK;
}

static tr_status_t tokens_read_file(import_t *m, const char *path, const char *out) {
    tr_token_form_t form;
    tr_status_t status = TR_OK;
    FILE *file = fopen(path, "re");
    if (!file)
        return TR_FAIL(tr_status_of_errno(errno), "cannot open '%s': %s.", path, strerror(errno));
    TR_TRY_GOTO(tr_token_form_find(file, path, m->params->ids, &form), done);
    if (!m->file) { /* the first file determines the type of all files */
        m->type = m->tokenizer      ? tr_token_type(m->tokenizer->vocab_size)
                  : form.bytes <= 2 ? TR_U16
                                    : TR_U32;
        TR_TRY_GOTO(tr_token_file_create(out, m->type, &m->file), done);
    }
    m->has_ended = true;
    TR_TRY_GOTO(tokens_read_ids(m, file, path, &form), done);
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
    .usage = "FILE... OUT.h5 [--ids u16|u32|u64|'>u16'|'>u32'|'>u64'] "
             "[--tokenizer bytes|gpt2:DIR] [--valid-fraction PART]",
    .help =
        "Converts token files, in the order given: those of nanoGPT (16-bit ids without a header), "
        "of llm.c, of NumPy (.npy, one dimension of whole numbers), and of Megatron-LM and fairseq "
        "(NAME.bin with NAME.idx beside it). --ids says how a file without a header stores its "
        "ids: unsigned, with 16, 32 or 64 bits; with > before it, the highest byte comes first "
        "(big-endian). By default such files are u16, and a file that looks otherwise is refused. "
        "With --tokenizer the ids are checked and the tokenizer is stored with them. "
        "The last PART (0.1) of the tokens is for validation.",
    .unit = "tokens",
    .takes_many = true,
    .run = tokens_import};
