/* trainer predict, run as a user does: a row for each sample in their order, for any number of
 * ranks. The files are read back with the library's own reader. */
//TEST timeout=240
#include "datatools/datatools.h"
#include "base/mem.h"
#include "base/rng.h"

#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>
#include "../../support/ok.h"

enum { SIDE = 6, PIXELS = SIDE * SIDE, CLASSES = 5, TRAIN = 400, TEST = 103 };

/* -- running ----------------------------------------------------------------------------------- */

/* The program on `ranks` ranks; its exit code. Output goes to ./out and ./err. */
static int trainer(int ranks, const char *format, ...) {
    char arguments[2000], command[4000];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    /* MPI never frees some of what it allocates. */
    int length = snprintf(command, sizeof command,
                          "ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS} ");
    if (ranks > 1)
        length += snprintf(command + length, sizeof command - (size_t)length, "'%s' -np %d ",
                           getenv("MPIEXEC"), ranks);
    snprintf(command + length, sizeof command - (size_t)length, "'%s' %s >out 2>err",
             getenv("TRAINER"), arguments);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool says(const char *path, const char *words) {
    char command[600];
    snprintf(command, sizeof command, "grep -q -- '%s' '%s'", words, path);
    return system(command) == 0;
}

/* -- files ------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t x[PIXELS];
    int32_t y;
    float target[2];
} sample_t;

/* A dark picture with one bright row, which is its class, in noise: easy, but not for a few steps
 * of training. */
static void make_sample(int index, sample_t *out) {
    tr_rng_t rng = tr_rng_make(7, TR_RNG_SYNTHETIC, 0, (uint64_t)index);
    out->y = (int32_t)tr_rng_below(&rng, CLASSES);
    for (int i = 0; i < PIXELS; i++)
        out->x[i] =
            (uint8_t)(i / SIDE == out->y ? 90 + tr_rng_below(&rng, 120) : tr_rng_below(&rng, 120));
    out->target[0] = 3 * (float)out->y;
    out->target[1] = (float)out->x[0] / 100;
}

typedef struct {
    const char *path, *group;
    int first, count;
    bool reversed, wide; /* wide: x as f32 */
    enum { NO_Y, CLASS_Y, TARGET_Y, BAD_Y } y;
} content_t;

static void append(tr_writer_t *w, const content_t *c, int x, int y) {
    for (int i = 0; i < c->count; i++) {
        sample_t s;
        float wide[PIXELS];
        make_sample(c->first + (c->reversed ? c->count - 1 - i : i), &s);
        for (int k = 0; k < PIXELS; k++) wide[k] = s.x[k];
        if (c->y == BAD_Y) s.y = -1;
        OK(tr_writer_append(w, x, 1, c->wide ? (void *)wide : s.x));
        if (c->y != NO_Y)
            assert_int_equal(tr_writer_append(w, y, 1, c->y == TARGET_Y ? (void *)s.target : &s.y),
                             TR_OK);
    }
}

static void put(tr_writer_t *w, const content_t *c) {
    int x = -1, y = -1;
    char name[64];
    snprintf(name, sizeof name, "%sx", c->group);
    assert_int_equal(
        tr_writer_array(w, name, c->wide ? TR_F32 : TR_U8, c->count, &TR_SHAPE(SIDE, SIDE, 1), &x),
        TR_OK);
    snprintf(name, sizeof name, "%sy", c->group);
    if (c->y != NO_Y)
        assert_int_equal(tr_writer_array(w, name, c->y == TARGET_Y ? TR_F32 : TR_I32, c->count,
                                         c->y == TARGET_Y ? &TR_SHAPE(2) : &(tr_shape_t){0}, &y),
                         TR_OK);
    append(w, c, x, y);
}

static void make_file(const content_t *contents, int count, bool moments) {
    tr_writer_t *w = NULL;
    assert_int_equal(tr_writer_create(contents->path, &(tr_writer_params_t){.force = true}, &w),
                     TR_OK);
    if (moments) {
        OK(tr_writer_numbers(w, "/", "mean", 1, &(double){70}));
        OK(tr_writer_numbers(w, "/", "std", 1, &(double){35}));
    }
    for (int i = 0; i < count; i++) put(w, &contents[i]);
    OK(tr_writer_commit(w));
    tr_writer_destroy(&w);
}

static void make_config(const char *path, const char *train, const char *layers) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "threads = 1\n[model]\nlayers = flatten, linear 16, relu, %s\n"
            "[data]\ntrain = %s\nbatch_size = 40\nmicro_batch = 8\n"
            "[optimizer]\nlr = 0.003\n[train]\nsteps = 40\nvalid_every = 0\n",
            layers, train);
    fclose(file);
}

