/* Preprocessing as JSON in checkpoints, and the differences between two. */
#include "preprocess.h"
#include "data/shared.h"
#include "base/mem.h"
#include "text/tokenizer.h"

#include <jansson.h>
#include <string.h>

/* The four vectors: their names in the file, and the value of an empty one. */
enum { VECTORS = 4 };
static const struct {
    const char *key, *none;
} vectors[VECTORS] = {{"mean", "0"}, {"std", "1"}, {"target_mean", "0"}, {"target_std", "1"}};

static const tr_floats_t *preprocess_json_vector_of(const tr_preprocess_t *p, int which) {
    const tr_normalize_t *n = which < 2 ? &p->input : &p->target;
    return which % 2 == 0 ? &n->mean : &n->std;
}

/* -- writing ----------------------------------------------------------------------------------- */

/* "33.3,12", as in the key; nine digits distinguish all floats. */
static void preprocess_json_write_vector(const tr_preprocess_t *p, int which, tr_str_t *out) {
    const tr_floats_t *v = preprocess_json_vector_of(p, which);
    for (size_t i = 0; i < v->count; i++)
        tr_str_printf(out, "%s%.9g", i ? "," : "", (double)v->data[i]);
    if (v->count == 0) tr_str_append(out, vectors[which].none);
}

/* NULL without memory: half a text would look complete. */
static json_t *preprocess_json_of_vector(const tr_preprocess_t *p, int which) {
    tr_str_t text = {0};
    preprocess_json_write_vector(p, which, &text);
    json_t *result = text.status == TR_OK ? json_string(text.text) : NULL;
    tr_str_free(&text);
    return result;
}

/* No names if one is not UTF-8: JSON cannot hold it, and the others would change their index. */
static json_t *names_json(const tr_names_t *names) {
    bool is_utf8 = true, added = true;
    json_t *array = json_array();
    for (int64_t i = 0; i < names->count; i++) {
        const size_t bytes = strlen(names->name[i]);
        is_utf8 = is_utf8 && tr_utf8_bytes(names->name[i], bytes) == bytes;
    }
    for (int64_t i = 0; is_utf8 && i < names->count; i++)
        added = json_array_append_new(array, json_string(names->name[i])) == 0 && added;
    if (added) return array;
    json_decref(array);
    return NULL;
}

static json_t *shape_json(const tr_shape_t *shape) {
    json_t *array = json_array();
    for (int d = 0; d < shape->ndim; d++) json_array_append_new(array, json_integer(shape->dim[d]));
    return array;
}

static const char *const kinds[] = {
    [TR_FIELD_VALUES] = "values", [TR_FIELD_LABELS] = "labels", [TR_FIELD_TOKENS] = "tokens"};

/* x and shape are for readers of earlier versions, which know no fields. */
json_t *tr_preprocess_json(const tr_preprocess_t *p) {
    static const tr_field_t none = {.dtype = TR_F32};
    const tr_field_t *x = tr_preprocess_field(p, "x");
    json_t *fields = json_array(), *weights = json_array();
    if (!x) x = &none;
    for (const tr_field_t *f = p->field; f < p->field + p->field_count; f++)
        json_array_append_new(fields, json_pack("{s:s, s:s, s:s, s:o}", "name", f->name, "kind",
                                                kinds[f->kind], "dtype", tr_dtype_name(f->dtype),
                                                "shape", shape_json(&f->shape)));
    for (size_t c = 0; c < p->class_weights.count; c++)
        json_array_append_new(weights, json_real((double)p->class_weights.data[c]));
    json_t *data = json_pack("{s:I, s:s, s:o, s:o, s:b}", "classes", (json_int_t)p->classes, "x",
                             tr_dtype_name(x->dtype), "shape", shape_json(&x->shape), "fields",
                             fields, "decodes", (int)p->decodes);
    bool added = data != NULL;
    if (p->is_dense) added = json_object_set_new(data, "targets", json_string("position")) == 0;
    if (p->columns)
        added = json_object_set_new(data, "columns", json_string(p->columns)) == 0 && added;
    if (p->tokenizer)
        added = json_object_set_new(data, "tokenizer", json_string(p->tokenizer)) == 0 && added;
    if (p->class_weights.count > 0)
        added = json_object_set(data, "class_weights", weights) == 0 && added;
    json_decref(weights);
    for (int i = 0; i < VECTORS; i++)
        added = json_object_set_new(data, vectors[i].key, preprocess_json_of_vector(p, i)) == 0 &&
                added;
    for (int list = 0; list < TR_NAMES_LISTS; list++)
        added = json_object_set_new(data, tr_names_key(list), names_json(&p->names[list])) == 0 &&
                added;
    if (added) return data;
    json_decref(data);
    return NULL;
}

