/*
 * The predictor: small cases by hand, and its calibration: the ops of two published runs, whose
 * published speeds it has to give within 15 %. It prints what it gives.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "../../support/names.h"
#include "base/mem.h"
#include "scaling/roofline.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    tr_roofline_t on;
    double sec[TR_STEP_GROUPS], total;
} list_t;

static const tr_gpu_kind_t *kind(const char *name) {
    const tr_gpu_kind_t *k = NULL;
    OK(tr_gpu_kind_find(name, &k));
    return k;
}

static void add(list_t *l, double times, tr_step_op_t op) {
    const double sec = times * tr_roofline_op_sec(&l->on, &op);
    l->sec[op.group] += sec;
    l->total += sec;
}

/* `passes` over `bytes`, in one kernel. */
static void pass(list_t *l, double times, tr_kernel_kind_t group, double bytes, double passes) {
    add(l, times, (tr_step_op_t){.group = group, .bytes = bytes * passes, .launches = 1});
}

/* C (m, n) = A (m, k) B (k, n), of 2 bytes. */
static void product(list_t *l, double times, tr_kernel_kind_t group, double m, double n, double k) {
    add(l, times,
        (tr_step_op_t){.group = group,
                       .unit = TR_UNIT_PRODUCT,
                       .flops = 2 * m * n * k,
                       .terms = k,
                       .bytes = 2 * (m * k + k * n + m * n),
                       .launches = 1});
}

static void expect(const list_t *l, const char *what, double found, double published) {
    print_message("predicted, not measured: %s: %.0f (published: %.0f, %+.1f %%)\n", what, found,
                  published, 100 * (found / published - 1));
    for (int g = 0; g < TR_STEP_GROUPS; g++)
        if (l->sec[g] > 0)
            print_message("  %-22s %8.2f ms %5.1f %%\n", tr_step_group_name(g), 1e3 * l->sec[g],
                          100 * l->sec[g] / l->total);
    assert_true(found > 0.85 * published && found < 1.15 * published);
}

/* -- llm.c, GPT-2 of 12 layers ------------------------------------------------------------------ */

/* A product of a layer and its two gradients. */
static void linear(list_t *l, double times, tr_kernel_kind_t group, double rows, double from,
                   double to) {
    product(l, times, group, rows, to, from);
    product(l, times, group, rows, from, to);
    product(l, times, group, to, from, rows);
}

/* The kernels of train_gpt2.cu with cuDNN's attention, GELU computed again in the backward pass, and
 * optimizer states divided among `ranks` (-b 64 -t 1024 -r 1 -z 1). */
static void add_llmc(list_t *l, int ranks) {
    const double layers = 12, tokens = 65536, width = 768, vocabulary = 50304, T = 1024,
                 parameters = 124475904, row = 2 * tokens * width; /* bytes of activations */
    const double scores = 2 * tokens * width * T / 2;              /* FLOPs of one causal product */
    linear(l, layers, TR_KERNEL_PRODUCT, tokens, width, 3 * width);
    linear(l, layers, TR_KERNEL_PRODUCT, tokens, width, width);
    linear(l, layers, TR_KERNEL_PRODUCT, tokens, width, 4 * width);
    linear(l, layers, TR_KERNEL_PRODUCT, tokens, 4 * width, width);
    add(l, layers,
        (tr_step_op_t){.group = TR_KERNEL_ATTENTION,
                       .unit = TR_UNIT_ATTENTION,
                       .flops = 2 * scores,
                       .bytes = 4 * row,
                       .launches = 1});
    add(l, layers,
        (tr_step_op_t){.group = TR_KERNEL_ATTENTION,
                       .unit = TR_UNIT_ATTENTION,
                       .flops = 5 * scores,
                       .bytes = 8 * row,
                       .launches = 3});
    pass(l, 2 * layers + 1, TR_KERNEL_NORM, row, 4); /* residual and layer norm: two in, two out */
    pass(l, 2 * layers + 1, TR_KERNEL_NORM, row, 4); /* backward: dy, x; dx is added to */
    pass(l, 2 * layers, TR_KERNEL_ACTIVATION, row, 8); /* GELU, twice */
    pass(l, layers, TR_KERNEL_ACTIVATION, row, 12);    /* its gradient */
    pass(l, layers, TR_KERNEL_ACTIVATION, row, 9);     /* sums for 4 biases */
    add(l, layers, (tr_step_op_t){.group = TR_KERNEL_ACTIVATION, .launches = 7});
    linear(l, 1, TR_KERNEL_HEAD, tokens, width, vocabulary);
    pass(l, 1, TR_KERNEL_HEAD, 2 * tokens * vocabulary, 3); /* softmax twice in, gradient out */
    pass(l, 1, TR_KERNEL_OTHER, row, 4);                    /* embedding, both directions */
    pass(l, 1, TR_KERNEL_OPTIMIZER, parameters, 2);         /* norm of the gradient, in bf16 */
    pass(l, 1, TR_KERNEL_OPTIMIZER, parameters / ranks, 28);
    /* the last bucket is the embedding; then the new parameters are gathered: half an all-reduce */
    const double sec = tr_roofline_allreduce_sec(&l->on, ranks, 2 * vocabulary * width) / 2 +
                       tr_roofline_allreduce_sec(&l->on, ranks, 2 * parameters) / 2;
    l->sec[TR_STEP_COMMUNICATION] = sec;
    l->total += sec;
}

