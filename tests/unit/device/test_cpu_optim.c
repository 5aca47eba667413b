/* The update: norm and clipping, optimizers over several steps against double precision, averages,
 * the skip. */
#include "cpu_kernel_test.h"
#include "device/loss_scale.h"

static const int64_t sizes[] = {1, 3, 17, 1000003};
enum { SIZES = sizeof sizes / sizeof *sizes };

static tr_step_result_t grad_norm(const float *grad, int64_t n, float samples, float loss,
                                  float loss_scale, float clip, int32_t applied) {
    tr_grad_norm_attr_t attr = {.batch_size = 64, .clip = clip};
    tr_step_t step = {0};
    tr_loss_scale_t scale = {.scale = loss_scale};
    const tr_view_t scaled = F32(&scale.scale, 4);
    float counts[2] = {samples, loss};
    tr_step_result_t result = {.applied = applied};
    const int64_t blocks = (n + TR_SQUARES_BLOCK - 1) / TR_SQUARES_BLOCK;
    double *sums = calloc((size_t)blocks, sizeof *sums);
    const tr_view_t squares = {sums, TR_F64, TR_SHAPE(blocks)};
    RUN(BLOCK_SQUARES, NULL, VIEWS(F32(grad, n)), VIEWS(squares));
    RUN(GRAD_NORM, &attr, VIEWS(squares, F32(counts, 2), BYTES(&step)),
        VIEWS(BYTES(&result), scaled));
    free(sums);
    return result;
}

/* After a step that is not finite: none is, unless the gradient overflowed at a loss scale above
 * the lowest. */
