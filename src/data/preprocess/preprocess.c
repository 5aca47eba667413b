/* Preprocessing: resolved from keys, attributes and checkpoints, and applied in the graph. */
#include "preprocess.h"
#include "data/shared.h"
#include "text/tokenizer.h"
#include "trainer/log.h"
#include "trainer/ops.h"

#include <math.h>
#include <string.h>

#define COMPUTE_BYTES  (256 << 20) /* of training data that `compute` reads */
#define TARGET_BYTES   (16 << 20)
#define COMPUTE_PIECES 64

void tr_preprocess_destroy(tr_preprocess_t **preprocess) {
    tr_preprocess_t *p = *preprocess;
    if (!p) return;
    tr_normalize_t *both[] = {&p->input, &p->target};
    for (size_t i = 0; i < TR_COUNT(both); i++) {
        tr_vec_free(&both[i]->mean);
        tr_vec_free(&both[i]->std);
    }
    for (int list = 0; list < TR_NAMES_LISTS; list++) tr_names_free(&p->names[list]);
    tr_vec_free(&p->class_weights);
    tr_free(&p->tokenizer);
    tr_free(&p->columns);
    tr_free(&p->origin);
    tr_free(preprocess);
}

const tr_field_t *tr_preprocess_field(const tr_preprocess_t *p, const char *name) {
    for (int f = 0; f < p->field_count; f++)
        if (strcmp(p->field[f].name, name) == 0) return &p->field[f];
    return NULL;
}

/* -- vectors ----------------------------------------------------------------------------------- */

static tr_status_t preprocess_copy(const tr_floats_t *from, tr_floats_t *out) {
    tr_status_t status = TR_OK;
    out->count = 0;
    for (size_t i = 0; i < from->count && status == TR_OK; i++)
        status = tr_vec_push(out, from->data[i]);
    return status;
}

static tr_status_t preprocess_copy_both(const tr_normalize_t *from, tr_normalize_t *out) {
    TR_TRY(preprocess_copy(&from->mean, &out->mean));
    return preprocess_copy(&from->std, &out->std);
}

/* Extends to `count` elements: an empty vector with `fallback`, a single number by repeating it. */
static tr_status_t preprocess_segment(tr_floats_t *v, size_t count, float fallback) {
    const float value = v->count > 0 ? v->data[0] : fallback;
    tr_status_t status = TR_OK;
    while (v->count < count && status == TR_OK) status = tr_vec_push(v, value);
    return status;
}

/* Vectors of equal length; none if the numbers change nothing. */
static tr_status_t preprocess_match(const char *what, tr_normalize_t *n) {
    const size_t means = n->mean.count, stds = n->std.count, count = means > stds ? means : stds;
    bool changes = false;
    if ((means > 1 && means < count) || (stds > 1 && stds < count))
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.%smean has %zu numbers and data.%sstd has %zu: set one number, or one "
                       "per channel or target",
                       what, means, what, stds);
    TR_TRY(preprocess_segment(&n->mean, count, 0));
    TR_TRY(preprocess_segment(&n->std, count, 1));
    for (size_t i = 0; i < count; i++)
        changes = changes || n->mean.data[i] != 0 || n->std.data[i] != 1;
    if (!changes) n->mean.count = n->std.count = 0;
    return TR_OK;
}

static tr_status_t preprocess_measure(tr_dataset_t *train, int field, int64_t bytes,
                                      tr_normalize_t *out) {
    tr_sample_stats_t stats = {0};
    char text[160];
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(tr_dataset_sample(train, field, bytes, COMPUTE_PIECES, INFINITY, &stats), done);
    for (int64_t c = 0; c < stats.channels; c++) {
        const float deviation = (float)tr_stats_deviation(&stats.of[c]);
        TR_TRY_GOTO(tr_vec_push(&out->mean, (float)stats.of[c].mean), done);
        TR_TRY_GOTO(tr_vec_push(&out->std, tr_is_divisor(deviation) ? deviation : 1), done);
    }
    if (stats.missing > 0 && strcmp(train->info.field[field].name, "x") == 0)
        TR_INFO("%s: %s", train->info.description,
                tr_missing_text(&stats, &train->info.field[field], text));
done:
    tr_free(&stats.of);
    return status;
}

