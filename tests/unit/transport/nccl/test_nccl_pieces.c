/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What checked mode makes of a peer's control messages about lists (transport/nccl/nccl_lists.c), one by
 * one: rank 1 of two, without NCCL.  The test says what rank 0 says; the lower transport keeps
 * what rank 1 answers.  Nothing is launched: what is READY stays so.
 */
#include <string.h>

#include "memory.h"
#include "nccl_checked.h"
#include "run_tests.h"
#include "tensors.h"

enum { SLOTS = 8, LISTS_MAX = 100, THEIRS = 5 };

static struct batoni_nccl nccl;
static struct batoni_transport lower;
static struct batoni_upcalls upcalls;
static struct batoni_nccl_control heard[64]; /* by rank 0 */
static size_t heard_n;
static struct batoni_transfer transfers[SLOTS];
static enum baton_status ended[SLOTS]; /* PENDING: it has not */
static bool broken;

/* ---- the lower transport, and the engine ---- */

static enum baton_status
lower_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	size_t n = transfer->bytes / sizeof(heard[0]);

	(void)path;
	if (transfer->direction == BATONI_RECV)
		return BATON_PENDING;
	ck_assert_uint_le(heard_n + n, 64);
	memcpy(&heard[heard_n], transfer->buffer,
	       n * sizeof(heard[0]));
	heard_n += n;
	return BATON_OK;
}

static const struct batoni_path_ops lower_ops = {
	.host_issued = &(const struct batoni_host_issued_ops){.issue = lower_issue},
};

static void
on_done(struct batoni_upcalls *of, struct batoni_transfer *transfer,
        enum baton_status status)
{
	(void)of;
	ck_assert_int_eq(ended[transfer->slot], BATON_PENDING);
	ended[transfer->slot] = status;
}

static void
on_broken(struct batoni_upcalls *of, enum baton_status fatal, const char *call,
          int code, const char *text)
{
	(void)of;
	(void)call;
	(void)code;
	ck_assert_int_eq(fatal, BATON_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(text, "is not one of checked mode"));
	broken = true;
}

/* Rank 1 leads its receives. */
static void
begin(void)
{
	memset(&nccl, 0, sizeof(nccl));
	lower = (struct batoni_transport){.messages.ops = &lower_ops};
	upcalls = (struct batoni_upcalls){.done = on_done, .broken = on_broken};
	nccl.config.size = 2;
	nccl.config.slots = SLOTS;
	nccl.config.check = true;
	nccl.bits = 1;
	nccl.lanes_n = 3;
	nccl.base.rank = 1;
	nccl.base.size = 2;
	nccl.base.upcalls = &upcalls;
	nccl.base.messages.ops = &batoni_nccl_checked_ops;
	nccl.lower = &lower;
	heard_n = 0;
	broken = false;
	for (int i = 0; i < SLOTS; i++)
		ended[i] = BATON_PENDING;
	ck_assert_int_eq(batoni_nccl_checked_create(&nccl), BATON_OK);
}

static void
finish(void)
{
	batoni_nccl_checked_free(&nccl);
}

static struct batoni_nccl_op *
op_of(uint32_t slot)
{
	return &nccl.checked->ops[slot];
}

/* Rank 0 says it, and rank 1 answers. */
static void
say(const struct batoni_nccl_control *control)
{
	/* What was sent before has gone. */
	batoni_nccl_hear(nccl.checked);
	batoni_nccl_heard(nccl.checked, 0, control);
	batoni_nccl_send_all(nccl.checked);
	if (nccl.checked->failed && !broken)
		on_broken(NULL, nccl.checked->fatal, nccl.checked->fatal_call,
		          nccl.checked->fatal_code, nccl.checked->fatal_text);
}

/* ---- lists ---- */

struct list {
	struct batoni_tensor_list list;
	struct batoni_segment segments[LISTS_MAX];
	struct baton_tensor tensors[LISTS_MAX];
	unsigned char header[LISTS_MAX * 66 + 64];
};

