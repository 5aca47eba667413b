/* Tokenizers against tiktoken's ids (tests/golden/tokens.json), decode(encode(bytes)) = bytes,
 * pieces, JSON, bad vocabularies. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "base/clock.h"
#include "base/rng.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static json_t *golden;
static char data_folder[4096]; /* of GPT-2's files and the text; "" where they are not there */
static tr_tokenizer_t *gpt2, *small; /* gpt2 NULL: not there */

/* -- help -------------------------------------------------------------------------------------- */

static const char *member(const json_t *object, const char *name, size_t *out_bytes) {
    const json_t *text = json_object_get(object, name);
    *out_bytes = json_string_length(text);
    return json_string_value(text);
}

static void assert_ids(const json_t *expected, const tr_ids_t *ids) {
    for (size_t i = 0; i < ids->count && i < json_array_size(expected); i++)
        if (ids->data[i] != json_integer_value(json_array_get(expected, i)))
            fail_msg("token %zu is %d, expected %d", i, (int)ids->data[i],
                     (int)json_integer_value(json_array_get(expected, i)));
    assert_int_equal(ids->count, json_array_size(expected));
}

static void assert_checksum(const char *name, const tr_ids_t *ids) {
    const json_t *expected = json_object_get(golden, name);
    assert_int_equal(ids->count, json_integer_value(json_object_get(expected, "count")));
    assert_int_equal(crc32(0, (const Bytef *)ids->data, (uInt)(4 * ids->count)),
                     json_integer_value(json_object_get(expected, "crc32")));
}

static void assert_decodes(const tr_tokenizer_t *tokenizer, const tr_ids_t *ids, const char *text,
                           size_t bytes) {
    tr_str_t decoded = {0};
    OK(tr_tokenizer_decode(tokenizer, ids->data, ids->count, &decoded));
    assert_int_equal(decoded.length, bytes);
    if (bytes) assert_memory_equal(decoded.text, text, bytes);
    tr_str_free(&decoded);
}

static void assert_round_trip(const tr_tokenizer_t *tokenizer, const char *text, size_t bytes) {
    tr_ids_t ids = {0};
    OK(tr_tokenizer_encode(tokenizer, text, bytes, &ids));
    assert_decodes(tokenizer, &ids, text, bytes);
    tr_vec_free(&ids);
}

static void learn(tr_tokenizer_t *tokenizer, const char *text, size_t bytes) {
    tr_ids_t ids = {0};
    assert_true(tokenizer->is_learning);
    OK(tr_tokenizer_encode(tokenizer, text, bytes, &ids));
    assert_int_equal(ids.count, 0);
    tr_vec_free(&ids);
    OK(tr_tokenizer_learned(tokenizer));
}

static char *read_file(const char *name, size_t *out_bytes) {
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", data_folder, name);
    FILE *file = fopen(path, "r");
    struct stat status;
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &status), 0);
    char *text = malloc((size_t)status.st_size + 1);
    *out_bytes = fread(text, 1, (size_t)status.st_size, file);
    fclose(file);
    return text;
}

/* -- tests ------------------------------------------------------------------------------------- */

static void small_vocabulary_is_as_tiktoken(void **state) {
    size_t bytes;
    tr_ids_t ids = {0};
    const char *text = member(json_object_get(golden, "torture"), "text", &bytes);
    OK(tr_tokenizer_encode(small, text, bytes, &ids));
    assert_ids(json_object_get(json_object_get(golden, "small"), "ids"), &ids);
    assert_decodes(small, &ids, text, bytes);
    assert_int_equal(small->end, small->vocab_size - 1);
    tr_vec_free(&ids);
}

static void gpt2_is_as_tiktoken(void **state) {
    size_t bytes;
    tr_ids_t ids = {0};
    if (!gpt2) skip();
    const json_t *torture = json_object_get(golden, "torture");
    const char *text = member(torture, "text", &bytes);
    assert_int_equal(gpt2->vocab_size, 50257);
    assert_int_equal(gpt2->end, 50256);
    OK(tr_tokenizer_encode(gpt2, text, bytes, &ids));
    assert_ids(json_object_get(torture, "ids"), &ids);
    assert_decodes(gpt2, &ids, text, bytes);
    tr_vec_free(&ids);
}

