/* SPDX-License-Identifier: BSD-3-Clause */
/* What a dump tells of operations, while others drive, hang, or are elsewhere. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "captured.h"
#include "describe.h"
#include "run_tests.h"
#include "scripted_world.h"

static char text[1 << 16];

/* Dump the communicator into text. */
static void
dump(struct baton_comm *of)
{
	FILE *file = tmpfile();
	size_t n;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(baton_comm_dump(of, fileno(file)), BATON_OK);
	rewind(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	fclose(file);
}

/* The line that has this in it; the test fails if there is none. */
static const char *
line_with(const char *part)
{
	static char line[512];
	const char *at = strstr(text, part);
	const char *from = at;
	size_t length;

	if (!at)
		ck_abort_msg("no \"%s\" in:\n%s", part, text);
	while (from > text && from[-1] != '\n')
		from--;
	length = strcspn(from, "\n");
	snprintf(line, sizeof(line), "%.*s", (int)length, from);
	return line;
}

static void
assert_line(const char *part, const char *also)
{
	const char *line = line_with(part);

	if (!strstr(line, also))
		ck_abort_msg("no \"%s\" in: %s", also, line);
}

START_TEST(every_pending_operation_has_a_line)
{
	struct baton_op_options free_stream = detached();
	baton_request recv = scripted_recv(comm, s, 7, &free_stream);
	baton_request send = scripted_send(comm, s, 9, NULL);
	baton_request behind = scripted_send(comm, s, 11, NULL);

	dump(comm);
	ck_assert_ptr_nonnull(strstr(text, "rank 0 of 4"));
	ck_assert_ptr_nonnull(strstr(text, baton_version()));
	assert_line("recv from peer 1, tag 7", "8 bytes");
	assert_line("recv from peer 1, tag 7", "issued");
	assert_line("recv from peer 1, tag 7", "(detached)");
	assert_line("recv from peer 1, tag 7", "waits for a message");
	assert_line("recv from peer 1, tag 7", "age ");
	assert_line("send to peer 1, tag 9", "issued");
	assert_line("send to peer 1, tag 11", "queued");
	assert_line("send to peer 1, tag 11", "its stream to get there");
	ck_assert_ptr_nonnull(strstr(text, "3 pending\n"));
	ck_assert_ptr_null(strstr(text, "out of date"));
	end_recv(7, BATON_OK);
	end_send(9, BATON_OK);
	end_send(11, BATON_OK);
	scripted_assert_ended(recv, BATON_OK);
	scripted_assert_ended(send, BATON_OK);
	scripted_assert_ended(behind, BATON_OK);
	dump(comm);
	ck_assert_ptr_nonnull(strstr(text, " 0 pending\n"));
}
END_TEST

START_TEST(what_is_no_transfer_has_a_line_too)
{
	baton_request send = scripted_send(comm, s, 1, NULL), record, member;

	ck_assert_int_eq(baton_record(comm, s, NULL, &record), BATON_OK);
	ck_assert_int_eq(baton_stream_wait(comm, t, record), BATON_OK);
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	member = scripted_recv(comm, t, 5, NULL);
	dump(comm);
	assert_line("recv from peer 1, tag 5", "the end of its group");
	ck_assert_int_eq(baton_group_end(comm), BATON_OK);
	dump(comm);
	assert_line(": record", "its stream to get there");
	assert_line("stream_wait", "the record in slot");
	assert_line(": group", "1 of its 1 member, and 1 stream to get there");
	assert_line("recv from peer 1, tag 5", "all streams of its group");
	end_send(1, BATON_OK);
	end_recv(5, BATON_OK);
	scripted_assert_ended(send, BATON_OK);
	scripted_assert_ended(record, BATON_OK);
	scripted_assert_ended(member, BATON_OK);
}
END_TEST

/* As in the reason of a destroy that timed out. */
START_TEST(a_sentence_has_the_same_words)
{
	struct baton_op_options free_stream = detached();
	baton_request recv = scripted_recv(comm, s, 7, &free_stream);
	baton_request send = scripted_send(comm, s, 9, NULL);
	baton_request behind = scripted_send(comm, s, 11, NULL);
	char words[BATONI_DESCRIBE_BYTES];
	unsigned found = 0;

	dump(comm);
	for (uint32_t i = 0; i < comm->pool.size; i++) {
		const struct batoni_op *op = &comm->pool.ops[i];

		if (!(atomic_load(&op->word) & BATONI_OP_ENGINE))
			continue;
		batoni_op_describe_fully(op, words, sizeof(words));
		*strstr(words, ", age ") = '\0';
		assert_line(words, "waits for");
		found++;
	}
	ck_assert_uint_eq(found, 3);
	end_recv(7, BATON_OK);
	end_send(9, BATON_OK);
	end_send(11, BATON_OK);
	scripted_assert_ended(recv, BATON_OK);
	scripted_assert_ended(send, BATON_OK);
	scripted_assert_ended(behind, BATON_OK);
}
END_TEST

START_TEST(an_armed_one_says_what_is_before_it)
{
	baton_request first = scripted_send(comm, s, 1, NULL);
	baton_request second, third;

	/* Of one FIFO: the second is on a stream that is held up. */
	second = scripted_send(comm, s, 3, NULL);
	third = scripted_send(comm, t, 3, NULL);
	dump(comm);
	assert_line("armed", "an earlier operation of the same peer");
	end_send(1, BATON_OK);
	end_send(3, BATON_OK);
	end_send(3, BATON_OK);
	scripted_assert_ended(first, BATON_OK);
	scripted_assert_ended(second, BATON_OK);
	scripted_assert_ended(third, BATON_OK);
}
END_TEST

START_TEST(a_lent_one_is_told_of)
{
	baton_request send = scripted_send(comm, s, 1, NULL);

	transport.take_back = BATON_ERR_BUSY;
	ck_assert_int_eq(baton_cancel(send), BATON_OK);
	dump(comm);
	assert_line("send to peer 1, tag 1", "lent");
	assert_line("send to peer 1, tag 1", "let go of its buffer");
	transport.take_back = BATON_ERR_CANCELED;
	end_send(1, BATON_OK);
	scripted_assert_ended(send, BATON_ERR_CANCELED);
}
END_TEST

/* A thread hangs in the transport, with the engine: the dump comes, marked. */
START_TEST(a_dump_does_not_wait_for_a_driver_that_hangs)
{
	baton_request recv = scripted_recv(comm, s, 7, NULL);
	pthread_t driver;

	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	dump(comm);
	assert_line("recv from peer 1, tag 7", "issued");
	assert_line("recv from peer 1, tag 7", "[may be out of date]");
	ck_assert_ptr_nonnull(strstr(text, "another thread keeps the engine"));
	transport.on_test = NULL;
	open_gate(driver);
	dump(comm);
	ck_assert_ptr_null(strstr(text, "out of date"));
	end_recv(7, BATON_OK);
	scripted_assert_ended(recv, BATON_OK);
}
END_TEST

/* Of two threads that nothing orders, for ThreadSanitizer to see what the dump reads. */
static atomic_int stage;

static void
reach(int to)
{
	atomic_store_explicit(&stage, to, memory_order_relaxed);
}

static void
await(int from)
{
	while (atomic_load_explicit(&stage, memory_order_relaxed) < from)
		sched_yield();
}

static void
break_and_stay(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	if (atomic_load_explicit(&stage, memory_order_relaxed) > 0)
		return;
	reach(1);
	await(2);
	scripted->base.upcalls->broken(scripted->base.upcalls, BATON_ERR_PEER, NULL, 0,
	                               "it is broken");
	reach(3);
	await(4);
}

START_TEST(a_dump_that_does_not_wait_tells_of_a_break)
{
	baton_request recv = scripted_recv(comm, s, 7, NULL);
	pthread_t driver;

	reach(0);
	transport.on_test = break_and_stay;
	driver = thread_of(one_pass, comm);
	await(1);
	dump(comm);
	ck_assert_ptr_null(strstr(text, "is broken"));
	reach(2);
	await(3);
	dump(comm);
	assert_line("recv from peer 1, tag 7", "(the communicator is broken)");
	assert_line("recv from peer 1, tag 7", "[may be out of date]");
	reach(4);
	pthread_join(driver, NULL);
	transport.on_test = NULL;
	scripted_assert_ended(recv, BATON_ERR_PEER);
}
END_TEST

START_TEST(arguments_are_checked)
{
	ck_assert_int_eq(baton_comm_dump(NULL, 2), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_dump(comm, -1), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_dump(comm, 9999), BATON_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "9999"));
}
END_TEST

