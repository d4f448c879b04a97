/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transfer of device memory beside a kernel of rank 0, which occupies all
 * multiprocessors with arithmetic and touches no memory.
 *
 * cuda_overlap_send, _recv: rank 0 sends, or receives, 16 MiB, detached, on one stream; the
 * kernel, as long as the transfer, runs on another.  The figure is
 *
 *   max(kernel alone, transfer alone) / both
 *
 * 1: the shorter one is hidden whole; 0.5: they ran one after the other.
 *
 * The kernel is PTX, which the driver compiles, so no CUDA compiler is needed.  The
 * simulator has no kernels: a host function spins instead.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cuda.h"

#define TAG 9
#define BYTES (UINT64_C(16) << 20)
#define BYTES_SIM (UINT64_C(1) << 20)
#define THREADS 256
#define BLOCKS_EACH 4 /* of a multiprocessor */
#define TRIAL_ROUNDS 100000
#define ROUNDS_MAX 2e9

static const char kernel_ptx[] =
	".version 7.0\n"
	".target sm_52\n"
	".address_size 64\n"
	".visible .entry spin(.param .u32 rounds, .param .u64 sink)\n"
	"{\n"
	"	.reg .pred %again, %never;\n"
	"	.reg .b32 %x, %left;\n"
	"	.reg .b64 %at;\n"
	"	ld.param.u32 %left, [rounds];\n"
	"	ld.param.u64 %at, [sink];\n"
	"	cvta.to.global.u64 %at, %at;\n"
	"	mov.u32 %x, %tid.x;\n"
	"more:\n"
	"	mad.lo.u32 %x, %x, 1664525, 1013904223;\n"
	"	sub.u32 %left, %left, 1;\n"
	"	setp.ne.u32 %again, %left, 0;\n"
	"	@%again bra more;\n"
	/* Without a use of the result there would be no work. */
	"	setp.eq.u32 %never, %x, %left;\n"
	"	@%never st.global.u32 [%at], %x;\n"
	"	ret;\n"
	"}\n";

typedef struct CUfunc_st *CUfunction;

/* Those of the driver's functions that the simulator does not have. */
static struct {
	CUresult (*function)(CUfunction *function_p, CUmodule module,
	                     const char *name);
	CUresult (*launch)(CUfunction function, unsigned grid_x, unsigned grid_y,
	                   unsigned grid_z, unsigned block_x, unsigned block_y,
	                   unsigned block_z, unsigned shared, CUstream stream,
	                   void **parameters, void **extra);
} driver;

struct overlap {
	struct bench_memory *memory;
	bool send; /* rank 0 does; else it receives */
	CUstream stream;
	CUfunction kernel;
	uint32_t rounds; /* simulator: nanoseconds */
};

static void
spin(void *argument)
{
	const struct overlap *o = argument;
	uint64_t until = bench_now() + o->rounds;

	while (bench_now() < until)
		;
}

static void
launch(struct overlap *o)
{
	CUdeviceptr sink = (CUdeviceptr)(uintptr_t)o->memory->on_device;
	void *parameters[] = {&o->rounds, &sink};

	if (bench_gpu.simulated)
		CUDA(host_function(o->stream, spin, o));
	else
		bench_must(driver.launch(
				   o->kernel,
				   (unsigned)(bench_gpu.processors * BLOCKS_EACH),
				   1, 1, THREADS, 1, 1, 0, o->stream, parameters,
				   NULL) == BATONI_CU_SUCCESS);
}

/* ---- blocks --------------------------------------------------------------- */

enum { KERNEL = 1, TRANSFER = 2 };

static double
rounds_of(struct bench *b, struct overlap *o, int rounds, int parts)
{
	uint64_t start = bench_now();
	bool kernel = (parts & KERNEL) && b->rank == 0;

	for (int i = 0; i < rounds; i++) {
		baton_request request;

		if (parts & TRANSFER)
			request = bench_cuda_enqueue(
				b, (b->rank == 0) == o->send,
				o->memory->on_device, o->memory->bytes, TAG);
		if (kernel) {
			bench_gpu_enter();
			launch(o);
			bench_gpu_leave();
		}
		if (parts & TRANSFER)
			bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
		if (kernel) {
			bench_gpu_enter();
			CUDA(stream_synchronize(o->stream));
			bench_gpu_leave();
		}
	}
	return (double)(bench_now() - start) / (1e6 * rounds);
}

