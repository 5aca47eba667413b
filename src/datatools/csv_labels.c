/* The labels of a table: numbers, integers or texts. */
#include "csv_int.h"
#include "trainer/log.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_NAMES 4096
#define ALIKE_MOST 256 /* names that are compared */
#define SLOTS     (4 * MAX_NAMES)
#define FEW       20 /* the number of classes is small even for few rows */
enum { FOLDED_BYTES = 256 };

void tr_csv_labels_begin(csv_labels_t *l, int column, bool regression) {
    *l = (csv_labels_t){.column = column,
                        .regression = regression,
                        .numbers = column >= 0,
                        .is_signed = column >= 0 && !regression,
                        .whole = column >= 0 && !regression};
}

static tr_status_t labels_add_name(csv_labels_t *l, const char *text) {
    uint64_t at = tr_hash_name(text);
    char *copy;
    if (!l->slot) TR_TRY(tr_alloc(SLOTS * sizeof *l->slot, "labels", &l->slot));
    while (l->slot[at % SLOTS] && strcmp(l->names.data[l->slot[at % SLOTS] - 1], text)) at++;
    if (l->slot[at % SLOTS]) {
        l->name_rows.data[l->slot[at % SLOTS] - 1]++;
        return TR_OK;
    }
    TR_TRY(tr_vec_push(&l->name_rows, 1));
    TR_TRY(tr_strdup(text, &copy));
    tr_status_t status = tr_vec_push(&l->names, copy);
    if (status == TR_OK)
        l->slot[at % SLOTS] = (uint16_t)l->names.count;
    else
        tr_free(&copy);
    return status;
}

tr_status_t tr_csv_labels_add(csv_labels_t *l, const tr_csv_table_t *t, const char *text,
                              double *out_value) {
    double value = 0;
    bool number = tr_csv_number(t, text, &value);
    *out_value = value;
    tr_stats_add(&l->stats, 1, &value, 1);
    l->text_first |= l->rows++ == 0 && !number;
    l->texts += !number;
    const bool whole = number && value >= 0 && value < 1e7 && value == floor(value);
    l->numbers &= number;
    l->whole &= whole;
    l->is_signed &= number && fabs(value) < 1e7 && value == floor(value);
    if (whole && value > l->largest) l->largest = value;
    if (number && !whole && l->odd++ == 0) {
        l->odd_value = value;
        l->odd_line = tr_csv_line(t->csv);
    }
    if (!number && !l->text) {
        TR_TRY(tr_strdup(text, &l->text));
        l->text_line = tr_csv_line(t->csv);
    }
    return l->names.count > MAX_NAMES ? TR_OK : labels_add_name(l, text);
}

/* Numbers of which some are missing, infinite or in another notation would each become a class. */
static tr_status_t labels_check_texts(const csv_labels_t *l, const tr_csv_table_t *t) {
    const char *odd = NULL;
    char remedy[TR_CSV_REMEDY_BYTES] = "remove rows without a label", line[32] = "";
    for (size_t i = 0; i <= l->names.count;
         i++) { /* the first text may come after the maximum number of names */
        const char *name = i < l->names.count ? l->names.data[i] : l->text;
        double value;
        if (!name || tr_csv_number(t, name, &value)) continue;
        if (!tr_csv_is_meant_as_number(t, name)) return TR_OK;
        if (!odd || tr_csv_is_missing(odd, true)) odd = name;
    }
    if (!odd || (tr_csv_is_missing(odd, true) && l->names.count < 3))
        return TR_OK; /* one number and "none" may be classes */
    if (!tr_csv_is_missing(odd, true)) tr_csv_remedy(t, odd, remedy, sizeof remedy);
    if (!strcmp(odd, l->text)) snprintf(line, sizeof line, ", line %lld", (long long)l->text_line);
    return TR_FAIL(TR_ERR_DATA, "'%s'%s: its labels (column %d) are numbers, except '%.*s': %s.",
                   t->path, line, l->column + 1, (int)tr_utf8_bytes(odd, 40), odd, remedy);
}

