/* Determines the kind of y. It is read once, when the data set is opened, because labels are small.
 * One value per sample is a class index if all values are integers >= 0. Several values are a
 * one-hot vector if each row has a single 1 among zeros. Anything else is a regression target. */
#include "hdf5_source.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PIECE_BYTES   (1 << 20)
#define MISSING_BYTES (256 << 20)
#define MAX_CLASSES   10000000

typedef struct {
    int32_t *label;
    int64_t values, classes_given, smallest, largest, largest_row;
    const h5_part_t *largest_part;
    bool must,
        plain_numbers; /* must: data.classes requires classes; plain_numbers: y holds no classes */
    char *raw;
    double *row;
    const tr_label_values_t *mapped;
    h5_label_notes_t *notes;
    tr_dataset_info_t *info;
} scan_t;

/* The class of a sample's y; -1: none. */
static int64_t labels_class_of(const scan_t *s, const double *value) {
    const int64_t limit = s->classes_given > 0 ? s->classes_given : MAX_CLASSES;
    int64_t ones = 0, zeros = 0, at = 0;
    if (s->values == 1) return tr_label_values_class(s->mapped, *value, limit);
    for (int64_t i = 0; i < s->values; i++) {
        if (value[i] == 1) ones++, at = i;
        zeros += value[i] == 0;
    }
    return ones == 1 && zeros == s->values - 1 && at < limit ? at : -1;
}

static tr_status_t labels_fail_no_class(const scan_t *s, const h5_part_t *part, int64_t row,
                                        double value) {
    char range[96] = "from 0 on";
    if (s->values > 1)
        return TR_FAIL(
            TR_ERR_DATA,
            "%s: /%s: sample %lld has %lld values, which are not a one-hot vector of a class from "
            "0 to %lld, but data.classes = %lld requires classes.",
            part->y.file->path, part->names->y, (long long)row, (long long)s->values,
            (long long)s->classes_given - 1, (long long)s->classes_given);
    if (s->mapped->count > 0)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: /%s: the label of sample %lld is %.9g, which is none of "
                       "data.label_values: add it, or correct the label.",
                       part->y.file->path, part->names->y, (long long)row, value);
    if (s->classes_given > 0)
        snprintf(range, sizeof range, "from 0 to %lld (data.classes = %lld)",
                 (long long)s->classes_given - 1, (long long)s->classes_given);
    const bool counts_from_1 = s->classes_given > 0 && value == (double)s->classes_given;
    return TR_FAIL(
        TR_ERR_DATA, "%s: /%s: the label of sample %lld is %.9g; expected a class %s. If %s",
        part->y.file->path, part->names->y, (long long)row, value, range,
        counts_from_1 ? "the labels count from 1, subtract 1 when you create the file, "
                        "or list them in data.label_values."
                      : "these are regression targets, set data.classes = 0; if the values "
                        "stand for classes, list them in data.label_values.");
}

static tr_status_t scan_row(scan_t *s, const h5_part_t *part, int64_t row, const double *value) {
    const bool may_be_numbers = s->values > 1 || tr_dtype_is_float(part->y.dtype);
    const int64_t found = labels_class_of(s, value);
    s->plain_numbers = found < 0 && !s->must && may_be_numbers;
    if (s->plain_numbers) return TR_OK;
    if (found < 0) return labels_fail_no_class(s, part, row, *value);
    s->label[part->first + row] = (int32_t)found;
    if (s->values > 1) return TR_OK;
    s->smallest = min64(s->smallest, found);
    if (found <= s->largest) return TR_OK;
    s->largest = found;
    s->largest_row = row;
    s->largest_part = part;
    return TR_OK;
}

static void labels_say_row(const scan_t *s, const double *value, char text[64]) {
    int64_t ones = 0;
    for (int64_t i = 0; i < s->values; i++) {
        ones += value[i] == 1;
        if (s->values > 1 && (value[i] == 0 || value[i] == 1)) continue;
        tr_snprintf(text, 64, s->values > 1 ? "has the value %g" : "is %g", value[i]);
        return;
    }
    snprintf(text, 64, ones == 0 ? "has no 1" : "has %lld times 1", (long long)ones);
}

