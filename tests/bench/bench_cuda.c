/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA device over MPI: two processes, each with a stream of its own, messages from
 * device memory to device memory.  They may share one GPU.
 *
 * cuda_enqueue_send, _recv: one detached call of 8 bytes, in batches of 64, drained outside
 * the clock, against cuLaunchHostFunc alone, which is what such a call puts on the stream.
 * cuda_latency: half a round trip of 8 bytes, the host waiting, against raw MPI between
 * buffers of the host.
 * cuda_bandwidth: one-way windows of messages against the slower of raw MPI between buffers
 * of the host and a bare copy (rank 0 out of the device, rank 1 into it).
 * cuda_mapped_latency, _bandwidth: the same from memory of baton_mem_alloc, out of which rank 1's GPU
 * copies once, against a bare copy within the device.
 * cuda_trigger, cuda_trigger_write, cuda_wait: bench_cuda_stream.c.
 * cuda_overlap_send, _recv: bench_cuda_overlap.c.
 * cuda_put_latency, cuda_put_bandwidth: bench_cuda_put.c.
 *
 * Over the simulator the figures mean nothing: they are not printed, and sizes are small.
 */
#include <stdlib.h>

#include "baton_mpi.h"
#include "bench_cuda.h"
#include "bench_raw.h"

#define TAG 6
#define TAG_ACK 7
#define WINDOW_BYTES (UINT64_C(128) << 20)
#define LARGEST_SIM (UINT64_C(1) << 20)

/* ---- baselines ------------------------------------------------------------ */

static void
nothing(void *argument)
{
	(void)argument;
}

static double
driver_calls(struct bench *b, void *arg, int rounds)
{
	uint64_t spent = 0;

	(void)b;
	(void)arg;
	bench_gpu_enter();
	for (int i = 0; i < rounds; i++) {
		uint64_t start = bench_now();

		for (int k = 0; k < BENCH_WINDOW; k++)
			CUDA(host_function(bench_gpu.copies, nothing, NULL));
		spent += bench_now() - start;
		CUDA(stream_synchronize(bench_gpu.copies));
	}
	bench_gpu_leave();
	return (double)spent / ((double)rounds * BENCH_WINDOW);
}

static double
gigabytes(const struct bench_memory *m, int rounds, uint64_t start)
{
	return (double)m->bytes * (double)m->window * rounds /
	       (double)(bench_now() - start);
}

static double
bare_copies(struct bench *b, void *arg, int rounds)
{
	const struct bench_memory *m = arg;
	CUdeviceptr device = (CUdeviceptr)(uintptr_t)m->on_device;
	CUdeviceptr host = (CUdeviceptr)(uintptr_t)m->on_host;
	uint64_t start = bench_now();

	bench_gpu_enter();
	for (int i = 0; i < rounds; i++) {
		for (size_t k = 0; k < m->window; k++)
			CUDA(copy((b->rank == 0 ? host : device) + k * m->bytes,
			          (b->rank == 0 ? device : host) + k * m->bytes,
			          m->bytes, bench_gpu.copies));
		CUDA(stream_synchronize(bench_gpu.copies));
	}
	bench_gpu_leave();
	return gigabytes(m, rounds, start);
}

/* From one half of the memory to the other; of both ranks, at the same time where they share a GPU. */
static double
copy_within(const struct bench_memory *m, int rounds)
{
	CUdeviceptr device = (CUdeviceptr)(uintptr_t)m->on_device;
	size_t all = m->bytes * m->window;
	uint64_t start = bench_now();

	bench_gpu_enter();
	for (int i = 0; i < rounds; i++) {
		for (size_t k = 0; k < m->window; k++)
			CUDA(copy(device + all + k * m->bytes,
			          device + k * m->bytes, m->bytes,
			          bench_gpu.copies));
		CUDA(stream_synchronize(bench_gpu.copies));
	}
	bench_gpu_leave();
	return (double)(bench_now() - start);
}

static double
copies_within(struct bench *b, void *arg, int rounds)
{
	const struct bench_memory *m = arg;

	(void)b;
	return (double)m->bytes * (double)m->window * rounds /
	       copy_within(m, rounds);
}

static double
copy_within_us(struct bench *b, void *arg, int rounds)
{
	(void)b;
	return copy_within(arg, rounds) / rounds / 1000;
}

static double
raw_messages(struct bench *b, void *arg, int rounds)
{
	const struct bench_memory *m = arg;
	MPI_Request requests[BENCH_WINDOW];
	uint64_t start = bench_now();
	char ack = 0;

	for (int i = 0; i < rounds; i++) {
		for (size_t k = 0; k < m->window; k++) {
			char *place = m->on_host + k * m->bytes;

			if (b->rank == 0)
				MPI_Isend(place, (int)m->bytes, MPI_BYTE, b->peer,
				          TAG, b->raw, &requests[k]);
			else
				MPI_Irecv(place, (int)m->bytes, MPI_BYTE, b->peer,
				          TAG, b->raw, &requests[k]);
		}
		MPI_Waitall((int)m->window, requests, MPI_STATUSES_IGNORE);
		if (b->rank == 0)
			MPI_Recv(&ack, 1, MPI_BYTE, b->peer, TAG_ACK, b->raw,
			         MPI_STATUS_IGNORE);
		else
			MPI_Send(&ack, 1, MPI_BYTE, b->peer, TAG_ACK, b->raw);
	}
	return gigabytes(m, rounds, start);
}

