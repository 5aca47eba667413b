/* In place of a profiler (NVTX_INJECTION64_PATH=libnvtx_log.so): prints the name of every range that
 * begins to stderr, with as many spaces before it as ranges are open. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

static _Thread_local int depth;

static int push(const char *name) {
    fprintf(stderr, "nvtx:%*s %s\n", depth, "", name);
    return depth++;
}
static int pop(void) {
    return --depth;
}

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    NvtxFunctionTable functions = NULL;
    unsigned count = 0;
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count))
        return 0;
    *functions[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *functions[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
