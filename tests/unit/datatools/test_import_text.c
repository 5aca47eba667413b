/* What import text and import tokens write, as a data set of tokens reads it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "datatools/datatools.h"
#include "text/tokenizer.h"
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[512], out[600];

static void write_file(const char *name, const void *data, size_t bytes, char path[600]) {
    snprintf(path, 600, "%.500s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

static void import_as(const char *kind, const char *const *in, int count, const char *tokenizer,
                      double valid_fraction) {
    size_t importers;
    const tr_importer_t *const *list = tr_importer_list(&importers);
    tr_import_params_t p = {.writer.force = true,
                            .input = in,
                            .input_count = count,
                            .tokenizer = tokenizer,
                            .valid_fraction = valid_fraction};
    snprintf(out, sizeof out, "%.500s/out.h5", folder);
    for (size_t i = 0; i < importers; i++)
        if (!strcmp(list[i]->name, kind)) OK(list[i]->run(in[0], out, &p));
}

/* All tokens of a split: the inputs of windows of one, and the last label. */
static void read_split(tr_split_t split, tr_ids_t *ids, char **tokenizer) {
    tr_dataset_t *dataset;
    tr_data_settings_t settings = {.format = "hdf5",
                                   .train = out,
                                   .valid = "",
                                   .test = "",
                                   .x = "",
                                   .y = "",
                                   .workers = -1,
                                   .block = -1,
                                   .shuffle = -1,
                                   .mean = "auto",
                                   .std = "auto",
                                   .classes = -1,
                                   .context = 1};
    OK(tr_dataset_open(&settings, split, &dataset));
    const int64_t windows = dataset->info.samples;
    int32_t *x = malloc((size_t)windows * 4), *y = malloc((size_t)windows * 4);
    void *dst[TR_DATASET_MAX_FIELDS] = {x, y};
    OK(dataset->ops->read(dataset, 0, windows, dst));
    ids->count = 0;
    for (int64_t i = 0; i < windows; i++) OK(tr_vec_push(ids, x[i]));
    OK(tr_vec_push(ids, y[windows - 1]));
    *tokenizer = NULL;
    if (dataset->info.tokenizer) OK(tr_strdup(dataset->info.tokenizer, tokenizer));
    tr_dataset_close(&dataset);
    free(x);
    free(y);
}

static void assert_split(tr_split_t split, size_t count, const int32_t *expected) {
    tr_ids_t ids = {0};
    char *tokenizer;
    read_split(split, &ids, &tokenizer);
    assert_int_equal(ids.count, count);
    assert_memory_equal(ids.data, expected, count * sizeof *expected);
    tr_free(&tokenizer);
    tr_vec_free(&ids);
}

static void assert_documents(const char *name, hsize_t count, const int64_t *expected) {
    int64_t found[16];
    hid_t file = H5Fopen(out, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(file, name, H5P_DEFAULT),
          space = H5Dget_space(set);
    assert_int_equal(H5Sget_simple_extent_npoints(space), count);
    assert_true(H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0);
    assert_memory_equal(found, expected, count * sizeof *expected);
    H5Sclose(space);
    H5Dclose(set);
    H5Fclose(file);
}

static void documents_have_an_end_between(void **state) {
    static const int32_t train[] = {'a', 'b', 256, 'c', 'd', 256, 'e', 'f', 256},
                         valid[] = {'g', 'h', 'i'};
    char a[600], b[600];
    write_file("a.txt", "ab<|endoftext|>cd<|endoftext|>", 30, a);
    write_file("b.jsonl", "{\"text\":\"ef\"}\n{\"text\":\"ghi\"}\n", 30, b);
    import_as("text", (const char *const[]){a, b}, 2, "bytes", 0.25);
    assert_split(TR_SPLIT_TRAIN, 9, train);
    assert_split(TR_SPLIT_VALID, 3, valid);
    assert_documents("train/documents", 3, (int64_t[]){0, 3, 6});
    assert_documents("valid/documents", 1, (int64_t[]){0});
    import_as("text", (const char *const[]){a, b}, 2, "bytes", 0.7);
    assert_documents("train/documents", 1, (int64_t[]){0});
    assert_documents("valid/documents", 3, (int64_t[]){0, 3, 6});
    unlink(a), unlink(b);
}

/* The vocabulary of the file is that of its text, and encodes it again. */
static void characters_come_back(void **state) {
    static const char text[] = "h\xc3\xa9llo w\xc3\xb6rld, \xe4\xbd\xa0\xe5\xa5\xbd!\n";
    char path[600], *json;
    tr_ids_t ids = {0};
    tr_str_t decoded = {0};
    tr_tokenizer_t *tokenizer;
    write_file("c.txt", text, sizeof text - 1, path);
    import_as("text", (const char *const[]){path}, 1, "chars", 0);
    read_split(TR_SPLIT_TRAIN, &ids, &json);
    OK(tr_tokenizer_from_json(json, out, &tokenizer));
    OK(tr_tokenizer_decode(tokenizer, ids.data, ids.count, &decoded));
    assert_int_equal(decoded.length, sizeof text - 1);
    assert_memory_equal(decoded.text, text, sizeof text - 1);
    tr_tokenizer_destroy(&tokenizer);
    tr_str_free(&decoded);
    tr_free(&json);
    tr_vec_free(&ids);
    unlink(path);
}

/* From 65,536 ids on a token has 32 bits. */
static void wide_ids_are_kept(void **state) {
    int32_t header[256] = {20240801, 7, 4}, file[256 + 4];
    const int32_t ids[] = {5, 128255, 65536, 0};
    char path[600];
    memcpy(file, header, sizeof header);
    memcpy(file + 256, ids, sizeof ids);
    write_file("w.bin", file, sizeof file, path);
    import_as("tokens", (const char *const[]){path}, 1, NULL, 0);
    assert_split(TR_SPLIT_TRAIN, 4, ids);
    const uint16_t narrow[] = {7, 65535, 1};
    write_file("w.bin", narrow, sizeof narrow, path);
    import_as("tokens", (const char *const[]){path}, 1, NULL, 0);
    assert_split(TR_SPLIT_TRAIN, 3, (int32_t[]){7, 65535, 1});
    unlink(path);
}

static int set_up(void **state) {
    const char *place = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/trainer-test-XXXXXX", place ? place : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    unlink(out);
    rmdir(folder);
    return tr_mem_stats().live == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(documents_have_an_end_between),
                                       cmocka_unit_test(characters_come_back),
                                       cmocka_unit_test(wide_ids_are_kept)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
