/* The fake libnccl: each test forks its ranks, which meet through pipes as they would through
 * MPI. */
#include "hostcuda_test.h"
#include "numeric.h"
#include <nccl.h>
#include <time.h>

enum { N = 1500000 }; /* more than one chunk */

static ncclComm_t comm;
static cudaStream_t stream;
static int rank, ranks;

static void set_up(const ncclUniqueId *id) {
    OK(cudaSetDevice(rank));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(ncclCommInitRank(&comm, ranks, *id, rank));
}

/* Runs `body` in `count` processes; returns the sum of what they return. */
static int in_ranks(int count, const char *fault, int (*body)(const ncclUniqueId *)) {
    ncclUniqueId id;
    pid_t child[8];
    int failures = 0;
    OK(ncclGetUniqueId(&id));
    fflush(NULL);
    for (int r = 0; r < count; r++) {
        child[r] = fork();
        if (child[r]) continue;
        setenv("CMOCKA_TEST_ABORT", "1", 1);
        setenv("HOSTCUDA_DEVICES", "8", 1);
        if (fault) setenv("HOSTCUDA_NCCL_FAULT", fault, 1);
        rank = r, ranks = count;
        signal(SIGSEGV, SIG_DFL);
        alarm(60);
        _exit(body(&id));
    }
    for (int r = 0; r < count; r++) {
        int status;
        waitpid(child[r], &status, 0);
        failures += WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status) == 9 ? 0 : 100;
    }
    return failures;
}

static float *filled(size_t n, float value) {
    float *host = malloc(n * sizeof *host), *device;
    for (size_t i = 0; i < n; i++) host[i] = value + (float)(i % 7);
    device = to_device(host, n * sizeof *host);
    free(host);
    return device;
}
static float element(const float *device, size_t i) {
    float value;
    to_host(&value, device + i, sizeof value);
    return value;
}

static int collectives(const ncclUniqueId *id) {
    set_up(id);
    float *x = filled(N, (float)rank), *y = device_memory((size_t)N * (size_t)ranks * 4);
    OK(ncclAllReduce(x, y, N, ncclFloat32, ncclSum, comm, stream));
    OK(cudaStreamSynchronize(stream));
    const float sum = (float)(ranks * (ranks - 1) / 2);
    assert_true(element(y, 0) == sum && element(y, N - 1) == sum + (float)(ranks * ((N - 1) % 7)));
    OK(ncclAllReduce(x, x, 10, ncclFloat32, ncclAvg, comm, stream));
    OK(ncclBroadcast(x, y, 10, ncclFloat32, ranks - 1, comm, stream));
    OK(cudaStreamSynchronize(stream));
    assert_true(element(y, 3) == sum / (float)ranks + 3);
    x = filled(N, (float)rank);
    OK(ncclAllGather(x, y, N, ncclFloat32, comm, stream));
    OK(cudaStreamSynchronize(stream));
    for (int r = 0; r < ranks; r++) assert_true(element(y, (size_t)r * N + 5) == (float)r + 5);
    float *part = device_memory(N * 4);
    OK(ncclReduceScatter(y, part, N, ncclFloat32, ncclMax, comm, stream));
    OK(cudaStreamSynchronize(stream));
    assert_true(element(part, 9) == (float)(rank + 2));
    uint16_t one = 0x3f80, out;
    void *b = to_device(&one, 2);
    OK(ncclAllReduce(b, b, 1, ncclBfloat16, ncclSum, comm, stream));
    OK(cudaStreamSynchronize(stream));
    to_host(&out, b, 2);
    assert_true(num_load(NUM_BF16, &out, 0) == ranks);
    OK(ncclCommDestroy(comm));
    return 0;
}

static int messages(const ncclUniqueId *id) {
    set_up(id);
    float *x = filled(N, (float)rank), *y = device_memory(N * 4);
    const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    OK(ncclGroupStart());
    OK(ncclSend(x, N, ncclFloat32, next, comm, stream));
    OK(ncclRecv(y, N, ncclFloat32, last, comm, stream));
    OK(ncclGroupEnd());
    OK(cudaStreamSynchronize(stream));
    assert_true(element(y, N - 1) == (float)(last + (N - 1) % 7));
    return 0;
}

/* Two collectives on two streams, in a captured graph too: all ranks must run them in one order. */
static int two_streams(const ncclUniqueId *id) {
    char seed[8];
    cudaStream_t other;
    cudaEvent_t fork_event, join_event;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    snprintf(seed, sizeof seed, "%d", rank + 1);
    setenv("HOSTCUDA_SEED", seed, 1);
    set_up(id);
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaEventCreate(&fork_event));
    OK(cudaEventCreate(&join_event));
    float *x = filled(100, 1), *y = filled(200, 1);
    for (int i = 0; i < 8; i++) {
        OK(ncclAllReduce(x, x, 100, ncclFloat32, ncclMax, comm, stream));
        OK(ncclAllReduce(y, y, 200, ncclFloat32, ncclMax, comm, other));
    }
    OK(cudaDeviceSynchronize());
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(fork_event, stream));
    OK(cudaStreamWaitEvent(other, fork_event, 0));
    OK(ncclAllReduce(x, x, 100, ncclFloat32, ncclSum, comm, stream));
    OK(ncclAllReduce(y, y, 200, ncclFloat32, ncclSum, comm, other));
    OK(cudaEventRecord(join_event, other));
    OK(cudaStreamWaitEvent(stream, join_event, 0));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    return !(element(x, 0) == (float)(ranks * ranks * ranks) &&
             element(y, 1) == 2 * (float)(ranks * ranks * ranks));
}

