/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests as the program sees them: test, wait, cancel, release.
 *
 * A handle names communicator, slot and generation, so finding it takes no lock: one
 * load of the communicator table, one of the operation's word.  The word alone says
 * whether the handle is alive and whether the operation has ended.  Another thread may
 * release the handle in the meantime, and the slot may be reused.  What was read of
 * the operation is valid only if the word still has its generation (op.h, "Readers").
 */
#include "request.h"

#include "engine.h"
#include "log.h"
#include "wait.h"

/* How many rounds baton_finish polls before it begins a long wait.  A round takes some
 * microseconds: */
#define BRIEF_PASSES 100u
#define BRIEF_AWAITS 16u /* it is AWAIT_POLLS polls, then a pass */
#define AWAIT_POLLS 24u
/* After so many messages without a pass make one, for all other operations. */
#define AWAITED_A_PASS 16u

bool
batoni_request_in_open_group(const struct batoni_op *op)
{
	const struct batoni_scope *scope = batoni_thread.scopes;
	const struct batoni_op *group = batoni_op_group(op);

	while (group && scope && scope != &group->group.scope)
		scope = scope->outer;
	return group && scope;
}

static enum baton_status
check_request(const char *call, baton_request request, struct batoni_op **op_p,
              uint64_t *word_p)
{
	BATONI_ENTER(call);
	*op_p = batoni_request_find(request, word_p);
	if (unlikely(!*op_p))
		return batoni_refuse_handle(call, request);
	if (unlikely(batoni_thread.scopes && !(*word_p & BATONI_OP_DONE) &&
	             batoni_request_in_open_group(*op_p) &&
	             batoni_op_is_still(*op_p, *word_p)))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: the request belongs to a group that "
		                     "this thread has not ended",
		                     call);
	return BATON_OK;
}

/* ---- one request ---- */

/* The slow path of baton_test: the request is pending, lent, or refused. */
static enum baton_status
test_slowly(baton_request request, struct baton_completion *completion_p)
{
	struct batoni_op *op = NULL;
	uint64_t word = 0;
	enum baton_status status = check_request("baton_test", request, &op,
	                                         &word);

	if (status != BATON_OK)
		return status;
	batoni_poll(batoni_get(op->comm));
	/* Another thread may have released it meanwhile. */
	op = batoni_request_find(request, &word);
	if (op)
		status = batoni_request_report(op, word, completion_p);
	if (!op || status == BATON_ERR_STALE)
		return batoni_refuse_handle("baton_test", request);
	return status;
}

enum baton_status
baton_test(baton_request request, struct baton_completion *completion_p)
{
	uint64_t word = 0;
	const struct batoni_op *op = batoni_request_find(request, &word);
	enum baton_status status = BATON_ERR_STALE;

	/* The fast path takes requests that have ended, and those that are pending while
	 * another thread drives them.  A lent one has ended too, but it needs progress
	 * to get its buffer back. */
	if (likely(op && batoni_may_call())) {
		if (likely((word & (BATONI_OP_DONE | BATONI_OP_LENT)) ==
		           BATONI_OP_DONE))
			status = batoni_request_report(op, word, completion_p);
		else if (!batoni_thread.scopes &&
		         atomic_load_explicit(&batoni_engine.driver,
		                              memory_order_relaxed) &&
		         !batoni_is_left_to_us(batoni_get(op->comm)))
			status = batoni_request_report(op, word, completion_p);
	}
	return likely(status != BATON_ERR_STALE)
	               ? status
	               : test_slowly(request, completion_p);
}

/* A pending request was released: its waiters must see that the handle is stale. */
static __attribute__((noinline)) void
wake_after_release(baton_request request, uint64_t word)
{
	if (word & BATONI_OP_WAITED)
		batoni_wake_waiters(request);
	/* The sleeping driver may be one of the waiters. */
	if (atomic_load(&batoni_engine.asleep) & BATONI_ASLEEP_DRIVER)
		batoni_ring();
}

