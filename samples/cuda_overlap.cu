/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers beside kernels, on one CUDA stream of the program's own.
 *
 *   mpirun -np 2 cuda_overlap        (cuda_overlap --help lists the options)
 *   cuda_overlap                     alone: the rank sends to itself
 *
 * The ranks form a ring.  In each step a kernel computes a chunk, which goes to the
 * next rank while the kernel of the step after it runs:
 *
 *   the stream    | kernel 0 | kernel 1 | kernel 2 | kernel 3 | ...
 *   messages                 | chunk 0  | chunk 1  | chunk 2  | ...
 *
 * All of a step is enqueued on one stream, made by cudaStreamCreateWithFlags:
 *
 *   baton_stream_wait   for the send and the receive of two steps ago
 *   kernel              adds what was received then, computes what is sent next
 *   baton_recv, _send   detached: the stream goes on at once, to the next kernel
 *
 * There are two buffers of each kind, used in turn, so a transfer has as long as a
 * kernel takes.  No host function and no event is needed, and the host only enqueues;
 * it waits for old steps so that it is never more than AHEAD steps ahead.
 *
 * The same steps run three times: kernels alone, transfers alone, and both.  Then a
 * kernel computes again all that should have been received, and compares; the host
 * does so too, for some elements.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <vector>

#include <baton.h>
#include <cuda_runtime.h>

#include "check.h"
#include "command_line.h"

#define AHEAD 8 /* steps; a CUDA stream takes a few hundred operations */
#define TAG_CHUNK 0
#define TAG_WORD 1
#define TIMEOUT_S 60
#define THREADS 256
#define TRIAL_ROUNDS 64 /* of the kernel that is timed to choose the rounds */
#define SAMPLES 64      /* elements that the host checks */
#define SHOWN_MAX 10    /* steps in the picture */
#define COLUMNS 64

struct options {
	long bytes;
	long steps;
	long rounds; /* 0: as many as make a kernel as long as a transfer */
};

/* ---- what is computed --------------------------------------------------- */

/* The rounds are work that a compiler cannot shorten. */
static __host__ __device__ uint32_t element(uint32_t rank, uint32_t step,
                                            uint32_t i, int rounds)
{
	uint32_t x = (rank * 0x9e3779b9u) ^ (step * 0x85ebca6bu) ^ i;

	for (int round = 0; round < rounds; round++) {
		x ^= x >> 16;
		x = x * 0x7feb352du + 1;
	}
	return x;
}

/* received NULL: nothing to add.  next NULL: nothing to compute. */
static __global__ void compute(uint32_t *sum, const uint32_t *received,
                               uint32_t *next, size_t count, uint32_t rank,
                               uint32_t step, int rounds)
{
	size_t stride = (size_t)gridDim.x * blockDim.x;

	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	     i < count; i += stride) {
		if (received != NULL)
			sum[i] += received[i];
		if (next != NULL)
			next[i] = element(rank, step, (uint32_t)i, rounds);
	}
}

static __host__ __device__ uint32_t expected(uint32_t rank, long steps,
                                             uint32_t i, int rounds)
{
	uint32_t sum = 0;

	for (long step = 0; step < steps; step++)
		sum += element(rank, (uint32_t)step, i, rounds);
	return sum;
}

static __global__ void compare(const uint32_t *sum, size_t count, uint32_t rank,
                               long steps, int rounds,
                               unsigned long long *wrong)
{
	size_t stride = (size_t)gridDim.x * blockDim.x;

	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	     i < count; i += stride) {
		if (sum[i] != expected(rank, steps, (uint32_t)i, rounds))
			atomicAdd(wrong, 1ull);
	}
}

/* ---- a rank ------------------------------------------------------------- */

struct span {
	double begin, end; /* ms since the run's origin */
};

struct step {
	cudaEvent_t begin, end; /* of its kernel */
	baton_request send, recv;
	struct span kernel, sent, received;
};