static int splits(const ncclUniqueId *id) {
    ncclComm_t half;
    int n, r;
    set_up(id);
    OK(ncclCommSplit(comm, rank % 2, -rank, &half, NULL));
    OK(ncclCommCount(half, &n));
    OK(ncclCommUserRank(half, &r));
    assert_int_equal(n, ranks / 2);
    assert_int_equal(r, ranks / 2 - 1 - rank / 2); /* keys descend */
    float *x = filled(4, (float)rank);
    OK(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, half, stream));
    OK(cudaStreamSynchronize(stream));
    return element(x, 0) != (rank % 2 ? 4 : 2);
}

/* -- without blocking, and what goes wrong ----------------------------------------------------- */
static ncclResult_t wait_ready(double limit_sec) {
    ncclResult_t error = ncclInProgress;
    for (int i = 0; i < limit_sec * 1000 && error == ncclInProgress; i++) {
        usleep(1000);
        OK(ncclCommGetAsyncError(comm, &error));
    }
    return error;
}
static ncclResult_t init_without_blocking(const ncclUniqueId *id, double limit_sec) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    OK(cudaSetDevice(rank));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_int_equal(ncclCommInitRankConfig(&comm, ranks, *id, rank, &config), ncclInProgress);
    return wait_ready(limit_sec);
}
/* The new communicator is NULL, and the old one in progress, until the split is complete. */
static void split_without_blocking(void) {
    ncclComm_t own = NULL;
    int n = 0;
    OK(ncclCommSplit(comm, rank, 0, &own, NULL));
    assert_null(own);
    OK(wait_ready(5));
    OK(ncclCommCount(own, &n));
    assert_int_equal(n, 1);
    OK(ncclCommDestroy(own));
}
static int without_blocking(const ncclUniqueId *id) {
    OK(init_without_blocking(id, 20));
    split_without_blocking();
    float *x = filled(4, 1);
    bool in_progress = false;
    for (int i = 0; i < 8; i++) {
        const ncclResult_t result = ncclAllReduce(x, x, 4, ncclFloat32, ncclMax, comm, stream);
        assert_true(!result || result == ncclInProgress);
        in_progress |= result == ncclInProgress;
        OK(wait_ready(5));
    }
    OK(cudaStreamSynchronize(stream));
    return !in_progress;
}
static int init_hangs(const ncclUniqueId *id) {
    const ncclResult_t result = init_without_blocking(id, 0.5);
    OK(ncclCommAbort(comm));
    return result != ncclInProgress;
}
static int breaks(const ncclUniqueId *id) {
    ncclResult_t error = ncclSuccess;
    set_up(id);
    float *x = filled(4, 1);
    for (int i = 0; i < 2; i++) OK(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, comm, stream));
    for (int i = 0; i < 400 && cudaStreamQuery(stream) == cudaErrorNotReady; i++) usleep(1000);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady); /* the second never ends */
    OK(ncclCommGetAsyncError(comm, &error));
    assert_int_equal(error, rank == 1 ? ncclRemoteError : ncclSuccess);
    OK(ncclCommAbort(comm));
    return cudaStreamSynchronize(stream);
}
static int one_dies(const ncclUniqueId *id) {
    set_up(id);
    float *x = filled(4, 1);
    OK(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, comm, stream));
    for (int i = 0; i < 400 && cudaStreamQuery(stream) == cudaErrorNotReady; i++) usleep(1000);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    OK(ncclCommAbort(comm));
    return cudaStreamSynchronize(stream);
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static int one_is_late(const ncclUniqueId *id) {
    set_up(id);
    float *x = filled(4, 1);
    const double start = now();
    OK(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, comm, stream));
    OK(cudaStreamSynchronize(stream));
    return now() - start < 0.3;
}
static int one_gpu(const ncclUniqueId *id) {
    return ncclCommInitRank(&comm, ranks, *id, rank) != ncclInvalidUsage; /* both on device 0 */
}
static int different_calls(const ncclUniqueId *id) {
    freopen("/dev/null", "w", stderr);
    set_up(id);
    float *x = filled(8, 1);
    OK(ncclAllReduce(x, x, rank ? 8 : 4, ncclFloat32, ncclSum, comm, stream));
    return cudaStreamSynchronize(stream) != cudaErrorLaunchFailure;
}

static void test_collectives(void **state) {
    OK(in_ranks(1, NULL, collectives));
    OK(in_ranks(3, NULL, collectives));
}
static void test_messages(void **state) {
    OK(in_ranks(3, NULL, messages));
}
static void test_sampler_of_streams(void **state) {
    OK(in_ranks(2, NULL, two_streams));
}
static void test_split(void **state) {
    OK(in_ranks(4, NULL, splits));
}
static void test_without_blocking(void **state) {
    OK(in_ranks(2, NULL, without_blocking));
}
static void test_faults(void **state) {
    OK(in_ranks(2, "init_hang,rank=1", init_hangs));
    OK(in_ranks(2, "async_error,rank=1,call=2", breaks));
    OK(in_ranks(2, "die,rank=1", one_dies));
    OK(in_ranks(2, "late,rank=1,ms=400", one_is_late));
}
static void test_refusals(void **state) {
    OK(in_ranks(2, NULL, one_gpu));
    OK(in_ranks(2, NULL, different_calls));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_sampler_of_streams), cmocka_unit_test(test_split),
        cmocka_unit_test(test_without_blocking),   cmocka_unit_test(test_faults),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
