/* SPDX-License-Identifier: BSD-3-Clause */
/* The paths of a rank's puts to each peer of a window (paths.c). */
#ifndef BATONI_PATHS_H
#define BATONI_PATHS_H

#include "carry.h"
#include "collective.h"

/* A rank's description of its part, for the first exchange. */
struct batoni_part {
	int32_t status; /* why this rank is refused, or OK */
	int32_t pid, fd; /* of the shared memory around it; fd -1: none; LOCATION_FD minus a
	                  * location: none, and that is what the part is */
	uint32_t node;   /* of the rank; 0: not known */
	uint64_t inode, memory_bytes; /* of that memory */
	uint64_t offset;              /* in it */
	uint64_t bytes;
	uint64_t address; /* in the rank's process, as that of its segment */
	uint64_t segment; /* the words in it where ranks try to write (onesided.h) */
};

static_assert(sizeof(struct batoni_part) == 64, "so many bytes of each rank");

#define BATONI_PART_LOCATION_FD (-2)

/* What this process reaches of a rank's memory; nothing on a transport without peers. */
const struct batoni_peer *batoni_reach(const struct batoni_rma *rma, int peer);
/* The node of a name in 32 bits; shm.c compares the whole identity. */
uint32_t batoni_part_node(const struct batoni_shm_name *name);
/* Do some ranks reach memory of a device only if its owner offers it (shared.h)?  All ranks
 * answer alike, from the parts. */
bool batoni_parts_want_offers(const struct batoni_rma *rma);
/* After the first exchange, and that of the offers if they are wanted: fill in window->peers.
 * What is wrong goes into c.  The thread that registers, without the driver's lock; may block. */
void batoni_paths_choose(struct batoni_collective *c, struct baton_window *window);
/* Undo batoni_paths_choose. copies_left: a device may still copy into what is mapped. */
void batoni_paths_drop(struct baton_window *window, bool copies_left);
/* Log which paths were chosen, and why not faster ones. */
void batoni_paths_announce(const struct baton_window *window);
/* For baton_comm_query.  Caller: the driver. */
void batoni_paths_sum(struct batoni_rma *rma);

#endif
