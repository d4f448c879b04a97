/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory between processes of one node.
 *
 * A rank offers bytes of its device, its part of a window or the buffer of a send: the device names
 * the block that contains them (memory.h), and may give a descriptor, which is handed on to the
 * processes that ask (handover.h) while the offering is open.  Bytes that cannot be offered are no
 * error: they go by message, or in pieces, and the offer says why.
 *
 * A block is mapped once in a process for each device of its own, by the device's number, whatever
 * the number of windows, messages, ranks and communicators that reach it.  The process keeps a list of its mappings; each counts its holders.
 * A mapping is COMING while the thread that found it missing fetches the descriptor and maps the
 * block, then MAPPED, and GOING while the last holder's thread unmaps it.  The lock is not held in
 * these calls: another thread that wants the same block waits for their end, for as long as its
 * own call may take; one that wants another block does not.
 *
 * A mapping whose copies may never end (a device that is not well, when its communicator is
 * destroyed) is *abandoned*: it stays mapped, and nothing new uses it, since the device may be reset.
 *
 * Offerings of messages outlast the call that needs them, and perhaps their memory.  They are in a list, where
 * a thread that frees the memory finds them (batoni_offerings_withdraw): a descriptor that is still open
 * would keep it.
 *
 * Locks: `lock` guards the list and the mappings' states and counts; `offerings_lock` the other list,
 * and what a withdrawal takes out of an offering.  Both are leaves.
 */
#include "shared.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "device.h"
#include "log.h"
#include "mem.h"
#include "shm.h"

enum state { COMING, MAPPED, GOING };

struct batoni_mapping {
	struct batoni_list_node link;
	const struct batoni_memory_ops *memory;
	int device; /* its number */
	struct batoni_memory_name name;
	enum state state;
	unsigned holders; /* MAPPED: 1 or more */
	void *base;
	size_t bytes;
	bool abandoned; /* it stays for good */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* on CLOCK_MONOTONIC */
static pthread_once_t changed_once = PTHREAD_ONCE_INIT;
static struct batoni_list_node mappings = {&mappings, &mappings};

static pthread_mutex_t offerings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct batoni_list_node offerings = {&offerings, &offerings};
static _Atomic uint64_t withdrawals;

/* ---- the owner ---- */

void
batoni_offer_nothing(struct batoni_offer *offer, const char *why)
{
	memset(offer, 0, sizeof(*offer));
	offer->descriptor.fd = -1;
	snprintf(offer->why, sizeof(offer->why), "%s", why);
}

static void
close_what(struct batoni_handover *handover, int fd)
{
	batoni_handover_close(handover);
	if (fd >= 0)
		close(fd);
}

/* The device has named the block. */
static void
hand_on(const struct batoni_memory_shared *shared,
        struct batoni_offering *offering, struct batoni_offer *offer)
{
	struct batoni_shm_name here;

	offer->name = shared->name;
	offer->bytes = shared->bytes;
	offer->offset = shared->offset;
	offer->offered = 1;
	batoni_shm_node(&here);
	memcpy(offer->descriptor.node, here.node, sizeof(here.node));
	offering->fd = shared->fd;
	offering->kept = shared->kept;
	if (shared->fd >= 0 &&
	    batoni_handover_open(shared->fd, &offering->handover,
	                         &offer->descriptor) != BATON_OK) {
		batoni_offer_nothing(offer, baton_last_error());
		/* An open descriptor keeps the memory. */
		batoni_offering_close(offering);
	}
}

enum baton_status
batoni_offer_make(struct batoni_device *device,
                  const struct batoni_memory_ops *memory, const void *pointer,
                  size_t bytes, struct batoni_offering *offering,
                  struct batoni_offer *offer)
{
	struct batoni_memory_shared shared;
	enum baton_status status = BATON_ERR_UNSUPPORTED;

