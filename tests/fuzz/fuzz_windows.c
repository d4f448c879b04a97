/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks tell each other when a window is registered and deregistered: window/window.c,
 * paths.c, native_path.c and shared.c, as they are, over exchanges that bring what the input says,
 * and over a kernel, a device and a native transport that are stubs.
 *
 * The first byte says what this rank's part is.  In each exchange a byte for each other rank says
 * what that one brings: what this rank does, that with a few bytes changed, another status, or any
 * bytes.  Two windows live at a time, so that a block may be offered twice.
 *
 * A call ends in OK or in an error that there is, with a sentence.  Of a window that is registered
 * each peer has one path; and what was mapped of a peer is as long as the part that puts may reach.
 * At the end nothing is mapped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "collective.h"
#include "config.h"
#include "fuzz.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "native_puts.h"
#include "paths.h"
#include "registry.h"
#include "location.h"
#include "shared.h"
#include "wake.h"

enum {
	RANK = 1,
	RANKS = 3,
	PART_BYTES = 4096,
	BLOCK_BYTES = 8192,
	BLOCK_OFFSET = 256,
	MAPPED_MOST = 1 << 20,
	GPU = 2,
	PATCHES_MOST = 3,
	OWN_PID = 7
};

static struct world {
	struct batoni_rma rma;
	struct baton_comm comm;
	struct batoni_transport transport, native;
	struct batoni_device device;
	struct batoni_peer peers[RANKS];
	unsigned char signal_path[RANKS];
	struct batoni_config config;
	uint64_t now_ns;
	unsigned location;
	int listens, shms, blocks;
	struct batoni_native_window *natives[2]; /* what the library has */
} world;

static _Atomic uint64_t segments[RANKS][64];
static char part[PART_BYTES];

_Thread_local struct batoni_thread batoni_thread;
atomic_bool batoni_forked;
struct batoni_engine batoni_engine;

/* ---- the base ---- */

void
batoni_mem_keep(long change)
{
	(void)change;
	abort(); /* nothing is left behind */
}

void
batoni_cond_init(pthread_cond_t *cond)
{
	(void)cond;
}

/* There is one thread. */
bool
batoni_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
	(void)cond;
	(void)lock;
	(void)until_ns;
	return false;
}

uint64_t
batoni_real_ns(void)
{
	return world.now_ns += 1000;
}

const struct batoni_config *
batoni_config(void)
{
	return &world.config;
}

void
batoni_cancel_restore(void)
{
}

enum baton_status
batoni_refuse_caller(const char *call)
{
	(void)call;
	abort();
}

void
batoni_handle_start(struct batoni_handle *handle)
{
	atomic_store(&handle->alive, BATONI_ALIVE);
}

void
batoni_handle_bury(struct batoni_handles *handles, void *object)
{
	(void)handles;
	free(object);
}

/* ---- the kernel ---- */

bool
batoni_bell_name(struct batoni_shm_name *name_p)
{
	memset(name_p, 0, sizeof(*name_p));
	name_p->node[0] = 5;
	name_p->pid = OWN_PID;
	name_p->fd = 3;
	return true;
}

void
batoni_shm_node(struct batoni_shm_name *name_p)
{
	batoni_bell_name(name_p);
}

bool
batoni_shm_is_here(const struct batoni_shm_name *name)
{
	return name->node[0] == 5;
}

void
batoni_shm_name(const struct batoni_shm *shm, struct batoni_shm_name *name_p)
{
	batoni_bell_name(name_p);
	name_p->inode = 11;
	name_p->bytes = shm->bytes;
}

/* The bounds are those of shm.c. */
enum baton_status
batoni_shm_map(const struct batoni_shm_name *name, size_t offset, size_t bytes,
               void **base_p)
{
	CLAIM(bytes > 0);
	if (offset > name->bytes || bytes > name->bytes - offset)
		return BATON_ERR_UNSUPPORTED;
	if (name->bytes > MAPPED_MOST)
		return BATON_ERR_UNSUPPORTED; /* no file is as long */
	*base_p = calloc(1, bytes);
	world.shms++;
	return BATON_OK;
}

void
batoni_shm_unmap(void *base, size_t bytes)
{
	(void)bytes;
	free(base);
	world.shms--;
}

