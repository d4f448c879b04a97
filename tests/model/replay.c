/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One program against the library and the model.  One thread plays all ranks of a
 * local communicator; others drive, or not:
 *
 *   MODE_CALLS   the host device; nothing moves but by calls
 *   MODE_THREAD  the host device; the engine's thread takes part
 *   MODE_ASYNC   the fake asynchronous device, whose streams run by themselves
 *
 * After each call, what the model says has ended is waited for; then everything that
 * a program can see must be as in the model: requests, queues, streams, counters,
 * windows, and at the end the buffers.  In the last two modes nothing tells when an
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

#include "fake_device.h"
#include "testing.h"

/* For what other threads do.  Where there are none, calls have done it. */
#define PATIENCE_NS INT64_C(60000000000)
#define PATIENCE_CALLS_NS INT64_C(100000000)

struct replay {
	const struct program *program;
	enum replay_mode mode;
	struct model model;
	struct baton_comm *comms[RANKS_MAX];
	struct baton_queue *queues[RANKS_MAX];
	struct baton_window *windows[RANKS_MAX];
	unsigned char memory[RANKS_MAX][RANKS_MAX][CONTEXTS][PUT_BYTES_MAX];
	baton_stream streams[STREAMS];
	baton_request requests[STEPS_MAX]; /* 0: none was asked for */
	bool released[STEPS_MAX];
	bool queued[STEPS_MAX];
	bool delivered[STEPS_MAX];
	unsigned char (*buffers)[BYTES_MAX];
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

