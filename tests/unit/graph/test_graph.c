/* The graph core: lifetimes and places, gradients of shared parameters, recompute, accumulation,
 * buckets, initial values. */
#include "../../support/names.h"
#include "graph/program.h"
#include "base/mem.h"
#include "trainer/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "../../support/ok.h"

enum { B = 6, F = 10, H = 12, K = 4 };

/* A small network: x -> linear -> gelu -> linear (the same weight twice where `tied`) -> mse. */
typedef struct {
    tr_device_t *device;
    tr_graph_t *g;
    tr_tensor_t x, y, weight, loss, w1;
    int program;
    bool accumulate, recompute, tied;
} net_t;

static const tr_param_spec_t weight_spec = {{TR_INIT_NORMAL, 0.3}, true, true, 1};
static const tr_param_spec_t bias_spec = {{TR_INIT_CONST, 0.1}, true, false, 1};

static void layer(net_t *n, const char *name, tr_tensor_t x, int64_t in, int64_t out, tr_act_t act,
                  tr_tensor_t *y) {
    tr_tensor_t w, b;
    tr_scope_push(n->g, name);
    OK(tr_param(n->g, "weight", &TR_SHAPE(out, in), &weight_spec, &w));
    OK(tr_param(n->g, "bias", &TR_SHAPE(out), &bias_spec, &b));
    OK(tr_linear(n->g, x, w, b, TR_ACT_NONE, y));
    if (act != TR_ACT_NONE) OK(tr_activation(n->g, *y, act, y));
    tr_scope_pop(n->g);
}

static void forward(net_t *n) {
    tr_tensor_t h, h2, h3, out;
    OK(tr_input(n->g, "x", TR_F32, &TR_SHAPE(B, F), &n->x));
    OK(tr_input(n->g, "y", TR_F32, &TR_SHAPE(B, K), &n->y));
    OK(tr_input(n->g, "weight", TR_F32, &TR_SHAPE(B), &n->weight));
    layer(n, "a", n->x, F, H, TR_ACT_GELU, &h);
    if (n->recompute) tr_recompute_begin(n->g);
    layer(n, "b", h, H, H, TR_ACT_TANH, &h2);
    layer(n, n->tied ? "b" : "c", h2, H, H, TR_ACT_GELU, &h3);
    if (n->recompute) tr_recompute_end(n->g);
    OK(tr_add(n->g, h3, h, TR_ACT_NONE, &h3));
    layer(n, "d", h3, H, K, TR_ACT_NONE, &out);
    OK(tr_mse(n->g, out, n->y, n->weight, &n->loss));
    OK(tr_keep(n->g, n->loss));
}

static void add_program(net_t *n, const char *name, int *out) {
    tr_tensor_t seed;
    OK(tr_program_begin(n->g, name, TR_TRAIN, out));
    forward(n);
    OK(tr_const(n->g, "seed", &TR_SHAPE(B), 0.5, &seed));
    OK(tr_backward(n->g, n->loss, seed, n->accumulate));
    OK(tr_program_end(n->g));
}

static void fill_inputs(net_t *n) {
    float x[B * F], y[B * K], w[B];
    for (int i = 0; i < B * F; i++) x[i] = sinf((float)i);
    for (int i = 0; i < B * K; i++) y[i] = cosf((float)i * 0.7f);
    for (int i = 0; i < B; i++) w[i] = i == B - 1 ? 0 : 1;
    OK(tr_tensor_write(n->g, n->x, x));
    OK(tr_tensor_write(n->g, n->y, y));
    OK(tr_tensor_write(n->g, n->weight, w));
}

static void start(net_t *n, const char *device) {
    OK(tr_device_open(device, &(tr_device_params_t){.threads = 1, .seed = 7}, &n->device));
    OK(tr_graph_create(n->device, &n->g));
}

static void ready(net_t *n) {
    OK(tr_graph_plan(n->g, 0));
    OK(tr_graph_allocate(n->g));
    OK(tr_graph_init_params(n->g, 11));
    fill_inputs(n);
}

static void tear_down(net_t *n) {
    tr_graph_destroy(&n->g);
    tr_device_close(&n->device);
}

/* Gradients of a net built as the flags say, by the parameters' names; owned by the caller. */
static float *gradient(const char *device, bool accumulate, bool recompute, bool tied, int runs,
                       const char *name, int64_t *count) {
    net_t n = {.accumulate = accumulate, .recompute = recompute, .tied = tied};
    start(&n, device);
    add_program(&n, "last", &n.program);
    ready(&n);
    for (int i = 0; i < runs; i++) OK(tr_program_run(n.g, n.program, NULL));
    const tr_tensor_t grad = tr_graph_find(n.g, name);
    assert_false(tr_is_none(grad));
    *count = tr_shape_elems(tr_shape_of(n.g, grad));
    float *values = malloc((size_t)*count * sizeof *values);
    OK(tr_tensor_read(n.g, grad, values));
    tear_down(&n);
    return values;
}

