/* What a model was told about its data: which source rules, the way through JSON, and the check of
 * inputs. */
#include "data_test.h"
#include "data/preprocess/preprocess.h"
#include "trainer/log.h"
#include "base/mem.h"
#include <hdf5.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "../../support/ok.h"

/* x (C) of f32 or u8: sample i has channel c at (i % 2 ? +1 : -1) * deviation[c] + mean[c]; y (2)
 * of f32 likewise. */
enum { N = 1000, C = 3 };
typedef struct {
    tr_dataset_t base;
    double mean[C], deviation[C];
    int64_t reads;
} moments_set_t;

static tr_status_t read_set(tr_dataset_t *dataset, int64_t first, int64_t count, void *const *dst) {
    moments_set_t *self = (moments_set_t *)dataset;
    const bool is_bytes = dataset->info.field[0].dtype == TR_U8;
    self->reads += dst[0] != NULL;
    for (int64_t i = 0; i < count; i++) {
        const double sign = (first + i) % 2 ? 1 : -1;
        for (int c = 0; c < C && dst[0]; c++) {
            const double value = self->mean[c] + sign * self->deviation[c];
            if (is_bytes)
                ((uint8_t *)dst[0])[i * C + c] = (uint8_t)value;
            else
                ((float *)dst[0])[i * C + c] = (float)value;
        }
        for (int t = 0; t < 2 && dst[1]; t++)
            ((float *)dst[1])[i * 2 + t] = (float)(1000 * t + sign * (t + 1));
    }
    return TR_OK;
}
static void close_set(tr_dataset_t *dataset) {}
static const tr_dataset_ops_t ops = {.name = "set", .close = close_set, .read = read_set};

static moments_set_t make_set(tr_dtype_t type, double mean, double deviation) {
    moments_set_t set = {.base.ops = &ops};
    const int64_t bytes = (int64_t)tr_dtype_bytes(type);
    for (int c = 0; c < C; c++) set.mean[c] = mean, set.deviation[c] = deviation;
    set.base.info =
        (tr_dataset_info_t){.samples = N, .field_count = 2, .read_unit = 1, .description = "set"};
    set.base.info.field[0] = (tr_field_t){"x", type, TR_SHAPE(C), C * bytes, TR_FIELD_VALUES};
    set.base.info.field[1] = (tr_field_t){"y", TR_F32, TR_SHAPE(2), 8, TR_FIELD_VALUES};
    return set;
}

static tr_preprocess_t *resolve(const tr_preprocess_sources_t *sources) {
    tr_preprocess_t *told = NULL;
    OK(tr_preprocess_resolve(sources, &told));
    return told;
}

static void check_numbers(const tr_normalize_t *n, size_t count, double mean, double std) {
    assert_int_equal(n->mean.count, count);
    assert_int_equal(n->std.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_true(fabs((double)n->mean.data[i] - mean) <= 1e-6 * fabs(mean));
        assert_true(fabs((double)n->std.data[i] - std) <= 1e-6 * std);
    }
}

