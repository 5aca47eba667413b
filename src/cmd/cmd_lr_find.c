/* trainer lr-find CONFIG.ini: short runs over a geometric sweep of learning rates, the loss of each,
 * and the learning rate to train with. */
#include "cmd.h"
#include "base/mem.h"
#include "session/trial.h"
#include "trainer/log.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_STEPS = 200, LEAST_STEPS = 20 };

typedef struct {
    const char *path, *json, *svg;
    cmd_words_t settings;
    double from, to;
    int64_t rates, steps; /* steps -1: auto */
} lr_find_options_t;

typedef struct {
    double lr, loss; /* loss: the mean over the last quarter of the steps; NaN: diverged */
} lr_find_rate_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(lr_find_rate_t, "lr", "learning rate", REAL, lr, .format = "%.3g", .width = 14),
    TR_COLUMN(lr_find_rate_t, "loss", "loss", REAL, loss, .format = "%.6g", .missing = "diverged",
              .width = 13),
};
static const tr_table_t table = TR_TABLE(columns, lr_find_rate_t);

typedef struct {
    tr_trial_t trial;
    int64_t steps; /* at each rate */
    TR_VEC(lr_find_rate_t) rates;
    double lowest, suggestion; /* the best rate of short runs; that for the whole run */
} lr_find_t;

/* -- measuring --------------------------------------------------------------------------------- */

static tr_status_t lr_find_open(lr_find_t *f, tr_world_t *world, const lr_find_options_t *o) {
    tr_config_t *config = NULL;
    TR_TRY(cmd_config_load_all(world, o->path, o->settings, &config));
    if (*tr_config_get(config, "model.init")) {
        const tr_status_t status =
            TR_FAIL(TR_ERR_CONFIG,
                    "lr-find starts from random weights, but model.init = %s: sweep optimizer.lr "
                    "with `trainer sweep` instead",
                    tr_config_get(config, "model.init"));
        tr_config_destroy(&config);
        return status;
    }
    TR_TRY(tr_trial_open(config, world, &(tr_trial_params_t){.scheduled = true}, &f->trial));
    const int64_t total = f->trial.s->total_steps;
    f->steps = o->steps;
    if (o->steps < 0) /* a run of its own in small */
        f->steps = total / 5 < LEAST_STEPS  ? LEAST_STEPS
                   : total / 5 > MOST_STEPS ? MOST_STEPS
                                            : total / 5;
    return tr_trial_start(&f->trial);
}

/* The training at one rate. */
typedef struct {
    int64_t steps, last; /* last: those at the end, of which the mean is taken */
    double first, sum;   /* losses: of the first step, and of the last ones */
    bool diverged;
} lr_find_losses_t;

/* A loss far above the first has diverged. */
static bool lr_find_note(void *self, const tr_step_outcome_t *o, double sec) {
    lr_find_losses_t *l = self;
    (void)sec;
    if (o->step == 0) l->first = o->loss;
    l->diverged =
        l->diverged || (!o->finite && !o->overflowed) || !(o->loss < 4 * l->first + 1e-30);
    if (o->step >= l->steps - l->last) l->sum += o->loss;
    return !l->diverged;
}

/* The lowest point of the parabola through the lowest loss and its neighbours, on logarithmic
 * scales. The best rate falls as a run gets longer: by its length to the power 0.32 (Bjorck et al.
 * 2024, "Scaling Optimal LR Across Token Horizons"). */
static tr_status_t lr_find_choose(lr_find_t *f) {
    const lr_find_rate_t *r = f->rates.data;
    const size_t count = f->rates.count;
    const double shorter = fmin(1, (double)f->steps / (double)f->trial.s->total_steps);
    size_t i = 0;
    double shift = 0; /* in distances between neighbours */
    for (size_t k = 1; k < count; k++)
        if (r[k].loss < r[i].loss || isnan(r[i].loss)) i = k;
    if (isnan(r[i].loss))
        return TR_FAIL(TR_ERR_USAGE,
                       "lr-find: training diverged at every rate: sweep lower ones with --from and "
                       "--to");
    if (i > 0 && i + 1 < count && r[i + 1].loss > 0 && r[i - 1].loss > 0) {
        const double left = log(r[i - 1].loss / r[i].loss), right = log(r[i + 1].loss / r[i].loss);
        if (left + right > 0) shift = (left - right) / 2 / (left + right);
    }
    f->lowest = r[i].lr * (count > 1 ? pow(r[1].lr / r[0].lr, shift) : 1);
    f->suggestion = f->lowest * pow(shorter, 0.32);
    if (i == 0 || i + 1 == count)
        TR_WARN("lr-find: the lowest loss is at the %s rate: sweep further with --%s",
                i == 0 ? "lowest" : "highest", i == 0 ? "from" : "to");
    return TR_OK;
}

static tr_status_t lr_find_sweep(lr_find_t *f, const lr_find_options_t *o, bool prints) {
    const double ratio = o->rates > 1 ? pow(o->to / o->from, 1 / (double)(o->rates - 1)) : 1;
    if (o->to < o->from) return TR_FAIL(TR_ERR_USAGE, "--to %g is below --from %g", o->to, o->from);
    if (prints)
        printf("%s: %lld steps of %lld samples at each rate\n", o->path, (long long)f->steps,
               (long long)f->trial.s->order.batch_size);
    if (prints) cmd_table_print_head(&table);
    for (int64_t i = 0; i < o->rates; i++) {
        lr_find_rate_t rate = {.lr = o->from * pow(ratio, (double)i)};
        lr_find_losses_t l = {.steps = f->steps, .last = (f->steps + 3) / 4};
        /* From the first weights. Outcomes, and so decisions, are alike on all ranks. */
        TR_TRY(tr_trial_reset(&f->trial));
        TR_TRY(tr_trial_run(&f->trial, f->steps, rate.lr, lr_find_note, &l));
        rate.loss = l.diverged ? NAN : l.sum / (double)l.last;
        TR_TRY(tr_vec_push(&f->rates, rate));
        if (prints) cmd_table_print_line(&table, &rate);
        if (prints) fflush(stdout);
    }
    return lr_find_choose(f);
}

