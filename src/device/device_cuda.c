/* cuda: the backend of libtrainer_cuda.so, which is loaded when it is first queried. */
#include "device/library.h"
#include "base/str.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libtrainer_cuda.so"
#define STUB    "trainer-cuda-stub/libcuda.so.1"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const tr_backend_t *loaded; /* NULL: `reason` says why not */
static char reason[1024];

/* The library beside the program, or in the lib folder beside the program's folder. */
static bool find_library(char path[PATH_MAX]) {
    static const char *const places[] = {"%s/" LIBRARY, "%s/../lib/" LIBRARY};
    char folder[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length <= 0) return false;
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (snprintf(path, PATH_MAX, places[i], folder) < PATH_MAX && access(path, R_OK) == 0)
            return true;
    return false;
}

/* libcuda without a GPU, beside the library; loaded before the library, so that cuDNN's own search
 * for libcuda finds it by its name. */
static tr_status_t load_stub(void) {
    const char *named = getenv("TRAINER_CUDA_LIBRARY");
    char library[PATH_MAX] = "", path[PATH_MAX + 64];
    if (named)
        snprintf(library, sizeof library, "%s", named);
    else if (!find_library(library))
        return TR_OK; /* loading the library says so */
    char *end = strrchr(library, '/');
    snprintf(path, sizeof path, "%.*s/" STUB, end ? (int)(end - library) : 1, end ? library : ".");
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL)) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "plan --gpu: cannot load %s, which `make` and `make install` put beside " LIBRARY
                   ": %s",
                   path, dlerror());
}

static void cuda_library_load(void) {
    const char *named = getenv("TRAINER_CUDA_LIBRARY");
    char path[PATH_MAX];
    if (!named && !find_library(path)) {
        snprintf(reason, sizeof reason,
                 "%s is not beside the program and not in its ../lib (a build with nvcc makes it; "
                 "TRAINER_CUDA_LIBRARY names another place)",
                 LIBRARY);
        return;
    }
    if (tr_library_load(named ? named : path, &loaded) == TR_OK) return;
    snprintf(reason, sizeof reason, "%.1000s", tr_error_last()->message);
    tr_error_clear();
}

/* A node without a GPU: the library and those of CUDA would take 0.3 s to load. */
static bool lacks_driver(void) {
    char path[PATH_MAX];
    if (getenv("TRAINER_CUDA_LIBRARY") || !find_library(path)) return false;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver) dlclose(driver);
    return !driver;
}

static const char *unavailable(void) {
    if (lacks_driver()) return "there is no NVIDIA driver";
    pthread_once(&once, cuda_library_load);
    if (!loaded) return reason;
    return loaded->unavailable ? loaded->unavailable() : NULL;
}

static tr_status_t fail_unless_loaded(void) {
    pthread_once(&once, cuda_library_load);
    return loaded ? TR_OK : TR_FAIL(TR_ERR_CONFIG, "device cuda: %s", reason);
}

static tr_status_t count(int *out) {
    TR_TRY(fail_unless_loaded());
    *out = 1;
    return loaded->count ? loaded->count(out) : TR_OK;
}

static void near_cores(int count, cpu_set_t *out) {
    if (loaded && loaded->near_cores) loaded->near_cores(count, out);
}

static tr_status_t open_device(const tr_device_params_t *params, tr_device_t **out) {
    if (params->model) TR_TRY(load_stub());
    TR_TRY(fail_unless_loaded());
    return loaded->open(params, out);
}

static tr_status_t cuda_library_report(tr_report_row_fn row, void *self) {
    TR_TRY(fail_unless_loaded());
    return loaded->report ? loaded->report(row, self) : TR_OK;
}

static int cuda_library_sample(const char *bus_id, tr_gpu_sample_t *out, int most) {
    pthread_once(&once, cuda_library_load);
    return loaded && loaded->sample ? loaded->sample(bus_id, out, most) : 0;
}

const tr_backend_t tr_backend_cuda = {
    .name = "cuda",
    .help = "NVIDIA GPUs, by " LIBRARY,
    .unavailable = unavailable,
    .count = count,
    .near_cores = near_cores,
    .open = open_device,
    .report = cuda_library_report,
    .sample = cuda_library_sample,
};