static unsigned char payload[64];

/* Of n tensors of one byte, sent or declared. */
static void
make_tensors(struct list *list, size_t n, bool sends)
{
	memset(list, 0, sizeof(*list));
	for (size_t i = 0; i < n; i++) {
		list->tensors[i] = (struct baton_tensor){
			.data = payload, .type = BATON_INT8, .rank = 8,
			.shape = {1, 1, 1, 1, 1, 1, 1, 1}};
		list->segments[i] = (struct batoni_segment){(char *)payload, 1};
	}
	list->list.segments = list->segments;
	list->list.declared = list->tensors;
	list->list.header = list->header;
	list->list.header_max = sizeof(list->header);
	list->list.declared_n = n;
	if (!sends)
		return;
	list->list.count = n;
	list->list.payload_bytes = n;
	list->list.header_bytes = batoni_tensors_header_bytes(list->tensors, n);
	batoni_tensors_encode(list->tensors, n, n, list->header);
}

/* Issue slot's transfer, with rank 0: a list, or a plain message of 10 bytes. */
static enum baton_status
issue_with_zero(uint32_t slot, bool sends, struct list *list)
{
	struct batoni_transfer *transfer = &transfers[slot];

	*transfer = (struct batoni_transfer){
		.buffer = list ? (void *)&list->list : payload,
		.bytes = list ? list->list.payload_bytes : 10,
		.type = BATON_UINT8,
		.peer = 0,
	};
	transfer->slot = slot & 0xffffff;
	transfer->direction = sends ? BATONI_SEND : BATONI_RECV;
	transfer->location = list ? BATONI_LOCATION_LIST : BATONI_MEMORY_DEVICE;
	return batoni_nccl_checked_ops.host_issued->issue(&nccl.base.messages, transfer);
}

/* The header of rank 0's send in slot THEIRS, of this list. */
static struct batoni_nccl_control
header_of(const struct list *list)
{
	return (struct batoni_nccl_control){
		.kind = BATONI_NCCL_SAYS_HEADER,
		.operation = BATON_OPERATION_SEND,
		.type = BATON_UINT8,
		.slot = THEIRS,
		.bytes = list->list.payload_bytes,
		.described = list->list.header_bytes,
	};
}

static struct batoni_nccl_control
piece_of(const struct list *list, uint32_t slot, size_t from)
{
	struct batoni_nccl_control piece = {.kind = BATONI_NCCL_SAYS_PIECE,
	                                    .slot = slot};
	size_t left = list->list.header_bytes - from;

	piece.used = (uint8_t)(left < BATONI_NCCL_PIECE_BYTES
	                               ? left
	                               : BATONI_NCCL_PIECE_BYTES);
	memcpy(piece.piece, list->header + from, piece.used);
	return piece;
}

/* The last thing that rank 1 said. */
static const struct batoni_nccl_control *
last(enum batoni_nccl_says kind)
{
	ck_assert_uint_gt(heard_n, 0);
	ck_assert_uint_eq(heard[heard_n - 1].kind, kind);
	return &heard[heard_n - 1];
}

/* Rank 0 does what it is asked for, until all of the list's header is there. */
static void
answer_fetches(const struct list *list, uint32_t slot)
{
	size_t from = 0;

	while (from < list->list.header_bytes) {
		const struct batoni_nccl_control asked =
			*last(BATONI_NCCL_SAYS_FETCH);

		ck_assert_uint_eq(asked.slot, THEIRS);
		ck_assert_uint_eq(asked.other, slot);
		ck_assert_uint_eq(asked.bytes, from);
		ck_assert_uint_gt(asked.count, 0);
		for (uint32_t i = 0; i < asked.count; i++) {
			struct batoni_nccl_control piece =
				piece_of(list, slot, from);

			ck_assert_uint_gt(piece.used, 0);
			say(&piece);
			from += piece.used;
		}
	}
}

