/* data.label_values: values that stand for classes. */
#include "shared.h"
#include <ctype.h>
#include <stdio.h>

/* Doubles are exact up to here. */
#define VALUE_MOST 0x1p53

tr_status_t tr_label_values_read(const tr_data_settings_t *settings, tr_label_values_t *out) {
    const char *text = settings->label_values ? settings->label_values : "";
    bool good = true;
    out->count = 0;
    if (!*text) return TR_OK;
    for (const char *at = text; at && good; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char piece[40];
        double *value = &out->value[out->count];
        size_t bytes = strcspn(at, ",");
        while (bytes > 0 && isspace((unsigned char)*at)) at++, bytes--;
        while (bytes > 0 && isspace((unsigned char)at[bytes - 1])) bytes--;
        snprintf(piece, sizeof piece, "%.*s", (int)bytes, at);
        good = out->count < TR_LABEL_VALUES_MAX && tr_parse_float(piece, value) &&
               fabs(*value) <= VALUE_MOST;
        for (int k = 0; k < out->count && good; k++) good = *value != out->value[k];
        out->count += good;
    }
    if (!good || out->count < 2)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.label_values: expected 2 to %d different numbers with commas between "
                       "them, such as 0,255, found '%s'",
                       TR_LABEL_VALUES_MAX, text);
    if (settings->classes <= 0 || settings->classes == out->count) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "data.label_values = %s has %d values, but data.classes is %lld: remove "
                   "data.classes, or give as many values",
                   text, out->count, (long long)settings->classes);
}

int64_t tr_label_values_class(const tr_label_values_t *v, double stored, int64_t limit) {
    if (v->count == 0)
        return stored >= 0 && stored < (double)limit && stored == (double)(int64_t)stored
                   ? (int64_t)stored
                   : -1;
    for (int i = 0; i < v->count; i++) {
        const double value = v->value[i];
        /* 0.1 may be stored as a 32-bit float */
        if (stored == value || (value != trunc(value) && (float)stored == (float)value)) return i;
    }
    return -1;
}

/* Names that the data have for the labels, or for the classes: else the values themselves. */
tr_status_t tr_label_values_name(const tr_label_values_t *v, const char *from, tr_names_t *names) {
    bool are_of_labels = names->count > 0;
    tr_names_t named = {.from = from};
    for (int i = 0; i < v->count; i++)
        are_of_labels = are_of_labels && v->value[i] == trunc(v->value[i]) && v->value[i] >= 0 &&
                        v->value[i] < (double)names->count;
    if (v->count == 0 || (names->count == v->count && !are_of_labels)) return TR_OK;
    tr_status_t status =
        tr_alloc((size_t)v->count * sizeof *named.name, "names of classes", &named.name);
    for (; status == TR_OK && named.count < v->count; named.count++) {
        const double value = v->value[named.count];
        char text[40];
        tr_snprintf(text, sizeof text, "%.16g", value);
        status =
            tr_strdup(are_of_labels ? names->name[(int64_t)value] : text, &named.name[named.count]);
    }
    if (status == TR_OK) {
        const tr_names_t before = *names;
        *names = named;
        named = before;
    }
    tr_names_free(&named);
    return status;
}