static double
transfer_alone(struct bench *b, void *arg, int rounds)
{
	return rounds_of(b, arg, rounds, TRANSFER);
}

static double
kernel_alone(struct bench *b, void *arg, int rounds)
{
	return rounds_of(b, arg, rounds, KERNEL);
}

static double
both(struct bench *b, void *arg, int rounds)
{
	return rounds_of(b, arg, rounds, KERNEL | TRANSFER);
}

/* ---- rows ----------------------------------------------------------------- */

/* So many that the kernel takes as long as the transfer. */
static void
choose_rounds(struct bench *b, struct overlap *o)
{
	double transfer, kernel, rounds = 1e6;

	rounds_of(b, o, 1, KERNEL | TRANSFER); /* all is cold */
	bench_meet(b);
	transfer = rounds_of(b, o, 4, TRANSFER);
	bench_meet(b);
	if (b->rank == 0 && !bench_gpu.simulated) {
		kernel = rounds_of(b, o, 4, KERNEL);
		rounds = o->rounds * transfer / kernel;
	}
	o->rounds = (uint32_t)(rounds > ROUNDS_MAX ? ROUNDS_MAX
	                       : rounds < 1        ? 1
	                                           : rounds);
	bench_meet(b);
}

static void
measure(struct bench *b, struct overlap *o)
{
	const struct bench_side sides[] = {
		{transfer_alone, o}, {kernel_alone, o}, {both, o}};
	const struct bench_plan plan = {.blocks = b->quick ? 3 : 15,
	                                .block_ns = 20000000};
	struct bench_stat stats[3];
	struct bench_row row = {.bytes = o->memory->bytes, .unit = "share"};
	double longer;

	row.bench = o->send ? "cuda_overlap_send" : "cuda_overlap_recv";
	if (!bench_wants(b, row.bench))
		return;
	choose_rounds(b, o);
	bench_compare(b, sides, 3, &plan, stats);
	longer = stats[0].median > stats[1].median ? stats[0].median
	                                           : stats[1].median;
	row.value = (struct bench_stat){.median = longer / stats[2].median,
	                                .q1 = longer / stats[2].q3,
	                                .q3 = longer / stats[2].q1,
	                                .count = stats[2].count};
	bench_gpu_report(b, &row);
}

static void
look_up(void *library, const char *name, void *function_p)
{
	void *function = dlsym(library, name);

	bench_must(function != NULL);
	memcpy(function_p, &function, sizeof(function));
}

static void
load_kernel(struct overlap *o)
{
	const char *named = getenv("BATON_CUDA_LIBRARY");
	void *library = dlopen(named != NULL ? named : "libcuda.so.1", RTLD_NOW);
	CUmodule module;

	bench_must(library != NULL);
	look_up(library, "cuModuleGetFunction", &driver.function);
	look_up(library, "cuLaunchKernel", &driver.launch);
	CUDA(module_load(&module, kernel_ptx));
	bench_must(driver.function(&o->kernel, module, "spin") ==
	           BATONI_CU_SUCCESS);
}

void
bench_cuda_overlap(struct bench *b, struct bench_memory *m)
{
	struct overlap o = {.memory = m, .rounds = TRIAL_ROUNDS};

	if (!bench_wants(b, "cuda_overlap_send") &&
	    !bench_wants(b, "cuda_overlap_recv"))
		return;
	m->bytes = bench_gpu.simulated ? BYTES_SIM : BYTES;
	bench_gpu_enter();
	CUDA(stream_create(&o.stream, BATONI_CU_STREAM_NON_BLOCKING, 0));
	if (!bench_gpu.simulated)
		load_kernel(&o);
	bench_gpu_leave();
	for (int i = 0; i < 2; i++) {
		o.send = i == 0;
		o.rounds = TRIAL_ROUNDS;
		measure(b, &o);
	}
	bench_gpu_enter();
	CUDA(stream_destroy(o.stream));
	bench_gpu_leave();
}
