/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks: the memory of this process that other processes can map, from baton_mem_alloc to
 * baton_mem_free.
 *
 * A transport that hands an address to another process asks in which block it lies, and hands over the
 * name of that block too.  The other process maps it and keeps the mapping, by the block's serial:
 * no other block of this process ever has the same one, so a mapping of memory that was freed is not
 * taken for one of memory that has the same address later.  An observer hears of the end of
 * blocks whose names were handed over, and tells those that may have them mapped.
 */
#ifndef BATONI_BLOCK_H
#define BATONI_BLOCK_H

#include "list.h"
#include "shm.h"

/* As it is handed to another process of the same node, which knows the pid. */
struct batoni_shm_block_name {
	uint64_t serial; /* 0: there is none */
	uint64_t base;   /* its address in this process */
	uint64_t bytes, device, inode; /* as in struct batoni_shm_name */
	int32_t fd;
	uint32_t reserved; /* 0 */
};

struct batoni_shm_block {
	struct batoni_shm_block_name name;
	bool named; /* batoni_shm_block_find has handed its name over */
};

struct batoni_shm_block_observer {
	struct batoni_list_node link;
	void (*gone)(struct batoni_shm_block_observer *observer, uint64_t serial);
};

/* Any thread.  shm stays as it is until the block is removed.  OK, NOMEM. */
enum baton_status batoni_shm_block_add(struct batoni_shm_block *block,
                                       const struct batoni_shm *shm);
/* Any thread; before the memory is given back.  True: its name was handed over, and
 * batoni_shm_block_say_gone is due. */
bool batoni_shm_block_remove(struct batoni_shm_block *block);
/* The block in which all these bytes lie, if any.  Any thread. */
bool batoni_shm_block_find(const void *from, size_t bytes,
                           struct batoni_shm_block_name *name_p);
/* What another process calls the same block. */
void batoni_shm_block_locate(const struct batoni_shm_block_name *name, pid_t pid,
                             struct batoni_shm_name *shm_name_p);

/* The driver, all three. */
void batoni_shm_block_observe(struct batoni_shm_block_observer *observer);
void batoni_shm_block_observe_no_more(struct batoni_shm_block_observer *observer);
void batoni_shm_block_say_gone(uint64_t serial);

#endif