/* Drop the handle; `word` was just read, and has it.  False: another thread has dropped it since. */
static inline bool
drop_handle(struct batoni_op *op, uint64_t word, bool driving)
{
	const uint64_t generation = word >> 32, handle = BATONI_OP_HANDLE;
	struct baton_comm *comm = batoni_get(op->comm);

	while (unlikely(!atomic_compare_exchange_weak_explicit(
		&op->word, &word, word & ~handle, memory_order_acq_rel,
		memory_order_acquire)))
		if (word >> 32 != generation || !(word & handle))
			return false;
	if (unlikely(!(word & BATONI_OP_DONE)))
		wake_after_release(batoni_handle(comm, op, word), word);
	if (unlikely(word & ~handle & BATONI_OP_HELD))
		return true;
	if (driving)
		batoni_pool_return_driving(&comm->pool, op);
	else
		batoni_pool_return(&comm->pool, op);
	return true;
}

/* The report of an operation that has ended, and drop its handle.  STALE: another thread
 * has dropped it. */
static inline enum baton_status
report_and_drop(struct batoni_op *op, uint64_t word, bool driving,
                struct baton_completion *completion_p)
{
	enum baton_status status = batoni_get(op->status);
	struct baton_completion completion;

	if (completion_p)
		completion = batoni_completion_at(op, word);
	/* If this succeeds, the handle held the operation until here, and the completion
	 * is valid. */
	if (unlikely(!drop_handle(op, word, driving)))
		return BATON_ERR_STALE;
	if (completion_p)
		*completion_p = completion;
	return status;
}

enum baton_status
batoni_request_take(struct batoni_op *op, uint64_t word,
                    struct baton_completion *completion_p)
{
	assert(word & BATONI_OP_DONE);
	return report_and_drop(op, word, false, completion_p);
}

struct waiting {
	struct batoni_awaited awaited;
	baton_request request;
	struct batoni_op *op;
	struct baton_completion *completion_p;
	bool release; /* drop the handle when the operation has ended */
	enum baton_status status;
};

/* The operation has ended, or another thread has released the handle. */
static bool
is_over(struct batoni_awaited *awaited, bool driving)
{
	struct waiting *waiting = batoni_container_of(awaited, struct waiting,
	                                              awaited);
	struct batoni_op *op = waiting->op;
	uint64_t word = atomic_load_explicit(&op->word, memory_order_acquire);

	if (unlikely((word ^ waiting->request) >> 32 ||
	             !(word & BATONI_OP_HANDLE))) {
		waiting->status = BATON_ERR_STALE;
		return true;
	}
	if (!(word & BATONI_OP_DONE))
		return false;
	waiting->status =
		waiting->release
			? report_and_drop(op, word, driving,
	                                  waiting->completion_p)
			: batoni_request_report(op, word, waiting->completion_p);
	return true;
}

static enum baton_status
wait_one(const char *call, struct waiting *waiting, int64_t timeout_ns)
{
	uint64_t word = 0;
	enum baton_status status = check_request(call, waiting->request,
	                                         &waiting->op, &word);

	if (unlikely(status != BATON_OK))
		return status;
	waiting->awaited = (struct batoni_awaited){
		.ready = is_over,
		.requests = &waiting->request,
		.count = 1,
		.passive = batoni_request_is_main_threads(waiting->op),
	};
	if (!batoni_wait_until(&waiting->awaited,
	                       batoni_get(waiting->op->comm), timeout_ns))
		waiting->status = batoni_request_report(
			waiting->op, word & ~(uint64_t)BATONI_OP_DONE,
			waiting->completion_p);
	if (unlikely(waiting->status == BATON_ERR_STALE))
		return batoni_refuse_handle(call, waiting->request);
	return waiting->status;
}

enum baton_status
baton_wait(baton_request request, int64_t timeout_ns,
           struct baton_completion *completion_p)
{
	struct waiting waiting = {.request = request,
	                          .completion_p = completion_p};

	return wait_one("baton_wait", &waiting, timeout_ns);
}

static enum baton_status
finish_slowly(baton_request *request_p, int64_t timeout_ns,
              struct baton_completion *completion_p)
{
	struct waiting waiting = {.completion_p = completion_p,
	                          .release = true};
	enum baton_status status;