/* An array of a file as `width` floats a row. */
static float *read_array(const char *path, const char *name, int64_t rows, int64_t width) {
    tr_data_settings_t settings = {.format = "hdf5",
                                   .train = path,
                                   .valid = "",
                                   .test = "",
                                   .x = name,
                                   .y = "",
                                   .mean = "auto",
                                   .std = "auto",
                                   .classes = 0,
                                   .workers = 1};
    tr_dataset_t *d = NULL;
    float *out = NULL;
    OK(tr_dataset_open_inputs(&settings, TR_SPLIT_TRAIN, &d));
    assert_int_equal(d->info.samples, rows);
    assert_int_equal(tr_shape_elems(&d->info.field[0].shape), width);
    assert_int_equal(d->info.field_count, 1);
    OK(tr_alloc((size_t)(rows * width) * sizeof *out, "array", &out));
    int32_t *integers = (int32_t *)(void *)out;
    assert_int_equal(d->ops->read(d, 0, rows, (void *[]){out}), TR_OK);
    for (int64_t i = 0; d->info.field[0].dtype == TR_I32 && i < rows * width; i++)
        out[i] = (float)integers[i];
    tr_dataset_close(&d);
    return out;
}

static double largest_difference(const char *a, const char *b, const char *name, int64_t rows,
                                 int64_t width, bool reversed) {
    float *one = read_array(a, name, rows, width), *two = read_array(b, name, rows, width);
    float largest = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < width; k++)
            largest = fmaxf(largest, fabsf(one[i * width + k] -
                                           two[(reversed ? rows - 1 - i : i) * width + k]));
    tr_free(&one);
    tr_free(&two);
    return largest;
}

/* -- tests ------------------------------------------------------------------------------------- */

/* The training file carries the moments of its pixels; the others do not, and have to be scaled by
 * the same. */
static int make_all(void **state) {
    make_file((content_t[]){{"train.h5", "train/", 0, TRAIN, .y = CLASS_Y},
                            {"train.h5", "test/", TRAIN, TEST, .y = CLASS_Y}},
              2, true);
    make_file(&(content_t){"in.h5", "", TRAIN, TEST, .y = NO_Y}, 1, false);
    make_file(&(content_t){"reversed.h5", "", TRAIN, TEST, .reversed = true, .y = BAD_Y}, 1, false);
    make_file(&(content_t){"wide.h5", "", TRAIN, TEST, .wide = true}, 1, false);
    make_config("classes.ini", "train.h5", "linear 5");
    return trainer(1, "classes.ini run.dir=run") == 0 &&
                   trainer(1, "predict classes.ini run in.h5 out.h5") == 0
               ? 0
               : -1;
}

static void test_rows(void **state) {
    float *prediction = read_array("out.h5", "prediction", TEST, 1),
          *probability = read_array("out.h5", "probability", TEST, CLASSES);
    int right = 0;
    for (int i = 0; i < TEST; i++) {
        sample_t s;
        double sum = 0;
        int best = 0;
        for (int c = 0; c < CLASSES; c++) {
            sum += probability[i * CLASSES + c];
            if (probability[i * CLASSES + c] > probability[i * CLASSES + best]) best = c;
        }
        make_sample(TRAIN + i, &s);
        assert_true(fabs(sum - 1) < 1e-5);
        assert_int_equal(prediction[i], best);
        right += (int)prediction[i] == s.y;
    }
    tr_free(&prediction);
    tr_free(&probability);
    /* As many as eval finds right: the same weights, normalisation and order. */
    json_t *result = NULL;
    assert_int_equal(trainer(1, "eval classes.ini run --json eval.json"), 0);
    assert_non_null(result = json_load_file("eval.json", 0, NULL));
    assert_int_equal(json_integer_value(json_object_get(result, "samples")), TEST);
    assert_true(fabs(json_real_value(json_object_get(result, "accuracy")) - (double)right / TEST) <
                1e-9);
    assert_in_range(right, TEST / 2, TEST - 1);
    json_decref(result);
}

