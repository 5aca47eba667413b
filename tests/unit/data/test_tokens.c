//TEST np=1
/* Streams of tokens: each token but the first is a label of exactly one window an epoch, on any
 * number of ranks; joined files; what is refused. */
#include "data_test.h"
#include "h5/writer.h"
#include "base/mem.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../support/ok.h"

enum { VOCAB = 1000, END = 999, MOST = 3000 };

static char folder[512];
static int32_t stream[MOST + 1]; /* what the files of a test hold */

static int32_t id_of(int64_t position) {
    return (int32_t)(position * 7919 % END);
}

/* A file with train/tokens: rows [first, first + count) of the stream. vocab_size 0, end -1: no
 * such attribute. */
static void make_file(const char *name, tr_dtype_t type, int64_t first, int64_t count,
                      int64_t vocab_size, int64_t end) {
    char path[1024];
    uint16_t narrow[MOST + 1];
    tr_writer_t *w;
    int array;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int64_t i = 0; i < count; i++) narrow[i] = (uint16_t)stream[first + i];
    OK(tr_writer_create(path, &(tr_writer_params_t){.force = true, .chunk_bytes = 512}, &w));
    OK(tr_writer_array(w, "train/tokens", type, count, &(tr_shape_t){0}, &array));
    if (count)
        OK(tr_writer_append(w, array, count,
                            type == TR_U16 ? (const void *)narrow : stream + first));
    if (vocab_size) OK(tr_writer_numbers(w, "/", "vocab_size", 1, &(double){(double)vocab_size}));
    if (end >= 0) OK(tr_writer_numbers(w, "/", "end_of_text", 1, &(double){(double)end}));
    OK(tr_writer_texts(w, "/", "tokenizer", 1, &(const char *){"{\"type\":\"bytes\"}"}));
    OK(tr_writer_commit(w));
    tr_writer_destroy(&w);
}

static tr_status_t open_files(const char *pattern, int64_t context, tr_dataset_t **out) {
    static char path[1024];
    tr_data_settings_t settings = test_settings();
    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    settings.train = path;
    settings.context = context;
    return tr_dataset_open(&settings, TR_SPLIT_TRAIN, out);
}

