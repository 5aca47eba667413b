/* Losses and their gradients, one row at a time. A row of weight 0 gives 0 whatever it contains,
 * because masked rows may contain anything. */
#include "cpu_loss.h"
#include "device/cpu/cpu_math.h"

/* Operations per element, relative to a copy. */
enum { COST_EXP = 8 };

typedef struct {
    int64_t rows, width;
} rows_t;

static rows_t cpu_loss_rows_of(const tr_view_t *view) {
    rows_t r = {.width = view->shape.dim[view->shape.ndim - 1]};
    r.rows = tr_shape_elems(&view->shape) / r.width;
    return r;
}

static double row_mean(const float *x, int64_t width) {
    double sum = 0;
    CPU_LANE_SUM_DOUBLE(sum, width, i, x[i]);
    return sum / (double)width;
}

CPU_KERNEL(xent_fwd) {
    double smoothing = ((const tr_xent_attr_t *)call->attr)->smoothing;
    rows_t r = cpu_loss_rows_of(&call->in[0]);
    const float *weight = call->in[2].data;
    float *loss = call->out[0].data, *lse = call->out[1].data;
#pragma omp parallel for num_threads(cpu_threads(device, r.rows *r.width *COST_EXP))               \
    schedule(static)
    for (int64_t i = 0; i < r.rows; i++) {
        const float *x = (const float *)call->in[0].data + i * r.width;
        int64_t label = cpu_label(&call->in[1], i);
        double exact = cpu_log_sum_exp(x, r.width);
        lse[i] = (float)exact;
        if (label == -1 || weight[i] == 0.0f) {
            loss[i] = 0.0f;
        } else if (label < 0 || label >= r.width) {
            loss[i] = NAN;
        } else {
            double smooth = smoothing > 0 ? smoothing * row_mean(x, r.width) : 0;
            double target = (1 - smoothing) * x[label] + smooth;
            loss[i] = (float)(weight[i] * (exact - target));
        }
    }
    return TR_OK;
}

/* dlogits = dloss weight (softmax - target), for one row. */
static void xent_row_backward(const float *x, int64_t width, int64_t label, float factor, float lse,
                              float smoothing, float *dx) {
    float off = smoothing / (float)width;
    if (label == -1 || factor == 0.0f) {
        for (int64_t j = 0; j < width; j++) dx[j] = 0.0f;
        return;
    }
    if (label < 0 || label >= width) factor = NAN;
#pragma omp simd
    for (int64_t j = 0; j < width; j++) dx[j] = factor * (cpu_exp_nonpositive(x[j] - lse) - off);
    if (label >= 0 && label < width) dx[label] -= factor * (1.0f - smoothing);
}

CPU_KERNEL(xent_bwd) {
    float smoothing = ((const tr_xent_attr_t *)call->attr)->smoothing;
    rows_t r = cpu_loss_rows_of(&call->in[0]);
    const float *weight = call->in[2].data, *lse = call->in[3].data, *dloss = call->in[4].data;
#pragma omp parallel for num_threads(cpu_threads(device, r.rows *r.width *COST_EXP))               \
    schedule(static)
    for (int64_t i = 0; i < r.rows; i++) {
        const float *x = (const float *)call->in[0].data + i * r.width;
        float *dx = (float *)call->out[0].data + i * r.width;
        float factor = weight[i] == 0.0f ? 0.0f : weight[i] * dloss[i];
        xent_row_backward(x, r.width, cpu_label(&call->in[1], i), factor, lse[i], smoothing, dx);
    }
    return TR_OK;
}

/* The two kernels of a regression loss, a mean over the elements of a row. value(y, t) and slope(y,
 * t) of a prediction y and a target t. */
