/* Synthetic data: drawn digits (28 x 28), drawn shapes with masks, or images and volumes of noise
 * with a pattern for each class. */
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
static tr_status_t synthetic_create_arrays(import_t *m, const tr_field_t *x, const tr_field_t *y) {
    for (int g = 0; g < 2; g++) {
        const int64_t count = m->samples[g];
        TR_TRY(tr_writer_array(m->writer, group_x[g], x->dtype, count, &x->shape, &m->x[g]));
        TR_TRY(tr_writer_array(m->writer, group_y[g], y->dtype, count, &y->shape, &m->y[g]));
    }
    return TR_OK;
}

static tr_status_t synthetic_append(import_t *m, int group, int64_t count, const void *x,
                                    const void *y) {
    TR_TRY(tr_writer_append(m->writer, m->x[group], count, x));
    TR_TRY(tr_writer_append(m->writer, m->y[group], count, y));
    m->done += count;
    return tr_import_progress(m->params, m->done, m->samples[0] + m->samples[1]);
}

static void drawn_sample(const tr_import_params_t *params, const tr_field_t *image,
                         const tr_field_t *label, int64_t sample, int kinds, uint8_t *x,
                         uint8_t *y) {
    if (label->shape.ndim) {
        const int64_t channels = tr_shape_elems(&image->shape) / tr_shape_elems(&label->shape);
        tr_shapes_draw(params->seed, sample, kinds, &label->shape, (int)channels, x, y);
        return;
    }
    const tr_rng_block_t random =
        tr_rng_philox(params->seed, TR_RNG_SYNTHETIC, 5, (uint64_t)sample, 0);
    *y = (uint8_t)(random.v[0] % (unsigned)kinds);
    tr_digit_draw(params->seed, sample, *y, x);
}

/* Digits with their labels or, if the labels have a shape, shapes with their masks. kinds: of
 * digits or shapes. */
static tr_status_t synthetic_drawn(import_t *m, const tr_field_t *image, const tr_field_t *label,
                                   int kinds, int64_t classes, const char *const *names) {
    const int64_t pixels = tr_shape_elems(&image->shape), labels = tr_shape_elems(&label->shape),
                  at_once = min64(IMPORT_ROWS, max64(1, (16 << 20) / pixels));
    const int last = image->shape.ndim - 1;
    uint8_t *x = NULL, *y = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_moments_begin(&m->moments, label->shape.ndim <= last ? image->shape.dim[last] : 1));
    TR_TRY(synthetic_create_arrays(m, image, label));
    TR_TRY_GOTO(tr_alloc((size_t)(at_once * pixels), "drawn samples", &x), done);
    TR_TRY_GOTO(tr_alloc((size_t)(at_once * labels), "drawn samples", &y), done);
    for (int group = 0; group < 2; group++)
        for (int64_t i = 0; i < m->samples[group]; i += at_once) {
            const int64_t count = min64(at_once, m->samples[group] - i);
#pragma omp parallel for schedule(dynamic)
            for (int64_t j = 0; j < count; j++)
                drawn_sample(m->params, image, label, i + j + ((int64_t)group << 40), kinds,
                             x + j * pixels, y + j * labels);
            if (!group) tr_moments_add(&m->moments, TR_U8, x, count * pixels);
            TR_TRY_GOTO(synthetic_append(m, group, count, x, y), done);
        }
    TR_TRY_GOTO(tr_moments_write(&m->moments, m->writer), done);
    tr_import_say_classes(m->params, classes, names);
    TR_TRY_GOTO(tr_writer_texts(m->writer, "/", "class_names", classes, names), done);
done:
    tr_free(&x);
    tr_free(&y);
    return status;
}

static tr_status_t synthetic_digits(import_t *m) {
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    const tr_field_t image = {.dtype = TR_U8, .shape = TR_SHAPE(TR_DIGIT_SIDE, TR_DIGIT_SIDE, 1)},
                     label = {.dtype = TR_U8};
    return synthetic_drawn(m, &image, &label, 10, 10, names);
}

static tr_status_t synthetic_shapes(import_t *m, const char *shape) {
    static const char *const names[][4] = {{"background", "disc", "box", "triangle"},
                                           {"background", "ball", "box"}};
    tr_field_t image = {.dtype = TR_U8}, mask = {.dtype = TR_U8};
    TR_TRY(tr_data_parse_shape("--shape", shape, &image.shape));
    TR_TRY(tr_shapes_mask_shape(&image.shape, &mask.shape));
    const bool is_volume = mask.shape.ndim == 3;
    const int64_t most = is_volume ? 3 : 4,
                  classes = m->params->classes < 0 ? most : m->params->classes;
    if (classes < 2 || classes > most)
        return TR_FAIL(TR_ERR_USAGE,
                       "trainer import synthetic shapes: expected --classes from 2 to %lld, which "
                       "counts the background, found %lld.",
                       (long long)most, (long long)classes);
    return synthetic_drawn(m, &image, &mask, (int)classes - 1, classes, names[is_volume]);
}