struct ring {
	struct baton_comm *comm;
	int rank, before, after;
	cudaStream_t stream;
	int blocks;
	size_t count;    /* elements of a chunk */
	int rounds;      /* of this rank's kernels */
	int rounds_before; /* of those of the rank that sends to this one */
	uint32_t *sum;
	uint32_t *in[2], *out[2];
	unsigned long long *wrong;
	cudaEvent_t origin;
	uint64_t origin_ns;
	std::vector<struct step> steps;
};

#define CUDA(ring, call) check_cuda((ring)->comm, (call), #call)

static void check_cuda(struct baton_comm *comm, cudaError_t error,
                       const char *call)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "rank %d: %s: %s: %s\n", baton_comm_rank(comm), call,
	        cudaGetErrorName(error), cudaGetErrorString(error));
	baton_comm_abort(comm);
	exit(EXIT_FAILURE);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* All memory is allocated before a stream waits for a message: cudaMalloc may wait
 * for all streams.  So may the first launch of a kernel, which loads it. */
static void ring_init(struct ring *ring, struct baton_comm *comm, int device,
                      const struct options *options)
{
	int ranks = baton_comm_size(comm), processors;

	ring->comm = comm;
	ring->rank = baton_comm_rank(comm);
	ring->before = (ring->rank + ranks - 1) % ranks;
	ring->after = (ring->rank + 1) % ranks;
	ring->count = (size_t)options->bytes / sizeof(uint32_t);
	CUDA(ring, cudaSetDevice(device));
	CUDA(ring, cudaDeviceGetAttribute(
		           &processors, cudaDevAttrMultiProcessorCount, device));
	ring->blocks = 8 * processors;
	CUDA(ring, cudaStreamCreateWithFlags(&ring->stream,
	                                     cudaStreamNonBlocking));
	CUDA(ring, cudaEventCreate(&ring->origin));
	CUDA(ring, cudaMalloc(&ring->sum, (size_t)options->bytes));
	CUDA(ring, cudaMalloc(&ring->wrong, sizeof(*ring->wrong)));
	for (int i = 0; i < 2; i++) {
		CUDA(ring, cudaMalloc(&ring->in[i], (size_t)options->bytes));
		CUDA(ring, cudaMalloc(&ring->out[i], (size_t)options->bytes));
	}
	ring->steps.resize((size_t)options->steps);
	for (struct step &step : ring->steps) {
		CUDA(ring, cudaEventCreate(&step.begin));
		CUDA(ring, cudaEventCreate(&step.end));
	}
	compute<<<1, THREADS, 0, ring->stream>>>(ring->sum, NULL, NULL, 0, 0, 0, 0);
	compare<<<1, THREADS, 0, ring->stream>>>(ring->sum, 0, 0, 0, 0,
	                                         ring->wrong);
	CUDA(ring, cudaGetLastError());
	CUDA(ring, cudaStreamSynchronize(ring->stream));
}

static void ring_fini(struct ring *ring)
{
	for (struct step &step : ring->steps) {
		CUDA(ring, cudaEventDestroy(step.begin));
		CUDA(ring, cudaEventDestroy(step.end));
	}
	for (int i = 0; i < 2; i++) {
		CUDA(ring, cudaFree(ring->in[i]));
		CUDA(ring, cudaFree(ring->out[i]));
	}
	CUDA(ring, cudaFree(ring->wrong));
	CUDA(ring, cudaFree(ring->sum));
	CUDA(ring, cudaEventDestroy(ring->origin));
	CUDA(ring, cudaStreamDestroy(ring->stream));
}

