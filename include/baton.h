/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Baton: asynchronous, stream-ordered point-to-point with request objects.
 *
 * An operation is *enqueued* on a stream by a call that returns at once, is
 * *armed* when all earlier work of its stream is done, *issued* when the
 * progress engine hands it to the transport, and *completed* exactly once.
 * docs/semantics.md holds the guarantees; this file holds the contract of each
 * call.  Unless a comment says otherwise:
 *
 *   - a call may be made from any thread, at any time, also while others run;
 *     from a function launched on a stream it is refused (BATON_ERR_INVALID);
 *   - a call that returns an error has enqueued nothing and has written no
 *     output; baton_last_error() says in one sentence what was wrong;
 *   - times are nanoseconds, sizes are bytes, counts are elements.
 */
#ifndef BATON_H
#define BATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BATON_VERSION_MAJOR 0
#define BATON_VERSION_MINOR 1
#define BATON_VERSION_PATCH 0

#if defined(_WIN32)
#error "Baton is for Linux"
#elif defined(__GNUC__)
#define BATON_API __attribute__((visibility("default")))
#else
#define BATON_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ------------------------------------------------------------- */

/* X(name, number, text): the one list that the enum, the names and the texts
 * come from.  Negative numbers are errors. */
#define BATON_STATUS_MAP(X)                                                   \
	X(BATON_OK, 0, "success")                                             \
	X(BATON_PENDING, 1, "not finished yet")                               \
	X(BATON_ERR_INVALID, -1, "invalid argument")                          \
	X(BATON_ERR_UNSUPPORTED, -2, "not supported by this device or transport") \
	X(BATON_ERR_AGAIN, -3, "a bounded resource is full: make progress, retry") \
	X(BATON_ERR_NOMEM, -4, "out of memory")                               \
	X(BATON_ERR_STALE, -5, "request handle already released")             \
	X(BATON_ERR_BUSY, -6, "object still in use")                          \
	X(BATON_ERR_TRUNCATED, -10, "message longer than the receive buffer") \
	X(BATON_ERR_MISMATCH, -11, "the two sides describe different messages") \
	X(BATON_ERR_TIMEOUT, -12, "deadline passed")                          \
	X(BATON_ERR_CANCELED, -13, "canceled")                                \
	X(BATON_ERR_ABORTED, -14, "communicator aborted")                     \
	X(BATON_ERR_PEER, -15, "the peer process is gone")                    \
	X(BATON_ERR_CUDA, -20, "CUDA error")                                  \
	X(BATON_ERR_NCCL, -21, "NCCL error")                                  \
	X(BATON_ERR_MPI, -22, "MPI error")                                    \
	X(BATON_ERR_SYSTEM, -23, "operating system error")

enum baton_status {
#define BATON_STATUS_ENUM(name, number, text) name = number,
	BATON_STATUS_MAP(BATON_STATUS_ENUM)
#undef BATON_STATUS_ENUM
};

/* The enumerator's spelling, and one short text.  Never NULL; a number outside
 * the enum gives "unknown status".  Callable from anywhere. */
BATON_API const char *baton_status_name(enum baton_status status);
BATON_API const char *baton_status_text(enum baton_status status);

/* Why this thread's last refused call was refused: in one sentence, the argument, its
 * value and what is allowed.  "" before the first.  It lives until the next refusal. */
BATON_API const char *baton_last_error(void);

/* "0.1.0": the version of the library that is running. */
BATON_API const char *baton_version(void);

/* ---- types -------------------------------------------------------------- */

/* A stream: a cudaStream_t/CUstream as it is, or a host stream.  NULL is a stream too:
 * CUDA's legacy default stream, or the default host stream of the process.  Host streams
 * belong to the process: any communicator on the host device may use them. */
typedef struct CUstream_st *baton_stream;

/* A request handle: slot and generation, so that a handle kept too long is told
 * BATON_ERR_STALE instead of reading somebody else's operation. */
typedef uint64_t baton_request;
#define BATON_REQUEST_NULL ((baton_request)0)

struct baton_comm;   /* one rank's end of a communicator */
struct baton_queue;  /* a completion queue */
struct baton_window; /* memory of every rank that the others may put into */

