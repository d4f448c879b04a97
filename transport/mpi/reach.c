/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI transport: buffers in memory of a device that MPI reaches by itself.
 *
 * Whether it does, MPI says by an extension that the device's table names (for CUDA that of Open
 * MPI and MPICH), and which is looked up at run time; BATON_MPI_CUDA in the environment may say otherwise.  All ranks
 * agree on it at creation (opening.c), since staging has a protocol of its own.
 *
 * The protocol is that of host memory.  Sends give the program's pointer to MPI, and so do
 * the bodies of receives; behind a body the device is flushed, since a network card may have
 * written past the caches of the device.  Only a first part comes in a bounce buffer, as
 * always, and from there the device copies it.  The receive ends when a test finds the copy
 * ended, and has its bounce buffer until then; bounce buffers are pinned here.  Of a list of tensors
 * the first part has no payload (lists.c), and what is flushed is each device that has tensors of it.
 *
 * MPI is called with the device entered: it may read the thread's current context, which
 * the engine's thread has not got otherwise.
 *
 * Threads: the driver alone, and creations with the driver lock (batoni_mpi_reach).  No locks.
 */
#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "copies.h"
#include "log.h"
#include "mem.h"
#include "mpi_transport.h"

/* ---- does MPI reach it? --------------------------------------------------- */

static_assert(sizeof(int (*)(void)) == sizeof(void *),
              "dlsym returns functions as void *");

/* The library of MPI need not be among those whose symbols the process shares: then it is
 * found by one of its functions. */
static void *
find_query(const char *name)
{
	int (*function)(int *) = MPI_Initialized;
	void *query = dlsym(RTLD_DEFAULT, name), *library, *address;
	Dl_info info;

	memcpy(&address, &function, sizeof(address));
	if (query || dladdr(address, &info) == 0 || !info.dli_fname)
		return query;
	library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		return NULL;
	query = dlsym(library, name);
	dlclose(library); /* that was one more reference */
	return query;
}

/* 1: yes; 0: no; -1: it cannot be asked. */
static int
ask_mpi(const struct batoni_library_ops *library)
{
	void *found = library->mpi_query ? find_query(library->mpi_query)
	                                 : NULL;
	int (*query)(void);

	if (!found)
		return -1;
	memcpy(&query, &found, sizeof(query));
	return query() == 1;
}

static void
warn_of_force(const struct batoni_library_ops *library)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;

	if (ask_mpi(library) == 0 && !atomic_flag_test_and_set(&warned))
		batoni_log(BATONI_LOG_WARN,
		           "BATON_MPI_CUDA is direct, and MPI says that it is not "
		           "CUDA-aware: if that is so, it fails or crashes with "
		           "device memory");
}

enum batoni_reach
batoni_mpi_reach(const struct batoni_device_ops *device)
{
	const struct batoni_library_ops *library = device->memory->library;

	if (device->memory->host_only)
		return BATONI_REACH_ALL;
	if (!library)
		return BATONI_REACH_STAGES;
	switch (batoni_config()->mpi_cuda) {
	case BATONI_MPI_CUDA_STAGED:
		return BATONI_REACH_STAGES;
	case BATONI_MPI_CUDA_DIRECT:
		warn_of_force(library);
		return BATONI_REACH_FORCED;
	case BATONI_MPI_CUDA_AUTO:
		break;
	}
	return ask_mpi(library) == 1 ? BATONI_REACH_ALL : BATONI_REACH_STAGES;
}

/* ---- memory ---------------------------------------------------------------- */

static const struct batoni_memory_ops *
memory_of(const struct batoni_mpi *mpi)
{
	return mpi->device->ops->memory;
}

enum baton_status
batoni_mpi_reach_alloc(struct batoni_mpi *mpi, uint64_t until_ns)
{
	size_t bytes = ((size_t)mpi->base.slots + 1) * BATONI_MPI_RAW_MAX;
	void *block;
	enum baton_status status;

	mpi->copies = batoni_alloc(mpi->base.slots, sizeof(*mpi->copies));
	if (!mpi->copies)
		return BATON_ERR_NOMEM;
	status = memory_of(mpi)->pinned_alloc(mpi->device, bytes, until_ns,
	                                      &block);
	if (status == BATON_OK)
		mpi->bounces = block;
	return status;
}

void
batoni_mpi_reach_free(struct batoni_mpi *mpi)
{
	if (mpi->bounces)
		memory_of(mpi)->pinned_free(mpi->device, mpi->bounces);
}

/* The device has failed this transfer, and with it the communicator: the peer takes the
 * message for received. */
static enum baton_status
device_failed(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
              enum baton_status status)
{
	struct batoni_fault fault;

