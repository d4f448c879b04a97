/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes on the simulated devices of one host: memory that both have.
 *
 * The test's process is one, a child that it makes before cuInit the other.  They take turns by
 * a socket.  A check of the child's that fails prints a line and ends the child; the test then
 * sees the socket's end, and the exit status.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

enum { UNIT = 2 << 20, PART = 4096 };

typedef CUmemGenericAllocationHandle handle;

/* ---- the other process ---- */

static int other = -1; /* the socket to the other process, in both */
static pid_t child;

#define CHECK(condition)                                                      \
	do {                                                                  \
		if (!(condition)) {                                           \
			fprintf(stderr, "child: %s:%d: %s\n", __FILE__,       \
			        __LINE__, #condition);                        \
			_exit(1);                                             \
		}                                                             \
	} while (0)
#define SUCCEED(call) CHECK((call) == BATONI_CU_SUCCESS)

static void
child_begin(const char *devices)
{
	void *words;

	if (devices)
		CHECK(w.sim->sim_set("devices", *devices - '0'));
	SUCCEED(w.sim->init(0));
	SUCCEED(w.sim->primary_retain(&w.context, 0));
	SUCCEED(w.sim->context_push(w.context));
	SUCCEED(w.sim->host_alloc(&words, PART, BATONI_CU_HOST_ALLOC_MAPPED));
	w.words = words;
}

static void
child_end(int violations)
{
	w.sim->sim_settle(false);
	CHECK(w.sim->sim_violations() == violations);
	_exit(0);
}

/* The child runs the function, which ends it; the test goes on. */
static void
with_child(void (*main)(void))
{
	int sockets[2];

	world_load();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
	                            sockets), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	other = sockets[child == 0];
	close(sockets[child != 0]);
	if (child == 0)
		main();
	world_begin();
}

static void
await_child(void)
{
	int status = -1;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	              "the child ended with %#x", (unsigned)status);
	world_end();
}

/* With a descriptor, if it is not -1.  false: the other one is gone. */
static bool
tell(const void *from, size_t bytes, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
	                        .cmsg_level = SOL_SOCKET,
	                        .cmsg_type = SCM_RIGHTS}};
	char content[128] = {0};
	struct iovec part = {content, bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	memcpy(content, from, bytes);
	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.bytes);
	}
	return sendmsg(other, &message, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool
hear(void *to, size_t bytes, int *fd_p)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {to, bytes};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};

	if (recvmsg(other, &message, MSG_CMSG_CLOEXEC) != (ssize_t)bytes)
		return false;
	if (fd_p && !CMSG_FIRSTHDR(&message))
		return false;
	if (fd_p)
		memcpy(fd_p, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(*fd_p));
	return true;
}

/* It is the other one's turn; it is this one's. */
static bool
go_on(void)
{
	return tell("", 1, -1);
}

static bool
take_turn(void)
{
	char byte;

	return hear(&byte, 1, NULL);
}

/* ---- allocations ---- */

static CUresult
create(CUdevice device, handle *handle_p)
{
	const CUmemAllocationProp on = {
		.type = BATONI_CU_ALLOCATION_PINNED,
		.requestedHandleTypes = BATONI_CU_HANDLE_FD,
		.location = {BATONI_CU_LOCATION_DEVICE, device},
	};

	return w.sim->vm_create(handle_p, UNIT, &on, 0);
}

static CUresult
import(int fd, handle *handle_p)
{
	return w.sim->vm_import(handle_p, (void *)(intptr_t)fd,
	                        BATONI_CU_HANDLE_FD);
}

static CUresult
map(handle made, CUdeviceptr *pointer_p)
{
	const CUmemAccessDesc access = {{BATONI_CU_LOCATION_DEVICE, 0},
	                                BATONI_CU_ACCESS_READ_WRITE};
	CUresult result = w.sim->vm_reserve(pointer_p, UNIT, 0, 0, 0);

	if (result == BATONI_CU_SUCCESS)
		result = w.sim->vm_map(*pointer_p, UNIT, 0, made, 0);
	if (result == BATONI_CU_SUCCESS)
		result = w.sim->vm_access(*pointer_p, UNIT, &access, 1);
	return result;
}