/* -- keys -------------------------------------------------------------------------------------- */

static bool preprocess_is_compute(const char *text) {
    return strcmp(text, "compute") == 0;
}

/* Whether a checkpoint has the numbers, which were found out when training started. */
static bool preprocess_is_open(const char *text) {
    return tr_data_is_auto(text) || preprocess_is_compute(text) || tr_preprocess_names_file(text);
}

/* Numbers, or the file that has them. */
static tr_status_t preprocess_parse(const char *key, const char *text, bool is_std,
                                    tr_floats_t *out) {
    const bool is_file = tr_preprocess_names_file(text);
    bool good = true;
    if (is_file) {
        TR_TRY(tr_preprocess_read_file(key, text, out));
    } else {
        int count = 1;
        for (const char *at = text; *at; at++) count += *at == ',';
        TR_TRY(tr_vec_reserve_(&out->data, &out->capacity, (size_t)count, sizeof *out->data));
        good = tr_parse_floats(text, count, out->data, &count);
        out->count = good ? (size_t)count : 0;
    }
    for (size_t i = 0; good && i < out->count; i++)
        good = is_std ? tr_is_divisor(out->data[i]) : isfinite(out->data[i]);
    if (good) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG, "%s: expected %snumbers in the range of a 32-bit float%s; found '%.200s'",
        key, is_std ? "positive " : "",
        is_file ? " in the file"
                : " separated by commas, FILE:NAME of an HDF5 file, FILE.npy, compute, or "
                  "auto",
        text);
}

/* Numbers from the data, which have not been checked. */
static tr_status_t preprocess_check_own(const tr_dataset_info_t *info, bool is_std,
                                        const tr_floats_t *own) {
    for (size_t c = 0; c < own->count; c++)
        if (is_std ? !tr_is_divisor(own->data[c]) : !isfinite(own->data[c]))
            return TR_FAIL(
                TR_ERR_DATA,
                "%s: the attribute '%s' has %g for channel %zu; expected %s numbers in the range "
                "of a 32-bit float. Set data.%s.",
                info->description, is_std ? "std" : "mean", (double)own->data[c], c,
                is_std ? "positive" : "finite", is_std ? "std" : "mean");
    return TR_OK;
}

/* -- inputs ------------------------------------------------------------------------------------ */

static const tr_field_t *preprocess_inputs_of(const tr_dataset_info_t *info) {
    const int x = tr_field_find(info, "x");
    return x < 0 ? NULL : &info->field[x];
}

static tr_status_t preprocess_take_input(const tr_preprocess_sources_t *s, bool is_std,
                                         const tr_normalize_t *measured, tr_floats_t *out) {
    const char *text = is_std ? s->settings->std : s->settings->mean,
               *key = is_std ? "data.std" : "data.mean";
    const tr_field_t *x = preprocess_inputs_of(s->info);
    const tr_floats_t *own = is_std ? &s->info->std : &s->info->mean;
    if (preprocess_is_open(text) && s->kept)
        TR_TRY(preprocess_copy(is_std ? &s->kept->input.std : &s->kept->input.mean, out));
    else if (preprocess_is_compute(text))
        TR_TRY(preprocess_copy(is_std ? &measured->std : &measured->mean, out));
    else if (tr_data_is_auto(text)) {
        TR_TRY(preprocess_check_own(s->info, is_std, own));
        TR_TRY(preprocess_copy(own, out));
    } else
        TR_TRY(preprocess_parse(key, text, is_std, out));
    if (!x || out->count <= 1 || (int64_t)out->count == tr_field_channels(x)) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "%s has %zu numbers%s%s, but x of %s has %lld channels: expected one number, or "
                   "one per channel",
                   key, out->count, preprocess_is_open(text) && s->kept ? " in " : "",
                   preprocess_is_open(text) && s->kept ? s->kept->origin : "", s->info->description,
                   (long long)tr_field_channels(x));
}

