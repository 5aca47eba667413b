/* One pass over a split's data with the eval program. A batch's sums are read and added up here, in double:
 * f32 would count to 2^24 only. */
#include "average.h"
#include "trainer/session.h"
#include "trainer/mem.h"
#include "trainer/watchdog.h"

#include <math.h>

static tr_status_t run_pass(tr_session_t *s, tr_loader_t *loader, tr_eval_batch_fn each, void *self,
                            double *sums) {
    for (;;) {
        tr_batch_t *batch = NULL;
        float part[TR_SUM_COUNT];
        TR_TRY(tr_loader_next(loader, &batch));
        if (!batch) return TR_OK;
        TR_TRY(tr_session_feed(s, batch));
        TR_TRY(tr_graph_zero_reduced(s->g, false));
        TR_TRY(tr_program_run(s->g, s->eval, NULL));
        TR_TRY(tr_tensor_read(s->g, s->sums, part));
        for (int i = 0; i < TR_SUM_COUNT; i++) sums[i] += part[i];
        if (each) TR_TRY(each(self, s, batch));
        TR_TRY(tr_loader_release(loader, batch));
        tr_watchdog_mark(s->world);
    }
}

tr_status_t tr_session_evaluate(tr_session_t *s, tr_split_t split, tr_eval_batch_fn each, void *self,
                                tr_eval_outcome_t *out) {
    tr_loader_t *loader = NULL;
    double sums[TR_SUM_COUNT] = {0};
    tr_status_t status = TR_OK;
    TR_TRY(tr_session_loader(s, split, true, 0, &loader));
    TR_TRY_GOTO(tr_average_begin(s), done);
    TR_TRY_GOTO(run_pass(s, loader, each, self, sums), done);
    TR_TRY_GOTO(tr_average_end(s), done);
    if (s->world) TR_TRY_GOTO(tr_world_allreduce(s->world, sums, TR_SUM_COUNT, TR_REDUCE_SUM), done);
    const double n = sums[TR_SUM_SAMPLES], loss = sums[TR_SUM_LOSS] / n;
    *out =
        (tr_eval_outcome_t){.samples = n,
                            .loss = isnan(loss) ? NAN : loss, /* one without a sign, which would be printed */
                            .accuracy = s->info.classes > 0 ? sums[TR_SUM_CORRECT] / n : NAN,
                            .topk = s->info.classes > 0 && s->model.topk > 1 ? sums[TR_SUM_TOPK] / n : NAN};
done:
    tr_loader_destroy(&loader);
    return status;
}
