/*
 * Fuzz entry for tokenizers. The input is one byte, the JSON form of a tokenizer, a zero byte, and
 * a text. Any JSON gives a tokenizer or TR_ERR_DATA; it is written and read again. The text is
 * encoded with it, or with bytes where it is none, whole and in two pieces that the first byte
 * chooses: the ids are the same and in the vocabulary, and their text is the text.
 */
#include "text/tokenizer.h"

#include <string.h>

static void demand(bool holds) {
    if (!holds) __builtin_trap();
}

static void check_again(const tr_tokenizer_t *tokenizer) {
    tr_tokenizer_t *again = NULL;
    char *text = NULL, *text_again = NULL;
    demand(tr_tokenizer_to_json(tokenizer, &text) == TR_OK);
    demand(tr_tokenizer_from_json(text, "fuzz", &again) == TR_OK);
    demand(tr_tokenizer_to_json(again, &text_again) == TR_OK && strcmp(text, text_again) == 0);
    tr_tokenizer_destroy(&again);
    tr_free(&text);
    tr_free(&text_again);
}

static void check_pieces(const tr_tokenizer_t *tokenizer, const char *text, size_t size,
                         size_t first, const tr_ids_t *whole) {
    tr_encoder_t *encoder = NULL;
    tr_ids_t ids = {0};
    demand(tr_encoder_create(tokenizer, &encoder) == TR_OK);
    demand(tr_encoder_add(encoder, text, first, &ids) == TR_OK);
    demand(tr_encoder_add(encoder, text + first, size - first, &ids) == TR_OK);
    demand(tr_encoder_finish(encoder, &ids) == TR_OK);
    demand(ids.count == whole->count &&
           (ids.count == 0 || memcmp(ids.data, whole->data, ids.count * sizeof *ids.data) == 0));
    tr_encoder_destroy(&encoder);
    tr_vec_free(&ids);
}

static void check_text(const tr_tokenizer_t *tokenizer, const char *text, size_t size,
                       uint8_t split) {
    tr_ids_t ids = {0};
    tr_str_t back = {0};
    if (tr_tokenizer_encode(tokenizer, text, size, &ids) == TR_OK) {
        for (size_t i = 0; i < ids.count; i++)
            demand(ids.data[i] >= 0 && ids.data[i] < tokenizer->vocab_size);
        demand(tr_tokenizer_decode(tokenizer, ids.data, ids.count, &back) == TR_OK);
        demand(back.length == size && (size == 0 || memcmp(back.text, text, size) == 0));
        check_pieces(tokenizer, text, size, size * split / 256, &ids);
    }
    tr_vec_free(&ids);
    tr_str_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const int64_t live = tr_mem_stats().live;
    const char *text = size > 0 ? memchr(data + 1, 0, size - 1) : NULL;
    tr_tokenizer_t *tokenizer = NULL;
    if (!text) return 0;
    const tr_status_t status = tr_tokenizer_from_json((const char *)data + 1, "fuzz", &tokenizer);
    demand(status == TR_OK || status == TR_ERR_DATA);
    if (status == TR_OK)
        check_again(tokenizer);
    else
        demand(tr_tokenizer_create("bytes", &tokenizer) == TR_OK);
    text++;
    char *copy = NULL;
    const size_t bytes = size - (size_t)(text - (const char *)data);
    demand(tr_alloc(bytes + 1, "fuzzed text", &copy) == TR_OK);
    memcpy(copy, text, bytes);
    check_text(tokenizer, copy, bytes, data[0]);
    tr_free(&copy);
    tr_tokenizer_destroy(&tokenizer);
    demand(tr_mem_stats().live == live);
    return 0;
}
