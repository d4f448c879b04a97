/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * May a communicator be closed, and if not, what prevents it?  A pending operation, an open
 * group, a launched function that runs, a stream of another communicator, a buffer that the
 * transport still has, or the other ranks.
 *
 * Leaving has one step that cannot be undone: the transport's `leave`, after which the other
 * ranks end what they have.  A destroy that times out before it changes nothing.  One that
 * times out after it leaves a communicator that can only be destroyed again, or aborted: `left`
 * is set, and every call that would enqueue is refused (the transport may use what
 * operations need for its `clear`).
 */
#include "describe.h"

#include "claim.h"
#include "comm.h"
#include "engine.h"
#include "health.h"
#include "liveness.h"
#include "log.h"
#include "room.h"
#include "scope.h"
#include "sweep.h"
#include "wait.h"

/* Does the engine have the operation?  It has pending operations and open groups. */
static bool
is_engines(uint64_t word)
{
	return (word & BATONI_OP_ENGINE) && !(word & BATONI_OP_LENT);
}

/* Is the operation's item still on its stream?  The operation may have ended, while the work
 * of another communicator delays the stream. */
static bool
is_on_stream(uint64_t word)
{
	return word & BATONI_OP_STREAM;
}

static bool
is_joined(uint64_t word)
{
	return word & BATONI_OP_JOINS;
}

static bool
is_lent(uint64_t word)
{
	return word & BATONI_OP_LENT;
}

/* The oldest operation that `is` accepts, or NULL; in *n_p, how many it accepts. */
static const struct batoni_op *
find_oldest(const struct baton_comm *comm, bool (*is)(uint64_t), unsigned *n_p)
{
	const struct batoni_op *oldest = NULL;
	uint64_t age_ns = 0;

	*n_p = 0;
	for (uint32_t i = 0; i < comm->pool.size; i++) {
		const struct batoni_op *op = &comm->pool.ops[i];
		uint64_t age;

		if (!is(atomic_load(&op->word)))
			continue;
		++*n_p;
		age = batoni_op_age_ms(op);
		/* A group is begun before its members are enqueued. */
		if (!oldest || age > age_ns ||
		    (age == age_ns && batoni_kind_of(op)->members)) {
			oldest = op;
			age_ns = age;
		}
	}
	return oldest;
}

/* Is any operation in use by more than the program's handle, the transport or a queue? */
static bool
any_in_use(const struct baton_comm *comm)
{
	for (uint32_t i = 0; i < comm->pool.size; i++) {
		uint64_t word = atomic_load_explicit(&comm->pool.ops[i].word,
		                                     memory_order_acquire);

		if (is_engines(word) || is_on_stream(word))
			return true;
	}
	return false;
}

/* ---- devices that do not go on ---- */

/* The communicator is broken, and a destroy has waited so long for its asynchronous device.  True:
 * long enough; the communicator can be closed, although items of it may be on streams. */
static bool
leave_behind(struct baton_comm *comm, uint64_t waited_ns)
{
	uint32_t none = 0;

	return !comm->in_engine && comm->fault.aborted &&
	       waited_ns >= (uint64_t)batoni_comm_grace_ns(comm) &&
	       atomic_compare_exchange_strong(&comm->functions, &none,
	                                      BATONI_GONE);
}

/* What comes after this rank's operations have ended, each step together with the other
 * ranks. */
static enum baton_status
leave_together(struct baton_comm *comm)
{
	enum baton_status status = BATON_OK;

	comm->leave_awaits = "messages that carry signals or puts of this rank "
			     "are not received yet";
	if (comm->onesided)
		status = comm->onesided->ops->drain(comm->onesided);
	if (status != BATON_OK)
		return status;
	comm->leave_awaits = "nothing of this rank is in the way; another rank "
			     "has not called, or its own call says what is in "
			     "its way";
	if (!atomic_load(&comm->left))
		status = comm->transport_ops->leave(comm->transport);
	if (status != BATON_OK)
		return status;
	atomic_store(&comm->left, true);
	comm->leave_awaits = "the transport still has buffers in which signals "
			     "and puts arrive";
	if (comm->onesided)
		status = comm->onesided->ops->leave(comm->onesided);
	if (status != BATON_OK || !comm->transport_ops->clearing)
		return status;
	comm->leave_awaits = "another rank has left too, but does not receive "
			     "what was sent to it, as its own destroy does";
	return comm->transport_ops->clearing->clear(comm->transport);
}

