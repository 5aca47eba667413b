/* Which rows of a table are for training, validation and testing. Each class is one stratum, whose
 * rows are drawn one after the other in the order of the file: a row goes to a group with the
 * probability of what the group still lacks among the rows that are left (selection sampling, Knuth,
 * The Art of Computer Programming 2, 3.4.2). The numbers of rows are therefore exact. */
#include "csv_int.h"
#include "base/rng.h"
#include "trainer/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct csv_stratum {
    int64_t rows, lacks[CSV_GROUPS]; /* left to draw; not of CSV_TRAIN, which gets the rest */
};

static tr_status_t groups_check(const tr_csv_table_t *table, const tr_import_params_t *p,
                                const double fraction[CSV_GROUPS], int64_t rows) {
    const char *s = rows == 1 ? "" : "s";
    for (int g = CSV_VALID; g < CSV_GROUPS; g++)
        if (fraction[g] > 0 && llround(fraction[g] * (double)rows) == 0)
            return TR_FAIL(TR_ERR_CONFIG,
                           "'%s': --%s-fraction %g of %lld row%s leaves no row for the group %s: "
                           "give a larger fraction or more rows, or 0 for no such group.",
                           table->path, tr_split_name((tr_split_t)g), fraction[g], (long long)rows,
                           s, tr_split_name((tr_split_t)g));
    if (llround(fraction[CSV_VALID] * (double)rows) + llround(fraction[CSV_TEST] * (double)rows) >=
        rows)
        return TR_FAIL(TR_ERR_CONFIG,
                       "'%s': --test-fraction %g and --valid-fraction %g of %lld row%s leave no "
                       "rows for training: give smaller fractions.",
                       table->path, p->test_fraction, fraction[CSV_VALID], (long long)rows, s);
    return TR_OK;
}

tr_status_t tr_csv_groups_begin(csv_groups_t *groups, const tr_csv_table_t *table,
                                const tr_import_params_t *p, const csv_labels_t *labels,
                                int64_t rows) {
    const bool has_valid = p->test_fraction > 0 || p->is_valid_given;
    const double fraction[CSV_GROUPS] = {0, has_valid ? p->valid_fraction : 0, p->test_fraction};
    int64_t seen = 0;
    TR_TRY(groups_check(table, p, fraction, rows));
    *groups = (csv_groups_t){.seed = p->seed, .strata = labels->class_rows ? labels->classes : 1};
    TR_TRY(tr_alloc((size_t)groups->strata * sizeof *groups->left, "groups", &groups->left));
    for (int64_t i = 0; i < groups->strata; i++) {
        csv_stratum_t *s = &groups->left[i];
        int64_t *lacks = s->lacks;
        s->rows = labels->class_rows ? labels->class_rows[i] : rows;
        /* Rounding the sums over the classes keeps their total. */
        for (int g = CSV_VALID; g < CSV_GROUPS; g++)
            lacks[g] = llround(fraction[g] * (double)(seen + s->rows)) -
                       llround(fraction[g] * (double)seen);
        /* Every class is trained. */
        while (s->rows > 0 && lacks[CSV_VALID] + lacks[CSV_TEST] >= s->rows)
            lacks[lacks[CSV_VALID] > 0 ? CSV_VALID : CSV_TEST]--;
        seen += s->rows;
        for (int g = CSV_VALID; g < CSV_GROUPS; g++) groups->rows[g] += lacks[g];
    }
    groups->rows[CSV_TRAIN] = rows - groups->rows[CSV_VALID] - groups->rows[CSV_TEST];
    for (int g = CSV_VALID; g < CSV_GROUPS; g++)
        if (fraction[g] > 0 && groups->rows[g] == 0)
            return TR_FAIL(TR_ERR_CONFIG,
                           "'%s': with --%s-fraction %g, no class of its %lld has a row for the "
                           "group %s beside one for training: give a larger fraction or more rows, "
                           "or 0 for no such group.",
                           table->path, tr_split_name((tr_split_t)g), fraction[g],
                           (long long)groups->strata, tr_split_name((tr_split_t)g));
    return TR_OK;
}

int tr_csv_groups_draw(csv_groups_t *groups, int64_t row, int64_t class) {
    csv_stratum_t *s = &groups->left[class];
    const tr_rng_block_t random =
        tr_rng_philox(groups->seed, TR_RNG_SYNTHETIC, 3, (uint64_t)row, 0);
    double at = ldexp((double)random.v[0], -32) * (double)s->rows--;
    for (int g = CSV_TEST; g > CSV_TRAIN; g--) {
        if (at < (double)s->lacks[g]) {
            s->lacks[g]--;
            return g;
        }
        at -= (double)s->lacks[g];
    }
    return CSV_TRAIN;
}

tr_status_t tr_csv_groups_note(csv_groups_t *groups, int group, const float *input, int64_t count) {
    uint64_t hash = 14695981039346656037u;
    if (groups->rows[CSV_VALID] + groups->rows[CSV_TEST] == 0) return TR_OK;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &input[i], sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
        hash ^= hash >> 29;
    }
    return tr_vec_push(&groups->seen, (hash & ~1ull) | (group != CSV_TRAIN));
}

static int csv_seen_order(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void tr_csv_groups_warn_same(csv_groups_t *groups, const tr_csv_table_t *table) {
    const int64_t held = groups->rows[CSV_VALID] + groups->rows[CSV_TEST];
    int64_t same = 0;
    if (held == 0) return;
    qsort(groups->seen.data, groups->seen.count, sizeof *groups->seen.data, csv_seen_order);
    for (size_t i = 0, first = 0; i < groups->seen.count; i++) {
        const uint64_t row = groups->seen.data[i];
        if (row >> 1 != groups->seen.data[first] >> 1) first = i;
        same += row & 1 && !(groups->seen.data[first] & 1);
    }
    if (same * 20 >= held)
        TR_WARN("'%s': %lld of the %lld rows for validation and test have the inputs of a row for "
                "training, so their scores are too good for new data: remove rows that are there "
                "twice, or divide the table yourself",
                table->path, (long long)same, (long long)held);
}

void tr_csv_groups_free(csv_groups_t *groups) {
    tr_free(&groups->left);
    tr_vec_free(&groups->seen);
}
