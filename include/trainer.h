/*
 * All of the library, for C and C++. docs/embedding.md explains it; examples/ has complete programs.
 *
 * Most functions return a tr_status_t: TR_OK, or the code of an error whose message is in
 * tr_error_last(). "Collective" functions are called by all ranks of a world, in the same order.
 */
#ifndef TRAINER_H
#define TRAINER_H

#include "trainer/comm.h"    /* the ranks that train together */
#include "trainer/config.h"  /* keys and values */
#include "trainer/data.h"    /* data sets */
#include "trainer/device.h"  /* processors and GPUs */
#include "trainer/graph.h"   /* tensors, programs, gradients, running */
#include "trainer/infer.h"   /* scores of trained weights, predictions */
#include "trainer/log.h"     /* the log */
#include "trainer/model.h"   /* models */
#include "trainer/ops.h"     /* ops */
#include "trainer/optim.h"   /* optimizers */
#include "trainer/session.h" /* the keys of the program */
#include "trainer/status.h"  /* errors */
#include "trainer/train.h"   /* training */
#include "trainer/version.h" /* TRAINER_VERSION_MAJOR, _MINOR, _PATCH, _STRING */

#endif
