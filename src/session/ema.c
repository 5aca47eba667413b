/* Evaluation with the moving average of the weights. */
#include "ema.h"
#include "optim/optim.h"

#define ASIDE "ema.trained" /* the trained weights during an evaluation */

tr_status_t tr_ema_declare(tr_session_t *s) {
    const tr_tensor_t average = tr_graph_find(s->g, TR_EMA_STATE);
    tr_tensor_t aside;
    if (tr_is_none(average)) return TR_OK;
    const tr_shape_t shape = *tr_shape_of(s->g, average);
    return tr_const(s->g, ASIDE, &shape, 0, &aside);
}

tr_status_t tr_ema_begin(tr_session_t *s) {
    const tr_tensor_t aside = tr_graph_find(s->g, ASIDE);
    if (tr_is_none(aside)) return TR_OK;
    tr_status_t status = tr_params_copy(s->g, aside, false);
    if (status == TR_OK) status = tr_params_copy(s->g, tr_graph_find(s->g, TR_EMA_STATE), true);
    return tr_session_gather(s, status);
}

tr_status_t tr_ema_end(tr_session_t *s) {
    const tr_tensor_t aside = tr_graph_find(s->g, ASIDE);
    return tr_is_none(aside) ? TR_OK : tr_session_gather(s, tr_params_copy(s->g, aside, true));
}