static void keys_attributes_and_the_data_rule_in_turn(void **state) {
    moments_set_t set = make_set(TR_F32, 50, 5), bytes = make_set(TR_U8, 100, 10);
    tr_data_settings_t settings = test_settings();
    tr_preprocess_sources_t sources = {
        .settings = &settings, .info = &set.base.info, .squares = true, .train = &set.base};
    tr_preprocess_t *told = resolve(&sources);
    check_numbers(&told->input, 0, 0, 1); /* floats as they are */
    assert_int_equal(told->target.mean.count, 2);
    /* targets by default */
    assert_true(told->target.mean.data[1] == 1000 && told->target.std.data[1] == 2);
    tr_preprocess_destroy(&told);

    float own_mean[] = {49}, own_std[] = {4};
    set.base.info.mean.data = own_mean, set.base.info.mean.count = 1;
    set.base.info.std.data = own_std, set.base.info.std.count = 1;
    told = resolve(&sources);
    check_numbers(&told->input, 1, 49, 4);
    assert_int_equal(set.reads, 0); /* inputs are not read */
    tr_preprocess_destroy(&told);

    settings.mean = settings.std = "compute", settings.target_mean = "0", settings.target_std = "1";
    told = resolve(&sources);
    check_numbers(&told->input, C, 50, 5);
    check_numbers(&told->target, 0, 0, 1);
    tr_preprocess_destroy(&told);

    settings.mean = "1, 2, 3";
    told = resolve(&sources);
    assert_true(told->input.mean.data[2] == 3 && fabsf(told->input.std.data[0] - 5) < 1e-6f);
    tr_preprocess_destroy(&told);

    settings = test_settings();
    sources.info = &bytes.base.info, sources.train = &bytes.base, sources.squares = false;
    told = resolve(&sources);
    check_numbers(&told->input, 1, 0, 255);
    check_numbers(&told->target, 0, 0, 1);
    tr_preprocess_destroy(&told);
    settings.mean = "0", settings.std = "1";
    told = resolve(&sources);
    check_numbers(&told->input, 0, 0, 1);
    tr_preprocess_destroy(&told);
}

static void put_numbers(const char *path, const float *values) {
    hid_t links = H5Pcreate(H5P_LINK_CREATE), space = H5Screate_simple(1, (hsize_t[]){C}, NULL),
          file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Pset_create_intermediate_group(links, 1);
    hid_t id =
        H5Dcreate2(file, "climate/mean", H5T_IEEE_F64BE, space, links, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(id, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(id);
    H5Fclose(file);
    H5Sclose(space);
    H5Pclose(links);
}

/* As numpy.save writes an array of the shape (1, C, 1). */
static void put_npy(const char *path, const double *values) {
    const char *shape = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 3, 1), }";
    char header[119];
    snprintf(header, sizeof header, "%-117s\n", shape);
    FILE *file = fopen(path, "wb");
    fwrite("\x93NUMPY\1\0\x76\0", 1, 10, file);
    fwrite(header, 1, 118, file);
    fwrite(values, sizeof *values, C, file);
    fclose(file);
}

static void numbers_may_be_in_a_file(void **state) {
    const float mean[] = {1.5f, -2, 3e5f};
    const double std[] = {2, 0.25, 7};
    char folder[512], h5[1024], npy[1024], text[1100], missing[1100];
    moments_set_t set = make_set(TR_F32, 50, 5);
    tr_data_settings_t settings = test_settings();
    tr_preprocess_sources_t sources = {
        .settings = &settings, .info = &set.base.info, .train = &set.base};
    assert_true(test_folder_make(folder));
    snprintf(h5, sizeof h5, "%s/stats.h5", folder);
    snprintf(npy, sizeof npy, "%s/std.npy", folder);
    snprintf(text, sizeof text, "%s:/climate/mean", h5);
    snprintf(missing, sizeof missing, "%s:mean", h5);
    put_numbers(h5, mean);
    put_npy(npy, std);
    settings.mean = text, settings.std = npy;
    tr_preprocess_t *told = resolve(&sources), *none = NULL;
    assert_int_equal(told->input.mean.count, C);
    for (int c = 0; c < C; c++)
        assert_true(told->input.mean.data[c] == mean[c] &&
                    told->input.std.data[c] == (float)std[c]);
    unlink(h5), unlink(npy);
    sources.kept = told; /* a checkpoint has the numbers */
    tr_preprocess_t *again = resolve(&sources);
    assert_true(again->input.mean.data[2] == mean[2]);
    tr_preprocess_destroy(&again);
    sources.kept = NULL;
    assert_int_equal(tr_preprocess_resolve(&sources, &none), TR_ERR_NOINPUT);
    assert_names(tr_error_last()->message, "data.mean & stats.h5");
    put_numbers(h5, mean);
    settings.mean = missing;
    assert_int_equal(tr_preprocess_resolve(&sources, &none), TR_ERR_CONFIG);
    assert_names(tr_error_last()->message, "data.mean & stats.h5 & 'mean'");
    settings.mean = "0", settings.std = text; /* -2 */
    assert_int_equal(tr_preprocess_resolve(&sources, &none), TR_ERR_CONFIG);
    assert_names(tr_error_last()->message, "data.std & positive & stats.h5");
    tr_error_clear();
    unlink(h5);
    rmdir(folder);
    tr_preprocess_destroy(&told);
}

