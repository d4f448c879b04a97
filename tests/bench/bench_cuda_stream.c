/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways between a stream and the engine, of rank 0, in us.
 *
 * cuda_trigger: from when a stream may go on until the engine knows that it has reached an
 * operation (armed_ns of a record), against a host function alone, which notes the time.
 * cuda_trigger_write: the same for a stream's write of a word at which the host looks,
 * alone: what another kind of trigger could reach.  (Baton has none; its call of the driver would
 * be one with that of the wait.)
 * cuda_wait: from when an operation has ended (completed_ns of a receive) until the
 * stream goes on and writes a word at which the host looks, against a stream that waits
 * for a word of the host's.
 *
 * In both the stream first waits for a word, and stands when the clock starts: the
 * time in which the GPU notices the word is in both sides.
 */
#include <stdatomic.h>

#include "baton_mpi.h"
#include "bench_cuda.h"

#define TAG 8
#define STANDS_NS 50000 /* by then a stream has got to what it waits for */

/* Pinned; the stream waits for `gate` and writes `answer`. */
struct words {
	_Atomic uint64_t gate, answer;
};

struct stage {
	struct baton_comm *comm; /* with timestamps */
	baton_stream stream, other;
	struct words *words;
	CUdeviceptr gate, answer; /* of the words, for the device */
	uint64_t value;           /* the last one used: they only grow */
	_Atomic uint64_t noted;   /* by the host function */
};

static void
note(void *argument)
{
	struct stage *s = argument;

	atomic_store_explicit(&s->noted, bench_now(), memory_order_release);
}

/* Let the stream get to its wait. */
static void
stand(void)
{
	uint64_t until = bench_now() + STANDS_NS;

	while (bench_now() < until)
		;
}

static uint64_t
open_gate(struct stage *s)
{
	uint64_t now = bench_now();

	atomic_store_explicit(&s->words->gate, s->value, memory_order_release);
	return now;
}

static uint64_t
see_answer(struct stage *s)
{
	while (atomic_load_explicit(&s->words->answer, memory_order_acquire) <
	       s->value)
		;
	return bench_now();
}

static double
mean_us(uint64_t ns, int rounds)
{
	return (double)ns / (1e3 * rounds);
}

/* ---- the trigger ---------------------------------------------------------- */

static uint64_t
bare_function(struct stage *s)
{
	uint64_t begin, end;

	s->value++;
	atomic_store_explicit(&s->noted, 0, memory_order_relaxed);
	CUDA(wait_value(s->stream, s->gate, s->value, BATONI_CU_WAIT_GEQ));
	CUDA(host_function(s->stream, note, s));
	stand();
	begin = open_gate(s);
	do
		end = atomic_load_explicit(&s->noted, memory_order_acquire);
	while (end == 0);
	return end - begin;
}

static uint64_t
baton_trigger(struct stage *s)
{
	struct baton_completion completion;
	baton_request request;
	uint64_t begin;

	s->value++;
	CUDA(wait_value(s->stream, s->gate, s->value, BATONI_CU_WAIT_GEQ));
	bench_must(baton_record(s->comm, s->stream, NULL, &request) == BATON_OK);
	stand();
	begin = open_gate(s);
	bench_must(baton_finish(&request, -1, &completion) == BATON_OK);
	return completion.armed_ns - begin;
}

/* ---- the wait ------------------------------------------------------------- */

/* A wait and a write behind it: the write as a trigger, too. */
static uint64_t
bare_words(struct stage *s)
{
	uint64_t begin;

	s->value++;
	CUDA(wait_value(s->stream, s->gate, s->value, BATONI_CU_WAIT_GEQ));
	CUDA(write_value(s->stream, s->answer, s->value, 0));
	stand();
	begin = open_gate(s);
	return see_answer(s) - begin;
}

/* A message of the rank to itself, between buffers of the host. */
static uint64_t
baton_wait_latency(struct stage *s)
{
	static char out, in;
	struct baton_completion completion;
	baton_request received, sent;
	int self = baton_comm_rank(s->comm);
	uint64_t end;

	s->value++;
	bench_must(baton_recv(&in, 1, BATON_UINT8, self, TAG, s->comm, s->stream,
	                      NULL, &received) == BATON_OK);
	CUDA(write_value(s->stream, s->answer, s->value, 0));
	stand();
	bench_must(baton_send(&out, 1, BATON_UINT8, self, TAG, s->comm, s->other,
	                      NULL, &sent) == BATON_OK);
	bench_must(baton_finish(&received, -1, &completion) == BATON_OK);
	end = see_answer(s);
	bench_must(baton_finish(&sent, -1, NULL) == BATON_OK);
	/* Where the stream was seen before the host had its clock back. */
	return end > completion.completed_ns ? end - completion.completed_ns : 0;
}

