/* The registry of models, and the common part of building one. */
#include "model/model.h"
#include "base/registry.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>

#define MODEL(symbol) extern const tr_model_t tr_model_##symbol;
#include "models.def"
#undef MODEL

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(tr_model_settings_t, type, "sequential",
                    "Kind of model: sequential builds model.layers."),
    TR_FIELD_ENUM(
        tr_model_settings_t, loss, "auto",
        "auto|cross_entropy|mse|huber|binary_cross_entropy|mae|dice|dice_ce",
        "Loss: auto is cross_entropy where data.y are classes, else mse (mean squared error). mae "
        "is the mean absolute error. huber is less sensitive to outliers than mse. dice, of labels "
        "of each position: 1 - the mean Dice coefficient of all classes, of each sample. dice_ce: "
        "dice plus the cross-entropy, averaged within each sample. binary_cross_entropy is for "
        "targets of several 0 "
        "and 1 per sample (multi-hot labels); predictions are then probabilities."),
    TR_FIELD_FLOAT(tr_model_settings_t, label_smoothing, "0", 0, 0.999,
                   "Label smoothing: the share of the target that cross-entropy spreads evenly "
                   "over all classes, also in validation and eval."),
    TR_FIELD_FLOAT(
        tr_model_settings_t, huber_delta, "1", 1e-6, 1e6,
        "Errors beyond this count linearly in model.loss = huber, in units of the normalised "
        "targets."),
    TR_FIELD_STRING(
        tr_model_settings_t, class_weights, "",
        "A weight for each class, comma separated: the cross-entropy of a sample, or of a "
        "position, is multiplied by the weight of its class, in validation and eval, too. "
        "balanced: samples / (classes * samples of the class), of the training labels; of labels "
        "of positions, from at most 64 MiB of them. Empty: all 1."),
    TR_FIELD_INT(tr_model_settings_t, topk, "1", 1, 1000,
                 "Also report top-k accuracy: a sample is correct if its class is among the k best "
                 "(5 for ImageNet). 1: off.",
                 TR_RESUME_FREE),
    TR_FIELD_STRING(tr_model_settings_t, init, "",
                    "Initial weights, for fine-tuning: a run folder (its best checkpoint, else its "
                    "newest), a checkpoint folder, a .safetensors file or, for type = gpt, a "
                    "folder of Hugging Face. Tensors are loaded if "
                    "their name and shape match. Inputs without their own mean and std are "
                    "normalised as in the training of these weights.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_model_settings_t, recompute, "none",
                    "Activations that the backward pass computes again instead of keeping them in "
                    "memory: none, or a number N. type = sequential: those inside each group of N "
                    "layers, where a residual counts as one layer and repeats are written out; "
                    "type = gpt: those inside each group of N blocks. Results are bit-identical. "
                    "type = gpt also takes block (the same as 1), attention, and a list of blocks, "
                    "counted from 0: \"0-3,7\" (one block: \"7-7\"). type = sequential: "
                    "recompute=yes at a layer.",
                    TR_RESUME_FREE),
    TR_FIELD_ENUM(
        tr_model_settings_t, init_layout, "auto", "auto|trainer|torch",
        "Order of the dimensions of the weights in model.init. torch: convolution weights "
        "are (outputs, inputs, kernel), and a linear after flatten takes the channels "
        "first. trainer: (outputs, kernel, inputs), channels last. auto: the order that the "
        "file records, as checkpoints and files of `trainer export` do; else trainer, with a "
        "warning. eval, predict and export also use this key for a file without such a record.",
        TR_RESUME_FREE),
    TR_FIELD_STRING(tr_model_settings_t, freeze, "",
                    "Parameters to freeze: comma-separated patterns of names: \"conv1.*, "
                    "batchnorm?.*\". The running mean and variance of a batchnorm are still "
                    "updated. On a resume, parameters that are no longer frozen begin without "
                    "moments.",
                    TR_RESUME_NOTE),
};
const tr_config_table_t tr_model_config = {"model", fields, TR_COUNT(fields),
                                           sizeof(tr_model_settings_t)};

static tr_registry_t models = {"model",
                               "model.type",
                               {
#define MODEL(symbol) &tr_model_##symbol,
#include "models.def"
#undef MODEL
                               }};

const tr_model_t *tr_model_at(size_t index) {
    return tr_registry_at(&models, index);
}

tr_status_t tr_model_register(const tr_model_t *model) {
    if (model->build == NULL)
        return TR_FAIL(TR_ERR_CONFIG, "The model '%s' has no build function.",
                       model->name ? model->name : "(null)");
    return tr_registry_add(&models, model);
}

tr_status_t tr_model_find(const char *name, const tr_model_t **out) {
    *out = tr_registry_find(&models, name);
    return *out ? TR_OK : tr_registry_fail_unknown(&models, name);
}

/* -- freezing ---------------------------------------------------------------------------------- */

/* The next pattern of a comma-separated list into `pattern`, without surrounding blanks; NULL after
 * the last. */
static const char *next_pattern(const char *list, char *pattern, size_t bytes) {
    list += strspn(list, ", \t\r\n");
    if (*list == '\0') return NULL;
    size_t length = strcspn(list, ",\r\n");
    size_t kept = length;
    while (kept > 0 && (list[kept - 1] == ' ' || list[kept - 1] == '\t')) kept--;
    snprintf(pattern, bytes, "%.*s", (int)kept, list);
    return list + length;
}

bool tr_model_freezes(const char *patterns, const char *name) {
    char pattern[256];
    if (patterns == NULL) return false;
    while ((patterns = next_pattern(patterns, pattern, sizeof pattern)) != NULL)
        if (tr_glob_match(pattern, name)) return true;
    return false;
}

static tr_status_t check_pattern(const tr_graph_t *g, const char *pattern) {
    const char *example = NULL;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
        if (info->role != TR_ROLE_PARAM) continue;
        if (tr_glob_match(pattern, info->name)) return TR_OK;
        if (example == NULL) example = info->name;
    }
    return TR_FAIL(TR_ERR_CONFIG,
                   "model.freeze: the pattern '%s' matches no parameter; an example of a name is "
                   "'%s' (`trainer plan CONFIG` lists all).",
                   pattern, example != NULL ? example : "conv1.weight");
}

tr_status_t tr_model_build(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                           tr_model_result_t *out) {
    tr_model_settings_t settings;
    const tr_model_t *model;
    char pattern[256];
    tr_config_read(config, &tr_model_config, &settings);
    TR_TRY(tr_model_find(settings.type, &model));
    *out = (tr_model_result_t){0};
    TR_TRY(model->build(g, config, batch, out));
    /* A pattern that matches nothing is a typing error: parameters would be trained by mistake. */
    const char *rest = settings.freeze;
    while ((rest = next_pattern(rest, pattern, sizeof pattern)) != NULL)
        TR_TRY(check_pattern(g, pattern));
    return TR_OK;
}
