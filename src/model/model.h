/* Models for the program: their common keys, finding and building one. A model of the library is one
 * file and one line in models.def. */
#ifndef TR_MODEL_MODEL_H
#define TR_MODEL_MODEL_H

#include "config/config.h"
#include "graph/program.h"
#include "trainer/model.h"

/* Keys of every model: model.type, model.loss, model.label_smoothing, model.huber_delta,
 * model.class_weights, model.topk, model.init, model.init_layout, model.recompute,
 * model.freeze. */
typedef struct {
    const char *type;
    int loss; /* tr_loss_kind_t */
    double label_smoothing;
    double huber_delta;
    const char *class_weights; /* one number per class, or balanced; "": all 1 */
    int64_t topk;
    /* run folder, checkpoint folder or .safetensors file to start from; "": none */
    const char *init;
    int init_layout;       /* tr_init_layout_t */
    const char *recompute; /* "none", a number of layers or blocks, or a keyword of the model */
    const char *freeze;    /* patterns of parameter names, comma-separated */
} tr_model_settings_t;
typedef enum { TR_INIT_LAYOUT_AUTO, TR_INIT_LAYOUT_TRAINER, TR_INIT_LAYOUT_TORCH } tr_init_layout_t;
typedef enum {
    TR_LOSS_AUTO,
    TR_LOSS_CROSS_ENTROPY,
    TR_LOSS_MSE,
    TR_LOSS_HUBER,
    TR_LOSS_BINARY_CROSS_ENTROPY,
    TR_LOSS_MAE,
    TR_LOSS_DICE,
    TR_LOSS_DICE_CE
} tr_loss_kind_t;
/* Whether y must have classes. */
static inline bool tr_loss_has_classes(int loss) {
    return loss == TR_LOSS_CROSS_ENTROPY || loss == TR_LOSS_DICE || loss == TR_LOSS_DICE_CE;
}
extern const tr_config_table_t tr_model_config;

const tr_model_t *tr_model_at(size_t index); /* of the registered models; NULL after the last */
tr_status_t tr_model_find(const char *name, const tr_model_t **out);
/* Finds model.type and builds the model. A pattern of model.freeze that matches no parameter is an
 * error. */
tr_status_t tr_model_build(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                           tr_model_result_t *out);

#endif
