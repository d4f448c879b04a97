/* SPDX-License-Identifier: BSD-3-Clause */
/* Native puts (native_path.c). */
#ifndef BATONI_WINDOW_NATIVE_H
#define BATONI_WINDOW_NATIVE_H

#include "collective.h"

/* The thread that registers, between the first exchanges and the choice of paths: make the
 * window one of the native transport's library too, if that takes it on all ranks; then
 * window->native is set on all, else on none.  OK; an error, as of batoni_collect. */
enum baton_status batoni_native_register(struct batoni_collective *c,
                                         struct baton_window *window);
/* All puts into it have been applied, and the communicator is well.  Fine without. */
void batoni_native_close(struct baton_window *window);
/* Why the window has no native path; NULL: there is nothing to say. */
const char *batoni_native_why_not(const struct batoni_rma *rma,
                                  const struct baton_window *window);
/* May a native put have its source in that location?  Else its data goes by message. */
bool batoni_native_takes(const struct batoni_rma *rma, unsigned location);
/* The driver.  Begin, or move on, the put's data.  OK: all has left, and put.units is what the
 * target has to await; AGAIN: it goes on; CANCELED; ABORTED, NCCL, CUDA. */
enum baton_status batoni_native_copy(const struct batoni_rma *rma,
                                     struct batoni_transfer *transfer,
                                     struct batoni_pending *put);
/* May a header say so many units?  The driver. */
bool batoni_native_may_come(const struct batoni_rma *rma, int source,
                            uint64_t units);
/* Have so many units of that rank come?  PENDING, OK, ABORTED, NCCL, CUDA. */
enum baton_status batoni_native_await(const struct batoni_rma *rma, int source,
                                      uint64_t units);

#endif
