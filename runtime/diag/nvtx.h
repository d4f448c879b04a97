/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges for NVIDIA's tools (nvtx.c). */
#ifndef BATONI_NVTX_H
#define BATONI_NVTX_H

#include "observer.h"

struct baton_comm;
struct batoni_nvtx;

/* What draws the ranges of the communicator's operations, if BATON_NVTX asks for them; NULL: nobody
 * does.  It has allocated comm->nvtx. */
const struct batoni_observer *batoni_nvtx_observer(struct baton_comm *comm);
/* End what is open, and free it; or NULL. */
void batoni_nvtx_close(struct batoni_nvtx *nvtx);

#endif