static void tinyshakespeare_is_as_tiktoken(void **state) {
    size_t bytes;
    tr_ids_t ids = {0};
    if (!gpt2) skip();
    char *text = read_file("text/tinyshakespeare.txt", &bytes);
    const double begin = tr_clock_sec();
    OK(tr_tokenizer_encode(gpt2, text, bytes, &ids));
    const double sec = tr_clock_sec() - begin;
    print_message("tinyshakespeare: %zu bytes, %zu tokens, %.1f MB/s\n", bytes, ids.count,
                  (double)bytes / sec / 1e6);
    assert_checksum("tinyshakespeare", &ids);
    assert_decodes(gpt2, &ids, text, bytes);
    free(text);
    tr_vec_free(&ids);
}

/* What GPT-2's pattern takes for letters, numbers and spaces. */
static void every_code_point_is_as_tiktoken(void **state) {
    enum { CODES = 0x110000 };
    static unsigned char class_of[CODES];
    int64_t count[4] = {0};
    const json_t *expected = json_object_get(golden, "classes");
    for (uint32_t code = 0; code < CODES; code++) {
        class_of[code] = (unsigned char)tr_unicode_class(code);
        count[class_of[code]]++;
    }
    for (size_t class = TR_UNICODE_LETTER; class <= TR_UNICODE_SPACE; class ++)
        assert_int_equal(count[class], json_integer_value(json_array_get(
                                           json_object_get(expected, "counts"), class - 1)));
    assert_int_equal(crc32(0, class_of, CODES),
                     json_integer_value(json_object_get(expected, "crc32")));
}

/* Whatever pieces a text comes in, its ids are the same. */
static void pieces_make_no_difference(void **state) {
    size_t bytes;
    const json_t *torture = json_object_get(golden, "torture");
    const char *text = member(torture, "text", &bytes);
    tr_rng_t rng = tr_rng_make(1, 0, 0, 0);
    for (int most = 1; most < 100; most += 7) {
        tr_encoder_t *encoder;
        tr_ids_t ids = {0};
        OK(tr_encoder_create(small, &encoder));
        for (size_t at = 0, count; at < bytes; at += count) {
            count = 1 + tr_rng_below(&rng, (uint64_t)most);
            if (count > bytes - at) count = bytes - at;
            OK(tr_encoder_add(encoder, text + at, count, &ids));
        }
        OK(tr_encoder_finish(encoder, &ids));
        assert_ids(json_object_get(json_object_get(golden, "small"), "ids"), &ids);
        tr_encoder_destroy(&encoder);
        tr_vec_free(&ids);
    }
}

/* Of 1.25 MiB, so that the encoder has to cut; and across its cuts. */
static void long_texts_come_back(void **state) {
    const size_t bytes = 5 << 18;
    char *text = malloc(bytes);
    const char *const unit[] = {"x", "word ", "<|endoftext"};
    for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
        const size_t length = strlen(unit[u]);
        for (size_t i = 0; i < bytes; i++) text[i] = unit[u][i % length];
        assert_round_trip(small, text, bytes);
    }
    free(text);
}

static void any_bytes_come_back(void **state) {
    enum { BYTES = 3000 };
    char text[BYTES];
    tr_tokenizer_t *tokenizer[2] = {small};
    tr_rng_t rng = tr_rng_make(2, 0, 0, 0);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < BYTES; i++) {
            const uint64_t draw = tr_rng_below(&rng, round % 2 ? 256 : 1024);
            text[i] = draw < 256 ? (char)draw : "\xe2\x80\x83' s7\xc3\xa9"[draw % 9];
        }
        OK(tr_tokenizer_create("bytes", &tokenizer[1]));
        for (int t = 0; t < 2; t++)
            assert_round_trip(tokenizer[t], text, (size_t)(round ? BYTES : 0));
        tr_tokenizer_destroy(&tokenizer[1]);
    }
}

