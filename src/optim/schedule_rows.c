/* The schedules: factors on the peak learning rate, for steps after the warm-up. */
#include "optim_int.h"
#include <math.h>

/* Share of the way from `from` to the end of the run. */
static double schedule_rows_progress(const tr_schedule_t *s, double from, double step) {
    return s->total > from ? (step - from) / (s->total - from) : 1;
}

static double schedule_constant(const tr_schedule_t *s, double step) {
    return 1;
}

static double schedule_steps(const tr_schedule_t *s, double step) {
    double factor = 1;
    for (size_t i = 0; i < s->milestones.count; i++)
        if (step >= s->milestones.data[i]) factor *= s->gamma;
    return factor;
}

/* Loshchilov and Hutter 2017, one period. */
static double schedule_cosine(const tr_schedule_t *s, double step) {
    return s->final_factor + (1 - s->final_factor) * 0.5 *
                                 (1 + cos(M_PI * schedule_rows_progress(s, s->warmup, step)));
}

static double schedule_rows_linear(const tr_schedule_t *s, double step) {
    return 1 - (1 - s->final_factor) * schedule_rows_progress(s, s->warmup, step);
}

/* Warm-up, stable, decay (Hu et al. 2024), with a linear decay. */
static double schedule_wsd(const tr_schedule_t *s, double step) {
    double from = s->total - s->decay;
    return step <= from ? 1 : 1 - (1 - s->final_factor) * schedule_rows_progress(s, from, step);
}

const tr_schedule_row_t tr_schedule_constant = {"constant", "optimizer.lr throughout.",
                                                schedule_constant};
const tr_schedule_row_t tr_schedule_step = {
    "step",
    "Multiplies the learning rate by schedule.gamma at each of "
    "schedule.milestones.",
    schedule_steps};
const tr_schedule_row_t tr_schedule_cosine = {
    "cosine", "Half a period of a cosine, down to schedule.final_factor at the end of the run.",
    schedule_cosine};
const tr_schedule_row_t tr_schedule_linear = {
    "linear", "Linear decay to schedule.final_factor at the end of the run.", schedule_rows_linear};
const tr_schedule_row_t tr_schedule_wsd = {
    "wsd", "Constant, then a linear decay over schedule.decay to schedule.final_factor.",
    schedule_wsd};
