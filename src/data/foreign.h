/* Files of formats that this program does not read, recognised by their first bytes. */
#ifndef TR_DATA_FOREIGN_H
#define TR_DATA_FOREIGN_H

#include "trainer/status.h"
#include <stdbool.h>

enum { TR_FOREIGN_BYTES = 16 }; /* `bytes` that tr_check_foreign needs, or the whole file */

/* TR_ERR_DATA if the file is compressed or of another known format; the message has the command
 * that converts it. gzip only counts as one if the caller does not unpack it. */
tr_status_t tr_check_foreign(const char *path, const void *bytes, size_t count, bool unpacks_gzip);

#endif
