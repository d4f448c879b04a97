/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Three ranks of near's in this process (transport/near/), over a transport below that does nothing.
 * Their areas are plain memory, which a test may write as a peer would.  Nothing moves but in the calls
 * below.  A rank's transfers are named by their slots.
 */
#ifndef NEAR_WORLD_H
#define NEAR_WORLD_H

#include "near.h"

enum { NEAR_RANKS = 3, NEAR_SLOTS = 4096, NEAR_HIDDEN = 3 };

/* How a receiver gets at an announced message's bytes. */
enum near_reach {
	NEAR_WITHIN, /* from the address */
	NEAR_READ,   /* by process_vm_readv */
	NEAR_BY_CHUNKS
};

struct near_rank {
	struct batoni_transport lower;
	struct batoni_peer peers[NEAR_RANKS];
	struct batoni_departure segment;
	char *area;
	struct batoni_transport *transport; /* near's; NULL: closed */
	struct batoni_upcalls upcalls;
	struct batoni_patience patience;
	struct batoni_transfer transfers[NEAR_SLOTS];
	/* PENDING while it is issued, then how it has ended. */
	enum baton_status ends[NEAR_SLOTS];
	unsigned ended; /* by upcalls->done */
	enum baton_status broken; /* OK: it is not */
	char why[200];
	bool lower_closed;
};

struct near_world {
	struct near_rank ranks[NEAR_RANKS];
	struct batoni_ring_layout layout;
};

void near_open(struct near_world *world, enum near_reach reach, bool check);
/* Beside the messages of what else is below; the last rank is near to itself alone. */
void near_open_beside(struct near_world *world, enum near_reach reach);
/* All ranks that are not closed yet. */
void near_close_all(struct near_world *world, bool aborted);
void near_close_rank(struct near_world *world, int rank, bool aborted);

/* Return what `issue` returns, and check that the rank's load is sound. */
enum baton_status near_send(struct near_world *world, int rank, uint32_t slot, int peer,
                            int tag, const void *from, size_t bytes);
enum baton_status near_recv(struct near_world *world, int rank, uint32_t slot, int peer,
                            int tag, void *to, size_t bytes);
/* The same of a list of tensors, as the engine describes it. */
enum baton_status near_send_list(struct near_world *world, int rank, uint32_t slot,
                                 int peer, int tag, struct batoni_tensor_list *list);
enum baton_status near_recv_list(struct near_world *world, int rank, uint32_t slot,
                                 int peer, int tag, struct batoni_tensor_list *list);
enum baton_status near_take(struct near_world *world, int rank, uint32_t slot);
enum baton_status near_scrap(struct near_world *world, int rank, uint32_t slot);
/* Wait for it by one look at its peer's ring. */
size_t near_await_one(struct near_world *world, int rank, uint32_t slot);
/* One pass of a rank; passes of all until nothing moves. */
size_t near_pass(struct near_world *world, int rank);
void near_run(struct near_world *world);

struct batoni_pairs *near_pairs(struct near_world *world, int rank);
struct near_node *near_node_of(struct near_world *world, int rank, uint32_t slot);

#endif
