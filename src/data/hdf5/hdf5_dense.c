/* A y that has a label or values for each position of x. Labels are not read when the file is
 * opened, because they can be as large as the inputs: some of them tell the number of classes, and
 * each is checked when it is read. */
#include "hdf5_source.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SCAN_BYTES  (64 << 20) /* of labels that are read to find the classes */
#define SCAN_PIECES 64
#define MAX_CLASSES (1 << 20)

/* -- shapes ------------------------------------------------------------------------------------ */

static bool dense_same(const int64_t *a, const int64_t *b, int count) {
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

/* Whether y has the positions of x. Sets out->channels and channels_first. */
static bool dense_fits(const h5_array_t *y, const tr_field_t *x, bool x_channels_first,
                       h5_dense_t *out) {
    const int spatial = x->shape.ndim - 1, ndim = y->ndim - 1;
    const int64_t *dim = y->dim + 1;
    if (spatial < 1 || out->points < 2) return false;
    if (ndim == spatial) return dense_same(dim, x->shape.dim, spatial);
    if (ndim != spatial + 1) return false;
    const bool last = dense_same(dim, x->shape.dim, spatial),
               first = dense_same(dim + 1, x->shape.dim, spatial);
    out->channels_first = first && (!last || x_channels_first);
    out->channels = out->channels_first ? dim[0] : dim[spatial];
    return first || last;
}

static tr_status_t dense_read_ignored(const char *text, const h5_parts_t *parts, h5_dense_t *d) {
    bool can_occur = false;
    d->ignores = text && strcmp(text, "none") != 0;
    if (!d->ignores) return TR_OK;
    if (!d->is_on)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.ignore_label = %s would have no effect: it is for labels of each "
                       "position, and y has other ones (data.targets). Remove it",
                       text);
    if (!tr_parse_int(text, &d->ignored))
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.ignore_label: expected a whole number, or none, found '%s'", text);
    for (int p = 0; p < parts->count; p++) {
        double held = (double)d->ignored;
        tr_h5_fill_round(parts->data[p].y.dtype, 1, &held);
        can_occur = can_occur || parts->data[p].y_packing.scales || held == (double)d->ignored;
    }
    for (int i = 0; i < d->values->count; i++)
        if (d->values->value[i] == (double)d->ignored)
            return TR_FAIL(
                TR_ERR_CONFIG,
                "data.ignore_label = %s is one of data.label_values, too: a position has "
                "a class or is ignored. Remove it from one of them",
                text);
    if (can_occur) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "data.ignore_label = %s cannot occur in %s: /%s, which has the type %s. Correct "
                   "or remove it",
                   text, parts->data->y.file->path, parts->data->names->y,
                   tr_dtype_name(parts->data->y.dtype));
}

/* The mask has one value for each position of x. */
static tr_status_t dense_check_mask(const h5_part_t *part, const tr_field_t *x, bool is_on) {
    const h5_array_t *mask = &part->mask;
    const int spatial = x->shape.ndim - 1;
    char of_x[96], of_mask[96];
    tr_shape_t found = {.ndim = mask->ndim - 1};
    if (!part->has_mask) return TR_OK;
    if (!is_on)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.mask = %s would have no effect: it is for labels or targets of each "
                       "position, and y has other ones (data.targets). Remove it",
                       part->names->mask);
    if (found.ndim == spatial && dense_same(mask->dim + 1, x->shape.dim, spatial)) return TR_OK;
    memcpy(found.dim, mask->dim + 1, (size_t)found.ndim * sizeof *found.dim);
    return TR_FAIL(
        TR_ERR_DATA,
        "%s: a sample of /%s (data.mask) has shape %s, and one of /%s has shape %s: "
        "the mask must have the dimensions of x without its channels. Correct the file or "
        "data.mask.",
        mask->file->path, mask->name, tr_shape_format(&found, of_mask), part->names->x,
        tr_shape_format(&x->shape, of_x));
}

