/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel offers between processes of one node: shared memory that has no name in
 * any file system, writing into another process's memory, detecting that a process has
 * ended, and the bell, on which a process's threads sleep and which other processes ring.
 *
 * Base layer: it knows nothing of the engine.  Any thread may call any of these functions.
 */
#ifndef BATONI_SHM_H
#define BATONI_SHM_H

#include <stdatomic.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "baton.h"

/* ---- shared memory ---- */

/* A memfd: zeroed, mapped, aligned to a page.  All of it is allocated at creation; otherwise
 * a store could kill the process by SIGBUS when the kernel has no memory left.  Its length is
 * sealed: no process can change it. */
struct batoni_shm {
	void *base; /* NULL: none */
	size_t bytes;
	int fd;
};

/* How another process of the same node finds it: plain bytes that can be sent.  Valid while
 * the creator keeps it. */
struct batoni_shm_name {
	unsigned char node[16]; /* the boot id and the pid namespace */
	int32_t pid, fd;        /* in the creator's process */
	uint64_t device, inode, bytes;
};

/* OK; NOMEM, SYSTEM (batoni_refuse was called). */
enum baton_status batoni_shm_create(size_t bytes, struct batoni_shm *shm_p);
/* The same, but *sparse_p says whether pages are allocated only by batoni_shm_populate.  (A
 * store into a missing page would allocate it, or kill the process by SIGBUS when there is
 * no memory.)  The first page is there.  Kernels before 5.14 cannot do that; there all of it
 * is allocated. */
enum baton_status batoni_shm_create_sparse(size_t bytes, struct batoni_shm *shm_p,
                                           bool *sparse_p);
/* Can the kernel do that? */
bool batoni_shm_is_sparse(void);
/* Allocate the pages of these bytes, for all processes that have them mapped.  False: there
 * is no memory. */
bool batoni_shm_populate(void *from, size_t bytes);
/* Base NULL is allowed. */
void batoni_shm_destroy(struct batoni_shm *shm);
/* The same, but the mapping stays for the life of the process, with its pages freed: stores
 * into it are still possible. */
void batoni_shm_abandon(struct batoni_shm *shm);
void batoni_shm_name(const struct batoni_shm *shm, struct batoni_shm_name *name_p);
/* Map bytes, from any offset, of shared memory that another process or this one has created.
 * (The mapping begins at the page of the offset.)  OK; UNSUPPORTED: it is not of this node,
 * this process may not map it, or a process could make it shorter while it is mapped (no message is
 * written); NOMEM. */
enum baton_status batoni_shm_map(const struct batoni_shm_name *name,
                                 size_t offset, size_t bytes, void **base_p);
/* The same of all of it (name->bytes is not 0), for reading alone. */
enum baton_status batoni_shm_map_to_read(const struct batoni_shm_name *name,
                                         void **base_p);
/* base and bytes are those of batoni_shm_map, whatever the offset was. */
void batoni_shm_unmap(void *base, size_t bytes);
/* Fill in `node`, and nothing else. */
void batoni_shm_node(struct batoni_shm_name *name_p);
/* For tests: this process says from now on that it is of another node, by this number.  Before it
 * creates anything here. */
void batoni_shm_pretend_node(unsigned char number);
/* Is it of this node?  (Mapping it may still fail.) */
bool batoni_shm_is_here(const struct batoni_shm_name *name);

/* ---- other processes ---- */

/* Copy all bytes into another process's memory.  OK; PEER: the process has ended;
 * UNSUPPORTED: the kernel does not permit it; INVALID: the address is not mapped there. */
enum baton_status batoni_vm_write(pid_t pid, uint64_t address, const void *from,
                                  size_t bytes);
/* The same out of it, in one call of the kernel for each piece. */
enum baton_status batoni_vm_read(pid_t pid, uint64_t address, void *to, size_t bytes);
/* The same, of n parts, IOV_MAX at most, which are as long on both sides, and 2 GiB at most. */
enum baton_status batoni_vm_read_parts(pid_t pid, const struct iovec *from,
                                       const struct iovec *to, size_t n);
/* A pidfd of the process, or -1 if the kernel gives none.  All callers that open a process
 * share one descriptor: close it by batoni_pidfd_close, never by close. */
int batoni_pidfd_open(pid_t pid);
/* -1 is allowed. */
void batoni_pidfd_close(int fd);
/* Has the process ended?  False for fd -1, when that is not known. */
bool batoni_pidfd_gone(int fd);

/* ---- the bell ---- */

/*
 * One for each process, in shared memory of its own, so that other processes can ring it.
 * A thread that is to be woken by a signal loads `doorbell`, sets a bit of `listening`,
 * loads the counters once more, and then sleeps on `doorbell` unless it has changed.  A
 * signaller adds to a counter, then loads `listening` and rings if it is not 0.  All of
 * these operations are sequentially consistent, so one of the two sees the other: no lost
 * wake-up.
 *
 * BATONI_LISTEN_FD is the bit of a thread that sleeps in epoll, on the process's *pipe*, and not on
 * the futex.  Whoever rings takes this bit away and writes one byte into the pipe: one byte for each
 * time that the bit was set, or other traffic would fill the pipe.  The futex is rung for the other bits
 * as well.
 */
#define BATONI_LISTEN_FD (1u << 31)

struct batoni_bell {
	_Atomic uint32_t doorbell;
	_Atomic uint32_t listening;
	/* The pipe's descriptor in this process, and what it is open on.  inode 0: there is no pipe.
	 * Written before the bell has a name. */
	int32_t pipe;
	uint64_t pipe_device, pipe_inode;
	/* Bits of threads that sleep on `doorbell`, and are to wake also for a sender that finds no room in
	 * a ring of this process, although nothing here waits for its message (runtime/core/room.c). */
	_Atomic uint32_t idle;
};

/* The pipe of a process, as this process has it open.  All openings share one descriptor. */
struct batoni_pipe;

/* This process's bell; never NULL. */
struct batoni_bell *batoni_bell(void);
/* Its name, for other processes.  False: it is not in shared memory. */
bool batoni_bell_name(struct batoni_shm_name *name_p);
/* Wake all threads that sleep on its futex. */
void batoni_bell_ring(struct batoni_bell *bell);
/* Wake whatever listens to it; the rest of what a signaller does.  Without a pipe the futex is rung for
 * BATONI_LISTEN_FD as well. */
void batoni_bell_call(struct batoni_bell *bell, const struct batoni_pipe *pipe_or_null);
/* Sleep unless doorbell differs from rung, for at most sleep_ns (UINT64_MAX: no limit).
 * Spurious returns are normal. */
void batoni_bell_sleep(struct batoni_bell *bell, uint32_t rung, uint64_t sleep_ns);

/* The pipe of the process with this bell, which may be this process; NULL: it has none, or this process may
 * not open it, or has no descriptor left.  Close it by batoni_pipe_close (NULL is allowed). */
struct batoni_pipe *batoni_pipe_open(const struct batoni_bell *bell, pid_t pid);
void batoni_pipe_close(struct batoni_pipe *pipe_or_null);
/* The descriptor of this process's pipe, for epoll; -1: it has none. */
int batoni_pipe_fd(void);
/* Take up to `most` bytes out of this process's pipe.  Returns how many were there. */
size_t batoni_pipe_take(size_t most);

#endif
