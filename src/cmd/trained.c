#include "trained.h"
#include "trainer/log.h"

tr_status_t cmd_trained_open(const cmd_trained_params_t *params, cmd_trained_t *t) {
    const tr_trained_params_t trained = {
        .weights = params->weights, .split = params->split, .prediction = params->prediction};
    char config[4096];
    *t = (cmd_trained_t){.step = -1};
    TR_TRY(cmd_world_open(&t->world));
    const tr_world_info_t *info = tr_world_info(t->world);
    tr_log_set_rank(info->rank, info->size, info->host);
    const bool found = cmd_config_path(params->config ? params->config : params->weights, config);
    if (!found && !params->config && info->rank == 0)
        return TR_FAIL(
            TR_ERR_NOINPUT,
            "%s is not a run folder: it has no config.ini. Name a configuration file before it",
            params->weights);
    tr_config_t *loaded = NULL;
    TR_TRY(cmd_config_load_all(t->world, config, params->count, params->assignments, &loaded));
    t->config = loaded;
    return tr_trained_open(&trained, t);
}

tr_status_t cmd_trained_close(cmd_trained_t *t, tr_status_t status) {
    tr_config_t *config = (tr_config_t *)(uintptr_t)t->config; /* of cmd_trained_open */
    tr_trained_close(t);
    tr_config_destroy(&config);
    if (status == TR_OK && t->world) cmd_world_close(&t->world);
    return status;
}
