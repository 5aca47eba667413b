/* Norms of the gradient and the loss scale over a run. */
#include "metrics_gradient.h"
#include "base/json_text.h"

#include <math.h>

tr_metrics_gradient_t tr_metrics_gradient_new(void) {
    return (tr_metrics_gradient_t){.smallest = NAN, .largest = NAN, .loss_scale = 1};
}

void tr_metrics_gradient_step(tr_metrics_gradient_t *g, const tr_step_outcome_t *o) {
    if (o->loss_scale > 0) g->loss_scale = o->loss_scale;
    g->overflows = o->overflows;
    if (!o->finite) return;
    g->smallest = fmin(g->smallest, o->grad_norm); /* fmin passes over a NaN */
    g->largest = fmax(g->largest, o->grad_norm);
}

void tr_metrics_gradient_save(const tr_metrics_gradient_t *g, json_t *to) {
    json_object_set_new(to, "loss_scale", json_real(g->loss_scale));
    json_object_set_new(to, "overflows", json_integer((json_int_t)g->overflows));
    json_object_set_new(to, "grad_norm_min", tr_json_finite(g->smallest));
    json_object_set_new(to, "grad_norm_max", tr_json_finite(g->largest));
}

tr_metrics_gradient_t tr_metrics_gradient_restore(const json_t *state) {
    const json_t *smallest = json_object_get(state, "grad_norm_min"),
                 *largest = json_object_get(state, "grad_norm_max"),
                 *scale = json_object_get(state, "loss_scale");
    tr_metrics_gradient_t g = tr_metrics_gradient_new();
    if (json_is_number(smallest)) g.smallest = json_number_value(smallest);
    if (json_is_number(largest)) g.largest = json_number_value(largest);
    if (json_is_number(scale)) g.loss_scale = json_number_value(scale);
    g.overflows = json_integer_value(json_object_get(state, "overflows"));
    return g;
}
