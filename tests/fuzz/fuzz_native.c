/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the hosts of the NCCL transport tell each other when it is created, and units of puts:
 * transport/nccl/nccl_open.c, nccl_hello.c, nccl_windows_open.c, nccl_windows.c, nccl_puts.c and nccl_peers.c, as they are,
 * over a transport whose exchanges bring what the input says, and a library that is a stub.
 *
 * The first byte says which rank this is, and what it has.  In each exchange a byte for each other
 * rank says what that one brings: what this rank does (so that creation goes on), that with a few
 * bytes changed, or any bytes.  What is left, when the transport is open, are numbers of units,
 * which the sources say have left.
 *
 * A step ends in OK, PENDING, or an error that there is, with a sentence; sentences of others are
 * cut to their length; and the library is told to wait for no more than the sources have said, and
 * for no more than there can be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "fuzz.h"
#include "log.h"
#include "mem.h"
#include "memory.h"
#include "nccl_windows.h"

enum { SIZE = 3, BITS = 2, STEPS_MOST = 300, BUSY_MOST = 4, PATCHES_MOST = 3 };

static struct world {
	struct batoni_transport lower;
	struct batoni_device device;
	struct batoni_patience patience;
	struct batoni_nccl_api api;
	struct batoni_nccl *nccl;
	uint64_t now_ns;
	uint64_t asked[SIZE], said[SIZE];
	int busy;
	bool in_driver, entered;
} world;

/* ---- what it needs of others ---- */

void
batoni_mem_keep(long change)
{
	(void)change;
}

void
batoni_pause_between(unsigned tries)
{
	(void)tries;
}

uint64_t
batoni_real_ns(void)
{
	return world.now_ns += 1000;
}

bool
batoni_bell_name(struct batoni_shm_name *name_p)
{
	memset(name_p, 0, sizeof(*name_p));
	name_p->pid = 1;
	return true;
}

bool
batoni_shm_is_here(const struct batoni_shm_name *name)
{
	return name->node[0] == 0;
}

int
batoni_pidfd_open(pid_t pid)
{
	return pid > 1 ? pid : -1;
}

void
batoni_pidfd_close(int fd)
{
	(void)fd;
}

enum baton_status
batoni_nccl_load(const struct batoni_nccl_api **api_p)
{
	*api_p = &world.api;
	return BATON_OK;
}

void
batoni_nccl_config_init(const struct batoni_nccl_api *api,
                        struct batoni_nccl_config *config)
{
	(void)api;
	memset(config, 0, sizeof(*config));
}

void
batoni_nccl_describe(const struct batoni_nccl_api *api, ncclComm_t comm,
                     ncclResult_t result, char *text, size_t size)
{
	(void)api;
	(void)comm;
	snprintf(text, size, "result %u", result);
}

void
batoni_nccl_version_text(int version, char *text, size_t size)
{
	snprintf(text, size, "%d", version);
}

struct batoni_nccl_lock *
batoni_nccl_lock_of(int device)
{
	(void)device;
	return NULL;
}

enum baton_status
batoni_nccl_enter(struct batoni_nccl *nccl, struct batoni_memory_guard *guard,
                  uint64_t until_ns)
{
	(void)nccl;
	(void)guard;
	(void)until_ns;
	CLAIM(!world.entered);
	world.entered = true;
	return BATON_OK;
}

enum baton_status
batoni_nccl_try_enter(struct batoni_nccl *nccl, struct batoni_memory_guard *guard)
{
	return batoni_nccl_enter(nccl, guard, 0);
}

void
batoni_nccl_leave(struct batoni_nccl *nccl, const struct batoni_memory_guard *guard)
{
	(void)nccl;
	(void)guard;
	CLAIM(world.entered);
	world.entered = false;
}

bool
batoni_nccl_do_apart(struct batoni_nccl *nccl, void (*fn)(struct batoni_nccl *))
{
	fn(nccl);
	return true;
}

void
batoni_nccl_abort_lanes(struct batoni_nccl *nccl)
{
	for (unsigned i = 0; i < batoni_nccl_lanes_all(nccl); i++)
		nccl->lanes[i].comm = NULL;
	batoni_nccl_puts_reclaim(nccl);
}

unsigned
batoni_nccl_lane_of(const struct batoni_nccl *nccl, int source, int target)
{
	return source == target ? nccl->lanes_n - 1
	                        : (unsigned)(source + target) %
	                                  (nccl->lanes_n - 1);
}

size_t
batoni_nccl_poll(struct batoni_nccl *nccl)
{
	(void)nccl;
	return 0;
}

enum baton_status
batoni_nccl_self_make(struct batoni_nccl *nccl)
{
	(void)nccl;
	return BATON_OK;
}

