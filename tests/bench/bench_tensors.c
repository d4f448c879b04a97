/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Half the round trip of a list of eight tensors.
 *
 * tensors: against what ONNX Runtime's Send and Recv do with the same tensors: copy them to one
 * buffer, each at a multiple of 256 bytes, send that by MPI, and copy them out of one; without
 * its messages for shapes.
 * tensors_plain: against one plain message of as many bytes, by Baton.
 */
#include <stdlib.h>
#include <string.h>

#include "bench_raw.h"

#define TAG 3
#define TENSORS 8

struct lists {
	struct bench_raw raw; /* the packed buffers, and their bytes */
	struct bench_raw plain;
	struct baton_tensor out[TENSORS], in[TENSORS];
	size_t offsets[TENSORS], each;
};

static void
pack(struct lists *m)
{
	for (int i = 0; i < TENSORS; i++)
		memcpy(m->raw.out + m->offsets[i], m->out[i].data, m->each);
}

static void
unpack(struct lists *m)
{
	for (int i = 0; i < TENSORS; i++)
		memcpy(m->in[i].data, m->raw.in + m->offsets[i], m->each);
}

static void
raw_send(struct bench *b, struct lists *m)
{
	MPI_Request request;

	pack(m);
	bench_raw_send(b, &m->raw, &request);
	bench_raw_wait(&request);
}

static void
raw_recv(struct bench *b, struct lists *m)
{
	MPI_Request request;

	bench_raw_recv(b, &m->raw, &request);
	bench_raw_wait(&request);
	unpack(m);
}

static double
raw_block(struct bench *b, void *arg, int rounds)
{
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		if (b->rank == 0) {
			raw_send(b, arg);
			raw_recv(b, arg);
		} else {
			raw_recv(b, arg);
			raw_send(b, arg);
		}
	}
	return bench_half_us(start, rounds);
}

static void
finish(baton_request *request)
{
	bench_must(baton_finish(request, -1, NULL) == BATON_OK);
}

static void
list_send(struct bench *b, struct lists *m, baton_request *request)
{
	bench_must(baton_send_tensors(m->out, TENSORS, b->peer, TAG, b->comm,
	                              b->stream, NULL, request) == BATON_OK);
}

static void
list_recv(struct bench *b, struct lists *m, baton_request *request)
{
	bench_must(baton_recv_tensors(m->in, TENSORS, b->peer, TAG, b->comm,
	                              b->stream, NULL, request) == BATON_OK);
}

static void
plain_send(struct bench *b, struct lists *m, baton_request *request)
{
	bench_must(baton_send(m->plain.out, m->plain.bytes, BATON_UINT8, b->peer,
	                      TAG, b->comm, b->stream, NULL,
	                      request) == BATON_OK);
}

static void
plain_recv(struct bench *b, struct lists *m, baton_request *request)
{
	bench_must(baton_recv(m->plain.in, m->plain.bytes, BATON_UINT8, b->peer,
	                      TAG, b->comm, b->stream, NULL,
	                      request) == BATON_OK);
}

/* The order of the calls: that of one stream, each request finished. */
static double
pingpong(struct bench *b, struct lists *m, int rounds,
         void (*send)(struct bench *b, struct lists *m, baton_request *request),
         void (*recv)(struct bench *b, struct lists *m, baton_request *request))
{
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		baton_request out, in;

		if (b->rank == 0)
			send(b, m, &out);
		recv(b, m, &in);
		finish(&in);
		if (b->rank != 0)
			send(b, m, &out);
		finish(&out);
	}
	return bench_half_us(start, rounds);
}

static double
list_block(struct bench *b, void *arg, int rounds)
{
	return pingpong(b, arg, rounds, list_send, list_recv);
}

static double
plain_block(struct bench *b, void *arg, int rounds)
{
	return pingpong(b, arg, rounds, plain_send, plain_recv);
}

static void
measure(struct bench *b, struct lists *m)
{
	const struct bench_side sides[] = {
		{raw_block, m}, {list_block, m}, {plain_block, m}};
	struct bench_plan plan = {.blocks = b->quick ? 50 : 200,
	                          .block_ns = 4000000};
	struct bench_stat stats[3];
	struct bench_row row = {.bench = "tensors", .bytes = TENSORS * m->each,
	                        .unit = "us", .baseline = "memcpy + raw MPI"};

	bench_compare(b, sides, 3, &plan, stats);
	row.kind = row.bytes >= 65536 ? BENCH_RATIO_MAX : BENCH_REPORT;
	row.bar = 1.05;
	row.base = stats[0];
	row.value = stats[1];
	bench_report(b, &row);
	row.bench = "tensors_plain";
	row.baseline = "one plain message";
	row.base = stats[2];
	row.kind = row.bytes < 65536 ? BENCH_RATIO_MAX : BENCH_REPORT;
	row.bar = 1.3;
	bench_report(b, &row);
}

static void
set_size(struct lists *m, size_t each)
{
	m->each = each;
	m->plain.bytes = TENSORS * each;
	for (int i = 0; i < TENSORS; i++) {
		m->out[i].type = m->in[i].type = BATON_UINT8;
		m->out[i].rank = m->in[i].rank = 2;
		m->out[i].shape[0] = m->in[i].shape[0] = 8;
		m->out[i].shape[1] = m->in[i].shape[1] = (int64_t)each / 8;
	}
	m->raw.bytes = baton_tensors_layout(m->out, TENSORS, m->offsets);
}

int
main(int argc, char **argv)
{
	static const size_t sizes[] = {8,    64,    512,     8192,
	                               32768, 131072, 2097152};
	const size_t count = sizeof(sizes) / sizeof(sizes[0]);
	const size_t most = TENSORS * (sizes[count - 1] + 256);
	struct lists m = {.each = 0};
	struct bench b;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	m.raw.out = bench_alloc(most);
	m.raw.in = bench_alloc(most);
	m.plain.out = bench_alloc(most);
	m.plain.in = bench_alloc(most);
	for (int i = 0; i < TENSORS; i++) {
		m.out[i].data = bench_alloc(sizes[count - 1]);
		m.in[i].data = bench_alloc(sizes[count - 1]);
	}
	for (size_t i = 0; i < count; i++) {
		set_size(&m, sizes[i]);
		measure(&b, &m);
	}
	for (int i = 0; i < TENSORS; i++) {
		free(m.out[i].data);
		free(m.in[i].data);
	}
	free(m.raw.out);
	free(m.raw.in);
	free(m.plain.out);
	free(m.plain.in);
	return bench_fini(&b);
}
