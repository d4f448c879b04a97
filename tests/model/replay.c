/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One program against the library and the model.  One thread plays all ranks of a
 * local communicator; others drive, or not:
 *
 *   MODE_CALLS   the host device; nothing moves but by calls
 *   MODE_THREAD  the host device; the engine's thread takes part
 *   MODE_ASYNC   the fake asynchronous device, whose streams run by themselves
 *   MODE_CUDA    the CUDA device over its simulator
 *   MODE_STREAM  the fake stream-issued transport on it, with what that can do: messages
 *                of one length, without tags, that cannot be cancelled
 *
 * Some calls are made by several threads: a burst, where each thread has streams, tags and
 * contexts of its own, so that all orders end alike; and a race of two calls, where each
 * order has an end of its own, and what is seen must be one of those.
 *
 * The communicators of some programs are split off others, in another order of the ranks, and one rank has none.  Those
 * others have a receive that is pending all the while, and gets its message at the end.
 *
 * After each call, what the model says has ended is waited for; then everything that
 * a program can see must be as in the model: requests, queues, streams, counters,
 * windows, and at the end the buffers.  But for the first mode nothing tells when an
 * operation without a request has ended, so there all have one, and a pending one is
 * not released; and on the asynchronous device no call tells when an operation was
 * armed, so there are no deadlines.
 */
#include "model.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core.h"
#include "cudasim.h"
#include "fake_device.h"
#include "fake_transport.h"
#include "testing.h"

/* For what other threads do.  Where there are none, calls have done it. */
#define PATIENCE_NS INT64_C(60000000000)
#define PATIENCE_CALLS_NS INT64_C(100000000)

/* MODE_CUDA alone: the simulated driver, and STEPS_MAX buffers in memory of device 0. */
static const struct cudasim *sim;
static unsigned char *device_buffers;
static unsigned char *device_parts; /* likewise, of windows */

struct replay {
	const struct program *program;
	enum replay_mode mode;
	struct model model;
	struct baton_comm *comms[RANKS_MAX];
	/* Those that they were split off, of one rank more; a receive is pending there all the time. */
	struct baton_comm *parents[RANKS_MAX + 1];
	baton_stream parent_stream;
	baton_request parent_request;
	int parent_got;
	struct baton_queue *queues[RANKS_MAX];
	struct baton_window *windows[RANKS_MAX];
	unsigned char memory[RANKS_MAX][RANKS_MAX][CONTEXTS][PUT_BYTES_MAX];
	baton_stream streams[STREAMS];
	baton_request requests[STEPS_MAX]; /* 0: none was asked for */
	baton_message messages[STEPS_MAX]; /* of probes */
	/* What the model says of a step: the group that it is in, whether a call is to be
	 * made, and what that must return; and what it did. */
	int group_at[STEPS_MAX];
	bool applies[STEPS_MAX];
	enum baton_status should[STEPS_MAX], status[STEPS_MAX];
	bool released[STEPS_MAX];
	bool queued[STEPS_MAX];
	bool delivered[STEPS_MAX];
	unsigned char (*buffers)[BYTES_MAX];
	bool on_device; /* operations have those of device_buffers in place of them */
	bool parts_on_device; /* windows are in device_parts; memory is read from there */
	int at; /* the step */
	bool failed;
};

static _Atomic uint64_t clock_ns;

static uint64_t
read_clock(void)
{
	return atomic_load(&clock_ns);
}

static int64_t
patience(const struct replay *r)
{
	return r->mode == MODE_CALLS ? PATIENCE_CALLS_NS : PATIENCE_NS;
}

static int64_t
real_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

__attribute__((format(printf, 2, 3))) static bool
differ(struct replay *r, const char *format, ...)
{
	va_list arguments;

	if (r->failed)
		return false;
	r->failed = true;
	fprintf(stderr, "after step %d: ", r->at);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	return false;
}

/* ---- opening and closing ---- */

static enum baton_status
open_async(int size, const struct baton_comm_options *options,
           struct baton_comm *comms[])
{
	return batoni_comm_create_local_with(&batoni_fake_device_ops, size,
	                                     options, comms);
}

static enum baton_status
open_stream_issued(int size, const struct baton_comm_options *options,
                   struct baton_comm *comms[])
{
	struct batoni_transport *transports[RANKS_MAX];
	enum baton_status status = fake_transport_open(size, transports);

	return status == BATON_OK
	               ? batoni_comm_create_over(&batoni_fake_device_ops,
	                                         transports, size, options,
	                                         comms)
	               : status;
}

/* Every second program has its buffers in memory of the device, and every fourth its windows
 * too. */
static bool
open_cuda(struct replay *r)
{
	CUcontext context;
	CUdeviceptr memory, parts;

	r->on_device = r->program->seed % 2;
	r->parts_on_device = r->program->seed % 4 == 3;
	if (r->on_device && !device_buffers) {
		sim = cudasim_load(NULL);
		if (!sim || sim->init(0) || sim->primary_retain(&context, 0) ||
		    sim->context_push(context) ||
		    sim->mem_alloc(&memory, (size_t)STEPS_MAX * BYTES_MAX) ||
		    sim->mem_alloc(&parts, sizeof(r->memory)))
			return differ(r, "there is no simulated driver");
		device_buffers = (void *)(uintptr_t)memory;
		device_parts = (void *)(uintptr_t)parts;
	}
	if (r->parts_on_device)
		sim->sim_poke((CUdeviceptr)(uintptr_t)device_parts, r->memory,
		              sizeof(r->memory));
	return true;
}

struct registering {
	struct replay *replay;
	int rank;
	bool registers;
	enum baton_status status;
};

static void *
register_rank(void *arg)
{
	struct registering *one = arg;
	struct replay *r = one->replay;

	void *part = r->parts_on_device
	                     ? (void *)(device_parts +
	                                (size_t)one->rank * sizeof(r->memory[0]))
	                     : (void *)r->memory[one->rank];

	one->status = one->registers
	                      ? baton_window_register(part, sizeof(r->memory[0]),
	                                              r->comms[one->rank],
	                                              &r->windows[one->rank])
	                      : baton_window_deregister(r->windows[one->rank]);
	return NULL;
}