void
batoni_nccl_self_free(struct batoni_nccl *nccl)
{
	(void)nccl;
}

/* Of checked mode only the version is told. */
enum baton_status
batoni_nccl_checked_create(struct batoni_nccl *nccl)
{
	(void)nccl;
	return BATON_OK;
}

void
batoni_nccl_checked_free(struct batoni_nccl *nccl)
{
	(void)nccl;
}

void
batoni_nccl_checked_done(struct batoni_nccl *nccl,
                         struct batoni_transfer *transfer,
                         enum baton_status status)
{
	(void)nccl;
	(void)transfer;
	(void)status;
	abort(); /* nothing is sent */
}

const struct batoni_path_ops batoni_nccl_checked_ops, batoni_nccl_lists_ops,
	batoni_nccl_path_ops;
const struct batoni_transport_ops batoni_nccl_transport_ops;

/* ---- the library ---- */

static ncclResult_t
works(void)
{
	CLAIM(world.entered);
	return BATONI_NCCL_SUCCESS;
}

/* It is busy for a while, if the input says so. */
static ncclResult_t
comm_error(ncclComm_t comm, ncclResult_t *state)
{
	CLAIM(comm != NULL);
	*state = BATONI_NCCL_SUCCESS;
	if (world.busy > 0) {
		world.busy--;
		*state = BATONI_NCCL_IN_PROGRESS;
	}
	return works();
}

static ncclResult_t
get_unique_id(ncclUniqueId *id)
{
	memset(id, 7, sizeof(*id));
	return BATONI_NCCL_SUCCESS;
}

static ncclResult_t
comm_init(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
          ncclConfig_t *config)
{
	(void)id;
	(void)config;
	CLAIM((size == 1 && rank == 0) || (size == SIZE && rank < SIZE));
	*comm = (ncclComm_t)&world;
	return works();
}

static ncclResult_t
comm_abort(ncclComm_t comm)
{
	CLAIM(comm != NULL);
	return BATONI_NCCL_SUCCESS;
}

static ncclResult_t
send(const void *buffer, size_t bytes, ncclDataType_t type, int peer,
     ncclComm_t comm, struct CUstream_st *stream)
{
	(void)buffer;
	(void)type;
	(void)stream;
	CLAIM(bytes == 0 && peer >= 0 && peer < SIZE && comm);
	return works();
}

static ncclResult_t
receive(void *buffer, size_t bytes, ncclDataType_t type, int peer,
        ncclComm_t comm, struct CUstream_st *stream)
{
	return send(buffer, bytes, type, peer, comm, stream);
}

static ncclResult_t
window_register(ncclComm_t comm, void *base, size_t bytes, ncclWindow_t *window_p,
                int flags)
{
	(void)bytes;
	(void)flags;
	CLAIM(comm && base);
	*window_p = fuzz_next() % 8 ? (ncclWindow_t)&world : NULL;
	return works();
}

static ncclResult_t
signal_one(int peer, int index, int context, unsigned flags, ncclComm_t comm,
           struct CUstream_st *stream)
{
	(void)index;
	(void)context;
	(void)flags;
	(void)stream;
	CLAIM(peer >= 0 && peer < SIZE && comm);
	return works();
}

static ncclResult_t
put_signal(const void *from, size_t bytes, ncclDataType_t type, int peer,
           ncclWindow_t window, size_t offset, int index, int context,
           unsigned int flags, ncclComm_t comm, struct CUstream_st *stream)
{
	abort(); /* this rank puts nothing */
}

static ncclResult_t
wait_signal(int n, ncclWaitSignalDesc_t *desc, ncclComm_t comm,
            struct CUstream_st *stream)
{
	(void)stream;
	CLAIM(n == 1 && comm);
	CLAIM(desc->peer >= 0 && desc->peer < SIZE && desc->opCnt > 0);
	world.asked[desc->peer] += (uint64_t)desc->opCnt;
	CLAIM(world.asked[desc->peer] <= world.said[desc->peer]);
	return works();
}

static const struct batoni_nccl_api stubs = {
	.get_unique_id = get_unique_id,
	.comm_init = comm_init,
	.comm_abort = comm_abort,
	.comm_error = comm_error,
	.group_start = works,
	.group_end = works,
	.send = send,
	.recv = receive,
	.window_register = window_register,
	.put_signal = put_signal,
	.signal = signal_one,
	.wait_signal = wait_signal,
	.version = 23000,
};

/* ---- the device ---- */

static enum baton_status
stream_create(struct batoni_device *device, baton_stream *stream_p)
{
	(void)device;
	*stream_p = (baton_stream)&world;
	return BATON_OK;
}