/* ---- Baton ---------------------------------------------------------------- */

baton_request
bench_cuda_enqueue(struct bench *b, bool send, char *buffer, size_t bytes, int tag)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request request;

	detached.flags = BATON_OP_DETACHED;
	bench_must((send ? baton_send(buffer, bytes, BATON_UINT8, b->peer, tag,
	                              b->comm, b->stream, &detached, &request)
	                 : baton_recv(buffer, bytes, BATON_UINT8, b->peer, tag,
	                              b->comm, b->stream, &detached,
	                              &request)) == BATON_OK);
	return request;
}

static void
drain(baton_request *requests, size_t count)
{
	for (size_t k = 0; k < count; k++)
		bench_must(baton_finish(&requests[k], -1, NULL) == BATON_OK);
}

static double
baton_messages(struct bench *b, void *arg, int rounds)
{
	const struct bench_memory *m = arg;
	baton_request requests[BENCH_WINDOW];
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		char ack = 0;

		for (size_t k = 0; k < m->window; k++)
			requests[k] = bench_cuda_enqueue(b, b->rank == 0,
			                                 m->on_device + k * m->bytes,
			                                 m->bytes, TAG);
		drain(requests, m->window);
		requests[0] = bench_cuda_enqueue(b, b->rank != 0, &ack, 1, TAG_ACK);
		drain(requests, 1);
	}
	return gigabytes(m, rounds, start);
}

static double
baton_latency(struct bench *b, void *arg, int rounds)
{
	const struct bench_memory *m = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		baton_request requests[2];

		for (int k = 0; k < 2; k++) {
			requests[k] = bench_cuda_enqueue(b, (b->rank == 0) == (k == 0),
			                                 m->on_device, m->bytes, TAG);
			drain(&requests[k], 1);
		}
	}
	return bench_half_us(start, rounds);
}

struct calls {
	const struct bench_memory *memory;
	bool send; /* rank 0's are timed */
};

static double
baton_calls(struct bench *b, void *arg, int rounds)
{
	const struct calls *calls = arg;
	baton_request requests[BENCH_WINDOW];
	uint64_t spent = 0;

	for (int i = 0; i < rounds; i++) {
		uint64_t start = bench_now();

		for (int k = 0; k < BENCH_WINDOW; k++)
			requests[k] = bench_cuda_enqueue(b, (b->rank == 0) == calls->send,
			                                 calls->memory->on_device + k * 8, 8,
			                                 TAG);
		spent += bench_now() - start;
		drain(requests, BENCH_WINDOW);
		bench_meet(b);
	}
	return (double)spent / ((double)rounds * BENCH_WINDOW);
}

/* ---- rows ----------------------------------------------------------------- */

static void
measure_calls(struct bench *b, const struct bench_memory *m, bool send)
{
	struct calls calls = {m, send};
	const struct bench_side sides[] = {{driver_calls, NULL},
	                                   {baton_calls, &calls}};
	const struct bench_plan plan = {.blocks = b->quick ? 3 : 50,
	                                .block_ns = 2000000};
	struct bench_stat stats[2];
	struct bench_row row = {.bytes = 8, .unit = "ns",
	                        .baseline = "cuLaunchHostFunc",
	                        .kind = BENCH_EXCESS_MAX, .bar = 300};

	bench_compare(b, sides, 2, &plan, stats);
	row.bench = send ? "cuda_enqueue_send" : "cuda_enqueue_recv";
	row.base = stats[0];
	row.value = stats[1];
	bench_gpu_report(b, &row);
}

static void
measure_latency(struct bench *b, struct bench_memory *m)
{
	struct bench_raw raw = {m->on_host, m->on_host + 8, 8};
	const struct bench_side sides[] = {{bench_raw_latency, &raw},
	                                   {baton_latency, m}};
	const struct bench_plan plan = {.blocks = b->quick ? 3 : 30,
	                                .block_ns = 200000};
	struct bench_stat stats[2];
	struct bench_row row = {.bench = "cuda_latency", .bytes = 8, .unit = "us",
	                        .baseline = "raw MPI, host"};

	m->bytes = 8;
	bench_compare(b, sides, 2, &plan, stats);
	row.base = stats[0];
	row.value = stats[1];
	bench_gpu_report(b, &row);
}

