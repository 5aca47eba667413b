/* Parses the words of a layer with its table of fields. */
#include "config/field.h"
#include "layer_int.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_FIELDS 24 /* of one layer, the common ones included */

static const tr_config_field_t common_fields[] = {
    TR_FIELD_STRING(tr_layer_common_t, name, "",
                    "Name for parameter names and messages; default: kind and number."),
    TR_FIELD_BOOL(tr_layer_common_t, trainable, "yes",
                  "no: its parameters are frozen (fine-tuning), as with model.freeze."),
    TR_FIELD_FLOAT(tr_layer_common_t, lr_factor, "1", 1e-6, 1e6,
                   "Factor on the learning rate of its parameters."),
    TR_FIELD_BOOL(tr_layer_common_t, recompute, "no",
                  "yes: the backward pass computes it again, together with the layers beside it "
                  "that have this option, and only their input is kept in memory; as with "
                  "model.recompute. Not inside residual and concat, which take it as a whole."),
};

const tr_config_field_t *tr_layer_common_fields(int *out_count) {
    *out_count = TR_COUNT_INT(common_fields);
    return common_fields;
}

static tr_status_t fail_value(const tr_layer_spec_t *spec, const tr_config_field_t *field,
                              const tr_layer_word_t *word) {
    tr_str_t message = {0};
    tr_config_describe(field, word->value, &message);
    tr_str_append(&message, ", found ");
    tr_config_quote(word->value, &message);
    TR_LAYER_FAIL(word, "%s of '%s' requires %s.", field->name, spec->name,
                  message.text ? message.text : "another value");
    tr_str_free(&message);
    return TR_ERR_CONFIG;
}

static tr_status_t fail_option(const tr_layer_t *layer, const tr_layer_word_t *word) {
    const char *names[MAX_FIELDS];
    int count = 0;
    tr_str_t usage = {0};
    for (int i = 0; i < layer->field_count; i++) names[count++] = layer->fields[i].name;
    for (int i = 0; i < TR_COUNT_INT(common_fields); i++) names[count++] = common_fields[i].name;
    const char *near = tr_nearest(word->key, names, (size_t)count);
    tr_layer_usage(layer, &usage);
    TR_LAYER_FAIL(word, "'%s' has no option '%s'%s%s%s. Syntax: %s", layer->name, word->key,
                  near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                  near != NULL ? "'?" : "", usage.text != NULL ? usage.text : layer->name);
    tr_str_free(&usage);
    return TR_ERR_CONFIG;
}

static tr_status_t fail_usage(const tr_layer_t *layer, const tr_layer_spec_t *spec, int line,
                              int column, const char *problem) {
    tr_layer_word_t where = {.line = line, .column = column};
    tr_str_t usage = {0};
    tr_layer_usage(layer, &usage);
    TR_LAYER_FAIL(&where, "'%s' %s. Syntax: %s", spec->name, problem,
                  usage.text != NULL ? usage.text : layer->name);
    tr_str_free(&usage);
    return TR_ERR_CONFIG;
}

/* The field that `word` sets; the common ones count from layer->field_count. */
static int field_of_word(const tr_layer_t *layer, const tr_layer_word_t *word, int place) {
    if (word->key == NULL) return place < layer->positional ? place : -1;
    for (int i = 0; i < layer->field_count; i++)
        if (strcmp(layer->fields[i].name, word->key) == 0) return i;
    for (int i = 0; i < TR_COUNT_INT(common_fields); i++)
        if (strcmp(common_fields[i].name, word->key) == 0) return layer->field_count + i;
    return -1;
}

static const tr_config_field_t *field_at(const tr_layer_t *layer, int index) {
    return index < layer->field_count ? &layer->fields[index]
                                      : &common_fields[index - layer->field_count];
}