/* What weights were trained on rules where keys leave it open; what they may begin with, where
 * nothing else is known. */
static void weights_bring_their_own(void **state) {
    moments_set_t set = make_set(TR_F32, 50, 5);
    float own[] = {49}, kept_mean[] = {7}, kept_std[] = {2};
    tr_data_settings_t settings = test_settings();
    tr_preprocess_t weights = {
        .field = {{.name = "x"}}, .field_count = 1, .origin = (char *)"weights"};
    weights.input.mean.data = kept_mean, weights.input.std.data = kept_std;
    weights.input.mean.count = weights.input.std.count = 1;
    tr_preprocess_sources_t sources = {
        .settings = &settings, .info = &set.base.info, .train = &set.base, .kept = &weights};
    set.base.info.mean.data = own, set.base.info.mean.count = 1;
    settings.mean = "compute";
    tr_preprocess_t *told = resolve(&sources);
    check_numbers(&told->input, 1, 7, 2);
    assert_int_equal(set.reads, 0);
    tr_preprocess_destroy(&told);
    settings.mean = "3";
    told = resolve(&sources);
    check_numbers(&told->input, 1, 3, 2);
    tr_preprocess_destroy(&told);

    tr_log_set_level(TR_LOG_ERROR);
    settings.mean = "auto";
    sources.kept = NULL, sources.init = &weights;
    told = resolve(&sources);
    check_numbers(&told->input, 1, 49, 1); /* the data's own come first */
    tr_preprocess_destroy(&told);
    set.base.info.mean.count = 0;
    told = resolve(&sources);
    check_numbers(&told->input, 1, 7, 2);
    tr_preprocess_destroy(&told);
    weights.field[0].dtype = TR_U8; /* of other units */
    told = resolve(&sources);
    check_numbers(&told->input, 0, 0, 1);
    tr_preprocess_destroy(&told);
    sources.init = NULL, sources.train = NULL, settings.std = "compute";
    assert_int_equal(tr_preprocess_resolve(&sources, &told), TR_ERR_CONFIG);
    assert_null(told);
}

static void keys_that_do_not_fit_are_refused(void **state) {
    static const char *const bad[] = {"grey", "1,2", "1,2,3,4", "1e39", ""};
    moments_set_t set = make_set(TR_F32, 0, 1);
    tr_data_settings_t settings = test_settings();
    const tr_preprocess_sources_t sources = {
        .settings = &settings, .info = &set.base.info, .train = &set.base};
    tr_preprocess_t *told = NULL;
    for (int i = 0; i < 4; i++) {
        settings.mean = bad[i];
        assert_int_equal(tr_preprocess_resolve(&sources, &told), TR_ERR_CONFIG);
        assert_non_null(strstr(tr_error_last()->message, "data.mean"));
    }
    settings.mean = "auto";
    settings.std = "0";
    assert_int_equal(tr_preprocess_resolve(&sources, &told), TR_ERR_CONFIG);
    settings.std = "1", settings.target_std = "-1";
    assert_int_equal(tr_preprocess_resolve(&sources, &told), TR_ERR_CONFIG);
    assert_non_null(strstr(tr_error_last()->message, "data.target_std"));
    settings.target_std = "1,2", settings.target_mean = "1,2,3";
    assert_int_equal(tr_preprocess_resolve(&sources, &told), TR_ERR_CONFIG);
}

