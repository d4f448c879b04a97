/* SPDX-License-Identifier: BSD-3-Clause */
#include "tcp_world.h"

#include <check.h>
#include <sched.h>
#include <sys/socket.h>

#include "clock.h"
#include "mem.h"
#include "tcp.h"

enum { RANKS_MAX = 4 };

void
pause_until(uint64_t limit_ns)
{
	ck_assert_uint_lt(batoni_real_ns(), limit_ns);
	sched_yield();
}

void
send_raw(int fd, const void *bytes, size_t n)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;

	while (send(fd, bytes, n, MSG_NOSIGNAL) != (ssize_t)n)
		pause_until(limit);
}

void
start_hub(int n, int local, int fds[])
{
	int ends[RANKS_MAX];
	bool here[RANKS_MAX];

	ck_assert_int_le(n, RANKS_MAX);
	for (int i = 0; i < n; i++) {
		int pair[2];

		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		ends[i] = pair[0];
		fds[i] = pair[1];
		here[i] = i < local;
	}
	ck_assert_int_eq(batoni_tcp_hub_start(n, 0, ends, here), BATON_OK);
}

void
await_no_hub(void)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;

	while (batoni_tcp_hubs() > 0)
		pause_until(limit);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