/* Row `at` of the `count` rows from row `first` is the first that is not a label. If nearly all
 * others are labels, it may be an error in the data. */
static void labels_doubt(scan_t *s, const h5_part_t *part, int64_t first, int64_t at,
                         int64_t count) {
    int64_t labels = part->first + first + at, classes = s->largest + 1;
    char found[64];
    for (int64_t i = at + 1; i < count; i++) {
        const int64_t class = labels_class_of(s, s->row + i * s->values);
        labels += class >= 0;
        if (s->values == 1) classes = max64(classes, class + 1);
    }
    const int64_t others = part->first + first + count - labels;
    if (!tr_nearly_labels(labels, others, classes)) return;
    if (s->values > 1) classes = s->values;
    labels_say_row(s, s->row + at * s->values, found);
    const char *path = part->y.file->path, *name = part->names->y;
    snprintf(
        s->notes->doubt, sizeof s->notes->doubt,
        "%.*s:/%.*s: %lld of the first %lld samples are labels (%s), but sample %lld %s: all "
        "are read as regression targets. If they are classes, correct this sample "
        "(data.classes = %lld rejects such samples); if they are numbers, set data.classes = 0",
        (int)tr_utf8_bytes(path, 70), path, (int)tr_utf8_bytes(name, 50), name, (long long)labels,
        (long long)(labels + others), s->values > 1 ? "one-hot vectors" : "integers from 0",
        (long long)(first + at), found, (long long)classes);
    s->info->label_doubt = s->notes->doubt;
}

static tr_status_t scan_part(scan_t *s, const h5_part_t *part, h5_scratch_t *scratch) {
    const h5_array_t *y = &part->y;
    int64_t piece = max64(1, PIECE_BYTES / y->row_bytes);
    for (int64_t first = 0; first < y->rows && !s->plain_numbers; first += piece) {
        int64_t count = min64(piece, y->rows - first);
        TR_TRY(tr_h5_read_rows(y, scratch, first, count, s->raw));
        tr_convert(y->dtype, s->raw, count * y->row_elems, TR_F64, s->row);
        for (int64_t i = 0; i < count && !s->plain_numbers; i++) {
            TR_TRY(scan_row(s, part, first + i, s->row + i * s->values));
            if (s->plain_numbers) labels_doubt(s, part, first, i, count);
        }
    }
    return TR_OK;
}

/* Nothing can be learned from a missing label or target, and a loss has no term for it. Reads at
 * most MISSING_BYTES of each part; a missing value beyond ends the run when it is read. */
static tr_status_t labels_refuse_missing(const h5_part_t *part, h5_scratch_t *scratch) {
    const h5_array_t *y = &part->y;
    const int64_t rows = min64(y->rows, max64(1, MISSING_BYTES / y->row_bytes)),
                  piece = max64(1, PIECE_BYTES / y->row_bytes);
    int64_t missing = 0, row = -1;
    char *raw = NULL;
    double *values = NULL;
    tr_status_t status = TR_OK;
    if (!part->y_packing.has_holes) return TR_OK;
    TR_TRY_GOTO(tr_alloc((size_t)(piece * y->row_bytes), "labels", &raw), done);
    TR_TRY_GOTO(tr_alloc((size_t)(piece * y->row_elems) * sizeof *values, "labels", &values), done);
    for (int64_t first = 0; first < rows; first += piece) {
        const int64_t count = min64(piece, rows - first);
        TR_TRY_GOTO(tr_h5_read_rows(y, scratch, first, count, raw), done);
        tr_convert(y->dtype, raw, count * y->row_elems, TR_F64, values);
        for (int64_t i = 0; i < count * y->row_elems; i++) {
            if (!tr_h5_is_missing(&part->y_packing, y->dtype, values[i])) continue;
            if (missing++ == 0) row = first + i / y->row_elems;
        }
    }
    if (missing > 0)
        status = TR_FAIL(
            TR_ERR_DATA,
            "%s: /%s: %lld of %lld values are declared missing (_FillValue, missing_value or "
            "valid_range), the first of them in sample %lld: labels and targets must be known. "
            "Remove these samples of x and y when you create the file, or give missing labels a "
            "class of their own; if these values are valid, delete the attribute.",
            y->file->path, part->names->y, (long long)missing, (long long)(rows * y->row_elems),
            (long long)row);
done:
    tr_free(&raw);
    tr_free(&values);
    return status;
}