/* ---- rows ----------------------------------------------------------------- */

struct side {
	struct stage *stage;
	uint64_t (*round)(struct stage *s);
};

static double
block(struct bench *b, void *arg, int rounds)
{
	struct side *side = arg;
	uint64_t sum = 0;

	if (b->rank != 0)
		return 0;
	bench_gpu_enter();
	for (int i = 0; i < rounds; i++)
		sum += side->round(side->stage);
	CUDA(stream_synchronize(side->stage->stream));
	bench_gpu_leave();
	return mean_us(sum, rounds);
}

static void
measure(struct bench *b, struct stage *s, struct bench_row *row,
	uint64_t (*bare)(struct stage *), uint64_t (*ours)(struct stage *))
{
	struct side with[] = {{s, bare}, {s, ours}};
	const struct bench_side sides[] = {{block, &with[0]}, {block, &with[1]}};
	const struct bench_plan plan = {.blocks = b->quick ? 3 : 30,
	                                .block_ns = 2000000};
	struct bench_stat stats[2];

	bench_compare(b, sides, 2, &plan, stats);
	row->unit = "us";
	row->base = stats[0];
	row->value = stats[1];
	bench_gpu_report(b, row);
}

static void
stage_open(struct bench *b, struct stage *s)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	void *words;

	*s = (struct stage){.value = 0};
	options.device = BATON_DEVICE_CUDA;
	options.timestamps = true;
	bench_must(baton_comm_create_mpi(b->raw, &options, &s->comm) == BATON_OK);
	bench_must(baton_stream_create(s->comm, &s->stream) == BATON_OK);
	bench_must(baton_stream_create(s->comm, &s->other) == BATON_OK);
	bench_gpu_enter();
	CUDA(host_alloc(&words, sizeof(*s->words),
	                BATONI_CU_HOST_ALLOC_PORTABLE |
	                        BATONI_CU_HOST_ALLOC_MAPPED));
	s->words = words;
	atomic_init(&s->words->gate, 0);
	atomic_init(&s->words->answer, 0);
	CUDA(host_device_pointer(&s->gate, &s->words->gate, 0));
	CUDA(host_device_pointer(&s->answer, &s->words->answer, 0));
	bench_gpu_leave();
}

static void
stage_close(struct stage *s)
{
	bench_must(baton_stream_synchronize(s->comm, s->stream) == BATON_OK);
	bench_must(baton_stream_synchronize(s->comm, s->other) == BATON_OK);
	bench_must(baton_stream_destroy(s->comm, s->stream) == BATON_OK);
	bench_must(baton_stream_destroy(s->comm, s->other) == BATON_OK);
	bench_must(baton_comm_destroy(s->comm) == BATON_OK);
	bench_gpu_enter();
	CUDA(host_free(s->words));
	bench_gpu_leave();
}

static bool
has_memory_operations(void)
{
	CUdevice device;
	int has = 0;

	bench_gpu_enter();
	CUDA(context_device(&device));
	CUDA(device_attribute(&has, BATONI_CU_DEVICE_MEM_OPS_64, device));
	bench_gpu_leave();
	return has != 0;
}

void
bench_cuda_stream(struct bench *b)
{
	static const struct {
		const char *bench, *baseline;
		uint64_t (*bare)(struct stage *);
		uint64_t (*ours)(struct stage *);
		size_t bytes;
	} rows[] = {
		{"cuda_trigger", "host function", bare_function, baton_trigger, 0},
		{"cuda_trigger_write", "host function", bare_function, bare_words, 0},
		{"cuda_wait", "stream waits for the host", bare_words,
		 baton_wait_latency, 1},
	};
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	bool wants = false;
	struct stage s;

	for (size_t i = 0; i < count; i++)
		wants = wants || bench_wants(b, rows[i].bench);
	if (!wants)
		return;
	if (!has_memory_operations()) {
		if (b->rank == 0)
			printf("cuda_trigger, cuda_wait: left out: the device has no "
			       "64-bit stream memory operations\n");
		return;
	}
	stage_open(b, &s);
	for (size_t i = 0; i < count; i++) {
		struct bench_row row = {.bench = rows[i].bench,
		                        .baseline = rows[i].baseline,
		                        .bytes = rows[i].bytes};

		if (bench_wants(b, row.bench))
			measure(b, &s, &row, rows[i].bare, rows[i].ours);
	}
	stage_close(&s);
}
