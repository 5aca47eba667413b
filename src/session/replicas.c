/* The comparison of the replicas: a fingerprint of each kind of state per rank, and who differs. */
#include "replicas.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    tr_role_t role;
    const char *name;
} parts[] = {{TR_ROLE_PARAM, "weights"},
             {TR_ROLE_MODEL_STATE, "model state"},
             {TR_ROLE_OPTIM_STATE, "optimizer state"}};
enum { PARTS = sizeof parts / sizeof *parts };

/* What a rank has. */
typedef struct {
    uint64_t sum[PARTS];
    char host[64];
} replica_t;

struct tr_replicas {
    tr_session_t *s;
    uint64_t *sums, *host; /* [PARTS], on the device and pinned */
    replica_t *all;        /* [ranks] */
    int64_t flip_after;    /* for tests: a bit of a weight of this rank changes then; -1: never */
};

/* TRAINER_FLIP_BIT=RANK:STEP, for tests of this comparison. */
static int64_t replicas_flip_after(int rank) {
    const char *text = getenv("TRAINER_FLIP_BIT");
    char *end = NULL;
    if (!text || strtol(text, &end, 10) != rank || *end != ':') return -1;
    return strtoll(end + 1, NULL, 10);
}

tr_status_t tr_replicas_create(tr_session_t *s, tr_replicas_t **out) {
    const tr_device_ops_t *ops = s->device->ops;
    const tr_world_info_t *info = tr_world_info(s->world);
    tr_replicas_t *r = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *r, "replicas", &r));
    r->s = s;
    r->flip_after = replicas_flip_after(info->rank);
    TR_TRY_GOTO(tr_alloc((size_t)info->size * sizeof *r->all, "replicas", &r->all), fail);
    TR_TRY_GOTO(ops->alloc(s->device, sizeof r->all->sum, 0, (void **)&r->sums), fail);
    TR_TRY_GOTO(ops->host_alloc(s->device, sizeof r->all->sum, (void **)&r->host), fail);
    *out = r;
    return TR_OK;
fail:
    tr_replicas_destroy(&r);
    return status;
}

void tr_replicas_destroy(tr_replicas_t **replicas) {
    tr_replicas_t *r = *replicas;
    if (!r) return;
    if (r->sums) r->s->device->ops->free(r->s->device, r->sums);
    if (r->host) r->s->device->ops->host_free(r->s->device, r->host);
    tr_free(&r->all);
    tr_free(replicas);
}

/* Flips a bit of the first weight. */
static tr_status_t replicas_flip(tr_replicas_t *r) {
    const tr_device_ops_t *ops = r->s->device->ops;
    tr_stream_t *stream = tr_graph_stream(r->s->g);
    uint32_t *word = (uint32_t *)r->host;
    size_t bytes;
    const tr_role_t role =
        tr_region_is_sharded(r->s->g, TR_ROLE_PARAM) ? TR_ROLE_COPY : TR_ROLE_PARAM;
    void *weights = tr_graph_region_to_write(r->s->g, role, &bytes);
    r->flip_after = -1;
    TR_TRY(ops->copy(r->s->device, stream, word, weights, sizeof *word, TR_COPY_TO_HOST));
    TR_TRY(tr_graph_sync(r->s->g));
    *word ^= 1;
    TR_TRY(ops->copy(r->s->device, stream, weights, word, sizeof *word, TR_COPY_TO_DEVICE));
    return tr_graph_sync(r->s->g);
}

/* The padding between tensors is left out: it is not defined. So are the parts of ranks, which are no
 * replicas; of a sharded parameter, its copy is compared. */
static bool replicas_has(const tr_graph_t *g, tr_tensor_t t, tr_role_t role) {
    const tr_tensor_info_t *info = tr_tensor_info(g, t);
    if (role == TR_ROLE_MODEL_STATE) return tr_is_model_state(g, t);
    if (role == TR_ROLE_PARAM && info->role == TR_ROLE_COPY)
        return tr_region_is_sharded(g, role) && tr_is_param(g, info->base);
    if (role == TR_ROLE_PARAM) return tr_is_param(g, t) && info->data;
    return info->role == role && !(info->mirrors_params && tr_graph_is_sharded(g));
}

