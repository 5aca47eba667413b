/*
 * The kernels of device cuda against those of cpu, at odd sizes and at addresses that no wide
 * access may use. Needs a GPU, or tests/hostcuda/run; without them it skips.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_test.h"
#include "base/rng.h"

/* Tables of cases leave out what is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* What a tensor holds before the call. */
typedef enum {
    NORMAL,
    POSITIVE,
    WITH_NAN, /* here and there */
    IDS,
    TOKENS, /* i32, from 0 to TOKEN_LIMIT */
    LABELS,
    PLACES, /* i32 (samples, 3): rows, positions and counts of new tokens */
    STEP,
    RESULT,
    RANGES,
    MOMENTS,
    BYTES,
    NOTHING
} content_t;

typedef struct {
    content_t content;
    bool narrow; /* bf16 in the second pass, f16 in the third */
    tr_dtype_t dtype;
    tr_shape_t shape; /* ndim -1: absent */
} tensor_t;

typedef struct {
    const char *name;
    tr_kernel_id_t id;
    const void *attr;
    int n_in, n_out;
    tensor_t in[TR_KERNEL_MAX_IN], out[TR_KERNEL_MAX_OUT];
    double tolerance; /* relative to the largest value; 0: 1e-5 */
    unsigned adds;    /* outputs that are added to */
} case_t;

#define X(...)                                                                                     \
    { NORMAL, true, TR_F32, TR_SHAPE(__VA_ARGS__) }
#define N(...)                                                                                     \
    { WITH_NAN, true, TR_F32, TR_SHAPE(__VA_ARGS__) }
#define F(...)                                                                                     \
    { NORMAL, false, TR_F32, TR_SHAPE(__VA_ARGS__) }
#define P(...)                                                                                     \
    { POSITIVE, false, TR_F32, TR_SHAPE(__VA_ARGS__) }
#define Y(...)                                                                                     \
    { NOTHING, true, TR_F32, TR_SHAPE(__VA_ARGS__) }
#define G(...)                                                                                     \
    { NOTHING, false, TR_F32, TR_SHAPE(__VA_ARGS__) }
/* Always of this type. */
#define H(type, ...)                                                                               \
    { NOTHING, false, type, TR_SHAPE(__VA_ARGS__) }
#define ID(n)                                                                                      \
    { IDS, false, TR_I64, TR_SHAPE(n) }
#define TOKEN(...)                                                                                 \
    { TOKENS, false, TR_I32, TR_SHAPE(__VA_ARGS__) }
#define LABEL(n)                                                                                   \
    { LABELS, false, TR_I64, TR_SHAPE(n) }
#define PLACE_(n)                                                                                  \
    { PLACES, false, TR_I32, TR_SHAPE(n, 3) }
#define STEP_                                                                                      \
    { STEP, false, TR_U8, TR_SHAPE(sizeof(tr_step_t)) }
#define RESULT_                                                                                    \
    { RESULT, false, TR_U8, TR_SHAPE(sizeof(tr_step_result_t)) }
#define RANGES_                                                                                    \
    { RANGES, false, TR_U8, TR_SHAPE(sizeof ranges) }
#define MOMENTS_                                                                                   \
    { MOMENTS, false, TR_U8, TR_SHAPE(sizeof moments) }
#define PIXELS(...)                                                                                \
    { BYTES, false, TR_U8, TR_SHAPE(__VA_ARGS__) }
#define ABSENT_                                                                                    \
    {                                                                                              \
        NOTHING, false, TR_F32, {                                                                  \
            .ndim = -1                                                                             \
        }                                                                                          \
    }
#define ATTR(...) &(__VA_ARGS__)

/* The tables of the updates; a test sets their sizes. */
static tr_update_range_t ranges[] = {{16, 0.01f, 1, 0}, {1024, 0, 0.5f, 2}, {0, 0.1f, 2, 0}};
static tr_moments_range_t moments[2];
enum { LABEL_LIMIT = 3, TOKEN_LIMIT = 10, PLACE_STEPS = 4 };
static bool checked[TR_K_COUNT];
static bool only_aligned; /* no addresses that wide accesses may not use */

static size_t bytes_of(const tensor_t *t) {
    return t->shape.ndim < 0 ? 0 : (size_t)tr_shape_elems(&t->shape) * tr_dtype_bytes(t->dtype);
}

static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Numbers that are 0 or normal; what is below becomes 0. */
static uint16_t to_f16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    return (uint16_t)(sign | (rest < 0x38800000 ? 0 : (rest - 0x38000000 + 0x1000) >> 13));
}

static float from_f16(uint16_t x) {
    const int exponent = x >> 10 & 31, mantissa = x & 1023;
    const double value = exponent == 31  ? (mantissa ? NAN : INFINITY)
                         : exponent == 0 ? ldexp(mantissa, -24)
                                         : ldexp(1024 + mantissa, exponent - 25);
    return (float)(x & 0x8000 ? -value : value);
}