/* PENDING, or the communicator can be closed now.  INVALID: other ranks are in a different
 * collective call.  Any other error has broken the communicator. */
static enum baton_status
try_to_leave(struct baton_comm *comm)
{
	enum baton_status status;

	comm->leave_awaits = NULL;
	/* Windows, which hold it too, are gone. */
	if (comm->work.active != comm->work.lent + comm->work.held || atomic_load(&comm->joins) ||
	    any_in_use(comm))
		return BATON_PENDING;
	if (comm->fault.status != BATON_OK)
		return BATON_ERR_ABORTED;
	/* To a process that has ended it may be lent for ever. */
	comm->leave_awaits = "the transport has buffers of operations that ended";
	if (comm->work.lent && comm->transport_ops->settling)
		comm->transport_ops->settling->settle(comm->transport);
	if (comm->work.lent)
		return BATON_PENDING;
	status = leave_together(comm);
	/* The transport may have said more. */
	if (status != BATON_OK && status != BATON_PENDING &&
	    status != BATON_ERR_INVALID)
		batoni_comm_break(comm, status,
		                  "the ranks could not leave it together");
	return status;
}

/* TIMEOUT; the sentence for baton_last_error names what is still in use. */
static enum baton_status
refuse_to_leave(const struct baton_comm *comm)
{
	static const struct {
		bool (*is)(uint64_t word);
		const char *what;
	} reasons[] = {
		{is_engines, "pending or open on this rank"},
		{is_joined, "waited for by streams of other communicators"},
		{is_on_stream, "on streams still"},
		{is_lent, "ended, but the transport has their buffers"},
	};
	char text[BATONI_DESCRIBE_BYTES];

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		unsigned n;
		const struct batoni_op *op = find_oldest(comm, reasons[i].is,
		                                         &n);

		if (!op)
			continue;
		batoni_op_describe_fully(op, text, sizeof(text));
		return batoni_refuse(
			BATON_ERR_TIMEOUT,
			"baton_comm_destroy: after %lld ms the communicator is "
			"still there (destroy it again, or abort it first): %u "
			"%s, the oldest: %s",
			(long long)(comm->timeout_ns / 1000000), n,
			reasons[i].what, text);
	}
	return batoni_refuse(
		BATON_ERR_TIMEOUT,
		"baton_comm_destroy: after %lld ms the communicator is %s "
		"(destroy it again, or abort it first): %s",
		(long long)(comm->timeout_ns / 1000000),
		atomic_load(&comm->left)
			? "left, takes no operations, and is not freed yet"
			: "still there",
		comm->leave_awaits ? comm->leave_awaits
				   : "what was in the way has ended just now");
}

/* ---- until it can be closed ---- */

static void
leave_deferred(struct baton_comm *comm)
{
	struct baton_comm **link = &batoni_engine.deferred;

	if (!comm->work.deferred)
		return;
	while (*link != comm)
		link = &(*link)->work.deferred_next;
	*link = comm->work.deferred_next;
	comm->work.deferred = false;
}

void
batoni_comm_unlist(struct baton_comm *comm)
{
	struct batoni_engine *e = &batoni_engine;
	struct baton_comm **link = &e->working;

	leave_deferred(comm);
	batoni_room_end(comm);
	batoni_check_no_probe(comm);
	if (!comm->work.listed)
		return;
	while (*link != comm)
		link = &(*link)->work.next;
	*link = comm->work.next;
	batoni_comm_rest(comm);
}

