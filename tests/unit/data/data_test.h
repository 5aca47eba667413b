/* What the tests of the data floor share. */
#ifndef DATA_TEST_H
#define DATA_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include "../../support/names.h"
#include "device/device.h"
#include "data/loader.h"

/* A new folder, empty, for rmdir; false: it cannot be made. */
bool test_folder_make(char path[512]);
/* A device that is nothing but its host memory. */
extern tr_device_t test_device;
/* Settings as they are when nothing is configured. */
tr_data_settings_t test_settings(void);

/* A data set in memory: x is the sample's id as `width` int64, y its id as i32. Fails at sample
 * `bad` (-1: never). */
typedef struct {
    tr_dataset_t base;
    int64_t bad, reads;
} test_dataset_t;
void test_dataset_make(test_dataset_t *self, int64_t samples, int64_t width);

#endif
