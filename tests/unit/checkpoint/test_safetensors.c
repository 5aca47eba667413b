/* safetensors files: what is written reads back; what is wrong in a header is refused by name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../support/names.h"
#include "checkpoint/checkpoint_int.h"
#include "checkpoint/safetensors_int.h"

#define FILE_NAME "t.safetensors"

static void remove_file(void) {
    unlink(FILE_NAME);
}

static void test_every_type(void **state) {
    tr_named_tensor_t in[TR_DTYPE_COUNT + 3];
    char names[TR_DTYPE_COUNT][32];
    unsigned char data[4096], found[4096];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37 + 11);
    for (int t = 0; t < TR_DTYPE_COUNT; t++) {
        snprintf(names[t], sizeof names[t], "layer.%d", t);
        /* odd sizes */
        in[t] = (tr_named_tensor_t){names[t], (tr_dtype_t)t, TR_SHAPE(3, 1, 5), data + t};
    }
    in[TR_DTYPE_COUNT] = (tr_named_tensor_t){"a scalar", TR_F64, {0}, data};
    in[TR_DTYPE_COUNT + 1] = (tr_named_tensor_t){"empty", TR_F32, TR_SHAPE(4, 0), data};
    in[TR_DTYPE_COUNT + 2] =
        (tr_named_tensor_t){"\xc3\xbc\"\\\n", TR_U8, TR_SHAPE(1, 2, 1, 2, 1, 2), data};
    size_t count = TR_DTYPE_COUNT + 3;
    uint64_t checksums[TR_DTYPE_COUNT + 3], whole = 0;
    int64_t bytes = 0;
    remove_file();
    OK(tr_safetensors_write(FILE_NAME, in, count, "{\"format\": \"pt\"}", checksums, &whole,
                            &bytes));
    tr_safetensors_t *f = NULL;
    OK(tr_safetensors_open(FILE_NAME, &f));
    assert_int_equal(tr_safetensors_count(f), count);
    assert_string_equal(tr_safetensors_metadata(f), "{\"format\":\"pt\"}");
    for (size_t i = 0; i < count; i++) {
        const tr_named_tensor_t *t = tr_safetensors_at(f, i);
        int64_t size = 0;
        assert_ptr_equal(tr_safetensors_find(f, in[i].name), t);
        assert_int_equal(t->dtype, in[i].dtype);
        assert_true(tr_shape_equal(&t->shape, &in[i].shape));
        assert_true(tr_tensor_bytes(t->dtype, &t->shape, &size));
        OK(tr_safetensors_read(t, 0, size, found));
        assert_memory_equal(found, in[i].data, (size_t)size);
        assert_true(checksums[i] == tr_checksum_bytes(in[i].data, (size_t)size));
    }
    assert_null(tr_safetensors_find(f, "absent"));
    assert_int_equal(tr_safetensors_data_start(f) % 8, 0);
    tr_safetensors_close(&f);
    char *text = NULL;
    int64_t length = 0;
    OK(tr_read_text(FILE_NAME, 1 << 20, &text, &length));
    assert_int_equal(length, bytes);
    assert_true(tr_checksum_bytes(text, (size_t)length) == whole);
    tr_free(&text);
}

static void test_refusals_of_the_writer(void **state) {
    float x[4] = {0};
    tr_named_tensor_t twice[] = {{"w", TR_F32, TR_SHAPE(4), x}, {"w", TR_F32, TR_SHAPE(4), x}};
    tr_named_tensor_t negative = {"w", TR_F32, TR_SHAPE(-1), x},
                      latin1 = {"\xff", TR_F32, TR_SHAPE(4), x};
    remove_file();
    assert_int_equal(tr_safetensors_write(FILE_NAME, twice, 2, NULL, NULL, NULL, NULL),
                     TR_ERR_INTERNAL);
    assert_int_equal(tr_safetensors_write(FILE_NAME, &negative, 1, NULL, NULL, NULL, NULL),
                     TR_ERR_INTERNAL);
    assert_int_equal(tr_safetensors_write(FILE_NAME, &latin1, 1, NULL, NULL, NULL, NULL),
                     TR_ERR_INTERNAL);
    assert_int_equal(tr_safetensors_write(FILE_NAME, twice, 1, "{\"a\": 1}", NULL, NULL, NULL),
                     TR_ERR_INTERNAL);
    assert_int_equal(access(FILE_NAME, F_OK), -1);
    OK(tr_safetensors_write(FILE_NAME, twice, 1, NULL, NULL, NULL, NULL));
    assert_int_equal(tr_safetensors_write(FILE_NAME, twice, 1, NULL, NULL, NULL, NULL),
                     TR_ERR_IO); /* it exists, and stays */
    assert_int_equal(access(FILE_NAME, F_OK), 0);
    assert_int_equal(tr_safetensors_write("absent/t", twice, 1, NULL, NULL, NULL, NULL),
                     TR_ERR_NOINPUT);
}

