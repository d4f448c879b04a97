/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of the side channel: how ranks in several processes find each other where
 * there is no MPI, and the transport that they then have, over which near (pairs.h) or a native
 * one lies.
 *
 * One process listens, for one id (a *key*): this is the *rendezvous*.  Ranks of other processes
 * connect and send a *join request*; both sides prove that they know the key's secret.  The listening
 * process has one rank at least, whose thread serves the rendezvous.  When all ranks have come,
 * of either kind, each has a *link*, a descriptor, and `join` makes its bootstrap (bootstrap.h).
 *
 * The engine gets the table from registry.h; runtime/comm/comm_id.c uses it for ids.
 */
#ifndef BATONI_SIDE_H
#define BATONI_SIDE_H

#include <stdio.h>
#include <string.h>

#include "bootstrap.h"

struct batoni_rendezvous;

#define BATONI_SIDE_NONCE_BYTES 16
#define BATONI_SIDE_SECRET_BYTES 32
#define BATONI_SIDE_WHY_BYTES 200

/* An address of this or another node; bytes in an id. */
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

/* One rank's end of what `link_all` and `connect` have made.  `join` takes the descriptor over. */
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
	/* Refuse join requests with this key from now on.  Any thread; does nothing where nothing
	 * listens. */
	void (*unlisten)(const struct batoni_side_key *key);

	/* The rendezvous of a key that this process listens for, for `size` ranks.  Any thread.  OK;
	 * NOMEM; UNSUPPORTED: nothing listens for it. */
	enum baton_status (*open)(const struct batoni_side_key *key, int size,
	                          struct batoni_rendezvous **rendezvous_p);
	/* Serve join requests, until something has come, the rendezvous is rung, or until_ns
	 * (batoni_real_ns) has passed; UINT64_MAX: for ever.  One thread. */
	void (*attend)(struct batoni_rendezvous *rendezvous, uint64_t until_ns);
	/* Make `attend` return.  Any thread. */
	void (*ring)(struct batoni_rendezvous *rendezvous);
	/* Admit the processes that have proved themselves: here[rank] is set; one that gives a rank
	 * that is here already is refused.  The thread that attends.  *n_p: how many.  OK; INVALID (a
	 * size differs), PEER (one that was admitted is gone): why has the sentence, and the
	 * creation has to fail. */
	enum baton_status (*admit)(struct batoni_rendezvous *rendezvous, bool here[], int *n_p,
	                           char why[BATONI_SIDE_WHY_BYTES]);
	/* All ranks have come.  links[rank] is made for ranks of this process, whose fd is 0 in
	 * the array; the others get the word to go on.  OK; NOMEM, SYSTEM: no rank was told.  The
	 * thread that attends. */
	enum baton_status (*link_all)(struct batoni_rendezvous *rendezvous, int home,
	                              struct batoni_side_link links[]);
	/* Add to `text` what the rendezvous has refused, if anything.  The thread that attends. */
	void (*describe)(const struct batoni_rendezvous *rendezvous, char *text, size_t size);
	/* Tell the processes that wait why the creation fails (status OK: none waits any more), and free the
	 * rendezvous.  The thread that attends; does not block. */
	void (*close)(struct batoni_rendezvous *rendezvous, enum baton_status status,
	              const char *why);

	/* The other side: connect, and wait until all ranks have come.  The thread that
	 * creates; blocks until then, or until timeout_ns have passed.  OK; INVALID, TIMEOUT,
	 * PEER, UNSUPPORTED, SYSTEM: batoni_refuse has said why. */
	enum baton_status (*connect)(const struct batoni_side_key *key, int size, int rank,
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