/* Collective, so each rank needs a thread. */
static bool
register_windows(struct replay *r, bool registers)
{
	struct registering ranks[RANKS_MAX];
	pthread_t threads[RANKS_MAX];

	if (r->program->issued)
		return true; /* it has none */
	for (int i = 0; i < r->program->ranks; i++) {
		ranks[i] = (struct registering){ r, i, registers, BATON_OK };
		if (pthread_create(&threads[i], NULL, register_rank, &ranks[i]))
			abort();
	}
	for (int i = 0; i < r->program->ranks; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < r->program->ranks; i++) {
		if (ranks[i].status != BATON_OK)
			return differ(r, "windows: %s",
			              baton_status_name(ranks[i].status));
	}
	return true;
}

struct splitting {
	struct replay *replay;
	int rank; /* of the parent */
	enum baton_status status;
	pthread_t thread;
};

/* Ranks in the order of their keys; the last one has no child. */
static void *
split_rank(void *arg)
{
	struct splitting *one = arg;
	struct replay *r = one->replay;
	int ranks = r->program->ranks;
	bool last = one->rank == ranks;
	struct baton_comm *child = NULL;

	one->status = baton_comm_split(r->parents[one->rank],
	                               last ? BATON_COLOR_NONE : 3, -one->rank,
	                               NULL, &child);
	if (!last)
		r->comms[ranks - 1 - one->rank] = child;
	else if (child)
		one->status = BATON_ERR_INVALID;
	return NULL;
}

static bool
split_world(struct replay *r)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	struct splitting ranks[RANKS_MAX + 1];
	int n = r->program->ranks + 1;

	detached.flags = BATON_OP_DETACHED;
	if (baton_stream_create(r->parents[0], &r->parent_stream) != BATON_OK ||
	    baton_recv(&r->parent_got, sizeof(r->parent_got), BATON_UINT8,
	               BATON_ANY_SOURCE, 0, r->parents[0], r->parent_stream,
	               &detached, &r->parent_request) != BATON_OK)
		return differ(r, "the parent: %s", baton_last_error());
	for (int i = 0; i < n; i++) {
		ranks[i] = (struct splitting){.replay = r, .rank = i};
		if (pthread_create(&ranks[i].thread, NULL, split_rank, &ranks[i]))
			abort();
	}
	for (int i = 0; i < n; i++)
		pthread_join(ranks[i].thread, NULL);
	for (int i = 0; i < n; i++) {
		if (ranks[i].status != BATON_OK)
			return differ(r, "split: %s",
			              baton_status_name(ranks[i].status));
	}
	for (int i = 0; i < n - 1; i++) {
		if (baton_comm_rank(r->comms[i]) != i ||
		    baton_comm_size(r->comms[i]) != n - 1)
			return differ(r, "split: rank %d is another", i);
	}
	return true;
}

/* What the program did to the children is nothing to it. */
static bool
meet_on_parent(struct replay *r)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	int last = r->program->ranks, sent = (int)r->program->seed;
	struct baton_completion done = {.peer = -1};
	enum baton_status status;

	detached.flags = BATON_OP_DETACHED;
	if (baton_test(r->parent_request, NULL) != BATON_PENDING)
		return differ(r, "the parent's receive has ended");
	if (baton_send(&sent, sizeof(sent), BATON_UINT8, 0, 0, r->parents[last],
	               r->parent_stream, &detached, NULL) != BATON_OK)
		return differ(r, "the parent: %s", baton_last_error());
	status = baton_finish(&r->parent_request, PATIENCE_NS, &done);
	if (status != BATON_OK || done.peer != last || r->parent_got != sent)
		return differ(r, "the parent's receive: %s, of rank %d",
		              baton_status_name(status), done.peer);
	return baton_stream_synchronize(r->parents[last], r->parent_stream) ==
	               BATON_OK ||
	       differ(r, "the parent's stream: %s", baton_last_error());
}

static bool
close_parents(struct replay *r)
{
	int n = r->program->split ? r->program->ranks + 1 : 0;

	if (n == 0)
		return true;
	if (!r->program->sick && !meet_on_parent(r))
		return false;
	for (int i = 0; i < n && r->program->sick; i++) {
		if (baton_comm_abort(r->parents[i]) != BATON_OK)
			return differ(r, "abort of a parent: %s", baton_last_error());
	}
	if (baton_stream_destroy(r->parents[0], r->parent_stream) != BATON_OK)
		return differ(r, "the parent's stream: %s", baton_last_error());
	for (int i = 0; i < n; i++) {
		if (baton_comm_destroy(r->parents[i]) != BATON_OK)
			return differ(r, "destroy of a parent: %s",
			              baton_last_error());
	}
	return true;
}

static bool
open_world(struct replay *r)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	enum baton_status status;

	options.requests_max = 2 * STEPS_MAX;
	options.signals_max = SIGNALS;
	options.contexts_max = CONTEXTS;
	options.progress = r->mode == MODE_CALLS ? BATON_PROGRESS_CALLS
	                                         : BATON_PROGRESS_AUTO;
	if (r->mode == MODE_CUDA) {
		options.device = BATON_DEVICE_CUDA;
		options.cuda_device = 0; /* streams serve all ranks */
		if (!open_cuda(r))
			return false;
	}
	status = (r->mode == MODE_STREAM  ? open_stream_issued
	          : r->mode == MODE_ASYNC ? open_async
	                                  : baton_comm_create_local)(
		r->program->ranks + r->program->split, &options,
		r->program->split ? r->parents : r->comms);
	if (status == BATON_OK && r->program->split && !split_world(r))
		return false;
	for (int i = 0; status == BATON_OK && i < r->program->ranks; i++)
		status = baton_queue_create(r->comms[i], STEPS_MAX,
		                            &r->queues[i]);
	for (int i = 0; status == BATON_OK && i < STREAMS; i++)
		status = baton_stream_create(r->comms[0], &r->streams[i]);
	if (status != BATON_OK)
		return differ(r, "opening: %s", baton_last_error());
	return register_windows(r, true);
}

/* ---- calls ---- */

static unsigned char *
buffer_of(const struct replay *r, int number)
{
	return r->on_device ? device_buffers + (size_t)number * BYTES_MAX
	                    : r->buffers[number];
}

/* What the receives of lists declare, and are told. */
static struct baton_tensor lists[STEPS_MAX][TENSORS_MAX];

static int
peer_of(const struct step *step)
{
	return step->any ? BATON_ANY_SOURCE : step->peer;
}

static int
tag_of(const struct step *step)
{
	return step->any_tag ? BATON_ANY_TAG : step->tag;
}

