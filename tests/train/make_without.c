/* make_without CHECKPOINT NAME DIR: writes the checkpoint again into the folder of checkpoints DIR,
 * whole and with its checksums, but without the tensor NAME. Fails where there is none. */
#include "../support/tensor_data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024 };

/* All tensors of a file but one; *left_out counts it. */
static size_t take(const tr_safetensors_t *file, const char *without, tr_named_tensor_t out[MOST],
                   int *left_out) {
    size_t count = 0;
    for (size_t i = 0; i < tr_safetensors_count(file) && count < MOST; i++) {
        const tr_named_tensor_t *t = tr_safetensors_at(file, i);
        if (strcmp(t->name, without) == 0) {
            ++*left_out;
            continue;
        }
        out[count] = *t;
        out[count++].data = tensor_data(t);
    }
    return count;
}

int main(int argc, char **argv) {
    static tr_named_tensor_t model[MOST], optimizer[MOST];
    tr_checkpoint_t *c = NULL;
    int left_out = 0;
    if (argc != 4 || tr_checkpoint_open(argv[1], &c) != TR_OK) {
        fprintf(stderr, "make_without: %s\n", tr_error_last()->message);
        return 2;
    }
    const tr_checkpoint_content_t content = {
        .step = c->step,
        .model = model,
        .model_count = take(c->model, argv[2], model, &left_out),
        .optimizer = optimizer,
        .optimizer_count = take(c->optimizer, argv[2], optimizer, &left_out),
        .state_json = c->state_json,
        .metadata = tr_safetensors_metadata(c->model)};
    if (left_out != 1 || tr_checkpoint_write(argv[3], &content, NULL) != TR_OK) {
        fprintf(stderr, "make_without: %d tensors %s: %s\n", left_out, argv[2],
                tr_error_last()->message);
        return 1;
    }
    return 0;
}
