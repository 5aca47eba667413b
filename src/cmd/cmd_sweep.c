/* trainer sweep CONFIG.ini KEY=A,B,C KEY=LOW..HIGH --out OUT: trains every combination of values,
 * and compares the runs. */
#include "sweep/sweep.h"

#include "base/file.h"
#include "trainer/log.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { MAX_JOBS = 1024 };

typedef struct {
    const char *config_path, *out;
    cmd_words_t settings;
    int64_t random, seed, jobs, member;
    bool prepare;
} sweep_options_t;

/* For job scripts: one word per line. */
static tr_status_t sweep_print_member(const sweep_t *sweep, int64_t number) {
    sweep_words_t words = {0};
    if (number > (int64_t)sweep->members.count)
        return TR_FAIL(TR_ERR_USAGE, "--member %lld: %s has %zu members", (long long)number,
                       sweep->out, sweep->members.count);
    const tr_status_t status = sweep_words(sweep, &sweep->members.data[number - 1], &words);
    for (size_t i = 0; i < words.count && status == TR_OK; i++) printf("%s\n", words.data[i]);
    sweep_words_free(&words);
    return status;
}

/* Also of members that failed or were stopped. Keeps the error of the sweep. */
static void sweep_compare(const sweep_t *sweep) {
    const tr_error_t kept = *tr_error_last();
    char out[4096], folder[4096];
    bool has_runs = false;
    for (size_t i = 0; i < sweep->members.count; i++)
        has_runs |= sweep_path(sweep, &sweep->members.data[i], "", folder) == TR_OK &&
                    access(folder, F_OK) == 0;
    if (has_runs && tr_path_join(sweep->out, "compare", out) == TR_OK &&
        cmd_compare_folder(sweep->out, out) != TR_OK)
        TR_WARN("%s", tr_error_last()->message);
    tr_error_set(&kept);
}

static tr_status_t sweep_command(sweep_t *sweep, const sweep_options_t *o) {
    sweep_members_t points = {0};
    tr_status_t status = TR_OK;
    bool uses_gpu;
    if (o->member > 0) return sweep_print_member(sweep, o->member);
    if (o->settings.count > 0) {
        status = sweep_points(sweep->base, o->settings, o->random, o->seed, &points);
        if (status == TR_OK) status = sweep_add(sweep, &points);
        sweep_members_free(&points);
        TR_TRY(status);
    }
    if (sweep->members.count == 0) return cmd_fail_missing(&cmd_sweep, "KEY=VALUES");
    for (size_t i = 0; i < sweep->members.count; i++)
        TR_TRY(sweep_look(sweep, &sweep->members.data[i]));
    TR_TRY(sweep_check(sweep, o->prepare ? 0 : (int)o->jobs, &uses_gpu));
    TR_TRY(sweep_save(sweep));
    if (o->prepare) return printf("%zu\n", sweep->members.count) > 0 ? TR_OK : TR_ERR_IO;
    status = sweep_run(sweep, (int)o->jobs, uses_gpu);
    sweep_compare(sweep);
    return status;
}

static tr_status_t sweep_main(void *options) {
    const sweep_options_t *o = options;
    cpu_set_t cores;
    sweep_t sweep;
    if (tr_launch_tasks() > 1)
        return TR_FAIL(TR_ERR_USAGE,
                       "sweep: expected one process, found %lld: start it without mpirun or srun; "
                       "for members of several ranks there is slurm/sweep_array.sh",
                       (long long)tr_launch_tasks());
    if (sched_getaffinity(0, sizeof cores, &cores) == 0 && o->jobs > CPU_COUNT(&cores))
        return TR_FAIL(TR_ERR_USAGE, "--jobs %lld: this process has %d cores", (long long)o->jobs,
                       CPU_COUNT(&cores));
    signal(SIGCHLD, SIG_DFL); /* who ignores it is not told of the end of members */
    TR_TRY(sweep_open(o->out, o->config_path, o->member > 0, &sweep));
    const tr_status_t status = sweep_command(&sweep, o);
    sweep_close(&sweep);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"[CONFIG.ini]", offsetof(sweep_options_t, config_path), CMD_OPTIONAL, NULL},
    {"[KEY=VALUES ...]", offsetof(sweep_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_TEXT(sweep_options_t, out, "--out", "OUT", NULL,
                    "The folder of the sweep: sweep.json, a run folder for each member (001, 002, "
                    "...) with its output beside it (001.log), and compare/index.html.",
                    .required = true),
    CMD_OPTION_INT(sweep_options_t, random, "--random", "N", NULL, 1, SWEEP_MAX_MEMBERS,
                   "Draws N points of the ranges. Each is trained with all listed values of the "
                   "other keys."),
    CMD_OPTION_INT(sweep_options_t, seed, "--seed", "S", "1", 0, CMD_NO_LIMIT,
                   "The seed of --random. Point i depends only on the seed and i, so a larger N "
                   "adds points."),
    CMD_OPTION_INT(sweep_options_t, jobs, "--jobs", "N", "1", 1, MAX_JOBS,
                   "Members that train at a time, each on its own share of the cores or on its own "
                   "GPU."),
    CMD_OPTION_FLAG(sweep_options_t, prepare, "--prepare",
                    "Only plans the members, writes sweep.json, and prints their number, for job "
                    "scripts."),
    CMD_OPTION_INT(sweep_options_t, member, "--member", "I", NULL, 1, SWEEP_MAX_MEMBERS,
                   "Only prints the arguments of `trainer train` for member I, one per line, for "
                   "job scripts."),
};

const cmd_command_t cmd_sweep = {
    .name = "sweep",
    .runs = CMD_ON_FIRST,
    .summary = "Trains a configuration with all combinations of values, and compares the runs.",
    .help = "KEY=A,B,C lists values. Repeat KEY=VALUE for a key whose value may have commas, such "
            "as model.layers. KEY=LOW..HIGH is a range for --random; a range over a "
            "factor of 10 or more is drawn by its logarithm. A member is one process without "
            "mpirun; slurm/sweep_array.sh trains members of several ranks as a job array. "
            "Ctrl-C stops the members with a checkpoint. The same command, or `trainer sweep --out "
            "OUT`, continues; more values add members. CONFIG must not change.",
    CMD_ARGUMENTS(sweep_options_t),
    CMD_OPTIONS,
    .run = sweep_main,
};