static void
measure_bandwidth(struct bench *b, struct bench_memory *m, size_t bytes)
{
	const struct bench_side sides[] = {
		{raw_messages, m}, {bare_copies, m}, {baton_messages, m}};
	const struct bench_plan plan = {.blocks = b->quick ? 3 : 15,
	                                .block_ns = 20000000};
	struct bench_stat stats[3];
	struct bench_row row = {.bench = "cuda_bandwidth", .bytes = bytes,
	                        .unit = "GB/s"};
	bool mpi_is_slower;

	m->bytes = bytes;
	m->window = WINDOW_BYTES / bytes;
	m->window = m->window < 2              ? 2
	            : m->window > BENCH_WINDOW ? BENCH_WINDOW
	                                       : m->window;
	bench_compare(b, sides, 3, &plan, stats);
	mpi_is_slower = stats[0].median < stats[1].median;
	row.baseline = mpi_is_slower ? "raw MPI, host" : "bare copy";
	row.base = stats[mpi_is_slower ? 0 : 1];
	row.value = stats[2];
	row.kind = bytes >= UINT64_C(16) << 20 ? BENCH_RATIO_MIN : BENCH_REPORT;
	row.bar = 0.8;
	bench_gpu_report(b, &row);
}

/* A row of memory of baton_mem_alloc, against the bare copy. */
static void
compare_mapped(struct bench *b, struct bench_memory *m, bool latency)
{
	const struct bench_side sides[] = {
		{latency ? copy_within_us : copies_within, m},
		{latency ? baton_latency : baton_messages, m}};
	const struct bench_plan plan = {.blocks = b->quick ? 3 : 15,
	                                .block_ns = 20000000};
	struct bench_stat stats[2];
	struct bench_row row = {
		.bench = latency ? "cuda_mapped_latency"
		                 : "cuda_mapped_bandwidth",
		.bytes = m->bytes,
		.unit = latency ? "us" : "GB/s",
		.baseline = "bare copy within the device",
	};

	bench_compare(b, sides, 2, &plan, stats);
	row.base = stats[0];
	row.value = stats[1];
	bench_gpu_report(b, &row);
}

/* The first messages of a block go in pieces, while it is mapped. */
static void
measure_mapped(struct bench *b, size_t largest)
{
	struct bench_memory m = {.bytes = largest};
	void *memory = NULL;

	bench_must(baton_mem_alloc(b->comm, 8 * largest, &memory) == BATON_OK);
	m.on_device = memory;
	m.window = 1;
	baton_latency(b, &m, 20);
	for (m.bytes = 4096; m.bytes <= largest; m.bytes *= 16) {
		m.window = 1;
		if (bench_wants(b, "cuda_mapped_latency"))
			compare_mapped(b, &m, true);
		m.window = 4;
		if (bench_wants(b, "cuda_mapped_bandwidth"))
			compare_mapped(b, &m, false);
	}
	bench_must(baton_mem_free(b->comm, memory) == BATON_OK);
}

static void
open_cuda(struct bench *b, size_t largest, struct bench_memory *m)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm_info info = {.size = sizeof(info)};
	size_t bytes = 2 * largest > WINDOW_BYTES ? 2 * largest : WINDOW_BYTES;

	options.device = BATON_DEVICE_CUDA;
	bench_must(baton_comm_create_mpi(b->raw, &options, &b->comm) == BATON_OK);
	bench_must(baton_comm_query(b->comm, &info) == BATON_OK);
	bench_gpu_open(info.cuda_device);
	bench_gpu_enter();
	CUDA(host_alloc((void **)&m->on_host, bytes,
	                BATONI_CU_HOST_ALLOC_PORTABLE));
	bench_gpu_leave();
	m->on_device = bench_gpu_alloc(bytes);
	bench_must(baton_stream_create(b->comm, &b->stream) == BATON_OK);
}

int
main(int argc, char **argv)
{
	static const size_t sizes[] = {65536,           UINT64_C(1) << 20,
	                               UINT64_C(16) << 20, UINT64_C(64) << 20,
	                               UINT64_C(256) << 20};
	struct bench_memory m = {.bytes = 8};
	struct bench b;
	size_t largest;

	bench_init(&b, &argc, &argv);
	bench_gpu_load();
	largest = sizes[sizeof(sizes) / sizeof(sizes[0]) - 1];
	if (bench_gpu.simulated)
		largest = LARGEST_SIM;
	open_cuda(&b, largest, &m);
	if (bench_wants(&b, "cuda_enqueue_send"))
		measure_calls(&b, &m, true);
	if (bench_wants(&b, "cuda_enqueue_recv"))
		measure_calls(&b, &m, false);
	if (bench_wants(&b, "cuda_latency"))
		measure_latency(&b, &m);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (sizes[i] <= largest && bench_wants(&b, "cuda_bandwidth"))
			measure_bandwidth(&b, &m, sizes[i]);
	if (bench_wants(&b, "cuda_mapped_latency") ||
	    bench_wants(&b, "cuda_mapped_bandwidth"))
		measure_mapped(&b, bench_gpu.simulated ? LARGEST_SIM
		                                       : UINT64_C(16) << 20);
	bench_cuda_stream(&b);
	bench_cuda_overlap(&b, &m);
	bench_cuda_put(&b);
	return bench_fini(&b);
}
