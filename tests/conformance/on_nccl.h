/* SPDX-License-Identifier: BSD-3-Clause */
/* Conformance on the NCCL transport, over the simulators (tests/cudasim, tests/ncclsim) or a
 * real driver and NCCL: whichever BATON_CUDA_LIBRARY and BATON_NCCL_LIBRARY name, else
 * libcuda.so.1 and libnccl.so.2.  A program links with --wrap=pthread_create and
 * --wrap=pthread_join. */
#ifndef ON_NCCL_H
#define ON_NCCL_H

#include "on_cuda.h"

/* Load both, and register the memory that messages may be in.  False: one is not there; it
 * was printed. */
bool on_nccl_begin(void);

/* Run the program where its stack is registered. */
int on_nccl_run(int (*run)(int argc, char **argv), int argc, char **argv);

/* The same options, or the default ones, for this transport. */
struct baton_comm_options
on_nccl_options(const struct baton_comm_options *options_or_null);
/* `streams` of a backend: those of the lanes, and two for messages to oneself. */
unsigned on_nccl_streams(int ranks);

/* As on_cuda_end, for both. */
int on_nccl_end(int result);

#endif
