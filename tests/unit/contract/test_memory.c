/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory contract: the host's table, and the fake's, which notices code that breaks the
 * contract. */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "copies.h"
#include "fake_memory.h"
#include "handover.h"
#include "mem.h"
#include "run_tests.h"

#define MIB ((size_t)1 << 20)

static const struct batoni_memory_ops *const host = &batoni_host_memory_ops;
static const struct batoni_memory_ops *const fake = &batoni_fake_memory_ops;

static unsigned char *
pattern(size_t bytes, unsigned seed)
{
	unsigned char *block = malloc(bytes);

	ck_assert_ptr_nonnull(block);
	for (size_t i = 0; i < bytes; i++)
		block[i] = (unsigned char)((131 * seed + i) % 251);
	return block;
}

/* ---- the host's ------------------------------------------------------------ */

START_TEST(all_memory_is_the_hosts)
{
	struct batoni_memory_info memory;
	struct batoni_fault fault;
	int here = 0;

	ck_assert(host->host_only);
	ck_assert_int_eq(host->inspect(NULL, &here, 1, &memory), BATON_OK);
	ck_assert_int_eq(memory.kind, BATONI_MEMORY_HOST);
	ck_assert_int_eq(memory.owner, -1);
	ck_assert_ptr_null(memory.base);
	ck_assert_int_eq(host->health(NULL, &fault), BATON_OK);
}
END_TEST

START_TEST(a_host_copy_is_made_in_slices)
{
	static const struct {
		size_t bytes;
		int pending;
	} cases[] = {
		{1, 0}, {MIB, 0}, {MIB + 1, 0}, {2 * MIB, 0},
		{2 * MIB + 1, 1}, {4 * MIB, 2},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t bytes = cases[i].bytes;
		unsigned char *from = pattern(bytes, (unsigned)i);
		unsigned char *to = calloc(1, bytes + 1);
		struct batoni_ticket ticket;
		int pending = 0;

		ck_assert_int_eq(host->copy_start(NULL, to, from, bytes, -1, &ticket),
		                 BATON_OK);
		/* No more than a slice at a time. */
		if (bytes > MIB)
			ck_assert_int_eq(to[MIB], 0);
		while (host->copy_test(NULL, &ticket) == BATON_PENDING)
			pending++;
		ck_assert_int_eq(pending, cases[i].pending);
		ck_assert_mem_eq(to, from, bytes);
		ck_assert_int_eq(to[bytes], 0);
		free(from);
		free(to);
	}
}
END_TEST