/* ---- dumps beside traffic ---- */

enum { ROUNDS = 2000 };

static atomic_int over;

struct side {
	struct baton_comm *comm;
	int peer;
};

static void *
exchange(void *arg)
{
	struct side *side = arg;
	baton_stream stream = scripted_stream(side->comm);

	for (int i = 0; i < ROUNDS; i++) {
		baton_request requests[4];
		uint64_t in[2], out[2] = {1, 2};

		for (int k = 0; k < 2; k++) {
			ck_assert_int_eq(baton_recv(&in[k], 1, BATON_UINT64,
			                            side->peer, k, side->comm,
			                            NULL, NULL, &requests[k]),
			                 BATON_OK);
			ck_assert_int_eq(baton_send(&out[k], 1, BATON_UINT64,
			                            side->peer, k, side->comm,
			                            stream, NULL,
			                            &requests[2 + k]),
			                 BATON_OK);
		}
		ck_assert_int_eq(baton_wait_all(requests, 4, -1), BATON_OK);
		for (int k = 0; k < 4; k++)
			baton_release(&requests[k]);
	}
	scripted_stream_close(stream);
	atomic_fetch_add(&over, 1);
	return NULL;
}

/* Every send and receive there is to rank 1, on two tags, and of 8 bytes. */
static void
assert_whole_lines(void)
{
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		const char *peer = strstr(line, " peer ");

		if (!peer || strstr(line, ", new, "))
			continue;
		if (strncmp(peer, " peer 1, tag 0, 8 bytes", 23) != 0 &&
		    strncmp(peer, " peer 1, tag 1, 8 bytes", 23) != 0)
			ck_abort_msg("%s", line);
	}
}

