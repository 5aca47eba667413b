/* Trainings on a program's own data set: samples without a label, and values that are not finite.
 */
//TEST timeout=120
//TEST np=2 timeout=120
#include "../../support/names.h"
#include "comm/comm.h"
#include "data/data.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "trainer/session.h"
#include "trainer/train.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../support/ok.h"

static tr_world_t *world;

/* -- pairs of equal samples, of which one may have no label ------------------------------------ */

enum { TRAIN = 48, VALID = 40, FEATURES = 4, NOWHERE = -1 };
enum { LANE = TRAIN / 4 /* samples of each of four slots in an epoch */, MICRO = 4 };
typedef enum { ALL, HALF /* of each pair */, FIRST /* step of each epoch */, NONE } labels_t;

static struct {
    labels_t labels;    /* that the training samples have */
    int64_t valid;      /* validation samples */
    int64_t labelled;   /* of them, the first ones */
    int64_t not_finite; /* the training sample that holds an infinity */
} made = {.valid = VALID, .not_finite = NOWHERE};

typedef struct {
    tr_dataset_t base; /* first */
    tr_split_t split;
} pairs_t;

static tr_status_t open_pairs(const tr_data_settings_t *settings, tr_split_t split,
                              tr_dataset_t **out) {
    (void)settings;
    pairs_t *self = NULL;
    if (split == TR_SPLIT_TEST) return TR_OK;
    TR_TRY(tr_alloc(sizeof *self, "pairs", &self));
    self->split = split;
    tr_dataset_info_t *info = &self->base.info;
    info->samples = split == TR_SPLIT_TRAIN ? TRAIN : made.valid;
    info->classes = 3;
    info->field_count = 2;
    info->field[0] =
        (tr_field_t){"x", TR_F32, TR_SHAPE(FEATURES), FEATURES * sizeof(float), TR_FIELD_VALUES};
    info->field[1] = (tr_field_t){"y", TR_I32, {0}, sizeof(int32_t), TR_FIELD_LABELS};
    info->fingerprint = 1 + split;
    snprintf(info->description, sizeof info->description, "pairs");
    *out = &self->base;
    return TR_OK;
}

static void close_pairs(tr_dataset_t *dataset) {
    pairs_t *self = (pairs_t *)dataset;
    tr_free(&self);
}

static bool has_label(const pairs_t *self, int64_t id) {
    if (self->split == TR_SPLIT_VALID) return id < made.labelled;
    return made.labels == ALL || (made.labels == HALF && id % 2 == 0) ||
           (made.labels == FIRST && id % LANE < MICRO);
}

static tr_status_t read_pairs(tr_dataset_t *dataset, int64_t first, int64_t count,
                              void *const *dst) {
    const pairs_t *self = (const pairs_t *)dataset;
    float *x = dst[0];
    int32_t *y = dst[1];
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = first + i, pair = id / 2;
        for (int64_t k = 0; x && k < FEATURES; k++)
            x[i * FEATURES + k] =
                (float)fmod((double)(pair * FEATURES + k + 1) * 0.7548776662466927, 1);
        if (x && self->split == TR_SPLIT_TRAIN && id == made.not_finite)
            x[i * FEATURES + 1] = INFINITY;
        if (y) y[i] = has_label(self, id) ? (int32_t)(pair % 3) : -1;
    }
    return TR_OK;
}

static const tr_dataset_ops_t pairs = {.name = "pairs",
                                       .help = "Pairs.",
                                       .open = open_pairs,
                                       .close = close_pairs,
                                       .read = read_pairs};

static const char text[] = "threads = 1\n"
                           "[model]\nlayers = linear 3\ntopk = 2\n"
                           "[data]\nformat = pairs\nbatch_size = 16\nmicro_batch = 4\nshuffle = 0\n"
                           "[optimizer]\ntype = sgd\nlr = 0.5\nclip_norm = 0\nema = 0\n"
                           "[schedule]\ntype = constant\n"
                           "[train]\nepochs = 2\n"
                           "[log]\nevery = 1\n";

