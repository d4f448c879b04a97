/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI transport: issue, test, take_back.
 *
 * A message to another rank of up to 2 KiB whose length is not special (mpi_header.h)
 * is one MPI message on the user's tag ("raw").  Any other is announced on that tag by a header of a length that raw messages never
 * have, and its body follows on a tag of its own (body.c); lists of tensors have such lengths
 * too (lists.c).  So a receive
 * posts one small first part, and what arrives in it says what it is by its
 * length alone.  Nothing is added to a short message, and a long message is received
 * with its exact length, never by a receive that is too short for it.
 *
 * All active requests are in one compact array, so that MPI_Testsome tests 64 of them
 * for little more than the cost of one.  The last request of the array replaces one that
 * is done.
 *
 * With more than 64 requests, a pass tests one window of 64.  Every second pass tests
 * the newest requests; the other passes go round the array, from its end to its
 * beginning.  A round ends even if each pass appends requests, and it skips none: the
 * request that fills a gap comes from above the cursor, so it was tested in this round
 * or appended after the round began.  A request of the array that MPI has finished is
 * therefore seen within two rounds.
 *
 * Where receives of one peer and tag are behind each other, only the first of them is
 * tested, and the others follow it (follow.c).
 *
 * A round takes many passes, and passes are far apart while no thread waits.  When no
 * round has been completed for a while, one pass makes a whole round (a sweep).  With
 * thousands of requests, which are no longer in the cache, each takes 10 to 20 ns; the
 * time to the next sweep grows with the duration of the last one.
 *
 * Invariants: requests[0..count-1] are active; a transfer whose first part is not matched
 * has exactly one, there or as a follower; in_flight counts transfers, moving those of them
 * that are not receives waiting for their first part.
 *
 * Checked mode: a path of its own, with another issue.  No message of the program is raw there: the
 * header has its type, and a short message is a header and a body.  What comes raw is refused.
 *
 * Where MPI reaches the memory of a device, reach.c stands before these slots.
 *
 * Threads: the driver alone, see transport.h.  No locks, no allocation.
 */
#include <string.h>

#include "clock.h"
#include "mpi_transport.h"

#define WINDOW BATONI_MPI_WINDOW
/* Tests of the only request in a pass.  One takes 216 instructions, and the rest of a pass
 * 170: with more tests a message is seen sooner. */
#define TRIES 4u
/* Receives of one queue that begin to be tested at once. */
#define ADVANCE_MAX 16u
/* A sweep is due after SWEEP_SHARE times the duration of the last one, within these
 * bounds.  The lower bound is below the engine's tick, and above the time of a round while
 * a thread waits. */
#define PAUSE_MIN_NS 500000u
#define PAUSE_MAX_NS 1500000u
#define SWEEP_SHARE 40u
#define SWEEP_MAX 16384u /* requests of one pass */

static inline bool
is_raw(const struct batoni_transfer *transfer)
{
	return transfer->bytes <= BATONI_MPI_RAW_MAX &&
	       !batoni_mpi_is_special(transfer->bytes) &&
	       transfer->location != BATONI_LOCATION_LIST;
}

/* Small sends are mostly complete when MPI_Isend returns.  Where the handle shows that,
 * MPI_Test is not called: for an incomplete send it makes progress, and it yields the core
 * when there are more processes than cores. */
static enum baton_status
send_raw(struct batoni_mpi *mpi, struct batoni_transfer *transfer)
{
	MPI_Request *request = &mpi->requests[mpi->count];
	int done = 0, code;

	code = batoni_mpi_isend(mpi, transfer->buffer, (int)transfer->bytes,
	                        transfer->peer, transfer->tag);
	if (code != MPI_SUCCESS)
		return batoni_mpi_fail(mpi, transfer, "MPI_Isend", code, NULL);
	batoni_transfer_moved(transfer, transfer->bytes);
	if (__builtin_expect(batoni_mpi_is_complete(mpi, request), 1))
		return BATON_OK;
	if (mpi->complete == MPI_REQUEST_NULL)
		code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
	if (code != MPI_SUCCESS)
		return batoni_mpi_fail(mpi, transfer, "MPI_Test", code, NULL);
	if (done)
		return BATON_OK;
	batoni_mpi_track(mpi, transfer, BATONI_MPI_SEND, 0);
	mpi->base.messages.load.moving++;
	return BATON_PENDING;
}