static void bytes_and_chars_have_an_end(void **state) {
    static const char text[] = "b\xc3\xa9" TR_END_OF_TEXT "a\xf0\x9f\x98\x80";
    static const int32_t as_bytes[] = {'b', 0xc3, 0xa9, 256, 'a', 0xf0, 0x9f, 0x98, 0x80},
                         as_chars[] = {1, 2, 4, 0, 3};
    tr_tokenizer_t *bytes, *chars;
    tr_ids_t ids = {0};
    OK(tr_tokenizer_create("bytes", &bytes));
    assert_int_equal(bytes->vocab_size, 257);
    OK(tr_tokenizer_encode(bytes, text, sizeof text - 1, &ids));
    assert_int_equal(ids.count, 9);
    assert_memory_equal(ids.data, as_bytes, sizeof as_bytes);
    assert_decodes(bytes, &ids, text, sizeof text - 1);
    ids.count = 0;
    OK(tr_tokenizer_create("chars", &chars));
    learn(chars, text, sizeof text - 1);
    assert_int_equal(chars->vocab_size, 5); /* < | > are not in it: the end is no text */
    OK(tr_tokenizer_encode(chars, text, sizeof text - 1, &ids));
    assert_int_equal(ids.count, 5);
    assert_memory_equal(ids.data, as_chars, sizeof as_chars);
    assert_decodes(chars, &ids, text, sizeof text - 1);
    assert_int_equal(tr_tokenizer_encode(chars, "abc", 3, &ids), TR_ERR_DATA);
    assert_non_null(strstr(tr_error_last()->message, "'c' (U+0063)"));
    tr_tokenizer_destroy(&bytes);
    tr_tokenizer_destroy(&chars);
    tr_vec_free(&ids);
}

static void json_gives_the_same_tokenizer(void **state) {
    size_t bytes;
    const char *text = member(json_object_get(golden, "torture"), "text", &bytes);
    tr_tokenizer_t *tokenizer[3] = {small};
    OK(tr_tokenizer_create("bytes", &tokenizer[1]));
    OK(tr_tokenizer_create("chars", &tokenizer[2]));
    learn(tokenizer[2], text, bytes);
    for (int t = 0; t < 3; t++) {
        char *json;
        tr_tokenizer_t *again;
        tr_ids_t ids = {0}, other = {0};
        OK(tr_tokenizer_to_json(tokenizer[t], &json));
        OK(tr_tokenizer_from_json(json, "here", &again));
        assert_string_equal(tr_tokenizer_name(again), tr_tokenizer_name(tokenizer[t]));
        assert_int_equal(again->vocab_size, tokenizer[t]->vocab_size);
        assert_int_equal(again->end, tokenizer[t]->end);
        assert_false(again->is_learning);
        OK(tr_tokenizer_encode(tokenizer[t], text, bytes, &ids));
        OK(tr_tokenizer_encode(again, text, bytes, &other));
        assert_int_equal(ids.count, other.count);
        assert_memory_equal(ids.data, other.data, 4 * ids.count);
        tr_free(&json);
        tr_tokenizer_destroy(&again);
        tr_vec_free(&ids);
        tr_vec_free(&other);
    }
    tr_tokenizer_destroy(&tokenizer[1]);
    tr_tokenizer_destroy(&tokenizer[2]);
}

/* Also where the end of texts is not in the vocabulary: then it is the id after the others. */
static void files_give_the_same_tokenizer(void **state) {
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    size_t bytes;
    const char *text = member(json_object_get(golden, "torture"), "text", &bytes), *name;
    char folder[512], path[3][600], spec[600], *content;
    tr_tokenizer_t *again, *without;
    tr_ids_t ids = {0};
    const char *place = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/trainer-test-XXXXXX", place ? place : "/tmp");
    assert_non_null(mkdtemp(folder));
    json_t *copy = json_deep_copy(json_object_get(golden, "small"));
    json_object_del(json_object_get(copy, "vocab"), TR_END_OF_TEXT);
    char *json = json_dumps(copy, 0);
    OK(tr_tokenizer_from_json(json, "here", &without));
    assert_int_equal(without->end, small->end);
    for (int i = 0; i < 3; i++) {
        OK(tr_tokenizer_file(without, i, &name, &content));
        assert_string_equal(name, names[i]);
        snprintf(path[i], sizeof path[i], "%s/%s", folder, name);
        FILE *file = fopen(path[i], "w");
        assert_non_null(file);
        assert_true(fputs(content, file) >= 0);
        fclose(file);
        tr_free(&content);
    }
    OK(tr_tokenizer_file(without, 3, &name, &content));
    assert_null(name);
    snprintf(spec, sizeof spec, "gpt2:%s", folder);
    OK(tr_tokenizer_create(spec, &again));
    assert_int_equal(again->vocab_size, small->vocab_size);
    assert_int_equal(again->end, small->end);
    OK(tr_tokenizer_encode(again, text, bytes, &ids));
    assert_ids(json_object_get(json_object_get(golden, "small"), "ids"), &ids);
    for (int i = 0; i < 3; i++) unlink(path[i]);
    rmdir(folder);
    free(json);
    json_decref(copy);
    tr_tokenizer_destroy(&again);
    tr_tokenizer_destroy(&without);
    tr_vec_free(&ids);
}

