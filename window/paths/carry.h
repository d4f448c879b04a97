/* SPDX-License-Identifier: BSD-3-Clause */
/* What carries out puts and signals, for the layer above: put.c, bounce.c, message.c, mapped.c
 * and elsewhere.c.  The choice of paths is in paths.h. */
#ifndef BATONI_CARRY_H
#define BATONI_CARRY_H

#include "rma.h"
#include "unended.h"

/* ---- put.c ---- */

/* Count a put into its window, if it has one.  place does the same for a put that the
 * call has announced in `entering`. */
void batoni_put_count(struct batoni_rma *rma,
                      const struct batoni_transfer *transfer);
void batoni_put_place(struct batoni_rma *rma, struct batoni_transfer *transfer);
void batoni_put_unplace(struct batoni_rma *rma, struct batoni_transfer *transfer);
enum baton_status batoni_put_issue(struct batoni_rma *rma,
                                   struct batoni_transfer *transfer);
/* The same, and it moves at a test, when nothing of its channel is on a stream. */
enum baton_status batoni_put_issue_behind(struct batoni_rma *rma,
                                          struct batoni_transfer *transfer);
/* Nothing of the channel is on a stream any more: its queue moves at the next test. */
void batoni_puts_let_move(struct batoni_rma *rma, struct batoni_channel *channel);
enum baton_status batoni_put_take_back(struct batoni_rma *rma,
                                       struct batoni_transfer *transfer);
/* Moves on the first put of each active channel; returns events. */
size_t batoni_puts_test(struct batoni_rma *rma);
/* Does the device copy a put of this rank into its own part of the window? */
bool batoni_puts_copy_here(const struct batoni_rma *rma,
                           const struct baton_window *window);
/* The layer is being closed: wait for copies that a device makes, until the grace of the
 * destroy is over.  The thread that destroys; the operations' slots must still be there. */
void batoni_puts_close(struct batoni_rma *rma);
/* A put that was handed over to messages has ended: account for it and tell the engine.
 * Caller: message.c, from within message_done. */
void batoni_put_ended(struct batoni_rma *rma, struct batoni_transfer *transfer,
                      enum baton_status status);

/* ---- atomic.c ---- */

/* On a word of the part, which is memory of the host, and aligned. */
void batoni_atomic_carry_out(char *part, const struct batoni_transfer *transfer,
                             const struct batoni_pending *put);

/* ---- bounce.c ---- */

/* The pinned memory.  The device stays the caller's.  OK, NOMEM, what the device's pinned_alloc
 * returns. */
enum baton_status batoni_bounces_open(struct batoni_rma *rma,
                                      struct batoni_device *device,
                                      uint64_t until_ns);
/* Fine without open.  copies_left: some have not ended, and the pinned memory stays. */
void batoni_bounces_close(struct batoni_rma *rma, bool copies_left);
/* For a put of this length, between the host's memory and that of device `owner` (as for
 * copy_start); out: from the device's memory, else into it.  NULL: all are in use. */
struct batoni_bounce *batoni_bounce_take(struct batoni_rma *rma, char *to,
                                         const char *from, size_t bytes,
                                         int owner, bool out);
/* Move on, and let the host copy about *budget_p bytes (1 or more), of which what is left is
 * written back.  stop: begin nothing more.  AGAIN: ask again.  OK, CUDA (why() knows more): it
 * is over, and the bounce is free. */
enum baton_status batoni_bounce_move(struct batoni_bounce *bounce, bool stop,
                                     size_t *budget_p);
/* Copy a byte out of memory of a device, by this rank's own, to nowhere.  The driver.  start: OK: ask
 * until the answer is not PENDING; AGAIN: the last one has not ended, or the device takes no copy
 * now; CUDA (why() knows more): it does not take this one.  test: OK: it has ended, or there is none;
 * CUDA. */
enum baton_status batoni_trial_start(struct batoni_rma *rma, const void *from);
enum baton_status batoni_trial_test(struct batoni_rma *rma);

/* ---- message.c ---- */

/* The channel's wire, created if there is none; NULL: no memory.  Any thread. */
struct batoni_wire *batoni_wire_make(struct batoni_rma *rma,
                                     struct batoni_channel *channel);
/* OK, NOMEM. */
enum baton_status batoni_messages_open(struct batoni_rma *rma);
void batoni_messages_start(struct batoni_rma *rma);
/* Test for messages, also while the engine does not.  PENDING; OK: all messages of this
 * rank have been sent. */
