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

#include "health.h"
#include "leave.h"
#include "log.h"

/* Does the engine have the record?  It has pending operations and open groups. */
static bool
is_engines(uint64_t word)
{
	return (word & BATONI_OP_ENGINE) && !(word & BATONI_OP_LENT);
}

/* Is the record's item still on its stream?  The operation may have ended, while the work
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

/* The oldest record that `is` accepts, or NULL; in *n_p, how many it accepts. */
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

/* Is any record in use by more than the program's handle, the transport or a queue? */
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

bool
batoni_comm_leave_behind(struct baton_comm *comm, uint64_t waited_ns)
{
	uint32_t none = 0;

	return !comm->in_engine && comm->fault.host_ended &&
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
	if (status != BATON_OK || !comm->transport_ops->clear)
		return status;
	comm->leave_awaits = "another rank has left too, but does not receive "
			     "what was sent to it, as its own destroy does";
	return comm->transport_ops->clear(comm->transport);
}

enum baton_status
batoni_comm_try_to_leave(struct baton_comm *comm)
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
	if (comm->work.lent && comm->transport_ops->settle)
		comm->transport_ops->settle(comm->transport);
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

enum baton_status
batoni_comm_refuse_to_leave(const struct baton_comm *comm)
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
