/* SPDX-License-Identifier: BSD-3-Clause */
/* To be preloaded: the last byte of each copy out of another process's memory arrives wrong. */
#include <dlfcn.h>
#include <string.h>
#include <sys/uio.h>

ssize_t
process_vm_readv(pid_t pid, const struct iovec *to, unsigned long to_count,
                 const struct iovec *from, unsigned long from_count,
                 unsigned long flags)
{
	ssize_t (*kernel)(pid_t, const struct iovec *, unsigned long,
	                  const struct iovec *, unsigned long, unsigned long);
	void *found = dlsym(RTLD_NEXT, "process_vm_readv");
	ssize_t done;

	memcpy(&kernel, &found, sizeof(kernel));
	done = kernel(pid, to, to_count, from, from_count, flags);
	if (done > 0 && to_count == 1 && (size_t)done == to->iov_len)
		((unsigned char *)to->iov_base)[done - 1] ^= 1;
	return done;
}
