/* Facts about the machine for `trainer info` and `trainer doctor`. Needs no MPI. */
#ifndef TR_CMD_MACHINE_H
#define TR_CMD_MACHINE_H

#include <sched.h>
#include <stddef.h>

/* The loaded libraries, which on a cluster may differ from those of the build. NULL after the last.
 * */
const char *cmd_library_name(size_t index);
/* Version and path, or "not loaded" and "". Returns `version`. */
const char *cmd_library_version(size_t index, char version[128], const char **out_path);

/* Writes the NUMA nodes of these cores, "0,1"; "" if unknown. */
void cmd_format_numa(const cpu_set_t *set, char *text, size_t bytes);

#endif
