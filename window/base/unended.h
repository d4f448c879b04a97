/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which operations of channels (puts, signals, gets, atomic operations) are placed and have not
 * ended, and the flushes that wait for them (flush.c).
 *
 * rma->unended has them in the order of their numbers, which is that of their calls as the engine
 * places them.  One that ends within its call is never there.  One that ended early and is LENT
 * stays until its path has let go of it, since it may still arrive.
 *
 * Everything belongs to the driver.
 */
#ifndef BATONI_UNENDED_H
#define BATONI_UNENDED_H

#include "life.h"
#include "rma.h"

static inline void
batoni_unended_init(struct batoni_rma *rma)
{
	batoni_list_init(&rma->unended);
	batoni_list_init(&rma->unacked);
	batoni_list_init(&rma->flushes);
}

/* What a flush waits for has ended: the layer's next test checks all flushes. */
static inline void
batoni_flushes_wake(struct batoni_rma *rma)
{
	if (batoni_list_empty(&rma->flushes) || rma->flushes_due)
		return;
	rma->flushes_due = true;
	rma->base.path.load.moving++;
	batoni_comm_set_busy(rma->comm);
}

static inline void
batoni_unended_add(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];

	if (pending->listed)
		return;
	pending->transfer = transfer;
	pending->listed = true;
	pending->serial = ++rma->serial;
	batoni_list_append(&rma->unended, &pending->unended);
}

static inline void
batoni_unended_remove(struct batoni_rma *rma, struct batoni_pending *pending)
{
	if (likely(!pending->listed))
		return;
	pending->listed = false;
	batoni_list_remove(&pending->unended);
	batoni_flushes_wake(rma);
}

#endif
