/*
 * Fuzz entry for the files of `trainer import text`. The first byte chooses plain text or JSON
 * lines; the rest is the file, which may be compressed with gzip. Any bytes give documents or an
 * error, plain text is passed on as it is, and a document has the same tokens in pieces as whole.
 */
#include "datatools/text_source.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const tr_tokenizer_t *tokenizer;
    tr_encoder_t *encoder;
    tr_str_t document, all;
    tr_ids_t ids;
    int documents;
} reader_t;

static void demand(bool holds) {
    if (!holds) __builtin_trap();
}

static tr_status_t take_text(void *self, const char *text, size_t bytes) {
    reader_t *r = self;
    tr_str_append_bytes(&r->document, text, bytes);
    tr_str_append_bytes(&r->all, text, bytes);
    demand(r->document.status == TR_OK && r->all.status == TR_OK);
    return tr_encoder_add(r->encoder, text, bytes, &r->ids);
}

static tr_status_t end_text(void *self) {
    reader_t *r = self;
    tr_ids_t whole = {0};
    TR_TRY(tr_encoder_finish(r->encoder, &r->ids));
    demand(tr_tokenizer_encode(r->tokenizer, r->document.length ? r->document.text : "",
                               r->document.length, &whole) == TR_OK);
    demand(whole.count == r->ids.count);
    for (size_t i = 0; i < whole.count; i++) demand(whole.data[i] == r->ids.data[i]);
    tr_vec_free(&whole);
    r->ids.count = r->document.length = 0;
    r->documents++;
    return TR_OK;
}

static void write_file(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    demand(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const int64_t live = tr_mem_stats().live;
    const char *at = getenv("TMPDIR");
    char path[512];
    tr_tokenizer_t *tokenizer = NULL;
    reader_t r = {0};
    const tr_text_sink_t sink = {take_text, end_text, &r};
    if (size < 1) return 0;
    const bool has_lines = data[0] & 1, is_gzip = size > 2 && data[1] == 0x1f && data[2] == 0x8b;
    snprintf(path, sizeof path, "%s/text-%d", at ? at : "/tmp", (int)getpid());
    write_file(path, data + 1, size - 1);
    demand(tr_tokenizer_create("bytes", &tokenizer) == TR_OK);
    demand(tr_encoder_create(tokenizer, &r.encoder) == TR_OK);
    r.tokenizer = tokenizer;
    const tr_status_t status = tr_text_read(path, has_lines ? "text" : NULL, &sink);
    demand(status == TR_OK || status == TR_ERR_DATA);
    if (status == TR_OK && !has_lines) demand(r.documents == 1);
    if (status == TR_OK && !has_lines && !is_gzip)
        demand(r.all.length == size - 1 && memcmp(r.all.text, data + 1, size - 1) == 0);
    tr_encoder_destroy(&r.encoder);
    tr_tokenizer_destroy(&tokenizer);
    tr_str_free(&r.document);
    tr_str_free(&r.all);
    tr_vec_free(&r.ids);
    demand(tr_mem_stats().live == live);
    return 0;
}
