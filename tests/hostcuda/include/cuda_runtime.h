/* Stands in for the toolkit's header of this name where g++ compiles .cu files for the host; else passes it on. */
#ifndef HOSTCUDA_CUDA_RUNTIME_H
#define HOSTCUDA_CUDA_RUNTIME_H

#include_next <cuda_runtime.h>
#if defined __cplusplus && defined TR_HOSTCUDA
#include "hostcuda_device.h"
#endif

#endif