enum baton_datatype {
	BATON_INT8,
	BATON_UINT8,
	BATON_INT16,
	BATON_UINT16,
	BATON_INT32,
	BATON_UINT32,
	BATON_INT64,
	BATON_UINT64,
	BATON_FLOAT16,
	BATON_BFLOAT16,
	BATON_FLOAT32,
	BATON_FLOAT64,
	BATON_FLOAT8E4M3,
	BATON_FLOAT8E5M2,
	BATON_BOOL,
	BATON_DATATYPE_COUNT /* not a type */
};

/* Bytes of one element; 0 for a value that is no datatype. */
BATON_API size_t baton_datatype_size(enum baton_datatype type);

/* Where buffers and streams live. */
enum baton_device {
	BATON_DEVICE_AUTO, /* the host, in this version */
	BATON_DEVICE_HOST,
	BATON_DEVICE_CUDA /* BATON_ERR_UNSUPPORTED in this version */
};

/* What moves the bytes. */
enum baton_transport {
	BATON_TRANSPORT_AUTO,  /* MPI under a launcher or when MPI is running,
	                          else local */
	BATON_TRANSPORT_LOCAL, /* ranks are threads of one process */
	BATON_TRANSPORT_MPI,
	BATON_TRANSPORT_NCCL /* BATON_ERR_UNSUPPORTED in this version */
};

/* Who makes progress while no thread of the program is inside Baton. */
enum baton_progress {
	/* The engine's own thread, wherever the transport allows it: always on
	 * the local transport; on MPI with MPI_THREAD_MULTIPLE. */
	BATON_PROGRESS_AUTO,
	/* As AUTO, and the program promises to make no MPI calls of its own
	 * while operations are pending, so that MPI_THREAD_SERIALIZED is enough
	 * for the engine's thread. */
	BATON_PROGRESS_THREAD,
	/* Nobody: only baton_test*, baton_wait*, baton_finish, baton_progress,
	 * baton_queue_poll and baton_stream_synchronize/_query do. */
	BATON_PROGRESS_CALLS
};

/* ---- communicators ------------------------------------------------------ */

#define BATON_REQUESTS_MAX_DEFAULT 4096u
#define BATON_REQUESTS_MAX_LIMIT (1u << 20)
#define BATON_SIGNALS_MAX_DEFAULT 16
#define BATON_SIGNALS_LIMIT 1024
#define BATON_CONTEXTS_MAX_DEFAULT 4
#define BATON_CONTEXTS_LIMIT 64

struct baton_comm_options {
	size_t size; /* of this struct; the initialiser sets it */
	enum baton_device device;
	enum baton_transport transport;
	/* Operations that may be outstanding at once, requests not yet released
	 * included: 1 to BATON_REQUESTS_MAX_LIMIT, 0 for the default. */
	uint32_t requests_max;
	/* Deadline of each operation that names none, counted from the moment
	 * it is armed, and the longest that baton_comm_destroy drains, and that
	 * the creation of a local communicator by id, and registering and
	 * deregistering windows, wait for the ranks.  0 or negative: none. */
	int64_t timeout_ns;
	enum baton_progress progress;
	/* Signal indices and contexts: 1 to BATON_SIGNALS_LIMIT and 1 to
	 * BATON_CONTEXTS_LIMIT, 0 for the default.  The same on all ranks.  Each
	 * pair of them is a counter for each rank, of 56 bytes in all. */
	int signals_max;
	int contexts_max;
	bool timestamps; /* fill the *_ns fields of completions */
};
/* clang-format off */
#define BATON_COMM_OPTIONS_INIT                                               \
	{ sizeof(struct baton_comm_options), BATON_DEVICE_AUTO,               \
	  BATON_TRANSPORT_AUTO, 0, 0, BATON_PROGRESS_AUTO, 0, 0, false }
/* clang-format on */

/*
 * Create this process's end of a communicator over all processes of the job.  options
 * may be NULL.  Under mpirun (or srun with PMI) the job is the MPI world, and MPI is
 * initialised with MPI_THREAD_MULTIPLE when the program has not done so; such an MPI
 * is finalised at exit, by the same process only and not after an abort.  Started
 * alone, the job is a world of one on the local transport.  Collective over the job;
 * blocks until all ranks have called.  Returns BATON_OK, INVALID (options; ranks that
 * disagree on them are all told), UNSUPPORTED (device or transport not there:
 * baton_last_error says what is missing and how to get it), NOMEM, AGAIN (4095
 * communicators are alive), MPI, SYSTEM.
 */
