/* save TAP, add TAP, and the tensors that save keeps for them and for concat TAP. */
#include "layer_int.h"
#include "base/int_math.h"
#include "base/mem.h"

#include <stdio.h>
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
    TR_VEC(const char *) names = {0};
    for (size_t i = 0; i < context->taps->list.count; i++) {
        (void)tr_vec_push(&names, context->taps->list.data[i].name);
        tr_str_printf(&all, "%s '%s'",
                      i ? "," : "; saved so far:", context->taps->list.data[i].name);
    }
    const char *near = tr_nearest(name, names.data, names.count);
    TR_LAYER_FAIL(spec,
                  "%s refers to '%.64s', which no layer before it saves%s. %s%.64s%s 'save %.64s' "
                  "after the layer whose output is meant.",
                  spec->name, name, all.text ? all.text : "", near ? "Did you mean '" : "",
                  near ? near : "", near ? "'? Else write" : "Write", name);
    tr_vec_free(&names);
    tr_str_free(&all);
    return TR_ERR_CONFIG;
}

void tr_layer_taps_count(const tr_layer_context_t *context, tr_tensor_t x, tr_tensor_t y) {
    const tr_shape_t *in = tr_shape_of(context->g, x), *out = tr_shape_of(context->g, y);
    for (int d = 1; d < in->ndim - 1 && in->ndim == out->ndim && in->ndim <= 5; d++) {
        int64_t *down = &context->taps->down[d - 1], *most = &context->taps->most[d - 1];
        const double ratio = (double)in->dim[d] / (double)out->dim[d];
        *down = max64(*down, 1);
        if (ratio > 1.5) *down *= (int64_t)(ratio + 0.49);
        if (ratio < 1 / 1.5) *down = max64(*down / (int64_t)(1 / ratio + 0.5), 1);
        *most = max64(*most, *down);
    }
}

void tr_layer_say_multiple(const tr_layer_context_t *context, char out[256]) {
    const tr_model_batch_t *batch = context->batch;
    const tr_shape_t *shape = NULL;
    char by[64] = "", larger[64] = "";
    bool divides = true;
    for (int i = 0; batch && i < batch->count; i++)
        if (strcmp(batch->name[i], "x") == 0) shape = tr_shape_of(context->g, batch->tensor[i]);
    for (int d = 0; shape && d < shape->ndim - 2 && d < 3; d++) {
        const int64_t most = max64(context->taps->most[d], 1), size = shape->dim[d + 1];
        const size_t at = strlen(by), end = strlen(larger);
        divides = divides && size % most == 0;
        snprintf(by + at, sizeof by - at, d ? " x %lld" : "%lld", (long long)most);
        snprintf(larger + end, sizeof larger - end, d ? " x %lld" : "%lld",
                 (long long)((size + most - 1) / most * most));
    }
    if (divides)
        snprintf(out, 256, "Use the same strides and factors on both ways, and pad=same");
    else
        snprintf(out, 256,
                 "Poolings and strides divide the sizes of a sample by %s, so that these must be "
                 "multiples of it: pad x and y to %s when you create the file, or crop them",
                 by, larger);
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
    char x_text[96], tap_text[96], remedy[256];
    TR_TRY(tr_layer_read(&tr_layer_add, spec, &settings, NULL));
    TR_TRY(tr_layer_tap(context, spec, settings.tap, &tap));
    if (!tr_shape_equal(tr_shape_of(context->g, x), tr_shape_of(context->g, tap))) {
        tr_layer_say_multiple(context, remedy);
        return TR_LAYER_FAIL(
            spec,
            "add (%s): its input is %s, '%.64s' is %s; they are added, so the shapes must be "
            "equal. %s; for other channels, use 'concat %.64s'.",
            tr_scope(context->g), tr_layer_sample_text(context->g, x, x_text), settings.tap,
            tr_layer_sample_text(context->g, tap, tap_text), remedy, settings.tap);
    }
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
