/* Fuzz entry for the text of layers (libFuzzer's interface): any bytes parse or give TR_ERR_CONFIG,
 * and
 * nothing leaks. */
#include "base/mem.h"
#include "model/layer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t live = tr_mem_stats().live;
    tr_layer_spec_t *specs = NULL;
    int count = 0;
    char *text = NULL;
    if (tr_alloc(size + 1, "fuzzed text", &text) != TR_OK) return 0;
    memcpy(text, data, size);
    tr_status_t status = tr_layers_parse(text, &specs, &count);
    if (status != TR_OK && status != TR_ERR_CONFIG) abort();
    if (status == TR_OK) tr_layers_free(&specs, count);
    tr_free(&text);
    if (tr_mem_stats().live != live) abort();
    return 0;
}
