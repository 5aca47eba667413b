#include "op_harness.h"
#include "base/str.h"

#include "names.h"
#include "base/mem.h"
#include "base/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- errors and comparison --------------------------------------------------------------------- */

void op_must(tr_status_t status, const char *what) {
    if (status != TR_OK) fail_msg("%s: %s", what, tr_error_last()->message);
}

void op_assert_refused(tr_status_t status, const char *names) {
    if (status != TR_ERR_CONFIG)
        fail_msg("status %d where a configuration error was expected", (int)status);
    assert_error_names(names);
}

void op_assert_close(const char *what, const float *found, const double *expected, int64_t count,
                     double tolerance) {
    double largest = 1e-3;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(expected[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)found[i] - expected[i]) <= tolerance * largest))
            fail_msg("%s: element %lld of %lld is %.9g, expected %.9g (tolerance %g of %g)", what,
                     (long long)i, (long long)count, (double)found[i], expected[i], tolerance,
                     largest);
}

double op_random(const char *key, int64_t i, double low, double high) {
    tr_rng_block_t bits = tr_rng_philox(tr_hash_name(key), TR_RNG_TEST, 0, (uint64_t)i, 0);
    return low + (high - low) * (bits.v[0] + 0.5) * 0x1p-32;
}

double op_act(tr_act_t act, double x) {
    switch (act) {
    case TR_ACT_RELU: return x < 0 ? 0 : x;
    case TR_ACT_GELU: return x * 0.5 * erfc(-x / sqrt(2));
    case TR_ACT_GELU_TANH:
        return x / (1 + exp(-2 * M_2_SQRTPI / M_SQRT2 * (x + 0.044715 * x * x * x)));
    case TR_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case TR_ACT_TANH: return tanh(x);
    case TR_ACT_SILU: return x / (1 + exp(-x));
    default: return x;
    }
}

static double gelu_tanh_slope(double x) {
    const double s = x == 0 ? 0.5 : op_act(TR_ACT_GELU_TANH, x) / x;
    return s + x * s * (1 - s) * 2 * M_2_SQRTPI / M_SQRT2 * (1 + 3 * 0.044715 * x * x);
}

double op_act_slope(tr_act_t act, double v) {
    switch (act) {
    case TR_ACT_RELU: return v > 0;
    case TR_ACT_GELU: return 0.5 * erfc(-v / sqrt(2)) + v * exp(-v * v / 2) / sqrt(2 * M_PI);
    case TR_ACT_GELU_TANH: return gelu_tanh_slope(v);
    case TR_ACT_SIGMOID: return v * (1 - v);
    case TR_ACT_TANH: return 1 - v * v;
    case TR_ACT_SILU: return (1 + v / (1 + exp(v))) / (1 + exp(-v));
    default: return 1;
    }
}

/* -- devices ----------------------------------------------------------------------------------- */

op_devices_t op_devices(void) {
    op_devices_t devices = {0};
    size_t count = 0;
    const char *only = getenv("OP_DEVICE");
    const tr_backend_t *const *list = tr_backend_list(&count);
    for (size_t i = 0; i < count && devices.count < 8; i++)
        if ((!only || strcmp(list[i]->name, only) == 0) &&
            (!list[i]->unavailable || !list[i]->unavailable()))
            devices.name[devices.count++] = list[i]->name;
    return devices;
}

tr_device_t *op_open(const char *name) {
    tr_device_t *device = NULL;
    tr_device_params_t params = {.threads = 2,
                                 .seed = 7,
                                 .plan_folder = getenv("OP_PLAN_FOLDER")};
    MUST(tr_device_open(name, &params, &device));
    return device;
}

/* -- one graph --------------------------------------------------------------------------------- */

op_bench_t op_begin(const char *device, tr_mode_t mode) {
    op_bench_t b = {.device = op_open(device)};
    MUST(tr_graph_create(b.device, &b.g));
    MUST(tr_program_begin(b.g, "test", mode, &b.program));
    tr_scope_push(b.g, "op");
    return b;
}

