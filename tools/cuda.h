/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPUs that CUDA's driver shows, by the driver's own functions. */
#ifndef BATON_TOOL_CUDA_H
#define BATON_TOOL_CUDA_H

#include <stdbool.h>
#include <stddef.h>

/* The entry of that name in what baton_library tells, by its fields; false: there is none. */
struct baton_library_info;
bool tool_find_library(const char *name, struct baton_library_info *info_p);
/* A function of a library that dlopen has opened, to a pointer of its type.  False: it has none, and the pointer is NULL. */
bool tool_look_up(void *library, const char *name, void *pointer_p);

/* Devices that the driver shows; 0 without a driver that Baton can use. */
int tool_gpus(void);
void tool_gpu_name(int gpu, char *name, int size);
/* Bytes of its memory; 0: not known. */
unsigned long long tool_gpu_bytes(int gpu);
/* Its compute capability, 80 for 8.0; 0: not known. */
int tool_gpu_generation(int gpu);
/* What Baton uses where the driver and the GPU have it. */
enum gpu_feature {
	GPU_STREAM_WORDS,     /* a stream stores 64 bits into pinned memory */
	GPU_VIRTUAL_MEMORY,   /* cuMemCreate, with a descriptor for other processes */
	GPU_HOST_REGISTRATION /* cuMemHostRegister */
};
/* Use it once, in the GPU's primary context.  False: it failed, and `why` names the call and the error. */
bool tool_gpu_try(int gpu, enum gpu_feature feature, char *why, size_t size);
/* Its primary context becomes this thread's current one and stays.  False: as above. */
bool tool_gpu_enter(int gpu, char *why, size_t size);
/* Copy between memory of the thread's GPU and of the host: into the GPU's, or out of it.  False: as above. */
bool tool_gpu_copy(void *memory, void *host, size_t bytes, bool into, char *why,
                   size_t size);
/* Wait for what is on the stream of the thread's GPU, a CUstream.  False: as above. */
bool tool_gpu_finish(void *stream, char *why, size_t size);
/* May a kernel of the one use memory of the other? */
bool tool_gpu_reaches(int gpu, int other);

#endif
