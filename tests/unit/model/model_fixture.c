#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "model_fixture.h"

#include <stdio.h>
#include <string.h>

void fixture_open_on(model_fixture_t *f, const char *device, int threads) {
    static const tr_config_table_t *tables[2];
    const tr_model_t *sequential;
    tr_device_params_t params = {.threads = threads};
    memset(f, 0, sizeof *f);
    OK(tr_model_find("sequential", &sequential));
    tables[0] = &tr_model_config;
    tables[1] = sequential->config;
    OK(tr_config_create(tables, 2, &f->config));
    if (tr_device_open(device, &params, &f->device) != TR_OK)
        OK(tr_device_open("cpu", &params, &f->device));
    OK(tr_graph_create(f->device, &f->g));
}

void fixture_open(model_fixture_t *f) {
    fixture_open_on(f, "strict", 1);
}

void fixture_close(model_fixture_t *f) {
    tr_graph_destroy(&f->g);
    tr_device_close(&f->device);
    tr_config_destroy(&f->config);
}

void fixture_set(model_fixture_t *f, const char *key, const char *value) {
    tr_str_t text = {0};
    tr_str_printf(&text, "%s=%s", key, value);
    OK(tr_config_set(f->config, text.text, "test"));
    tr_str_free(&text);
    if (tr_config_check(f->config) != TR_OK) fail_msg("%s", tr_error_last()->message);
}

void fixture_load(model_fixture_t *f, const char *config_file) {
    if (tr_config_load_file(f->config, config_file) != TR_OK)
        fail_msg("%s", tr_error_last()->message);
}

static void add_field(model_fixture_t *f, const char *name, tr_dtype_t dtype, tr_shape_t shape) {
    tr_model_batch_t *batch = &f->batch;
    batch->name[batch->count] = name;
    OK(tr_input(f->g, name, dtype, &shape, &batch->tensor[batch->count++]));
}

void fixture_begin(model_fixture_t *f, const char *name, tr_mode_t mode, tr_shape_t x,
                   int64_t classes) {
    int64_t rows = x.dim[0];
    OK(tr_program_begin(f->g, name, mode, &f->program));
    f->batch = (tr_model_batch_t){.classes = classes > 0 ? classes : 0};
    add_field(f, "x", TR_F32, x);
    if (classes > 0) add_field(f, "y", TR_I32, TR_SHAPE(rows));
    if (classes < 0) add_field(f, "y", TR_F32, TR_SHAPE(rows, -classes));
    assert_int_equal(tr_input(f->g, "sample_id", TR_I64, &TR_SHAPE(rows), &f->batch.sample_id),
                     TR_OK);
    OK(tr_input(f->g, "weight", TR_F32, &TR_SHAPE(rows), &f->batch.weight));
}

void fixture_begin_dense(model_fixture_t *f, const char *name, tr_mode_t mode, tr_shape_t x,
                         tr_shape_t y, int64_t classes) {
    fixture_begin(f, name, mode, x, 0);
    f->batch.classes = classes;
    f->batch.is_dense = true;
    add_field(f, "y", classes > 0 ? TR_I32 : TR_F32, y);
}

tr_status_t fixture_build(model_fixture_t *f) {
    return tr_model_build(f->g, f->config, &f->batch, &f->result);
}

int64_t fixture_parameters(const model_fixture_t *f) {
    int64_t total = 0;
    for (int32_t id = 1; id <= tr_graph_tensor_count(f->g); id++) {
        const tr_tensor_t t = {id};
        if (tr_is_param(f->g, t)) total += tr_shape_elems(tr_shape_of(f->g, t));
    }
    return total;
}

void fixture_expect_error(tr_status_t status, tr_status_t code, const char *names) {
    const tr_error_t *error = tr_error_last();
    if (status != code || !names_all(error->message, names))
        fail_msg("expected %d with '%s', found %d: %s", (int)code, names, (int)status,
                 error->message);
    tr_error_clear();
}