#define NUMBERS_LOSS(name, cost, settings, value, slope)                                           \
    CPU_KERNEL(name##_fwd) {                                                                       \
        settings;                                                                                  \
        const rows_t r = cpu_loss_rows_of(&call->in[0]);                                           \
        const float *weight = call->in[2].data;                                                    \
        float *loss = call->out[0].data;                                                           \
        const int threads = cpu_threads(device, r.rows * r.width * (cost));                        \
        _Pragma("omp parallel for num_threads(threads) schedule(static)") for (int64_t i = 0;      \
                                                                               i < r.rows; i++) {  \
            const float *ys = (const float *)call->in[0].data + i * r.width;                       \
            const float *ts = (const float *)call->in[1].data + i * r.width;                       \
            double sum = 0;                                                                        \
            CPU_LANE_SUM(sum, r.width, j, value(ys[j], ts[j]));                                    \
            loss[i] = weight[i] == 0.0f ? 0.0f : (float)(weight[i] * (sum / (double)r.width));     \
        }                                                                                          \
        return TR_OK;                                                                              \
    }                                                                                              \
    CPU_KERNEL(name##_bwd) {                                                                       \
        settings;                                                                                  \
        const rows_t r = cpu_loss_rows_of(&call->in[0]);                                           \
        const float *weight = call->in[2].data, *dloss = call->in[3].data;                         \
        const int threads = cpu_threads(device, r.rows * r.width * (cost));                        \
        _Pragma("omp parallel for num_threads(threads) schedule(static)") for (int64_t i = 0;      \
                                                                               i < r.rows; i++) {  \
            const float *ys = (const float *)call->in[0].data + i * r.width;                       \
            const float *ts = (const float *)call->in[1].data + i * r.width;                       \
            float *dy = (float *)call->out[0].data + i * r.width;                                  \
            const bool live = weight[i] != 0.0f;                                                   \
            const float factor = live ? weight[i] * dloss[i] / (float)r.width : 0.0f;              \
            _Pragma("omp simd") for (int64_t j = 0; j < r.width; j++) dy[j] =                      \
                live ? factor * slope(ys[j], ts[j]) : 0.0f;                                        \
        }                                                                                          \
        return TR_OK;                                                                              \
    }

#define SQUARED(y, t)       (((y) - (t)) * ((y) - (t)))
#define SQUARED_SLOPE(y, t) (2.0f * ((y) - (t)))
NUMBERS_LOSS(mse, 1, , SQUARED, SQUARED_SLOPE)

#define ABSOLUTE(y, t)       fabsf((y) - (t))
#define ABSOLUTE_SLOPE(y, t) ((y) > (t) ? 1.0f : (y) < (t) ? -1.0f : 0.0f * ((y) - (t)))
NUMBERS_LOSS(mae, 1, , ABSOLUTE, ABSOLUTE_SLOPE)

/* The error clamped to [-delta, delta]. NaN stays. */
CPU_INLINE float within(float error, float delta) {
    return error > delta ? delta : error < -delta ? -delta : error;
}
CPU_INLINE float huber(float error, float delta) {
    float inner = within(error, delta);
    return inner * (error - 0.5f * inner);
}
#define HUBER(y, t)       huber((y) - (t), delta)
#define HUBER_SLOPE(y, t) within((y) - (t), delta)
NUMBERS_LOSS(huber, 1, const float delta = ((const tr_huber_attr_t *)call->attr)->delta, HUBER,
             HUBER_SLOPE)

/* Uses the exponential of a nonpositive number, so that nothing overflows. */
CPU_INLINE float bce(float y, float t) {
    float above = y < 0.0f ? 0.0f : y;
    return above - y * t + log1pf(cpu_exp_nonpositive(-fabsf(y)));
}
#define BCE_SLOPE(y, t) (cpu_sigmoid(y) - (t))
NUMBERS_LOSS(bce, COST_EXP, , bce, BCE_SLOPE)

CPU_KERNEL(class_weight) {
    const int64_t rows = tr_shape_elems(&call->in[0].shape),
                  classes = tr_shape_elems(&call->in[2].shape);
    const float *weight = call->in[0].data, *of_class = call->in[2].data;
    float *out = call->out[0].data;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t label = cpu_label(&call->in[1], i);
        out[i] = label == -1                     ? 0.0f
                 : label >= 0 && label < classes ? weight[i] * of_class[label]
                                                 : NAN;
    }
    return TR_OK;
}