static tr_status_t read_words(const tr_layer_t *layer, const tr_layer_spec_t *spec, void *settings,
                              tr_layer_common_t *common, bool given[MAX_FIELDS]) {
    int place = 0;
    for (int i = 0; i < spec->word_count; i++) {
        const tr_layer_word_t *word = &spec->words[i];
        int index = field_of_word(layer, word, place);
        if (word->key == NULL) place++;
        if (index < 0 && word->key != NULL) return fail_option(layer, word);
        if (index < 0) {
            char problem[128];
            snprintf(problem, sizeof problem, "does not take an argument '%.40s' here%s",
                     word->value,
                     tr_layer_find(word->value) ? " (is a comma missing before it?)" : "");
            return fail_usage(layer, spec, word->line, word->column, problem);
        }
        const tr_config_field_t *field = field_at(layer, index);
        if (given[index])
            return TR_LAYER_FAIL(word, "%s of '%s' is set twice.", field->name, spec->name);
        given[index] = true;
        void *into = index < layer->field_count ? settings : (void *)common;
        if (!tr_config_parse_value(field, word->value, into)) return fail_value(spec, field, word);
    }
    return TR_OK;
}

static tr_status_t read_defaults(const tr_layer_t *layer, const tr_layer_spec_t *spec,
                                 void *settings, tr_layer_common_t *common,
                                 const bool given[MAX_FIELDS]) {
    for (int i = 0; i < layer->field_count + TR_COUNT_INT(common_fields); i++) {
        const tr_config_field_t *field = field_at(layer, i);
        if (given[i]) continue;
        if (field->fallback == NULL) {
            char problem[96];
            snprintf(problem, sizeof problem, "requires its %s", field->name);
            return fail_usage(layer, spec, spec->line, spec->column, problem);
        }
        void *into = i < layer->field_count ? settings : (void *)common;
        if (!tr_config_parse_value(field, field->fallback, into))
            return TR_FAIL(TR_ERR_INTERNAL, "the default '%s' of %s of layer '%s' is invalid.",
                           field->fallback, field->name, layer->name);
    }
    return TR_OK;
}

tr_status_t tr_layer_read(const tr_layer_t *layer, const tr_layer_spec_t *spec, void *out_settings,
                          tr_layer_common_t *out_common) {
    bool given[MAX_FIELDS] = {false};
    if (layer->field_count + TR_COUNT_INT(common_fields) > MAX_FIELDS)
        return TR_FAIL(TR_ERR_INTERNAL, "layer '%s' has more than %d fields.", layer->name,
                       MAX_FIELDS);
    TR_TRY(read_words(layer, spec, out_settings, out_common, given));
    return read_defaults(layer, spec, out_settings, out_common, given);
}

static bool is_label(const char *name) {
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")] ==
           '\0';
}

const char *tr_layer_elsewhere(const char *name) {
    size_t count;
    const tr_layer_t *const *list = tr_layer_list(&count);
    for (size_t i = 0; i < count; i++)
        if (list[i]->elsewhere != NULL && tr_has_word(list[i]->elsewhere, name))
            return list[i]->name;
    return NULL;
}

static tr_status_t read_fail_unknown(const tr_layer_spec_t *spec) {
    size_t count, known = 0;
    const tr_layer_t *const *list = tr_layer_list(&count);
    const char *names[64], *near = tr_layer_elsewhere(spec->name);
    if (strcmp(spec->name, "softmax") == 0 || strcmp(spec->name, "log_softmax") == 0 ||
        strcmp(spec->name, "logsoftmax") == 0)
        return TR_LAYER_FAIL(
            spec,
            "unknown layer '%.64s'. Remove it: for classes the loss (cross_entropy) includes it, "
            "and predict writes probabilities; for a regression (mse) the outputs of the last "
            "layer are used directly.",
            spec->name);
    for (size_t i = 0; i < count && near == NULL; i++) {
        const tr_layer_t *layer = list[i];
        if (known < TR_COUNT(names)) names[known++] = layer->name;
        if (known < TR_COUNT(names) && layer->alias != NULL) names[known++] = layer->alias;
    }
    if (near == NULL) near = tr_nearest(spec->name, names, known);
    if (near != NULL)
        return TR_LAYER_FAIL(spec, "unknown layer '%.64s'; did you mean '%s'?", spec->name, near);
    tr_str_t all = {0};
    for (size_t i = 0; i < count; i++)
        tr_str_printf(&all, "%s%s", i > 0 ? ", " : "", list[i]->name);
    TR_LAYER_FAIL(spec, "unknown layer '%.64s'. Available: %s.", spec->name,
                  all.text != NULL ? all.text : "");
    tr_str_free(&all);
    return TR_ERR_CONFIG;
}

