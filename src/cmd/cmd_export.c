/*
 * trainer export: writes the weights of a checkpoint to one file, optionally in PyTorch's layout.
 */
#include "open_trained.h"
#include "weights/state.h"
#include "weights/torch_layout.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    cmd_trained_params_t trained;
    const char *out;
    bool torch, force;
} options_t;

static tr_status_t parse(int argc, char **argv, options_t *o) {
    cmd_trained_params_t *p = &o->trained;
    *o = (options_t){
        .trained = {
            .split = TR_SPLIT_TEST, .prediction = true, .from_memory = true, .assignments = argv}};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--force") == 0) {
            o->force = true;
        } else if (strcmp(argv[i], "--layout") == 0) {
            const char *layout = i + 1 < argc ? argv[++i] : "nothing";
            o->torch = strcmp(layout, "torch") == 0;
            if (!o->torch && strcmp(layout, "trainer") != 0)
                return TR_FAIL(TR_ERR_USAGE, "--layout: expected trainer or torch, found '%s'.",
                               layout);
        } else if (argv[i][0] == '-') {
            return cmd_fail_option("export", argv[i]);
        } else if (!p->weights) {
            p->weights = argv[i];
        } else if (!o->out) {
            o->out = argv[i];
        } else {
            argv[p->count++] = argv[i];
        }
    }
    if (!o->out)
        return TR_FAIL(TR_ERR_USAGE, "usage: trainer export %s", cmd_find("export")->usage);
    if (!o->force && access(o->out, F_OK) == 0)
        return TR_FAIL(TR_ERR_CONFIG, "'%s' already exists; --force replaces it.", o->out);
    return TR_OK;
}

/* The tensors in PyTorch's layout, in *out_values. Tensors with the same layout are not copied. */
static tr_status_t reorder(const tr_session_t *s, tr_named_tensor_t *tensors, size_t count,
                           float **out_values) {
    tr_torch_layout_t *layout = NULL;
    int64_t elems = 0;
    float *at;
    for (size_t i = 0; i < count; i++) elems += tr_shape_elems(&tensors[i].shape);
    TR_TRY(tr_alloc((size_t)elems * sizeof *at, "weights", out_values));
    TR_TRY(tr_torch_layout_create(s, &layout));
    at = *out_values;
    for (size_t i = 0; i < count; i++) {
        tr_torch_order_t order;
        if (!tr_torch_order(layout, tensors[i].name, &order)) continue;
        tr_torch_exchange(tensors[i].data, order.outer, order.pixels, order.channels, at);
        tensors[i].shape = order.shape;
        tensors[i].data = at;
        at += tr_shape_elems(&order.shape);
    }
    tr_torch_layout_destroy(&layout);
    return TR_OK;
}

static tr_status_t write_file(const cmd_trained_t *t, const options_t *o, tr_snapshot_t *snapshot) {
    tr_checkpoint_content_t content;
    tr_named_tensor_t *tensors = NULL;
    float *values = NULL;
    int64_t bytes;
    char size[32];
    TR_TRY(tr_snapshot_take(snapshot));
    tr_snapshot_content(snapshot, &content);
    TR_TRY(tr_alloc(content.model_count * sizeof *tensors, "weights", &tensors));
    memcpy(tensors, content.model, content.model_count * sizeof *tensors);
    tr_status_t status = TR_OK;
    if (o->torch) status = reorder(t->s, tensors, content.model_count, &values);
    char *metadata = tr_state_metadata_with_layout(
        t->state_json, o->torch ? TR_INIT_LAYOUT_TORCH : TR_INIT_LAYOUT_TRAINER);
    if (status == TR_OK && !metadata)
        status = TR_FAIL(TR_ERR_MEMORY, "not enough memory for the metadata of %s", o->out);
    if (status == TR_OK && o->force) (void)unlink(o->out);
    if (status == TR_OK)
        status = tr_safetensors_write(o->out, tensors, content.model_count, metadata, NULL, NULL,
                                      &bytes);
    if (status == TR_OK)
        printf("%s: %zu tensors, %s, from %s\n", o->out, content.model_count,
               tr_format_bytes((double)bytes, size), t->weights_path);
    free(metadata);
    tr_free(&values);
    tr_free(&tensors);
    return status;
}

tr_status_t cmd_export(int argc, char **argv) {
    options_t o;
    cmd_trained_t t = {0};
    tr_snapshot_t *snapshot = NULL;
    TR_TRY(parse(argc, argv, &o));
    tr_status_t status = cmd_trained_open(&o.trained, &t);
    if (status == TR_OK) status = tr_snapshot_create(t.s, &snapshot);
    if (status == TR_OK) status = write_file(&t, &o, snapshot);
    tr_snapshot_destroy(&snapshot);
    return cmd_trained_close(&t, status);
}