/* The words, by a stream, to device memory or from it. */
static CUresult
copy_words(CUdeviceptr to, CUdeviceptr from)
{
	CUstream stream;
	CUresult result = w.sim->stream_create(
		&stream, BATONI_CU_STREAM_NON_BLOCKING, 0);

	if (result == BATONI_CU_SUCCESS)
		result = w.sim->copy(to, from, 64, stream);
	if (result == BATONI_CU_SUCCESS)
		result = w.sim->stream_synchronize(stream);
	return w.sim->stream_destroy(stream) != BATONI_CU_SUCCESS
	               ? BATONI_CU_NOT_READY
	               : result;
}

static void
imports_and_writes(void)
{
	CUdeviceptr pointer;
	handle made;
	char byte;
	int fd;

	child_begin(NULL);
	CHECK(hear(&byte, 1, &fd));
	SUCCEED(import(fd, &made));
	close(fd);
	SUCCEED(map(made, &pointer));
	SUCCEED(w.sim->vm_release(made));
	world_store(0, 42);
	SUCCEED(copy_words(pointer + 64, (uintptr_t)w.words));
	CHECK(go_on());
	/* The other process has unmapped it meanwhile, and released it. */
	CHECK(take_turn());
	world_store(0, 0);
	SUCCEED(copy_words((uintptr_t)w.words, pointer + 64));
	CHECK(world_load_word(0) == 43);
	SUCCEED(w.sim->vm_unmap(pointer, UNIT));
	SUCCEED(w.sim->vm_unreserve(pointer, UNIT));
	CHECK(w.sim->sim_live("allocations") == 0);
	child_end(0);
}

START_TEST(two_processes_map_one_allocation)
{
	CUdeviceptr pointer;
	handle made;
	int fd = -1;

	with_child(imports_and_writes);
	ck_success(create(0, &made));
	ck_success(w.sim->vm_export(&fd, made, BATONI_CU_HANDLE_FD, 0));
	ck_success(map(made, &pointer));
	ck_assert(tell("", 1, fd));
	close(fd);
	ck_assert(take_turn());
	ck_success(copy_words(world_address(0), pointer + 64));
	ck_assert_uint_eq(world_load_word(0), 42);
	world_store(0, 43);
	ck_success(copy_words(pointer + 64, world_address(0)));
	ck_success(w.sim->vm_unmap(pointer, UNIT));
	ck_success(w.sim->vm_release(made));
	ck_assert_int_eq(w.sim->sim_live("allocations"), 0);
	ck_assert(go_on());
	await_child();
}
END_TEST

struct exported {
	int pid, fd;
};

static void
exports(void)
{
	struct exported exported = {(int)getpid(), -1};
	unsigned char byte = 9;
	CUdeviceptr pointer;
	handle made;

	child_begin(NULL);
	SUCCEED(create(1, &made));
	SUCCEED(map(made, &pointer));
	w.sim->sim_poke(pointer, &byte, 1);
	SUCCEED(w.sim->vm_export(&exported.fd, made, BATONI_CU_HANDLE_FD, 0));
	CHECK(tell(&exported, sizeof(exported), -1));
	CHECK(take_turn());
	child_end(0);
}

static int
fetch_descriptor(const struct exported *from)
{
	int process = (int)syscall(SYS_pidfd_open, from->pid, 0), fd;

	if (process < 0)
		return -1;
	fd = (int)syscall(SYS_pidfd_getfd, process, from->fd, 0);
	close(process);
	return fd;
}

