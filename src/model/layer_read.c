/* A layer's words against its table of fields. */
#include "layer_int.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_FIELDS 24 /* of one layer, the common ones included */

static const tr_layer_field_t common_fields[] = {
    {"name", TR_ARG_TEXT, offsetof(tr_layer_common_t, name), "", 0, 0, NULL,
     "Name for parameter names and messages; default: kind and number."},
    TR_ARG_BOOL(tr_layer_common_t, trainable, "yes",
                "no: its parameters are frozen (fine-tuning), as with model.freeze."),
    TR_ARG_FLOAT(tr_layer_common_t, lr_factor, "1", 1e-6, 1e6,
                 "Factor on the learning rate of its parameters."),
};

const tr_layer_field_t *tr_layer_common_fields(int *out_count) {
    *out_count = TR_COUNT_INT(common_fields);
    return common_fields;
}

static bool parse_number(const char *text, double min, double max, double *out) {
    return tr_parse_float(text, out) && *out >= min && *out <= max;
}

/* "5", "5x5", "3x3x3" */
static bool parse_sizes(const char *text, double min, double max, tr_layer_sizes_t *out) {
    *out = (tr_layer_sizes_t){0};
    for (const char *at = text; *text != '\0'; at += strcspn(at, "x") + 1) {
        char digits[8];
        size_t length = strcspn(at, "x");
        int64_t size;
        if (length == 0 || length >= sizeof digits || out->count == 3) return false;
        memcpy(digits, at, length);
        digits[length] = '\0';
        if (strspn(digits, "0123456789") != length || !tr_parse_int(digits, &size)) return false;
        if (size < (int64_t)min || size > (int64_t)max) return false;
        out->size[out->count++] = (int)size;
        if (at[length] == '\0') break;
    }
    return true;
}

static bool parse_pad(const char *text, double max, tr_layer_pad_t *out) {
    *out = (tr_layer_pad_t){.same = strcmp(text, "same") == 0, .sizes = {.count = 1}};
    return out->same || strcmp(text, "valid") == 0 ||
           (*text != '\0' && parse_sizes(text, 0, max, &out->sizes));
}

static bool parse_choice(const char *text, const char *choices, int *out) {
    size_t length = strlen(text);
    for (*out = 0;; (*out)++) {
        size_t choice = strcspn(choices, "|");
        if (choice == length && memcmp(choices, text, length) == 0) return true;
        if (choices[choice] == '\0') return false;
        choices += choice + 1;
    }
}

/* Parses `text` as `field` wants it; writes to the settings unless they are NULL. */
static bool parse_value(const tr_layer_field_t *field, const char *text, void *settings) {
    union {
        int i;
        double f;
        bool b;
        const char *text;
        tr_layer_sizes_t sizes;
        tr_layer_pad_t pad;
    } value;
    size_t bytes = 0;
    double number;
    switch (field->type) {
    case TR_ARG_INT:
        if (!parse_number(text, field->min, field->max, &number) || number != (double)(int)number)
            return false;
        value.i = (int)number, bytes = sizeof value.i;
        break;
    case TR_ARG_FLOAT:
        if (!parse_number(text, field->min, field->max, &value.f)) return false;
        bytes = sizeof value.f;
        break;
    case TR_ARG_BOOL:
        if (!tr_parse_bool(text, &value.b)) return false;
        bytes = sizeof value.b;
        break;
    case TR_ARG_TEXT: value.text = text, bytes = sizeof value.text; break;
    case TR_ARG_CHOICE:
        if (!parse_choice(text, field->choices, &value.i)) return false;
        bytes = sizeof value.i;
        break;
    case TR_ARG_SIZES:
        if (!parse_sizes(text, field->min, field->max, &value.sizes)) return false;
        bytes = sizeof value.sizes;
        break;
    case TR_ARG_PAD:
        if (!parse_pad(text, field->max, &value.pad)) return false;
        bytes = sizeof value.pad;
        break;
    }
    if (settings != NULL) memcpy((char *)settings + field->offset, &value, bytes);
    return true;
}

/* What a field takes, for messages: "a whole number from 1 to 65535". */
static const char *expected(const tr_layer_field_t *field, char text[128]) {
    switch (field->type) {
    case TR_ARG_INT:
        snprintf(text, 128, "an integer from %.0f to %.0f", field->min, field->max);
        break;
    case TR_ARG_FLOAT: snprintf(text, 128, "a number from %g to %g", field->min, field->max); break;
    case TR_ARG_BOOL: return "yes or no";
    case TR_ARG_TEXT: return "text";
    case TR_ARG_CHOICE: snprintf(text, 128, "one of %s", field->choices); break;
    case TR_ARG_SIZES:
        snprintf(text, 128, "a size such as 3 or 3x3, each from %.0f to %.0f", field->min,
                 field->max);
        break;
    case TR_ARG_PAD: return "same, valid, or a size such as 1 or 1x1";
    }
    return text;
}

static tr_status_t fail_value(const tr_layer_spec_t *spec, const tr_layer_field_t *field,
                              const tr_layer_word_t *word) {
    char text[128];
    return TR_LAYER_FAIL(word, "%s of '%s' requires %s, found '%s'.", field->name, spec->name,
                         expected(field, text), word->value);
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

/* The field that `word` sets, and in which of the two tables (the common ones count from
 * layer->field_count). */
static int field_of_word(const tr_layer_t *layer, const tr_layer_word_t *word, int place) {
    if (word->key == NULL) return place < layer->positional ? place : -1;
    for (int i = 0; i < layer->field_count; i++)
        if (strcmp(layer->fields[i].name, word->key) == 0) return i;
    for (int i = 0; i < TR_COUNT_INT(common_fields); i++)
        if (strcmp(common_fields[i].name, word->key) == 0) return layer->field_count + i;
    return -1;
}

static const tr_layer_field_t *field_at(const tr_layer_t *layer, int index) {
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
        const tr_layer_field_t *field = field_at(layer, index);
        if (given[index])
            return TR_LAYER_FAIL(word, "%s of '%s' is set twice.", field->name, spec->name);
        given[index] = true;
        void *into = index < layer->field_count ? settings : (void *)common;
        if (!parse_value(field, word->value, into)) return fail_value(spec, field, word);
    }
    return TR_OK;
}

