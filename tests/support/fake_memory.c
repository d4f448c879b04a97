/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks are memfds, mapped twice: the view, which has no rights and whose address is the
 * program's pointer, and the back, which only this file knows.  A block of another process
 * is its memfd, mapped here in the same way.
 *
 * Everything is guarded by fake_lock, which is not held while bytes are copied.
 */
#include "fake_memory.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_machine.h"
#include "log.h"

/* A process has so many descriptors for blocks. */
#define SHARED_MAX 256

struct block {
	unsigned char *view, *back;
	size_t bytes; /* asked for */
	size_t mapped;
	int fd;       /* of the memfd; -1: it cannot be shared */
	bool foreign; /* of another process, by map */
};

/* Of a block, for other processes. */
struct name {
	pid_t pid;
	int fd;
	uint64_t inode, bytes;
};

static_assert(sizeof(struct name) <= sizeof(struct batoni_memory_name),
              "it fits");

struct pinned {
	struct batoni_list_node link;
	void *memory;
	size_t bytes;
};

enum copy_state { WAITS, RUNS, ENDED };

struct copy {
	struct batoni_list_node link; /* of copies, until it was reported */
	enum copy_state state;
	void *to; /* of the back, if it is device memory */
	const void *from;
	size_t bytes;
	const struct block *blocks[2];
	struct copy *more; /* of the same ticket */
};

static struct block **blocks; /* by address */
static size_t blocks_n;
static struct batoni_list_node pinned = {&pinned, &pinned};
static struct batoni_list_node copies = {&copies, &copies};
static size_t budget = SIZE_MAX, pinned_bytes;
static bool held, stopping, forgives;
static size_t starts;
static unsigned delay_us;
static unsigned seed = 1; /* of the order in which copies end */
static pthread_t copier;
static pthread_cond_t started = PTHREAD_COND_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

/* ---- blocks --------------------------------------------------------------- */

/* How many blocks begin at this address or below it. */
static size_t
rank_locked(const unsigned char *at)
{
	size_t least = 0, most = blocks_n;

	while (least < most) {
		size_t middle = (least + most) / 2;

		if (blocks[middle]->view <= at)
			least = middle + 1;
		else
			most = middle;
	}
	return least;
}

/* The device block that the pointer is in, or NULL.  The end of a block is not in it, but
 * a block of 0 bytes has its own address. */
static struct block *
block_of_locked(const void *pointer)
{
	size_t rank = rank_locked(pointer);
	struct block *block = rank > 0 ? blocks[rank - 1] : NULL;

	return block && (const unsigned char *)pointer <
	                        block->view + block->mapped
	               ? block
	               : NULL;
}

static void
add_locked(struct block *block)
{
	size_t rank = rank_locked(block->view);

	blocks = realloc(blocks, (blocks_n + 1) * sizeof(struct block *));
	if (!blocks)
		abort();
	memmove(blocks + rank + 1, blocks + rank,
	        (blocks_n - rank) * sizeof(struct block *));
	blocks[rank] = block;
	blocks_n++;
}

static void
remove_locked(const struct block *block)
{
	size_t rank = rank_locked(block->view);

	memmove(blocks + rank - 1, blocks + rank,
	        (blocks_n - rank) * sizeof(struct block *));
	if (--blocks_n == 0) {
		free(blocks);
		blocks = NULL;
	}
}

/* Where the fake itself reaches the bytes. */
static void *
reach_locked(const void *pointer, size_t bytes, const struct block **block_p)
{
	struct block *block = block_of_locked(pointer);
	size_t at;

	*block_p = block;
	if (!block)
		return (void *)(uintptr_t)pointer;
	at = (size_t)((const unsigned char *)pointer - block->view);
	if (at > block->bytes || bytes > block->bytes - at)
		fake_device_violation("a copy past the end of device memory");
	return block->back + at;
}

static void
die(const char *what)
{
	perror(what);
	abort();
}

