/* Compares a configuration with that of a checkpoint. */
#include "config/field.h"
#include "state.h"
#include "model/layer.h"
#include "trainer/session.h"

#include <stdio.h>
#include <string.h>

tr_config_t *tr_state_config(const json_t *state) {
    const char *text = json_string_value(json_object_get(state, "config"));
    const tr_config_table_t *const *tables;
    size_t count;
    tr_config_t *then = NULL;
    if (text && tr_all_tables(&tables, &count) == TR_OK &&
        tr_config_create(tables, count, &then) == TR_OK)
        (void)tr_config_load_text(then, "checkpoint", text, strlen(text));
    tr_error_clear();
    return then;
}

/* -- the model: by its keys, for tensors alone do not tell a relu from a tanh ------------------ */

typedef struct {
    const tr_config_t *was, *is;
    bool has_classes;
    tr_str_t *out;
} compare_t;

/* The lines of model.layers in normal form; false if this version cannot parse them. */
static bool compare_layer_lines(const tr_config_t *config, tr_str_t *out) {
    tr_layer_spec_t *specs = NULL;
    int count = 0;
    const char *text = tr_config_get(config, "model.layers");
    if (tr_layers_parse(text ? text : "", &specs, &count) != TR_OK) {
        tr_error_clear();
        return false;
    }
    tr_layers_write(specs, count, out);
    tr_layers_free(&specs, count);
    return out->status == TR_OK && out->text;
}

static void compare_say_line(tr_str_t *out, const char *line, const char *where) {
    const int length = (int)strcspn(line, "\n");
    tr_str_printf(out, *line ? "'%.*s' %s" : "%.*snothing %s", length < 200 ? length : 200, line,
                  where);
}

/* Names the first line of model.layers that differs. */
static void compare_layers(const compare_t *c) {
    tr_str_t then = {0}, now = {0};
    if (compare_layer_lines(c->was, &then) && compare_layer_lines(c->is, &now)) {
        const char *was = then.text, *is = now.text;
        int layer = 1;
        while (*was && *is && strcspn(was, "\n") == strcspn(is, "\n") &&
               strncmp(was, is, strcspn(was, "\n")) == 0) {
            layer += *was != '}';
            was += strcspn(was, "\n") + 1;
            is += strcspn(is, "\n") + 1;
        }
        if (*was || *is) {
            tr_str_printf(c->out, "\n  model.layers, layer %d: ", layer);
            compare_say_line(c->out, was, "in the checkpoint, ");
            compare_say_line(c->out, is, "now");
        }
    }
    tr_str_free(&then);
    tr_str_free(&now);
}

static const char *compare_value_of(const compare_t *c, const tr_config_t *config,
                                    const char *key) {
    const char *text = tr_config_get(config, key);
    if (!text) return "";
    if (strcmp(key, "model.loss") != 0 || strcmp(text, "auto") != 0) return text;
    return c->has_classes ? "cross_entropy" : "mse";
}

static void compare_field(const compare_t *c, const tr_config_field_t *field) {
    char key[128];
    snprintf(key, sizeof key, "model.%s", field->name);
    const char *was = compare_value_of(c, c->was, key), *is = compare_value_of(c, c->is, key);
    if (strcmp(key, "model.layers") == 0 &&
        strcmp(tr_config_get(c->is, "model.type"), "sequential") == 0)
        compare_layers(c);
    else if (field->resume == TR_RESUME_MATCH && !tr_config_same_value(field, was, is))
        tr_str_printf(c->out, "\n  %s: %.200s in the checkpoint, %.200s now", key, was, is);
}

static void compare_table(const compare_t *c, const tr_config_table_t *table) {
    for (size_t i = 0; table && i < table->count; i++) compare_field(c, &table->fields[i]);
}

void tr_state_compare_model(const json_t *state, const tr_config_t *config, tr_str_t *out) {
    tr_config_t *then = tr_state_config(state);
    const json_t *classes = json_object_get(json_object_get(state, "data"), "classes");
    const compare_t c = {then, config, json_integer_value(classes) > 0, out};
    const tr_model_t *model = NULL;
    const size_t before = out->length;
    if (then) compare_table(&c, &tr_model_config);
    if (then && out->length == before &&
        tr_model_find(tr_config_get(config, "model.type"), &model) == TR_OK)
        compare_table(&c, model->config);
    tr_error_clear();
    tr_config_destroy(&then);
}

/* -- the other keys of a run that is resumed --------------------------------------------------- */

typedef void (*key_fn)(const tr_config_field_t *field, const char *key, const char *was,
                       const char *is, tr_str_t *out);

/* Calls `each` for every key of the program, with its value in the checkpoint's run and now. */
static void compare_keys(const json_t *state, const tr_config_t *config, key_fn each,
                         tr_str_t *out) {
    const tr_config_table_t *const *tables;
    size_t count;
    tr_config_t *then = tr_state_config(state);
    if (!then || tr_all_tables(&tables, &count) != TR_OK) count = 0;
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            const tr_config_field_t *field = &tables[t]->fields[i];
            char key[128];
            snprintf(key, sizeof key, "%s%s%s", tables[t]->section, *tables[t]->section ? "." : "",
                     field->name);
            const char *was = tr_config_get(then, key), *is = tr_config_get(config, key);
            if (was && is) each(field, key, was, is, out);
        }
    tr_config_destroy(&then);
}

static void compare_add_mismatch(const tr_config_field_t *field, const char *key, const char *was,
                                 const char *is, tr_str_t *out) {
    if (field->resume == TR_RESUME_MATCH && strncmp(key, "model.", 6) != 0 &&
        !tr_config_same_value(field, was, is))
        tr_str_printf(out, "\n  %s: %.200s in the checkpoint, %.200s now", key, was, is);
}

void tr_state_compare_keys(const json_t *state, const tr_config_t *config, tr_str_t *out) {
    compare_keys(state, config, compare_add_mismatch, out);
}

static void add_change(const tr_config_field_t *field, const char *key, const char *was,
                       const char *is, tr_str_t *out) {
    if (field->resume != TR_RESUME_NOTE || tr_config_same_value(field, was, is)) return;
    tr_str_printf(out, "%s%s %.200s -> %.200s", out->length > 0 ? ", " : "", key, *was ? was : "''",
                  *is ? is : "''");
}

void tr_state_changes(const json_t *state, const tr_config_t *config, tr_str_t *out) {
    compare_keys(state, config, add_change, out);
}

/* The help of the row explains auto, from "auto: " to the end of that sentence. */
static void add_origin(const tr_config_field_t *field, const char *key, const char *was,
                       const char *is, tr_str_t *out) {
    char named[160];
    const bool is_auto = strcmp(was, "auto") == 0, is_compute = strcmp(was, "compute") == 0;
    if (field->resume != TR_RESUME_KEEP || !(is_auto || is_compute)) return;
    snprintf(named, sizeof named, "\n  %s: ", key);
    char *line = out->text ? strstr(out->text, named) : NULL;
    const char *help = strstr(field->help, is_auto ? "auto: " : "compute: ");
    if (!line) return;
    const char *end = help ? strstr(help, ". ") : NULL;
    const int length = !help ? 0 : end ? (int)(end - help) : (int)strcspn(help, ".");
    tr_str_printf(out, "\n  (%s was %s there%s%.*s)", key, was, help ? "; " : "", length,
                  help ? help : "");
}

void tr_state_say_origin(const json_t *state, const tr_config_t *config, tr_str_t *out) {
    compare_keys(state, config, add_origin, out);
}
