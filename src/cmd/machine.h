/* What this process finds on its machine, for `trainer info` and `trainer doctor`. Needs no MPI. */
#ifndef CMD_MACHINE_H
#define CMD_MACHINE_H

#include <sched.h>
#include <stddef.h>

/* The libraries, as they are loaded, which on a cluster need not be what was built with. NULL after
 * the last. */
const char *cmd_library_name(size_t index);
/* version and path; "not loaded" and "". Returns `version`. */
const char *cmd_library_version(size_t index, char version[128], const char **out_path);

/* "0-3,8". Returns how many. */
int cmd_format_cores(const cpu_set_t *set, char *text, size_t bytes);
/* "0,1": the NUMA nodes that have one of these cores; "" where the system does not say. */
void cmd_format_numa(const cpu_set_t *set, char *text, size_t bytes);

#endif
