/* Checks data against the preprocessing of a model, and the range of the normalised inputs. */
#include "preprocess.h"
#include "data/table/columns.h"
#include "data/shared.h"
#include "text/tokenizer.h"
#include "trainer/log.h"

#include <string.h>

/* -- a data set against it --------------------------------------------------------------------- */

static tr_status_t preprocess_check_table(const tr_preprocess_t *p, const tr_dataset_info_t *info,
                                          const tr_field_t *x) {
    const tr_shape_t *was = &tr_preprocess_field(p, "x")->shape;
    if (was->ndim != 1 || x->shape.ndim != 1 || was->dim[0] == x->shape.dim[0]) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "the model takes %lld input%s, but a sample of %s has %lld: use the columns of "
                   "the training data, in the same order (a table without labels: import csv "
                   "--label none)",
                   (long long)was->dim[0], was->dim[0] == 1 ? "" : "s", info->description,
                   (long long)x->shape.dim[0]);
}

/* Inputs are not refused because of labels that are not read. */
static tr_status_t preprocess_check_names(const tr_preprocess_t *p, const tr_dataset_info_t *info,
                                          bool inputs_only) {
    for (int list = 0; list < TR_NAMES_LISTS; list++) {
        const tr_names_t *found = &info->names[list];
        const tr_status_t status = tr_names_check(list, &p->names[list], found);
        if (status == TR_OK) continue;
        if (!inputs_only || list != TR_NAMES_CLASSES) return status;
        TR_WARN("%s numbers its classes differently from the training data (class_names): the "
                "predictions use the numbers and names of the training data",
                found->from);
        tr_error_clear();
    }
    return TR_OK;
}

static tr_status_t preprocess_check_tokenizer(const tr_preprocess_t *p,
                                              const tr_dataset_info_t *info) {
    if (!p->tokenizer || !info->tokenizer || tr_tokenizer_is_same(p->tokenizer, info->tokenizer))
        return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "the tokens of %s come from another tokenizer than those of the training data: "
                   "import the text again with the tokenizer of the training data",
                   info->description);
}

/* Categories and the values for missing cells come from the training rows. */
static tr_status_t preprocess_check_columns(const tr_preprocess_t *p,
                                            const tr_dataset_info_t *info) {
    tr_str_t difference = {0};
    if (!p->columns || !info->columns || strcmp(p->columns, info->columns) == 0) return TR_OK;
    tr_status_t status = tr_columns_compare(p->columns, info->columns, &difference);
    if (status == TR_OK && difference.length > 0)
        status = TR_FAIL(TR_ERR_DATA,
                         "%s was imported with other columns than the training data of %s: %s. "
                         "Name the CSV file instead: eval (data.test=FILE.csv) and predict read it "
                         "as the training data were read",
                         info->description, p->origin, difference.text);
    tr_str_free(&difference);
    return status;
}

/* The inputs besides x, which has messages of its own. */
static tr_status_t preprocess_check_fields(const tr_preprocess_t *p,
                                           const tr_dataset_info_t *info) {
    for (int f = 0; f < p->field_count; f++) {
        const tr_field_t *was = &p->field[f];
        const int at = tr_field_find(info, was->name);
        const tr_field_t *is = at < 0 ? NULL : &info->field[at];
        char expected[96], found[96] = "no such field";
        if (strcmp(was->name, "x") == 0) continue;
        if (is && is->dtype == was->dtype && tr_shape_equal(&is->shape, &was->shape)) continue;
        tr_shape_format(&was->shape, expected);
        if (is) tr_shape_format(&is->shape, found);
        return TR_FAIL(TR_ERR_DATA,
                       "the model was trained with the input '%s' of %s %s, but %s has %s%s%s: "
                       "give it the fields of the training data",
                       was->name, tr_dtype_name(was->dtype), expected, info->description,
                       is ? tr_dtype_name(is->dtype) : "", is ? " " : "", found);
    }
    return TR_OK;
}

