/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine below the fake device: streams of entries, and the threads that
 * run them.  All opens of the device share it; the first open starts it and the
 * last close stops it.
 *
 * Everything is guarded by fake_lock, which is never held while foreign code
 * runs (a trigger, a launched function, a poll) or bytes are copied.  Only the
 * machine's runner begins and ends entries; the threads that call triggers and
 * functions move an entry from CALLING to CALLED and no further, and a thread that carries
 * an item out from WAITING.  `generation`
 * counts events: the runner sleeps only when a scan of all streams has advanced
 * nothing and no event has happened since the scan began.
 */
#ifndef FAKE_MACHINE_H
#define FAKE_MACHINE_H

#include <pthread.h>

#include "fake_device.h"
#include "list.h"

enum fake_entry_kind { ITEM, COPY, PUT, MARK, KERNEL };

enum fake_entry_phase {
	NEW,
	WAITING, /* an item that waits first */
	CALLING, /* its trigger or function is due, or running */
	CALLED,  /* the stream may now have to wait for the word */
	RUNNING  /* a kernel's part */
};

struct fake_mark {
	struct batoni_list_node link; /* of its device */
	bool done;
	bool dropped; /* its entry was, by a device that broke */
	bool orphan; /* its device has closed: its entry frees it */
};

/* An entry of a stream.  It copies everything of an item that is needed after
 * the trigger, because the engine may reuse the item from then on. */
struct fake_entry {
	struct fake_entry *next;   /* of its stream */
	struct fake_entry *called; /* of the calls that are due */
	enum fake_entry_kind kind;
	enum fake_entry_phase phase;
	bool carried; /* a thread of its stream carries the item out, and ends so */
	unsigned flags;
	struct fake_device *device;
	struct batoni_stream_item *item;
	_Atomic uint64_t *word;
	uint64_t value;
	void *to;
	const void *from;
	size_t bytes;
	struct batoni_stream_put put;
	struct fake_mark *mark;
	struct fake_kernel *kernel;
	size_t part;
};

struct fake_stream {
	struct batoni_list_node link; /* of fake_machine.streams */
	uint64_t number; /* 0: the default one */
	unsigned puts;   /* on it */
	struct fake_entry *head, *tail;
	bool held, captures;
	unsigned credits; /* entries that a held stream may begin */
	/* Runs launched functions, and items if waits_in_items; started by the first. */
	pthread_t worker;
	bool working;
	bool stop;
	struct fake_entry *launched;
	pthread_cond_t launch;
};

struct fake_device {
	struct batoni_device base; /* must be first */
	struct batoni_list_node marks;
	unsigned items; /* in streams */
};

struct fake_machine {
	unsigned opens;
	pthread_t runner, caller;
	bool stop;
	uint64_t generation;
	uint64_t still; /* the last generation in which a scan found no work */
	unsigned calling; /* triggers that are due or running */
	struct batoni_list_node streams;
	struct batoni_list_node words; /* blocks that are allocated */
	struct fake_stream default_stream;
	struct fake_entry *calls_head, *calls_tail;
	bool serialize_launches;
	bool waits_in_items;
	unsigned marks;
	bool broken, frozen;
	unsigned break_at; /* calls until it breaks, or 0 */
	unsigned bound, blocked;
	uint64_t streams_made;
	struct {
		unsigned n;
		enum baton_status status;
	} faults[FAKE_CALLS];
};

extern struct fake_machine fake_machine;
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed; /* an event happened, or may have */

/* Lock and unlock, for a call of the device contract. */
void fake_enter(const char *call);
void fake_exit(void);

/* Call this after every change that a stream or a waiter may wait for. */
void fake_happened_locked(void);

/* The status with which the call must fail, or OK. */
enum baton_status fake_fault_locked(enum fake_device_call call);

/* NULL for a handle that is no live stream; must_find counts that, and a stream that captures
 * a graph. */
struct fake_stream *fake_find_locked(baton_stream handle);
struct fake_stream *fake_must_find_locked(baton_stream handle);
struct fake_stream *fake_to_stream(struct batoni_list_node *link);

void fake_append_locked(struct fake_stream *stream, struct fake_entry *entry);
bool fake_word_has_grown(const struct fake_entry *entry);

/* Wait, as long as the stream is full, and return it; NULL: it is none. */
struct fake_stream *fake_await_space_locked(baton_stream handle);

/* OK, UNSUPPORTED (which has been refused with a sentence): what FAKE_DEVICE_WAITS asks for. */
enum baton_status fake_choose_waits(void);

/* The stream can go no further by itself: see fake_device_step. */
bool fake_is_settled_locked(const struct fake_stream *stream);

/* Make sure that the stream has its worker.  OK, SYSTEM. */
enum baton_status fake_worker_start_locked(struct fake_stream *stream);
/* Stop the stream's worker and drop what is on it.  Without the lock; nobody
 * finds the stream any more. */
void fake_stream_fini(struct fake_stream *stream);

/* OK, NOMEM.  Both without the lock. */
enum baton_status fake_machine_start(void);
void fake_machine_stop(void);

#endif
