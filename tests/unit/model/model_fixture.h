/* A model built from config text into a graph of its own: what the tests of this folder begin with.
 */
#ifndef MODEL_FIXTURE_H
#define MODEL_FIXTURE_H

#include "../../support/names.h"
#include "graph/program.h"
#include "model/model.h"
#include "trainer/ops.h"

typedef struct {
    tr_device_t *device;
    tr_config_t *config;
    tr_graph_t *g;
    int program;
    tr_model_batch_t batch;
    tr_model_result_t result;
} model_fixture_t;

/* Opens the strict device, or cpu where that is not compiled in. Fails the test where it cannot. */
void fixture_open(model_fixture_t *f);
void fixture_open_on(model_fixture_t *f, const char *device, int threads);
void fixture_close(model_fixture_t *f);
/* Sets "model.layers" and the like. */
void fixture_set(model_fixture_t *f, const char *key, const char *value);
void fixture_load(model_fixture_t *f, const char *config_file);
/*
 * Begins a program with inputs x (the shape of a batch), sample_id, weight and y: labels where
 * classes > 0, targets (batch, -classes) where classes < 0, none where it is 0.
 */
void fixture_begin(model_fixture_t *f, const char *name, tr_mode_t mode, tr_shape_t x,
                   int64_t classes);
/* The same with labels (B, S...) of each position, or, where classes is 0, targets (B, S..., K). */
void fixture_begin_dense(model_fixture_t *f, const char *name, tr_mode_t mode, tr_shape_t x,
                         tr_shape_t y, int64_t classes);
tr_status_t fixture_build(model_fixture_t *f);
/* Elements of all parameters, padding not counted. */
int64_t fixture_parameters(const model_fixture_t *f);
/* Fails the test unless the last error is of `code` and its message has all of `names` (names.h).
 */
void fixture_expect_error(tr_status_t status, tr_status_t code, const char *names);

#endif
