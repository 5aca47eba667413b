/* How every call begins and ends: the lock, its number, faults on demand, the trace, errors that
 * stay. */
#include "cudart_int.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t owner;
static int depth;
static cudaError_t sticky;
static double last_call_sec;
static __thread cudaError_t last_error;
static __thread bool in_callback;
static uint64_t random_state;

/* -- the lock: recursive, for a fake library calls the runtime while it executes its work ------ */
void hc_lock(void) {
    if (depth && pthread_equal(__atomic_load_n(&owner, __ATOMIC_RELAXED), pthread_self())) {
        depth++;
        return;
    }
    pthread_mutex_lock(&lock);
    __atomic_store_n(&owner, pthread_self(), __ATOMIC_RELAXED);
    depth = 1;
}
void hc_unlock(void) {
    if (--depth) return;
    __atomic_store_n(&owner, (pthread_t)0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
}

double hc_now_sec(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
double hc_idle_sec(void) {
    return hc_now_sec() - last_call_sec;
}
cudaError_t hc_sticky(void) {
    return sticky;
}
void hc_in_callback(bool on) {
    in_callback = on;
}

static cudaError_t hc_error_of(const char *name);

/* -- the environment --------------------------------------------------------------------------- */
EXPORT long long hostcuda_env(const char *name, long long otherwise) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return otherwise;
    double value = strtod(text, &end);
    for (const char *unit = "KMG"; *end && *unit; unit++) {
        value *= 1024;
        if (*end == *unit) return (long long)value;
    }
    return *end ? otherwise : (long long)value;
}

/* splitmix64 */
EXPORT uint64_t hostcuda_random(void) {
    if (!random_state)
        random_state = (uint64_t)hostcuda_env("HOSTCUDA_SEED", 1) * 0x9e3779b97f4a7c15u + 1;
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* -- trace, faults, leaks ---------------------------------------------------------------------- */
static FILE *trace_file(void) {
    static FILE *file;
    static bool looked;
    const char *path = getenv("HOSTCUDA_TRACE");
    if (!looked && path && *path) {
        char name[4096];
        const char *rank = getenv("OMPI_COMM_WORLD_RANK");
        snprintf(name, sizeof name, "%s%s%s", path, rank ? "." : "", rank ? rank : "");
        file = fopen(name, "w");
        if (file) setvbuf(file, NULL, _IOLBF, 0);
    }
    looked = true;
    return file;
}

static void trace(const char *name, const char *format, va_list list) {
    FILE *file = trace_file();
    if (!file) return;
    fprintf(file, "%s ", name);
    vfprintf(file, format, list);
    fputc('\n', file);
}

/* Whether a fault at `where`, a rank or the name of a host, is one of this process. */
static bool is_here(const char *where) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    return !*where || !strcmp(where, host) || !strcmp(where, rank ? rank : "0");
}

/* HOSTCUDA_FAIL=N: the N-th call fails; NAME:N[:ERROR][@WHERE]: the N-th call of NAME, which gives
 * ERROR and breaks the GPU; NAME:N+: all calls of NAME from the N-th on. */
static bool must_fail(const char *name) {
    static long all, named;
    static const char *wish;
    static bool looked, goes_on;
    static char call[64], fault[64], where[64];
    static long number;
    if (!looked) wish = getenv("HOSTCUDA_FAIL");
    if (!looked && wish && strchr(wish, ':')) {
        sscanf(wish, "%63[^:]:%ld", call, &number);
        goes_on = strchr(wish, '+') != NULL;
        sscanf(strchr(wish, ':'), ":%*d:%63[^@]", fault);
        if (strchr(wish, '@')) snprintf(where, sizeof where, "%s", strchr(wish, '@') + 1);
    }
    looked = true;
    all++;
    if (!wish || !*wish) return false;
    if (!*call) return all == atol(wish);
    if (strcmp(name, call) || !is_here(where)) return false;
    named++;
    if (goes_on ? named < number : named != number) return false;
    if (*fault) sticky = hc_error_of(fault);
    return true;
}

EXPORT bool hostcuda_call(const char *name, const char *format, ...) {
    va_list list;
    hc_lock();
    last_call_sec = hc_now_sec();
    va_start(list, format);
    trace(name, format, list);
    va_end(list);
    const bool fail = must_fail(name);
    if (fail) fprintf(stderr, "hostcuda: %s fails on demand (HOSTCUDA_FAIL)\n", name);
    hc_unlock();
    return fail;
}

EXPORT void hostcuda_refuse(const char *call, const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (trace_file()) {
        va_list copy;
        va_copy(copy, list);
        fprintf(trace_file(), "refused: ");
        trace(call, format, copy);
        va_end(copy);
    }
    if (hostcuda_env("HOSTCUDA_VERBOSE", 0)) {
        fprintf(stderr, "hostcuda: %s refuses: ", call);
        vfprintf(stderr, format, list);
        fputc('\n', stderr);
    }
    va_end(list);
}

EXPORT void hostcuda_fail(cudaError_t error, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "hostcuda: ");
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    hc_lock();
    if (!sticky) sticky = error;
    hc_unlock();
}

