/*
 * Memory and processors available to this process, limited by `ulimit -v` and by the control groups of a SLURM job or
 * a container, and the memory that it uses. Reads Linux control groups, versions 1 and 2; limits of parent groups apply too.
 */
#ifndef TR_BASE_HOST_H
#define TR_BASE_HOST_H

#include <stddef.h>

/* Bytes; 0 if unknown. */
size_t tr_host_memory_bytes(void);
/* Bytes of a row of /proc/meminfo, "MemTotal" or another; NAN if unknown. */
double tr_host_meminfo_bytes(const char *name);
/* CPU time limit in processors, rounded up; 0 if there is no limit. Ignores affinity. */
int tr_host_cpu_limit(void);

/* Bytes of this process in memory; 0 if unknown. */
size_t tr_host_resident_bytes(void);

/* Seconds that all threads of this process have computed. */
double tr_host_cpu_sec(void);
/* Seconds that the present threads of this process were ready to run while others ran on their
 * cores, since each began; NAN where the kernel does not count them. */
double tr_host_cores_wait_sec(void);

/* The name of the processor in a file like /proc/cpuinfo, "AMD EPYC 9B14" or "Arm Neoverse-V2";
 * "CPU" if there is none. */
void tr_host_cpu_model(const char *cpuinfo, char *text, size_t text_bytes);

/* The name of this host; "" if it is unknown. Valid until the next call by this thread. */
const char *tr_host_name(void);

#endif