static double loss_with(net_t *n, tr_tensor_t param, float *values, int64_t i, float delta) {
    float loss[B];
    double sum = 0;
    const float kept = values[i];
    values[i] = kept + delta;
    OK(tr_tensor_write(n->g, param, values));
    values[i] = kept;
    OK(tr_program_run(n->g, n->program, NULL));
    OK(tr_tensor_read(n->g, n->loss, loss));
    for (int k = 0; k < B; k++) sum += 0.5 * (double)loss[k];
    return sum;
}

static void check_finite_differences(const char *device, bool tied, const char *name) {
    char grad_name[64];
    int64_t count;
    snprintf(grad_name, sizeof grad_name, "%s.grad", name);
    float *grad = gradient(device, false, false, tied, 1, grad_name, &count);
    net_t n = {.tied = tied};
    start(&n, device);
    add_program(&n, "last", &n.program);
    ready(&n);
    const tr_tensor_t param = tr_graph_find(n.g, name);
    float *values = malloc((size_t)count * sizeof *values);
    OK(tr_tensor_read(n.g, param, values));
    for (int64_t i = 0; i < count; i += 3) {
        const float h = 1e-2f;
        const double numeric =
            (loss_with(&n, param, values, i, h) - loss_with(&n, param, values, i, -h)) /
            (2 * (double)h);
        if (fabs(numeric - (double)grad[i]) > 2e-3 + 2e-3 * fabs(numeric))
            fail_msg("%s[%lld]: gradient %g, finite difference %g", name, (long long)i,
                     (double)grad[i], numeric);
    }
    free(values);
    free(grad);
    tear_down(&n);
}

static const char *const devices[] = {"cpu", "strict"};

static void gradients_match_finite_differences(void **state) {
    for (int d = 0; d < 2; d++)
        for (int tied = 0; tied < 2; tied++) {
            check_finite_differences(devices[d], tied, "a.weight");
            check_finite_differences(devices[d], tied, "b.weight");
            check_finite_differences(devices[d], tied, "d.bias");
        }
}

static void assert_same(const char *what, bool accumulate, bool recompute, int runs, float factor,
                        float tolerance, const char *device) {
    static const char *const names[] = {"a.weight.grad", "b.weight.grad", "b.bias.grad",
                                        "d.weight.grad"};
    for (int i = 0; i < 4; i++) {
        int64_t n, m;
        float *plain = gradient("cpu", false, false, true, 1, names[i], &n);
        float *other = gradient(device, accumulate, recompute, true, runs, names[i], &m);
        assert_int_equal(n, m);
        for (int64_t k = 0; k < n; k++)
            if (!(fabsf(plain[k] * factor - other[k]) <= tolerance))
                fail_msg("%s on %s: %s[%lld] %.9g, expected %.9g", what, device, names[i],
                         (long long)k, (double)other[k], (double)(plain[k] * factor));
        free(plain);
        free(other);
    }
}

static void recompute_is_stored_bit_for_bit(void **state) {
    assert_same("recompute", false, true, 1, 1, 0, "cpu");
    assert_same("recompute", false, true, 1, 1, 0, "strict");
}

static double flops_without_recomputation(bool recompute, int *out_recomputed) {
    net_t n = {.recompute = recompute};
    double flops = 0;
    start(&n, "cpu");
    add_program(&n, "last", &n.program);
    *out_recomputed = 0;
    for (int i = 0; i < tr_program_op_count(n.g, n.program); i++) {
        const tr_op_t *op = tr_program_op(n.g, n.program, i);
        *out_recomputed += op->recomputed;
        if (op->kind == TR_OP_KERNEL && !op->recomputed) flops += tr_op_flops(n.g, op);
    }
    tear_down(&n);
    return flops;
}

static void recomputed_ops_are_marked(void **state) {
    int repeated, none;
    const double flops = flops_without_recomputation(true, &repeated);
    assert_true(flops == flops_without_recomputation(false, &none));
    assert_true(repeated >= 4); /* two products and two activations */
    assert_int_equal(none, 0);
}

/* The CPU time that it takes to build a network of that many layers */
static double build_sec(int layers) {
    net_t n = {0};
    char name[32];
    tr_tensor_t h, seed;
    const clock_t begin = clock();
    start(&n, "cpu");
    OK(tr_program_begin(n.g, "train", TR_TRAIN, &n.program));
    OK(tr_input(n.g, "x", TR_F32, &TR_SHAPE(B, K), &n.x));
    OK(tr_input(n.g, "weight", TR_F32, &TR_SHAPE(B), &n.weight));
    h = n.x;
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        tr_recompute_begin(n.g);
        layer(&n, name, h, K, K, TR_ACT_TANH, &h);
        tr_recompute_end(n.g);
    }
    OK(tr_mse(n.g, h, n.x, n.weight, &n.loss));
    OK(tr_const(n.g, "seed", &TR_SHAPE(B), 0.5, &seed));
    OK(tr_backward(n.g, n.loss, seed, false));
    OK(tr_program_end(n.g));
    snprintf(name, sizeof name, "layer%d.bias.grad", layers - 1);
    assert_false(tr_is_none(tr_graph_find(n.g, name)));
    snprintf(name, sizeof name, "layer%d.bias", layers);
    assert_true(tr_is_none(tr_graph_find(n.g, name)));
    tear_down(&n);
    return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