/* ---- a receive ---- */

START_TEST(a_header_is_asked_for_and_compared)
{
	static const size_t counts[] = {1, 9, 10, 11, 50, 100};

	for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
		struct list theirs, ours;
		struct batoni_nccl_control header;

		begin();
		make_tensors(&theirs, counts[k], true);
		make_tensors(&ours, counts[k], false);
		header = header_of(&theirs);
		ck_assert_int_eq(issue_with_zero(2, false, &ours), BATON_PENDING);
		say(&header);
		ck_assert_int_eq(op_of(2)->state, BATONI_NCCL_FETCHING);
		/* It has met: it is not given back. */
		ck_assert_int_eq(batoni_nccl_checked_ops.host_issued->take_back(
					 &nccl.base.messages, &transfers[2]),
		                 BATON_ERR_BUSY);
		answer_fetches(&theirs, 2);
		ck_assert_int_eq(op_of(2)->state, BATONI_NCCL_READY);
		ck_assert_uint_eq(op_of(2)->other, THEIRS);
		ck_assert(!broken);
		finish();
	}
}
END_TEST

START_TEST(what_differs_ends_the_receive_alone)
{
	struct list theirs, ours;
	struct batoni_nccl_control header;

	begin();
	make_tensors(&theirs, 40, true);
	header = header_of(&theirs);
	make_tensors(&ours, 40, false);
	ours.tensors[39].shape[7] = 2;
	ck_assert_int_eq(issue_with_zero(2, false, &ours), BATON_PENDING);
	say(&header);
	answer_fetches(&theirs, 2);
	ck_assert_int_eq(ended[2], BATON_ERR_MISMATCH);
	ck_assert_uint_eq(last(BATONI_NCCL_SAYS_TAKEN)->slot, THEIRS);
	/* Only the beginning is asked for. */
	make_tensors(&ours, 1, false);
	ours.list.header_max = 100;
	ck_assert_int_eq(issue_with_zero(3, false, &ours), BATON_PENDING);
	say(&header);
	ck_assert_uint_eq(last(BATONI_NCCL_SAYS_FETCH)->count, 1);
	header = piece_of(&theirs, 3, 0);
	say(&header);
	ck_assert_int_eq(ended[3], BATON_ERR_MISMATCH);
	ck_assert_uint_eq(ours.list.fault_tensor, 40);
	ck_assert_uint_eq(last(BATONI_NCCL_SAYS_TAKEN)->slot, THEIRS);
	ck_assert(!broken);
	finish();
}
END_TEST

/* One header comes at a time. */
START_TEST(the_second_list_is_asked_for_behind_the_first)
{
	static struct list theirs, first, second;
	struct batoni_nccl_control header;
	size_t said;

	begin();
	make_tensors(&theirs, 60, true);
	make_tensors(&first, 60, false);
	make_tensors(&second, 60, false);
	header = header_of(&theirs);
	ck_assert_int_eq(issue_with_zero(2, false, &first), BATON_PENDING);
	ck_assert_int_eq(issue_with_zero(3, false, &second), BATON_PENDING);
	say(&header);
	said = heard_n;
	say(&header);
	ck_assert_uint_eq(heard_n, said);
	/* Not its turn. */
	answer_fetches(&theirs, 2);
	ck_assert_uint_eq(last(BATONI_NCCL_SAYS_FETCH)->other, 3);
	answer_fetches(&theirs, 3);
	ck_assert_int_eq(op_of(2)->state, BATONI_NCCL_READY);
	ck_assert_int_eq(op_of(3)->state, BATONI_NCCL_READY);
	finish();
}
END_TEST

/* ---- a send ---- */