enum baton_status
batoni_vm_write(pid_t pid, uint64_t address, const void *from, size_t bytes)
{
	CLAIM(pid > 1 && bytes == sizeof(uint64_t));
	if (address % 64 != RANK * sizeof(uint64_t))
		return BATON_ERR_INVALID;
	memcpy((void *)&batoni_onesided_words(segments[0])[RANK], from, bytes);
	memcpy((void *)&batoni_onesided_words(segments[2])[RANK], from, bytes);
	return BATON_OK;
}

enum baton_status
batoni_handover_open(int fd, struct batoni_handover **handover_p,
                     struct batoni_handover_name *name_p)
{
	(void)fd;
	(void)handover_p;
	(void)name_p;
	abort(); /* the device gives no descriptors */
}

void
batoni_handover_close(struct batoni_handover *handover)
{
	CLAIM(!handover);
}

enum baton_status
batoni_handover_fetch(const struct batoni_handover_name *name, int pidfd,
                      uint64_t until_ns, int *fd_p)
{
	(void)name;
	(void)pidfd;
	CLAIM(until_ns < UINT64_MAX);
	*fd_p = -1;
	return fuzz_next() % 2 ? BATON_OK
	                       : batoni_refuse(BATON_ERR_UNSUPPORTED, "not handed on");
}

/* ---- the engine and the rest of the layer ---- */

void
batoni_lock(void)
{
}

void
batoni_unlocked(void)
{
}

size_t
batoni_pass(void)
{
	return 0;
}

size_t
batoni_end_and_issue(void)
{
	return 0;
}

size_t
batoni_place_inbox(void)
{
	return 0;
}

void
batoni_pause_between(unsigned tries)
{
	(void)tries;
}

enum baton_status
batoni_drive_until(enum baton_status (*step)(void *argument), void *argument,
                   uint64_t limit_ns)
{
	enum baton_status status;

	do
		status = step(argument);
	while (status == BATON_PENDING && batoni_real_ns() < limit_ns);
	return status;
}

int64_t
batoni_comm_grace_ns(const struct baton_comm *comm)
{
	(void)comm;
	return 10000;
}

void
batoni_comm_break(struct baton_comm *comm, enum baton_status status,
                  const char *why)
{
	CLAIM(status == batoni_error_told(status) && why[0] != '\0');
	comm->fault.status = status;
	atomic_store(&comm->status, status);
}

enum baton_status
baton_comm_status(const struct baton_comm *comm)
{
	return (enum baton_status)atomic_load(&comm->status);
}

void
batoni_location_watch(void)
{
}

enum baton_status
batoni_location_find(struct baton_comm *comm, const void *pointer, size_t bytes,
                     unsigned *location_p)
{
	(void)comm;
	(void)pointer;
	(void)bytes;
	*location_p = world.location;
	return BATON_OK;
}

const struct batoni_native_ops *
batoni_native_layer(void)
{
	static const struct batoni_native_ops native = {.constant = "NATIVE"};

	return &native;
}

enum baton_status
batoni_check_windows(const char *call, const struct baton_comm *comm)
{
	(void)call;
	(void)comm;
	return BATON_OK;
}

enum baton_status
batoni_check_collective(const char *call, const struct baton_comm *comm)
{
	(void)call;
	(void)comm;
	return BATON_OK;
}

struct batoni_memory *
batoni_memory_find(struct batoni_rma *rma, const void *base, size_t bytes,
                   bool *all_p)
{
	(void)rma;
	(void)base;
	(void)bytes;
	*all_p = false;
	return NULL;
}

enum baton_status
batoni_messages_drain(struct batoni_rma *rma)
{
	(void)rma;
	return BATON_OK;
}

enum baton_status
batoni_messages_let_go(struct batoni_rma *rma, const void *base, size_t bytes)
{
	(void)rma;
	(void)base;
	(void)bytes;
	return BATON_OK;
}

void
batoni_messages_listen(struct batoni_rma *rma, int change)
{
	(void)rma;
	world.listens += change;
	CLAIM(world.listens >= 0);
}

void
batoni_messages_post(struct batoni_rma *rma)
{
	(void)rma;
}

bool
batoni_mapped_copies_here(const struct baton_window *window)
{
	(void)window;
	return false;
}

bool
batoni_puts_copy_here(const struct batoni_rma *rma,
                      const struct baton_window *window)
{
	(void)rma;
	(void)window;
	return false;
}

/* ---- collective.c ---- */

enum baton_status
batoni_collective_begin(struct batoni_collective *c, struct batoni_rma *rma,
                        const char *call)
{
	*c = (struct batoni_collective){.rma = rma,
	                                .call = call,
	                                .limit_ns = world.now_ns + 50000};
	if (baton_comm_status(rma->comm) != BATON_OK)
		return batoni_refuse(baton_comm_status(rma->comm), "broken");
	return BATON_OK;
}