/* Before names and uses of tensors were indexed, 20000 took minutes, 16 times as long as 5000. */
static void time_to_build_is_linear_in_depth(void **state) {
    const double sec = build_sec(5000);
    assert_true(build_sec(20000) < 10 * sec + 1);
}

static void accumulation_adds_and_overwriting_does_not(void **state) {
#if defined(__aarch64__)
    const float rounding = 1e-6f; /* oneDNN's product adds the terms one by one to what is there */
#else
    const float rounding = 0;
#endif
    assert_same("accumulate", true, false, 2, 2, rounding, "cpu");
    assert_same("overwrite", false, false, 2, 1, 0, "cpu");
    assert_same("overwrite", false, false, 3, 1, 0, "strict");
}

/* What is copied out of a segment into a state is not activation: there is nothing to recompute. */
static void a_copy_into_a_state_is_not_recomputed(void **state) {
    net_t n = {0};
    tr_tensor_t y, kept, seed;
    start(&n, "strict");
    OK(tr_program_begin(n.g, "last", TR_TRAIN, &n.program));
    OK(tr_input(n.g, "x", TR_F32, &TR_SHAPE(B, F), &n.x));
    OK(tr_model_state(n.g, "kept", &TR_SHAPE(B, H), 0, &kept));
    tr_recompute_begin(n.g);
    layer(&n, "a", n.x, F, H, TR_ACT_TANH, &y);
    OK(tr_copy(n.g, y, kept));
    layer(&n, "b", y, H, H, TR_ACT_TANH, &y);
    tr_recompute_end(n.g);
    OK(tr_const(n.g, "seed", &TR_SHAPE(B, H), 0.5, &seed));
    OK(tr_backward(n.g, y, seed, false));
    int copies = 0;
    for (int i = 0; i < tr_program_op_count(n.g, n.program); i++)
        copies += strcmp(tr_program_op(n.g, n.program, i)->row->name, "copy") == 0;
    assert_int_equal(copies, 1);
    tear_down(&n);
}

/* An embedding program's op, a + b, whose gradients are the halves of one tensor. */
static tr_status_t halves_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_shape_t shape = *tr_shape_of(g, op->in[0]);
    return tr_op_output(g, op, 0, TR_F32, &shape);
}

static tr_status_t halves_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                               const bool *need, tr_tensor_t *din) {
    const tr_matmul_attr_t outer = {.alpha = 1};
    tr_tensor_t ones, row, both;
    TR_TRY(tr_const(g, "ones", &TR_SHAPE(2, 1), 1, &ones));
    TR_TRY(tr_reshape(g, dout[0], &TR_SHAPE(1, H), &row));
    TR_TRY(tr_matmul(g, ones, row, &outer, &both));
    for (int i = 0; i < 2; i++)
        if (need[i]) TR_TRY(tr_slice(g, both, i * H, H, &din[i]));
    return TR_OK;
}

static void a_gradient_that_is_part_of_a_tensor_is_copied(void **state) {
    static const tr_op_row_t row = {
        .name = "halves", .kernel = TR_K_ADD, .shape = halves_shape, .grad = halves_grad};
    static const char *const names[] = {"a", "b"};
    tr_param_spec_t frozen = bias_spec;
    frozen.trainable = false;
    for (int only = 0; only < 2; only++) {
        net_t n = {0};
        tr_tensor_t in[2], y, seed;
        float values[H], found[H];
        start(&n, "strict");
        OK(tr_program_begin(n.g, "last", TR_TRAIN, &n.program));
        for (int i = 0; i < 2; i++)
            OK(tr_param(n.g, names[i], &TR_SHAPE(H), i == only ? &bias_spec : &frozen, &in[i]));
        OK(tr_op_append(n.g, &row, in, 2, &(tr_add_attr_t){0}, sizeof(tr_add_attr_t), NULL, &y, 1));
        OK(tr_input(n.g, "seed", TR_F32, &TR_SHAPE(H), &seed));
        OK(tr_backward(n.g, y, seed, false));
        OK(tr_program_end(n.g));
        OK(tr_graph_plan(n.g, 0));
        OK(tr_graph_allocate(n.g));
        OK(tr_graph_init_params(n.g, 11));
        for (int i = 0; i < H; i++) values[i] = (float)i + 1;
        OK(tr_tensor_write(n.g, seed, values));
        OK(tr_program_run(n.g, n.program, NULL));
        OK(tr_tensor_read(n.g, tr_graph_find(n.g, only ? "b.grad" : "a.grad"), found));
        assert_memory_equal(found, values, sizeof values);
        tear_down(&n);
    }
}

/* -- planner ----------------------------------------------------------------------------------- */

static bool alive_together(const tr_tensor_info_t *a, const tr_tensor_info_t *b) {
    return a->program == b->program && a->first_op <= b->last_op && b->first_op <= a->last_op;
}

