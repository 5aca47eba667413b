/* The text of layers: what is taken, and what is said of what is not. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "../../support/names.h"
#include "base/mem.h"
#include "model/layer.h"

#include <string.h>

static void words_options_and_comments(void **state) {
    tr_layer_spec_t *specs;
    int count;
    const char *text = "# a net\nconv 32 5x5 pad = same bias=no, batchnorm,,\n\n  relu  # behind "
                       "it\nlinear features=10,";
    OK(tr_layers_parse(text, &specs, &count));
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
    const char *text =
        "repeat 2 {\n residual { conv 8 3 pad=same, relu }\n { conv 8 1 }, relu }\nlinear 10";
    OK(tr_layers_parse(text, &specs, &count));
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
        {"repeat 2 lr_factor=0.1 { linear 4 name=a }",
         "repeat 2 lr_factor=1e-1 { linear 4 name=a }",
         "repeat 2 lr_factor=0.1 {\nlinear 4 name=a\n}\n"},
        {"maxpool 3x3 stride=2, maxpool 3x2",
         "maxpool 3 stride=2x2 pad=0, maxpool 3x2 trainable=true",
         "maxpool 3 stride=2\nmaxpool 3x2\n"},
    };
    for (size_t i = 0; i < TR_COUNT(same); i++)
        for (int k = 0; k < 2; k++) {
            tr_layer_spec_t *specs;
            tr_str_t text = {0};
            int count;
            OK(tr_layers_parse(same[i][k], &specs, &count));
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
        OK(tr_layers_parse(texts[i], &specs, &count));
        assert_int_equal(count, 0);
        tr_layers_free(&specs, count);
    }
}

typedef struct {
    const char *text, *names; /* names: line, column, and what the message quotes */
} bad_t;

static void check_bad(const bad_t *bad) {
    tr_layer_spec_t *specs = NULL;
    int count = 0;
    int64_t live = tr_mem_stats().live;
    tr_status_t status = tr_layers_parse(bad->text, &specs, &count);
    if (status != TR_ERR_CONFIG || !names_all(tr_error_last()->message, bad->names))
        fail_msg("'%s': expected '%s', found %d: %s", bad->text, bad->names, (int)status,
                 tr_error_last()->message);
    assert_null(specs);
    assert_int_equal(tr_mem_stats().live, live);
    tr_error_clear();
}

static void bad_texts_say_where_and_what(void **state) {
    static const bad_t bad[] = {
        {"conv 32 5, 3x3", "1 & 12 & '3x3'"},
        {"conv 32 5, pad=same", "1 & 12 & 'pad='"},
        {"relu }", "1 & 6 & } & {"},
        {"residual { relu", "1 & 10 & {"},
        {"{ relu }", "1 & 1 & '{'"},
        {"linear 10 bias=", "1 & 16 & 'bias='"},
        {"linear 10 bias=\nrelu", "1 & 16 & 'bias='"},
        {"linear = 10", "1 & 'linear='"},
        {"maxpool 2 pad=same =3", "1 & 20 & key=value & '='"},
        {"residual {relu} {relu} {relu}", "1 & 'residual'"},
        {"relu\n  conf 32 5", "2 & 3 & 'conf' & 'conv'"},
        {"flatten, Dense 10", "1 & 10 & 'Dense' & 'linear'"},
        {"fc 10", "1 & 'fc' & 'linear'"},
        {"conv 4 3, bn", "1 & 11 & 'bn' & 'batchnorm'"},
        {"batch 4", "1 & 'batch' & 'batchnorm'"},
        {"swish", "1 & 'swish' & linear & conv & residual"},
        {"embedding 5", "1 & 'embedding' & linear & conv & residual"},
        {"linear 10, softmax", "1 & 12 & 'softmax' & cross_entropy"},
        {"conv 32 5 strid=2", "1 & 11 & 'strid' & 'stride'"},
        {"conv 32 5 groups=4 colour=red", "1 & 20 & 'colour' & CHANNELS KERNEL [stride=1]"},
        {"conv 32", "1 & 'conv' & kernel"},
        {"conv 32 5 3", "1 & 11 & '3'"},
        {"relu 0.1", "1 & 6 & '0.1'"},
        {"linear 64 relu", "1 & 11 & 'relu'"},
        {"relu, Conv2d(16,3)", "1 & 7 & 'conv 16 3x3' & 'Conv2d(16'"},
        {"conv 0 5", "1 & 6 & channels & 'conv' & '0'"},
        {"conv 1.5 5", "1 & 6 & channels & '1.5'"},
        {"conv 32 5y5", "1 & 9 & kernel & 'conv' & 3x3 & '5y5'"},
        {"conv 32 5x", "1 & 9 & kernel & '5x'"},
        {"conv 32 3x3x3x3", "1 & 9 & kernel & '3x3x3x3'"},
        {"conv 32 0x3", "1 & 9 & kernel & '0x3'"},
        {"conv 32 5 pad=sane", "1 & 11 & pad & same & valid & 'sane'"},
        {"conv 32 5 bias=maybe", "1 & 11 & bias & yes & no & 'maybe'"},
        {"conv 32 5 bias=no bias=yes", "1 & 19 & bias & 'conv'"},
        {"conv 32 5 kernel=3", "1 & 11 & kernel & 'conv'"},
        {"dropout 1.5", "1 & 9 & 0 & 0.999 & '1.5'"},
        {"dropout nan", "1 & 9 & 'nan'"},
        {"batchnorm init=two", "1 & 11 & init & one & zero & 'two'"},
        {"relu { conv 3 3 }", "1 & 'relu'"},
        {"residual", "1 & 'residual'"},
        {"residual { }", "1 & 'residual'"},
        {"repeat 3 { relu } { relu }", "1 & 'repeat'"},
        {"repeat 0 { relu }", "1 & 8 & 1000 & '0'"},
        {"repeat 2 name=a { relu }", "1 & 'repeat'"},
        {"relu name=a.b", "1 & 'a.b'"},
        {"residual { residual name=shortcut { relu } } { relu }", "1 & 12 & 'shortcut'"},
        {"repeat 2 {\n residual {\n  conw 3 3\n }\n}", "3 & 'conw' & 'conv'"},
    };
    for (size_t i = 0; i < TR_COUNT(bad); i++) check_bad(&bad[i]);
}

static void deep_nesting_is_refused(void **state) {
    tr_str_t text = {0};
    for (int i = 0; i < 100000; i++) tr_str_append(&text, "residual{");
    bad_t bad = {text.text, "1 & 16"};
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
        status = tr_layers_parse("residual { conv 8 3 pad=same, relu } { conv 8 1 }, linear 10",
                                 &specs, &count);
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