static void test_halts(void **state) {
    const float good = 1, bad = INFINITY;
    const struct {
        float loss, scale, norm;
        bool halts, finite_after;
    } cases[] = {
        {1, 1, bad, true, false}, {1, 8, bad, true, true},     {NAN, 8, good, true, false},
        {1, 1, bad, false, true}, {NAN, 8, good, false, true}, {1, 8, good, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tr_grad_norm_attr_t attr = {.batch_size = 64, .halts = cases[i].halts};
        tr_loss_scale_t scale = {.scale = cases[i].scale};
        tr_step_result_t result = {0};
        tr_step_t step = {0};
        for (int k = 0; k < 4; k++) {
            float counts[2] = {64, k == 0 ? cases[i].loss : 1};
            double g = k == 0 ? cases[i].norm : good;
            const tr_view_t square = {&g, TR_F64, TR_SHAPE(1)};
            RUN(GRAD_NORM, &attr, VIEWS(square, F32(counts, 2), BYTES(&step)),
                VIEWS(BYTES(&result), F32(&scale.scale, 4)));
            if (k > 0) assert_int_equal(result.finite, cases[i].finite_after);
        }
    }
}

static void test_grad_norm(void **state) {
    for (int s = 0; s < SIZES; s++) {
        int64_t n = sizes[s];
        float *grad = kt_normal(n, 1, 0, 2);
        double squares = 0, factor = 64.0 / 48 / 8, norm;
        for (int64_t i = 0; i < n; i++) squares += (double)grad[i] * grad[i];
        norm = sqrt(squares) * factor;
        tr_step_result_t r = grad_norm(grad, n, 48, 1, 8, 0, 4);
        kt_close(&r.grad_norm, &norm, 1, 1e-7, 0, "gradient norm");
        kt_close(&r.scale, &factor, 1, 1e-7, 0, "scale");
        assert_true(r.finite == 1 && r.applied == 5);
        float clip = (float)(norm / 4);
        double clipped = factor / 4;
        r = grad_norm(grad, n, 48, 1, 8, clip, 0);
        kt_close(&r.scale, &clipped, 1, 2e-7, 0, "scale, clipped");
        r = grad_norm(grad, n, 48, 1, 8, (float)(norm * 0.99), 0);
        clipped = factor * 0.99;
        kt_close(&r.scale, &clipped, 1, 2e-7, 0, "scale, just clipped");
        r = grad_norm(grad, n, 48, 1, 8, (float)(norm * 1.01), 0);
        kt_close(&r.scale, &factor, 1, 1e-7, 0, "scale, below the clip");
        free(grad);
    }
    float zero = 0, huge[2] = {3e38f, 3e38f};
    tr_step_result_t r = grad_norm(&zero, 1, 64, 1, 1, 1, 0);
    assert_true(r.grad_norm == 0 && r.scale == 1 && r.finite);
    r = grad_norm(&zero, 1, 0, 0, 1, 1, 0); /* a step without samples */
    assert_true(r.scale == 1 && r.finite);
    r = grad_norm(huge, 2, 64, 1, 1024, 0, 0); /* squares that would overflow a float */
    assert_true(r.finite && isfinite(r.grad_norm));
}

/* Parts that begin at multiples of a block, in another order in memory, give the bits of the
 * whole. */
static void test_grad_norm_of_parts(void **state) {
    enum { PARTS = 3, BLOCKS = 2 * PARTS - 1, ELEMS = (BLOCKS - 1) * TR_SQUARES_BLOCK + 100 };
    static const int place[PARTS] = {2, 0, 5}; /* of the parts, in blocks */
    tr_grad_norm_attr_t attr = {.batch_size = 64};
    float *grad = kt_normal(ELEMS, 1, 0, 2), counts[2] = {48, 1};
    tr_step_t step = {0};
    tr_step_result_t result = {0};
    const tr_step_result_t whole = grad_norm(grad, ELEMS, 48, 1, 1, 0, 0);
    double sums[BLOCKS + 1] = {0}; /* the places between them are empty */
    int32_t order[BLOCKS];
    for (int p = 0, k = 0; p < PARTS; p++) {
        const int64_t first = 2 * p * TR_SQUARES_BLOCK, blocks = p < PARTS - 1 ? 2 : 1;
        const tr_view_t out = {sums + place[p], TR_F64, TR_SHAPE(blocks)};
        RUN(BLOCK_SQUARES, NULL, VIEWS(F32(grad + first, blocks == 2 ? 2 * TR_SQUARES_BLOCK : 100)),
            VIEWS(out));
        for (int b = 0; b < blocks; b++) order[k++] = place[p] + b;
    }
    const tr_view_t squares = {sums, TR_F64, TR_SHAPE(BLOCKS + 1)},
                    places = {order, TR_I32, TR_SHAPE(BLOCKS)};
    RUN(GRAD_NORM, &attr, VIEWS(squares, F32(counts, 2), BYTES(&step), places),
        VIEWS(BYTES(&result), ABSENT));
    assert_memory_equal(&result.grad_norm, &whole.grad_norm, sizeof whole.grad_norm);
    free(grad);
}

static void test_grad_norm_not_finite(void **state) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float grad[3] = {1, 2, 3};
    for (int i = 0; i < 3; i++) {
        tr_step_result_t r = grad_norm(grad, 3, 64, bad[i], 1, 1, 7); /* the loss */
        assert_true(!r.finite && r.applied == 7 && r.scale == 0);
        grad[1] = bad[i];
        r = grad_norm(grad, 3, 64, 1, 1, 1, 7);
        assert_true(!r.finite && r.applied == 7 && r.scale == 0);
        grad[1] = 2;
    }
}

/* One parameter's state in double. */
typedef struct {
    double p, m, v;
} scalar_t;

static void sgd_scalar(scalar_t *s, double grad, const tr_sgd_attr_t *a, const tr_update_range_t *r,
                       const tr_step_t *step, double scale) {
    double g = grad * scale + (double)r->decay * step->weight_decay_scale * s->p;
    s->v = a->momentum * s->v + g;
    s->p -= (double)step->lr * r->lr_factor * (a->nesterov ? g + a->momentum * s->v : s->v);
}

static void adam_scalar(scalar_t *s, double grad, const tr_adam_attr_t *a,
                        const tr_update_range_t *r, const tr_step_t *step, double scale, int t) {
    double decay = (double)r->decay * step->weight_decay_scale,
           lr = (double)step->lr * r->lr_factor;
    double g = grad * scale + (a->decoupled ? 0 : decay * s->p);
    if (a->decoupled) s->p -= lr * decay * s->p;
    s->m = a->beta1 * s->m + (1 - (double)a->beta1) * g;
    s->v = a->beta2 * s->v + (1 - (double)a->beta2) * g * g;
    s->p -= lr * (s->m / (1 - pow(a->beta1, t))) /
            (sqrt(s->v / (1 - pow(a->beta2, t))) + (double)a->eps);
}