void
batoni_collective_end(struct batoni_collective *c)
{
	(void)c;
}

void
batoni_object(struct batoni_collective *c, enum baton_status status,
              const char *format, ...)
{
	if (c->status != BATON_OK)
		return;
	c->status = status;
	snprintf(c->why, sizeof(c->why), "%s", format);
}

enum baton_status
batoni_collective_late(const struct batoni_collective *c)
{
	batoni_comm_break(c->rma->comm, BATON_ERR_TIMEOUT, "late");
	return batoni_refuse(BATON_ERR_TIMEOUT, "late");
}

/* What another rank brings, which is this rank's to begin with. */
static void
fill_contribution(unsigned char *bytes, size_t n)
{
	uint8_t what = fuzz_next();

	switch (what % 4) {
	case 1:
		for (int i = 0; i <= what / 4 % PATCHES_MOST; i++) {
			size_t to = fuzz_next();

			bytes[to % n] = fuzz_next();
		}
		break;
	case 2:
		for (size_t i = 0; i < n && fuzz_input.at < fuzz_input.end; i++)
			bytes[i] = fuzz_next();
		break;
	case 3:
		/* Each begins with its status; of numbers that add up, with one of these. */
		memcpy(bytes, &(int32_t){(int8_t)fuzz_next()}, sizeof(int32_t));
		break;
	default:
		break;
	}
}

enum baton_status
batoni_collect(struct batoni_collective *c, const void *mine, size_t bytes,
               void *all)
{
	uint8_t first = fuzz_next();

	CLAIM(bytes >= sizeof(int64_t) && all);
	if (first == 255)
		return batoni_refuse(BATON_ERR_INVALID, "other calls");
	if (first == 254) {
		batoni_comm_break(c->rma->comm, BATON_ERR_PEER, "gone");
		return batoni_refuse(BATON_ERR_PEER, "gone");
	}
	for (int i = 0; i < RANKS; i++) {
		unsigned char *to = (unsigned char *)all + (size_t)i * bytes;

		memcpy(to, mine, bytes);
		if (i != RANK)
			fill_contribution(to, bytes);
	}
	return BATON_OK;
}

/* ---- the device ---- */

static enum baton_status
share(struct batoni_device *device, const void *pointer, size_t bytes,
      struct batoni_memory_shared *shared_p)
{
	(void)device;
	(void)pointer;
	CLAIM(bytes <= BLOCK_BYTES - BLOCK_OFFSET);
	memset(shared_p, 0, sizeof(*shared_p));
	memset(&shared_p->name, 9, sizeof(shared_p->name));
	shared_p->bytes = BLOCK_BYTES;
	shared_p->offset = BLOCK_OFFSET;
	shared_p->fd = -1;
	return BATON_OK;
}

static enum baton_status
map(struct batoni_device *device, const struct batoni_memory_name *name, int fd,
    size_t bytes, void **base_p)
{
	(void)device;
	(void)name;
	(void)fd;
	if (bytes > MAPPED_MOST)
		return batoni_refuse(BATON_ERR_UNSUPPORTED, "no block is as long");
	*base_p = calloc(1, bytes ? bytes : 1);
	world.blocks++;
	return BATON_OK;
}

static void
unmap(struct batoni_device *device, const struct batoni_memory_name *name,
      void *base, size_t bytes)
{
	(void)device;
	(void)name;
	(void)bytes;
	free(base);
	world.blocks--;
}

static void
why(struct batoni_device *device, struct batoni_fault *fault_p)
{
	(void)device;
	*fault_p = (struct batoni_fault){.call = "a copy", .text = "refused"};
}

static enum baton_status
health(struct batoni_device *device, struct batoni_fault *fault_p)
{
	why(device, fault_p);
	return fuzz_next() % 2 ? BATON_ERR_CUDA : BATON_OK;
}

static const struct batoni_sharing_ops sharing_ops = {
	.share = share, .map = map, .unmap = unmap};
static const struct batoni_memory_ops memory_ops = {
	.sharing = &sharing_ops, .why = why, .health = health};
static const struct batoni_memory_ops host_memory_ops = {.host_only = true};
static const struct batoni_device_ops device_ops = {.memory = &memory_ops};
static const struct batoni_in_engine_ops in_engine_ops = {0};
static const struct batoni_device_ops host_ops = {.in_engine = &in_engine_ops,
                                                  .memory = &host_memory_ops};

