/* SPDX-License-Identifier: BSD-3-Clause */
/* See perf_loops.h. */
#include "perf_loops.h"

#define TAG 0 /* the only one over NCCL */

static const struct baton_op_options detached = {
	.size = sizeof(struct baton_op_options), .flags = BATON_OP_DETACHED};

#define TRY(call)                                                             \
	do {                                                                  \
		enum baton_status status_ = (call);                           \
		if (status_ != BATON_OK)                                      \
			return status_;                                       \
	} while (0)

static inline enum baton_status
finish(baton_request *request)
{
	return baton_finish(request, -1, NULL);
}

static inline enum baton_status
send(const struct perf_end *e, const char *buffer, size_t bytes, int peer,
     const struct baton_op_options *options, baton_request *request_p)
{
	return baton_send(buffer, bytes, BATON_UINT8, peer, TAG, e->comm,
	                  e->stream, options, request_p);
}

static inline enum baton_status
receive(const struct perf_end *e, char *buffer, size_t bytes, int peer,
        const struct baton_op_options *options, baton_request *request_p)
{
	return baton_recv(buffer, bytes, BATON_UINT8, peer, TAG, e->comm,
	                  e->stream, options, request_p);
}

/* ---- messages of a pair ---- */

enum baton_status
perf_latency(const struct perf_end *e, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		baton_request sent, received;

		if (e->first) {
			TRY(send(e, e->out, e->bytes, e->peer, NULL, &sent));
			TRY(receive(e, e->in, e->bytes, e->peer, NULL, &received));
			TRY(finish(&received));
		} else {
			TRY(receive(e, e->in, e->bytes, e->peer, NULL, &received));
			TRY(finish(&received));
			TRY(send(e, e->out, e->bytes, e->peer, NULL, &sent));
		}
		TRY(finish(&sent));
	}
	return BATON_OK;
}

/* One byte back, which says that all have arrived. */
static enum baton_status
acknowledge(const struct perf_end *e)
{
	baton_request request;

	if (e->first)
		TRY(receive(e, e->in, 1, e->peer, NULL, &request));
	else
		TRY(send(e, e->out, 1, e->peer, NULL, &request));
	return finish(&request);
}

enum baton_status
perf_window(const struct perf_end *e, int rounds)
{
	baton_request requests[PERF_WINDOW_MAX];

	for (int i = 0; i < rounds; i++) {
		for (size_t k = 0; k < e->depth; k++) {
			if (e->first)
				TRY(send(e, e->out + k * e->step, e->bytes,
				         e->peer, &detached, &requests[k]));
			else
				TRY(receive(e, e->in + k * e->step, e->bytes,
				            e->peer, &detached, &requests[k]));
		}
		for (size_t k = 0; k < e->depth; k++)
			TRY(finish(&requests[k]));
		TRY(acknowledge(e));
	}
	return BATON_OK;
}

/* ---- puts of a pair ---- */

static enum baton_status
put_to_peer(const struct perf_end *e, size_t offset,
            const struct baton_op_options *options, baton_request *request_p)
{
	return baton_put_signal(e->out + offset, e->bytes, BATON_UINT8, e->peer,
	                        e->window, offset, e->signal, e->context, 0,
	                        e->comm, e->stream, options, request_p);
}

static enum baton_status
wait_for(const struct perf_end *e, int signals, baton_request *request_p)
{
	const struct baton_wait_signal_desc desc = {signals, e->peer, e->signal,
	                                            e->context};

	return baton_wait_signal(1, &desc, e->comm, e->stream, NULL, request_p);
}

enum baton_status
perf_put(const struct perf_end *e, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		baton_request sent, waited;

		if (e->first) {
			TRY(put_to_peer(e, 0, NULL, &sent));
			TRY(wait_for(e, 1, &waited));
			TRY(finish(&waited));
		} else {
			TRY(wait_for(e, 1, &waited));
			TRY(finish(&waited));
			TRY(put_to_peer(e, 0, NULL, &sent));
		}
		TRY(finish(&sent));
	}
	return BATON_OK;
}

/* The other side of a window of puts. */
static enum baton_status
take_puts(const struct perf_end *e)
{
	baton_request request;

	TRY(wait_for(e, (int)e->depth, &request));
	TRY(finish(&request));
	TRY(baton_signal(e->peer, e->signal, e->context, 0, e->comm, e->stream,
	                 NULL, &request));
	return finish(&request);
}

enum baton_status
perf_puts(const struct perf_end *e, int rounds)
{
	baton_request requests[PERF_WINDOW_MAX], waited;

	for (int i = 0; i < rounds; i++) {
		if (!e->first) {
			TRY(take_puts(e));
			continue;
		}
		for (size_t k = 0; k < e->depth; k++)
			TRY(put_to_peer(e, k * e->step, &detached, &requests[k]));
		for (size_t k = 0; k < e->depth; k++)
			TRY(finish(&requests[k]));
		TRY(wait_for(e, 1, &waited));
		TRY(finish(&waited));
	}
	return BATON_OK;
}

/* ---- all ranks ---- */

enum baton_status
perf_ring(const struct perf_end *e, int rounds)
{
	int next = (e->rank + 1) % e->size;
	int before = (e->rank + e->size - 1) % e->size;

	for (int i = 0; i < rounds; i++) {
		baton_request sent, received;

		TRY(baton_group_begin(e->comm));
		TRY(send(e, e->out, e->bytes, next, NULL, &sent));
		TRY(receive(e, e->in, e->bytes, before, NULL, &received));
		TRY(baton_group_end(e->comm));
		TRY(finish(&received));
		TRY(finish(&sent));
	}
	return BATON_OK;
}

/* One round of perf_all.  The peers of a rank come in an order of its own, so that not all send to one first. */
static enum baton_status
enqueue_all(const struct perf_end *e, baton_request *requests)
{
	TRY(baton_group_begin(e->comm));
	for (int k = 0; k < e->size; k++) {
		int to = (e->rank + k) % e->size;
		int from = (e->rank + e->size - k) % e->size;

		TRY(send(e, e->out + (size_t)to * e->bytes, e->bytes, to, NULL,
		         &requests[2 * k]));
		TRY(receive(e, e->in + (size_t)from * e->bytes, e->bytes, from,
		            NULL, &requests[2 * k + 1]));
	}
	return baton_group_end(e->comm);
}

enum baton_status
perf_all(const struct perf_end *e, int rounds)
{
	baton_request requests[2 * PERF_WINDOW_MAX];

	if (e->size > PERF_WINDOW_MAX)
		return BATON_ERR_UNSUPPORTED;
	for (int i = 0; i < rounds; i++) {
		TRY(enqueue_all(e, requests));
		for (int k = 0; k < 2 * e->size; k++)
			TRY(finish(&requests[k]));
	}
	return BATON_OK;
}

/* ---- beside computing ---- */

void
perf_spin(uint64_t steps)
{
	uint64_t x = 88172645463325252u;
	volatile uint64_t sink;

	for (uint64_t i = 0; i < steps; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	sink = x; /* so that the loop is not left out */
	(void)sink;
}

enum baton_status
perf_overlapped(const struct perf_end *e, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		baton_request request;

		if (e->first)
			TRY(send(e, e->out, e->bytes, e->peer, &detached,
			         &request));
		else
			TRY(receive(e, e->in, e->bytes, e->peer, &detached,
			            &request));
		perf_spin(e->steps);
		TRY(finish(&request));
	}
	return BATON_OK;
}
