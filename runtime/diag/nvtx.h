/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges for NVIDIA's tools (nvtx.c). */
#ifndef BATONI_NVTX_H
#define BATONI_NVTX_H

#include "observer.h"

struct baton_comm;
struct batoni_nvtx;

/* Allocate comm->nvtx, and return the observer that draws the ranges of the communicator's operations, if
 * BATON_NVTX asks for them; else NULL. */
const struct batoni_observer *batoni_nvtx_observer(struct baton_comm *comm);
/* End the ranges that are open, and free it; NULL is allowed. */
void batoni_nvtx_close(struct batoni_nvtx *nvtx);

#endif
