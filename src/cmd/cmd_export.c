/*
 * trainer export: writes the weights of a checkpoint to one file, optionally in PyTorch's layout.
 */
#include "open_trained.h"
#include "weights/state.h"
#include "weights/torch_layout.h"
#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef struct {
    const char *weights, *out;
    cmd_words_t settings;
    int layout; /* LAYOUT_TRAINER or LAYOUT_TORCH */
    bool force;
} export_options_t;
enum { LAYOUT_TRAINER, LAYOUT_TORCH };

/* The tensors in PyTorch's layout, in *out_values. Tensors with the same layout are not copied. */
static tr_status_t export_reorder(const tr_session_t *s, tr_named_tensor_t *tensors, size_t count,
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

/* Names that promise another format. */
static tr_status_t export_check_name(const char *out) {
    static const char *const others[] = {
        "onnx", "pt",  "pth", "bin",    "ckpt",   "gguf",    "ggml", "h5",   "hdf5",       "keras",
        "pb",   "npz", "npy", "pickle", "tflite", "mlmodel", "pkl",  "json", "msgpack",    "tar",
        "zip",  "gz",  "jit", "ts",     "pte",    "engine",  "plan", "trt",  "torchscript"};
    const char *dot = strrchr(tr_file_name(out), '.');
    size_t i = 0;
    while (dot && i < TR_COUNT(others) && strcasecmp(dot + 1, others[i]) != 0) i++;
    if (!dot || i == TR_COUNT(others)) return TR_OK;
    const int length = (int)(dot - out);
    return TR_FAIL(TR_ERR_USAGE,
                   "'%s': export writes the format safetensors alone: expected a name such as "
                   "%.*s.safetensors. PyTorch reads it with safetensors.torch.load_file (--layout "
                   "torch), and from a module that has loaded it torch.save and torch.onnx.export "
                   "write other formats; the checkpoint of a GPT is a folder that transformers and "
                   "its converters read",
                   out, length, out);
}

static tr_status_t export_run(void *options) {
    const export_options_t *o = options;
    const bool is_torch = o->layout == LAYOUT_TORCH;
    const cmd_trained_params_t params = {
        .settings = o->settings,
        .model = {.weights = o->weights, .purpose = TR_SESSION_PREDICT, .from_memory = true}};
    cmd_trained_t t = {0};
    tr_snapshot_t *snapshot = NULL;
    tr_checkpoint_content_t content;
    tr_named_tensor_t *tensors = NULL;
    float *values = NULL;
    char *metadata = NULL, size[32];
    int64_t bytes;
    tr_status_t status = TR_OK;
    TR_TRY(export_check_name(o->out));
    if (!o->force && access(o->out, F_OK) == 0)
        return TR_FAIL(TR_ERR_CONFIG, "'%s' already exists; --force replaces it.", o->out);
    TR_TRY_GOTO(cmd_trained_open(&params, &t), done);
    TR_TRY_GOTO(tr_snapshot_create(t.s, &snapshot), done);
    TR_TRY_GOTO(tr_snapshot_take(snapshot), done);
    tr_snapshot_content(snapshot, &content);
    TR_TRY_GOTO(tr_alloc(content.model_count * sizeof *tensors, "weights", &tensors), done);
    memcpy(tensors, content.model, content.model_count * sizeof *tensors);
    if (is_torch) TR_TRY_GOTO(export_reorder(t.s, tensors, content.model_count, &values), done);
    metadata = tr_state_metadata_with_layout(t.state, is_torch ? TR_INIT_LAYOUT_TORCH
                                                               : TR_INIT_LAYOUT_TRAINER);
    if (!metadata)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_MEMORY, "not enough memory for the metadata of %s", o->out),
                    done);
    if (o->force) (void)unlink(o->out);
    TR_TRY_GOTO(
        tr_safetensors_write(o->out, tensors, content.model_count, metadata, NULL, NULL, &bytes),
        done);
    printf("%s: %zu tensors, %s, from %s\n", o->out, content.model_count,
           tr_format_bytes((double)bytes, size), t.weights_path);
done:
    free(metadata);
    tr_free(&values);
    tr_free(&tensors);
    tr_snapshot_destroy(&snapshot);
    return cmd_trained_close(&t, status);
}

static const cmd_argument_t arguments[] = {
    {"RUN|CHECKPOINT", offsetof(export_options_t, weights), CMD_REQUIRED, NULL},
    {"OUT.safetensors", offsetof(export_options_t, out), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(export_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_ENUM(export_options_t, layout, "--layout", "trainer", "trainer|torch",
                    "trainer keeps the order of the checkpoint; torch writes the tensors as "
                    "PyTorch stores them."),
    CMD_OPTION_FLAG(export_options_t, force, "--force", "Replaces an existing file."),
};

const cmd_command_t cmd_export = {
    .name = "export",
    .runs = CMD_ON_FIRST,
    .summary = "Writes the weights of a trained model to one file.",
    .help = "RUN is a run folder (its best checkpoint, or the newest if there is no best); "
            "CHECKPOINT is one of its checkpoints/step-NNNNNNNN. --layout torch writes the tensors "
            "as PyTorch stores them: convolution weights as (outputs, inputs, kernel), and the "
            "inputs of a linear after flatten with the channels first. A PyTorch module whose "
            "layers have the same names loads them with load_state_dict; its inputs must be "
            "normalised as in training (data.mean, data.std). The file records its order, so that "
            "model.init and eval read either. There is no other format: a name such as OUT.onnx or "
            "OUT.pt is refused.",
    CMD_ARGUMENTS(export_options_t),
    CMD_OPTIONS,
    .run = export_run,
};
