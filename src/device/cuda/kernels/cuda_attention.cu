/* Attention, forward: running maximum and sum of a row (Milakov and Gimelshein 2018). */
#include "cuda_attention.cuh"

/* Shared memory of a block: q, k, v and y (TILE, D + 1), scores (TILE, TILE + 1), and a row's
 * maximum, sum and shrinking factor. */
enum { COLUMNS = 4, SQUARE = 1, MORE = 3 };

template <int TILE, typename T>
static __global__ void __launch_bounds__(ATTENTION_THREADS, TILE == 8 ? 5 : 8)
    attention_kernel(attention_t a, const T *qkv, T *y, float *lse) {
    TR_DYNAMIC_SHARED(float, shared);
    const int64_t wide = a.size + 1, channels = a.heads * a.size;
    float *q = shared, *k = q + TILE * wide, *v = k + TILE * wide, *out = v + TILE * wide,
          *score = out + TILE * wide, *max = score + TILE * (TILE + 1), *sum = max + TILE,
          *shrink = sum + TILE;
    const int64_t sample = blockIdx.x / a.heads, head = blockIdx.x % a.heads,
                  first = (int64_t)blockIdx.y * TILE;
    const T *at = qkv + sample * a.steps * a.row + head * a.size;
    const int me = (int)threadIdx.x;
    attention_load<TILE>(a, at, a.row, first, q);
    for (int64_t i = me; i < TILE * wide; i += ATTENTION_THREADS) out[i] = 0;
    if (me < TILE) max[me] = -INFINITY, sum[me] = 0;
    for (int64_t key = 0; key <= first; key += TILE) {
        __syncthreads(); /* the last tile has been read */
        attention_load<TILE>(a, at + channels, a.row, key, k);
        attention_load<TILE>(a, at + 2 * channels, a.row, key, v);
        __syncthreads();
        for (int i = me; i < TILE * TILE; i += ATTENTION_THREADS) {
            const int r = i / TILE, c = i % TILE;
            score[r * (TILE + 1) + c] = key + c <= first + r
                                            ? a.scale * attention_dot(a, q + r * wide, k + c * wide)
                                            : -INFINITY;
        }
        __syncthreads();
        if (me < TILE) { /* key 0 of the first tile is seen by all, so that max is finite */
            float most = max[me];
            for (int c = 0; c < TILE; c++) {
                const float s = score[me * (TILE + 1) + c];
                most = s > most || s != s ? s : most;
            }
            shrink[me] = expf(max[me] - most);
            float total = sum[me] * shrink[me];
            for (int c = 0; c < TILE; c++) {
                float *s = &score[me * (TILE + 1) + c];
                *s = expf(*s - most);
                total += *s;
            }
            max[me] = most;
            sum[me] = total;
        }
        __syncthreads();
        if (a.dropout.sample_id) {
            for (int i = me; i < TILE * TILE; i += ATTENTION_THREADS) {
                const int r = i / TILE, c = i % TILE;
                if (key + c <= first + r)
                    score[r * (TILE + 1) + c] *=
                        attention_dropout(a, sample, head, first + r, key + c);
            }
            __syncthreads();
        }
        for (int64_t i = me; i < TILE * a.size; i += ATTENTION_THREADS) {
            const int64_t r = i / a.size, d = i % a.size;
            float total = out[r * wide + d] * shrink[r];
            for (int c = 0; c < TILE; c++)
                total = fmaf(score[r * (TILE + 1) + c], v[c * wide + d], total);
            out[r * wide + d] = total;
        }
    }
    __syncthreads();
    for (int64_t i = me; i < TILE * a.size; i += ATTENTION_THREADS) {
        const int64_t r = i / a.size, d = i % a.size;
        if (first + r < a.steps)
            y[(sample * a.steps + first + r) * channels + head * a.size + d] =
                from_float<T>(out[r * wide + d] / sum[r]);
    }
    if (me < TILE && first + me < a.steps)
        lse[(int64_t)blockIdx.x * a.steps + first + me] = max[me] + logf(sum[me]);
}

/* The probabilities of all pairs, from lse: for models that keep them. */
template <typename T>
static __global__ void __launch_bounds__(ATTENTION_THREADS)
    probabilities_kernel(attention_t a, const T *qkv, const float *lse, float *kept, int64_t n) {
    for (int64_t i = global_thread(); i < n; i += global_threads()) {
        const int64_t u = i % a.steps, row = i / a.steps, t = row % a.steps;
        const int64_t sample = row / a.steps / a.heads, head = row / a.steps % a.heads;
        const T *q = qkv + (sample * a.steps + t) * a.row + head * a.size;
        const T *k = qkv + (sample * a.steps + u) * a.row + (a.heads + head) * a.size;
        float sum = 0;
        for (int64_t d = 0; d < a.size && u <= t; d++)
            sum = fmaf(to_float(q[d]), to_float(k[d]), sum);
        kept[i] = u <= t ? expf(a.scale * sum - lse[row]) : 0.0f;
    }
}

CUDA_KERNEL_PREPARE(own_attention_fwd) {
    const attention_t a = attention_of(call, &call->in[0], 1);
    (void)device;
    *out_state = NULL, *out_scratch_bytes = 0;
    return attention_tile(a.size, COLUMNS, SQUARE, MORE) ? TR_OK : attention_fail(a.size);
}

template <int TILE, typename T>
static tr_status_t forward(tr_stream_t *stream, const tr_kernel_call_t *call,
                           const attention_t &a) {
    const int64_t samples = call->in[0].shape.dim[0];
    const dim3 grid((unsigned)(samples * a.heads), (unsigned)((a.steps + TILE - 1) / TILE));
    const size_t floats = (size_t)(TILE * (COLUMNS * (a.size + 1) + TILE + 1 + MORE));
    return tr_cuda_check(TR_LAUNCH((attention_kernel<TILE, T>), grid, ATTENTION_THREADS,
                                   floats * sizeof(float), stream->handle, a,
                                   (const T *)call->in[0].data, (T *)call->out[0].data,
                                   (float *)call->out[1].data),
                         "the launch of attention_kernel");
}

CUDA_KERNEL(own_attention_fwd) {
    const attention_t a = attention_of(call, &call->in[0], 1);
    const int tile = attention_tile(a.size, COLUMNS, SQUARE, MORE);
    const int64_t pairs = call->in[0].shape.dim[0] * a.heads * a.steps * a.steps;
    CUDA_BY_TYPE(call->in[0].dtype, T, {
        TR_TRY(tile == 32   ? (forward<32, T>(stream, call, a))
               : tile == 16 ? (forward<16, T>(stream, call, a))
                            : (forward<8, T>(stream, call, a)));
        if (!cuda_present(&call->out[2])) return TR_OK;
        CUDA_LAUNCH((probabilities_kernel<T>),
                    cuda_blocks(pairs, ATTENTION_THREADS, tr_cuda_grid_limit(device)),
                    ATTENTION_THREADS, stream, a, (const T *)call->in[0].data,
                    (const float *)call->out[1].data, (float *)call->out[2].data, pairs);
    });
    return TR_OK;
}
