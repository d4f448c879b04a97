/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory between processes of one host, and what else the kernel offers between
 * them: shared memory that has no name in any file system, writing into another
 * process, noticing that one is gone, and the bell on which a process's threads
 * sleep and which others ring.
 *
 * Base layer: it knows nothing of the engine.  Any thread may call everything.
 */
#ifndef BATONI_SHM_H
#define BATONI_SHM_H

#include <stdatomic.h>
#include <sys/types.h>

#include "baton.h"

/* ---- shared memory ---- */

/* A memfd, allocated whole when it is made (a full /dev/shm would otherwise kill
 * whoever touches it first, by SIGBUS), zeroed, mapped, aligned to a page. */
struct batoni_shm {
	void *base; /* NULL: none */
	size_t bytes;
	int fd;
};

/* How another process of the same host finds it: plain bytes to send to it.  Good
 * while the maker has it. */
struct batoni_shm_name {
	unsigned char host[16]; /* the boot, and the namespace of process numbers */
	int32_t pid, fd;        /* as there */
	uint64_t device, inode, bytes;
};

/* OK; NOMEM, SYSTEM (batoni_refuse has been told). */
enum baton_status batoni_shm_create(size_t bytes, struct batoni_shm *shm_p);
/* The same, but *sparse_p says whether its pages come into being only by
 * batoni_shm_populate.  (A store into a page that is not there would make one, or kill the
 * process by SIGBUS where there is no memory.)  Kernels before 5.14 cannot do that, and
 * all is allocated. */
enum baton_status batoni_shm_create_sparse(size_t bytes, struct batoni_shm *shm_p,
                                           bool *sparse_p);
/* Have the pages of these bytes, here or in any other process that has them mapped.
 * False: there is no memory. */
bool batoni_shm_populate(void *from, size_t bytes);
/* Base NULL is fine. */
void batoni_shm_destroy(struct batoni_shm *shm);
/* The same, but the mapping stays for the life of the process, without what was in it:
 * something may still write there. */
void batoni_shm_abandon(struct batoni_shm *shm);
void batoni_shm_name(const struct batoni_shm *shm, struct batoni_shm_name *name_p);
/* Map bytes from offset (any; the mapping begins at its page) of what another
 * process, or this one, has made.  OK; UNSUPPORTED: it is not of this host, or
 * this process may not (no message is written); NOMEM. */
enum baton_status batoni_shm_map(const struct batoni_shm_name *name,
                                 size_t offset, size_t bytes, void **base_p);
/* base and bytes as from batoni_shm_map, with any offset it had. */
void batoni_shm_unmap(void *base, size_t bytes);
/* Is it of this host?  (It may still not be mappable.) */
bool batoni_shm_is_here(const struct batoni_shm_name *name);

/* ---- other processes ---- */

/* Copy into another process's memory, whole.  OK; PEER: it is gone; UNSUPPORTED:
 * the kernel does not let us; INVALID: the address is not there. */
enum baton_status batoni_vm_write(pid_t pid, uint64_t address, const void *from,
                                  size_t bytes);
/* A descriptor of the process, or -1 when there is none to be had.  All that have
 * opened a process share one: it is given back by batoni_pidfd_close, never by
 * close. */
int batoni_pidfd_open(pid_t pid);
/* -1 is fine. */
void batoni_pidfd_close(int fd);
/* Has the process ended?  fd -1: nobody knows, false. */
bool batoni_pidfd_gone(int fd);

/* ---- the bell ---- */

/*
 * One for each process, in shared memory of its own, so that others can ring it.
 * Who wants to be woken by a signal reads `doorbell`, sets a bit of `listening`,
 * looks at the counters once more, and then sleeps on `doorbell` unless it has
 * changed.  Who has stored a signal looks at `listening` and, if it is not 0,
 * rings.  All of it by sequentially consistent operations (the signal's own store and
 * that last look included), so that one of the two sees the other.
 */
struct batoni_bell {
	_Atomic uint32_t doorbell;
	_Atomic uint32_t listening;
};

/* This process's; never NULL. */
struct batoni_bell *batoni_bell(void);
/* Its name, for other processes.  False: it could not be shared. */
bool batoni_bell_name(struct batoni_shm_name *name_p);
/* Wake all who sleep on it. */
void batoni_bell_ring(struct batoni_bell *bell);
/* Sleep unless doorbell differs from rung; for at most nap_ns, UINT64_MAX is for
 * ever.  Spurious returns are normal. */
void batoni_bell_sleep(struct batoni_bell *bell, uint32_t rung, uint64_t nap_ns);

#endif
