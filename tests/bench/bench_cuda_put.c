/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts from device memory into a window of the other rank's device memory, stream to stream.
 *
 * cuda_put_latency: half a round trip of a put of 8 bytes and the wait for its signal: each
 * rank's stream puts when it has got the other one's.  The host enqueues BENCH_PUTS_ROUNDS of them and
 * waits for the last.
 * cuda_put_bandwidth: as many puts as fit, one behind the other; the target's stream waits for
 * all their signals and signals back.
 *
 * The baseline is the least that the hardware needs, by the driver's calls, in the same
 * order: a copy into the other process's memory, which cuIpcOpenMemHandle has opened, and a
 * stream's write of a word of host memory that both have registered; the other side's stream
 * waits for that word.  It has no bounds, no requests and no way out of a wait.
 *
 * Two processes of one GPU share its time: their streams take turns, which both sides
 * contain.  A line above the rows says whether that is so, and by which path the puts go.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench_cuda.h"
#include "bench_puts.h"
#include "bench_raw.h"

#define LINE 64 /* bytes from one word to the next */
#define WORDS_BYTES 4096
#define WINDOW_BYTES (UINT64_C(128) << 20)
#define WINDOW_BYTES_SIM (UINT64_C(2) << 20)

/* What both sides of a comparison use. */
struct puts {
	size_t bytes, count; /* of a put; puts in a window */
	CUdeviceptr source;
	/* Baton's. */
	struct baton_window *window;
	/* The raw ones. */
	CUstream stream;
	CUdeviceptr mine, theirs;       /* memory that is put into */
	CUdeviceptr my_word, its_word;  /* my stream waits for the first */
	uint64_t waited, written;       /* last values of the words */
};

/* ---- raw: a copy and a write ---------------------------------------------- */

static void
raw_copy(struct puts *p, size_t at)
{
	CUDA(copy(p->theirs + at, p->source + at, p->bytes, p->stream));
}

static void
raw_signal(struct puts *p)
{
	CUDA(write_value(p->stream, p->its_word, ++p->written, 0));
}

/* For so many more signals. */
static void
raw_wait(struct puts *p, uint64_t count)
{
	p->waited += count;
	CUDA(wait_value(p->stream, p->my_word, p->waited, BATONI_CU_WAIT_GEQ));
}

static double
raw_latency(struct bench *b, void *arg, int rounds)
{
	struct puts *p = arg;
	uint64_t start = bench_now();

	bench_gpu_enter();
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < BENCH_PUTS_ROUNDS; k++) {
			if (b->rank != 0)
				raw_wait(p, 1);
			raw_copy(p, 0);
			raw_signal(p);
			if (b->rank == 0)
				raw_wait(p, 1);
		}
		CUDA(stream_synchronize(p->stream));
	}
	bench_gpu_leave();
	return bench_half_us(start, rounds * BENCH_PUTS_ROUNDS);
}

static double
gigabytes(const struct puts *p, int rounds, uint64_t start)
{
	return (double)p->bytes * (double)p->count * rounds /
	       (double)(bench_now() - start);
}

static double
raw_bandwidth(struct bench *b, void *arg, int rounds)
{
	struct puts *p = arg;
	uint64_t start = bench_now();

	bench_gpu_enter();
	for (int i = 0; i < rounds; i++) {
		if (b->rank == 0) {
			for (size_t k = 0; k < p->count; k++) {
				raw_copy(p, k * p->bytes);
				raw_signal(p);
			}
			raw_wait(p, 1);
		} else {
			raw_wait(p, p->count);
			raw_signal(p);
		}
		CUDA(stream_synchronize(p->stream));
	}
	bench_gpu_leave();
	return gigabytes(p, rounds, start);
}

/* ---- Baton ---------------------------------------------------------------- */

static struct bench_puts
baton_puts(const struct bench *b, const struct puts *p)
{
	return (struct bench_puts){
		.comm = b->comm, .stream = b->stream, .rank = b->rank,
		.peer = b->peer, .window = p->window, .bytes = p->bytes,
		.stride = p->bytes,
		.source = (const char *)(uintptr_t)p->source};
}

