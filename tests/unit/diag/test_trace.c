/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of BATON_TRACE, read as another program reads them, while the communicator is there and
 * after it.  Each test is a process of its own, whose files are in a folder of its own.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baton_trace.h"
#include "core.h"
#include "run_tests.h"
#include "ticks.h"
#include "trace_folder.h"

#define FILES_MAX 8u

/* A file, as mapped to be read. */
struct file {
	const char *base;
	size_t bytes;
	const struct baton_trace_header *header;
};

static struct file files[FILES_MAX]; /* by rank */
static struct baton_comm *comms[2];
static baton_stream streams[2]; /* of each rank */
/* Streams do not wait for what is pending. */
static struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
static char in[8192], out[8192];

/* ---- files ---- */

static const void *
at(const struct file *file, const struct baton_trace_table *table, uint64_t i)
{
	ck_assert_uint_lt(i, table->count);
	return file->base + table->offset + i * table->stride;
}

static void
map_one(const char *name)
{
	char path[400];
	struct file file;
	struct stat stat;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", trace_folder, name);
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &stat), 0);
	file.bytes = (size_t)stat.st_size;
	file.base = mmap(NULL, file.bytes, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(file.base, MAP_FAILED);
	close(fd);
	file.header = (const void *)file.base;
	ck_assert_int_eq(memcmp(file.header->magic, BATON_TRACE_MAGIC, 8), 0);
	ck_assert_uint_eq(file.header->version, BATON_TRACE_VERSION);
	ck_assert_uint_eq(file.header->file_bytes, file.bytes);
	ck_assert_uint_lt((unsigned)file.header->rank, FILES_MAX);
	files[file.header->rank] = file;
}

/* Those of the folder, by rank.  Returns how many. */
static unsigned
map_files(void)
{
	DIR *dir = opendir(trace_folder);
	struct dirent *entry;
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		map_one(entry->d_name);
		n++;
	}
	closedir(dir);
	return n;
}

static const struct baton_trace_operation *
slot(int rank, uint64_t serial)
{
	const struct baton_trace_table *ring = &files[rank].header->operations;

	return at(&files[rank], ring, (serial - 1) % ring->count);
}

static const char *
kind_name(int rank, const struct baton_trace_operation *op)
{
	const struct baton_trace_kind *kind =
		at(&files[rank], &files[rank].header->kinds, op->kind);

	return kind->name;
}

/* The n-th operation of that kind, from 0, by serial. */
static const struct baton_trace_operation *
nth_of_kind(int rank, const char *kind, unsigned n)
{
	for (uint64_t serial = 1; serial <= files[rank].header->serials; serial++) {
		const struct baton_trace_operation *op = slot(rank, serial);

		if (op->serial == serial && !(op->flags & BATON_TRACE_TERM) &&
		    strcmp(kind_name(rank, op), kind) == 0 && n-- == 0)
			return op;
	}
	ck_abort_msg("rank %d has no such %s", rank, kind);
	return NULL;
}

static struct baton_trace_counter
counted(int rank, int kind, int peer, int tag)
{
	const struct baton_trace_table *table = &files[rank].header->counters;
	const struct baton_trace_counter none = {.peer = -3};

	for (uint32_t i = 0; i < table->count; i++) {
		const struct baton_trace_counter *counter = at(&files[rank], table, i);

		if (counter->used == 1 && counter->kind == kind &&
		    counter->peer == peer && counter->tag == tag)
			return *counter;
	}
	return none;
}

static void
assert_counts(const struct baton_trace_counter *counter, uint64_t called,
              uint64_t completed, uint64_t failed)
{
	ck_assert_uint_eq(counter->called, called);
	ck_assert_uint_eq(counter->completed, completed);
	ck_assert_uint_eq(counter->failed, failed);
}

/* ---- communicators ---- */

static void
open_comms_of(int size, uint32_t requests_max)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.progress = BATON_PROGRESS_CALLS;
	options.requests_max = requests_max;
	ck_assert_int_eq(baton_comm_create_local(size, &options, comms), BATON_OK);
	for (int i = 0; i < size; i++)
		ck_assert_int_eq(baton_stream_create(comms[i], &streams[i]),
		                 BATON_OK);
	detached.flags = BATON_OP_DETACHED;
}

static void
open_comms(int size)
{
	open_comms_of(size, 0);
}

static void
close_comms(int size)
{
	for (int i = 0; i < size; i++)
		ck_assert_int_eq(baton_stream_destroy(comms[i], streams[i]),
		                 BATON_OK);
	for (int i = 0; i < size; i++)
		ck_assert_int_eq(baton_comm_destroy(comms[i]), BATON_OK);
}

static baton_request
send_to(int rank, int peer, int tag, size_t bytes)
{
	baton_request request = 0;

	ck_assert_int_eq(baton_send(out, bytes, BATON_UINT8, peer, tag, comms[rank],
	                            streams[rank], &detached, &request),
	                 BATON_OK);
	return request;
}

static baton_request
recv_from(int rank, int peer, int tag, size_t bytes)
{
	baton_request request = 0;

	ck_assert_int_eq(baton_recv(in, bytes, BATON_UINT8, peer, tag, comms[rank],
	                            streams[rank], &detached, &request),
	                 BATON_OK);
	return request;
}

static void
finish(baton_request request, enum baton_status status)
{
	ck_assert_int_eq(baton_finish(&request, -1, NULL), status);
}

static void
exchange(int tag, size_t bytes)
{
	baton_request a = recv_from(1, 0, tag, bytes);

	finish(send_to(0, 1, tag, bytes), BATON_OK);
	finish(a, BATON_OK);
}