	one->status = one->registers
	                      ? baton_window_register(r->memory[one->rank],
	                                              sizeof(r->memory[0]),
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
	status = (r->mode == MODE_ASYNC ? open_async : baton_comm_create_local)(
		r->program->ranks, &options, r->comms);
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

static enum baton_status
call_operation(struct replay *r, int number)
{
	const struct step *step = &r->program->steps[number];
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_wait_signal_desc descs[DESCS_MAX];
	struct baton_comm *comm = r->comms[step->rank];
	baton_stream stream = r->streams[step->stream];
	/* A group is detached as a whole. */
	const struct step *first = r->model.group >= 0
	                                   ? &r->program->steps[r->model.group]
	                                   : step;
	bool wanted = r->mode != MODE_CALLS || !step->unobserved;
	baton_request *request_p = wanted ? &r->requests[number] : NULL;
	unsigned char *buffer = r->buffers[number];

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
			buffer[i] = model_byte(number, i);
	} else if (step->kind == STEP_RECV) {
		memset(buffer, 0xee, BYTES_MAX);
	}
	switch ((int)step->kind) {
	case STEP_SEND:
		return baton_send(buffer, step->bytes, BATON_UINT8, step->peer,
		                  step->tag, comm, stream, &options, request_p);
	case STEP_RECV:
		return baton_recv(buffer, step->bytes, BATON_UINT8, step->peer,
		                  step->tag, comm, stream, &options, request_p);
	case STEP_SIGNAL:
		return baton_signal(step->peer, step->signal, step->tag, 0,
		                    comm, stream, &options, request_p);
	case STEP_PUT:
		return baton_put_signal(
			buffer, step->bytes, BATON_UINT8, step->peer,
			r->windows[step->rank],
			(size_t)(step->rank * CONTEXTS + step->tag) *
				PUT_BYTES_MAX,
			step->signal, step->tag, 0, comm, stream, &options,
			request_p);
	case STEP_WAIT:
		return baton_wait_signal((size_t)step->desc_count, descs, comm,
		                         stream, &options, request_p);
	default:
		return baton_record(comm, stream, &options, request_p);
	}
}

/* A call on the handle of an earlier step; *skip: it is not to be made here. */
static enum baton_status
call_target(struct replay *r, const struct step *step, bool *skip)
{
	int target = step->target;
	baton_request request = r->requests[target];

	*skip = request == 0 ||
	        (step->kind == STEP_RELEASE && r->mode != MODE_CALLS &&
	         r->model.ops[target].state != OP_ENDED &&
	         r->model.ops[target].state != OP_VOID);
	if (*skip)
		return BATON_OK;
	if (step->kind == STEP_JOIN)
		return baton_stream_wait(r->comms[step->rank],
		                         r->streams[step->stream], request);
	if (step->kind == STEP_CANCEL)
		return baton_cancel(request);
	return baton_release(&request);
}

static enum baton_status
call(struct replay *r, int number, bool *skip)
{
	const struct step *step = &r->program->steps[number];
	struct baton_comm *comm = r->comms[step->rank];
	unsigned char nothing = 0;
	int begin;

	switch ((int)step->kind) {
	case STEP_JOIN:
	case STEP_CANCEL:
	case STEP_RELEASE:
		return call_target(r, step, skip);
	case STEP_GROUP_BEGIN:
		return baton_group_begin(comm);
	case STEP_GROUP_END:
		begin = r->model.group;
		return baton_group_end(r->comms[r->program->steps[begin].rank]);
	case STEP_REFUSED:
		return baton_send(&nothing, 1, BATON_UINT8, r->program->ranks,
		                  0, comm, r->streams[0], NULL, NULL);
	case STEP_ABORT:
		return baton_comm_abort(comm);
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

	/* What an abort ends may let a stream reach a record that it has yet to end. */
	bool either = step->kind == STEP_RECORD &&
	              op->status == BATON_ERR_ABORTED &&
	              seen->status == BATON_OK;

	if (seen->status != op->status && !either)
		return differ(r, "step %d ended in %s, and should in %s",
		              number, baton_status_name(seen->status),
		              baton_status_name(op->status));
	if (seen->user_data != (uint64_t)number)
		return differ(r, "step %d has the user data of step %llu",
		              number, (unsigned long long)seen->user_data);
	if (step->kind <= STEP_RECV &&
	    (seen->peer != step->peer || seen->tag != step->tag))
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
	for (int rank = 0; rank < r->program->ranks; rank++) {
		for (int peer = 0; peer < r->program->ranks; peer++) {
			for (int i = 0; i < SIGNALS * CONTEXTS; i++) {
				if (!check_counter(r, rank, peer, i / CONTEXTS,
				                   i % CONTEXTS))
					return false;
			}
		}
	}
	return memcmp(r->memory, r->model.windows, sizeof(r->memory)) == 0 ||
	       differ(r, "a window has other bytes than were put");
}

static bool
check_all(struct replay *r)
{
	if (r->mode == MODE_CALLS) {
		while (baton_progress(r->comms[0]))
			;
	}
	for (int i = 0; i < r->program->count; i++) {
		if (!check_request(r, i))
			return false;
	}
	for (int i = 0; i < r->program->ranks; i++) {
		if (!check_queue(r, i))
			return false;
	}
	for (int i = 0; i < STREAMS; i++) {
		if (!check_stream(r, i))
			return false;
	}
	return check_signals(r);
}

/* What a receive has in its buffer: the message, and nothing behind it. */
static bool
check_buffers(struct replay *r)
{
	for (int i = 0; i < r->program->count; i++) {
		const struct op *op = &r->model.ops[i];
		size_t from = op->status == BATON_OK
		                      ? op->bytes
		                      : r->program->steps[i].bytes;

		if (r->program->steps[i].kind != STEP_RECV ||
		    op->state != OP_ENDED)
			continue;
		for (size_t b = 0; op->status == BATON_OK && b < op->bytes; b++) {
			if (r->buffers[i][b] != model_byte(op->partner, b))
				return differ(r, "byte %zu of the receive %d is "
				                 "not that of the send %d",
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
replay_step(struct replay *r, int number)
{
	const struct step *step = &r->program->steps[number];
	bool names_target = step->kind == STEP_JOIN ||
	                    step->kind == STEP_CANCEL ||
	                    step->kind == STEP_RELEASE;
	enum baton_status status, should;
	bool skip = false;

	r->at = number;
	if (!model_applies(&r->model, number))
		return true;
	if (step->kind == STEP_ADVANCE)
		return advance(r, step->timeout_ns);
	status = call(r, number, &skip);
	if (skip)
		return true;
	if (names_target && is_stale(r, step->target) &&
	    !(step->kind == STEP_JOIN && r->model.aborted[step->rank]))
		should = BATON_ERR_STALE;
	else
		should = model_step(&r->model, number);
	if (status != should)
		return differ(r, "the call says %s (%s), and should %s",
		              baton_status_name(status),
		              status < 0 ? baton_last_error() : "",
		              baton_status_name(should));
	if (step->kind == STEP_RELEASE && status == BATON_OK)
		r->released[step->target] = true;
	if (step_is_operation(step) && status == BATON_OK)
		r->queued[number] = step->queued;
	model_settle(&r->model);
	return r->model.group >= 0 || check_all(r);
}

/* Cancel what can be cancelled, abort where something is left, and take it down. */
static bool
close_world(struct replay *r)
{
	bool aborts = false;

	r->at = r->program->count;
	if (r->model.group >= 0) {
		int begin = r->model.group;

		if (baton_group_end(r->comms[r->program->steps[begin].rank]) !=
		    model_end_group(&r->model))
			return differ(r, "the end of the last group");
		model_settle(&r->model);
	}
	for (int i = 0; i < r->program->count; i++) {
		const struct op *op = &r->model.ops[i];

		if (op->state == OP_NONE || op->state >= OP_ENDED)
			continue;
		if (r->program->steps[i].kind != STEP_RECORD &&
		    r->requests[i] && !is_stale(r, i)) {
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
		aborts |= r->model.aborted[i];
	for (int i = 0; aborts && i < r->program->ranks; i++) {
		if (baton_comm_abort(r->comms[i]) != BATON_OK)
			return differ(r, "abort: %s", baton_last_error());
		model_abort(&r->model, i);
		model_settle(&r->model);
		if (!check_all(r))
			return false;
	}
	if (!check_all(r) || !check_buffers(r) || !register_windows(r, false))
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

bool
replay(const struct program *program, enum replay_mode mode)
{
	static unsigned char buffers[STEPS_MAX][BYTES_MAX];
	static struct replay r;

	r = (struct replay){ .program = program, .mode = mode, .at = -1 };
	r.buffers = buffers;
	model_init(&r.model, program);
	atomic_store(&clock_ns, (uint64_t)r.model.now);
	batoni_clock_set(read_clock);
	if (!open_world(&r))
		return false;
	for (int i = 0; i < program->count; i++) {
		if (!replay_step(&r, i))
			return false;
	}
	return close_world(&r);
}