tr_status_t tr_h5_dense_find(const h5_parts_t *parts, const tr_data_settings_t *settings,
                             const tr_field_t *x, bool x_channels_first,
                             const tr_label_values_t *values, h5_dense_t *out) {
    const h5_part_t *part = parts->data;
    const h5_array_t *y = &part->y;
    const bool must = settings->targets == TR_TARGETS_POSITION,
               ignores = settings->ignore_label && strcmp(settings->ignore_label, "none") != 0;
    char of_x[96], of_y[96];
    *out = (h5_dense_t){.channels = 1, .points = 1, .values = values};
    if (!part->has_y) return TR_OK;
    bool fits = false;
    if (settings->targets != TR_TARGETS_SAMPLE) {
        for (int d = 0; d < x->shape.ndim - 1; d++) out->points *= x->shape.dim[d];
        fits = dense_fits(y, x, x_channels_first, out);
        out->is_on = fits && (y->ndim > 2 || must);
    }
    /* keys that are for positions say that a y of several dimensions is meant to have them */
    const bool is_meant = must || (settings->targets == TR_TARGETS_AUTO && y->ndim > 2 &&
                                   (ignores || part->has_mask));
    if (fits || !is_meant) {
        TR_TRY(dense_check_mask(part, x, out->is_on));
        return dense_read_ignored(settings->ignore_label, parts, out);
    }
    tr_shape_t found = {.ndim = y->ndim - 1};
    memcpy(found.dim, y->dim + 1, (size_t)found.ndim * sizeof *found.dim);
    return TR_FAIL(TR_ERR_DATA,
                   "%s: a sample of /%s has shape %s, and one of /%s has shape %s: with %s, y must "
                   "have the dimensions of x without its channels, or these and one for its own "
                   "channels. Correct the file, data.layout or %s.",
                   y->file->path, part->names->x, tr_shape_format(&x->shape, of_x), part->names->y,
                   tr_shape_format(&found, of_y),
                   must      ? "data.targets = position"
                   : ignores ? "data.ignore_label"
                             : "data.mask",
                   must      ? "data.targets"
                   : ignores ? "data.ignore_label"
                             : "data.mask");
}

/* -- labels ------------------------------------------------------------------------------------ */

/* The label of a position, whose channels are `step` values apart; -1: none. *out_bad: the value is
 * no label. */
static int64_t dense_label(const h5_dense_t *d, const h5_part_t *part, const double *value,
                           int64_t step, bool *out_bad) {
    const tr_dtype_t stored = part->y.dtype;
    int64_t ones = 0, zeros = 0, at = 0;
    *out_bad = false;
    if (part->y_packing.has_holes && tr_h5_is_missing(&part->y_packing, stored, *value)) return -1;
    if (d->channels == 1) {
        if (d->ignores && *value == (double)d->ignored) return -1;
        at = tr_label_values_class(d->values, *value, MAX_CLASSES);
        *out_bad = at < 0;
        return at;
    }
    for (int64_t c = 0; c < d->channels; c++) {
        if (value[c * step] == 1) ones++, at = c;
        zeros += value[c * step] == 0;
    }
    *out_bad = ones != 1 || zeros != d->channels - 1;
    return at;
}

static tr_status_t dense_fail_label(const h5_dense_t *d, const h5_part_t *part, int64_t row,
                                    int64_t point, const double *values) {
    const double value = values[point * (d->channels_first ? 1 : d->channels)];
    char range[32] = "";
    if (d->channels > 1)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: /%s: sample %lld, position %lld: expected one 1 among zeros in %lld "
                       "channels. If these are numbers to predict, set data.classes = 0.",
                       part->y.file->path, part->names->y, (long long)row, (long long)point,
                       (long long)d->channels);
    if (d->values->count > 0)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: /%s: sample %lld has the label %.9g at position %lld, which is none of "
                       "data.label_values: add it, or set data.ignore_label = %.9g if it marks "
                       "positions without a label.",
                       part->y.file->path, part->names->y, (long long)row, value, (long long)point,
                       value);
    if (d->classes > 0) snprintf(range, sizeof range, " to %lld", (long long)d->classes - 1);
    return TR_FAIL(
        TR_ERR_DATA,
        "%s: /%s: sample %lld has the label %.9g at position %lld; expected a class from "
        "0%s. Set data.classes to the number of classes, data.ignore_label if it marks "
        "positions without a label, data.label_values to the values that stand for "
        "classes, or data.classes = 0 if these are numbers to predict.",
        part->y.file->path, part->names->y, (long long)row, value, (long long)point, range);
}

/* Whether a position of a row of the mask counts; without a mask (NULL) all do. */
static bool dense_counts(const h5_part_t *part, const char *mask, int64_t point) {
    static const char zero[8];
    const size_t bytes = mask ? tr_dtype_bytes(part->mask.dtype) : 0;
    return !mask || memcmp(mask + (size_t)point * bytes, zero, bytes) != 0;
}

/* Takes the labels of a sample. mask: as for dense_counts. Returns the first position whose value is
 * no label; -1: there is none. */