void op_ready(op_bench_t *b) {
    tr_step_t step = {.seed = OP_SEED, .step = OP_STEP, .lr = 0.1f, .weight_decay_scale = 1};
    tr_scope_pop(b->g);
    MUST(tr_program_end(b->g));
    MUST(tr_graph_plan(b->g, 0));
    MUST(tr_graph_allocate(b->g));
    MUST(tr_graph_init_params(b->g, 1));
    MUST(tr_tensor_write(b->g, tr_graph_step(b->g), &step));
}

static void convert(tr_dtype_t dtype, double value, void *to, int64_t i) {
    switch (dtype) {
    case TR_F32: ((float *)to)[i] = (float)value; break;
    case TR_F64: ((double *)to)[i] = value; break;
    case TR_U8: ((uint8_t *)to)[i] = (uint8_t)value; break;
    case TR_I8: ((int8_t *)to)[i] = (int8_t)value; break;
    case TR_U16: ((uint16_t *)to)[i] = (uint16_t)value; break;
    case TR_I16: ((int16_t *)to)[i] = (int16_t)value; break;
    case TR_U32: ((uint32_t *)to)[i] = (uint32_t)value; break;
    case TR_I32: ((int32_t *)to)[i] = (int32_t)value; break;
    case TR_U64: ((uint64_t *)to)[i] = (uint64_t)value; break;
    case TR_I64: ((int64_t *)to)[i] = (int64_t)value; break;
    case TR_BF16: { /* exact for the values that tests choose: a float's upper half */
        float f = (float)value;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
        break;
    }
    case TR_F16: { /* normal values only */
        int exponent;
        double fraction = frexp(fabs(value), &exponent);
        uint16_t bits = value == 0 ? 0
                                   : (uint16_t)((unsigned)(exponent + 14) << 10 |
                                                ((unsigned)(fraction * 2048) & 1023));
        ((uint16_t *)to)[i] = (uint16_t)(bits | (value < 0 ? 0x8000 : 0));
        break;
    }
    default: fail_msg("no conversion to %s", tr_dtype_name(dtype));
    }
}

void op_write(op_bench_t *b, tr_tensor_t t, const double *values) {
    tr_tensor_info_t info = *tr_tensor_info(b->g, t);
    void *host = test_malloc(info.bytes ? info.bytes : 1);
    for (int64_t i = 0; i < tr_shape_elems(&info.shape); i++)
        convert(info.dtype, values[i], host, i);
    MUST(tr_tensor_write(b->g, t, host));
    test_free(host);
}

float *op_read(op_bench_t *b, tr_tensor_t t) {
    assert_int_equal(tr_tensor_info(b->g, t)->dtype, TR_F32);
    float *host = test_malloc(tr_tensor_info(b->g, t)->bytes);
    MUST(tr_tensor_read(b->g, t, host));
    return host;
}

void op_run(op_bench_t *b) {
    MUST(tr_program_run(b->g, b->program, NULL));
    MUST(tr_graph_sync(b->g));
}

void op_end(op_bench_t *b) {
    tr_graph_destroy(&b->g);
    tr_device_close(&b->device);
}

/* -- a case in double -------------------------------------------------------------------------- */

typedef struct {
    const op_case_t *c;
    tr_dtype_t type; /* of activations */
    double *in[OP_MAX_IN], *y, *seed, *grad[OP_MAX_IN];
    int64_t out_elems;
} expected_t;

static int64_t in_elems(const op_case_t *c, int i) {
    return tr_shape_elems(&c->in[i].shape);
}
static bool has_grad(const op_case_t *c, int i) {
    return c->mode == TR_TRAIN && !c->in[i].fixed && c->in[i].dtype == TR_F32;
}

