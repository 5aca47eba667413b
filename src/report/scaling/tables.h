/* scaling.csv and summary.json. Not collective. */
#ifndef TR_REPORT_TABLES_H
#define TR_REPORT_TABLES_H

#include "report/page/page.h"

/* One row per point of each sweep. Unknown values are empty. Fails only with TR_ERR_MEMORY. */
tr_status_t tr_tables_csv(const tr_study_t *study, tr_str_t *out);
tr_status_t tr_tables_json(const tr_study_t *study, tr_str_t *out);

#endif
