/*
 * Shared by the parts of `trainer sweep`. A sweep is a folder OUT with sweep.json, which holds the
 * configuration and the members, and a run folder OUT/NNN for each member. Private to src/cmd.
 */
#ifndef TR_CMD_SWEEP_SWEEP_H
#define TR_CMD_SWEEP_SWEEP_H

#include "cmd/cmd.h"
#include <jansson.h>
#include <sched.h>

enum { SWEEP_MAX_MEMBERS = 1000 };

/* One run of the sweep. */
typedef struct {
    int number;       /* from 1; its folder is OUT/001 */
    json_t *settings; /* {"optimizer.lr": "0.01", ...}, in the order of the command line */
    bool has_results; /* it is done, or has a checkpoint */
    bool is_done;     /* before this command began: also diverged */
    bool is_elsewhere; /* another process trains it */
    double best;      /* of its validations, the lowest loss; NaN: unknown */
    char reason[256]; /* why it ended, by its verdict; "": unknown */
    uint64_t data;    /* the checksum of its data; 0: unknown */
} sweep_member_t;
typedef TR_VEC(sweep_member_t) sweep_members_t;

typedef struct {
    const char *out;
    char *config_path;
    tr_config_t *base; /* CONFIG and the environment, without the settings of members */
    sweep_members_t members;
    int lock_fd;        /* of OUT/sweep.lock, until sweep.json is written; -1: not held */
    size_t there_bytes; /* of `out`: the folders that were there before */
} sweep_t;

/* -- sweep_space.c: the values on the command line --------------------------------------------- */

/* Appends the settings of every member that `words` (KEY=A,B,C and KEY=LO..HI) ask for: for each of
 * `draws` points of the ranges, all combinations of the listed values. New references. */
tr_status_t sweep_points(const tr_config_t *base, cmd_words_t words, int64_t draws, int64_t seed,
                         sweep_members_t *out);

/* -- sweep_folder.c: OUT ----------------------------------------------------------------------- */

/* Reads OUT/sweep.json, if there is one, and CONFIG (NULL: the one that OUT/sweep.json names). Unless
 * reads_only, makes OUT and holds its lock until sweep_save. TR_ERR_CONFIG: CONFIG is not as it was,
 * or OUT holds other runs. */
tr_status_t sweep_open(const char *out, const char *config_path, bool reads_only, sweep_t *sweep);
/* Adds the members that the sweep does not have yet; takes them from `points`. */
tr_status_t sweep_add(sweep_t *sweep, sweep_members_t *points);
/* Writes OUT/sweep.json, and releases the lock. */
tr_status_t sweep_save(sweep_t *sweep);
/* Removes an OUT that was made for a sweep without sweep.json. */
void sweep_close(sweep_t *sweep);
void sweep_members_free(sweep_members_t *members);

/* Writes OUT/NNN and what follows, such as ".log". */
tr_status_t sweep_path(const sweep_t *sweep, const sweep_member_t *member, const char *rest,
                       char path[4096]);
/* "optimizer.lr=0.01 train.seed=2": the settings in which members differ, for people. */
void sweep_describe(const sweep_t *sweep, const sweep_member_t *member, tr_str_t *out);
/* The command line of a member, after `trainer train`: the configuration, the settings and the run
 * folder. Owned strings. */
typedef TR_VEC(char *) sweep_words_t;
tr_status_t sweep_words(const sweep_t *sweep, const sweep_member_t *member, sweep_words_t *out);
void sweep_words_free(sweep_words_t *words);
/* The configuration of a member, as its run resolves it. */
tr_status_t sweep_configure(const sweep_t *sweep, const sweep_member_t *member, tr_config_t **out);
/* Reads what is known of a member from its run folder. TR_ERR_CONFIG: the folder holds another run. */
tr_status_t sweep_look(const sweep_t *sweep, sweep_member_t *member);

/* -- sweep_check.c ----------------------------------------------------------------------------- */

/* Checks in a process of its own that the data of members with results are as they were, plans
 * every member that is not done, and checks that memory and GPUs are enough for `jobs` of them, and
 * the disk for all. jobs 0: they run elsewhere, so that only the disk is checked. Sets the checksums
 * of the data. The error is printed. */
tr_status_t sweep_check(sweep_t *sweep, int jobs, bool *out_uses_gpu);

/* -- sweep_run.c ------------------------------------------------------------------------------- */

/* Trains the members that are not done, `jobs` at a time, each in one process on its own cores, and
 * with own_gpus on its own GPU.
 * TR_ERR_RETRY: stopped by a signal, or members run elsewhere; or the code of a member that failed,
 * when the others are done. */
tr_status_t sweep_run(sweep_t *sweep, int jobs, bool own_gpus);

#endif
