//TEST np=1
/* The order of samples: every sample exactly once an epoch, whatever the sizes; no rank in sight.
 */
#include "data_test.h"
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>
#include "../../support/ok.h"

static tr_sampler_t order_of(int64_t samples, int64_t slots, int64_t micro, int64_t block,
                             int64_t shuffle) {
    return (tr_sampler_t){.seed = 7,
                          .samples = samples,
                          .batch_size = slots * micro,
                          .micro_batch = micro,
                          .block = block,
                          .shuffle = shuffle};
}

/* Draws each stream's share of `epochs` epochs and counts. */
static void check_epochs(const tr_sampler_t *o, int64_t epochs) {
    int64_t slots = tr_sampler_slots(o), most = o->samples / slots + 2;
    int64_t *ids = malloc((size_t)(epochs * most) * sizeof *ids),
            *seen = calloc((size_t)o->samples, sizeof *seen);
    for (int64_t e = 0; e < epochs; e++) {
        int64_t total = 0, least = INT64_MAX, largest = 0;
        for (int64_t s = 0; s < slots; s++) {
            int64_t first = (e * o->samples + s) / slots, next = ((e + 1) * o->samples + s) / slots,
                    begin, end;
            if (first < next) {
                assert_int_equal(tr_sampler_epoch(o, s, first, &begin, &end), e);
                assert_int_equal(begin, first);
                assert_int_equal(end, next);
                assert_int_equal(tr_sampler_epoch(o, s, next - 1, NULL, NULL), e);
            }
            OK(tr_sampler_samples(o, s, first, next - first, ids));
            for (int64_t i = 0; i < next - first; i++) {
                assert_in_range(ids[i], 0, o->samples - 1);
                assert_int_equal(seen[ids[i]], e);
                seen[ids[i]]++;
            }
            total += next - first;
            if (next < least) least = next;
            if (next > largest) largest = next;
        }
        assert_int_equal(total, o->samples);
        assert_true(largest - least <= 1); /* streams never differ by more than one sample */
    }
    free(ids);
    free(seen);
}

static void test_once_an_epoch(void **state) {
    static const int64_t sizes[] = {1, 2, 3, 7, 64, 97, 1000, 1009}, slots[] = {1, 2, 3, 5, 8, 64},
                         blocks[] = {1, 3, 16, 100}, shuffles[] = {0, 1, 2, 10, 5000};
    for (size_t a = 0; a < TR_COUNT(sizes); a++)
        for (size_t b = 0; b < TR_COUNT(slots); b++)
            for (size_t c = 0; c < TR_COUNT(blocks); c++)
                for (size_t d = 0; d < TR_COUNT(shuffles); d++) {
                    tr_sampler_t o =
                        order_of(sizes[a], slots[b], 4, blocks[c] < sizes[a] ? blocks[c] : sizes[a],
                                 shuffles[d]);
                    check_epochs(&o, sizes[a] < 10 ? 12 : 3);
                }
}

/* Any segment of the stream equals the same segment of a longer one. */
static void test_segments(void **state) {
    tr_sampler_t o = order_of(103, 3, 8, 5, 7);
    int64_t all[400], part[50];
    OK(tr_sampler_samples(&o, 1, 0, 400, all));
    for (int64_t first = 0; first < 350; first += 13) {
        OK(tr_sampler_samples(&o, 1, first, 50, part));
        assert_memory_equal(part, all + first, sizeof part);
    }
}

static void test_epochs_differ(void **state) {
    tr_sampler_t o = order_of(500, 1, 10, 4, 100), other = o;
    int64_t a[500], b[500], same = 0, fixed = 0;
    OK(tr_sampler_samples(&o, 0, 0, 500, a));
    OK(tr_sampler_samples(&o, 0, 500, 500, b));
    for (int i = 0; i < 500; i++) same += a[i] == b[i], fixed += a[i] == i;
    assert_true(same < 20 && fixed < 20);
    other.seed = 8;
    OK(tr_sampler_samples(&other, 0, 0, 500, b));
    same = 0;
    for (int i = 0; i < 500; i++) same += a[i] == b[i];
    assert_true(same < 20);
}

static void test_file_order(void **state) {
    tr_sampler_t o = order_of(100, 1, 10, 7, 0);
    int64_t ids[250];
    OK(tr_sampler_samples(&o, 0, 0, 250, ids));
    for (int i = 0; i < 250; i++) assert_int_equal(ids[i], i % 100);
}

/* Each permutation of few blocks about as often as each other: chi-square with 119 degrees of
 * freedom. */
static void test_uniform(void **state) {
    int count[5 * 5 * 5 * 5 * 5] = {0}, epochs = 12000;
    for (int e = 0; e < epochs; e++) {
        tr_sampler_t o = order_of(5, 1, 1, 1, 1);
        int64_t ids[5];
        int code = 0;
        OK(tr_sampler_samples(&o, 0, 5 * e, 5, ids));
        for (int i = 0; i < 5; i++) code = code * 5 + (int)ids[i];
        count[code]++;
    }
    double chi = 0, expected = epochs / 120.0;
    int kinds = 0;
    for (size_t i = 0; i < TR_COUNT(count); i++)
        if (count[i]) kinds++, chi += (count[i] - expected) * (count[i] - expected) / expected;
    assert_int_equal(kinds, 120);
    assert_true(chi < 180); /* the 99.98 % quantile is 180 */
}

static void test_slots_of_rank(void **state) {
    for (int64_t slots = 1; slots <= 16; slots++)
        for (int size = 1; size <= slots; size++) {
            int64_t expect = 0;
            for (int r = 0; r < size; r++) {
                int64_t first, count;
                tr_sampler_slots_of_rank(slots, r, size, &first, &count);
                assert_int_equal(first, expect);
                assert_true(count >= slots / size && count <= slots / size + 1);
                expect += count;
            }
            assert_int_equal(expect, slots);
        }
}

static void test_make(void **state) {
    tr_data_settings_t settings = test_settings();
    tr_dataset_info_t info = {.samples = 60000, .field_count = 2, .read_unit = 1};
    tr_sampler_t o;
    info.field[0].sample_bytes = 784;
    info.field[1].sample_bytes = 4;
    OK(tr_sampler_init(&settings, &info, 1, 128, 32, &o));
    assert_int_equal(o.shuffle, 15000); /* a stream's share is one window */
    assert_in_range(o.block * 788, 100 << 10, 256 << 10);
    info.samples = 100;
    OK(tr_sampler_init(&settings, &info, 1, 128, 32, &o));
    assert_int_equal(o.block, 1);
    info.read_unit = 64;
    OK(tr_sampler_init(&settings, &info, 1, 128, 32, &o));
    assert_int_equal(o.block, 64);
    assert_int_equal(tr_sampler_init(&settings, &info, 1, 128, 48, &o), TR_ERR_CONFIG);
    info.samples = 0;
    assert_int_equal(tr_sampler_init(&settings, &info, 1, 128, 32, &o), TR_ERR_DATA);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_an_epoch), cmocka_unit_test(test_segments),
        cmocka_unit_test(test_epochs_differ), cmocka_unit_test(test_file_order),
        cmocka_unit_test(test_uniform),       cmocka_unit_test(test_slots_of_rank),
        cmocka_unit_test(test_make),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
