/* SPDX-License-Identifier: BSD-3-Clause */
/* window/paths/put.c: the order of a channel, its paths, its accounting. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rma_world.h"
#include "run_tests.h"

#define INLINE BATONI_PUT_INLINE_MAX
#define SLICE BATONI_PUT_SLICE_MAX
#define PEER 1

static struct rma_world world;
static char *source; /* PART_BYTES of something */

static void
setup(void)
{
	rma_world_open(&world);
	source = malloc(PART_BYTES);
	ck_assert_ptr_nonnull(source);
	for (size_t i = 0; i < PART_BYTES; i++)
		source[i] = (char)(i * 7 + (i >> 8) + 1);
}

static void
teardown(void)
{
	free(source);
	rma_world_close(&world);
}

/* Place one of so many bytes from `source`, to the same offset of the peer. */
static struct batoni_transfer *
place(uint32_t slot, int peer, int context, size_t offset, size_t bytes)
{
	struct batoni_transfer *transfer = &world.transfers[slot];
	struct batoni_pending *pending = &world.rma.pending[slot];

	transfer->direction = BATONI_PUT;
	transfer->peer = peer;
	transfer->tag = context;
	transfer->buffer = source + offset;
	transfer->bytes = bytes;
	transfer->done_bytes = 0;
	transfer->native_call = NULL;
	pending->put.window = world.window;
	pending->put.offset = offset;
	pending->put.signal_index = 0;
	pending->put.task = BATONI_TASK_PUT;
	batoni_put_place(&world.rma, transfer);
	return transfer;
}

static enum baton_status
issue_put(uint32_t slot, int context, size_t offset, size_t bytes)
{
	return batoni_put_issue(&world.rma,
	                        place(slot, PEER, context, offset, bytes));
}

static enum baton_status
signal_peer(uint32_t slot, int context)
{
	struct batoni_transfer *transfer = &world.transfers[slot];

	transfer->direction = BATONI_PUT;
	transfer->peer = PEER;
	transfer->tag = context;
	transfer->buffer = NULL;
	transfer->bytes = 0;
	world.rma.pending[slot].put.window = NULL;
	world.rma.pending[slot].put.signal_index = 1;
	batoni_put_place(&world.rma, transfer);
	return batoni_put_issue(&world.rma, transfer);
}

static size_t
test(void)
{
	return batoni_puts_test(&world.rma);
}

static enum baton_status
take_back(uint32_t slot)
{
	return batoni_put_take_back(&world.rma, &world.transfers[slot]);
}

static uint64_t
signals(int signal_index, int context)
{
	return counter_at(&world, PEER, ME, signal_index, context);
}

static bool
arrived(size_t offset, size_t bytes)
{
	return memcmp(world.parts[PEER] + offset, source + offset, bytes) == 0;
}

static void
assert_counts(uint32_t pending, uint32_t moving, uint32_t in_window)
{
	ck_assert_uint_eq(world.rma.base.path.load.in_flight, pending);
	ck_assert_uint_eq(world.rma.base.path.load.moving, moving);
	ck_assert_uint_eq(world.window->pending, in_window);
}

static void
path_to_peer(unsigned path)
{
	world.window->peers[PEER].path = path;
}

/* ---- at once ------------------------------------------------------------ */

START_TEST(small_put_is_written_and_signaled_within_issue)
{
	ck_assert_int_eq(issue_put(0, 1, 40, INLINE), BATON_OK);
	ck_assert_uint_eq(world.transfers[0].done_bytes, INLINE);
	ck_assert(arrived(40, INLINE));
	ck_assert_int_eq(world.parts[PEER][39], 0);
	ck_assert_int_eq(world.parts[PEER][40 + INLINE], 0);
	ck_assert_uint_eq(signals(0, 1), 1);
	ck_assert_uint_eq(signals(0, 0), 0);
	assert_idle(&world);
}
END_TEST