static tr_status_t read_defaults(const tr_layer_t *layer, const tr_layer_spec_t *spec,
                                 void *settings, tr_layer_common_t *common,
                                 const bool given[MAX_FIELDS]) {
    for (int i = 0; i < layer->field_count + TR_COUNT_INT(common_fields); i++) {
        const tr_layer_field_t *field = field_at(layer, i);
        if (given[i]) continue;
        if (field->fallback == NULL) {
            char problem[96];
            snprintf(problem, sizeof problem, "requires its %s", field->name);
            return fail_usage(layer, spec, spec->line, spec->column, problem);
        }
        void *into = i < layer->field_count ? settings : (void *)common;
        if (!parse_value(field, field->fallback, into))
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

/* Is `name` one of the words? */
static bool is_among(const char *name, const char *words) {
    const size_t length = strlen(name);
    for (size_t word; *words; words += word + strspn(words + word, " ")) {
        word = strcspn(words, " ");
        if (word == length && strncasecmp(name, words, word) == 0) return true;
    }
    return false;
}

/* The layer that `name` is likely to mean; NULL: none. */
static const char *nearest_layer(const char *name) {
    size_t count, known = 0;
    const tr_layer_t *const *list = tr_layer_list(&count);
    const char *names[64];
    for (size_t i = 0; i < count; i++) {
        if (list[i]->elsewhere != NULL && is_among(name, list[i]->elsewhere)) return list[i]->name;
        if (known < TR_COUNT(names)) names[known++] = list[i]->name;
        if (known < TR_COUNT(names) && list[i]->alias != NULL) names[known++] = list[i]->alias;
    }
    return tr_nearest(name, names, known);
}

static tr_status_t fail_unknown(const tr_layer_spec_t *spec) {
    size_t count;
    const tr_layer_t *const *list = tr_layer_list(&count);
    if (strcmp(spec->name, "softmax") == 0 || strcmp(spec->name, "log_softmax") == 0 ||
        strcmp(spec->name, "logsoftmax") == 0)
        return TR_LAYER_FAIL(
            spec,
            "unknown layer '%.64s'. Remove it: for classes the loss (cross_entropy) includes it, "
            "and predict writes probabilities; for a regression (mse) the outputs of the last "
            "layer are used directly.",
            spec->name);
    const char *near = nearest_layer(spec->name);
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
    if (spec->block_count < layer->min_blocks)
        return fail_usage(layer, spec, spec->line, spec->column,
                          "requires layers in braces after it");
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
    if (layer == NULL) return fail_unknown(spec);
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
        strcmp(common.name, "shortcut") == 0) /* of equal names one parameter is made */
        return TR_LAYER_FAIL(spec,
                             "the name 'shortcut' is reserved for the second block of a residual: "
                             "choose another.");
    return check_blocks(layer, spec);
}

/* -- the normal form of a layer ---------------------------------------------------------------- */

#define VALUE_BYTES 160

static void write_sizes(const tr_layer_sizes_t *sizes, char out[VALUE_BYTES]) {
    bool equal = true;
    int length = 0;
    out[0] = '\0';
    for (int i = 1; i < sizes->count; i++) equal = equal && sizes->size[i] == sizes->size[0];
    for (int i = 0; i < sizes->count && (i == 0 || !equal); i++)
        length +=
            snprintf(out + length, VALUE_BYTES - (size_t)length, i ? "x%d" : "%d", sizes->size[i]);
}

/* A value of `field`, however it is written. */
static void write_value(const tr_layer_field_t *field, const char *text, char out[VALUE_BYTES]) {
    tr_layer_sizes_t sizes;
    tr_layer_pad_t pad;
    double number;
    bool yes;
    snprintf(out, VALUE_BYTES, "%s", text);
    if ((field->type == TR_ARG_INT || field->type == TR_ARG_FLOAT) && tr_parse_float(text, &number))
        tr_snprintf(out, VALUE_BYTES, "%.9g", number);
    if (field->type == TR_ARG_BOOL && tr_parse_bool(text, &yes))
        snprintf(out, VALUE_BYTES, yes ? "yes" : "no");
    if (field->type == TR_ARG_SIZES && parse_sizes(text, field->min, field->max, &sizes))
        write_sizes(&sizes, out);
    if (field->type != TR_ARG_PAD || !parse_pad(text, field->max, &pad) || pad.same) return;
    write_sizes(&pad.sizes, out);
    if (strcmp(out, "0") == 0) snprintf(out, VALUE_BYTES, "valid");
}

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
        const tr_layer_field_t *field = field_at(layer, i);
        char value[VALUE_BYTES] = "", usual[VALUE_BYTES] = "";
        if (given[i]) write_value(field, given[i], value);
        if (field->fallback) write_value(field, field->fallback, usual);
        by_place = by_place && given[i] && i < layer->positional;
        if (!given[i] || strcmp(value, usual) == 0) continue;
        tr_str_printf(out, by_place ? " %s" : " %s=%s", by_place ? value : field->name, value);
    }
}
