/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs of tests/gpu share: one line for each fact, the driver opened, a
 * stream that stands until it is let go, and a watchdog that lets it go.
 *
 * A fact is "fact NAME: ANSWER (details)".  A call that waits for the standing stream
 * would wait for ever: after HELD_MS the watchdog stores the gate's value, the call returns,
 * and the answer is that it waits.  docs/gpu-facts.md has the list of the answers.
 */
#ifndef GPU_FACTS_H
#define GPU_FACTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_api.h"

#define HELD_MS 300
#define DATA_BYTES ((size_t)1 << 20)

struct gpu {
	const struct batoni_cuda_api *api;
	CUdevice device;
	CUcontext context;
	/* Pinned: the gate that standing streams wait for, what a stream writes when it
	 * has come to an end, and data. */
	_Atomic uint64_t *gate, *done;
	CUdeviceptr gate_device, done_device;
	unsigned char *data;
	CUdeviceptr memory; /* of the device, DATA_BYTES */
	uint64_t turn;      /* the last value of gate and done: they only grow */
};

/* Ends the program where the driver cannot be used: status 77 without a GPU, else 1. */
void gpu_open(struct gpu *gpu);

/* Print a fact.  The format has the name too. */
void fact(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The driver's word for a result: "CUDA_SUCCESS". */
const char *gpu_name(const struct gpu *gpu, CUresult result);

/* The result must be success: else the program ends with status 1, naming the call. */
void gpu_must(const struct gpu *gpu, CUresult result, const char *call);
#define MUST(gpu, call) gpu_must(gpu, call, #call)

CUstream gpu_stream(const struct gpu *gpu, unsigned flags, int priority);

/* One memory operation on the stream: wait for the gate to reach a value; write to done. */
CUresult gpu_wait(const struct gpu *gpu, CUstream stream, uint64_t value);
CUresult gpu_write(const struct gpu *gpu, CUstream stream, uint64_t value);

/* Let all streams go that wait for the gate, and wait for them: status 1 if they stand. */
void gpu_let_go(struct gpu *gpu);

/* Has a stream written this value to done?  Looks for at most so many milliseconds. */
bool gpu_is_done(const struct gpu *gpu, uint64_t value, int ms);

/* The watchdog: between the two, the gate opens to `value` after HELD_MS.  stop returns
 * whether it has. */
struct watchdog {
	pthread_t thread;
	struct gpu *gpu;
	uint64_t value;
	_Atomic int state; /* 0: watching; 1: stopped; 2: it has opened the gate */
};
void watchdog_start(struct watchdog *dog, struct gpu *gpu, uint64_t value);
bool watchdog_stop(struct watchdog *dog);

void sleep_ms(int ms);
int64_t now_ms(void);

/* A function of the driver that cuda_api.h does not declare; NULL if it has none. */
void *gpu_symbol(const char *name);

/* The parts: each is a subcommand. */
void facts_queues(struct gpu *gpu);
void facts_depth(struct gpu *gpu);
void facts_blocks(struct gpu *gpu, const CUipcMemHandle *handle);
void facts_pointers(struct gpu *gpu);
void facts_mappings(struct gpu *gpu);
void facts_context(struct gpu *gpu);
void facts_batch(struct gpu *gpu);
void facts_nccl(struct gpu *gpu);

#endif