/* It lies in what was mapped. */
enum baton_status
batoni_trial_start(struct batoni_rma *rma, const void *from)
{
	(void)rma;
	(void)*(const volatile unsigned char *)from;
	return fuzz_next() % 4 == 3 ? BATON_ERR_CUDA : BATON_OK;
}

enum baton_status
batoni_trial_test(struct batoni_rma *rma)
{
	(void)rma;
	return BATON_OK;
}

/* ---- the native transport ---- */

static enum baton_status
native_inspect(struct batoni_transport *transport, const void *base, size_t bytes,
               struct batoni_native_part *part_p)
{
	(void)transport;
	(void)base;
	*part_p = (struct batoni_native_part){bytes, 0, BLOCK_BYTES};
	return BATON_OK;
}

static enum baton_status
native_open(struct batoni_transport *transport, void *base, size_t bytes,
            struct batoni_native_window **window_p)
{
	(void)transport;
	(void)base;
	(void)bytes;
	*window_p = malloc(1);
	world.natives[world.natives[0] != NULL] = *window_p;
	return BATON_PENDING;
}

static enum baton_status
native_opened(struct batoni_transport *transport,
              struct batoni_native_window *window)
{
	uint8_t how = fuzz_next() % 8;

	(void)transport;
	CLAIM(window != NULL);
	if (how == 7)
		return BATON_PENDING;
	return how == 6 ? batoni_refuse(BATON_ERR_UNSUPPORTED, "sockets")
	                : BATON_OK;
}

static bool
native_let_go(struct batoni_transport *transport,
              struct batoni_native_window *window)
{
	(void)transport;
	(void)window;
	return true;
}

static void
native_close(struct batoni_transport *transport,
             struct batoni_native_window *window)
{
	int i = world.natives[1] == window;

	(void)transport;
	CLAIM(window && world.natives[i] == window);
	free(window);
	world.natives[i] = NULL;
}

static const struct batoni_native_puts_ops native_ops = {
	.inspect = native_inspect,
	.open = native_open,
	.opened = native_opened,
	.let_go = native_let_go,
	.close = native_close,
};

/* ---- the run ---- */

/* kind: what the part is (2 bits), what the communicator has (3), the forced path (3). */
static void
begin(uint8_t kind)
{
	static const unsigned locations[] = {BATONI_MEMORY_HOST,
	                                     BATONI_MEMORY_HOST,
	                                     BATONI_MEMORY_MANAGED,
	                                     BATONI_MEMORY_DEVICE + GPU};
	static const unsigned forced[] = {0,
	                                  0,
	                                  0,
	                                  0,
	                                  BATON_WINDOW_PATH_DIRECT,
	                                  BATON_WINDOW_PATH_VMWRITE,
	                                  BATON_WINDOW_PATH_NATIVE,
	                                  BATON_WINDOW_PATH_MESSAGE};
	struct batoni_rma *rma = &world.rma;

	memset(&world, 0, sizeof(world));
	world.location = locations[kind % 4];
	world.config.window_path = forced[kind >> 5];
	world.device.number = GPU;
	world.comm.device = &world.device;
	world.comm.device_ops = kind % 4 ? &device_ops : &host_ops;
	world.comm.in_engine = world.comm.device_ops->in_engine != NULL;
	world.comm.onesided = &rma->base;
	world.comm.transport = &world.transport;
	world.transport.peers = kind & 4 ? world.peers : NULL;
	world.transport.rank = RANK;
	for (int i = 0; i < RANKS; i++) {
		world.peers[i] = (struct batoni_peer){
			.segment = segments[i],
			.pid = 100 + i,
			.pidfd = kind & 8 ? 50 + i : -1,
			.within = i == RANK,
		};
		world.signal_path[i] = kind & 8 ? BATON_WINDOW_PATH_DIRECT
		                                : BATON_WINDOW_PATH_MESSAGE;
	}
	world.native.puts = &native_ops;
	rma->comm = &world.comm;
	rma->transport = &world.transport;
	rma->native = kind & 16 ? &world.native : NULL;
	rma->rank = RANK;
	rma->size = RANKS;
	rma->asks = kind % 4 != 0;
	rma->signal_path = world.signal_path;
	rma->next_window = 1;
	pthread_mutex_init(&rma->memories_lock, NULL);
	batoni_list_init(&rma->windows);
}