/* A file of this header and `data` zero bytes; length < 0: the header's own. */
static tr_status_t parse(const char *header, size_t data, int64_t length) {
    size_t text = strlen(header);
    unsigned char *bytes = NULL;
    tr_safetensors_t *f = NULL;
    uint64_t stored = length < 0 ? text : (uint64_t)length;
    OK(tr_alloc(8 + text + data, "test", &bytes));
    memcpy(bytes, &stored, 8);
    memcpy(bytes + 8, header, text);
    tr_error_clear();
    tr_status_t status = tr_safetensors_parse(bytes, 8 + text + data, "x.safetensors", &f);
    if (status != TR_OK) assert_non_null(strstr(tr_error_last()->message, "x.safetensors"));
    tr_safetensors_close(&f);
    tr_free(&bytes);
    return status;
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define B "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}"

static void test_good_headers(void **state) {
    OK(parse("{}", 0, -1));
    OK(parse("{" A "}", 8, -1));
    OK(parse("{" A "}   ", 8, -1));
    OK(parse("{" B "," A ",\"__metadata__\":{\"k\":\"v\"}}", 9, -1));
    OK(parse("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3, -1));
    OK(parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]}}",
             0, -1));
}

/* One entry "a" with these fields. */
#define ENTRY(fields) "{\"a\":{" fields "}}"
#define F32           "\"dtype\":\"F32\","
#define AT_0_8        ",\"data_offsets\":[0,8]"

static const struct {
    const char *header;
    size_t data;
} bad_headers[] = {
    {"", 0},
    {"[]", 0},
    {" {}", 0},
    {"{", 0},
    {"{}x", 0},
    {"{" A "," A "}", 8},  /* twice */
    {"{" A "," B "}", 8},  /* too short */
    {"{" A "," B "}", 10}, /* too long */
    {"{" A "}", 7},
    {"{\"a\":7}", 0},
    {"{\"a\":{}}", 0},
    {ENTRY(F32 "\"shape\":[2]" AT_0_8 ",\"more\":1"), 8},
    {ENTRY(F32 "\"shape\":[2],\"shape\":[2]" AT_0_8), 8},
    {ENTRY("\"dtype\":\"F31\",\"shape\":[2]" AT_0_8), 8},
    {ENTRY("\"dtype\":5,\"shape\":[2]" AT_0_8), 8},
    {ENTRY(F32 "\"shape\":2" AT_0_8), 8},
    {ENTRY(F32 "\"shape\":[2.0]" AT_0_8), 8},
    {ENTRY(F32 "\"shape\":[-2]" AT_0_8), 8},
    {ENTRY(F32 "\"shape\":[-1,-2]" AT_0_8), 8},
    {ENTRY(F32 "\"shape\":[3]" AT_0_8), 8},
    {ENTRY(F32 "\"shape\":[1,1,1,1,1,1,2]" AT_0_8), 8},
    {ENTRY(F32 "\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]"), 0}, /* wraps to 0 */
    {ENTRY(F32 "\"shape\":[4611686018427387906]" AT_0_8), 8},                   /* wraps to 8 */
    {ENTRY(F32 "\"shape\":[99999999999999999999]" AT_0_8), 8},
    {ENTRY(F32 "\"shape\":[2],\"data_offsets\":[8,0]"), 8},
    {ENTRY(F32 "\"shape\":[2],\"data_offsets\":[-8,0]"), 8},
    {ENTRY(F32 "\"shape\":[2],\"data_offsets\":[0]"), 8},
    {ENTRY(F32 "\"shape\":[2],\"data_offsets\":[0,8,8]"), 8},
    {ENTRY(F32 "\"shape\":[2],\"data_offsets\":[0,\"8\"]"), 8},
    {ENTRY(F32 "\"shape\":[2],\"data_offsets\":[4,12]"), 12},              /* hole at the start */
    {"{" A ",\"b\":{" F32 "\"shape\":[2],\"data_offsets\":[4,12]}}", 12},  /* overlap */
    {"{" A ",\"b\":{" F32 "\"shape\":[2],\"data_offsets\":[12,20]}}", 20}, /* hole */
    {"{" A ",\"b\":{" F32 "\"shape\":[2]" AT_0_8 "}}", 8},                 /* the same */
    {"{\"__metadata__\":[]}", 0},
    {"{\"__metadata__\":{\"k\":1}}", 0},
    {"{\"a\\u0000\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0},
};

static void test_bad_headers(void **state) {
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++)
        if (parse(bad_headers[i].header, bad_headers[i].data, -1) != TR_ERR_DATA)
            fail_msg("accepted: %s", bad_headers[i].header);
}

