/* Synthetic data: drawn digits (28 x 28), or images and volumes of noise with a pattern for each
 * class. */
#include "import_int.h"
#include "base/rng.h"
#include <string.h>

#define TEST_PART 6 /* training samples per test sample */

static const char *const group_x[] = {"train/x", "test/x"}, *const group_y[] = {"train/y",
                                                                                "test/y"};

typedef struct {
    const tr_import_params_t *params;
    tr_writer_t *writer;
    int64_t samples[2], done;
    int x[2], y[2]; /* arrays of the writer */
    tr_moments_t moments;
    tr_stats_t targets; /* of the training targets, if they are numbers */
} import_t;

/* All of them before the first sample, so that a disk that is too small is noticed. */
static tr_status_t create_arrays(import_t *m, const tr_field_t *x, const tr_field_t *y) {
    for (int g = 0; g < 2; g++) {
        const int64_t count = m->samples[g];
        TR_TRY(tr_writer_array(m->writer, group_x[g], x->dtype, count, &x->shape, &m->x[g]));
        TR_TRY(tr_writer_array(m->writer, group_y[g], y->dtype, count, &y->shape, &m->y[g]));
    }
    return TR_OK;
}

static tr_status_t digits_group(import_t *m, int group, uint8_t *x, uint8_t *y) {
    const int64_t image = TR_DIGIT_SIDE * TR_DIGIT_SIDE;
    for (int64_t i = 0; i < m->samples[group]; i += IMPORT_ROWS) {
        int64_t count = min64(IMPORT_ROWS, m->samples[group] - i);
#pragma omp parallel for schedule(dynamic, 50)
        for (int64_t j = 0; j < count; j++) {
            int64_t sample = i + j + ((int64_t)group << 40);
            y[j] =
                (uint8_t)(tr_rng_philox(m->params->seed, TR_RNG_SYNTHETIC, 5, (uint64_t)sample, 0)
                              .v[0] %
                          10);
            tr_digit_draw(m->params->seed, sample, y[j], x + j * image);
        }
        if (!group) tr_moments_add(&m->moments, TR_U8, x, count * image);
        TR_TRY(tr_writer_append(m->writer, m->x[group], count, x));
        TR_TRY(tr_writer_append(m->writer, m->y[group], count, y));
        m->done += count;
        TR_TRY(tr_import_progress(m->params, m->done, m->samples[0] + m->samples[1]));
    }
    return TR_OK;
}

static tr_status_t digits(import_t *m) {
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    const tr_field_t image = {.dtype = TR_U8, .shape = TR_SHAPE(TR_DIGIT_SIDE, TR_DIGIT_SIDE, 1)},
                     label = {.dtype = TR_U8};
    uint8_t *x = NULL, y[IMPORT_ROWS];
    TR_TRY(create_arrays(m, &image, &label));
    TR_TRY(tr_alloc((size_t)IMPORT_ROWS * TR_DIGIT_SIDE * TR_DIGIT_SIDE, "digits", &x));
    tr_status_t status = digits_group(m, 0, x, y);
    if (status == TR_OK) status = digits_group(m, 1, x, y);
    tr_free(&x);
    TR_TRY(status);
    TR_TRY(tr_moments_write(&m->moments, m->writer));
    tr_import_say_classes(m->params, 10, names);
    return tr_writer_texts(m->writer, "/", "class_names", 10, names);
}

/* Copies a split of the data set `synthetic`. */
static tr_status_t noise_group(import_t *m, int group, tr_dataset_t *dataset, char *x, char *y) {
    const tr_field_t *fx = &dataset->info.field[0], *fy = &dataset->info.field[1];
    int64_t at_once = max64(1, (1 << 20) / fx->sample_bytes);
    if (!group) TR_TRY(create_arrays(m, fx, fy));
    for (int64_t i = 0; i < m->samples[group]; i += at_once) {
        int64_t count = min64(at_once, m->samples[group] - i);
        void *dst[] = {x, y};
        TR_TRY(dataset->ops->read(dataset, i, count, dst));
        if (!group) tr_moments_add(&m->moments, fx->dtype, x, count * tr_shape_elems(&fx->shape));
        if (!group)
            tr_stats_add_values(&m->targets, 1, fy->dtype, y, count * tr_shape_elems(&fy->shape));
        TR_TRY(tr_writer_append(m->writer, m->x[group], count, x));
        TR_TRY(tr_writer_append(m->writer, m->y[group], count, y));
        m->done += count;
        TR_TRY(tr_import_progress(m->params, m->done, m->samples[0] + m->samples[1]));
    }
    return TR_OK;
}

