/* Requests for texts: what is read from JSON, what is refused, and what errors name. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "base/mem.h"
#include "serve/completion.h"

#include <string.h>

static tr_text_model_t model = {.name = "m", .context = 8};

static int open_model(void **state) {
    tr_tokenizer_t *tokenizer = NULL;
    (void)state;
    const tr_status_t status = tr_tokenizer_create("bytes", &tokenizer);
    model.tokenizer = tokenizer;
    return status;
}

static int close_model(void **state) {
    tr_tokenizer_t *tokenizer = (tr_tokenizer_t *)(uintptr_t)model.tokenizer;
    (void)state;
    tr_tokenizer_destroy(&tokenizer);
    return 0;
}

static tr_status_t read_text(const char *text, tr_completion_t *c) {
    json_t *request;
    *c = (tr_completion_t){0};
    TR_TRY(tr_json_request(text, strlen(text), &request));
    return tr_completion_read(&model, request, c);
}

static void refused(tr_status_t status, const char *names, const char *text) {
    tr_completion_t c;
    assert_int_equal(read_text(text, &c), status);
    if (!strstr(tr_error_last()->message, names))
        fail_msg("%s: expected %s in: %s", text, names, tr_error_last()->message);
    tr_completion_free(&c);
}

static void defaults_are_those_of_the_api(void **state) {
    tr_completion_t c;
    (void)state;
    OK(read_text("{\"prompt\": \"abc\"}", &c));
    assert_int_equal(c.generation.count, 1);
    const tr_text_t *text = &c.generation.choices[0].text;
    assert_int_equal(text->ids.count, 3);
    assert_int_equal(text->ids.data[2], 'c');
    assert_int_equal(text->most, 16);
    assert_int_equal(text->logprobs, -1);
    assert_true(text->sampling.temperature == 1 && text->sampling.top_p == 1);
    assert_int_equal(text->sampling.top_k, 0);
    assert_true(text->sampling.seed < 1ull << 53);
    assert_false(c.stream);
    tr_completion_free(&c);
}

static void choices_are_counted_by_prompt_and_n(void **state) {
    tr_completion_t c;
    (void)state;
    OK(read_text("{\"prompt\": [[97], \"bc\"], \"n\": 3, \"seed\": 5, \"max_tokens\": 2.0,"
                 " \"stop\": [\"x\", \"y\"], \"logprobs\": 0, \"model\": \"m\", \"stream\": true}",
                 &c));
    assert_int_equal(c.generation.count, 6);
    for (size_t i = 0; i < 6; i++) {
        const tr_choice_t *choice = &c.generation.choices[i];
        assert_int_equal(choice->text.index, i);
        assert_int_equal(choice->text.ids.count, i < 3 ? 1 : 2);
        assert_int_equal(choice->text.sampling.seed, 5);
        assert_int_equal(choice->text.most, 2);
        assert_int_equal(choice->text.logprobs, 0);
        assert_int_equal(choice->out.stop_count, 2);
        assert_string_equal(choice->out.stops[1], "y");
    }
    assert_true(c.generation.is_streamed);
    tr_completion_free(&c);
}

static void errors_name_the_field(void **state) {
    static const struct {
        const char *names, *text;
    } cases[] = {
        {"JSON", "{"},
        {"the body", "[1]"},
        {"at most 16 deep", "[[[[[[[[[[[[[[[[[[[["},
        {"prompt", "{}"},
        {"prompt: expected at most 8 tokens, found 9", "{\"prompt\": \"123456789\"}"},
        {"prompt", "{\"prompt\": [[1], [2, true]]}"},
        {"from 0 to 256", "{\"prompt\": [257]}"},
        {"max_tokens", "{\"prompt\": \"\", \"max_tokens\": 0}"},
        {"found 0.5", "{\"prompt\": \"\", \"n\": 0.5}"},
        {"stop", "{\"prompt\": \"\", \"stop\": [\"1\", \"2\", \"3\", \"4\", \"5\"]}"},
        {"best_of", "{\"prompt\": \"\", \"best_of\": 2}"},
        {"did you mean temperature?", "{\"prompt\": \"\", \"temprature\": 2}"},
        {"prompt: expected a string, or a list of strings or token ids, found nothing", "{}"},
        {"seed", "{\"prompt\": \"\", \"seed\": 9223372036854775808}"},
        {"temperature, top_p", "{\"prompt\": \"\", \"zzz\": 1}"},
        {"echo", "{\"prompt\": \"\", \"echo\": true, \"logprobs\": 1}"},
    };
    (void)state;
    for (size_t i = 0; i < TR_COUNT(cases); i++)
        refused(TR_ERR_DATA, cases[i].names, cases[i].text);
    refused(TR_ERR_NOINPUT, "model: expected m", "{\"prompt\": \"\", \"model\": \"other\"}");
}

/* Each allocation fails once: an error, and nothing is lost. */
static void memory_may_be_missing(void **state) {
    static const char text[] = "{\"prompt\": [\"ab\", \"c\"], \"n\": 2, \"stream\": true}";
    tr_completion_t c;
    tr_status_t status;
    (void)state;
    const int64_t live = tr_mem_stats().live;
    int64_t nth = 0;
    do {
        tr_mem_fail_at(++nth);
        status = read_text(text, &c);
        tr_mem_fail_at(0);
        assert_true(status == TR_OK || status == TR_ERR_MEMORY);
        tr_completion_free(&c);
        assert_int_equal(tr_mem_stats().live, live);
    } while (status != TR_OK);
    assert_true(nth > 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_api),
        cmocka_unit_test(choices_are_counted_by_prompt_and_n),
        cmocka_unit_test(errors_name_the_field),
        cmocka_unit_test(memory_may_be_missing),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
