//TEST np=1
/* The loader: what it hands out, in which order, on any split over ranks, after a resume, and when
 * reading fails. */
#include "data_test.h"
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../support/ok.h"

static tr_loader_params_t params_of(const tr_sampler_t *order) {
    return (tr_loader_params_t){
        .order = *order, .slot_count = tr_sampler_slots(order), .workers = 2, .prefetch = 3};
}

static void check_content(const tr_dataset_t *dataset, const tr_batch_t *batch, int64_t micro) {
    int64_t width = dataset->info.field[0].sample_bytes / 8;
    for (int64_t i = 0; i < micro; i++) {
        bool real = i < batch->valid;
        assert_true(batch->weight[i] == (real ? 1.0f : 0.0f));
        if (!real) assert_int_equal(batch->sample_id[i], -1);
        for (int64_t j = 0; j < width; j++)
            assert_int_equal(((int64_t *)batch->field[0])[i * width + j],
                             real ? batch->sample_id[i] : 0);
        assert_int_equal(((int32_t *)batch->field[1])[i], real ? batch->sample_id[i] : 0);
    }
}

/* Runs a training loader over `steps` steps and checks each batch against the pure order. */
static void check_training(const tr_sampler_t *o, int64_t width, int64_t first_slot,
                           int64_t slot_count, int64_t first_step, int64_t steps, int workers) {
    test_dataset_t set;
    tr_loader_t *loader;
    tr_loader_params_t p = params_of(o);
    int64_t *expect = malloc((size_t)o->micro_batch * sizeof *expect);
    test_dataset_make(&set, o->samples, width);
    p.first_slot = first_slot, p.slot_count = slot_count, p.first_step = first_step,
    p.workers = workers;
    OK(tr_loader_create(&set.base, &test_device, &p, &loader));
    for (int64_t step = first_step; step < first_step + steps; step++)
        for (int64_t s = first_slot; s < first_slot + slot_count; s++) {
            tr_batch_t *batch;
            int64_t last_epoch, next;
            OK(tr_loader_next(loader, &batch));
            assert_int_equal(batch->step, step);
            assert_int_equal(batch->slot, s);
            assert_int_equal(batch->valid, o->micro_batch);
            OK(tr_sampler_samples(o, s, step * o->micro_batch, o->micro_batch, expect));
            assert_memory_equal(batch->sample_id, expect, (size_t)o->micro_batch * sizeof *expect);
            check_content(&set.base, batch, o->micro_batch);
            assert_int_equal(batch->epoch,
                             tr_sampler_epoch(o, s, step * o->micro_batch, NULL, &next));
            last_epoch = tr_sampler_epoch(o, s, (step + 1) * o->micro_batch, NULL, NULL);
            assert_int_equal(batch->ends_epoch, last_epoch > batch->epoch);
            OK(tr_loader_release(loader, batch));
        }
    tr_loader_destroy(&loader);
    free(expect);
}

static void test_training_order(void **state) {
    static const struct {
        int64_t samples, slots, micro, block, shuffle, width;
    } cases[] = {
        {1000, 1, 32, 10, 1000, 3}, {1000, 4, 8, 7, 100, 1},
        {103, 3, 5, 4, 9, 2},       {5, 2, 8, 1, 3, 1},
        {7, 1, 32, 7, 7, 1},        {64, 64, 1, 3, 1, 1},
        {300, 2, 16, 50, 0, 1},     {40, 2, 4, 1, 1, 5000},
        {30, 2, 4, 1, 8, 20000},    /* samples so large that each is read into place */
        {300, 2, 16, 7, 150, 5000}, /* a window beyond the caches */
        {50, 2, 3, 2, 8, 5000},     {3, 5, 2, 1, 2, 1},
    };
    for (size_t i = 0; i < TR_COUNT(cases); i++) {
        tr_sampler_t o = {.seed = 3,
                          .samples = cases[i].samples,
                          .batch_size = cases[i].slots * cases[i].micro,
                          .micro_batch = cases[i].micro,
                          .block = cases[i].block,
                          .shuffle = cases[i].shuffle};
        for (int workers = 1; workers <= 3; workers += 2)
            check_training(&o, cases[i].width, 0, cases[i].slots, 0, 60, workers);
    }
}

