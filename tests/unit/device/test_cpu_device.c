/* The registry of devices, and the cpu device apart from its kernels. */
//TEST
//TEST OMP_THREAD_LIMIT=1
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "../../support/names.h"
#include "device/device.h"
#include "base/mem.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tr_device_t *open_cpu(int threads) {
    tr_device_t *device = NULL;
    const tr_device_params_t params = {.threads = threads};
    OK(tr_device_open("cpu", &params, &device));
    return device;
}

static void registry_opens_by_name(void **state) {
    size_t count = 0;
    const tr_backend_t *const *list = tr_backend_list(&count);
    tr_device_t *device = NULL;
    size_t best = 0;
    while (best < count && list[best]->unavailable && list[best]->unavailable()) best++;
    assert_true(best < count);
    OK(tr_device_open("auto", NULL, &device));
    assert_string_equal(device->ops->name, list[best]->name);
    tr_device_close(&device);
    assert_null(device);
    tr_device_close(&device);
    assert_int_equal(tr_device_open("gpu", NULL, &device), TR_ERR_CONFIG);
    assert_error_names("'gpu' & auto & cuda & cpu");
    assert_null(device);
    const tr_device_params_t negative = {.threads = -1};
    assert_int_equal(tr_device_open("cpu", &negative, &device), TR_ERR_CONFIG);
}

static void kernels_are_all_there_and_gaps_are_named(void **state) {
    tr_device_t *device = open_cpu(1);
    OK(tr_device_check_kernels(device->ops));
    assert_string_equal(tr_kernel_name(TR_K_CONV_BWD_DATA), "CONV_BWD_DATA");
    assert_string_equal(tr_kernel_name(TR_K_NONE), "NONE");
    tr_kernel_t kernels[TR_K_COUNT];
    memcpy(kernels, device->ops->kernels, sizeof kernels);
    kernels[TR_K_MATMUL].run = NULL;
    kernels[TR_K_SGD].run = NULL;
    tr_device_ops_t ops = *device->ops;
    ops.kernels = kernels;
    assert_int_equal(tr_device_check_kernels(&ops), TR_ERR_INTERNAL);
    assert_error_names("MATMUL & SGD");
    tr_device_close(&device);
}

static void facts_are_those_of_the_rows(void **state) {
    int linear = 0, launches = 0;
    for (int id = 0; id < TR_K_COUNT; id++) {
        const tr_kernel_facts_t *facts = tr_kernel_facts((tr_kernel_id_t)id);
        assert_in_range(facts->kind, 0, TR_KERNEL_OTHER);
        if (facts->kind == TR_KERNEL_PRODUCT) assert_int_equal(facts->linear_inputs, 2);
        linear += facts->linear_inputs;
        launches += facts->launches;
    }
    assert_int_equal(linear, 13);
    assert_int_equal(launches, 43);
    assert_true(tr_kernel_facts(TR_K_MATMUL)->is_required);
    assert_false(tr_kernel_facts(TR_K_HEAD_LOSS)->is_required);
    assert_int_equal(tr_kernel_facts(TR_K_HEAD_LOSS)->kind, TR_KERNEL_HEAD);
    assert_int_equal(tr_kernel_facts(TR_K_LAYERNORM_BWD)->rereads, 1);
    assert_int_equal(tr_kernel_facts(TR_K_ADD)->in_place, 3);
    assert_int_equal(tr_kernel_facts(TR_K_BATCHNORM_ADD_BWD)->in_place, 1 << 24);
}

/* OMP_THREAD_LIMIT allows no more, and is read as the process begins. */
static int allowed(int threads) {
    return threads < omp_get_thread_limit() ? threads : omp_get_thread_limit();
}

static void threads_are_what_was_asked_for_and_allowed(void **state) {
    char text[32];
    tr_device_t *device = open_cpu(3);
    assert_int_equal(device->threads, allowed(3));
    snprintf(text, sizeof text, "%d", allowed(3));
    assert_names(device->description, text);
    tr_device_close(&device);
    assert_int_equal(setenv("OMP_NUM_THREADS", "2,1", 1), 0);
    device = open_cpu(0);
    assert_int_equal(device->threads, allowed(2));
    tr_device_close(&device);
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    device = open_cpu(0);
    assert_in_range(device->threads, 1, omp_get_num_procs());
    assert_true(device->memory_bytes > 1 << 20);
    tr_device_close(&device);
}

static void memory_is_aligned_counted_copied_and_zeroed(void **state) {
    static const size_t sizes[] = {0, 1, 255, 1000, (1 << 20) - 1, (3 << 20) + 77};
    tr_device_t *device = open_cpu(2);
    int64_t live = tr_mem_stats().live;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *a = NULL, *b = NULL;
        assert_int_equal(device->ops->alloc(device, sizes[i], 0, (void **)&a), TR_OK);
        assert_int_equal(device->ops->host_alloc(device, sizes[i] + 1, (void **)&b), TR_OK);
        assert_int_equal((uintptr_t)a % 256, 0);
        assert_int_equal((uintptr_t)b % 256, 0);
        assert_int_equal(tr_mem_stats().live, live + 2);
        for (size_t j = 0; j < sizes[i]; j++) a[j] = (unsigned char)(j * 7 + j / 251);
        b[sizes[i]] = 0xA5;
        assert_int_equal(device->ops->copy(device, NULL, b, a, sizes[i], TR_COPY_ON_DEVICE), TR_OK);
        assert_memory_equal(a, b, sizes[i]);
        assert_int_equal(device->ops->zero(device, NULL, b, sizes[i]), TR_OK);
        for (size_t j = 0; j < sizes[i]; j++) assert_int_equal(b[j], 0);
        assert_int_equal(b[sizes[i]], 0xA5);
        device->ops->free(device, a);
        device->ops->host_free(device, b);
    }
    assert_int_equal(tr_mem_stats().live, live);
    tr_device_close(&device);
}

static void denormals_are_zero_on_every_thread(void **state) {
    tr_device_t *device = open_cpu(2);
    volatile float smallest = 1.17549435e-38f;
    int flushed = 0;
#pragma omp parallel num_threads(2) reduction(+ : flushed)
    flushed += smallest * 0.5f == 0.0f;
    assert_int_equal(flushed, device->threads);
    tr_device_close(&device);
}

static void peak_is_measured(void **state) {
    double flops = 0, bytes = 0;
    tr_device_t *device = open_cpu(1);
    int64_t live = tr_mem_stats().live;
    assert_int_equal(device->ops->measure_peak(device, TR_F32, &flops, &bytes), TR_OK);
    assert_true(flops > 1e6 && flops < 1e15);
    assert_true(bytes > 1e6 && bytes < 1e15);
    assert_int_equal(tr_mem_stats().live, live);
    tr_device_close(&device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registry_opens_by_name),
        cmocka_unit_test(kernels_are_all_there_and_gaps_are_named),
        cmocka_unit_test(facts_are_those_of_the_rows),
        cmocka_unit_test(threads_are_what_was_asked_for_and_allowed),
        cmocka_unit_test(memory_is_aligned_counted_copied_and_zeroed),
        cmocka_unit_test(denormals_are_zero_on_every_thread),
        cmocka_unit_test(peak_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
