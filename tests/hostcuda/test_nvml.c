/* The fake libnvidia-ml, as a program finds it: by dlopen. */
#include "hostcuda_test.h"
#include <dlfcn.h>

static int (*call(void *library, const char *name))() {
    int (*function)() = (int (*)())dlsym(library, name);
    assert_non_null(function);
    return function;
}

static int asks(void) {
    void *ml = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device[2];
    char text[96], bus[32];
    unsigned n = 0;
    struct cudaDeviceProp prop;
    assert_non_null(ml);
    assert_int_equal(call(ml, "nvmlDeviceGetCount_v2")(&n), 1); /* not initialized */
    OK(call(ml, "nvmlInit_v2")());
    OK(call(ml, "nvmlDeviceGetCount_v2")(&n));
    assert_int_equal(n, 2); /* also the device that CUDA does not see */
    for (unsigned i = 0; i < 2; i++) OK(call(ml, "nvmlDeviceGetHandleByIndex_v2")(i, &device[i]));
    assert_int_equal(call(ml, "nvmlDeviceGetName")(device[0], text, 4), 7);
    OK(call(ml, "nvmlDeviceGetName")(device[0], text, sizeof text));
    OK(cudaGetDeviceProperties(&prop, 0));
    assert_string_equal(text, prop.name);
    OK(call(ml, "nvmlDeviceGetUUID")(device[1], text, sizeof text));
    unsigned byte = 0;
    sscanf(text, "GPU-%2x", &byte);
    assert_int_equal(byte, (unsigned char)prop.uuid.bytes[0]); /* CUDA's device 0 is NVML's 1 */
    void *found = NULL;
    OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    OK(call(ml, "nvmlDeviceGetHandleByPciBusId_v2")(bus, &found));
    assert_ptr_equal(found, device[1]);
    OK(call(ml, "nvmlShutdown")());
    return 0;
}
static int two_devices(void) {
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    return asks();
}
static int no_driver(void) {
    void *ml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    return !ml || call(ml, "nvmlInit_v2")() != 9;
}

static void test_nvml(void **state) {
    OK(in_child("HOSTCUDA_DEVICES", "2", two_devices));
    OK(in_child("HOSTCUDA_DEVICES", "0", no_driver));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nvml)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
