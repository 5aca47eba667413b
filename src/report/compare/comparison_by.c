/* The figure that ranks runs: what can be one, and whether losses are comparable. */
#include "comparison_int.h"

#include <math.h>
#include <string.h>

/* -- figures ----------------------------------------------------------------------------------- */

/* False: nobody ranks by it. */
static bool figure_direction(const char *key, bool *out_up) {
    static const struct {
        const char *end;
        bool is_up;
    } ends[] = {{"per_sec", true},     {"accuracy", true}, {"r2", true},      {"iou", true},
                {"tflops", true},      {"mfu", true},      {"loss", false},   {"_sec", false},
                {"_ms", false},        {"_p95", false},    {"_bytes", false}, {"stall", false},
                {"perplexity", false}, {"exposed", false}};
    for (size_t i = 0; i < TR_COUNT(ends); i++) {
        if (!tr_text_ends_in(key, ends[i].end)) continue;
        *out_up = ends[i].is_up;
        return true;
    }
    return false;
}

double tr_record_figure(const tr_record_t *r, const char *key, double *out_step) {
    bool is_up = false;
    const tr_rows_t *rows = &r->validation;
    const int column = tr_rows_column(rows, key), begins = tr_rows_column(rows, "begins_anew");
    double best = NAN;
    *out_step = NAN;
    (void)figure_direction(key, &is_up);
    for (size_t i = 0; i < rows->count; i++) {
        const double value = tr_rows_at(rows, i, column);
        if (tr_rows_at(rows, i, begins) == 1) best = *out_step = NAN;
        if (!isfinite(value) || (is_up ? value <= best : value >= best)) continue;
        best = value;
        *out_step = tr_rows_number(rows, i, "step");
    }
    if (isfinite(best)) return best;
    if (strcmp(key, "samples_per_sec") == 0) return r->times.samples_per_sec;
    const int trained = tr_rows_column(&r->training, key);
    for (size_t i = r->training.count; i-- > 0 && trained >= 0;) {
        const double value = tr_rows_at(&r->training, i, trained);
        if (isfinite(value)) return value;
    }
    return tr_json_number(r->summary, key);
}

bool tr_comparison_has(const tr_comparison_t *c, const char *key) {
    double step;
    for (size_t i = 0; i < c->entries.count; i++)
        if (isfinite(tr_record_figure(c->entries.data[i].record, key, &step))) return true;
    return false;
}

/* Whether all runs that have the one have the other. */
static bool comparison_all_have(const tr_comparison_t *c, const char *key, const char *other) {
    double step;
    bool any = false;
    for (size_t i = 0; i < c->entries.count; i++) {
        const tr_record_t *r = c->entries.data[i].record;
        if (!isfinite(tr_record_figure(r, key, &step))) continue;
        if (!isfinite(tr_record_figure(r, other, &step))) return false;
        any = true;
    }
    return any;
}

bool tr_comparison_is_valid(const tr_comparison_t *c, const char *figure) {
    double step = NAN;
    for (size_t i = 0; i < c->entries.count && !isfinite(step); i++)
        (void)tr_record_figure(c->entries.data[i].record, figure, &step);
    return isfinite(step);
}

/* Adds the numbers of an object by which runs can be ranked. */
static void figures_add(const json_t *object, json_t *to) {
    const char *key;
    json_t *value;
    bool is_up;
    json_object_foreach((json_t *)object, key, value) {
        if (json_is_number(value) && figure_direction(key, &is_up)) json_object_set(to, key, value);
    }
}

static tr_status_t fail_unknown_figure(const tr_comparison_t *c, const char *by) {
    json_t *known = json_object();
    tr_str_t names = {0};
    const char *key;
    json_t *value;
    for (size_t i = 0; i < c->entries.count; i++) {
        const tr_record_t *r = c->entries.data[i].record;
        figures_add(r->summary, known);
        figures_add(r->first, known);
    }
    json_object_foreach(known, key, value) {
        tr_str_printf(&names, "%s%s", names.length ? ", " : "", key);
    }
    const tr_status_t status =
        TR_FAIL(TR_ERR_USAGE,
                "--by %s: expected a number by which these runs can be ranked. There are: %s.", by,
                names.text ? names.text : "none yet");
    tr_str_free(&names);
    json_decref(known);
    return status;
}

/* -- what makes losses comparable -------------------------------------------------------------- */

enum { OF_ALL = 7, OF_TRAIN = 1, OF_VALID = 2, OF_TEST = 4 };
static const struct {
    const char *key;
    int scope;
    const char *learned;           /* its name in the checkpoint, which knows what auto became */
    const char *if_key, *if_value; /* matters only if this key has this value */
} loss_keys[] = {
    {"model.loss", OF_ALL, NULL, NULL, NULL},
    {"model.label_smoothing", OF_ALL, NULL, NULL, NULL},
    {"model.huber_delta", OF_ALL, NULL, "model.loss", "huber"},
    {"model.class_weights", OF_ALL, NULL, NULL, NULL},
    {"data.format", OF_ALL, NULL, NULL, NULL},
    {"data.y", OF_ALL, NULL, NULL, NULL},
    {"data.synthetic_samples", OF_ALL, NULL, "data.format", "synthetic"},
    {"data.synthetic_shape", OF_ALL, NULL, "data.format", "synthetic"},
    {"data.valid", OF_VALID, NULL, NULL, NULL},
    {"data.valid_fraction", OF_VALID, NULL, NULL, NULL},
    {"data.limit", OF_VALID | OF_TEST, NULL, NULL, NULL},
    {"train.valid_samples", OF_VALID, NULL, NULL, NULL},
    {"data.train", OF_VALID, NULL, "data.valid", ""},
    {"data.train", OF_TEST, NULL, "data.test", ""},
    {"data.train", OF_TRAIN, NULL, NULL, NULL},
    {"data.test", OF_TEST, NULL, NULL, NULL},
    {"data.target_mean", OF_ALL, "target_mean", NULL, NULL},
    {"data.target_std", OF_ALL, "target_std", NULL, NULL},
    {"tokenizer", OF_ALL, "tokenizer", NULL, NULL},
};

