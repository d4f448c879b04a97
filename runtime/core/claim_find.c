/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding a message for a probe, and discarding one that no receive has taken (claim.c has the life of claims).
 *
 * Threads: the driver.
 */
#include "claim.h"

#include "engine.h"
#include "life.h"
#include "line.h"
#include "liveness.h"

/* Have the path find what has come, as for a receive that expects messages. */
static void
poll_path(struct batoni_path *path)
{
	path->ops->unmatched->expect(path, 1);
	path->tests++;
	path->ops->test(path);
	path->ops->unmatched->expect(path, -1);
}

static void
poll_paths(struct baton_comm *comm, int peer)
{
	if (peer >= 0) {
		poll_path(comm->paths[batoni_message_path(comm, peer)]);
		return;
	}
	for (uint32_t i = 0; i < comm->paths_count; i++)
		if (comm->paths[i]->ops->unmatched)
			poll_path(comm->paths[i]);
}

/* As batoni_line_find, for a receive later than all that there are.  *yields_p: an earlier one, which is armed, is to
 * take its message first. */
static int
find_behind_all(struct baton_comm *comm, int peer, int *tag_p, bool *yields_p)
{
	int rank;

	comm->fifos.yields = false;
	comm->fifos.held_up = false;
	rank = batoni_line_find(comm, peer, tag_p);
	*yields_p = comm->fifos.yields;
	comm->fifos.yields = false;
	return rank;
}

static int
find_settled(struct baton_comm *comm, int peer, int tag, int *found_p)
{
	bool yields;
	int rank;

	poll_paths(comm, peer);
	batoni_end_and_issue();
	*found_p = tag;
	rank = find_behind_all(comm, peer, found_p, &yields);
	if (rank < 0 && yields) {
		batoni_end_and_issue();
		*found_p = tag;
		rank = find_behind_all(comm, peer, found_p, &yields);
	}
	return rank;
}

enum baton_status
batoni_claim_find(struct baton_comm *comm, uint8_t kind, int peer, int tag,
                  struct batoni_op **claim_p)
{
	struct batoni_op *claim = batoni_claim_new(comm, kind);
	unsigned polls = batoni_probe_polls(comm);
	int rank = -1, found = tag;

	if (!claim)
		return BATON_ERR_AGAIN;
	for (; polls > 0 && rank < 0; polls--)
		rank = find_settled(comm, peer, tag, &found);
	if (rank < 0) {
		batoni_claim_free(claim);
		batoni_check_for_probe(comm);
		return !comm->fifos.held_up && batoni_is_silent(comm, peer)
		               ? BATON_ERR_PEER
		               : BATON_PENDING;
	}
	batoni_set(claim->transfer.peer, rank);
	batoni_set(claim->transfer.tag, found);
	batoni_set(claim->path, batoni_message_path(comm, rank));
	batoni_list_append(&comm->claims, &claim->deadline);
	*claim_p = claim;
	return BATON_OK;
}

/* Make the claim an operation that has ended and whose buffer the path has; `done` frees it. */
static void
lend(struct batoni_op *claim)
{
	claim->comm->work.lent++;
	batoni_comm_count(claim->comm, 1);
	__atomic_store_n(&claim->state, BATONI_ENDED, __ATOMIC_RELEASE);
	atomic_fetch_or(&claim->word, BATONI_OP_ENGINE | BATONI_OP_LENT);
}

void
batoni_claim_give_up(struct batoni_op *claim)
{
	batoni_list_remove(&claim->deadline);
	if (batoni_path_take_back(batoni_path_of(claim), &claim->transfer) ==
	    BATON_ERR_BUSY)
		lend(claim);
	batoni_op_drop(claim, BATONI_OP_MESSAGE);
}

void
batoni_claim_discard(struct batoni_op *claim)
{
	struct baton_comm *comm = claim->comm;
	enum baton_status status;

	batoni_claim_spent(claim, BATON_ERR_CANCELED);
	batoni_list_remove(&claim->deadline);
	if (comm->fault.status != BATON_OK || !batoni_may_drive(comm)) {
		batoni_op_drop(claim, BATONI_OP_MESSAGE);
		return;
	}
	claim->transfer.buffer = NULL;
	claim->transfer.bytes = 0;
	status = batoni_claim_ops(claim)->meet(batoni_path_of(claim), &claim->transfer,
	                                       &claim->transfer);
	if (status == BATON_PENDING)
		lend(claim);
	batoni_op_drop(claim, BATONI_OP_MESSAGE);
}

void
batoni_claims_drop(struct baton_comm *comm)
{
	struct batoni_list_node *at, *next;

	for (at = comm->claims.next; at != &comm->claims; at = next) {
		struct batoni_op *claim =
			batoni_container_of(at, struct batoni_op, deadline);
		uint64_t word = atomic_load(&claim->word);

		next = at->next;
		if (batoni_claim_try(claim, word >> 32))
			batoni_op_end_later(claim);
	}
}