static double
baton_latency(struct bench *b, void *arg, int rounds)
{
	const struct bench_puts puts = baton_puts(b, arg);
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++)
		bench_puts_pingpong(&puts);
	return bench_half_us(start, rounds * BENCH_PUTS_ROUNDS);
}

static double
baton_bandwidth(struct bench *b, void *arg, int rounds)
{
	const struct puts *p = arg;
	const struct bench_puts puts = baton_puts(b, p);
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++)
		bench_puts_row(&puts, p->count);
	return gigabytes(p, rounds, start);
}

/* ---- rows ----------------------------------------------------------------- */

/* Over the simulator: once, for nothing is read off it. */
static struct bench_plan
plan_of(const struct bench *b, int blocks, uint64_t block_ns)
{
	struct bench_plan plan = {.blocks = b->quick ? 3 : blocks,
	                          .block_ns = block_ns};

	if (bench_gpu.simulated)
		plan = (struct bench_plan){.blocks = 1, .block_ns = 1};
	return plan;
}

static void
measure_latency(struct bench *b, struct puts *p)
{
	const struct bench_side sides[] = {{raw_latency, p}, {baton_latency, p}};
	const struct bench_plan plan = plan_of(b, 30, 2000000);
	struct bench_stat stats[2];
	struct bench_row row = {.bench = "cuda_put_latency", .bytes = 8,
	                        .unit = "us", .baseline = "copy + stream write"};

	p->bytes = 8;
	bench_compare(b, sides, 2, &plan, stats);
	row.base = stats[0];
	row.value = stats[1];
	bench_gpu_report(b, &row);
}

static void
measure_bandwidth(struct bench *b, struct puts *p, size_t bytes, size_t window)
{
	const struct bench_side sides[] = {{raw_bandwidth, p},
	                                   {baton_bandwidth, p}};
	const struct bench_plan plan = plan_of(b, 15, 20000000);
	struct bench_stat stats[2];
	struct bench_row row = {.bench = "cuda_put_bandwidth", .bytes = bytes,
	                        .unit = "GB/s",
	                        .baseline = "copy + stream write"};

	p->bytes = bytes;
	p->count = window / bytes < BENCH_WINDOW ? window / bytes : BENCH_WINDOW;
	bench_compare(b, sides, 2, &plan, stats);
	row.base = stats[0];
	row.value = stats[1];
	bench_gpu_report(b, &row);
}

/* ---- what they need ------------------------------------------------------- */

/* The same on both ranks; true: all is well on both. */
static bool
both(struct bench *b, bool well)
{
	int mine = well, all = 0;

	bench_must(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, b->raw) ==
	           MPI_SUCCESS);
	return all != 0;
}

/* Host memory of rank 0 that both have; NULL: the ranks do not see each other's files. */
static void *
share_words(struct bench *b)
{
	struct file {
		int pid, fd;
	} mine = {(int)getpid(), -1}, theirs;
	char path[64];
	void *words = MAP_FAILED;
	int fd;

	if (b->rank == 0) {
		mine.fd = memfd_create("bench_cuda_put", MFD_CLOEXEC);
		bench_must(mine.fd >= 0 &&
		           ftruncate(mine.fd, WORDS_BYTES) == 0);
	}
	bench_exchange(b, &mine, &theirs, sizeof(mine));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", theirs.pid, theirs.fd);
	fd = b->rank == 0 ? mine.fd : open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		words = mmap(NULL, WORDS_BYTES, PROT_READ | PROT_WRITE,
		             MAP_SHARED, fd, 0);
	/* Rank 1 has opened it. */
	both(b, true);
	if (fd >= 0)
		close(fd);
	return words == MAP_FAILED ? NULL : words;
}

static bool
has_calls(void)
{
	const struct cudasim *cuda = bench_gpu.cuda;
	CUdevice device;
	int has = 0;

	CUDA(context_device(&device));
	CUDA(device_attribute(&has, BATONI_CU_DEVICE_MEM_OPS_64, device));
	return has && cuda->ipc_handle && cuda->ipc_open && cuda->ipc_close &&
	       cuda->host_register && cuda->host_unregister;
}