static int64_t dense_take_row(const h5_dense_t *d, const h5_part_t *part, const double *value,
                              const char *mask, int32_t *out) {
    const int64_t step = d->channels_first ? d->points : 1,
                  next = d->channels_first ? 1 : d->channels;
    for (int64_t i = 0; i < d->points; i++) {
        bool bad = false;
        const int64_t label =
            dense_counts(part, mask, i) ? dense_label(d, part, value + i * next, step, &bad) : -1;
        if (bad || (d->classes > 0 && label >= d->classes)) return i;
        out[i] = (int32_t)label;
    }
    return -1;
}

/* Of y with channels, each class has one, and no value stands for a class. */
static tr_status_t dense_refuse_keys(const h5_dense_t *d, const h5_part_t *part) {
    if (d->channels == 1 || (!d->ignores && d->values->count == 0)) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "%s would have no effect: %s: /%s has %lld channels, so its labels are one-hot. "
                   "Remove it, and use data.mask for positions without a label; if these are "
                   "numbers to predict, set data.classes = 0",
                   d->ignores ? "data.ignore_label" : "data.label_values", part->y.file->path,
                   part->names->y, (long long)d->channels);
}

/* Labels such as 0 and 255 are grey values. */
static tr_status_t dense_refuse_gaps(const h5_part_t *part, const int64_t *count, int64_t largest) {
    h5_gaps_t gaps;
    char mapping[384] = "", ignored[128] = "", levels[16];
    if (largest < 256 && tr_labels_are_lossy(count + 1, levels))
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: /%s has labels " TR_LOSSY_TEXT
                       ". Set data.classes = %lld if they are class numbers",
                       part->y.file->path, part->names->y, levels, levels, (long long)largest + 1);
    if (!tr_h5_labels_have_gaps(count, largest, &gaps)) return TR_OK;
    if (gaps.is_mapping)
        snprintf(mapping, sizeof mapping,
                 "data.label_values = %s to make them the classes 0 to %lld, ", gaps.list,
                 (long long)gaps.different - 1);
    if (gaps.different > 2)
        snprintf(ignored, sizeof ignored,
                 "data.ignore_label = %lld if this one marks positions without a label, ",
                 (long long)largest);
    return TR_FAIL(TR_ERR_CONFIG,
                   "%s: /%s has labels of %lld different values, %s, which would be %lld classes. "
                   "Set %s%sor data.classes = %lld if they are class numbers",
                   part->y.file->path, part->names->y, (long long)gaps.different, gaps.list,
                   (long long)largest + 1, mapping, ignored, (long long)largest + 1);
}

/* What the labels that were read say of all: `count` as for tr_h5_label_shares. */
static tr_status_t dense_conclude(h5_dense_t *d, const h5_part_t *part, const int64_t *count,
                                  int64_t largest, int64_t largest_row, h5_label_notes_t *notes,
                                  tr_dataset_info_t *info) {
    const bool is_found = d->classes == 0 && d->channels == 1;
    if (largest < 0 && d->is_training && count[0] > 0)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: /%s: no position that was read has a class: data.ignore_label or "
                       "data.mask leaves all of them out. A data.mask is 0 where positions do not "
                       "count. Correct the keys or the file",
                       part->y.file->path, part->names->y);
    if (is_found && d->is_training) TR_TRY(dense_refuse_gaps(part, count, largest));
    if (d->classes == 0) d->classes = d->channels > 1 ? d->channels : max64(largest, 0) + 1;
    info->classes = d->classes;
    info->is_one_hot = d->channels > 1;
    tr_h5_label_shares(d->values, count, min64(d->classes, MAX_CLASSES), notes, info);
    if (d->classes <= MAX_CLASSES) {
        const size_t bytes = (size_t)(1 + d->classes) * sizeof *count;
        TR_TRY(tr_alloc(bytes, "counts", &notes->count));
        memcpy(notes->count, count, bytes);
        info->label_count = notes->count + 1;
    }
    info->counts_from_1 = is_found && largest > 0 && count[1] == 0 && count[2] > 0;
    if (info->counts_from_1)
        snprintf(notes->note, sizeof notes->note,
                 "the labels of %.*s run from 1 to %lld: subtract 1 when you create the file, or "
                 "set data.label_values to the numbers from 1 to %lld, with commas between them",
                 (int)tr_utf8_bytes(part->y.file->path, 140), part->y.file->path,
                 (long long)largest, (long long)largest);
    else
        snprintf(notes->note, sizeof notes->note,
                 "the largest label, %lld, occurs in sample %lld: set data.ignore_label to it if "
                 "it marks positions without a label",
                 (long long)largest, (long long)largest_row);
    if (is_found) info->label_note = notes->note;
    return TR_OK;
}

