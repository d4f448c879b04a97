/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model [--mode calls|thread|async|stream|cuda] [--seeds N] [--seed FIRST]
 *
 * Replay N programs (default 100) in each mode, in processes of their own, so that a
 * crash or a hang is a result too.  The first program that differs is made shorter,
 * as long as it still does, printed, and replayed once more for its message.
 */
#include "model.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"
#include "shared_memory.h"

#define BATCH 500
/* Longer than a call of replay.c has patience, so that it can say what it waits for. */
#define HANG_S 150

static const char *const mode_names[MODES] = { "calls", "thread", "async",
                                              "stream", "cuda" };

/* In a process of its own; quiet: it says nothing. */
static bool
survives(const struct program *program, enum replay_mode mode, bool quiet)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (quiet && !freopen("/dev/null", "w", stderr))
			_exit(2);
		alarm(HANG_S);
		_exit(replay(program, mode) ? 0 : 1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		abort();
	if (WIFSIGNALED(status) && !quiet)
		fprintf(stderr, "killed by signal %d\n", WTERMSIG(status));
	return status == 0;
}

/* Leave out what is not needed: halves, quarters, down to single steps. */
static void
shrink(struct program *program, enum replay_mode mode)
{
	for (int size = program->count / 2; size > 0; size /= 2) {
		for (int at = 0; at < program->count; at += size) {
			struct program shorter = *program;
			bool changed = false;

			for (int i = at; i < at + size && i < program->count;
			     i++) {
				changed |= !shorter.steps[i].left_out;
				shorter.steps[i].left_out = true;
			}
			if (changed && !survives(&shorter, mode, true))
				*program = shorter;
		}
	}
}

/* Returns the first seed that fails, or the end. */
static uint64_t
run_batch(uint64_t first, uint64_t end, enum replay_mode mode)
{
	static struct program program;
	void *shared = shared_alloc(sizeof(uint64_t));
	volatile uint64_t *at = shared;
	uint64_t seed = 0;
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		for (seed = first; seed < end; seed++) {
			*at = seed;
			alarm(HANG_S);
			program_make(&program, seed, mode);
			if (!replay(&program, mode))
				_exit(1);
		}
		*at = end;
		exit(0); /* with what runs at exit */
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		abort();
	seed = *at;
	munmap(shared, sizeof(uint64_t));
	if (status != 0 && seed == end)
		fprintf(stderr, "the exit failed: status %#x\n",
		        (unsigned)status);
	return status == 0 ? end : seed;
}

static bool
run_mode(enum replay_mode mode, uint64_t first, uint64_t count)
{
	static struct program program;
	uint64_t seed = first;

	while (seed < first + count) {
		uint64_t end = seed + BATCH < first + count ? seed + BATCH
		                                            : first + count;
		uint64_t failed = run_batch(seed, end, mode);

		if (failed != end) {
			program_make(&program, failed, mode);
			printf("mode %s, seed %llu differs; making it shorter\n",
			       mode_names[mode], (unsigned long long)failed);
			shrink(&program, mode);
			program_print(&program, stdout);
			if (survives(&program, mode, false))
				printf("... and passes when it is alone\n");
			return false;
		}
		seed = end;
	}
	printf("mode %s: seeds %llu to %llu agree with the model\n",
	       mode_names[mode], (unsigned long long)first,
	       (unsigned long long)(first + count - 1));
	return true;
}

int
main(int argc, char **argv)
{
	uint64_t first = 0, count = 0;
	const char *only = NULL;
	const struct test_option options[] = {
		{ .name = "--mode", .value = "calls|thread|async|stream|cuda",
		  .text = &only },
		{ .name = "--seeds", .value = "N", .number = &count },
		{ .name = "--seed", .value = "FIRST", .number = &first },
		{ .name = NULL },
	};
	bool good = true, known = false;

	if (options_read(options, NULL, argc, argv) < 0)
		return 2;
	if (count == 0)
		count = first ? 1 : 100;
	for (int mode = 0; mode < MODES; mode++) {
		/* It needs the driver, or its simulator. */
		if (only ? strcmp(only, mode_names[mode]) != 0
		         : mode == MODE_CUDA)
			continue;
		known = true;
		good &= run_mode((enum replay_mode)mode, first ? first : 1,
		                 count);
	}
	if (!known)
		fprintf(stderr, "model: there is no mode %s\n", only);
	return !known ? 2 : good ? 0 : 1;
}
