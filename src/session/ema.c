/* Evaluation with the moving average of the weights. */
#include "ema.h"
#include "optim/optim.h"

#define ASIDE "ema.trained" /* the trained weights during an evaluation */

tr_status_t tr_ema_declare(tr_session_t *s) {
    tr_tensor_t aside;
    if (tr_is_none(tr_graph_find(s->g, TR_EMA_STATE))) return TR_OK;
    return tr_const(s->g, ASIDE, &TR_SHAPE(tr_graph_layout(s->g).trainable_elems), 0, &aside);
}

static tr_status_t copy_block(tr_session_t *s, void *dst, const void *src) {
    const size_t bytes = (size_t)tr_graph_layout(s->g).trainable_elems * sizeof(float);
    return s->device->ops->copy(s->device, tr_graph_stream(s->g), dst, src, bytes,
                                TR_COPY_ON_DEVICE);
}

static void *data_of(const tr_session_t *s, const char *name) {
    return tr_tensor_info(s->g, tr_graph_find(s->g, name))->data;
}

static void *trainable(const tr_session_t *s) {
    size_t bytes;
    return tr_graph_region_to_write(s->g, TR_ROLE_PARAM, &bytes); /* trainable ones come first */
}

tr_status_t tr_ema_begin(tr_session_t *s) {
    if (tr_is_none(tr_graph_find(s->g, ASIDE))) return TR_OK;
    TR_TRY(copy_block(s, data_of(s, ASIDE), trainable(s)));
    return copy_block(s, trainable(s), data_of(s, TR_EMA_STATE));
}

tr_status_t tr_ema_end(tr_session_t *s) {
    if (tr_is_none(tr_graph_find(s->g, ASIDE))) return TR_OK;
    return copy_block(s, trainable(s), data_of(s, ASIDE));
}