enum baton_status batoni_messages_drain(struct batoni_rma *rma);
/* No rank will send any more.  PENDING; OK: the transport has no message of the layer. */
enum baton_status batoni_messages_leave(struct batoni_rma *rma);
/* The communicator is broken and this memory is to be freed: apply no message from now on,
 * and let no receive write there, and no answer read there.  OK; PENDING: a copy is under way, ask
 * again; BUSY: the native library may do so until it likes to end. */
enum baton_status batoni_messages_let_go(struct batoni_rma *rma,
                                         const void *base, size_t bytes);
/* Is there a receive that may write there, or an answer that may read there? */
bool batoni_messages_write_to(const struct batoni_rma *rma, const void *base,
                              size_t bytes);
/* aborted: memory that the transport may still write to stays allocated. */
void batoni_messages_close(struct batoni_rma *rma, bool aborted);
/* Hand the put or get of this slot over: a header that includes a small payload, or a header and
 * then the payload from the user's buffer; of a get, the header, and the answer is received there.  with_data false: the data has been written
 * already (or there is none), and only the signal goes.  PENDING: batoni_put_ended will be
 * called.  AGAIN: no lane is free; ask again at a later test.  MPI, ...: it failed. */
enum baton_status batoni_message_put(struct batoni_rma *rma, uint32_t slot,
                                     bool with_data);
/* Ask the wire's target whether it has applied what was sent to it.  PENDING: wire->probing is 0 when
 * it has answered, or never will; else as batoni_message_put. */
enum baton_status batoni_message_probe(struct batoni_rma *rma,
                                       struct batoni_wire *wire);
/* End a get that was handed over to this lane.  BUSY: it cannot be now; else as take_back of a path. */
enum baton_status batoni_get_take_back(struct batoni_rma *rma,
                                       struct batoni_lane *lane);
/* Take the receives of gets that have ended early back, where the communicator is broken, or their
 * target gone. */
void batoni_gets_give_up(struct batoni_rma *rma);
/* Apply what has arrived and post the next receives; returns events. */
size_t batoni_messages_test(struct batoni_rma *rma);
void batoni_message_done(struct batoni_rma *rma, struct batoni_transfer *transfer,
                         enum baton_status status);
/* change 1: from now on peers may send messages that are to be applied without a call of
 * this rank's program, so the engine keeps testing the communicator.  change -1 takes that
 * back.  A wait that messages can end, and a count, only need receives to be posted. */
void batoni_messages_listen(struct batoni_rma *rma, int change);
void batoni_messages_post(struct batoni_rma *rma);
/* Have receives been posted?  Then messages may come, whatever the path of this rank's own
 * puts.  Any thread. */
bool batoni_messages_posted(const struct batoni_rma *rma);
/* The messages ever handed over to that peer, and ever applied from it. */
uint64_t batoni_messages_sent(const struct batoni_rma *rma, int peer);
uint64_t batoni_messages_applied(const struct batoni_rma *rma, int peer);

/* ---- mapped.c ---- */

/* Give the communicator its path, if its device and its peers allow for that.  From start. */
void batoni_mapped_start(struct batoni_rma *rma);
/* A put that is not on a stream has ended, or its call was refused: what it stored or sent was
 * before.  The driver; of a refused call, its thread. */
void batoni_mapped_host_ended(struct batoni_rma *rma,
                              const struct batoni_transfer *transfer);
/* Does a stream carry out a put of this rank into its own part of the window?  The driver. */
bool batoni_mapped_copies_here(const struct baton_window *window);

/* ---- elsewhere.c: slots of batoni_onesided_ops ---- */

size_t batoni_elsewhere_targets(struct batoni_onesided *onesided,
                                const struct batoni_transfer *transfer,
                                struct batoni_target *targets, size_t max);
void batoni_elsewhere_signal(struct batoni_onesided *onesided,
                             const struct batoni_target *target);
void batoni_elsewhere_forget(struct batoni_onesided *onesided,
                             struct batoni_transfer *transfer);
void batoni_elsewhere_hold(struct batoni_onesided *onesided,
                           struct batoni_transfer *transfer);
void batoni_elsewhere_drop(struct batoni_onesided *onesided,
                           struct batoni_transfer *transfer);

#endif
