/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory contract: what a device knows about a pointer, and how bytes get into its memory
 * and out of it.  It is the second table of a device; device.h has the first.
 *
 * Only these functions may touch memory that is not the host's.  A call of the program that
 * names memory calls `inspect` at once, unless the device is `host_only`, and
 * keeps the answer: later the addresses may be those of other memory.
 *
 * Copies run beside the streams, in no order among themselves, and no wait of a stream holds
 * one up: the stream may be waiting for what follows from the copy.  The caller starts a copy
 * when its bytes are ready, and asks its ticket until it has ended.  A copy that has ended
 * is visible to what the caller then lets a stream of the device do.
 *
 * Several short copies that are ready at the same time may be started by one call, with one
 * ticket, where the device has that (copies_start).  Each has a buffer of the program on one
 * side; these lie anywhere, so the copies cannot be made one copy by laying the other sides
 * next to each other.
 */
#ifndef BATONI_MEMORY_H
#define BATONI_MEMORY_H

#include "baton.h"

struct batoni_device;

enum batoni_memory_kind {
	BATONI_MEMORY_HOST,       /* of the process; the device may not reach it */
	BATONI_MEMORY_REGISTERED, /* of the process, pinned: copies take no detour */
	BATONI_MEMORY_MANAGED,    /* moves to the side that touches it, host or device */
	BATONI_MEMORY_DEVICE      /* the host must not touch it */
};

/* What a pointer is. */
struct batoni_memory_info {
	enum batoni_memory_kind kind;
	int owner;    /* the number of the device that has the bytes; -1: the host */
	void *base;   /* of the allocation that it points into; NULL: unknown */
	size_t bytes; /* of that allocation; 0: unknown */
};

/*
 * A location: what is kept of an answer of `inspect`, in the six bits that a transfer has for it.
 * The kind, and for memory of a device its number.  0 is memory of the host.
 */
#define BATONI_LOCATION_BITS 6
/* The last is BATONI_LOCATION_LIST. */
#define BATONI_LOCATION_OWNERS ((1 << BATONI_LOCATION_BITS) - BATONI_MEMORY_DEVICE - 1)

static inline unsigned
batoni_location_of(const struct batoni_memory_info *memory)
{
	unsigned owner = memory->kind == BATONI_MEMORY_DEVICE
	                         ? (unsigned)memory->owner
	                         : 0;

	return (unsigned)memory->kind + owner;
}

/* May the host touch memory at this location?  (Managed memory may be at the device.) */
static inline bool
batoni_location_is_host(unsigned location)
{
	return location < BATONI_MEMORY_MANAGED;
}

/* The number of the device that owns the memory; -1: none. */
static inline int
batoni_location_owner(unsigned location)
{
	return location < BATONI_MEMORY_DEVICE ? -1
	                                       : (int)location - BATONI_MEMORY_DEVICE;
}

/* A copy under way.  The device owns the content.  The caller may move it. */
struct batoni_ticket {
	uint64_t words[3];
};

/* One of several that are started together. */
struct batoni_copy {
	void *to;
	const void *from;
	size_t bytes;
};
#define BATONI_COPIES_MAX 64u /* at a time */

/* The name of a block for other processes of this node: no other block has it, and no later
 * one. */
struct batoni_memory_name {
	unsigned char bytes[128];
};

/* A block that other processes can map. */
struct batoni_memory_shared {
	struct batoni_memory_name name;
	size_t bytes;  /* of the block */
	size_t offset; /* in it, of what was asked for */
	/* What `map` needs in the other process: a descriptor, which must be handed on
	 * (handover.h) and which the caller closes; -1: nothing. */
	int fd;
	/* A mapping keeps the memory, also when its owner frees it.  False: the owner must not free it
	 * while it is mapped elsewhere. */
	bool kept;
};

/* Which memory an address is in. */
struct batoni_memory_block {
	uint64_t number; /* of the memory in this process; no later memory has it; not 0 */
	const char *base;
	size_t bytes;
};

/* What a device has put in place for the calls of a library. */
struct batoni_memory_guard {
	uint64_t words[3];
};

/* Why a device is not well. */
struct batoni_fault {
	const char *call; /* a string constant */
	int code;
	bool exiting; /* the process ends, and the device has gone before it */
	char text[120];
};

/* Required of every device, but for the tables that it points to: each of these is there whole, or
 * its pointer is NULL. */
struct batoni_memory_ops {
	/* Every pointer is host memory, and `inspect` says nothing else. */
	bool host_only;