static void nothing_alive_overlaps(void **state) {
    net_t n = {.recompute = true};
    int overlaps_allowed = 0;
    start(&n, "cpu");
    add_program(&n, "last", &n.program);
    ready(&n);
    for (int32_t i = 1; i <= tr_graph_tensor_count(n.g); i++)
        for (int32_t k = i + 1; k <= tr_graph_tensor_count(n.g); k++) {
            const tr_tensor_info_t *a = tr_tensor_info(n.g, (tr_tensor_t){i}),
                                   *b = tr_tensor_info(n.g, (tr_tensor_t){k});
            if (a->role != TR_ROLE_ACTIVATION || b->role != TR_ROLE_ACTIVATION ||
                !alive_together(a, b))
                continue;
            if (a->offset_bytes + a->bytes <= b->offset_bytes ||
                b->offset_bytes + b->bytes <= a->offset_bytes)
                continue;
            /* only an output in its dying input's place */
            if (a->last_op == b->first_op || b->last_op == a->first_op ||
                a->offset_bytes == b->offset_bytes)
                overlaps_allowed++;
            else
                fail_msg("tensors %d [%d, %d] and %d [%d, %d] overlap", i, a->first_op, a->last_op,
                         k, b->first_op, b->last_op);
        }
    const tr_memory_plan_t m = tr_graph_memory(n.g);
    assert_true(m.arena < m.arena_sum);
    tear_down(&n);
}

static void a_plan_that_does_not_fit_says_what_takes_how_much(void **state) {
    net_t n = {0};
    start(&n, "cpu");
    add_program(&n, "last", &n.program);
    assert_int_equal(tr_graph_plan(n.g, 4096), TR_ERR_MEMORY);
    assert_error_names("activations & data.micro_batch");
    tear_down(&n);
}

/* What planning a wide convolution within `limit` comes to: its bytes in *total. */
static tr_status_t plan_wide(const char *device, bool direct, size_t limit, size_t *total) {
    const tr_conv_attr_t attr = {
        .spatial = 2, .groups = 1, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}};
    net_t n = {0};
    tr_tensor_t w, y;
    OK(tr_device_open(device, &(tr_device_params_t){.threads = 1, .direct = direct}, &n.device));
    OK(tr_graph_create(n.device, &n.g));
    OK(tr_program_begin(n.g, "eval", TR_EVAL, &n.program));
    OK(tr_input(n.g, "x", TR_F32, &TR_SHAPE(4, 14, 14, 128), &n.x));
    OK(tr_param(n.g, "w", &TR_SHAPE(128, 3, 3, 128), &weight_spec, &w));
    OK(tr_conv(n.g, n.x, w, TR_NONE, &attr, &y));
    OK(tr_program_end(n.g));
    const tr_status_t status = tr_graph_plan(n.g, limit);
    *total = tr_graph_memory(n.g).total;
    assert_true(n.device->winograd == !direct);
    tear_down(&n);
    return status;
}

/* Its transformed filters take four times the memory of the filters. */
static void winograd_is_named_where_direct_sums_would_fit(void **state) {
    for (int d = 0; d < 2; d++) {
        size_t with, without, total;
        OK(plan_wide(devices[d], false, 0, &with));
        OK(plan_wide(devices[d], true, 0, &without));
        assert_true(without < with);
        assert_int_equal(plan_wide(devices[d], false, without, &total), TR_ERR_MEMORY);
        assert_error_names("winograd");
        assert_int_equal(total, with);
        assert_int_equal(plan_wide(devices[d], false, without - 1, &total), TR_ERR_MEMORY);
        assert_null(strstr(tr_error_last()->message, "winograd"));
        OK(plan_wide(devices[d], false, with, &total));
    }
}

static void steps_allocate_nothing(void **state) {
    net_t n = {0};
    start(&n, "cpu");
    add_program(&n, "last", &n.program);
    ready(&n);
    OK(tr_program_run(n.g, n.program, NULL));
    const int64_t calls = tr_mem_stats().calls;
    for (int i = 0; i < 20; i++) OK(tr_program_run(n.g, n.program, NULL));
    assert_int_equal(tr_mem_stats().calls, calls);
    tear_down(&n);
    assert_int_equal(tr_mem_stats().live, 0);
}

/* -- blocks and buckets ------------------------------------------------------------------------ */