/* Files of another kind are called by their name. */
static void test_other_kinds(void **state) {
    char long_text[300]; /* what is looked at ends within a character */
    for (size_t i = 0; i < sizeof long_text; i++)
        long_text[i] = i == 0 ? 'a' : i % 2 ? '\xc3' : '\xbc';
    const struct {
        const char *bytes, *names;
        size_t count;
    } files[] = {
        {"", "x", 0},
        {"# Weights\r\n\tnone\n", "x & .safetensors", 17},
        {"PK\3\4\0\0\10\10\0\0", "torch.save & numpy.savez", 10},
        {"Gewichte f\xc3\xbcr morgen", "x & .safetensors", 20},
        {"\xc3\x28\xfc\xfd", "x & .safetensors", 4}, /* no UTF-8 */
        {long_text, "x & .safetensors", sizeof long_text},
        {"\x80\2\x8a\x0al\xfc\x9c\x46\xf9", "torch.save", 9},
        {"\x89HDF\r\n\x1a\n\0", "HDF5", 9},
        {"\x7f"
         "ELF\2\1\1\0\0",
         "x & .safetensors", 9},
    };
    tr_safetensors_t *f = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_int_equal(tr_safetensors_parse(files[i].bytes, files[i].count, "x", &f),
                         TR_ERR_DATA);
        assert_error_names(files[i].names);
    }
}