/* -- results ----------------------------------------------------------------------------------- */

static const tr_plot_t plots[] = {{.chart = {.title = "Loss over the learning rate",
                                             .x_label = "learning rate",
                                             .y_label = "loss",
                                             .x_scale = TR_SVG_LOG},
                                   .x = "lr",
                                   .curves = {{"loss"}}}};

/* The suggestion is a line as high as the losses. */
static tr_status_t lr_find_write_svg(const lr_find_t *f, const char *path) {
    lr_find_rate_t line[] = {{.lr = f->suggestion, .loss = NAN},
                             {.lr = f->suggestion, .loss = NAN}};
    for (size_t i = 0; i < f->rates.count; i++) {
        line[0].loss = fmin(line[0].loss, f->rates.data[i].loss);
        line[1].loss = fmax(line[1].loss, f->rates.data[i].loss);
    }
    const tr_plot_rows_t rows[] = {
        {.title = "loss of a short run",
         .role = TR_SHOWS_TRAIN,
         .data = f->rates.data,
         .count = f->rates.count},
        {.title = "suggestion", .role = TR_SHOWS_BEST, .data = line, .count = TR_COUNT(line)}};
    return cmd_plots_write(path, plots, TR_COUNT(plots), &table, rows, TR_COUNT(rows));
}

static tr_status_t lr_find_write_json(const lr_find_t *f, const lr_find_options_t *o) {
    return cmd_json_write(json_pack("{s:s, s:s, s:i, s:I, s:I, s:o, s:f, s:f}", "kind", "lr_find",
                                    "config", o->path, "ranks", f->trial.s->params.size, "steps",
                                    (json_int_t)f->steps, "batch_size",
                                    (json_int_t)f->trial.s->order.batch_size, "rates",
                                    tr_table_json(&table, f->rates.data, f->rates.count), "lowest",
                                    f->lowest, "suggestion", f->suggestion),
                          o->json);
}

static tr_status_t lr_find_run(void *options) {
    const lr_find_options_t *o = options;
    tr_world_t *world = NULL;
    lr_find_t f = {0};
    TR_TRY(cmd_world_open(&world));
    const bool is_root = tr_world_info(world)->rank == 0,
               prints = is_root && !cmd_json_is_stdout(o->json);
    tr_status_t status = lr_find_open(&f, world, o);
    if (status == TR_OK) status = lr_find_sweep(&f, o, prints);
    if (status == TR_OK && prints)
        printf("lowest loss near %.3g; suggestion for %lld steps: optimizer.lr = %.2g (the "
               "configuration has %s)\n",
               f.lowest, (long long)f.trial.s->total_steps, f.suggestion,
               tr_config_get(f.trial.config, "optimizer.lr"));
    if (status == TR_OK && is_root && o->svg) status = lr_find_write_svg(&f, o->svg);
    if (status == TR_OK && is_root && o->json) status = lr_find_write_json(&f, o);
    tr_trial_close(&f.trial, status);
    tr_vec_free(&f.rates);
    if (status == TR_OK) cmd_world_close(&world); /* else main ends the other ranks */
    return status;
}

static const cmd_argument_t arguments[] = {
    {"CONFIG.ini", offsetof(lr_find_options_t, path), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(lr_find_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_FLOAT(lr_find_options_t, from, "--from", "LR", "1e-5", 1e-12, 1e6,
                     "The lowest learning rate."),
    CMD_OPTION_FLOAT(lr_find_options_t, to, "--to", "LR", "1", 1e-12, 1e6,
                     "The highest learning rate."),
    CMD_OPTION_INT(lr_find_options_t, rates, "--rates", "N", "16", 1, 1000,
                   "The number of rates; each is the same multiple of the one before."),
    CMD_OPTION_AUTO_INT(lr_find_options_t, steps, "--steps", "N", 4, 1e9,
                        "The steps at each rate. auto: a fifth of the run, at least 20 and at most "
                        "200."),
    CMD_OPTION_TEXT(lr_find_options_t, svg, "--svg", "FILE", NULL,
                    "Also draws the losses and the suggestion as SVG; - writes to standard "
                    "output."),
    CMD_OPTION_JSON(lr_find_options_t,
                    "Also writes the results as JSON; - writes only JSON to standard output."),
};

const cmd_command_t cmd_lr_find = {
    .name = "lr-find",
    .runs = CMD_ON_RANKS,
    .summary = "Trains for a short time at each of several learning rates, and suggests one.",
    .help =
        "Every rate begins with the same weights and the same samples, and follows schedule.* "
        "of the whole run in fewer steps. The loss of a rate is the mean over the last quarter "
        "of the steps. The suggestion is the rate of the lowest loss, reduced for the length of "
        "the whole run: times (steps / all steps) to the power 0.32. It runs alone or under "
        "mpirun, and neither reads nor writes a run folder. Train then with optimizer.lr=RATE.",
    CMD_ARGUMENTS(lr_find_options_t),
    CMD_OPTIONS,
    .run = lr_find_run,
};
