/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of a bootstrap: it knows the ranks of a communicator, and carries what they tell
 * each other during a creation, before there is a transport.
 *
 * There are three (transport/bootstrap/): threads of one process, MPI, and sockets.  Each offers
 * one `exchange`.  The engine's creation (runtime/comm/creation.c) is the same over all of them,
 * and a transport is opened over one (opening.h).
 *
 * A bootstrap lies in memory of the caller, so that a rank without memory can still tell the
 * others so.  It belongs to one thread at a time.
 */
#ifndef BATONI_BOOTSTRAP_H
#define BATONI_BOOTSTRAP_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#include "baton.h"

struct batoni_bootstrap;

/* What the engine gives to bootstraps and to transports that are opened. */
struct batoni_engine_calls {
	/* The driver lock, for a library that only one thread at a time may call.
	 * Hold it around calls of that library, never across a wait for a peer. */
	void (*driver_lock)(void);
	void (*driver_unlock)(void);
	/* BATON_OK, or what broke the communicator.  Any thread. */
	enum baton_status (*status)(const struct baton_comm *comm);
	/* Stop the engine's thread for good: at exit, before the native library is
	 * finalised.  From then on only calls make progress.  False: this thread was
	 * interrupted in a call of Baton, or the engine's thread does not end.  The
	 * library may then not be finalised, since a lock may be held for ever. */
	bool (*stop)(void);
};

/* The most bytes that a rank contributes to an exchange. */
#define BATONI_EXCHANGE_MAX 1024u
/* What a bootstrap may have of its own. */
#define BATONI_BOOTSTRAP_BYTES 768u

/* It may break otherwise than `exchange` tells. */
struct batoni_breaking_ops {
	/* The sentence of what broke it, "" while it is sound.  Also where a transport has taken
	 * it over, as long as that is not closed. */
	const char *(*why)(const struct batoni_bootstrap *bootstrap);
};

struct batoni_bootstrap_ops {
	const char *name;
	const struct batoni_breaking_ops *breaking; /* or NULL */

	/* An all-gather.  Each rank brings `bytes` (1 to BATONI_EXCHANGE_MAX), the same number
	 * on all ranks.  PENDING until all have brought theirs: repeat the call with the same
	 * arguments.  OK: *all_p has those of all ranks, by rank, until the next exchange or
	 * the close.  An error, with a sentence (batoni_refuse): no further exchange is
	 * possible; the others get an error too, or have it already.  With the driver lock;
	 * must not block. */
	enum baton_status (*exchange)(struct batoni_bootstrap *bootstrap,
	                              const void *mine, size_t bytes,
	                              const void **all_p);
	/* Free what no transport has taken over; ranks that wait in an exchange get an error.
	 * With the driver lock; does not wait for a peer. */
	void (*close)(struct batoni_bootstrap *bootstrap);
};

/* Which transport the processes of these ranks reach each other by. */
enum batoni_bootstrap_kind {
	BATONI_BOOTSTRAP_THREADS,
	BATONI_BOOTSTRAP_MPI,
	BATONI_BOOTSTRAP_SOCKET
};

struct batoni_bootstrap {
	const struct batoni_bootstrap_ops *ops; /* NULL: it was not joined */
	enum batoni_bootstrap_kind kind;
	int rank, size;
	/* So many ranks are of this process, and so many of these come before this one. */
	int within, before;
	/* All options have to be the same; else only those that travel. */
	bool strict;
	/* How long an exchange waits for the others; 0: for ever. */
	uint64_t patience_ns;
	/* Written by close, of an exchange that was given up: the native library still uses this struct, which
	 * must stay where it is for good. */
	bool keeps;
	/* Likewise: what joins some or all ranks (MPI_Comm_create_group, MPI_Comm_idup) is under way on the communicator
	 * that this one was to be made from, on which no other such operation can follow. */
	bool stands;
	union {
		max_align_t align;
		unsigned char bytes[BATONI_BOOTSTRAP_BYTES];
	} own;
};

/* ---- how one is joined ---- */

/* All processes of a job. */
struct batoni_world {
	enum baton_transport id; /* the transport that it is the world of */
	/* This process is part of such a job: it was started by a launcher, or the program
	 * runs the library already. */
	bool (*present)(void);
	/* Join the others.  The thread that creates; may wait for them, for timeout_ns (0: a
	 * default), where this takes more than exchanges.  OK; an error, with a sentence. */
	enum baton_status (*join)(const struct batoni_engine_calls *engine,
	                          int64_t timeout_ns,
	                          struct batoni_bootstrap *bootstrap);
	/* The same over `parent`, an object of the native library (MPI: an MPI_Comm *).  NULL:
	 * there are none. */
	enum baton_status (*join_over)(const struct batoni_engine_calls *engine,
	                               const void *parent,
	                               struct batoni_bootstrap *bootstrap);
};

/* Threads of one process, or one thread for all. */
struct batoni_board;

struct batoni_threads_ops {
	/* A board for `size` ranks.  Any thread.  OK, NOMEM. */
	enum baton_status (*open)(int size, struct batoni_board **board_p);
	/* Each rank once; the last one that closes its bootstrap frees the board.  Any thread. */
	void (*join)(struct batoni_board *board, int rank,
	             struct batoni_bootstrap *bootstrap);
};

/* transport/bootstrap/threads/ */
extern const struct batoni_threads_ops batoni_threads_ops;

#endif
