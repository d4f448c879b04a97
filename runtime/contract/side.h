/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of the side channel: how ranks in several processes find each other where
 * there is no MPI, and the transport that they then have, over which near (pairs.h) or a native
 * one lies.
 *
 * One process listens, for one id (a *key*): this is the *door*.  Ranks of other processes
 * *knock*: they connect, and both sides prove that they know the key's secret.  The listening
 * process has one rank at least, whose thread attends to the door.  When all ranks have come,
 * of either kind, each has a *link*, a descriptor, and `join` makes its bootstrap (bootstrap.h).
 *
 * The engine gets the table from registry.h; runtime/comm/comm_id.c uses it for ids.
 */
#ifndef BATONI_SIDE_H
#define BATONI_SIDE_H

#include <stdio.h>
#include <string.h>

#include "bootstrap.h"

struct batoni_door;

#define BATONI_SIDE_NONCE_BYTES 16
#define BATONI_SIDE_SECRET_BYTES 32
#define BATONI_SIDE_WHY_BYTES 200

/* An address of this or another host; bytes in an id. */
struct batoni_side_address {
	uint16_t family; /* 4, 6; 0: none */
	uint16_t port;
	uint32_t scope;  /* of an address that is of one link */
	unsigned char bytes[16];
};

struct batoni_side_key {
	unsigned char nonce[BATONI_SIDE_NONCE_BYTES];
	unsigned char secret[BATONI_SIDE_SECRET_BYTES];
	struct batoni_side_address address;
};

/* One rank's end of what `seat` and `knock` have made.  `join` takes the descriptor over. */
struct batoni_side_link {
	int fd;   /* -1: none */
	int home; /* a rank of the process that relays */
};

struct batoni_side_ops {
	/* Listen for the key's ranks, and fill in key->address.  Any thread; does not block.
	 * OK; SYSTEM: *error_p is an errno code, and nothing listens; INVALID: likewise, and
	 * batoni_refuse has said what is wrong in the environment.  A process listens for a
	 * limited number of keys; the oldest is given up. */
	enum baton_status (*listen)(struct batoni_side_key *key, int *error_p);
	/* Nobody is to knock with this key any more.  Any thread; does nothing where nothing
	 * listens. */
	void (*unlisten)(const struct batoni_side_key *key);

	/* The door of a key that this process listens for, for `size` ranks.  Any thread.  OK;
	 * NOMEM; UNSUPPORTED: nothing listens for it. */
	enum baton_status (*open)(const struct batoni_side_key *key, int size,
	                          struct batoni_door **door_p);
	/* Serve those that knock, until something has come, the door is rung, or until_ns
	 * (batoni_real_ns) has passed; UINT64_MAX: for ever.  One thread. */
	void (*attend)(struct batoni_door *door, uint64_t until_ns);
	/* Make `attend` return.  Any thread. */
	void (*ring)(struct batoni_door *door);
	/* Take in those that have proved themselves: here[rank] is set; one that gives a rank that
	 * is here is sent away.  The thread that attends.  *n_p: how many.  OK; INVALID (a
	 * size differs), PEER (one that was taken in is gone): why has the sentence, and the
	 * creation is to fail. */
	enum baton_status (*admit)(struct batoni_door *door, bool here[], int *n_p,
	                           char why[BATONI_SIDE_WHY_BYTES]);
	/* All ranks have come.  links[rank] is made for ranks of this process, whose fd is 0 in
	 * the array; the others are told to go on.  OK; NOMEM, SYSTEM: nobody was told.  The
	 * thread that attends. */
	enum baton_status (*seat)(struct batoni_door *door, int home,
	                          struct batoni_side_link links[]);
	/* Add to `text` what the door has sent away, if any.  The thread that attends. */
	void (*describe)(const struct batoni_door *door, char *text, size_t size);
	/* Tell those that wait why it fails (status OK: nobody waits any more), and free the
	 * door.  The thread that attends; does not block. */
	void (*close)(struct batoni_door *door, enum baton_status status,
	              const char *why);

	/* The other side: connect, and wait until all ranks have come.  The thread that
	 * creates; blocks until then, or until timeout_ns have passed.  OK; INVALID, TIMEOUT,
	 * PEER, UNSUPPORTED, SYSTEM: batoni_refuse has said why. */
	enum baton_status (*knock)(const struct batoni_side_key *key, int size, int rank,
	                           int64_t timeout_ns,
	                           struct batoni_side_link *link_p);
	/* The bootstrap of this rank, of `size`.  Takes the link over in any case.  timeout_ns: of
	 * each exchange; 0: a default.  The thread that creates.  OK; NOMEM: batoni_refuse has
	 * said so. */
	enum baton_status (*join)(int size, int rank,
	                          const struct batoni_side_link *link,
	                          int64_t timeout_ns,
	                          struct batoni_bootstrap *bootstrap);
};

/* transport/bootstrap/socket/ */
extern const struct batoni_side_ops batoni_side_ops;

/* A creation that waits says so after this time, and after each that is twice as long. */
#define BATONI_SIDE_TELL_NS ((uint64_t)3 * 1000000000u)

/* Begins with {now}. */
struct batoni_side_wait {
	uint64_t begun_ns;
	unsigned told; /* so many times */
};

/* When it is to be told next: after what batoni_side_tells was last asked about. */
static inline uint64_t
batoni_side_tell_at(const struct batoni_side_wait *wait)
{
	return wait->told < 20
	               ? wait->begun_ns + (BATONI_SIDE_TELL_NS << wait->told)
	               : UINT64_MAX;
}

/* Is it to be told now?  Once, however many of these times have passed. */
static inline bool
batoni_side_tells(struct batoni_side_wait *wait, uint64_t now_ns)
{
	bool tells = now_ns >= batoni_side_tell_at(wait);

	while (now_ns >= batoni_side_tell_at(wait))
		wait->told++;
	return tells;
}

/* What a creation says whose time is up: how many ranks have come, and which have not, of which
 * the first few are named.  here: by rank. */
static inline void
batoni_side_late(const bool here[], int size, uint64_t waited_ns, char *text,
                 size_t bytes)
{
	enum { NAMED = 4 };
	int came = 0, named = 0;
	size_t used;

	for (int rank = 0; rank < size; rank++)
		came += here[rank];
	snprintf(text, bytes, "%d of %d ranks came within %llu ms, without ", came,
	         size, (unsigned long long)(waited_ns / 1000000));
	for (int rank = 0; rank < size && named < NAMED; rank++) {
		if (here[rank])
			continue;
		used = strlen(text);
		snprintf(text + used, bytes - used, "%s%d",
		         named++ ? ", " : size - came > 1 ? "ranks " : "rank ",
		         rank);
	}
	used = strlen(text);
	if (size - came > NAMED)
		snprintf(text + used, bytes - used, " and %d more",
		         size - came - NAMED);
}

#endif