static void preprocess_list_numbers(const tr_floats_t *v, float none, tr_str_t *out) {
    enum { SHOWN = 8 };
    if (v->count == 0) tr_str_printf(out, "%g", (double)none);
    for (size_t i = 0; i < v->count && i < SHOWN; i++)
        tr_str_printf(out, "%s%.9g", i ? "," : "", (double)v->data[i]);
    if (v->count > SHOWN) tr_str_append(out, ",...");
}

/* Initial weights expect inputs as in their training, if nothing else is set. */
static tr_status_t preprocess_take_init(const tr_preprocess_sources_t *s, const tr_field_t *x,
                                        tr_preprocess_t *out, bool *out_taken) {
    const tr_normalize_t *input = &s->init->input;
    const tr_field_t *was = tr_preprocess_field(s->init, "x");
    const int64_t count = (int64_t)input->mean.count;
    const bool bytes_to_1 = was && was->dtype == TR_U8 && count == 1 && input->mean.data[0] == 0 &&
                            input->std.data[0] == 255;
    tr_str_t text = {0};
    /* the default anyway */
    if (!was || bytes_to_1 || (count == 0 && was->dtype != TR_U8)) return TR_OK;
    *out_taken = was->dtype == x->dtype && (count <= 1 || count == tr_field_channels(x));
    tr_str_append(&text, "data.mean = ");
    preprocess_list_numbers(&input->mean, 0, &text);
    tr_str_append(&text, ", data.std = ");
    preprocess_list_numbers(&input->std, 1, &text);
    if (*out_taken && text.text)
        TR_INFO("model.init: the training data has no mean and std; those of the initial model are "
                "used: %s",
                text.text);
    else if (text.text)
        TR_WARN(
            "model.init: the initial model was trained on inputs of type %s with %s, which do not "
            "fit the inputs of %s: set data.mean and data.std so that both are in the same units",
            tr_dtype_name(was->dtype), text.text, s->info->description);
    tr_str_free(&text);
    return *out_taken ? preprocess_copy_both(input, &out->input) : TR_OK;
}

static tr_status_t preprocess_resolve_input(const tr_preprocess_sources_t *s,
                                            tr_preprocess_t *out) {
    const bool computes =
        preprocess_is_compute(s->settings->mean) || preprocess_is_compute(s->settings->std);
    const tr_field_t *x = preprocess_inputs_of(s->info);
    const bool measures = (computes || s->info->has_missing) && !s->kept && s->train && x;
    tr_normalize_t measured = {0};
    tr_status_t status = TR_OK;
    if (computes && !s->kept && !s->train)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.mean and data.std = compute need training data or a checkpoint "
                       "that records them: set the numbers");
    if (computes && !s->kept && x && x->dtype == TR_BF16)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.mean and data.std = compute do not support inputs of type bf16: set "
                       "the numbers");
    if (measures)
        status = preprocess_measure(s->train, tr_field_find(&s->train->info, "x"), COMPUTE_BYTES,
                                    &measured);
    if (status == TR_OK) status = preprocess_take_input(s, false, &measured, &out->input.mean);
    if (status == TR_OK) status = preprocess_take_input(s, true, &measured, &out->input.std);
    bool is_known = out->input.mean.count + out->input.std.count > 0 || s->kept || !x;
    if (status == TR_OK && !is_known && s->init)
        status = preprocess_take_init(s, x, out, &is_known);
    if (status == TR_OK && !is_known && s->info->has_missing) {
        status = preprocess_copy_both(&measured, &out->input); /* missing values become the mean */
        is_known = measures;
    }
    tr_vec_free(&measured.mean);
    tr_vec_free(&measured.std);
    TR_TRY(status);
    /* bytes: 0 to 1 */
    if (!is_known && x->dtype == TR_U8) TR_TRY(tr_vec_push(&out->input.std, 255));
    return preprocess_match("", &out->input);
}