	*offering = (struct batoni_offering){.fd = -1};
	batoni_offer_nothing(offer,
	                     "the device shares no memory between processes");
	if (memory->sharing) {
		status = memory->sharing->share(device, pointer, bytes, &shared);
		if (status == BATON_OK)
			hand_on(&shared, offering, offer);
		else
			batoni_offer_nothing(offer, baton_last_error());
	}
	return status == BATON_ERR_UNSUPPORTED ? BATON_OK : status;
}

void
batoni_offering_list(struct batoni_offering *offering,
                     const struct batoni_memory_block *block)
{
	offering->base = block->base;
	offering->bytes = block->bytes;
	pthread_mutex_lock(&offerings_lock);
	batoni_list_append(&offerings, &offering->link);
	pthread_mutex_unlock(&offerings_lock);
}

void
batoni_offering_close(struct batoni_offering *offering)
{
	if (offering->base) {
		pthread_mutex_lock(&offerings_lock);
		batoni_list_remove(&offering->link);
		pthread_mutex_unlock(&offerings_lock);
	}
	close_what(offering->handover, offering->fd);
	*offering = (struct batoni_offering){.fd = -1};
}

/* Take one that has some of these bytes out of its offering.  False: there is none. */
static bool
withdraw_one(uintptr_t from, uintptr_t end, struct batoni_handover **handover_p,
             int *fd_p)
{
	bool found = false;

	pthread_mutex_lock(&offerings_lock);
	for (struct batoni_list_node *at = offerings.next;
	     at != &offerings && !found; at = at->next) {
		struct batoni_offering *offering = batoni_container_of(
			at, struct batoni_offering, link);
		uintptr_t base = (uintptr_t)offering->base;

		found = base < end && from < base + offering->bytes &&
		        !atomic_load(&offering->withdrawn);
		if (!found)
			continue;
		*handover_p = offering->handover;
		*fd_p = offering->fd;
		offering->handover = NULL;
		offering->fd = -1;
		atomic_store(&offering->withdrawn, true);
	}
	pthread_mutex_unlock(&offerings_lock);
	return found;
}

void
batoni_offerings_withdraw(const void *base, size_t bytes)
{
	uintptr_t from = (uintptr_t)base;
	struct batoni_handover *handover;
	int fd;

	/* An offering that is put in the list later finds another number. */
	atomic_fetch_add(&withdrawals, 1);
	while (withdraw_one(from, from + bytes, &handover, &fd))
		close_what(handover, fd);
}

uint64_t
batoni_withdrawals(void)
{
	return atomic_load(&withdrawals);
}

/* ---- mappings ---- */

static struct batoni_mapping *
find_locked(const struct batoni_mapping *like)
{
	for (struct batoni_list_node *at = mappings.next; at != &mappings;
	     at = at->next) {
		struct batoni_mapping *mapping = batoni_container_of(
			at, struct batoni_mapping, link);

		if (mapping->memory == like->memory &&
		    mapping->device == like->device && !mapping->abandoned &&
		    mapping->bytes == like->bytes &&
		    memcmp(&mapping->name, &like->name,
		           sizeof(like->name)) == 0)
			return mapping;
	}
	return NULL;
}

static void
make_changed(void)
{
	batoni_cond_init(&changed);
}

/* A mapping that is held from now on: one that is MAPPED, or `fresh`, COMING.  NULL: until_ns has
 * passed, and another thread still maps or unmaps the block. */
static struct batoni_mapping *
hold(struct batoni_mapping *fresh, uint64_t until_ns)
{
	struct batoni_mapping *mapping;
	bool late = false;

	pthread_once(&changed_once, make_changed);
	pthread_mutex_lock(&lock);
	while ((mapping = find_locked(fresh)) && mapping->state != MAPPED &&
	       !late) {
		late = !batoni_cond_wait(&changed, &lock, until_ns);
	}
	if (!mapping) {
		mapping = fresh;
		batoni_list_append(&mappings, &mapping->link);
	} else if (mapping->state != MAPPED) {
		mapping = NULL;
	}
	if (mapping)
		mapping->holders++;
	pthread_mutex_unlock(&lock);
	return mapping;
}

static void
drop_mapping(struct batoni_mapping *mapping)
{
	pthread_mutex_lock(&lock);
	batoni_list_remove(&mapping->link);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	batoni_free(mapping);
}

/* Fetch the descriptor, if there is one, and map the block. */
static enum baton_status
map(struct batoni_mapping *mapping, struct batoni_device *device,
    const struct batoni_offer *offer, int pidfd, uint64_t until_ns)
{
	enum baton_status status = BATON_OK;
	int fd = -1;

	if (offer->descriptor.fd >= 0)
		status = batoni_handover_fetch(&offer->descriptor, pidfd,
		                               until_ns, &fd);
	if (status != BATON_OK)
		return status;
	status = mapping->memory->sharing->map(device, &mapping->name, fd,
	                                       mapping->bytes, &mapping->base);
	if (fd >= 0)
		close(fd);
	return status;
}

static bool
is_here(const struct batoni_offer *offer)
{
	struct batoni_shm_name there;

	memset(&there, 0, sizeof(there));
	memcpy(there.node, offer->descriptor.node, sizeof(there.node));
	return batoni_shm_is_here(&there);
}

enum baton_status
batoni_mapping_take(struct batoni_device *device,
                    const struct batoni_memory_ops *memory,
                    const struct batoni_offer *offer, int pidfd,
                    uint64_t until_ns, struct batoni_mapping **mapping_p,
                    char **base_p)
{
	struct batoni_mapping *fresh, *mapping;
	enum baton_status status;

	if (!is_here(offer))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "it is of another node or pid namespace");
	fresh = batoni_alloc(1, sizeof(*fresh));
	if (!fresh)
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	fresh->device = device->number;
	fresh->memory = memory;
	fresh->name = offer->name;
	fresh->bytes = (size_t)offer->bytes;
	mapping = hold(fresh, until_ns);
	if (!mapping) {
		batoni_free(fresh);
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "another thread of this process maps or unmaps "
		                     "it, and the driver has not returned");
	}
	if (mapping != fresh) {
		batoni_free(fresh);
	} else {
		status = map(mapping, device, offer, pidfd, until_ns);
		if (status != BATON_OK) {
			drop_mapping(mapping);
			return status;
		}
		pthread_mutex_lock(&lock);
		mapping->state = MAPPED;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	*mapping_p = mapping;
	*base_p = (char *)mapping->base + offer->offset;
	return BATON_OK;
}

void
batoni_mapping_give(struct batoni_device *device, struct batoni_mapping *mapping)
{
	bool last;

	if (!mapping)
		return;
	pthread_mutex_lock(&lock);
	last = --mapping->holders == 0;
	if (last)
		mapping->state = GOING;
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	mapping->memory->sharing->unmap(device, &mapping->name, mapping->base,
	                                mapping->bytes);
	drop_mapping(mapping);
}

void
batoni_mapping_abandon(struct batoni_mapping *mapping)
{
	bool first;

	pthread_mutex_lock(&lock);
	first = !mapping->abandoned;
	mapping->abandoned = true;
	pthread_mutex_unlock(&lock);
	if (first)
		batoni_mem_keep(1);
}

unsigned
batoni_mappings(void)
{
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (struct batoni_list_node *at = mappings.next; at != &mappings;
	     at = at->next)
		n++;
	pthread_mutex_unlock(&lock);
	return n;
}
