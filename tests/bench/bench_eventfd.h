/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bare eventfd between two processes: what waking a sleeper in epoll_wait costs with no library in
 * between.  Rank 0 makes it and sleeps; it hands the descriptor to rank 1 over a socket.
 */
#ifndef BATON_BENCH_EVENTFD_H
#define BATON_BENCH_EVENTFD_H

#include "bench.h"

struct bench_eventfd {
	int fd;
	int epoll; /* rank 0 */
};

/* Collective. */
void bench_eventfd_open(struct bench *b, struct bench_eventfd *bare);
void bench_eventfd_close(struct bench_eventfd *bare);
/* Rank 1 writes, and rank 0 sleeps until it has.  They return the clock just before the write, and at the
 * return of epoll_wait.  As a semaphore: if rank 0 is late, each write is still one wake-up. */
uint64_t bench_eventfd_write(struct bench_eventfd *bare);
uint64_t bench_eventfd_wait(struct bench_eventfd *bare);

#endif
