/*
 * Kernels of device cuda give the same bits each time: RUNS runs on the same inputs. The engines of
 * cuDNN and cuBLASLt say that they are deterministic; this checks it. Needs a GPU, or
 * tests/hostcuda/run; without them it skips.
 *
 *     test_cuda_repeat [STEPS]      tokens of the attention, default 64; on a GPU 1024
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_test.h"

enum { RUNS = 10 };
static int64_t steps = 64;
static tr_device_t *device;
static tr_stream_t *stream;

static void fill(tr_view_t *view, uint32_t seed) {
    const size_t bytes = view_bytes(view);
    void *host = random_values(view, seed);
    must(device->ops->alloc(device, bytes, 0, &view->data));
    must(device->ops->copy(device, stream, view->data, host, bytes, TR_COPY_TO_DEVICE));
    must(device->ops->stream_sync(device, stream));
    free(host);
}

/* The outputs of one run, one after the other. Each begins as zeros, in other memory each time. */
static char *run_once(tr_kernel_id_t id, tr_kernel_call_t *call, size_t total) {
    char *host = malloc(total + 1);
    size_t at = 0;
    for (int i = 0; i < call->n_out; i++) {
        must(device->ops->alloc(device, view_bytes(&call->out[i]), 0, &call->out[i].data));
        must(device->ops->zero(device, stream, call->out[i].data, view_bytes(&call->out[i])));
    }
    must(device->ops->kernels[id].run(device, stream, call));
    for (int i = 0; i < call->n_out; i++) {
        const size_t bytes = view_bytes(&call->out[i]);
        must(device->ops->copy(device, stream, host + at, call->out[i].data, bytes,
                               TR_COPY_TO_HOST));
        must(device->ops->stream_sync(device, stream));
        device->ops->free(device, call->out[i].data);
        at += bytes;
    }
    return host;
}

static void repeat(const char *what, tr_kernel_id_t id, tr_kernel_call_t *call) {
    const tr_kernel_t *kernel = &device->ops->kernels[id];
    size_t scratch = 0, total = 0;
    char *first = NULL;
    for (int i = call->n_in; i < TR_KERNEL_MAX_IN; i++) call->in[i].shape.ndim = -1;
    for (int i = call->n_out; i < TR_KERNEL_MAX_OUT; i++) call->out[i].shape.ndim = -1;
    for (int i = 0; i < call->n_out; i++) total += view_bytes(&call->out[i]);
    must(kernel->prepare(device, call, &call->state, &scratch));
    if (scratch) must(device->ops->alloc(device, scratch, 0, &call->scratch));
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].shape.ndim >= 0) fill(&call->in[i], (uint32_t)i + 1);
    for (int r = 0; r < RUNS; r++) {
        char *out = run_once(id, call, total);
        for (size_t at = 0; first && at < total; at++)
            if (first[at] != out[at])
                fail_msg("%s: run %d differs from run 0 in byte %zu of %zu", what, r, at, total);
        if (r == 0)
            first = out;
        else
            free(out);
    }
    free(first);
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].data) device->ops->free(device, call->in[i].data);
    if (scratch) device->ops->free(device, call->scratch);
    if (call->state) kernel->release(device, call->state);
}

static tr_view_t view(tr_dtype_t dtype, tr_shape_t shape) {
    return (tr_view_t){.dtype = dtype, .shape = shape};
}

static void test_attention(void **state) {
    const int64_t samples = 2, heads = 4, width = heads * 64;
    const tr_view_t ids = view(TR_I64, TR_SHAPE(samples)),
                    step = view(TR_U8, TR_SHAPE(sizeof(tr_step_t)));
    for (int t = 0; t < 4; t++) {
        const bool drops = t >= 2;
        const tr_dtype_t type = t % 2 ? TR_F16 : TR_BF16;
        const tr_attention_attr_t attr = {.heads = (int)heads, .p = drops ? 0.2f : 0};
        const tr_view_t qkv = view(type, TR_SHAPE(samples, steps, 3 * width)),
                        y = view(type, TR_SHAPE(samples, steps, width)),
                        lse = view(TR_F32, TR_SHAPE(samples, heads, steps));
        tr_kernel_call_t forward = {.attr = &attr,
                                    .n_in = drops ? 3 : 1,
                                    .n_out = 2,
                                    .in = {qkv, ids, step},
                                    .out = {y, lse}};
        tr_kernel_call_t backward = {.attr = &attr,
                                     .n_in = drops ? 7 : 4,
                                     .n_out = 1,
                                     .in = {y, qkv, y, lse, {.shape.ndim = -1}, ids, step},
                                     .out = {qkv}};
        repeat(t % 2 ? "attention_fwd f16" : "attention_fwd bf16", TR_K_ATTENTION_FWD, &forward);
        repeat(t % 2 ? "attention_bwd f16" : "attention_bwd bf16", TR_K_ATTENTION_BWD, &backward);
    }
}

