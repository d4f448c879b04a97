/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of a local transport, stepped by hand: the slots are called as the
 * engine would, and a recording host keeps what it was told. */
#ifndef LOCAL_WORLD_H
#define LOCAL_WORLD_H

#include "transport.h"

#define RANKS_MAX 4
#define SLOTS 4096
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define HIDDEN_TAGS 4
#define SEGMENT_BYTES ((size_t)200) /* not whole lines */

/* One rank's engine: what its transport reported, in order. */
struct recorder {
	struct batoni_upcalls upcalls;
	struct batoni_transfer *ended[SLOTS];
	enum baton_status status[SLOTS];
	size_t count;
	unsigned moves;
};

struct world {
	int size;
	struct batoni_transport *transports[RANKS_MAX];
	struct recorder *recorders; /* one for each rank */
};

/* Every rank with its recorder; close_world closes the ranks that are left and
 * checks that no memory is. */
void open_world(struct world *world, int size, uint32_t slots);
void close_rank(struct world *world, int rank);
void close_world(struct world *world);

enum baton_status issue(struct world *world, int rank,
                        struct batoni_transfer *transfer);
size_t test(struct world *world, int rank);
enum baton_status take_back(struct world *world, int rank,
                            struct batoni_transfer *transfer);

struct batoni_transfer transfer(enum batoni_direction direction, uint32_t slot,
                                int peer, int tag, void *buffer, size_t bytes);

/* Nothing is in flight or moving. */
void assert_idle(const struct world *world, int rank);
/* What the rank's host was told last. */
void assert_last(const struct world *world, int rank,
                 const struct batoni_transfer *ended,
                 enum baton_status status);

/* Blocks for free(): never 4 KiB of zeros, and nothing but zeros. */
unsigned char *pattern(size_t bytes, unsigned seed);
unsigned char *zeros(size_t bytes);
void assert_zeros(const unsigned char *block, size_t bytes);

#endif