static void buckets_cover_the_block_once_each_behind_its_last_writer(void **state) {
    for (int overlap = 0; overlap < 2; overlap++) {
        net_t n = {0};
        tr_tensor_t extra;
        int64_t end = 0;
        int count = 0, first_at = -1;
        start(&n, "cpu");
        tr_graph_shard(n.g, &(tr_sharding_t){.first_bytes = 64, .bytes = 600, .ranks = 1});
        add_program(&n, "last", &n.program);
        OK(tr_reduced(n.g, "extra", 3, &extra));
        OK(tr_program_add_reductions(n.g, n.program, &(tr_reductions_t){.overlap = overlap}));
        OK(tr_graph_plan(n.g, 0));
        const int ops = tr_program_op_count(n.g, n.program);
        for (int i = 0; i < ops; i++) {
            const tr_op_t *op = tr_program_op(n.g, n.program, i);
            if (op->kind != TR_OP_COLLECTIVE) continue;
            if (first_at < 0) first_at = i;
            assert_int_equal(op->collective.first, end);
            assert_int_equal(op->bucket, count++);
            end += op->collective.count;
            for (int k = i + 1; k < ops; k++) { /* nobody writes into it afterwards */
                const tr_op_t *later = tr_program_op(n.g, n.program, k);
                for (int o = 0; later->kind == TR_OP_KERNEL && o < later->n_out; o++) {
                    const tr_tensor_info_t *info = tr_tensor_info(n.g, later->out[o]);
                    const tr_tensor_info_t *base =
                        info->role == TR_ROLE_VIEW ? tr_tensor_info(n.g, info->base) : info;
                    if (base->role == TR_ROLE_REDUCED) assert_true(base->block_elems >= end);
                }
            }
        }
        assert_int_equal(end, tr_graph_layout(n.g).reduced_elems);
        assert_true(count > 2);
        assert_int_equal(tr_program_op(n.g, n.program, ops - 1)->kind, TR_OP_WAIT);
        if (overlap)
            assert_true(first_at < ops - 1 - count);
        else
            assert_int_equal(first_at, ops - 1 - count);
        tear_down(&n);
    }
}

/* Each element belongs to the part of one rank, or to all; a rank's parts are one behind the other. */
static void parts_of_ranks_tile_the_parameters(void **state) {
    for (int ranks = 1; ranks <= 5; ranks++) {
        net_t n = {0};
        start(&n, "cpu");
        tr_graph_shard(n.g, &(tr_sharding_t){.first_bytes = 1, .bytes = 20000, .ranks = ranks});
        add_program(&n, "last", &n.program);
        OK(tr_program_add_reductions(n.g, n.program, &(tr_reductions_t){.overlap = true}));
        const tr_layout_t layout = tr_graph_layout(n.g);
        const int64_t weights = layout.sharded_elems;
        unsigned char *owners = calloc((size_t)layout.trainable_elems, 1);
        assert_int_equal(weights % (ranks * TR_SQUARES_BLOCK), 0);
        assert_true(weights > 0 && layout.trainable_elems > weights);
        for (int r = 0; r < ranks; r++) {
            int64_t place = 0;
            for (tr_part_t part = {0}; tr_next_part(n.g, r, &part);) {
                assert_int_equal(part.place, place);
                if (ranks > 1 && part.first < weights)
                    assert_int_equal(part.count * ranks, part.end - part.bucket);
                for (int64_t i = 0; i < part.count; i++) owners[part.first + i]++;
                place += part.count;
            }
            assert_int_equal(place, weights / ranks + layout.trainable_elems - weights);
        }
        for (int64_t i = 0; i < layout.trainable_elems; i++)
            assert_int_equal(owners[i], i < weights ? 1 : ranks);
        for (int i = 0; i < tr_program_op_count(n.g, n.program); i++) {
            const tr_op_t *op = tr_program_op(n.g, n.program, i);
            if (op->kind == TR_OP_COLLECTIVE)
                assert_int_equal(op->collective.kind, ranks > 1 && op->collective.first < weights
                                                          ? TR_REDUCE_SCATTER
                                                          : TR_ALLREDUCE);
        }
        free(owners);
        tear_down(&n);
    }
}

/* Checks that each part of `rank` has twice the gradients of `whole`, from two programs without other
 * ranks, of which one adds to the other's, and that buckets have used `windows` windows in turns. */
static void check_parts(const net_t *whole, int ranks, int rank, bool overlap, int windows) {
    static const char *const names[] = {"a.weight", "b.weight", "c.weight", "d.weight", "d.bias"};
    enum { NAMES = sizeof names / sizeof *names, PARTS = 8 };
    net_t n = {.tied = whole->tied};
    tr_part_t part[PARTS] = {{0}};
    tr_tensor_t gradient[PARTS];
    int first;
    int64_t parts = 0, found = 0, expected = rank == 0 ? 0 : K;
    start(&n, "cpu");
    tr_graph_shard(
        n.g, &(tr_sharding_t){
                 .first_bytes = 1, .bytes = 1, .ranks = ranks, .rank = rank, .gradients = true});
    add_program(&n, "first", &first);
    n.accumulate = true;
    add_program(&n, "last", &n.program);
    OK(tr_program_add_reductions(n.g, n.program, &(tr_reductions_t){overlap, .adds = true}));
    OK(tr_program_add_reductions(n.g, first, &(tr_reductions_t){overlap, .continues = true}));
    while (tr_next_part(n.g, rank, &part[parts])) {
        tr_graph_use_part(n.g, &part[parts]);
        OK(tr_gradient_part(n.g, &gradient[parts]));
        parts++;
        part[parts] = part[parts - 1];
    }
    const tr_layout_t layout = tr_graph_layout(n.g);
    assert_int_equal(tr_reduced_range(n.g, layout.sharded_elems - 1, 1, &gradient[parts]),
                     ranks > 1 ? TR_ERR_CONFIG : TR_OK);
    OK(tr_reduced_range(n.g, layout.sharded_elems, 1, &gradient[parts]));
    ready(&n);
    const size_t unsharded = (size_t)(layout.reduced_elems - layout.sharded_elems),
                 bucket = (size_t)ranks * TR_SQUARES_BLOCK;
    assert_in_range(tr_graph_memory(n.g).reduced / sizeof(float) - windows * bucket,
                    (size_t)layout.sharded_elems / ranks + unsharded,
                    (size_t)layout.sharded_elems / ranks + unsharded + 64);
    for (int step = 0; step < 2; step++) {
        OK(tr_program_run(n.g, first, NULL));
        OK(tr_program_run(n.g, n.program, NULL));
    }
    for (int k = 0; k < NAMES; k++) {
        float all[H * H];
        const tr_tensor_t w = tr_graph_find(n.g, names[k]),
                          same = tr_graph_find(whole->g, names[k]);
        if (tr_is_none(w)) continue; /* c, where b is used twice */
        const int64_t at = tr_tensor_info(n.g, w)->block_elems,
                      count = tr_shape_elems(tr_shape_of(n.g, w));
        OK(tr_tensor_read(whole->g, tr_gradient(whole->g, same), all));
        if (rank == 0) expected += count; /* a matrix is smaller than a block */
        for (int i = 0; i < parts; i++) {
            float *values = calloc((size_t)part[i].count, sizeof *values);
            OK(tr_tensor_read(n.g, gradient[i], values));
            for (int64_t e = 0; e < count; e++)
                if (at + e >= part[i].first && at + e < part[i].first + part[i].count) {
                    assert_true(values[at + e - part[i].first] == 2 * all[e]);
                    found++;
                }
            free(values);
        }
    }
    assert_int_equal(found, expected);
    tear_down(&n);
}

