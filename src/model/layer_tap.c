/* save TAP, add TAP, and the tensors that save keeps for them and for concat TAP. */
#include "layer_int.h"
#include "base/mem.h"

#include <string.h>

typedef struct {
    const char *tap;
} tap_t;

static const tr_config_field_t save_fields[] = {
    TR_FIELD_STRING(tap_t, tap, NULL, "Name of the kept tensor."),
};
static const tr_config_field_t add_fields[] = {
    TR_FIELD_STRING(tap_t, tap, NULL, "Name that a `save` before it gave."),
};

static tr_layer_tap_t *tap_find(const tr_layer_context_t *context, const char *name) {
    for (size_t i = 0; i < context->taps->list.count; i++)
        if (strcmp(context->taps->list.data[i].name, name) == 0)
            return &context->taps->list.data[i];
    return NULL;
}

tr_status_t tr_layer_tap(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                         const char *name, tr_tensor_t *out) {
    tr_layer_tap_t *tap = tap_find(context, name);
    tr_str_t all = {0};
    if (tap) {
        tap->is_used = true;
        *out = tap->tensor;
        return TR_OK;
    }
    for (size_t i = 0; i < context->taps->list.count; i++)
        tr_str_printf(&all, "%s '%s'",
                      i ? "," : "; saved so far:", context->taps->list.data[i].name);
    TR_LAYER_FAIL(spec,
                  "%s refers to '%.64s', which no layer before it saves%s. Write 'save %.64s' "
                  "after the layer whose output is meant.",
                  spec->name, name, all.text ? all.text : "", name);
    tr_str_free(&all);
    return TR_ERR_CONFIG;
}

static tr_status_t tap_fail_unused(const tr_layer_tap_t *tap) {
    return TR_LAYER_FAIL(tap->spec,
                         "'save %.64s' is used by no layer after it. Use it with 'concat %.64s' "
                         "or 'add %.64s', or remove it.",
                         tap->name, tap->name, tap->name);
}

tr_status_t tr_layer_taps_check(const tr_layer_taps_t *taps) {
    for (size_t i = 0; i < taps->list.count; i++)
        if (!taps->list.data[i].is_used) return tap_fail_unused(&taps->list.data[i]);
    return TR_OK;
}

/* A name that was used is free again, so that a repeat can contain a `save`. */
static tr_status_t save_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                              const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                              bool *out_fused) {
    tap_t settings;
    TR_TRY(tr_layer_read(&tr_layer_save, spec, &settings, NULL));
    tr_layer_tap_t *tap = tap_find(context, settings.tap);
    if (tap && !tap->is_used) return tap_fail_unused(tap);
    tr_layers_recompute_end(context); /* x is kept, so no later segment computes it again */
    *out = x;
    const tr_layer_tap_t saved = {.name = settings.tap, .spec = spec, .tensor = x};
    if (!tap) return tr_vec_push(&context->taps->list, saved);
    *tap = saved;
    return TR_OK;
}

static tr_status_t add_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                             const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                             bool *out_fused) {
    tap_t settings;
    tr_tensor_t tap;
    char x_text[96], tap_text[96];
    TR_TRY(tr_layer_read(&tr_layer_add, spec, &settings, NULL));
    TR_TRY(tr_layer_tap(context, spec, settings.tap, &tap));
    if (!tr_shape_equal(tr_shape_of(context->g, x), tr_shape_of(context->g, tap)))
        return TR_LAYER_FAIL(
            spec,
            "add (%s): its input is %s, '%.64s' is %s; they are added, so the shapes must be "
            "equal. Keep size and channels between them (pad=same), or use 'concat %.64s', which "
            "needs equal sizes only.",
            tr_scope(context->g), tr_layer_sample_text(context->g, x, x_text), settings.tap,
            tr_layer_sample_text(context->g, tap, tap_text), settings.tap);
    *out_fused = tr_layer_is_plain_relu(next);
    return tr_add(context->g, x, tap, *out_fused ? TR_ACT_RELU : TR_ACT_NONE, out);
}

const tr_layer_t tr_layer_save = {
    .name = "save",
    .elsewhere = "tap keep store",
    .help =
        "Keeps its input under a name, for `concat TAP` and `add TAP` after it, one of which must "
        "use it, and passes it on. A name may be given again after that, so that a repeat can "
        "contain a save.",
    .fields = save_fields,
    .field_count = TR_COUNT_INT(save_fields),
    .positional = 1,
    .transparent = true,
    .build = save_build,
};

const tr_layer_t tr_layer_add = {
    .name = "add",
    .elsewhere = "plus sum",
    .help = "Adds its input and the tensor that `save TAP` kept; their shapes must be equal.",
    .fields = add_fields,
    .field_count = TR_COUNT_INT(add_fields),
    .positional = 1,
    .build = add_build,
};