	/* NULL: copies are started one by one. */
	const struct batoni_batch_ops *batches;
	/* NULL: no library reaches the device's memory, and its messages are staged. */
	const struct batoni_library_ops *library;
	/* NULL: the host may touch the device's memory. */
	const struct batoni_presence_ops *presence;
	/* NULL: the device's memory cannot be mapped by other processes. */
	const struct batoni_sharing_ops *sharing;
	/* NULL: streams and copies of a device reach the memory of all devices of the
	 * process. */
	const struct batoni_reach_ops *reach;
	/* NULL: memory for windows is shared memory of the host. */
	const struct batoni_block_ops *blocks;
	/* NULL: streams of the device store into memory of pinned_alloc alone. */
	const struct batoni_pin_ops *pins;

	/* What is the memory at `pointer`, of which a call names `bytes` (1 or more)?  Memory of
	 * another device is made ready for
	 * copies.  Caller: a thread of the program, within the call that names the memory;
	 * may block, but not for what is on a stream.  OK (memory that the device does not
	 * know is HOST; that more than its allocation is named is noticed where `bytes` of the answer
	 * says so); INVALID (memory of a device, which ends before these bytes do); UNSUPPORTED (memory of a device that cannot be used, or whose
	 * number is not below BATONI_LOCATION_OWNERS), NOMEM, CUDA: batoni_refuse has said
	 * why. */
	enum baton_status (*inspect)(struct batoni_device *device,
	                             const void *pointer, size_t bytes,
	                             struct batoni_memory_info *memory_p);

	/* A block of host memory, aligned to 64 bytes, that copies reach without a
	 * detour.  The thread that creates or destroys; may block, but for what is on a
	 * stream only until until_ns (batoni_real_ns), or for a moment if that has passed:
	 * TIMEOUT, and batoni_refuse has said why, as for SYSTEM.  No copy may be under way
	 * when it is freed.  Never freed, also when
	 * the device is closed: a block that a library may still reach after an abort, or
	 * of which a copy does not end.  OK, NOMEM, SYSTEM, CUDA, TIMEOUT. */
	enum baton_status (*pinned_alloc)(struct batoni_device *device,
	                                  size_t bytes, uint64_t until_ns,
	                                  void **block_p);
	void (*pinned_free)(struct batoni_device *device, void *block);

	/* Start a copy of `bytes` (1 or more).  Neither side is pageable (HOST), unless
	 * `host_only`: a driver would copy it through buffers of its own, and may block.  The two
	 * do not overlap.  owner: the number of the device that has the memory that is not
	 * the host's, as `inspect` has reported; -1: this one copies.
	 * Both stay the caller's and must live until the ticket says
	 * that the copy has ended.  The driver; must not block, and copies at most 1 MiB
	 * itself.  OK: *ticket_p is valid until copy_test has reported the end.  AGAIN:
	 * too many copies are under way.  CUDA.  After an error nothing was started. */
	enum baton_status (*copy_start)(struct batoni_device *device, void *to,
	                                const void *from, size_t bytes, int owner,
	                                struct batoni_ticket *ticket_p);

	/* Has the copy ended (of several: have all)?  The driver; must not block, and copies
	 * at most 1 MiB itself.  PENDING: ask again.  OK and CUDA (once): it has ended, and
	 * the ticket is void. */
	enum baton_status (*copy_test)(struct batoni_device *device,
	                               struct batoni_ticket *ticket);

	/* Why copy_start, copies_start or copy_test last returned CUDA on this device.  Any
	 * thread. */
	void (*why)(struct batoni_device *device, struct batoni_fault *fault_p);
	/* What a code of a fault means, in words; terminated, cut to size.  Any
	 * thread. */
	void (*error_text)(struct batoni_device *device, int code, char *text,
	                   size_t size);

	/* Can the device still do work?  Any thread; must not block.  OK; CUDA:
	 * *fault_p says why, and no later call will succeed. */
	enum baton_status (*health)(struct batoni_device *device,
	                            struct batoni_fault *fault_p);
};

/* ---- what a device may have besides ---- */

/* Several copies by one call. */
struct batoni_batch_ops {
	/* Start n copies (2 to BATONI_COPIES_MAX) by as few calls of the native library as it
	 * has for this.  They end together, by one ticket, and run in no order: none may write
	 * what another one reads or writes.  On one side of each is memory of the device
	 * `owner`, of the kind DEVICE; on the other, the same in all of them, a block of
	 * pinned_alloc.
	 * *started_p: so many have been started, the first ones; if it is not 0, the ticket is
	 * theirs.  OK: all.  Any other status is that of the next one, as copy_start would
	 * have returned it; none behind it was started.  Else as copy_start. */
	enum baton_status (*copies_start)(struct batoni_device *device,
	                                  const struct batoni_copy *copies,
	                                  size_t n, int owner,
	                                  struct batoni_ticket *ticket_p,
	                                  size_t *started_p);
};