static void test_llmc(void **state) {
    list_t h100 = {.on = {.gpu = kind("h100"), .peak = kind("h100")->bf16, .eager = true}};
    list_t a100 = {.on = {.gpu = kind("a100"), .peak = kind("a100")->bf16, .eager = true}};
    add_llmc(&h100, 8);
    /* 140 ms for 524,288 tokens on 8 GPUs: modded-nanogpt, records/track_1_short/2024-10-13_llmc */
    expect(&h100, "llm.c, GPT-2 124M, 8 x H100, tokens/s per GPU", 65536 / h100.total, 468114);
    add_llmc(&a100, 8);
    /* about 300 ms: llm.c, scripts/run_gpt2_124M.sh */
    expect(&a100, "llm.c, GPT-2 124M, 8 x A100, tokens/s per GPU", 65536 / a100.total, 218453);
}

/* -- PyTorch, ResNet-50 v1.5 -------------------------------------------------------------------- */

/* A convolution of `size` x `size` outputs with its batch normalisation, and relu where `relu`; all
 * directions. Eager PyTorch, channels last: every op is a kernel of its own. */
static void conv_norm(list_t *l, double n, double size, double stride, double from, double to,
                      double window, bool relu, bool is_first) {
    const double rows = n * size * size, x = 2 * rows * stride * stride * from, y = 2 * rows * to,
                 w = 2 * window * from * to, terms = window * from, flops = 2 * rows * to * terms;
    const tr_step_op_t conv = {.group = TR_KERNEL_PRODUCT,
                               .unit = TR_UNIT_PRODUCT,
                               .flops = flops,
                               .terms = terms,
                               .bytes = x + w + y,
                               .launches = 1};
    tr_step_op_t data = conv, weights = conv;
    data.terms = window * to;
    weights.terms = rows;
    add(l, 1, conv);
    if (!is_first) add(l, 1, data);
    add(l, 1, weights);
    pass(l, 1, TR_KERNEL_NORM, y, 3); /* x twice, y */
    pass(l, 1, TR_KERNEL_NORM, y, 5); /* x and dy twice, dx */
    if (!relu) return;
    pass(l, 1, TR_KERNEL_ACTIVATION, y, 2);
    pass(l, 1, TR_KERNEL_ACTIVATION, y, 3);
}

static void bottleneck(list_t *l, double n, double size, double stride, double from, double width) {
    const double y = 2 * n * size * size * 4 * width,
                 x = 2 * n * size * size * stride * stride * from;
    conv_norm(l, n, size * stride, 1, from, width, 1, true, false);
    conv_norm(l, n, size, stride, width, width, 9, true, false);
    conv_norm(l, n, size, 1, width, 4 * width, 1, false, false);
    if (from != 4 * width) conv_norm(l, n, size, stride, from, 4 * width, 1, false, false);
    pass(l, 1, TR_KERNEL_ACTIVATION, y, 3); /* the sum */
    pass(l, 1, TR_KERNEL_ACTIVATION, y, 2); /* relu */
    pass(l, 1, TR_KERNEL_ACTIVATION, y, 3);
    pass(l, 1, TR_KERNEL_ACTIVATION, x, 3); /* the gradients of both branches are added */
}