static int labels_by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the names, and counts the rows of each class: 1 and 1.0 are the same one. */
static tr_status_t labels_sort(csv_labels_t *l, const tr_csv_table_t *t) {
    const size_t count = l->names.count;
    const bool has_classes =
        count > 0 && count <= MAX_NAMES && l->column >= 0 && (!l->numbers || l->whole);
    char **before = NULL;
    if (has_classes) {
        l->classes = l->numbers ? (int64_t)l->largest + 1 : (int64_t)count;
        TR_TRY(tr_alloc((size_t)l->classes * sizeof *l->class_rows, "rows of classes",
                        &l->class_rows));
        TR_TRY(tr_alloc(count * sizeof *before, "labels", &before));
        memcpy(before, l->names.data, count * sizeof *before);
    }
    if (count) qsort(l->names.data, count, sizeof *l->names.data, labels_by_name);
    for (size_t i = 0; has_classes && i < count; i++) {
        double value;
        if (!l->numbers)
            value = (double)tr_csv_labels_class(l, t, before[i]);
        else
            tr_csv_number(t, before[i], &value);
        l->class_rows[(int64_t)value] += l->name_rows.data[i];
    }
    tr_free(&before);
    return TR_OK;
}

/* Few whole numbers, some below 0, are classes with the numbers as names: "-1.0" is "-1". */
static tr_status_t labels_name_signed(csv_labels_t *l, const tr_csv_table_t *t) {
    size_t count = 0;
    for (size_t i = 0; i < l->names.count; i++) {
        double value;
        char name[16];
        size_t same = 0;
        tr_csv_number(t, l->names.data[i], &value);
        tr_snprintf(name, sizeof name, "%.0f", value + 0.0);
        tr_free(&l->names.data[i]);
        while (same < count && strcmp(l->names.data[same], name) != 0) same++;
        if (same < count) {
            l->name_rows.data[same] += l->name_rows.data[i];
            continue;
        }
        l->name_rows.data[count] = l->name_rows.data[i];
        TR_TRY(tr_strdup(name, &l->names.data[count]));
        count++;
    }
    l->names.count = count;
    l->numbers = l->whole = false;
    return TR_OK;
}

tr_status_t tr_csv_labels_end(csv_labels_t *l, const tr_csv_table_t *t) {
    TR_TRY(labels_check_texts(l, t));
    const char *parts;
    if (l->text_first && l->texts <= 1 && l->rows >= 3)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s', line %lld: the first label (column %d) is '%.*s', all others are "
                       "numbers. If the first row has the names of the columns: --header yes; else "
                       "correct the label or remove the row.",
                       t->path, (long long)l->text_line, l->column + 1,
                       (int)tr_utf8_bytes(l->text, 40), l->text);
    if (l->text && !l->is_chosen && tr_csv_is_date(l->text, &parts))
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s', line %lld: expected a label in column %d, found the date or time "
            "'%.*s': choose another column with --label, or this one, if these are classes.",
            t->path, (long long)l->text_line, l->column + 1, (int)tr_utf8_bytes(l->text, 40),
            l->text);
    if (l->regression && !l->numbers)
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s', line %lld: --regression expects numbers as labels (column %d), found '%.*s'.",
            t->path, (long long)l->text_line, l->column + 1, (int)tr_utf8_bytes(l->text, 40),
            l->text);
    const double classes = l->largest + 1;
    if (classes > FEW && classes > (double)l->rows / 10) l->whole = false;
    if (!l->numbers && l->names.count > MAX_NAMES)
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s': its labels (column %d) are more than %d different texts, such as '%.*s' in line "
            "%lld; choose another column with --label.",
            t->path, l->column + 1, MAX_NAMES, (int)tr_utf8_bytes(l->text, 40), l->text,
            (long long)l->text_line);
    l->is_signed = l->is_signed && l->numbers && l->odd > 0 && l->names.count <= FEW &&
                   !tr_nearly_labels(l->rows - l->odd, l->odd, (int64_t)l->largest + 1);
    if (l->is_signed) TR_TRY(labels_name_signed(l, t));
    return labels_sort(l, t);
}

