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
};
const tr_config_table_t tr_run_config = {"run", fields, TR_COUNT(fields), sizeof(tr_run_settings_t)};
