/* SPDX-License-Identifier: BSD-3-Clause */
/* What communicators of one process have in common, made all at once (comm_local.c) or one by
 * one (comm_id.c). */
#ifndef BATONI_COMM_LOCAL_H
#define BATONI_COMM_LOCAL_H

#include "comm.h"

/* How many ranks a communicator may have.  OK, INVALID. */
enum baton_status batoni_local_size(const char *call, int size);
/* Check size and options for `call`, and fill in *plan.  OK, INVALID, UNSUPPORTED, with a
 * sentence. */
enum baton_status batoni_local_plan(const char *call, int size,
                                    const struct baton_comm_options *options,
                                    struct batoni_comm_plan *plan);

#endif