/* A word of the host's to the next rank, and one from the rank before. */
static long swap(struct ring *ring, long mine)
{
	baton_request requests[2];
	long theirs = 0;

	CHECK(ring->comm, baton_group_begin(ring->comm));
	CHECK(ring->comm,
	      baton_send(&mine, sizeof(mine), BATON_UINT8, ring->after, TAG_WORD,
	                 ring->comm, ring->stream, NULL, &requests[0]));
	CHECK(ring->comm,
	      baton_recv(&theirs, sizeof(theirs), BATON_UINT8, ring->before,
	                 TAG_WORD, ring->comm, ring->stream, NULL, &requests[1]));
	CHECK(ring->comm, baton_group_end(ring->comm));
	finish(ring->comm, &requests[0], NULL);
	finish(ring->comm, &requests[1], NULL);
	return theirs;
}

/* A barrier: after as many swaps as there are ranks, all have begun. */
static void meet(struct ring *ring)
{
	for (int i = 0; i < baton_comm_size(ring->comm); i++)
		swap(ring, 0);
}

/* ---- a step ------------------------------------------------------------- */

enum { KERNELS = 1, TRANSFERS = 2 };

static void enqueue_kernel(struct ring *ring, long number, bool computes,
                           bool adds)
{
	const uint32_t *received = adds ? ring->in[number % 2] : NULL;
	uint32_t *next = computes ? ring->out[number % 2] : NULL;

	compute<<<ring->blocks, THREADS, 0, ring->stream>>>(
		ring->sum, received, next, ring->count, (uint32_t)ring->rank,
		(uint32_t)number, ring->rounds);
	CUDA(ring, cudaGetLastError());
}

static void enqueue_transfers(struct ring *ring, long number)
{
	struct step *step = &ring->steps[(size_t)number];
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	CHECK(ring->comm,
	      baton_recv(ring->in[number % 2], ring->count, BATON_UINT32,
	                 ring->before, TAG_CHUNK, ring->comm, ring->stream,
	                 &detached, &step->recv));
	CHECK(ring->comm,
	      baton_send(ring->out[number % 2], ring->count, BATON_UINT32,
	                 ring->after, TAG_CHUNK, ring->comm, ring->stream,
	                 &detached, &step->send));
}

/* The stream waits; the host goes on. */
static void wait_for_transfers(struct ring *ring, long number)
{
	struct step *step = &ring->steps[(size_t)number];

	CHECK(ring->comm,
	      baton_stream_wait(ring->comm, ring->stream, step->recv));
	CHECK(ring->comm,
	      baton_stream_wait(ring->comm, ring->stream, step->send));
}

static void enqueue_step(struct ring *ring, long number, int parts)
{
	struct step *step = &ring->steps[(size_t)number];

	if ((parts & TRANSFERS) && number >= 2)
		wait_for_transfers(ring, number - 2);
	if (parts & KERNELS) {
		CUDA(ring, cudaEventRecord(step->begin, ring->stream));
		enqueue_kernel(ring, number, true,
		               (parts & TRANSFERS) && number >= 2);
		CUDA(ring, cudaEventRecord(step->end, ring->stream));
	}
	if (parts & TRANSFERS)
		enqueue_transfers(ring, number);
}

static struct span span_of(struct ring *ring,
                           const struct baton_completion *completion)
{
	struct span span = {
		((double)completion->armed_ns - (double)ring->origin_ns) * 1e-6,
		((double)completion->completed_ns - (double)ring->origin_ns) * 1e-6
	};

	return span;
}

static void finish_transfers(struct ring *ring, long number)
{
	struct step *step = &ring->steps[(size_t)number];
	struct baton_completion completion;

	finish(ring->comm, &step->recv, &completion);
	step->received = span_of(ring, &completion);
	finish(ring->comm, &step->send, &completion);
	step->sent = span_of(ring, &completion);
}