BATON_API enum baton_status
baton_comm_create(const struct baton_comm_options *options,
                  struct baton_comm **comm_p);

/*
 * Create all ranks of a local communicator at once: comms[0..size-1], one for each
 * rank, to be used from any threads of this process (usually one each). size is 1 to
 * 4095.  Every rank is destroyed on its own.  Not collective.  Returns BATON_OK,
 * INVALID, UNSUPPORTED (a transport other than AUTO or LOCAL, a device that is not
 * there), NOMEM, AGAIN, SYSTEM.
 */
BATON_API enum baton_status
baton_comm_create_local(int size, const struct baton_comm_options *options,
                        struct baton_comm *comms[]);

/* Names a communicator that is about to be created; plain bytes, to be carried
 * to the other ranks by any means. */
struct baton_unique_id {
	unsigned char bytes[128];
};

/* Make a fresh id.  Returns BATON_OK, INVALID, SYSTEM. */
BATON_API enum baton_status
baton_unique_id_create(struct baton_unique_id *id_p);

/*
 * Create rank `rank` of `size` of the communicator that *id names.  In this version
 * the ranks are threads of the process that made the id.  Each thread calls once with
 * its own rank; blocks until all have called, for at most the options' timeout_ns.
 * An id serves one communicator.  Returns BATON_OK, INVALID (arguments; a rank taken
 * twice; ranks that disagree on the size or the options), UNSUPPORTED (an id of
 * another process, a transport other than AUTO or LOCAL), TIMEOUT (a rank did not
 * come: all that waited are told, and the id is spent), NOMEM, AGAIN, SYSTEM.
 */
BATON_API enum baton_status
baton_comm_create_id(int size, int rank, const struct baton_unique_id *id,
                     const struct baton_comm_options *options,
                     struct baton_comm **comm_p);

/*
 * Collective over the communicator's ranks; local after an abort, and on the local
 * transport, where a rank leaves alone.  BUSY, before any communication, while
 * queues, windows or baton_mem_alloc memory of it are alive.  Otherwise waits until
 * this rank's operations have ended, no stream has items of it any more (launched
 * functions, joins, and what stands behind other communicators' work), and all ranks
 * have called (not after an abort); for at most the options' timeout_ns; TIMEOUT
 * leaves the communicator there and may be followed by another destroy, or by an
 * abort and a destroy.  After BATON_OK the communicator is gone and handles of its
 * requests are STALE.  Nothing else may run on the communicator beside destroy.  NULL
 * is BATON_OK.  Returns BATON_OK, INVALID, BUSY, TIMEOUT.
 */
BATON_API enum baton_status baton_comm_destroy(struct baton_comm *comm);

/*
 * Local: every pending operation of this rank ends in ABORTED, every stream goes on
 * as far as it waits for this communicator (launched functions still run; a
 * baton_stream_wait for a request of another communicator still waits), and later
 * operations are refused with ABORTED.  Peers are not told: their operations end by
 * their own deadlines.  Returns when that is done.  Returns BATON_OK (also when it
 * was aborted before), INVALID.
 */
BATON_API enum baton_status baton_comm_abort(struct baton_comm *comm);

/* BATON_OK, or what broke the communicator: ABORTED, TIMEOUT and PEER (of registering
 * and deregistering), or a fatal error of its transport.  INVALID for NULL. */
BATON_API enum baton_status baton_comm_status(const struct baton_comm *comm);

/* What broke it: native call, code and text; "" while it is sound.  Lives as
 * long as the communicator. */
BATON_API const char *baton_comm_error(const struct baton_comm *comm);

/* Write one line for each pending operation to the descriptor: kind, peer, tag or
 * index, bytes, stream, state, age, what it waits for.  From any thread, also while
 * another drives, or hangs in MPI: the lines then say that they may be out of date.
 * The environment's BATON_DUMP_ON=SIGUSR2 has that signal do it, to standard error.
 * Returns BATON_OK, INVALID, NOMEM, SYSTEM. */
BATON_API enum baton_status baton_comm_dump(struct baton_comm *comm, int fd);

/* -1 for NULL.  Callable from anywhere. */
BATON_API int baton_comm_rank(const struct baton_comm *comm);
BATON_API int baton_comm_size(const struct baton_comm *comm);