/* -- reading ----------------------------------------------------------------------------------- */

static tr_status_t preprocess_json_read_vector(const json_t *data, int which, const char *origin,
                                               tr_floats_t *out) {
    const char *text = json_string_value(json_object_get(data, vectors[which].key));
    int count = 1;
    if (!text) return TR_OK;
    for (const char *at = text; *at; at++) count += *at == ',';
    TR_TRY(tr_vec_reserve_(&out->data, &out->capacity, (size_t)count, sizeof *out->data));
    if (!tr_parse_floats(text, count, out->data, &count))
        return TR_FAIL(TR_ERR_DATA,
                       "%s: expected numbers in data.%s of its state.json, found '%.200s'", origin,
                       vectors[which].key, text);
    out->count = (size_t)count;
    return TR_OK;
}

/* No normalisation if the lengths differ or the numbers change nothing. */
static tr_status_t preprocess_json_read_normalize(const json_t *data, int first, const char *origin,
                                                  tr_normalize_t *out) {
    bool changes = false;
    TR_TRY(preprocess_json_read_vector(data, first, origin, &out->mean));
    TR_TRY(preprocess_json_read_vector(data, first + 1, origin, &out->std));
    if (out->mean.count != out->std.count)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: data.%s and data.%s of its state.json have %zu and %zu numbers", origin,
                       vectors[first].key, vectors[first + 1].key, out->mean.count, out->std.count);
    for (size_t i = 0; i < out->mean.count; i++)
        changes = changes || out->mean.data[i] != 0 || out->std.data[i] != 1;
    if (!changes) out->mean.count = out->std.count = 0;
    return TR_OK;
}

static tr_dtype_t preprocess_json_dtype_of(const char *name) {
    int type = 0;
    while (name && type < TR_DTYPE_COUNT && strcmp(name, tr_dtype_name((tr_dtype_t)type)) != 0)
        type++;
    return type < TR_DTYPE_COUNT ? (tr_dtype_t)type : TR_F32;
}

static void preprocess_json_read_shape(const json_t *shape, tr_shape_t *out) {
    out->ndim = json_array_size(shape) < TR_MAX_DIMS ? (int)json_array_size(shape) : 0;
    for (int d = 0; d < out->ndim; d++)
        out->dim[d] = (int64_t)json_integer_value(json_array_get(shape, (size_t)d));
}

static tr_status_t preprocess_json_read_field(const json_t *field, const char *origin,
                                              tr_field_t *out) {
    const char *name = json_string_value(json_object_get(field, "name")),
               *kind = json_string_value(json_object_get(field, "kind"));
    size_t k = 0;
    while (kind && k < TR_COUNT(kinds) && strcmp(kind, kinds[k]) != 0) k++;
    if (!name || strlen(name) >= sizeof out->name || !kind || k == TR_COUNT(kinds))
        return TR_FAIL(TR_ERR_DATA,
                       "%s: expected name and kind of each field in data.fields of its state.json, "
                       "found '%.64s' and '%.64s'",
                       origin, name ? name : "", kind ? kind : "");
    tr_snprintf(out->name, sizeof out->name, "%s", name);
    out->kind = (tr_field_kind_t)k;
    out->dtype = preprocess_json_dtype_of(json_string_value(json_object_get(field, "dtype")));
    preprocess_json_read_shape(json_object_get(field, "shape"), &out->shape);
    return TR_OK;
}

static tr_status_t preprocess_json_read_fields(const json_t *data, const char *origin,
                                               tr_preprocess_t *p) {
    const json_t *fields = json_object_get(data, "fields");
    const size_t count = json_array_size(fields);
    if (count > TR_DATASET_MAX_FIELDS)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: expected at most %d fields in data.fields of its state.json, found %zu",
                       origin, TR_DATASET_MAX_FIELDS, count);
    for (size_t f = 0; f < count; f++)
        TR_TRY(preprocess_json_read_field(json_array_get(fields, f), origin, &p->field[f]));
    p->field_count = (int)count;
    if (!fields) { /* of an earlier version: x alone, of values or tokens */
        const json_t *shape = json_object_get(data, "shape"),
                     *inputs = json_object_get(data, "inputs"); /* the width of a table */
        p->field[p->field_count++] = (tr_field_t){
            .name = "x",
            .kind = p->tokenizer ? TR_FIELD_TOKENS : TR_FIELD_VALUES,
            .dtype = preprocess_json_dtype_of(json_string_value(json_object_get(data, "x")))};
        preprocess_json_read_shape(shape, &p->field[0].shape);
        if (!shape && json_is_integer(inputs))
            p->field[0].shape = TR_SHAPE((int64_t)json_integer_value(inputs));
    }
    for (int f = 0; f < p->field_count; f++)
        p->field[f].sample_bytes =
            tr_shape_elems(&p->field[f].shape) * (int64_t)tr_dtype_bytes(p->field[f].dtype);
    return TR_OK;
}

