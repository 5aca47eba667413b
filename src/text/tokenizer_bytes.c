/* bytes: a token is a byte; 256 is the end of a text. */
#include "tokenizer_int.h"

#define BYTES 256

static tr_status_t bytes_create(const char *argument, tr_tokenizer_t **out) {
    TR_TRY(tr_alloc(sizeof **out, "tokenizer", out));
    (*out)->vocab_size = BYTES + 1;
    (*out)->end = BYTES;
    return TR_OK;
}

static void bytes_destroy(tr_tokenizer_t *tokenizer) {
    tr_free(&tokenizer);
}

static tr_status_t bytes_write(const tr_tokenizer_t *tokenizer, json_t *out) {
    return TR_OK;
}

static tr_status_t bytes_read(const json_t *object, const char *from, tr_tokenizer_t **out) {
    return bytes_create("", out);
}

static tr_status_t bytes_encode(const tr_tokenizer_t *tokenizer, void *state, const char *text,
                                size_t bytes, bool whole, tr_ids_t *out, size_t *out_used) {
    TR_TRY(tr_ids_reserve(out, bytes));
    for (size_t i = 0; i < bytes; i++) out->data[out->count++] = (unsigned char)text[i];
    *out_used = bytes;
    return TR_OK;
}

static void bytes_decode(const tr_tokenizer_t *tokenizer, int32_t id, tr_str_t *out) {
    tr_str_append_bytes(out, &(char){(char)id}, 1);
}

const tr_tokenizer_ops_t tr_tokenizer_bytes_ops = {.name = "bytes",
                                                   .usage = "bytes",
                                                   .help = "a token is a byte",
                                                   .create = bytes_create,
                                                   .destroy = bytes_destroy,
                                                   .write = bytes_write,
                                                   .read = bytes_read,
                                                   .encode = bytes_encode,
                                                   .decode = bytes_decode};
