/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An asynchronous device without hardware: what the engine must live with when
 * streams run by themselves.  It keeps to device.h as strictly as a device may.
 *
 *   - One thread of its own runs all streams.  Triggers (`reached`) are called
 *     one at a time on a second thread, late; a stream stays at its trigger
 *     until the call has returned.
 *   - Launched functions run on a thread of their stream, so that they may
 *     block; or, where the test asks for it, on the thread of the triggers, as
 *     CUDA's host functions do, so that one that blocks blocks them all.
 *   - A stream can be held: it then begins nothing but what it is stepped for.
 *   - Whoever breaks the contract is counted: see fake_device_violations.
 *
 * Streams, the default one included, are shared by all opens of the device.
 * They live until the last close.  Any thread may call any of these.
 */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include "device.h"

extern const struct batoni_device_ops batoni_fake_device_ops;

/* Let the stream begin nothing more (what it is at goes on). */
void fake_device_hold(baton_stream stream);
/* Let a held stream begin n more pieces of work (items, copies, parts of
 * kernels; marks are free), then wait until it can go no further: nothing left,
 * nothing more allowed, or waiting for a word, a launched function or a peer.
 * Triggers that it came to have returned by then.  What a stream that has run
 * empty was still allowed lapses.  0 only waits, also for a stream not held. */
void fake_device_step(baton_stream stream, unsigned n);
/* Let a held stream run by itself again. */
void fake_device_run(baton_stream stream);

/* A copy in stream order. */
enum baton_status fake_device_copy(baton_stream stream, void *to,
                                   const void *from, size_t bytes);

/* Run launched functions on the thread of the triggers (or, again, on threads of
 * their streams). */
void fake_device_serialize_launches(bool serialize);

enum fake_device_call {
	FAKE_OPEN,
	FAKE_STREAM_CREATE,
	FAKE_LAUNCH_CHECK, /* stream_check that launches */
	FAKE_STREAM_IDLE,
	FAKE_ENQUEUE,
	FAKE_WORDS_ALLOC,
	FAKE_MARK,
	FAKE_MARK_DONE,
	FAKE_KERNEL,
	FAKE_CALLS
};

/* The n-th such call from now (1 is the next) fails with status, once.  0:
 * none does. */
void fake_device_fail_at(enum fake_device_call call, unsigned n,
                         enum baton_status status);

/* How often the contract was broken since the process began; each time says how
 * on standard error.  Counted: a call into the device from a trigger or a
 * launched function; a word that is not the device's, or grows backwards, or is
 * freed while a stream waits for it; a stream that is none; a close with items
 * in streams; whatever fakes on top of this one add. */
int fake_device_violations(void);
void fake_device_violation(const char *text);

/* Marks that were made and not yet seen done, by all opens. */
unsigned fake_device_marks(void);

/*
 * For transports whose transfers live on streams.  A kernel has a part on each of
 * n streams.  When a stream gets to its part, the device's thread calls
 * poll(kernel, part), with no lock held, until that returns true and the stream
 * goes on; it asks again whenever something happens on the device.  What poll
 * changes that other parts or kernels look at must be followed by
 * fake_device_kick.  The kernel is its owner's to free, in poll, when the last
 * part is over: the device does not touch it after a poll that returned true.
 */
struct fake_kernel {
	bool (*poll)(struct fake_kernel *kernel, size_t part);
};

/* All parts or none.  OK, NOMEM, CUDA (a stream that is none). */
enum baton_status fake_device_launch(struct fake_kernel *kernel,
                                     const baton_stream *streams, size_t n);
void fake_device_kick(void);

#endif