static float from_bf16(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void fill(const tensor_t *t, uint32_t key, void *data) {
    tr_rng_t rng = tr_rng_make(3, TR_RNG_TEST, key, 0);
    const tr_step_t step = {.seed = 5, .step = 2, .lr = 0.1f, .weight_decay_scale = 1};
    const tr_step_result_t result = {.scale = 0.5f, .finite = 1, .applied = 3};
    const int64_t n = bytes_of(t) ? tr_shape_elems(&t->shape) : 0;
    memset(data, 0xff, bytes_of(t));
    if (t->content == STEP) memcpy(data, &step, sizeof step);
    if (t->content == RESULT) memcpy(data, &result, sizeof result);
    if (t->content == RANGES) memcpy(data, ranges, sizeof ranges);
    if (t->content == MOMENTS) memcpy(data, moments, sizeof moments);
    for (int64_t i = 0; i < n; i++) {
        const float normal = (float)tr_rng_normal(&rng);
        const float value = t->content == WITH_NAN && i % 41 == 3 ? NAN : normal;
        if (t->content == TOKENS) ((int32_t *)data)[i] = (int32_t)(i * 7 % (TOKEN_LIMIT + 1));
        if (t->content == PLACES)
            ((int32_t *)data)[i] = (int32_t[]){(int32_t)(n / 3 - i / 3), (int32_t)(50 * i),
                                               PLACE_STEPS - (int32_t)(i / 3)}[i % 3];
        if (t->content == BYTES) ((uint8_t *)data)[i] = (uint8_t)(i * 37 % 256);
        if (t->content == IDS) ((int64_t *)data)[i] = 1000 + 7 * i;
        if (t->content == LABELS) ((int64_t *)data)[i] = i % (LABEL_LIMIT + 1) - 1;
        if (t->content > WITH_NAN) continue;
        const float x = t->content == POSITIVE ? fabsf(value) + 0.1f : value;
        if (t->dtype == TR_BF16)
            ((uint16_t *)data)[i] = to_bf16(x);
        else if (t->dtype == TR_F16)
            ((uint16_t *)data)[i] = to_f16(x);
        else
            ((float *)data)[i] = x;
    }
}

/* A tensor on the device, `shift` elements beyond an aligned address. *out_block is what to free.
 * */
static void *upload(int d, const tensor_t *t, uint32_t key, size_t shift, void **out_block) {
    void *here = NULL;
    *out_block = NULL;
    if (bytes_of(t) == 0) return NULL;
    shift *= t->dtype == TR_U8 ? 0 : tr_dtype_bytes(t->dtype); /* blocks and tables are aligned */
    must(devices[d]->ops->alloc(devices[d], bytes_of(t) + shift, 0, out_block));
    must(devices[d]->ops->host_alloc(devices[d], bytes_of(t), &here));
    fill(t, key, here);
    void *there = (char *)*out_block + shift;
    must(
        devices[d]->ops->copy(devices[d], streams[d], there, here, bytes_of(t), TR_COPY_TO_DEVICE));
    must(devices[d]->ops->stream_sync(devices[d], streams[d]));
    devices[d]->ops->host_free(devices[d], here);
    return there;
}

static void *download(int d, const tensor_t *t, const void *there) {
    void *here = NULL, *copy = malloc(bytes_of(t) + 1);
    must(devices[d]->ops->host_alloc(devices[d], bytes_of(t), &here));
    must(devices[d]->ops->copy(devices[d], streams[d], here, there, bytes_of(t), TR_COPY_TO_HOST));
    must(devices[d]->ops->stream_sync(devices[d], streams[d]));
    memcpy(copy, here, bytes_of(t));
    devices[d]->ops->host_free(devices[d], here);
    return copy;
}

/* The outputs of one run; the caller frees them. */
static void run_on(int d, const case_t *c, size_t shift, void **outs) {
    const tr_kernel_t *kernel = &devices[d]->ops->kernels[c->id];
    tr_kernel_call_t call = {.n_in = c->n_in, .n_out = c->n_out, .attr = c->attr, .adds = c->adds};
    void *blocks[TR_KERNEL_MAX_IN + TR_KERNEL_MAX_OUT + 1] = {NULL};
    size_t scratch = 0;
    int used = 0;
    for (int i = 0; i < TR_KERNEL_MAX_IN; i++) {
        call.in[i].shape.ndim = -1;
        if (i < c->n_in) call.in[i].dtype = c->in[i].dtype, call.in[i].shape = c->in[i].shape;
    }
    for (int i = 0; i < TR_KERNEL_MAX_OUT; i++) {
        call.out[i].shape.ndim = -1;
        if (i < c->n_out) call.out[i].dtype = c->out[i].dtype, call.out[i].shape = c->out[i].shape;
    }
    if (kernel->prepare) must(kernel->prepare(devices[d], &call, &call.state, &scratch));
    for (int i = 0; i < c->n_in; i++)
        call.in[i].data = upload(d, &c->in[i], (uint32_t)i, shift, &blocks[used++]);
    for (int i = 0; i < c->n_out; i++)
        call.out[i].data = upload(d, &c->out[i], 100 + (uint32_t)i, shift, &blocks[used++]);
    if (scratch)
        must(devices[d]->ops->alloc(devices[d], scratch, 0, &blocks[used])),
            call.scratch = blocks[used];
    must(kernel->run(devices[d], streams[d], &call));
    for (int i = 0; i < c->n_out; i++) outs[i] = download(d, &c->out[i], call.out[i].data);
    if (kernel->release) kernel->release(devices[d], call.state);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i]) devices[d]->ops->free(devices[d], blocks[i]);
}

static double value_of(const tensor_t *t, const void *data, int64_t i) {
    switch (t->dtype) {
    case TR_BF16: return (double)from_bf16(((const uint16_t *)data)[i]);
    case TR_F16: return (double)from_f16(((const uint16_t *)data)[i]);
    case TR_I32: return ((const int32_t *)data)[i];
    case TR_I64: return (double)((const int64_t *)data)[i];
    case TR_F64: return ((const double *)data)[i];
    case TR_U8: return ((const uint8_t *)data)[i];
    default: return (double)((const float *)data)[i];
    }
}

static void compare(const case_t *c, size_t shift, int output, const void *cpu, const void *cuda) {
    const tensor_t *t = &c->out[output];
    const int64_t n = bytes_of(t) ? tr_shape_elems(&t->shape) : 0;
    double largest = 1e-3;
    double tolerance = t->dtype == TR_BF16 ? 1.0 / 128 : t->dtype == TR_F16 ? 1.0 / 1024 : 1e-5;
    if (c->tolerance > 0) tolerance = fmax(tr_dtype_is_half(t->dtype) ? tolerance : 0, c->tolerance);
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(value_of(t, cpu, i)));
    if (t->dtype == TR_I32 || t->dtype == TR_I64) tolerance = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = value_of(t, cpu, i), b = value_of(t, cuda, i);
        if (fabs(a - b) <= tolerance * largest || (isnan(a) && isnan(b))) continue;
        fail_msg("%s, %s, shifted by %zu: output %d, element %lld: cpu %.9g, cuda %.9g", c->name,
                 tr_dtype_name(t->dtype), shift, output, (long long)i, a, b);
    }
}