/* Of added tokens that begin alike, the longest that is all there. */
static void the_longest_added_token(void **state) {
    static const char text[] = "<x1234<x12<x<x129<x123";
    enum { MANY = 1300 };
    json_t *object = json_deep_copy(json_object_get(golden, "small")), *added = json_array();
    tr_tokenizer_t *tokenizer;
    tr_ids_t ids = {0};
    tr_str_t back = {0};
    const int32_t size = small->vocab_size;
    (void)state;
    for (int i = 0; i < MANY; i++) {
        char content[16];
        snprintf(content, sizeof content, "<x%d", MANY - 1 - i);
        json_array_append_new(added, json_pack("{s:i, s:s}", "id", size + i, "content", content));
    }
    json_object_set_new(object, "added_tokens", added);
    char *json = json_dumps(object, 0);
    OK(tr_tokenizer_from_json(json, "here", &tokenizer));
    OK(tr_tokenizer_encode(tokenizer, text, strlen(text), &ids));
    OK(tr_tokenizer_decode(tokenizer, ids.data, ids.count, &back));
    assert_string_equal(back.text, text);
    assert_int_equal(ids.data[0], size + MANY - 1 - 1234);
    assert_int_equal(ids.data[1], size + MANY - 1 - 12);
    assert_int_equal(ids.data[ids.count - 1], size + MANY - 1 - 123);
    assert_int_equal(ids.data[ids.count - 2], size + MANY - 1 - 129);
    tr_vec_free(&ids);
    tr_str_free(&back);
    tr_tokenizer_destroy(&tokenizer);
    free(json);
    json_decref(object);
}

/* `small` with two tokens more, the second behind a gap, and another end of texts. */
static void added_tokens_are_one_token(void **state) {
    static const char text[] = "a<|b|>c<|b|><|bc|>d<|b";
    json_t *object = json_deep_copy(json_object_get(golden, "small"));
    char *before, *again, *kept;
    tr_tokenizer_t *tokenizer;
    tr_encoder_t *encoder;
    tr_ids_t ids = {0}, parts = {0};
    tr_str_t back = {0};
    const int32_t size = small->vocab_size, one = size, two = size + 5;
    (void)state;
    json_object_set_new(object, "added_tokens",
                        json_pack("[{s:i, s:s}, {s:i, s:s}]", "id", one, "content", "<|b|>", "id",
                                  two, "content", "<|bc|>"));
    json_object_set_new(object, "ends", json_pack("[i]", two));
    char *json = json_dumps(object, 0);
    OK(tr_tokenizer_from_json(json, "here", &tokenizer));
    assert_int_equal(tokenizer->vocab_size, two + 1);
    assert_int_equal(tokenizer->end, small->end);
    assert_true(tr_tokenizer_has(tokenizer, two) && !tr_tokenizer_has(tokenizer, two - 1));
    OK(tr_tokenizer_encode(tokenizer, text, strlen(text), &ids));
    assert_int_equal(ids.data[1], one);
    assert_int_equal(ids.data[3], one);
    assert_int_equal(ids.data[4], two);
    OK(tr_tokenizer_decode(tokenizer, ids.data, ids.count, &back));
    assert_string_equal(back.text, text);
    OK(tr_encoder_create(tokenizer, &encoder));
    for (size_t i = 0; i < strlen(text); i++) OK(tr_encoder_add(encoder, text + i, 1, &parts));
    OK(tr_encoder_finish(encoder, &parts));
    assert_int_equal(ids.count, parts.count);
    assert_memory_equal(ids.data, parts.data, 4 * ids.count);
    tr_encoder_destroy(&encoder);
    /* The same tokenizer as `small`, whose data keep the tokens, and end a text, too. */
    OK(tr_tokenizer_to_json(small, &before));
    OK(tr_tokenizer_to_json(tokenizer, &again));
    assert_true(tr_tokenizer_is_same(before, again));
    assert_false(tr_tokenizer_is_same(before, "{\"type\": \"bytes\"}"));
    OK(tr_tokenizer_keep(before, again, "here", &kept));
    tr_tokenizer_destroy(&tokenizer);
    OK(tr_tokenizer_from_json(kept, "here", &tokenizer));
    assert_int_equal(tokenizer->added.count, 2);
    assert_int_equal(tokenizer->ends.count, 2);
    assert_int_equal(tokenizer->ends.data[0], two);
    assert_int_equal(tokenizer->ends.data[1], small->end);
    tr_tokenizer_destroy(&tokenizer);
    tr_free(&before);
    tr_free(&again);
    tr_free(&kept);
    free(json);
    json_decref(object);
    tr_str_free(&back);
    tr_vec_free(&ids);
    tr_vec_free(&parts);
}