static void test_ranks(void **state) {
    for (int ranks = 2; ranks <= 3; ranks++) {
        assert_int_equal(trainer(ranks, "predict classes.ini run in.h5 ranks.h5 --force"), 0);
        assert_true(says("out", "103.*in.h5"));
        assert_true(largest_difference("out.h5", "ranks.h5", "prediction", TEST, 1, false) == 0);
        assert_true(largest_difference("out.h5", "ranks.h5", "probability", TEST, CLASSES, false) <
                    1e-6);
    }
    /* Fewer samples than a rank takes, and batches of which the last rank gets none. */
    assert_int_equal(trainer(3, "predict classes.ini run in.h5 few.h5 data.limit=3"), 0);
    float *few = read_array("few.h5", "prediction", 3, 1),
          *all = read_array("out.h5", "prediction", TEST, 1);
    assert_memory_equal(few, all, 3 * sizeof *few);
    tr_free(&few);
    tr_free(&all);
}

/* Labels that are no classes (-1, as test sets without answers have them) are not looked at. */
static void test_sampler_and_labels(void **state) {
    assert_int_equal(trainer(1, "predict classes.ini run reversed.h5 backwards.h5"), 0);
    assert_true(largest_difference("out.h5", "backwards.h5", "probability", TEST, CLASSES, true) <
                1e-6);
    assert_int_equal(trainer(1, "predict classes.ini run train.h5:test group.h5"), 0);
    assert_true(largest_difference("out.h5", "group.h5", "probability", TEST, CLASSES, false) <
                1e-6);
}

static void test_other_types(void **state) {
    assert_int_equal(trainer(1, "predict classes.ini run wide.h5 widened.h5"), 0);
    assert_true(says("err", "f32.*u8"));
    assert_true(largest_difference("out.h5", "widened.h5", "probability", TEST, CLASSES, false) <
                1e-6);
}

static void test_refusals(void **state) {
    glob_t left;
    assert_int_equal(trainer(1, "predict classes.ini run in.h5 out.h5"), TR_ERR_CONFIG);
    assert_true(says("err", "out.h5.*--force"));
    assert_int_equal(trainer(2, "predict classes.ini run in.h5 in.h5 --force"), TR_ERR_USAGE);
    assert_true(says("err", "in.h5"));
    assert_int_equal(trainer(1, "predict classes.ini run ./train.h5:test train.h5 --force"),
                     TR_ERR_USAGE);
    assert_int_equal(trainer(1, "predict classes.ini run none.h5 new.h5"), TR_ERR_NOINPUT);
    assert_int_equal(trainer(1, "predict classes.ini run in.h5"), TR_ERR_USAGE);
    assert_int_equal(trainer(1, "predict classes.ini run in.h5 new.h5 data.classes=4"),
                     TR_ERR_CONFIG);
    assert_int_equal(trainer(1, "predict classes.ini run in.h5 none/new.h5"), TR_ERR_NOINPUT);
    /* Data that cannot be read to the end leave nothing behind. */
    assert_int_equal(system("cp in.h5 torn.h5 && truncate -s -40 torn.h5"), 0);
    assert_int_not_equal(trainer(1, "predict classes.ini run torn.h5 new.h5"), 0);
    assert_int_equal(glob("*part*", 0, NULL, &left), GLOB_NOMATCH);
    assert_int_equal(glob("new.h5", 0, NULL, &left), GLOB_NOMATCH);
}