/* with: settings, with blanks between them */
static tr_status_t train(const char *dir, const char *with) {
    const tr_train_params_t params = {.config_path = "labels.ini", .version = "test"};
    const tr_config_table_t *const *tables;
    tr_config_t *config = NULL;
    char run[64], settings[256];
    size_t count;
    snprintf(run, sizeof run, "run.dir=%s", dir);
    OK(tr_all_tables(&tables, &count));
    OK(tr_config_create(tables, count, &config));
    OK(tr_config_load_text(config, "labels.ini", text, sizeof text - 1));
    OK(tr_config_set(config, run, "test"));
    snprintf(settings, sizeof settings, "%s", with);
    for (char *rest, *one = strtok_r(settings, " ", &rest); one; one = strtok_r(NULL, " ", &rest))
        OK(tr_config_set(config, one, "test"));
    OK(tr_config_check(config));
    const tr_status_t status = tr_train(config, world, &params);
    tr_config_destroy(&config);
    return status;
}

/* A number of the run's summary, NaN where it is null. */
static double told(const char *dir, const char *key) {
    char path[64];
    snprintf(path, sizeof path, "%s/summary.json", dir);
    json_t *summary = json_load_file(path, 0, NULL);
    const json_t *value = json_object_get(summary, key);
    assert_non_null(value);
    const double number = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(summary);
    return number;
}

/* The sum of a column of the first lines of the training, NaN where one is null. */
static double column(const char *dir, const char *key, int count) {
    char path[64], line[1024];
    double sum = 0;
    int lines = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (lines < count && fgets(line, sizeof line, file)) {
        json_t *o = json_loads(line, 0, NULL);
        const json_t *value = json_object_get(o, key);
        if (json_object_get(o, "loss"))
            sum += json_is_number(value) ? json_number_value(value) : NAN, lines++;
        json_decref(o);
    }
    fclose(file);
    assert_int_equal(lines, count);
    return sum;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-5 * fabs(b);
}

/* One of each pair is as good as both: the same losses, gradients and scores. */
static void check_half(const char *how, const char *all, const char *half) {
    static const char *const columns[] = {"loss", "accuracy", "topk", "grad_norm"};
    made.labels = ALL;
    made.labelled = VALID;
    OK(train(all, how));
    made.labels = HALF;
    made.labelled = 18; /* 9 pairs, 4 and a half micro-batches */
    OK(train(half, how));
    if (tr_world_info(world)->rank != 0) return;
    for (int i = 0; i < 4; i++) {
        assert_true(column(all, columns[i], 6) > 0);
        assert_true(near(column(half, columns[i], 6), column(all, columns[i], 6)));
    }
    assert_true(near(told(half, "loss"), told(all, "loss")));
}

static void half_of_the_labels(void **state) {
    (void)state;
    check_half("parallel.reproducible=no", "all", "half");
    check_half("parallel.reproducible=yes", "all-tree", "half-tree");
}

/* Samples without a label score as if they were not there; where none has one there is no score. */
static void validation(void **state) {
    (void)state;
    made.labels = ALL;
    made.labelled = 18;
    OK(train("some", "train.seed=5"));
    made.valid = 18;
    OK(train("short", "train.seed=5"));
    made.valid = VALID;
    made.labelled = 0;
    OK(train("none", "train.seed=5"));
    if (tr_world_info(world)->rank != 0) return;
    assert_true(told("short", "valid_accuracy") > 0);
    assert_true(near(told("some", "valid_accuracy"), told("short", "valid_accuracy")));
    assert_true(near(told("some", "valid_loss"), told("short", "valid_loss")));
    assert_true(isnan(told("none", "valid_loss")) && isnan(told("none", "valid_accuracy")));
    assert_true(isnan(told("none", "best_valid_loss")) && isnan(told("none", "best_step")));
    assert_true(near(told("none", "loss"), told("short", "loss")));
}

