/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several requests at once: wait for any, for all, and what has ended of them.  A check of one is
 * as in request.c: another thread may release it in the meantime.
 *
 * The calls that release (finish) do so when they know what they return: after the wait, and after
 * checking all handles for a stale one.  The program must not release a handle beside such a call; the
 * call then returns STALE, and releases the others all the same.
 */
#include "request.h"

#include "engine.h"
#include "log.h"
#include "wait.h"

struct waiting_many {
	struct batoni_awaited awaited;
	const baton_request *requests;
	size_t count;
	/* any: the request that has ended or is stale; all: the first not ended */
	size_t index;
	bool stale;
	enum baton_status status; /* all: the first that is not OK, before index */
};

/* The state of a request: 0 pending, 1 ended, 2 null, -1 stale. */
static int
check_request(baton_request request)
{
	uint64_t word;

	if (request == BATON_REQUEST_NULL)
		return 2;
	if (!batoni_request_find(request, &word))
		return -1;
	return word & BATONI_OP_DONE ? 1 : 0;
}

static bool
any_over(struct batoni_awaited *awaited, bool driving)
{
	struct waiting_many *many = batoni_container_of(
		awaited, struct waiting_many, awaited);
	bool nothing = true;

	(void)driving;
	for (size_t i = 0; i < many->count; i++) {
		int seen = check_request(many->requests[i]);

		many->index = i;
		many->stale = seen < 0;
		if (seen == 1 || seen < 0)
			return true;
		nothing &= seen == 2;
	}
	many->index = many->count;
	return nothing;
}

/* Advance `index` to the first request that is pending or stale.  Requests that have
 * ended are not examined again.  0: it is pending, 1: all have ended, -1: it is stale. */
static int
pass_over(struct waiting_many *many)
{
	for (; many->index < many->count; many->index++) {
		baton_request request = many->requests[many->index];
		enum baton_status status = BATON_ERR_STALE;
		const struct batoni_op *op;
		uint64_t word;

		if (request == BATON_REQUEST_NULL)
			continue;
		op = batoni_request_find(request, &word);
		if (likely(op))
			status = batoni_request_report(op, word, NULL);
		if (status == BATON_PENDING)
			return 0;
		if (unlikely(status == BATON_ERR_STALE))
			return -1;
		if (many->status == BATON_OK)
			many->status = status;
	}
	return 1;
}

static bool
all_over(struct batoni_awaited *awaited, bool driving)
{
	struct waiting_many *many = batoni_container_of(
		awaited, struct waiting_many, awaited);
	int seen = pass_over(many);

	(void)driving;
	many->stale = seen < 0;
	/* Wait for this one next: its end makes the waiter call all_over again. */
	if (seen == 0)
		awaited->requests = &many->requests[many->index];
	return seen != 0;
}

/* The communicator of a pending request that the current driver may not drive and this
 * thread may; NULL: there is none. */
static const struct baton_comm *
comm_to_drive(const baton_request *requests, size_t count)
{
	if (!atomic_load_explicit(&batoni_engine.driver, memory_order_relaxed))
		return NULL;
	for (size_t i = 0; i < count; i++) {
		uint64_t word;
		const struct batoni_op *op =
			requests[i] ? batoni_request_find(requests[i], &word)
				    : NULL;

		if (op && !(word & BATONI_OP_DONE) &&
		    batoni_is_left_to_us(batoni_get(op->comm)))
			return batoni_get(op->comm);
	}
	return NULL;
}

/* Can only the main thread end the pending requests? */
static bool
are_main_threads(const baton_request *requests, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t word;
		const struct batoni_op *op =
			requests[i] ? batoni_request_find(requests[i], &word)
				    : NULL;

		if (op && !(word & BATONI_OP_DONE) && !batoni_request_is_main_threads(op))
			return false;
	}
	return true;
}