/* Gradients that are sharded are complete one bucket after the other, in memory that they share. */
static void sharded_gradients_use_windows_in_turns(void **state) {
    for (int tied = 0; tied < 2; tied++) {
        net_t whole = {.tied = tied};
        start(&whole, "cpu");
        add_program(&whole, "last", &whole.program);
        ready(&whole);
        OK(tr_program_run(whole.g, whole.program, NULL));
        for (int ranks = 2; ranks <= 3; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                check_parts(&whole, ranks, rank, true, 2);
                check_parts(&whole, ranks, rank, false, 1);
            }
        tear_down(&whole);
    }
}

/* In half precision a rank has only its part of a matrix: what reads it in f32 is refused. */
static void a_sharded_weight_is_not_read_in_f32(void **state) {
    for (int is_half = 0; is_half < 2; is_half++) {
        net_t n = {0};
        tr_tensor_t copy;
        start(&n, "cpu");
        tr_graph_shard(n.g, &(tr_sharding_t){.first_bytes = 1, .bytes = 1, .ranks = 2});
        add_program(&n, "last", &n.program);
        if (is_half) OK(tr_param_copy(n.g, tr_graph_find(n.g, "a.bias"), TR_BF16, &copy));
        const tr_status_t status = tr_graph_plan(n.g, 0);
        assert_int_equal(status, is_half ? TR_ERR_CONFIG : TR_OK);
        if (is_half) assert_error_names("parallel.zero & a.weight");
        tear_down(&n);
    }
}

static void gradients_lie_in_the_order_of_backward(void **state) {
    net_t n = {0};
    start(&n, "cpu");
    add_program(&n, "last", &n.program);
    OK(tr_graph_plan(n.g, 0));
    const char *const order[] = {"d.weight", "c.weight", "b.weight", "a.weight",
                                 "d.bias",   "c.bias",   "b.bias",   "a.bias"};
    for (int i = 0; i + 1 < 8; i++) {
        const tr_tensor_info_t *first = tr_tensor_info(n.g, tr_graph_find(n.g, order[i]));
        const int64_t at = first->block_elems;
        assert_true(at < tr_tensor_info(n.g, tr_graph_find(n.g, order[i + 1]))->block_elems);
    }
    tr_param_group_t *groups;
    size_t count;
    int64_t end = 0;
    OK(tr_graph_param_groups(n.g, &groups, &count));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(groups[i].first, end);
        end += groups[i].count;
    }
    assert_int_equal(end, tr_graph_layout(n.g).trainable_elems);
    tr_free(&groups);
    tear_down(&n);
}

static void initial_values_depend_on_name_and_seed_only(void **state) {
    float first[H * H], second[H * H];
    for (int tied = 0; tied < 2; tied++) {
        net_t n = {.tied = tied};
        start(&n, devices[tied]);
        add_program(&n, "last", &n.program);
        ready(&n);
        OK(tr_tensor_read(n.g, tr_graph_find(n.g, "b.weight"), tied ? second : first));
        tear_down(&n);
    }
    assert_memory_equal(first, second, sizeof first);
}

