/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's one-sided layer without an engine: segments are plain memory, the
 * transport only records what it is handed, and ends of operations are recorded. */
#ifndef RMA_WORLD_H
#define RMA_WORLD_H

#include "window.h"

#define RANKS 3
#define ME 0
#define SIGNALS 2
#define CONTEXTS 2
#define REQUESTS 64
#define ENDS 1024
#define PART_BYTES ((size_t)4 << 20)

struct rma_world {
	struct baton_comm comm;
	struct batoni_transport transport;
	struct batoni_peer peers[RANKS];
	struct batoni_bell bells[RANKS];
	void *segments[RANKS];
	struct batoni_rma rma;
	struct batoni_transfer transfers[REQUESTS];
	struct baton_window *window; /* of PART_BYTES at each rank, direct */
	char *parts[RANKS];
	/* What has ended, by host.done, in this order. */
	size_t ends;
	struct batoni_transfer *ended[ENDS];
	enum baton_status status[ENDS];
	/* What the transport was handed to send, in this order. */
	size_t messages;
	struct batoni_transfer *message[ENDS];
	enum baton_status answer; /* of its issue */
	/* What it was handed to receive, and has not given back: how many; how it answers their
	 * issue, and taking them back. */
	size_t receives;
	enum baton_status of_receives, of_taking;
	enum baton_status broken; /* it was told so, or OK */
};

void rma_world_open(struct rma_world *world);
void rma_world_close(struct rma_world *world);
/* What stands in a rank's segment. */
uint64_t counter_at(struct rma_world *world, int rank, int source,
                    int signal_index, int context);
/* Another rank signals us, by a store. */
void signal_from(struct rma_world *world, int source, int signal_index,
                 int context);
/* The transport has sent that message. */
void message_sent(struct rma_world *world, size_t i, enum baton_status status);
/* It has received the answer that this lane of the pool waits for. */
void answer_came(struct rma_world *world, uint32_t lane, enum baton_status status);

/* The next end is this one; ends are looked at once, in their order. */
#define assert_ended(world, slot, how)                                        \
	do {                                                                  \
		ck_assert_uint_gt((world)->ends, 0);                          \
		ck_assert_ptr_eq((world)->ended[0],                           \
		                 &(world)->transfers[slot]);                  \
		ck_assert_int_eq((world)->status[0], how);                    \
		rma_world_forget_end(world);                                  \
	} while (0)
#define assert_no_end(world) ck_assert_uint_eq((world)->ends, 0)
void rma_world_forget_end(struct rma_world *world);

/* ---- waits (window/wait.c) ---- */

struct baton_wait_signal_desc wait_desc(int op_count, int peer, int signal_index,
                                        int context);
/* The transfer of this slot is to wait for all of these. */
void describe_wait(struct rma_world *world, uint32_t slot, size_t count,
                   const struct baton_wait_signal_desc *descs);
enum baton_status issue_wait(struct rma_world *world, uint32_t slot);
enum baton_status take_wait_back(struct rma_world *world, uint32_t slot);
size_t test_waits(struct rma_world *world);
/* No wait is left, and no node is lost. */
void assert_no_waits(struct rma_world *world);

/* Nothing is accounted for any more. */
#define assert_idle(world)                                                    \
	do {                                                                  \
		assert_no_end(world);                                         \
		ck_assert_uint_eq((world)->rma.base.path.load.in_flight, 0);              \
		ck_assert_uint_eq((world)->rma.base.path.load.moving, 0);               \
		ck_assert_uint_eq((world)->rma.base.path.load.parked, 0);               \
		ck_assert_uint_eq((world)->window->pending, 0);               \
		ck_assert(batoni_list_empty(&(world)->rma.waits));            \
		ck_assert(batoni_list_empty(&(world)->rma.channels_active));  \
	} while (0)

#endif