/* A bare file of weights says what they were trained on in its metadata; others' do not. */
static void test_bare_weights(void **state) {
    assert_int_equal(
        system("cp run/checkpoints/latest/model.safetensors ours.safetensors && "
               "sed 's/\"trainer\":/\"another\":/' ours.safetensors >bare.safetensors"),
        0);
    assert_int_equal(trainer(1, "predict classes.ini ours.safetensors in.h5 ours.h5"), 0);
    assert_true(largest_difference("out.h5", "ours.h5", "probability", TEST, CLASSES, false) <
                1e-6);
    assert_int_equal(trainer(1, "predict classes.ini bare.safetensors in.h5 bare.h5"),
                     TR_ERR_CONFIG);
    assert_true(says("err", "data.classes"));
    assert_int_equal(trainer(1, "predict classes.ini bare.safetensors in.h5 bare.h5 data.classes=5 "
                                "data.mean=70 data.std=35"),
                     0);
    assert_true(largest_difference("out.h5", "bare.h5", "probability", TEST, CLASSES, false) <
                1e-6);
}

static void test_regression(void **state) {
    make_file((content_t[]){{"numbers.h5", "train/", 0, TRAIN, .y = TARGET_Y},
                            {"numbers.h5", "test/", TRAIN, TEST, .y = TARGET_Y}},
              2, true);
    make_config("numbers.ini", "numbers.h5", "linear 2");
    assert_int_equal(trainer(1, "numbers.ini run.dir=numbers"), 0);
    assert_int_equal(trainer(1, "predict numbers.ini numbers in.h5 one.h5"), 0);
    assert_int_equal(trainer(3, "predict numbers.ini numbers in.h5 three.h5"), 0);
    assert_true(largest_difference("one.h5", "three.h5", "prediction", TEST, 2, false) < 1e-5);
    assert_int_equal(trainer(1, "predict numbers.ini numbers in.h5 no.h5 --probabilities"),
                     TR_ERR_USAGE);
    /* Mean squared error by hand and by eval. */
    float *prediction = read_array("one.h5", "prediction", TEST, 2);
    double squared = 0;
    for (int i = 0; i < TEST; i++) {
        sample_t s;
        make_sample(TRAIN + i, &s);
        for (int k = 0; k < 2; k++)
            squared += pow(prediction[2 * i + k] - s.target[k], 2) / (2 * TEST);
    }
    tr_free(&prediction);
    json_t *result = NULL;
    assert_int_equal(trainer(1, "eval numbers.ini numbers --json eval.json"), 0);
    assert_non_null(result = json_load_file("eval.json", 0, NULL));
    const double found = json_real_value(json_object_get(json_object_get(result, "mean"), "mse"));
    assert_true(fabs(found - squared) < 1e-5 * squared);
    json_decref(result);
}

/* Probabilities of very many classes are written only when asked for. */
static void test_many_classes(void **state) {
    make_config("many.ini", "train.h5", "linear 1001");
    assert_int_equal(trainer(1, "many.ini run.dir=many data.classes=1001 train.steps=1"), 0);
    assert_int_equal(trainer(1, "predict many.ini many in.h5 without.h5"), 0);
    assert_int_equal(trainer(1, "predict many.ini many in.h5 with.h5 --probabilities"), 0);
    assert_true(largest_difference("without.h5", "with.h5", "prediction", TEST, 1, false) == 0);
    float *probability = read_array("with.h5", "probability", TEST, 1001);
    assert_true(probability[0] > 0 && probability[0] < 1);
    tr_free(&probability);
    tr_dataset_t *d = NULL;
    tr_data_settings_t settings = {.format = "hdf5",
                                   .train = "without.h5",
                                   .valid = "",
                                   .test = "",
                                   .x = "probability",
                                   .y = "",
                                   .mean = "auto",
                                   .std = "auto",
                                   .workers = 1};
    assert_int_equal(tr_dataset_open_inputs(&settings, TR_SPLIT_TRAIN, &d), TR_ERR_NOINPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_sampler_and_labels),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bare_weights),
        cmocka_unit_test(test_regression),
        cmocka_unit_test(test_many_classes),
    };
    if (!getenv("TRAINER") || !getenv("MPIEXEC")) {
        puts("skipped: tools/run-tests says where the program is");
        return 77;
    }
    return cmocka_run_group_tests(tests, make_all, NULL);
}