static void initial_values_do_not_depend_on_threads(void **state) {
    enum { SIZE = 70001 };
    const tr_param_spec_t specs[] = {{.init = {TR_INIT_NORMAL, 0.02}},
                                     {.init = {TR_INIT_UNIFORM, 0.1}}};
    float *values[2];
    for (int i = 0; i < 4; i++) {
        net_t n = {0};
        tr_tensor_t w;
        OK(tr_device_open("cpu", &(tr_device_params_t){.threads = i % 2 ? 3 : 1}, &n.device));
        OK(tr_graph_create(n.device, &n.g));
        OK(tr_param(n.g, "w", &TR_SHAPE(SIZE), &specs[i / 2], &w));
        OK(tr_graph_plan(n.g, 0));
        OK(tr_graph_allocate(n.g));
        OK(tr_graph_init_params(n.g, 11));
        values[i % 2] = test_malloc(SIZE * sizeof(float));
        OK(tr_tensor_read(n.g, w, values[i % 2]));
        tear_down(&n);
        if (i % 2 == 0) continue;
        assert_true(values[0][SIZE - 1] != 0 && values[0][SIZE - 1] != values[0][0]);
        assert_memory_equal(values[0], values[1], SIZE * sizeof(float));
        test_free(values[0]);
        test_free(values[1]);
    }
}

static void mistakes_are_refused(void **state) {
    net_t n = {0};
    tr_tensor_t t;
    start(&n, "cpu");
    add_program(&n, "last", &n.program);
    /* no program is open */
    assert_int_equal(tr_activation(n.g, n.x, TR_ACT_RELU, &t), TR_ERR_INTERNAL);
    OK(tr_program_begin(n.g, "other", TR_PLAIN, &n.program));
    /* another program's activation */
    assert_int_equal(tr_activation(n.g, n.loss, TR_ACT_RELU, &t), TR_ERR_INTERNAL);
    tr_scope_push(n.g, "b");
    assert_int_equal(tr_param(n.g, "weight", &TR_SHAPE(3, 3), &weight_spec, &t), TR_ERR_CONFIG);
    assert_error_names("b.weight");
    /* its bytes are more than a size_t holds */
    assert_int_equal(tr_param(n.g, "huge", &TR_SHAPE(1 << 21, 1 << 21, 1 << 20), &weight_spec, &t),
                     TR_ERR_MEMORY);
    assert_error_names("b.huge");
    tear_down(&n);
}

/* Else a parameter is "weight" of no layer, and declared twice. */
static void a_scope_without_memory_is_an_error(void **state) {
    (void)state;
    for (int64_t nth = 1; nth <= 2; nth++) { /* the list of lengths, the text */
        net_t n = {0};
        tr_tensor_t w;
        OK(tr_device_open("cpu", &(tr_device_params_t){.threads = 1}, &n.device));
        OK(tr_graph_create(n.device, &n.g));
        tr_mem_fail_at(nth);
        tr_scope_push(n.g, "linear1");
        tr_mem_fail_at(0);
        assert_int_equal(tr_param(n.g, "weight", &TR_SHAPE(2, 2), &weight_spec, &w), TR_ERR_MEMORY);
        assert_int_equal(tr_error_last()->code, TR_ERR_MEMORY);
        tr_graph_destroy(&n.g);
        tr_device_close(&n.device);
    }
}

/* -- optional kernels -------------------------------------------------------------------------- */

static tr_status_t twice_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_shape_t shape = *tr_shape_of(g, op->in[0]);
    return tr_op_output(g, op, 0, TR_F32, &shape);
}
static tr_status_t twice_compose(tr_graph_t *g, const tr_op_t *op, const bool *want,
                                 tr_tensor_t *out) {
    const tr_scale_attr_t *attr = op->attr;
    assert_true(want[0] && attr->factor == 2);
    return tr_add(g, op->in[0], op->in[0], TR_ACT_NONE, &out[0]);
}
static const tr_op_row_t twice_row = {
    .name = "twice", .kernel = TR_K_SCALE, .shape = twice_shape, .compose = twice_compose};

/* Doubles three numbers on a device with the kernel SCALE or without it; *out_kernel computed them.
 */
static void twice(bool has_kernel, float *values, tr_kernel_id_t *out_kernel) {
    tr_kernel_t kernels[TR_K_COUNT];
    tr_device_ops_t ops;
    tr_device_t *device;
    tr_graph_t *g;
    tr_tensor_t x, y;
    int program;
    OK(tr_device_open("cpu", &(tr_device_params_t){.threads = 1}, &device));
    const tr_device_ops_t *whole = device->ops;
    ops = *whole;
    memcpy(kernels, ops.kernels, sizeof kernels);
    if (!has_kernel) kernels[TR_K_SCALE].run = NULL;
    ops.kernels = kernels;
    device->ops = &ops;
    OK(tr_graph_create(device, &g));
    OK(tr_program_begin(g, "twice", TR_PLAIN, &program));
    OK(tr_input(g, "x", TR_F32, &TR_SHAPE(3), &x));
    OK(tr_op_append(g, &twice_row, &x, 1, &(tr_scale_attr_t){2}, sizeof(tr_scale_attr_t), NULL, &y,
                    1));
    OK(tr_keep(g, y));
    OK(tr_program_end(g));
    OK(tr_graph_plan(g, 0));
    OK(tr_graph_allocate(g));
    OK(tr_tensor_write(g, x, values));
    OK(tr_program_run(g, program, NULL));
    OK(tr_tensor_read(g, y, values));
    assert_int_equal(tr_program_op_count(g, program), 1);
    *out_kernel = tr_program_op(g, program, 0)->row->kernel;
    tr_graph_destroy(&g);
    device->ops = whole;
    tr_device_close(&device);
}

