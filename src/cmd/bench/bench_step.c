/* Times a training step, its programs and its ops. */
#include "bench_step.h"
#include "bench_matmul.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "session/feed.h"

#include <math.h>

enum { MOST_REPEATS = 20 };

/* As all ranks do at once. What an immediate device calls its peak is that of multiply-adds. */
static tr_status_t bench_step_measure_rates(bench_step_t *b) {
    /* Enough for all threads. A power of two is slower: its rows share sets of the caches. */
    static const int64_t sizes[] = {1000, 2000};
    tr_device_t *device = b->trial.s->device;
    const tr_dtype_t dtype = tr_precision_dtype((tr_precision_t)b->trial.s->main.precision);
    bench_product_t product;
    if (!device->ops->measure_peak) return TR_OK;
    TR_TRY(device->ops->measure_peak(device, TR_F32, &b->peak_flops, &b->copy_bytes));
    if (!device->immediate)
        return device->ops->measure_peak(device, dtype, &b->product_flops, NULL);
    for (size_t i = 0; i < TR_COUNT(sizes); i++) {
        const double n = (double)sizes[i];
        TR_TRY(bench_time_product(device, dtype, sizes[i], &product));
        b->product_flops = fmax(b->product_flops, 2 * n * n * n / product.product_sec);
    }
    return TR_OK;
}

static void bench_step_set_floors(const bench_step_t *b, int program, bench_op_t *op) {
    const tr_graph_t *g = b->trial.s->g;
    for (int i = 0; i < tr_program_op_count(g, program) && b->product_flops > 0; i++) {
        const tr_op_t *of = tr_program_op(g, program, i);
        if (of->kind == TR_OP_KERNEL)
            op[i].floor_sec = fmax(tr_op_least_flops(g, of) / b->product_flops,
                                   tr_op_bytes(g, of) / b->copy_bytes);
    }
}

/* A step ends when its outcome is known: on an asynchronous device after the first micro-batch of
 * the next step is enqueued, as in training. */
static bool bench_step_note(void *self, const tr_step_outcome_t *o, double sec) {
    bench_step_t *b = self;
    const int64_t i = o->step - b->warm;
    if (i < 0) return true;
    b->step_sec[i] = sec;
    b->compute_sec[i] = sec - (isfinite(o->exposed_sec) ? o->exposed_sec : 0);
    b->exposed += o->exposed_sec;
    b->busy += o->busy_sec;
    return true;
}

static tr_status_t bench_step_time_steps(bench_step_t *b) {
    const tr_session_t *s = b->trial.s;
    /* Without a wait, each set of inputs is used three times before: the third use captures. */
    const int64_t most = s->device->immediate ? 5 : 3 * tr_feed_sets(s) + 2, steps = b->steps;
    double all = 0;
    b->warm = steps < most ? steps : most;
    TR_TRY(tr_alloc((size_t)steps * sizeof *b->compute_sec, "step times", &b->compute_sec));
    TR_TRY(tr_alloc((size_t)steps * sizeof *b->step_sec, "step times", &b->step_sec));
    TR_TRY(tr_trial_run(&b->trial, b->warm + steps, s->optim.lr, bench_step_note, b));
    for (int64_t i = 0; i < steps; i++) all += b->step_sec[i];
    tr_sort(b->step_sec, steps);
    tr_sort(b->compute_sec, steps);
    b->best_sec = b->step_sec[0];
    b->median_sec = b->step_sec[steps / 2];
    b->exposed /= all;
    b->busy /= all;
    return TR_OK;
}

/* The programs of a step, back to back: what remains of a step time is time in which the device
 * waits for inputs or for the host. Asynchronous devices only. */
static tr_status_t bench_step_time_programs(bench_step_t *b) {
    const tr_session_t *s = b->trial.s;
    const int64_t warm = 3, repeats = b->steps < MOST_REPEATS ? b->steps : MOST_REPEATS;
    double began = 0;
    b->programs_sec = NAN;
    if (s->device->immediate || s->tree) return TR_OK;
    for (int64_t i = -warm; i < repeats; i++) {
        if (i == 0) TR_TRY(tr_graph_sync(s->g));
        if (i == 0) began = tr_clock_sec();
        for (int64_t slot = 1; slot < s->slot_count; slot++)
            TR_TRY(tr_program_run(s->g, slot == 1 ? s->first : s->micro, b->trial.collectives));
        TR_TRY(tr_program_run(s->g, s->last, b->trial.collectives));
        TR_TRY(tr_program_run(s->g, s->update, NULL));
    }
    TR_TRY(tr_graph_sync(s->g));
    b->programs_sec = (tr_clock_sec() - began) / (double)repeats;
    return TR_OK;
}

tr_status_t bench_step_measure(bench_step_t *b, tr_world_t *world, const char *path,
                               cmd_words_t settings) {
    const tr_trial_params_t params = {.held = true};
    size_t free_before = 0, free_after = 0, total = 0; /* bytes of the device; 0: not known */
    tr_config_t *config = NULL;
    TR_TRY(cmd_config_load_all(world, path, settings, &config));
    TR_TRY(tr_trial_open(config, world, &params, &b->trial));
    tr_device_t *device = b->trial.s->device;
    if (device->ops->memory_info && !device->immediate)
        TR_TRY(device->ops->memory_info(device, &free_before, &total));
    TR_TRY(tr_trial_start(&b->trial));
    TR_TRY(bench_step_measure_rates(b));
    TR_TRY(bench_step_time_steps(b));
    b->planned_bytes = tr_graph_memory(b->trial.s->g).total;
    if (free_before && device->ops->memory_info(device, &free_after, &total) == TR_OK &&
        free_after < free_before)
        b->taken_bytes = free_before - free_after;
    return TR_OK;
}

tr_status_t bench_step_time_parts(bench_step_t *b) {
    const tr_session_t *s = b->trial.s;
    const int repeats = b->steps < MOST_REPEATS ? (int)b->steps : MOST_REPEATS;
    bench_op_t *update = NULL;
    TR_TRY(bench_step_time_programs(b));
    b->idle = fmax(0, 1 - b->programs_sec / b->median_sec);
    TR_TRY(bench_time_ops(s->g, s->last, repeats, &b->op));
    TR_TRY(bench_time_ops(s->g, s->update, repeats, &update));
    bench_step_set_floors(b, s->last, b->op);
    bench_step_set_floors(b, s->update, update);
    for (int i = 0; i < tr_program_op_count(s->g, s->update); i++) {
        b->update_sec += update[i].best_sec;
        b->update_floor_sec += update[i].floor_sec;
    }
    for (int i = 0; i < tr_program_op_count(s->g, s->last); i++)
        b->flops += tr_op_flops(s->g, tr_program_op(s->g, s->last, i)) * (double)s->slots;
    tr_free(&update);
    return TR_OK;
}

void bench_step_close(bench_step_t *b, tr_status_t status) {
    tr_trial_close(&b->trial, status);
    tr_free(&b->op);
    tr_free(&b->compute_sec);
    tr_free(&b->step_sec);
}