START_TEST(signal_alone_and_a_put_of_nothing_only_count)
{
	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	ck_assert_int_eq(signal_peer(0, 0), BATON_OK);
	ck_assert_int_eq(issue_put(1, 0, PART_BYTES, 0), BATON_OK);
	ck_assert_uint_eq(world.transfers[1].done_bytes, 0);
	ck_assert_uint_eq(signals(1, 0), 1);
	ck_assert_uint_eq(signals(0, 0), 1);
	ck_assert_uint_eq(world.messages, 0);
	assert_idle(&world);
}
END_TEST

START_TEST(signal_rings_only_for_who_listens)
{
	ck_assert_int_eq(signal_peer(0, 0), BATON_OK);
	ck_assert_uint_eq(atomic_load(&world.bells[PEER].doorbell), 0);
	atomic_store(&world.bells[PEER].listening, 2);
	ck_assert_int_eq(signal_peer(0, 0), BATON_OK);
	ck_assert_uint_eq(atomic_load(&world.bells[PEER].doorbell), 1);
}
END_TEST

START_TEST(put_that_is_never_issued_is_not_counted_any_more)
{
	place(0, PEER, 0, 0, 8);
	assert_counts(0, 0, 1);
	batoni_put_unplace(&world.rma, &world.transfers[0]);
	assert_idle(&world);
}
END_TEST

/* ---- in turns ----------------------------------------------------------- */

START_TEST(longer_put_goes_by_slices_and_signals_after_the_last_byte)
{
	size_t bytes = 2 * SLICE + 1;

	ck_assert_int_eq(issue_put(0, 0, 1, bytes), BATON_PENDING);
	assert_counts(1, 1, 1);
	ck_assert_int_eq(world.parts[PEER][1], 0);
	for (size_t done = SLICE; done < bytes; done += SLICE) {
		ck_assert_uint_gt(test(), 0);
		ck_assert(arrived(1, done));
		ck_assert_int_eq(world.parts[PEER][1 + done], 0);
		ck_assert_uint_eq(signals(0, 0), 0);
		assert_no_end(&world);
	}
	test();
	assert_ended(&world, 0, BATON_OK);
	ck_assert_uint_eq(world.transfers[0].done_bytes, bytes);
	ck_assert(arrived(1, bytes));
	ck_assert_uint_eq(signals(0, 0), 1);
	assert_idle(&world);
}
END_TEST

START_TEST(one_byte_more_than_is_copied_within_issue_waits)
{
	ck_assert_int_eq(issue_put(0, 0, 0, INLINE + 1), BATON_PENDING);
	assert_counts(1, 1, 1);
	test();
	assert_ended(&world, 0, BATON_OK);
	assert_idle(&world);
}
END_TEST

START_TEST(later_ones_of_a_channel_wait_for_the_first_and_others_do_not)
{
	ck_assert_int_eq(issue_put(0, 0, 0, SLICE), BATON_PENDING);
	ck_assert_int_eq(issue_put(1, 0, SLICE, 8), BATON_PENDING);
	ck_assert_int_eq(signal_peer(2, 0), BATON_PENDING);
	ck_assert_int_eq(signal_peer(3, 1), BATON_OK);
	assert_counts(3, 3, 2);
	ck_assert_uint_eq(signals(1, 0), 0);
	ck_assert_uint_eq(signals(1, 1), 1);
	while (test())
		;
	for (uint32_t slot = 0; slot < 3; slot++)
		assert_ended(&world, slot, BATON_OK);
	ck_assert_uint_eq(signals(0, 0), 2);
	ck_assert_uint_eq(signals(1, 0), 1);
	ck_assert(arrived(0, SLICE + 8));
	assert_idle(&world);
}
END_TEST