/* Capability bits: what the pair of device and transport can do. */
#define BATON_CAP_TAGS (1u << 0)       /* tags other than 0, independent */
#define BATON_CAP_DIRECTIONS (1u << 1) /* sends and receives independent */
#define BATON_CAP_SHORT (1u << 2)      /* messages shorter than the receive */
#define BATON_CAP_TRUNCATION (1u << 3) /* longer ones end in TRUNCATED */
#define BATON_CAP_CANCEL (1u << 4)     /* one operation can end alone */
#define BATON_CAP_SELF (1u << 5)       /* send to oneself without a group */
#define BATON_CAP_SIGNALS (1u << 6)    /* signal and wait_signal */
#define BATON_CAP_WINDOWS (1u << 7)    /* windows and put_signal */

/* How a put or a signal reaches a peer; chosen for each peer, once. */
#define BATON_WINDOW_PATH_DIRECT (1u << 0)  /* stores into memory that both map */
#define BATON_WINDOW_PATH_VMWRITE (1u << 1) /* process_vm_writev, then a store */
#define BATON_WINDOW_PATH_MESSAGE (1u << 2) /* messages, applied by the target */

struct baton_comm_info {
	size_t size; /* of this struct; set before the call */
	int rank;
	int ranks;
	enum baton_device device;
	enum baton_transport transport;
	const char *device_name;    /* "host" */
	const char *transport_name; /* "local", "mpi" */
	/* The library below, its version, and its thread level: "Open MPI
	 * v4.1.4, MPI_THREAD_MULTIPLE".  Lives as long as the communicator. */
	const char *library;
	int tag_max; /* tags are 0 to tag_max */
	unsigned capabilities;
	uint32_t requests_max;
	bool engine_thread; /* the engine's own thread makes progress here */
	int signals_max;
	int contexts_max;
	/* BATON_WINDOW_PATH_*, or'ed: the paths of signals without data to the
	 * ranks of the communicator, and those of puts into the windows that are
	 * registered now (of one window and peer: baton_window_path). */
	unsigned signal_paths;
	unsigned window_paths;
};

/* Fill *info_p.  Returns BATON_OK, INVALID (NULL, or a size this library does
 * not know). */
BATON_API enum baton_status baton_comm_query(const struct baton_comm *comm,
                                             struct baton_comm_info *info_p);

/* ---- streams ------------------------------------------------------------ */

/* For code that runs on either device; CUDA programs may pass their own
 * streams.  The communicator says which device, no more.
 * Returns BATON_OK, INVALID, NOMEM. */
BATON_API enum baton_status baton_stream_create(struct baton_comm *comm,
                                                baton_stream *stream_p);

/* BUSY while work is on it; the default stream (NULL) is INVALID, and so is a
 * handle that is no live stream.  Returns BATON_OK, INVALID, BUSY. */
BATON_API enum baton_status baton_stream_destroy(struct baton_comm *comm,
                                                 baton_stream stream);

/*
 * Enqueue fn(arg) on the stream: it runs once, after all earlier work of the stream
 * and before all later work, on a thread of the device.  fn may block, but must not
 * call Baton.  Takes a slot of the communicator's pool until it has run.  Returns
 * BATON_OK, INVALID (also inside a group), AGAIN, NOMEM and SYSTEM (the stream's
 * thread, started at its first launch), ABORTED.
 */
BATON_API enum baton_status baton_stream_launch(struct baton_comm *comm,
                                                baton_stream stream,
                                                void (*fn)(void *arg),
                                                void *arg);

/*
 * Wait until everything enqueued on the stream before this call is done, making
 * progress.  Returns BATON_OK, INVALID (also inside a group), or, once, the error of an
 * operation on this stream that nobody could observe: one with no request, or whose
 * request was released before it ended.  Only the log says which (no baton_last_error).
 */
BATON_API enum baton_status baton_stream_synchronize(struct baton_comm *comm,
                                                     baton_stream stream);

/* OK when the stream has nothing left to do, else PENDING (after one pass of
 * progress).  Returns those, INVALID. */
BATON_API enum baton_status baton_stream_query(struct baton_comm *comm,
                                               baton_stream stream);

/* ---- operations --------------------------------------------------------- */

/* The stream goes on as soon as the operation is armed; baton_stream_wait joins
 * it later, on this stream or another. */