/* -- targets ----------------------------------------------------------------------------------- */

/* auto applies to numbers that a loss uses directly; other kinds of y are left to their data set
 * and model. */
static bool preprocess_is_measured(const tr_preprocess_sources_t *s, const char *text,
                                   const tr_field_t *y) {
    return preprocess_is_compute(text) ||
           (tr_data_is_auto(text) && s->squares && y && y->dtype == TR_F32);
}

static tr_status_t preprocess_take_target(const tr_preprocess_sources_t *s, bool is_std,
                                          const tr_normalize_t *measured, tr_floats_t *out) {
    const char *text = is_std ? s->settings->target_std : s->settings->target_mean;
    if (!preprocess_is_open(text) || (tr_preprocess_names_file(text) && !s->kept))
        return preprocess_parse(is_std ? "data.target_std" : "data.target_mean", text, is_std, out);
    const tr_normalize_t *from = s->kept ? &s->kept->target : measured;
    return preprocess_copy(is_std ? &from->std : &from->mean, out);
}

static tr_status_t preprocess_resolve_target(const tr_preprocess_sources_t *s,
                                             tr_preprocess_t *out) {
    const int y = s->train ? tr_field_find(&s->train->info, "y") : -1;
    const tr_field_t *field = y < 0 ? NULL : &s->train->info.field[y];
    const char *mean = s->settings->target_mean, *std = s->settings->target_std;
    const bool computes = preprocess_is_compute(mean) || preprocess_is_compute(std);
    tr_normalize_t measured = {0}, *m = &measured;
    tr_status_t status = TR_OK;
    if (out->classes > 0) return TR_OK;
    if (computes && !s->kept && !field)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.target_mean and data.target_std = compute need training data "
                       "or a checkpoint that records them: set the numbers");
    if (!s->kept && field &&
        (preprocess_is_measured(s, mean, field) || preprocess_is_measured(s, std, field)))
        status = preprocess_measure(s->train, y, TARGET_BYTES, m);
    if (!preprocess_is_measured(s, mean, field)) m->mean.count = 0;
    if (!preprocess_is_measured(s, std, field)) m->std.count = 0;
    if (status == TR_OK) status = preprocess_take_target(s, false, m, &out->target.mean);
    if (status == TR_OK) status = preprocess_take_target(s, true, m, &out->target.std);
    tr_vec_free(&m->mean);
    tr_vec_free(&m->std);
    TR_TRY(status);
    return preprocess_match("target_", &out->target);
}

/* -- class weights ----------------------------------------------------------------------------- */

/* counts[classes] of the labels y of all samples; of labels of positions, of samples that are spread
 * evenly over the data. */
static tr_status_t preprocess_count_labels(tr_dataset_t *train, int y, int64_t classes,
                                           int64_t *counts) {
    enum { AT_ONCE = 1 << 18, MOST_BYTES = 64 << 20 };
    const tr_dataset_info_t *info = &train->info;
    const int64_t values = info->field[y].sample_bytes / (int64_t)sizeof(int32_t),
                  some = tr_samples_within(info, info->field[y].sample_bytes, MOST_BYTES),
                  wanted = info->is_dense ? some : info->samples,
                  pieces = wanted < info->samples ? min64(wanted, COMPUTE_PIECES) : 1,
                  each = wanted < info->samples ? wanted / pieces : info->samples,
                  most = max64(1, AT_ONCE / values);
    void *dst[TR_DATASET_MAX_FIELDS] = {0};
    int32_t *label = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc((size_t)(most * values) * sizeof *label, "labels", &label));
    dst[y] = label;
    for (int64_t p = 0; p < pieces; p++)
        for (int64_t i = 0; i < each && status == TR_OK; i += most) {
            const int64_t count = min64(most, each - i);
            status = train->ops->read(train, info->samples * p / pieces + i, count, dst);
            for (int64_t k = 0; k < count * values && status == TR_OK; k++)
                if (label[k] >= 0 && label[k] < classes) counts[label[k]]++;
        }
    tr_free(&label);
    return status;
}