START_TEST(channels_share_a_test_and_none_starves)
{
	struct batoni_pending *pending = world.rma.pending;
	size_t copied;

	/* Six channels, more than get a share in one test. */
	for (uint32_t slot = 0; slot < RANKS * CONTEXTS; slot++)
		ck_assert_int_eq(
			batoni_put_issue(&world.rma,
		                         place(slot, (int)slot / CONTEXTS,
		                               (int)slot % CONTEXTS, 0,
		                               SLICE)),
			BATON_PENDING);
	test();
	copied = 0;
	for (uint32_t slot = 0; slot < RANKS * CONTEXTS; slot++) {
		ck_assert_uint_le(pending[slot].put.copied, SLICE / 4);
		copied += pending[slot].put.copied;
	}
	ck_assert_uint_eq(copied, SLICE);
	test();
	for (uint32_t slot = 0; slot < RANKS * CONTEXTS; slot++)
		ck_assert_uint_gt(pending[slot].put.copied, 0);
	for (int i = 0; i < 4; i++)
		test();
	ck_assert_uint_eq(world.ends, RANKS * CONTEXTS);
	while (world.ends)
		rma_world_forget_end(&world);
	assert_idle(&world);
}
END_TEST

START_TEST(put_that_is_taken_back_never_signals_and_the_next_goes_on)
{
	ck_assert_int_eq(issue_put(0, 0, 0, 2 * SLICE), BATON_PENDING);
	ck_assert_int_eq(issue_put(1, 0, 0, 8), BATON_PENDING);
	ck_assert_int_eq(issue_put(2, 0, 8, 8), BATON_PENDING);
	test();
	ck_assert_int_eq(take_back(0), BATON_ERR_CANCELED);
	assert_counts(2, 2, 2);
	ck_assert_int_eq(take_back(2), BATON_ERR_CANCELED);
	test();
	assert_ended(&world, 1, BATON_OK);
	ck_assert_uint_eq(signals(0, 0), 1);
	assert_idle(&world);
	ck_assert_int_eq(issue_put(0, 0, 0, 8), BATON_OK);
}
END_TEST

/* ---- vmwrite ------------------------------------------------------------ */

/* By way of an address, as if it were another process's.  False: not to be had. */
static bool
write_by_kernel(void)
{
	char from = 1, to = 0;

	if (batoni_vm_write(getpid(), (uintptr_t)&to, &from, 1) != BATON_OK) {
		printf("no process_vm_writev here\n");
		return false;
	}
	path_to_peer(BATON_WINDOW_PATH_VMWRITE);
	world.window->peers[PEER].base = NULL;
	return true;
}

START_TEST(vmwrite_does_the_same_by_way_of_the_kernel)
{
	if (!write_by_kernel())
		return;
	ck_assert_int_eq(issue_put(0, 0, 3, 1000), BATON_OK);
	ck_assert(arrived(3, 1000));
	ck_assert_int_eq(issue_put(1, 0, 1003, SLICE + 1), BATON_PENDING);
	test();
	assert_no_end(&world);
	ck_assert_uint_eq(signals(0, 0), 1);
	test();
	assert_ended(&world, 1, BATON_OK);
	ck_assert(arrived(3, 1000 + SLICE + 1));
	ck_assert_uint_eq(signals(0, 0), 2);
	assert_idle(&world);
}
END_TEST

START_TEST(vmwrite_where_no_memory_is_ends_in_system_and_does_not_signal)
{
	if (!write_by_kernel())
		return;
	world.window->peers[PEER].address = 4096;
	ck_assert_int_eq(issue_put(0, 0, 0, 8), BATON_ERR_SYSTEM);
	ck_assert_str_eq(world.transfers[0].native_call, "process_vm_writev");
	ck_assert_int_eq(world.transfers[0].native_code, EFAULT);
	ck_assert_int_eq(issue_put(1, 0, 0, INLINE + 1), BATON_PENDING);
	test();
	assert_ended(&world, 1, BATON_ERR_SYSTEM);
	ck_assert_uint_eq(signals(0, 0), 0);
	assert_idle(&world);
}
END_TEST