/* ---- what is in them ---- */

START_TEST(an_operation_tells_its_life)
{
	const struct baton_trace_operation *recv, *send;
	const struct baton_trace_module *module;
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request;

	open_comms(2);
	options.user_data = 77;
	ck_assert_int_eq(baton_recv(in, 200, BATON_UINT8, 0, 5, comms[1],
	                            streams[1], &options, &request),
	                 BATON_OK);
	ck_assert_uint_eq(map_files(), 2);
	recv = nth_of_kind(1, "recv", 0);
	ck_assert_int_eq(recv->state, BATON_STATE_ISSUED);
	ck_assert_int_eq(recv->status, BATON_PENDING);
	ck_assert_uint_eq(recv->completed, 0);
	finish(send_to(0, 1, 5, 100), BATON_OK);
	finish(request, BATON_OK);
	send = nth_of_kind(0, "send", 0);
	ck_assert_int_eq(recv->state, BATON_STATE_ENDED);
	ck_assert_int_eq(recv->status, BATON_OK);
	ck_assert_int_eq(recv->peer, 0);
	ck_assert_int_eq(recv->tag, 5);
	ck_assert_int_eq(recv->signal, -1);
	ck_assert_uint_eq(recv->bytes, 200);
	ck_assert_uint_eq(recv->done_bytes, 100);
	ck_assert_uint_eq(recv->user_data, 77);
	ck_assert_uint_gt(recv->enqueued, 0);
	ck_assert_uint_ge(recv->issued, recv->enqueued);
	/* The clock is that of all ranks of the host, and the send's call has ended both. */
	ck_assert_uint_gt(send->enqueued, recv->enqueued);
	ck_assert_uint_eq(send->completed, send->enqueued);
	ck_assert_uint_eq(recv->completed, send->enqueued);
	ck_assert_int_eq(send->peer, 1);
	ck_assert_uint_eq(send->done_bytes, 100);
	/* Both were called from this program. */
	ck_assert_uint_gt(recv->module, 0);
	ck_assert_uint_gt(send->module, 0);
	module = at(&files[1], &files[1].header->modules, recv->module - 1u);
	ck_assert_ptr_nonnull(strstr(module->path, "trace"));
	ck_assert_uint_eq(module->base + recv->offset >= module->begin &&
	                          module->base + recv->offset < module->end,
	                  1);
	ck_assert_uint_eq(files[1].header->paths_known > recv->path, 1);
	close_comms(2);
	ck_assert_uint_eq(files[0].header->state, BATON_TRACE_CLOSED);
}
END_TEST

START_TEST(the_ring_wraps_and_counters_do_not)
{
	struct baton_trace_counter sent, received;
	uint64_t last = 0;

	setenv("BATON_TRACE_OPERATIONS", "256", 1);
	open_comms(2);
	for (int i = 0; i < 1000; i++)
		exchange(3, 64);
	ck_assert_uint_eq(map_files(), 2);
	ck_assert_uint_eq(files[0].header->operations.count, 256);
	for (uint32_t i = 0; i < 256; i++) {
		const struct baton_trace_operation *op =
			at(&files[0], &files[0].header->operations, i);

		ck_assert_uint_eq((op->serial - 1) % 256, i);
		ck_assert_uint_eq(op->state, BATON_STATE_ENDED);
		last = op->serial > last ? op->serial : last;
	}
	ck_assert_uint_ge(last, 1000);
	sent = counted(0, BATON_OPERATION_SEND, 1, 3);
	received = counted(1, BATON_OPERATION_RECV, 0, 3);
	assert_counts(&sent, 1000, 1000, 0);
	assert_counts(&received, 1000, 1000, 0);
	ck_assert_uint_eq(received.bytes, 64000);
	ck_assert_uint_eq(files[0].header->state, BATON_TRACE_OPEN);
	close_comms(2);
}
END_TEST

/* One that is overwritten while it is pending: its end changes nobody else's slot. */
START_TEST(an_end_leaves_a_slot_that_is_anothers)
{
	struct baton_trace_counter received;
	baton_request early;

	setenv("BATON_TRACE_OPERATIONS", "256", 1);
	open_comms(2);
	early = recv_from(1, 0, 9, 100);
	for (int i = 0; i < 400; i++)
		exchange(3, 64);
	finish(send_to(0, 1, 9, 100), BATON_OK);
	finish(early, BATON_OK);
	map_files();
	for (uint32_t i = 0; i < 256; i++) {
		const struct baton_trace_operation *op =
			at(&files[1], &files[1].header->operations, i);

		ck_assert_int_eq(op->tag, 3);
		ck_assert_uint_eq(op->done_bytes, 64);
	}
	received = counted(1, BATON_OPERATION_RECV, 0, 9);
	assert_counts(&received, 1, 1, 0);
	close_comms(2);
}
END_TEST

static void
die_waiting(void)
{
	open_comms(2);
	exchange(6, 10);
	recv_from(1, 0, 7, 10);
	recv_from(1, 0, 7, 10);
	raise(SIGKILL);
}

