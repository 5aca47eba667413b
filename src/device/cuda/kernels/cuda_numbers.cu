/* Losses of numbers, a mean over each row's elements, and the weights of classes. */
#include "cuda_rows.cuh"

/* The loss of a prediction y for a target t, and its slope. */
struct squared_t {
    __device__ float value(float y, float t) const { return (y - t) * (y - t); }
    __device__ float slope(float y, float t) const { return 2.0f * (y - t); }
};

/* The slope of NaN is NaN. */
struct absolute_t {
    __device__ float value(float y, float t) const { return fabsf(y - t); }
    __device__ float slope(float y, float t) const {
        return y > t ? 1.0f : y < t ? -1.0f : 0.0f * (y - t);
    }
};

struct huber_t {
    float delta;
    /* The part of the error within delta. A NaN stays. */
    __device__ float slope(float y, float t) const {
        const float error = y - t;
        return error > delta ? delta : error < -delta ? -delta : error;
    }
    __device__ float value(float y, float t) const {
        const float inner = slope(y, t);
        return inner * (y - t - 0.5f * inner);
    }
};

/* With the exponential of a number that is not positive, so that nothing overflows. */
struct bce_t {
    __device__ float value(float y, float t) const {
        return relu(y) - y * t + log1pf(expf(-fabsf(y)));
    }
    __device__ float slope(float y, float t) const { return 1.0f / (1.0f + expf(-y)) - t; }
};

template <int THREADS, typename F>
static __global__ void __launch_bounds__(THREADS)
    numbers_kernel(F f, const float *y, const float *target, const float *weight, float *loss,
                   int64_t width) {
    const int64_t at = (int64_t)blockIdx.x * width;
    const double sum =
        row_sum<THREADS>(width, [&](int64_t i) { return f.value(y[at + i], target[at + i]); });
    if (threadIdx.x > 0) return;
    const float w = weight[blockIdx.x];
    loss[blockIdx.x] = w == 0.0f ? 0.0f : (float)(w * (sum / (double)width));
}

template <int THREADS, typename F>
static __global__ void __launch_bounds__(THREADS)
    numbers_gradient_kernel(F f, const float *y, const float *target, const float *weight,
                            const float *dloss, float *dy, int64_t width) {
    const int64_t at = (int64_t)blockIdx.x * width;
    const float w = weight[blockIdx.x], factor = w * dloss[blockIdx.x] / (float)width;
    for (int64_t i = threadIdx.x; i < width; i += THREADS)
        dy[at + i] = w != 0.0f ? factor * f.slope(y[at + i], target[at + i]) : 0.0f;
}

template <typename F>
static tr_status_t numbers_forward(tr_stream_t *stream, const tr_kernel_call_t *call, F f) {
    const rows_t r = rows_of(&call->in[0]);
    BY_ROW_LENGTH(r.width, THREADS,
                  CUDA_LAUNCH((numbers_kernel<THREADS, F>), (unsigned)r.rows, THREADS, stream, f,
                              (const float *)call->in[0].data, (const float *)call->in[1].data,
                              (const float *)call->in[2].data, (float *)call->out[0].data,
                              r.width));
    return TR_OK;
}

template <typename F>
static tr_status_t numbers_backward(tr_stream_t *stream, const tr_kernel_call_t *call, F f) {
    const rows_t r = rows_of(&call->in[0]);
    BY_ROW_LENGTH(r.width, THREADS,
                  CUDA_LAUNCH((numbers_gradient_kernel<THREADS, F>), (unsigned)r.rows, THREADS,
                              stream, f, (const float *)call->in[0].data,
                              (const float *)call->in[1].data, (const float *)call->in[2].data,
                              (const float *)call->in[3].data, (float *)call->out[0].data,
                              r.width));
    return TR_OK;
}

static huber_t huber_of(const tr_kernel_call_t *call) {
    const huber_t f = {((const tr_huber_attr_t *)call->attr)->delta};
    return f;
}

CUDA_KERNEL(mse_fwd) {
    return numbers_forward(stream, call, squared_t());
}
CUDA_KERNEL(mse_bwd) {
    return numbers_backward(stream, call, squared_t());
}
CUDA_KERNEL(mae_fwd) {
    return numbers_forward(stream, call, absolute_t());
}
CUDA_KERNEL(mae_bwd) {
    return numbers_backward(stream, call, absolute_t());
}
CUDA_KERNEL(huber_fwd) {
    return numbers_forward(stream, call, huber_of(call));
}
CUDA_KERNEL(huber_bwd) {
    return numbers_backward(stream, call, huber_of(call));
}
CUDA_KERNEL(bce_fwd) {
    return numbers_forward(stream, call, bce_t());
}
CUDA_KERNEL(bce_bwd) {
    return numbers_backward(stream, call, bce_t());
}

static __global__ void __launch_bounds__(MANY)
    class_weight_kernel(const float *weight, labels_t labels, const float *of_class, float *out,
                        int64_t rows, int64_t classes) {
    for (int64_t i = global_thread(); i < rows; i += global_threads()) {
        const int64_t label = label_at(labels, i);
        out[i] = label == -1                     ? 0.0f
                 : label >= 0 && label < classes ? weight[i] * of_class[label]
                                                 : NAN;
    }
}

CUDA_KERNEL(class_weight) {
    const int64_t rows = tr_shape_elems(&call->in[0].shape),
                  classes = tr_shape_elems(&call->in[2].shape);
    CUDA_LAUNCH(class_weight_kernel, cuda_blocks(rows, MANY, tr_cuda_grid_limit(device)), MANY,
                stream, (const float *)call->in[0].data, labels_of(&call->in[1]),
                (const float *)call->in[2].data, (float *)call->out[0].data, rows, classes);
    return TR_OK;
}
