/* The timeline of one micro-batch and the reduction of its buckets. */
#include "forecast.h"

tr_timeline_t tr_timeline(const double *op_sec, int ops, double scale, const tr_bucket_t *buckets,
                          const double *bucket_sec, int bucket_count, bool is_polled) {
    double compute = 0, computing = 0, communicating = 0;
    int b = 0;
    for (int i = -1; i < ops; i++) {
        if (i >= 0) {
            compute += op_sec[i] * scale;
            computing += op_sec[i] * scale;
        }
        for (; b < bucket_count && (buckets[b].after_op <= i || i == ops - 1); b++) {
            const double start = communicating > computing ? communicating : computing;
            communicating = start + bucket_sec[b];
            if (is_polled) computing = communicating;
        }
    }
    const double end = communicating > computing ? communicating : computing;
    return (tr_timeline_t){compute, end, end - compute};
}
