/* Chooses the device of a rank and its number of threads. */
#include "open_device.h"
#include "settings.h"
#include "trainer/log.h"
#include "base/mem.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tr_nearest_device(const cpu_set_t *near, int count, const cpu_set_t *ranks, int rank) {
    int chosen = 0, users[TR_NODE_DEVICES] = {0};
    for (int r = 0; r <= rank; r++) {
        int most = -1;
        for (int i = 0; i < count; i++) {
            cpu_set_t both;
            CPU_AND(&both, &near[i], &ranks[r]);
            if (users[i] > r / count || CPU_COUNT(&both) <= most) continue;
            most = CPU_COUNT(&both);
            chosen = i;
        }
        users[chosen]++;
    }
    return chosen;
}

/* If the launcher binds devices, every rank sees only its own. */
static tr_status_t choose_index(const char *name, const tr_world_t *world, bool share,
                                int *out_index) {
    const tr_world_info_t *place = world ? tr_world_info(world) : NULL;
    const tr_backend_t *backend = NULL;
    cpu_set_t near[TR_NODE_DEVICES] = {0};
    int count = 1;
    *out_index = 0;
    TR_TRY(tr_backend_find(name, &backend));
    if (backend->count) TR_TRY(backend->count(&count));
    if (!place || count <= 1) return TR_OK;
    if (count > TR_NODE_DEVICES) count = TR_NODE_DEVICES;
    if (place->local_rank >= count && !share)
        return TR_FAIL(TR_ERR_CONFIG,
                       "device = %s: this node has %d of them, for %d ranks: start at most %d "
                       "ranks per node, or set cuda.share = yes",
                       backend->name, count, place->local_size, count);
    if (backend->near_cores) backend->near_cores(count, near);
    *out_index = tr_nearest_device(near, count, tr_world_node_cores(world), place->local_rank);
    return TR_OK;
}

int tr_cores_of_rank(const tr_world_info_t *place) {
    return place && place->cores > place->cores_shared_by ? place->cores / place->cores_shared_by
                                                          : 1;
}

void tr_plan_folder(const tr_config_t *config, char folder[PATH_MAX]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    tr_cuda_settings_t cuda;
    tr_config_read(config, &tr_cuda_config, &cuda);
    if (strcmp(cuda.plan_cache, "auto") != 0)
        snprintf(folder, PATH_MAX, "%s",
                 strcmp(cuda.plan_cache, "none") != 0 ? cuda.plan_cache : "");
    else if (cache && *cache)
        snprintf(folder, PATH_MAX, "%s/trainer/cudnn", cache);
    else if (home && *home)
        snprintf(folder, PATH_MAX, "%s/.cache/trainer/cudnn", home);
    else
        *folder = '\0';
}

tr_status_t tr_open_gpu_model(const tr_config_t *config, const char *model, bool tf32,
                              tr_device_t **out) {
    tr_cuda_settings_t cuda;
    char folder[PATH_MAX];
    tr_config_read(config, &tr_cuda_config, &cuda);
    tr_plan_folder(config, folder);
    const tr_device_params_t p = {.memory_share = cuda.memory_limit,
                                  .model = model,
                                  .tf32 = tf32,
                                  .any_order = !cuda.deterministic,
                                  .plan_folder = folder};
    return tr_device_open("cuda", &p, out);
}

tr_status_t tr_open_device(const tr_config_t *config, const char *name, uint64_t seed, bool tf32,
                           const tr_world_t *world, tr_device_t **out) {
    tr_main_settings_t settings;
    tr_cuda_settings_t cuda;
    tr_parallel_settings_t parallel;
    char folder[PATH_MAX];
    tr_config_read(config, &tr_main_config, &settings);
    tr_config_read(config, &tr_cuda_config, &cuda);
    tr_config_read(config, &tr_parallel_config, &parallel);
    if (parallel.reproducible && !cuda.deterministic)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "parallel.reproducible = yes promises the same bits on any number of ranks, "
            "and cuda.deterministic = no gives up the same bits in two runs. Remove one");
    tr_plan_folder(config, folder);
    const bool automatic = settings.threads < 0;
    tr_device_params_t p = {.threads = (int)settings.threads,
                            .seed = seed,
                            .direct = !settings.winograd,
                            .tf32 = tf32,
                            .memory_share = cuda.memory_limit,
                            .sync = cuda.debug == TR_CUDA_DEBUG_SYNC,
                            .nvtx = cuda.debug == TR_CUDA_DEBUG_NVTX,
                            .tune = cuda.tune,
                            .any_order = !cuda.deterministic,
                            .plan_folder = folder};
    if (automatic) p.threads = world ? tr_cores_of_rank(tr_world_info(world)) : 0;
    if (!name) name = settings.device;
    TR_TRY(choose_index(name, world, cuda.share, &p.index));
    TR_TRY(tr_device_open(name, &p, out));
    if ((*out)->threads > 0 && (*out)->threads < settings.threads)
        TR_WARN("threads = %d: OpenMP allows at most %d; raise OMP_THREAD_LIMIT or unset it",
                (int)settings.threads, (*out)->threads);
    return TR_OK;
}

tr_status_t tr_check_own_device(tr_world_t *world, const tr_config_t *config,
                                const tr_device_t *device) {
    const tr_world_info_t *w = tr_world_info(world);
    tr_cuda_settings_t cuda;
    int other = -1;
    tr_config_read(config, &tr_cuda_config, &cuda);
    tr_status_t status = tr_world_device_sharer(world, device, &other);
    if (status == TR_OK && other >= 0 && !cuda.share)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "ranks %d and %d of node %s both have GPU %s (%s): start one rank for "
                         "each GPU, give each rank its own, or set cuda.share = yes",
                         other, w->rank, w->host, device->uuid, device->bus_id);
    return tr_world_agree(world, status);
}
