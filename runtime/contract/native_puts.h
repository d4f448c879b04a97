/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of native puts: one-sided transfers that a native transport offers to the
 * one-sided layer, for peers whose memory no process of this node reaches (`puts` of struct
 * batoni_transport; NULL: it offers none, and why_no_puts says why).
 *
 * The transport moves the bytes into a window that all ranks have registered together, and the
 * library counts, at the target, the transfers that have come from each source: its
 * *units*.  The counters that programs see are not its business.  When a put has ended here, the
 * layer tells the target by a message of its own how many units this rank has begun to it by
 * then, an absolute number: messages of different contexts overtake each other, and a put that
 * was stopped has units too.  The target asks `await` for that number before it counts the signal, and `may_come` before that,
 * since the number comes from another process.
 *
 * Callers.  inspect, open, opened and close: the thread that registers or deregisters, without
 * the driver's lock, one at a time for a communicator; they may block, but for no peer.  The
 * others: the driver; they must not block.  None after the transport was closed.
 */
#ifndef BATONI_NATIVE_PUTS_H
#define BATONI_NATIVE_PUTS_H

#include "transport.h"

struct batoni_native_window;

/* What has to be the same on all ranks for memory to become a window. */
struct batoni_native_part {
	uint64_t bytes;
	uint64_t offset;      /* from the beginning of its allocation */
	uint64_t block_bytes; /* of that */
};

struct batoni_native_put {
	struct batoni_native_window *window;
	const void *from; /* memory of a device, or pinned; lent until the put has ended */
	size_t bytes;     /* 1 or more */
	size_t offset;    /* in the peer's part of the window; checked by the caller */
	int peer;
};

struct batoni_native_puts_ops {
	/* May these bytes (1 or more) be this rank's part of a window?  OK; UNSUPPORTED;
	 * NOMEM, CUDA: it cannot be found out.  Unless OK, batoni_refuse has said why. */
	enum baton_status (*inspect)(struct batoni_transport *transport,
	                             const void *base, size_t bytes,
	                             struct batoni_native_part *part_p);
	/* Begin to register the part; all ranks must do this.  PENDING: *window_p is the
	 * transport's, and `opened` follows.  Anything else: batoni_refuse has said why. */
	enum baton_status (*open)(struct batoni_transport *transport, void *base,
	                          size_t bytes,
	                          struct batoni_native_window **window_p);
	/* PENDING: ask again.  OK.  UNSUPPORTED: the library has no one-sided transfers between
	 * these ranks; the window is to be closed.  Anything else: it failed, other ranks may
	 * stand in the library, and the communicator has to break. */
	enum baton_status (*opened)(struct batoni_transport *transport,
	                            struct batoni_native_window *window);
	/* The driver.  From now on no put reads the window as one of the library's: one from this
	 * rank's part of it is as any other memory.  False: some still do; ask again. */
	bool (*let_go)(struct batoni_transport *transport,
	               struct batoni_native_window *window);
	/* All ranks' puts into it have come, and none from this rank's part reads it. */
	void (*close)(struct batoni_transport *transport,
	              struct batoni_native_window *window);

	/* Take the put.  OK: *number_p is its number until `test` has reported its end.
	 * AGAIN: as many are under way as may be. */
	enum baton_status (*put)(struct batoni_transport *transport,
	                         const struct batoni_native_put *put,
	                         uint32_t *number_p);
	/* Move it on.  stop: begin nothing more of it.  PENDING.  OK: all bytes have left, and
	 * *units_p is what the target has to await.  CANCELED: it was stopped.  ABORTED; NCCL,
	 * CUDA (upcalls->broken has told more), and the library does not read its buffer. */
	enum baton_status (*test)(struct batoni_transport *transport,
	                          uint32_t number, bool stop, uint64_t *units_p);
	/* May that source have begun so many units, in all?  False: they are more than the
	 * library can count beyond those that have come. */
	bool (*may_come)(struct batoni_transport *transport, int source,
	                 uint64_t units);
	/* Have so many units of that source come, in all, and can what the caller then lets a
	 * stream of the device do see their bytes?  PENDING: ask again.  OK.  ABORTED; NCCL,
	 * CUDA as above. */
	enum baton_status (*await)(struct batoni_transport *transport,
	                           int source, uint64_t units);
};

#endif
