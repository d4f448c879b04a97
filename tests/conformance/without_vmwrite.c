/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Run a program in which process_vm_writev is forbidden, as many kernels have it.
 *
 *   without_vmwrite program argument...
 *
 * Over MPI that makes windows of mixed paths: shared memory and oneself are reached by
 * stores, other memory by messages, and signals without data by stores.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "forbid_call.h"

int
main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	if (forbid_call(SYS_process_vm_writev) != 0) {
		printf("SKIP: no seccomp filter here: %s\n", strerror(errno));
		return 77;
	}
	execv(argv[1], argv + 1);
	perror(argv[1]);
	return 1;
}