static void test_bad_lengths(void **state) {
    tr_safetensors_t *f = NULL;
    assert_int_equal(parse("{}", 0, 3), TR_ERR_DATA);
    assert_int_equal(parse("{}", 0, INT64_MAX), TR_ERR_DATA);
    assert_int_equal(parse("{" A "}", 8, 10), TR_ERR_DATA);
    assert_int_equal(tr_safetensors_parse("\x20\3\0\0\0\0\0\0{\"a\":", 13, "x", &f), TR_ERR_DATA);
    assert_string_equal(
        tr_error_last()->message,
        "x is truncated in its header of 800 bytes: it has 5. Copy the file again.");
    assert_int_equal(tr_safetensors_parse("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "x", &f),
                     TR_ERR_DATA);
    for (size_t n = 0; n < 8; n++)
        assert_int_equal(tr_safetensors_parse("\0\0\0\0\0\0\0", n, "x", &f), TR_ERR_DATA);
}

static void test_odd_files(void **state) {
    tr_safetensors_t *f = NULL;
    remove_file();
    assert_int_equal(tr_safetensors_open("absent", &f), TR_ERR_NOINPUT);
    assert_int_equal(tr_safetensors_open(".", &f), TR_ERR_DATA);
    close(open(FILE_NAME, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(tr_safetensors_open(FILE_NAME, &f), TR_ERR_DATA);
    remove_file();
    assert_int_equal(mkfifo(FILE_NAME, 0600), 0);
    /* and does not wait for a writer */
    assert_int_equal(tr_safetensors_open(FILE_NAME, &f), TR_ERR_DATA);
    remove_file();
}

/* The CPU time that it takes to find each of so many */
static double find_all_sec(int tensors) {
    char name[64];
    tr_str_t text = {0};
    tr_safetensors_t *f = NULL;
    const clock_t begin = clock();
    tr_str_append_bytes(&text, "\0\0\0\0\0\0\0\0{", 9);
    for (int i = 0; i < tensors; i++)
        tr_str_printf(&text,
                      "%s\"layer.with.a.long.name.%d\":{\"dtype\":\"U8\",\"shape\":[1],"
                      "\"data_offsets\":[%d,%d]}",
                      i ? "," : "", i, i, i + 1);
    tr_str_append(&text, "}");
    OK(text.status);
    memcpy(text.text, &(uint64_t){text.length - 8}, 8);
    for (int i = 0; i < tensors; i++) tr_str_append_bytes(&text, "x", 1);
    OK(tr_safetensors_parse(text.text, text.length, "many.safetensors", &f));
    for (int i = 0; i < tensors; i++) {
        snprintf(name, sizeof name, "layer.with.a.long.name.%d", i);
        assert_ptr_equal(tr_safetensors_find(f, name), tr_safetensors_at(f, (size_t)i));
    }
    snprintf(name, sizeof name, "layer.with.a.long.name.%d", tensors);
    assert_null(tr_safetensors_find(f, name));
    tr_safetensors_close(&f);
    tr_str_free(&text);
    return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

/* Found one after the other, 100000 took a minute, 16 times as long as 25000. */
static void test_many_tensors(void **state) {
    const double sec = find_all_sec(25000);
    assert_true(find_all_sec(100000) < 10 * sec + 1);
}

/* Python's own reader and writer, where they are. */
static void test_python(void **state) {
    const char *python = getenv("TR_TEST_PYTHON");
    if (!python) {
        print_message("[  SKIPPED ] test_python: TR_TEST_PYTHON names no python with safetensors "
                      "and numpy\n");
        skip();
    }
    float w[6] = {1, 2, 3, 4, 5, 6};
    int64_t n[1] = {-7};
    tr_named_tensor_t in[] = {{"w", TR_F32, TR_SHAPE(2, 3), w},
                              {"odd", TR_U8, TR_SHAPE(3), "abc"},
                              {"n", TR_I64, {0}, n}};
    char command[2048];
    remove_file();
    OK(tr_safetensors_write(FILE_NAME, in, 3, "{\"format\": \"pt\"}", NULL, NULL, NULL));
    snprintf(command, sizeof command,
             "%s -c \"import numpy as np; from safetensors.numpy import load_file, save_file; d = "
             "load_file('%s'); "
             "assert d['w'].tolist() == [[1,2,3],[4,5,6]] and d['n'] == -7 and bytes(d['odd']) == "
             "b'abc'; "
             "save_file({'x': np.arange(5, dtype=np.int16), 'y': np.eye(3)}, 'py.safetensors')\"",
             python, FILE_NAME);
    assert_int_equal(system(command), 0);
    tr_safetensors_t *f = NULL;
    OK(tr_safetensors_open("py.safetensors", &f));
    const tr_named_tensor_t *x = tr_safetensors_find(f, "x"), *y = tr_safetensors_find(f, "y");
    const int16_t want[] = {0, 1, 2, 3, 4};
    assert_true(x && y && x->dtype == TR_I16 && y->dtype == TR_F64);
    int16_t found[5];
    OK(tr_safetensors_read(x, 0, sizeof found, found));
    assert_memory_equal(found, want, sizeof want);
    tr_safetensors_close(&f);
    unlink("py.safetensors");
}

/* It is read, not mapped: a mapping would end the program by SIGBUS. */
static void test_a_file_that_shrinks(void **state) {
    float data[2000] = {1}, found[2000];
    const tr_named_tensor_t in = {"t", TR_F32, TR_SHAPE(2000), data};
    tr_safetensors_t *f = NULL;
    remove_file();
    OK(tr_safetensors_write(FILE_NAME, &in, 1, NULL, NULL, NULL, NULL));
    OK(tr_safetensors_open(FILE_NAME, &f));
    const tr_named_tensor_t *t = tr_safetensors_find(f, "t");
    assert_int_equal(truncate(FILE_NAME, 4096), 0);
    OK(tr_safetensors_read(t, 0, 4, found));
    assert_int_equal(tr_safetensors_read(t, 0, sizeof found, found), TR_ERR_DATA);
    assert_names(tr_error_last()->message, FILE_NAME " & 4096");
    assert_int_equal(truncate(FILE_NAME, 0), 0);
    assert_int_equal(tr_safetensors_read(t, 0, 4, found), TR_ERR_DATA);
    tr_safetensors_close(&f);
}

static int teardown(void **state) {
    remove_file();
    return tr_mem_stats().live != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_shrinks),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_refusals_of_the_writer),
        cmocka_unit_test(test_good_headers),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_other_kinds),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_odd_files),
        cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_python),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