tr_status_t tr_preprocess_match(const tr_preprocess_t *p, const tr_dataset_info_t *info,
                                bool inputs_only) {
    const int field = tr_field_find(info, "x");
    const tr_field_t *was = tr_preprocess_field(p, "x");
    TR_TRY(preprocess_check_tokenizer(p, info));
    TR_TRY(preprocess_check_names(p, info, inputs_only));
    TR_TRY(preprocess_check_columns(p, info));
    TR_TRY(preprocess_check_fields(p, info));
    if (field < 0 || !was) return TR_OK;
    const tr_field_t *x = &info->field[field];
    if (x->dtype != was->dtype)
        TR_WARN("the inputs of %s are %s, but the model was trained on %s: the values are assumed "
                "to be in the same units",
                info->description, tr_dtype_name(x->dtype), tr_dtype_name(was->dtype));
    return preprocess_check_table(p, info, x);
}

static float preprocess_value_at(const tr_floats_t *v, size_t c, float none) {
    return v->count == 0 ? none : v->data[v->count == 1 ? 0 : c];
}

/* -- inputs after normalisation ---------------------------------------------------------------- */

#define MEAN_MOST       3
#define DEVIATION_LEAST 0.1
#define DEVIATION_MOST  10
#define SAMPLE_BYTES    (16 << 20)
#define SAMPLE_VALUES   (1 << 18)
#define SAMPLE_SEC      0.02
#define SAMPLE_PIECES   8 /* one sample may be unlike all others */
#define LEAST_SAMPLES   20 /* for a comparison with other data; as many values of a channel */

tr_status_t tr_preprocess_sample(tr_dataset_t *dataset, tr_sample_stats_t *out) {
    const int x = tr_field_find(&dataset->info, "x");
    *out = (tr_sample_stats_t){0};
    const tr_field_t *f = &dataset->info.field[x];
    if (x < 0 || f->sample_bytes > SAMPLE_BYTES || f->dtype == TR_BF16) return TR_OK;
    const int64_t values = SAMPLE_VALUES * (int64_t)tr_dtype_bytes(f->dtype);
    return tr_dataset_sample(dataset, x,
                             min64(SAMPLE_BYTES, max64(values, SAMPLE_PIECES * f->sample_bytes)),
                             SAMPLE_PIECES, SAMPLE_SEC, out);
}

/* How far a channel is out of bounds, as a factor; at most 1: within bounds. */
static double preprocess_distance(const tr_stats_t *s, float mean, float std, double *out_mean,
                                  double *out_deviation) {
    const double deviation = tr_stats_deviation(s) / (double)std;
    *out_mean = ((deviation > 0 ? s->mean : (double)(float)s->mean) - (double)mean) / (double)std;
    *out_deviation = deviation;
    if (deviation == 0) return fabs(*out_mean) / MEAN_MOST;
    return fmax(fabs(*out_mean) / MEAN_MOST,
                fmax(deviation / DEVIATION_MOST, DEVIATION_LEAST / deviation));
}

/* Images are stored as 0 to 255 or as 0 to 1, and published means refer to either. */
static const char *preprocess_likely_cause(const tr_normalize_t *n, const tr_stats_t *s, float mean,
                                           float std) {
    const bool holds_1 = s->min >= 0 && s->max <= 1,
               holds_255 = s->min >= 0 && s->max > 1 && s->max <= 255;
    if (n->mean.count == 0) return "they are not normalised";
    if (holds_1 && (mean > 1 || std > 1) && mean <= 255 && std <= 255)
        return "the file holds values from 0 to 1, but this mean and std are for 0 to 255";
    if (holds_255 && mean <= 1 && std <= 1)
        return "the file holds values from 0 to 255, but this mean and std are for 0 to 1";
    return "this mean and std do not match the data";
}

/* The channel that is farthest out of bounds, of those with at least `least` values. */
typedef struct {
    int64_t channel, count; /* -1: none; of all such channels */
    double mean, deviation; /* normalised */
} misfit_t;

