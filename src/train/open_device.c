/* Which device a rank takes, and with how many threads. */
#include "session.h"
#include "trainer/log.h"

static tr_status_t choose_index(const char *name, const tr_world_info_t *place, int *out_index) {
    const tr_backend_t *backend = NULL;
    int count = 1;
    TR_TRY(tr_backend_find(name, &backend));
    if (backend->count) TR_TRY(backend->count(&count));
    *out_index = place && count > 1 ? place->local_rank : 0;
    if (*out_index < count) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "device = %s: this node has %d of them, for %d ranks: start at most %d ranks "
                   "per node",
                   backend->name, count, place->local_size, count);
}

int tr_cores_of_rank(const tr_world_info_t *place) {
    return place && place->cores > place->cores_shared_by ? place->cores / place->cores_shared_by
                                                          : 1;
}

tr_status_t tr_open_device(const tr_main_settings_t *settings, uint64_t seed,
                           const tr_world_info_t *place, tr_device_t **out) {
    const bool automatic = settings->threads < 0;
    tr_device_params_t p = {
        .threads = (int)settings->threads, .seed = seed, .direct = !settings->winograd};
    if (automatic) p.threads = place ? tr_cores_of_rank(place) : 0;
    TR_TRY(choose_index(settings->device, place, &p.index));
    TR_TRY(tr_device_open(settings->device, &p, out));
    if ((*out)->threads > 0 && (*out)->threads < settings->threads)
        TR_WARN("threads = %d: OpenMP allows at most %d; raise OMP_THREAD_LIMIT or unset it",
                (int)settings->threads, (*out)->threads);
    return TR_OK;
}