static void
look_at_peer(const struct baton_window *window, int i)
{
	const struct batoni_window_peer *to = &window->peers[i];

	CLAIM(to->path == BATON_WINDOW_PATH_DIRECT ||
	      to->path == BATON_WINDOW_PATH_VMWRITE ||
	      to->path == BATON_WINDOW_PATH_NATIVE ||
	      to->path == BATON_WINDOW_PATH_MESSAGE);
	CLAIM(baton_window_size(window, i) == to->bytes);
	CLAIM(strlen(baton_window_why(window, i)) < 400);
	if (to->path != BATON_WINDOW_PATH_DIRECT || to->bytes == 0 || i == RANK)
		return;
	/* AddressSanitizer sees whether it is there. */
	CLAIM(to->mapped || to->mapping);
	to->base[0] = 1;
	to->base[to->bytes - 1] = 1;
}

static struct baton_window *
enter(size_t bytes)
{
	struct baton_window *window = NULL;
	enum baton_status status =
		baton_window_register(part, bytes, &world.comm, &window);

	CLAIM(status == BATON_OK || status == batoni_error_told(status));
	CLAIM((status == BATON_OK) == (window != NULL));
	CLAIM(status == BATON_OK || baton_last_error()[0] != '\0');
	for (int i = 0; window && i < RANKS; i++)
		look_at_peer(window, i);
	return window;
}

static void
leave(struct baton_window *window)
{
	enum baton_status status = baton_window_deregister(window);

	CLAIM(status == BATON_OK || status == batoni_error_told(status));
	if (status == BATON_OK)
		return;
	/* Refused, or the ranks disagree: with the communicator broken it ends alone. */
	if (baton_comm_status(&world.comm) == BATON_OK)
		batoni_comm_break(&world.comm, BATON_ERR_ABORTED, "the end");
	CLAIM(baton_window_deregister(window) == BATON_OK);
}

static void
finish(void)
{
	CLAIM(world.shms == 0 && world.blocks == 0 && batoni_mappings() == 0);
	CLAIM(world.listens == 0 && batoni_list_empty(&world.rma.windows));
	/* Of a communicator that broke they end with the library's. */
	for (int i = 0; i < 2; i++) {
		CLAIM(!world.natives[i] ||
		      baton_comm_status(&world.comm) != BATON_OK);
		free(world.natives[i]);
	}
	batoni_windows_close(&world.rma);
	pthread_mutex_destroy(&world.rma.memories_lock);
}

static void
seed(uint8_t kind, const uint8_t *rest, size_t n)
{
	unsigned char bytes[300] = {kind};

	memcpy(bytes + 1, rest, n);
	fuzz_seed(bytes, n + 1);
}

/* Rank 2 offers the block of rank 0, as a longer one, and its part behind the end of that. */
static void
seed_longer_block(void)
{
	static const uint8_t rest[] = {
		0, 0, 0,                   /* parts */
		0, 0, 5, 9, 255, 17, 64,   /* offers: the block, the offset */
		0, 0, 0,
	};

	for (unsigned kind = 3; kind < 32; kind += 4)
		seed((uint8_t)kind, rest, sizeof(rest));
}

/* Zeros: the others do as this rank.  Then one changed byte in each exchange. */
void
seeds(void)
{
	uint8_t rest[200];

	seed_longer_block();
	for (unsigned kind = 0; kind < 256; kind++) {
		memset(rest, 0, sizeof(rest));
		if (kind < 32 || kind >= 128)
			seed((uint8_t)kind, rest, 0);
		for (uint8_t exchange = 0; kind < 32 && exchange < 4;
		     exchange++) {
			memset(rest, 0, sizeof(rest));
			memcpy(rest + 3 * exchange,
			       (uint8_t[]){0, 1, 24, 9, 0}, 5);
			seed((uint8_t)kind, rest, 3 * exchange + 8);
			memcpy(rest + 3 * exchange, (uint8_t[]){0, 3, 241}, 3);
			seed((uint8_t)kind, rest, 3 * exchange + 8);
		}
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct baton_window *windows[2];

	if (n < 1)
		return 0;
	begin(bytes[0]);
	fuzz_input = (struct fuzz_input){bytes + 1, bytes + n};
	windows[0] = enter(PART_BYTES);
	windows[1] = enter(fuzz_next() % 2 ? 0 : PART_BYTES);
	for (int i = 0; i < 2; i++)
		if (windows[i])
			leave(windows[i]);
	finish();
	return 0;
}
