/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copy device's memory.  Blocks are in a list, by which a pointer is told to be the device's;
 * `lock` guards the list, and no byte.
 *
 * The bytes of a block lie there combined with its key, by exclusive or.
 *
 * A copy moves a slice when it is started, and one each time that it is asked for, as the contract
 * bounds it.  What is left is in the ticket.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "copy_device.h"
#include "list.h"
#include "mem.h"

#define SLICE_MAX ((size_t)1 << 20)

enum { TO, FROM, LEFT };

struct block {
	struct batoni_list_node link;
	size_t bytes;
	unsigned char key; /* not 0 */
	_Alignas(64) unsigned char content[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct batoni_list_node blocks = {&blocks, &blocks};
static unsigned made; /* guarded by `lock` */

static struct block *
find_locked(const void *pointer)
{
	for (struct batoni_list_node *at = blocks.next; at != &blocks;
	     at = at->next) {
		struct block *block =
			batoni_container_of(at, struct block, link);

		if ((uintptr_t)pointer - (uintptr_t)block->content <
		    block->bytes)
			return block;
	}
	return NULL;
}

/* ---- the program's ---- */

void *
copy_memory_alloc(size_t bytes)
{
	struct block *block = aligned_alloc(
		64, (sizeof(*block) + bytes + 64) & ~(size_t)63);

	if (!block)
		abort();
	block->bytes = bytes ? bytes : 1;
	pthread_mutex_lock(&lock);
	block->key = (unsigned char)(1 + made++ % 255);
	memset(block->content, block->key, block->bytes);
	batoni_list_append(&blocks, &block->link);
	pthread_mutex_unlock(&lock);
	return block->content;
}

void
copy_memory_free(void *content)
{
	struct block *block;

	pthread_mutex_lock(&lock);
	block = find_locked(content);
	batoni_list_remove(&block->link);
	pthread_mutex_unlock(&lock);
	free(block);
}

/* The key of its block; 0: it is memory of the host. */
static unsigned char
key_of(const void *pointer)
{
	const struct block *block;
	unsigned char key;

	pthread_mutex_lock(&lock);
	block = find_locked(pointer);
	key = block ? block->key : 0;
	pthread_mutex_unlock(&lock);
	return key;
}

bool
copy_memory_has(const void *pointer)
{
	return key_of(pointer) != 0;
}

void
copy_memory_copy(void *to, const void *from, size_t bytes)
{
	unsigned char key = key_of(to) ^ key_of(from);
	unsigned char *target = to;

	memmove(to, from, bytes);
	for (size_t i = 0; i < bytes && key; i++)
		target[i] ^= key;
}

/* ---- the contract ---- */

static enum baton_status
copy_inspect(struct batoni_device *device, const void *pointer, size_t bytes,
          struct batoni_memory_info *memory_p)
{
	struct block *block;

	(void)device;
	(void)bytes;
	*memory_p = (struct batoni_memory_info){.kind = BATONI_MEMORY_HOST,
	                                        .owner = -1};
	pthread_mutex_lock(&lock);
	block = find_locked(pointer);
	if (block)
		*memory_p = (struct batoni_memory_info){
			.kind = BATONI_MEMORY_DEVICE,
			.base = block->content,
			.bytes = block->bytes,
		};
	pthread_mutex_unlock(&lock);
	return BATON_OK;
}

static enum baton_status
copy_pinned_alloc(struct batoni_device *device, size_t bytes, uint64_t until_ns,
                  void **block_p)
{
	void *block = batoni_alloc(1, bytes);

	(void)device;
	(void)until_ns;
	if (!block)
		return BATON_ERR_NOMEM;
	*block_p = block;
	return BATON_OK;
}

static void
copy_pinned_free(struct batoni_device *device, void *block)
{
	(void)device;
	batoni_free(block);
}

static void
copy_slice(struct batoni_ticket *ticket)
{
	size_t n = ticket->words[LEFT] < SLICE_MAX ? ticket->words[LEFT]
	                                           : SLICE_MAX;

	copy_memory_copy((void *)(uintptr_t)ticket->words[TO],
	                 (const void *)(uintptr_t)ticket->words[FROM], n);
	ticket->words[TO] += n;
	ticket->words[FROM] += n;
	ticket->words[LEFT] -= n;
}

static enum baton_status
copy_start(struct batoni_device *device, void *to, const void *from,
           size_t bytes, int owner, struct batoni_ticket *ticket_p)
{
	(void)device;
	(void)owner;
	ticket_p->words[TO] = (uintptr_t)to;
	ticket_p->words[FROM] = (uintptr_t)from;
	ticket_p->words[LEFT] = bytes;
	copy_slice(ticket_p);
	return BATON_OK;
}

static enum baton_status
copy_test(struct batoni_device *device, struct batoni_ticket *ticket)
{
	(void)device;
	if (ticket->words[LEFT] > 0)
		copy_slice(ticket);
	return ticket->words[LEFT] > 0 ? BATON_PENDING : BATON_OK;
}

/* Nothing fails here. */
static void
copy_why(struct batoni_device *device, struct batoni_fault *fault_p)
{
	(void)device;
	*fault_p = (struct batoni_fault){.call = "copy"};
}

static void
copy_error_text(struct batoni_device *device, int code, char *text, size_t size)
{
	(void)device;
	(void)code;
	if (size > 0)
		text[0] = '\0';
}

static enum baton_status
copy_health(struct batoni_device *device, struct batoni_fault *fault_p)
{
	(void)device;
	(void)fault_p;
	return BATON_OK;
}

const struct batoni_memory_ops copy_memory_ops = {
	.inspect = copy_inspect,
	.pinned_alloc = copy_pinned_alloc,
	.pinned_free = copy_pinned_free,
	.copy_start = copy_start,
	.copy_test = copy_test,
	.why = copy_why,
	.error_text = copy_error_text,
	.health = copy_health,
};