#define BATON_OP_DETACHED (1u << 0)

struct baton_op_options {
	size_t size;    /* of this struct; the initialiser sets it */
	unsigned flags; /* BATON_OP_* */
	/* Deadline, counted from the moment of arming.  0: the communicator's;
	 * negative: none. */
	int64_t timeout_ns;
	uint64_t user_data; /* comes back in the completion */
	/* Deliver the completion here; one of its entries is reserved by the
	 * call. */
	struct baton_queue *queue;
};
/* clang-format off */
#define BATON_OP_OPTIONS_INIT                                                 \
	{ sizeof(struct baton_op_options), 0, 0, 0, NULL }
/* clang-format on */

/*
 * Send count elements to rank peer of comm, or receive up to count elements
 * from it, in the order of the stream.  Returns at once; never waits for a peer
 * or the device.  Messages match in the order of the calls on each
 * (communicator, peer, tag, direction).
 *
 * buffer      is the caller's and must live until the operation ends (and, when
 *             its completion says BATON_COMPLETION_LENT, until that bit is
 *             cleared); NULL only with count 0.  A send's may be read, not
 *             written, meanwhile.
 * count       of elements; 0 is a real message.  count times the type's size
 *             must fit in 63 bits.
 * peer, tag   0 to size-1 (self is legal), 0 to tag_max of baton_comm_query.
 * options     NULL for the defaults.
 * request_p   NULL: fire and forget; an error is then logged and returned by
 *             the next baton_stream_synchronize of the stream.
 *
 * Returns BATON_OK; INVALID; UNSUPPORTED (the transport has no such tags);
 * AGAIN (all requests are taken, or the queue has no entry left); the error
 * that broke the communicator.  Ends in OK, TRUNCATED (a receive: the message
 * was longer; nothing is written past the buffer, the data is undefined),
 * TIMEOUT, CANCELED, ABORTED, PEER, MPI, or, with tensors, MISMATCH.
 */
BATON_API enum baton_status
baton_send(const void *buffer, size_t count, enum baton_datatype type, int peer,
           int tag, struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p);
BATON_API enum baton_status
baton_recv(void *buffer, size_t count, enum baton_datatype type, int peer,
           int tag, struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p);

/* A request that ends in OK when the stream gets here, so that hosts, queues
 * and other streams can wait for compute.  options: flags must be 0; a deadline
 * is not taken (INVALID).  Returns as baton_send; INVALID inside a group. */
BATON_API enum baton_status
baton_record(struct baton_comm *comm, baton_stream stream,
             const struct baton_op_options *options, baton_request *request_p);

/*
 * Begin and end a group on this thread.  Its operations take their places in the
 * matching order at their calls and are armed together, when every stream named in
 * the group has reached it; none waits for another, so an exchange cannot deadlock.
 * Each stream goes on when all are complete (all are detached: when the group is
 * armed; a mixture is INVALID).  Groups nest: the outermost end enqueues.  A refused
 * operation voids the group: group_end returns the first refusal, nothing was
 * enqueued, and the handles of its requests are STALE.  begin: BATON_OK, INVALID,
 * AGAIN.  end: BATON_OK, INVALID (no group is open here), or the first refusal.
 */
BATON_API enum baton_status baton_group_begin(struct baton_comm *comm);
BATON_API enum baton_status baton_group_end(struct baton_comm *comm);

/* ---- windows and signals ------------------------------------------------ */

/*
 * A signal adds one to a counter at the target: one counter for each (source,
 * signal_index, context) of a communicator, 64 bits wide, that only grows.  A put
 * with signal writes into the target's window first.
 *
 * The guarantee: a signal that is seen (by a wait that ended, or in a count) implies
 * that its data, and that of all puts and all signals issued earlier to that peer in
 * that context, are visible.  Issue is FIFO for each (peer, context), in the order of
 * the calls: a small put waits behind a large one unless a context separates them.
 */

/*
 * Memory that windows reach fastest: on the host, shared memory without a name, zero
 * and aligned to a page; bytes is at least 1.  Not collective.  Free it before comm is
 * destroyed.  Returns BATON_OK, INVALID, UNSUPPORTED (the device or transport has no
 * windows), NOMEM (all of it is taken now, so that nothing fails later), SYSTEM.
 */