static tr_status_t preprocess_resolve_class_weights(const tr_preprocess_sources_t *s,
                                                    tr_preprocess_t *out) {
    const int y = s->train ? tr_field_find(&s->train->info, "y") : -1;
    const int64_t classes = s->classes;
    int64_t *counts = NULL, sum = 0, occur = 0;
    if (!s->balances || classes <= 0) return TR_OK;
    if (s->kept && (int64_t)s->kept->class_weights.count == classes)
        return preprocess_copy(&s->kept->class_weights, &out->class_weights);
    if (y < 0 || s->train->info.field[y].kind != TR_FIELD_LABELS)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.class_weights = balanced needs training data with labels, or a "
                       "checkpoint that records the weights of %lld classes: set the numbers",
                       (long long)classes);
    TR_TRY(tr_alloc((size_t)classes * sizeof *counts, "labels of each class", &counts));
    tr_status_t status = preprocess_count_labels(s->train, y, classes, counts);
    for (int64_t c = 0; c < classes; c++) sum += counts[c], occur += counts[c] > 0;
    for (int64_t c = 0; c < classes && status == TR_OK; c++)
        status = tr_vec_push(
            &out->class_weights,
            counts[c] > 0 ? (float)((double)sum / ((double)occur * (double)counts[c])) : 1.0F);
    tr_free(&counts);
    return status;
}

/* -- the whole --------------------------------------------------------------------------------- */

/* The tokenizer of the data and the columns of the training: both are those of the weights. */
static tr_status_t preprocess_resolve_texts(const tr_preprocess_sources_t *s,
                                            tr_preprocess_t *out) {
    const char *tokenizer = s->info->tokenizer,
               *columns = s->kept ? s->kept->columns : s->info->columns;
    const tr_preprocess_t *trained = s->kept ? s->kept : s->init;
    if (!tokenizer && s->kept) tokenizer = s->kept->tokenizer;
    if (columns) TR_TRY(tr_strdup(columns, &out->columns));
    if (!tokenizer) return TR_OK;
    if (!s->kept && trained && trained->tokenizer &&
        !tr_tokenizer_is_same(tokenizer, trained->tokenizer))
        TR_WARN("model.init: the tokens of %s come from another tokenizer than those of %s: import "
                "the text with the tokenizer of the initial model",
                s->info->description, trained->origin);
    return tr_tokenizer_keep(tokenizer, trained ? trained->tokenizer : NULL, out->origin,
                             &out->tokenizer);
}

tr_status_t tr_preprocess_resolve(const tr_preprocess_sources_t *s, tr_preprocess_t **out) {
    tr_preprocess_t *p = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *p, "preprocessing", &p));
    *out = p;
    p->classes = s->classes;
    p->decodes = !s->kept || s->kept->decodes;
    p->is_dense = s->kept ? s->kept->is_dense : s->info->is_dense;
    for (int f = 0; f < s->info->field_count; f++)
        if (strcmp(s->info->field[f].name, "y") != 0)
            p->field[p->field_count++] = s->info->field[f];
    TR_TRY_GOTO(tr_strdup(s->kept ? s->kept->origin : s->info->description, &p->origin), done);
    TR_TRY_GOTO(preprocess_resolve_input(s, p), done);
    TR_TRY_GOTO(preprocess_resolve_target(s, p), done);
    TR_TRY_GOTO(preprocess_resolve_class_weights(s, p), done);
    TR_TRY_GOTO(preprocess_resolve_texts(s, p), done);
    /* the names of the training, not those of the current data */
    const tr_names_t *names = s->train ? s->train->info.names : s->kept ? s->kept->names : NULL;
    for (int list = 0; names && list < TR_NAMES_LISTS; list++)
        TR_TRY_GOTO(tr_names_copy(&names[list], p->origin, &p->names[list]), done);