/* A raw message has come where MPI reaches a device, or in checked mode, which has none but those of the
 * one-sided layer. */
static __attribute__((noinline)) enum baton_status
raw_examined(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
             const void *bounce)
{
	enum baton_status verdict;

	if (batoni_mpi_has_type(mpi, transfer->tag))
		return batoni_mpi_refuse_header(mpi, transfer);
	verdict = batoni_transfer_meet_plain(transfer, transfer->done_bytes, -1);
	if (verdict != BATON_OK || transfer->done_bytes == 0)
		return verdict;
	if (mpi->device)
		return batoni_mpi_copy_in(mpi, transfer, bounce);
	memcpy(transfer->buffer, bounce, transfer->done_bytes);
	return BATON_OK;
}

/* A message has matched the receive.  PENDING: the message is a header, and the body is
 * under way. */
static inline enum baton_status
first_done(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           const void *bounce, int code, const MPI_Status *status)
{
	enum baton_status verdict;
	int length;

	if (__builtin_expect(code != MPI_SUCCESS, 0))
		return batoni_mpi_fail(mpi, transfer, "MPI_Irecv", code, NULL);
	MPI_Get_count(status, MPI_BYTE, &length);
	if (__builtin_expect(batoni_mpi_is_special((size_t)length), 0)) {
		enum baton_status body =
			length == BATONI_MPI_HEADER_BYTES
				? batoni_mpi_body_recv(mpi, transfer, bounce,
		                                       status->MPI_SOURCE)
				: batoni_mpi_list_recv(mpi, transfer, bounce,
		                                       (size_t)length,
		                                       status->MPI_SOURCE);

		mpi->base.messages.load.moving += body == BATON_PENDING;
		return body;
	}
	batoni_transfer_moved(transfer, (size_t)length);
	if (__builtin_expect(mpi->examines, 0))
		return raw_examined(mpi, transfer, bounce);
	verdict = batoni_transfer_meet_plain(transfer, (size_t)length, -1);
	if (verdict == BATON_OK && length > 0)
		memcpy(transfer->buffer, bounce, (size_t)length);
	return verdict;
}

/* The same, and the bounce buffer is returned. */
static enum baton_status
first_here(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           uint32_t bounce, int code, const MPI_Status *status)
{
	enum baton_status ended = first_done(
		mpi, transfer, batoni_mpi_bounce(mpi, bounce), code, status);

	if (!batoni_mpi_is_copying(mpi, transfer))
		batoni_mpi_bounce_return(mpi, bounce);
	return ended;
}

/* requests[count] has just been started for a message that a probe has seen. */
static __attribute__((noinline)) enum baton_status
recv_found(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           uint32_t bounce)
{
	MPI_Status status;
	int done = 0, code;

	mpi->found = false;
	code = MPI_Test(&mpi->requests[mpi->count], &done, &status);
	if (!done && code == MPI_SUCCESS) {
		batoni_mpi_track(mpi, transfer, BATONI_MPI_FIRST, bounce);
		return BATON_PENDING;
	}
	return first_here(mpi, transfer, bounce, code, &status);
}

/* Post the first part.  It is not tested here, because MPI might copy a large message
 * of another request in the test. */
static enum baton_status
recv_first(struct batoni_mpi *mpi, struct batoni_transfer *transfer)
{
	uint32_t bounce = batoni_mpi_bounce_take(mpi);
	int code;

	code = batoni_mpi_irecv(mpi, batoni_mpi_bounce(mpi, bounce),
	                        BATONI_MPI_RAW_MAX, MPI_BYTE, transfer->peer,
	                        transfer->tag);
	if (__builtin_expect(code != MPI_SUCCESS, 0)) {
		batoni_mpi_bounce_return(mpi, bounce);
		return batoni_mpi_fail(mpi, transfer, "MPI_Irecv", code, NULL);
	}
	if (__builtin_expect(mpi->found, 0))
		return recv_found(mpi, transfer, bounce);
	if (mpi->count >= WINDOW && batoni_mpi_follow(mpi, transfer, bounce))
		return BATON_PENDING;
	batoni_mpi_track(mpi, transfer, BATONI_MPI_FIRST, bounce);
	return BATON_PENDING;
}