static void bad_ones_are_told(void **state) {
    static const struct {
        const char *json, *expected;
    } bad[] = {
        {"{", "line 1"},
        {"{\"type\":\"none\"}", "'none'"},
        {"{\"type\":\"chars\",\"characters\":[1,1]}", "characters"},
        {"{\"type\":\"chars\"}", "characters"},
        {"{\"type\":\"gpt2\",\"vocab\":{}}", "merges"},
        {"{\"type\":\"gpt2\",\"vocab\":{\"a\":1},\"merges\":[]}", "'a' has the id 1"},
        {"{\"type\":\"gpt2\",\"vocab\":{\"\\u4e2d\":0},\"merges\":[]}", "'\u4e2d' (0)"},
        {"{\"type\":\"gpt2\",\"vocab\":{\"!\":0},\"merges\":[]}", "0x00"},
    };
    tr_tokenizer_t *tokenizer;
    tr_ids_t ids = {0};
    tr_str_t text = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tr_tokenizer_from_json(bad[i].json, "f.h5", &tokenizer), TR_ERR_DATA);
        assert_non_null(strstr(tr_error_last()->message, "f.h5: "));
        if (!strstr(tr_error_last()->message, bad[i].expected))
            fail_msg("%s", tr_error_last()->message);
        assert_null(tokenizer);
    }
    const char *const specs[] = {"gpt3", "gpt2", "bytes:x", ""};
    for (int i = 0; i < 4; i++)
        assert_int_equal(tr_tokenizer_create(specs[i], &tokenizer), TR_ERR_USAGE);
    assert_int_equal(tr_tokenizer_create("gpt2:/nowhere", &tokenizer), TR_ERR_NOINPUT);
    assert_non_null(strstr(tr_error_last()->message, "/nowhere/vocab.json"));
    assert_int_equal(tr_tokenizer_decode(small, &(int32_t){small->vocab_size}, 1, &text),
                     TR_ERR_DATA);
    assert_int_equal(ids.count, 0);
}

/* -- the program ------------------------------------------------------------------------------- */

static int set_up(void **state) {
    char path[4096];
    const char *root = getenv("TRAINER_ROOT"), *data = getenv("TRAINER_TEST_DATA");
    snprintf(path, sizeof path, "%s/tests/golden/tokens.json", root ? root : ".");
    golden = json_load_file(path, JSON_ALLOW_NUL, NULL);
    if (!golden) return -1;
    json_object_set_new(json_object_get(golden, "small"), "type", json_string("gpt2"));
    char *text = json_dumps(json_object_get(golden, "small"), 0);
    tr_status_t status = tr_tokenizer_from_json(text, path, &small);
    free(text);
    if (status != TR_OK) return -1;
    snprintf(data_folder, sizeof data_folder, "%s", data ? data : "");
    snprintf(path, sizeof path, "%.4000s/gpt2/vocab.json", data_folder);
    if (access(path, R_OK)) {
        print_message("# no data in TRAINER_TEST_DATA: GPT-2's vocabulary is not tested\n");
        return 0;
    }
    snprintf(path, sizeof path, "gpt2:%.4000s/gpt2", data_folder);
    return tr_tokenizer_create(path, &gpt2) == TR_OK ? 0 : -1;
}

static int tear_down(void **state) {
    tr_tokenizer_destroy(&small);
    tr_tokenizer_destroy(&gpt2);
    json_decref(golden);
    return tr_mem_stats().live == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_vocabulary_is_as_tiktoken),
        cmocka_unit_test(gpt2_is_as_tiktoken),
        cmocka_unit_test(tinyshakespeare_is_as_tiktoken),
        cmocka_unit_test(every_code_point_is_as_tiktoken),
        cmocka_unit_test(pieces_make_no_difference),
        cmocka_unit_test(long_texts_come_back),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(bytes_and_chars_have_an_end),
        cmocka_unit_test(json_gives_the_same_tokenizer),
        cmocka_unit_test(files_give_the_same_tokenizer),
        cmocka_unit_test(added_tokens_are_one_token),
        cmocka_unit_test(the_longest_added_token),
        cmocka_unit_test(bad_ones_are_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
