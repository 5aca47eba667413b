/* Targets that are read as numbers, and look like labels. */
#include "shared.h"
#include "base/mem.h"
#include <stdio.h>
#include <stdlib.h>

enum { FEW = 8, MOST_BYTES = 4 << 20, PIECES = 64 };

bool tr_labels_are_lossy(const int64_t count[256], char levels[16]) {
    enum { LEVELS = 3, APART = 32, NEAR = 16, BESIDE = 8, LEAST = 3 };
    int level[LEVELS], found = 0, different = 0;
    int64_t all = 0, exact = 0, near = 0;
    size_t used = 0;
    for (int v = 0; v < 256; v++) all += count[v], different += count[v] > 0;
    for (int best = 0; found < LEVELS && best >= 0; found += best >= 0) {
        best = -1; /* the most frequent value far from the levels so far */
        for (int v = 0; v < 256; v++) {
            bool is_far = true;
            for (int k = 0; k < found; k++) is_far = is_far && abs(v - level[k]) >= APART;
            if (is_far && count[v] * 50 >= all && (best < 0 || count[v] > count[best])) best = v;
        }
        if (best >= 0) level[found] = best;
    }
    for (int k = 0; k < found; k++) { /* each has rarer values beside it */
        int beside = 0;
        exact += count[level[k]];
        for (int v = level[k] - NEAR; v <= level[k] + NEAR; v++) {
            if (v < 0 || v > 255) continue;
            near += count[v];
            beside += v != level[k] && abs(v - level[k]) <= BESIDE && count[v] > 0 &&
                      count[v] * 2 < count[level[k]];
        }
        if (beside < LEAST) return false;
    }
    if (different <= FEW || found < 2 || exact * 2 < all || near * 10 < all * 9) return false;
    for (int v = 0; v < 256; v++) /* in their order */
        for (int k = 0; k < found; k++)
            if (level[k] == v)
                used += (size_t)snprintf(levels + used, 16 - used, "%s%d", used ? "," : "", v);
    return true;
}

typedef struct {
    int64_t known;
    double value[FEW];         /* the different ones, ascending */
    int different;             /* FEW + 1: more */
    bool are_whole, are_bytes; /* are_bytes: from 0 to 255 */
    bool are_shares;           /* rows of numbers from 0 on, with the sum 1 */
    int64_t count[256];        /* of bytes */
} doubt_t;

static void doubt_add(doubt_t *d, float number) {
    const double value = (double)number;
    int at = 0;
    if (isnan(value)) return;
    d->known++;
    d->are_whole = d->are_whole && value == trunc(value);
    d->are_bytes = d->are_bytes && d->are_whole && value >= 0 && value <= 255;
    if (d->are_bytes) d->count[(int)value]++;
    while (at < d->different && at < FEW && d->value[at] < value) at++;
    if (d->different > FEW || (at < d->different && d->value[at] == value)) return;
    if (d->different++ == FEW) return;
    memmove(d->value + at + 1, d->value + at, (size_t)(d->different - 1 - at) * sizeof *d->value);
    d->value[at] = value;
}

static bool doubt_is_share(const float *row, int64_t width) {
    double sum = 0;
    for (int64_t c = 0; c < width; c++) {
        if (!(row[c] >= 0)) return false;
        sum += (double)row[c];
    }
    return fabs(sum - 1) < 1e-3;
}

/* Some of the numbers, spread evenly over the data. */
static tr_status_t doubt_read(tr_dataset_t *dataset, int y, doubt_t *out) {
    const tr_field_t *f = &dataset->info.field[y];
    const int64_t rows = tr_samples_within(&dataset->info, f->sample_bytes, MOST_BYTES),
                  pieces = min64(rows, PIECES), each = rows / pieces,
                  numbers = each * f->sample_bytes / (int64_t)sizeof(float),
                  width = tr_field_channels(f);
    void *dst[TR_DATASET_MAX_FIELDS] = {NULL};
    tr_status_t status = TR_OK;
    *out = (doubt_t){.are_whole = true, .are_bytes = true, .are_shares = width > 1};
    TR_TRY(tr_alloc((size_t)numbers * sizeof(float), "targets", &dst[y]));
    for (int64_t p = 0; p < pieces && (out->are_whole || out->are_shares); p++) {
        const float *number = dst[y];
        status = dataset->ops->read(dataset, dataset->info.samples * p / pieces, each, dst);
        if (status != TR_OK) break;
        for (int64_t i = 0; i < numbers; i++) doubt_add(out, number[i]);
        for (int64_t i = 0; i < numbers && out->are_shares; i += width)
            out->are_shares = doubt_is_share(number + i, width);
    }
    tr_free(&dst[y]);
    return status;
}

