/* SPDX-License-Identifier: BSD-3-Clause */
/* See bench_bare.h. */
#include "bench_bare.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096
#define TAG_STAMP 11
#define RMA_FLAG 128 /* displacement of the flag; the data is before it */
/* The target of an MPI_Put may have to help; looks between two of its helps. */
#define RMA_LOOKS 256

struct bench_bare_line {
	_Alignas(64) _Atomic uint64_t flag;
	_Alignas(64) _Atomic uint32_t bell;
};

static void *
map(int fd, size_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                  MAP_SHARED | MAP_POPULATE, fd, 0);

	bench_must(base != MAP_FAILED);
	return base;
}

void
bench_bare_open(struct bench *b, struct bench_bare *bare, char *source,
		size_t bytes)
{
	int mine[2], theirs[2], fd;
	char path[64];

	*bare = (struct bench_bare){.source = source, .bytes = bytes,
	                            .mapped_bytes = PAGE + bytes};
	bare->fd = memfd_create("baton-bench", MFD_CLOEXEC);
	bench_must(bare->fd >= 0);
	bench_must(ftruncate(bare->fd, (off_t)bare->mapped_bytes) == 0);
	bare->mine = map(bare->fd, bare->mapped_bytes);
	mine[0] = (int)getpid();
	mine[1] = bare->fd;
	MPI_Sendrecv(mine, 2, MPI_INT, b->peer, 0, theirs, 2, MPI_INT, b->peer,
	             0, b->raw, MPI_STATUS_IGNORE);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", theirs[0], theirs[1]);
	fd = open(path, O_RDWR | O_CLOEXEC);
	bench_must(fd >= 0);
	bare->theirs = map(fd, bare->mapped_bytes);
	close(fd);

	MPI_Win_allocate(PAGE, 1, MPI_INFO_NULL, b->raw, &bare->rma_base,
	                 &bare->rma);
	memset(bare->rma_base, 0, PAGE);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, bare->rma);
	bench_meet(b);
}

void
bench_bare_close(struct bench *b, struct bench_bare *bare)
{
	bench_meet(b);
	MPI_Win_unlock_all(bare->rma);
	MPI_Win_free(&bare->rma);
	munmap(bare->mine, bare->mapped_bytes);
	munmap(bare->theirs, bare->mapped_bytes);
	close(bare->fd);
}

/* ---- stores ------------------------------------------------------------- */

static void
put_bare(struct bench_bare *bare, size_t offset)
{
	if (bare->put_bytes > 0)
		memcpy((char *)bare->theirs + PAGE + offset,
		       bare->source + offset, bare->put_bytes);
	atomic_store_explicit(&bare->theirs->flag, ++bare->sent,
	                      memory_order_release);
}

static void
await(struct bench_bare *bare, uint64_t flags)
{
	bare->seen += flags;
	while (atomic_load_explicit(&bare->mine->flag, memory_order_acquire) <
	       bare->seen)
		;
}

double
bench_bare_latency(struct bench *b, void *arg, int rounds)
{
	struct bench_bare *bare = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		if (b->rank != 0)
			await(bare, 1);
		put_bare(bare, 0);
		if (b->rank == 0)
			await(bare, 1);
	}
	return (double)(bench_now() - start) / (2e3 * rounds);
}

double
bench_bare_bandwidth(struct bench *b, void *arg, int rounds)
{
	struct bench_bare *bare = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		if (b->rank != 0) {
			await(bare, bare->puts);
			atomic_store_explicit(&bare->theirs->flag, ++bare->sent,
			                      memory_order_release);
			continue;
		}
		for (size_t k = 0; k < bare->puts; k++)
			put_bare(bare, k * bare->put_bytes);
		await(bare, 1);
	}
	return (double)rounds * (double)(bare->puts * bare->put_bytes) /
	       (double)(bench_now() - start);
}

/* ---- MPI's own ---------------------------------------------------------- */

static void
mpi_put(struct bench *b, struct bench_bare *bare)
{
	bare->sent++;
	MPI_Put(bare->source, (int)bare->put_bytes, MPI_BYTE, b->peer, 0,
	        (int)bare->put_bytes, MPI_BYTE, bare->rma);
	MPI_Win_flush(b->peer, bare->rma);
	MPI_Put(&bare->sent, 1, MPI_UINT64_T, b->peer, RMA_FLAG, 1,
	        MPI_UINT64_T, bare->rma);
	MPI_Win_flush(b->peer, bare->rma);
}

static void
mpi_await(struct bench *b, struct bench_bare *bare)
{
	const _Atomic uint64_t *flag =
		(const _Atomic uint64_t *)(const void *)(bare->rma_base +
	                                                 RMA_FLAG);
	int there;

	bare->seen++;
	for (int looks = 1; atomic_load_explicit(flag, memory_order_acquire) <
	                    bare->seen; looks++) {
		MPI_Win_sync(bare->rma);
		if (looks % RMA_LOOKS == 0)
			MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, b->raw, &there,
			           MPI_STATUS_IGNORE);
	}
}

double
bench_mpi_put_latency(struct bench *b, void *arg, int rounds)
{
	struct bench_bare *bare = arg;
	uint64_t start = bench_now();

	bench_must(bare->put_bytes <= RMA_FLAG);
	for (int i = 0; i < rounds; i++) {
		if (b->rank != 0)
			mpi_await(b, bare);
		mpi_put(b, bare);
		if (b->rank == 0)
			mpi_await(b, bare);
	}
	return (double)(bench_now() - start) / (2e3 * rounds);
}

/* ---- sleep and wake ----------------------------------------------------- */

double
bench_bare_wake(struct bench *b, struct bench_bare *bare, uint64_t ns)
{
	uint64_t stamp = 0, now;
	uint32_t before;

	if (b->rank != 0) {
		bench_meet(b);
		bench_sleep(ns);
		stamp = bench_now();
		atomic_fetch_add(&bare->theirs->bell, 1);
		syscall(SYS_futex, &bare->theirs->bell, FUTEX_WAKE, 1, NULL,
		        NULL, 0);
		MPI_Send(&stamp, 1, MPI_UINT64_T, b->peer, TAG_STAMP, b->raw);
		return 0;
	}
	before = atomic_load(&bare->mine->bell);
	bench_meet(b);
	while (atomic_load(&bare->mine->bell) == before)
		syscall(SYS_futex, &bare->mine->bell, FUTEX_WAIT, before, NULL,
		        NULL, 0);
	now = bench_now();
	MPI_Recv(&stamp, 1, MPI_UINT64_T, b->peer, TAG_STAMP, b->raw,
	         MPI_STATUS_IGNORE);
	return (double)(now - stamp) / 1e3;
}
