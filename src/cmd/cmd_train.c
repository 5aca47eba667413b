/* trainer train CONFIG.ini [key=value ...] */
#include "cmd.h"
#include "trainer/log.h"
#include "trainer/train.h"

#include <signal.h>

tr_status_t cmd_train(int argc, char **argv) {
    if (argc < 2)
        return TR_FAIL(TR_ERR_USAGE,
                       "train wants a configuration file: trainer train CONFIG.ini [key=value ...]");
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-')
            return TR_FAIL(
                TR_ERR_USAGE,
                "train does not know %s; what it takes are keys: trainer train CONFIG.ini section.key=value",
                argv[i]);
    tr_world_t *world = NULL;
    tr_config_t *config = NULL;
    signal(SIGPIPE, SIG_IGN); /* whoever reads along may go: with the terminal, say */
    TR_TRY(cmd_world_open(&world));
    const tr_world_info_t *info = tr_world_info(world);
    tr_log_set_rank(info->rank, info->size, info->host);
    TR_TRY(cmd_config_load_all(world, argv[1], argc - 2, argv + 2, &config));
    const tr_train_params_t params = {.config_path = argv[1], .version = cmd_version};
    const tr_status_t status = tr_train(config, world, &params);
    tr_config_destroy(&config);
    if (status == TR_OK || status == TR_ERR_RETRY) { /* in good order on every rank: they leave together */
        tr_error_t kept = *tr_error_last();
        if (status == TR_ERR_RETRY) { /* a launcher that was asked to stop leaves little time */
            cmd_say_error(status);
            (void)tr_world_barrier(world);
        }
        cmd_world_close(&world);
        if (status == TR_ERR_RETRY) return tr_error_set(&kept);
    }
    return status;
}