START_TEST(vmwrite_into_a_process_that_is_gone_ends_in_peer)
{
	siginfo_t info;
	pid_t pid;
	int fd;

	if (!write_by_kernel())
		return;
	pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	fd = batoni_pidfd_open(pid);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
	/* Its number is another's now: this process's. */
	world.peers[PEER].pidfd = fd;
	if (fd < 0)
		world.peers[PEER].pid = pid;
	ck_assert_int_eq(issue_put(0, 0, 0, 8), BATON_ERR_PEER);
	ck_assert_str_eq(world.transfers[0].native_call, "process_vm_writev");
	ck_assert_int_eq(world.transfers[0].native_code, ESRCH);
	ck_assert_int_eq(world.parts[PEER][0], 0);
	ck_assert_uint_eq(signals(0, 0), 0);
	assert_idle(&world);
	batoni_pidfd_close(fd);
}
END_TEST

/* ---- messages ----------------------------------------------------------- */

START_TEST(put_by_message_is_out_of_the_queue_and_ends_with_its_messages)
{
	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	ck_assert_int_eq(issue_put(0, 0, 0, 100000), BATON_PENDING);
	ck_assert_uint_eq(world.messages, 2);
	assert_counts(1, 0, 1);
	ck_assert_uint_eq(test(), 0);
	message_sent(&world, 1, BATON_OK);
	assert_no_end(&world);
	message_sent(&world, 0, BATON_OK);
	assert_ended(&world, 0, BATON_OK);
	ck_assert_uint_eq(world.transfers[0].done_bytes, 100000);
	ck_assert_uint_eq(signals(0, 0), 0);
	assert_idle(&world);
}
END_TEST

START_TEST(no_store_overtakes_a_message_of_its_channel)
{
	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	ck_assert_int_eq(issue_put(0, 0, 0, 8), BATON_PENDING);
	path_to_peer(BATON_WINDOW_PATH_DIRECT);
	/* The data is written here, the signal follows the message. */
	ck_assert_int_eq(issue_put(1, 0, 8, 8), BATON_PENDING);
	ck_assert(arrived(8, 8));
	ck_assert_int_eq(signal_peer(2, 0), BATON_PENDING);
	ck_assert_int_eq(signal_peer(3, 1), BATON_OK);
	ck_assert_uint_eq(world.messages, 3);
	ck_assert_uint_lt(world.message[1]->bytes, world.message[0]->bytes);
	ck_assert_int_eq(world.message[1]->tag, world.message[0]->tag);
	ck_assert_uint_eq(signals(0, 0), 0);
	for (uint32_t slot = 0; slot < 3; slot++) {
		message_sent(&world, slot, BATON_OK);
		assert_ended(&world, slot, BATON_OK);
	}
	/* And for good. */
	ck_assert_int_eq(signal_peer(0, 0), BATON_PENDING);
	message_sent(&world, 3, BATON_OK);
	assert_ended(&world, 0, BATON_OK);
	assert_idle(&world);
}
END_TEST

START_TEST(written_data_whose_signal_goes_by_message_is_written_whole_first)
{
	world.rma.signal_path[PEER] = BATON_WINDOW_PATH_MESSAGE;
	ck_assert_int_eq(issue_put(0, 0, 0, SLICE + 1), BATON_PENDING);
	test();
	ck_assert_uint_eq(world.messages, 0);
	test();
	ck_assert(arrived(0, SLICE + 1));
	ck_assert_uint_eq(world.messages, 1);
	assert_counts(1, 0, 1);
	message_sent(&world, 0, BATON_OK);
	assert_ended(&world, 0, BATON_OK);
	ck_assert_uint_eq(world.transfers[0].done_bytes, SLICE + 1);
	assert_idle(&world);
}
END_TEST