static enum baton_status
stream_destroy(struct batoni_device *device, baton_stream stream)
{
	(void)device;
	CLAIM(stream == (baton_stream)&world);
	return BATON_OK;
}

static enum baton_status
follow(struct batoni_device *device, baton_stream stream, baton_stream other)
{
	abort(); /* nothing is enqueued */
}

static enum baton_status
mark(struct batoni_device *device, baton_stream stream, struct batoni_mark *mark_p)
{
	(void)device;
	CLAIM(stream == (baton_stream)&world);
	mark_p->object = &world;
	return BATON_OK;
}

static enum baton_status
mark_done(struct batoni_device *device, struct batoni_mark *mark_p)
{
	(void)device;
	CLAIM(mark_p->object == &world);
	if (fuzz_next() % 4 == 3)
		return BATON_PENDING;
	mark_p->object = NULL;
	return BATON_OK;
}

static void
mark_drop(struct batoni_device *device, struct batoni_mark *mark_p)
{
	(void)device;
	CLAIM(mark_p->object == &world);
	mark_p->object = NULL;
}

static enum baton_status
enter(struct batoni_device *device, struct batoni_memory_guard *guard_p)
{
	abort(); /* batoni_nccl_enter is a stub */
}

static uint64_t
available(struct batoni_device *device)
{
	(void)device;
	return 0; /* it does not say */
}

static const struct batoni_library_ops library_ops = {.enter = enter,
                                                      .available = available};

static enum baton_status
block_alloc(struct batoni_device *of, size_t bytes, uint64_t until_ns, void **block_p)
{
	(void)of, (void)until_ns;
	CLAIM(bytes == BATONI_NCCL_STAGING);
	*block_p = malloc(1);
	return BATON_OK;
}

static void
block_free(struct batoni_device *of, void *block)
{
	(void)of;
	free(block);
}

static const struct batoni_block_ops block_ops = {
	.block_alloc = block_alloc,
	.block_free = block_free,
};

static const struct batoni_memory_ops memory_ops = {.library = &library_ops,
                                                    .blocks = &block_ops};

static const struct batoni_mark_ops marks = {
	.mark = mark,
	.mark_done = mark_done,
	.mark_drop = mark_drop,
};

static const struct batoni_event_ops events = {.follow = follow};

static const struct batoni_device_ops device_ops = {
	.name = "a stub",
	.memory = &memory_ops,
	.stream_create = stream_create,
	.stream_destroy = stream_destroy,
	.marks = &marks,
	.events = &events,
};

/* ---- the lower transport ---- */

/* The part of another rank, which is this rank's to begin with. */
static void
fill_part(unsigned char *part, size_t bytes)
{
	uint8_t what = fuzz_next();
	int8_t status;

	switch (what % 4) {
	case 1:
		for (int i = 0; i <= what / 4 % PATCHES_MOST; i++) {
			size_t to = (size_t)fuzz_next() | (size_t)fuzz_next() << 8;

			part[to % bytes] = fuzz_next();
		}
		break;
	case 2:
		for (size_t i = 0; i < bytes && fuzz_input.at < fuzz_input.end; i++)
			part[i] = fuzz_next();
		break;
	case 3:
		/* A word begins with its status. */
		status = (int8_t)fuzz_next();
		memcpy(part, &(int32_t){status}, sizeof(int32_t));
		break;
	default:
		break;
	}
}

static enum baton_status
exchange(struct batoni_transport *transport, uint64_t what, const void *mine,
         size_t bytes, void *all)
{
	uint8_t first = fuzz_next();

	(void)what;
	CLAIM(world.in_driver && bytes >= sizeof(int32_t));
	if (first % 8 == 7)
		return BATON_PENDING;
	if (first == 6)
		return BATON_ERR_PEER;
	world.busy = first / 8 % BUSY_MOST;
	for (int i = 0; i < SIZE; i++) {
		unsigned char *part = (unsigned char *)all + (size_t)i * bytes;

		memcpy(part, mine, bytes);
		if (i != transport->rank)
			fill_part(part, bytes);
	}
	return BATON_OK;
}

static const struct batoni_transport_ops lower_ops = {
	.name = "stub",
	.exchanging = &(const struct batoni_exchanging_ops){.exchange = exchange},
};

static void
driver_lock(void)
{
	CLAIM(!world.in_driver);
	world.in_driver = true;
}

static void
driver_unlock(void)
{
	CLAIM(world.in_driver);
	world.in_driver = false;
}

/* ---- the run ---- */