/* Computed by cuBLASLt or cuDNN, at aligned addresses only. */
static bool by_library(tr_kernel_id_t id) {
    return id == TR_K_MATMUL || id == TR_K_CONV_FWD || id == TR_K_CONV_BWD_DATA ||
           id == TR_K_CONV_BWD_WEIGHTS || id == TR_K_HEAD_LOSS;
}

static void check(const case_t *given) {
    static const tr_dtype_t types[] = {TR_F32, TR_BF16, TR_F16};
    checked[given->id] = true;
    for (int pass = 0; pass < 3; pass++) {
        case_t c = *given;
        bool any = pass == 0;
        for (int i = 0; i < c.n_in && pass > 0; i++)
            if (c.in[i].narrow) c.in[i].dtype = types[pass], any = true;
        for (int i = 0; i < c.n_out && pass > 0; i++)
            if (c.out[i].narrow) c.out[i].dtype = types[pass], any = true;
        if (!any) return;
        for (size_t shift = 0; shift < (by_library(c.id) || only_aligned ? 1 : 2); shift++) {
            void *cpu[TR_KERNEL_MAX_OUT] = {NULL}, *cuda[TR_KERNEL_MAX_OUT] = {NULL};
            run_on(0, &c, shift, cpu);
            run_on(1, &c, shift, cuda);
            for (int i = 0; i < c.n_out; i++) {
                compare(&c, shift, i, cpu[i], cuda[i]);
                free(cpu[i]), free(cuda[i]);
            }
        }
    }
}

/* RELU of NaN is NaN, wherever it is fused: the documents of cuBLASLt and cuDNN do not say so. */
static void test_relu_of_nan(void **state) {
    const tr_add_attr_t add = {TR_ACT_RELU};
    const tr_act_attr_t relu = {TR_ACT_RELU};
    const tr_norm_attr_t norm = {1e-5f, TR_ACT_RELU};
    const tr_matmul_attr_t product = {.alpha = 1, .act = TR_ACT_RELU};
    const tr_conv_attr_t conv = {.spatial = 2,
                                 .kernel = {3, 3},
                                 .stride = {1, 1},
                                 .pad_lo = {1, 1},
                                 .pad_hi = {1, 1},
                                 .dilation = {1, 1},
                                 .groups = 1,
                                 .act = TR_ACT_RELU};
    check(&(case_t){"relu(NaN)", TR_K_ADD, &add, 2, 1, {N(500), X(500)}, {Y(500)}, 0});
    check(&(case_t){"relu(NaN)", TR_K_ACT_FWD, &relu, 1, 1, {N(500)}, {Y(500)}, 0});
    check(&(case_t){"relu(NaN)",
                    TR_K_BATCHNORM_EVAL,
                    &norm,
                    5,
                    1,
                    {N(50, 16), F(16), F(16), F(16), P(16)},
                    {Y(50, 16)},
                    0});
    for (int bias = 0; bias < 2; bias++) {
        const tensor_t none = ABSENT_, b = F(32);
        check(&(case_t){"relu(NaN)",
                        TR_K_MATMUL,
                        &product,
                        3,
                        1,
                        {N(24, 16), X(16, 32), bias ? b : none},
                        {Y(24, 32)},
                        0});
        check(&(case_t){"relu(NaN)",
                        TR_K_CONV_FWD,
                        &conv,
                        3,
                        1,
                        {N(2, 9, 9, 8), X(32, 3, 3, 8), bias ? b : none},
                        {Y(2, 9, 9, 32)},
                        0});
    }
}

static void test_products(void **state) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {7, 5, 3}, {33, 17, 65}, {64, 24, 40}};
    const tensor_t none = ABSENT_;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int way = 0; way < 8; way++) {
            const int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
            const bool ta = way & 1, tb = way & 2, bias = way & 4;
            const tr_matmul_attr_t attr = {ta, tb, 1, 0, bias ? TR_ACT_GELU_TANH : TR_ACT_NONE};
            const tensor_t at = X(k, m), a = X(m, k), bt = X(n, k), b = X(k, n), add = F(n);
            check(&(case_t){"MATMUL",
                            TR_K_MATMUL,
                            &attr,
                            3,
                            1,
                            {ta ? at : a, tb ? bt : b, bias ? add : none},
                            {Y(m, n)},
                            1e-4});
        }
    const tensor_t weight = P(3), seed = F(9);
    for (unsigned adds = 0; adds <= 8; adds += 8) {
        const tensor_t dw = G(37, 24), before = F(37, 24);
        check(&(case_t){"HEAD_LOSS",
                        TR_K_HEAD_LOSS,
                        NULL,
                        5,
                        4,
                        {X(9, 24), X(37, 24), LABEL(9), weight, seed},
                        {G(9), G(9), Y(9, 24), adds ? before : dw},
                        1.0 / 32, /* logits in 16 bits; in f32: test_ops_head */
                        adds});
    }
}

static void test_convolutions(void **state) {
    static const int64_t channels[] = {1, 3, 8, 20};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        const int64_t c = channels[i], k = 2 * c + 1;
        const tr_conv_attr_t attr = {.spatial = 2,
                                     .kernel = {3, 2},
                                     .stride = {2, 1},
                                     .pad_lo = {1, 0},
                                     .pad_hi = {1, 1},
                                     .dilation = {1, 1},
                                     .groups = 1};
        const tensor_t x = X(2, 9, 7, c), dy = X(2, 5, 7, k), w = X(k, 3, 2, c);
        check(
            &(case_t){"CONV_FWD", TR_K_CONV_FWD, &attr, 3, 1, {x, w, F(k)}, {Y(2, 5, 7, k)}, 1e-4});
        check(&(case_t){
            "CONV_BWD_DATA", TR_K_CONV_BWD_DATA, &attr, 2, 1, {dy, w}, {Y(2, 9, 7, c)}, 1e-4});
        check(&(case_t){"CONV_BWD_WEIGHTS",
                        TR_K_CONV_BWD_WEIGHTS,
                        &attr,
                        2,
                        2,
                        {x, dy},
                        {G(k, 3, 2, c), G(k)},
                        1e-3});
    }
}