static tr_status_t replicas_sum(tr_replicas_t *r, uint64_t out[PARTS]) {
    tr_device_t *device = r->s->device;
    const tr_graph_t *g = r->s->g;
    tr_stream_t *stream = tr_graph_stream(g);
    const size_t bytes = PARTS * sizeof *r->sums;
    TR_TRY(device->ops->zero(device, stream, r->sums, bytes));
    for (int p = 0; p < PARTS; p++)
        for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
            const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
            const int64_t words = (int64_t)(info->bytes / sizeof(uint32_t));
            if (words == 0 || !replicas_has(g, (tr_tensor_t){id}, parts[p].role)) continue;
            const tr_kernel_call_t call = {
                .n_in = 1,
                .n_out = 1,
                .in = {{info->data, TR_I32, TR_SHAPE(words)}},
                .out = {{r->sums + p, TR_I64, TR_SHAPE(1)}},
            };
            TR_TRY(device->ops->kernels[TR_K_FINGERPRINT].run(device, stream, &call));
        }
    TR_TRY(device->ops->copy(device, stream, r->host, r->sums, bytes, TR_COPY_TO_HOST));
    TR_TRY(tr_graph_sync(r->s->g));
    memcpy(out, r->host, bytes);
    return TR_OK;
}

static bool replica_is(const replica_t *a, const replica_t *b) {
    return memcmp(a->sum, b->sum, sizeof a->sum) == 0;
}

/* The rank that most ranks agree with: more than half of them, or -1. */
static int replicas_majority(const replica_t *all, int size) {
    for (int r = 0; r < size; r++) {
        int like = 0;
        for (int k = 0; k < size; k++) like += replica_is(&all[r], &all[k]);
        if (2 * like > size) return r;
    }
    return -1;
}

/* The error of a difference; `right` is a rank of the majority, or -1. */
static tr_status_t replicas_fail(const tr_replicas_t *r, int64_t step, int right) {
    const tr_world_info_t *info = tr_world_info(r->s->world);
    const replica_t *all = r->all, *wanted = &all[right < 0 ? 0 : right];
    const char *node = NULL;
    bool is_one_node = right >= 0;
    tr_str_t what = {0}, who = {0};
    for (int p = 0; p < PARTS; p++)
        for (int k = 0; k < info->size; k++)
            if (all[k].sum[p] != wanted->sum[p]) {
                tr_str_printf(&what, "%s%s", what.length ? ", " : "", parts[p].name);
                break;
            }
    for (int k = 0; k < info->size; k++) {
        if (replica_is(&all[k], wanted)) continue;
        is_one_node = is_one_node && (!node || strcmp(node, all[k].host) == 0);
        node = all[k].host;
        tr_str_printf(&who, "%s%d (%s)", who.length ? ", " : "", k, node);
    }
    TR_FAIL(TR_ERR_RETRY,
            "after step %lld the ranks do not hold the same bits any more (%s): rank %.1000s "
            "%s. The memory or a processor of a node is faulty, or this is a bug. No checkpoint of "
            "this step is written; the run can be continued from the last one",
            (long long)step, what.text, who.text,
            right >= 0       ? "differs from the majority"
            : info->size > 2 ? "differs from rank 0, and no state is that of most ranks"
                             : "differs from rank 0, and which of the two is right is unknown");
    tr_str_free(&what);
    tr_str_free(&who);
    tr_error_t error = *tr_error_last();
    error.origin = info->rank == 0 ? TR_ORIGIN_MINE : TR_ORIGIN_PEER;
    memcpy(error.fault, TR_REPLICAS_FAULT, sizeof TR_REPLICAS_FAULT);
    if (is_one_node) memcpy(error.node, node, sizeof error.node);
    return tr_error_set(&error);
}

tr_status_t tr_replicas_compare(tr_replicas_t *r, int64_t step) {
    const tr_world_info_t *info = tr_world_info(r->s->world);
    replica_t mine = {0};
    if (r->flip_after >= 0 && step >= r->flip_after) TR_TRY(replicas_flip(r));
    TR_TRY(replicas_sum(r, mine.sum));
    memcpy(mine.host, info->host, sizeof mine.host);
    TR_TRY(tr_world_allgather(r->s->world, &mine, sizeof mine, r->all));
    for (int k = 1; k < info->size; k++)
        if (!replica_is(&r->all[0], &r->all[k]))
            return replicas_fail(r, step, replicas_majority(r->all, info->size));
    return TR_OK;
}