START_TEST(without_a_lane_a_put_stays_first_and_asks_again)
{
	uint32_t lanes = BATONI_ONESIDED_LANES + 1, slot;

	world.rma.signal_path[PEER] = BATON_WINDOW_PATH_MESSAGE;
	for (slot = 0; slot < lanes + 3; slot++)
		ck_assert_int_eq(signal_peer(slot, 0), BATON_PENDING);
	ck_assert_uint_eq(world.messages, lanes);
	assert_counts(lanes + 3, 3, 0);
	ck_assert_uint_eq(test(), 0);
	ck_assert_uint_eq(world.messages, lanes);
	ck_assert_int_eq(take_back(lanes + 1), BATON_ERR_CANCELED);
	for (slot = 0; slot < 2; slot++) {
		message_sent(&world, slot, BATON_OK);
		assert_ended(&world, slot, BATON_OK);
		ck_assert_uint_eq(test(), 1);
		ck_assert_uint_eq(world.messages, lanes + 1 + slot);
	}
	assert_counts(lanes, 0, 0);
	for (; slot < lanes + 2; slot++) {
		message_sent(&world, slot, BATON_OK);
		assert_ended(&world, slot <= lanes ? slot : lanes + 2, BATON_OK);
	}
	assert_idle(&world);
}
END_TEST

START_TEST(put_that_messages_have_is_lent_until_they_are_sent)
{
	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	ck_assert_int_eq(issue_put(0, 0, 0, 8), BATON_PENDING);
	ck_assert_int_eq(take_back(0), BATON_ERR_BUSY);
	assert_counts(1, 0, 1);
	message_sent(&world, 0, BATON_OK);
	assert_ended(&world, 0, BATON_OK);
	assert_idle(&world);
}
END_TEST

START_TEST(message_that_fails_ends_its_put_so)
{
	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	ck_assert_int_eq(issue_put(0, 0, 0, 8), BATON_PENDING);
	message_sent(&world, 0, BATON_ERR_MPI);
	assert_ended(&world, 0, BATON_ERR_MPI);
	assert_idle(&world);
	world.answer = BATON_ERR_MPI;
	ck_assert_int_eq(issue_put(0, 0, 0, 8), BATON_ERR_MPI);
	assert_idle(&world);
}
END_TEST

static enum baton_status
issue_get(uint32_t slot)
{
	struct batoni_transfer *transfer = place(slot, PEER, 0, 0, 8);
	struct batoni_pending *pending = &world.rma.pending[slot];

	pending->put.task = BATONI_TASK_GET;
	pending->put.signal_index = BATONI_NO_SIGNAL;
	return batoni_put_issue(&world.rma, transfer);
}

/* As many as there are lanes. */
static void
leave_gets(uint32_t count)
{
	for (uint32_t slot = 0; slot < count; slot++) {
		ck_assert_int_eq(issue_get(slot), BATON_PENDING);
		message_sent(&world, world.messages - 1, BATON_OK);
		ck_assert_int_eq(take_back(slot), BATON_ERR_BUSY);
	}
	batoni_messages_test(&world.rma);
	assert_no_end(&world);
}

/* When its target is gone, and when the communicator breaks. */
START_TEST(get_that_is_lent_gives_its_buffer_back_when_no_answer_is_to_come)
{
	const uint32_t lanes = BATONI_ONESIDED_LANES + 1;

	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	for (int breaks = 0; breaks < 2; breaks++) {
		leave_gets(lanes);
		/* Liveness checks go on for them. */
		ck_assert_uint_eq(world.comm.liveness.frees, lanes);
		world.peers[PEER].gone = !breaks;
		world.comm.liveness.gone = !breaks;
		world.comm.fault.status = breaks ? BATON_ERR_ABORTED : BATON_OK;
		batoni_messages_test(&world.rma);
		for (uint32_t slot = 0; slot < lanes; slot++)
			assert_ended(&world, slot, BATON_ERR_CANCELED);
		assert_idle(&world);
		ck_assert_uint_eq(world.comm.liveness.frees, 0);
		world.peers[PEER].gone = false;
		world.comm.liveness.gone = 0;
	}
}
END_TEST

