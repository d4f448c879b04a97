/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An asynchronous device without hardware: its streams run by themselves, as a
 * GPU's do.  It uses every freedom that device.h leaves to a device.
 *
 *   - One thread of its own runs all streams.  Triggers (`reached`) are called
 *     one at a time on a second thread, late; a stream stays at its trigger
 *     until the call has returned.
 *   - Launched functions run on a thread of their stream, so that they may
 *     block; or, where the test asks for it, on the thread of the triggers, as
 *     CUDA's host functions do, so that one that blocks blocks them all.
 *   - With FAKE_DEVICE_WAITS=items in the environment (read by the first open) it has no
 *     operation that waits for a word: a thread of each stream carries items out, and
 *     looks at the word itself.  Triggers of different streams are then called beside
 *     each other.  With FAKE_DEVICE_WAITS=none it has no such thread either, and refuses
 *     to open.
 *   - A stream can be held: it then begins an item only when it is stepped.
 *   - It counts violations of the contract: see fake_device_violations.
 *
 * Streams, the default one included, are shared by all opens of the device.
 * They live until the last close.  Any thread may call any of these.
 */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include "device.h"

extern const struct batoni_device_ops batoni_fake_device_ops;

/* It has numbers as if it were one of so many. */
#define FAKE_DEVICES 4
/* The number of the one that the calling thread works on, or -1, as at the beginning. */
extern _Thread_local int fake_device_current;

/* Let the stream begin nothing more; the item that it executes continues. */
void fake_device_hold(baton_stream stream);
/* Let a held stream begin n more pieces of work (items, copies, parts of
 * kernels; marks are free), then wait until it can go no further: nothing left,
 * nothing more allowed, or waiting for a word, a launched function or a peer.
 * The triggers that it reached have returned by then.  Steps that a stream did not
 * use because it ran empty are lost.  0 only waits, also for a stream not held. */
void fake_device_step(baton_stream stream, unsigned n);
/* Let a held stream run by itself again. */
void fake_device_run(baton_stream stream);

/* The program captures a graph on the stream, or has ended that.  Meanwhile stream_check
 * refuses it, and what touches it all the same is a violation. */
void fake_device_capture(baton_stream stream, bool captures);

/* A copy in stream order. */
enum baton_status fake_device_copy(baton_stream stream, void *to,
                                   const void *from, size_t bytes);

/* Run launched functions on the thread of the triggers (or, again, on threads of
 * their streams). */
void fake_device_serialize_launches(bool serialize);

/*
 * Sick devices.  All opens share the device, so all are sick.
 *
 * break: from now on (at: with the n-th call of the list below, 1 is the next) every
 * such call fails with CUDA, health tells so, and streams drop what is on them: no
 * trigger is called any more.  Kernels stay until their polls end them.
 * freeze: streams begin nothing and go on nowhere, and no call tells.  Triggers never
 * fire, and streams do not look at words.  Also to be had for one stream:
 * fake_device_hold.
 * heal: neither; what was dropped is lost.
 */
void fake_device_break(void);
void fake_device_break_at(unsigned n);
void fake_device_freeze(void);
void fake_device_heal(void);
/* enqueue blocks while its stream has `entries` or more; 0: no bound. */
void fake_device_bound(unsigned entries);
/* How many threads block in enqueue. */
unsigned fake_device_blocked(void);

enum fake_device_call {
	FAKE_OPEN,
	FAKE_STREAM_CREATE,
	FAKE_LAUNCH_CHECK, /* stream_check that launches */
	FAKE_STREAM_IDLE,
	FAKE_ENQUEUE,
	FAKE_WORDS_ALLOC,
	FAKE_MARK,
	FAKE_MARK_DONE,
	FAKE_PUT, /* stream_put; PENDING: the stream is full */
	FAKE_KERNEL,
	/* Of its memory (fake_memory.h). */
	FAKE_LOOK,
	FAKE_PINNED_ALLOC,
	FAKE_COPY_START, /* each copy of those started together is one */
	FAKE_COPY_TEST, /* of a copy that has ended */
	FAKE_HEALTH,
	FAKE_SHARE,
	FAKE_MAP,
	FAKE_CALLS
};

/* The n-th such call from now (1 is the next) fails with status, once.  0:
 * none does. */
void fake_device_fail_at(enum fake_device_call call, unsigned n,
                         enum baton_status status);

/* Violations of the contract since the process began; each is also described on
 * standard error.  Counted: a call into the device from a trigger or a launched
 * function; a word that is not the device's, that decreases, or that is freed
 * while a stream waits for it; an invalid stream; a close with items in streams;
 * and what fakes on top of this one report by fake_device_violation. */
int fake_device_violations(void);
void fake_device_violation(const char *text);

/* Marks of all opens that have not been reported as done yet. */
unsigned fake_device_marks(void);

/*
 * For transports whose transfers live on streams.  A kernel has a part on each of
 * n streams.  When a stream gets to its part, the device's thread calls
 * poll(kernel, part), with no lock held, until that returns true and the stream
 * continues; it polls again after every event on the device.  When poll changes
 * something that other parts or kernels read, it must call fake_device_kick.  The
 * owner frees the kernel, in the poll that ends its last part: the device does not
 * touch a part's kernel after its poll has returned true.
 */
struct fake_kernel {
	bool (*poll)(struct fake_kernel *kernel, size_t part);
};

/* Enqueue all parts, or none.  OK, NOMEM, CUDA (an invalid stream). */
enum baton_status fake_device_launch(struct fake_kernel *kernel,
                                     const baton_stream *streams, size_t n);
void fake_device_kick(void);

#endif
