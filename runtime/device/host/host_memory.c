/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host device's memory: all of it is host memory, and a copy is a memcpy.
 *
 * A copy of up to SLICE_MAX bytes has ended when copy_start returns.  A longer one would
 * hold up the driver: copy_test moves a slice of it each time.  What is left of it is in
 * the ticket: where to, where from, how many bytes.
 */
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "mem.h"

#define SLICE_MAX ((size_t)1 << 20)

enum { TO, FROM, LEFT };

static enum baton_status
host_inspect(struct batoni_device *device, const void *pointer, size_t bytes,
             struct batoni_memory_info *memory_p)
{
	(void)device;
	(void)pointer;
	(void)bytes;
	*memory_p = (struct batoni_memory_info){
		.kind = BATONI_MEMORY_HOST,
		.owner = -1,
	};
	return BATON_OK;
}

static enum baton_status
host_pinned_alloc(struct batoni_device *device, size_t bytes,
                  uint64_t until_ns, void **block_p)
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
host_pinned_free(struct batoni_device *device, void *block)
{
	(void)device;
	batoni_free(block);
}

static void
copy_slice(struct batoni_ticket *ticket)
{
	size_t left = (size_t)ticket->words[LEFT];
	size_t n = left < SLICE_MAX ? left : SLICE_MAX;

	memcpy((void *)(uintptr_t)ticket->words[TO],
	       (const void *)(uintptr_t)ticket->words[FROM], n);
	ticket->words[TO] += n;
	ticket->words[FROM] += n;
	ticket->words[LEFT] -= n;
}

static enum baton_status
host_copy_start(struct batoni_device *device, void *to, const void *from,
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
host_copy_test(struct batoni_device *device, struct batoni_ticket *ticket)
{
	(void)device;
	if (ticket->words[LEFT] > 0)
		copy_slice(ticket);
	return ticket->words[LEFT] > 0 ? BATON_PENDING : BATON_OK;
}

/* Nothing fails here. */
static void
host_why(struct batoni_device *device, struct batoni_fault *fault_p)
{
	(void)device;
	*fault_p = (struct batoni_fault){.call = "memcpy"};
}

static void
host_error_text(struct batoni_device *device, int code, char *text, size_t size)
{
	(void)device;
	snprintf(text, size, "%s", strerror(code));
}

static enum baton_status
host_health(struct batoni_device *device, struct batoni_fault *fault_p)
{
	(void)device;
	(void)fault_p;
	return BATON_OK;
}

const struct batoni_memory_ops batoni_host_memory_ops = {
	.host_only = true,
	.inspect = host_inspect,
	.pinned_alloc = host_pinned_alloc,
	.pinned_free = host_pinned_free,
	.copy_start = host_copy_start,
	.copy_test = host_copy_test,
	.why = host_why,
	.error_text = host_error_text,
	.health = host_health,
};
