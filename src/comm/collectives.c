/* Chooses the collectives engine: the device's own, or MPI. */
#include "engine_int.h"
#include "trainer/log.h"
#include "base/mem.h"
#include <string.h>

#define CLOSE_SEC 10.0

typedef struct {
    int node;
    char uuid[sizeof((tr_device_t *)NULL)->uuid], bus_id[sizeof((tr_device_t *)NULL)->bus_id];
} place_t;

/* The partitions of a GPU (MIG) have the same bus id and different UUIDs. */
static bool collectives_is_same(const place_t *a, const place_t *b) {
    if (a->node != b->node) return false;
    if (a->uuid[0] && b->uuid[0]) return strcmp(a->uuid, b->uuid) == 0;
    return a->bus_id[0] && strcmp(a->bus_id, b->bus_id) == 0;
}

tr_status_t tr_world_device_sharer(tr_world_t *w, const tr_device_t *device, int *out_rank) {
    place_t mine = {.node = w->info.node}, *all = NULL;
    *out_rank = -1;
    memcpy(mine.uuid, device->uuid, sizeof mine.uuid);
    memcpy(mine.bus_id, device->bus_id, sizeof mine.bus_id);
    TR_TRY(tr_alloc((size_t)w->info.size * sizeof *all, "devices of ranks", &all));
    const tr_status_t status = tr_world_allgather(w, &mine, sizeof mine, all);
    for (int r = 0; status == TR_OK && r < w->info.rank && *out_rank < 0; r++)
        if (collectives_is_same(&all[r], &mine)) *out_rank = r;
    tr_free(&all);
    return status;
}

/* Two ranks that share a device: an engine such as NCCL refuses them. */
static tr_status_t collectives_find_sharing(tr_world_t *w, const tr_device_t *device, bool *out) {
    int sharer;
    TR_TRY(tr_world_device_sharer(w, device, &sharer));
    int64_t shared = sharer >= 0;
    TR_TRY(tr_world_allreduce_int(w, &shared, 1, TR_REDUCE_MAX));
    *out = shared > 0;
    return TR_OK;
}

static tr_status_t collectives_choose_own(tr_world_t *w, tr_device_t *device, int engine,
                                          bool *out) {
    const tr_collectives_engine_t *own = device->collectives;
    const char *reason = !own               ? "this device has none"
                         : own->unavailable ? own->unavailable(device)
                                            : NULL; /* this rank can use it */
    int64_t usable = reason == NULL;
    bool shared = false;
    *out = false;
    if (engine == TR_ENGINE_THREAD || engine == TR_ENGINE_POLL) return TR_OK;
    TR_TRY(tr_world_allreduce_int(w, &usable, 1, TR_REDUCE_MIN));
    if (engine == TR_ENGINE_NCCL && !usable)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "parallel.engine = nccl requires a device with its own engine on all ranks, device "
            "'%s': %s. Set parallel.engine = auto.",
            device->ops->name, reason ? reason : "another rank has none");
    if (usable) TR_TRY(collectives_find_sharing(w, device, &shared));
    *out = usable && (engine == TR_ENGINE_NCCL || !shared);
    if (device->collectives && !*out)
        TR_INFO("gradients are reduced by MPI, not by %s: %s", device->collectives->name,
                shared   ? "ranks share a device"
                : reason ? reason
                         : "another rank has none");
    return TR_OK;
}

static tr_status_t collectives_agree_choice(void *world, tr_status_t status) {
    return tr_world_agree(world, status);
}

static tr_status_t collectives_broadcast_bytes(void *world, void *bytes, size_t count, int root) {
    return tr_world_broadcast(world, bytes, count, root);
}

static tr_peers_t collectives_peers_of(tr_world_t *w) {
    return (tr_peers_t){w, collectives_agree_choice, collectives_broadcast_bytes};
}

static tr_status_t collectives_open_own(tr_world_t *w, tr_device_t *device,
                                        const tr_parallel_settings_t *settings,
                                        tr_collectives_t **out) {
    const tr_collectives_engine_t *own = device->collectives;
    const tr_peers_t peers = collectives_peers_of(w);
    char id[TR_COLLECTIVES_ID_BYTES] = {0};
    TR_TRY(tr_world_agree(w, w->info.rank == 0 ? own->make_id(device, id) : TR_OK));
    TR_TRY(tr_world_broadcast(w, id, sizeof id, 0));
    TR_TRY(tr_world_barrier(w)); /* so that the time limit counts from the same moment */
    return own->open(&(tr_collectives_params_t){.device = device,
                                                .rank = w->info.rank,
                                                .size = w->info.size,
                                                .nodes = w->info.nodes,
                                                .id = id,
                                                .windows = (tr_windows_t)settings->windows,
                                                .timeout_sec = settings->timeout,
                                                .peers = &peers},
                     out);
}

tr_status_t tr_world_collectives(tr_world_t *world, tr_device_t *device,
                                 const tr_parallel_settings_t *settings, tr_collectives_t **out) {
    bool own = false;
    TR_TRY(collectives_choose_own(world, device, settings->engine, &own));
    if (own)
        TR_TRY(collectives_open_own(world, device, settings, out));
    else
        TR_TRY(tr_engine_open(world, device, settings, out));
    (*out)->peers = collectives_peers_of(world);
    (*out)->engine = own ? "nccl" : ((tr_engine_t *)*out)->worker ? "thread" : "poll";
    tr_heartbeat_watch(&world->heartbeat, (*out)->words);
    return TR_OK;
}

void tr_world_collectives_close(tr_world_t *world, tr_collectives_t **collectives) {
    if (!*collectives) return;
    tr_heartbeat_watch(&world->heartbeat, NULL);
    if ((*collectives)->ops->close(collectives, CLOSE_SEC) != TR_OK)
        TR_WARN_ALL("%s", tr_error_last()->message);
}
