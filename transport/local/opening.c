/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening the local transport over the bootstrap of threads (opening.h).
 *
 * All ranks' ends are made at once, by rank 0, since they share what they are made of.  The
 * cards are addresses of this process.  In the first step each tells which device of its own could
 * store into segments; rank 0 then opens all ends, with the first such device; and each takes
 * its own from a list that rank 0 has made, and that the last one frees.
 */
#include <stdatomic.h>
#include <string.h>

#include "config.h"
#include "log.h"
#include "mem.h"
#include "opening.h"

struct ends {
	atomic_int left; /* that are not taken */
	int size;
	struct batoni_transport *transports[]; /* by rank */
};

static enum baton_status
check_setup_of_threads(const struct batoni_bootstrap *bootstrap,
                       struct batoni_comm_setup *setup)
{
	(void)bootstrap;
	if (setup->transport == BATON_TRANSPORT_AUTO)
		setup->transport = BATON_TRANSPORT_LOCAL;
	return BATON_OK;
}

static enum batoni_reach
reach(const struct batoni_device_ops *device)
{
	return device->memory->host_only ? BATONI_REACH_ALL
	                                 : BATONI_REACH_STAGES;
}

static enum baton_status
agree(const struct batoni_accord *accord, struct batoni_comm_setup *setup)
{
	setup->stages = accord->stages;
	return BATON_OK;
}

static void
write_card(struct batoni_opening *opening, void *pointer)
{
	memcpy(opening->card, &pointer, sizeof(pointer));
}

static void *
read_card(const struct batoni_cards *cards, int rank)
{
	void *pointer;

	memcpy(&pointer, batoni_card_of(cards, rank), sizeof(pointer));
	return pointer;
}

/* The device whose streams are to store into the segments, or NULL.  Its pinned memory serves all
 * devices of its kind. */
static struct batoni_device *
storing(struct batoni_device *device)
{
	const struct batoni_device_ops *ops = device->ops;

	return !batoni_config()->engine_puts && ops->puts &&
	                       !ops->puts->why_no_puts(device)
	               ? device
	               : NULL;
}

static enum baton_status
open_all(struct batoni_opening *opening, const struct batoni_cards *cards)
{
	struct batoni_transport_config config = opening->config;
	int size = opening->bootstrap->size;
	struct ends *ends = batoni_alloc(
		1, sizeof(*ends) + (size_t)size * sizeof(ends->transports[0]));

	config.stores = NULL;
	for (int rank = 0; rank < size && !config.stores; rank++)
		config.stores = read_card(cards, rank);
	if (!ends ||
	    batoni_local_open(size, &config, ends->transports) != BATON_OK) {
		batoni_free(ends);
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "no memory for %d local ranks", size);
	}
	atomic_init(&ends->left, size);
	ends->size = size;
	opening->own = ends;
	write_card(opening, ends);
	return BATON_PENDING;
}

static enum baton_status
take_transports(struct batoni_opening *opening, const struct batoni_cards *cards)
{
	struct ends *ends = read_card(cards, 0);

	opening->transport = ends->transports[opening->bootstrap->rank];
	opening->own = opening->transport;
	if (atomic_fetch_sub(&ends->left, 1) == 1)
		batoni_free(ends);
	return BATON_OK;
}

static enum baton_status
step_threads(struct batoni_opening *opening, const struct batoni_cards *cards)
{
	if (opening->round == 0) {
		write_card(opening, storing(opening->device));
		return BATON_PENDING;
	}
	if (opening->round == 2)
		return take_transports(opening, cards);
	return opening->bootstrap->rank == 0 ? open_all(opening, cards)
	                                     : BATON_PENDING;
}

static void
give_up_threads(struct batoni_opening *opening)
{
	struct ends *ends = opening->own;

	opening->engine->driver_lock();
	if (opening->transport) {
		opening->transport->ops->close(opening->transport, true);
	} else {
		for (int rank = 0; rank < ends->size; rank++)
			ends->transports[rank]->ops->close(
				ends->transports[rank], true);
		batoni_free(ends);
	}
	opening->engine->driver_unlock();
}

const struct batoni_opening_ops batoni_opening_local_ops = {
	.check = check_setup_of_threads,
	.reach = reach,
	.agree = agree,
	.step = step_threads,
	.give_up = give_up_threads,
};