static void test_missing_kernels_are_composed(void **state) {
    float with[3] = {1, -2.5f, 3}, without[3] = {1, -2.5f, 3};
    tr_kernel_id_t kernel;
    twice(true, with, &kernel);
    assert_int_equal(kernel, TR_K_SCALE);
    twice(false, without, &kernel);
    assert_int_equal(kernel, TR_K_ADD);
    assert_memory_equal(with, without, sizeof with);
    assert_true(with[1] == -5);
}

/* Calls of equal shapes, types and attributes share a plan, in two programs and in two graphs. */
static void test_equal_calls_share_a_plan(void **state) {
    net_t n = {0}, m = {0};
    start(&n, "cpu");
    add_program(&n, "last", &n.program);
    ready(&n);
    const int64_t live = tr_mem_stats().live;
    m.device = n.device;
    OK(tr_graph_create(m.device, &m.g));
    add_program(&m, "last", &m.program);
    ready(&m);
    OK(tr_program_run(m.g, m.program, NULL));
    tr_graph_destroy(&m.g);
    assert_int_equal(tr_mem_stats().live, live); /* the second graph added none */
    tear_down(&n);
}

/* One parameter with a gradient and one without, and an input; nothing runs before it has memory. */
static void gradients_are_found_by_parameter(void **state) {
    net_t n = {0};
    tr_tensor_t a, b, y, seed;
    float got[3];
    const float x[3] = {1, -2, 3};
    tr_param_spec_t frozen = bias_spec;
    frozen.trainable = false;
    OK(tr_device_open("cpu", NULL, &n.device));
    OK(tr_graph_create(n.device, &n.g));
    OK(tr_program_begin(n.g, "train", TR_TRAIN, &n.program));
    OK(tr_input(n.g, "x", TR_F32, &TR_SHAPE(3), &n.x));
    OK(tr_param(n.g, "a", &TR_SHAPE(3), &bias_spec, &a));
    OK(tr_param(n.g, "b", &TR_SHAPE(3), &frozen, &b));
    OK(tr_add(n.g, a, b, TR_ACT_NONE, &y));
    OK(tr_add(n.g, y, n.x, TR_ACT_NONE, &y));
    OK(tr_reshape(n.g, n.x, &TR_SHAPE(3), &seed));
    assert_true(tr_is_none(tr_gradient(n.g, a)));
    OK(tr_backward(n.g, y, seed, false));
    OK(tr_program_end(n.g));
    assert_false(tr_is_none(tr_gradient(n.g, a)));
    assert_true(tr_is_none(tr_gradient(n.g, b)) && tr_is_none(tr_gradient(n.g, n.x)));
    assert_int_equal(tr_graph_run(n.g, n.program), TR_ERR_INTERNAL);
    assert_int_equal(tr_tensor_write(n.g, n.x, x), TR_ERR_INTERNAL);
    OK(tr_graph_plan(n.g, 0));
    OK(tr_graph_allocate(n.g));
    OK(tr_graph_init_params(n.g, 1));
    assert_int_equal(tr_graph_run(n.g, n.program + 9), TR_ERR_INTERNAL);
    OK(tr_tensor_write(n.g, n.x, x));
    OK(tr_graph_run(n.g, n.program));
    OK(tr_tensor_read(n.g, tr_gradient(n.g, a), got));
    assert_memory_equal(got, x, sizeof x);
    tr_graph_destroy(&n.g);
    tr_device_close(&n.device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_found_by_parameter),
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(recompute_is_stored_bit_for_bit),
        cmocka_unit_test(recomputed_ops_are_marked),
        cmocka_unit_test(time_to_build_is_linear_in_depth),
        cmocka_unit_test(accumulation_adds_and_overwriting_does_not),
        cmocka_unit_test(a_copy_into_a_state_is_not_recomputed),
        cmocka_unit_test(a_gradient_that_is_part_of_a_tensor_is_copied),
        cmocka_unit_test(nothing_alive_overlaps),
        cmocka_unit_test(a_plan_that_does_not_fit_says_what_takes_how_much),
        cmocka_unit_test(winograd_is_named_where_direct_sums_would_fit),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(buckets_cover_the_block_once_each_behind_its_last_writer),
        cmocka_unit_test(parts_of_ranks_tile_the_parameters),
        cmocka_unit_test(sharded_gradients_use_windows_in_turns),
        cmocka_unit_test(a_sharded_weight_is_not_read_in_f32),
        cmocka_unit_test(gradients_lie_in_the_order_of_backward),
        cmocka_unit_test(initial_values_depend_on_name_and_seed_only),
        cmocka_unit_test(initial_values_do_not_depend_on_threads),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(test_missing_kernels_are_composed),
        cmocka_unit_test(test_equal_calls_share_a_plan),
        cmocka_unit_test(a_scope_without_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
