/* Sets of CPU cores. */
#ifndef TR_BASE_CORES_H
#define TR_BASE_CORES_H

#include <sched.h>
#include <stddef.h>

/* Writes "0-3,8"; "" for none. Returns the number of cores. */
int tr_cores_format(const cpu_set_t *set, char *text, size_t bytes);

#endif