/* The memfd becomes the block's. */
static struct block *
new_block_locked(int fd, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct block *block = calloc(1, sizeof(*block));

	if (!block || fd < 0)
		die("a block of device memory");
	block->fd = -1;
	block->bytes = bytes;
	block->mapped = (bytes / page + 1) * page;
	block->view = mmap(NULL, block->mapped, PROT_NONE, MAP_SHARED, fd, 0);
	block->back = mmap(NULL, block->mapped, PROT_READ | PROT_WRITE,
	                   MAP_SHARED, fd, 0);
	if (block->view == MAP_FAILED || block->back == MAP_FAILED)
		die("mmap");
	add_locked(block);
	if (blocks_n > SHARED_MAX)
		close(fd);
	else
		block->fd = fd;
	return block;
}

/* No copy that is under way touches it from here on. */
static void
free_block_locked(struct block *block)
{
	for (struct batoni_list_node *at = copies.next; at != &copies;
	     at = at->next) {
		struct copy *copy = batoni_container_of(at, struct copy, link);

		if (copy->state == ENDED ||
		    (copy->blocks[0] != block && copy->blocks[1] != block))
			continue;
		fake_device_violation("device memory is freed under a copy");
		copy->bytes = 0;
		while (copy->state == RUNS)
			pthread_cond_wait(&ended, &fake_lock);
	}
	remove_locked(block);
	munmap(block->view, block->mapped);
	munmap(block->back, block->mapped);
	if (block->fd >= 0)
		close(block->fd);
	free(block);
}

void *
fake_memory_alloc(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("fake device memory", MFD_CLOEXEC);
	void *view;

	if (fd < 0 || ftruncate(fd, (off_t)((bytes / page + 1) * page)))
		die("fake_memory_alloc");
	pthread_mutex_lock(&fake_lock);
	view = new_block_locked(fd, bytes)->view;
	pthread_mutex_unlock(&fake_lock);
	return view;
}

void
fake_memory_free(void *pointer)
{
	struct block *block;

	if (!pointer)
		return;
	pthread_mutex_lock(&fake_lock);
	block = block_of_locked(pointer);
	if (!block || block->view != pointer || block->foreign)
		die("fake_memory_free of what is no block");
	free_block_locked(block);
	pthread_mutex_unlock(&fake_lock);
}

bool
fake_memory_has(const void *pointer)
{
	bool has;

	pthread_mutex_lock(&fake_lock);
	has = block_of_locked(pointer) != NULL;
	pthread_mutex_unlock(&fake_lock);
	return has;
}

void
fake_memory_copy(void *to, const void *from, size_t bytes)
{
	const struct block *block;

	pthread_mutex_lock(&fake_lock);
	to = reach_locked(to, bytes, &block);
	from = reach_locked(from, bytes, &block);
	pthread_mutex_unlock(&fake_lock);
	if (bytes > 0)
		memmove(to, from, bytes);
}

/* ---- the copier ----------------------------------------------------------- */

/* The n-th copy that waits; NULL: there are fewer. */
static struct copy *
waiting_locked(size_t n)
{
	for (struct batoni_list_node *at = copies.next; at != &copies;
	     at = at->next) {
		struct copy *copy = batoni_container_of(at, struct copy, link);

		if (copy->state == WAITS && n-- == 0)
			return copy;
	}
	return NULL;
}

static size_t
count_waiting_locked(void)
{
	size_t n = 0;

	while (waiting_locked(n))
		n++;
	return n;
}

static void
run_locked(struct copy *copy, unsigned us)
{
	copy->state = RUNS;
	pthread_mutex_unlock(&fake_lock);
	if (us > 0)
		usleep(us);
	if (copy->bytes > 0)
		memcpy(copy->to, copy->from, copy->bytes);
	pthread_mutex_lock(&fake_lock);
	copy->state = ENDED;
	pthread_cond_broadcast(&ended);
}

static void *
copier_main(void *unused)
{
	pthread_mutex_lock(&fake_lock);
	while (!stopping) {
		size_t n = held ? 0 : count_waiting_locked();

		if (n == 0)
			pthread_cond_wait(&started, &fake_lock);
		else
			run_locked(waiting_locked((size_t)rand_r(&seed) % n),
			           delay_us);
	}
	pthread_mutex_unlock(&fake_lock);
	return unused;
}

void
fake_memory_hold(bool hold)
{
	pthread_mutex_lock(&fake_lock);
	held = hold;
	pthread_cond_signal(&started);
	pthread_mutex_unlock(&fake_lock);
}

