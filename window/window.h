/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of window/ offer to each other: waits, memory, registration, words. */
#ifndef BATONI_WINDOW_H
#define BATONI_WINDOW_H

#include "carry.h"

/* ---- wait.c ---- */

/* Can messages end this wait? */
bool batoni_wait_needs_messages(const struct batoni_rma *rma, uint32_t slot);
void batoni_wait_place(struct batoni_rma *rma, struct batoni_transfer *transfer);
/* Also gives the nodes back. */
void batoni_wait_unplace(struct batoni_rma *rma, struct batoni_transfer *transfer);
enum baton_status batoni_wait_issue(struct batoni_rma *rma,
                                    struct batoni_transfer *transfer);
enum baton_status batoni_wait_start(struct batoni_rma *rma,
                                    struct batoni_transfer *transfer);
/* The driver: a wait for one counter, described, placed and issued.  OK, PENDING;
 * AGAIN: no node is free or there is no link, and nothing was done. */
enum baton_status
batoni_wait_issue_one(struct batoni_rma *rma, struct batoni_transfer *transfer,
                      const struct baton_wait_signal_desc *desc);
enum baton_status batoni_wait_take_back(struct batoni_rma *rma,
                                        struct batoni_transfer *transfer);
size_t batoni_waits_test(struct batoni_rma *rma);

/* ---- barrier.c ---- */

/* OK, NOMEM. */
enum baton_status batoni_barriers_open(struct batoni_rma *rma);
void batoni_barriers_start(struct batoni_rma *rma);
void batoni_barriers_close(struct batoni_rma *rma);
/* Slots of the layer's path, for transfers that are barriers. */
void batoni_barrier_place(struct batoni_rma *rma,
                          struct batoni_transfer *transfer);
void batoni_barrier_unplace(struct batoni_rma *rma,
                            struct batoni_transfer *transfer);
enum baton_status batoni_barrier_issue(struct batoni_rma *rma,
                                       struct batoni_transfer *transfer);
enum baton_status batoni_barrier_take_back(struct batoni_rma *rma,
                                           struct batoni_transfer *transfer);
size_t batoni_barriers_test(struct batoni_rma *rma);
/* A message of a barrier has ended.  Within the transport's slots: it calls none. */
void batoni_barrier_message_done(struct batoni_rma *rma,
                                 struct batoni_transfer *transfer,
                                 enum baton_status status);
/* Say in words how far the barrier is: "round 2 of 3: rank 5 has not come yet". */
void batoni_barrier_describe(const struct batoni_rma *rma,
                             const struct batoni_transfer *transfer, char *text,
                             size_t size);

/* ---- flush.c ---- */

void batoni_flush_place(struct batoni_rma *rma, struct batoni_transfer *transfer);
enum baton_status batoni_flush_issue(struct batoni_rma *rma,
                                     struct batoni_transfer *transfer);
enum baton_status batoni_flush_take_back(struct batoni_rma *rma,
                                         struct batoni_transfer *transfer);
size_t batoni_flushes_test(struct batoni_rma *rma);

/* ---- memory.c ---- */

/* The communicator has no one-sided layer, UNSUPPORTED; or the transport for its messages is
 * gone, ABORTED. */
enum baton_status batoni_refuse_onesided(const char *call,
                                         const struct baton_comm *comm);
enum baton_status batoni_refuse_lost(const char *call);
/* Does the communicator live and have windows?  OK, INVALID, UNSUPPORTED, ABORTED. */
enum baton_status batoni_check_windows(const char *call,
                                       const struct baton_comm *comm);
/* A memory that contains some of these bytes (1 or more, within the address space), or NULL;
 * *all_p: it contains all of them.  Caller holds memories_lock. */
struct batoni_memory *batoni_memory_find(struct batoni_rma *rma, const void *base,
                                         size_t bytes, bool *all_p);

/* ---- window.c ---- */

/* No window is registered any more: free what is left. */
void batoni_windows_close(struct batoni_rma *rma);

/* ---- describe.c ---- */

/* Slot `counter` of batoni_onesided_ops. */
size_t batoni_rma_units(struct batoni_onesided *onesided,
                        const struct batoni_transfer *transfer, bool ended,
                        struct batoni_units units[], size_t max);
void batoni_rma_counter(struct batoni_onesided *onesided,
                        const struct batoni_transfer *transfer,
                        int *signal_index_p, int *context_p);

/* Slot `describe` of batoni_onesided_ops.  Caller: the driver. */
void batoni_rma_describe(struct batoni_onesided *onesided,
                         const struct batoni_transfer *transfer, char *text,
                         size_t size);

#endif