/* Every bit of a float, any number of them, and names. */
static void json_keeps_everything(void **state) {
    enum { WIDE = 20000 };
    tr_preprocess_t *was = NULL, *is = NULL;
    tr_str_t differences = {0};
    OK(tr_alloc(sizeof *was, "test", &was));
    was->field[0] = (tr_field_t){.name = "x", .dtype = TR_I16, .shape = TR_SHAPE(7, 5, WIDE)};
    was->field_count = 1, was->classes = 2, was->decodes = true;
    for (int i = 0; i < WIDE; i++) {
        OK(tr_vec_push(&was->input.mean, (float)sin(i) * 1e-3f));
        OK(tr_vec_push(&was->input.std, (float)exp(i % 40)));
    }
    OK(tr_alloc(2 * sizeof(char *), "test", &was->names[TR_NAMES_CLASSES].name));
    was->names[TR_NAMES_CLASSES].count = 2;
    OK(tr_strdup("chat", &was->names[TR_NAMES_CLASSES].name[0]));
    OK(tr_strdup("K\xc3\xbchl", &was->names[TR_NAMES_CLASSES].name[1]));
    json_t *data = tr_preprocess_json(was);
    assert_non_null(data);
    OK(tr_preprocess_from_json(data, "here", &is));
    json_decref(data);
    assert_int_equal(is->field[0].dtype, TR_I16);
    assert_int_equal(is->classes, 2);
    assert_true(is->decodes);
    assert_true(tr_shape_equal(&is->field[0].shape, &was->field[0].shape));
    assert_int_equal(is->input.mean.count, WIDE);
    assert_memory_equal(is->input.mean.data, was->input.mean.data, WIDE * sizeof(float));
    assert_memory_equal(is->input.std.data, was->input.std.data, WIDE * sizeof(float));
    assert_string_equal(is->names[TR_NAMES_CLASSES].name[1], "K\xc3\xbchl");
    tr_preprocess_compare(was, is, &differences);
    assert_int_equal(differences.length, 0);
    is->input.mean.data[WIDE - 1] += 1;
    tr_preprocess_compare(was, is, &differences);
    assert_non_null(strstr(differences.text, "data.mean: "));
    assert_null(strstr(differences.text, "data.std: "));
    tr_str_free(&differences);
    tr_preprocess_destroy(&is);
    tr_preprocess_destroy(&was);

    /* An older checkpoint's: bytes to 0 to 1, a table's width, no targets. */
    data = json_loads(
        "{\"mean\": \"0\", \"std\": \"255\", \"x\": \"u8\", \"inputs\": 4, \"classes\": 3}", 0,
        NULL);
    OK(tr_preprocess_from_json(data, "there", &is));
    json_decref(data);
    assert_false(is->decodes);
    check_numbers(&is->input, 1, 0, 255);
    check_numbers(&is->target, 0, 0, 1);
    assert_int_equal(is->field_count, 1);
    const tr_field_t *x = tr_preprocess_field(is, "x");
    assert_true(x->dtype == TR_U8 && x->shape.ndim == 1 && x->shape.dim[0] == 4);
    assert_int_equal(x->sample_bytes, 4);
    tr_preprocess_destroy(&is);
    OK(tr_preprocess_from_json(NULL, "nowhere", &is));
    assert_null(is);
}