/* All steps; the time in ms. */
static double run(struct ring *ring, int parts)
{
	long steps = (long)ring->steps.size();
	uint64_t begin;

	CUDA(ring, cudaMemsetAsync(ring->sum, 0, ring->count * sizeof(uint32_t),
	                           ring->stream));
	/* The clocks of GPU and host agree here, to some microseconds. */
	CUDA(ring, cudaEventRecord(ring->origin, ring->stream));
	CUDA(ring, cudaStreamSynchronize(ring->stream));
	ring->origin_ns = now_ns();
	meet(ring);
	begin = now_ns();
	for (long number = 0; number < steps; number++) {
		if ((parts & TRANSFERS) && number >= AHEAD)
			finish_transfers(ring, number - AHEAD);
		enqueue_step(ring, number, parts);
	}
	for (long number = steps > AHEAD ? steps - AHEAD : 0;
	     (parts & TRANSFERS) && number < steps; number++)
		finish_transfers(ring, number);
	/* What came in the last two steps is still to be added. */
	for (long number = steps; parts == (KERNELS | TRANSFERS) &&
	                          number < steps + 2; number++)
		enqueue_kernel(ring, number, false, number >= 2);
	CUDA(ring, cudaStreamSynchronize(ring->stream));
	return (double)(now_ns() - begin) * 1e-6;
}

/* So many that a kernel takes ms. */
static int choose_rounds(struct ring *ring, double ms)
{
	double most = 1e6, rounds;
	float took;

	ring->rounds = TRIAL_ROUNDS;
	CUDA(ring, cudaEventRecord(ring->steps[0].begin, ring->stream));
	enqueue_kernel(ring, 0, true, false);
	CUDA(ring, cudaEventRecord(ring->steps[0].end, ring->stream));
	CUDA(ring, cudaStreamSynchronize(ring->stream));
	CUDA(ring, cudaEventElapsedTime(&took, ring->steps[0].begin,
	                                ring->steps[0].end));
	rounds = took > 0.0f ? TRIAL_ROUNDS * ms / (double)took : most;
	return rounds < 1.0 ? 1 : rounds > most ? (int)most : (int)rounds;
}

static bool verify(struct ring *ring)
{
	size_t samples = ring->count < SAMPLES ? ring->count : SAMPLES;
	long steps = (long)ring->steps.size();
	uint32_t before = (uint32_t)ring->before, received[SAMPLES];
	unsigned long long wrong = 0;

	CUDA(ring, cudaMemsetAsync(ring->wrong, 0, sizeof(*ring->wrong),
	                           ring->stream));
	compare<<<ring->blocks, THREADS, 0, ring->stream>>>(
		ring->sum, ring->count, before, steps, ring->rounds_before,
		ring->wrong);
	CUDA(ring, cudaGetLastError());
	CUDA(ring, cudaMemcpyAsync(&wrong, ring->wrong, sizeof(wrong),
	                           cudaMemcpyDeviceToHost, ring->stream));
	CUDA(ring, cudaMemcpyAsync(received, ring->sum,
	                           samples * sizeof(*received),
	                           cudaMemcpyDeviceToHost, ring->stream));
	CUDA(ring, cudaStreamSynchronize(ring->stream));
	for (size_t i = 0; wrong == 0 && i < samples; i++)
		wrong += received[i] != expected(before, steps, (uint32_t)i,
		                                 ring->rounds_before);
	if (wrong != 0)
		fprintf(stderr, "rank %d: %llu of %zu elements are not what rank "
		        "%d sent\n", ring->rank, wrong, ring->count, ring->before);
	return wrong == 0;
}

/* ---- the timeline ------------------------------------------------------- */

static void kernel_times(struct ring *ring)
{
	for (struct step &step : ring->steps) {
		float begin, end;

		CUDA(ring, cudaEventElapsedTime(&begin, ring->origin, step.begin));
		CUDA(ring, cudaEventElapsedTime(&end, ring->origin, step.end));
		step.kernel = { (double)begin, (double)end };
	}
}

/* How long some kernel ran during the span. */
static double beside_kernels(const struct ring *ring, struct span span)
{
	double sum = 0.0;

	for (const struct step &step : ring->steps) {
		double begin = step.kernel.begin > span.begin ? step.kernel.begin
		                                              : span.begin;
		double end = step.kernel.end < span.end ? step.kernel.end
		                                        : span.end;

		sum += end > begin ? end - begin : 0.0;
	}
	return sum;
}