/* Whether three bytes of each position, of which there are `points`, have few different values, as the
 * colours of a drawn mask. */
static bool dense_are_few_colours(const double *value, int64_t points) {
    enum { FEW = 32, LEAST = 8 /* positions for each */ };
    double colour[FEW][3];
    int different = 0;
    for (int64_t i = 0; i < points; i++, value += 3) {
        int k = 0;
        while (k < different && memcmp(colour[k], value, sizeof colour[k]) != 0) k++;
        if (k < different) continue;
        if (different == FEW) return false;
        memcpy(colour[different++], value, sizeof colour[0]);
    }
    return points >= LEAST * different;
}

tr_status_t tr_h5_dense_scan(h5_dense_t *d, h5_parts_t *parts, int64_t classes,
                             h5_scratch_t *scratch, h5_label_notes_t *notes,
                             tr_dataset_info_t *info) {
    const h5_array_t *y = &parts->data[0].y;
    const bool are_whole = !tr_dtype_is_float(y->dtype) && !parts->data->y_packing.scales;
    const int64_t rows = tr_samples_within(info, y->row_bytes, SCAN_BYTES),
                  pieces = rows == info->samples ? rows : min64(rows, SCAN_PIECES),
                  each = rows / pieces;
    int64_t largest = -1, largest_row = 0, *count = NULL;
    int32_t *label = NULL;
    char *raw = NULL, *mask = NULL;
    double *value = NULL;
    tr_status_t status = TR_OK;
    info->classes = 0;
    d->classes = max64(classes, 0);
    if (classes == 0 || (classes < 0 && !are_whole)) return TR_OK;
    TR_TRY(dense_refuse_keys(d, parts->data));
    TR_TRY_GOTO(tr_alloc((size_t)y->row_elems * sizeof(int64_t), "labels", &raw), done);
    TR_TRY_GOTO(tr_alloc((size_t)y->row_elems * sizeof *value, "labels", &value), done);
    TR_TRY_GOTO(tr_alloc((size_t)d->points * sizeof *label, "labels", &label), done);
    TR_TRY_GOTO(
        tr_alloc((size_t)(1 + max64(MAX_CLASSES, d->channels)) * sizeof *count, "counts", &count),
        done);
    if (parts->data->has_mask)
        TR_TRY_GOTO(tr_alloc((size_t)d->points * sizeof(int64_t), "a mask", &mask), done);
    for (int64_t i = 0; i < pieces * each; i++) {
        const int64_t row = info->samples * (i / each) / pieces + i % each, before = largest;
        h5_part_t *part;
        TR_TRY_GOTO(tr_h5_part_at(parts, row, &part), done);
        TR_TRY_GOTO(tr_h5_read_rows(&part->y, scratch, row - part->first, 1, raw), done);
        tr_convert(part->y.dtype, raw, y->row_elems, TR_F64, value);
        if (mask)
            TR_TRY_GOTO(tr_h5_read_rows(&part->mask, scratch, row - part->first, 1, mask), done);
        const int64_t bad = dense_take_row(d, part, value, mask, label);
        d->are_labels = bad < 0;
        if (!d->are_labels && (classes > 0 || d->channels == 1))
            status = dense_fail_label(d, part, row - part->first, bad, value);
        if (status == TR_OK && !d->are_labels && d->channels == 3 && !d->channels_first &&
            y->dtype == TR_U8 && dense_are_few_colours(value, d->points)) {
            snprintf(notes->doubt, sizeof notes->doubt,
                     "%.*s: /%.*s has few different colours, and is read as three numbers to "
                     "predict. If the colours are classes, store a class number for each position; "
                     "if they are numbers, set data.classes = 0",
                     (int)tr_utf8_bytes(part->y.file->path, 140), part->y.file->path,
                     (int)tr_utf8_bytes(part->names->y, 100), part->names->y);
            info->label_doubt = notes->doubt;
        }
        if (!d->are_labels) goto done;
        for (int64_t k = 0; k < d->points; k++) {
            count[1 + label[k]]++;
            largest = max64(largest, label[k]);
        }
        if (largest > before) largest_row = row;
    }
    status = dense_conclude(d, parts->data, count, largest, largest_row, notes, info);
    /* a class that was not met may occur in the rest */
    if (pieces * each < info->samples) info->label_count = NULL;
done:
    tr_free(&raw);
    tr_free(&mask);
    tr_free(&value);
    tr_free(&label);
    tr_free(&count);
    return status;
}