/* All inputs, in their order; another data set must have each of them, with its type and shape. */
static void fields_are_kept(void **state) {
    moments_set_t set = make_set(TR_F32, 0, 1);
    tr_dataset_info_t *info = &set.base.info;
    const tr_data_settings_t settings = test_settings();
    const tr_preprocess_sources_t sources = {.settings = &settings, .info = info};
    tr_preprocess_t *is = NULL;
    info->field_count = 4;
    info->field[2] = info->field[0];
    info->field[0] = (tr_field_t){"user", TR_I32, {0}, 4, TR_FIELD_TOKENS};
    info->field[3] = (tr_field_t){"item", TR_F32, TR_SHAPE(2, 5), 40, TR_FIELD_VALUES};
    tr_preprocess_t *was = resolve(&sources);
    json_t *data = tr_preprocess_json(was);
    OK(tr_preprocess_from_json(data, "here", &is));
    json_decref(data);
    assert_int_equal(is->field_count, 3);
    for (int f = 0; f < 3; f++) {
        static const int at[] = {0, 2, 3};
        const tr_field_t *expected = &info->field[at[f]];
        assert_string_equal(is->field[f].name, expected->name);
        assert_int_equal(is->field[f].dtype, expected->dtype);
        assert_int_equal(is->field[f].kind, expected->kind);
        assert_int_equal(is->field[f].sample_bytes, expected->sample_bytes);
        assert_true(tr_shape_equal(&is->field[f].shape, &expected->shape));
    }
    OK(tr_preprocess_match(is, info, false));
    info->field[3].shape.dim[1] = 6;
    assert_int_equal(tr_preprocess_match(is, info, false), TR_ERR_DATA);
    assert_non_null(strstr(tr_error_last()->message, "'item'"));
    info->field_count = 3;
    assert_int_equal(tr_preprocess_match(is, info, false), TR_ERR_DATA);
    tr_preprocess_destroy(&is);
    tr_preprocess_destroy(&was);
}

/* Labels 0, 1, 3 of 4 classes: of sample i, 3 where i % 10 is 9, 1 from 6 on, else 0; -1 each 100. */
static tr_status_t read_labels(tr_dataset_t *dataset, int64_t first, int64_t count,
                               void *const *dst) {
    int32_t *y = dst[1];
    assert_null(dst[0]);
    for (int64_t i = first; i < first + count; i++)
        y[i - first] = i % 100 == 0 ? -1 : i % 10 == 9 ? 3 : i % 10 >= 6 ? 1 : 0;
    return TR_OK;
}

static void balanced_class_weights(void **state) {
    static const tr_dataset_ops_t label_ops = {
        .name = "labels", .close = close_set, .read = read_labels};
    moments_set_t set = make_set(TR_F32, 0, 1);
    const tr_data_settings_t settings = test_settings();
    tr_preprocess_sources_t sources = {.settings = &settings,
                                       .info = &set.base.info,
                                       .train = &set.base,
                                       .classes = 4,
                                       .balances = true};
    tr_preprocess_t *told = NULL, *is = NULL, *kept;
    set.base.ops = &label_ops;
    set.base.info.field[1] = (tr_field_t){"y", TR_I32, {0}, 4, TR_FIELD_LABELS};
    told = resolve(&sources);
    /* as compute_class_weight("balanced") of scikit-learn, which knows no class that is absent */
    const double expected[] = {990 / (3.0 * 590), 990 / (3.0 * 300), 1, 990 / (3.0 * 100)};
    assert_int_equal(told->class_weights.count, 4);
    for (int c = 0; c < 4; c++)
        assert_true(fabs((double)told->class_weights.data[c] - expected[c]) < 1e-6);
    json_t *data = tr_preprocess_json(told);
    OK(tr_preprocess_from_json(data, "here", &is));
    json_decref(data);
    sources.kept = is, sources.train = NULL; /* eval */
    kept = resolve(&sources);
    assert_int_equal(kept->class_weights.count, 4);
    assert_memory_equal(kept->class_weights.data, told->class_weights.data, 4 * sizeof(float));
    tr_preprocess_destroy(&kept);
    sources.kept = NULL;
    assert_int_equal(tr_preprocess_resolve(&sources, &kept), TR_ERR_CONFIG);
    sources.balances = false;
    kept = resolve(&sources);
    assert_int_equal(kept->class_weights.count, 0);
    tr_preprocess_destroy(&kept);
    tr_preprocess_destroy(&is);
    tr_preprocess_destroy(&told);
}

