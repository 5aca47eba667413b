/* The fake libcudart: order of streams, memory, capture, refusals, faults. No call before a
 * fork: children start fresh. */
#include "hostcuda_test.h"

cudaError_t run_add_one(float *y, const float *x, int n, cudaStream_t stream);

enum { N = 1000 };

/* -- streams and events ------------------------------------------------------------------------ */
/* Copy, kernel, copy back on three streams; with `events` they are ordered. Returns the number
 * of wrong elements. */
static int three_streams(bool events) {
    cudaStream_t stream[3];
    cudaEvent_t event[2];
    float *host = pinned_memory(N * sizeof *host), *x = device_memory(N * sizeof *x),
          *y = device_memory(N * sizeof *y);
    int wrong = 0;
    for (int i = 0; i < N; i++) host[i] = (float)i;
    for (int i = 0; i < 3; i++) OK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) OK(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming));
    OK(cudaMemcpyAsync(x, host, N * sizeof *x, cudaMemcpyHostToDevice, stream[0]));
    OK(cudaEventRecord(event[0], stream[0]));
    if (events) OK(cudaStreamWaitEvent(stream[1], event[0], 0));
    OK(run_add_one(y, x, N, stream[1]));
    OK(cudaEventRecord(event[1], stream[1]));
    if (events) OK(cudaStreamWaitEvent(stream[2], event[1], 0));
    OK(cudaMemcpyAsync(host, y, N * sizeof *y, cudaMemcpyDeviceToHost, stream[2]));
    OK(cudaStreamSynchronize(stream[2]));
    for (int i = 0; i < N; i++) wrong += host[i] != (float)i + 1;
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++) OK(cudaStreamDestroy(stream[i]));
    for (int i = 0; i < 2; i++) OK(cudaEventDestroy(event[i]));
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaFreeHost(host));
    return wrong != 0;
}
static int with_events(void) {
    return three_streams(true);
}
static int without_events(void) {
    return three_streams(false);
}

static void test_missing_event_is_found(void **state) {
    assert_int_equal(found_by_seeds(8, with_events), 0);
    assert_true(found_by_seeds(8, without_events) >= 4);
}

static int deferred(void) {
    float *host = pinned_memory(4), *x = device_memory(4);
    cudaStream_t stream;
    setenv("HOSTCUDA_PUMP_MS", "0", 1);
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *host = 1;
    OK(cudaMemcpyAsync(x, host, 4, cudaMemcpyHostToDevice, stream));
    *host = 2; /* too early: the copy has not run */
    OK(cudaMemcpyAsync(host, x, 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    const bool pinned_is_late = *host == 2;
    float pageable = 3;
    OK(cudaMemcpyAsync(x, &pageable, 4, cudaMemcpyHostToDevice, stream));
    pageable = 4; /* allowed: it was read at the call */
    OK(cudaMemcpyAsync(&pageable, x, 4, cudaMemcpyDeviceToHost, stream));
    return !(pinned_is_late && pageable == 3);
}
static void test_copies_are_deferred(void **state) {
    OK(in_child(NULL, NULL, deferred));
}

static void set_flag(void *flag) {
    __atomic_store_n((int *)flag, cudaDeviceSynchronize() == cudaErrorNotPermitted ? 1 : 2,
                     __ATOMIC_RELEASE);
}
static int pumped(void) {
    cudaStream_t stream;
    int flag = 0;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaLaunchHostFunc(stream, set_flag, &flag));
    for (int i = 0; i < 500 && !__atomic_load_n(&flag, __ATOMIC_ACQUIRE); i++) usleep(10000);
    return flag != 1;
}
static void test_work_goes_on_while_nobody_asks(void **state) {
    OK(in_child(NULL, NULL, pumped));
}

static int times(void) {
    cudaEvent_t a, b, c;
    float ms = -1;
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    OK(cudaEventCreateWithFlags(&c, cudaEventDisableTiming));
    assert_int_equal(cudaEventElapsedTime(&ms, a, b), cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(a, 0));
    OK(cudaEventRecord(b, 0));
    OK(cudaEventRecord(c, 0));
    OK(cudaEventSynchronize(c));
    OK(cudaEventElapsedTime(&ms, a, b));
    assert_int_equal(cudaEventElapsedTime(&ms, a, c), cudaErrorInvalidResourceHandle);
    return !(ms >= 0);
}
static void test_elapsed_time(void **state) {
    OK(in_child(NULL, NULL, times));
}

/* -- memory ------------------------------------------------------------------------------------ */
static int reads_device_memory(void) {
    const float *x = device_memory(64);
    return x[0] > 0;
}
static int poisoned(void) {
    unsigned char byte = 0, *x = device_memory(1 << 20);
    to_host(&byte, x + 12345, 1);
    return byte != 0xff;
}
static int out_of_memory(void) {
    void *p;
    size_t free_bytes, total;
    OK(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(total, (size_t)1 << 30);
    assert_int_equal(cudaMalloc(&p, free_bytes + 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, free_bytes));
    assert_int_equal(cudaMalloc(&p, 4096), cudaErrorMemoryAllocation);
    return 0;
}
static int wrong_copies(void) {
    char host[64], *x = device_memory(64);
    assert_int_equal(cudaMemcpy(x, host, 65, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, x, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemset(x, 0, 65), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(x + 1), cudaErrorInvalidValue);
    return 0;
}
static void test_memory(void **state) {
    assert_int_equal(in_child(NULL, NULL, reads_device_memory), 128 + 11);
    OK(in_child(NULL, NULL, poisoned));
    OK(in_child("HOSTCUDA_MEMORY", "1G", out_of_memory));
    OK(in_child(NULL, NULL, wrong_copies));
}

/* -- devices ----------------------------------------------------------------------------------- */
static int three_devices(void) {
    struct cudaDeviceProp a, b;
    char bus[2][16];
    int n = 0, value = 0;
    cudaStream_t stream;
    OK(cudaGetDeviceCount(&n));
    assert_int_equal(n, 3);
    OK(cudaGetDeviceProperties(&a, 0));
    OK(cudaGetDeviceProperties(&b, 2));
    assert_memory_not_equal(&a.uuid, &b.uuid, 16);
    OK(cudaDeviceGetPCIBusId(bus[0], 16, 0));
    OK(cudaDeviceGetPCIBusId(bus[1], 16, 1));
    assert_string_not_equal(bus[0], bus[1]);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 1));
    assert_int_equal(value, 9);
    assert_int_equal(cudaSetDevice(3), cudaErrorInvalidDevice);
    OK(cudaStreamCreate(&stream));
    OK(cudaSetDevice(1));
    assert_int_equal(run_add_one(device_memory(4), device_memory(4), 1, stream),
                     cudaErrorInvalidResourceHandle);
    return 0;
}
static int no_device(void) {
    int n = 0;
    return cudaGetDeviceCount(&n) != cudaErrorNoDevice;
}
static int old_driver(void) {
    int n = 0;
    return cudaGetDeviceCount(&n) != cudaErrorInsufficientDriver;
}
static void test_devices(void **state) {
    OK(in_child("HOSTCUDA_DRIVER_VERSION", "0", old_driver));

    OK(in_child("HOSTCUDA_DEVICES", "3", three_devices));
    OK(in_child("HOSTCUDA_DEVICES", "0", no_device));
}

/* -- capture ----------------------------------------------------------------------------------- */
static int replay(void) {
    cudaStream_t main_stream, side;
    cudaEvent_t fork_event, join_event;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *x = device_memory(N * 4), *y = device_memory(N * 4), out[N];
    size_t nodes = 0;
    OK(cudaMemset(x, 0, N * 4));
    OK(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming));
    OK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
    OK(run_add_one(x, x, N, main_stream));
    OK(cudaEventRecord(fork_event, main_stream));
    OK(cudaStreamWaitEvent(side, fork_event, 0));
    OK(run_add_one(y, x, N, side));
    OK(cudaEventRecord(join_event, side));
    OK(cudaStreamWaitEvent(main_stream, join_event, 0));
    OK(run_add_one(x, y, N, main_stream));
    OK(cudaStreamEndCapture(main_stream, &graph));
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 3);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    to_host(out, x, N * 4);
    assert_true(out[7] == 0);
    for (int i = 0; i < 5; i++) OK(cudaGraphLaunch(exec, main_stream));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamSynchronize(main_stream));
    to_host(out, x, N * 4);
    return out[7] != 15;
}