tr_status_t tr_preprocess_from_json(const json_t *data, const char *origin, tr_preprocess_t **out) {
    const char *tokenizer = json_string_value(json_object_get(data, "tokenizer")),
               *columns = json_string_value(json_object_get(data, "columns"));
    const json_t *weights = json_object_get(data, "class_weights");
    tr_preprocess_t *p = NULL;
    tr_status_t status = TR_OK;
    *out = NULL;
    if (!json_object_get(data, "mean") || !json_object_get(data, "std")) return TR_OK;
    TR_TRY(tr_alloc(sizeof *p, "preprocessing", &p));
    TR_TRY_GOTO(tr_strdup(origin, &p->origin), fail);
    if (tokenizer) TR_TRY_GOTO(tr_strdup(tokenizer, &p->tokenizer), fail);
    if (columns) TR_TRY_GOTO(tr_strdup(columns, &p->columns), fail);
    p->is_dense = json_object_get(data, "targets") != NULL;
    p->decodes = json_is_true(json_object_get(data, "decodes"));
    p->classes = (int64_t)json_integer_value(json_object_get(data, "classes"));
    TR_TRY_GOTO(preprocess_json_read_fields(data, p->origin, p), fail);
    for (size_t c = 0; c < json_array_size(weights); c++) {
        const float weight = (float)json_number_value(json_array_get(weights, c));
        TR_TRY_GOTO(tr_vec_push(&p->class_weights, weight), fail);
    }
    TR_TRY_GOTO(preprocess_json_read_normalize(data, 0, origin, &p->input), fail);
    TR_TRY_GOTO(preprocess_json_read_normalize(data, 2, origin, &p->target), fail);
    for (int list = 0; list < TR_NAMES_LISTS; list++) {
        const json_t *names = json_object_get(data, tr_names_key(list));
        TR_TRY_GOTO(tr_names_from_json(names, p->origin, &p->names[list]), fail);
    }
    *out = p;
    return TR_OK;
fail:
    tr_preprocess_destroy(&p);
    return status;
}

/* -- comparing --------------------------------------------------------------------------------- */

static float preprocess_json_number_at(const tr_floats_t *v, size_t i, int which) {
    return v->count == 0 ? (float)(which % 2) : v->data[v->count == 1 ? 0 : i];
}

/* "7" and "7,7" are the same: one number applies to all. */
static bool preprocess_json_are_same(const tr_floats_t *a, const tr_floats_t *b, int which) {
    const size_t count = a->count > b->count ? a->count : b->count;
    if (a->count > 1 && b->count > 1 && a->count != b->count) return false;
    for (size_t i = 0; i < count; i++)
        if (preprocess_json_number_at(a, i, which) != preprocess_json_number_at(b, i, which))
            return false;
    return true;
}

void tr_preprocess_compare(const tr_preprocess_t *was, const tr_preprocess_t *is, tr_str_t *out) {
    for (int i = 0; i < VECTORS; i++) {
        tr_str_t a = {0}, b = {0};
        if (preprocess_json_are_same(preprocess_json_vector_of(was, i),
                                     preprocess_json_vector_of(is, i), i))
            continue;
        preprocess_json_write_vector(was, i, &a);
        preprocess_json_write_vector(is, i, &b);
        if (a.text && b.text)
            tr_str_printf(out, "\n  data.%s: %.200s%s in the checkpoint, %.200s%s now",
                          vectors[i].key, a.text, a.length > 200 ? "..." : "", b.text,
                          b.length > 200 ? "..." : "");
        tr_str_free(&a);
        tr_str_free(&b);
    }
    if (was->tokenizer && is->tokenizer && !tr_tokenizer_is_same(was->tokenizer, is->tokenizer))
        tr_str_append(out, "\n  data.train: its tokens come from another tokenizer");
}