	memory_of(mpi)->why(mpi->device, &fault);
	transfer->native_call = fault.call;
	transfer->native_code = fault.code;
	if (mpi->failed_call)
		return status;
	mpi->failed_status = status;
	mpi->failed_call = fault.call;
	mpi->failed_code = fault.code;
	snprintf(mpi->failed_text, sizeof(mpi->failed_text), "%s", fault.text);
	return status;
}

/* ---- what has been received -------------------------------------------------- */

static enum baton_status
start_copy(struct batoni_mpi *mpi, struct batoni_mpi_copy *copy)
{
	enum baton_status status = memory_of(mpi)->copy_start(
		mpi->device, copy->transfer->buffer,
		batoni_mpi_bounce(mpi, copy->bounce), copy->transfer->done_bytes,
		batoni_location_owner(copy->transfer->location), &copy->ticket);

	copy->started = status == BATON_OK;
	return status;
}

enum baton_status
batoni_mpi_copy_in(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                   const void *bounce)
{
	struct batoni_mpi_copy *copy = &mpi->copies[transfer->slot];
	size_t at = (size_t)((const unsigned char *)bounce - mpi->bounces);

	if (batoni_location_is_host(transfer->location)) {
		memcpy(transfer->buffer, bounce, transfer->done_bytes);
		return BATON_OK;
	}
	assert(!copy->transfer);
	copy->transfer = transfer;
	copy->bounce = (uint32_t)(at / BATONI_MPI_RAW_MAX);
	batoni_list_append(&mpi->copying, &copy->link);
	mpi->base.messages.load.moving++;
	/* If the copy does not start, the next test tries again, and gets the reason. */
	start_copy(mpi, copy);
	return BATON_PENDING;
}

/* PENDING, or how the copy has ended. */
static enum baton_status
ask_copy(struct batoni_mpi *mpi, struct batoni_mpi_copy *copy)
{
	enum baton_status status;

	if (copy->started)
		return memory_of(mpi)->copy_test(mpi->device, &copy->ticket);
	status = start_copy(mpi, copy);
	return status == BATON_OK || status == BATON_ERR_AGAIN ? BATON_PENDING
	                                                       : status;
}

static void
end_copy(struct batoni_mpi *mpi, struct batoni_mpi_copy *copy,
         enum baton_status status)
{
	struct batoni_transfer *transfer = copy->transfer;

	batoni_list_remove(&copy->link);
	copy->transfer = NULL;
	batoni_mpi_bounce_return(mpi, copy->bounce);
	mpi->base.messages.load.moving--;
	mpi->base.messages.load.in_flight--;
	if (status != BATON_OK)
		device_failed(mpi, transfer, status);
	mpi->base.upcalls->done(mpi->base.upcalls, transfer, status);
}

static size_t
test_copies(struct batoni_mpi *mpi)
{
	struct batoni_list_node *next;
	size_t events = 0;

	for (struct batoni_list_node *at = mpi->copying.next;
	     at != &mpi->copying; at = next) {
		struct batoni_mpi_copy *copy = batoni_container_of(
			at, struct batoni_mpi_copy, link);
		enum baton_status status = ask_copy(mpi, copy);

		next = at->next;
		if (status == BATON_PENDING)
			continue;
		end_copy(mpi, copy, status);
		events++;
	}
	return events;
}

bool
batoni_mpi_end_copies(struct batoni_mpi *mpi)
{
	while (!batoni_list_empty(&mpi->copying)) {
		struct batoni_mpi_copy *copy = batoni_container_of(
			mpi->copying.next, struct batoni_mpi_copy, link);

		if (copy->started && !batoni_copy_await(mpi->device, &copy->ticket,
		                                        mpi->base.patience))
			return false;
		batoni_list_remove(&copy->link);
	}
	return true;
}

static enum baton_status
flush(struct batoni_mpi *mpi, unsigned location)
{
	return batoni_location_is_host(location)
	               ? BATON_OK
	               : memory_of(mpi)->library->flush(
				 mpi->device, batoni_location_owner(location));
}

/* A device that has several of the tensors is flushed once for those behind each other. */
static enum baton_status
flush_list(struct batoni_mpi *mpi, const struct batoni_tensor_list *list)
{
	unsigned flushed = BATONI_MEMORY_HOST;
	enum baton_status status = BATON_OK;

	for (size_t i = 0; i < list->count && status == BATON_OK; i++) {
		unsigned location = batoni_tensor_list_memory(list, i);

		if (list->segments[i].bytes == 0 || location == flushed)
			continue;
		status = flush(mpi, location);
		flushed = location;
	}
	return status;
}

enum baton_status
batoni_mpi_flush(struct batoni_mpi *mpi, struct batoni_transfer *transfer)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	enum baton_status status = list ? flush_list(mpi, list)
	                                : flush(mpi, transfer->location);

	return status == BATON_OK ? BATON_OK
	                          : device_failed(mpi, transfer, status);
}

/* ---- the slots ---------------------------------------------------------------- */

