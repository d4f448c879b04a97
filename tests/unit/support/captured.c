/* SPDX-License-Identifier: BSD-3-Clause */
#include "captured.h"

#include <check.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void
run_child(int end, const char *level, void (*fn)(void))
{
	if (dup2(end, STDERR_FILENO) < 0)
		_exit(1);
	if (level)
		setenv("BATON_LOG", level, 1);
	else
		unsetenv("BATON_LOG");
	fn();
	_exit(0);
}

struct captured
capture(const char *level, void (*fn)(void))
{
	struct captured captured = {0, 0, ""};
	int ends[2], status;
	ssize_t n;
	pid_t child;

	/* A socket of packets keeps writes apart. */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		close(ends[0]);
		run_child(ends[1], level, fn);
	}
	close(ends[1]);
	while ((n = read(ends[0], captured.text + captured.bytes,
	                 sizeof(captured.text) - 1 - captured.bytes)) > 0) {
		captured.bytes += (size_t)n;
		captured.writes++;
	}
	captured.text[captured.bytes] = '\0';
	close(ends[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	return captured;
}
