/* Whether the first row of a table has the names of its columns. */
#include "csv_int.h"
#include "trainer/log.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

int tr_csv_find_name(char *const *field, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcasecmp(field[i], name)) return i;
    return -1;
}

int tr_csv_find_label(char *const *field, int count, const char *role) {
    static const char *const usual[] = {"label",  "class",   "target", "y",
                                        "labels", "species", "outcome"};
    for (size_t i = 0; i < TR_COUNT(usual); i++) {
        const int found = tr_csv_find_name(field, count, usual[i]);
        if (found >= 0 && (!role || role[found] == 'i')) return found;
    }
    return -1;
}

/* The column of the label, or of the first target, if the first row has the names; -1: none.
 * *out_is_named: it is known by its name. */
static int header_label(const tr_import_params_t *p, char *const *field, int count,
                        bool *out_is_named) {
    const char *given = p->target ? p->target : p->label;
    char name[256];
    int64_t index;
    snprintf(name, sizeof name, "%.*s", p->target ? (int)strcspn(given, ",") : 255,
             given ? given : "");
    const int found =
        given ? tr_csv_find_name(field, count, name) : tr_csv_find_label(field, count, NULL);
    *out_is_named = found >= 0;
    if (found >= 0 || !given) return found >= 0 ? found : count - 1;
    if (!tr_parse_int(name, &index) || index == 0 || index < -count || index > count) return -1;
    return (int)(index < 0 ? index + count : index - 1);
}

/* Reads the labels of the other rows, until one is that of the first row. */
static tr_status_t header_scan(tr_csv_table_t *table, int label, const char *text,
                               csv_labels_t *labels, bool *out_recurs) {
    char **field;
    int count;
    *out_recurs = false;
    TR_TRY(tr_csv_table_open(table, &field, &count));
    TR_TRY(tr_csv_row(table->csv, &field, &count));
    while (count > 0 && !*out_recurs) {
        double value;
        *out_recurs = label < count && strcmp(field[label], text) == 0;
        if (label < count && !tr_csv_is_missing(field[label], true))
            TR_TRY(tr_csv_labels_add(labels, table, field[label], &value));
        TR_TRY(tr_csv_row(table->csv, &field, &count));
    }
    return TR_OK;
}

tr_status_t tr_csv_header_find(const tr_csv_table_t *table, const tr_import_params_t *p,
                               char *const *field, int count, bool *out) {
    bool has_number = false, recurs, is_named;
    const int label = header_label(p, field, count, &is_named);
    double value;
    for (int i = 0; i < count; i++) has_number |= tr_csv_number(table, field[i], &value);
    *out = p->header == TR_HEADER_AUTO ? !has_number : p->header == TR_HEADER_YES;
    if (p->header != TR_HEADER_AUTO || !has_number || label < 0 ||
        tr_csv_number(table, field[label], &value) || tr_csv_is_missing(field[label], true))
        return TR_OK;
    tr_csv_table_t again = *table;
    csv_labels_t labels;
    again.csv = NULL;
    tr_csv_labels_begin(&labels, label, false);
    const tr_status_t status = header_scan(&again, label, field[label], &labels, &recurs);
    const bool are_shared = labels.texts == 0 || (int64_t)labels.names.count < labels.rows;
    *out = status == TR_OK && !recurs && (is_named || (labels.rows > 1 && are_shared));
    const char *const said = "line %lld is read as the names of the columns, because no other row "
                             "has its label '%s'; --header no reads it as data";
    if (*out && is_named)
        TR_INFO(said, (long long)tr_csv_line(table->csv), field[label]);
    else if (*out)
        TR_WARN(said, (long long)tr_csv_line(table->csv), field[label]);
    tr_csv_labels_free(&labels);
    tr_csv_close(&again.csv);
    return status;
}