/* Few channels and whole packs of outputs: the images are unfolded, in one slice or, of
 * the first one on a small GPU, in several. */
static void test_first_layers(void **state) {
    const tr_conv_attr_t image = {2, {7, 7}, {2, 2}, {3, 3}, {3, 2}, {1, 1}, 1},
                         series = {1, {5}, {2}, {3}, {1}, {2}, 1},
                         volume = {3, {2, 3, 2}, {1, 2, 1}, {0, 1, 1}, {1, 1, 0}, {1, 1, 2}, 1};
    const struct {
        const tr_conv_attr_t *attr;
        tensor_t x, w, y, dw;
    } layers[] = {
        {&image, X(18, 17, 15, 3), X(16, 7, 7, 3), Y(18, 9, 7, 16), G(16, 7, 7, 3)},
        {&series, X(3, 40, 5), X(8, 5, 5), Y(3, 18, 8), G(8, 5, 5)},
        {&volume, X(2, 5, 6, 7, 3), X(8, 2, 3, 2, 3), Y(2, 5, 3, 6, 8), G(8, 2, 3, 2, 3)}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        tensor_t none = ABSENT_, dy = layers[i].y;
        dy.content = NORMAL;
        check(&(case_t){"CONV_FWD of few channels",
                        TR_K_CONV_FWD,
                        layers[i].attr,
                        3,
                        1,
                        {layers[i].x, layers[i].w, none},
                        {layers[i].y},
                        1e-4});
        check(&(case_t){"CONV_BWD_WEIGHTS of few channels",
                        TR_K_CONV_BWD_WEIGHTS,
                        layers[i].attr,
                        2,
                        1,
                        {layers[i].x, dy},
                        {layers[i].dw},
                        1e-3});
    }
}

static void test_fields(void **state) {
    static const int64_t sizes[] = {1, 3, 8, 21};
    const tr_add_attr_t relu = {TR_ACT_RELU};
    const tr_leaky_relu_attr_t leaky = {0.1f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t c = sizes[i];
        const tr_upsample_attr_t up = {.spatial = 2, .factor = {2, 3}, .linear = i % 2};
        check(&(case_t){
            "UPSAMPLE_FWD", TR_K_UPSAMPLE_FWD, &up, 1, 1, {X(2, 3, 4, c)}, {Y(2, 6, 12, c)}, 1e-5});
        check(&(case_t){
            "UPSAMPLE_BWD", TR_K_UPSAMPLE_BWD, &up, 1, 1, {X(2, 6, 12, c)}, {Y(2, 3, 4, c)}, 1e-5});
        check(&(case_t){"BIAS", TR_K_BIAS, &relu, 2, 1, {X(7, c), F(c)}, {Y(7, c)}, 0});
        check(&(case_t){
            "LEAKY_RELU_FWD", TR_K_LEAKY_RELU_FWD, &leaky, 1, 1, {X(7, c)}, {Y(7, c)}, 1e-6});
        check(&(case_t){"LEAKY_RELU_BWD",
                        TR_K_LEAKY_RELU_BWD,
                        &leaky,
                        2,
                        1,
                        {X(7, c), X(7, c)},
                        {Y(7, c)},
                        1e-6});
    }
}

static void test_moves(void **state) {
    static const int64_t sizes[] = {1, 3, 8, 21};
    const tr_augment_attr_t augment = {
        .rotate_deg = 10, .translate = 0.1f, .zoom = 0.1f, .fill = 0.5f, .crop_pad = 1, .flip = 1};
    const tr_augment_attr_t moves = {.fill = 0.5f, .crop_pad = 2, .flip = 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t c = sizes[i];
        const tensor_t none = ABSENT_, shift = F(c);
        const tr_columns_attr_t columns = {c / 2, c - c / 2};
        const tr_embedding_attr_t plain = {false};
        check(&(case_t){"COPY", TR_K_COPY, NULL, 1, 1, {X(5, c)}, {Y(5, c)}, 0});
        check(&(case_t){"CONCAT",
                        TR_K_CONCAT,
                        NULL,
                        3,
                        1,
                        {X(5, c), X(5, 1), X(5, 2 * c)},
                        {Y(5, 3 * c + 1)},
                        0});
        check(&(case_t){"COLUMNS", TR_K_COLUMNS, &columns, 1, 1, {X(5, c)}, {Y(5, c - c / 2)}, 0});
        check(&(case_t){"AUGMENT",
                        TR_K_AUGMENT,
                        &augment,
                        3,
                        1,
                        {F(3, 7, 9, c), ID(3), STEP_},
                        {Y(3, 7, 9, c)},
                        1e-4});
        check(&(case_t){"AUGMENT with scale and shift",
                        TR_K_AUGMENT,
                        i % 2 ? &augment : &moves,
                        5,
                        1,
                        {PIXELS(3, 7, 9, c), ID(3), STEP_, F(c), i < 2 ? none : shift},
                        {Y(3, 7, 9, c)},
                        1e-4});
        check(&(case_t){"EMBEDDING_FWD",
                        TR_K_EMBEDDING_FWD,
                        NULL,
                        3,
                        1,
                        {TOKEN(3, 7), F(TOKEN_LIMIT, c), F(9, c)},
                        {Y(3, 7, c)},
                        0});
        for (tr_dtype_t type = TR_BF16; type <= TR_F16; type++) {
            tensor_t table = F(TOKEN_LIMIT, c);
            table.dtype = type;
            check(&(case_t){"EMBEDDING_FWD of halves",
                            TR_K_EMBEDDING_FWD,
                            NULL,
                            3,
                            1,
                            {TOKEN(3, 7), table, none},
                            {Y(3, 7, c)},
                            0});
        }
        check(&(case_t){"EMBEDDING_BWD",
                        TR_K_EMBEDDING_BWD,
                        &plain,
                        2,
                        2,
                        {X(3, 7, c), TOKEN(3, 7)},
                        {G(TOKEN_LIMIT + 1, c), G(9, c)},
                        0});
        check(&(case_t){"CHECK_FINITE", TR_K_CHECK_FINITE, NULL, 1, 1, {N(5 * c)}, {TOKEN(1)}, 0});
        check(&(case_t){"FINGERPRINT", TR_K_FINGERPRINT, NULL, 1, 1, {TOKEN(997 * c)}, {ID(1)}, 0});
    }
}