static enum baton_status
call_list(const struct replay *r, int number, baton_stream stream,
          const struct baton_op_options *op, baton_request *request_p)
{
	const struct step *step = &r->program->steps[number];
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_comm *comm = r->comms[step->rank];
	struct baton_tensor *list = lists[number];
	unsigned char *at = buffer_of(r, number);
	bool open = step->kind == STEP_RECV && step->open;

	options.op = *op;
	options.op.size = sizeof(options);
	if (open) {
		options.arena = at;
		options.arena_bytes = step->bytes;
	}
	for (int i = 0; i < step->tensors; i++) {
		list[i] = (struct baton_tensor){.rank = -1};
		if (!open)
			list[i] = (struct baton_tensor){
				.data = at,
				.type = BATON_UINT8,
				.rank = 1,
				.shape = {(int64_t)model_part(step, i)},
			};
		at += model_part(step, i);
	}
	if (step->kind == STEP_SEND)
		return baton_send_tensors(list, (size_t)step->tensors,
		                          step->peer, step->tag, comm, stream,
		                          &options, request_p);
	if (step->found)
		return baton_recv_message_tensors(list, (size_t)step->tensors,
		                                  r->messages[step->found - 1],
		                                  comm, stream, &options,
		                                  request_p);
	return baton_recv_tensors(list, (size_t)step->tensors, peer_of(step),
	                          tag_of(step), comm, stream, &options, request_p);
}

static enum baton_status
call_onesided(const struct replay *r, int number, void *buffer,
              const struct baton_op_options *options, baton_request *request_p)
{
	const struct step *step = &r->program->steps[number];
	struct baton_comm *comm = r->comms[step->rank];
	struct baton_window *window = r->windows[step->rank];
	baton_stream stream = r->streams[step->stream];
	size_t at = (size_t)(step->rank * CONTEXTS + step->tag) * PUT_BYTES_MAX;

	if (step->kind == STEP_FLUSH)
		return baton_flush(step->all ? BATON_ALL_PEERS : step->peer, 0,
		                   comm, stream, options, request_p);
	if (step->kind == STEP_GET)
		return baton_get(buffer, step->bytes, BATON_UINT8, step->peer,
		                 window, at, step->tag, 0, comm, stream, options,
		                 request_p);
	if (step->kind == STEP_PUT && step->silent)
		return baton_put(buffer, step->bytes, BATON_UINT8, step->peer,
		                 window, at, step->tag, 0, comm, stream, options,
		                 request_p);
	if (step->kind == STEP_PUT)
		return baton_put_signal(buffer, step->bytes, BATON_UINT8,
		                        step->peer, window, at, step->signal,
		                        step->tag, 0, comm, stream, options,
		                        request_p);
	if (step->units == 1)
		return baton_signal(step->peer, step->signal, step->tag, 0, comm,
		                    stream, options, request_p);
	return baton_signal_add(step->peer, step->signal, step->tag,
	                        (uint32_t)step->units, 0, comm, stream, options,
	                        request_p);
}

static enum baton_status
call_operation(struct replay *r, int number)
{
	const struct step *step = &r->program->steps[number];
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_wait_signal_desc descs[DESCS_MAX];
	struct baton_comm *comm = r->comms[step->rank];
	baton_stream stream = r->streams[step->stream];
	/* A group is detached as a whole. */
	const struct step *first = r->group_at[number] >= 0
	                                   ? &r->program->steps[r->group_at[number]]
	                                   : step;
	bool wanted = r->mode != MODE_CALLS || !step->unobserved;
	baton_request *request_p = wanted ? &r->requests[number] : NULL;
	unsigned char *here = r->buffers[number];
	unsigned char *buffer = buffer_of(r, number);

	options.flags = first->detached && step->kind != STEP_RECORD
	                        ? BATON_OP_DETACHED
	                        : 0;
	options.timeout_ns = step->kind == STEP_RECORD ? 0 : step->timeout_ns;
	options.user_data = (uint64_t)number;
	options.queue = step->queued ? r->queues[step->rank] : NULL;
	for (int i = 0; i < step->desc_count; i++)
		descs[i] = (struct baton_wait_signal_desc){
			step->descs[i].units, step->descs[i].peer,
			step->descs[i].signal, step->descs[i].context
		};
	if (step->kind == STEP_SEND || step->kind == STEP_PUT) {
		for (size_t i = 0; i < step->bytes; i++)
			here[i] = model_byte(number, i);
	} else if (step->kind == STEP_RECV || step->kind == STEP_GET) {
		memset(here, 0xee, BYTES_MAX);
	}
	if (r->on_device && step->kind <= STEP_PUT)
		sim->sim_poke((CUdeviceptr)(uintptr_t)buffer, here, BYTES_MAX);
	if (step->kind <= STEP_RECV && step->tensors > 0)
		return call_list(r, number, stream, &options, request_p);
	switch ((int)step->kind) {
	case STEP_SEND:
		return baton_send(buffer, step->bytes, BATON_UINT8, step->peer,
		                  step->tag, comm, stream, &options, request_p);
	case STEP_RECV:
		if (step->found)
			return baton_recv_message(buffer, step->bytes, BATON_UINT8,
			                          r->messages[step->found - 1],
			                          comm, stream, &options,
			                          request_p);
		return baton_recv(buffer, step->bytes, BATON_UINT8, peer_of(step),
		                  tag_of(step), comm, stream, &options, request_p);
	case STEP_SIGNAL:
	case STEP_GET:
	case STEP_PUT:
	case STEP_FLUSH:
		return call_onesided(r, number, buffer, &options, request_p);
	case STEP_WAIT:
		if (step->counts)
			return baton_wait_signal_count(
				descs->peer, descs->signal_index, descs->context,
				(uint64_t)(step->units - 1), comm, stream, &options,
				request_p);
		return baton_wait_signal((size_t)step->desc_count, descs, comm,
		                         stream, &options, request_p);
	default:
		return baton_record(comm, stream, &options, request_p);
	}
}