/* Each of 1 to 4 ranks gets its slots' part of the same steps. */
static void test_ranks(void **state) {
    tr_sampler_t o = {
        .seed = 5, .samples = 517, .batch_size = 48, .micro_batch = 6, .block = 5, .shuffle = 20};
    for (int size = 1; size <= 4; size++)
        for (int rank = 0; rank < size; rank++) {
            int64_t first, count;
            tr_sampler_slots_of_rank(tr_sampler_slots(&o), rank, size, &first, &count);
            check_training(&o, 1, first, count, 0, 30, 2);
        }
}

static void test_resume(void **state) {
    tr_sampler_t o = {
        .seed = 5, .samples = 517, .batch_size = 48, .micro_batch = 6, .block = 5, .shuffle = 20};
    for (int64_t step = 1; step < 40; step += 3) check_training(&o, 1, 0, 8, step, 12, 2);
    o.shuffle = 0;
    for (int64_t step = 1; step < 40; step += 7) check_training(&o, 1, 0, 8, step, 12, 2);
}

static void check_evaluation(int64_t samples, int64_t slots, int64_t micro, int ranks) {
    tr_sampler_t o = {.samples = samples,
                      .batch_size = slots * micro,
                      .micro_batch = micro,
                      .block = 4,
                      .shuffle = 10};
    int *seen = calloc((size_t)samples, sizeof *seen);
    for (int rank = 0; rank < ranks; rank++) {
        test_dataset_t set;
        tr_loader_t *loader;
        tr_batch_t *batch;
        tr_loader_params_t p = params_of(&o);
        int64_t batches = 0, steps = (samples + slots * micro - 1) / (slots * micro);
        test_dataset_make(&set, samples, 2);
        tr_sampler_slots_of_rank(slots, rank, ranks, &p.first_slot, &p.slot_count);
        p.evaluation = true;
        OK(tr_loader_create(&set.base, &test_device, &p, &loader));
        for (;; batches++) {
            OK(tr_loader_next(loader, &batch));
            if (!batch) break;
            check_content(&set.base, batch, micro);
            for (int64_t i = 0; i < batch->valid; i++) {
                assert_int_equal(batch->sample_id[i],
                                 (batch->step * slots + batch->slot) * micro + i);
                seen[batch->sample_id[i]]++;
            }
            OK(tr_loader_release(loader, batch));
        }
        assert_int_equal(batches, steps * p.slot_count);
        tr_loader_destroy(&loader);
    }
    for (int64_t i = 0; i < samples; i++) assert_int_equal(seen[i], 1);
    free(seen);
}

static void test_evaluation(void **state) {
    static const int64_t sizes[] = {1, 5, 16, 63, 64, 65, 257};
    for (size_t i = 0; i < TR_COUNT(sizes); i++)
        for (int ranks = 1; ranks <= 4; ranks++) check_evaluation(sizes[i], 4, 8, ranks);
}

/* Several held at once, released out of order. */
static void test_held(void **state) {
    tr_sampler_t o = {
        .seed = 1, .samples = 200, .batch_size = 16, .micro_batch = 8, .block = 4, .shuffle = 16};
    tr_loader_params_t p = params_of(&o);
    test_dataset_t set;
    tr_loader_t *loader;
    tr_batch_t *batch[3], *more;
    test_dataset_make(&set, 200, 1);
    OK(tr_loader_create(&set.base, &test_device, &p, &loader));
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 3; i++) OK(tr_loader_next(loader, &batch[i]));
        assert_int_equal(tr_loader_next(loader, &more), TR_ERR_INTERNAL);
        usleep(100);
        for (int i = 0; i < 3; i++) check_content(&set.base, batch[i], 8);
        for (int i = 2; i >= 0; i--) OK(tr_loader_release(loader, batch[i]));
        assert_int_equal(tr_loader_release(loader, batch[0]), TR_ERR_INTERNAL);
    }
    tr_loader_destroy(&loader);
}

