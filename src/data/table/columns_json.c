/* The columns of a table as JSON: in the attribute `columns` of imported tables, and in checkpoints. */
#include "columns.h"
#include "base/json_text.h"
#include "data/shared.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"number", "one-hot", "ordinal"};

static json_t *columns_json_names(const tr_names_t *names) {
    json_t *array = json_array();
    for (int64_t i = 0; i < names->count; i++)
        json_array_append_new(array, json_string(names->name[i]));
    return array;
}

tr_status_t tr_columns_to_json(const tr_columns_t *columns, char **out) {
    const char delimiter[] = {columns->delimiter, '\0'}, decimal[] = {columns->decimal, '\0'};
    json_t *inputs = json_array();
    for (size_t i = 0; i < columns->input.count; i++) {
        const tr_column_t *c = &columns->input.data[i];
        json_t *input = json_pack("{s:s, s:s}", "name", c->name, "kind", kinds[c->kind]);
        if (c->kind != TR_COLUMN_NUMBER)
            json_object_set_new(input, "categories", columns_json_names(&c->categories));
        else if (columns->fills)
            json_object_set_new(input, "fill", json_real(c->fill));
        if (c->indicator) json_object_set_new(input, "indicator", json_true());
        json_array_append_new(inputs, input);
    }
    json_t *object = json_pack("{s:b, s:s, s:s, s:b, s:b, s:o, s:o}", "header", columns->has_header,
                               "delimiter", delimiter, "decimal", decimal, "fills", columns->fills,
                               "refuses_unknown", columns->refuses_unknown, "targets",
                               columns_json_names(&columns->targets), "inputs", inputs);
    if (columns->id) json_object_set_new(object, "id", json_string(columns->id));
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!text) return TR_FAIL(TR_ERR_MEMORY, "Not enough memory for the columns of a table.");
    tr_json_shorten(text);
    const tr_status_t status = tr_strdup(text, out);
    free(text);
    return status;
}

static tr_status_t columns_json_read_input(const json_t *input, const char *origin,
                                           tr_columns_t *columns) {
    const char *name = json_string_value(json_object_get(input, "name")),
               *kind = json_string_value(json_object_get(input, "kind"));
    int found = 0;
    while (kind && found < (int)TR_COUNT(kinds) && strcmp(kinds[found], kind) != 0) found++;
    if (!name || !kind || found == (int)TR_COUNT(kinds))
        return TR_FAIL(TR_ERR_DATA,
                       "%s: its columns are not readable: expected inputs with a name and a kind "
                       "(number, one-hot, ordinal), found the kind '%s'. Import the table again.",
                       origin, kind ? kind : "");
    TR_TRY(tr_vec_push(&columns->input, (tr_column_t){0}));
    tr_column_t *c = &columns->input.data[columns->input.count - 1];
    c->kind = (tr_column_kind_t)found;
    c->fill = json_number_value(json_object_get(input, "fill"));
    c->indicator = json_is_true(json_object_get(input, "indicator"));
    TR_TRY(tr_strdup(name, &c->name));
    return tr_names_from_json(json_object_get(input, "categories"), origin, &c->categories);
}

tr_status_t tr_columns_from_json(const char *text, const char *origin, tr_columns_t *out) {
    json_t *object = json_loads(text, 0, NULL);
    const json_t *inputs = json_object_get(object, "inputs");
    const char *delimiter = json_string_value(json_object_get(object, "delimiter")),
               *decimal = json_string_value(json_object_get(object, "decimal")),
               *id = json_string_value(json_object_get(object, "id"));
    tr_status_t status = TR_OK;
    *out =
        (tr_columns_t){.has_header = json_is_true(json_object_get(object, "header")),
                       .delimiter = delimiter && *delimiter ? *delimiter : ',',
                       .decimal = decimal && *decimal ? *decimal : '.',
                       .fills = json_is_true(json_object_get(object, "fills")),
                       .refuses_unknown = json_is_true(json_object_get(object, "refuses_unknown"))};
    if (json_array_size(inputs) == 0)
        status = TR_FAIL(TR_ERR_DATA,
                         "%s: its columns are not readable: expected JSON with inputs, found "
                         "'%.60s'. Import the table again.",
                         origin, text);
    for (size_t i = 0; status == TR_OK && i < json_array_size(inputs); i++)
        status = columns_json_read_input(json_array_get(inputs, i), origin, out);
    if (status == TR_OK)
        status = tr_names_from_json(json_object_get(object, "targets"), origin, &out->targets);
    if (status == TR_OK && id) status = tr_strdup(id, &out->id);
    json_decref(object);
    return status;
}

/* -- comparing --------------------------------------------------------------------------------- */

static void columns_compare_input(const tr_columns_t *was, const tr_columns_t *is, size_t i,
                                  tr_str_t *out) {
    const tr_column_t *a = &was->input.data[i], *b = &is->input.data[i];
    if (a->kind != b->kind)
        tr_str_printf(out, "column '%s' is %s, not %s", a->name, kinds[b->kind], kinds[a->kind]);
    else if (a->indicator != b->indicator)
        tr_str_printf(out, "column '%s' has %s indicator of missing values", a->name,
                      b->indicator ? "an" : "no");
    else if (was->fills && is->fills && a->fill != b->fill)
        tr_str_printf(out, "missing values of column '%s' become %.9g, not %.9g", a->name, b->fill,
                      a->fill);
    else if (a->categories.count != b->categories.count)
        tr_str_printf(out, "column '%s' has %lld categories, not %lld", a->name,
                      (long long)b->categories.count, (long long)a->categories.count);
    for (int64_t k = 0; !out->length && k < a->categories.count; k++)
        if (strcmp(a->categories.name[k], b->categories.name[k]) != 0)
            tr_str_printf(out, "category %lld of column '%s' is '%s', not '%s'", (long long)k,
                          a->name, b->categories.name[k], a->categories.name[k]);
}

tr_status_t tr_columns_compare(const char *expected, const char *found, tr_str_t *out) {
    tr_columns_t was = {0}, is = {0};
    tr_status_t status = tr_columns_from_json(expected, "the checkpoint", &was);
    if (status == TR_OK) status = tr_columns_from_json(found, "the data set", &is);
    /* Another number of columns has another width, which is refused with the shapes. */
    for (size_t i = 0; status == TR_OK && was.input.count == is.input.count && !out->length &&
                       i < was.input.count;
         i++)
        columns_compare_input(&was, &is, i, out);
    tr_columns_free(&was);
    tr_columns_free(&is);
    return status == TR_OK ? out->status : status;
}