static double share(const struct ring *ring, struct span span)
{
	double length = span.end - span.begin;

	return length > 0.0 ? 100.0 * beside_kernels(ring, span) / length : 0.0;
}

static void draw(const char *name, const struct ring *ring, size_t shown,
                 struct span step::*kind, struct span window)
{
	char line[COLUMNS + 1];
	double column = (window.end - window.begin) / COLUMNS;

	memset(line, ' ', COLUMNS);
	line[COLUMNS] = '\0';
	for (size_t i = 0; i < shown; i++) {
		struct span span = ring->steps[i].*kind;
		int begin = (int)((span.begin - window.begin) / column);
		int end = (int)((span.end - window.begin) / column);

		for (int at = begin < 0 ? 0 : begin; at <= end && at < COLUMNS; at++)
			line[at] = (char)('0' + i % 10);
	}
	printf("  %-9s |%s|\n", name, line);
}

static void timeline(struct ring *ring)
{
	size_t shown = ring->steps.size() < SHOWN_MAX ? ring->steps.size()
	                                              : SHOWN_MAX;
	double zero = ring->steps[0].kernel.begin, kernels = 0.0, sends = 0.0,
	       receives = 0.0, beside = 0.0;
	struct span window = { zero, zero };

	printf("The first steps of rank 0, in ms since its first kernel began; of "
	       "each transfer\nthe share of its time beside kernels:\n\n"
	       "  step        kernel            send                   receive\n");
	for (size_t i = 0; i < shown; i++) {
		const struct step *step = &ring->steps[i];

		printf("  %4zu  %7.3f - %7.3f  %7.3f - %7.3f %3.0f %%  %7.3f - "
		       "%7.3f %3.0f %%\n", i, step->kernel.begin - zero,
		       step->kernel.end - zero, step->sent.begin - zero,
		       step->sent.end - zero, share(ring, step->sent),
		       step->received.begin - zero, step->received.end - zero,
		       share(ring, step->received));
		for (double end : { step->kernel.end, step->sent.end,
		                    step->received.end })
			window.end = window.end < end ? end : window.end;
	}
	printf("\n");
	draw("kernels", ring, shown, &step::kernel, window);
	draw("sends", ring, shown, &step::sent, window);
	draw("receives", ring, shown, &step::received, window);
	for (const struct step &step : ring->steps) {
		kernels += step.kernel.end - step.kernel.begin;
		sends += step.sent.end - step.sent.begin;
		receives += step.received.end - step.received.begin;
		beside += beside_kernels(ring, step.sent) +
		          beside_kernels(ring, step.received);
	}
	printf("\nAll steps: kernels %.3f ms, sends %.3f ms, receives %.3f ms; "
	       "%.0f %% of the\ntransfers' time beside kernels.\n", kernels,
	       sends, receives,
	       sends + receives > 0.0 ? 100.0 * beside / (sends + receives) : 0.0);
}

static void report(double kernels, double transfers, double both)
{
	double longer = kernels > transfers ? kernels : transfers;
	double shorter = kernels > transfers ? transfers : kernels;
	double hidden = 100.0 * (kernels + transfers - both) / shorter;

	hidden = hidden < 0.0 ? 0.0 : hidden > 100.0 ? 100.0 : hidden;
	printf("\n  kernels alone    %9.3f ms\n"
	       "  transfers alone  %9.3f ms\n"
	       "  both             %9.3f ms, %.2f x the longer of them\n"
	       "  hidden           %9.0f %% of the shorter of them\n\n", kernels,
	       transfers, both, both / longer, hidden);
}

/* ---- the whole ---------------------------------------------------------- */

