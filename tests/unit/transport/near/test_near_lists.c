/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of tensors through shared memory (transport/near/lists.c): whole in the ring, read and by chunks; and
 * lists that no Baton writes.  World as in test_near.c; both ends of a list are made here, as the
 * engine makes them at the call.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem.h"
#include "near_world.h"
#include "run_tests.h"
#include "tensors.h"

#define MOST 4096
#define BYTES ((size_t)5 << 18)

struct end {
	struct batoni_tensor_list list;
	struct baton_tensor tensors[MOST];
	struct batoni_segment segments[MOST];
	unsigned char header[BATONI_TENSORS_HEADER_MAX];
};

static struct near_world world;
static struct end out, in;
static unsigned char from[BYTES], to[BYTES];

/* So many tensors, whose lengths are these in turn.  Their headers and payloads end in the ring, in the
 * first chunk and in later ones. */
static const struct shape {
	size_t n, bytes[4];
} shapes[] = {
	{0, {0, 0, 0, 0}},
	{1, {0, 0, 0, 0}},
	{5, {0, 40, 0, 17}},
	{2, {8000, 130, 0, 0}},
	{1, {BYTES, 0, 0, 0}},
	{100, {9000, 0, 1, 200}},
	{300, {0, 0, 0, 0}},
	{1500, {3, 0, 900, 0}},
	{4096, {0, 0, 0, 0}},
	{4096, {1, 2, 0, 3}},
};
#define SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

static void
set_up(void)
{
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 7 + i / 256);
	memset(to, 0, sizeof(to));
}

/* Tensors side by side in `data`.  Returns the bytes of all of them. */
static size_t
describe(struct end *end, const struct shape *shape, unsigned char *data)
{
	size_t at = 0;

	memset(end, 0, sizeof(*end));
	for (size_t i = 0; i < shape->n; i++) {
		size_t bytes = shape->bytes[i % 4];

		end->tensors[i] = (struct baton_tensor){
			.data = data + at,
			.type = BATON_UINT8,
			.rank = 1,
			.shape = {(int64_t)bytes},
		};
		end->segments[i] = (struct batoni_segment){
			(char *)data + at, bytes};
		at += bytes;
	}
	end->list.segments = end->segments;
	end->list.header = end->header;
	end->list.header_max = sizeof(end->header);
	return at;
}

static size_t
make_send(const struct shape *shape)
{
	size_t bytes = describe(&out, shape, from);

	out.list.count = shape->n;
	out.list.payload_bytes = bytes;
	out.list.header_bytes = batoni_tensors_encode(out.tensors, shape->n,
	                                              bytes, out.header);
	return bytes;
}

/* `open`: of any type and shape, side by side as the segments of the same list that is closed. */
static void
make_recv(const struct shape *shape, bool open)
{
	size_t bytes = describe(&in, shape, to);

	in.list.declared = in.tensors;
	in.list.declared_n = shape->n;
	in.list.payload_bytes = bytes;
	for (size_t i = 0; i < shape->n && open; i++)
		in.tensors[i].rank = -1;
	if (open)
		return;
	in.list.count = shape->n;
	in.list.header_bytes = batoni_tensors_encode(in.tensors, shape->n, bytes,
	                                             in.header);
	in.list.closed = true;
}

static enum baton_status
end_of(int rank, uint32_t slot)
{
	return world.ranks[rank].ends[slot];
}

static void
close_world(bool aborted)
{
	near_close_all(&world, aborted);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

/* The header counts as bytes to copy: what is long of it waits for passes. */
START_TEST(a_call_reads_no_more_of_a_header_than_of_a_message)
{
	const struct shape *shape = &shapes[8];
	struct batoni_load *load;

	near_open(&world, _i ? NEAR_READ : NEAR_WITHIN, false);
	load = &world.ranks[1].transport->messages.load;
	make_send(shape);
	make_recv(shape, true);
	ck_assert_uint_gt(out.list.header_bytes, NEAR_INLINE_MAX);
	near_send_list(&world, 0, 0, 1, 7, &out.list);
	near_pass(&world, 1);
	ck_assert_int_eq(near_recv_list(&world, 1, 0, 0, 7, &in.list), BATON_PENDING);
	ck_assert_uint_eq(load->moving, 1);
	near_run(&world);
	ck_assert_int_eq(end_of(1, 0), BATON_OK);
	ck_assert_int_eq(end_of(0, 0), BATON_OK);
	ck_assert_uint_eq(in.list.count, shape->n);
	close_world(false);
}
END_TEST

START_TEST(every_list_arrives_however_it_is_read)
{
	const struct shape *shape = &shapes[_i % SHAPES];

	near_open(&world, (enum near_reach)(_i / SHAPES), false);
	for (int order = 0; order < 4; order++) {
		size_t bytes = make_send(shape);

		make_recv(shape, order & 1);
		memset(to, 0, sizeof(to));
		if (order & 2)
			near_recv_list(&world, 1, 7, 0, 3, &in.list);
		near_send_list(&world, 0, 5, 1, 3, &out.list);
		if (!(order & 2))
			near_recv_list(&world, 1, 7, 0, 3, &in.list);
		near_run(&world);
		ck_assert_int_eq(end_of(0, 5), BATON_OK);
		ck_assert_int_eq(end_of(1, 7), BATON_OK);
		ck_assert_uint_eq(world.ranks[0].transfers[5].done_bytes, bytes);
		ck_assert_uint_eq(world.ranks[1].transfers[7].done_bytes, bytes);
		ck_assert_uint_eq(in.list.count, shape->n);
		ck_assert(memcmp(to, from, bytes) == 0);
	}
	ck_assert_int_eq(world.ranks[1].broken, BATON_OK);
	close_world(false);
}
END_TEST

/* ---- senders that give their memory up ---- */

static const struct shape many = {1500, {3, 0, 3000, 0}};

/* Its segments are somebody else's memory then: no fault of the sender's. */
START_TEST(what_is_read_of_a_list_that_was_given_up_is_no_fault)
{
	near_open(&world, NEAR_READ, false);
	make_send(&many);
	make_recv(&many, false);
	near_recv_list(&world, 1, 7, 0, 3, &in.list);
	near_send_list(&world, 0, 5, 1, 3, &out.list);
	near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 7), BATON_PENDING);
	near_close_rank(&world, 0, true);
	memset(out.segments, 0, sizeof(out.segments));
	near_run(&world);
	ck_assert_int_eq(end_of(1, 7), BATON_ERR_PEER);
	ck_assert_int_eq(world.ranks[1].broken, BATON_OK);
	close_world(true);
}
END_TEST