/* The transfer was handed to MPI, or has ended. */
static inline enum baton_status
begun(struct batoni_mpi *mpi, enum baton_status status)
{
	/* Counted apart from `moving`: a compiler that sees both counts change
	 * in one place joins them in one load, which then waits for the two
	 * stores of the last change (10 ns). */
	if (status == BATON_PENDING)
		mpi->base.messages.load.in_flight++;
	else if (status != BATON_OK)
		batoni_mpi_tell_failure(mpi);
	return status;
}

enum baton_status
batoni_mpi_meet_first(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                      uint32_t bounce, const MPI_Status *status)
{
	batoni_transfer_moved(transfer, 0);
	return begun(mpi, first_here(mpi, transfer, bounce, MPI_SUCCESS, status));
}

static enum baton_status
mpi_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));
	enum baton_status status;

	batoni_transfer_moved(transfer, 0);
	if (transfer->direction == BATONI_RECV)
		status = recv_first(mpi, transfer);
	else if (is_raw(transfer))
		status = send_raw(mpi, transfer);
	else
		status = batoni_mpi_body_send(mpi, transfer);
	return begun(mpi, status);
}

static enum baton_status
issue_checked(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));

	if (transfer->direction == BATONI_RECV ||
	    !batoni_mpi_has_type(mpi, transfer->tag))
		return mpi_issue(path, transfer);
	batoni_transfer_moved(transfer, 0);
	return begun(mpi, batoni_mpi_body_send(mpi, transfer));
}

/* A first part that MPI was asked to cancel is done: canceled or received. */
static __attribute__((noinline)) enum baton_status
asked_done(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           const void *bounce, int code, const MPI_Status *status)
{
	int canceled = 0;

	if (code == MPI_SUCCESS)
		MPI_Test_cancelled(status, &canceled);
	if (canceled)
		return BATON_ERR_CANCELED;
	return first_done(mpi, transfer, bounce, code, status);
}

/* A request other than a first part is done.  PENDING: the body has more pieces. */
static __attribute__((noinline)) enum baton_status
other_done(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
           uint32_t part, int code)
{
	bool send = transfer->direction == BATONI_SEND;
	enum baton_status status = BATON_OK;

	if (code != MPI_SUCCESS)
		status = batoni_mpi_fail(mpi, transfer,
		                         send ? "MPI_Isend" : "MPI_Irecv", code,
		                         NULL);
	else if (part != BATONI_MPI_SEND)
		status = batoni_mpi_body_step(mpi, transfer);
	if (status != BATON_PENDING)
		mpi->base.messages.load.moving--;
	return status;
}

/* Act on a request that is done and no longer in the array. */
static inline void
request_done(struct batoni_mpi *mpi, struct batoni_mpi_entry entry, int code,
             const MPI_Status *mpi_status)
{
	struct batoni_transport *transport = &mpi->base;
	const void *bounce = batoni_mpi_bounce(mpi, entry.bounce);
	enum baton_status status;

	if (__builtin_expect(entry.part == BATONI_MPI_FIRST, 1)) {
		status = first_done(mpi, entry.transfer, bounce, code,
		                    mpi_status);
	} else if (entry.part == BATONI_MPI_ASKED) {
		mpi->base.messages.load.moving--;
		status = asked_done(mpi, entry.transfer, bounce, code,
		                    mpi_status);
	} else if (entry.part == BATONI_MPI_HELD) {
		batoni_mpi_held_came(mpi, entry.transfer, code, mpi_status);
		return;
	} else {
		status = other_done(mpi, entry.transfer, entry.part, code);
	}
	if (entry.part >= BATONI_MPI_FIRST &&
	    !batoni_mpi_is_copying(mpi, entry.transfer))
		batoni_mpi_bounce_return(mpi, entry.bounce);
	if (status == BATON_PENDING)
		return;
	transport->messages.load.in_flight--;
	transport->upcalls->done(transport->upcalls, entry.transfer, status);
}