static tr_status_t noise_split(import_t *m, int group, const tr_data_settings_t *settings) {
    tr_dataset_t *dataset = NULL;
    char *x = NULL, *y = NULL;
    TR_TRY(tr_dataset_open(settings, group ? TR_SPLIT_TEST : TR_SPLIT_TRAIN, &dataset));
    const tr_dataset_info_t *info = &dataset->info;
    int64_t channels = info->field[0].shape.dim[info->field[0].shape.ndim - 1];
    int64_t at_once = max64(1, (1 << 20) / info->field[0].sample_bytes);
    tr_status_t status = group ? TR_OK : tr_moments_begin(&m->moments, channels);
    if (status == TR_OK)
        status = tr_alloc((size_t)(at_once * info->field[0].sample_bytes), "samples", &x);
    if (status == TR_OK)
        status = tr_alloc((size_t)(at_once * info->field[1].sample_bytes), "labels", &y);
    if (status == TR_OK) status = noise_group(m, group, dataset, x, y);
    if (status == TR_OK && !group && info->classes)
        status = tr_writer_numbers(m->writer, "/", "classes", 1, &(double){(double)info->classes});
    if (!group && info->classes)
        tr_import_say_classes(m->params, info->classes, NULL);
    else if (!group)
        tr_import_say_numbers(m->params, tr_shape_elems(&info->field[1].shape), &m->targets);
    tr_free(&x);
    tr_free(&y);
    tr_dataset_close(&dataset);
    return status;
}

static tr_status_t noise(import_t *m, const char *shape, int64_t targets) {
    tr_data_settings_t settings = {.format = "synthetic",
                                   .classes = m->params->classes,
                                   .synthetic_shape = shape,
                                   .synthetic_targets = targets};
    for (int group = 0; group < 2; group++) {
        settings.synthetic_samples =
            group ? 8 * m->samples[1] : m->samples[0]; /* the data set uses an eighth for testing */
        TR_TRY(noise_split(m, group, &settings));
    }
    return tr_moments_write(&m->moments, m->writer);
}

static tr_status_t run(const char *in, const char *out, const tr_import_params_t *params) {
    static const struct {
        const char *what, *shape;
        int64_t samples;
    } kinds[] = {
        {"digits", "28x28x1", 12000}, {"images", "32x32x3", 6000}, {"volumes", "32x32x32x4", 600}};
    size_t kind = 0;
    while (kind < TR_COUNT(kinds) && (!params->what || strcmp(params->what, kinds[kind].what)))
        kind++;
    if (kind == TR_COUNT(kinds))
        return TR_FAIL(TR_ERR_USAGE,
                       "trainer import synthetic generates digits, images or volumes, not "
                       "'%s'.",
                       params->what ? params->what : "");
    if (kind == 0 && (params->shape || params->classes >= 0))
        return TR_FAIL(TR_ERR_USAGE,
                       "trainer import synthetic digits: digits always have the shape "
                       "28x28x1 and ten classes; remove --shape and --classes.");
    import_t m = {.params = params};
    m.samples[0] = params->samples > 0 ? params->samples : kinds[kind].samples;
    m.samples[1] = max64(1, m.samples[0] / TEST_PART);
    TR_TRY(tr_writer_create(out, &params->writer, &m.writer));
    const char *shape = params->shape ? params->shape : kinds[kind].shape;
    tr_status_t status =
        kind == 0 ? tr_moments_begin(&m.moments, 1) : noise(&m, shape, kind == 2 ? 4 : 1);
    if (status == TR_OK && kind == 0) status = digits(&m);
    if (status == TR_OK) status = tr_writer_commit(m.writer);
    tr_writer_destroy(&m.writer);
    tr_moments_free(&m.moments);
    return status;
}

const tr_importer_t tr_importer_synthetic = {
    "synthetic",
    "digits|images|volumes OUT.h5 [--samples N] [--shape SHAPE] [--classes N] [--seed N]",
    "Generates data: drawn digits, or noise with a pattern for each class. --samples: number of "
    "training samples, with a sixth as many test samples; by default 12000 digits, 6000 images or "
    "600 volumes. --shape: default 32x32x3, for volumes 32x32x32x4. --classes: default 10; 0 "
    "generates regression targets. --seed: default 0.",
    .run = run};
