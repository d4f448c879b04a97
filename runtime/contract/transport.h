/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport contract: what the engine requires of a transport.
 *
 * A transport carries the messages of a communicator (its path `messages`; path.h says
 * what a path does), and what all ranks do together: exchanges, and leaving.  Transports
 * of either kind of path exist: host-issued (local, near, MPI) and stream-issued (NCCL).
 *
 * Only the engine completes requests.  A path reports the end of a transfer exactly once:
 * by the status that `issue` or `take_back` returns, or by upcalls->done.
 */
#ifndef BATONI_TRANSPORT_H
#define BATONI_TRANSPORT_H

#include <pthread.h>

#include "path.h"
#include "shm.h"

struct batoni_device;
struct batoni_native_puts_ops;
struct batoni_transport;

/* Host-issued only. */
struct batoni_exchanging_ops {
	/* An all-gather.  Each rank contributes `bytes` (1 to INT_MAX)
	 * and receives those of all ranks, by rank, in `all`; `what` (below 2^63) names
	 * the purpose.  PENDING until all ranks have called, then OK.  The engine repeats
	 * the call with the same arguments until then, one exchange at a time.  Driver;
	 * must not block.
	 * INVALID (`what` or `bytes` are not the same on all ranks) and NOMEM (some
	 * rank had no memory, or its `all` is NULL) are returned on all ranks, and the
	 * next exchange works.  After PEER (a rank has closed) and MPI no exchange is
	 * possible. */
	enum baton_status (*exchange)(struct batoni_transport *transport,
	                              uint64_t what, const void *mine,
	                              size_t bytes, void *all);
};

/* What this rank leaves behind may hold up another one. */
struct batoni_settling_ops {
	/* The operations of this rank have ended, some are lent, and it is about to leave: give back
	 * what can be, and tell the other ranks what they need for the same.  Driver, repeatedly; must
	 * not block.  It may call upcalls->done. */
	void (*settle)(struct batoni_transport *transport);
};

/* For transports where messages may be left that no receive has met. */
struct batoni_clearing_ops {
	/* All ranks have left, and nothing of this rank is in flight: receive and discard
	 * what was sent over this communicator and not received, so that no other
	 * communicator meets it.  PENDING until that is done on all ranks, then OK; an
	 * error as of `leave`.  Driver, repeatedly; must not block. */
	enum baton_status (*clear)(struct batoni_transport *transport);
};

/* There is a lock under which it calls the native library. */
struct batoni_locking_ops {
	/* For the program's own calls of the native library: take, or give back, the lock under
	 * which this transport calls it.  Any thread of the program; taking waits for such
	 * calls.  OK, INVALID (batoni_refuse has said why). */
	enum baton_status (*lock)(struct batoni_transport *transport, bool take);
};

/* The library has texts for its codes. */
struct batoni_text_ops {
	/* The text for native_code, truncated to size.  Any thread. */
	void (*error_text)(struct batoni_transport *transport, int code,
	                   char *text, size_t size);
};

struct batoni_bootstrap;
struct batoni_engine_calls;

/* The native library can join some of the ranks (bootstrap.h), for a communicator that is made from this one. */
struct batoni_deriving_ops {
	/* Join the bootstrap of these ranks, by this transport's numbers, in this order; this rank is number
	 * `rank` of them.  These ranks alone call, each with the same ones, one such call at a time, and have all
	 * told each other that they will.  The thread that creates, without the driver lock; may
	 * wait for them.  OK; an error, with a sentence. */
	enum baton_status (*derive)(struct batoni_transport *transport,
	                            const struct batoni_engine_calls *engine,
	                            const int *ranks, int size, int rank,
	                            struct batoni_bootstrap *bootstrap);
};

struct batoni_transport_ops {
	const char *name;
	enum baton_transport id;

	/* Each is optional: NULL. */
	const struct batoni_exchanging_ops *exchanging;
	const struct batoni_settling_ops *settling;
	const struct batoni_clearing_ops *clearing;
	const struct batoni_locking_ops *locking;
	const struct batoni_text_ops *texts;
	const struct batoni_deriving_ops *deriving;

	/* Leave the communicator together with all other ranks: PENDING until all have
	 * called it, then OK; from then on nothing is issued.  Driver, repeatedly; must
	 * not block.  INVALID, on all ranks: other ranks called `exchange`; the caller may
	 * retry.  Any other error makes leaving impossible; upcalls->broken has told more, if
	 * the native library did. */
	enum baton_status (*leave)(struct batoni_transport *transport);
	/* Free everything.  The thread that destroys, holding the driver lock; it waits
	 * for nothing but copies (struct batoni_patience).
	 * aborted: the communicator was aborted or is broken; the transport must not
	 * communicate, and transfers may still be lent. */
	void (*close)(struct batoni_transport *transport, bool aborted);
};