	if (!request_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_finish: request_p is NULL");
	waiting.request = *request_p;
	status = wait_one("baton_finish", &waiting, timeout_ns);
	if (status != BATON_PENDING && status != BATON_ERR_STALE &&
	    status != BATON_ERR_INVALID)
		*request_p = BATON_REQUEST_NULL;
	return status;
}

/* Does the operation wait for a message of any rank?  The driver. */
static inline bool
is_from_any(const struct batoni_op *op)
{
	return op->state == BATONI_ARMED && op->transfer.peer < 0 &&
	       op->transfer.direction == BATONI_RECV;
}

/* The path that can end the operation by polling its peer alone, or NULL.  The driver;
 * `word` is that of a pending operation. */
static inline struct batoni_path *
awaiting_path(const struct batoni_op *op, uint64_t word)
{
	struct batoni_path *path;

	if (!(word & BATONI_OP_ENGINE) || !batoni_is_transfer(op) ||
	    (op->state != BATONI_ISSUED && !is_from_any(op)))
		return NULL;
	path = batoni_path_of(op);
	return path->ops->awaiting && batoni_may_drive(op->comm) ? path : NULL;
}

/* Do what a pass would do, for this operation alone.  False: there is reason for a whole pass.  (A
 * path has no cancellation points in this, as in issue.) */
static inline bool
await(struct batoni_path *path, struct batoni_op *op)
{
	struct batoni_engine *e = &batoni_engine;

	if (unlikely(e->awaited >= AWAITED_A_PASS) ||
	    !path->ops->awaiting->await(path, &op->transfer, AWAIT_POLLS)) {
		e->awaited = 0;
		return false;
	}
	e->awaited++;
	if (unlikely(e->finish || e->ready || e->deferred)) {
		batoni_cancel_off();
		batoni_end_and_issue();
	}
	return true;
}

/* Drive for some microseconds: enough for a small message, without the cost of a long wait.
 * While the word is as it was, the operation is pending, and its slot stays: only the driver ends
 * it.  True: it has ended in OK, and its handle is gone.  Else *word_p is its word now. */
static inline bool
drive_briefly(struct batoni_op *op, uint64_t *word_p,
              struct baton_completion *completion_p)
{
	struct batoni_engine *e = &batoni_engine;
	const uint64_t before = *word_p;
	/* Before this thread had the lock another one may have ended and released it. */
	uint64_t word = atomic_load_explicit(&op->word, memory_order_acquire);
	struct batoni_path *path =
		word == before ? awaiting_path(op, before) : NULL;
	unsigned passes = path ? BRIEF_AWAITS : BRIEF_PASSES;
	bool finished = false;

	if (unlikely(batoni_thread.shares_core))
		passes = 1; /* the wait behind this yields soon */
	e->finishing = (struct batoni_finishing){
		op, (uint32_t)before == BATONI_OP_FINISHING ? before : 0,
		completion_p};
	for (unsigned pass = 0; pass < passes && word == before; pass++) {
		if (!path || !await(path, op)) {
			batoni_cancel_off();
			batoni_pass();
		}
		finished = !e->finishing.op;
		if (likely(finished))
			break;
		word = atomic_load_explicit(&op->word, memory_order_acquire);
		if (unlikely(atomic_load_explicit(&e->wanted,
		                                  memory_order_relaxed) >=
		             BATONI_CLAIMANT))
			break;
	}
	e->finishing.op = NULL;
	batoni_count_host_pass();
	*word_p = word;
	return finished;
}

/* baton_finish has driven, and this is the word of its operation now.  STALE: that is pending, or released. */
static __attribute__((noinline)) enum baton_status
drop_driving(struct batoni_op *op, uint64_t word, baton_request request,
             struct baton_completion *completion_p)
{
	const uint64_t ended = BATONI_OP_DONE | BATONI_OP_HANDLE;

	if ((word & ended) != ended || (word ^ request) >> 32)
		return BATON_ERR_STALE;
	return report_and_drop(op, word, true, completion_p);
}

enum baton_status
baton_finish(baton_request *request_p, int64_t timeout_ns,
             struct baton_completion *completion_p)
{
	struct batoni_op *op = NULL;
	enum baton_status status = BATON_ERR_STALE;
	uint64_t word = 0;