static void
await_many(struct waiting_many *many,
           bool (*ready)(struct batoni_awaited *awaited, bool driving),
           size_t count)
{
	many->awaited = (struct batoni_awaited){
		.ready = ready,
		.requests = many->requests,
		.count = count,
	};
	/* Usually the first pending request decides, and the scan stops there. */
	many->awaited.passive = are_main_threads(many->requests + many->index,
	                                         many->count - many->index);
}

static enum baton_status
check_many(const char *call, const baton_request *requests, size_t count)
{
	BATONI_ENTER(call);
	if (!requests && count > 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: requests is NULL with count %zu", call,
		                     count);
	for (size_t i = 0; batoni_thread.scopes && i < count; i++) {
		uint64_t word;
		struct batoni_op *op =
			requests[i] ? batoni_request_find(requests[i], &word)
				    : NULL;

		if (op && !(word & BATONI_OP_DONE) && batoni_request_in_open_group(op) &&
		    batoni_op_is_still(op, word))
			return batoni_refuse(BATON_ERR_INVALID,
			                     "%s: requests[%zu] belongs to a "
			                     "group that this thread has not "
			                     "ended",
			                     call, i);
	}
	return BATON_OK;
}

enum baton_status
baton_wait_any(const baton_request *requests, size_t count, int64_t timeout_ns,
               size_t *index_p, struct baton_completion *completion_p)
{
	struct waiting_many many = {.requests = requests, .count = count};
	enum baton_status status = check_many("baton_wait_any", requests,
	                                      count);
	struct batoni_op *op;
	uint64_t word;

	if (status != BATON_OK)
		return status;
	if (!index_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_wait_any: index_p is NULL");
	await_many(&many, any_over, count);
	if (!batoni_wait_until(&many.awaited, comm_to_drive(requests, count),
	                       timeout_ns))
		return BATON_PENDING;
	*index_p = many.index;
	if (many.index == count)
		return BATON_OK;
	op = many.stale ? NULL
	                : batoni_request_find(requests[many.index], &word);
	if (op)
		status = batoni_request_report(op, word, completion_p);
	if (!op || status == BATON_ERR_STALE)
		return batoni_refuse_handle("baton_wait_any", requests[many.index]);
	return status;
}

/* True: all have ended; *status_p is that of the first that did not end in OK, else OK.  False: what the
 * call returns. */
static bool
await_all(const char *call, const baton_request *requests, size_t count,
          int64_t timeout_ns, enum baton_status *status_p)
{
	struct waiting_many many = {.requests = requests, .count = count};
	int seen;

	*status_p = check_many(call, requests, count);
	if (*status_p != BATON_OK)
		return false;
	seen = pass_over(&many);
	if (seen == 0) {
		/* Report a stale request at once, wherever it is in the array. */
		for (size_t i = many.index + 1; i < count && seen == 0; i++) {
			if (check_request(requests[i]) < 0) {
				many.index = i;
				seen = -1;
			}
		}
	}
	if (seen == 0) {
		await_many(&many, all_over, 1);
		if (!batoni_wait_until(&many.awaited,
		                       comm_to_drive(requests, count),
		                       timeout_ns)) {
			*status_p = BATON_PENDING;
			return false;
		}
		seen = many.stale ? -1 : 1;
	}
	*status_p = seen < 0 ? batoni_refuse_handle(call, requests[many.index])
	                     : many.status;
	return seen > 0;
}

enum baton_status
baton_wait_all(const baton_request *requests, size_t count, int64_t timeout_ns)
{
	enum baton_status status;

	(void)await_all("baton_wait_all", requests, count, timeout_ns, &status);
	return status;
}

/* Release a request that was seen to have ended.  STALE: another thread has released it. */
static enum baton_status
release_ended(const char *call, baton_request *request_p,
              struct baton_completion *completion_p)
{
	uint64_t word;
	struct batoni_op *op = batoni_request_find(*request_p, &word);
	enum baton_status status =
		op ? batoni_request_take(op, word, completion_p)
		   : BATON_ERR_STALE;

	if (unlikely(status == BATON_ERR_STALE)) {
		if (completion_p)
			*completion_p = (struct baton_completion){
				.request = *request_p, .status = status,
				.peer = -1, .tag = -1};
		return batoni_refuse_handle(call, *request_p);
	}
	*request_p = BATON_REQUEST_NULL;
	return status;
}

enum baton_status
baton_finish_all(baton_request *requests, size_t count, int64_t timeout_ns,
                 struct baton_completion *completions)
{
	enum baton_status first;

	if (!await_all("baton_finish_all", requests, count, timeout_ns, &first))
		return first;
	first = BATON_OK;
	for (size_t i = 0; i < count; i++) {
		struct baton_completion *completion_p =
			completions ? &completions[i] : NULL;
		enum baton_status status = BATON_OK;

		if (requests[i] != BATON_REQUEST_NULL)
			status = release_ended("baton_finish_all", &requests[i],
			                       completion_p);
		else if (completion_p)
			*completion_p = (struct baton_completion){.peer = -1,
			                                          .tag = -1};
		if (first == BATON_OK)
			first = status;
	}
	return first;
}

static enum baton_status
collect(const char *call, const baton_request *requests, size_t count,
        size_t *indices, size_t indices_max, size_t *done_p)
{
	size_t done = 0;
	bool pending = false;

	for (size_t i = 0; i < count && done < indices_max; i++) {
		int seen = check_request(requests[i]);

		if (seen < 0) {
			indices[0] = i;
			*done_p = 0;
			return batoni_refuse_handle(call, requests[i]);
		}
		pending |= seen == 0;
		if (seen == 1)
			indices[done++] = i;
	}
	*done_p = done;
	return done == 0 && pending ? BATON_PENDING : BATON_OK;
}

/* zero: the sentence about indices_max 0. */
static enum baton_status
check_some(const char *call, const baton_request *requests, size_t count,
           const size_t *indices, size_t indices_max, const char *zero,
           const size_t *done_p)
{
	enum baton_status status = check_many(call, requests, count);
	const char *what = !done_p            ? "done_p is NULL"
	                   : !indices         ? "indices is NULL"
	                   : indices_max == 0 ? zero
	                                      : NULL;

	if (status != BATON_OK || !what)
		return status;
	return batoni_refuse(BATON_ERR_INVALID, "%s: %s", call, what);
}

enum baton_status
baton_test_some(const baton_request *requests, size_t count, size_t *indices,
                size_t indices_max, size_t *done_p)
{
	static const char *const call = "baton_test_some";
	enum baton_status status = check_some(call, requests, count, indices,
	                                      indices_max, "indices_max is 0",
	                                      done_p);

	if (status != BATON_OK)
		return status;
	status = collect(call, requests, count, indices, indices_max, done_p);
	if (status != BATON_PENDING)
		return status;
	batoni_poll(comm_to_drive(requests, count));
	return collect(call, requests, count, indices, indices_max, done_p);
}

enum baton_status
baton_finish_some(baton_request *requests, size_t count, int64_t timeout_ns,
                  size_t *indices, struct baton_completion *completions,
                  size_t max, size_t *done_p)
{
	static const char *const call = "baton_finish_some";
	struct waiting_many many = {.requests = requests, .count = count};
	enum baton_status status = check_some(call, requests, count, indices, max,
	                                      "max is 0", done_p);

	if (status != BATON_OK)
		return status;
	status = collect(call, requests, count, indices, max, done_p);
	if (status == BATON_PENDING) {
		await_many(&many, any_over, count);
		if (!batoni_wait_until(&many.awaited,
		                       comm_to_drive(requests, count),
		                       timeout_ns))
			return BATON_PENDING;
		status = collect(call, requests, count, indices, max, done_p);
	}
	if (status != BATON_OK)
		return status;
	for (size_t k = 0; k < *done_p; k++) {
		enum baton_status ended = release_ended(call, &requests[indices[k]],
		                                        completions ? &completions[k]
		                                                    : NULL);

		if (status == BATON_OK)
			status = ended;
	}
	return status;
}
