#include "run.h"

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(tr_run_settings_t, dir, "",
                    "Folder of the run: resolved configuration, log, metrics, checkpoints, summary. Empty: a "
                    "new one, runs/NAME-DATE-TIME. Name it to be "
                    "able to resume.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_run_settings_t, name, "",
                    "Name of the run in its default folder and in the summary. Empty: the configuration's "
                    "file name; in the summary the folder's.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_run_settings_t, verdict, "",
                    "File that gets the verdict when the run ends: done, again or no. Job scripts read it to "
                    "decide whether to requeue the job. Empty: the file verdict in run.dir.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_run_settings_t, lock_wait, "auto",
                    "How long to wait while another process holds run.dir, before the run ends with code 75: a "
                    "time (5min). 0: do not wait, end with code 78. auto: 5min if SLURM has restarted the job, "
                    "else 0.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_run_settings_t, until, "auto",
                    "When to stop in time to save a checkpoint: seconds since 1970, local time such as "
                    "2026-01-31T18:00:00, or none. auto: SLURM_JOB_END_TIME, where SLURM sets it. The run stops "
                    "earlier by twice the time that its slowest checkpoint took.",
                    TR_RESUME_FREE),
};
const tr_config_table_t tr_run_config = {"run", fields, TR_COUNT(fields), sizeof(tr_run_settings_t)};