START_TEST(a_killed_process_leaves_a_readable_file)
{
	struct baton_trace_counter received;
	const struct baton_trace_operation *second;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		die_waiting();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	ck_assert_uint_eq(map_files(), 2);
	ck_assert_int_eq(files[1].header->pid, pid);
	ck_assert_uint_eq(files[1].header->state, BATON_TRACE_OPEN);
	ck_assert_uint_eq(files[1].header->ended, 0);
	received = counted(1, BATON_OPERATION_RECV, 0, 7);
	assert_counts(&received, 2, 0, 0);
	ck_assert_int_eq(counted(0, BATON_OPERATION_SEND, 1, 7).peer, -3);
	/* The second waits behind the first, at the transport. */
	ck_assert_int_eq(nth_of_kind(1, "recv", 1)->state, BATON_STATE_ISSUED);
	second = nth_of_kind(1, "recv", 2);
	ck_assert_int_eq(second->status, BATON_PENDING);
	ck_assert_int_eq(second->tag, 7);
}
END_TEST

START_TEST(calls_that_are_refused_are_not_there)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	open_comms(2);
	ck_assert_int_eq(baton_send(out, 1, BATON_UINT8, 2, 0, comms[0], streams[0], NULL,
	                            NULL),
	                 BATON_ERR_INVALID);
	options.flags = 64;
	ck_assert_int_eq(baton_send(out, 1, BATON_UINT8, 1, 0, comms[0], streams[0],
	                            &options, NULL),
	                 BATON_ERR_INVALID);
	map_files();
	ck_assert_uint_eq(files[0].header->serials, 0);
	exchange(0, 1);
	ck_assert_uint_eq(nth_of_kind(0, "send", 0)->serial, 1);
	close_comms(2);
}
END_TEST

START_TEST(failures_have_their_status)
{
	struct baton_op_options late = BATON_OP_OPTIONS_INIT;
	struct baton_trace_counter received;
	baton_request request;

	open_comms(2);
	request = recv_from(1, 0, 1, 10);
	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	finish(request, BATON_ERR_CANCELED);
	late.timeout_ns = 1;
	ck_assert_int_eq(baton_recv(in, 10, BATON_UINT8, 0, 1, comms[1],
	                            streams[1], &late, &request),
	                 BATON_OK);
	finish(request, BATON_ERR_TIMEOUT);
	request = recv_from(1, 0, 1, 10);
	ck_assert_int_eq(baton_comm_abort(comms[1]), BATON_OK);
	finish(request, BATON_ERR_ABORTED);
	map_files();
	ck_assert_int_eq(nth_of_kind(1, "recv", 0)->status, BATON_ERR_CANCELED);
	ck_assert_int_eq(nth_of_kind(1, "recv", 1)->status, BATON_ERR_TIMEOUT);
	ck_assert_int_eq(nth_of_kind(1, "recv", 2)->status, BATON_ERR_ABORTED);
	received = counted(1, BATON_OPERATION_RECV, 0, 1);
	assert_counts(&received, 3, 0, 3);
	ck_assert_int_eq(files[1].header->status, BATON_ERR_ABORTED);
	ck_assert_ptr_nonnull(strstr(files[1].header->why, "baton_comm_abort"));
	ck_assert_uint_gt(files[1].header->broken, 0);
	ck_assert_int_eq(files[0].header->status, BATON_OK);
}
END_TEST

START_TEST(receives_from_any_rank_move_to_the_rank_of_their_message)
{
	struct baton_trace_counter any, named;
	baton_request request;

	open_comms(2);
	request = recv_from(1, BATON_ANY_SOURCE, 4, 10);
	map_files();
	ck_assert_int_eq(nth_of_kind(1, "recv", 0)->peer, -1);
	ck_assert(nth_of_kind(1, "recv", 0)->flags & BATON_TRACE_ANY_SOURCE);
	any = counted(1, BATON_OPERATION_RECV, -1, 4);
	assert_counts(&any, 1, 0, 0);
	finish(send_to(0, 1, 4, 10), BATON_OK);
	finish(request, BATON_OK);
	ck_assert_int_eq(nth_of_kind(1, "recv", 0)->peer, 0);
	any = counted(1, BATON_OPERATION_RECV, -1, 4);
	named = counted(1, BATON_OPERATION_RECV, 0, 4);
	ck_assert_uint_eq(any.called - any.moved, 0);
	assert_counts(&named, 1, 1, 0);
	close_comms(2);
}
END_TEST

static baton_message
probe_for(int rank, int peer, int tag)
{
	baton_message message;
	enum baton_status status;

	do
		status = baton_probe(peer, tag, comms[rank], &message, NULL);
	while (status == BATON_PENDING);
	ck_assert_int_eq(status, BATON_OK);
	return message;
}

static baton_request
recv_message(int rank, baton_message message, baton_stream stream)
{
	baton_request request;

	ck_assert_int_eq(baton_recv_message(in, sizeof(in), BATON_UINT8, message,
	                                    comms[rank], stream, &detached, &request),
	                 BATON_OK);
	return request;
}

START_TEST(what_a_probe_has_found_is_there_and_counts_once)
{
	const struct baton_trace_operation *found, *received;
	struct baton_trace_counter counter;
	baton_request sent, early;
	baton_message message;

	open_comms(2);
	sent = send_to(0, 1, 3, 10);
	message = probe_for(1, 0, 3);
	map_files();
	found = nth_of_kind(1, "message", 0);
	ck_assert_int_eq(found->status, BATON_PENDING);
	ck_assert_int_eq(found->peer, 0);
	ck_assert_int_eq(found->tag, 3);
	ck_assert_uint_eq(found->bytes, 10);
	ck_assert_uint_gt(found->enqueued, 0);
	ck_assert_uint_gt(found->module, 0);
	counter = counted(1, BATON_OPERATION_RECV, 0, 3);
	assert_counts(&counter, 1, 0, 0);
	early = recv_message(1, message, streams[1]);
	finish(early, BATON_OK);
	finish(sent, BATON_OK);
	received = nth_of_kind(1, "recv", 0);
	ck_assert_uint_eq(received->flags & BATON_TRACE_FOUND, BATON_TRACE_FOUND);
	ck_assert_uint_eq(received->signals, found->serial);
	ck_assert_int_eq(found->status, BATON_OK);
	ck_assert_uint_ge(found->completed, found->enqueued);
	counter = counted(1, BATON_OPERATION_RECV, 0, 3);
	assert_counts(&counter, 1, 1, 0);
	ck_assert_uint_eq(counter.bytes, 10);
	close_comms(2);
}
END_TEST

