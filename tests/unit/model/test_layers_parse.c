/* The text of layers: what is taken, and what is said of what is not. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "trainer/mem.h"
#include "trainer/model.h"

#include <string.h>

static void words_options_and_comments(void **state) {
    tr_layer_spec_t *specs;
    int count;
    const char *text =
        "# a net\nconv 32 5x5 pad = same bias=no, batchnorm,,\n\n  relu  # behind it\nlinear features=10,";
    assert_int_equal(tr_layers_parse(text, &specs, &count), TR_OK);
    assert_int_equal(count, 4);
    assert_string_equal(specs[0].name, "conv");
    assert_int_equal(specs[0].line, 2);
    assert_int_equal(specs[0].column, 1);
    assert_int_equal(specs[0].word_count, 4);
    assert_null(specs[0].words[0].key);
    assert_string_equal(specs[0].words[1].value, "5x5");
    assert_string_equal(specs[0].words[2].key, "pad");
    assert_string_equal(specs[0].words[2].value, "same");
    assert_int_equal(specs[0].words[2].column, 13);
    assert_string_equal(specs[2].name, "relu");
    assert_int_equal(specs[2].line, 4);
    assert_int_equal(specs[2].column, 3);
    assert_int_equal(specs[2].word_count, 0);
    tr_layers_free(&specs, count);
    assert_null(specs);
}

static void blocks_nest_over_lines(void **state) {
    tr_layer_spec_t *specs;
    int count;
    const char *text = "repeat 2 {\n residual { conv 8 3 pad=same, relu }\n { conv 8 1 }, relu }\nlinear 10";
    assert_int_equal(tr_layers_parse(text, &specs, &count), TR_OK);
    assert_int_equal(count, 2);
    assert_int_equal(specs[0].block_count, 1);
    assert_int_equal(specs[0].blocks[0].count, 2);
    const tr_layer_spec_t *residual = &specs[0].blocks[0].specs[0];
    assert_string_equal(residual->name, "residual");
    assert_int_equal(residual->block_count, 2);
    assert_int_equal(residual->blocks[0].count, 2);
    assert_int_equal(residual->blocks[1].count, 1);
    assert_string_equal(specs[1].name, "linear");
    tr_layers_free(&specs, count);
}

static void normal_forms(void **state) {
    static const char *const same[][3] = {
        {"# a net\nconv 8 3x3 pad = valid, , relu # behind\nlinear features=10",
         "conv 8 3,relu,linear 10 bias=yes", "conv 8 3\nrelu\nlinear 10\n"},
        {"repeat 2 { linear 4, dropout 0.40 }", "linear 4, dropout 0.4, linear 4, dropout 0.4",
         "linear 4\ndropout 0.4\nlinear 4\ndropout 0.4\n"},
        {"residual { conv 8 3 pad=same bias=off }\n{ conv 8 1x1 }",
         "residual { conv 8 3 bias=no pad=same } { conv 8 1 }",
         "residual {\nconv 8 3 pad=same bias=no\n} {\nconv 8 1\n}\n"},
        {"repeat 2 lr_factor=0.1 { linear 4 name=a }", "repeat 2 lr_factor=1e-1 { linear 4 name=a }",
         "repeat 2 lr_factor=0.1 {\nlinear 4 name=a\n}\n"},
        {"maxpool 3x3 stride=2, maxpool 3x2", "maxpool 3 stride=2x2 pad=0, maxpool 3x2 trainable=true",
         "maxpool 3 stride=2\nmaxpool 3x2\n"},
    };
    for (size_t i = 0; i < TR_COUNT(same); i++)
        for (int k = 0; k < 2; k++) {
            tr_layer_spec_t *specs;
            tr_str_t text = {0};
            int count;
            assert_int_equal(tr_layers_parse(same[i][k], &specs, &count), TR_OK);
            tr_layers_write(specs, count, &text);
            assert_string_equal(text.text, same[i][2]);
            tr_str_free(&text);
            tr_layers_free(&specs, count);
        }
}

static void empty_texts_have_no_layers(void **state) {
    static const char *const texts[] = {"", " ,\n, ", "# nothing", "\n#\n"};
    for (size_t i = 0; i < TR_COUNT(texts); i++) {
        tr_layer_spec_t *specs;
        int count = -1;
        assert_int_equal(tr_layers_parse(texts[i], &specs, &count), TR_OK);
        assert_int_equal(count, 0);
        tr_layers_free(&specs, count);
    }
}

typedef struct {
    const char *text, *where, *part;
} bad_t;

static void check_bad(const bad_t *bad) {
    tr_layer_spec_t *specs = NULL;
    int count = 0;
    int64_t live = tr_mem_stats().live;
    tr_status_t status = tr_layers_parse(bad->text, &specs, &count);
    const char *message = tr_error_last()->message;
    if (status != TR_ERR_CONFIG || strstr(message, bad->where) == NULL || strstr(message, bad->part) == NULL)
        fail_msg("'%s': expected '%s' and '%s', found %d: %s", bad->text, bad->where, bad->part, (int)status,
                 message);
    assert_null(specs);
    assert_int_equal(tr_mem_stats().live, live);
    tr_error_clear();
}

static void bad_texts_say_where_and_what(void **state) {
    static const bad_t bad[] = {
        {"conv 32 5, 3x3", "line 1, column 12", "expected the name of a layer, found '3x3'"},
        {"conv 32 5, pad=same", "line 1, column 12",
         "the option 'pad='; options stand behind their layer, without a comma"},
        {"relu }", "line 1, column 6", "a } without its {"},
        {"residual { relu", "line 1, column 10", "closes this {, found the end of the text"},
        {"{ relu }", "line 1, column 1", "expected the name of a layer, found '{'"},
        {"linear 10 bias=", "line 1, column 16",
         "expected a value behind 'bias=', found the end of the text"},
        {"linear 10 bias=\nrelu", "line 1, column 16", "found the end of the line"},
        {"linear = 10", "line 1, column 1", "the option 'linear='"},
        {"maxpool 2 pad=same =3", "line 1, column 20",
         "expected an argument or an option as key=value, found '='"},
        {"residual {relu} {relu} {relu}", "line 1, column 24", "a third block"},
        {"relu\n  conf 32 5", "line 2, column 3", "there is no layer 'conf'; did you mean 'conv'?"},
        {"flatten, Dense 10", "line 1, column 10", "there is no layer 'Dense'; did you mean 'linear'?"},
        {"fc 10", "line 1, column 1", "did you mean 'linear'?"},
        {"conv 4 3, bn", "line 1, column 11", "did you mean 'batchnorm'?"},
        {"batch 4", "line 1, column 1", "there is no layer 'batch'; did you mean 'batchnorm'?"},
        {"swish", "line 1, column 1", "there is no layer 'swish'. There are: linear, "},
        {"embedding 5", "line 1, column 1", "There are: linear, conv,"},
        {"linear 10, softmax", "line 1, column 12",
         "Leave it out: for classes the loss (cross_entropy) has it in it"},
        {"conv 32 5 strid=2", "line 1, column 11", "has no option 'strid'; did you mean 'stride'?"},
        {"conv 32 5 groups=4 colour=red", "line 1, column 20",
         "It is written: conv CHANNELS KERNEL [stride=1]"},
        {"conv 32", "line 1, column 1", "needs its kernel"},
        {"conv 32 5 3", "line 1, column 11", "takes no argument '3'"},
        {"relu 0.1", "line 1, column 6", "takes no argument '0.1'"},
        {"linear 64 relu", "line 1, column 11", "takes no argument 'relu' here (a comma is missing before it?)"},
        {"relu, Conv2d(16,3)", "line 1, column 7", "as in 'conv 16 3x3', found 'Conv2d(16'"},
        {"conv 0 5", "line 1, column 6", "channels of 'conv' expects a whole number from 1 to"},
        {"conv 1.5 5", "line 1, column 6", "found '1.5'"},
        {"conv 32 5y5", "line 1, column 9", "kernel of 'conv' expects a size such as 3 or 3x3"},
        {"conv 32 5x", "line 1, column 9", "found '5x'"},
        {"conv 32 3x3x3x3", "line 1, column 9", "found '3x3x3x3'"},
        {"conv 32 0x3", "line 1, column 9", "found '0x3'"},
        {"conv 32 5 pad=sane", "line 1, column 11", "expects same, valid, or a size"},
        {"conv 32 5 bias=maybe", "line 1, column 11", "expects yes or no"},
        {"conv 32 5 bias=no bias=yes", "line 1, column 19", "bias of 'conv' is given twice"},
        {"conv 32 5 kernel=3", "line 1, column 11", "kernel of 'conv' is given twice"},
        {"dropout 1.5", "line 1, column 9", "expects a number from 0 to 0.999"},
        {"dropout nan", "line 1, column 9", "expects a number"},
        {"batchnorm init=two", "line 1, column 11", "expects one of one|zero"},
        {"relu { conv 3 3 }", "line 1, column 1", "takes no block in braces"},
        {"residual", "line 1, column 1", "needs layers in braces"},
        {"residual { }", "line 1, column 1", "no layers between its braces"},
        {"repeat 3 { relu } { relu }", "line 1, column 1", "takes fewer blocks"},
        {"repeat 0 { relu }", "line 1, column 8", "from 1 to 1000"},
        {"repeat 2 name=a { relu }", "line 1, column 1", "has no name of its own"},
        {"relu name=a.b", "line 1, column 1", "letters, digits"},
        {"residual { residual name=shortcut { relu } } { relu }", "line 1, column 12", "second block"},
        {"repeat 2 {\n residual {\n  conw 3 3\n }\n}", "line 3, column 3", "did you mean 'conv'"},
    };
    for (size_t i = 0; i < TR_COUNT(bad); i++) check_bad(&bad[i]);
}

static void deep_nesting_is_refused(void **state) {
    tr_str_t text = {0};
    for (int i = 0; i < 100000; i++) tr_str_append(&text, "residual{");
    bad_t bad = {text.text, "line 1", "nested deeper than"};
    check_bad(&bad);
    tr_str_free(&text);
}

/* Every allocation that can fail is failed once; nothing is lost. */
static void failed_allocations_leave_nothing_behind(void **state) {
    int64_t live = tr_mem_stats().live;
    tr_status_t status = TR_ERR_MEMORY;
    for (int64_t nth = 1; status != TR_OK; nth++) {
        tr_layer_spec_t *specs = NULL;
        int count = 0;
        tr_mem_fail_at(nth);
        status =
            tr_layers_parse("residual { conv 8 3 pad=same, relu } { conv 8 1 }, linear 10", &specs, &count);
        tr_mem_fail_at(0);
        if (status == TR_OK)
            tr_layers_free(&specs, count);
        else
            assert_int_equal(status, TR_ERR_MEMORY);
        assert_int_equal(tr_mem_stats().live, live);
        assert_true(nth < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_options_and_comments),
        cmocka_unit_test(blocks_nest_over_lines),
        cmocka_unit_test(normal_forms),
        cmocka_unit_test(empty_texts_have_no_layers),
        cmocka_unit_test(bad_texts_say_where_and_what),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(failed_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