START_TEST(a_send_gives_what_it_is_asked_for)
{
	struct list ours;
	struct batoni_nccl_control fetch = {.kind = BATONI_NCCL_SAYS_FETCH,
	                                   .slot = 4, .other = 7, .count = 3};
	struct batoni_nccl_control taken = {.kind = BATONI_NCCL_SAYS_TAKEN,
	                                    .slot = 4};
	size_t from = 0;

	begin();
	make_tensors(&ours, 2, true); /* 24 + 8 + 128 bytes */
	ck_assert_int_eq(issue_with_zero(4, true, &ours), BATON_PENDING);
	ck_assert_uint_eq(last(BATONI_NCCL_SAYS_HEADER)->described,
	                  ours.list.header_bytes);
	for (int i = 0; i < 3; i++) {
		heard_n = 0;
		fetch.bytes = from;
		fetch.count = i < 2 ? 3 : 1;
		say(&fetch);
		ck_assert_uint_eq(heard_n, fetch.count);
		for (uint32_t k = 0; k < fetch.count; k++) {
			ck_assert_uint_eq(heard[k].kind,
			                  BATONI_NCCL_SAYS_PIECE);
			ck_assert_uint_eq(heard[k].slot, 7);
			ck_assert_mem_eq(heard[k].piece, ours.header + from,
			                 heard[k].used);
			from += heard[k].used;
		}
	}
	ck_assert_uint_eq(from, ours.list.header_bytes);
	say(&taken);
	ck_assert_int_eq(ended[4], BATON_OK);
	ck_assert_uint_eq(transfers[4].done_bytes, 2);
	ck_assert(!broken);
	finish();
}
END_TEST

/* ---- what no rank says ---- */

static void
expect_broken(const struct batoni_nccl_control *control)
{
	say(control);
	ck_assert(broken);
	finish();
}

/* A list that is sent in slot 4, and one that is fetched in slot 2; a plain send in slot 3. */
static void
begin_with(struct list *theirs, struct list *sent, struct list *declared)
{
	struct batoni_nccl_control header;

	begin();
	make_tensors(theirs, 60, true);
	make_tensors(sent, 2, true);
	make_tensors(declared, 60, false);
	header = header_of(theirs);
	ck_assert_int_eq(issue_with_zero(4, true, sent), BATON_PENDING);
	ck_assert_int_eq(issue_with_zero(3, true, NULL), BATON_PENDING);
	ck_assert_int_eq(issue_with_zero(2, false, declared), BATON_PENDING);
	say(&header);
	ck_assert_int_eq(op_of(2)->state, BATONI_NCCL_FETCHING);
	ck_assert(!broken);
}

START_TEST(control_messages_that_no_rank_sends_break_the_communicator)
{
	static struct list theirs, sent, declared;
	const struct batoni_nccl_control wrong[] = {
		/* Beyond the header; more than it has; too many; of a plain message, of a
		 * receive, of no operation. */
		{.kind = BATONI_NCCL_SAYS_FETCH, .slot = 4, .count = 1, .bytes = 160},
		{.kind = BATONI_NCCL_SAYS_FETCH, .slot = 4, .count = 8},
		{.kind = BATONI_NCCL_SAYS_FETCH, .slot = 4, .count = 1,
	         .bytes = UINT64_MAX},
		{.kind = BATONI_NCCL_SAYS_FETCH, .slot = 4,
	         .count = BATONI_NCCL_PIECES + 1},
		{.kind = BATONI_NCCL_SAYS_FETCH, .slot = 3, .count = 1},
		{.kind = BATONI_NCCL_SAYS_FETCH, .slot = 2, .count = 1},
		{.kind = BATONI_NCCL_SAYS_FETCH, .slot = 5, .count = 1},
		{.kind = BATONI_NCCL_SAYS_FETCH, .slot = 99, .count = 1},
		/* Too long, too short, of a send, of no operation. */
		{.kind = BATONI_NCCL_SAYS_PIECE, .slot = 2, .used = 25},
		{.kind = BATONI_NCCL_SAYS_PIECE, .slot = 2, .used = 23},
		{.kind = BATONI_NCCL_SAYS_PIECE, .slot = 2},
		{.kind = BATONI_NCCL_SAYS_PIECE, .slot = 4, .used = 24},
		{.kind = BATONI_NCCL_SAYS_PIECE, .slot = 6, .used = 24},
		{.kind = BATONI_NCCL_SAYS_PIECE, .slot = UINT32_MAX, .used = 24},
		/* Headers of lengths that no list's has. */
		{.kind = BATONI_NCCL_SAYS_HEADER,
	         .operation = BATON_OPERATION_SEND, .described = 23},
		{.kind = BATONI_NCCL_SAYS_HEADER,
	         .operation = BATON_OPERATION_SEND,
	         .described = BATONI_TENSORS_HEADER_MAX + 1},
		/* Of no send. */
		{.kind = BATONI_NCCL_SAYS_TAKEN, .slot = 2},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		begin_with(&theirs, &sent, &declared);
		expect_broken(&wrong[i]);
	}
}
END_TEST

