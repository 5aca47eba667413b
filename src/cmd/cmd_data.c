/* trainer data: describes a data file and how training would read it. */
#include "cmd.h"
#include "datatools/datatools.h"
#include "trainer/log.h"

#include <stdio.h>
#include <string.h>

#define SAMPLE_BYTES (256 << 20)

typedef struct {
    const char *file; /* FILE[:GROUP] */
    int64_t limit;    /* bytes of values to examine */
    int assignments;
    char **assignment; /* borrowed from argv */
} options_t;

static tr_status_t parse(int argc, char **argv, options_t *o) {
    *o = (options_t){.limit = SAMPLE_BYTES, .assignment = argv};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0)
            o->limit = INT64_MAX;
        else if (argv[i][0] == '-')
            return cmd_fail_option("data", argv[i]);
        else if (!o->file)
            o->file = argv[i];
        else
            argv[o->assignments++] = argv[i];
    }
    if (o->file) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "usage: trainer data %s", cmd_find("data")->usage);
}

static tr_status_t settings_from(const options_t *o, tr_config_t *config) {
    tr_str_t assignment = {0};
    tr_str_printf(&assignment, "data.train=%s", o->file);
    tr_status_t status = assignment.status == TR_OK
                             ? tr_config_set(config, assignment.text, "command line")
                             : assignment.status;
    tr_str_free(&assignment);
    for (int i = 0; i < o->assignments && status == TR_OK; i++)
        status = tr_config_set(config, o->assignment[i], "command line");
    TR_TRY(status);
    return tr_config_check(config);
}

tr_status_t cmd_data(int argc, char **argv) {
    static const tr_config_table_t *const tables[] = {&tr_data_config};
    options_t o;
    tr_config_t *config = NULL;
    tr_data_settings_t settings;
    tr_str_t text = {0};
    TR_TRY(parse(argc, argv, &o));
    TR_TRY(tr_config_create(tables, 1, &config));
    tr_status_t status = settings_from(&o, config);
    if (status == TR_OK) {
        tr_config_read(config, &tr_data_config, &settings);
        tr_log_set_level(TR_LOG_ERROR); /* the report has the warnings */
        status = tr_data_report(&settings, o.limit, &text);
        if (text.text) fputs(text.text, stdout);
    }
    tr_str_free(&text);
    tr_config_destroy(&config);
    return status;
}
