/* Stands in for the toolkit's header of this name where g++ compiles .cu files for the host. */
#ifndef HOSTCUDA_CUDA_RUNTIME_H
#define HOSTCUDA_CUDA_RUNTIME_H

#include_next <cuda_runtime.h>
#include "hostcuda_device.h"

#endif