/* What the model finds may still be on its way here, if other threads have to issue it. */
static enum baton_status
call_probe(struct replay *r, int number)
{
	const struct step *step = &r->program->steps[number], *sent;
	struct baton_message_info info = {.size = sizeof(info)};
	int64_t begin = real_ns();
	enum baton_status status;

	do
		status = baton_probe(peer_of(step), tag_of(step),
		                     r->comms[step->rank], &r->messages[number],
		                     &info);
	while (status == BATON_PENDING && r->should[number] == BATON_OK &&
	       real_ns() - begin < patience(r));
	if (status != BATON_OK || r->should[number] != BATON_OK)
		return status;
	sent = &r->program->steps[r->model.ops[number].partner];
	if (info.peer != sent->rank || info.tag != sent->tag ||
	    info.bytes != sent->bytes || info.list != (sent->tensors > 0) ||
	    info.tensors != (unsigned)sent->tensors)
		differ(r, "the probe has found rank %d, tag %d, %zu bytes, %u "
		          "tensors",
		       info.peer, info.tag, info.bytes, info.tensors);
	return r->failed ? BATON_ERR_INVALID : BATON_OK;
}

/* A call on the handle of an earlier step. */
static enum baton_status
call_target(struct replay *r, const struct step *step)
{
	baton_request request = r->requests[step->target];

	if (step->kind == STEP_JOIN)
		return baton_stream_wait(r->comms[step->rank],
		                         r->streams[step->stream], request);
	if (step->kind == STEP_CANCEL)
		return baton_cancel(request);
	return baton_release(&request);
}

/* As a transport does that has failed. */
static enum baton_status
break_rank(struct baton_comm *comm)
{
	batoni_lock();
	comm->upcalls.broken(&comm->upcalls, BATON_ERR_MPI, "the test", 7,
	                     "it asked for this");
	batoni_unlock();
	return BATON_OK;
}

static enum baton_status
call_step(struct replay *r, int number)
{
	const struct step *step = &r->program->steps[number];
	struct baton_comm *comm = r->comms[step->rank];
	unsigned char nothing = 0;
	int begin;

	switch ((int)step->kind) {
	case STEP_JOIN:
	case STEP_CANCEL:
	case STEP_RELEASE:
		return call_target(r, step);
	case STEP_GROUP_BEGIN:
		return baton_group_begin(comm);
	case STEP_GROUP_END:
	case STEP_ABANDON:
		begin = r->group_at[number];
		return (step->kind == STEP_ABANDON ? baton_group_abandon
		                                   : baton_group_end)(
			r->comms[r->program->steps[begin].rank]);
	case STEP_REFUSED:
		return baton_send(&nothing, 1, BATON_UINT8, r->program->ranks,
		                  0, comm, r->streams[0], NULL, NULL);
	case STEP_ABORT:
		return baton_comm_abort(comm);
	case STEP_BREAK:
		return break_rank(comm);
	case STEP_FAULT:
		fake_device_fail_at(r->program->issued ? FAKE_KERNEL
		                                       : FAKE_ENQUEUE,
		                    (unsigned)step->units, BATON_ERR_CUDA);
		return BATON_OK;
	case STEP_PROBE:
		return call_probe(r, number);
	default:
		return call_operation(r, number);
	}
}

/* ---- what can be seen ---- */

static bool
is_stale(const struct replay *r, int number)
{
	return r->released[number] || r->delivered[number] ||
	       r->model.ops[number].state == OP_VOID;
}

static bool
check_completion(struct replay *r, int number,
                 const struct baton_completion *seen)
{
	const struct step *step = &r->program->steps[number];
	const struct op *op = &r->model.ops[number];

	/* What an abort ends may let a stream reach a record that it has yet to end, or,
	 * stream-issued, transfers that meet before the transport is told. */
	bool either = (step->kind == STEP_RECORD || r->program->issued) &&
	              seen->status == BATON_OK &&
	              (op->status == BATON_ERR_ABORTED ||
	               op->status == BATON_ERR_MPI);

	if (seen->status != op->status && !either)
		return differ(r, "step %d ended in %s, and should in %s",
		              number, baton_status_name(seen->status),
		              baton_status_name(op->status));
	if (seen->user_data != (uint64_t)number)
		return differ(r, "step %d has the user data of step %llu",
		              number, (unsigned long long)seen->user_data);
	if (step->kind <= STEP_RECV &&
	    (seen->peer != (step->any && op->partner < 0 ? BATON_ANY_SOURCE
	                                                 : step->peer) ||
	     seen->tag != (op->partner < 0 ? tag_of(step) : step->tag)))
		return differ(r, "step %d: peer %d, tag %d", number, seen->peer,
		              seen->tag);
	if (step->kind <= STEP_PUT &&
	    (op->status == BATON_OK || op->status == BATON_ERR_TRUNCATED) &&
	    seen->bytes != op->bytes)
		return differ(r, "step %d has %zu bytes, and should %zu",
		              number, seen->bytes, op->bytes);
	return true;
}

static bool
check_request(struct replay *r, int number)
{
	const struct op *op = &r->model.ops[number];
	struct baton_completion seen = { 0 };
	baton_request request = r->requests[number];
	enum baton_status status;

	if (!request || op->state == OP_NONE || op->state == OP_GROUPED ||
	    (r->queued[number] && op->state == OP_ENDED))
		return true;
	if (is_stale(r, number)) {
		status = baton_test(request, NULL);
		return status == BATON_ERR_STALE ||
		       differ(r, "step %d was given back, and baton_test says %s",
		              number, baton_status_name(status));
	}
	if (op->state == OP_ENDED) {
		status = baton_wait(request, patience(r), &seen);
		if (status == BATON_PENDING)
			return differ(r, "step %d does not end, and should in %s",
			              number, baton_status_name(op->status));
		if (status == BATON_ERR_STALE)
			return differ(r, "step %d is stale", number);
		return check_completion(r, number, &seen);
	}
	status = baton_test(request, &seen);
	return status == BATON_PENDING ||
	       differ(r, "step %d ended in %s, and should be pending", number,
	              baton_status_name(status));
}

static bool
all_delivered(const struct replay *r, int rank)
{
	for (int i = 0; i < r->program->count; i++) {
		if (r->queued[i] && r->program->steps[i].rank == rank &&
		    r->model.ops[i].state == OP_ENDED && !r->delivered[i])
			return false;
	}
	return true;
}

static bool
check_queue(struct replay *r, int rank)
{
	struct baton_completion seen;
	int64_t begin = real_ns();

	for (;;) {
		while (baton_queue_poll(r->queues[rank], &seen, 1)) {
			int number = (int)seen.user_data;

			if (number < 0 || number >= r->program->count ||
			    !r->queued[number] || r->delivered[number] ||
			    r->model.ops[number].state != OP_ENDED)
				return differ(r, "the queue of rank %d gave a "
				                 "completion of step %d: %s",
				              rank, number,
				              baton_status_name(seen.status));
			r->delivered[number] = true;
			if (!check_completion(r, number, &seen))
				return false;
		}
		if (all_delivered(r, rank))
			return true;
		if (real_ns() - begin > patience(r))
			return differ(r, "a completion is missing in the queue "
			                 "of rank %d",
			              rank);
		sched_yield();
	}
}