/* MEAN DEVIATION of the data, the keys, and what the sentence has; "" none. */
static void the_check_sees_what_comes_out(void **state) {
    static const struct {
        tr_dtype_t type;
        double mean, deviation;
        const char *key_mean, *key_std, *expected;
    } cases[] = {
        {TR_F32, 0.5, 0.3, "auto", "auto", ""},
        {TR_U8, 120, 60, "auto", "auto", ""},
        {TR_U8, 120, 60, "125.3,123,113.9", "63,62.1,66.7", ""},
        {TR_F32, 0.5, 0.25, "125.3", "63", "0 to 1,"},
        {TR_U8, 120, 60, "0.4914", "0.2470", "0 to 255,"},
        {TR_F32, 5, 1, "auto", "auto", "they are not normalised"},
        {TR_F32, 2.9, 1, "auto", "auto", ""},
        {TR_F32, 0, 1, "0.1307", "0.3081", "data.mean = 0 and data.std = 1"},
        {TR_F32, 0, 1, "0.05", "1.1", ""},
        {TR_F32, 0, 11, "auto", "auto", "data.mean=compute data.std=compute"},
        {TR_F32, 0, 0.09, "auto", "auto", "deviation 0.09 "},
        {TR_F32, 0, 0, "auto", "auto", ""}, /* what never varies has no deviation to set */
        {TR_F32, 123456, 0, "auto", "auto", "mean 1.235e+05"},
        {TR_F32, 123456, 700, "compute", "compute", ""},
        {TR_F32, 123456, 0, "compute", "compute", ""},
    };
    for (size_t i = 0; i < TR_COUNT(cases); i++) {
        moments_set_t set = make_set(cases[i].type, cases[i].mean, cases[i].deviation);
        tr_data_settings_t settings = test_settings();
        settings.mean = cases[i].key_mean, settings.std = cases[i].key_std;
        const tr_preprocess_sources_t sources = {
            .settings = &settings, .info = &set.base.info, .train = &set.base};
        tr_preprocess_t *told = resolve(&sources);
        tr_sample_stats_t stats;
        tr_str_t text = {0};
        OK(tr_preprocess_sample(&set.base, &stats));
        tr_preprocess_check(told, &stats, TR_CHECK_TRAINING_INPUTS, &text);
        if (!*cases[i].expected ? text.length > 0
                                : !text.text || !strstr(text.text, cases[i].expected))
            fail_msg("case %zu: expected '%s' in '%s'", i, cases[i].expected,
                     text.text ? text.text : "");
        tr_str_free(&text);
        tr_free(&stats.of);
        tr_preprocess_destroy(&told);
    }
}

static void a_table_of_another_width_is_refused(void **state) {
    moments_set_t set = make_set(TR_F32, 0, 1);
    tr_preprocess_t told = {.field = {{.name = "x", .shape = TR_SHAPE(C)}}, .field_count = 1};
    OK(tr_preprocess_match(&told, &set.base.info, false));
    told.field[0].shape = TR_SHAPE(C + 1);
    assert_int_equal(tr_preprocess_match(&told, &set.base.info, false), TR_ERR_DATA);
    assert_non_null(strstr(tr_error_last()->message, "4 inputs"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_attributes_and_the_data_rule_in_turn),
                                       cmocka_unit_test(numbers_may_be_in_a_file),
                                       cmocka_unit_test(weights_bring_their_own),
                                       cmocka_unit_test(keys_that_do_not_fit_are_refused),
                                       cmocka_unit_test(json_keeps_everything),
                                       cmocka_unit_test(fields_are_kept),
                                       cmocka_unit_test(balanced_class_weights),
                                       cmocka_unit_test(the_check_sees_what_comes_out),
                                       cmocka_unit_test(a_table_of_another_width_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
