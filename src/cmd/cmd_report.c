/* trainer report RUNS... --out DIR: writes a page about runs and their scaling. */
#include "cmd.h"
#include "report/runs_report.h"

#include <stdio.h>
#include <string.h>

static tr_status_t parse(int argc, char **argv, tr_runs_report_settings_t *o) {
    *o = (tr_runs_report_settings_t){.runs = argv, .version = cmd_version};
    for (int i = 1; i < argc; i++) {
        const char **value = strcmp(argv[i], "--out") == 0         ? &o->out
                             : strcmp(argv[i], "--predicted") == 0 ? &o->predicted
                                                                   : NULL;
        if (value && i + 1 < argc)
            *value = argv[++i];
        else if (argv[i][0] == '-')
            return cmd_fail_option("report", argv[i]);
        else
            argv[o->count++] = argv[i];
    }
    if (o->count > 0 && o->out) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "usage: trainer report %s", cmd_find("report")->usage);
}

tr_status_t cmd_report(int argc, char **argv) {
    tr_runs_report_settings_t settings;
    TR_TRY(parse(argc, argv, &settings));
    TR_TRY(tr_runs_report(&settings));
    printf("%s/index.html\n", settings.out);
    return TR_OK;
}
