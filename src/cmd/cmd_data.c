/* trainer data: describes a data file and how training would read it. */
#include "cmd.h"
#include "datatools/datatools.h"
#include "trainer/log.h"

#include <stdio.h>

#define SAMPLE_BYTES (256 << 20)

typedef struct {
    const char *file; /* FILE[:GROUP] */
    bool all;
    cmd_words_t settings;
} data_options_t;

static tr_status_t data_run(void *options) {
    static const tr_config_table_t *const tables[] = {&tr_data_config};
    const data_options_t *o = options;
    tr_config_t *config = NULL;
    tr_data_settings_t settings;
    tr_str_t file = {0}, text = {0};
    tr_status_t status = TR_OK;
    TR_TRY(tr_config_create(tables, 1, &config));
    tr_str_printf(&file, "data.train=%s", o->file);
    TR_TRY_GOTO(file.status, done);
    TR_TRY_GOTO(tr_config_set(config, file.text, "command line"), done);
    for (int i = 0; i < o->settings.count; i++)
        TR_TRY_GOTO(tr_config_set(config, o->settings.word[i], "command line"), done);
    TR_TRY_GOTO(tr_config_check(config), done);
    tr_config_read(config, &tr_data_config, &settings);
    tr_log_set_level(TR_LOG_ERROR); /* the report has the warnings */
    status = tr_data_report(&settings, o->all ? INT64_MAX : SAMPLE_BYTES, &text);
    if (text.text) fputs(text.text, stdout);
done:
    tr_str_free(&file);
    tr_str_free(&text);
    tr_config_destroy(&config);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"FILE[:GROUP]", offsetof(data_options_t, file), CMD_REQUIRED, NULL},
    {"[data.key=value ...]", offsetof(data_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_FLAG(data_options_t, all, "--all", "Takes the range of the values from all data."),
};

const cmd_command_t cmd_data = {
    .name = "data",
    .runs = CMD_ON_FIRST,
    .summary = "Shows the contents of an HDF5 file, what training reads of it, and the cost of "
               "reading it.",
    .help = "It counts the classes, and takes the range of the values from 256 MiB of each split, "
            "or from all data with --all. Keys such as data.x=NAME and data.layout=nchw show their "
            "effect.",
    CMD_ARGUMENTS(data_options_t),
    CMD_OPTIONS,
    .run = data_run,
};