START_TEST(dumps_beside_traffic_tear_no_line)
{
	struct baton_comm *comms[2];
	struct side sides[2];
	pthread_t threads[2];

	atomic_store(&over, 0);
	ck_assert_int_eq(baton_comm_create_local(2, NULL, comms), BATON_OK);
	for (int i = 0; i < 2; i++) {
		sides[i] = (struct side){comms[i], 1 - i};
		threads[i] = thread_of(exchange, &sides[i]);
	}
	while (atomic_load(&over) < 2) {
		dump(comms[0]);
		assert_whole_lines();
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(baton_comm_destroy(comms[i]), BATON_OK);
	}
}
END_TEST

/* ---- on a signal ---- */

static int ends[2]; /* of a pipe that is the child's standard error */

/* In a child of its own: raise the signal, and wait for the dump. */
static void
be_dumped(void)
{
	struct baton_comm *comms[2];
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request;
	size_t n = 0;

	setenv("BATON_DUMP_ON", "SIGUSR2", 1);
	if (pipe(ends) < 0)
		abort();
	if (baton_comm_create_local(2, NULL, comms) != BATON_OK ||
	    baton_recv(&n, 1, BATON_UINT64, 1, 3, comms[0], NULL, &options,
	               &request) != BATON_OK)
		abort();
	dup2(ends[1], STDERR_FILENO);
	raise(SIGUSR2);
	/* Both communicators' last lines. */
	for (int pending = 0; pending < 2;) {
		ssize_t got = read(ends[0], text + n, sizeof(text) - 1 - n);

		if (got <= 0)
			abort();
		n += (size_t)got;
		text[n] = '\0';
		pending = (strstr(text, ": 1 pending") != NULL) +
		          (strstr(text, ": 0 pending") != NULL);
	}
	if (!strstr(text, "recv from peer 1, tag 3"))
		abort();
}