BATON_API enum baton_status baton_mem_alloc(struct baton_comm *comm,
                                            size_t bytes, void **pointer_p);

/* Give it back; NULL is fine.  Returns BATON_OK, INVALID (not from
 * baton_mem_alloc of comm), BUSY (a window that is registered lies in it). */
BATON_API enum baton_status baton_mem_free(struct baton_comm *comm,
                                           void *pointer);

/*
 * Register bytes bytes at base as this rank's part of a new window.  Any writable
 * memory will do, of baton_mem_alloc it is reached fastest; it must stay, and stay
 * writable, until the window is deregistered.  Sizes may differ between ranks; 0 is
 * legal, with any base.  Collective: call it on all ranks, in one order with the other
 * collective calls, on one thread of a rank at a time (a second one is refused); blocks
 * until all have called, for at most the communicator's timeout_ns.  Returns BATON_OK;
 * INVALID (base NULL with bytes > 0; other ranks make another call; inside a group, or
 * beside another thread's call); UNSUPPORTED (no windows here, or the path that
 * BATON_WINDOW_PATH forces does not reach some peer); NOMEM; SYSTEM; TIMEOUT and PEER
 * (which break the communicator: its ranks do not agree any more); what broke it before.
 * A rank that is refused tells the others (not the last two of INVALID): so are all.
 */
BATON_API enum baton_status baton_window_register(void *base, size_t bytes,
                                                  struct baton_comm *comm,
                                                  struct baton_window **window_p);

/*
 * End the window.  Collective, as registering; NULL is fine, and tells nobody; on a
 * broken communicator it is local.  Puts that have ended at their source are applied
 * before it goes.  Returns BATON_OK: the pointer is dead, any use of it is undefined;
 * BUSY, on all ranks (any has a put of its own into the window that has not ended),
 * INVALID (as registering) and NOMEM: the window is as before; TIMEOUT, PEER or what
 * else broke the communicator during the call (not ABORTED: that is OK): call again.
 */
BATON_API enum baton_status baton_window_deregister(struct baton_window *window);

/* Bytes of that rank's part; 0 for NULL or a peer that is not there. */
BATON_API size_t baton_window_size(const struct baton_window *window, int peer);

/* The BATON_WINDOW_PATH_* of this rank's puts to peer; 0 as for the size. */
BATON_API unsigned baton_window_path(const struct baton_window *window,
                                     int peer);

/*
 * Put count elements into rank peer's part of the window, offset bytes from its
 * beginning, then signal.  Enqueued as baton_send is; ends when local_buffer may be
 * used again, which says nothing about the target.
 *
 * local_buffer  any memory; it must live until the operation ends (and while its
 *               completion says BATON_COMPLETION_LENT); NULL only with count 0,
 *               which is a signal alone.
 * peer          0 to size-1; self is legal, where the two may not overlap.
 * peer_window   of comm, and not being deregistered.
 * peer_window_offset_bytes  offset plus length must lie in the *peer's* part.
 * signal_index, context     0 to signals_max-1, 0 to contexts_max-1; flags must be 0.
 *
 * One that ends early (TIMEOUT, CANCELED, ABORTED) has not signaled, and never will,
 * unless a message carries it (it is LENT then, until the transport lets go of it);
 * some of its data may be in the window.  Returns as baton_send.  Ends in OK, TIMEOUT,
 * CANCELED, ABORTED, PEER (that process is gone), MPI, SYSTEM.
 */
BATON_API enum baton_status
baton_put_signal(const void *local_buffer, size_t count,
                 enum baton_datatype type, int peer,
                 struct baton_window *peer_window,
                 size_t peer_window_offset_bytes, int signal_index, int context,
                 unsigned flags, struct baton_comm *comm, baton_stream stream,
                 const struct baton_op_options *options,
                 baton_request *request_p);

/* Signal alone: as baton_put_signal, without window and data. */
BATON_API enum baton_status
baton_signal(int peer, int signal_index, int context, unsigned flags,
             struct baton_comm *comm, baton_stream stream,
             const struct baton_op_options *options, baton_request *request_p);

/* One counter, and how many signals to wait for. */
struct baton_wait_signal_desc {
	int op_count; /* at least 1 */
	int peer;     /* the source, 0 to size-1 */
	int signal_index;
	int context;
};