static void test_error(void **state) {
    tr_sampler_t o = {
        .seed = 1, .samples = 200, .batch_size = 16, .micro_batch = 8, .block = 4, .shuffle = 16};
    tr_loader_params_t p = params_of(&o);
    test_dataset_t set;
    tr_loader_t *loader;
    tr_batch_t *batch;
    tr_status_t status = TR_OK;
    test_dataset_make(&set, 200, 1);
    set.bad = 77;
    OK(tr_loader_create(&set.base, &test_device, &p, &loader));
    for (int i = 0; i < 1000 && status == TR_OK; i++) {
        status = tr_loader_next(loader, &batch);
        if (status == TR_OK) tr_loader_release(loader, batch);
    }
    assert_int_equal(status, TR_ERR_DATA);
    assert_string_equal(tr_error_last()->message, "sample 77 is bad");
    tr_loader_destroy(&loader);
    o.samples = 199;
    p.order = o;
    assert_int_equal(tr_loader_create(&set.base, &test_device, &p, &loader), TR_ERR_INTERNAL);
}

static tr_status_t (*read_ids)(tr_dataset_t *, int64_t, int64_t, void *const *);
static int32_t odd_label;

/* Labels are the samples' numbers, but for sample 7. */
static tr_status_t read_odd(tr_dataset_t *dataset, int64_t first, int64_t count, void *const *dst) {
    TR_TRY(read_ids(dataset, first, count, dst));
    if (dst[1] && first <= 7 && 7 < first + count) ((int32_t *)dst[1])[7 - first] = odd_label;
    return TR_OK;
}

/* One epoch of 200 samples of so many classes. */
static tr_status_t read_labels(int32_t label, int64_t classes, int64_t shuffle, int64_t width) {
    tr_sampler_t o = {.seed = 1,
                      .samples = 200,
                      .batch_size = 16,
                      .micro_batch = 8,
                      .block = 4,
                      .shuffle = shuffle};
    tr_loader_params_t p = params_of(&o);
    test_dataset_t set;
    tr_loader_t *loader;
    tr_batch_t *batch;
    tr_status_t status = TR_OK;
    test_dataset_make(&set, 200, width);
    tr_dataset_ops_t odd = *set.base.ops;
    read_ids = odd.read;
    odd.read = read_odd;
    odd_label = label;
    set.base.ops = &odd;
    set.base.info.classes = classes;
    set.base.info.field[1].kind = classes > 0 ? TR_FIELD_LABELS : TR_FIELD_VALUES;
    strcpy(set.base.info.description, "numbers");
    OK(tr_loader_create(&set.base, &test_device, &p, &loader));
    for (int i = 0; i < 26 && status == TR_OK; i++) {
        status = tr_loader_next(loader, &batch);
        if (status != TR_OK) break;
        for (int k = 0; k < 8; k++) /* none: no part of anything */
            assert_true(batch->weight[k] ==
                        (classes > 0 && ((int32_t *)batch->field[1])[k] == -1 ? 0 : 1));
        tr_loader_release(loader, batch);
    }
    tr_loader_destroy(&loader);
    return status;
}

static void test_labels(void **state) {
    for (int shuffle = 0; shuffle <= 16; shuffle += 16)
        for (int64_t width = 1; width <= 20000; width += 19999) {
            OK(read_labels(199, 200, shuffle, width));
            OK(read_labels(-1, 200, shuffle, width));
            OK(read_labels(4711, 0, shuffle, width)); /* no classes */
            assert_int_equal(read_labels(200, 200, shuffle, width), TR_ERR_DATA);
            assert_error_names("numbers & 'y' & 7 & 0 & 199 & -1 & 200");
            assert_int_equal(read_labels(-2, 200, shuffle, width), TR_ERR_DATA);
        }
}

