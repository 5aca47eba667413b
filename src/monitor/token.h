/* The token that requests to the server must have. Not collective. */
#ifndef TR_MONITOR_TOKEN_H
#define TR_MONITOR_TOKEN_H

#include "base/str.h"

/* Appends the token in the file `path`, of which only its owner may be able to read it. may_make: a
 * missing file gets a random token. The file holds one line of 16 to 200 printable characters without
 * blanks. TR_ERR_PERMISSION: others can read it; TR_ERR_CONFIG: no such line; TR_ERR_NOINPUT;
 * TR_ERR_IO. Messages begin with `key`, such as monitor.token_file, and never have the token. */
tr_status_t tr_token_read(const char *key, const char *path, bool may_make, tr_str_t *out);

#endif