/*
 * Wait for signals.  At the call the wait is given the next op_count units of each
 * counter that it names (signals that came early count; a counter named twice adds
 * up); it ends when every counter has passed them, and waits for no other wait.  One
 * that ends early (TIMEOUT, CANCELED, ABORTED, PEER) gives its units back, and later
 * waits move down.  Where signals come directly it sleeps until they do.
 *
 * descs is copied; desc_count is 1 to BATON_WAIT_DESCS_MAX.  Returns as baton_send;
 * AGAIN also when all outstanding waits together name more counters than
 * requests_max + size, INVALID when this one alone does.  Ends in OK, TIMEOUT,
 * CANCELED, ABORTED, PEER (a process that it waits for is gone), MPI.
 */
#define BATON_WAIT_DESCS_MAX 65536u
BATON_API enum baton_status
baton_wait_signal(size_t desc_count, const struct baton_wait_signal_desc *descs,
                  struct baton_comm *comm, baton_stream stream,
                  const struct baton_op_options *options,
                  baton_request *request_p);

/* All signals that ever arrived on one counter of this rank, waited for or not.  Looks
 * for messages where signals may come by them, and makes no other progress: a loop that
 * moves its own puts calls baton_progress.  Returns BATON_OK, INVALID, UNSUPPORTED. */
BATON_API enum baton_status baton_signal_count(struct baton_comm *comm, int peer,
                                               int signal_index, int context,
                                               uint64_t *count_p);

/* ---- requests ----------------------------------------------------------- */

enum baton_operation {
	BATON_OPERATION_SEND = 1,
	BATON_OPERATION_RECV = 2,
	BATON_OPERATION_RECORD = 3,
	BATON_OPERATION_SIGNAL = 4,
	BATON_OPERATION_PUT_SIGNAL = 5,
	BATON_OPERATION_WAIT_SIGNAL = 6
};

/* The transport could not take the operation back when it ended early: the
 * buffer (and the request's slot) stay lent to it until a later baton_test shows
 * this bit cleared, and its message may still arrive. */
#define BATON_COMPLETION_LENT (1u << 0)

struct baton_completion {
	baton_request request;
	enum baton_status status; /* how it ended, or BATON_PENDING */
	int peer;                 /* -1 for a record, and a wait for several */
	int tag;                  /* of a send or receive, else -1 */
	size_t bytes;             /* sent or put, or what arrived (a TRUNCATED
	                             receive: the length of the message) */
	uint64_t user_data;
	int op;         /* enum baton_operation */
	unsigned flags; /* BATON_COMPLETION_* */
	/* CLOCK_MONOTONIC; 0 unless the communicator keeps timestamps. */
	uint64_t enqueued_ns, armed_ns, completed_ns;
};

/*
 * For all of these: a completion_p may be NULL; a wait's timeout_ns is 0 to
 * poll and negative to wait for ever; arrays skip BATON_REQUEST_NULL.  They
 * drive progress when no other thread does.
 *
 * The status returned is how the operation ended (BATON_OK, TRUNCATED, TIMEOUT,
 * CANCELED, ABORTED, PEER, MISMATCH, MPI, SYSTEM); BATON_PENDING while it has
 * not (for a wait: its own time ran out, the operation goes on); STALE for a
 * handle that was released; INVALID for BATON_REQUEST_NULL or a group that is
 * still open on this thread.  *completion_p is written unless the result is
 * STALE or INVALID.
 */

/* Repeatable; frees nothing. */
BATON_API enum baton_status baton_test(baton_request request,
                                       struct baton_completion *completion_p);

/* The HOST waits. */
BATON_API enum baton_status baton_wait(baton_request request,
                                       int64_t timeout_ns,
                                       struct baton_completion *completion_p);

/* Wait, and when the operation has ended release the request and set
 * *request_p to BATON_REQUEST_NULL. */
BATON_API enum baton_status baton_finish(baton_request *request_p,
                                         int64_t timeout_ns,
                                         struct baton_completion *completion_p);

/* The STREAM waits: later work of the stream starts after the operation has ended, well
 * or not.  Takes a slot of comm's pool.  The request may be released at once.  It may be
 * of another communicator on the same device.  Returns BATON_OK, INVALID (also inside a
 * group), STALE, AGAIN, or the error that broke comm. */
BATON_API enum baton_status baton_stream_wait(struct baton_comm *comm,
                                              baton_stream stream,
                                              baton_request request);