static bool run_all(struct baton_comm *comm, int device,
                    const struct options *options)
{
	struct ring ring = {};
	double kernels, transfers, both;
	bool good;

	ring_init(&ring, comm, device, options);
	run(&ring, TRANSFERS); /* the first one finds everything cold */
	transfers = run(&ring, TRANSFERS);
	ring.rounds = options->rounds > 0
	                      ? (int)options->rounds
	                      : choose_rounds(&ring, transfers /
	                                                     (double)options->steps);
	ring.rounds_before = (int)swap(&ring, ring.rounds);
	kernels = run(&ring, KERNELS);
	both = run(&ring, KERNELS | TRANSFERS);
	kernel_times(&ring);
	good = verify(&ring);
	if (ring.rank == 0) {
		timeline(&ring);
		report(kernels, transfers, both);
		printf("%ld steps of %zu bytes, %d rounds an element: %s\n",
		       options->steps, ring.count * sizeof(uint32_t), ring.rounds,
		       good ? "all elements are right" : "WRONG");
		fflush(stdout);
	}
	ring_fini(&ring);
	return good;
}

static const char help_text[] =
	"usage: [mpirun -np N] cuda_overlap [options]\n"
	"\n"
	"Kernels and messages of device memory on one CUDA stream: each chunk travels\n"
	"to the next rank while the kernel of the next step runs.\n"
	"\n"
	"  --bytes N    of a chunk, 4096 to 1073741824, rounded down to words of 4\n"
	"               (default 16777216)\n"
	"  --steps N    2 to 1000 (default 20)\n"
	"  --rounds N   of a kernel's work for each element, 1 to 1000000; 0: as many as\n"
	"               make a kernel as long as a transfer (default)\n"
	"  --help       this text\n"
	"\n"
	"Exit status: 0 when all that was received is right, else 1.\n";

static bool number(const char *name, long min, long max, long *value_p)
{
	return option_number("cuda_overlap", name, min, max, value_p);
}

static bool take(int option, void *taken)
{
	struct options *options = static_cast<struct options *>(taken);

	switch (option) {
	case 'b':
		return number("bytes", 4096, 1l << 30, &options->bytes);
	case 's':
		return number("steps", 2, 1000, &options->steps);
	default: /* 'r' */
		return number("rounds", 0, 1000000, &options->rounds);
	}
}

static bool parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "bytes", required_argument, NULL, 'b' },
		{ "steps", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};

	return options_parse("cuda_overlap", help_text, argc, argv, known, take,
	                     options);
}

/* Kernels need a GPU, whatever library Baton was given for the driver. */
static bool there_is_a_gpu(enum baton_status status)
{
	int devices = 0;
	cudaError_t error = cudaGetDeviceCount(&devices);

	if (error != cudaSuccess)
		fprintf(stderr, "cuda_overlap needs a GPU.  cudaGetDeviceCount: %s: "
		        "%s\n", cudaGetErrorName(error),
		        cudaGetErrorString(error));
	if (status != BATON_OK)
		fprintf(stderr, "cuda_overlap: baton_comm_create: %s: %s\n",
		        baton_status_name(status), baton_last_error());
	return error == cudaSuccess && status == BATON_OK;
}

int main(int argc, char **argv)
{
	struct baton_comm_options how = BATON_COMM_OPTIONS_INIT;
	struct options options = { 16l << 20, 20, 0 };
	struct baton_comm *comm = NULL;
	struct baton_comm_info info;
	bool good = false;

	if (!parse(argc, argv, &options))
		return EXIT_FAILURE;
	how.device = BATON_DEVICE_CUDA;
	how.timestamps = true;
	how.timeout_ns = TIMEOUT_S * INT64_C(1000000000);
	if (there_is_a_gpu(baton_comm_create(&how, &comm))) {
		info.size = sizeof(info);
		CHECK(comm, baton_comm_query(comm, &info));
		if (info.rank == 0)
			printf("%d ranks, %s device, %s transport (%s)\n\n",
			       info.ranks, info.device_name,
			       info.transport_name, info.library);
		good = run_all(comm, info.cuda_device, &options);
	}
	CHECK(comm, baton_comm_destroy(comm));
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