START_TEST(pinned_host_memory_is_aligned_and_can_run_out)
{
	void *block = NULL;

	ck_assert_int_eq(host->pinned_alloc(NULL, 100, 0, &block), BATON_OK);
	ck_assert_uint_eq((uintptr_t)block % 64, 0);
	host->pinned_free(NULL, block);
	batoni_mem_fail_at(1);
	ck_assert_int_eq(host->pinned_alloc(NULL, 100, 0, &block),
	                 BATON_ERR_NOMEM);
	batoni_mem_fail_at(0);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* ---- the fake's ------------------------------------------------------------ */

static struct batoni_device *
open_fake(void)
{
	struct batoni_device *device = NULL;

	ck_assert_int_eq(batoni_fake_device_ops.open(NULL, &device), BATON_OK);
	return device;
}

static void
close_fake(struct batoni_device *device, int violations)
{
	batoni_fake_device_ops.close(device);
	ck_assert_int_eq(fake_device_violations(), violations);
}

static void
wait_for(struct batoni_device *device, struct batoni_ticket *ticket)
{
	enum baton_status status;

	while ((status = fake->copy_test(device, ticket)) == BATON_PENDING)
		usleep(50);
	ck_assert_int_eq(status, BATON_OK);
}

static void *
pin(struct batoni_device *device, size_t bytes)
{
	void *block = NULL;

	ck_assert_int_eq(fake->pinned_alloc(device, bytes, 0, &block), BATON_OK);
	return block;
}

START_TEST(a_copy_is_all_that_reaches_device_memory)
{
	struct batoni_device *device = open_fake();
	unsigned char *from = pattern(MIB + 3, 1), *to = pin(device, MIB + 3);
	unsigned char *pinned = pin(device, MIB + 3);
	unsigned char *there = fake_memory_alloc(MIB + 3);
	struct batoni_memory_info memory;
	struct batoni_ticket ticket;

	ck_assert_int_eq(fake->inspect(device, there + 7, 1, &memory), BATON_OK);
	ck_assert_int_eq(memory.kind, BATONI_MEMORY_DEVICE);
	ck_assert_int_eq(memory.owner, 0);
	ck_assert_ptr_eq(memory.base, there);
	ck_assert_uint_eq(memory.bytes, MIB + 3);
	ck_assert_int_eq(fake->inspect(device, from, 1, &memory), BATON_OK);
	ck_assert_int_eq(memory.kind, BATONI_MEMORY_HOST);
	ck_assert_int_eq(fake->inspect(device, to + 7, 1, &memory), BATON_OK);
	ck_assert_int_eq(memory.kind, BATONI_MEMORY_REGISTERED);
	memcpy(pinned, from, MIB + 3);
	ck_assert_int_eq(fake->copy_start(device, there, pinned, MIB + 3, -1,
	                                  &ticket),
	                 BATON_OK);
	wait_for(device, &ticket);
	ck_assert_int_eq(fake->copy_start(device, to, there, MIB + 3, -1, &ticket),
	                 BATON_OK);
	wait_for(device, &ticket);
	ck_assert_mem_eq(from, to, MIB + 3);
	fake_memory_free(there);
	free(from);
	fake->pinned_free(device, to);
	fake->pinned_free(device, pinned);
	close_fake(device, 0);
}
END_TEST

static bool
dies_by_touching(const unsigned char *byte, bool writes)
{
	pid_t child = fork();
	int status = 0;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		/* A sanitizer would report the signal, and exit. */
		signal(SIGSEGV, SIG_DFL);
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		if (writes)
			*(volatile unsigned char *)(uintptr_t)byte = 1;
		else
			(void)*(const volatile unsigned char *)byte;
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

START_TEST(a_host_that_touches_device_memory_dies)
{
	struct batoni_device *device = open_fake();
	unsigned char *there = fake_memory_alloc(5000);

	ck_assert(dies_by_touching(there, false));
	ck_assert(dies_by_touching(there + 4999, true));
	fake_memory_free(there);
	close_fake(device, 0);
}
END_TEST

START_TEST(copies_end_late_and_in_any_order)
{
	struct batoni_device *device = open_fake();
	unsigned char *there = fake_memory_alloc(3), *to = pin(device, 3);
	unsigned char from[3] = {1, 2, 3};
	struct batoni_ticket tickets[3];

	fake_memory_copy(there, from, 3);
	fake_memory_hold(true);
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(fake->copy_start(device, &to[i], there + i, 1,
		                                  -1, &tickets[i]),
		                 BATON_OK);
	ck_assert_uint_eq(fake_memory_copies(), 3);
	for (size_t i = 0; i < 3; i++) {
		ck_assert_int_eq(fake->copy_test(device, &tickets[i]),
		                 BATON_PENDING);
		ck_assert_int_eq(to[i], 0xdd);
	}
	fake_memory_end(2);
	ck_assert_int_eq(fake->copy_test(device, &tickets[2]), BATON_OK);
	ck_assert_int_eq(to[2], 3);
	ck_assert_int_eq(fake->copy_test(device, &tickets[0]), BATON_PENDING);
	/* The source is read at the end. */
	from[1] = 9;
	fake_memory_copy(there, from, 3);
	fake_memory_end(1);
	ck_assert_int_eq(fake->copy_test(device, &tickets[1]), BATON_OK);
	ck_assert_int_eq(to[1], 9);
	fake_memory_hold(false);
	wait_for(device, &tickets[0]);
	ck_assert_uint_eq(fake_memory_copies(), 0);
	fake_memory_free(there);
	fake->pinned_free(device, to);
	close_fake(device, 0);
}
END_TEST

START_TEST(copies_that_are_started_together_have_one_ticket)
{
	struct batoni_device *device = open_fake();
	unsigned char *there = fake_memory_alloc(4), *to = pin(device, 4);
	const unsigned char from[4] = {1, 2, 3, 4};
	struct batoni_copy copies[4];
	struct batoni_ticket ticket;
	size_t calls, n;

	fake_memory_copy(there, from, 4);
	fake_memory_hold(true);
	for (size_t i = 0; i < 4; i++)
		copies[i] = (struct batoni_copy){&to[i], there + i, 1};
	calls = fake_memory_starts();
	/* The third cannot be started now. */
	fake_device_fail_at(FAKE_COPY_START, 3, BATON_ERR_AGAIN);
	ck_assert_int_eq(
		fake->batches->copies_start(device, copies, 4, 0, &ticket, &n),
		BATON_ERR_AGAIN);
	ck_assert_uint_eq(n, 2);
	ck_assert_uint_eq(fake_memory_starts(), calls + 1);
	ck_assert_uint_eq(fake_memory_copies(), 2);
	fake_memory_end(1);
	ck_assert_int_eq(fake->copy_test(device, &ticket), BATON_PENDING);
	fake_memory_end(0);
	wait_for(device, &ticket);
	ck_assert_mem_eq(to, from, 2);
	ck_assert_int_eq(fake->batches->copies_start(device, copies + 2, 2, 0,
	                                             &ticket, &n),
	                 BATON_OK);
	ck_assert_uint_eq(n, 2);
	fake_memory_hold(false);
	wait_for(device, &ticket);
	ck_assert_mem_eq(to, from, 4);
	fake_device_fail_at(FAKE_COPY_START, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(
		fake->batches->copies_start(device, copies, 4, 0, &ticket, &n),
		BATON_ERR_CUDA);
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(fake_memory_copies(), 0);
	/* The same target twice, two directions, one alone: counted. */
	copies[1].to = copies[0].to;
	ck_assert_int_eq(
		fake->batches->copies_start(device, copies, 2, 0, &ticket, &n),
		BATON_OK);
	wait_for(device, &ticket);
	copies[1] = (struct batoni_copy){there + 1, &to[1], 1};
	ck_assert_int_eq(
		fake->batches->copies_start(device, copies, 2, 0, &ticket, &n),
		BATON_OK);
	wait_for(device, &ticket);
	ck_assert_int_eq(
		fake->batches->copies_start(device, copies, 1, 0, &ticket, &n),
		BATON_OK);
	wait_for(device, &ticket);
	fake_memory_free(there);
	fake->pinned_free(device, to);
	close_fake(device, 3);
}
END_TEST

START_TEST(pinned_memory_has_a_budget)
{
	struct batoni_device *device = open_fake();
	struct batoni_memory_info memory;
	void *blocks[3];

	fake_memory_budget(8192);
	ck_assert_int_eq(fake->pinned_alloc(device, 4096, 0, &blocks[0]), BATON_OK);
	ck_assert_int_eq(fake->pinned_alloc(device, 4096, 0, &blocks[1]), BATON_OK);
	ck_assert_int_eq(fake->pinned_alloc(device, 1, 0, &blocks[2]),
	                 BATON_ERR_NOMEM);
	ck_assert_uint_eq(fake_memory_pinned(), 8192);
	ck_assert_int_eq(fake->inspect(device, (char *)blocks[1] + 1, 1, &memory),
	                 BATON_OK);
	ck_assert_int_eq(memory.kind, BATONI_MEMORY_REGISTERED);
	ck_assert_ptr_eq(memory.base, blocks[1]);
	fake->pinned_free(device, blocks[0]);
	fake->pinned_free(device, blocks[1]);
	ck_assert_uint_eq(fake_memory_pinned(), 0);
	close_fake(device, 0);
}
END_TEST

START_TEST(each_call_can_fail_at_the_n_th_time)
{
	struct batoni_device *device = open_fake();
	unsigned char *there = fake_memory_alloc(8);
	struct batoni_fault fault = {.code = 0};
	struct batoni_memory_info memory;
	struct batoni_ticket ticket;
	char *here = pin(device, 8);
	void *block;

	fake_device_fail_at(FAKE_LOOK, 2, BATON_ERR_CUDA);
	ck_assert_int_eq(fake->inspect(device, here, 1, &memory), BATON_OK);
	ck_assert_int_eq(fake->inspect(device, here, 1, &memory), BATON_ERR_CUDA);
	fake_device_fail_at(FAKE_PINNED_ALLOC, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(fake->pinned_alloc(device, 8, 0, &block), BATON_ERR_CUDA);
	fake_device_fail_at(FAKE_COPY_START, 1, BATON_ERR_AGAIN);
	ck_assert_int_eq(fake->copy_start(device, here, there, 8, -1, &ticket),
	                 BATON_ERR_AGAIN);
	fake_device_fail_at(FAKE_COPY_TEST, 1, BATON_ERR_CUDA);
	fake_memory_hold(true);
	ck_assert_int_eq(fake->copy_start(device, here, there, 8, -1, &ticket),
	                 BATON_OK);
	ck_assert_int_eq(fake->copy_test(device, &ticket), BATON_PENDING);
	fake_memory_end(0);
	ck_assert_int_eq(fake->copy_test(device, &ticket), BATON_ERR_CUDA);
	fake_device_fail_at(FAKE_HEALTH, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(fake->health(device, &fault), BATON_ERR_CUDA);
	ck_assert_int_eq(fault.code, 700);
	ck_assert_int_eq(fake->health(device, &fault), BATON_OK);
	fake_memory_free(there);
	fake->pinned_free(device, here);
	close_fake(device, 0);
}
END_TEST

/* What the other process gets. */
struct told {
	struct batoni_memory_shared shared;
	struct batoni_handover_name descriptor;
};

/* In the other process: what is wrong, or 0. */
static int
use_named(const struct told *told)
{
	struct batoni_device *device = NULL;
	struct batoni_memory_info memory;
	struct batoni_ticket ticket;
	unsigned char *from = pattern(5000, 3), *to;
	void *base = NULL;
	int fd = -1;

	if (batoni_fake_device_ops.open(NULL, &device) != BATON_OK)
		return 1;
	to = pin(device, 5000);
	if (batoni_handover_fetch(&told->descriptor, -1, UINT64_MAX, &fd) !=
	    BATON_OK)
		return 10;
	if (fake->sharing->map(device, &told->shared.name, fd,
	                       told->shared.bytes, &base) != BATON_OK)
		return 2;
	close(fd);
	if (fake->inspect(device, (char *)base + 9, 1, &memory) != BATON_OK ||
	    memory.kind != BATONI_MEMORY_DEVICE || memory.base != base ||
	    memory.bytes != 5000)
		return 3;
	if (!dies_by_touching(base, false))
		return 4;
	if (fake->copy_start(device, to, base, 5000, -1, &ticket) != BATON_OK)
		return 5;
	wait_for(device, &ticket);
	if (memcmp(to, from, 5000) != 0)
		return 6;
	to[4999] = 77;
	if (fake->copy_start(device, base, to, 5000, -1, &ticket) != BATON_OK)
		return 7;
	wait_for(device, &ticket);
	fake->sharing->unmap(device, &told->shared.name, base, 5000);
	if (fake->inspect(device, base, 1, &memory) != BATON_OK ||
	    memory.kind != BATONI_MEMORY_HOST)
		return 8;
	free(from);
	fake->pinned_free(device, to);
	batoni_fake_device_ops.close(device);
	return fake_device_violations() ? 9 : 0;
}

/* Before this process has threads. */
static pid_t
fork_user(int *pipe_p)
{
	struct told told;
	int ends[2];
	pid_t child;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		close(ends[1]);
		_exit(read(ends[0], &told, sizeof(told)) == sizeof(told)
		              ? use_named(&told)
		              : 100);
	}
	close(ends[0]);
	*pipe_p = ends[1];
	return child;
}

START_TEST(another_process_maps_a_block_by_its_name)
{
	struct batoni_handover *handover = NULL;
	struct batoni_device *device;
	struct told told;
	unsigned char *there, *from = pattern(5000, 3), last = 0;
	int end = -1, status = -1;
	pid_t child = fork_user(&end);

	device = open_fake();
	there = fake_memory_alloc(5000);
	fake_memory_copy(there, from, 5000);
	memset(&told, 0, sizeof(told));
	ck_assert_int_eq(fake->sharing->share(device, from, 1, &told.shared),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(
		fake->sharing->share(device, there + 1, 5000, &told.shared),
		BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(
		fake->sharing->share(device, there + 1, 4999, &told.shared),
		BATON_OK);
	ck_assert_uint_eq(told.shared.offset, 1);
	ck_assert_uint_eq(told.shared.bytes, 5000);
	ck_assert_int_eq(batoni_handover_open(told.shared.fd, &handover,
	                                      &told.descriptor),
	                 BATON_OK);
	ck_assert_int_eq(write(end, &told, sizeof(told)), sizeof(told));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	fake_memory_copy(&last, there + 4999, 1);
	ck_assert_uint_eq(last, 77);
	close(end);
	batoni_handover_close(handover);
	close(told.shared.fd);
	free(from);
	fake_memory_free(there);
	close_fake(device, 0);
}
END_TEST

START_TEST(a_name_fails_with_another_descriptor)
{
	struct batoni_device *device = open_fake();
	unsigned char *there = fake_memory_alloc(64);
	struct batoni_memory_shared shared;
	void *base = NULL;

	fake_device_fail_at(FAKE_SHARE, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(fake->sharing->share(device, there, 64, &shared),
	                 BATON_ERR_CUDA);
	ck_assert_int_eq(fake->sharing->share(device, there, 64, &shared),
	                 BATON_OK);
	fake_memory_free(there);
	fake_device_fail_at(FAKE_MAP, 1, BATON_ERR_NOMEM);
	ck_assert_int_eq(
		fake->sharing->map(device, &shared.name, shared.fd, 64, &base),
		BATON_ERR_NOMEM);
	ck_assert_int_eq(
		fake->sharing->map(device, &shared.name, -1, 64, &base),
		BATON_ERR_CUDA);
	ck_assert_ptr_null(base);
	close(shared.fd);
	/* And it was of this process. */
	close_fake(device, 1);
}
END_TEST

START_TEST(not_every_block_can_be_shared)
{
	enum { N = 257 };
	struct batoni_device *device = open_fake();
	struct batoni_memory_shared shared;
	void *blocks[N];

	for (int i = 0; i < N; i++)
		blocks[i] = fake_memory_alloc(1);
	ck_assert_int_eq(
		fake->sharing->share(device, blocks[N - 2], 1, &shared),
		BATON_OK);
	close(shared.fd);
	ck_assert_int_eq(
		fake->sharing->share(device, blocks[N - 1], 1, &shared),
		BATON_ERR_UNSUPPORTED);
	for (int i = 0; i < N; i++)
		fake_memory_free(blocks[i]);
	close_fake(device, 0);
}
END_TEST

START_TEST(a_mapping_is_ended_once_and_before_the_device_closes)
{
	struct batoni_device *device = open_fake();
	unsigned char *there = fake_memory_alloc(64);
	struct batoni_memory_shared shared;
	void *base = NULL;
	int seen = 0;

	ck_assert_int_eq(fake->sharing->share(device, there, 64, &shared),
	                 BATON_OK);
	fake->sharing->unmap(device, &shared.name, there, 64);
	ck_assert_int_eq(fake_device_violations(), ++seen); /* not mapped */
	ck_assert_int_eq(
		fake->sharing->map(device, &shared.name, shared.fd, 64, &base),
		BATON_OK);
	ck_assert_int_eq(fake_device_violations(), ++seen); /* its own */
	fake->sharing->unmap(device, &shared.name, base, 64);
	ck_assert_int_eq(fake_device_violations(), seen);
	fake->sharing->unmap(device, &shared.name, base, 64);
	ck_assert_int_eq(fake_device_violations(), ++seen); /* twice */
	ck_assert_int_eq(
		fake->sharing->map(device, &shared.name, shared.fd, 65, &base),
		BATON_OK);
	seen += 2;
	ck_assert_int_eq(fake_device_violations(), seen); /* and too long */
	close(shared.fd);
	fake_memory_free(there);
	close_fake(device, seen + 1); /* never unmapped */
}
END_TEST

/* ---- what transports share (copies.h) --------------------------------------- */

START_TEST(copies_overlap_where_both_write)
{
	char to[100];
	const struct batoni_copy copy = {to + 20, NULL, 10};
	static const struct {
		size_t at, bytes;
		bool overlaps;
	} others[] = {
		{0, 20, false}, {0, 21, true},  {29, 1, true},   {30, 10, false},
		{22, 2, true},  {0, 100, true}, {20, 10, true},
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		const struct batoni_copy other = {to + others[i].at, NULL,
		                                  others[i].bytes};

		ck_assert_int_eq(batoni_copies_overlap(&copy, &other),
		                 others[i].overlaps);
		ck_assert_int_eq(batoni_copies_overlap(&other, &copy),
		                 others[i].overlaps);
	}
}
END_TEST

static unsigned yields, ends_at; /* 0: the copy does not end */

static void
yield(unsigned tries)
{
	ck_assert_uint_eq(tries, yields);
	if (++yields == ends_at)
		fake_memory_end(0);
}

START_TEST(a_copy_is_awaited_until_it_ends_or_the_time_or_the_device_is_over)
{
	static const struct {
		unsigned ends_at;
		uint64_t until_ns;
		unsigned health; /* it fails when asked so often; 0: never */
		bool ended;
		unsigned yields;
	} cases[] = {
		{3, UINT64_MAX, 0, true, 3},
		{0, 1, 0, false, 0},
		{0, UINT64_MAX, 2, false, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct batoni_patience patience = {
			.until_ns = cases[i].until_ns, .yield = yield};
		struct batoni_device *device = open_fake();
		unsigned char *there = fake_memory_alloc(8);
		struct batoni_ticket ticket;
		char *here = pin(device, 8);

		yields = 0;
		ends_at = cases[i].ends_at;
		fake_memory_hold(true);
		ck_assert_int_eq(fake->copy_start(device, here, there, 8, -1,
		                                  &ticket),
		                 BATON_OK);
		if (cases[i].health > 0)
			fake_device_fail_at(FAKE_HEALTH, cases[i].health,
			                    BATON_ERR_CUDA);
		ck_assert_int_eq(batoni_copy_await(device, &ticket, &patience),
		                 cases[i].ended);
		ck_assert_uint_eq(yields, cases[i].yields);
		fake_memory_hold(false);
		if (!cases[i].ended)
			wait_for(device, &ticket);
		fake_memory_free(there);
		fake->pinned_free(device, here);
		close_fake(device, 0);
	}
}
END_TEST

START_TEST(who_breaks_the_contract_is_counted)
{
	struct batoni_device *device = open_fake();
	unsigned char *there = fake_memory_alloc(8);
	struct batoni_ticket ticket;
	char *here = pin(device, 16), pageable[16] = {0};
	void *block;
	int seen = 0;

	fake_memory_hold(true);
	ck_assert_int_eq(fake->copy_start(device, here, there + 1, 8, -1, &ticket),
	                 BATON_OK);
	ck_assert_int_eq(fake_device_violations(), ++seen); /* past the end */
	fake_memory_free(there);
	ck_assert_int_eq(fake_device_violations(), ++seen); /* under a copy */
	fake_memory_end(0);
	wait_for(device, &ticket);
	ck_assert_int_eq(fake->copy_test(device, &ticket), BATON_ERR_CUDA);
	ck_assert_int_eq(fake_device_violations(), ++seen); /* asked again */
	there = fake_memory_alloc(16);
	ck_assert_int_eq(fake->copy_start(device, there, pageable, 1, -1, &ticket),
	                 BATON_OK);
	fake_memory_end(0);
	wait_for(device, &ticket);
	ck_assert_int_eq(fake_device_violations(), ++seen); /* not pinned */
	fake_memory_free(there);
	block = pin(device, 8);
	ck_assert_int_eq(fake->copy_start(device, block, here, 8, -1, &ticket),
	                 BATON_OK);
	fake->pinned_free(device, (char *)block + 1);
	ck_assert_int_eq(fake_device_violations(), ++seen); /* no block */
	fake_memory_end(0);
	/* Two at once: the copy was not reported, the block not freed. */
	batoni_fake_device_ops.close(device);
	ck_assert_int_eq(fake_device_violations(), seen + 2);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		all_memory_is_the_hosts,
		a_host_copy_is_made_in_slices,
		pinned_host_memory_is_aligned_and_can_run_out,
		a_copy_is_all_that_reaches_device_memory,
		a_host_that_touches_device_memory_dies,
		copies_end_late_and_in_any_order,
		copies_that_are_started_together_have_one_ticket,
		pinned_memory_has_a_budget,
		each_call_can_fail_at_the_n_th_time,
		another_process_maps_a_block_by_its_name,
		a_name_fails_with_another_descriptor,
		not_every_block_can_be_shared,
		a_mapping_is_ended_once_and_before_the_device_closes,
		copies_overlap_where_both_write,
		a_copy_is_awaited_until_it_ends_or_the_time_or_the_device_is_over,
		who_breaks_the_contract_is_counted,
	};

	return RUN_TESTS("memory", tests);
}