/* The settings for labels of these values; nothing if they are probably numbers. */
static void doubt_remedy(const doubt_t *d, bool is_dense, int64_t channels, const char *list,
                         tr_str_t *out) {
    const bool are_2 = d->different == 2, are_0_1 = are_2 && d->value[0] == 0 && d->value[1] == 1,
               count_from_0 = d->value[0] == 0 && d->value[d->different - 1] == d->different - 1,
               is_one = channels == 1;
    if (is_one && count_from_0)
        tr_str_printf(out, "data.classes = %d makes them classes", d->different);
    else if (is_one)
        tr_str_printf(out, "data.label_values = %s makes them the classes 0 to %d", list,
                      d->different - 1);
    if (!are_2 || (is_one && !is_dense)) return;
    tr_str_printf(out, "%smodel.loss = binary_cross_entropy", is_one ? ", and " : "");
    if (!are_0_1 && is_dense)
        tr_str_printf(out, " with data.classes = 0 and data.label_values = %s", list);
    else if (!are_0_1)
        tr_str_append(out, " with targets of 0 and 1");
    tr_str_printf(out, " trains %s",
                  is_one ? "one output for them"
                  : is_dense
                      ? "a mask for each channel; for classes, store the number of the class "
                        "of each position"
                      : "yes or no for each of them");
    if (is_dense && !is_one && are_0_1)
        tr_str_printf(out, ", or set data.classes = %lld if one channel is 1", (long long)channels);
}

tr_status_t tr_targets_doubt(tr_dataset_t *dataset, tr_str_t *out) {
    enum { LEAST = 8 /* of each value */ };
    const tr_dataset_info_t *info = &dataset->info;
    const int y = tr_field_find(info, "y");
    const int name = (int)strcspn(info->description, ","); /* without types and storage */
    char levels[16];
    doubt_t *d = NULL;
    if (y < 0 || info->is_regression || info->classes > 0 || info->field[y].dtype != TR_F32)
        return TR_OK;
    TR_TRY(tr_alloc(sizeof *d, "targets", &d));
    tr_status_t status = doubt_read(dataset, y, d);
    const int64_t channels = tr_field_channels(&info->field[y]);
    if (status == TR_OK && d->are_bytes && tr_labels_are_lossy(d->count, levels))
        tr_str_printf(out,
                      "the numbers to predict beside %.*s are " TR_LOSSY_TEXT
                      ". If they are numbers to predict, set data.classes = 0",
                      name, info->description, levels, levels);
    if (status == TR_OK && d->are_shares && !d->are_whole)
        tr_str_printf(
            out,
            "the targets beside %.*s are rows of %lld numbers that add up to 1, as probabilities "
            "of classes (soft labels): they are numbers to predict (model.loss = mse), because "
            "cross_entropy takes the number of a class. Store the number of the most probable "
            "class, with model.label_smoothing if you like, or set model.loss = "
            "binary_cross_entropy, which trains each probability by itself. If they are numbers, "
            "set data.classes = 0",
            name, info->description, (long long)channels);
    const bool are_few = d->are_whole && d->different >= 2 && d->different <= FEW &&
                         d->known >= LEAST * d->different;
    tr_str_t list = {0}, remedy = {0};
    for (int i = 0; i < d->different && are_few; i++)
        tr_str_printf(&list, "%s%.9g", i ? "," : "", d->value[i]);
    if (status == TR_OK && are_few && list.text)
        doubt_remedy(d, info->is_dense, channels, list.text, &remedy);
    if (remedy.text)
        tr_str_printf(out,
                      "the numbers to predict beside %.*s are only %s: if they are labels, %s. If they "
                      "are numbers, set data.classes = 0",
                      name, info->description, list.text, remedy.text);
    tr_str_free(&list);
    tr_str_free(&remedy);
    tr_free(&d);
    return status;
}