START_TEST(a_stream_wait_names_what_it_waits_for)
{
	const struct baton_trace_operation *receive, *wait;
	baton_stream other;
	baton_request received;

	open_comms(2);
	ck_assert_int_eq(baton_stream_create(comms[1], &other), BATON_OK);
	received = recv_from(1, 0, 3, 10);
	ck_assert_int_eq(baton_stream_wait(comms[1], other, received), BATON_OK);
	map_files();
	receive = nth_of_kind(1, "recv", 0);
	wait = nth_of_kind(1, "stream_wait", 0);
	ck_assert_uint_eq(wait->flags & BATON_TRACE_JOINED, BATON_TRACE_JOINED);
	ck_assert_uint_eq(wait->signals, receive->serial);
	ck_assert_uint_eq(wait->user_data, comms[1]->index);
	ck_assert_int_eq(wait->status, BATON_PENDING);
	finish(send_to(0, 1, 3, 10), BATON_OK);
	finish(received, BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comms[1], other), BATON_OK);
	ck_assert_int_eq(baton_stream_destroy(comms[1], other), BATON_OK);
	close_comms(2);
}
END_TEST

/* By a receive that ends before its stream has come to it, and by a destroy. */
START_TEST(what_a_probe_has_found_and_is_discarded_has_failed_once)
{
	struct baton_trace_counter counter;
	baton_request before, early;

	open_comms(2);
	baton_release(&(baton_request){send_to(0, 1, 3, 10)});
	baton_release(&(baton_request){send_to(0, 1, 3, 10)});
	ck_assert_int_eq(baton_recv(in, 1, BATON_UINT8, 0, 9, comms[1], streams[1], NULL,
	                            &before),
	                 BATON_OK);
	early = recv_message(1, probe_for(1, 0, 3), streams[1]);
	ck_assert_int_eq(baton_cancel(early), BATON_OK);
	finish(early, BATON_ERR_CANCELED);
	finish(send_to(0, 1, 9, 1), BATON_OK);
	finish(before, BATON_OK);
	probe_for(1, 0, 3);
	map_files();
	ck_assert_int_eq(nth_of_kind(1, "message", 0)->status, BATON_ERR_CANCELED);
	ck_assert_int_eq(nth_of_kind(1, "message", 1)->status, BATON_PENDING);
	counter = counted(1, BATON_OPERATION_RECV, 0, 3);
	assert_counts(&counter, 2, 0, 1);
	/* What it discards ends the send of the other. */
	ck_assert_int_eq(baton_comm_destroy(comms[1]), BATON_OK);
	ck_assert_int_eq(baton_stream_destroy(comms[0], streams[0]), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_OK);
	ck_assert_int_eq(nth_of_kind(1, "message", 1)->status, BATON_ERR_CANCELED);
	counter = counted(1, BATON_OPERATION_RECV, 0, 3);
	assert_counts(&counter, 2, 0, 2);
}
END_TEST