/* Another process may have the number of one that has ended: what is read of that one does not count. */
START_TEST(a_list_of_a_process_that_has_ended_is_not_met)
{
	/* What the header says, or what the segments do, would end the receive. */
	const struct shape *shape = _i ? &many : &shapes[SHAPES - 2];
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	near_open(&world, NEAR_READ, false);
	world.ranks[1].peers[0].pidfd = batoni_pidfd_open(child);
	ck_assert_int_ge(world.ranks[1].peers[0].pidfd, 0);
	make_send(shape);
	make_recv(shape, false);
	near_recv_list(&world, 1, 7, 0, 3, &in.list);
	near_send_list(&world, 0, 5, 1, 3, &out.list);
	if (_i) {
		near_pass(&world, 1);
		ck_assert_int_eq(end_of(1, 7), BATON_PENDING);
		memset(out.segments, 0, sizeof(out.segments));
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	near_run(&world);
	ck_assert_int_eq(end_of(1, 7), BATON_ERR_PEER);
	ck_assert_int_eq(world.ranks[1].broken, BATON_OK);
	batoni_pidfd_close(world.ranks[1].peers[0].pidfd);
	close_world(true);
}
END_TEST

/* ---- what no Baton writes ---- */

/* A header that says another length than the message. */
static void
wrong_payload(void)
{
	make_send(&shapes[2]);
	out.list.count = 3;
	out.list.payload_bytes = 40;
	near_send_list(&world, 0, 5, 1, 3, &out.list);
}

static void
wrong_payload_announced(void)
{
	make_send(&many);
	out.list.payload_bytes--;
	near_send_list(&world, 0, 5, 1, 3, &out.list);
}

/* Fewer segments than its header has tensors. */
static void
wrong_count(void)
{
	make_send(&many);
	out.list.count--;
	near_send_list(&world, 0, 5, 1, 3, &out.list);
}

static void
wrong_segments(void)
{
	make_send(&many);
	out.segments[2].bytes--;
	near_send_list(&world, 0, 5, 1, 3, &out.list);
}

/* With its header it would be longer than a number says. */
static void
endless(void)
{
	make_send(&many);
	out.list.payload_bytes = SIZE_MAX - 99;
	near_send_list(&world, 0, 5, 1, 3, &out.list);
}

static const struct {
	void (*send)(void);
	const struct shape *shape;
	enum near_reach reach;
} faults[] = {
	{wrong_payload, &shapes[2], NEAR_READ},
	{wrong_payload_announced, &many, NEAR_READ},
	{wrong_count, &many, NEAR_READ},
	{wrong_segments, &many, NEAR_READ},
	{endless, &many, NEAR_READ},
	{endless, &many, NEAR_BY_CHUNKS},
};

START_TEST(a_list_that_no_baton_sends_breaks_the_communicator)
{
	near_open(&world, faults[_i].reach, false);
	make_recv(faults[_i].shape, false);
	near_recv_list(&world, 1, 7, 0, 3, &in.list);
	faults[_i].send();
	for (int i = 0; i < 5; i++)
		near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 7), BATON_ERR_PEER);
	ck_assert_int_eq(world.ranks[1].broken, BATON_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(world.ranks[1].why, "a list of tensors"));
	close_world(true);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("near_lists");
	TCase *tcase = tcase_create("near_lists");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase,
	                    a_call_reads_no_more_of_a_header_than_of_a_message, 0, 2);
	tcase_add_loop_test(tcase, every_list_arrives_however_it_is_read, 0,
	                    3 * SHAPES);
	tcase_add_test(tcase,
	               what_is_read_of_a_list_that_was_given_up_is_no_fault);
	tcase_add_loop_test(tcase,
	                    a_list_of_a_process_that_has_ended_is_not_met, 0, 2);
	tcase_add_loop_test(tcase,
	                    a_list_that_no_baton_sends_breaks_the_communicator, 0,
	                    (int)(sizeof(faults) / sizeof(faults[0])));
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