static misfit_t preprocess_find_misfit(const tr_normalize_t *n, bool is_table,
                                       const tr_sample_stats_t *stats, int64_t least) {
    misfit_t out = {.channel = -1};
    double worst = 1, mean, deviation;
    for (int64_t c = 0; c < stats->channels; c++) {
        const float used_mean = preprocess_value_at(&n->mean, (size_t)c, 0),
                    used_std = preprocess_value_at(&n->std, (size_t)c, 1);
        /* one-hot columns and indicators stay 0 and 1, however rare the 1 is */
        if (is_table && n->mean.count > 1 && used_mean == 0 && used_std == 1) continue;
        const double far =
            preprocess_distance(&stats->of[c], used_mean, used_std, &mean, &deviation);
        if (stats->of[c].count < least) continue;
        out.count += far > 1;
        if (!(far > worst)) continue;
        worst = far;
        out.channel = c, out.mean = mean, out.deviation = deviation;
    }
    return out;
}

/* Whether the stored values have mean 0 and deviation 1, but not those that are normalised. */
static bool preprocess_is_twice(const tr_preprocess_t *p, const tr_sample_stats_t *stats) {
    bool changes = false;
    for (int64_t c = 0; c < stats->channels; c++) {
        const double mean = stats->of[c].mean, deviation = tr_stats_deviation(&stats->of[c]);
        const float used_mean = preprocess_value_at(&p->input.mean, (size_t)c, 0),
                    used_std = preprocess_value_at(&p->input.std, (size_t)c, 1);
        if (fabs(mean) > 0.1 || fabs(deviation - 1) > 0.1) return false;
        changes |= fabsf(used_mean) > 0.3F * used_std || used_std > 1.5F || used_std < 1 / 1.5F;
    }
    return changes;
}

void tr_preprocess_check(const tr_preprocess_t *p, const tr_sample_stats_t *stats,
                         tr_preprocess_checked_t what, tr_str_t *out) {
    const bool are_targets = what == TR_CHECK_TARGETS, train = what == TR_CHECK_TRAINING_INPUTS;
    const tr_normalize_t *n = are_targets ? &p->target : &p->input;
    if (!train && stats->samples < LEAST_SAMPLES) return;
    const misfit_t found =
        preprocess_find_misfit(n, p->columns != NULL, stats, train ? 0 : LEAST_SAMPLES);
    const size_t c = found.channel < 0 ? 0 : (size_t)found.channel;
    const float used_mean = preprocess_value_at(&n->mean, c, 0),
                used_std = preprocess_value_at(&n->std, c, 1);
    char channel[64] = "";
    if (train && found.channel < 0 && preprocess_is_twice(p, stats))
        tr_str_printf(
            out,
            "the inputs have mean 0 and standard deviation 1 in the file, and are normalised "
            "again with mean %.6g and std %.6g: set data.mean = 0 and data.std = 1",
            (double)used_mean, (double)used_std);
    if (found.channel < 0) return;
    const tr_stats_t *s = &stats->of[c];
    if (stats->channels > 1)
        tr_snprintf(channel, sizeof channel, " (channel %lld, one of %lld such channels)",
                    (long long)found.channel, (long long)found.count);
    tr_str_printf(
        out,
        "the %s%s have mean %.4g and standard deviation %.4g after normalisation with mean "
        "%.6g and std %.6g; training expects about 0 and 1. Their values in the file range from "
        "%.6g to %.6g, with mean %.6g and standard deviation %.6g. Likely cause: %s. %s",
        are_targets ? "targets" : "inputs", channel, found.mean, found.deviation, (double)used_mean,
        (double)used_std, s->min, s->max, s->mean, tr_stats_deviation(s),
        train ? preprocess_likely_cause(n, s, used_mean, used_std)
              : "they may have other units than the training data",
        train ? "Set data.mean=compute data.std=compute" : "Write both with the same units");
}