	if (likely(request_p && batoni_may_call() && !batoni_thread.scopes))
		op = batoni_request_find(*request_p, &word);
	if (unlikely(!op))
		return finish_slowly(request_p, timeout_ns, completion_p);
	if (word & BATONI_OP_DONE) {
		status = report_and_drop(op, word, false, completion_p);
	} else if (timeout_ns < 0 && batoni_trylock()) {
		if (likely(drive_briefly(op, &word, completion_p))) {
			batoni_unlock();
			*request_p = BATON_REQUEST_NULL;
			return BATON_OK;
		}
		status = drop_driving(op, word, *request_p, completion_p);
		batoni_unlock();
	}
	/* Still pending, or another thread has released it. */
	if (unlikely(status == BATON_ERR_STALE))
		return finish_slowly(request_p, timeout_ns, completion_p);
	*request_p = BATON_REQUEST_NULL;
	return status;
}

enum baton_status
baton_release(baton_request *request_p)
{
	struct batoni_op *op;
	uint64_t word;

	BATONI_ENTER("baton_release");
	if (!request_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_release: request_p is NULL");
	if (*request_p == BATON_REQUEST_NULL)
		return BATON_OK;
	op = batoni_request_find(*request_p, &word);
	if (!op || !drop_handle(op, word, false))
		return batoni_refuse_handle("baton_release", *request_p);
	*request_p = BATON_REQUEST_NULL;
	return BATON_OK;
}

/* Announce a cancel and set the CANCEL bit, which holds the operation.  False: the bit was
 * already set, the operation has ended, or the handle was dropped; *word_p says which. */
static bool
mark_cancelled(struct baton_comm *comm, struct batoni_op *op, uint64_t *word_p)
{
	const uint64_t generation = *word_p >> 32;
	uint64_t word = *word_p;
	bool marked = false;

	/* Counted before the bit is set: the driver keeps a communicator with cancels on
	 * engine.working (sweep.c). */
	atomic_fetch_add(&comm->cancels.announced, 1);
	while (!marked && word >> 32 == generation &&
	       (word & BATONI_OP_HANDLE) &&
	       !(word & (BATONI_OP_DONE | BATONI_OP_CANCEL)))
		marked = atomic_compare_exchange_weak(&op->word, &word,
		                                      word | BATONI_OP_CANCEL);
	if (!marked)
		atomic_fetch_sub(&comm->cancels.announced, 1);
	*word_p = word;
	return marked;
}

static void
list_cancelled(struct baton_comm *comm, uint32_t slot)
{
	uint32_t head = atomic_load(&comm->cancels.slots);

	do
		atomic_store_explicit(&comm->pool.next_free[slot], head,
		                      memory_order_relaxed);
	while (!atomic_compare_exchange_weak(&comm->cancels.slots, &head, slot + 1));
}

enum baton_status
baton_cancel(baton_request request)
{
	struct batoni_op *op;
	uint64_t word;
	const struct batoni_path_ops *path;
	struct baton_comm *comm;
	uint8_t kind;

	BATONI_ENTER("baton_cancel");
	op = batoni_request_find(request, &word);
	if (!op)
		return batoni_refuse_handle("baton_cancel", request);
	comm = batoni_get(op->comm);
	kind = batoni_get(op->kind);
	path = comm->paths[batoni_get(op->path)]->ops;
	if (!batoni_op_is_still(op, word))
		return batoni_refuse_handle("baton_cancel", request);
	if (word & BATONI_OP_DONE)
		return BATON_OK;
	if (batoni_kinds[kind]->why_no_cancel)
		return batoni_refuse(BATON_ERR_UNSUPPORTED, "baton_cancel: %s",
		                     batoni_kinds[kind]->why_no_cancel);
	if (path->stream_issued && path->stream_issued->lends)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "baton_cancel: the put is on its stream (%s) "
		                     "and cannot be taken back; a deadline "
		                     "(options.timeout_ns) ends it",
		                     path->name);
	if (path->stream_issued)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "baton_cancel: %s cannot end one operation "
		                     "alone (BATON_CAP_CANCEL)",
		                     path->name);
	if (!mark_cancelled(comm, op, &word))
		return word >> 32 != request >> 32 || !(word & BATONI_OP_HANDLE)
		               ? batoni_refuse_handle("baton_cancel", request)
		               : BATON_OK;
	list_cancelled(comm, batoni_pool_slot(&comm->pool, op));
	atomic_store(&batoni_engine.attention, 1);
	batoni_nudge();
	return BATON_OK;
}
