/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the side channel share: loops that wait for what has to come, with a limit that
 * only a hang reaches, and a hub. */
#ifndef TCP_WORLD_H
#define TCP_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECOND ((uint64_t)1000000000)
#define LIMIT_NS (40 * SECOND)

void pause_until(uint64_t limit_ns);
void send_raw(int fd, const void *bytes, size_t n);

/* A hub of n ranks (4 at most), and its sockets; the first `local` of them are in this process. */
void start_hub(int n, int local, int fds[]);
/* And no memory. */
void await_no_hub(void);

#endif
