/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The suite on the host device between processes without MPI, which meet by ids: their messages go
 * through memory that they share.
 *
 * CONFORM_UNREAD=1 in the environment: no rank may read another one's memory (process_vm_readv), as in
 * many containers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "forbid_call.h"
#include "runner.h"

static struct baton_comm_options
options(const struct baton_comm_options *options_or_null)
{
	struct baton_comm_options none = BATON_COMM_OPTIONS_INIT;

	return options_or_null ? *options_or_null : none;
}

static int
child(int argc, char **argv)
{
	static const struct conform_list *const lists[] = { conform_suite, NULL };
	const struct conform_backend backend = {
		.name = "near",
		.traits = CONFORM_HOST_ISSUED | CONFORM_HOST_DEVICE,
	};

	if (getenv("CONFORM_UNREAD") &&
	    forbid_call(SYS_process_vm_readv) != 0) {
		perror("SKIP: no seccomp filter here");
		return 77;
	}
	return conform_forked_rank(backend, options, lists, argc, argv);
}

int
main(int argc, char **argv)
{
	return conform_forked(child, argc, argv);
}