/* Copies a split of the data set `synthetic`. */
static tr_status_t synthetic_noise_split(import_t *m, int group,
                                         const tr_data_settings_t *settings) {
    tr_dataset_t *dataset = NULL;
    char *x = NULL, *y = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_dataset_open(settings, group ? TR_SPLIT_TEST : TR_SPLIT_TRAIN, &dataset));
    const int64_t classes = dataset->info.classes;
    const tr_field_t *fx = &dataset->info.field[0], *fy = &dataset->info.field[1];
    const int64_t at_once = max64(1, (1 << 20) / fx->sample_bytes),
                  of_seed = (int64_t)(m->params->seed << 32); /* sample i is a function of i */
    if (!group) TR_TRY_GOTO(tr_moments_begin(&m->moments, fx->shape.dim[fx->shape.ndim - 1]), done);
    TR_TRY_GOTO(tr_alloc((size_t)(at_once * fx->sample_bytes), "samples", &x), done);
    TR_TRY_GOTO(tr_alloc((size_t)(at_once * fy->sample_bytes), "labels", &y), done);
    if (!group) TR_TRY_GOTO(synthetic_create_arrays(m, fx, fy), done);
    for (int64_t i = 0; i < m->samples[group]; i += at_once) {
        const int64_t count = min64(at_once, m->samples[group] - i);
        void *dst[] = {x, y};
        TR_TRY_GOTO(dataset->ops->read(dataset, of_seed + i, count, dst), done);
        if (!group) {
            tr_moments_add(&m->moments, fx->dtype, x, count * tr_shape_elems(&fx->shape));
            tr_stats_add_values(&m->targets, 1, fy->dtype, y, count * tr_shape_elems(&fy->shape));
        }
        TR_TRY_GOTO(synthetic_append(m, group, count, x, y), done);
    }
    if (!group && classes) {
        TR_TRY_GOTO(tr_writer_numbers(m->writer, "/", "classes", 1, &(double){(double)classes}),
                    done);
        tr_import_say_classes(m->params, classes, NULL);
    } else if (!group) {
        tr_import_say_numbers(m->params, tr_shape_elems(&fy->shape), &m->targets);
    }
done:
    tr_free(&x);
    tr_free(&y);
    tr_dataset_close(&dataset);
    return status;
}

static tr_status_t synthetic_import(const char *in, const char *out,
                                    const tr_import_params_t *params) {
    static const struct {
        const char *what, *shape;
        int64_t samples;
    } kinds[] = {{"digits", "28x28x1", 12000},
                 {"shapes", "64x64x1", 3000},
                 {"images", "32x32x3", 6000},
                 {"volumes", "32x32x32x4", 600}};
    size_t kind = 0;
    while (kind < TR_COUNT(kinds) && (!params->what || strcmp(params->what, kinds[kind].what)))
        kind++;
    if (kind == TR_COUNT(kinds))
        return TR_FAIL(TR_ERR_USAGE,
                       "trainer import synthetic generates digits, shapes, images or volumes, not "
                       "'%s'.",
                       params->what ? params->what : "");
    if (kind == 0 && (params->shape || params->classes >= 0))
        return TR_FAIL(TR_ERR_USAGE,
                       "trainer import synthetic digits: digits always have the shape "
                       "28x28x1 and ten classes; remove --shape and --classes.");
    import_t m = {.params = params};
    m.samples[0] = params->samples > 0 ? params->samples : kinds[kind].samples;
    m.samples[1] = max64(1, m.samples[0] / TEST_PART);
    const char *const shape = params->shape ? params->shape : kinds[kind].shape;
    tr_status_t status;
    TR_TRY(tr_writer_create(out, &params->writer, &m.writer));
    if (kind == 0) {
        TR_TRY_GOTO(synthetic_digits(&m), done);
    } else if (kind == 1) {
        TR_TRY_GOTO(synthetic_shapes(&m, shape), done);
    } else {
        /* The data set uses an eighth of its samples for testing. */
        tr_data_settings_t settings = {.format = "synthetic",
                                       .classes = params->classes,
                                       .synthetic_samples = m.samples[0],
                                       .synthetic_shape = shape,
                                       .synthetic_targets = kind == 3 ? 4 : 1};
        TR_TRY_GOTO(synthetic_noise_split(&m, 0, &settings), done);
        settings.synthetic_samples = 8 * m.samples[1];
        TR_TRY_GOTO(synthetic_noise_split(&m, 1, &settings), done);
        TR_TRY_GOTO(tr_moments_write(&m.moments, m.writer), done);
    }
    TR_TRY_GOTO(tr_writer_commit(m.writer), done);
done:
    tr_writer_destroy(&m.writer);
    tr_moments_free(&m.moments);
    return status;
}

const tr_importer_t tr_importer_synthetic = {
    "synthetic",
    "digits|shapes|images|volumes OUT.h5 [--samples N] [--shape SHAPE] [--classes N] [--seed N]",
    "Generates data: drawn digits; drawn shapes on a noisy ground, with the mask of their classes "
    "(0: background) as y; or noise with a pattern for each class. --samples: number of training "
    "samples, with a sixth as many test samples; by default 12000 digits, 3000 shapes, 6000 images "
    "or 600 volumes. --shape: default 32x32x3, for volumes 32x32x32x4, for shapes 64x64x1; shapes "
    "also have volumes (24x24x24x1) and samples without channels (64x64). --classes: default 10; 0 "
    "generates regression targets. For shapes, default 4 with the background (discs, boxes, "
    "triangles), for volumes 3 (balls, boxes). --seed: default 0.",
    .run = synthetic_import};
