/* Loading a command's configuration: file, environment, command line. */
#include "cmd.h"
#include "weights/huggingface.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/model.h"
#include "trainer/session.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

bool cmd_config_path(const char *path, char out[4096]) {
    static const char *const places[] = {"config.ini", "../config.ini", "../../config.ini"};
    char folder[PATH_MAX], found[PATH_MAX + 32];
    snprintf(out, 4096, "%s", path);
    if (!tr_is_folder(path) || !realpath(path, folder)) return false;
    for (size_t i = 0; i < TR_COUNT(places); i++) {
        snprintf(found, sizeof found, "%s/%s", folder, places[i]);
        if (access(found, F_OK) != 0) continue;
        snprintf(out, 4096, "%.4095s", found);
        return true;
    }
    return false;
}

/* Checks `config`. An unknown model.type explains unknown keys: the run is of an embedding program.
 */
static tr_status_t config_check_model(tr_config_t *config) {
    const char *type = tr_config_get(config, "model.type");
    const tr_model_t *model;
    const tr_status_t status = tr_config_check(config);
    tr_error_t error = *tr_error_last();
    if (tr_model_find(type, &model) == TR_OK) return status;
    if (status == TR_OK) error = *tr_error_last();
    const size_t length = strlen(error.message);
    snprintf(error.message + length, sizeof error.message - length,
             "\nmodel.type = %s is not a model of trainer. If an embedding program registers it, "
             "evaluate and predict there: tr_evaluate, tr_predictor_open (docs/embedding.md)",
             type);
    return tr_error_set(&error);
}

tr_status_t cmd_config_load(const char *path, cmd_words_t settings, tr_config_t **out) {
    const tr_config_table_t *const *tables;
    size_t n;
    tr_status_t status = TR_OK;
    *out = NULL;
    TR_TRY(tr_all_tables(&tables, &n));
    TR_TRY(tr_config_create(tables, n, out));
    if (path) TR_TRY_GOTO(tr_config_load_file(*out, path), done);
    TR_TRY_GOTO(tr_config_load_environment(*out, environ), done);
    for (int i = 0; i < settings.count; i++)
        TR_TRY_GOTO(tr_config_set(*out, settings.word[i], "command line"), done);
    TR_TRY_GOTO(config_check_model(*out), done);
    TR_TRY_GOTO(tr_hf_configure(*out), done);
    TR_TRY_GOTO(tr_config_check(*out), done);
done:
    if (status != TR_OK) tr_config_destroy(out);
    return status;
}

tr_status_t cmd_config_load_all(tr_world_t *world, const char *path, cmd_words_t settings,
                                tr_config_t **out) {
    const bool is_root = tr_world_info(world)->rank == 0;
    const tr_config_table_t *const *tables;
    size_t n;
    tr_str_t text = {0};
    char *sent = NULL;
    tr_status_t status = TR_OK;
    *out = NULL;
    if (is_root) status = cmd_config_load(path, settings, out);
    TR_TRY(tr_world_agree(world, status));
    /* Rank 0 sends its text, which the others load. */
    if (is_root) {
        TR_TRY(tr_config_serialize(*out, &text));
        TR_TRY(tr_str_take(&text, &sent));
    }
    TR_TRY_GOTO(tr_world_broadcast_text(world, &sent, 0), done);
    if (is_root) goto done;
    TR_TRY_GOTO(tr_all_tables(&tables, &n), done);
    TR_TRY_GOTO(tr_config_create(tables, n, out), done);
    TR_TRY_GOTO(tr_config_load_text(*out, "rank 0", sent, strlen(sent)), done);
    TR_TRY_GOTO(tr_config_check(*out), done);
done:
    tr_free(&sent);
    return status;
}
