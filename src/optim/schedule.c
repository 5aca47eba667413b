/* Learning-rate schedules: keys, lengths in steps, epochs or shares of the run, and the warm-up
 * before all of them. */
#include "base/registry.h"
#include "optim_int.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(tr_schedule_settings_t, type, "constant",
                    "Learning rate after the warm-up: constant, step (multiplied by gamma at "
                    "milestones), cosine, linear, wsd (stable, then a linear decay).",
                    TR_RESUME_NOTE),
    TR_FIELD_STRING(
        tr_schedule_settings_t, warmup, "0",
        "Length of the linear warm-up from 0 to optimizer.lr: steps, 2epoch, or 5% of the run.",
        TR_RESUME_NOTE),
    TR_FIELD_STRING(tr_schedule_settings_t, milestones, "50%, 75%",
                    "step: comma-separated points at which the learning rate is multiplied by "
                    "schedule.gamma: steps, 30epoch, 50%.",
                    TR_RESUME_NOTE),
    TR_FIELD_FLOAT(tr_schedule_settings_t, gamma, "0.1", 0, 1, "step: factor at each milestone.",
                   TR_RESUME_NOTE),
    TR_FIELD_FLOAT(tr_schedule_settings_t, final_factor, "0", 0, 1,
                   "cosine, linear, wsd: final learning rate as a fraction of optimizer.lr.",
                   TR_RESUME_NOTE),
    TR_FIELD_STRING(tr_schedule_settings_t, decay, "20%",
                    "wsd: length of the final decay: steps, 2epoch, or 20% of the run.",
                    TR_RESUME_NOTE),
};
const tr_config_table_t tr_schedule_config = {"schedule", fields, TR_COUNT(fields),
                                              sizeof(tr_schedule_settings_t)};

static const tr_registry_t schedules = {"schedule",
                                        "schedule.type",
                                        {
#define SCHEDULE(symbol) &tr_schedule_##symbol,
#include "schedules.def"
#undef SCHEDULE
                                        }};

/* -- lengths ----------------------------------------------------------------------------------- */

bool tr_parse_steps(const char *text, int64_t total_steps, double steps_per_epoch, double *out) {
    static const struct {
        const char *name;
        int unit;
    } units[] = {{"epochs", 0}, {"epoch", 0}, {"%", 1}, {"steps", 2}, {"step", 2}};
    double factor[] = {steps_per_epoch, (double)total_steps / 100, 1};
    char number[64];
    int64_t whole;
    double value;
    size_t length = strlen(text), unit = TR_COUNT(units);
    for (size_t i = 0; i < TR_COUNT(units) && unit == TR_COUNT(units); i++) {
        size_t tail = strlen(units[i].name);
        if (length > tail && strcmp(text + length - tail, units[i].name) == 0)
            unit = i, length -= tail;
    }
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t')) length--;
    if (length >= sizeof number) return false;
    memcpy(number, text, length);
    number[length] = '\0';
    if (unit == TR_COUNT(units) || units[unit].unit == 2) {
        if (!tr_parse_int(number, &whole) || whole < 0) return false;
        *out = (double)whole;
        return true;
    }
    if (!tr_parse_float(number, &value) || value < 0) return false;
    *out = value * factor[units[unit].unit];
    return true;
}

static tr_status_t parse_place(const tr_schedule_t *s, const char *key, const char *text,
                               double steps_per_epoch, double *out) {
    if (tr_parse_steps(text, (int64_t)s->total, steps_per_epoch, out)) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "schedule.%s requires steps (500), epochs (2epoch) or a share of the run (5%%), "
                   "found '%s'.",
                   key, text);
}

static tr_status_t parse_length(const tr_schedule_t *s, const char *key, const char *text,
                                double steps_per_epoch, double *out) {
    TR_TRY(parse_place(s, key, text, steps_per_epoch, out));
    if (*out > s->total)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "schedule.%s = %s is %.0f steps, longer than the whole run of %.0f: reduce it, or make "
            "the run longer (train.epochs, train.steps).",
            key, text, *out, s->total);
    return TR_OK;
}

/* -- creation ---------------------------------------------------------------------------------- */

const char *tr_schedule_at(size_t index, const char **out_help) {
    const tr_schedule_row_t *row = tr_registry_at(&schedules, index);
    *out_help = row ? row->help : NULL;
    return row ? row->name : NULL;
}

/* Milestones after the end are allowed: a trial run is shorter than the full run.
 */
static tr_status_t parse_milestones(tr_schedule_t *s, const char *list, double steps_per_epoch) {
    double previous = -1, at;
    char item[64];
    for (list += strspn(list, ", \t\r\n"); *list != '\0'; list += strspn(list, ", \t\r\n")) {
        size_t length = strcspn(list, ",\r\n");
        snprintf(item, sizeof item, "%.*s", (int)length, list);
        TR_TRY(parse_place(s, "milestones", item, steps_per_epoch, &at));
        if (at <= previous)
            return TR_FAIL(
                TR_ERR_CONFIG,
                "schedule.milestones must increase, found '%s' at step %.0f after step %.0f.", item,
                at, previous);
        TR_TRY(tr_vec_push(&s->milestones, at));
        previous = at;
        list += length;
    }
    return TR_OK;
}

static tr_status_t schedule_resolve(tr_schedule_t *s, const tr_schedule_settings_t *settings,
                                    double steps_per_epoch) {
    s->row = tr_registry_find(&schedules, settings->type);
    if (!s->row) return tr_registry_fail_unknown(&schedules, settings->type);
    TR_TRY(parse_length(s, "warmup", settings->warmup, steps_per_epoch, &s->warmup));
    if (s->row == &tr_schedule_step)
        TR_TRY(parse_milestones(s, settings->milestones, steps_per_epoch));
    if (s->row != &tr_schedule_wsd) return TR_OK;
    TR_TRY(parse_length(s, "decay", settings->decay, steps_per_epoch, &s->decay));
    if (s->warmup + s->decay > s->total)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "schedule.warmup = %s and schedule.decay = %s together are longer than the whole run "
            "of %.0f steps: reduce one of them.",
            settings->warmup, settings->decay, s->total);
    return TR_OK;
}

tr_status_t tr_schedule_create(const tr_schedule_settings_t *settings, double lr,
                               int64_t total_steps, double steps_per_epoch, tr_schedule_t **out) {
    tr_schedule_t *schedule;
    if (total_steps <= 0)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "a learning-rate schedule needs at least one step, the run has %lld: set train.epochs "
            "or train.steps.",
            (long long)total_steps);
    TR_TRY(tr_alloc(sizeof *schedule, "schedule", &schedule));
    schedule->lr = lr;
    schedule->total = (double)total_steps;
    schedule->gamma = settings->gamma;
    schedule->final_factor = settings->final_factor;
    tr_status_t status = schedule_resolve(schedule, settings, steps_per_epoch);
    if (status != TR_OK) {
        tr_schedule_destroy(&schedule);
        return status;
    }
    *out = schedule;
    return TR_OK;
}

void tr_schedule_destroy(tr_schedule_t **schedule) {
    if (*schedule == NULL) return;
    tr_vec_free(&(*schedule)->milestones);
    tr_free(schedule);
}

double tr_schedule_lr(const tr_schedule_t *schedule, int64_t step) {
    double at = fmin(fmax((double)step, 0), schedule->total);
    /* The first step is not wasted at 0: step i of the warm-up has (i + 1) / warmup. */
    if (at < schedule->warmup) return schedule->lr * fmin((at + 1) / schedule->warmup, 1);
    return schedule->lr * schedule->row->factor(schedule, at);
}