START_TEST(sigusr2_dumps_all_if_it_was_asked_for)
{
	capture(NULL, be_dumped);
}
END_TEST

static void
assert_default(void)
{
	struct sigaction action;
	struct baton_comm *own;

	if (baton_comm_create_local(1, NULL, &own) != BATON_OK)
		abort();
	sigaction(SIGUSR2, NULL, &action);
	if (action.sa_handler != SIG_DFL)
		abort();
}

static void
ignore(int number)
{
	(void)number;
}

static void
keep_own(void)
{
	struct sigaction action;
	struct baton_comm *own;

	setenv("BATON_DUMP_ON", "SIGUSR2", 1);
	signal(SIGUSR2, ignore);
	if (baton_comm_create_local(1, NULL, &own) != BATON_OK)
		abort();
	sigaction(SIGUSR2, NULL, &action);
	if (action.sa_handler != ignore)
		abort();
}

/* The room that a receive has is no length of a message; and one byte is not "1 bytes". */
START_TEST(lists_of_tensors_and_single_bytes_are_told_of_as_such)
{
	static char arena[5000], byte;
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor open = {.rank = -1};
	struct baton_tensor one = {.data = &byte, .rank = 1, .shape = {1}};
	struct baton_comm *own = NULL;

	ck_assert_int_eq(baton_comm_create_local(1, NULL, &own), BATON_OK);
	options.op.flags = BATON_OP_DETACHED;
	ck_assert_int_eq(baton_send_tensors(&one, 1, 0, 1, own, NULL, &options,
	                                    NULL),
	                 BATON_OK);
	options.op.size = sizeof(options.op);
	ck_assert_int_eq(baton_send(&byte, 1, BATON_UINT8, 0, 3, own, NULL,
	                            &options.op, NULL),
	                 BATON_OK);
	options.op.size = sizeof(options);
	options.arena = arena;
	options.arena_bytes = sizeof(arena);
	ck_assert_int_eq(baton_recv_tensors(&open, 1, 0, 2, own, NULL, &options,
	                                    NULL),
	                 BATON_OK);
	dump(own);
	assert_line("send to peer 0, tag 1,", ", a list of tensors, 1 byte,");
	assert_line("recv from peer 0, tag 2,", ", a list of tensors, default");
	assert_line("send to peer 0, tag 3,", ", 1 byte,");
	ck_assert_ptr_null(strstr(text, "5000"));
	ck_assert_int_eq(baton_comm_abort(own), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(own), BATON_OK);
}
END_TEST

START_TEST(no_handler_is_installed_unless_asked_nor_over_the_programs)
{
	struct captured kept;

	ck_assert_uint_eq(capture(NULL, assert_default).writes, 0);
	kept = capture(NULL, keep_own);
	ck_assert_uint_eq(kept.writes, 1);
	ck_assert_ptr_nonnull(strstr(kept.text, "wake a thread"));
}
END_TEST

int
main(void)
{
	const TTest *const with_world[] = {
		every_pending_operation_has_a_line,
		what_is_no_transfer_has_a_line_too,
		a_sentence_has_the_same_words,
		an_armed_one_says_what_is_before_it,
		a_lent_one_is_told_of,
		a_dump_does_not_wait_for_a_driver_that_hangs,
		a_dump_that_does_not_wait_tells_of_a_break,
		arguments_are_checked,
	};
	const TTest *const alone[] = {
		dumps_beside_traffic_tear_no_line,
		sigusr2_dumps_all_if_it_was_asked_for,
		lists_of_tensors_and_single_bytes_are_told_of_as_such,
		no_handler_is_installed_unless_asked_nor_over_the_programs,
	};

	return RUN_TESTS_WITH("dump", with_world, world_setup, world_teardown) |
	       RUN_TESTS("dump alone", alone);
}
