/* Text of tokens: what is held back, stop strings, and that parts are the whole. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "serve/detokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tr_tokenizer_t *tokenizer; /* of bytes */

static int open_tokenizer(void **state) {
    (void)state;
    return tr_tokenizer_create("bytes", &tokenizer);
}

static int close_tokenizer(void **state) {
    (void)state;
    tr_tokenizer_destroy(&tokenizer);
    return 0;
}

static void add(tr_detokenizer_t *d, const char *bytes) {
    for (; *bytes && !d->is_stopped; bytes++) OK(tr_detokenizer_add(d, (unsigned char)*bytes));
}

static const char *shown(const tr_detokenizer_t *d) {
    return d->text.text ? d->text.text : "";
}

static void characters_are_shown_whole(void **state) {
    tr_detokenizer_t d = {.tokenizer = tokenizer};
    (void)state;
    add(&d, "a\xE2\x82");
    assert_string_equal(shown(&d), "a");
    assert_int_equal(d.shown_tokens, 1);
    add(&d, "\xAC");
    assert_string_equal(shown(&d), "a\u20AC");
    assert_int_equal(d.shown_tokens, 4);
    add(&d, "\xE2\x82");
    add(&d, "b"); /* no character begins so */
    assert_string_equal(shown(&d), "a\u20AC\uFFFD\uFFFDb");
    add(&d, "\xF0\x9F");
    OK(tr_detokenizer_finish(&d));
    assert_string_equal(shown(&d), "a\u20AC\uFFFD\uFFFDb\uFFFD\uFFFD");
    assert_int_equal(d.shown_tokens, 9);
    tr_detokenizer_free(&d);
}

static void stop_strings_end_the_text(void **state) {
    static const char *const stops[] = {"stop", "oh"};
    tr_detokenizer_t d = {.tokenizer = tokenizer, .stops = stops, .stop_count = 2};
    (void)state;
    add(&d, "a sto");
    assert_string_equal(shown(&d), "a ");
    add(&d, "ne st");
    assert_string_equal(shown(&d), "a stone ");
    assert_false(d.is_stopped);
    add(&d, "op and more");
    assert_true(d.is_stopped);
    assert_string_equal(shown(&d), "a stone ");
    assert_int_equal(d.shown_tokens, 8);
    tr_detokenizer_free(&d);
    d = (tr_detokenizer_t){.tokenizer = tokenizer, .stops = stops, .stop_count = 2};
    add(&d, "stoh"); /* `oh` ends inside of what could have become `stop` */
    assert_true(d.is_stopped);
    assert_string_equal(shown(&d), "st");
    tr_detokenizer_free(&d);
    d = (tr_detokenizer_t){.tokenizer = tokenizer, .stops = stops, .stop_count = 2};
    add(&d, "sto");
    OK(tr_detokenizer_finish(&d));
    assert_string_equal(shown(&d), "sto");
    tr_detokenizer_free(&d);
}

/* Of several stop strings the same one counts whether they come in one token or byte by byte. */
static void tokens_do_not_matter(void **state) {
    static const char *const stops[] = {"model", "od"};
    tr_detokenizer_t d = {.tokenizer = tokenizer, .stops = stops, .stop_count = 2};
    tr_tokenizer_t *words = NULL;
    tr_ids_t ids = {0};
    char spec[4096];
    (void)state;
    add(&d, "a model");
    assert_string_equal(shown(&d), "a m");
    tr_detokenizer_free(&d);
    snprintf(spec, sizeof spec, "gpt2:%s/tests/golden/gpt2/plain", getenv("TRAINER_ROOT"));
    OK(tr_tokenizer_create(spec, &words));
    OK(tr_tokenizer_encode(words, "model", 5, &ids));
    assert_int_equal(ids.count, 1);
    d = (tr_detokenizer_t){.tokenizer = words, .stops = stops, .stop_count = 2};
    OK(tr_detokenizer_add(&d, ids.data[0]));
    assert_string_equal(shown(&d), "m");
    assert_int_equal(d.shown_tokens, 1);
    tr_detokenizer_free(&d);
    tr_vec_free(&ids);
    tr_tokenizer_destroy(&words);
}

static void unknown_ids_are_replaced(void **state) {
    tr_detokenizer_t d = {.tokenizer = tokenizer};
    (void)state;
    OK(tr_detokenizer_add(&d, -1));
    OK(tr_detokenizer_add(&d, 1 << 20));
    assert_string_equal(shown(&d), "\uFFFD\uFFFD");
    tr_detokenizer_free(&d);
}

/* Random bytes of a few kinds, with stop strings of the same: what was shown never changes, and the
 * end is what a search of the whole gives. */
static void parts_are_the_whole(void **state) {
    static const char kinds[] = "ab\xC3\xA9\xE2\x82\xAC\xF0";
    (void)state;
    srand(7);
    for (int round = 0; round < 20000; round++) {
        char text[16] = "", stop[2][4] = {"", ""};
        const char *const stops[] = {stop[0], stop[1]};
        tr_detokenizer_t d = {.tokenizer = tokenizer, .stops = stops, .stop_count = 2};
        tr_str_t before = {0}, whole = {0};
        for (int i = 0; i < 15; i++) text[i] = kinds[rand() % 8];
        for (int i = 0; i < 2; i++)
            for (int k = rand() % 3; k >= 0; k--) stop[i][k] = kinds[rand() % 2];
        for (int i = 0; i < 15 && !d.is_stopped; i++) {
            before.length = 0;
            tr_str_append(&before, shown(&d));
            OK(tr_detokenizer_add(&d, (unsigned char)text[i]));
            assert_memory_equal(shown(&d), before.text, before.length);
        }
        if (!d.is_stopped) OK(tr_detokenizer_finish(&d));
        const char *ends[] = {strstr(text, stop[0]), strstr(text, stop[1])};
        /* The string that is complete first ends the text. */
        size_t cut = 15, complete = 16;
        for (int i = 0; i < 2; i++) {
            const size_t at = ends[i] ? (size_t)(ends[i] - text) : 15, end = at + strlen(stop[i]);
            if (!ends[i] || end > complete) continue;
            cut = end < complete || at < cut ? at : cut;
            complete = end;
        }
        text[cut] = '\0';
        tr_str_append_utf8(&whole, text, cut);
        assert_string_equal(shown(&d), whole.text ? whole.text : "");
        tr_str_free(&before);
        tr_str_free(&whole);
        tr_detokenizer_free(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_shown_whole), cmocka_unit_test(stop_strings_end_the_text),
        cmocka_unit_test(tokens_do_not_matter),       cmocka_unit_test(unknown_ids_are_replaced),
        cmocka_unit_test(parts_are_the_whole),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