static bool
check_stream(struct replay *r, int stream)
{
	bool idle = r->model.streams[stream].count == 0;
	int64_t begin = real_ns();
	enum baton_status status;

	do {
		status = baton_stream_query(r->comms[0], r->streams[stream]);
		if (status == (idle ? BATON_OK : BATON_PENDING))
			return true;
	} while (idle && real_ns() - begin < patience(r));
	return differ(r, "stream %d is %s, and should not", stream,
	              status == BATON_OK ? "idle" : "busy");
}

static bool
check_counter(struct replay *r, int rank, int peer, int signal, int context)
{
	uint64_t should = r->model.counters[rank][peer][signal][context];
	uint64_t count = UINT64_MAX;
	int64_t begin = real_ns();

	do {
		baton_progress(r->comms[peer]);
		if (baton_signal_count(r->comms[rank], peer, signal, context,
		                       &count) != BATON_OK)
			break;
		if (count == should)
			return true;
	} while (count < should && real_ns() - begin < patience(r));
	return differ(r, "rank %d has %llu signals %d of rank %d in context %d, "
	                 "and should %llu",
	              rank, (unsigned long long)count, signal, peer, context,
	              (unsigned long long)should);
}

static bool
check_signals(struct replay *r)
{
	if (r->program->issued)
		return true;
	for (int rank = 0; rank < r->program->ranks; rank++) {
		for (int peer = 0; peer < r->program->ranks; peer++) {
			for (int i = 0; i < SIGNALS * CONTEXTS; i++) {
				if (!check_counter(r, rank, peer, i / CONTEXTS,
				                   i % CONTEXTS))
					return false;
			}
		}
	}
	if (r->parts_on_device)
		sim->sim_peek(r->memory,
		              (CUdeviceptr)(uintptr_t)device_parts,
		              sizeof(r->memory));
	return memcmp(r->memory, r->model.windows, sizeof(r->memory)) == 0 ||
	       differ(r, "a window has other bytes than were put");
}

static bool
check_ends(struct replay *r)
{
	for (int i = 0; i < r->program->count; i++) {
		if (!check_request(r, i))
			return false;
	}
	for (int i = 0; i < r->program->ranks; i++) {
		if (!check_queue(r, i))
			return false;
	}
	return true;
}

static bool
check_all(struct replay *r)
{
	if (r->mode == MODE_CALLS) {
		while (baton_progress(r->comms[0]))
			;
	}
	if (!check_ends(r))
		return false;
	for (int i = 0; i < STREAMS; i++) {
		if (!check_stream(r, i))
			return false;
	}
	return check_signals(r);
}

/* An open receive of a list is told what has come. */
static bool
check_told(struct replay *r, int number, const struct step *sent)
{
	for (int i = 0; i < sent->tensors; i++) {
		const struct baton_tensor *told = &lists[number][i];
		size_t needed;

		if (told->type != BATON_UINT8 || told->rank != 1 ||
		    told->shape[0] != (int64_t)model_part(sent, i) ||
		    (unsigned char *)told->data !=
		            buffer_of(r, number) + model_offset(sent, i, &needed))
			return differ(r, "tensor %d of the receive %d is another",
			              i, number);
	}
	return true;
}

/* What a receive of a list has in its buffer: nothing, unless it has ended in OK. */
static bool
check_list(struct replay *r, int number)
{
	static unsigned char wanted[BYTES_MAX];
	const struct op *op = &r->model.ops[number];
	const struct step *step = &r->program->steps[number], *sent;
	size_t at = 0, needed;

	memset(wanted, 0xee, sizeof(wanted));
	/* It was lent, or ended before its bytes had come. */
	if (op->status != BATON_OK && op->status != BATON_ERR_MISMATCH &&
	    op->status != BATON_ERR_TRUNCATED)
		return true;
	sent = &r->program->steps[op->partner];
	for (int i = 0; op->status == BATON_OK && i < step->tensors; i++) {
		size_t offset = step->open ? model_offset(sent, i, &needed) : at;

		for (size_t b = 0; b < model_part(sent, i); b++)
			wanted[offset + b] = model_byte(op->partner, at++);
	}
	for (size_t b = 0; b < BYTES_MAX; b++) {
		if (r->buffers[number][b] != wanted[b])
			return differ(r, "byte %zu of the list %d is not that of "
			                 "the send %d, or was to be left alone",
			              b, number, op->partner);
	}
	return op->status != BATON_OK || !step->open ||
	       check_told(r, number, sent);
}

/* The byte that a receive or get has there. */
static unsigned char
byte_of(const struct replay *r, int number, size_t b)
{
	return r->program->steps[number].kind == STEP_GET
	               ? r->model.got[number][b]
	               : model_byte(r->model.ops[number].partner, b);
}

/* What a receive or get has in its buffer: the message, and nothing behind it. */
static bool
check_buffers(struct replay *r)
{
	for (int i = 0; i < r->program->count; i++) {
		const struct op *op = &r->model.ops[i];
		size_t from = op->status == BATON_OK
		                      ? op->bytes
		                      : r->program->steps[i].bytes;

		if ((r->program->steps[i].kind != STEP_RECV &&
		     r->program->steps[i].kind != STEP_GET) ||
		    op->state != OP_ENDED)
			continue;
		if (r->on_device)
			sim->sim_peek(r->buffers[i],
			              (CUdeviceptr)(uintptr_t)buffer_of(r, i),
			              BYTES_MAX);
		if (r->program->steps[i].kind == STEP_RECV &&
		    r->program->steps[i].tensors > 0) {
			if (!check_list(r, i))
				return false;
			continue;
		}
		for (size_t b = 0; op->status == BATON_OK && b < op->bytes; b++) {
			if (r->buffers[i][b] != byte_of(r, i, b))
				return differ(r, "byte %zu of the receive or get "
				                 "%d is not that of the send %d",
				              b, i, op->partner);
		}
		for (size_t b = from; b < BYTES_MAX; b++) {
			if (r->buffers[i][b] != 0xee)
				return differ(r, "byte %zu of the receive %d "
				                 "was written, behind its %zu",
				              b, i, from);
		}
	}
	return true;
}

