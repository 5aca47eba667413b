/* The head with its loss: losses, counts and gradients, in one slice of rows and in several. */
#include "../../support/op_harness.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t samples, steps, width, tokens;
    tr_dtype_t type;
    bool is_narrow; /* logits are rounded to the type: device cuda does so where it trains */
} sizes_t;

typedef struct {
    double *x, *w, *label, *weight, *dloss; /* in */
    double *loss, *count, *dx, *dw;         /* out */
    int64_t rows;
} case_t;

static double *numbers(int64_t count) {
    return test_calloc((size_t)count, sizeof(double));
}

static double value(const sizes_t *s, const char *key, int64_t i) {
    const double v = op_random(key, i, -1, 1);
    return (float)op_round(s->type, v);
}

/* Some labels are ignored, one sample is padding. */
static case_t make(const sizes_t *s) {
    case_t c = {.rows = s->samples * s->steps};
    c.x = numbers(c.rows * s->width), c.w = numbers(s->tokens * s->width);
    c.label = numbers(c.rows), c.weight = numbers(s->samples), c.dloss = numbers(c.rows);
    c.loss = numbers(c.rows), c.count = numbers(c.rows);
    c.dx = numbers(c.rows * s->width), c.dw = numbers(s->tokens * s->width);
    for (int64_t i = 0; i < c.rows * s->width; i++) c.x[i] = value(s, "x", i);
    for (int64_t i = 0; i < s->tokens * s->width; i++) c.w[i] = value(s, "w", i);
    for (int64_t i = 0; i < c.rows; i++) {
        c.label[i] = i % 4 == 3 ? -1 : (double)(i * 7 % s->tokens);
        c.dloss[i] = (float)op_random("dloss", i, 0, 1);
    }
    for (int64_t i = 0; i < s->samples; i++) c.weight[i] = i + 1 < s->samples || i == 0 ? 1 : 0;
    return c;
}

static void row_reference(const sizes_t *s, case_t *c, int64_t r, double *p) {
    const double *x = c->x + r * s->width, weight = c->weight[r / s->steps];
    double max = -INFINITY, sum = 0;
    if (c->label[r] < 0 || weight == 0) return;
    for (int64_t v = 0; v < s->tokens; v++) {
        p[v] = 0;
        for (int64_t k = 0; k < s->width; k++) p[v] += x[k] * c->w[v * s->width + k];
        if (s->is_narrow) p[v] = op_round(s->type, p[v]);
        max = fmax(max, p[v]);
    }
    const double own = p[(int64_t)c->label[r]];
    for (int64_t v = 0; v < s->tokens; v++) sum += p[v] = exp(p[v] - max);
    c->count[r] = weight;
    c->loss[r] = weight * (max + log(sum) - own);
    for (int64_t v = 0; v < s->tokens; v++) {
        const double d = weight * c->dloss[r] * (p[v] / sum - (v == (int64_t)c->label[r]));
        for (int64_t k = 0; k < s->width; k++) {
            c->dx[r * s->width + k] += d * c->w[v * s->width + k];
            c->dw[v * s->width + k] += d * x[k];
        }
    }
}

static void reference(const sizes_t *s, case_t *c) {
    double *p = numbers(s->tokens);
    for (int64_t r = 0; r < c->rows; r++) row_reference(s, c, r, p);
    test_free(p);
}

static void forget(case_t *c) {
    double *all[] = {c->x, c->w, c->label, c->weight, c->dloss, c->loss, c->count, c->dx, c->dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) test_free(all[i]);
}

static void compare(const char *device, const char *what, op_bench_t *b, tr_tensor_t t,
                    const double *expected, int64_t count, double tolerance) {
    char name[64];
    snprintf(name, sizeof name, "%s on %s", what, device);
    float *found = op_read(b, t);
    op_assert_close(name, found, expected, count, tolerance);
    test_free(found);
}