/* What was asked for before has not left. */
START_TEST(a_header_asked_for_too_soon_breaks_the_communicator)
{
	static struct list theirs, declared, sent;
	const struct batoni_nccl_control fetch = {
		.kind = BATONI_NCCL_SAYS_FETCH, .slot = 4, .count = 7};

	begin_with(&theirs, &sent, &declared);
	batoni_nccl_heard(nccl.checked, 0, &fetch);
	ck_assert(!nccl.checked->failed);
	expect_broken(&fetch);
}
END_TEST

/* More than was asked for. */
START_TEST(a_piece_too_many_breaks_the_communicator)
{
	static struct list theirs, declared, sent;
	struct batoni_nccl_control piece;

	begin_with(&theirs, &sent, &declared);
	/* FETCH is not said again: the next piece comes unasked. */
	op_of(2)->asked = BATONI_NCCL_PIECE_BYTES;
	op_of(2)->wanted = 2 * BATONI_NCCL_PIECE_BYTES;
	op_of(2)->fetched = BATONI_NCCL_PIECE_BYTES;
	piece = piece_of(&theirs, 2, BATONI_NCCL_PIECE_BYTES);
	expect_broken(&piece);
}
END_TEST

/* The list's own header is not what the control message says of it. */
static void
expect_broken_by(const struct list *theirs,
                 const struct batoni_nccl_control *header)
{
	static struct list ours;
	struct batoni_nccl_control piece;
	size_t from = 0;

	make_tensors(&ours, 1, false);
	ck_assert_int_eq(issue_with_zero(2, false, &ours), BATON_PENDING);
	say(header);
	while (from < theirs->list.header_bytes) {
		ck_assert(!broken);
		piece = piece_of(theirs, 2, from);
		from += piece.used;
		say(&piece);
	}
	ck_assert(broken);
	finish();
}

START_TEST(a_payload_of_two_lengths_breaks_the_communicator)
{
	static struct list theirs;
	struct batoni_nccl_control header;

	begin();
	make_tensors(&theirs, 1, true);
	header = header_of(&theirs);
	header.bytes = 1000;
	expect_broken_by(&theirs, &header);
}
END_TEST

START_TEST(a_header_of_two_lengths_breaks_the_communicator)
{
	static struct list theirs;
	struct batoni_nccl_control header;

	begin();
	make_tensors(&theirs, 1, true);
	theirs.list.header_bytes += 8;
	header = header_of(&theirs);
	expect_broken_by(&theirs, &header);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_header_is_asked_for_and_compared,
		what_differs_ends_the_receive_alone,
		the_second_list_is_asked_for_behind_the_first,
		a_send_gives_what_it_is_asked_for,
		control_messages_that_no_rank_sends_break_the_communicator,
		a_header_asked_for_too_soon_breaks_the_communicator,
		a_piece_too_many_breaks_the_communicator,
		a_payload_of_two_lengths_breaks_the_communicator,
		a_header_of_two_lengths_breaks_the_communicator,
	};

	return RUN_TESTS("nccl_pieces", tests);
}
