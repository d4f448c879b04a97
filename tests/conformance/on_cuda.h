/* SPDX-License-Identifier: BSD-3-Clause */
/* Conformance on the CUDA device, over the simulator (tests/cudasim) or a real driver:
 * whichever BATON_CUDA_LIBRARY names, else libcuda.so.1. */
#ifndef ON_CUDA_H
#define ON_CUDA_H

#include "harness.h"

/* Memory of device 0. */
extern const struct conform_memory on_cuda_memory;

/* Load the driver for the test itself.  False: there is none; it was printed. */
bool on_cuda_begin(void);

/* Streams of one device that do not hold each other up. */
unsigned on_cuda_queues(void);

/* How many devices there are. */
unsigned on_cuda_devices(void);

/* The program's exit status: result, unless the simulator has seen CUDA's rules broken or
 * something is left of what the run has made. */
int on_cuda_end(int result);

#endif
