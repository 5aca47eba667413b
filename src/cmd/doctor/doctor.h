/*
 * State and findings of `trainer doctor`. Private to src/cmd. cmd_doctor.c runs the checks and
 * prints; doctor_ranks.c checks cores, threads and versions, doctor_folder.c the run folder,
 * doctor_network.c the network,
 * doctor_self_test.c the results of GPUs, doctor_container.c what containers often lack.
 */
#ifndef TR_CMD_DOCTOR_DOCTOR_H
#define TR_CMD_DOCTOR_DOCTOR_H

#include "cmd/cmd.h"
#include "comm/probe.h"
#include "run/run.h"
#include "base/mem.h"
#include "session/self_test.h"
#include "session/settings.h"

#include <jansson.h>

#include <sched.h>

typedef enum { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_ERROR } doctor_verdict_t;

typedef struct {
    const char *check; /* "launch", "cores", "versions", "folder", ... */
    doctor_verdict_t verdict;
    tr_status_t code;     /* of an error: the exit code */
    char *found, *remedy; /* owned; remedy "" if there is none or `found` includes it */
} doctor_finding_t;

/* Facts about a rank, exchanged between all ranks as plain bytes. */
typedef struct {
    char host[64], numa[32], device[32], description[160];
    char trainer[64], mpi[128], hdf5[64], onednn[64];
    char report[2048]; /* of the device: lines "name\tvalue\n" */
    cpu_set_t cores;
    char cores_text[256];  /* "0-3,8" */
    cpu_set_t near_cores;  /* of its GPU; none if it has none, or unknown */
    int siblings, visible; /* GPUs of its node, and those that it sees; 0: none, or unknown */
    int rank, node, local_rank, threads;
    uint64_t user_namespace; /* its number; 0: unknown */
    int node_cores;          /* cores of its node that this job may use */
    double flops, bytes;     /* per second, measured on all ranks at the same time; 0: unknown */
    /* cores that the threads used, and waited for while others ran there, at that time */
    double cores_used, cores_waited;
} doctor_rank_t;

typedef struct {
    tr_world_t *world;
    const tr_world_info_t *info;
    const char *path; /* of the configuration; NULL: none */
    tr_config_t *config;
    tr_parallel_settings_t parallel;
    tr_run_settings_t run;
    tr_checkpoint_settings_t checkpoint;
    tr_session_t *s;     /* planned session of CONFIG; NULL: none, or planning failed */
    tr_device_t *device; /* of the session, else own_device */
    tr_device_t *own_device;
    tr_self_test_t self_test;          /* of this rank's GPU; no rows without one */
    bool has_failed_gpu;               /* on some rank: it cannot take part in collectives */
    doctor_rank_t *ranks;              /* [info->size] */
    TR_VEC(doctor_finding_t) findings; /* on rank 0 */
    /* network, with at least two ranks; link_count 0: not timed */
    tr_probe_link_t *links;
    int link_count;
    tr_probe_times_t small, large; /* all-reduces of the probe's small and large bytes */
    const char *engine;
} doctor_t;

/* Whether threads of a rank waited for cores while it was measured. */
bool doctor_is_busy(const doctor_t *d, int rank);
/* Adds a finding on rank 0; does nothing on other ranks. `remedy` may be NULL. */
void doctor_find(doctor_t *d, const char *check, doctor_verdict_t verdict, tr_status_t code,
                 const char *remedy, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Adds an error with the code and message of the last error record. */
void doctor_find_error(doctor_t *d, const char *check);

/* The checks. They return TR_OK also with findings; an error means that the ranks cannot continue
 * together. Collective, except those that only use d->ranks. */
tr_status_t doctor_gather_ranks(doctor_t *d);
void doctor_check_cores(doctor_t *d);      /* not collective */
void doctor_check_gpus(doctor_t *d);       /* likewise */
void doctor_check_versions(doctor_t *d);   /* not collective */
void doctor_check_speed(doctor_t *d);      /* not collective */
void doctor_check_namespaces(doctor_t *d); /* not collective */
tr_status_t doctor_check_folder(doctor_t *d);
tr_status_t doctor_check_network(doctor_t *d);
tr_status_t doctor_check_self_test(doctor_t *d);

/* Whether this process can make files in the folder for temporary files, which MPI needs to start.
 * TR_ERR_PERMISSION, TR_ERR_IO. */
tr_status_t doctor_try_temporary(void);
/* The number of this process' user namespace; 0: unknown. */
uint64_t doctor_user_namespace(void);

void doctor_print_self_test(const doctor_t *d);
json_t *doctor_self_test_json(const doctor_t *d);

#endif