static void add_resnet50(list_t *l, double n) {
    static const struct {
        int blocks;
        double size, width;
    } stages[] = {{3, 56, 64}, {4, 28, 128}, {6, 14, 256}, {3, 7, 512}};
    const double stem = 2 * n * 112 * 112 * 64, parameters = 25557032;
    double from = 64;
    conv_norm(l, n, 112, 2, 8, 64, 49, true, true); /* tensor cores: 3 channels as 8 */
    pass(l, 1, TR_KERNEL_OTHER, stem, 1.25);        /* pooling; its gradient */
    pass(l, 1, TR_KERNEL_OTHER, stem, 1.5);
    for (size_t s = 0; s < TR_COUNT(stages); s++)
        for (int b = 0; b < stages[s].blocks; b++) {
            bottleneck(l, n, stages[s].size, b == 0 && s > 0 ? 2 : 1, from, stages[s].width);
            from = 4 * stages[s].width;
        }
    product(l, 3, TR_KERNEL_PRODUCT, n, 1000, 2048);
    /* copies of the weights in fp16; gradients unscaled; momentum and step */
    pass(l, 1, TR_KERNEL_OPTIMIZER, parameters, 6 + 8 + 20);
    add(l, 161, (tr_step_op_t){.group = TR_KERNEL_OPTIMIZER, .launches = 3});
}

static void test_resnet50(void **state) {
    list_t a100 = {.on = {.gpu = kind("a100"), .peak = kind("a100")->fp16, .eager = true}};
    add_resnet50(&a100, 256);
    /* NVIDIA DeepLearningExamples, PyTorch ResNet-50 v1.5, DGX A100 80 GB, one GPU, AMP, 256 */
    expect(&a100, "PyTorch, ResNet-50, A100, images/s", 256 / a100.total, 2470);
}

/* -- by hand ------------------------------------------------------------------------------------ */

static void test_larger_of_two(void **state) {
    const tr_gpu_kind_t gpu = {.fp32 = 1e12, .bandwidth = 1e12, .link = 1e9, .network = 1e8};
    const tr_roofline_t r = {.gpu = &gpu, .peak = 1e13};
    tr_step_op_t op = {.unit = TR_UNIT_PRODUCT, .flops = 1e13, .terms = 1e12, .bytes = 8e11};
    assert_float_equal(tr_roofline_op_sec(&r, &op), 1 / 0.73, 1e-6);
    op.terms = 256; /* as long again for the fill */
    assert_float_equal(tr_roofline_op_sec(&r, &op), 2 / 0.73, 1e-6);
    op.bytes = 8.4e12;
    assert_float_equal(tr_roofline_op_sec(&r, &op), 10, 1e-6);
    op = (tr_step_op_t){.launches = 1e6};
    assert_float_equal(tr_roofline_op_sec(&r, &op), 0.5, 1e-9);
    assert_float_equal(tr_roofline_allreduce_sec(&r, 1, 1e9), 0, 1e-12);
    assert_true(tr_roofline_allreduce_sec(&r, 16, 1e9) > tr_roofline_allreduce_sec(&r, 8, 1e9));
}

/* Every kind has its limits and is named in the help; the names are those of the table. */
static void test_kinds(void **state) {
    char names[128] = "";
    for (size_t i = 0; tr_gpu_kind_at(i); i++) {
        const tr_gpu_kind_t *k = tr_gpu_kind_at(i);
        if (i > 0) strcat(names, "|");
        strcat(names, k->name);
        assert_non_null(tr_gpu_limits_of(k->capability));
        assert_true(k->fp32 > 0 && k->fp16 > k->fp32 && k->bandwidth > 0 && k->link > 0);
        assert_true((k->bf16 > 0) == (k->capability >= 80));
    }
    assert_string_equal(names, TR_GPU_KINDS);
    assert_null(tr_gpu_limits_of(70));
    const tr_gpu_kind_t *k = NULL;
    assert_int_equal(tr_gpu_kind_find("v100", &k), TR_ERR_USAGE);
    assert_error_names("v100 & 7.5 & device = cpu");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_larger_of_two),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_llmc),
        cmocka_unit_test(test_resnet50),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