static int refusals(void) {
    cudaStream_t stream, other;
    cudaEvent_t event, before;
    cudaGraph_t graph;
    void *p;
    enum cudaStreamCaptureStatus status;
    float host = 0, *x = device_memory(64);
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaEventCreate(&event));
    OK(cudaEventCreate(&before));
    OK(cudaEventRecord(before, other));
    assert_int_equal(cudaStreamBeginCapture(0, cudaStreamCaptureModeThreadLocal),
                     cudaErrorStreamCaptureUnsupported);
#define REFUSED(call, error)                                                                       \
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));                          \
    assert_int_equal(call, error);                                                                 \
    OK(cudaStreamIsCapturing(stream, &status));                                                    \
    assert_int_equal(status, cudaStreamCaptureStatusInvalidated);                                  \
    assert_int_equal(run_add_one(x, x, 1, stream), cudaErrorStreamCaptureInvalidated);             \
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated)
    REFUSED(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    REFUSED(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
    REFUSED(cudaMalloc(&p, 64), cudaErrorStreamCaptureUnsupported);
    REFUSED(cudaMemcpy(x, &host, 4, cudaMemcpyHostToDevice), cudaErrorStreamCaptureUnsupported);
    REFUSED(cudaMemcpyAsync(x, &host, 4, cudaMemcpyHostToDevice, stream),
            cudaErrorStreamCaptureUnsupported);
    REFUSED(cudaStreamWaitEvent(stream, before, 0), cudaErrorStreamCaptureIsolation);
    REFUSED(cudaMemsetAsync(x, 0, 4, 0), cudaErrorStreamCaptureImplicit);
    (void)cudaGetLastError(); /* a launch returns what earlier calls left behind */
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    OK(run_add_one(x, x, 1, other));
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    assert_int_equal(cudaEventQuery(event), cudaErrorCapturedEvent);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaMalloc(&p, 64));
    OK(cudaStreamEndCapture(stream, &graph));
    return 0;
}
static void test_capture(void **state) {
    assert_int_equal(found_by_seeds(6, replay), 0);
    OK(in_child(NULL, NULL, refusals));
}

/* -- faults ------------------------------------------------------------------------------------ */
static int third_malloc_fails(void) {
    void *p;
    OK(cudaMalloc(&p, 64));
    OK(cudaMalloc(&p, 64));
    assert_int_equal(cudaMalloc(&p, 64), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, 64));
    return 0;
}
static void test_faults(void **state) {
    OK(in_child("HOSTCUDA_FAIL", "cudaMalloc:3", third_malloc_fails));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_event_is_found),
        cmocka_unit_test(test_copies_are_deferred),
        cmocka_unit_test(test_work_goes_on_while_nobody_asks),
        cmocka_unit_test(test_elapsed_time),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