/* Wait until one of the requests has ended: *index_p is the lowest such index,
 * and the status returned is that request's.  When all are BATON_REQUEST_NULL:
 * BATON_OK and *index_p = count.  A stale handle: STALE, with its index. */
BATON_API enum baton_status baton_wait_any(const baton_request *requests,
                                           size_t count, int64_t timeout_ns,
                                           size_t *index_p,
                                           struct baton_completion *completion_p);

/* Wait until all have ended.  Returns BATON_OK when all ended so, PENDING when
 * the time ran out, else the status of the lowest index that did not end in OK
 * (all have ended then too).  A stale handle is STALE at once. */
BATON_API enum baton_status baton_wait_all(const baton_request *requests,
                                           size_t count, int64_t timeout_ns);

/* Write the indices of up to indices_max requests that have ended, lowest first, and
 * their number to *done_p.  Returns BATON_OK when there is one or when nothing is left
 * to wait for (*done_p = 0), PENDING when none has ended, STALE (with *done_p = 0 and
 * indices[0] the stale one), INVALID. */
BATON_API enum baton_status baton_test_some(const baton_request *requests,
                                            size_t count, size_t *indices,
                                            size_t indices_max, size_t *done_p);

/* Ask for the operation's end.  Poll until it has ended: in OK (or as it would have) or
 * in CANCELED, never both.  An operation that is not issued, a wait for signals, or a
 * receive that nothing has matched, can always be taken back; a receive that has its
 * message goes on to its end; a send or put that is under way and cannot be taken back
 * ends CANCELED with BATON_COMPLETION_LENT.  BATON_OK also when it has ended already;
 * STALE, INVALID; UNSUPPORTED where one operation cannot end alone (BATON_CAP_CANCEL)
 * and for a record. */
BATON_API enum baton_status baton_cancel(baton_request request);

/* Give the handle back, at any time: a pending operation goes on, unobserved.
 * Sets *request_p to BATON_REQUEST_NULL, which is accepted too.  Returns
 * BATON_OK, STALE, INVALID. */
BATON_API enum baton_status baton_release(baton_request *request_p);

/* Why it ended so, as one sentence with the native call, code and text where
 * there is one; "" for one that ended in OK or is pending.  Always terminated,
 * cut to size.  Returns BATON_OK, STALE, INVALID. */
BATON_API enum baton_status baton_request_error(baton_request request,
                                                char *text, size_t size);

/* ---- completion queues -------------------------------------------------- */

/* A queue of completions, O(completions) to serve, with a file descriptor for
 * epoll, libuv or io_uring.  entries is 1 to 2^20: operations that name the
 * queue and have not been polled.  Returns BATON_OK, INVALID, NOMEM, SYSTEM. */
BATON_API enum baton_status baton_queue_create(struct baton_comm *comm,
                                               size_t entries,
                                               struct baton_queue **queue_p);

/* Make progress and take up to max completions, oldest first; each one's request
 * is released.  Returns their number; 0 for a NULL queue or array. */
BATON_API size_t baton_queue_poll(struct baton_queue *queue,
                                  struct baton_completion *completions,
                                  size_t max);

/* A descriptor that polls readable once an armed queue has completions.  It is
 * the queue's: wait on it, do not read or close it.  -1 for NULL. */
BATON_API int baton_queue_fd(struct baton_queue *queue);

/* Ask for the descriptor to become readable at the next completion.  PENDING
 * when completions are there already (poll first); BATON_OK: go to sleep in
 * epoll.  One arm serves one wake-up.  Where the engine's thread may not drive, and
 * the program has not asked for BATON_PROGRESS_CALLS, the descriptor also polls
 * readable a millisecond later while operations name the queue: poll, and arm again.
 * Returns those, INVALID, SYSTEM. */
BATON_API enum baton_status baton_queue_arm(struct baton_queue *queue);

/* The queue goes; completions not polled are dropped and their requests
 * released; operations that name it go on, unobserved.  No other call on the
 * queue may be running.  NULL is fine. */
BATON_API void baton_queue_destroy(struct baton_queue *queue);

/* One bounded pass of progress, for programs with a loop of their own.  Returns
 * the number of events made (0: nothing moved, or another thread drives). */
BATON_API size_t baton_progress(struct baton_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