static size_t
test_one(struct batoni_mpi *mpi)
{
	int done = 0, code = MPI_SUCCESS;
	MPI_Status status;

	for (unsigned tries = 0; tries < TRIES; tries++) {
		code = MPI_Test(&mpi->requests[0], &done, &status);
		if (done || code != MPI_SUCCESS)
			break;
	}
	if (!done && code == MPI_SUCCESS)
		return 0;
	mpi->count = 0;
	request_done(mpi, mpi->entries[0], code, &status);
	if (__builtin_expect(mpi->failed_call != NULL, 0))
		batoni_mpi_tell_failure(mpi);
	return 1;
}

/* Fill entry i, which is done, with a later one.  Other entries may be done too, also
 * the last ones: their transfer is NULL. */
static void
close_gap(struct batoni_mpi *mpi, uint32_t i)
{
	while (mpi->count && !mpi->entries[mpi->count - 1].transfer)
		mpi->count--;
	if (i < mpi->count && !mpi->entries[i].transfer)
		batoni_mpi_untrack(mpi, i);
}

/* If done[0] failed, its transfer has ended: skip the other requests of that transfer, so
 * that it does not end twice. */
static void
skip_failed(const struct batoni_mpi *mpi, struct batoni_mpi_entry *done,
            int count)
{
	for (int k = 1; k < count; k++) {
		if (done[k].transfer == done[0].transfer &&
		    done[k].transfer == mpi->failed_transfer)
			done[k].transfer = NULL;
	}
}

/* The links of the n receives that follow receives among these entries. */
struct behind {
	uint32_t n;
	uint32_t links[WINDOW];
};

static __attribute__((noinline)) void
find_behind(struct batoni_mpi *mpi, const struct batoni_mpi_entry *done,
            int count, struct behind *behind)
{
	for (int k = 0; k < count; k++) {
		uint32_t link = 0;

		if (done[k].part == BATONI_MPI_FIRST)
			link = batoni_mpi_behind(mpi, done[k].transfer);
		if (link)
			behind->links[behind->n++] = link;
	}
}

/* Track up to `most` receives of each queue. */
static __attribute__((noinline)) void
advance_behind(struct batoni_mpi *mpi, const struct behind *behind, uint32_t most)
{
	uint32_t before = mpi->count;

	if (most > WINDOW / behind->n)
		most = WINDOW / behind->n;
	for (uint32_t i = 0; i < behind->n; i++)
		batoni_mpi_advance(mpi, behind->links[i], most);
	mpi->advanced = mpi->count - before;
}

/* Requests base to base + n - 1.  Of each queue, `most` followers take the place of a
 * receive that is done: these are the last `advanced` requests then. */
static size_t
test_some(struct batoni_mpi *mpi, uint32_t base, uint32_t n, uint32_t most)
{
	struct batoni_mpi_entry done[WINDOW];
	struct behind behind = {.n = 0};
	MPI_Status statuses[WINDOW];
	int indices[WINDOW];
	int count = 0;
	int code;

	code = MPI_Testsome((int)n, mpi->requests + base, &count, indices,
	                    statuses);
	if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
		batoni_mpi_break(mpi, "MPI_Testsome", code);
		return 1;
	}
	if (count == MPI_UNDEFINED)
		return 0;
	/* Remove all of them from the array before acting on the first, which may
	 * start new requests. */
	for (int k = 0; k < count; k++) {
		done[k] = mpi->entries[base + (uint32_t)indices[k]];
		mpi->entries[base + (uint32_t)indices[k]].transfer = NULL;
	}
	if (__builtin_expect(mpi->following > 0, 0))
		find_behind(mpi, done, count, &behind);
	for (int k = 0; k < count; k++)
		close_gap(mpi, base + (uint32_t)indices[k]);
	for (int k = 0; k < count; k++) {
		if (!done[k].transfer)
			continue;
		request_done(mpi, done[k],
		             code == MPI_SUCCESS ? MPI_SUCCESS
		                                 : statuses[k].MPI_ERROR,
		             &statuses[k]);
		if (__builtin_expect(mpi->failed_call != NULL, 0))
			skip_failed(mpi, done + k, count - k);
	}
	if (__builtin_expect(mpi->failed_call != NULL, 0))
		batoni_mpi_tell_failure(mpi);
	if (__builtin_expect(behind.n > 0, 0))
		advance_behind(mpi, &behind, most);
	return (size_t)count;
}

