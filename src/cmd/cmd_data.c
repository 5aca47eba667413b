/* trainer data: what is in a data file, and how training would read it. */
#include "cmd.h"
#include "trainer/datafile.h"
#include "trainer/log.h"

#include <stdio.h>
#include <string.h>

#define SAMPLE_BYTES (256 << 20)

static tr_status_t settings_from(int argc, char **argv, tr_config_t *config) {
    tr_str_t assignment = {0};
    tr_str_printf(&assignment, "data.train=%s", argv[1]);
    tr_status_t status = assignment.status == TR_OK ? tr_config_set(config, assignment.text, "command line")
                                                    : assignment.status;
    tr_str_free(&assignment);
    for (int i = 2; i < argc && status == TR_OK; i++) status = tr_config_set(config, argv[i], "command line");
    TR_TRY(status);
    return tr_config_check(config);
}

tr_status_t cmd_data(int argc, char **argv) {
    static const tr_config_table_t *const tables[] = {&tr_data_config};
    tr_config_t *config = NULL;
    tr_data_settings_t settings;
    tr_str_t text = {0};
    int64_t limit = SAMPLE_BYTES;
    if (argc > 1 && !strcmp(argv[1], "--all")) {
        limit = INT64_MAX;
        argc--;
        argv++;
    }
    if (argc < 2 || argv[1][0] == '-')
        return TR_FAIL(TR_ERR_USAGE, "usage: trainer data [--all] FILE[:GROUP] [data.key=value ...]");
    TR_TRY(tr_config_create(tables, 1, &config));
    tr_status_t status = settings_from(argc, argv, config);
    if (status == TR_OK) {
        tr_config_read(config, &tr_data_config, &settings);
        tr_log_set_level(TR_LOG_ERROR); /* the report has the warnings */
        status = tr_data_report(&settings, limit, &text);
        if (text.text) fputs(text.text, stdout);
    }
    tr_str_free(&text);
    tr_config_destroy(&config);
    return status;
}