/* A device that cannot be entered is sick; the engine finds that out by itself. */
struct entered {
	struct batoni_device *device; /* NULL: there is nothing to exit */
	struct batoni_memory_guard guard;
};

static struct entered
enter_device(const struct batoni_mpi *mpi)
{
	struct entered entered = {.device = mpi->device};

	if (memory_of(mpi)->library->enter(mpi->device, &entered.guard) !=
	    BATON_OK)
		entered.device = NULL;
	return entered;
}

static void
exit_device(const struct entered *entered)
{
	if (entered->device)
		entered->device->ops->memory->library->exit(entered->device,
		                                            &entered->guard);
}

static enum baton_status
reach_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	const struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));
	const struct batoni_path_ops *ops =
		mpi->check ? &batoni_mpi_checked_ops : &batoni_mpi_messages_ops;
	const struct entered entered = enter_device(mpi);
	enum baton_status status = ops->host_issued->issue(path, transfer);

	exit_device(&entered);
	return status;
}

static size_t
reach_test(struct batoni_path *path)
{
	struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));
	const struct entered entered = enter_device(mpi);
	size_t events = test_copies(mpi);

	batoni_mpi_tell_failure(mpi);
	if (mpi->count > 0 || mpi->waiting > 0)
		events += batoni_mpi_messages_ops.test(path);
	exit_device(&entered);
	return events;
}

static enum baton_status
reach_take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));
	const struct entered entered = enter_device(mpi);
	enum baton_status status =
		batoni_mpi_is_copying(mpi, transfer)
			? BATON_ERR_BUSY
			: batoni_mpi_messages_ops.host_issued->take_back(path, transfer);

	exit_device(&entered);
	return status;
}

static int
reach_find(struct batoni_path *path, int peer, int *tag_p)
{
	const struct entered entered = enter_device(batoni_mpi_of(batoni_transport_of(path)));
	int rank = batoni_mpi_unmatched.find(path, peer, tag_p);

	exit_device(&entered);
	return rank;
}

static void
reach_expect(struct batoni_path *path, int change)
{
	batoni_mpi_unmatched.expect(path, change);
}

static enum baton_status
reach_hold(struct batoni_path *path, struct batoni_transfer *receive,
           struct batoni_held *held_p)
{
	const struct entered entered = enter_device(batoni_mpi_of(batoni_transport_of(path)));
	enum baton_status status = batoni_mpi_hold(path, receive, held_p);

	exit_device(&entered);
	return status;
}

static enum baton_status
reach_meet(struct batoni_path *path, struct batoni_transfer *receive,
           struct batoni_transfer *held)
{
	const struct entered entered = enter_device(batoni_mpi_of(batoni_transport_of(path)));
	enum baton_status status = batoni_mpi_meet(path, receive, held);

	exit_device(&entered);
	return status;
}

const struct batoni_path_ops batoni_mpi_reaching_ops = {
	.name = "the mpi transport",
	.kinds = BATONI_MESSAGES,
	.lists = true,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = reach_issue,
		.take_back = reach_take_back,
	},
	.unmatched = &(const struct batoni_unmatched_ops){
		.expect = reach_expect,
		.find = reach_find,
		.hold = reach_hold,
		.meet = reach_meet,
	},
	.test = reach_test,
};

/* MPI may continue messages that are under way in each of its calls. */
static enum baton_status
reach_exchange(struct batoni_transport *transport, uint64_t what,
               const void *mine, size_t bytes, void *all)
{
	const struct entered entered = enter_device(batoni_mpi_of(transport));
	enum baton_status status =
		batoni_mpi_exchange(transport, what, mine, bytes, all);

	exit_device(&entered);
	return status;
}

static enum baton_status
reach_leave(struct batoni_transport *transport)
{
	const struct entered entered = enter_device(batoni_mpi_of(transport));
	enum baton_status status = batoni_mpi_leave(transport);

	exit_device(&entered);
	return status;
}

static enum baton_status
reach_clear(struct batoni_transport *transport)
{
	const struct entered entered = enter_device(batoni_mpi_of(transport));
	enum baton_status status = batoni_mpi_clear(transport);

	exit_device(&entered);
	return status;
}

static void
reach_close(struct batoni_transport *transport, bool aborted)
{
	const struct entered entered = enter_device(batoni_mpi_of(transport));

	batoni_mpi_close(transport, aborted);
	exit_device(&entered);
}

const struct batoni_transport_ops batoni_mpi_reaching_transport_ops = {
	.name = "mpi",
	.id = BATON_TRANSPORT_MPI,
	.exchanging = &(const struct batoni_exchanging_ops){.exchange = reach_exchange},
	.leave = reach_leave,
	.clearing = &(const struct batoni_clearing_ops){.clear = reach_clear},
	.close = reach_close,
	.texts = &batoni_mpi_texts,
	.deriving = &batoni_mpi_deriving,
};
