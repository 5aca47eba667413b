/* trainer plan CONFIG --price: time and cost of a run on GPUs that are rented by the hour. */
#include "plan_price.h"
#include "base/mem.h"
#include "device/gpu_kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A run that a CPU ends within this time is not worth a GPU. */
#define SHORT_SEC 600

/* -- what is asked for ------------------------------------------------------------------------- */

tr_status_t plan_price_parse(const plan_options_t *o, int most, plan_price_t *out, int *out_count) {
    const tr_gpu_kind_t *kind = NULL;
    *out_count = 0;
    for (const char *at = o->price; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const char *equal = strchr(at, '='), *number = o->gpu || !equal ? at : equal + 1;
        char name[16], *end;
        plan_price_t *row = &out[*out_count];
        if (*out_count == most)
            return TR_FAIL(TR_ERR_USAGE, "--price %s: expected at most %d price%s%s", o->price,
                           most, most > 1 ? "s" : "", o->gpu ? " with --gpu" : "");
        *row = (plan_price_t){.gpus = o->ranks.value[0], .per_hour = strtod(number, &end)};
        if (end == number || (*end != '\0' && *end != ',') || !(row->per_hour > 0) ||
            !isfinite(row->per_hour))
            return TR_FAIL(TR_ERR_USAGE,
                           "--price %s: expected the price of a GPU hour, such as 3.50 with --gpu, "
                           "or GPU=PRICE,GPU=PRICE without it",
                           o->price);
        if (!o->gpu && !equal)
            return TR_FAIL(TR_ERR_USAGE,
                           "--price %s: which GPU is it? Add --gpu, or give the price as GPU=PRICE",
                           o->price);
        tr_snprintf(name, sizeof name, "%.*s", o->gpu ? (int)sizeof name : (int)(equal - at),
                    o->gpu ? o->gpu : at);
        TR_TRY(tr_gpu_kind_find(name, &kind));
        row->gpu = kind->name;
        (*out_count)++;
    }
    return TR_OK;
}

/* -- time and cost ----------------------------------------------------------------------------- */

void plan_price_set(plan_price_t *p, const tr_session_t *s, const plan_step_t *step) {
    p->step = *step;
    p->fits = tr_graph_memory(s->g).total <= s->device->memory_bytes;
    p->train_sec = (double)s->total_steps * step->step_sec;
    p->cost = p->train_sec / 3600 * p->gpus * p->per_hour;
    tr_snprintf(p->cost_text, sizeof p->cost_text, "%.*f", p->cost < 1 ? 4 : 2, p->cost);
}

/* All FLOPs of the run at the rate that the products of this machine's CPU reach. */
static tr_status_t plan_price_cpu(const tr_session_t *s, double *out_sec, double *out_rate) {
    const tr_device_params_t params = {.threads = s->main.threads < 0 ? 0 : (int)s->main.threads};
    tr_device_t *cpu = NULL;
    double flops = 0;
    for (int i = 0; i < tr_program_op_count(s->g, s->last); i++)
        flops += tr_op_flops(s->g, tr_program_op(s->g, s->last, i)) * (double)s->slots;
    TR_TRY(tr_device_open("cpu", &params, &cpu));
    const tr_status_t status = cpu->ops->measure_peak(cpu, TR_F32, out_rate, NULL);
    *out_sec = (double)s->total_steps * flops / *out_rate;
    tr_device_close(&cpu);
    return status;
}

/* -- printing ---------------------------------------------------------------------------------- */

static const tr_table_column_t columns[] = {
    TR_COLUMN(plan_price_t, "gpu", "gpu", STRING, gpu, .is_left = true, .width = 6),
    TR_COLUMN(plan_price_t, "gpus", "gpus", INT, gpus, .width = 5),
    TR_COLUMN(plan_price_t, "per_gpu_hour", "GPU hour", REAL, per_hour, .format = "%.2f",
              .width = 11),
    TR_COLUMN(plan_price_t, "fits", "fits", BOOL, fits, .no = "NO", .width = 6),
    TR_COLUMN(plan_price_t, "step_ms", "ms/step", REAL, step.step_sec, .format = "%.3f",
              .scale = 1e3, .key_scale = 1e3, .width = 11),
    TR_COLUMN(plan_price_t, "train_sec", "time", REAL, train_sec, .people = tr_format_duration,
              .width = 11),
    TR_COLUMN(plan_price_t, "cost", NULL, REAL, cost),
    TR_COLUMN(plan_price_t, NULL, "cost", CHARS, cost_text, .width = 11),
};
static const tr_table_t table = TR_TABLE(columns, plan_price_t);

static void plan_price_advise(const plan_price_t *gpu, double cpu_sec, double cpu_rate,
                              tr_str_t *out) {
    char on_cpu[32], on_gpu[32];
    tr_format_duration(cpu_sec, on_cpu);
    if (!gpu) {
        tr_str_append(out, "CPU or GPU: the run fits on none of these GPUs; use more ranks or a "
                           "smaller data.micro_batch\n");
        return;
    }
    tr_format_duration(gpu->train_sec, on_gpu);
    tr_str_printf(out,
                  "CPU or GPU: %s: this CPU takes %s or more, at the %.0f GFLOP/s that its "
                  "products reach; %d x %s takes %s for %s, predicted\n",
                  cpu_sec <= fmax(SHORT_SEC, gpu->train_sec) ? "CPU" : "GPU", on_cpu,
                  cpu_rate / 1e9, gpu->gpus, gpu->gpu, on_gpu, gpu->cost_text);
}

tr_status_t plan_price_append(const plan_price_t *rows, int count, const tr_session_t *s,
                              tr_str_t *out) {
    double cpu_sec = NAN, cpu_rate = NAN;
    const plan_price_t *cheapest = NULL;
    for (int i = 0; i < count; i++)
        if (rows[i].fits && (!cheapest || rows[i].cost < cheapest->cost)) cheapest = &rows[i];
    tr_str_printf(
        out,
        "\n%lld steps, predicted, not measured; without start, validation and waits for data\n",
        (long long)s->total_steps);
    tr_table_text(&table, rows, (size_t)count, 0, out);
    TR_TRY(plan_price_cpu(s, &cpu_sec, &cpu_rate));
    plan_price_advise(cheapest, cpu_sec, cpu_rate, out);
    return TR_OK;
}

json_t *plan_price_json(const plan_price_t *rows, int count) {
    return tr_table_json(&table, rows, (size_t)count);
}

static tr_status_t plan_price_find(tr_config_t *config, const plan_options_t *o,
                                   plan_result_t *out) {
    enum { MOST = 16 };
    plan_price_t rows[MOST];
    int count = 0;
    tr_session_t *s = NULL; /* of the last GPU */
    tr_status_t status = TR_OK;
    TR_TRY(plan_price_parse(o, MOST, rows, &count));
    for (int i = 0; i < count; i++) {
        plan_step_t step;
        tr_session_destroy(&s);
        TR_TRY_GOTO(plan_step_on(config, o, rows[i].gpu, &s, &step), done);
        plan_price_set(&rows[i], s, &step);
    }
    out->json = json_pack("{s:I, s:o}", "steps", (json_int_t)s->total_steps, "prices",
                          plan_price_json(rows, count));
    status = plan_price_append(rows, count, s, &out->before);
done:
    tr_session_destroy(&s);
    return status;
}

const plan_mode_t plan_mode_price = {.kind = "prices", .find = plan_price_find};