static void check_on(const char *device, const sizes_t *s, const case_t *c, bool is_frozen) {
    const tr_param_spec_t trained = {.trainable = true}, fixed = {.trainable = !is_frozen};
    const double rough = s->type == TR_BF16 ? 0x1p-6 : s->type == TR_F16 ? 0x1p-9 : 2e-5;
    tr_tensor_t x, w, label, weight, dloss, loss, count, h;
    op_bench_t b = op_begin(device, TR_TRAIN);
    MUST(tr_param(b.g, "x", &TR_SHAPE(s->samples, s->steps, s->width), &trained, &x));
    MUST(tr_param(b.g, "w", &TR_SHAPE(s->tokens, s->width), &fixed, &w));
    MUST(tr_input(b.g, "label", TR_I32, &TR_SHAPE(s->samples, s->steps), &label));
    MUST(tr_input(b.g, "weight", TR_F32, &TR_SHAPE(s->samples), &weight));
    MUST(tr_input(b.g, "dloss", TR_F32, &TR_SHAPE(c->rows), &dloss));
    MUST(tr_cast(b.g, x, s->type, &h));
    MUST(tr_head_loss(b.g, h, w, label, weight, dloss, &loss, &count));
    MUST(tr_keep(b.g, loss));
    MUST(tr_keep(b.g, count));
    MUST(tr_backward(b.g, loss, dloss, false));
    op_ready(&b);
    op_write(&b, x, c->x), op_write(&b, w, c->w), op_write(&b, label, c->label);
    op_write(&b, weight, c->weight), op_write(&b, dloss, c->dloss);
    op_run(&b);
    op_run(&b);
    /* a sum in another order may round a logit to its neighbour */
    compare(device, "loss", &b, loss, c->loss, c->rows, s->is_narrow ? 2e-5 : 2e-6);
    compare(device, "count", &b, count, c->count, c->rows, 0);
    compare(device, "dx", &b, tr_graph_find(b.g, "op.x.grad"), c->dx, c->rows * s->width, rough);
    if (!is_frozen)
        compare(device, "dw", &b, tr_graph_find(b.g, "op.w.grad"), c->dw, s->tokens * s->width,
                rough);
    op_end(&b);
}

static void check(sizes_t s) {
    op_devices_t devices = op_devices();
    for (int d = 0; d < devices.count; d++) {
        s.is_narrow = strcmp(devices.name[d], "cuda") == 0 && s.type != TR_F32;
        case_t c = make(&s);
        reference(&s, &c);
        for (int is_frozen = 0; is_frozen < 2; is_frozen++)
            check_on(devices.name[d], &s, &c, is_frozen);
        forget(&c);
    }
}

static void odd_sizes(void **state) {
    check((sizes_t){3, 5, 7, 11, TR_F32});
    check((sizes_t){4, 1, 3, 33, TR_F32});
    check((sizes_t){1, 1, 1, 2, TR_F32});
    check((sizes_t){2, 9, 16, 64, TR_F32});
}

static void in_half(void **state) {
    static const tr_dtype_t types[] = {TR_BF16, TR_F16};
    for (int i = 0; i < 2; i++) {
        check((sizes_t){3, 5, 7, 11, types[i]});
        check((sizes_t){2, 64, 16, 300, types[i]});
        check((sizes_t){2, 2, 3, 4100, types[i]});   /* a row in shared memory, */
        check((sizes_t){1, 2, 2, 120000, types[i]}); /* and one that is too long for it */
    }
}

/* A slice has up to 2^24 logits: here there are three, and the last is smaller. On a GPU with 64 MiB of
 * memory a slice has up to 2^20 logits of 16 bits. */
static void several_slices(void **state) {
    check((sizes_t){2, 350, 2, 50001, TR_F32});
    check((sizes_t){2, 75, 2, 20001, TR_BF16});
}

/* The gradient in double by finite differences: what row_reference says is right. */
static void the_reference_is_right(void **state) {
    const sizes_t s = {2, 3, 4, 5, TR_F32};
    case_t c = make(&s);
    reference(&s, &c);
    for (int64_t i = 0; i < s.tokens * s.width; i++) {
        double side[2];
        for (int k = 0; k < 2; k++) {
            case_t near = make(&s);
            near.w[i] += k ? 1e-5 : -1e-5;
            reference(&s, &near);
            side[k] = 0;
            for (int64_t r = 0; r < near.rows; r++) side[k] += near.loss[r] * near.dloss[r];
            forget(&near);
        }
        assert_true(fabs((side[1] - side[0]) / 2e-5 - c.dw[i]) < 1e-8);
    }
    forget(&c);
}

static void refusals(void **state) {
    tr_tensor_t x, w, label, weight, dloss, other, loss, count;
    op_bench_t b = op_begin("cpu", TR_TRAIN);
    MUST(tr_param(b.g, "x", &TR_SHAPE(6, 3), &(tr_param_spec_t){.trainable = true}, &x));
    MUST(tr_input(b.g, "w", TR_F32, &TR_SHAPE(5, 4), &w));
    MUST(tr_input(b.g, "label", TR_I32, &TR_SHAPE(6), &label));
    MUST(tr_input(b.g, "weight", TR_F32, &TR_SHAPE(2), &weight));
    MUST(tr_input(b.g, "dloss", TR_F32, &TR_SHAPE(6), &dloss));
    MUST(tr_input(b.g, "other", TR_F32, &TR_SHAPE(6), &other));
    REFUSED(tr_head_loss(b.g, x, w, label, weight, dloss, &loss, &count), "(5, 3) & (5, 4)");
    MUST(tr_input(b.g, "w2", TR_F32, &TR_SHAPE(5, 3), &w));
    MUST(tr_head_loss(b.g, x, w, label, weight, dloss, &loss, &count));
    assert_int_equal(tr_backward(b.g, loss, other, false), TR_ERR_INTERNAL);
    op_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_sizes),      cmocka_unit_test(in_half),
        cmocka_unit_test(several_slices), cmocka_unit_test(the_reference_is_right),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
