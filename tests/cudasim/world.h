/* SPDX-License-Identifier: BSD-3-Clause */
/* What the simulator's tests share: the simulator, set up in the process of each
 * test, the words that hold streams up, and host functions that count. */
#ifndef CUDASIM_WORLD_H
#define CUDASIM_WORLD_H

#include <stdatomic.h>
#include <string.h>

#include "cudasim.h"
#include "run_tests.h"

enum { WORDS = 64 };

/* One for each test: it runs in a process of its own. */
struct world {
	const struct cudasim *sim;
	CUcontext context; /* device 0's primary one; current */
	_Atomic uint64_t *words; /* pinned, mapped, zero */
	CUdeviceptr words_on_device;
	int violations; /* that the test expects */
};

extern struct world w;
/* The simulator alone, before cuInit: for settings. */
void world_load(void);
/* The rest. */
void world_begin(void);
/* Everything has ended, and the violations are those that were expected. */
void world_end(void);

#define ck_success(call) ck_assert_uint_eq((call), BATONI_CU_SUCCESS)

CUstream world_stream(unsigned flags);
/* The stream waits until the word has grown to the value. */
void world_wait(CUstream stream, unsigned word, uint64_t value);
void world_write(CUstream stream, unsigned word, uint64_t value);
void world_store(unsigned word, uint64_t value);
uint64_t world_load_word(unsigned word);
CUdeviceptr world_address(unsigned word);

/* A host function that counts its calls. */
struct probe {
	_Atomic int calls;
	_Atomic unsigned order; /* the how-many-th of all functions it was */
};
void world_probe(CUstream stream, struct probe *probe);
int world_calls(struct probe *probe);

/* A host function that blocks until it is let go. */
struct gate {
	_Atomic bool entered, open;
};
void world_gate(CUstream stream, struct gate *gate);
void world_await_entry(struct gate *gate);
void world_open(struct gate *gate);

#endif