/* NULL: the raw side is open; else why it cannot be, and nothing is left.  Both ranks get
 * the same. */
static const char *
raw_open(struct bench *b, struct puts *p, size_t window, void **words_p)
{
	CUipcMemHandle mine, theirs;
	CUdeviceptr words;
	bool well;

	if (!both(b, has_calls()))
		return "a driver or a device lacks IPC handles, or stream memory "
		       "operations";
	*words_p = share_words(b);
	if (!both(b, *words_p != NULL))
		return "the ranks do not see each other's files in /proc";
	CUDA(host_register(*words_p, WORDS_BYTES,
	                   BATONI_CU_HOST_REGISTER_PORTABLE |
	                           BATONI_CU_HOST_REGISTER_MAPPED));
	CUDA(host_device_pointer(&words, *words_p, 0));
	p->my_word = words + (CUdeviceptr)b->rank * LINE;
	p->its_word = words + (CUdeviceptr)b->peer * LINE;
	CUDA(mem_alloc(&p->mine, window));
	CUDA(ipc_handle(&mine, p->mine));
	bench_exchange(b, &mine, &theirs, sizeof(mine));
	well = bench_gpu.cuda->ipc_open(&p->theirs, theirs,
	                                BATONI_CU_IPC_ENABLE_PEERS) ==
	       BATONI_CU_SUCCESS;
	if (both(b, well)) {
		CUDA(stream_create(&p->stream, BATONI_CU_STREAM_NON_BLOCKING, 0));
		return NULL;
	}
	if (well)
		CUDA(ipc_close(p->theirs));
	both(b, true);
	CUDA(mem_free(p->mine));
	CUDA(host_unregister(*words_p));
	munmap(*words_p, WORDS_BYTES);
	return "the ranks' devices do not reach each other's memory";
}

static void
raw_close(struct bench *b, struct puts *p, void *words)
{
	CUDA(stream_destroy(p->stream));
	CUDA(ipc_close(p->theirs));
	/* It is freed when the peer has closed it. */
	both(b, true);
	CUDA(mem_free(p->mine));
	CUDA(host_unregister(words));
	munmap(words, WORDS_BYTES);
}

static void
measure(struct bench *b, struct puts *p, size_t window)
{
	static const size_t sizes[] = {65536, UINT64_C(1) << 20,
	                               UINT64_C(16) << 20, UINT64_C(64) << 20};

	if (bench_wants(b, "cuda_put_latency"))
		measure_latency(b, p);
	if (!bench_wants(b, "cuda_put_bandwidth"))
		return;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (sizes[i] <= window / 2)
			measure_bandwidth(b, p, sizes[i], window);
	}
}

void
bench_cuda_put(struct bench *b)
{
	size_t window = bench_gpu.simulated ? WINDOW_BYTES_SIM : WINDOW_BYTES;
	struct puts p = {.bytes = 8};
	void *memory, *words = NULL;
	const char *why;
	bool one;

	if (!bench_wants(b, "cuda_put_latency") &&
	    !bench_wants(b, "cuda_put_bandwidth"))
		return;
	bench_gpu_enter();
	one = bench_gpu_is_shared(b);
	why = raw_open(b, &p, window, &words);
	bench_gpu_leave();
	if (why) {
		if (b->rank == 0)
			printf("cuda_put: left out: %s\n", why);
		return;
	}
	p.source = (CUdeviceptr)(uintptr_t)bench_gpu_alloc(window);
	bench_must(baton_mem_alloc(b->comm, window, &memory) == BATON_OK);
	bench_must(baton_window_register(memory, window, b->comm, &p.window) ==
	           BATON_OK);
	if (b->rank == 0)
		printf("cuda_put: puts go %s; %s\n",
		       bench_path_name(baton_window_path(p.window, b->peer)),
		       one ? "two processes of one GPU share its time"
		           : "each rank has a GPU of its own");
	measure(b, &p, window);
	bench_must(baton_window_deregister(p.window) == BATON_OK);
	bench_must(baton_mem_free(b->comm, memory) == BATON_OK);
	bench_gpu_enter();
	raw_close(b, &p, words);
	bench_gpu_leave();
}