/* ---- a program ---- */

/* From one deadline to the next: what one that passes brings about happens before
 * the clock goes on. */
static bool
advance(struct replay *r, int64_t by)
{
	int64_t end = r->model.now + by;

	while (r->model.now < end) {
		int64_t next = model_next_deadline(&r->model);

		if (next > end)
			next = end;
		/* These take what the engine's thread has in its hands. */
		for (int i = 0; i < STREAMS; i++)
			baton_stream_query(r->comms[0], r->streams[i]);
		atomic_store(&clock_ns, (uint64_t)next);
		model_advance(&r->model, next);
		model_settle(&r->model);
		if (!check_all(r))
			return false;
	}
	return true;
}

static bool
names_target(const struct step *step)
{
	return step->kind == STEP_JOIN || step->kind == STEP_CANCEL ||
	       step->kind == STEP_RELEASE;
}

/* Is there no handle to call with, or one that this mode does not release? */
static bool
lacks_target(const struct replay *r, const struct step *step)
{
	const struct op *op = &r->model.ops[step->target];

	return names_target(step) &&
	       (r->requests[step->target] == 0 ||
	        (step->kind == STEP_RELEASE && r->mode != MODE_CALLS &&
	         op->state != OP_ENDED && op->state != OP_VOID));
}

/* Let the model make the step, and note what it says of it. */
static bool
foresee(struct replay *r, int number)
{
	const struct step *step = &r->program->steps[number];

	r->applies[number] = model_applies(&r->model, number) &&
	                     !lacks_target(r, step);
	if (!r->applies[number])
		return false;
	r->group_at[number] = r->model.group;
	if (names_target(step) && is_stale(r, step->target) &&
	    !(step->kind == STEP_JOIN &&
	      r->model.broken[step->rank] != BATON_OK))
		r->should[number] = BATON_ERR_STALE;
	else
		r->should[number] = model_step(&r->model, number);
	return true;
}

/* The call has been made. */
static bool
conclude(struct replay *r, int number)
{
	const struct step *step = &r->program->steps[number];
	enum baton_status status = r->status[number];

	r->at = number;
	if (status != r->should[number])
		return differ(r, "the call says %s (%s), and should %s",
		              baton_status_name(status),
		              status < 0 ? baton_last_error() : "",
		              baton_status_name(r->should[number]));
	if (step->kind == STEP_RELEASE && status == BATON_OK)
		r->released[step->target] = true;
	if (step_is_operation(step) && status == BATON_OK)
		r->queued[number] = step->queued;
	return true;
}

static bool
replay_step(struct replay *r, int number)
{
	r->at = number;
	if (r->program->steps[number].kind == STEP_ADVANCE)
		return !model_applies(&r->model, number) ||
		       advance(r, r->program->steps[number].timeout_ns);
	if (!foresee(r, number))
		return true;
	r->status[number] = call_step(r, number);
	if (!conclude(r, number))
		return false;
	model_settle(&r->model);
	return r->model.group >= 0 || check_all(r);
}

/* Threads call at the same time: which enqueue of the device would fail? */
static void
disarm(struct replay *r)
{
	r->model.fault = 0;
	fake_device_fail_at(FAKE_ENQUEUE, 0, BATON_OK);
	fake_device_fail_at(FAKE_KERNEL, 0, BATON_OK);
}

/* ---- bursts ---- */

struct lane {
	struct replay *replay;
	int first, end, stream;
	pthread_barrier_t *start;
	pthread_t thread;
};

/* A group that is open at the end is left to the exit of this thread. */
static void *
run_lane(void *arg)
{
	struct lane *lane = arg;
	struct replay *r = lane->replay;

	pthread_barrier_wait(lane->start);
	for (int i = lane->first; i < lane->end; i++) {
		if (r->program->steps[i].stream == lane->stream && r->applies[i])
			r->status[i] = call_step(r, i);
	}
	return NULL;
}

/* The model makes the calls of one thread after those of another; any other order ends
 * the same. */
static void
foresee_lane(struct replay *r, int first, int end, int stream)
{
	for (int i = first; i < end; i++) {
		if (r->program->steps[i].stream == stream)
			foresee(r, i);
	}
	model_exit(&r->model);
}

static bool
replay_burst(struct replay *r, int first, int end)
{
	struct lane lanes[STREAMS];
	pthread_barrier_t start;

	if (r->model.group >= 0)
		return true; /* its end was left out by shrinking */
	disarm(r);
	pthread_barrier_init(&start, NULL, STREAMS);
	for (int i = 0; i < STREAMS; i++)
		foresee_lane(r, first, end, i);
	for (int i = 0; i < STREAMS; i++) {
		lanes[i] = (struct lane){ r, first, end, i, &start, 0 };
		if (pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]))
			abort();
	}
	for (int i = 0; i < STREAMS; i++)
		pthread_join(lanes[i].thread, NULL);
	pthread_barrier_destroy(&start);
	for (int i = first; i < end; i++) {
		if (r->applies[i] && !conclude(r, i))
			return false;
	}
	r->at = end - 1;
	model_settle(&r->model);
	return check_all(r);
}

/* ---- races ---- */

/*
 * Two calls at the same time: x (a cancel, an abort, a deadline that passes) and y (an
 * operation).  Each order has an end of its own.  What is seen afterwards must be the end
 * of one of them, as a whole.  Where nothing that can be seen tells two ends apart, the
 * calls are made one after the other instead.
 */
#define ORDERS 3

struct race {
	struct replay *replay;
	int x, y;
	int64_t now; /* to which x moves the clock */
	pthread_barrier_t start;
	int count; /* of the ends that are left */
	struct {
		struct model model;
		enum baton_status y;
	} ends[ORDERS];
};

static void
model_x(const struct race *race, struct model *model)
{
	if (race->replay->program->steps[race->x].kind == STEP_ADVANCE)
		model_advance(model, race->now);
	else
		model_step(model, race->x);
}

/* y may be called before x, and yet not be there when x comes. */
static void
find_end(struct race *race, int order)
{
	struct model *model = &race->ends[order].model;

	*model = race->replay->model;
	if (order == 0) {
		model_x(race, model);
		model_settle(model);
	}
	race->ends[order].y = model_step(model, race->y);
	if (order == 1)
		model_settle(model);
	if (order > 0)
		model_x(race, model);
	model_settle(model);
}