static void test_elementwise(void **state) {
    static const int64_t sizes[] = {1, 3, 8, 17, 1023, 4099};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t n = sizes[i];
        check(&(case_t){
            "ADD", TR_K_ADD, ATTR((tr_add_attr_t){TR_ACT_RELU}), 2, 1, {X(n), X(n)}, {Y(n)}, 0});
        check(&(case_t){
            "SCALE", TR_K_SCALE, ATTR((tr_scale_attr_t){-0.3f}), 1, 1, {X(n)}, {Y(n)}, 0});
        check(&(case_t){"ACCUMULATE", TR_K_ACCUMULATE, NULL, 1, 1, {F(n)}, {F(n)}, 0});
        for (int act = TR_ACT_RELU; act < TR_ACT_COUNT; act++) {
            const tr_act_attr_t attr = {(tr_act_t)act};
            check(&(case_t){"ACT_FWD", TR_K_ACT_FWD, &attr, 1, 1, {X(n)}, {Y(n)}, 0});
            check(&(case_t){"ACT_BWD", TR_K_ACT_BWD, &attr, 2, 1, {X(n), X(n)}, {Y(n)}, 0});
        }
        check(&(case_t){
            "CAST", TR_K_CAST_NORMALIZE, NULL, 3, 1, {F(n, 3), F(3), F(3)}, {Y(n, 3)}, 0});
        const tr_dropout_attr_t drop = {0.3f, 2};
        check(
            &(case_t){"DROPOUT", TR_K_DROPOUT, &drop, 3, 1, {X(3, n), ID(3), STEP_}, {Y(3, n)}, 0});
    }
}

static void check_batchnorm_and_sum(int64_t r, int64_t c) {
    const tr_norm_attr_t plain = {1e-5f, TR_ACT_NONE}, relu = {1e-5f, TR_ACT_RELU};
    check(&(case_t){"BATCHNORM_ADD_TRAIN",
                    TR_K_BATCHNORM_ADD_TRAIN,
                    &relu,
                    4,
                    4,
                    {X(r, c), F(c), F(c), X(r, c)},
                    {Y(r, c), G(c), G(c), F(2, c)},
                    1e-4});
    for (unsigned adds = 0; adds <= 6; adds += 6)
        check(&(case_t){"BATCHNORM_ADD_BWD",
                        TR_K_BATCHNORM_ADD_BWD,
                        &plain,
                        7,
                        4,
                        {X(r, c), X(r, c), F(c), F(c), F(c), P(c), X(r, c)},
                        {Y(r, c), F(c), F(c), Y(r, c)},
                        1e-4,
                        adds});
}

static void check_norms(int64_t r, int64_t c) {
    const tr_norm_attr_t plain = {1e-5f, TR_ACT_NONE}, relu = {1e-5f, TR_ACT_RELU};
    check(&(case_t){"COLUMN_SUM", TR_K_COLUMN_SUM, NULL, 1, 1, {X(r, c)}, {G(c)}, 0});
    check(&(case_t){"COLUMN_SUM +=", TR_K_COLUMN_SUM, NULL, 1, 1, {X(r, c)}, {F(c)}, 0, 1});
    if (r > 1) check_batchnorm_and_sum(r, c);
    if (r > 1)
        check(&(case_t){"BATCHNORM_TRAIN",
                        TR_K_BATCHNORM_TRAIN,
                        &plain,
                        3,
                        4,
                        {X(r, c), F(c), F(c)},
                        {Y(r, c), G(c), G(c), F(2, c)},
                        1e-4});
    check(&(case_t){"BATCHNORM_EVAL",
                    TR_K_BATCHNORM_EVAL,
                    &relu,
                    5,
                    1,
                    {X(r, c), F(c), F(c), F(c), P(c)},
                    {Y(r, c)},
                    0});
    check(&(case_t){"BATCHNORM_BWD",
                    TR_K_BATCHNORM_BWD,
                    &plain,
                    6,
                    3,
                    {X(r, c), X(r, c), F(c), F(c), F(c), P(c)},
                    {Y(r, c), G(c), G(c)},
                    1e-4});
    check(&(case_t){"LAYERNORM_FWD",
                    TR_K_LAYERNORM_FWD,
                    &relu,
                    3,
                    3,
                    {X(r, c), F(c), F(c)},
                    {Y(r, c), G(r), G(r)},
                    1e-4});
    check(&(case_t){"RESIDUAL_LAYERNORM_FWD",
                    TR_K_RESIDUAL_LAYERNORM_FWD,
                    &plain,
                    4,
                    4,
                    {X(r, c), X(r, c), F(c), F(c)},
                    {Y(r, c), Y(r, c), G(r), G(r)},
                    1e-4});
    for (unsigned adds = 0; adds <= 6; adds += 6) {
        const tensor_t sum = G(c), before = F(c);
        check(&(case_t){"RESIDUAL_LAYERNORM_BWD",
                        TR_K_RESIDUAL_LAYERNORM_BWD,
                        &plain,
                        6,
                        3,
                        {X(r, c), X(r, c), F(c), F(r), P(r), X(r, c)},
                        {Y(r, c), adds ? before : sum, adds ? before : sum},
                        1e-4,
                        adds});
        check(&(case_t){"LAYERNORM_BWD",
                        TR_K_LAYERNORM_BWD,
                        &plain,
                        5,
                        3,
                        {X(r, c), X(r, c), F(c), F(r), P(r)},
                        {Y(r, c), adds ? before : sum, adds ? before : sum},
                        1e-4,
                        adds});
    }
}