/* To `bits` significant bits. */
static double round_to(double value, int bits) {
    int exponent;
    double fraction = frexp(value, &exponent);
    return ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

double op_round(tr_dtype_t type, double value) {
    return type == TR_BF16 ? round_to(value, 8) : type == TR_F16 ? round_to(value, 11) : value;
}

static double draw(const op_case_t *c, int input, int64_t i) {
    char key[160];
    const op_input_t *in = &c->in[input];
    if (in->values) return in->values[i];
    snprintf(key, sizeof key, "%s/%s", c->name, in->name);
    bool unset = in->low == 0 && in->high == 0;
    if (in->dtype == TR_F32 || in->dtype == TR_F64)
        return (float)op_random(key, i, unset ? -1 : in->low, unset ? 1 : in->high);
    return floor(op_random(key, i, in->low, in->high + 1));
}

static double loss_of(expected_t *e, double *y) {
    double loss = 0;
    e->c->reference(e->c, (const double *const *)e->in, y);
    for (int64_t i = 0; i < e->out_elems; i++) loss += y[i] * e->seed[i];
    return loss;
}

static void differentiate(expected_t *e, int input) {
    double *scratch = test_malloc((size_t)e->out_elems * sizeof(double));
    for (int64_t i = 0; i < in_elems(e->c, input); i++) {
        double *x = &e->in[input][i], value = *x, h = 1e-5;
        *x = value + h;
        double above = loss_of(e, scratch);
        *x = value - h;
        double below = loss_of(e, scratch);
        *x = value;
        e->grad[input][i] = (above - below) / (2 * h);
    }
    test_free(scratch);
}

static expected_t expect(const op_case_t *c, tr_dtype_t type) {
    expected_t e = {.c = c, .type = type, .out_elems = tr_shape_elems(&c->out)};
    e.y = test_calloc((size_t)e.out_elems, sizeof(double));
    e.seed = test_calloc((size_t)e.out_elems, sizeof(double));
    for (int64_t i = 0; i < e.out_elems; i++) {
        double seed = op_random(c->name, i, -1, 1);
        e.seed[i] = (float)op_round(type, seed);
    }
    for (int i = 0; i < c->n_in; i++) {
        e.in[i] = test_calloc((size_t)in_elems(c, i), sizeof(double));
        for (int64_t k = 0; k < in_elems(c, i); k++) {
            double value = draw(c, i, k);
            e.in[i][k] = c->in[i].dtype == TR_F32 ? op_round(type, value) : value;
        }
    }
    loss_of(&e, e.y);
    for (int i = 0; i < c->n_in; i++) {
        if (!has_grad(c, i)) continue;
        e.grad[i] = test_calloc((size_t)in_elems(c, i), sizeof(double));
        differentiate(&e, i);
    }
    return e;
}

static void forget(expected_t *e) {
    for (int i = 0; i < e->c->n_in; i++) {
        test_free(e->in[i]);
        if (e->grad[i]) test_free(e->grad[i]);
    }
    test_free(e->y);
    test_free(e->seed);
}

/* -- a case on a device ------------------------------------------------------------------------ */

/* FORWARD: chained and without gradients, so that inputs end at the op. */
typedef enum { DIRECT, CHAINED, KEPT, FORWARD, RECOMPUTED, ACCUMULATED, VARIANTS } variant_t;
static const char *const variant_names[] = {"direct",  "chained",    "kept",
                                            "forward", "recomputed", "accumulated"};

typedef struct {
    float *y, *grad[OP_MAX_IN];
} found_t;

static void make_input(op_bench_t *b, const op_case_t *c, int i, int only, tr_tensor_t *out) {
    const op_input_t *in = &c->in[i];
    tr_param_spec_t spec = {.trainable = only < 0 || only == i, .lr_factor = 1};
    if (has_grad(c, i))
        MUST(tr_param(b->g, in->name, &in->shape, &spec, out));
    else
        MUST(tr_input(b->g, in->name, in->dtype, &in->shape, out));
}

/* x or y through an op that changes nothing, so that it, or its gradient, is memory that the
 * planner owns. */
static void pass_through(op_bench_t *b, variant_t variant, tr_tensor_t *x) {
    if (variant != DIRECT && variant != ACCUMULATED) MUST(tr_scale(b->g, *x, 1, x));
}

static void keep_all(op_bench_t *b) {
    for (int32_t id = 1; id <= tr_graph_tensor_count(b->g); id++)
        if (tr_tensor_info(b->g, (tr_tensor_t){id})->role == TR_ROLE_ACTIVATION)
            MUST(tr_keep(b->g, (tr_tensor_t){id}));
}

static tr_tensor_t build(op_bench_t *b, const expected_t *e, variant_t variant, int only,
                         tr_tensor_t *in, tr_tensor_t *seed) {
    const op_case_t *c = e->c;
    tr_tensor_t x[OP_MAX_IN], y = TR_NONE;
    for (int i = 0; i < c->n_in; i++) make_input(b, c, i, only, &in[i]);
    MUST(tr_input(b->g, "seed", TR_F32, &c->out, seed));
    if (variant == RECOMPUTED) tr_recompute_begin(b->g);
    for (int i = 0; i < c->n_in; i++) {
        x[i] = in[i];
        if (!c->in[i].fixed && c->in[i].dtype == TR_F32) pass_through(b, variant, &x[i]);
        if (c->in[i].half) MUST(tr_cast(b->g, x[i], e->type, &x[i]));
    }
    MUST(c->build(b->g, c, x, &y));
    if (variant == RECOMPUTED) tr_recompute_end(b->g);
    assert_int_equal(tr_tensor_info(b->g, y)->dtype, e->type);
    MUST(tr_cast(b->g, y, TR_F32, &y));
    if (!tr_shape_equal(tr_shape_of(b->g, y), &c->out)) {
        char is[96], should[96];
        fail_msg("%s: result %s, expected %s", c->name, tr_shape_format(tr_shape_of(b->g, y), is),
                 tr_shape_format(&c->out, should));
    }
    pass_through(b, variant, &y);
    MUST(tr_keep(b->g, y));
    if (c->mode == TR_TRAIN && variant != FORWARD)
        MUST(tr_backward(b->g, y, *seed, variant == ACCUMULATED));
    if (variant == KEPT) keep_all(b);
    return y;
}

static float *read_grad(op_bench_t *b, const op_case_t *c, int i, variant_t variant) {
    char name[96];
    snprintf(name, sizeof name, "op.%s.grad", c->in[i].name);
    tr_tensor_t t = tr_graph_find(b->g, name);
    if (tr_is_none(t)) fail_msg("%s: no gradient of %s", c->name, c->in[i].name);
    float *grad = op_read(b, t);
    for (int64_t k = 0; variant == ACCUMULATED && k < in_elems(c, i); k++) grad[k] /= 2;
    return grad;
}

/* Every variant runs twice: the second run finds what the first left in the arena. */
static found_t run_variant(const char *device, const expected_t *e, variant_t variant, int only) {
    const op_case_t *c = e->c;
    found_t found = {0};
    tr_tensor_t in[OP_MAX_IN], seed;
    op_bench_t b = op_begin(device, c->mode);
    tr_tensor_t y = build(&b, e, variant, only, in, &seed);
    op_ready(&b);
    for (int i = 0; i < c->n_in; i++) op_write(&b, in[i], e->in[i]);
    op_write(&b, seed, e->seed);
    op_run(&b);
    op_run(&b);
    found.y = op_read(&b, y);
    for (int i = 0; i < c->n_in; i++)
        if (has_grad(c, i) && variant != FORWARD && (only < 0 || only == i))
            found.grad[i] = read_grad(&b, c, i, variant);
    op_end(&b);
    return found;
}

static void free_found(found_t *f) {
    if (f->y) test_free(f->y);
    for (int i = 0; i < OP_MAX_IN; i++)
        if (f->grad[i]) test_free(f->grad[i]);
}

/* What one rounding of the type may change: 2^-9, 2^-12. */
static double unit(const expected_t *e) {
    return e->type == TR_BF16 ? 0x1p-9 : 0x1p-12;
}

/* A few roundings; more of 1 - y^2 and the like where y is near 1. */
static double grad_tolerance(const expected_t *e, int input) {
    const op_case_t *c = e->c;
    const bool is_half = e->type != TR_F32;
    if (is_half && c->rounds_inside) return (e->type == TR_BF16 ? 64 : 128) * unit(e);
    if (is_half && c->in[input].half) return 8 * unit(e);
    return c->grad_tolerance > 0 ? c->grad_tolerance : 3e-5;
}

static void compare(const char *device, const expected_t *e, const found_t *f, int only) {
    const op_case_t *c = e->c;
    char what[200];
    double tolerance = e->type != TR_F32 ? 4 * unit(e) : c->tolerance > 0 ? c->tolerance : 1e-5;
    const char *type = tr_dtype_name(e->type);
    snprintf(what, sizeof what, "%s, %s, on %s, result", c->name, type, device);
    op_assert_close(what, f->y, e->y, e->out_elems, tolerance);
    for (int i = 0; i < c->n_in; i++) {
        if (!f->grad[i]) continue;
        snprintf(what, sizeof what, "%s, %s, on %s, gradient of %s%s", c->name, type, device,
                 c->in[i].name, only < 0 ? "" : " alone");
        op_assert_close(what, f->grad[i], e->grad[i], in_elems(c, i), grad_tolerance(e, i));
    }
}

/* Equal but for the sign of 0, which an addition to 0 loses. */
static bool equal(const float *a, const float *b, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!(a[i] == b[i])) return false;
    return true;
}