/* Labels are i32, and classes are known. */
static void test_label_fields(void **state) {
    tr_sampler_t o = {.seed = 1, .samples = 200, .batch_size = 16, .micro_batch = 8, .block = 4};
    tr_loader_params_t p = params_of(&o);
    for (int i = 0; i < 2; i++) {
        test_dataset_t set;
        tr_loader_t *loader;
        test_dataset_make(&set, 200, 1);
        set.base.info.field[1].kind = TR_FIELD_LABELS;
        set.base.info.classes = i;
        set.base.info.field[1].dtype = i ? TR_F32 : TR_I32;
        assert_int_equal(tr_loader_create(&set.base, &test_device, &p, &loader), TR_ERR_DATA);
        assert_error_names("'y' & i32 & classes");
    }
}

/* Destroyed at any moment; nothing is allocated between creation and destruction, nothing is left.
 */
static void test_memory(void **state) {
    tr_sampler_t o = {.seed = 1,
                      .samples = 5000,
                      .batch_size = 64,
                      .micro_batch = 8,
                      .block = 40,
                      .shuffle = 500};
    tr_loader_params_t p = params_of(&o);
    test_dataset_t set;
    int64_t live = tr_mem_stats().live;
    test_dataset_make(&set, 5000, 16);
    for (int batches = 0; batches < 60; batches++) {
        tr_loader_t *loader;
        tr_batch_t *batch;
        OK(tr_loader_create(&set.base, &test_device, &p, &loader));
        int64_t calls = tr_mem_stats().calls;
        for (int i = 0; i < batches; i++) {
            OK(tr_loader_next(loader, &batch));
            OK(tr_loader_release(loader, batch));
        }
        assert_int_equal(tr_mem_stats().calls, calls);
        assert_true(tr_loader_bytes(loader) > 2 * 500 * 8 * 132);
        tr_loader_destroy(&loader);
        assert_int_equal(tr_mem_stats().live, live);
    }
}

/* What is read was announced before, and no more than 32 MiB, or an epoch, before. */
enum {
    WIDE = 8192,
    WIDE_SAMPLES = 1500,
    WIDE_AHEAD = (32 << 20) / (8 * WIDE + 4),
    WIDE_PIECE = (1 << 20) / (8 * WIDE)
};
static tr_dataset_ops_t announced_ops;
static tr_status_t (*read_plainly)(tr_dataset_t *, int64_t, int64_t, void *const *);
static int64_t announced[WIDE_SAMPLES], under_way, most_under_way;

static void note_announced(tr_dataset_t *dataset, int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; i++) announced[i]++;
    under_way += count;
    if (under_way > most_under_way) most_under_way = under_way;
}
static tr_status_t read_announced(tr_dataset_t *dataset, int64_t first, int64_t count,
                                  void *const *dst) {
    under_way -= count;
    for (int64_t i = first; i < first + count; i++)
        if (announced[i]-- < 1)
            return TR_FAIL(TR_ERR_DATA, "sample %lld was not announced", (long long)i);
    return read_plainly(dataset, first, count, dst);
}

static void check_announced(const tr_sampler_t *o, int64_t width, bool evaluation, int64_t ahead) {
    tr_loader_params_t p = params_of(o);
    test_dataset_t set;
    tr_loader_t *loader;
    test_dataset_make(&set, o->samples, width);
    announced_ops = *set.base.ops;
    read_plainly = announced_ops.read;
    announced_ops.read = read_announced;
    announced_ops.expect = note_announced;
    set.base.ops = &announced_ops;
    memset(announced, 0, sizeof announced);
    under_way = most_under_way = 0;
    p.evaluation = evaluation;
    p.workers = 1;
    OK(tr_loader_create(&set.base, &test_device, &p, &loader));
    for (int64_t i = 0; i < o->samples / o->micro_batch; i++) {
        tr_batch_t *batch;
        OK(tr_loader_next(loader, &batch));
        OK(tr_loader_release(loader, batch));
    }
    tr_loader_destroy(&loader);
    assert_in_range(most_under_way, ahead, ahead + WIDE_PIECE - 1);
}

static void test_announced(void **state) {
    tr_sampler_t o = {.seed = 1,
                      .samples = WIDE_SAMPLES,
                      .batch_size = 16,
                      .micro_batch = 4,
                      .block = 16,
                      .shuffle = 80};
    check_announced(&o, WIDE, false, WIDE_AHEAD);
    check_announced(&o, WIDE, true, WIDE_AHEAD);
    o.shuffle = 0;
    check_announced(&o, WIDE, false, WIDE_AHEAD);
    o.shuffle = 80;
    o.samples = 160;
    check_announced(&o, 1, false, 160);
}