/* Which threads may call issue, test, take_back, leave and clear. */
enum batoni_drivers {
	BATONI_DRIVERS_ANY,     /* all, the engine's own too */
	BATONI_DRIVERS_CALLERS, /* threads of the program that call Baton */
	BATONI_DRIVERS_MAIN     /* main_thread alone */
};

/*
 * The memory of a rank that this process can reach without messages.  The code that
 * creates the communicator fills it in, and closing the transport frees it.
 */
struct batoni_peer {
	/* The rank's segment, mapped into this process; of this rank, its own.  Zeroed
	 * at first, aligned to 64 bytes.  It begins with a struct batoni_departure; the one-sided
	 * layer defines its length and the rest.  NULL: not reachable, or BATON_WINDOW_PATH says
	 * that nothing is to be stored there. */
	void *segment;
	/* Where the segment is mapped, but not for the one-sided layer: its beginning. */
	struct batoni_departure *departure;
	/* The area of the messages between pairs of ranks in that segment (pairs.h), as mapped here;
	 * of this rank, its own.  NULL: not mapped, or there are no such areas. */
	char *pairs;
	/* This rank and that one know each other's areas: both say so, or neither does. */
	bool near;
	/* The bell on which threads of the rank's process sleep; not NULL if segment or pairs is
	 * not. */
	struct batoni_bell *bell;
	/* The pipe of that process (shm.h).  NULL: this process has not opened it; `bell` is
	 * enough, but a program there that sleeps in epoll is woken by its engine's thread. */
	struct batoni_pipe *pipe;
	pid_t pid;  /* the rank's process, if it is on this node and `within` or held
	             * by pidfd; else 0 */
	int pidfd;  /* of that process; -1: this process, or none available */
	bool within; /* the rank lives in this process: no mapping is needed */
	/* Streams of this rank's device, which has stream_put, store into the segment: the address
	 * that it would begin at for them, of which this rank's part alone need be there (part_at).
	 * NULL: they do not. */
	char *streams;
	/* Streams of that rank's device may store into this rank's segment. */
	bool streams_here;
	/* The rank has mapped this rank's segment and bell. */
	bool reaches_us;
	/* It has opened the pipe of this rank's process. */
	bool writes_to_us;
	/* Written by the engine: the rank's process has ended, or the rank is away. */
	bool gone;
	/* Written by the engine: it was gone for so long that all it had sent is at the transport. */
	bool silent;
};

/* The first cache line of a segment: what a rank leaves for peers that find it gone.  Only the rank's
 * engine or transport writes it. */
struct batoni_departure {
	/* BATONI_AWAY_*: the rank has left, although its process may live.  0: it has not. */
	_Atomic uint32_t away;
	/* The first rank whose end this rank saw, plus one: a likely cause, if this rank goes too.
	 * 0: it has seen none. */
	_Atomic uint32_t after;
};

#define BATONI_DEPARTURE_BYTES 64u

enum {
	BATONI_AWAY_FINALISED = 1, /* it finalised the library with the communicator alive */
	BATONI_AWAY_CLOSED         /* after an abort or an error */
};

/* Of a rank whose segment this process has mapped; else NULL. */
static inline struct batoni_departure *
batoni_departure_of(const struct batoni_peer *peer)
{
	return peer->departure ? peer->departure : peer->segment;
}

/* The owner of the segment has seen the end of a rank; the first one stays. */
static inline void
batoni_departure_blame(void *segment, int rank)
{
	struct batoni_departure *departure = segment;
	uint32_t none = 0;

	if (departure)
		atomic_compare_exchange_strong(&departure->after, &none,
		                               (uint32_t)rank + 1);
}

/* What closing does about copies that a device has not ended. */
struct batoni_patience {
	uint64_t until_ns; /* it waits no longer for them (batoni_real_ns) */
	/* Between two polls: give the driver lock up for a moment.  The upcalls `done` and
	 * `moves` may be called meanwhile, and no slot of the transport. */
	void (*yield)(unsigned tries);
	bool copies_left;  /* set by it: some are under way, so the device stays open */
};

/* Must be first in every transport.  The leaf sets all fields but `upcalls` and `patience`
 * before it hands the transport over; the engine sets these. */