static tr_status_t labels_scan(scan_t *s, h5_parts_t *parts, h5_scratch_t *scratch) {
    const int64_t samples = tr_h5_parts_samples(parts);
    size_t raw = 0, rows = 0;
    for (int p = 0; p < parts->count; p++) {
        int64_t piece = max64(1, PIECE_BYTES / parts->data[p].y.row_bytes);
        raw = (size_t)max64((int64_t)raw, piece * parts->data[p].y.row_bytes);
        rows = (size_t)max64((int64_t)rows, piece * s->values);
    }
    TR_TRY(tr_alloc((size_t)samples * sizeof *s->label, "labels", &s->label));
    TR_TRY(tr_alloc(raw, "labels", &s->raw));
    TR_TRY(tr_alloc(rows * sizeof *s->row, "labels", &s->row));
    for (int64_t first = 0; first < samples && !s->plain_numbers;) {
        h5_part_t *part;
        TR_TRY(tr_h5_part_at(parts, first, &part));
        if (first >= parts->count && parts->late_count > 0)
            TR_TRY(labels_refuse_missing(part, scratch));
        TR_TRY(scan_part(s, part, scratch));
        first += part->x.rows;
    }
    return TR_OK;
}

/* For an error about the number of classes, which one wrong label, or labels that start at 1, can
 * cause. */
static void labels_note(const scan_t *s, tr_dataset_info_t *info) {
    if (s->mapped->count > 0 || !s->largest_part || s->largest != info->classes - 1) return;
    const char *path = s->largest_part->y.file->path, *name = s->largest_part->names->y;
    if (s->smallest == 1)
        snprintf(
            s->notes->note, sizeof s->notes->note,
            "the labels of %.*s:/%.*s run from 1 to %lld: subtract 1 when you create the file, "
            "or set data.label_values to the numbers from 1 to %lld, with commas between them",
            (int)tr_utf8_bytes(path, 70), path, (int)tr_utf8_bytes(name, 50), name,
            (long long)s->largest, (long long)s->largest);
    else
        snprintf(s->notes->note, sizeof s->notes->note,
                 "the largest label, %lld, belongs to sample %lld of %.*s:/%.*s: correct it if it "
                 "is wrong",
                 (long long)s->largest, (long long)s->largest_row, (int)tr_utf8_bytes(path, 70),
                 path, (int)tr_utf8_bytes(name, 50), name);
    info->label_note = s->notes->note;
    info->counts_from_1 = s->smallest == 1;
}

/* Counts the labels: what data.label_values makes of them; without it, whether they look like class
 * numbers. */