static void test_synthetic(void **state) {
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *a, *b;
    uint8_t x[2][64 * 10];
    int32_t y[2][10];
    settings.format = "synthetic";
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &a));
    OK(tr_dataset_open(&settings, TR_SPLIT_VALID, &b));
    assert_int_equal(a->info.samples, 1000);
    assert_int_equal(a->info.classes, 10);
    void *dst[] = {x[0], y[0]}, *again[] = {x[1], y[1]};
    OK(a->ops->read(a, 20, 10, dst));
    OK(a->ops->read(a, 25, 5, again));
    assert_memory_equal(x[0] + 5 * 64, x[1], 5 * 64);
    for (int i = 0; i < 10; i++) assert_in_range(y[0][i], 0, 9);
    OK(b->ops->read(b, 20, 10, again));
    assert_memory_not_equal(x[0], x[1], sizeof x[0]);
    tr_dataset_close(&a);
    tr_dataset_close(&b);
    settings.synthetic_shape = "65536x65536x65536x65536"; /* 2^64 values are none */
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &a), TR_ERR_CONFIG);
    settings.synthetic_shape = "8x-8";
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &a), TR_ERR_CONFIG);
    settings.format = "sinthetic";
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &a), TR_ERR_CONFIG);
    assert_error_names("'sinthetic' & 'synthetic'");
}

/* Noise of 8 bits is halved and half the level added: the values of a level are within 128. */
static void check_level(uint8_t value, double level) {
    assert_true(value >= (level - 1) / 2 && value <= (level + 1) / 2 + 128);
}

static void test_synthetic_positions(void **state) {
    enum { SAMPLES = 50, H = 10, W = 7, POINTS = H * W };
    static uint8_t x[SAMPLES][POINTS][2];
    static int32_t label[SAMPLES][POINTS];
    static float target[SAMPLES][POINTS][3];
    int least[3] = {255, 255, 255}, most[3] = {0}, changes = 0;
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set;
    settings.format = "synthetic";
    settings.synthetic_shape = "10x7x2";
    settings.targets = TR_TARGETS_POSITION;
    settings.classes = 3;
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set));
    const tr_shape_t labels = TR_SHAPE(H, W), numbers = TR_SHAPE(H, W, 3);
    assert_true(set->info.is_dense && tr_shape_equal(&set->info.field[1].shape, &labels));
    OK(set->ops->read(set, 0, SAMPLES, (void *[]){x, label}));
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < POINTS; i++) {
            const int32_t l = label[s][i];
            assert_in_range(l, 0, 2);
            changes += i > 0 && l != label[s][i - 1];
            for (int c = 0; c < 2; c++) {
                if (x[s][i][c] < least[l]) least[l] = x[s][i][c];
                if (x[s][i][c] > most[l]) most[l] = x[s][i][c];
            }
        }
    assert_in_range(changes, SAMPLES, 7 * SAMPLES); /* eight slabs */
    for (int l = 0; l < 3; l++) assert_true(most[l] - least[l] <= 128);
    tr_dataset_close(&set);

    settings.classes = 0;
    settings.synthetic_targets = 3;
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set));
    assert_true(set->info.is_dense && tr_shape_equal(&set->info.field[1].shape, &numbers));
    OK(set->ops->read(set, 0, SAMPLES, (void *[]){x, target}));
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < POINTS; i++) {
            check_level(x[s][i][1], 255 * (double)target[s][i][0]);
            assert_true(target[s][i][0] == target[s][i][2]);
        }
    tr_dataset_close(&set);
    settings.synthetic_shape = "10";
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_CONFIG);
    assert_error_names("data.targets & '10'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training_order), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_resume),         cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_held),           cmocka_unit_test(test_error),
        cmocka_unit_test(test_labels),         cmocka_unit_test(test_label_fields),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_announced),
        cmocka_unit_test(test_synthetic),      cmocka_unit_test(test_synthetic_positions),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