static void test_norms(void **state) {
    static const int64_t shapes[][2] = {{1, 1},     {5, 3},    {33, 8},  {700, 16},
                                        {1111, 24}, {64, 260}, {3, 2500}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_norms(shapes[i][0], shapes[i][1]);
}

/* Rows that several threads share, some chunks of them, and outputs that are sums of others. */
static void test_wide_rows(void **state) {
    const int64_t r = 259, c = 136;
    const tr_norm_attr_t plain = {1e-5f, TR_ACT_NONE};
    const tensor_t sum = G(c), before = F(c);
    only_aligned = true;
    check_norms(r, c);
    for (unsigned adds = 0; adds <= 6; adds += 6) {
        /* sums of what was rounded, perhaps the other way */
        check(&(case_t){"RESIDUAL_LAYERNORM_BWD with the sum of dx",
                        TR_K_RESIDUAL_LAYERNORM_BWD,
                        &plain,
                        6,
                        4,
                        {X(r, c), X(r, c), F(c), F(r), P(r), X(r, c)},
                        {Y(r, c), before, before, adds ? before : sum},
                        5e-3,
                        adds ? 14 : 6});
        check(&(case_t){"ACT_BWD with the sum of dx",
                        TR_K_ACT_BWD,
                        ATTR((tr_act_attr_t){adds ? TR_ACT_RELU : TR_ACT_GELU_TANH}),
                        2,
                        2,
                        {X(r, c), X(r, c)},
                        {Y(r, c), adds ? before : sum},
                        5e-3,
                        adds ? 2 : 0});
    }
    only_aligned = false;
}

static void test_groupnorm(void **state) {
    static const int64_t shapes[][4] = {{3, 1, 6, 2},    {2, 5, 3, 3},   {2, 70, 8, 1},
                                        {3, 700, 48, 4}, {2, 9, 260, 5}, {1, 9000, 5, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t n = shapes[i][0], s = shapes[i][1], c = shapes[i][2], g = shapes[i][3];
        const tr_groupnorm_attr_t attr = {1e-5f, i % 2 ? TR_ACT_RELU : TR_ACT_NONE, (int)g};
        check(&(case_t){"GROUPNORM_FWD",
                        TR_K_GROUPNORM_FWD,
                        &attr,
                        3,
                        3,
                        {X(n, s, c), F(c), F(c)},
                        {Y(n, s, c), G(n, g), G(n, g)},
                        1e-4});
        for (unsigned adds = 0; adds <= 6; adds += 6) {
            const tensor_t sum = G(c), before = F(c);
            check(&(case_t){"GROUPNORM_BWD",
                            TR_K_GROUPNORM_BWD,
                            &attr,
                            6,
                            3,
                            {X(n, s, c), X(n, s, c), F(c), F(c), F(n, g), P(n, g)},
                            {Y(n, s, c), adds ? before : sum, adds ? before : sum},
                            1e-4,
                            adds});
        }
    }
}

/* Heads of every size of tile; with dropout, and with kept probabilities too. Rows of scores are whole
 * packs of keys, or not. */
static void test_attention(void **state) {
    enum { PLAIN, DROPS, KEEPS };
    static const int64_t sizes[] = {3, 64, 100, 200}, steps[] = {71, 40, 19, 19};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int way = PLAIN; way <= KEEPS; way++) {
            const int64_t b = 2, t = steps[i], h = 2, d = sizes[i], c = h * d;
            const tr_attention_attr_t attr = {2, way >= DROPS ? 0.3f : 0.0f, 4};
            const tensor_t absent = ABSENT_, ids = way >= DROPS ? (tensor_t)ID(b) : absent,
                           step = way >= DROPS ? (tensor_t)STEP_ : absent;
            check(&(case_t){"ATTENTION_FWD",
                            TR_K_ATTENTION_FWD,
                            &attr,
                            3,
                            3,
                            {X(b, t, 3 * c), ids, step},
                            {Y(b, t, c), G(b, h, t), way == KEEPS ? (tensor_t)G(b, h, t, t) : absent},
                            1e-4});
            check(&(case_t){"ATTENTION_BWD",
                            TR_K_ATTENTION_BWD,
                            &attr,
                            7,
                            1,
                            {X(b, t, c), X(b, t, 3 * c), X(b, t, c), P(b, h, t),
                             way == KEEPS ? (tensor_t)F(b, h, t, t) : absent, ids, step},
                            {Y(b, t, 3 * c)},
                            1e-3});
        }
}

static void test_generation(void **state) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {4, 33, 7}, {9, 40, 64}, {17, 70, 259}};
    const tensor_t none = ABSENT_;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int way = 0; way < 4; way++) {
            const int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
            const bool trans_b = way & 1, bias = way & 2;
            const tr_matmul_attr_t attr = {.trans_b = trans_b, .alpha = 1};
            for (tr_dtype_t type = TR_F32; type <= TR_F16; type++) {
                tensor_t b = trans_b ? (tensor_t)F(n, k) : (tensor_t)F(k, n);
                b.dtype = type;
                check(&(case_t){"MATMUL_ROWS",
                                TR_K_MATMUL_ROWS,
                                &attr,
                                3,
                                1,
                                {F(m, k), b, bias ? (tensor_t)F(n) : none},
                                {G(m, n)}});
            }
        }
    for (int64_t size = 5; size < 300; size += 130) {
        const int64_t rows = 3, positions = 300, heads = 2, width = heads * size, samples = 2;
        const tr_attention_attr_t attr = {.heads = (int)heads};
        const tensor_t qkv = F(samples, PLACE_STEPS, 3 * width), place = PLACE_(samples),
                       cache = F(rows, positions, width);
        check(&(case_t){
            "CACHE_APPEND", TR_K_CACHE_APPEND, &attr, 2, 2, {qkv, place}, {cache, cache}});
        check(&(case_t){"ATTENTION_CACHED",
                        TR_K_ATTENTION_CACHED,
                        &attr,
                        4,
                        1,
                        {qkv, place, cache, cache},
                        {G(samples, PLACE_STEPS, width)},
                        1e-4});
    }
}

