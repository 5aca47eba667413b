/* What a run costs on GPUs that are rented by the hour. Private to src/cmd/plan. */
#ifndef TR_CMD_PLAN_PLAN_PRICE_H
#define TR_CMD_PLAN_PLAN_PRICE_H

#include "plan_step.h"

/* All steps of the run; without start, validation, checkpoints and waits for data. */
typedef struct {
    const char *gpu; /* the name of its kind */
    int gpus;
    double per_hour; /* of one GPU, in any currency */
    double train_sec, cost;
    char cost_text[32]; /* with decimals that show it */
    bool fits;          /* in the memory of the GPU */
    plan_step_t step;
} plan_price_t;

/* The GPUs and prices of o->price: "3.50" for --gpu, or "l4=0.80,h100=3.50" without it. Fills at
 * most `most`, and returns how many. TR_ERR_USAGE. */
tr_status_t plan_price_parse(const plan_options_t *o, int most, plan_price_t *out, int *out_count);
/* Of a planned training session on p->gpu, by its predicted step. */
void plan_price_set(plan_price_t *p, const tr_session_t *s, const plan_step_t *step);
/* Appends the time and the cost of each row, and whether a GPU is worth it. Measures the CPU for at
 * most 50 ms. `s`: of any of the rows. */
tr_status_t plan_price_append(const plan_price_t *rows, int count, const tr_session_t *s,
                              tr_str_t *out);
json_t *plan_price_json(const plan_price_t *rows, int count);

#endif