/* Receives have ended, and others have taken their place: messages for these may be there
 * too.  The more of them are, the more are tested at once. */
static __attribute__((noinline)) size_t
test_advanced(struct batoni_mpi *mpi, size_t events)
{
	size_t before = events;
	uint32_t most = 1, n;

	while (mpi->advanced > 0 && events < WINDOW) {
		n = mpi->advanced;
		mpi->advanced = 0;
		if (most < ADVANCE_MAX)
			most *= 4;
		events += test_some(mpi, mpi->count - n, n, most);
	}
	/* The receives that are left over are the newest. */
	if (mpi->advanced > 0)
		mpi->newest = false;
	mpi->advanced = 0;
	return events - before;
}

/* Test requests base to base + n - 1, and those that replace the ones that are done. */
static size_t
test_window(struct batoni_mpi *mpi, uint32_t base, uint32_t n)
{
	size_t events = test_some(mpi, base, n, 1);

	if (__builtin_expect(mpi->advanced > 0, 0))
		events += test_advanced(mpi, events);
	return events;
}

/* Not more than one window.  MPI polls for messages at the end of a test that finds nothing:
 * the second test finds what has come since the last pass. */
static size_t
test_few(struct batoni_mpi *mpi)
{
	size_t events = test_window(mpi, 0, mpi->count);

	return events > 0 ? events : test_window(mpi, 0, mpi->count);
}

/* Test the next window of the round. */
static size_t
test_next(struct batoni_mpi *mpi)
{
	if (mpi->count <= WINDOW) {
		mpi->cursor = 0;
		return test_window(mpi, 0, mpi->count);
	}
	if (mpi->cursor == 0 || mpi->cursor > mpi->count)
		mpi->cursor = mpi->count;
	mpi->cursor -= mpi->cursor < WINDOW ? mpi->cursor : WINDOW;
	return test_window(mpi, mpi->cursor, WINDOW);
}

/* Test all windows, and the first one again, because the later tests make MPI progress.
 * When there were many events, stop early; the sweep is then still due. */
static size_t
sweep(struct batoni_mpi *mpi, uint64_t now)
{
	uint32_t n = mpi->count < SWEEP_MAX ? mpi->count : SWEEP_MAX;
	size_t events = 0;

	for (n = n / WINDOW + 2; n > 0 && events < WINDOW; n--)
		events += test_next(mpi);
	if (n > 0)
		return events;
	mpi->round_ns = batoni_real_ns();
	mpi->pause_ns = SWEEP_SHARE * (mpi->round_ns - now);
	if (mpi->pause_ns < PAUSE_MIN_NS)
		mpi->pause_ns = PAUSE_MIN_NS;
	if (mpi->pause_ns > PAUSE_MAX_NS)
		mpi->pause_ns = PAUSE_MAX_NS;
	return events;
}

/* More than one window: test the newest requests, or the next window of the round, or
 * all. */
static size_t
test_many(struct batoni_mpi *mpi)
{
	uint64_t now = batoni_real_ns();
	size_t events;

	if (now - mpi->round_ns >= mpi->pause_ns)
		return sweep(mpi, now);
	mpi->newest = !mpi->newest;
	if (mpi->newest)
		return test_window(mpi, mpi->count - WINDOW, WINDOW);
	events = test_next(mpi);
	if (mpi->cursor == 0)
		mpi->round_ns = now;
	return events;
}

