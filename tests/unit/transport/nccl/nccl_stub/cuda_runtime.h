/* SPDX-License-Identifier: BSD-3-Clause */
/* All that <nccl.h> takes from the CUDA Toolkit, so that it compiles without one. */
#ifndef NCCL_STUB_CUDA_RUNTIME_H
#define NCCL_STUB_CUDA_RUNTIME_H

#include <stddef.h>

#define CUDART_VERSION 12000

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#endif
