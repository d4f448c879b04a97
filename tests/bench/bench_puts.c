/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench_puts.h"

#define SIGNAL 0
#define CONTEXT 0

static void
put_piece(const struct bench_puts *p, size_t at, baton_request *request_p)
{
	bench_must(baton_put_signal(p->source + at, p->bytes, BATON_UINT8, p->peer,
	                            p->window, at, SIGNAL, CONTEXT, 0, p->comm,
	                            p->stream, NULL, request_p) == BATON_OK);
}

static void
await(const struct bench_puts *p, size_t count, baton_request *request_p)
{
	const struct baton_wait_signal_desc desc = {(int)count, p->peer, SIGNAL,
	                                            CONTEXT};

	bench_must(baton_wait_signal(1, &desc, p->comm, p->stream, NULL,
	                             request_p) == BATON_OK);
}

static void
finish(baton_request *request)
{
	bench_must(baton_finish(request, -1, NULL) == BATON_OK);
}

/* The last operation of the stream ends after all before it. */
void
bench_puts_pingpong(const struct bench_puts *p)
{
	baton_request last = BATON_REQUEST_NULL;

	for (int k = 0; k < BENCH_PUTS_ROUNDS; k++) {
		baton_request *last_p = k == BENCH_PUTS_ROUNDS - 1 ? &last : NULL;

		if (p->rank != 0)
			await(p, 1, NULL);
		put_piece(p, 0, p->rank != 0 ? last_p : NULL);
		if (p->rank == 0)
			await(p, 1, last_p);
	}
	finish(&last);
}

void
bench_puts_row(const struct bench_puts *p, size_t count)
{
	baton_request last;

	if (p->rank == 0) {
		for (size_t k = 0; k < count; k++)
			put_piece(p, k * p->stride, NULL);
		await(p, 1, &last);
	} else {
		await(p, count, NULL);
		bench_must(baton_signal(p->peer, SIGNAL, CONTEXT, 0, p->comm,
		                        p->stream, NULL, &last) == BATON_OK);
	}
	finish(&last);
}
