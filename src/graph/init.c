/* First values of parameters, states and constants: functions of seed and name, not of layout,
 * ranks or threads. */
#include "graph_int.h"
#include "base/rng.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { VALUES_OF_THREADS = 1 << 14 }; /* at least; fewer are drawn by one thread */

/* Four values from one Philox block: two Box-Muller pairs, or four uniforms. */
static void init_draw(const tr_init_t *init, uint64_t seed, uint64_t name, uint64_t block,
                      float v[4]) {
    const tr_rng_block_t bits = tr_rng_philox(seed, TR_RNG_INIT, 0, name, block);
    for (int i = 0; i < 4; i += 2) {
        const double u = ((double)bits.v[i] + 0.5) * 0x1p-32,
                     w = ((double)bits.v[i + 1] + 0.5) * 0x1p-32;
        if (init->kind == TR_INIT_UNIFORM) {
            v[i] = (float)(init->value * (2 * u - 1));
            v[i + 1] = (float)(init->value * (2 * w - 1));
        } else {
            const double radius = init->value * sqrt(-2 * log(u));
            v[i] = (float)(radius * cos(2 * M_PI * w));
            v[i + 1] = (float)(radius * sin(2 * M_PI * w));
        }
    }
}

/* Memory that is zero stays untouched, so that the system need not provide its pages yet. */
static tr_status_t init_zero(tr_graph_t *g, const tr_tensor_info_t *info) {
    return g->is_blank || !info->data
               ? TR_OK /* of sharded parameters, which lie in the parameter block */
               : g->device->ops->zero(g->device, g->stream, info->data, info->bytes);
}

static tr_status_t init_tensor(tr_graph_t *g, tr_tensor_t t, uint64_t seed) {
    const tr_tensor_rec_t *rec = tr_rec(g, t);
    const bool zeros =
        rec->info.param.init.kind == TR_INIT_CONST && rec->info.param.init.value == 0;
    if (rec->values) return tr_tensor_write(g, t, rec->values);
    if (rec->info.dtype != TR_F32 || zeros) return init_zero(g, &rec->info);
    float *values = NULL;
    TR_TRY(tr_alloc(rec->info.bytes, rec->name, &values));
    const tr_init_t *init = &rec->info.param.init;
    const int64_t count = tr_shape_elems(&rec->info.shape);
    const uint64_t name = tr_hash_name(rec->name);
    const int all = g->device->threads > 0 ? g->device->threads : omp_get_max_threads(),
              threads = count < VALUES_OF_THREADS ? 1 : all;
    if (init->kind == TR_INIT_CONST) {
        for (int64_t i = 0; i < count; i++) values[i] = (float)init->value;
    } else { /* each block of four is drawn by itself, so the threads do not change the values */
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < count; i += 4) {
            float v[4];
            init_draw(init, seed, name, (uint64_t)(i / 4), v);
            memcpy(values + i, v, (size_t)(count - i < 4 ? count - i : 4) * sizeof(float));
        }
    }
    const tr_status_t status = tr_tensor_write(g, t, values);
    tr_free(&values);
    return status;
}

static tr_status_t graph_init(tr_graph_t *g, uint64_t seed, bool params_too) {
    if (!g->allocated) return TR_FAIL(TR_ERR_INTERNAL, "initialisation requires allocated memory");
    const tr_tensor_info_t *params = tr_tensor_info(g, g->param_block);
    if (params->bytes > 0) TR_TRY(init_zero(g, params)); /* padding between parameters stays zero */
    for (size_t i = 1; i < g->tensors.count; i++) {
        const tr_tensor_t t = {(int32_t)i};
        const tr_role_t role = tr_tensor_info(g, t)->role;
        const bool filled = (role == TR_ROLE_PARAM && params_too) || role == TR_ROLE_CONST ||
                            role == TR_ROLE_MODEL_STATE || role == TR_ROLE_OPTIM_STATE ||
                            role == TR_ROLE_INPUT || role == TR_ROLE_CACHE;
        const bool is_block = t.id == g->param_block.id || t.id == g->state_block.id;
        if (filled && !is_block) TR_TRY(init_tensor(g, t, seed));
    }
    g->is_blank = false;
    return tr_graph_sync(g);
}

tr_status_t tr_graph_init_params(tr_graph_t *g, uint64_t seed) {
    return graph_init(g, seed, true);
}

tr_status_t tr_graph_init_states(tr_graph_t *g) {
    return graph_init(g, 0, false);
}
