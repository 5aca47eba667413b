/* The list of layers, their labels and scopes, and the common part of building them. */
#include "layer_int.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>

/* of a model, repeats written out: limits the cost of a typing error in a repeat */
#define MAX_LAYERS 10000

static const tr_layer_t *const layers[] = {
#define LAYER(symbol) &tr_layer_##symbol,
#include "layers.def"
#undef LAYER
};

/* Labels given in one scope: a count per kind, and the names, given by users or made from the
 * counts. */
struct tr_layer_names {
    int count[TR_COUNT(layers)];
    TR_VEC(char *) label;
};

const tr_layer_t *const *tr_layer_list(size_t *out_count) {
    *out_count = TR_COUNT(layers);
    return layers;
}

const tr_layer_t *tr_layer_find(const char *name) {
    for (size_t i = 0; i < TR_COUNT(layers); i++) {
        if (strcmp(layers[i]->name, name) == 0) return layers[i];
        if (layers[i]->alias != NULL && strcmp(layers[i]->alias, name) == 0) return layers[i];
    }
    return NULL;
}

void tr_layer_usage(const tr_layer_t *layer, tr_str_t *out) {
    tr_str_append(out, layer->name);
    for (int i = 0; i < layer->field_count; i++) {
        const tr_config_field_t *field = &layer->fields[i];
        if (i >= layer->positional) {
            tr_str_printf(out, " [%s=%s]", field->name,
                          field->fallback[0] != '\0' ? field->fallback : "...");
            continue;
        }
        tr_str_append(out, field->fallback != NULL ? " [" : " ");
        for (const char *at = field->name; *at != '\0'; at++)
            tr_str_printf(out, "%c", *at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
        if (field->fallback != NULL) tr_str_append(out, "]");
    }
    for (int i = 0; i < layer->max_blocks && i < 2; i++)
        tr_str_append(out, i < layer->min_blocks ? " { layers }" : " [{ layers }]");
    if (layer->max_blocks > 2) tr_str_append(out, " ...");
}

/* -- labels ------------------------------------------------------------------------------------ */

/* The layer's label: name=, or kind and count. Layers with equal labels would share parameters
 * silently. */
static tr_status_t give_label(struct tr_layer_names *names, const tr_layer_t *layer,
                              const tr_layer_spec_t *spec, const char *name, const char **out) {
    char made[64], *label = NULL;
    size_t kind = 0;
    while (layers[kind] != layer) kind++;
    snprintf(made, sizeof made, "%s%d", layer->name, ++names->count[kind]);
    if (name[0] == '\0') name = made;
    for (size_t i = 0; i < names->label.count; i++)
        if (strcmp(names->label.data[i], name) == 0)
            return TR_LAYER_FAIL(
                spec,
                "a second layer is named '%s'; names must be unique (inside repeat, do not "
                "set name=).",
                name);
    TR_TRY(tr_strdup(name, &label));
    if (tr_vec_push(&names->label, label) != TR_OK) {
        tr_free(&label);
        return tr_error_last()->code;
    }
    *out = label;
    return TR_OK;
}

/* -- building ---------------------------------------------------------------------------------- */

void tr_layers_recompute_end(const tr_layer_context_t *context) {
    if (!context->recompute || context->recompute->open == 0) return;
    tr_recompute_end(context->g);
    context->recompute->open = 0;
}

/* A layer begins: in the open segment, or in a new one if that is full, or in none. */
static void count_layer(const tr_layer_context_t *context, bool is_marked) {
    struct tr_layer_recompute *r = context->recompute;
    if (!r) return;
    if (r->every > 0 ? r->open >= r->every : !is_marked) tr_layers_recompute_end(context);
    if (r->every == 0 && !is_marked) return;
    if (r->open++ == 0) tr_recompute_begin(context->g);
}

static tr_status_t build_one(const tr_layer_context_t *around, const tr_layer_spec_t *spec,
                             const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                             bool *out_fused) {
    const tr_layer_t *layer = tr_layer_find(spec->name);
    const char *label = NULL;
    tr_layer_common_t common;
    tr_layer_context_t context = *around;
    if (layer == NULL)
        return TR_FAIL(TR_ERR_INTERNAL, "layer '%s' was not checked by tr_layers_parse.",
                       spec->name);
    if (++*around->built > MAX_LAYERS)
        return TR_LAYER_FAIL(spec, "the model has more than %d layers after expanding repeats.",
                             MAX_LAYERS);
    TR_TRY(tr_layer_read(layer, spec, NULL, &common));
    context.frozen = around->frozen || !common.trainable;
    context.lr_factor = around->lr_factor * common.lr_factor;
    context.is_recomputed = around->is_recomputed || common.recompute;
    if (common.recompute && !around->recompute)
        return TR_LAYER_FAIL(spec,
                             "recompute=yes inside the block of a layer: set it for the whole "
                             "residual or concat.");
    if (layer->transparent) return layer->build(&context, spec, next, x, out, out_fused);
    count_layer(around, context.is_recomputed);
    context.is_recomputed = false;
    context.recompute = NULL; /* segments do not nest */
    TR_TRY(give_label(around->names, layer, spec, common.name, &label));
    tr_scope_push(context.g, label);
    tr_status_t status = layer->build(&context, spec, next, x, out, out_fused);
    tr_scope_pop(context.g);
    if (status == TR_OK && around->recompute) tr_layer_taps_count(around, x, *out);
    return status;
}

tr_status_t tr_layers_build_inside(const tr_layer_context_t *context, const tr_layer_spec_t *specs,
                                   int count, tr_tensor_t x, tr_tensor_t *out) {
    for (int i = 0; i < count; i++) {
        bool fused = false;
        tr_tensor_t y;
        TR_TRY(build_one(context, &specs[i], i + 1 < count ? &specs[i + 1] : NULL, x, &y, &fused));
        x = y;
        if (!fused) continue;
        i++;
        if (context->recompute && context->recompute->open > 0) context->recompute->open++;
    }
    *out = x;
    return TR_OK;
}

tr_status_t tr_layers_build(const tr_layer_context_t *context, const tr_layer_spec_t *specs,
                            int count, tr_tensor_t x, tr_tensor_t *out) {
    struct tr_layer_names names = {0};
    tr_layer_taps_t taps = {0};
    int built = 0;
    tr_layer_context_t inner = *context;
    inner.names = &names;
    if (inner.taps == NULL) inner.taps = &taps;
    if (inner.built == NULL) inner.built = &built;
    if (inner.lr_factor == 0) inner.lr_factor = 1;
    tr_status_t status = tr_layers_build_inside(&inner, specs, count, x, out);
    if (status == TR_OK) status = tr_layer_taps_check(&taps);
    tr_vec_free(&taps.list);
    for (size_t i = 0; i < names.label.count; i++) tr_free(&names.label.data[i]);
    tr_vec_free(&names.label);
    return status;
}

tr_status_t tr_layers_append(tr_graph_t *g, const tr_config_t *config,
                             const tr_model_batch_t *batch, const char *text, tr_tensor_t x,
                             tr_tensor_t *out) {
    tr_layer_spec_t *specs;
    int count;
    TR_TRY(tr_layers_parse(text, &specs, &count));
    const tr_layer_context_t context = {
        .g = g, .batch = batch, .freeze = tr_config_get(config, "model.freeze")};
    const tr_status_t status = tr_layers_build(&context, specs, count, x, out);
    tr_layers_free(&specs, count);
    return status;
}

bool tr_layer_is_plain_relu(const tr_layer_spec_t *next) {
    return next != NULL && tr_layer_find(next->name) == &tr_layer_relu && next->word_count == 0;
}

/* -- parameters and shapes --------------------------------------------------------------------- */

tr_status_t tr_layer_param(const tr_layer_context_t *context, const char *name,
                           const tr_shape_t *shape, tr_init_t init, tr_tensor_t *out) {
    tr_str_t full = {0};
    tr_str_printf(&full, "%s.%s", tr_scope(context->g), name); /* as tr_param will name it */
    bool frozen =
        context->frozen || (full.status == TR_OK && tr_model_freezes(context->freeze, full.text));
    TR_TRY(full.status);
    tr_str_free(&full);
    /* Matrices and kernels decay; biases and the factors of norms do not. */
    tr_param_spec_t spec = {.init = init,
                            .trainable = !frozen,
                            .decay = shape->ndim >= 2,
                            .lr_factor = (float)context->lr_factor};
    return tr_param(context->g, name, shape, &spec, out);
}

char *tr_layer_sample_text(const tr_graph_t *g, tr_tensor_t x, char text[96]) {
    const tr_shape_t *shape = tr_shape_of(g, x);
    tr_shape_t sample = {.ndim = shape->ndim - 1};
    for (int i = 0; i < sample.ndim; i++) sample.dim[i] = shape->dim[i + 1];
    return tr_shape_format(&sample, text);
}

int tr_layer_spatial(const tr_graph_t *g, tr_tensor_t x) {
    int spatial = tr_shape_of(g, x)->ndim - 2;
    return spatial >= 1 && spatial <= 3 ? spatial : -1;
}