done:
    if (status != TR_OK) tr_preprocess_destroy(out);
    return status;
}

/* -- in the graph ------------------------------------------------------------------------------ */

/* x * scale + shift over rows of `width`; single numbers are repeated. */
static tr_status_t preprocess_apply(tr_graph_t *g, const char *const name[2],
                                    const tr_normalize_t *n, bool inverse, int64_t width,
                                    tr_tensor_t *x) {
    float *values = NULL;
    tr_tensor_t scale, shift;
    TR_TRY(tr_alloc(2 * (size_t)width * sizeof *values, "normalisation", &values));
    for (int64_t c = 0; c < width; c++) {
        const size_t i = n->mean.count == 1 ? 0 : (size_t)c;
        const float mean = n->mean.data[i], std = n->std.data[i];
        values[c] = inverse ? std : 1 / std;
        values[width + c] = inverse ? mean : -mean / std;
    }
    tr_status_t status = tr_const_values(g, name[0], values, width, &scale);
    if (status == TR_OK) status = tr_const_values(g, name[1], values + width, width, &shift);
    tr_free(&values);
    TR_TRY(status);
    return tr_cast_normalize(g, *x, scale, shift, x);
}

tr_status_t tr_preprocess_input(tr_graph_t *g, const tr_preprocess_t *p, tr_tensor_t *x) {
    static const char *const names[] = {"data.scale", "data.shift"};
    const tr_shape_t *shape = tr_shape_of(g, *x);
    if (p->input.mean.count == 0) return tr_cast_normalize(g, *x, TR_NONE, TR_NONE, x);
    return preprocess_apply(g, names, &p->input, false, shape->dim[shape->ndim - 1], x);
}

/* The numbers belong to the last dimension; one pair fits any shape. */
static tr_status_t preprocess_apply_target(tr_graph_t *g, const tr_preprocess_t *p,
                                           const char *const name[2], bool inverse,
                                           tr_tensor_t *x) {
    const tr_shape_t shape = *tr_shape_of(g, *x);
    const int64_t count = (int64_t)p->target.mean.count, width = shape.dim[shape.ndim - 1];
    if (count == 0) return TR_OK;
    if (width % count != 0)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "data.target_mean and data.target_std have %lld numbers, but there are %lld targets: "
            "set one number, or one per target (0 and 1: targets are unchanged)",
            (long long)count, (long long)width);
    TR_TRY(tr_reshape(g, *x, &TR_SHAPE(tr_shape_elems(&shape) / count, count), x));
    TR_TRY(preprocess_apply(g, name, &p->target, inverse, count, x));
    return tr_reshape(g, *x, &shape, x);
}

tr_status_t tr_preprocess_target(tr_graph_t *g, const tr_preprocess_t *p, tr_tensor_t *y) {
    static const char *const names[] = {"target.scale", "target.shift"};
    return preprocess_apply_target(g, p, names, false, y);
}

tr_status_t tr_preprocess_restore(tr_graph_t *g, const tr_preprocess_t *p, tr_tensor_t *output) {
    static const char *const names[] = {"target.std", "target.mean"};
    return tr_is_none(*output) ? TR_OK : preprocess_apply_target(g, p, names, true, output);
}

float tr_preprocess_fill(const tr_preprocess_t *p) {
    return p->input.mean.count == 1 ? 0 - p->input.mean.data[0] / p->input.std.data[0] : 0;
}