/* The copy is each parameter, rounded, as a cast gives it. */
static void check_copy(const float *p, int64_t n, const tr_view_t *copy) {
    uint16_t *want = calloc((size_t)n, sizeof *want);
    const tr_view_t cast = {want, copy->dtype, copy->shape};
    RUN(CAST_NORMALIZE, NULL, VIEWS(F32(p, n), ABSENT, ABSENT), VIEWS(cast));
    assert_memory_equal(copy->data, want, (size_t)n * sizeof *want);
    free(want);
}

enum { BEFORE = 4 };

/* Ten steps of one optimizer on n parameters in three ranges, each step with its own learning rate.
 * The even ones write copies, too. The state of the second range began after BEFORE updates of the
 * run, that of the others with it; the last range is empty. */
static void check_steps(int64_t n, const tr_sgd_attr_t *sgd, bool has_momentum,
                        const tr_adam_attr_t *adam, tr_update_range_t first) {
    const tr_update_range_t ranges[] = {{n < 16 ? n : 16, first.decay, first.lr_factor, 0},
                                        {n < 48 ? n : 48, 0, 1, BEFORE},
                                        {n, 0.05f, 0.7f, 0},
                                        {n, 0, 0, BEFORE}};
    float *p = kt_normal(n, 1, 0, 1), *m = kt_zeros(n), *v = kt_zeros(n);
    uint16_t *half = calloc((size_t)n, sizeof *half);
    scalar_t *want = calloc((size_t)n, sizeof *want);
    double *exact = malloc((size_t)n * sizeof *exact);
    for (int64_t i = 0; i < n; i++) want[i].p = p[i];
    for (int t = 1; t <= 10; t++) {
        float *grad = kt_normal(n, (uint32_t)(100 + t), 0.1, 1);
        tr_step_t step = {.lr = 0.01f * (float)t, .weight_decay_scale = 1.5f};
        tr_step_result_t result = {.scale = 0.7f, .finite = 1, .applied = BEFORE + t};
        for (int64_t i = 0; i < n; i++) {
            const tr_update_range_t *r = &ranges[i < 16 ? 0 : i < 48 ? 1 : 2];
            if (sgd) sgd_scalar(&want[i], grad[i], sgd, r, &step, result.scale);
            const int updates = result.applied - r->before;
            if (adam) adam_scalar(&want[i], grad[i], adam, r, &step, result.scale, updates);
            exact[i] = want[i].p;
        }
        const tr_view_t copy = {half, t % 4 ? TR_BF16 : TR_F16, TR_SHAPE(n)};
        const tr_view_t in[] = {F32(grad, n), BYTES(&step), BYTES(&result), BYTES(&ranges)};
        if (sgd)
            kt_run(TR_K_SGD, sgd, 4, in, t % 2 ? 2 : 3,
                   VIEWS(F32(p, n), has_momentum ? F32(v, n) : ABSENT, copy));
        else
            kt_run(TR_K_ADAM, adam, 4, in, t % 2 ? 3 : 4,
                   VIEWS(F32(p, n), F32(m, n), F32(v, n), copy));
        if (t % 2 == 0) check_copy(p, n, &copy);
        kt_close(p, exact, n, 1e-6 * t, 1e-6 * t, sgd ? "sgd" : "adam");
        free(grad);
    }
    free(p);
    free(m);
    free(v);
    free(half);
    free(want);
    free(exact);
}

static void test_sgd(void **state) {
    static const int64_t lengths[] = {1, 3, 17, 100003};
    for (int s = 0; s < 4; s++) {
        check_steps(lengths[s], &(tr_sgd_attr_t){0, false}, false, NULL,
                    (tr_update_range_t){0, 0, 1, 0});
        check_steps(lengths[s], &(tr_sgd_attr_t){0.9f, false}, true, NULL,
                    (tr_update_range_t){0, 0.01f, 0.5f, 0});
        check_steps(lengths[s], &(tr_sgd_attr_t){0.9f, true}, true, NULL,
                    (tr_update_range_t){0, 0.01f, 2, 0});
    }
}

static void test_adam(void **state) {
    static const int64_t lengths[] = {1, 3, 17, 100003};
    for (int s = 0; s < 4; s++) {
        check_steps(lengths[s], NULL, false, &(tr_adam_attr_t){0.9f, 0.999f, 1e-8f, true},
                    (tr_update_range_t){0, 0, 1, 0});
        check_steps(lengths[s], NULL, false, &(tr_adam_attr_t){0.9f, 0.95f, 1e-8f, true},
                    (tr_update_range_t){0, 0.1f, 0.5f, 0});
        check_steps(lengths[s], NULL, false, &(tr_adam_attr_t){0.8f, 0.99f, 1e-3f, false},
                    (tr_update_range_t){0, 0.1f, 1, 0});
    }
}

