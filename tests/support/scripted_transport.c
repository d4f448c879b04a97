/* SPDX-License-Identifier: BSD-3-Clause */
#include "scripted_transport.h"

#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "list.h"
#include "mem.h"

static struct scripted *
to_scripted(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct scripted, base);
}

static void
note(struct scripted *s, const char *sign, const struct batoni_transfer *t)
{
	size_t length = strlen(s->log);

	snprintf(s->log + length, sizeof(s->log) - length, "%s%c%d ", sign,
	         t->direction == BATONI_SEND ? 's' : 'r', t->tag);
}

/* ---- the slots ---- */

static enum baton_status
scripted_issue(struct batoni_path *path,
               struct batoni_transfer *transfer)
{
	struct scripted *s = to_scripted(batoni_transport_of(path));
	enum baton_status status = s->issue;

	note(s, "", transfer);
	s->issues++;
	if (s->on_issue)
		s->on_issue(s, transfer);
	if (s->fail_at && --s->fail_at == 0) {
		status = s->fail_with;
		transfer->native_call = "scripted_issue";
		transfer->native_code = 77;
	}
	ck_assert_uint_lt(transfer->slot, SCRIPTED_SLOTS);
	ck_assert_ptr_null(atomic_load(&s->live[transfer->slot]));
	if (status == BATON_PENDING) {
		s->live[transfer->slot] = transfer;
		s->base.messages.load.in_flight++;
	} else {
		batoni_transfer_moved(transfer, transfer->bytes);
	}
	return status;
}

static void
forget(struct scripted *s, struct batoni_transfer *transfer)
{
	ck_assert_ptr_eq(atomic_load(&s->live[transfer->slot]), transfer);
	s->live[transfer->slot] = NULL;
	s->base.messages.load.in_flight--;
}

void
scripted_end_now(struct scripted *s, struct batoni_transfer *transfer,
                 size_t bytes, enum baton_status status)
{
	forget(s, transfer);
	batoni_transfer_moved(transfer, bytes);
	s->base.upcalls->done(s->base.upcalls, transfer, status);
}

static size_t
scripted_test(struct batoni_path *path)
{
	struct scripted *s = to_scripted(batoni_transport_of(path));
	size_t n, events = s->test_events;
	enum baton_status fatal;

	atomic_fetch_add(&s->tests, 1);
	if (s->on_test)
		s->on_test(s, NULL);
	if (s->signals)
		sem_post(&s->tested);
	pthread_mutex_lock(&s->lock);
	n = s->ends_n;
	s->ends_n = 0;
	fatal = s->fatal;
	s->fatal = BATON_OK;
	for (size_t i = 0; i < n; i++)
		scripted_end_now(s, s->ends[i].transfer, s->ends[i].bytes,
		                 s->ends[i].status);
	pthread_mutex_unlock(&s->lock);
	if (fatal != BATON_OK)
		s->base.upcalls->broken(s->base.upcalls, fatal, s->fatal_call,
		                     s->fatal_code, s->fatal_text);
	return events + n;
}

static enum baton_status
scripted_take_back(struct batoni_path *path,
                   struct batoni_transfer *transfer)
{
	struct scripted *s = to_scripted(batoni_transport_of(path));

	note(s, "-", transfer);
	s->take_backs++;
	if (s->on_take_back)
		s->on_take_back(s, transfer);
	ck_assert_ptr_eq(atomic_load(&s->live[transfer->slot]), transfer);
	if (s->take_back != BATON_ERR_BUSY) {
		forget(s, transfer);
		batoni_transfer_moved(transfer, transfer->bytes);
	}
	return s->take_back;
}

static enum baton_status
scripted_leave(struct batoni_transport *transport)
{
	struct scripted *s = to_scripted(transport);

	s->leaves++;
	return s->leave;
}

static enum baton_status
scripted_clear(struct batoni_transport *transport)
{
	struct scripted *s = to_scripted(transport);

	ck_assert_uint_gt(s->leaves, 0);
	s->clears++;
	return s->clear;
}

static void
scripted_transport_close(struct batoni_transport *transport, bool aborted)
{
	struct scripted *s = to_scripted(transport);

	ck_assert(!s->closed);
	if (s->moves_at_close)
		s->base.upcalls->moves(s->base.upcalls);
	s->closed = true;
	s->closed_aborted = aborted;
}

static void
scripted_error_text(struct batoni_transport *transport, int code, char *text,
                    size_t size)
{
	(void)transport;
	snprintf(text, size, "scripted error %d", code);
}

static size_t
scripted_await_peer(struct batoni_path *path, struct batoni_transfer *transfer,
                    unsigned looks)
{
	struct scripted *s = to_scripted(batoni_transport_of(path));
	uint32_t slot = transfer->slot;

	(void)looks;
	if (s->on_await)
		s->on_await(s, transfer);
	return atomic_load(&s->live[slot]) ? 0 : 1;
}

static const struct batoni_path_ops messages_ops = {
	.name = "the scripted transport",
	.kinds = BATONI_MESSAGES,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = scripted_issue,
		.take_back = scripted_take_back,
	},
	.awaiting = &(const struct batoni_awaiting_ops){.await = scripted_await_peer},
	.test = scripted_test,
};

static const struct batoni_transport_ops scripted_ops = {
	.name = "scripted",
	.id = BATON_TRANSPORT_LOCAL,
	.leave = scripted_leave,
	.clearing = &(const struct batoni_clearing_ops){.clear = scripted_clear},
	.close = scripted_transport_close,
	.texts = &(const struct batoni_text_ops){.error_text = scripted_error_text},
};

/* ---- for tests ---- */

