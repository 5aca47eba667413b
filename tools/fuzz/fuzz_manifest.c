/* Fuzz entry: the lines of a MANIFEST; the checksum of the last line is put right, so that the
 * parser itself
 * is reached. What is accepted must be written again as the same bytes. */
#include "checkpoint/checkpoint_int.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const tr_str_t *text) {
    tr_manifest_t m = {0};
    tr_str_t again = {0};
    if (tr_manifest_parse(text->text, text->length, "fuzz", &m) != TR_OK) return;
    if (tr_manifest_format(&m, &again) != TR_OK || again.length != text->length ||
        memcmp(again.text, text->text, text->length) != 0)
        __builtin_trap();
    tr_str_free(&again);
    tr_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tr_str_t text = {0};
    tr_str_append_bytes(&text, (const char *)data, size);
    tr_str_printf(&text, "manifest %016llx\n", (unsigned long long)tr_checksum_bytes(data, size));
    if (text.status == TR_OK) check(&text);
    tr_str_free(&text);
    return 0;
}