static bool near(const float *a, const float *b, int64_t count) {
    float largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(a[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-6f * largest)) return false;
    return true;
}

static void same_values(const char *device, const op_case_t *c, const found_t *a, const found_t *b,
                        variant_t variant) {
    if (!equal(a->y, b->y, tr_shape_elems(&c->out)))
        fail_msg("%s on %s: %s differs from direct", c->name, device, variant_names[variant]);
    for (int i = 0; i < c->n_in; i++)
        if (a->grad[i] && b->grad[i] &&
            !(variant == ACCUMULATED && c->adds_inside
                  ? near(a->grad[i], b->grad[i], in_elems(c, i))
                  : equal(a->grad[i], b->grad[i], in_elems(c, i))))
            fail_msg("%s on %s: gradient of %s, %s, differs from direct", c->name, device,
                     c->in[i].name, variant_names[variant]);
}

static void check_on(const char *device, const expected_t *e) {
    const op_case_t *c = e->c;
    int grads = 0;
    found_t direct = run_variant(device, e, DIRECT, -1);
    compare(device, e, &direct, -1);
    if (e->type == TR_F16) { /* to the planner it is bf16 */
        free_found(&direct);
        return;
    }
    for (variant_t v = CHAINED; v < (c->mode == TR_TRAIN ? VARIANTS : FORWARD); v++) {
        found_t found = run_variant(device, e, v, -1);
        same_values(device, c, &direct, &found, v);
        free_found(&found);
    }
    free_found(&direct);
    for (int i = 0; i < c->n_in; i++) grads += has_grad(c, i);
    for (int i = 0; grads > 1 && i < c->n_in; i++) {
        if (!has_grad(c, i)) continue;
        found_t found = run_variant(device, e, DIRECT, i);
        compare(device, e, &found, i);
        free_found(&found);
    }
}

static bool has_kernel(const char *name, tr_kernel_id_t kernel) {
    tr_device_t *device = op_open(name);
    const bool has = tr_device_has(device, kernel);
    tr_device_close(&device);
    return has;
}

static void check_type(const op_case_t *c, tr_dtype_t type) {
    op_devices_t devices = op_devices();
    int64_t live = tr_mem_stats().live;
    expected_t e = expect(c, type);
    assert_true(devices.count > 0);
    for (int i = 0; i < devices.count; i++)
        if (has_kernel(devices.name[i], c->needs)) check_on(devices.name[i], &e);
    forget(&e);
    assert_int_equal(tr_mem_stats().live, live);
}

void op_check(const op_case_t *c) {
    bool has_half = false;
    for (int i = 0; i < c->n_in; i++) has_half |= c->in[i].half;
    check_type(c, TR_F32);
    if (has_half) check_type(c, TR_BF16);
    if (has_half) check_type(c, TR_F16);
}
