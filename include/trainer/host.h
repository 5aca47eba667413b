/*
 * What this process may use of the machine: all of it, or less where a control group (of a SLURM
 * job, a container) has a limit. Linux's control groups, versions 1 and 2; each group above the
 * process's own binds as well.
 */
#ifndef TRAINER_HOST_H
#define TRAINER_HOST_H

#include <stddef.h>

/* Memory in bytes; 0: unknown. */
size_t tr_host_memory_bytes(void);
/* The processors whose time is granted, rounded up; 0: no limit. Affinity is not looked at. */
int tr_host_cpu_limit(void);

#endif