static void remove_files(void) {
    char pattern[600];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*", folder);
    if (glob(pattern, 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
    globfree(&found);
}

static void fill_stream(void) {
    for (int64_t i = 0; i <= MOST; i++) stream[i] = id_of(i);
}

/* One window against the stream of `tokens`. */
static void check_window(const int32_t *x, const int32_t *y, int64_t window, int64_t context,
                         int64_t tokens) {
    for (int64_t t = 0; t < context; t++) {
        const int64_t at = window * context + t;
        assert_int_equal(x[t], at < tokens ? stream[at] : 0);
        assert_int_equal(y[t], at + 1 < tokens ? stream[at + 1] : -1);
    }
}

static void check_windows(tr_dataset_t *dataset, int64_t context, int64_t tokens) {
    const int64_t windows = (tokens - 1 + context - 1) / context;
    int32_t *x = malloc((size_t)(windows * context) * 4),
            *y = malloc((size_t)(windows * context) * 4);
    assert_int_equal(dataset->info.samples, windows);
    assert_int_equal(dataset->info.tokens, tokens);
    for (int64_t first = 0; first < windows; first += 1 + first / 2)
        for (int64_t count = 1; first + count <= windows; count += 1 + count * 3) {
            void *dst[TR_DATASET_MAX_FIELDS] = {x, y};
            OK(dataset->ops->read(dataset, first, count, dst));
            for (int64_t i = 0; i < count; i++)
                check_window(x + i * context, y + i * context, first + i, context, tokens);
            dst[0] = NULL;
            memset(y, 0, 4);
            OK(dataset->ops->read(dataset, first, count, dst));
            check_window(x, y, first, context, tokens);
        }
    free(x);
    free(y);
}

static void windows_are_the_stream(void **state) {
    static const int64_t contexts[] = {1, 2, 7, 64, 500, MOST - 1};
    static const int64_t counts[] = {MOST, MOST - 1, 641, 642, 705};
    fill_stream();
    for (size_t n = 0; n < TR_COUNT(counts); n++) {
        for (int type = 0; type < 2; type++) {
            make_file("a.h5", type ? TR_U16 : TR_I32, 0, counts[n], VOCAB, END);
            for (size_t c = 0; c < TR_COUNT(contexts); c++) {
                tr_dataset_t *dataset;
                if (contexts[c] >= counts[n]) continue;
                OK(open_files("a.h5", contexts[c], &dataset));
                const tr_dataset_info_t *info = &dataset->info;
                assert_int_equal(info->field[0].kind, TR_FIELD_TOKENS);
                assert_int_equal(info->field[1].kind, TR_FIELD_LABELS);
                assert_int_equal(info->classes, VOCAB);
                assert_string_equal(info->tokenizer, "{\"type\":\"bytes\"}");
                check_windows(dataset, contexts[c], counts[n]);
                tr_dataset_close(&dataset);
            }
        }
    }
}

/* Counts in `seen` which tokens of the stream are labels in an epoch, of one rank's slots. */
static void count_labels(tr_dataset_t *dataset, const tr_sampler_t *o, int64_t first_slot,
                         int64_t slots, int64_t epoch, int *seen) {
    const int64_t context = dataset->info.field[0].shape.dim[0];
    tr_loader_t *loader;
    tr_loader_params_t p = {
        .order = *o, .first_slot = first_slot, .slot_count = slots, .workers = 2, .prefetch = 3};
    OK(tr_loader_create(dataset, &test_device, &p, &loader));
    const int64_t steps = (epoch + 1) * o->samples / o->batch_size + 2;
    for (int64_t step = 0; step < steps; step++)
        for (int64_t s = first_slot; s < first_slot + slots; s++) {
            tr_batch_t *batch;
            OK(tr_loader_next(loader, &batch));
            for (int64_t i = 0; i < o->micro_batch; i++) {
                const int64_t position = step * o->micro_batch + i, window = batch->sample_id[i];
                const int32_t *x = (const int32_t *)batch->field[0] + i * context,
                              *y = (const int32_t *)batch->field[1] + i * context;
                check_window(x, y, window, context, dataset->info.tokens);
                assert_true(batch->weight[i] == 1);
                if (tr_sampler_epoch(o, s, position, NULL, NULL) != epoch) continue;
                for (int64_t t = 0; t < context; t++)
                    if (y[t] != -1) seen[window * context + t + 1]++;
            }
            OK(tr_loader_release(loader, batch));
        }
    tr_loader_destroy(&loader);
}

static void each_token_is_predicted_once(void **state) {
    static const int64_t counts[] = {641, 642, 700,
                                     1281}; /* 641 = 40 windows of 16, and a token before */
    fill_stream();
    for (size_t n = 0; n < TR_COUNT(counts); n++)
        for (int shuffle = -1; shuffle < 1; shuffle++) {
            tr_dataset_t *dataset;
            tr_sampler_t o;
            tr_data_settings_t settings = test_settings();
            settings.shuffle = shuffle;
            make_file("a.h5", TR_U16, 0, counts[n], VOCAB, END);
            OK(open_files("a.h5", 16, &dataset));
            OK(tr_sampler_init(&settings, &dataset->info, 5, 12, 3, &o));
            for (int ranks = 1; ranks <= 4; ranks *= 2)
                for (int64_t epoch = 0; epoch < 3; epoch += 2) {
                    int seen[MOST] = {0};
                    for (int rank = 0; rank < ranks; rank++) {
                        int64_t first, count;
                        tr_sampler_slots_of_rank(tr_sampler_slots(&o), rank, ranks, &first, &count);
                        count_labels(dataset, &o, first, count, epoch, seen);
                    }
                    for (int64_t i = 0; i < MOST; i++)
                        assert_int_equal(seen[i], i > 0 && i < counts[n]);
                }
            tr_dataset_close(&dataset);
        }
}

/* The tail of an evaluation is padding: no label, no weight. */
static void evaluation_pads_with_no_label(void **state) {
    tr_dataset_t *dataset;
    tr_loader_t *loader;
    tr_batch_t *batch;
    int64_t labels = 0, padding = 0;
    fill_stream();
    make_file("a.h5", TR_U16, 0, 100, VOCAB, END);
    OK(open_files("a.h5", 16, &dataset));
    tr_loader_params_t p = {.order = {.samples = dataset->info.samples,
                                      .batch_size = 8,
                                      .micro_batch = 4,
                                      .block = 1,
                                      .shuffle = 1},
                            .slot_count = 2,
                            .evaluation = true,
                            .workers = 1,
                            .prefetch = 3};
    OK(tr_loader_create(dataset, &test_device, &p, &loader));
    for (;;) {
        OK(tr_loader_next(loader, &batch));
        if (!batch) break;
        for (int64_t i = 0; i < 4; i++) {
            const int32_t *y = (const int32_t *)batch->field[1] + i * 16;
            for (int t = 0; t < 16; t++) labels += y[t] != -1;
            if (batch->sample_id[i] >= 0) continue;
            assert_true(batch->weight[i] == 0);
            for (int t = 0; t < 16; t++) assert_int_equal(y[t], -1);
            padding++;
        }
        OK(tr_loader_release(loader, batch));
    }
    assert_int_equal(labels, 99);
    assert_int_equal(padding, 1);
    tr_loader_destroy(&loader);
    tr_dataset_close(&dataset);
}

/* Between two files stands an end-of-text token, once. */
static void files_are_joined(void **state) {
    tr_dataset_t *dataset;
    fill_stream();
    stream[100] = END; /* in no file */
    stream[200] = END; /* the last of b.h5 */
    make_file("a.h5", TR_U16, 0, 100, VOCAB, END);
    make_file("b.h5", TR_I32, 101, 100, VOCAB, END);
    make_file("c.h5", TR_U16, 201, 150, VOCAB, END);
    for (int64_t context = 1; context < 300; context += 13) {
        OK(open_files("*.h5", context, &dataset));
        check_windows(dataset, context, 351);
        tr_dataset_close(&dataset);
    }
    for (int i = 0; i < 250; i++) stream[i] = id_of(i);
    make_file("a.h5", TR_U16, 0, 100, VOCAB, -1);
    make_file("b.h5", TR_U16, 100, 100, VOCAB, -1);
    make_file("c.h5", TR_U16, 200, 50, VOCAB, -1);
    OK(open_files("*.h5", 30, &dataset)); /* the end is not known: none is added */
    check_windows(dataset, 30, 250);
    tr_dataset_close(&dataset);
    make_file("b.h5", TR_U16, 100, 100, VOCAB + 1, END);
    assert_int_equal(open_files("*.h5", 30, &dataset), TR_ERR_DATA);
    assert_non_null(strstr(tr_error_last()->message, "b.h5"));
    remove_files();
}

static void assert_refused(const char *pattern, int64_t context, tr_status_t code,
                           const char *expected) {
    tr_dataset_t *dataset;
    assert_int_equal(open_files(pattern, context, &dataset), code);
    if (!strstr(tr_error_last()->message, expected)) fail_msg("%s", tr_error_last()->message);
}

static void bad_streams_are_refused(void **state) {
    tr_dataset_t *dataset;
    int32_t x[64];
    void *dst[TR_DATASET_MAX_FIELDS] = {x};
    fill_stream();
    make_file("a.h5", TR_U16, 0, 0, VOCAB, END);
    assert_refused("a.h5", 8, TR_ERR_DATA, "0 tokens");
    make_file("a.h5", TR_U16, 0, 8, VOCAB, END);
    assert_refused("a.h5", 8, TR_ERR_DATA, "8 tokens, but a window with model.context = 8 needs 9");
    assert_refused("a.h5", 0, TR_ERR_CONFIG, "model.type");
    make_file("a.h5", TR_U16, 0, 100, 0, END);
    assert_refused("a.h5", 8, TR_ERR_CONFIG, "vocab_size");
    stream[70] = VOCAB;
    make_file("a.h5", TR_U16, 0, 100, VOCAB, END);
    OK(open_files("a.h5", 8, &dataset));
    OK(dataset->ops->read(dataset, 0, 8, dst));
    assert_int_equal(dataset->ops->read(dataset, 8, 1, dst), TR_ERR_DATA);
    const char *const parts[] = {"a.h5: /train/tokens", "token 70 ", "id 1000", "0 to 999"};
    for (size_t i = 0; i < TR_COUNT(parts); i++)
        if (!strstr(tr_error_last()->message, parts[i])) fail_msg("%s", tr_error_last()->message);
    tr_dataset_close(&dataset);
    stream[70] = -5;
    make_file("a.h5", TR_I32, 0, 100, VOCAB, END);
    OK(open_files("a.h5", 8, &dataset));
    assert_int_equal(dataset->ops->read(dataset, 8, 1, dst), TR_ERR_DATA);
    assert_non_null(strstr(tr_error_last()->message, "id -5"));
    tr_dataset_close(&dataset);
}

static void synthetic_tokens_follow_zipf(void **state) {
    enum { T = 50 };
    int32_t x[200 * T], y[200 * T], again[T];
    int64_t count[VOCAB] = {0};
    tr_dataset_t *dataset;
    tr_data_settings_t settings = test_settings();
    settings.format = "synthetic_tokens";
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &dataset), TR_ERR_CONFIG);
    settings.context = T;
    settings.vocab_size = VOCAB;
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &dataset));
    void *dst[TR_DATASET_MAX_FIELDS] = {x, y}, *one[TR_DATASET_MAX_FIELDS] = {again};
    assert_int_equal(dataset->info.samples, settings.synthetic_samples);
    OK(dataset->ops->read(dataset, 0, 200, dst));
    OK(dataset->ops->read(dataset, 77, 1, one));
    assert_memory_equal(again, x + 77 * T, sizeof again);
    for (int i = 0; i < 200 * T; i++) {
        assert_in_range(x[i], 0, VOCAB - 1);
        if (i % T) assert_int_equal(y[i - 1], x[i]);
        count[x[i]]++;
    }
    /* P(0) = ln 2 / ln 1001 = 0.1003, P(0 .. 9) = ln 11 / ln 1001 = 0.347; 10,000 draws */
    int64_t ten = 0;
    for (int i = 0; i < 10; i++) ten += count[i];
    assert_in_range(count[0], 850, 1150);
    assert_in_range(ten, 3250, 3700);
    tr_dataset_close(&dataset);
}

static int set_up(void **state) {
    return test_folder_make(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    remove_files();
    rmdir(folder);
    return tr_mem_stats().live == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_the_stream),
        cmocka_unit_test(each_token_is_predicted_once),
        cmocka_unit_test(evaluation_pads_with_no_label),
        cmocka_unit_test(files_are_joined),
        cmocka_unit_test(bad_streams_are_refused),
        cmocka_unit_test(synthetic_tokens_follow_zipf),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