static void test_filter_gradient(void **state) {
    const tr_conv_attr_t attr = {.spatial = 2,
                                 .kernel = {3, 3},
                                 .stride = {1, 1},
                                 .pad_lo = {1, 1},
                                 .pad_hi = {1, 1},
                                 .dilation = {1, 1},
                                 .groups = 1};
    const tr_dtype_t types[] = {TR_F32, TR_BF16, TR_F16};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        tr_kernel_call_t call = {.attr = &attr,
                                 .n_in = 2,
                                 .n_out = 1,
                                 .in = {view(types[t], TR_SHAPE(8, 14, 14, 32)),
                                        view(types[t], TR_SHAPE(8, 14, 14, 16))},
                                 .out = {view(TR_F32, TR_SHAPE(16, 3, 3, 32))}};
        repeat("conv_bwd_weights", TR_K_CONV_BWD_WEIGHTS, &call);
    }
}

/* Long sums, which cuBLASLt splits. */
static void test_product(void **state) {
    const tr_matmul_attr_t attr = {.trans_a = true, .alpha = 1};
    const tr_dtype_t types[] = {TR_F32, TR_BF16, TR_F16};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        tr_kernel_call_t call = {
            .attr = &attr,
            .n_in = 2,
            .n_out = 1,
            .in = {view(types[t], TR_SHAPE(8192, 24)), view(types[t], TR_SHAPE(8192, 40))},
            .out = {view(TR_F32, TR_SHAPE(24, 40))}};
        repeat("matmul", TR_K_MATMUL, &call);
    }
}

/* Sums over rows, and a first layer. */
static void test_sums(void **state) {
    enum { ROWS = 600, COLUMNS = 136 };
    const tr_norm_attr_t norm = {.eps = 1e-5f};
    const tr_act_attr_t act = {TR_ACT_GELU_TANH};
    const tr_conv_attr_t conv = {2, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1, TR_ACT_NONE};
    const tr_dtype_t types[] = {TR_F32, TR_BF16, TR_F16};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const tr_view_t x = view(types[t], TR_SHAPE(ROWS, COLUMNS)),
                        column = view(TR_F32, TR_SHAPE(COLUMNS)),
                        row = view(TR_F32, TR_SHAPE(ROWS));
        tr_kernel_call_t layers = {.attr = &norm,
                                   .n_in = 6,
                                   .n_out = 4,
                                   .in = {x, x, column, row, row, x},
                                   .out = {x, column, column, column}},
                         batches = {.attr = &norm,
                                    .n_in = 6,
                                    .n_out = 3,
                                    .in = {x, x, column, column, column, column},
                                    .out = {x, column, column}},
                         activation = {.attr = &act,
                                       .n_in = 2,
                                       .n_out = 2,
                                       .in = {x, x},
                                       .out = {x, column}},
                         filters = {.attr = &conv,
                                    .n_in = 2,
                                    .n_out = 1,
                                    .in = {view(types[t], TR_SHAPE(4, 16, 16, 3)),
                                           view(types[t], TR_SHAPE(4, 8, 8, 16))},
                                    .out = {view(TR_F32, TR_SHAPE(16, 3, 3, 3))}};
        repeat("residual_layernorm_bwd", TR_K_RESIDUAL_LAYERNORM_BWD, &layers);
        repeat("batchnorm_bwd", TR_K_BATCHNORM_BWD, &batches);
        repeat("act_bwd", TR_K_ACT_BWD, &activation);
        repeat("conv_bwd_weights of a first layer", TR_K_CONV_BWD_WEIGHTS, &filters);
    }
}

static int open_device(void **state) {
    const tr_device_params_t params = {0};
    if (tr_device_open("cuda", &params, &device) != TR_OK) return -1;
    return device->ops->stream_create(device, "test", TR_PRIORITY_NORMAL, &stream) != TR_OK;
}

static int close_device(void **state) {
    device->ops->stream_destroy(device, stream);
    tr_device_close(&device);
    return 0;
}

int main(int argc, char **argv) {
    const tr_backend_t *backend = NULL;
    if (argc > 1) steps = atoi(argv[1]);
    if (tr_backend_find("cuda", &backend) != TR_OK) {
        print_message("skipped: %s\n", tr_error_last()->message);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_filter_gradient),
        cmocka_unit_test(test_product),
        cmocka_unit_test(test_sums),
    };
    cmocka_set_test_filter(getenv("TEST_ONLY")); /* a pattern; NULL: all */
    return cmocka_run_group_tests(tests, open_device, close_device);
}