START_TEST(a_descriptor_is_fetched_and_not_opened_again)
{
	struct exported exported;
	unsigned char byte = 0;
	CUdeviceptr pointer;
	char path[64];
	handle made;
	int fd;

	with_child(exports);
	ck_assert(hear(&exported, sizeof(exported), NULL));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", exported.pid,
	         exported.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(import(fd, &made), BATONI_CU_INVALID_VALUE);
	close(fd);
	fd = fetch_descriptor(&exported);
	/* A sandbox may forbid it. */
	if (fd >= 0) {
		ck_success(import(fd, &made));
		close(fd);
		ck_success(map(made, &pointer));
		w.sim->sim_peek(&byte, pointer, 1);
		ck_assert_uint_eq(byte, 9);
	} else {
		printf("pidfd_getfd is not allowed here\n");
	}
	ck_assert(go_on());
	await_child();
}
END_TEST

static void
imports_what_it_has_no_device_for(void)
{
	handle made;
	char byte;
	int fd;

	child_begin("1");
	CHECK(hear(&byte, 1, &fd));
	CHECK(import(fd, &made) == BATONI_CU_NOT_SUPPORTED);
	child_end(0);
}

START_TEST(a_process_without_the_device_cannot_import)
{
	handle made;
	int fd = -1;

	with_child(imports_what_it_has_no_device_for);
	ck_success(create(1, &made));
	ck_success(w.sim->vm_export(&fd, made, BATONI_CU_HANDLE_FD, 0));
	ck_assert(tell("", 1, fd));
	await_child();
}
END_TEST

/* ---- host memory that both have ---- */

static int shared = -1; /* a memfd, of both */

/* *word_p: its first word for devices; *at_p: for the host. */
static CUresult
register_shared(_Atomic uint64_t **at_p, CUdeviceptr *word_p)
{
	void *at = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, shared,
	                0);
	CUresult result =
		w.sim->host_register(at, PART, BATONI_CU_HOST_REGISTER_PORTABLE |
	                                          BATONI_CU_HOST_REGISTER_MAPPED);

	*at_p = at;
	return result == BATONI_CU_SUCCESS
	               ? w.sim->host_device_pointer(word_p, at, 0)
	               : result;
}

static void
writes_a_shared_word(void)
{
	_Atomic uint64_t *words;
	CUdeviceptr word;
	CUstream stream;

	child_begin(NULL);
	SUCCEED(register_shared(&words, &word));
	SUCCEED(w.sim->stream_create(&stream, BATONI_CU_STREAM_NON_BLOCKING, 0));
	CHECK(take_turn());
	SUCCEED(w.sim->write_value(stream, word, 5, 0));
	/* The other one's stream waits for this. */
	SUCCEED(w.sim->write_value(stream, word + 8, 6, 0));
	SUCCEED(w.sim->stream_synchronize(stream));
	CHECK(take_turn());
	SUCCEED(w.sim->host_unregister(words));
	child_end(0);
}

START_TEST(a_word_that_a_stream_writes_is_seen_by_the_host_and_streams_of_the_other)
{
	_Atomic uint64_t *words;
	CUdeviceptr word;
	CUstream stream;

	shared = memfd_create("shared", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(shared, PART), 0);
	with_child(writes_a_shared_word);
	ck_assert(w.sim->sim_set("alias", 1));
	ck_success(register_shared(&words, &word));
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->wait_value(stream, word + 8, 6, BATONI_CU_WAIT_GEQ));
	w.sim->sim_settle(false);
	ck_assert_int_eq(w.sim->sim_queued(), 1);
	ck_assert_uint_eq(atomic_load(&words[0]), 0);
	ck_assert(go_on());
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(atomic_load(&words[0]), 5);
	ck_assert(go_on());
	ck_success(w.sim->host_unregister(words));
	await_child();
}
END_TEST

