#include "cpu_kernel_test.h"

tr_device_t *kt_devices[2];

int kt_setup(void **state) {
    for (int i = 0; i < 2; i++) {
        tr_device_params_t params = {.threads = i + 1};
        if (tr_device_open("cpu", &params, &kt_devices[i]) != TR_OK) return -1;
    }
    return 0;
}

int kt_teardown(void **state) {
    for (int i = 0; i < 2; i++) tr_device_close(&kt_devices[i]);
    return 0;
}

static size_t view_bytes(const tr_view_t *view) {
    return view->shape.ndim < 0 ? 0 : (size_t)tr_shape_elems(&view->shape) * tr_dtype_bytes(view->dtype);
}

/* Scratch begins as NaN, so that nothing can rest on what it holds; behind it stands a guard. */
static void run_once(tr_device_t *device, tr_kernel_id_t id, const tr_kernel_call_t *call) {
    enum { GUARD = 64 };
    const tr_kernel_t *kernel = &device->ops->kernels[id];
    tr_kernel_call_t planned = *call, live = *call;
    size_t bytes = 0;
    void *scratch = NULL;
    for (int i = 0; i < call->n_in; i++) planned.in[i].data = NULL;
    for (int i = 0; i < call->n_out; i++) planned.out[i].data = NULL;
    if (kernel->prepare) assert_int_equal(kernel->prepare(device, &planned, &live.state, &bytes), TR_OK);
    assert_int_equal(device->ops->alloc(device, bytes + GUARD, &scratch), TR_OK);
    memset(scratch, 0xff, bytes + GUARD);
    live.scratch = bytes ? scratch : NULL;
    assert_int_equal(kernel->run(device, NULL, &live), TR_OK);
    for (int i = 0; i < GUARD; i++) assert_int_equal(((unsigned char *)scratch)[bytes + (size_t)i], 0xff);
    if (kernel->release) kernel->release(device, live.state);
    device->ops->free(device, scratch);
}

void kt_run(tr_kernel_id_t id, const void *attr, int n_in, const tr_view_t *in, int n_out,
            const tr_view_t *out) {
    tr_kernel_call_t call = {.n_in = n_in, .n_out = n_out, .attr = attr};
    char *before[TR_KERNEL_MAX_OUT], *first[TR_KERNEL_MAX_OUT];
    for (int i = 0; i < TR_KERNEL_MAX_IN; i++) call.in[i] = i < n_in ? in[i] : ABSENT;
    for (int i = 0; i < TR_KERNEL_MAX_OUT; i++) call.out[i] = i < n_out ? out[i] : ABSENT;
    for (int i = 0; i < n_out; i++) {
        size_t bytes = view_bytes(&out[i]);
        before[i] = malloc(bytes + 1);
        first[i] = malloc(bytes + 1);
        if (bytes) memcpy(before[i], out[i].data, bytes);
    }
    run_once(kt_devices[0], id, &call);
    for (int i = 0; i < n_out; i++) {
        size_t bytes = view_bytes(&out[i]);
        if (bytes) memcpy(first[i], out[i].data, bytes);
        if (bytes) memcpy(out[i].data, before[i], bytes);
    }
    run_once(kt_devices[1], id, &call);
    for (int i = 0; i < n_out; i++) {
        size_t bytes = view_bytes(&out[i]);
        if (bytes && memcmp(first[i], out[i].data, bytes) != 0)
            fail_msg("%s: output %d differs between one and two threads", tr_kernel_name(id), i);
        free(before[i]);
        free(first[i]);
    }
}

void kt_close(const float *got, const double *want, int64_t n, double relative, double absolute,
              const char *what) {
    int64_t worst = -1;
    double excess = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(want[i]) && isnan(got[i])) continue;
        if (isinf(want[i]) && got[i] == want[i]) continue;
        double over = fabs(got[i] - want[i]) - (absolute + relative * fabs(want[i]));
        if (isnan(over) || (over > excess && !isnan(excess))) {
            worst = i;
            excess = over;
        }
    }
    if (worst >= 0)
        fail_msg("%s: element %lld of %lld is %.9g, expected %.9g (relative %.2g, absolute %.2g allowed)",
                 what, (long long)worst, (long long)n, (double)got[worst], want[worst], relative, absolute);
}

float *kt_zeros(int64_t n) {
    float *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

float *kt_normal(int64_t n, uint32_t stream, double mean, double deviation) {
    float *x = kt_zeros(n);
    tr_rng_t rng = tr_rng_make(7, TR_RNG_TEST, stream, 0);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(mean + deviation * tr_rng_normal(&rng));
    return x;
}
