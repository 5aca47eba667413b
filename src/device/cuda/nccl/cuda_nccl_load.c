/* Finds libnccl and its functions. */
#include "cuda_nccl.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LIBRARY "libnccl.so.2"
/* The first version with ncclCommSplit. */
#define LEAST_NCCL 21800

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cuda_nccl_t nccl;
static char reason[1024]; /* "": loaded */

static void nccl_load(void) {
    const char *named = getenv("TRAINER_NCCL_LIBRARY"), *missing = NULL;
    void *library = dlopen(named ? named : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    Dl_info info;
    if (!library) {
        snprintf(reason, sizeof reason, "NCCL cannot be loaded: %.900s", dlerror());
        return;
    }
#define NCCL_FIND(name) nccl.name = (__typeof__(nccl.name))dlsym(library, "nccl" #name);
    NCCL_REQUIRED(NCCL_FIND)
    NCCL_OPTIONAL(NCCL_FIND)
#undef NCCL_FIND
#define NCCL_CHECK(name)                                                                           \
    if (!nccl.name && !missing) missing = "nccl" #name;
    NCCL_REQUIRED(NCCL_CHECK)
#undef NCCL_CHECK
    if (nccl.GetVersion && dladdr((void *)nccl.GetVersion, &info))
        snprintf(nccl.path, sizeof nccl.path, "%s", info.dli_fname);
    if (nccl.GetVersion) (void)nccl.GetVersion(&nccl.version);
    if (nccl.version < LEAST_NCCL)
        snprintf(reason, sizeof reason, "NCCL is %d.%d.%d (%.500s), and 2.18 or later is needed",
                 nccl.version / 10000, nccl.version / 100 % 100, nccl.version % 100, nccl.path);
    else if (missing)
        snprintf(reason, sizeof reason, "NCCL (%.500s) has no function %s", nccl.path, missing);
}

const cuda_nccl_t *tr_cuda_nccl_load(const char **out_reason) {
    pthread_once(&once, nccl_load);
    *out_reason = *reason ? reason : NULL;
    return *reason ? NULL : &nccl;
}