/* May the program destroy it now?  Refuses if not. */
static enum baton_status
check_destroy(const struct baton_comm *comm)
{
	uint32_t queues = atomic_load(&comm->queues);
	uint32_t plans = atomic_load(&comm->plans);
	const char *alive = comm->onesided
	                            ? comm->onesided->ops->alive(comm->onesided)
	                            : NULL;

	if (queues)
		return batoni_refuse(BATON_ERR_BUSY,
		                     "baton_comm_destroy: the communicator still "
		                     "has %u queue%s (baton_queue_destroy)",
		                     queues, batoni_s(queues));
	if (plans)
		return batoni_refuse(BATON_ERR_BUSY,
		                     "baton_comm_destroy: the communicator still "
		                     "has %u plan%s (baton_plan_destroy)",
		                     plans, batoni_s(plans));
	if (alive)
		return batoni_refuse(BATON_ERR_BUSY,
		                     "baton_comm_destroy: the communicator still "
		                     "has %s",
		                     alive);
	if (batoni_scope_of(comm))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_destroy was called %s",
		                     batoni_scope_where(comm));
	if (!comm->driving.lost && !batoni_may_drive(comm))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_destroy: MPI runs at "
		                     "MPI_THREAD_FUNNELED; call it on the main "
		                     "thread");
	return BATON_OK;
}

/* A destroy that waits until the communicator can be closed. */
struct leaving {
	struct baton_comm *comm;
	uint64_t begun_ns, limit_ns;
	struct batoni_roll_call roll;
	bool gone; /* no other thread reaches it any more */
};

/* From when on a broken communicator's device is waited for: the destroy's begin, or the break. */
static uint64_t
broken_since_ns(const struct leaving *d)
{
	uint64_t broken_ns = d->comm->fault.since_ns;

	return broken_ns > d->begun_ns ? broken_ns : d->begun_ns;
}

/* No pass and no call reaches it from here on.  Closing has one grace in all: a broken
 * communicator has waited for its device alone. */
static void
take_out(struct leaving *d, enum baton_status status, uint64_t now_ns)
{
	struct baton_comm *comm = d->comm;

	comm->patience.yield = batoni_yield_driver;
	comm->patience.until_ns = (status == BATON_OK ? now_ns
	                                              : broken_since_ns(d)) +
	                          (uint64_t)batoni_comm_grace_ns(comm);
	batoni_comm_unlist(comm);
	atomic_store(&batoni_comms[comm->index], NULL);
	d->gone = true;
}

/* OK, or why it is to be closed as aborted, if it is gone; else why it is still there. */
static enum baton_status
leave_further(void *argument)
{
	struct leaving *d = argument;
	struct baton_comm *comm = d->comm;
	enum baton_status status;
	uint64_t now_ns;

	batoni_check_device(comm);
	batoni_claims_drop(comm);
	batoni_comm_make_room(comm);
	if (comm->fault.status != BATON_OK)
		batoni_comm_end_all(comm);
	batoni_end_and_issue();
	status = try_to_leave(comm);
	if (status == BATON_ERR_INVALID)
		return batoni_refuse(status,
		                     "baton_comm_destroy: other ranks make "
		                     "another collective call; the communicator "
		                     "is still there");
	/* Read the clock once: what may be left behind is not refused. */
	now_ns = batoni_real_ns();
	if (status == BATON_PENDING &&
	    leave_behind(comm, now_ns - broken_since_ns(d)))
		status = BATON_ERR_ABORTED;
	if (status != BATON_PENDING) {
		take_out(d, status, now_ns);
		return status;
	}
	if (comm->leave_awaits)
		batoni_check_ranks(comm, &d->roll, now_ns);
	/* Under the lock, so that what still blocks the destroy can be named. */
	return now_ns >= d->limit_ns ? refuse_to_leave(comm) : status;
}

enum baton_status
batoni_comm_leave(struct baton_comm *comm, bool *gone_p)
{
	struct leaving d = {.comm = comm,
	                    .begun_ns = batoni_real_ns(),
	                    .limit_ns = BATONI_NEVER};
	enum baton_status status = check_destroy(comm);

	d.roll.called_ns = d.begun_ns;
	if (comm->timeout_ns)
		d.limit_ns = d.begun_ns + (uint64_t)comm->timeout_ns;
	if (status == BATON_OK)
		status = batoni_drive_until(leave_further, &d, BATONI_NEVER);
	*gone_p = d.gone;
	return status;
}