static bool
can_see(const struct replay *r, const struct race *race, int number)
{
	const struct step *step = &r->program->steps[number];

	if (step->kind == STEP_RECORD)
		return false; /* see check_completion */
	if (number == race->y)
		return r->mode != MODE_CALLS || !step->unobserved;
	return r->requests[number] && !is_stale(r, number);
}

/* An operation that has ended in both, each time in another way; or -1. */
static int
telltale(const struct race *race, int a, int b)
{
	const struct op *x = race->ends[a].model.ops;
	const struct op *y = race->ends[b].model.ops;

	for (int i = 0; i < race->replay->program->count; i++) {
		if (x[i].state == OP_ENDED && y[i].state == OP_ENDED &&
		    x[i].status != y[i].status &&
		    can_see(race->replay, race, i))
			return i;
	}
	return -1;
}

static bool
same_end(const struct race *race, int a, int b)
{
	return race->ends[a].y == race->ends[b].y &&
	       model_equal(&race->ends[a].model, &race->ends[b].model);
}

/* Keep the ends that are like none before them. */
static void
drop_copies(struct race *race)
{
	int kept = 0;

	for (int i = 0; i < race->count; i++) {
		bool copy = false;

		for (int k = 0; k < kept; k++)
			copy |= same_end(race, k, i);
		if (!copy)
			race->ends[kept++] = race->ends[i];
	}
	race->count = kept;
}

static bool
can_tell_apart(const struct race *race)
{
	for (int a = 0; a < race->count; a++) {
		for (int b = 0; b < a; b++) {
			if (race->ends[a].y == race->ends[b].y &&
			    telltale(race, a, b) < 0)
				return false;
		}
	}
	return true;
}

/* Nothing is copied by halves, and no deadline begins while the clock moves. */
static bool
is_simple(const struct race *race)
{
	const struct replay *r = race->replay;
	bool moves = r->program->steps[race->x].kind == STEP_ADVANCE;

	for (int i = 0; i < r->program->count; i++) {
		const struct step *step = &r->program->steps[i];

		if (i != race->y && (r->model.ops[i].state == OP_NONE ||
		                     r->model.ops[i].state >= OP_ENDED))
			continue;
		if (step->bytes > 64 && step->kind <= STEP_RECV)
			return false;
		if (moves && step->timeout_ns &&
		    r->model.ops[i].state != OP_ARMED &&
		    r->model.ops[i].state != OP_ISSUED)
			return false;
	}
	return true;
}

/* An abort may come when y has had some of its effects and not yet all: a trigger of an
 * asynchronous device is late; a wait may end as it would have, and what is behind it be
 * aborted.  Without those, y has all of them within its call, or none. */
static bool
is_ended_at_once(const struct replay *r, int rank)
{
	for (int i = 0; i < r->program->count; i++) {
		const struct step *step = &r->program->steps[i];

		if (step->kind == STEP_WAIT && step->rank == rank &&
		    r->model.ops[i].state != OP_NONE &&
		    r->model.ops[i].state < OP_ENDED)
			return false;
	}
	return r->mode != MODE_ASYNC && r->mode != MODE_CUDA;
}

static bool
may_race(struct race *race)
{
	const struct replay *r = race->replay;
	const struct step *x = &r->program->steps[race->x];
	const struct step *y = &r->program->steps[race->y];

	if (!x->raced || race->y >= r->program->count || r->model.group >= 0 ||
	    y->burst || !step_is_operation(y) ||
	    !model_applies(&r->model, race->x) ||
	    !model_applies(&r->model, race->y) || !is_simple(race))
		return false;
	race->now = model_next_deadline(&r->model);
	switch ((int)x->kind) {
	case STEP_CANCEL:
		return !lacks_target(r, x) && !is_stale(r, x->target) &&
		       r->model.ops[x->target].state != OP_ENDED &&
		       r->program->steps[x->target].kind != STEP_RECORD;
	case STEP_ADVANCE:
		return race->now <= r->model.now + x->timeout_ns;
	case STEP_ABORT:
	case STEP_BREAK:
		return is_ended_at_once(r, x->rank);
	default:
		return false;
	}
}

static void *
call_x(void *arg)
{
	struct race *race = arg;
	struct replay *r = race->replay;

	pthread_barrier_wait(&race->start);
	if (r->program->steps[race->x].kind == STEP_ADVANCE) {
		atomic_store(&clock_ns, (uint64_t)race->now);
		baton_progress(r->comms[0]);
	} else {
		r->status[race->x] = call_step(r, race->x);
	}
	return NULL;
}

static void
make_calls(struct race *race)
{
	struct replay *r = race->replay;
	pthread_t thread;

	/* These take what the engine's thread has in its hands. */
	for (int i = 0; i < STREAMS; i++)
		baton_stream_query(r->comms[0], r->streams[i]);
	r->group_at[race->y] = -1;
	r->status[race->x] = r->should[race->x] = BATON_OK;
	pthread_barrier_init(&race->start, NULL, 2);
	if (pthread_create(&thread, NULL, call_x, race))
		abort();
	pthread_barrier_wait(&race->start);
	r->status[race->y] = call_step(r, race->y);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&race->start);
}

/* Which end was it?  At least one is left, or it differs from all. */
static bool
find_out(struct race *race)
{
	struct replay *r = race->replay;
	int kept = 0;

	for (int i = 0; i < race->count; i++) {
		if (race->ends[i].y == r->status[race->y])
			race->ends[kept++] = race->ends[i];
	}
	while (kept > 1) {
		int at = telltale(race, 0, kept - 1);
		enum baton_status status =
			baton_wait(r->requests[at], patience(r), NULL);

		race->count = kept;
		kept = 0;
		for (int i = 0; i < race->count; i++) {
			if (race->ends[i].model.ops[at].status == status)
				race->ends[kept++] = race->ends[i];
		}
		if (kept == 0)
			return differ(r, "step %d ended in %s, which no order "
			                 "of the two calls explains",
			              at, baton_status_name(status));
	}
	if (kept == 0)
		return differ(r, "the call beside it says %s, which no order "
		                 "explains",
		              baton_status_name(r->status[race->y]));
	return true;
}