/* A library that reaches the device's memory by itself (a CUDA-aware MPI, NCCL). */
struct batoni_library_ops {
	/* The function by which an MPI says that it reaches this memory by itself; NULL: there
	 * is none. */
	const char *mpi_query;
	/* enter, exit: around the calls of the library: the
	 * device is the calling thread's meanwhile, which is not cancelled.  The driver; short.
	 * OK, CUDA: there is nothing to exit. */
	enum baton_status (*enter)(struct batoni_device *device,
	                           struct batoni_memory_guard *guard_p);
	void (*exit)(struct batoni_device *device,
	             const struct batoni_memory_guard *guard);
	/* What the library says that it has written into memory of the device `owner` (-1: of
	 * this one) is visible to what the caller then lets a stream of the device do.  As
	 * enter. */
	enum baton_status (*flush)(struct batoni_device *device, int owner);
	/* Free bytes of the device's memory.  Any thread; may block, but not for a stream.  0: not
	 * known. */
	uint64_t (*available)(struct batoni_device *device);
};

/* For communicators on the host: the host must not touch the device's memory. */
struct batoni_presence_ops {
	/* Is the device's library in this process?  It is not loaded for the
	 * question.  The thread that creates a communicator or registers a window; may
	 * block. */
	bool (*present)(void);
	/* The number of the device whose memory the pointer is, if the host must not
	 * touch it; else -1.  Any thread, after `present` has returned true; must not
	 * block. */
	int (*owner)(const void *pointer);
};

/* Other processes of the node map the device's memory.  But for `identify`: the thread that registers or
 * deregisters a window, or a job (thread.h); may block.  OK; UNSUPPORTED: others, or this one, cannot
 * map it; NOMEM, CUDA.  Unless OK, batoni_refuse has said why. */
struct batoni_sharing_ops {
	/* The block that has all these bytes, memory of the device: the one that `share` would name.  The
	 * driver; must not block.  Its answers are as above. */
	enum baton_status (*identify)(struct batoni_device *device,
	                              const void *pointer, size_t bytes,
	                              struct batoni_memory_block *block_p);
	/* The block that has all these bytes, memory of the device. */
	enum baton_status (*share)(struct batoni_device *device,
	                           const void *pointer, size_t bytes,
	                           struct batoni_memory_shared *shared_p);
	/* A block of another process, whole, once at a time; fd: a descriptor of what share's is,
	 * which stays the caller's, or -1.  It is memory of this device then, for copies. */
	enum baton_status (*map)(struct batoni_device *device,
	                         const struct batoni_memory_name *name, int fd,
	                         size_t bytes, void **base_p);
	/* Undo map; no copy from the block or to it may be under way.  The other process frees
	 * the block afterwards. */
	void (*unmap)(struct batoni_device *device,
	              const struct batoni_memory_name *name, void *base,
	              size_t bytes);
};

/* Not every device of the process reaches the memory of every other one. */
struct batoni_reach_ops {
	/* Do streams and copies of this device reach memory of the device `owner`, of the kind
	 * DEVICE?  The thread that registers a window; may block.  OK; UNSUPPORTED: no; NOMEM,
	 * CUDA: it is not known.  Unless OK, batoni_refuse has said why. */
	enum baton_status (*reaches)(struct batoni_device *device,
	                             const void *pointer, int owner);
};

/* Memory for windows. */
struct batoni_block_ops {
	/* A zeroed block of the device's memory, aligned to 4096 bytes, which the device shares
	 * if it can.  A thread of the program, that holds no lock; may block, but for what is on
	 * a stream only until until_ns (batoni_real_ns), or for a moment if that has passed.
	 * OK, NOMEM, SYSTEM, CUDA, TIMEOUT: batoni_refuse has said why. */
	enum baton_status (*block_alloc)(struct batoni_device *device,
	                                 size_t bytes, uint64_t until_ns,
	                                 void **block_p);
	/* Free a block that nothing uses any more.  As block_alloc. */
	void (*block_free)(struct batoni_device *device, void *block);
};

/* Streams of the device store (stream_put) into shared memory. */
struct batoni_pin_ops {
	/* Let streams store into a mapping of shared memory that batoni_shm_map
	 * has made, of which other processes have theirs, at its address and with these lengths.
	 * The mapping is the device's from this call on, whatever is returned: unless OK, the
	 * device unmaps it, perhaps later, and the caller does not touch it any more.  The thread
	 * that creates, which holds no lock that others may want; may block as pinned_alloc.
	 * OK, UNSUPPORTED, NOMEM, SYSTEM, CUDA, TIMEOUT: unless OK, batoni_refuse has said why. */
	enum baton_status (*pin)(struct batoni_device *device, void *base,
	                         size_t bytes, uint64_t until_ns);
	/* Unmap a mapping for which pin has returned OK, when the device has released it.  Neither
	 * the host nor a stream stores there any more.  The thread that destroys; does
	 * not wait for a stream.  Not called where a stream may still store: the mapping then
	 * stays for good. */
	void (*unpin)(struct batoni_device *device, void *base);
};

/* runtime/device/host/host_memory.c */
extern const struct batoni_memory_ops batoni_host_memory_ops;

#endif
