/*
 * The set of instructions that a process uses on CPUs, by the kernels of the device cpu and by
 * oneDNN. A build has kernels for one set, or for several (make ARCH=portable). Sets are numbered;
 * each has the instructions of those before it.
 */
#ifndef TR_DEVICE_ISA_H
#define TR_DEVICE_ISA_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int processor;    /* the set of the processor */
    int set;          /* the same, or what TRAINER_ISA allows of it */
    bool is_limited;  /* TRAINER_ISA is set */
    int64_t features; /* at least 0; the same on processors with the same instructions */
} tr_isa_t;

/* What this process may use. TR_ERR_CONFIG: the processor lacks instructions that this build needs,
 * or TRAINER_ISA is none of the sets that both have. Not collective. */
tr_status_t tr_isa_find(tr_isa_t *out);
/* "x86-64-v3" */
const char *tr_isa_name(int set);
/* The sets that this build has kernels for, lowest first: the name of number i; NULL: no more. */
const char *tr_isa_built(int i);

/* Limits the devices that this process opens from now on to `set`, which tr_isa_find allows. oneDNN
 * keeps the limit that it had when the first one was opened. Returns whether it is a new limit. Not
 * collective. */
bool tr_isa_limit(int set);
/* The set of the device cpu that was opened last; -1: none was. */
int tr_isa_used(void);

/* Whether the processor has the instructions that this build needs; if not, `why` has the message.
 * Calls no function of the program that may need them. */
bool tr_isa_suffices(char *why, size_t why_bytes);

#endif
