/* text: converts text files to a token file, with an end-of-text token between documents. */
#include "import_int.h"
#include "text_source.h"
#include "token_file.h"
#include "data/data.h"
#include <string.h>

typedef struct {
    const tr_import_params_t *params;
    tr_tokenizer_t *tokenizer;
    tr_encoder_t *encoder;
    tr_token_file_t *file;
    tr_ids_t ids;
    bool has_ended; /* the next token starts a document */
} import_t;

/* Appends the encoded ids to the file, without the ends of texts: one is put before each document
 * but the first. */
static tr_status_t text_add_ids(import_t *m) {
    const int32_t *ids = m->ids.data;
    for (size_t i = 0, end; i < m->ids.count; i = end + 1) {
        for (end = i; end < m->ids.count && ids[end] != m->tokenizer->end;) end++;
        if (end > i && m->has_ended) {
            if (tr_token_file_count(m->file) > 0)
                TR_TRY(tr_token_file_add(m->file, &m->tokenizer->end, 1));
            TR_TRY(tr_token_file_document(m->file));
        }
        if (end > i) {
            TR_TRY(tr_token_file_add(m->file, ids + i, end - i));
            m->has_ended = false;
        }
        m->has_ended |= end < m->ids.count;
    }
    m->ids.count = 0;
    return tr_import_progress(m->params, m->file ? tr_token_file_count(m->file) : 0, 0);
}

static tr_status_t text_take(void *self, const char *text, size_t bytes) {
    import_t *m = self;
    TR_TRY(tr_encoder_add(m->encoder, text, bytes, &m->ids));
    return text_add_ids(m);
}

static tr_status_t text_end(void *self) {
    import_t *m = self;
    TR_TRY(tr_encoder_finish(m->encoder, &m->ids));
    TR_TRY(text_add_ids(m));
    m->has_ended = true;
    return TR_OK;
}

static tr_status_t text_read_files(import_t *m) {
    const tr_text_sink_t sink = {text_take, text_end, m};
    const tr_import_params_t *p = m->params;
    for (int i = 0; i < p->input_count; i++) TR_TRY(tr_text_read(p->input[i], p->field, &sink));
    return TR_OK;
}

/* The tokenizer that another token file has. */
static tr_status_t text_stored_tokenizer(const char *path, tr_tokenizer_t **out) {
    static const tr_config_table_t *const tables[] = {&tr_data_config};
    tr_config_t *config = NULL;
    tr_dataset_t *dataset = NULL;
    tr_data_settings_t settings;
    tr_status_t status;
    TR_TRY(tr_config_create(tables, TR_COUNT(tables), &config));
    tr_config_read(config, &tr_data_config, &settings);
    settings.train = path;
    settings.context = 1;
    TR_TRY_GOTO(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &dataset), done);
    status = dataset->info.tokenizer
                 ? tr_tokenizer_from_json(dataset->info.tokenizer, path, out)
                 : TR_FAIL(TR_ERR_DATA,
                           "%s stores no tokenizer, so it cannot be --tokenizer: give "
                           "a token file that `trainer import text` made.",
                           path);
done:
    tr_dataset_close(&dataset);
    tr_config_destroy(&config);
    return status;
}

static tr_status_t text_import(const char *in, const char *out, const tr_import_params_t *params) {
    import_t m = {.params = params};
    const char *spec = params->tokenizer, *suffix = spec ? strstr(spec, ".h5") : NULL;
    tr_status_t status;
    if (!spec)
        return TR_FAIL(TR_ERR_USAGE, "import text requires --tokenizer bytes, chars, gpt2:DIR or "
                                     "FILE.h5.");
    for (int i = 0; i < params->input_count; i++)
        TR_TRY(tr_import_check_place(params->input[i], out));
    /* A kind may have an argument after a colon, and a token file a group. */
    if (suffix && !memchr(spec, ':', (size_t)(suffix - spec)))
        TR_TRY_GOTO(text_stored_tokenizer(spec, &m.tokenizer), done);
    else
        TR_TRY_GOTO(tr_tokenizer_create(spec, &m.tokenizer), done);
    TR_TRY_GOTO(tr_encoder_create(m.tokenizer, &m.encoder), done);
    if (m.tokenizer->is_learning) {
        TR_TRY_GOTO(text_read_files(&m), done);
        TR_TRY_GOTO(tr_tokenizer_learned(m.tokenizer), done);
    }
    const tr_token_vocab_t vocab = {m.tokenizer->vocab_size, m.tokenizer->end, m.tokenizer};
    m.has_ended = true;
    TR_TRY_GOTO(tr_token_file_create(out, tr_token_type(vocab.vocab_size), &m.file), done);
    TR_TRY_GOTO(text_read_files(&m), done);
    TR_TRY_GOTO(tr_token_file_write(m.file, &vocab, params), done);
done:
    tr_token_file_destroy(&m.file);
    tr_encoder_destroy(&m.encoder);
    tr_tokenizer_destroy(&m.tokenizer);
    tr_vec_free(&m.ids);
    return status;
}

const tr_importer_t tr_importer_text = {
    .name = "text",
    .usage = "FILE... OUT.h5 --tokenizer bytes|chars|gpt2:DIR|FILE.h5 [--valid-fraction PART] "
             "[--field NAME]",
    .help =
        "Converts text to tokens. Each FILE is one document, or several separated by "
        "<|endoftext|>; or it holds JSON lines (.jsonl, or --field), each with a document in the "
        "member NAME (default text). Files may be compressed with gzip. Tokens are bytes, the "
        "characters of the text, those of GPT-2 with vocab.json and merges.txt in DIR, or those of "
        "another token file. The last "
        "PART (0.1) of the tokens is for validation.",
    .unit = "tokens",
    .takes_many = true,
    .run = text_import};