/* Some sends wait for a grant, and there may be no request at all; or some receives
 * follow others. */
static __attribute__((noinline)) size_t
test_all_sorts(struct batoni_mpi *mpi)
{
	size_t events = 0;

	if (mpi->waiting > 0)
		events = batoni_mpi_body_granted(mpi);
	if (__builtin_expect(mpi->failed_call != NULL, 0))
		batoni_mpi_tell_failure(mpi);
	if (mpi->count > WINDOW)
		return events + test_many(mpi);
	return events + test_few(mpi);
}

static size_t
test(struct batoni_path *path)
{
	struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));

	mpi->base.messages.load.more_tests =
		mpi->count > WINDOW ? mpi->count / WINDOW : 0;
	if (__builtin_expect((mpi->waiting | mpi->following) > 0, 0))
		return test_all_sorts(mpi);
	if (mpi->count == 1)
		return test_one(mpi);
	/* Receives from any rank wait, whose probes make progress. */
	if (__builtin_expect(mpi->count == 0, 0))
		return 0;
	if (mpi->count <= WINDOW)
		return test_few(mpi);
	return test_many(mpi);
}

/* Only an unmatched receive can be taken back.  A matched one ends with its message, which
 * MPI may deliver only when the peer makes progress; this thread does not wait for it. */
static enum baton_status
take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_transport *transport = batoni_transport_of(path);
	struct batoni_mpi *mpi = batoni_mpi_of(transport);
	enum baton_status ended;
	MPI_Status status;
	uint32_t bounce, i;
	int done = 0;
	int code;

	if (mpi->following > 0)
		batoni_mpi_unfollow(mpi, transfer);
	i = mpi->positions[transfer->slot];
	if (i >= mpi->count || mpi->entries[i].transfer != transfer ||
	    !(mpi->entries[i].part == BATONI_MPI_FIRST ||
	      batoni_mpi_held_ends(mpi, &mpi->entries[i])))
		return BATON_ERR_BUSY;
	MPI_Cancel(&mpi->requests[i]);
	code = MPI_Test(&mpi->requests[i], &done, &status);
	if (code == MPI_SUCCESS && !done) {
		mpi->entries[i].part = BATONI_MPI_ASKED;
		mpi->base.messages.load.moving++;
		return BATON_ERR_BUSY;
	}
	bounce = mpi->entries[i].bounce;
	batoni_mpi_untrack(mpi, i);
	ended = asked_done(mpi, transfer, batoni_mpi_bounce(mpi, bounce), code,
	                   &status);
	if (!batoni_mpi_is_copying(mpi, transfer))
		batoni_mpi_bounce_return(mpi, bounce);
	if (ended == BATON_PENDING)
		return BATON_ERR_BUSY;
	transport->messages.load.in_flight--;
	batoni_mpi_tell_failure(mpi);
	return ended;
}

const struct batoni_path_ops batoni_mpi_messages_ops = {
	.name = "the mpi transport",
	.kinds = BATONI_MESSAGES,
	.lists = true,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = mpi_issue,
		.take_back = take_back,
	},
	.unmatched = &batoni_mpi_unmatched,
	.test = test,
};

const struct batoni_path_ops batoni_mpi_checked_ops = {
	.name = "the mpi transport",
	.kinds = BATONI_MESSAGES,
	.lists = true,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = issue_checked,
		.take_back = take_back,
	},
	.unmatched = &batoni_mpi_unmatched,
	.test = test,
};

const struct batoni_transport_ops batoni_mpi_ops = {
	.name = "mpi",
	.id = BATON_TRANSPORT_MPI,
	.exchanging = &(const struct batoni_exchanging_ops){.exchange = batoni_mpi_exchange},
	.leave = batoni_mpi_leave,
	.clearing = &(const struct batoni_clearing_ops){.clear = batoni_mpi_clear},
	.close = batoni_mpi_close,
	.texts = &batoni_mpi_texts,
	.deriving = &batoni_mpi_deriving,
};