/* -- reading ----------------------------------------------------------------------------------- */

/* The first value that is infinite; NaN marks values without a target. */
static int64_t dense_find_infinite(tr_dtype_t as, const char *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (as == TR_F64 ? isinf(((const double *)(const void *)values)[i])
                         : isinf(((const float *)(const void *)values)[i]))
            return i;
    return -1;
}

/* Puts the numbers of a row: those that the mask (as for dense_counts) or data.ignore_label leaves out
 * become NaN, and those of data.label_values the numbers of their classes. */
static tr_status_t dense_put_row(const h5_dense_t *d, const h5_part_t *part, int64_t row,
                                 const double *stored, const char *mask, tr_dtype_t as, char *out) {
    for (int64_t i = 0; i < d->points * d->channels; i++) {
        const int64_t point = i / d->channels, channel = i % d->channels;
        double value = stored[d->channels_first ? channel * d->points + point : i];
        if (part->y_packing.scales) value = (double)(float)value; /* 700 * 0.01 is 7 */
        if (!dense_counts(part, mask, point) || (d->ignores && value == (double)d->ignored)) {
            value = NAN;
        } else if (d->values->count > 0 && !isnan(value)) {
            const int64_t class = tr_label_values_class(d->values, value, MAX_CLASSES);
            if (class < 0)
                return TR_FAIL(TR_ERR_DATA,
                               "%s: /%s: sample %lld has the number %.9g, which is none of "
                               "data.label_values: add it, or remove the key.",
                               part->y.file->path, part->names->y, (long long)row, value);
            value = (double)class;
        }
        if (as == TR_F64)
            ((double *)(void *)out)[i] = value;
        else
            ((float *)(void *)out)[i] = (float)value;
    }
    return TR_OK;
}

tr_status_t tr_h5_dense_read(const h5_dense_t *d, const h5_part_t *part, h5_scratch_t *s,
                             int64_t first, int64_t count, tr_dtype_t as, char *out,
                             int64_t *out_bad) {
    const h5_array_t *y = &part->y;
    char *mask = part->has_mask ? s->rows + count * y->row_bytes : NULL;
    const int64_t elems = count * y->row_elems,
                  row_bytes = y->row_elems * (int64_t)tr_dtype_bytes(as);
    const bool packed = part->y_packing.scales || part->y_packing.has_holes;
    char *to = d->channels_first ? s->converted : out;
    *out_bad = -1;
    TR_TRY(tr_h5_read_rows(y, s, first, count, s->rows));
    if (mask) TR_TRY(tr_h5_read_rows(&part->mask, s, first, count, mask));
    if (d->are_labels) {
        tr_convert(y->dtype, s->rows, elems, TR_F64, s->converted);
        const double *value = (const double *)(void *)s->converted;
        int32_t *label = (int32_t *)(void *)out;
        for (int64_t i = 0; i < count; i++, value += y->row_elems, label += d->points) {
            const char *counted = mask ? mask + i * part->mask.row_bytes : NULL;
            const int64_t bad = dense_take_row(d, part, value, counted, label);
            if (bad >= 0) return dense_fail_label(d, part, first + i, bad, value);
        }
        return TR_OK;
    }
    const bool replaces = mask || d->ignores || d->values->count > 0;
    if (replaces) to = s->converted; /* as doubles, which tell large labels apart */
    const tr_dtype_t type = replaces ? TR_F64 : as;
    if (packed)
        (void)tr_h5_unpack(&part->y_packing, y->dtype, s->rows, elems, NULL, type, to);
    else
        tr_convert(y->dtype, s->rows, elems, type, to);
    for (int64_t i = 0; replaces && i < count; i++)
        TR_TRY(dense_put_row(d, part, first + i, (double *)(void *)to + i * y->row_elems,
                             mask ? mask + i * part->mask.row_bytes : NULL, as,
                             out + i * row_bytes));
    for (int64_t i = 0; d->channels_first && !replaces && i < count; i++)
        tr_channels_last(to + i * row_bytes, d->channels, d->points, tr_dtype_bytes(as),
                         out + i * row_bytes);
    *out_bad = dense_find_infinite(as, out, elems);
    return TR_OK;
}
