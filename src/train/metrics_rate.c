/* FLOP/s and MFU. */
#include "metrics_rate.h"
#include "trainer/log.h"
#include "session/settings.h"

#include <math.h>

static double step_flops(const tr_session_t *s) {
    double flops = 0;
    for (int i = 0; i < tr_program_op_count(s->g, s->last); i++) {
        const tr_op_t *op = tr_program_op(s->g, s->last, i);
        if (!op->recomputed) flops += tr_op_flops(s->g, op);
    }
    return flops * (double)s->slots;
}

/* Of GPUs only. On a CPU a peak of multiply-adds is no limit: Winograd's convolutions compute less
 * than is counted, and oneDNN may use wider vectors than this program was built for. */
static double measure_peak(tr_session_t *s) {
    const tr_dtype_t dtype = tr_precision_dtype((tr_precision_t)s->main.precision);
    double flops = 0;
    tr_cuda_settings_t cuda;
    if (!s->device->ops->measure_peak || s->device->immediate) return 0;
    tr_config_read(s->config, &tr_cuda_config, &cuda);
    if (!cuda.measure_peak || cuda.share) return 0;
    if (s->device->ops->measure_peak(s->device, dtype, &flops, NULL) == TR_OK) return flops;
    TR_INFO("mfu is unknown: %s", tr_error_last()->message);
    tr_error_clear();
    return 0;
}

tr_status_t tr_metrics_rate_open(tr_session_t *s, tr_metrics_rate_t *out) {
    enum { UNIT = 1000000 };
    int64_t peak = (int64_t)(measure_peak(s) / UNIT);
    TR_TRY(tr_world_allreduce_int(s->world, &peak, 1, TR_REDUCE_SUM));
    *out = (tr_metrics_rate_t){step_flops(s), (double)peak * UNIT};
    return TR_OK;
}

double tr_metrics_tflops(const tr_metrics_rate_t *rate, double steps_per_sec) {
    return rate->step_flops * steps_per_sec / 1e12;
}

double tr_metrics_mfu(const tr_metrics_rate_t *rate, double steps_per_sec) {
    const double mfu = rate->step_flops * steps_per_sec / rate->peak_flops;
    /* More than the peak: a convolution by an algorithm with less work, or a peak measured low. */
    return rate->peak_flops > 0 && mfu <= 1 ? mfu : NAN;
}