START_TEST(registrations_do_not_overlap)
{
	char *pages;

	world_begin();
	pages = mmap(NULL, 4 * (size_t)PART, PROT_READ | PROT_WRITE,
	             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_success(w.sim->host_register(pages + PART, PART, 0));
	/* Around it, in it, beside it in its page. */
	ck_assert_uint_eq(w.sim->host_register(pages, 4 * (size_t)PART, 0),
	                  BATONI_CU_ALREADY_REGISTERED);
	ck_assert_uint_eq(w.sim->host_register(pages + PART + 8, 8, 0),
	                  BATONI_CU_ALREADY_REGISTERED);
	ck_success(w.sim->host_register(pages + 2 * (size_t)PART, 8, 0));
	ck_assert_uint_eq(w.sim->host_register(pages + 2 * (size_t)PART + 64, 8,
	                                       0),
	                  BATONI_CU_ALREADY_REGISTERED);
	ck_success(w.sim->host_register(pages, PART, 0));
	ck_success(w.sim->host_unregister(pages));
	ck_assert_uint_eq(w.sim->host_unregister(pages),
	                  BATONI_CU_NOT_REGISTERED);
	w.violations = 1;
	/* Memory that has gone before its registration. */
	munmap(pages + PART, PART);
	ck_success(w.sim->host_unregister(pages + PART));
	w.violations = 2;
	world_end();
}
END_TEST

/* ---- IPC ---- */

static void
opens_and_writes(void)
{
	CUdeviceptr pointer, again;
	CUipcMemHandle name, none;

	child_begin(NULL);
	CHECK(hear(&name, sizeof(name), NULL));
	CHECK(w.sim->ipc_open(&pointer, name, 0) == BATONI_CU_INVALID_VALUE);
	memset(&none, 0, sizeof(none));
	CHECK(w.sim->ipc_open(&pointer, none, BATONI_CU_IPC_ENABLE_PEERS) ==
	      BATONI_CU_INVALID_VALUE);
	SUCCEED(w.sim->ipc_open(&pointer, name, BATONI_CU_IPC_ENABLE_PEERS));
	SUCCEED(w.sim->ipc_open(&again, name, BATONI_CU_IPC_ENABLE_PEERS));
	CHECK(again == pointer);
	CHECK(w.sim->sim_set("ipc_again", 0));
	CHECK(w.sim->ipc_open(&again, name, BATONI_CU_IPC_ENABLE_PEERS) ==
	      CUDASIM_ALREADY_MAPPED);
	/* It is no allocation of this process. */
	CHECK(w.sim->ipc_handle(&none, pointer) == BATONI_CU_INVALID_VALUE);
	CHECK(w.sim->mem_free(pointer) == BATONI_CU_INVALID_VALUE);
	world_store(0, 42);
	SUCCEED(copy_words(pointer, (uintptr_t)w.words));
	CHECK(copy_words(pointer + 64, (uintptr_t)w.words) ==
	      BATONI_CU_INVALID_VALUE);
	SUCCEED(w.sim->ipc_close(pointer));
	SUCCEED(copy_words((uintptr_t)w.words, pointer));
	SUCCEED(w.sim->ipc_close(pointer));
	CHECK(copy_words((uintptr_t)w.words, pointer) ==
	      BATONI_CU_INVALID_VALUE);
	CHECK(w.sim->ipc_close(pointer) == BATONI_CU_INVALID_VALUE);
	CHECK(go_on());
	CHECK(take_turn());
	/* It has been freed. */
	CHECK(w.sim->ipc_open(&pointer, name, BATONI_CU_IPC_ENABLE_PEERS) ==
	      BATONI_CU_INVALID_VALUE);
	child_end(2);
}

START_TEST(memory_is_opened_by_another_process)
{
	CUdeviceptr pointer, mine;
	CUipcMemHandle name;
	handle made;
	void *pinned;

	with_child(opens_and_writes);
	ck_success(w.sim->mem_alloc(&pointer, 100));
	ck_success(w.sim->ipc_handle(&name, pointer));
	/* CUDA refuses what would be the memory's second address here. */
	ck_assert_uint_eq(w.sim->ipc_open(&mine, name,
	                                  BATONI_CU_IPC_ENABLE_PEERS),
	                  BATONI_CU_INVALID_CONTEXT);
	ck_assert(tell(&name, sizeof(name), -1));
	ck_assert(take_turn());
	ck_success(copy_words(world_address(0), pointer));
	ck_assert_uint_eq(world_load_word(0), 42);
	ck_success(w.sim->mem_free(pointer));
	/* Its file has the descriptor that was the other one's. */
	ck_success(w.sim->mem_alloc(&pointer, 100));
	ck_assert(go_on());
	await_child();
	/* What has no handle. */
	ck_assert_uint_eq(w.sim->ipc_handle(&name, pointer + 8),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->host_alloc(&pinned, 64, 0));
	ck_assert_uint_eq(w.sim->ipc_handle(&name, (uintptr_t)pinned),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(create(0, &made));
	ck_success(map(made, &mine));
	ck_assert_uint_eq(w.sim->ipc_handle(&name, mine),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert(w.sim->sim_set("ipc", 0));
	ck_assert_uint_eq(w.sim->ipc_handle(&name, pointer),
	                  BATONI_CU_NOT_SUPPORTED);
	world_end();
}
END_TEST

static void
opens_and_stays(void)
{
	CUdeviceptr pointer;
	CUipcMemHandle name;

	child_begin(NULL);
	CHECK(hear(&name, sizeof(name), NULL));
	SUCCEED(w.sim->ipc_open(&pointer, name, BATONI_CU_IPC_ENABLE_PEERS));
	CHECK(go_on());
	CHECK(take_turn());
	SUCCEED(copy_words((uintptr_t)w.words, pointer));
	child_end(0);
}

START_TEST(memory_freed_while_another_process_has_it_is_a_violation)
{
	CUdeviceptr pointer, second;
	CUipcMemHandle name;

	with_child(opens_and_stays);
	ck_success(w.sim->mem_alloc(&pointer, 100));
	ck_success(w.sim->mem_alloc(&second, 100));
	ck_success(w.sim->ipc_handle(&name, pointer));
	ck_assert(tell(&name, sizeof(name), -1));
	ck_assert(take_turn());
	ck_success(w.sim->mem_free(second));
	ck_success(w.sim->mem_free(pointer));
	w.violations = 1;
	ck_assert(go_on());
	await_child();
}
END_TEST

/* A process that ends has closed what it had. */
static void
opens_and_ends(void)
{
	CUdeviceptr pointer;
	CUipcMemHandle name;

	child_begin(NULL);
	CHECK(hear(&name, sizeof(name), NULL));
	SUCCEED(w.sim->ipc_open(&pointer, name, BATONI_CU_IPC_ENABLE_PEERS));
	child_end(0);
}

START_TEST(memory_of_a_process_that_has_ended_is_free_to_go)
{
	CUdeviceptr pointer;
	CUipcMemHandle name;

	with_child(opens_and_ends);
	ck_success(w.sim->mem_alloc(&pointer, 100));
	ck_success(w.sim->ipc_handle(&name, pointer));
	ck_assert(tell(&name, sizeof(name), -1));
	await_child();
	ck_success(w.sim->mem_free(pointer));
	world_end();
}
END_TEST

static void
opens_from_its_devices(void)
{
	CUcontext extra, second;
	CUdeviceptr pointer;
	CUipcMemHandle name;

	child_begin(NULL);
	CHECK(hear(&name, sizeof(name), NULL));
	SUCCEED(w.sim->primary_retain(&second, 1));
	SUCCEED(w.sim->context_push(second));
	CHECK(w.sim->sim_peers(1, 0, false));
	CHECK(w.sim->ipc_open(&pointer, name, BATONI_CU_IPC_ENABLE_PEERS) ==
	      CUDASIM_MAP_FAILED);
	CHECK(w.sim->sim_peers(1, 0, true));
	CHECK(w.sim->sim_fail("cuIpcOpenMemHandle", 1, 2, false));
	CHECK(w.sim->ipc_open(&pointer, name, BATONI_CU_IPC_ENABLE_PEERS) ==
	      BATONI_CU_OUT_OF_MEMORY);
	SUCCEED(w.sim->ipc_open(&pointer, name, BATONI_CU_IPC_ENABLE_PEERS));
	SUCCEED(w.sim->set_bytes(pointer, 1, 64, NULL));
	SUCCEED(w.sim->context_synchronize());
	/* Another context of the device may not. */
	SUCCEED(w.sim->context_create(&extra, 0, 1));
	CHECK(w.sim->ipc_open(&pointer, name, BATONI_CU_IPC_ENABLE_PEERS) ==
	      BATONI_CU_INVALID_CONTEXT);
	CHECK(w.sim->ipc_close(pointer) == BATONI_CU_INVALID_CONTEXT);
	SUCCEED(w.sim->context_pop(&extra));
	SUCCEED(w.sim->ipc_close(pointer));
	CHECK(go_on());
	child_end(0);
}

START_TEST(a_device_that_cannot_reach_the_memory_does_not_open_it)
{
	CUdeviceptr pointer;
	CUipcMemHandle name;
	unsigned char byte = 0;

	with_child(opens_from_its_devices);
	ck_success(w.sim->mem_alloc(&pointer, 100));
	ck_success(w.sim->ipc_handle(&name, pointer));
	ck_assert(tell(&name, sizeof(name), -1));
	ck_assert(take_turn());
	w.sim->sim_peek(&byte, pointer, 1);
	ck_assert_uint_eq(byte, 1);
	await_child();
}
END_TEST

/* ---- what cannot be shared ---- */

START_TEST(memory_of_a_pool_is_not_exported)
{
	CUpointer_attribute which[] = {BATONI_CU_POINTER_IS_IPC_CAPABLE,
	                               BATONI_CU_POINTER_HANDLE_TYPES,
	                               BATONI_CU_POINTER_POOL};
	CUdeviceptr pointer;
	CUipcMemHandle name;
	CUstream stream;
	int legacy = 7;
	uint64_t types = 7;
	void *pool = NULL;
	void *data[] = {&legacy, &types, &pool};
	handle made;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->pool_alloc(&pointer, 64, stream));
	ck_assert_int_eq(w.sim->sim_live("pool"), 1);
	ck_success(w.sim->pointer_attributes(3, which, data, pointer));
	ck_assert_int_eq(legacy, 0);
	ck_assert_uint_eq(types, 0);
	ck_assert_ptr_nonnull(pool);
	ck_assert_uint_eq(w.sim->ipc_handle(&name, pointer),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_retain(&made, (void *)(uintptr_t)pointer),
	                  BATONI_CU_INVALID_VALUE);
	world_store(1, 0);
	world_wait(stream, 0, 1);
	ck_success(w.sim->copy(world_address(1), pointer, 8, stream));
	ck_success(w.sim->pool_free(pointer, stream));
	ck_assert_int_eq(w.sim->sim_live("pool"), 0);
	ck_assert_uint_eq(w.sim->copy(world_address(1), pointer, 8, stream),
	                  BATONI_CU_INVALID_VALUE);
	world_store(0, 1);
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(world_load_word(1), UINT64_C(0xa5a5a5a5a5a5a5a5));
	ck_success(w.sim->pool_alloc(&pointer, 64, stream));
	ck_success(w.sim->mem_free(pointer));
	ck_assert_uint_eq(w.sim->pool_free(pointer, stream),
	                  BATONI_CU_INVALID_VALUE);
	w.violations = 1;
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		two_processes_map_one_allocation,
		a_descriptor_is_fetched_and_not_opened_again,
		a_process_without_the_device_cannot_import,
		a_word_that_a_stream_writes_is_seen_by_the_host_and_streams_of_the_other,
		registrations_do_not_overlap,
		memory_is_opened_by_another_process,
		memory_freed_while_another_process_has_it_is_a_violation,
		memory_of_a_process_that_has_ended_is_free_to_go,
		a_device_that_cannot_reach_the_memory_does_not_open_it,
		memory_of_a_pool_is_not_exported,
	};

	return RUN_TESTS("cudasim_share", tests);
}