static tr_status_t labels_count(const scan_t *s, int64_t samples) {
    enum { MANY = 1 << 20, FEW = 20 };
    const h5_part_t *part = s->largest_part;
    const int64_t classes = s->info->classes;
    h5_gaps_t gaps;
    if (classes > MANY) return TR_OK;
    TR_TRY(tr_alloc((size_t)(1 + classes) * sizeof(int64_t), "counts", &s->notes->count));
    int64_t *const count = s->notes->count;
    int64_t changes = 0;
    for (int64_t i = 0; i < samples; i++) {
        count[1 + s->label[i]]++;
        changes += i > 0 && s->label[i] != s->label[i - 1];
    }
    /* In random order n - sum count^2 / n of n - 1 pairs differ. */
    double expected = (double)samples;
    for (int64_t c = 0; c < classes; c++)
        expected -= (double)count[1 + c] * ((double)count[1 + c] / (double)samples);
    s->info->is_sorted = samples > 10 * classes && (double)changes < expected / 4;
    s->info->label_count = count + 1;
    if (!part) return TR_OK; /* one-hot */
    if (s->mapped->count > 0) {
        tr_h5_label_shares(s->mapped, count, classes, s->notes, s->info);
    } else if (!s->must && tr_h5_labels_have_gaps(count, s->largest, &gaps) && gaps.is_mapping &&
               gaps.different <= FEW) {
        snprintf(s->notes->doubt, sizeof s->notes->doubt,
                 "%.*s:/%.*s has labels of %lld different values, %s, which are read as %lld "
                 "classes: data.label_values = %s makes them the classes 0 to %lld; if they are "
                 "numbers to predict, set data.classes = 0",
                 (int)tr_utf8_bytes(part->y.file->path, 70), part->y.file->path,
                 (int)tr_utf8_bytes(part->names->y, 50), part->names->y, (long long)gaps.different,
                 gaps.list, (long long)classes, gaps.list, (long long)gaps.different - 1);
        s->info->label_doubt = s->notes->doubt;
    }
    return TR_OK;
}

/* Labels of samples are single values. */
static tr_status_t labels_refuse_values(const scan_t *s, const h5_part_t *part) {
    if (s->mapped->count == 0) return TR_OK;
    if (s->values == 1 && s->classes_given != 0) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "data.label_values would have no effect: it is for labels, and a sample of %s: "
                   "/%s has %s. Remove it",
                   part->y.file->path, part->names->y,
                   s->values > 1 ? "several values" : "a number to predict (data.classes = 0)");
}

/* Packed values are numbers. */
static tr_status_t labels_refuse_packed(const h5_part_t *part, int64_t classes) {
    if (classes <= 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "%s: /%s has the attributes scale_factor = %g and add_offset = %g, which are "
                   "for numbers, but the data have %lld classes: delete the attributes, or set "
                   "data.classes = 0 for regression targets.",
                   part->y.file->path, part->names->y, part->y_packing.scale,
                   part->y_packing.offset, (long long)classes);
}

tr_status_t tr_h5_labels(h5_parts_t *parts, int64_t classes, const tr_label_values_t *values,
                         h5_scratch_t *scratch, int32_t **out, h5_label_notes_t *notes,
                         tr_dataset_info_t *info) {
    scan_t s = {.values = parts->data[0].y.row_elems,
                .classes_given = classes,
                .must = classes > 0,
                .smallest = INT64_MAX,
                .largest = -1,
                .mapped = values,
                .notes = notes,
                .info = info};
    *out = NULL;
    info->classes = 0;
    for (int p = 0; p < parts->count; p++) TR_TRY(labels_refuse_missing(&parts->data[p], scratch));
    TR_TRY(labels_refuse_values(&s, parts->data));
    if (parts->data[0].y_packing.scales) return labels_refuse_packed(parts->data, classes);
    if (classes == 0) return TR_OK;
    if (s.values > 1 && parts->data[0].y.ndim != 2 && classes < 0) return TR_OK;
    tr_status_t status = labels_scan(&s, parts, scratch);
    if (status == TR_OK && !s.plain_numbers) {
        info->classes = classes > 0 ? classes : s.values > 1 ? s.values : s.largest + 1;
        info->is_one_hot = s.values > 1;
        labels_note(&s, info);
        status = labels_count(&s, tr_h5_parts_samples(parts));
        *out = s.label;
        s.label = NULL;
    }
    tr_free(&s.label);
    tr_free(&s.raw);
    tr_free(&s.row);
    return status;
}