/* *raced_p: the step and the next one were made. */
static bool
replay_race(struct replay *r, int number, bool *raced_p)
{
	static struct race race;
	const struct step *x = &r->program->steps[number];
	int64_t left = r->model.now + x->timeout_ns;

	race.replay = r;
	race.x = number;
	race.y = number + 1;
	*raced_p = may_race(&race);
	if (!*raced_p)
		return true;
	disarm(r);
	race.count = ORDERS;
	for (int i = 0; i < ORDERS; i++)
		find_end(&race, i);
	drop_copies(&race);
	*raced_p = can_tell_apart(&race);
	if (!*raced_p)
		return true;
	r->at = race.y;
	make_calls(&race);
	if (!find_out(&race))
		return false;
	r->model = race.ends[0].model;
	r->should[race.y] = race.ends[0].y;
	if (!conclude(r, race.x) || !conclude(r, race.y) || !check_all(r))
		return false;
	return x->kind != STEP_ADVANCE || advance(r, left - r->model.now);
}

static bool
take_down(struct replay *r)
{
	if (!check_buffers(r) || !register_windows(r, false))
		return false;
	for (int i = 0; i < r->program->ranks; i++)
		baton_queue_destroy(r->queues[i]);
	for (int i = 0; i < STREAMS; i++) {
		if (baton_stream_destroy(r->comms[0], r->streams[i]) != BATON_OK)
			return differ(r, "stream: %s", baton_last_error());
	}
	for (int i = 0; i < r->program->ranks; i++) {
		if (baton_comm_destroy(r->comms[i]) != BATON_OK)
			return differ(r, "destroy: %s", baton_last_error());
	}
	return true;
}

static bool
close_group(struct replay *r)
{
	int begin = r->model.group;

	r->at = r->program->count;
	if (begin < 0)
		return true;
	if (baton_group_end(r->comms[r->program->steps[begin].rank]) !=
	    model_end_group(&r->model))
		return differ(r, "the end of the last group");
	model_settle(&r->model);
	return check_all(r);
}

/* Its sender waits for it, and this thread destroys one communicator after the other. */
static bool
discard_found(struct replay *r)
{
	for (int i = 0; i < r->program->count; i++) {
		const struct op *op = &r->model.ops[i];
		baton_request request = BATON_REQUEST_NULL;

		if (r->program->steps[i].kind != STEP_PROBE ||
		    op->partner < 0 || op->taken)
			continue;
		if (baton_recv_message(NULL, 0, BATON_UINT8, r->messages[i],
		                       r->comms[r->program->steps[i].rank],
		                       r->streams[0], NULL, &request) != BATON_OK ||
		    baton_finish(&request, patience(r), NULL) == BATON_PENDING)
			return differ(r, "the message of %d is not discarded: %s",
			              i, baton_last_error());
		model_discard(&r->model, i);
	}
	return true;
}

/* Cancel what can be cancelled, abort where something is left, and take it down. */
static bool
close_world(struct replay *r)
{
	bool aborts = r->program->issued; /* its ranks leave together else */

	for (int i = 0; i < r->program->count; i++) {
		const struct op *op = &r->model.ops[i];

		if (op->state == OP_NONE || op->state >= OP_ENDED)
			continue;
		if (r->program->steps[i].kind != STEP_RECORD &&
		    r->requests[i] && !is_stale(r, i) && !r->program->issued) {
			if (baton_cancel(r->requests[i]) != BATON_OK)
				return differ(r, "cancel: %s",
				              baton_last_error());
			model_cancel(&r->model, i);
			model_settle(&r->model);
			if (!check_all(r))
				return false;
		} else {
			aborts = true;
		}
	}
	for (int i = 0; i < r->program->ranks; i++)
		aborts |= r->model.broken[i] != BATON_OK;
	if (!aborts && !discard_found(r))
		return false;
	for (int i = 0; aborts && i < r->program->ranks; i++) {
		if (baton_comm_abort(r->comms[i]) != BATON_OK)
			return differ(r, "abort: %s", baton_last_error());
		model_break(&r->model, i, BATON_ERR_ABORTED);
		if (r->program->issued)
			continue; /* what is let go on meets the next abort */
		model_settle(&r->model);
		if (!check_all(r))
			return false;
	}
	model_settle(&r->model);
	return check_all(r) && take_down(r) && close_parents(r);
}

/* The device has a sticky error: what is pending ends with it, and all can be taken down
 * though no stream goes on. */
static bool
close_sick_world(struct replay *r)
{
	r->at = r->program->count;
	fake_device_break();
	for (int i = 0; i < r->program->ranks; i++) {
		bool pending = model_is_pending(&r->model, i);

		/* A call of the device that fails makes the engine look. */
		baton_stream_query(r->comms[i], r->streams[0]);
		if (pending)
			model_break(&r->model, i, BATON_ERR_CUDA);
	}
	if (!check_ends(r))
		return false;
	for (int i = 0; i < r->program->ranks; i++) {
		if (baton_comm_abort(r->comms[i]) != BATON_OK)
			return differ(r, "abort: %s", baton_last_error());
		model_break(&r->model, i, BATON_ERR_ABORTED);
	}
	if (!check_ends(r) || !take_down(r) || !close_parents(r))
		return false;
	fake_device_heal();
	return true;
}

/* Makes the step, and those that belong to it.  Returns the next one, or -1. */
static int
replay_from(struct replay *r, int number)
{
	int burst = r->program->steps[number].burst, end = number + 1;
	bool raced;

	if (burst) {
		while (end < r->program->count &&
		       r->program->steps[end].burst == burst)
			end++;
		return replay_burst(r, number, end) ? end : -1;
	}
	if (!replay_race(r, number, &raced))
		return -1;
	if (raced)
		return number + 2;
	return replay_step(r, number) ? number + 1 : -1;
}

bool
replay(const struct program *program, enum replay_mode mode)
{
	static unsigned char buffers[STEPS_MAX][BYTES_MAX];
	static struct replay r;
	int violations = fake_device_violations();

	r = (struct replay){ .program = program, .mode = mode, .at = -1 };
	r.buffers = buffers;
	model_init(&r.model, program);
	atomic_store(&clock_ns, (uint64_t)r.model.now);
	batoni_clock_set(read_clock);
	if (!open_world(&r))
		return false;
	for (int i = 0; i < program->count;) {
		i = replay_from(&r, i);
		if (i < 0)
			return false;
	}
	disarm(&r);
	if (!close_group(&r) ||
	    !(program->sick ? close_sick_world : close_world)(&r))
		return false;
	return fake_device_violations() == violations ||
	       differ(&r, "the device's contract was broken");
}