static tr_status_t check_blocks(const tr_layer_t *layer, const tr_layer_spec_t *spec) {
    if (spec->block_count < layer->min_blocks) {
        char problem[96];
        snprintf(problem, sizeof problem, "requires at least %d block%s in braces, found %d",
                 layer->min_blocks, layer->min_blocks == 1 ? "" : "s", spec->block_count);
        return fail_usage(layer, spec, spec->line, spec->column, problem);
    }
    if (spec->block_count > layer->max_blocks)
        return fail_usage(layer, spec, spec->line, spec->column,
                          layer->max_blocks == 0 ? "does not take a block in braces"
                                                 : "takes fewer blocks in braces");
    for (int b = 0; b < spec->block_count; b++) {
        if (spec->blocks[b].count == 0 && b == 0)
            return fail_usage(layer, spec, spec->line, spec->column,
                              "has no layers between its braces");
        for (int i = 0; i < spec->blocks[b].count; i++)
            TR_TRY(tr_layer_check(&spec->blocks[b].specs[i]));
    }
    return TR_OK;
}

tr_status_t tr_layer_check(const tr_layer_spec_t *spec) {
    const tr_layer_t *layer = tr_layer_find(spec->name);
    tr_layer_common_t common;
    if (layer == NULL) return read_fail_unknown(spec);
    TR_TRY(tr_layer_read(layer, spec, NULL, &common));
    if (!is_label(common.name))
        return TR_LAYER_FAIL(spec, "the name '%.64s' may contain letters, digits, - and _ only.",
                             common.name);
    if (common.name[0] != '\0' && layer->transparent)
        return TR_LAYER_FAIL(spec,
                             "'%s' cannot have a name: its layers are named as if they were "
                             "written out.",
                             layer->name);
    if (layer->max_blocks > 0 &&
        strcmp(common.name, "shortcut") == 0) /* equal names would share one parameter */
        return TR_LAYER_FAIL(spec,
                             "the name 'shortcut' is reserved for the second block of a residual: "
                             "choose another.");
    return check_blocks(layer, spec);
}

/* -- the normal form of a layer ---------------------------------------------------------------- */

void tr_layer_write(const tr_layer_spec_t *spec, tr_str_t *out) {
    const tr_layer_t *layer = tr_layer_find(spec->name);
    const char *given[MAX_FIELDS] = {NULL};
    bool by_place = true;
    for (int i = 0, place = 0; i < spec->word_count; i++) {
        const int index = field_of_word(layer, &spec->words[i], place);
        if (!spec->words[i].key) place++;
        if (index >= 0) given[index] = spec->words[i].value;
    }
    tr_str_append(out, layer->name);
    for (int i = 0; i < layer->field_count + TR_COUNT_INT(common_fields); i++) {
        const tr_config_field_t *field = field_at(layer, i);
        tr_str_t value = {0}, usual = {0};
        if (strcmp(field->name, "recompute") == 0) continue; /* it is the same model without */
        if (given[i]) tr_config_append_value(field, given[i], &value);
        if (field->fallback) tr_config_append_value(field, field->fallback, &usual);
        by_place = by_place && given[i] && i < layer->positional;
        if (given[i] && !(usual.text && value.text && strcmp(value.text, usual.text) == 0)) {
            tr_str_append(out, " ");
            if (!by_place) tr_str_printf(out, "%s=", field->name);
            tr_str_append(out, value.text ? value.text : "");
        }
        tr_str_free(&value);
        tr_str_free(&usual);
    }
}
