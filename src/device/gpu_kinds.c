/* The table of the kinds of GPU. */
#include "gpu_kinds.h"
#include "base/mem.h"

#include <strings.h>

#define GB 1e9
#define TF 1e12

/*
 * Rates, memory and bandwidths: NVIDIA's data sheets, named in each row, dense where they give both.
 * H200 and B200: of an HGX board with 8 GPUs, its figures divided by 8. A10G: the data sheet that
 * AWS publishes. memory_bytes: what frameworks report on such GPUs, ECC subtracted. Clocks only
 * order cuDNN's engines. Network: DGX A100 has 200 Gb/s for each GPU, DGX H100, H200 and B200 400;
 * for GPUs that are sold as PCIe cards 100 Gb/s are assumed.
 */
static const tr_gpu_kind_t rows[] = {
    {"t4", "NVIDIA T4", 75, 40, 1590000, 5001000, 4194304, 15640000000, 320 * GB, 8.1 * TF, 0,
     65 * TF, 0, 16 * GB, false, 12.5 * GB, "NVIDIA T4 data sheet"},
    {"a10g", "NVIDIA A10G", 86, 80, 1710000, 6251000, 6291456, 23670000000, 600 * GB, 35 * TF,
     35 * TF, 70 * TF, 70 * TF, 32 * GB, false, 12.5 * GB, "NVIDIA A10G data sheet (AWS)"},
    {"l4", "NVIDIA L4", 89, 58, 2040000, 6251000, 50331648, 23650000000, 300 * GB, 30.3 * TF,
     60 * TF, 121 * TF, 121 * TF, 32 * GB, false, 12.5 * GB, "NVIDIA L4 data sheet"},
    {"l40s", "NVIDIA L40S", 89, 142, 2520000, 9001000, 100663296, 47580000000, 864 * GB, 91.6 * TF,
     183 * TF, 362 * TF, 362 * TF, 32 * GB, false, 12.5 * GB, "NVIDIA L40S data sheet"},
    {"a100", "NVIDIA A100-SXM4-80GB", 80, 108, 1410000, 1593000, 41943040, 85100000000, 2039 * GB,
     19.5 * TF, 156 * TF, 312 * TF, 312 * TF, 300 * GB, true, 25 * GB, "NVIDIA A100 data sheet"},
    {"h100", "NVIDIA H100 80GB HBM3", 90, 132, 1980000, 2619000, 52428800, 85017493504, 3350 * GB,
     67 * TF, 494.7 * TF, 989.4 * TF, 989.4 * TF, 450 * GB, true, 50 * GB,
     "NVIDIA H100 data sheet, SXM"},
    {"h200", "NVIDIA H200", 90, 132, 1980000, 3201000, 62914560, 150109880320, 4800 * GB, 67 * TF,
     494.7 * TF, 989.4 * TF, 989.4 * TF, 450 * GB, true, 50 * GB, "NVIDIA H200 data sheet, SXM"},
    {"b200", "NVIDIA B200", 100, 148, 1965000, 3996000, 132644864, 191500000000, 7700 * GB, 75 * TF,
     1100 * TF, 2250 * TF, 2250 * TF, 900 * GB, true, 50 * GB, "NVIDIA HGX B200 data sheet"},
};

/* CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the toolkit's
 * cuda_occupancy.h has the same blocks. */
static const tr_gpu_limits_t limits[] = {
    {75, 1024, 16, 65536},  {80, 2048, 32, 166912},  {86, 1536, 16, 101376}, {89, 1536, 24, 101376},
    {90, 2048, 32, 232448}, {100, 2048, 32, 232448}, {120, 1536, 24, 101376}};

tr_status_t tr_gpu_kind_find(const char *name, const tr_gpu_kind_t **out) {
    static const char *const too_old[] = {"v100", "p100", "p4", "p40", "k80", "m60"};
    for (size_t i = 0; i < TR_COUNT(rows); i++)
        if (strcasecmp(rows[i].name, name) == 0) return *out = &rows[i], TR_OK;
    for (size_t i = 0; i < TR_COUNT(too_old); i++)
        if (strcasecmp(too_old[i], name) == 0)
            return TR_FAIL(TR_ERR_USAGE,
                           "GPU '%s' is older than compute capability 7.5, where CUDA 13 begins; "
                           "use device = cpu there, or one of " TR_GPU_KINDS,
                           name);
    return TR_FAIL(TR_ERR_USAGE, "unknown GPU '%s': expected one of " TR_GPU_KINDS, name);
}

const tr_gpu_kind_t *tr_gpu_kind_at(size_t index) {
    return index < TR_COUNT(rows) ? &rows[index] : NULL;
}

const tr_gpu_limits_t *tr_gpu_limits_of(int capability) {
    for (size_t i = 0; i < TR_COUNT(limits); i++)
        if (limits[i].capability == capability) return &limits[i];
    return NULL;
}