/* The key in which the losses of the runs that have `figure` differ, with the runs; NULL: none.
 * Folds are made to be averaged, so what follows from them does not count. */
static const char *comparison_loss_differs(const tr_comparison_t *c, const char *figure,
                                           const tr_entry_t *out[2]) {
    const int scope = strstr(figure, "valid")  ? OF_VALID
                      : strstr(figure, "test") ? OF_TEST
                                               : OF_TRAIN;
    const tr_entry_t *a = NULL;
    double step;
    for (size_t i = 0; i < c->entries.count; i++) {
        const tr_entry_t *b = &c->entries.data[i];
        if (!isfinite(tr_record_figure(b->record, figure, &step))) continue;
        if (!a) a = b;
        out[0] = a, out[1] = b;
        const bool same_fold = tr_entry_is_equal(a, b, "data.fold");
        const char *here = json_string_value(json_object_get(a->record->summary, "valid_dataset")),
                   *there = json_string_value(json_object_get(b->record->summary, "valid_dataset"));
        if (scope == OF_VALID && same_fold && here && there && strcmp(here, there) != 0)
            return "valid_dataset";
        for (size_t k = 0; k < TR_COUNT(loss_keys); k++) {
            const char *key = loss_keys[k].key, *learned = loss_keys[k].learned,
                       *x =
                           learned ? json_string_value(json_object_get(a->learned, learned)) : NULL,
                       *y =
                           learned ? json_string_value(json_object_get(b->learned, learned)) : NULL,
                       *gate = loss_keys[k].if_key ? tr_record_key(a->record, loss_keys[k].if_key)
                                                   : NULL;
            if (!(loss_keys[k].scope & scope)) continue;
            if (gate && strcmp(gate, loss_keys[k].if_value) != 0) continue;
            const bool is_equal =
                x && y && same_fold ? strcmp(x, y) == 0 : tr_entry_is_equal(a, b, key);
            if (!is_equal) return key;
        }
    }
    return NULL;
}

static void comparison_note_difference(tr_comparison_t *c, const char *key,
                                       const tr_entry_t *pair[2]) {
    tr_str_t values[2] = {{0}, {0}};
    for (int i = 0; i < 2 && tr_record_key(pair[0]->record, key); i++)
        tr_comparison_value(c, pair[i], key, &values[i]);
    /* Both may be auto, which became something else. */
    if (values[0].text && values[1].text && strcmp(values[0].text, values[1].text) != 0)
        tr_snprintf(c->note, sizeof c->note,
                    "The losses cannot be compared, because %s differs: %s has %s, %s has %s.", key,
                    pair[0]->record->name, values[0].text, pair[1]->record->name, values[1].text);
    else
        tr_snprintf(c->note, sizeof c->note,
                    "The losses cannot be compared, because %s of %s and %s differs.", key,
                    pair[0]->record->name, pair[1]->record->name);
    tr_str_free(&values[0]);
    tr_str_free(&values[1]);
}

tr_status_t tr_comparison_choose(tr_comparison_t *c, const char *by, bool is_strict) {
    static const char *const instead[] = {"valid_accuracy", "valid_r2"};
    const char *wanted = by                                   ? by
                         : tr_comparison_has(c, "valid_loss") ? "valid_loss"
                         : tr_comparison_has(c, "loss")       ? "loss"
                                                              : NULL;
    const tr_entry_t *pair[2];
    bool is_up;
    c->has_losses = true;
    if (!wanted) return TR_OK;
    if (!figure_direction(wanted, &is_up) || !tr_comparison_has(c, wanted))
        return fail_unknown_figure(c, wanted);
    const bool is_loss = tr_text_ends_in(wanted, "loss") || tr_text_ends_in(wanted, "perplexity");
    const char *other = is_loss ? comparison_loss_differs(c, wanted, pair) : NULL;
    if (!is_loss) c->has_losses = !comparison_loss_differs(c, "valid_loss", pair);
    if (other) {
        c->has_losses = false;
        comparison_note_difference(c, other, pair);
        const char *loss = wanted;
        wanted = NULL;
        for (size_t i = 0; i < TR_COUNT(instead) && !wanted; i++)
            if (comparison_all_have(c, loss, instead[i])) wanted = instead[i];
        if (wanted && by)
            return TR_FAIL(TR_ERR_DATA,
                           "%s Compare runs that have the same %s, or rank by another "
                           "number: --by %s.",
                           c->note, other, wanted);
    }
    if (!wanted && is_strict)
        return TR_FAIL(TR_ERR_DATA,
                       "%s Compare runs that have the same %s, or rank by another number, such as "
                       "--by samples_per_sec.",
                       c->note, other);
    if (!wanted) return TR_OK;
    c->figure[c->figures++] = wanted;
    return figure_direction(wanted, &c->is_up) ? TR_OK : TR_ERR_INTERNAL;
}