START_TEST(signals_and_waits_have_their_index_and_number)
{
	const struct baton_wait_signal_desc two[2] = {
		{.op_count = 4, .peer = 0, .signal_index = 2},
		{.op_count = 1, .peer = 1, .signal_index = 3}};
	const struct baton_trace_operation *wait, *term;
	struct baton_trace_counter signaled, awaited;
	baton_request a = 0, b = 0;

	open_comms(2);
	ck_assert_int_eq(baton_wait_signal(1, two, comms[1], streams[1], &detached, &a),
	                 BATON_OK);
	ck_assert_int_eq(baton_wait_signal(2, two, comms[1], streams[1], &detached, &b),
	                 BATON_OK);
	ck_assert_int_eq(baton_signal_add(1, 2, 0, 3, 0, comms[0], streams[0], NULL, NULL),
	                 BATON_OK);
	map_files();
	wait = nth_of_kind(1, "wait_signal", 0);
	ck_assert_int_eq(wait->peer, 0);
	ck_assert_int_eq(wait->signal, 2);
	ck_assert_int_eq(wait->context, 0);
	ck_assert_uint_eq(wait->signals, 4);
	ck_assert_int_eq(wait->status, BATON_PENDING);
	wait = nth_of_kind(1, "wait_signal", 1);
	ck_assert_int_eq(wait->peer, -1);
	ck_assert(wait->flags & BATON_TRACE_TERMS);
	for (int i = 0; i < 2; i++) {
		term = slot(1, wait->serial + 1 + (unsigned)i);
		ck_assert_uint_eq(term->parent, wait->serial);
		ck_assert(term->flags & BATON_TRACE_TERM);
		ck_assert_int_eq(term->peer, two[i].peer);
		ck_assert_int_eq(term->signal, two[i].signal_index);
		ck_assert_uint_eq(term->signals, (unsigned)two[i].op_count);
	}
	ck_assert_uint_eq(nth_of_kind(0, "signal", 0)->signals, 3);
	/* Which signal is missing: one of 4 from rank 0. */
	signaled = counted(0, BATON_OPERATION_SIGNAL, 1, 2);
	awaited = counted(1, BATON_OPERATION_WAIT_SIGNAL, 0, 2);
	ck_assert_uint_eq(signaled.signals, 3);
	ck_assert_uint_eq(awaited.signals, 4);
	assert_counts(&awaited, 1, 0, 0);
	ck_assert_int_eq(baton_signal_add(1, 2, 0, 5, 0, comms[0], streams[0], NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_signal(1, 3, 0, 0, comms[1], streams[1], NULL, NULL),
	                 BATON_OK);
	finish(a, BATON_OK);
	finish(b, BATON_OK);
	close_comms(2);
}
END_TEST

START_TEST(groups_and_plans_are_parents)
{
	const struct baton_trace_operation *send, *group, *launch;
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_plan *plan = NULL;
	baton_request a, b, request = 0;

	open_comms(1);
	ck_assert_int_eq(baton_group_begin(comms[0]), BATON_OK);
	a = send_to(0, 0, 1, 10);
	b = recv_from(0, 0, 1, 10);
	ck_assert_int_eq(baton_group_end(comms[0]), BATON_OK);
	finish(a, BATON_OK);
	finish(b, BATON_OK);
	ck_assert_int_eq(baton_plan_begin(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_send(out, 10, BATON_UINT8, 0, 2, comms[0], streams[0],
	                            &detached, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(in, 10, BATON_UINT8, 0, 2, comms[0], streams[0],
	                            &detached, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_plan_end(comms[0], &plan), BATON_OK);
	options.user_data = 5;
	ck_assert_int_eq(baton_plan_launch(plan, &options, &request), BATON_OK);
	finish(request, BATON_OK);
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
	map_files();
	send = nth_of_kind(0, "send", 0);
	group = slot(0, send->parent);
	ck_assert_str_eq(kind_name(0, group), "group");
	ck_assert(send->flags & BATON_TRACE_GROUPED);
	ck_assert_uint_eq(nth_of_kind(0, "recv", 0)->parent, send->parent);
	ck_assert_int_eq(group->status, BATON_OK);
	send = nth_of_kind(0, "send", 1);
	launch = slot(0, send->parent);
	ck_assert_uint_eq(launch->kind, BATON_OPERATION_PLAN);
	ck_assert_uint_eq(launch->user_data, 5);
	ck_assert_uint_eq(send->user_data, 5);
	ck_assert(send->flags & BATON_TRACE_PLANNED);
	ck_assert_int_eq(launch->state, BATON_STATE_ENDED);
	ck_assert_uint_ge(launch->completed, send->completed);
	close_comms(1);
}
END_TEST

/* ---- clocks and numbers ---- */

START_TEST(rounds_and_the_number_are_the_communicators)
{
	open_comms(2);
	ck_assert_uint_eq(map_files(), 2);
	ck_assert_uint_eq(files[0].header->communicator,
	                  files[1].header->communicator);
	ck_assert_uint_ge(files[0].header->rounds_known, 8);
	ck_assert_uint_eq(files[0].header->rounds_known,
	                  files[1].header->rounds_known);
	for (uint64_t i = 0; i < files[0].header->rounds_known; i++) {
		const struct baton_trace_round *r[2];

		for (int rank = 0; rank < 2; rank++) {
			r[rank] = at(&files[rank], &files[rank].header->rounds, i);
			ck_assert_uint_eq(r[rank]->number, i + 1);
		}
		/* Nobody has left before all had entered. */
		ck_assert_uint_ge(r[0]->leave, r[1]->enter);
		ck_assert_uint_ge(r[1]->leave, r[0]->enter);
	}
	ck_assert_uint_gt(files[0].header->ticks_per_second, 0);
	ck_assert_uint_gt(files[0].header->first.real_ns, 0);
	ck_assert_uint_gt(strlen(files[0].header->boot_id), 30);
}
END_TEST

START_TEST(without_a_counter_stamps_are_of_passes)
{
	const struct baton_trace_operation *recv;

	batoni_ticks_without_counter(true);
	open_comms(2);
	exchange(1, 10);
	map_files();
	ck_assert_uint_eq(files[0].header->clock, BATON_TRACE_PASSES);
	ck_assert_uint_eq(files[0].header->ticks_per_second, 1000000000);
	recv = nth_of_kind(1, "recv", 0);
	ck_assert_uint_ge(recv->completed, recv->enqueued);
	ck_assert_uint_le(recv->completed, batoni_real_ns());
	ck_assert_uint_ge(recv->enqueued, files[0].header->first.ticks);
	close_comms(2);
}
END_TEST

/* The kernel's tick may be of before: a round whose end is too early says too much. */
START_TEST(without_a_counter_rounds_end_when_they_end)
{
	const struct baton_trace_round *first;
	uint64_t before;

	batoni_ticks_without_counter(true);
	before = batoni_real_ns();
	open_comms(2);
	map_files();
	ck_assert_uint_gt(files[0].header->rounds_known, 0);
	first = at(&files[0], &files[0].header->rounds, 0);
	ck_assert_uint_ge(first->leave, before);
	close_comms(2);
}
END_TEST

/* ---- threads ---- */

static const struct baton_trace_operation *
handed(int rank, uint64_t serial)
{
	const struct baton_trace_table *table = &files[rank].header->handed;

	for (uint32_t i = 0; serial != 0 && i < table->count; i++) {
		const struct baton_trace_operation *entry = at(&files[rank], table, i);

		if (entry->serial == serial)
			return entry;
	}
	return NULL;
}

static void *
wait_for_two(void *arg)
{
	const struct baton_wait_signal_desc two[2] = {
		{.op_count = 4, .peer = 0, .signal_index = 2},
		{.op_count = 1, .peer = 1, .signal_index = 3}};

	(void)arg;
	send_to(0, 1, 5, 10);
	ck_assert_int_eq(baton_wait_signal(2, two, comms[1], streams[1], &detached,
	                                   NULL),
	                 BATON_OK);
	return NULL;
}

/* While another thread drives, and does not look at it. */
START_TEST(what_is_called_beside_the_driver_is_there_at_once)
{
	const struct baton_trace_operation *send, *wait;
	uint64_t serial;
	pthread_t thread;

	open_comms(2);
	batoni_lock();
	pthread_create(&thread, NULL, wait_for_two, NULL);
	pthread_join(thread, NULL);
	map_files();
	send = handed(0, 1);
	ck_assert_ptr_nonnull(send);
	ck_assert_int_eq(send->peer, 1);
	ck_assert_int_eq(send->tag, 5);
	ck_assert_int_eq(send->state, BATON_STATE_CALLED);
	ck_assert_uint_gt(send->enqueued, 0);
	ck_assert_uint_gt(send->module, 0);
	ck_assert_uint_eq(slot(0, 1)->serial, 0);
	wait = handed(1, 1);
	ck_assert_ptr_nonnull(wait);
	ck_assert(wait->flags & BATON_TRACE_TERMS);
	batoni_unlock();
	/* The driver has taken them over. */
	finish(recv_from(1, 0, 5, 10), BATON_OK);
	ck_assert_ptr_null(handed(0, 1));
	ck_assert_ptr_null(handed(1, 1));
	ck_assert_int_eq(nth_of_kind(0, "send", 0)->state, BATON_STATE_ENDED);
	ck_assert_uint_eq(nth_of_kind(0, "send", 0)->serial, 1);
	serial = nth_of_kind(1, "wait_signal", 0)->serial;
	ck_assert_uint_eq(serial, 1);
	ck_assert(slot(1, serial + 1)->flags & BATON_TRACE_TERM);
	ck_assert_int_eq(slot(1, serial + 2)->signal, 3);
	ck_assert_int_eq(baton_signal_add(1, 2, 0, 4, 0, comms[0], streams[0], NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_signal(1, 3, 0, 0, comms[1], streams[1], NULL, NULL),
	                 BATON_OK);
	close_comms(2);
}
END_TEST

static pthread_barrier_t turn;

static void *
end_group_beside(void *arg)
{
	baton_request *request = arg;

	ck_assert_int_eq(baton_group_begin(comms[1]), BATON_OK);
	*request = recv_from(1, 0, 5, 10);
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	ck_assert_int_eq(baton_group_end(comms[1]), BATON_OK);
	return NULL;
}

/* Its operation has given it a slot of the ring before its thread hands it over. */
START_TEST(a_group_that_ends_beside_the_driver_leaves_no_entry)
{
	baton_request request;
	pthread_t thread;

	open_comms(2);
	pthread_barrier_init(&turn, NULL, 2);
	pthread_create(&thread, NULL, end_group_beside, &request);
	pthread_barrier_wait(&turn);
	batoni_lock();
	pthread_barrier_wait(&turn);
	pthread_join(thread, NULL);
	map_files();
	ck_assert_ptr_nonnull(handed(1, nth_of_kind(1, "group", 0)->serial));
	batoni_unlock();
	finish(send_to(0, 1, 5, 10), BATON_OK);
	finish(request, BATON_OK);
	ck_assert_int_eq(nth_of_kind(1, "group", 0)->state, BATON_STATE_ENDED);
	ck_assert_ptr_null(handed(1, nth_of_kind(1, "group", 0)->serial));
	pthread_barrier_destroy(&turn);
	close_comms(2);
}
END_TEST

#define SLOTS 128

static atomic_bool has_run;

static void
note_that_it_runs(void *arg)
{
	(void)arg;
	atomic_store(&has_run, true);
}

/* The stream is faster than what gives the function its slot. */
static enum baton_status
let_it_run(void *context, const struct batoni_op *op, unsigned state)
{
	(void)context;
	while (batoni_kind_of(op)->runs && state == BATONI_QUEUED &&
	       !atomic_load(&has_run))
		sched_yield();
	return BATON_OK;
}

START_TEST(a_function_that_runs_before_it_has_a_slot_is_armed)
{
	static const struct batoni_observer observer = {.moved = let_it_run,
	                                                .fast = true};
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	const struct baton_trace_operation *function;

	batoni_observer_set(&observer);
	options.progress = BATON_PROGRESS_THREAD;
	ck_assert_int_eq(baton_comm_create_local(1, &options, comms), BATON_OK);
	ck_assert_int_eq(baton_stream_create(comms[0], &streams[0]), BATON_OK);
	ck_assert_int_eq(baton_stream_launch(comms[0], streams[0], note_that_it_runs, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comms[0], streams[0]), BATON_OK);
	map_files();
	function = nth_of_kind(0, "launched function", 0);
	ck_assert_uint_ge(function->armed, function->enqueued);
	ck_assert_uint_ge(function->completed, function->armed);
	close_comms(1);
}
END_TEST

/* What has been handed and the driver has not seen; there is one. */
static const struct baton_trace_operation *
only_handed(int rank)
{
	const struct baton_trace_table *table = &files[rank].header->handed;
	const struct baton_trace_operation *only = NULL;

	for (uint32_t i = 0; i < table->count; i++) {
		const struct baton_trace_operation *entry = at(&files[rank], table, i);

		if (entry->serial == 0)
			continue;
		ck_assert_ptr_null(only);
		only = entry;
	}
	ck_assert_ptr_nonnull(only);
	return only;
}

static void *
send_beside(void *arg)
{
	*(baton_request *)arg = send_to(0, 1, 5, 10);
	return NULL;
}

static void
run_when_told(void *arg)
{
	while (!atomic_load((atomic_bool *)arg))
		sched_yield();
}

/* Whichever slot of the pool an operation takes, a function had it. */
START_TEST(what_is_called_behind_a_function_has_not_run)
{
	const struct baton_trace_operation *send;
	atomic_bool told = false;
	baton_request request;
	pthread_t thread;

	open_comms_of(2, SLOTS);
	for (int i = 0; i < SLOTS; i++)
		ck_assert_int_eq(baton_stream_launch(comms[0], streams[0],
		                                     run_when_told, &told),
		                 BATON_OK);
	atomic_store(&told, true);
	ck_assert_int_eq(baton_stream_synchronize(comms[0], streams[0]), BATON_OK);
	batoni_lock();
	pthread_create(&thread, NULL, send_beside, &request);
	pthread_join(thread, NULL);
	map_files();
	send = only_handed(0);
	ck_assert_str_eq(kind_name(0, send), "send");
	ck_assert_uint_eq(send->ran, 0);
	batoni_unlock();
	finish(recv_from(1, 0, 5, 10), BATON_OK);
	finish(request, BATON_OK);
	close_comms(2);
}
END_TEST

/* Its entry stays until it ends, and is all that is left of it once the ring has gone round. */
START_TEST(a_function_that_waits_outlives_the_ring)
{
	const struct baton_trace_table *table;
	const struct baton_trace_operation *entry = NULL;
	baton_stream other;
	baton_request request;

	setenv("BATON_TRACE_OPERATIONS", "256", 1);
	open_comms(2);
	ck_assert_int_eq(baton_stream_create(comms[1], &other), BATON_OK);
	ck_assert_int_eq(baton_recv(in, 10, BATON_UINT8, 0, 9, comms[1], other, NULL,
	                            &request),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_launch(comms[1], other, note_that_it_runs, NULL), BATON_OK);
	for (int i = 0; i < 400; i++)
		exchange(3, 64);
	map_files();
	table = &files[1].header->handed;
	for (uint32_t i = 0; i < table->count && (!entry || !entry->serial); i++)
		entry = at(&files[1], table, i);
	ck_assert_uint_ne(entry->serial, 0);
	ck_assert_uint_ne(slot(1, entry->serial)->serial, entry->serial);
	ck_assert_str_eq(kind_name(1, entry), "launched function");
	ck_assert_uint_gt(entry->enqueued, 0);
	ck_assert_int_eq(entry->status, BATON_PENDING);
	finish(send_to(0, 1, 9, 10), BATON_OK);
	finish(request, BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comms[1], other), BATON_OK);
	ck_assert_uint_eq(entry->serial, 0);
	ck_assert_int_eq(baton_stream_destroy(comms[1], other), BATON_OK);
	close_comms(2);
}
END_TEST

#define EACH 2000

static void *
send_many(void *tag)
{
	char byte = 0;

	for (int i = 0; i < EACH; i++) {
		baton_request request = 0;

		ck_assert_int_eq(baton_send(&byte, 1, BATON_UINT8, 1,
		                            (int)(intptr_t)tag, comms[0],
		                            streams[0], &detached, &request),
		                 BATON_OK);
		ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_OK);
	}
	return NULL;
}

static void *
recv_many(void *tag)
{
	char byte;

	for (int i = 0; i < EACH; i++) {
		baton_request request = 0;

		ck_assert_int_eq(baton_recv(&byte, 1, BATON_UINT8, 0,
		                            (int)(intptr_t)tag, comms[1],
		                            streams[1], &detached, &request),
		                 BATON_OK);
		ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_OK);
	}
	return NULL;
}

/* Enqueuers hand to the driver, which is another thread now and then; the ring goes round meanwhile. */
START_TEST(threads_on_one_handle_lose_nothing)
{
	void *(*const mains[4])(void *) = {send_many, recv_many, send_many,
	                                   recv_many};
	pthread_t threads[4];

	setenv("BATON_TRACE_OPERATIONS", "256", 1);
	open_comms(2);
	for (intptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, mains[i],
		                                (void *)(i / 2 + 1)),
		                 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	map_files();
	for (int tag = 1; tag <= 2; tag++) {
		struct baton_trace_counter sent =
			counted(0, BATON_OPERATION_SEND, 1, tag);
		struct baton_trace_counter received =
			counted(1, BATON_OPERATION_RECV, 0, tag);

		assert_counts(&sent, EACH, EACH, 0);
		assert_counts(&received, EACH, EACH, 0);
	}
	for (uint32_t i = 0; i < files[0].header->handed.count; i++) {
		const struct baton_trace_operation *entry =
			at(&files[0], &files[0].header->handed, i);

		ck_assert_uint_eq(entry->serial, 0);
	}
	for (uint64_t i = 1, seen = 0; i <= files[0].header->serials; i++) {
		const struct baton_trace_operation *op = slot(0, i);

		if (op->serial != i)
			continue;
		ck_assert_uint_eq(op->state, BATON_STATE_ENDED);
		ck_assert_uint_ge(op->completed, op->enqueued);
		ck_assert_int_eq(op->status, BATON_OK);
		ck_assert_uint_eq(op->done_bytes, 1);
		ck_assert(++seen <= 256);
	}
	close_comms(2);
}
END_TEST

START_TEST(a_dump_names_the_command_that_tells_of_all_ranks)
{
	char said[4096] = "", words[200];
	int dump = memfd_create("dump", MFD_CLOEXEC);
	baton_request request;

	open_comms(2);
	ck_assert_int_eq(baton_comm_dump(comms[1], dump), BATON_OK);
	request = recv_from(1, 0, 5, 10);
	ck_assert_int_gt(pread(dump, said, sizeof(said) - 1, 0), 0);
	ck_assert_ptr_null(strstr(said, "baton trace"));
	ck_assert_int_eq(baton_comm_dump(comms[1], dump), BATON_OK);
	ck_assert_int_gt(pread(dump, said, sizeof(said) - 1, 0), 0);
	ck_assert_msg(strstr(said, "-r1.trace; who waits for whom") != NULL, "%s", said);
	snprintf(words, sizeof(words), "across ranks: baton trace %s --hang\n", trace_folder);
	ck_assert_ptr_nonnull(strstr(said, words));
	close(dump);
	finish(send_to(0, 1, 5, 10), BATON_OK);
	finish(request, BATON_OK);
	close_comms(2);
}
END_TEST

/* ---- on and off ---- */

START_TEST(calls_issue_operations_themselves_as_without)
{
	open_comms(2);
	ck_assert(comms[0]->plain);
	exchange(1, 10);
	map_files();
	ck_assert(nth_of_kind(0, "send", 0)->flags & BATON_TRACE_DIRECT);
	close_comms(2);
}
END_TEST

START_TEST(off_there_is_no_file_and_nothing_looks)
{
	unsetenv("BATON_TRACE");
	open_comms(2);
	ck_assert(comms[0]->plain);
	ck_assert(!comms[0]->observed);
	exchange(1, 10);
	ck_assert_uint_eq(map_files(), 0);
	close_comms(2);
}
END_TEST

/* All ranks say it with one voice. */
START_TEST(a_folder_that_is_not_there_is_no_trace)
{
	char said[2048] = "", *at;
	int log = memfd_create("log", MFD_CLOEXEC);

	ck_assert_int_ge(log, 0);
	setenv("BATON_TRACE", "/nonexistent/folder", 1);
	ck_assert_int_eq(dup2(log, STDERR_FILENO), STDERR_FILENO);
	open_comms(2);
	ck_assert_int_gt(pread(log, said, sizeof(said) - 1, 0), 0);
	at = strstr(said, "rank 0: BATON_TRACE: /nonexistent/folder: No such file or "
	                  "directory; 2 of 2 ranks keep no trace");
	ck_assert_ptr_nonnull(at);
	ck_assert_ptr_null(strstr(at + 10, "BATON_TRACE"));
	ck_assert_ptr_null(comms[0]->trace);
	exchange(1, 10);
	close_comms(2);
}
END_TEST

/* Which its owner may write, and nobody may execute. */
START_TEST(a_file_is_no_folder)
{
	char file[64], said[512] = "";
	int log = memfd_create("log", 0);

	snprintf(file, sizeof(file), "%s/file", trace_folder);
	close(open(file, O_WRONLY | O_CREAT, 0600));
	setenv("BATON_TRACE", file, 1);
	ck_assert_int_eq(dup2(log, STDERR_FILENO), STDERR_FILENO);
	open_comms(1);
	ck_assert_int_gt(pread(log, said, sizeof(said) - 1, 0), 0);
	ck_assert_ptr_nonnull(strstr(said, "/file: Not a directory; 1 of 1 ranks"));
	close_comms(1);
}
END_TEST

/* It would end the process (SIGXFSZ). */
START_TEST(a_limit_of_file_sizes_is_no_trace)
{
	const struct rlimit limit = {65536, 65536};

	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	open_comms(2);
	ck_assert_ptr_null(comms[0]->trace);
	ck_assert_uint_eq(map_files(), 0);
	exchange(1, 10);
	close_comms(2);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		an_operation_tells_its_life,
		the_ring_wraps_and_counters_do_not,
		an_end_leaves_a_slot_that_is_anothers,
		a_killed_process_leaves_a_readable_file,
		calls_that_are_refused_are_not_there,
		failures_have_their_status,
		receives_from_any_rank_move_to_the_rank_of_their_message,
		what_a_probe_has_found_is_there_and_counts_once,
		a_stream_wait_names_what_it_waits_for,
		what_a_probe_has_found_and_is_discarded_has_failed_once,
		signals_and_waits_have_their_index_and_number,
		groups_and_plans_are_parents,
		rounds_and_the_number_are_the_communicators,
		without_a_counter_stamps_are_of_passes,
		without_a_counter_rounds_end_when_they_end,
		what_is_called_beside_the_driver_is_there_at_once,
		a_group_that_ends_beside_the_driver_leaves_no_entry,
		a_function_that_runs_before_it_has_a_slot_is_armed,
		what_is_called_behind_a_function_has_not_run,
		a_function_that_waits_outlives_the_ring,
		threads_on_one_handle_lose_nothing,
		a_dump_names_the_command_that_tells_of_all_ranks,
		calls_issue_operations_themselves_as_without,
		off_there_is_no_file_and_nothing_looks,
		a_folder_that_is_not_there_is_no_trace,
		a_file_is_no_folder,
		a_limit_of_file_sizes_is_no_trace,
	};

	return RUN_TESTS_WITH("trace", tests, trace_folder_make, trace_folder_remove);
}