static struct {
    const char *what;
    long alive, made;
} counters[32];

static void report_leaks(void) {
    for (size_t i = 0; i < COUNT(counters) && counters[i].what; i++)
        if (counters[i].alive)
            fprintf(stderr, "hostcuda: leak: %ld of %ld %s\n", counters[i].alive, counters[i].made,
                    counters[i].what);
}

EXPORT void hostcuda_count(const char *what, int change) {
    static bool registered;
    hc_lock();
    if (!registered && hostcuda_env("HOSTCUDA_LEAKS", 0)) atexit(report_leaks);
    registered = true;
    for (size_t i = 0; i < COUNT(counters); i++) {
        if (!counters[i].what) counters[i].what = what;
        if (strcmp(counters[i].what, what)) continue;
        counters[i].alive += change;
        if (change > 0) counters[i].made += change;
        break;
    }
    hc_unlock();
}

/* -- begin and end of a call ------------------------------------------------------------------- */
static cudaError_t fault_of(const char *name) {
    return strcasestr(name, "alloc") || strstr(name, "Register") ? cudaErrorMemoryAllocation
                                                                 : cudaErrorUnknown;
}

cudaError_t hc_enter(const char *name, bool unsafe, const char *format, ...) {
    va_list list;
    if (in_callback) return last_error = cudaErrorNotPermitted;
    hc_lock();
    last_call_sec = hc_now_sec();
    va_start(list, format);
    trace(name, format, list);
    va_end(list);
    cudaError_t error = sticky;
    if (!error && must_fail(name)) {
        fprintf(stderr, "hostcuda: %s fails on demand (HOSTCUDA_FAIL)\n", name);
        error = sticky ? sticky : fault_of(name);
    }
    if (!error &&
        hostcuda_env("HOSTCUDA_DRIVER_VERSION", CUDART_VERSION) < CUDART_VERSION / 1000 * 1000)
        error = cudaErrorInsufficientDriver;
    if (!error && !hc_device_count()) error = cudaErrorNoDevice;
    if (!error && unsafe) error = hc_capture_unsafe(name);
    if (error) hc_leave(error);
    return error;
}

cudaError_t hc_leave(cudaError_t error) {
    if (!error) error = sticky;
    if (error) last_error = error; /* cudaErrorNotReady, too, as the real runtime does */
    hc_unlock();
    return error;
}

EXPORT cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = sticky;
    return error;
}
EXPORT cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

/* -- names ------------------------------------------------------------------------------------- */
static const struct {
    cudaError_t error;
    const char *name, *text;
} names[] = {
#define ERROR(name, text)                                                                          \
    { name, #name, text }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInsufficientDriver, "the driver is older than this runtime needs"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered, "this host memory is registered already"),
    ERROR(cudaErrorHostMemoryNotRegistered, "this host memory is not registered"),
    ERROR(cudaErrorAssert, "a trap or an assertion in a kernel"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotPermitted, "operation not permitted"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when a stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "the capture failed because of an earlier error"),
    ERROR(cudaErrorStreamCaptureMerge, "operation would merge two captures"),
    ERROR(cudaErrorStreamCaptureUnmatched, "the capture was not begun in this stream"),
    ERROR(cudaErrorStreamCaptureUnjoined, "the capture has work that was not joined to its origin"),
    ERROR(cudaErrorStreamCaptureIsolation, "a dependency crosses the border of a capture"),
    ERROR(cudaErrorStreamCaptureImplicit,
          "the operation depends on a capture through the legacy stream"),
    ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capture"),
    ERROR(cudaErrorStreamCaptureWrongThread, "the capture ends in another thread than it began"),
    ERROR(cudaErrorDevicesUnavailable, "all devices are busy or unavailable"),
    ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error"),
    ERROR(cudaErrorNvlinkUncorrectable, "uncorrectable NVLink error"),
    ERROR(cudaErrorContained, "contained error"),
    ERROR(cudaErrorLaunchTimeout, "a launch timed out and was ended"),
    ERROR(cudaErrorHardwareStackError, "hardware stack error"),
    ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    ERROR(cudaErrorUnknown, "unknown error"),
#undef ERROR
};
static cudaError_t hc_error_of(const char *name) {
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(names[i].name, name)) return names[i].error;
    fprintf(stderr, "hostcuda: HOSTCUDA_FAIL: there is no error %s\n", name);
    abort();
}
EXPORT const char *cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < COUNT(names); i++)
        if (names[i].error == error) return names[i].name;
    return "unrecognized error code";
}
EXPORT const char *cudaGetErrorString(cudaError_t error) {
    for (size_t i = 0; i < COUNT(names); i++)
        if (names[i].error == error) return names[i].text;
    return "unrecognized error code";
}
