/*
 * A bare graph: a few ops, their gradients, and one run, without configuration, data set or MPI.
 * The program is valid C and C++.
 *
 *     cc graph.c $(pkg-config --cflags --libs trainer) -o graph && ./graph [DEVICE]
 *
 * loss = mean over the samples of the mean squared error of relu(x w^T + b). The gradients of w and
 * b are printed beside those of the formula that one derives by hand.
 */
#include <trainer.h>

#include <math.h>
#include <stdio.h>

enum { B = 4, F = 2, K = 3 }; /* samples, inputs, outputs */

static const float x_values[B][F] = {{1, 2}, {-1, 0.5f}, {0.25f, -2}, {3, 1}};
static const float target_values[B][K] = {{1, 0, 2}, {0, 1, 0}, {0.5f, 2, 1}, {1, 1, 1}};

typedef struct {
    int program;
    tr_tensor_t x, target, w, b, loss;
} net_t;

/* Appends the ops and their gradients, and gives the graph its memory. */
static tr_status_t build(tr_graph_t *g, net_t *n) {
    const tr_init_t init = {TR_INIT_NORMAL, 0.5};
    const tr_param_spec_t spec = {init, true, false, 1}; /* trainable, no decay, lr_factor 1 */
    tr_tensor_t y, weight, seed;
    TR_TRY(tr_program_begin(g, "train", TR_TRAIN, &n->program));
    TR_TRY(tr_input(g, "x", TR_F32, &TR_SHAPE(B, F), &n->x));
    TR_TRY(tr_input(g, "target", TR_F32, &TR_SHAPE(B, K), &n->target));
    TR_TRY(tr_param(g, "w", &TR_SHAPE(K, F), &spec, &n->w));
    TR_TRY(tr_param(g, "b", &TR_SHAPE(K), &spec, &n->b));
    TR_TRY(tr_linear(g, n->x, n->w, n->b, TR_ACT_RELU, &y));
    TR_TRY(tr_const(g, "weight", &TR_SHAPE(B), 1, &weight)); /* of each sample */
    TR_TRY(tr_mse(g, y, n->target, weight, &n->loss));       /* (B) */
    TR_TRY(tr_keep(g, n->loss));                             /* so that it can be read */
    TR_TRY(tr_const(g, "seed", &TR_SHAPE(B), 1.0 / B, &seed));
    TR_TRY(tr_backward(g, n->loss, seed, false));
    TR_TRY(tr_program_end(g));
    TR_TRY(tr_graph_plan(g, 0));
    TR_TRY(tr_graph_allocate(g));
    return tr_graph_init_params(g, 1);
}

/* The same by hand: dz = seed 2/K (y - target) where y > 0; dw = dz^T x; db = the sum of dz. */
static void by_hand(const float w[K][F], const float b[K], float dw[K][F], float db[K]) {
    for (int k = 0; k < K; k++) {
        db[k] = 0;
        for (int f = 0; f < F; f++) dw[k][f] = 0;
        for (int i = 0; i < B; i++) {
            float z = b[k];
            for (int f = 0; f < F; f++) z += x_values[i][f] * w[k][f];
            const float dz = z > 0 ? 2.0f / K / B * (z - target_values[i][k]) : 0;
            for (int f = 0; f < F; f++) dw[k][f] += dz * x_values[i][f];
            db[k] += dz;
        }
    }
}

static tr_status_t run(tr_graph_t *g) {
    net_t n;
    float w[K][F], b[K], dw[K][F], db[K], hand_dw[K][F], hand_db[K], loss[B];
    TR_TRY(build(g, &n));
    TR_TRY(tr_tensor_write(g, n.x, x_values));
    TR_TRY(tr_tensor_write(g, n.target, target_values));
    TR_TRY(tr_graph_run(g, n.program));
    TR_TRY(tr_tensor_read(g, n.w, w));
    TR_TRY(tr_tensor_read(g, n.b, b));
    TR_TRY(tr_tensor_read(g, n.loss, loss));
    TR_TRY(tr_tensor_read(g, tr_gradient(g, n.w), dw));
    TR_TRY(tr_tensor_read(g, tr_gradient(g, n.b), db));
    by_hand(w, b, hand_dw, hand_db);
    printf("loss %.6f\n", (loss[0] + loss[1] + loss[2] + loss[3]) / B);
    for (int k = 0; k < K; k++) {
        printf("dw[%d] %9.6f %9.6f  by hand %9.6f %9.6f\n", k, dw[k][0], dw[k][1], hand_dw[k][0],
               hand_dw[k][1]);
        printf("db[%d] %9.6f            by hand %9.6f\n", k, db[k], hand_db[k]);
        for (int f = 0; f < F; f++)
            if (!(fabsf(dw[k][f] - hand_dw[k][f]) < 1e-5f))
                return TR_FAIL(TR_ERR_INTERNAL, "the gradient of w[%d][%d] is wrong", k, f);
        if (!(fabsf(db[k] - hand_db[k]) < 1e-5f))
            return TR_FAIL(TR_ERR_INTERNAL, "the gradient of b[%d] is wrong", k);
    }
    return TR_OK;
}

int main(int argc, char **argv) {
    tr_device_t *device = NULL;
    tr_graph_t *g = NULL;
    tr_status_t status = tr_device_open(argc > 1 ? argv[1] : "cpu", NULL, &device);
    if (status == TR_OK) status = tr_graph_create(device, &g);
    if (status == TR_OK) status = run(g);
    if (status != TR_OK) fprintf(stderr, "graph: %s\n", tr_error_last()->message);
    tr_graph_destroy(&g);
    tr_device_close(&device);
    return status;
}
