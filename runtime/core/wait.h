/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the program that wait. */
#ifndef BATONI_WAIT_H
#define BATONI_WAIT_H

#include "wake.h"

/* Drive, or sleep while another thread drives, until `ready` returns true, for at most
 * timeout_ns (0 polls once; negative: no limit).  comm is for the poll; NULL: none.
 * Returns the last answer of `ready`. */
bool batoni_wait_until(struct batoni_awaited *awaited,
                       const struct baton_comm *comm, int64_t timeout_ns);

#endif