static void
begin(const uint8_t *bytes, size_t n)
{
	memset(&world, 0, sizeof(world));
	fuzz_input = (struct fuzz_input){bytes + 1, bytes + n};
	world.api = stubs;
	if (bytes[0] & 4)
		world.api.put_signal = NULL;
	world.device.ops = &device_ops;
	world.lower.ops = &lower_ops;
	world.lower.rank = bytes[0] % SIZE;
	world.lower.size = SIZE;
	world.patience.until_ns = UINT64_MAX;
}

static struct batoni_native *
create(uint8_t kind)
{
	const struct batoni_native_config config = {
		.device = &world.device,
		.size = SIZE,
		.lanes = kind & 8 ? 1 : 0,
		.timeout_ns = 1000000,
		.slots = 8,
		.lower_slot = kind & 16 ? 8 : 0,
		.check = kind & 32,
		.lists = !(kind & 64),
		.driver_lock = driver_lock,
		.driver_unlock = driver_unlock,
	};
	struct batoni_native *native = NULL;

	CLAIM(batoni_native_ops.create(&config, &native) == BATON_OK);
	return native;
}

/* The units that a source says have left.  They are as many as were asked for, or fewer. */
static void
await_units(struct batoni_transport *transport)
{
	int source = fuzz_next() % SIZE;
	unsigned shift = fuzz_next() % 64;
	uint64_t units = (uint64_t)fuzz_next() << shift;
	enum baton_status status;

	if (!transport->puts->may_come(transport, source, units))
		return;
	/* A wait for more would never end. */
	CLAIM(units <= world.asked[source] + INT32_MAX);
	if (units > world.said[source])
		world.said[source] = units;
	for (int i = 0; i < 4; i++) {
		status = transport->puts->await(transport, source, units);
		CLAIM(status == BATON_OK || status == BATON_PENDING);
		CLAIM(status != BATON_OK || world.asked[source] >= units);
		if (status != BATON_PENDING)
			break;
	}
}

static void
use(struct batoni_transport *transport)
{
	CLAIM(transport->rank == world.lower.rank && transport->size == SIZE);
	transport->patience = &world.patience;
	CLAIM(!transport->why_no_puts || !transport->puts);
	while (fuzz_input.at < fuzz_input.end && transport->puts)
		await_units(transport);
	batoni_nccl_puts_end((struct batoni_nccl *)(void *)transport);
	batoni_nccl_puts_drop_marks((struct batoni_nccl *)(void *)transport);
}

static void
seed(uint8_t kind, const uint8_t *rest, size_t n)
{
	unsigned char bytes[200] = {kind};

	memcpy(bytes + 1, rest, n);
	fuzz_seed(bytes, n + 1);
}

/* Zeros: the others say what this rank does, and all goes well. */
void
seeds(void)
{
	static const uint8_t kinds[] = {0, 1, 2, 4, 16, 17, 18, 20, 24, 49};
	uint8_t rest[150];

	for (size_t i = 0; i < sizeof(kinds); i++) {
		memset(rest, 0, sizeof(rest));
		seed(kinds[i], rest, 0);
		/* A card of another host: puts are wanted. */
		memcpy(rest, (uint8_t[]){0, 1, 192 + 16, 0, 1}, 5);
		seed(kinds[i], rest, 30);
		memcpy(rest + 60, (uint8_t[]){0, 0, 1, 1, 0, 3, 2, 33, 255}, 9);
		memcpy(rest + 69, (uint8_t[]){0, 31, 1, 0, 63, 255}, 6);
		seed(kinds[i], rest, 150);
		/* A status that there is, and others. */
		for (int status = -30; status < 8; status += 3) {
			memset(rest, 0, sizeof(rest));
			memcpy(rest, (uint8_t[]){0, 3, (uint8_t)status}, 3);
			seed(kinds[i], rest, 12);
			memcpy(rest, (uint8_t[]){0, 0, 0, 0, 3, (uint8_t)status},
			       6);
			seed(kinds[i], rest, 12);
		}
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct batoni_transport *transport = NULL;
	enum baton_status status = BATON_PENDING;
	struct batoni_native *native;

	if (n < 1)
		return 0;
	begin(bytes, n);
	native = create(bytes[0]);
	for (int i = 0; i < STEPS_MOST && status == BATON_PENDING; i++) {
		status = batoni_native_ops.step(native, &world.lower, &transport);
		CLAIM(!world.in_driver && !world.entered);
	}
	CLAIM(status == BATON_OK || status == BATON_PENDING ||
	      status == batoni_error_told(status));
	CLAIM((transport != NULL) == (status == BATON_OK));
	CLAIM(status >= BATON_OK || baton_last_error()[0] != '\0');
	if (transport)
		use(transport);
	batoni_native_ops.discard(native);
	return 0;
}