/* The summary says what a search over settings looks for. */
static void the_best_validation(void **state) {
    (void)state;
    made.labels = ALL;
    made.labelled = VALID;
    OK(train("best", "optimizer.lr=3"));
    OK(train("best", "train.epochs=3")); /* goes on, and keeps the best of before or beats it */
    if (tr_world_info(world)->rank != 0) return;
    const double step = told("best", "best_step");
    char link[64], wanted[32];
    const ssize_t length = readlink("best/checkpoints/best", link, sizeof link - 1);
    assert_true(length > 0);
    link[length] = '\0';
    snprintf(wanted, sizeof wanted, "step-%08d", (int)step);
    assert_string_equal(link, wanted);
    assert_true(told("best", "best_valid_loss") <= told("best", "valid_loss"));
    assert_true(told("best", "seed") == 1);
}

/* A rate of 0 learns nothing: the first validation stays the best, and the second one without a
 * better ends the run. */
static void an_early_stop(void **state) {
    (void)state;
    static const char *const by[] = {"valid_loss", "valid_accuracy"};
    enum { EPOCH = 3 /* steps */ };
    made.labels = ALL;
    made.labelled = VALID;
    for (int i = 0; i < 2; i++) {
        static const int patience[] = {2, 2 /* stays stopped */, 4 /* continues */};
        for (int k = 0; k < 3; k++) {
            char dir[32], with[128];
            snprintf(dir, sizeof dir, "early-%d", i);
            snprintf(with, sizeof with,
                     "optimizer.lr=0 train.epochs=9 train.patience=%d checkpoint.best_by=%s",
                     patience[k], by[i]);
            OK(train(dir, with));
            if (tr_world_info(world)->rank != 0) continue;
            assert_true(told(dir, "best_step") == EPOCH);
            assert_true(told(dir, "steps") == (1 + patience[k]) * EPOCH);
            assert_true(told(dir, "best_valid_accuracy") == told(dir, "valid_accuracy"));
        }
    }
    assert_int_equal(train("no-valid", "train.patience=2 train.valid_every=0"), TR_ERR_CONFIG);
    assert_error_names("train.patience & data.valid_fraction");
}

/* Steps without one label learn nothing, are not what is not finite, and have no part in the
 * epoch's mean. */
static void steps_without_labels(void **state) {
    (void)state;
    made.labels = FIRST;
    OK(train("first", "train.epochs=1"));
    made.labels = NONE;
    OK(train("never", "train.epochs=1"));
    made.labels = ALL;
    if (tr_world_info(world)->rank != 0) return;
    assert_true(isnan(column("first", "loss", 3)) &&
                near(told("first", "loss"), column("first", "loss", 1)));
    assert_true(isnan(told("never", "loss")) && told("never", "skipped") == 0);
}

/* The data are at fault, not the network; an earlier micro-batch than the last is looked through,
 * too. */
static void an_infinite_input(void **state) {
    (void)state;
    if (tr_world_info(world)->size > 1) return; /* its peers would have to be ended */
    for (made.not_finite = 0; made.not_finite < TRAIN; made.not_finite += 9) {
        char dir[32], names[64];
        snprintf(dir, sizeof dir, "infinite-%d", (int)made.not_finite);
        snprintf(names, sizeof names, "'x' & %d & pairs", (int)made.not_finite);
        assert_int_equal(train(dir, "train.seed=5"), TR_ERR_DATA);
        assert_error_names(names);
    }
    made.not_finite = NOWHERE;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_of_the_labels),  cmocka_unit_test(validation),
        cmocka_unit_test(the_best_validation), cmocka_unit_test(steps_without_labels),
        cmocka_unit_test(an_early_stop),       cmocka_unit_test(an_infinite_input),
    };
    if (tr_world_open(NULL, &world) != TR_OK || tr_dataset_register(&pairs) != TR_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tr_world_close(&world);
    return failed;
}
