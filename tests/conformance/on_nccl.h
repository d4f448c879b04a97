/* SPDX-License-Identifier: BSD-3-Clause */
/* Conformance on the NCCL transport, over the simulators (tests/cudasim, tests/ncclsim). */
#ifndef ON_NCCL_H
#define ON_NCCL_H

#include "on_cuda.h"

/* Load both.  False: one is not there; it was printed. */
bool on_nccl_begin(void);

/* The same options, or the default ones, for this transport. */
struct baton_comm_options
on_nccl_options(const struct baton_comm_options *options_or_null);

/* As on_cuda_end, for both. */
int on_nccl_end(int result);

#endif