void
scripted_init(struct scripted *s)
{
	memset(s, 0, sizeof(*s));
	s->base.ops = &scripted_ops;
	s->base.messages.ops = &messages_ops;
	s->base.size = 4;
	s->base.tag_max = 1 << 20;
	s->base.capabilities = BATON_CAP_TAGS | BATON_CAP_CANCEL;
	s->base.drivers = BATONI_DRIVERS_ANY;
	s->base.main_thread = pthread_self();
	s->issue = BATON_PENDING;
	s->take_back = BATON_ERR_CANCELED;
	s->leave = BATON_OK;
	s->clear = BATON_OK;
	pthread_mutex_init(&s->lock, NULL);
	sem_init(&s->tested, 0, 0);
}

struct baton_comm_options
scripted_options(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.requests_max = 16;
	options.progress = BATON_PROGRESS_CALLS;
	return options;
}

struct baton_comm *
scripted_comm(struct scripted *s, const struct baton_comm_options *options)
{
	const struct baton_comm_options defaults = scripted_options();
	struct batoni_transport *transport = &s->base;
	struct baton_comm *comm = NULL;

	ck_assert_int_eq(batoni_comm_create_over(&batoni_device_host_ops,
	                                         &transport, 1,
	                                         options ? options : &defaults,
	                                         &comm),
	                 BATON_OK);
	return comm;
}

void
scripted_close(struct scripted *s, struct baton_comm *comm)
{
	if (s->base.messages.load.in_flight)
		ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert(s->closed);
	pthread_mutex_destroy(&s->lock);
	sem_destroy(&s->tested);
}

static char buffer[8]; /* nothing is moved */

baton_request
scripted_send(struct baton_comm *comm, baton_stream stream, int tag,
              const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	ck_assert_int_eq(baton_send(buffer, sizeof(buffer), BATON_UINT8, 1, tag,
	                            comm, stream, options, &request),
	                 BATON_OK);
	return request;
}

baton_request
scripted_recv(struct baton_comm *comm, baton_stream stream, int tag,
              const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	ck_assert_int_eq(baton_recv(buffer, sizeof(buffer), BATON_UINT8, 1, tag,
	                            comm, stream, options, &request),
	                 BATON_OK);
	return request;
}

baton_stream
scripted_stream(struct baton_comm *comm)
{
	baton_stream stream = NULL;

	ck_assert_int_eq(baton_stream_create(comm, &stream), BATON_OK);
	return stream;
}

void
scripted_stream_close(baton_stream stream)
{
	static const struct batoni_device_config config;
	const struct batoni_device_ops *ops = &batoni_device_host_ops;
	struct batoni_device *device = NULL;

	if (!stream)
		return;
	ck_assert_int_eq(ops->open(&config, &device), BATON_OK);
	ck_assert_int_eq(ops->stream_destroy(device, stream), BATON_OK);
	ops->close(device);
}

void
scripted_assert_ended(baton_request request, enum baton_status status)
{
	struct baton_completion completion;

	ck_assert_int_eq(baton_test(request, &completion), status);
	ck_assert_int_eq(completion.status, status);
	ck_assert_uint_eq(completion.flags, 0);
	ck_assert_int_eq(baton_release(&request), BATON_OK);
}

void
scripted_assert_pending(baton_request request)
{
	ck_assert_int_eq(baton_test(request, NULL), BATON_PENDING);
}

void
scripted_assert_free(struct baton_comm *comm, unsigned n)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request requests[SCRIPTED_SLOTS];
	unsigned taken = 0;

	options.flags = BATON_OP_DETACHED;
	while (taken < SCRIPTED_SLOTS &&
	       baton_recv(buffer, sizeof(buffer), BATON_UINT8, 3, 99, comm,
	                  NULL, &options, &requests[taken]) == BATON_OK)
		taken++;
	for (unsigned i = 0; i < taken; i++) {
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	}
	ck_assert_uint_eq(taken, n);
}

static struct batoni_transfer *
find_live(struct scripted *s, enum batoni_direction direction, int tag)
{
	for (size_t i = 0; i < SCRIPTED_SLOTS; i++) {
		struct batoni_transfer *transfer = s->live[i];

		if (transfer && transfer->tag == tag &&
		    transfer->direction == direction)
			return transfer;
	}
	return NULL;
}

struct batoni_transfer *
scripted_live(struct scripted *s, enum batoni_direction direction, int tag)
{
	struct batoni_transfer *transfer = find_live(s, direction, tag);

	if (!transfer)
		ck_abort_msg("no transfer of tag %d is in flight", tag);
	return transfer;
}

struct batoni_transfer *
scripted_await(struct scripted *s, enum batoni_direction direction, int tag)
{
	struct batoni_transfer *transfer;

	while (!(transfer = find_live(s, direction, tag)))
		sched_yield();
	return transfer;
}

void
scripted_end(struct scripted *s, struct batoni_transfer *transfer, size_t bytes,
             enum baton_status status)
{
	pthread_mutex_lock(&s->lock);
	ck_assert_uint_lt(s->ends_n, SCRIPTED_SLOTS);
	s->ends[s->ends_n].transfer = transfer;
	s->ends[s->ends_n].bytes = bytes;
	s->ends[s->ends_n].status = status;
	s->ends_n++;
	pthread_mutex_unlock(&s->lock);
}

void
scripted_break(struct scripted *s, enum baton_status fatal, const char *call,
               int code, const char *text)
{
	pthread_mutex_lock(&s->lock);
	s->fatal = fatal;
	s->fatal_call = call;
	s->fatal_code = code;
	s->fatal_text = text;
	pthread_mutex_unlock(&s->lock);
}
