#include "cpu_kernel_test.h"

tr_device_t *kt_devices[KT_DEVICES];
static const int threads_of[KT_DEVICES] = {1, 2, 7};

int kt_setup(void **state) {
    for (int i = 0; i < KT_DEVICES; i++) {
        tr_device_params_t params = {.threads = threads_of[i]};
        if (tr_device_open("cpu", &params, &kt_devices[i]) != TR_OK) return -1;
    }
    return 0;
}

int kt_teardown(void **state) {
    for (int i = 0; i < KT_DEVICES; i++) tr_device_close(&kt_devices[i]);
    return 0;
}

static size_t view_bytes(const tr_view_t *view) {
    return view->shape.ndim < 0
               ? 0
               : (size_t)tr_shape_elems(&view->shape) * tr_dtype_bytes(view->dtype);
}

/* Scratch begins as NaN, so that nothing can rest on what it holds; behind it stands a guard. */
void kt_run_on(tr_device_t *device, tr_kernel_id_t id, const void *attr, int n_in,
               const tr_view_t *in, int n_out, const tr_view_t *out) {
    enum { GUARD = 64 };
    const tr_kernel_t *kernel = &device->ops->kernels[id];
    tr_kernel_call_t planned = {.n_in = n_in, .n_out = n_out, .attr = attr}, live;
    size_t bytes = 0;
    void *scratch = NULL;
    for (int i = 0; i < TR_KERNEL_MAX_IN; i++) planned.in[i] = i < n_in ? in[i] : ABSENT;
    for (int i = 0; i < TR_KERNEL_MAX_OUT; i++) planned.out[i] = i < n_out ? out[i] : ABSENT;
    live = planned;
    for (int i = 0; i < n_in; i++) planned.in[i].data = NULL;
    for (int i = 0; i < n_out; i++) planned.out[i].data = NULL;
    if (kernel->prepare)
        assert_int_equal(kernel->prepare(device, &planned, &live.state, &bytes), TR_OK);
    assert_int_equal(device->ops->alloc(device, bytes + GUARD, 0, &scratch), TR_OK);
    memset(scratch, 0xff, bytes + GUARD);
    live.scratch = bytes ? scratch : NULL;
    assert_int_equal(kernel->run(device, NULL, &live), TR_OK);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(((unsigned char *)scratch)[bytes + (size_t)i], 0xff);
    if (kernel->release) kernel->release(device, live.state);
    device->ops->free(device, scratch);
}

/* A copy of the content; free it. */
static void *copy_of(const tr_view_t *view) {
    size_t bytes = view_bytes(view);
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    if (bytes) memcpy(copy, view->data, bytes);
    return copy;
}

void kt_run(tr_kernel_id_t id, const void *attr, int n_in, const tr_view_t *in, int n_out,
            const tr_view_t *out) {
    void *before[TR_KERNEL_MAX_OUT], *first[TR_KERNEL_MAX_OUT];
    for (int i = 0; i < n_out; i++) before[i] = copy_of(&out[i]);
    kt_run_on(kt_devices[0], id, attr, n_in, in, n_out, out);
    for (int i = 0; i < n_out; i++) first[i] = copy_of(&out[i]);
    for (int d = 1; d < KT_DEVICES; d++) {
        for (int i = 0; i < n_out; i++)
            if (view_bytes(&out[i])) memcpy(out[i].data, before[i], view_bytes(&out[i]));
        kt_run_on(kt_devices[d], id, attr, n_in, in, n_out, out);
        for (int i = 0; i < n_out; i++)
            if (view_bytes(&out[i]) && memcmp(first[i], out[i].data, view_bytes(&out[i])) != 0)
                fail_msg("%s: output %d differs between one thread and %d", tr_kernel_name(id), i,
                         threads_of[d]);
    }
    for (int i = 0; i < n_out; i++) free(before[i]), free(first[i]);
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
        fail_msg("%s: element %lld of %lld is %.9g, expected %.9g (relative %.2g, absolute %.2g "
                 "allowed)",
                 what, (long long)worst, (long long)n, (double)got[worst], want[worst], relative,
                 absolute);
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