struct batoni_transport {
	const struct batoni_transport_ops *ops;
	/* Its load: in_flight and moving are transfers; unmatched receives do not move. */
	struct batoni_path messages;
	struct batoni_upcalls *upcalls;
	struct batoni_patience *patience; /* set before close */
	int rank;
	int size;
	int tag_max;
	unsigned capabilities; /* BATON_CAP_* */
	enum batoni_drivers drivers;
	pthread_t main_thread;
	/* For baton_comm_query. */
	char library[128];
	int lanes;        /* NCCL's; 0: it has none */
	int ctas;         /* of a lane's kernels, at most; 0: not known */
	uint64_t device_bytes; /* of its device's memory, that were taken at creation */
	int nccl_version; /* as NCCL has it; 0: it is another library */
	/* The transport writes these; the engine reads them between calls (driver). */
	/* Slots of transfers are 0 to slots-1.  Requests use those below requests_max;
	 * the one-sided layer's own messages use the others.  Those messages have
	 * hidden_tags tags, from hidden_tag (above tag_max) on. */
	uint32_t slots;
	int hidden_tag;
	int hidden_tags;
	/* The `peer` of a receive from any rank; on the last hidden tag only. */
	int any_peer;
	/* Constant.  A send ends only when its receive is posted, and only calls of the
	 * receiver's process post one. */
	bool unbuffered;
	/* Constant.  After its close no library reaches a buffer of a transfer that it has
	 * not ended. */
	bool lets_go;
	/* Constant.  The end of any rank breaks it: it calls upcalls->broken with PEER at some time. */
	bool ends_with_a_rank;
	/* The pages of segments are allocated by batoni_shm_populate, not before. */
	bool sparse_segments;
	/* There are areas of pairs (pairs.h), and all ranks are near to each other.  If not, and there
	 * are such areas: of the lowest rank that is not near to another one, why; on all ranks alike. */
	bool all_near;
	/* All are near, or of this process, and each has mapped the segments of all of them, as all know. */
	bool all_store;
	char why_not_near[200];
	struct batoni_peer *peers; /* by rank; NULL: this transport has none */
	/* Why streams do not store into the segment of some peer that has one, in a text
	 * that stays until close.  NULL: they do, or no stream was to. */
	const char *why_no_streams;
	/* Of a native transport: its lower transport, which it owns.  The one-sided layer uses
	 * the lower one's messages, peers and exchanges.  NULL: this one's own. */
	struct batoni_transport *hosts;
	/* A native transport's one-sided transfers (native_puts.h); NULL: it has none, and a
	 * text that stays says why, or is NULL where there is nothing to say. */
	const struct batoni_native_puts_ops *puts;
	const char *why_no_puts;
	/* A host-issued path for messages that are lists of tensors, where `messages` carries
	 * none; a list and a plain message then never match.  NULL: there is none, and a text
	 * that stays says how to get one, or is NULL. */
	struct batoni_path *lists;
	const char *why_no_lists;
};

/* The transport by which the processes of the ranks reach each other. */
static inline struct batoni_transport *
batoni_hosts_of(struct batoni_transport *transport)
{
	return transport->hosts ? transport->hosts : transport;
}

/* The transport whose messages a path carries. */
static inline struct batoni_transport *
batoni_transport_of(struct batoni_path *messages)
{
	return (struct batoni_transport *)(void *)((char *)messages -
	                                           offsetof(struct batoni_transport,
	                                                    messages));
}

/* The configuration that a transport is opened with. */
struct batoni_transport_config {
	/* The rank's device, whose memory the buffers of messages may be.  NULL: they are
	 * all memory of the host.  The device outlives the transport. */
	struct batoni_device *device;
	/* The same for some rank, on all ranks: tensors of a list are not sent together. */
	bool apart;
	/* On all ranks: checked mode.  A plain receive on a tag of the program's compares its
	 * type with the message's (batoni_transfer_compare). */
	bool check;
	uint32_t slots;
	uint32_t slots_most; /* of all ranks */
	int hidden_tags;
	/* The one-sided layer's, in each rank's segment; 0: there is no such layer. */
	size_t segment_bytes;
	/* The area of messages between pairs of ranks (pairs.h), in each rank's segment, likewise the
	 * same on all ranks; 0: there are no such areas.  The first pairs_control bytes are allocated at
	 * once.  Without either there are no segments, and no peers.  For transports between
	 * processes. */
	size_t pairs_bytes, pairs_control;
	uint32_t pairs_format;
	uint64_t until_ns;    /* as the memory table's pinned_alloc */
	/* A device whose streams are to store into segments: this rank's (of local ranks, one
	 * for all).  NULL: none are.  Of each segment they store into the part of their rank r:
	 * part_bytes bytes, from part_at + r * part_bytes on.  What is before part_at is allocated at once. */
	struct batoni_device *stores;
	size_t part_at, part_bytes;
};

/* transport/local/open.c: opens all ranks at once, transports[0..size-1].  Each rank is closed
 * by itself.  It reaches memory of the host only.  OK, NOMEM. */
enum baton_status batoni_local_open(int size,
                                    const struct batoni_transport_config *config,
                                    struct batoni_transport *transports[]);

#endif
