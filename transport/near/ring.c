/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings: what is not on the fast path of a message (ring.h). */
#include "ring.h"

#include <assert.h>

#define PAGE ((size_t)4096)

static_assert(BATONI_RING_TELL + 1 + (BATONI_RING_PAYLOAD_MAX + BATONI_RING_CELL) /
                                             BATONI_RING_CELL <
                      BATONI_RING_CELLS,
              "a sender sees room when all has been taken");

static size_t
round_up(size_t bytes, size_t to)
{
	return (bytes + to - 1) / to * to;
}

void
batoni_ring_lay_out(int size, uint32_t slots, struct batoni_ring_layout *layout)
{
	size_t ranks = (size_t)size;
	size_t words = (ranks + 63) / 64;

	layout->size = size;
	layout->controls_at = round_up(words * sizeof(uint64_t), 64);
	layout->states_at = round_up(
		layout->controls_at + ranks * sizeof(struct batoni_ring_control),
		PAGE);
	layout->rings_at = round_up(layout->states_at + slots * sizeof(uint64_t),
	                            PAGE);
	layout->bytes = layout->rings_at + ranks * BATONI_RING_BYTES;
}

void
batoni_ring_call(const struct batoni_ring_out *out)
{
	atomic_fetch_or(out->bits, out->bit);
	if (atomic_load(&out->bell->listening))
		batoni_bell_call(out->bell, out->pipe);
}

bool
batoni_ring_refresh(struct batoni_ring_out *out)
{
	uint32_t taken = atomic_load(&out->control->taken);
	uint32_t matched = atomic_load(&out->control->matched);

	/* The counts grow, and not beyond what was published. */
	if (taken - out->taken > out->next - out->taken ||
	    matched - out->matched > out->copied - out->matched)
		return false;
	out->taken = taken;
	out->matched = matched;
	return true;
}

bool
batoni_ring_starve(struct batoni_ring_out *out, uint32_t cells, bool *broken)
{
	*broken = !batoni_ring_refresh(out);
	if (*broken || batoni_ring_has_room(out, cells))
		return !*broken;
	/* Load `taken` once more behind that store. */
	atomic_store(&out->control->hungry, 1);
	*broken = !batoni_ring_refresh(out);
	if (*broken || batoni_ring_has_room(out, cells))
		return !*broken;
	if (atomic_load(&out->bell->idle))
		batoni_bell_ring(out->bell);
	return false;
}

bool
batoni_ring_tell_taken(struct batoni_ring_in *in)
{
	in->told = in->next;
	atomic_store(&in->control->taken, in->next);
	return atomic_load(&in->control->hungry) &&
	       atomic_exchange(&in->control->hungry, 0);
}

bool
batoni_ring_is_sound(const struct batoni_ring_head *head)
{
	switch (head->kind) {
	case BATONI_RING_SHORT:
		return batoni_ring_is_whole(head);
	case BATONI_RING_LIST:
		return head->length >= 8 && batoni_ring_is_whole(head);
	case BATONI_RING_ANNOUNCE:
		return head->cells == 1 || head->cells == BATONI_RING_BLOCK_CELLS;
	case BATONI_RING_LIST_ANNOUNCE:
		return head->cells == 2 || head->cells == BATONI_RING_BLOCK_CELLS;
	case BATONI_RING_DONE:
	case BATONI_RING_GONE:
		return head->cells == 1 && head->length == 8;
	case BATONI_RING_GRANT:
		return head->cells == 2 && head->length == 24;
	case BATONI_RING_CHUNK:
		return head->length > 8 &&
		       head->length <= BATONI_RING_PAYLOAD_MAX &&
		       head->cells == batoni_ring_cells(head->length);
	default:
		return false;
	}
}
