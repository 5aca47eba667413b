/* Sets of instructions: which ones the processor has, and the kernels of one. Compiled for any
 * processor of the architecture, because it is also run where the rest of the program cannot be. */
#include "cpu_int.h"
#include "cpu_onednn.h"
#include "device/isa.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* The tables of this build, lowest set first: TABLE(name) for each. */
#ifndef CPU_TABLES
#define CPU_TABLES TABLE(tr_cpu_kernels)
#endif
#define TABLE(name) extern const cpu_kernels_t name;
CPU_TABLES
#undef TABLE
#define TABLE(name) &name,
static const cpu_kernels_t *const tables[] = {CPU_TABLES};
#undef TABLE
enum { TABLES = sizeof tables / sizeof *tables };

static const char *const names[] = {
#if defined(__x86_64__)
    [CPU_ISA_BASE] = "x86-64",          [CPU_ISA_V3] = "x86-64-v3",
    [CPU_ISA_V4] = "x86-64-v4",         [CPU_ISA_V4_BF16] = "x86-64-v4+bf16",
    [CPU_ISA_V4_AMX] = "x86-64-v4+amx",
#elif defined(__aarch64__)
    [CPU_ISA_BASE] = "armv8-a",
    [CPU_ISA_SVE] = "armv8.2-a+sve",
#else
    [CPU_ISA_BASE] = "generic",
#endif
};

static atomic_int limit = -1, used = -1; /* of the process, as oneDNN's limit is */

#if defined(__x86_64__)
/* The state of AMX is saved by the system: bits 17 and 18 of XCR0. */
static bool saves_tiles(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> 17 & 3) == 3;
}

static int isa_of_processor(int64_t *out_features) {
    enum { AMX_BITS = 1 << 22 | 1 << 24 | 1 << 25 }; /* bf16, tiles, int8 */
    unsigned a, b = 0, c = 0, d = 0, more = 0, none;
    __builtin_cpu_init();
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1)
        __get_cpuid_count(7, 1, &more, &none, &none, &none);
    *out_features = (int64_t)(((uint64_t)b << 32 | c) ^ (uint64_t)d << 16 ^ more) & INT64_MAX;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
        return CPU_ISA_BASE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return CPU_ISA_V3;
    if (!__builtin_cpu_supports("avx512bf16")) return CPU_ISA_V4;
    return (d & AMX_BITS) == AMX_BITS && saves_tiles() ? CPU_ISA_V4_AMX : CPU_ISA_V4_BF16;
}
#elif defined(__aarch64__)
static int isa_of_processor(int64_t *out_features) {
    *out_features = (int64_t)((getauxval(AT_HWCAP) ^ getauxval(AT_HWCAP2) << 32) & INT64_MAX);
    return getauxval(AT_HWCAP) & HWCAP_SVE ? CPU_ISA_SVE : CPU_ISA_BASE;
}
#else
static int isa_of_processor(int64_t *out_features) {
    *out_features = 0;
    return CPU_ISA_BASE;
}
#endif

const char *tr_isa_name(int set) {
    return names[set];
}

const char *tr_isa_built(int i) {
    return i < TABLES ? names[tables[i]->isa] : NULL;
}

bool tr_isa_suffices(char *why, size_t why_bytes) {
    int64_t features;
    const int found = isa_of_processor(&features);
    snprintf(why, why_bytes,
             "this build of trainer needs a processor with %s, and this one has %s: build it on a "
             "machine like this one%s",
             names[tables[0]->isa], names[found],
             TABLES > 1 ? "" : ", or for several kinds with ARCH=portable");
    return found >= tables[0]->isa;
}

tr_status_t tr_isa_find(tr_isa_t *out) {
    const char *wanted = getenv("TRAINER_ISA");
    char choices[128] = "", why[256];
    if (!tr_isa_suffices(why, sizeof why)) return TR_FAIL(TR_ERR_CONFIG, "%s", why);
    *out = (tr_isa_t){.is_limited = wanted && *wanted};
    out->set = out->processor = isa_of_processor(&out->features);
    if (!out->is_limited) return TR_OK;
    for (int set = tables[0]->isa; set <= out->processor; set++) {
        if (strcmp(wanted, names[set]) == 0) {
            out->set = set;
            return TR_OK;
        }
        snprintf(choices + strlen(choices), sizeof choices - strlen(choices), "%s%s",
                 *choices ? ", " : "", names[set]);
    }
    return TR_FAIL(TR_ERR_CONFIG,
                   "TRAINER_ISA: expected a set of instructions that this processor and this build "
                   "have (%s), found '%s'; without TRAINER_ISA the last of them is used",
                   choices, wanted);
}

bool tr_isa_limit(int set) {
    return atomic_exchange(&limit, set) != set;
}

int tr_isa_used(void) {
    return used;
}

tr_status_t tr_cpu_isa_enter(const cpu_kernels_t **out) {
    tr_isa_t isa;
    TR_TRY(tr_isa_find(&isa));
    const int most = limit, set = most >= 0 && most < isa.set ? most : isa.set;
    if (most >= 0 || isa.is_limited) tr_cpu_dnn_limit(set);
    *out = tables[0];
    for (int i = 1; i < TABLES; i++)
        if (tables[i]->isa <= set) *out = tables[i];
    used = set;
    return TR_OK;
}