/* y += x twice in a captured piece of work, which is launched three times. */
static void test_capture(void **state) {
    enum { N = 1000, LAUNCHES = 3 };
    tr_device_t *d = devices[1];
    const tr_device_ops_t *ops = d->ops;
    tr_executable_t *executable = NULL;
    const tensor_t x = F(N), y = F(N);
    void *blocks[2];
    tr_kernel_call_t call = {.n_in = 1, .n_out = 1};
    call.in[0] = (tr_view_t){upload(1, &x, 1, 0, &blocks[0]), TR_F32, TR_SHAPE(N)};
    call.out[0] = (tr_view_t){upload(1, &y, 2, 0, &blocks[1]), TR_F32, TR_SHAPE(N)};
    float *from = download(1, &x, call.in[0].data), *before = download(1, &y, call.out[0].data);
    must(ops->capture_begin(d, streams[1]));
    for (int i = 0; i < 2; i++) must(ops->kernels[TR_K_ACCUMULATE].run(d, streams[1], &call));
    must(ops->capture_end(d, streams[1], &executable));
    for (int i = 0; i < LAUNCHES; i++) must(ops->executable_launch(d, executable, streams[1]));
    float *after = download(1, &y, call.out[0].data);
    for (int i = 0; i < N; i++)
        assert_float_equal(after[i], before[i] + 2 * LAUNCHES * from[i], 1e-4f);
    ops->executable_destroy(d, executable);
    /* what cannot be captured ends the capture, and the stream works again */
    must(ops->capture_begin(d, streams[1]));
    assert_int_not_equal(ops->stream_sync(d, streams[1]), TR_OK);
    assert_int_equal(ops->capture_end(d, streams[1], &executable), TR_ERR_CONFIG);
    assert_null(executable);
    must(ops->capture_begin(d, streams[1]));
    must(ops->kernels[TR_K_ACCUMULATE].run(d, streams[1], &call));
    must(ops->capture_end(d, streams[1], NULL));
    float *last = download(1, &y, call.out[0].data);
    assert_memory_equal(last, after, N * sizeof *last);
    for (int i = 0; i < 2; i++) ops->free(d, blocks[i]);
    free(from), free(before), free(after), free(last);
}

static void test_pool(void **state) {
    static const int64_t channels[] = {1, 3, 8, 20};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        const int64_t c = channels[i];
        for (int max = 0; max < 2; max++) {
            const tr_pool_attr_t attr = {.spatial = 2,
                                         .kernel = {3, 2},
                                         .stride = {2, 2},
                                         .pad_lo = {1, 0},
                                         .pad_hi = {1, 1},
                                         .max = max};
            const tensor_t index = {NOTHING, false, TR_I32, TR_SHAPE(2, 5, 4, c)}, absent = ABSENT_;
            check(&(case_t){"POOL_FWD",
                            TR_K_POOL_FWD,
                            &attr,
                            1,
                            2,
                            {X(2, 9, 7, c)},
                            {Y(2, 5, 4, c), max ? index : absent},
                            0});
            if (!max)
                check(&(case_t){
                    "POOL_BWD", TR_K_POOL_BWD, &attr, 1, 1, {X(2, 5, 4, c)}, {Y(2, 9, 7, c)}, 0});
        }
    }
}

static void test_losses(void **state) {
    static const int64_t shapes[][2] = {{1, 3}, {7, 10}, {5, 33}, {3, 2500}};
    const tr_xent_attr_t smooth = {0.1f};
    const tr_topk_attr_t top = {2};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t r = shapes[i][0], c = shapes[i][1];
        check(&(case_t){
            "XENT_FWD", TR_K_XENT_FWD, &smooth, 3, 2, {F(r, c), LABEL(r), P(r)}, {G(r), G(r)}, 0});
        check(&(case_t){"XENT_BWD",
                        TR_K_XENT_BWD,
                        &smooth,
                        5,
                        1,
                        {F(r, c), LABEL(r), P(r), P(r), F(r)},
                        {G(r, c)},
                        0});
        check(&(case_t){"MAE_FWD", TR_K_MAE_FWD, NULL, 3, 1, {F(r, c), F(r, c), P(r)}, {G(r)}, 0});
        check(&(case_t){
            "MAE_BWD", TR_K_MAE_BWD, NULL, 4, 1, {F(r, c), F(r, c), P(r), F(r)}, {G(r, c)}, 0});
        check(&(case_t){"MSE_FWD", TR_K_MSE_FWD, NULL, 3, 1, {F(r, c), F(r, c), P(r)}, {G(r)}, 0});
        const tr_huber_attr_t delta = {0.7f};
        check(&(case_t){
            "HUBER_FWD", TR_K_HUBER_FWD, &delta, 3, 1, {F(r, c), F(r, c), P(r)}, {G(r)}, 0});
        check(&(case_t){"HUBER_BWD",
                        TR_K_HUBER_BWD,
                        &delta,
                        4,
                        1,
                        {F(r, c), F(r, c), P(r), F(r)},
                        {G(r, c)},
                        0});
        check(&(case_t){"BCE_FWD", TR_K_BCE_FWD, NULL, 3, 1, {F(r, c), P(r, c), P(r)}, {G(r)}, 0});
        check(&(case_t){
            "BCE_BWD", TR_K_BCE_BWD, NULL, 4, 1, {F(r, c), P(r, c), P(r), F(r)}, {G(r, c)}, 0});
        check(&(case_t){
            "CLASS_WEIGHT", TR_K_CLASS_WEIGHT, NULL, 3, 1, {P(r), LABEL(r), P(c)}, {G(r)}, 0});
        check(&(case_t){
            "MSE_BWD", TR_K_MSE_BWD, NULL, 4, 1, {F(r, c), F(r, c), P(r), F(r)}, {G(r, c)}, 0});
        check(
            &(case_t){"TOPK", TR_K_TOPK_CORRECT, &top, 3, 1, {F(r, c), LABEL(r), P(r)}, {G(r)}, 0});
    }
}

