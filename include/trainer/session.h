/*
 * The configuration keys of the program.
 */
#ifndef TRAINER_SESSION_H
#define TRAINER_SESSION_H

#include "trainer/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * All key tables of the program, for tr_config_create and tr_config_help, including those of the
 * models registered so far. Owned by the library.
 */
tr_status_t tr_all_tables(const tr_config_table_t *const **out, size_t *out_count);

#ifdef __cplusplus
}
#endif

#endif