static void test_averages(void **state) {
    tr_step_result_t result = {.finite = 1, .applied = 1000};
    tr_ema_attr_t ema = {0.99f};
    for (int s = 0; s < SIZES; s++) {
        int64_t n = sizes[s];
        float *in = kt_normal(n, 1, 3, 1), *running = kt_normal(n, 2, 1, 1),
              *average = kt_normal(n, 3, 1, 1);
        double *want = malloc((size_t)n * sizeof *want);
        for (int64_t i = 0; i < n; i++)
            want[i] = running[i] + (double)0.1f * (in[(i + n / 2) % n] / 3.0 - running[i]);
        const tr_moments_range_t halves[2] = {{n / 2, 0, n - n / 2, 0.1f, 3},
                                              {0, n - n / 2, n / 2, 0.1f, 3}};
        RUN(MOMENTS_UPDATE, NULL, VIEWS(F32(in, n), BYTES(&result), BYTES(&halves)),
            VIEWS(F32(running, n)));
        kt_close(running, want, n, 3e-7, 3e-7, "moments_update");
        for (int64_t i = 0; i < n; i++)
            want[i] = (double)0.99f * average[i] + (1 - (double)0.99f) * in[i];
        RUN(EMA_UPDATE, &ema, VIEWS(F32(in, n), BYTES(&result)), VIEWS(F32(average, n)));
        kt_close(average, want, n, 3e-7, 3e-7, "ema_update");
        tr_step_result_t first = {.finite = 1, .applied = 1};
        for (int64_t i = 0; i < n; i++) want[i] = 2.0 / 11 * average[i] + 9.0 / 11 * in[i];
        RUN(EMA_UPDATE, &ema, VIEWS(F32(in, n), BYTES(&first)), VIEWS(F32(average, n)));
        kt_close(average, want, n, 3e-7, 3e-7, "the first ema_update");
        free(in);
        free(running);
        free(average);
        free(want);
    }
}

/* Nothing moves where the step was not finite. */
static void test_skip(void **state) {
    float grad[3] = {NAN, 1, INFINITY}, p[3] = {1, 2, 3}, m[3] = {4, 5, 6}, v[3] = {7, 8, 9};
    static const float p0[3] = {1, 2, 3}, m0[3] = {4, 5, 6}, v0[3] = {7, 8, 9};
    uint16_t half[3] = {10, 11, 12};
    static const uint16_t half0[3] = {10, 11, 12};
    const tr_view_t copy = {half, TR_BF16, TR_SHAPE(3)};
    tr_step_t step = {.lr = 0.1f, .weight_decay_scale = 1};
    tr_step_result_t result = {.finite = 0, .applied = 3};
    const tr_update_range_t all = {3, 0.1f, 1, 0};
    const tr_moments_range_t moments = {0, 0, 3, 0.1f, 1};
    RUN(SGD, &((tr_sgd_attr_t){0.9f, false}),
        VIEWS(F32(grad, 3), BYTES(&step), BYTES(&result), BYTES(&all)),
        VIEWS(F32(p, 3), F32(m, 3), copy));
    RUN(ADAM, &((tr_adam_attr_t){0.9f, 0.99f, 1e-8f, true}),
        VIEWS(F32(grad, 3), BYTES(&step), BYTES(&result), BYTES(&all)),
        VIEWS(F32(p, 3), F32(m, 3), F32(v, 3), copy));
    RUN(MOMENTS_UPDATE, NULL, VIEWS(F32(grad, 3), BYTES(&result), BYTES(&moments)),
        VIEWS(F32(v, 3)));
    RUN(EMA_UPDATE, &((tr_ema_attr_t){0.9f}), VIEWS(F32(grad, 3), BYTES(&result)),
        VIEWS(F32(v, 3)));
    assert_memory_equal(p, p0, sizeof p);
    assert_memory_equal(m, m0, sizeof m);
    assert_memory_equal(v, v0, sizeof v);
    assert_memory_equal(half, half0, sizeof half);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halts),
        cmocka_unit_test(test_grad_norm),
        cmocka_unit_test(test_grad_norm_of_parts),
        cmocka_unit_test(test_grad_norm_not_finite),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_averages),
        cmocka_unit_test(test_skip),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