/* Of positions: two samples of r rows. */
static void test_dense(void **state) {
    static const int64_t shapes[][2] = {{1, 3}, {700, 3}, {33, 10}, {5, 50}};
    const tr_xent_attr_t smooth = {0.1f};
    const tensor_t none = ABSENT_;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t r = shapes[i][0], c = shapes[i][1];
        const tensor_t weights[] = {none, P(2 * r)},
                       target = {WITH_NAN, false, TR_F32, TR_SHAPE(2 * r)};
        check(&(case_t){
            "TERM_WEIGHT", TR_K_TERM_WEIGHT, NULL, 2, 1, {P(2), LABEL(2 * r)}, {G(2 * r)}, 0});
        check(
            &(case_t){"TERM_WEIGHT", TR_K_TERM_WEIGHT, NULL, 2, 1, {P(2), target}, {G(2 * r)}, 0});
        for (int w = 0; w < 2; w++) {
            check(&(case_t){"DICE_FWD",
                            TR_K_DICE_FWD,
                            &smooth,
                            4,
                            3,
                            {F(2, r, c), LABEL(2 * r), P(2 * r), weights[w]},
                            {G(2), G(2 * r), G(2, 2 * c + 2)},
                            0});
            check(&(case_t){
                "DICE_BWD",
                TR_K_DICE_BWD,
                &smooth,
                7,
                1,
                {F(2, r, c), LABEL(2 * r), P(2 * r), weights[w], P(2 * r), F(2, 2 * c + 2), F(2)},
                {G(2, r, c)},
                0});
        }
        check(&(case_t){"CONFUSION",
                        TR_K_CONFUSION,
                        NULL,
                        3,
                        1,
                        {F(2, r, c), LABEL(2 * r), P(2 * r)},
                        {H(TR_I64, c, c + 1)},
                        0});
        check(&(case_t){"TARGET_SUMS",
                        TR_K_TARGET_SUMS,
                        NULL,
                        3,
                        1,
                        {F(2, r, c), F(2, r, c), P(2 * r * c)},
                        {H(TR_F64, c, 8)},
                        0});
    }
}

static void test_update(void **state) {
    static const int64_t sizes[] = {1, 5, 1024, 20011};
    const tr_sgd_attr_t sgd = {0.9f, true}, plain = {0, false};
    const tr_adam_attr_t adam = {0.9f, 0.999f, 1e-8f, true};
    const tr_ema_attr_t ema = {0.99f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t n = sizes[i];
        ranges[2].end = n;
        moments[0] = (tr_moments_range_t){n / 2, 0, n - n / 2, 0.1f, 4};
        moments[1] = (tr_moments_range_t){0, n - n / 2, n / 2, 0.2f, 3};
        check(&(case_t){
            "SGD", TR_K_SGD, &sgd, 4, 2, {F(n), STEP_, RESULT_, RANGES_}, {F(n), F(n)}, 0});
        check(&(case_t){
            "SGD", TR_K_SGD, &plain, 4, 2, {F(n), STEP_, RESULT_, RANGES_}, {F(n), ABSENT_}, 0});
        check(&(case_t){"ADAM",
                        TR_K_ADAM,
                        &adam,
                        4,
                        3,
                        {F(n), STEP_, RESULT_, RANGES_},
                        {F(n), F(n), P(n)},
                        0});
        for (tr_dtype_t type = TR_BF16; type <= TR_F16; type++) {
            check(&(case_t){"SGD with copies",
                            TR_K_SGD,
                            &plain,
                            4,
                            3,
                            {F(n), STEP_, RESULT_, RANGES_},
                            {F(n), ABSENT_, H(type, n)},
                            0});
            check(&(case_t){"ADAM with copies",
                            TR_K_ADAM,
                            &adam,
                            4,
                            4,
                            {F(n), STEP_, RESULT_, RANGES_},
                            {F(n), F(n), P(n), H(type, n)},
                            0});
        }
        check(&(case_t){
            "MOMENTS", TR_K_MOMENTS_UPDATE, NULL, 3, 1, {F(n), RESULT_, MOMENTS_}, {F(n)}, 0});
        check(&(case_t){"EMA", TR_K_EMA_UPDATE, &ema, 2, 1, {F(n), RESULT_}, {F(n)}, 0});
        check(&(case_t){"WEIGHTED_SUM", TR_K_WEIGHTED_SUM, NULL, 2, 1, {F(n), P(n)}, {F(1)}, 1e-4});
    }
}

/* Last: every kernel of cuda was compared above. */
static void test_every_kernel_was_compared(void **state) {
    for (int id = 0; id < TR_K_COUNT; id++) {
        /* by test_ops_update; cpu does not have the others: test_cuda_ways */
        const bool elsewhere = id == TR_K_BLOCK_SQUARES || id == TR_K_GRAD_NORM ||
                               id == TR_K_MATMUL_ACT_FWD || id == TR_K_MATMUL_ACT_BWD;
        if (devices[1]->ops->kernels[id].run && !checked[id] && !elsewhere)
            fail_msg("kernel %s is never compared with the CPU's",
                     tr_kernel_name((tr_kernel_id_t)id));
    }
}

int main(void) {
    const tr_backend_t *backend = NULL;
    if (tr_backend_find("cuda", &backend) != TR_OK) {
        print_message("skipped: %s\n", tr_error_last()->message);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relu_of_nan),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_first_layers),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_wide_rows),
        cmocka_unit_test(test_groupnorm),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_generation),
        cmocka_unit_test(test_every_kernel_was_compared),
    };
    cmocka_set_test_filter(getenv("TEST_ONLY")); /* a pattern; NULL: all */
    return cmocka_run_group_tests(tests, cuda_test_open, cuda_test_close);
}
