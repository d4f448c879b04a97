/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Liveness: when the process of a peer dies, end the operations that name it.  Its check covers
 * asynchronous devices too, which may have a sticky error (health.c).
 *
 * A transport keeps descriptors of the processes of this node (batoni_peer.pidfd).
 * The driver polls them every CHECK_NS while its communicators have something pending, or LENT until a
 * process has ended, and records each process that has ended in batoni_peer.gone.  Waits for signals
 * poll the descriptors themselves (window/wait.c), since signals that had arrived before
 * may still end them.
 *
 * Messages of the dead process may still be in the transport.  So one check marks an
 * operation that names it, and the next check, CHECK_NS later, ends the operation.  In
 * between the transport is tested, and operations whose message had arrived end in OK.
 * Operations that their stream has not reached are left alone until it has.
 *
 * Silence.  The grace period is the peer's, not one for each operation: operations that stand
 * in order on a stream would otherwise need two checks each.  A peer that was gone at the last
 * check, since which the messages were tested TESTS_BETWEEN times, is *silent*
 * (batoni_peer.silent): what it had sent is at the transport, and nothing else comes.  From
 * then on an operation that names it ends when it would be issued (batoni_op_issue): a
 * send, put or signal is not issued.  A receive is issued and taken back in one step; the transport
 * gives it back only if no message is there for it.  One that has its message goes
 * on, and gets the grace period.  Waits for counters that only stores move end at their first check
 * (window/wait.c).  Over NCCL no peer becomes silent, since the communicator breaks.
 *
 * Where a rank's end is that of the communicator (ends_with_a_rank: the side channel), the transport
 * reports it in a test, which it gets while something is pending.  Liveness, or near when it reads a message,
 * may see the end before that, and end the last pending operation.  So an operation that ends in PEER
 * breaks the communicator before any thread sees its end.
 *
 * An operation that the transport cannot take back ends in PEER and is lent, as after a
 * deadline.  One that is stream-issued breaks the communicator.
 *
 * Away.  A rank that finalises MPI with the communicator alive makes no more progress in it,
 * and its process may wait in MPI_Finalize for ranks that wait for it.  The rank says so in
 * its segment (struct batoni_departure), and counts as gone.  Ranks that share no memory with it
 * do not see that.
 *
 * The first cause.  Ranks that see the end of a peer often end too, and one that checks
 * later finds several gone.  So each rank writes into its segment the first one whose end it sees,
 * and messages name the rank at which this chain begins.
 *
 * A destroy that only waits for the other ranks, or for what is lent, checks too: a process
 * that has ended will not leave.  So does a collective call of the one-sided layer, which such a
 * process will not make.  The rank may have ended in order just after it left or called, and
 * this rank may see that in the next passes.  So here, too, the second check ends the wait,
 * TRIES_BETWEEN tries later at least: the communicator breaks.
 *
 * A probe waits for nothing, and a program may make one after the other until a message comes.  So a
 * communicator of which a probe has found nothing is checked too, for PROBED_NS, as if something
 * were pending (the list engine.probed).  The probes make the tests of the path
 * (batoni_probe_polls), and answer PEER once the peer is silent.
 *
 * A pass reads the clock for this only every PASSES_A_CHECK passes (engine.c).  Callers
 * whose passes are far apart (the engine's thread, programs that poll) request it for
 * their next pass: batoni_check_peers_soon.
 */
#include "core.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "health.h"
#include "life.h"
#include "liveness.h"
#include "log.h"
#include "sweep.h"

#define CHECK_NS UINT64_C(250000000)
#define PROBED_NS UINT64_C(1000000000)
#define TRIES_BETWEEN 256u
/* Each test makes MPI receive what has come; the engine's thread makes 100 tests in CHECK_NS. */
#define TESTS_BETWEEN 64u
#define BATCH 64
#define GONE_BYTES 120

/* ---- departures ---- */

/* The departure of a rank whose segment this process reaches; else NULL. */
static struct batoni_departure *
departure_of(const struct baton_comm *comm, int rank)
{
	const struct batoni_peer *peers = comm->transport->peers;

	return peers ? batoni_departure_of(&peers[rank]) : NULL;
}

static bool
is_away(const struct batoni_peer *peer)
{
	struct batoni_departure *departure = batoni_departure_of(peer);

	return departure && !peer->within && atomic_load(&departure->away);
}

bool
batoni_peer_is_gone(const struct batoni_peer *peer)
{
	return is_away(peer) ||
	       (peer->pidfd >= 0 && batoni_pidfd_gone(peer->pidfd));
}

/* A peer is gone: the rank that died first, which may be another one, by what the departures
 * tell. */
static int
find_first(const struct baton_comm *comm, int peer)
{
	for (int steps = 0; steps < comm->size; steps++) {
		const struct batoni_departure *departure = departure_of(comm, peer);
		uint32_t after = departure ? atomic_load(&departure->after) : 0;

		if (after == 0 || after > (uint32_t)comm->size ||
		    after - 1 == (uint32_t)comm->rank)
			return peer;
		peer = (int)after - 1;
	}
	return peer;
}

/* This rank has seen that the peer is gone: tell ranks that may find this rank gone. */
static void
note_first_gone(const struct baton_comm *comm, int peer)
{
	batoni_departure_blame(departure_of(comm, comm->rank),
	                       find_first(comm, peer));
}

/* Say in words that this peer is gone, or which rank was gone before it. */
static void
tell_gone(const struct baton_comm *comm, int peer, char *text, size_t size)
{
	int first = find_first(comm, peer);
	bool away = is_away(&comm->transport->peers[first]);

	if (away && atomic_load(&departure_of(comm, first)->away) ==
	                    BATONI_AWAY_CLOSED)
		snprintf(text, size,
		         "rank %d has destroyed its end after an abort or an error",
		         first);
	else if (away)
		snprintf(text, size,
		         "rank %d has finalised MPI without destroying the "
		         "communicator",
		         first);
	else
		snprintf(text, size, "the process of rank %d is gone", first);
	if (first != peer)
		snprintf(text + strlen(text), size - strlen(text),
		         ", and then rank %d left", peer);
}

bool
batoni_tell_gone(const struct baton_comm *comm, const int ranks[], int n,
                 char *text, size_t size)
{
	const struct batoni_peer *peers = comm->transport->peers;
	int i = 0;

	while (peers && i < n && !batoni_peer_is_gone(&peers[ranks[i]]))
		i++;
	if (!peers || i == n)
		return false;
	note_first_gone(comm, ranks[i]);
	tell_gone(comm, ranks[i], text, size);
	return true;
}

void
batoni_say_away(const struct baton_comm *comm)
{
	struct batoni_departure *departure = departure_of(comm, comm->rank);

	if (departure)
		atomic_store(&departure->away, BATONI_AWAY_FINALISED);
}

/* ---- the check ---- */

static void
note_gone(struct baton_comm *comm, int rank)
{
	struct batoni_peer *peer = &comm->transport->peers[rank];
	char what[GONE_BYTES];

	note_first_gone(comm, rank);
	tell_gone(comm, rank, what, sizeof(what));
	peer->gone = true;
	comm->liveness.gone++;
	batoni_log(BATONI_LOG_WARN,
	           "rank %d: %s (pid %d); operations that name it end in "
	           "BATON_ERR_PEER",
	           comm->rank, what, (int)peer->pid);
}

/* Poll up to BATCH descriptors, from `rank` on.  Returns the next rank to check. */
static int
check_batch(struct baton_comm *comm, int rank)
{
	const struct batoni_peer *peers = comm->transport->peers;
	struct pollfd ended[BATCH];
	int ranks[BATCH];
	int n = 0;

	for (; rank < comm->size && n < BATCH; rank++) {
		if (peers[rank].gone)
			continue;
		if (is_away(&peers[rank]))
			note_gone(comm, rank);
		if (peers[rank].gone || peers[rank].pidfd < 0)
			continue;
		ended[n] = (struct pollfd){.fd = peers[rank].pidfd,
		                           .events = POLLIN};
		ranks[n++] = rank;
	}
	if (n == 0 || poll(ended, (nfds_t)n, 0) <= 0)
		return rank;
	for (int i = 0; i < n; i++) {
		if (ended[i].revents & POLLIN)
			note_gone(comm, ranks[i]);
	}
	return rank;
}

/* Has the path been tested often since the last check?  Where a peer wakes the driver (near) that may
 * have slept meanwhile: then the missing tests are made here, each of which takes about a
 * microsecond when nothing has come. */
static bool
is_tested(const struct baton_comm *comm, uint32_t index)
{
	struct batoni_path *path = comm->paths[index];
	uint32_t tests = path->tests - comm->liveness.tests[index];

	for (; tests < TESTS_BETWEEN && path->ops->serving; tests++) {
		path->tests++;
		path->ops->test(path);
	}
	return tests >= TESTS_BETWEEN;
}

/* Do tests without a message show that nothing more comes by this path?  Not of a native
 * transport's own messages, which end on its streams. */
static bool
has_silence(const struct baton_comm *comm, int path)
{
	return !comm->hosts_path || comm->paths[path] == comm->hosts_path;
}

/* Peers that were gone at the last check become silent if the path of their messages has been tested often
 * since: all that they had sent is at the transport. */
static void
note_silence(struct baton_comm *comm)
{
	struct batoni_peer *peers = comm->transport->peers;
	unsigned tested = 0;

	for (uint32_t i = 0; i < comm->paths_count; i++) {
		if (comm->liveness.gone > comm->liveness.silent &&
		    (comm->paths[i]->ops->kinds & BATONI_MESSAGES))
			tested |= (unsigned)is_tested(comm, i) << i;
		comm->liveness.tests[i] = comm->paths[i]->tests;
	}
	if (!tested || (comm->hosts_path && !comm->hosts_carry))
		return;
	for (int rank = 0; rank < comm->size; rank++) {
		int path = batoni_choose_path(comm, BATON_OPERATION_SEND, rank);

		if (peers[rank].gone && !peers[rank].silent &&
		    tested >> path & 1u && has_silence(comm, path)) {
			peers[rank].silent = true;
			comm->liveness.silent++;
		}
	}
}

static void
check_processes(struct baton_comm *comm)
{
	note_silence(comm);
	for (int rank = 0; rank < comm->size;)
		rank = check_batch(comm, rank);
}

/* Has the operation's stream reached it? */
static bool
is_armed(const struct batoni_op *op)
{
	return op->flags & BATONI_FLAG_STREAM_ISSUED
	               ? op->flags & BATONI_FLAG_ARMED
	               : op->state == BATONI_ARMED ||
	                         op->state == BATONI_ISSUED;
}

/* Does it name a process that has ended?  A barrier names all; other waits check by themselves.  A receive from
 * any rank waits for the last of them. */
static bool
names_gone(const struct batoni_op *op)
{
	const struct baton_comm *comm = op->comm;

	if (op->transfer.direction == BATONI_WAIT)
		return batoni_transfer_is_barrier(&op->transfer) &&
		       comm->liveness.gone > 0;
	return op->transfer.peer >= 0
	               ? comm->transport->peers[op->transfer.peer].gone
	               : comm->liveness.gone + 1 >= (uint32_t)comm->size;
}

/* Does the operation wait for a process that has ended? */
static bool
is_orphan(const struct batoni_op *op)
{
	return batoni_is_pending(op) && batoni_is_transfer(op) &&
	       is_armed(op) && names_gone(op);
}

/* A stream-issued operation whose path does not lend cannot end alone. */
static void
break_for(struct batoni_op *op)
{
	char what[GONE_BYTES], why[GONE_BYTES + 80];

	tell_gone(op->comm, op->transfer.peer, what, sizeof(what));
	snprintf(why, sizeof(why),
	         "%s, and an operation that names rank %d is on its stream", what,
	         op->transfer.peer);
	batoni_comm_break(op->comm, BATON_ERR_PEER, why);
}

static size_t
end_orphans(struct baton_comm *comm)
{
	size_t events = 0;

	for (uint32_t i = 0; i < comm->pool.size; i++) {
		struct batoni_op *op = &comm->pool.ops[i];

		if (!is_orphan(op))
			continue;
		if (!(op->flags & BATONI_FLAG_ORPHAN)) {
			op->flags |= BATONI_FLAG_ORPHAN;
			continue;
		}
		events++;
		if ((op->flags & BATONI_FLAG_STREAM_ISSUED) &&
		    !batoni_path_lends(batoni_path_of(op))) {
			break_for(op);
			break;
		}
		batoni_op_end_early(op, BATON_ERR_PEER);
	}
	return events;
}

/* Is there an operation that a peer's end may end? */
static bool
has_pending(const struct baton_comm *comm)
{
	return comm->work.active > comm->work.lent + comm->work.held ||
	       comm->liveness.frees > 0;
}

static size_t
check_comm(struct baton_comm *comm)
{
	if (!comm->transport->peers || comm->driving.lost ||
	    comm->fault.status != BATON_OK || !batoni_may_drive(comm))
		return 0;
	check_processes(comm);
	return comm->liveness.gone ? end_orphans(comm) : 0;
}

/* ---- probes ---- */

void
batoni_check_for_probe(struct baton_comm *comm)
{
	struct batoni_comm_liveness *liveness = &comm->liveness;

	if (!comm->transport->peers)
		return;
	liveness->probed_ns = batoni_coarse_ns();
	batoni_check_peers_soon();
	if (liveness->probed)
		return;
	liveness->probed = true;
	liveness->probed_next = batoni_engine.probed;
	batoni_engine.probed = comm;
}

void
batoni_check_no_probe(struct baton_comm *comm)
{
	struct baton_comm **link = &batoni_engine.probed;

	if (!comm->liveness.probed)
		return;
	while (*link != comm)
		link = &(*link)->liveness.probed_next;
	*link = comm->liveness.probed_next;
	comm->liveness.probed = false;
}

static size_t
check_probed(uint64_t now)
{
	struct baton_comm *comm, *next;
	size_t events = 0;

	for (comm = batoni_engine.probed; comm; comm = next) {
		next = comm->liveness.probed_next;
		/* Else it was checked among those that work. */
		if (!has_pending(comm))
			events += check_comm(comm);
		if (now - comm->liveness.probed_ns >= PROBED_NS)
			batoni_check_no_probe(comm);
	}
	return events;
}

unsigned
batoni_probe_polls(const struct baton_comm *comm)
{
	return comm->liveness.gone > comm->liveness.silent ? TESTS_BETWEEN : 1;
}

bool
batoni_is_silent(const struct baton_comm *comm, int peer)
{
	if (comm->liveness.silent == 0)
		return false;
	return peer >= 0 ? comm->transport->peers[peer].silent
	                 : comm->liveness.silent + 1 >= (uint32_t)comm->size;
}

/* Some rank whose process has ended, or -1. */
static int
find_gone(const struct baton_comm *comm)
{
	int rank = 0;

	while (rank < comm->size && !comm->transport->peers[rank].gone)
		rank++;
	return rank < comm->size ? rank : -1;
}

void
batoni_check_ranks(struct baton_comm *comm, struct batoni_roll_call *roll,
                   uint64_t now_ns)
{
	bool again = roll->missing;
	char what[GONE_BYTES], why[GONE_BYTES + 40];

	if (!comm->transport->peers || comm->driving.lost ||
	    ++roll->tries < TRIES_BETWEEN ||
	    now_ns - roll->called_ns < CHECK_NS)
		return;
	roll->called_ns = now_ns;
	roll->tries = 0;
	check_processes(comm);
	roll->missing = comm->liveness.gone > 0;
	if (!again || !roll->missing)
		return;
	tell_gone(comm, find_gone(comm), what, sizeof(what));
	if (roll->call)
		snprintf(why, sizeof(why), "%s: %s", roll->call, what);
	else
		snprintf(why, sizeof(why), "%s: not all ranks have left", what);
	batoni_comm_break(comm, BATON_ERR_PEER, why);
}

static bool
ends_with_a_rank(struct baton_comm *comm)
{
	return batoni_hosts_of(comm->transport)->ends_with_a_rank;
}

void
batoni_check_lost(struct baton_comm *comm)
{
	const struct batoni_peer *peers = comm->transport->peers;
	char why[GONE_BYTES];
	int rank = 0;

	if (!peers || !ends_with_a_rank(comm))
		return;
	while (rank < comm->size && !peers[rank].gone &&
	       !batoni_peer_is_gone(&peers[rank]))
		rank++;
	/* A rank that has aborted, and lives, may end an operation in PEER. */
	if (rank == comm->size)
		return;
	if (!peers[rank].gone)
		note_gone(comm, rank);
	tell_gone(comm, rank, why, sizeof(why));
	batoni_comm_break(comm, BATON_ERR_PEER, why);
}

/* It makes so many tests that these take more than a ring of near holds. */
void
batoni_take_in(struct baton_comm *comm)
{
	if (comm->fault.status != BATON_ERR_PEER || comm->driving.lost ||
	    !ends_with_a_rank(comm))
		return;
	for (uint32_t i = 0; i < comm->paths_count; i++) {
		struct batoni_path *path = comm->paths[i];

		if (!(path->ops->kinds & BATONI_MESSAGES) ||
		    !path->ops->host_issued)
			continue;
		for (unsigned n = 0; n < TESTS_BETWEEN; n++) {
			path->tests++;
			path->ops->test(path);
		}
	}
}

size_t
batoni_check_peers(void)
{
	struct batoni_engine *e = &batoni_engine;
	uint64_t now = batoni_coarse_ns();
	size_t events = 0;

	if (now - e->peers_checked_ns < CHECK_NS)
		return 0;
	e->peers_checked_ns = now;
	for (struct baton_comm *comm = e->working; comm;
	     comm = comm->work.next) {
		if (has_pending(comm))
			events += check_comm(comm);
		events += batoni_check_device(comm);
	}
	return events + check_probed(now);
}