/* No header without a receive: the channel's next get would take the answer. */
START_TEST(get_whose_receive_cannot_be_posted_asks_for_nothing)
{
	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	batoni_messages_post(&world.rma);
	world.of_receives = BATON_ERR_NOMEM;
	ck_assert_int_eq(issue_get(0), BATON_ERR_NOMEM);
	ck_assert_uint_eq(world.messages, 0);
	assert_idle(&world);
	world.of_receives = BATON_PENDING;
	ck_assert_int_eq(issue_get(0), BATON_PENDING);
	ck_assert_uint_eq(world.messages, 1);
	message_sent(&world, 0, BATON_OK);
	answer_came(&world, 0, BATON_OK);
	assert_ended(&world, 0, BATON_OK);
	assert_idle(&world);
}
END_TEST

START_TEST(get_whose_header_cannot_be_sent_takes_its_receive_back)
{
	size_t before;

	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	batoni_messages_post(&world.rma);
	before = world.receives;
	world.answer = BATON_ERR_NOMEM;
	ck_assert_int_eq(issue_get(0), BATON_ERR_NOMEM);
	ck_assert_uint_eq(world.receives, before);
	ck_assert_int_eq(world.broken, BATON_OK);
	assert_idle(&world);
	/* One that stays would take the next answer. */
	world.of_taking = BATON_ERR_BUSY;
	ck_assert_int_eq(issue_get(0), BATON_PENDING);
	ck_assert_int_eq(world.broken, BATON_ERR_NOMEM);
	world.comm.fault.status = BATON_ERR_NOMEM;
	ck_assert_int_eq(take_back(0), BATON_ERR_BUSY);
	answer_came(&world, 0, BATON_ERR_CANCELED);
	assert_ended(&world, 0, BATON_ERR_NOMEM);
	assert_idle(&world);
}
END_TEST

/* Flush what has gone to the peer. */
static enum baton_status
flush_on(uint32_t slot)
{
	struct batoni_transfer *flush = &world.transfers[slot];

	flush->direction = BATONI_WAIT;
	flush->tag = BATONI_FLUSH_TAG;
	flush->peer = PEER;
	batoni_flush_place(&world.rma, flush);
	return batoni_flush_issue(&world.rma, flush);
}

/* The one that has asked ends so, if it is still there; one that comes later asks for itself. */
START_TEST(flush_ends_in_no_error_of_an_earlier_probe)
{
	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	for (int stays = 0; stays < 2; stays++) {
		size_t sent = world.messages;

		ck_assert_int_eq(issue_put(0, 0, 0, 8), BATON_PENDING);
		message_sent(&world, sent, BATON_OK);
		assert_ended(&world, 0, BATON_OK);
		ck_assert_int_eq(flush_on(1), BATON_PENDING);
		ck_assert_int_eq(flush_on(2), BATON_PENDING);
		if (!stays)
			ck_assert_int_eq(batoni_flush_take_back(
						 &world.rma, &world.transfers[1]),
			                 BATON_ERR_CANCELED);
		message_sent(&world, sent + 1, BATON_ERR_NOMEM);
		answer_came(&world, 0, BATON_ERR_CANCELED);
		batoni_flushes_test(&world.rma);
		if (stays)
			assert_ended(&world, 1, BATON_ERR_NOMEM);
		assert_no_end(&world);
		ck_assert_uint_eq(world.messages, sent + 3);
		message_sent(&world, sent + 2, BATON_OK);
		answer_came(&world, 0, BATON_OK);
		batoni_flushes_test(&world.rma);
		assert_ended(&world, 2, BATON_OK);
		assert_idle(&world);
	}
}
END_TEST