/* The simple case folding of Latin-1, Greek and Cyrillic letters (CaseFolding.txt of Unicode). */
static uint32_t label_fold_letter(uint32_t code) {
    if (code < 0x80) return (uint32_t)tolower((int)code);
    if ((code >= 0xC0 && code <= 0xDE && code != 0xD7) || (code >= 0x391 && code <= 0x3AB) ||
        (code >= 0x410 && code <= 0x42F))
        return code + 32;
    return code >= 0x400 && code <= 0x40F ? code + 80 : code;
}

/* The same in lower case, without blanks, of which some do not break lines, at the ends. false: it is
 * too long to compare, or no UTF-8. */
static bool label_fold(const char *text, char out[FOLDED_BYTES]) {
    size_t length = 0, kept = 0;
    uint32_t code;
    for (int bytes; *text; text += bytes) {
        bytes = tr_utf8_decode(text, &code);
        const bool is_blank = code == ' ' || code == '\t' || code == 0xA0 || code == 0x202F;
        if (bytes == 0 || length + 5 > FOLDED_BYTES) return false;
        if (is_blank && length == 0) continue;
        length += (size_t)tr_utf8_encode(label_fold_letter(code), out + length);
        if (!is_blank) kept = length;
    }
    out[kept] = '\0';
    return true;
}

/* Names the first pairs. */
static void labels_warn_alike(const csv_labels_t *l, const tr_csv_table_t *t) {
    enum { SAID = 3 };
    tr_str_t pairs = {0};
    int count = 0;
    for (size_t i = 0; i < l->names.count && i < ALIKE_MOST && !l->numbers; i++) {
        char one[FOLDED_BYTES], other[FOLDED_BYTES];
        if (!label_fold(l->names.data[i], one)) continue;
        for (size_t k = 0; k < i; k++) {
            if (!label_fold(l->names.data[k], other) || strcmp(one, other) != 0) continue;
            if (count++ >= SAID) continue;
            tr_str_printf(&pairs, "%s'%.40s' (%lld rows) and '%.40s' (%lld rows)",
                          count > 1 ? ", " : "", l->names.data[k], (long long)l->class_rows[k],
                          l->names.data[i], (long long)l->class_rows[i]);
        }
    }
    if (pairs.text)
        TR_WARN("'%s': %d pair%s of labels differ in blanks or capitals alone, and are two classes "
                "each: %s%s. If they are one, correct the table",
                t->path, count, count == 1 ? "" : "s", pairs.text, count > SAID ? ", ..." : "");
    tr_str_free(&pairs);
}

void tr_csv_labels_note(const csv_labels_t *l, const tr_csv_table_t *t) {
    labels_warn_alike(l, t);
    static const char *const doubtful[] = {"none", "missing", "-", ".", "unknown"};
    for (size_t i = 0; i < l->names.count && !l->numbers; i++)
        for (size_t k = 0; k < TR_COUNT(doubtful); k++)
            if (strcasecmp(l->names.data[i], doubtful[k]) == 0) {
                TR_INFO("'%s': '%s' is a class of %lld row%s; if it stands for missing labels, "
                        "remove these rows",
                        t->path, l->names.data[i], (long long)l->class_rows[i],
                        l->class_rows[i] == 1 ? "" : "s");
                return;
            }
}

int64_t tr_csv_labels_class(const csv_labels_t *l, const tr_csv_table_t *t, const char *text) {
    char name[16];
    double value;
    if (l->is_signed && tr_csv_number(t, text, &value)) {
        tr_snprintf(name, sizeof name, "%.0f", value + 0.0);
        text = name;
    }
    char *const *found =
        bsearch(&text, l->names.data, l->names.count, sizeof *l->names.data, labels_by_name);
    return found ? found - l->names.data : -1;
}

void tr_csv_labels_free(csv_labels_t *l) {
    for (size_t i = 0; i < l->names.count; i++) tr_free(&l->names.data[i]);
    tr_vec_free(&l->names);
    tr_vec_free(&l->name_rows);
    tr_free(&l->class_rows);
    tr_free(&l->slot);
    tr_free(&l->text);
}
