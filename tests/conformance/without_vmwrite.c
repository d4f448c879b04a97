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
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int
forbid(unsigned call)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		         offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {
		.len = sizeof(filter) / sizeof(filter[0]),
		.filter = filter,
	};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int
main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	if (forbid(SYS_process_vm_writev) != 0) {
		printf("SKIP: no seccomp filter here: %s\n", strerror(errno));
		return 77;
	}
	execv(argv[1], argv + 1);
	perror(argv[1]);
	return 1;
}
