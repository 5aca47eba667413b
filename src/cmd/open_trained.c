/* Opens the world, a configuration and a trained model. */
#include "open_trained.h"
#include "weights/huggingface.h"
#include "trainer/log.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Says what the path of a model lacks. */
static tr_status_t trained_fail(const char *path) {
    if (access(path, F_OK) != 0)
        return TR_FAIL(tr_status_of_errno(errno), "cannot read %s: %s", path, strerror(errno));
    if (!tr_is_folder(path))
        return TR_FAIL(TR_ERR_NOINPUT,
                       "%s is a file: expected the folder of a run, of a checkpoint, or of Hugging "
                       "Face's GPT-2",
                       path);
    TR_TRY(tr_hf_check_folder(path));
    return TR_FAIL(TR_ERR_NOINPUT,
                   "%s: expected a run or a checkpoint in its run's folder (config.ini), or a "
                   "folder of Hugging Face's GPT-2 (config.json, model.safetensors), found none of "
                   "these files",
                   path);
}

tr_status_t cmd_trained_config(tr_world_t *world, const cmd_trained_params_t *params,
                               tr_config_t **out) {
    char config[4096];
    /* A Hugging Face folder has no configuration file: its config.json is used. */
    if (!params->config && tr_hf_is_folder(params->model.weights)) {
        char init[4096 + 16];
        char *first[] = {(char *)"model.type=gpt", init};
        cmd_words_t all;
        snprintf(init, sizeof init, "model.init=%s", params->model.weights);
        TR_TRY(cmd_words_join((cmd_words_t){TR_COUNT(first), first}, params->settings, &all));
        const tr_status_t status = cmd_config_load_all(world, NULL, all, out);
        tr_free(&all.word);
        return status;
    }
    const bool found =
        cmd_config_path(params->config ? params->config : params->model.weights, config);
    if (!found && !params->config && tr_world_info(world)->rank == 0)
        return trained_fail(params->model.weights);
    return cmd_config_load_all(world, config, params->settings, out);
}

tr_status_t cmd_trained_open(const cmd_trained_params_t *params, cmd_trained_t *t) {
    tr_config_t *config = NULL;
    *t = (cmd_trained_t){.step = -1};
    TR_TRY(cmd_world_open(&t->world));
    TR_TRY(cmd_trained_config(t->world, params, &config));
    t->config = config;
    return tr_trained_open(&params->model, t);
}

tr_status_t cmd_trained_close(cmd_trained_t *t, tr_status_t status) {
    tr_config_t *config = (tr_config_t *)(uintptr_t)t->config; /* of cmd_trained_open */
    tr_trained_close(t);
    tr_config_destroy(&config);
    if (status == TR_OK && t->world) cmd_world_close(&t->world);
    return status;
}