size_t
fake_memory_copies(void)
{
	size_t n = 0;

	pthread_mutex_lock(&fake_lock);
	for (struct batoni_list_node *at = copies.next; at != &copies;
	     at = at->next)
		n += batoni_container_of(at, struct copy, link)->state != ENDED;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

void
fake_memory_end(size_t which)
{
	struct copy *copy;

	pthread_mutex_lock(&fake_lock);
	copy = waiting_locked(which);
	if (copy)
		run_locked(copy, 0);
	else
		fake_device_violation("fake_memory_end of no copy");
	pthread_mutex_unlock(&fake_lock);
}

size_t
fake_memory_starts(void)
{
	size_t n;

	pthread_mutex_lock(&fake_lock);
	n = starts;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

void
fake_memory_delay(unsigned us)
{
	pthread_mutex_lock(&fake_lock);
	delay_us = us;
	pthread_mutex_unlock(&fake_lock);
}

void
fake_memory_budget(size_t bytes)
{
	pthread_mutex_lock(&fake_lock);
	budget = bytes;
	pthread_mutex_unlock(&fake_lock);
}

size_t
fake_memory_pinned(void)
{
	size_t bytes;

	pthread_mutex_lock(&fake_lock);
	bytes = pinned_bytes;
	pthread_mutex_unlock(&fake_lock);
	return bytes;
}

void
fake_memory_forgive(void)
{
	forgives = true;
}

enum baton_status
fake_memory_start(void)
{
	stopping = held = false;
	delay_us = 0;
	budget = SIZE_MAX;
	return pthread_create(&copier, NULL, copier_main, NULL)
	               ? BATON_ERR_NOMEM
	               : BATON_OK;
}

void
fake_memory_stop(void)
{
	pthread_mutex_lock(&fake_lock);
	stopping = true;
	pthread_cond_signal(&started);
	pthread_mutex_unlock(&fake_lock);
	pthread_join(copier, NULL);
	/* A rank of the test may free its blocks meanwhile. */
	pthread_mutex_lock(&fake_lock);
	if (!batoni_list_empty(&copies))
		fake_device_violation("closed with a copy not reported");
	for (size_t i = 0; i < blocks_n; i++) {
		if (blocks[i]->foreign)
			fake_device_violation("closed with a block of another "
			                      "process mapped");
	}
	if (!batoni_list_empty(&pinned) && !forgives)
		fake_device_violation("closed with pinned memory not freed");
	while (!batoni_list_empty(&copies)) {
		struct batoni_list_node *at = copies.next;

		batoni_list_remove(at);
		free(batoni_container_of(at, struct copy, link));
	}
	pthread_mutex_unlock(&fake_lock);
}

/* ---- the contract --------------------------------------------------------- */

static struct pinned *
pinned_of_locked(const void *pointer)
{
	for (struct batoni_list_node *at = pinned.next; at != &pinned;
	     at = at->next) {
		struct pinned *p = batoni_container_of(at, struct pinned, link);
		const char *base = p->memory;

		if ((const char *)pointer >= base &&
		    (const char *)pointer < base + p->bytes)
			return p;
	}
	return NULL;
}

bool
fake_memory_pinned_holds_locked(const void *pointer, size_t bytes)
{
	const struct pinned *p = pinned_of_locked(pointer);

	return p && (size_t)((const char *)p->memory + p->bytes -
	                     (const char *)pointer) >= bytes;
}

static enum baton_status
fake_inspect(struct batoni_device *device, const void *pointer, size_t bytes,
          struct batoni_memory_info *memory_p)
{
	const struct block *block;
	const struct pinned *p;
	enum baton_status status;

	(void)device;
	(void)bytes;
	fake_enter("look");
	status = fake_fault_locked(FAKE_LOOK);
	block = block_of_locked(pointer);
	p = pinned_of_locked(pointer);
	if (status != BATON_OK)
		;
	else if (block)
		*memory_p = (struct batoni_memory_info){
			.kind = BATONI_MEMORY_DEVICE,
			.base = block->view,
			.bytes = block->bytes,
		};
	else
		*memory_p = (struct batoni_memory_info){
			.kind = p ? BATONI_MEMORY_REGISTERED
			          : BATONI_MEMORY_HOST,
			.owner = -1,
			.base = p ? p->memory : NULL,
			.bytes = p ? p->bytes : 0,
		};
	fake_exit();
	return status == BATON_OK
	               ? BATON_OK
	               : batoni_refuse(status, "fake look was told to fail");
}

static enum baton_status
fake_pinned_alloc(struct batoni_device *device, size_t bytes,
                  uint64_t until_ns, void **block_p)
{
	struct pinned *p = calloc(1, sizeof(*p));
	enum baton_status status;

	(void)device;
	(void)until_ns;
	if (!p)
		return BATON_ERR_NOMEM;
	fake_enter("pinned_alloc");
	status = fake_fault_locked(FAKE_PINNED_ALLOC);
	if (status == BATON_OK && (bytes > budget || pinned_bytes > budget - bytes))
		status = BATON_ERR_NOMEM;
	p->bytes = (bytes + 63) & ~(size_t)63;
	if (status == BATON_OK)
		p->memory = aligned_alloc(64, p->bytes);
	if (status == BATON_OK && !p->memory)
		status = BATON_ERR_NOMEM;
	if (status == BATON_OK) {
		pinned_bytes += p->bytes;
		batoni_list_append(&pinned, &p->link);
		*block_p = p->memory;
	} else {
		free(p);
	}
	fake_exit();
	return status;
}

static void
fake_pinned_free(struct batoni_device *device, void *block)
{
	struct pinned *p;

	(void)device;
	if (!block)
		return;
	fake_enter("pinned_free");
	p = pinned_of_locked(block);
	if (!p || p->memory != block) {
		fake_device_violation("pinned_free of what is no block");
		fake_exit();
		return;
	}
	for (struct batoni_list_node *at = copies.next; at != &copies;
	     at = at->next) {
		struct copy *copy = batoni_container_of(at, struct copy, link);

		if (copy->state != ENDED && (pinned_of_locked(copy->to) == p ||
		                             pinned_of_locked(copy->from) == p))
			fake_device_violation("pinned memory is freed under a "
			                      "copy");
	}
	batoni_list_remove(&p->link);
	pinned_bytes -= p->bytes;
	fake_exit();
	free(p->memory);
	free(p);
}

/* Memory of the device, or pinned as a whole. */
static bool
may_copy_locked(const void *pointer, size_t bytes)
{
	const struct pinned *p = pinned_of_locked(pointer);
	size_t before = p ? (size_t)((const char *)pointer -
	                             (const char *)p->memory)
	                  : 0;

	return block_of_locked(pointer) || (p && bytes <= p->bytes - before);
}

static enum baton_status
start_locked(void *to, const void *from, size_t bytes, struct copy **copy_p)
{
	struct copy *copy = calloc(1, sizeof(*copy));
	enum baton_status status;

	if (!copy)
		return BATON_ERR_NOMEM;
	status = fake_fault_locked(FAKE_COPY_START);
	if (status != BATON_OK) {
		free(copy);
		return status;
	}
	if (bytes == 0)
		fake_device_violation("a copy of no bytes");
	if (!may_copy_locked(to, bytes) || !may_copy_locked(from, bytes))
		fake_device_violation("a copy of pageable memory");
	copy->to = reach_locked(to, bytes, &copy->blocks[0]);
	copy->from = reach_locked(from, bytes, &copy->blocks[1]);
	copy->bytes = bytes;
	/* Whoever looks before the end finds rubbish. */
	memset(copy->to, 0xdd, bytes);
	batoni_list_append(&copies, &copy->link);
	pthread_cond_signal(&started);
	*copy_p = copy;
	return BATON_OK;
}

static enum baton_status
fake_copy_start(struct batoni_device *device, void *to, const void *from,
                size_t bytes, int owner, struct batoni_ticket *ticket_p)
{
	struct copy *copy = NULL;
	enum baton_status status;

	(void)device;
	(void)owner;
	fake_enter("copy_start");
	starts++;
	status = start_locked(to, from, bytes, &copy);
	if (status == BATON_OK)
		ticket_p->words[0] = (uintptr_t)copy;
	fake_exit();
	return status;
}

static bool
touch(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	return (uintptr_t)a < (uintptr_t)b + b_bytes &&
	       (uintptr_t)b < (uintptr_t)a + a_bytes;
}

/* May the two be started together? */
static bool
agree_locked(const struct batoni_copy *a, const struct batoni_copy *b)
{
	return !touch(a->to, a->bytes, b->to, b->bytes) &&
	       !touch(a->to, a->bytes, b->from, b->bytes) &&
	       !touch(a->from, a->bytes, b->to, b->bytes) &&
	       !block_of_locked(a->to) == !block_of_locked(b->to);
}

static void
check_together_locked(const struct batoni_copy *all, size_t n)
{
	bool right = n >= 2 && n <= BATONI_COPIES_MAX;

	for (size_t i = 0; i < n; i++) {
		right &= !block_of_locked(all[i].to) !=
		         !block_of_locked(all[i].from);
		for (size_t j = 0; j < i; j++)
			right &= agree_locked(&all[i], &all[j]);
	}
	if (!right)
		fake_device_violation("copies that may not be started "
		                      "together");
}

/* Each ends by itself; the ticket when all have. */
static enum baton_status
fake_copies_start(struct batoni_device *device, const struct batoni_copy *all,
                  size_t n, int owner, struct batoni_ticket *ticket_p,
                  size_t *started_p)
{
	struct copy *first = NULL, **more_p = &first;
	enum baton_status status = BATON_OK;

	(void)device;
	(void)owner;
	*started_p = 0;
	fake_enter("copies_start");
	starts++;
	check_together_locked(all, n);
	while (*started_p < n) {
		const struct batoni_copy *copy = &all[*started_p];

		status = start_locked(copy->to, copy->from, copy->bytes, more_p);
		if (status != BATON_OK)
			break;
		more_p = &(*more_p)->more;
		++*started_p;
	}
	if (first)
		ticket_p->words[0] = (uintptr_t)first;
	fake_exit();
	return status;
}

static bool
have_ended_locked(const struct copy *copy)
{
	while (copy && copy->state == ENDED)
		copy = copy->more;
	return !copy;
}

static enum baton_status
fake_copy_test(struct batoni_device *device, struct batoni_ticket *ticket)
{
	struct copy *copy = (void *)(uintptr_t)ticket->words[0];
	enum baton_status status;

	(void)device;
	fake_enter("copy_test");
	if (!copy) {
		fake_device_violation("copy_test of a copy that was reported");
		fake_exit();
		return BATON_ERR_CUDA;
	}
	if (!have_ended_locked(copy)) {
		fake_exit();
		return BATON_PENDING;
	}
	status = fake_fault_locked(FAKE_COPY_TEST);
	while (copy) {
		struct copy *more = copy->more;

		batoni_list_remove(&copy->link);
		free(copy);
		copy = more;
	}
	ticket->words[0] = 0;
	fake_exit();
	return status;
}

static void
fake_error_text(struct batoni_device *device, int code, char *text, size_t size)
{
	(void)device;
	snprintf(text, size, code == 719 ? "the fake was told to fail"
	                                 : "unknown");
}

static void
fake_why(struct batoni_device *device, struct batoni_fault *fault_p)
{
	*fault_p = (struct batoni_fault){.call = "fake call", .code = 719};
	fake_error_text(device, 719, fault_p->text, sizeof(fault_p->text));
}

static enum baton_status
fake_health(struct batoni_device *device, struct batoni_fault *fault_p)
{
	enum baton_status status;

	(void)device;
	fake_enter("health");
	status = fake_fault_locked(FAKE_HEALTH);
	fake_exit();
	if (status != BATON_OK)
		*fault_p = (struct batoni_fault){
			.call = "fake health",
			.code = 700,
			.text = "an illegal address was reached",
		};
	return status;
}

static enum baton_status
share_locked(const void *pointer, size_t bytes,
             struct batoni_memory_shared *shared_p)
{
	enum baton_status status = fake_fault_locked(FAKE_SHARE);
	const struct block *block = block_of_locked(pointer);
	struct name name = {.pid = getpid()};
	struct stat about;
	size_t at;

	if (status != BATON_OK)
		return batoni_refuse(status, "the fake was told to fail");
	if (!block || block->foreign || block->fd < 0 ||
	    fstat(block->fd, &about))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the fake does not share this memory");
	at = (size_t)((const unsigned char *)pointer - block->view);
	if (bytes > block->bytes - at)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "it is not all of one block of the fake's");
	name.fd = block->fd;
	name.inode = about.st_ino;
	name.bytes = block->bytes;
	memset(shared_p, 0, sizeof(*shared_p));
	memcpy(&shared_p->name, &name, sizeof(name));
	shared_p->bytes = block->bytes;
	shared_p->offset = at;
	shared_p->fd = dup(block->fd);
	shared_p->kept = true;
	return BATON_OK;
}

static enum baton_status
fake_identify(struct batoni_device *device, const void *pointer, size_t bytes,
              struct batoni_memory_block *block_p)
{
	enum baton_status status = BATON_ERR_UNSUPPORTED;
	const struct block *block;
	struct stat about;

	(void)device;
	fake_enter("identify");
	block = block_of_locked(pointer);
	if (block && !block->foreign && block->fd >= 0 &&
	    bytes <= block->bytes -
	                     (size_t)((const unsigned char *)pointer - block->view) &&
	    !fstat(block->fd, &about)) {
		block_p->number = about.st_ino;
		block_p->base = (const char *)block->view;
		block_p->bytes = block->bytes;
		status = BATON_OK;
	}
	fake_exit();
	return status == BATON_OK
	               ? status
	               : batoni_refuse(status,
	                               "the fake does not share this memory");
}

static enum baton_status
fake_share(struct batoni_device *device, const void *pointer, size_t bytes,
           struct batoni_memory_shared *shared_p)
{
	enum baton_status status;

	(void)device;
	fake_enter("share");
	status = share_locked(pointer, bytes, shared_p);
	fake_exit();
	return status;
}

/* Is it the block with this name? */
static bool
is_named(const struct name *name, int fd)
{
	struct stat about;

	return !fstat(fd, &about) && about.st_ino == name->inode;
}

static bool
is_mapped_locked(const struct name *name)
{
	for (size_t i = 0; i < blocks_n; i++) {
		if (blocks[i]->foreign && is_named(name, blocks[i]->fd))
			return true;
	}
	return false;
}

static enum baton_status
map_locked(const struct batoni_memory_name *name_p, int fd, size_t bytes,
           void **base_p)
{
	enum baton_status status = fake_fault_locked(FAKE_MAP);
	struct block *block;
	struct name name;

	memcpy(&name, name_p, sizeof(name));
	if (status != BATON_OK)
		return batoni_refuse(status, "the fake was told to fail");
	if (name.pid == getpid())
		fake_device_violation("map of a block of this process");
	if (bytes != name.bytes)
		fake_device_violation("map of another length than the block's");
	if (!is_named(&name, fd))
		return batoni_refuse(BATON_ERR_CUDA,
		                     "the descriptor is not the block's");
	if (is_mapped_locked(&name))
		fake_device_violation("map of a block that is mapped");
	block = new_block_locked(dup(fd), name.bytes);
	block->foreign = true;
	*base_p = block->view;
	return BATON_OK;
}

static enum baton_status
fake_map(struct batoni_device *device, const struct batoni_memory_name *name,
         int fd, size_t bytes, void **base_p)
{
	enum baton_status status;

	(void)device;
	fake_enter("map");
	status = map_locked(name, fd, bytes, base_p);
	fake_exit();
	return status;
}

static void
fake_unmap(struct batoni_device *device, const struct batoni_memory_name *name,
           void *base, size_t bytes)
{
	struct block *block;

	(void)device;
	(void)name;
	fake_enter("unmap");
	block = block_of_locked(base);
	if (!block || block->view != base || !block->foreign ||
	    block->bytes != bytes)
		fake_device_violation("unmap of what map did not return");
	else
		free_block_locked(block);
	fake_exit();
}

static const struct batoni_batch_ops batches = {
	.copies_start = fake_copies_start,
};

static const struct batoni_sharing_ops sharing = {
	.identify = fake_identify,
	.share = fake_share,
	.map = fake_map,
	.unmap = fake_unmap,
};

const struct batoni_memory_ops batoni_fake_memory_ops = {
	.batches = &batches,
	.sharing = &sharing,
	.inspect = fake_inspect,
	.pinned_alloc = fake_pinned_alloc,
	.pinned_free = fake_pinned_free,
	.copy_start = fake_copy_start,
	.copy_test = fake_copy_test,
	.why = fake_why,
	.error_text = fake_error_text,
	.health = fake_health,
};
