/* The keys of [run]. */
#include "run.h"

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(
        tr_run_settings_t, dir, "",
        "Run folder: resolved configuration, log, metrics, checkpoints, summary. "
        "Empty: a new folder, runs/NAME-DATE-TIME. Set it to be able to resume the run.",
        TR_RESUME_FREE),
    TR_FIELD_STRING(tr_run_settings_t, name, "",
                    "Name of the run, in its default folder and in the summary. Empty: the file "
                    "name of the configuration; in the summary, the name of the folder.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_run_settings_t, verdict, "",
                    "File for the verdict that is written when the run ends: done, again or no. "
                    "Job scripts read it to decide whether to requeue the job. Empty: the file "
                    "verdict in run.dir.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_run_settings_t, lock_wait, "auto",
                    "How long to wait if another process uses run.dir, before the run ends with "
                    "code 75: a time (5min). 0: do not wait, end with code 78. auto: 5min if SLURM "
                    "has restarted the job, else 0.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_run_settings_t, until, "auto",
                    "Time limit of the run: seconds since 1970, local time such as "
                    "2026-01-31T18:00:00, or none. The run saves a checkpoint and stops before it, "
                    "earlier by twice the time of its slowest checkpoint. auto: "
                    "SLURM_JOB_END_TIME, if SLURM sets it.",
                    TR_RESUME_FREE),
};
const tr_config_table_t tr_run_config = {"run", fields, TR_COUNT(fields),
                                         sizeof(tr_run_settings_t)};