/* Its probe cannot be sent, which gives a lane back. */
START_TEST(flush_whose_probe_fails_leaves_nothing_that_moves)
{
	path_to_peer(BATON_WINDOW_PATH_MESSAGE);
	ck_assert_int_eq(issue_put(0, 0, 0, 8), BATON_PENDING);
	ck_assert_int_eq(flush_on(1), BATON_PENDING);
	message_sent(&world, 0, BATON_OK);
	assert_ended(&world, 0, BATON_OK);
	world.answer = BATON_ERR_MPI;
	ck_assert_uint_eq(batoni_flushes_test(&world.rma), 1);
	assert_ended(&world, 1, BATON_ERR_MPI);
	assert_idle(&world);
}
END_TEST

/* ---- visibility --------------------------------------------------------- */

#define ROUNDS 2000
#define WORDS 8

/* Two threads put to one peer in turns, as drivers do; one signal on either index
 * must show the reader all that was put before it. */
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static uint64_t putting; /* rounds begun; guarded by driver */

static void
put_round(uint32_t slot, uint64_t round)
{
	uint64_t *words = (uint64_t *)(void *)source;
	struct batoni_transfer *transfer;

	for (int i = 0; i < WORDS; i++)
		words[round * WORDS + (uint64_t)i] = round + 1;
	transfer = place(slot, PEER, 0, round * WORDS * 8, WORDS * 8);
	world.rma.pending[slot].put.signal_index = (int)(round % 2);
	if (batoni_put_issue(&world.rma, transfer) != BATON_OK)
		abort();
}

static void *
putter(void *slot)
{
	bool more = true;

	while (more) {
		pthread_mutex_lock(&driver);
		more = putting < ROUNDS;
		if (more)
			put_round(*(uint32_t *)slot, putting++);
		pthread_mutex_unlock(&driver);
	}
	return NULL;
}

START_TEST(one_signal_shows_all_that_was_put_before_it)
{
	const uint64_t *words = (const uint64_t *)(void *)world.parts[PEER];
	uint32_t slots[2] = {0, 1};
	pthread_t threads[2];
	uint64_t seen = 0;

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, putter,
		                                &slots[i]),
		                 0);
	while (seen < ROUNDS) {
		/* The n-th signal of index 1 is that of round 2n - 1. */
		uint64_t now = 2 * counter_at(&world, PEER, ME, 1, 0);

		for (; seen < now; seen++)
			for (int i = 0; i < WORDS; i++)
				ck_assert_uint_eq(
					words[seen * WORDS + (uint64_t)i],
					seen + 1);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_idle(&world);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		small_put_is_written_and_signaled_within_issue,
		signal_alone_and_a_put_of_nothing_only_count,
		signal_rings_only_for_who_listens,
		put_that_is_never_issued_is_not_counted_any_more,
		longer_put_goes_by_slices_and_signals_after_the_last_byte,
		one_byte_more_than_is_copied_within_issue_waits,
		later_ones_of_a_channel_wait_for_the_first_and_others_do_not,
		channels_share_a_test_and_none_starves,
		put_that_is_taken_back_never_signals_and_the_next_goes_on,
		vmwrite_does_the_same_by_way_of_the_kernel,
		vmwrite_where_no_memory_is_ends_in_system_and_does_not_signal,
		vmwrite_into_a_process_that_is_gone_ends_in_peer,
		put_by_message_is_out_of_the_queue_and_ends_with_its_messages,
		no_store_overtakes_a_message_of_its_channel,
		written_data_whose_signal_goes_by_message_is_written_whole_first,
		without_a_lane_a_put_stays_first_and_asks_again,
		put_that_messages_have_is_lent_until_they_are_sent,
		message_that_fails_ends_its_put_so,
		get_that_is_lent_gives_its_buffer_back_when_no_answer_is_to_come,
		get_whose_receive_cannot_be_posted_asks_for_nothing,
		get_whose_header_cannot_be_sent_takes_its_receive_back,
		flush_ends_in_no_error_of_an_earlier_probe,
		flush_whose_probe_fails_leaves_nothing_that_moves,
		one_signal_shows_all_that_was_put_before_it,
	};

	return RUN_TESTS_WITH("put", tests, setup, teardown);
}
