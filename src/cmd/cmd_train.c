/* trainer train CONFIG.ini [key=value ...] */
#include "cmd.h"
#include "trainer/log.h"
#include "trainer/train.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* UCX, which many an MPI brings along, takes HUP for itself when it is loaded, also where nohup has it ignored. How it was is seen before libraries
 * are initialised, and by the system call itself: sanitizers are not there yet either. */
static bool hup_is_ignored;

__attribute__((no_sanitize("address", "thread", "undefined"))) static void look_at_hup(void) {
    struct {
        void (*handler)(int);
        char rest[64];
    } action = {0};
    const size_t mask_bytes = 8;
    hup_is_ignored =
        syscall(SYS_rt_sigaction, SIGHUP, NULL, &action, mask_bytes) == 0 && action.handler == SIG_IGN;
}
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = look_at_hup;

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
    if (hup_is_ignored) signal(SIGHUP, SIG_IGN);
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
