/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process's blocks (block.h), in an array by address, which do not overlap.
 *
 * Locks: blocks_lock guards the array and what `named` of its blocks say; it is a leaf.  A process without
 * blocks, and one that asks of memory that is in none, pays for one load.  The observers are the
 * driver's.
 */
#include "block.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "mem.h"

enum { FIRST_ROOM = 16 };

static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct batoni_shm_block **blocks;
static size_t room;
static _Atomic size_t blocks_n;
static uint64_t last_serial;

static struct batoni_list_node observers = {&observers, &observers};

/* The number of blocks that begin at the address or before it.  Caller holds the lock. */
static size_t
count_up_to(uint64_t address)
{
	size_t low = 0, high = atomic_load_explicit(&blocks_n,
	                                            memory_order_relaxed);

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (blocks[middle]->name.base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Caller holds the lock. */
static bool
make_room(size_t n)
{
	size_t more = room ? 2 * room : FIRST_ROOM;
	struct batoni_shm_block **array;

	if (n < room)
		return true;
	array = batoni_alloc(more, sizeof(struct batoni_shm_block *));
	if (!array)
		return false;
	if (n)
		memcpy(array, blocks, n * sizeof(struct batoni_shm_block *));
	batoni_free(blocks);
	blocks = array;
	room = more;
	return true;
}

enum baton_status
batoni_shm_block_add(struct batoni_shm_block *block, const struct batoni_shm *shm)
{
	struct batoni_shm_name name;
	size_t n, at;

	batoni_shm_name(shm, &name);
	block->named = false;
	pthread_mutex_lock(&blocks_lock);
	n = atomic_load_explicit(&blocks_n, memory_order_relaxed);
	if (!make_room(n)) {
		pthread_mutex_unlock(&blocks_lock);
		return BATON_ERR_NOMEM;
	}
	block->name = (struct batoni_shm_block_name){
		.serial = ++last_serial,
		.base = (uintptr_t)shm->base,
		.bytes = name.bytes,
		.device = name.device,
		.inode = name.inode,
		.fd = name.fd,
	};
	at = count_up_to(block->name.base);
	memmove(blocks + at + 1, blocks + at,
	        (n - at) * sizeof(struct batoni_shm_block *));
	blocks[at] = block;
	atomic_store_explicit(&blocks_n, n + 1, memory_order_relaxed);
	pthread_mutex_unlock(&blocks_lock);
	return BATON_OK;
}

bool
batoni_shm_block_remove(struct batoni_shm_block *block)
{
	size_t n, at;
	bool named;

	pthread_mutex_lock(&blocks_lock);
	n = atomic_load_explicit(&blocks_n, memory_order_relaxed);
	at = count_up_to(block->name.base);
	assert(at > 0 && blocks[at - 1] == block);
	memmove(blocks + at - 1, blocks + at,
	        (n - at) * sizeof(struct batoni_shm_block *));
	atomic_store_explicit(&blocks_n, n - 1, memory_order_relaxed);
	if (n == 1) {
		batoni_free(blocks);
		blocks = NULL;
		room = 0;
	}
	named = block->named;
	pthread_mutex_unlock(&blocks_lock);
	return named;
}

bool
batoni_shm_block_find(const void *from, size_t bytes, struct batoni_shm_block_name *name_p)
{
	uint64_t address = (uintptr_t)from;
	bool found = false;
	size_t at;

	/* (A block that holds these bytes was added before they could be sent.) */
	if (atomic_load_explicit(&blocks_n, memory_order_relaxed) == 0)
		return false;
	pthread_mutex_lock(&blocks_lock);
	at = count_up_to(address);
	if (at > 0) {
		struct batoni_shm_block *block = blocks[at - 1];
		uint64_t offset = address - block->name.base;

		found = offset <= block->name.bytes &&
		        bytes <= block->name.bytes - offset;
		if (found) {
			block->named = true;
			*name_p = block->name;
		}
	}
	pthread_mutex_unlock(&blocks_lock);
	return found;
}

void
batoni_shm_block_locate(const struct batoni_shm_block_name *name, pid_t pid,
                        struct batoni_shm_name *shm_name_p)
{
	memset(shm_name_p, 0, sizeof(*shm_name_p));
	batoni_shm_node(shm_name_p);
	shm_name_p->pid = (int32_t)pid;
	shm_name_p->fd = name->fd;
	shm_name_p->device = name->device;
	shm_name_p->inode = name->inode;
	shm_name_p->bytes = name->bytes;
}

void
batoni_shm_block_observe(struct batoni_shm_block_observer *observer)
{
	batoni_list_append(&observers, &observer->link);
}

void
batoni_shm_block_observe_no_more(struct batoni_shm_block_observer *observer)
{
	batoni_list_remove(&observer->link);
}

void
batoni_shm_block_say_gone(uint64_t serial)
{
	for (struct batoni_list_node *node = observers.next; node != &observers;
	     node = node->next) {
		struct batoni_shm_block_observer *observer = batoni_container_of(
			node, struct batoni_shm_block_observer, link);

		observer->gone(observer, serial);
	}
}
