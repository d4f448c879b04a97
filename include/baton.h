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
 *   - times are nanoseconds, sizes are bytes, counts are elements;
 *   - reserved fields of what the program passes are 0, else INVALID: the initialisers see
 *     to it.  The library sets those of what it fills to 0.
 *
 * A program runs with every library of its minor version, earlier and later ones.  A struct
 * that begins with `size` may be longer in one than in the other.  Options that the program's
 * struct does not have take their defaults.  Those that the library's does not have must be 0,
 * their default, else the call is INVALID.  Of an info struct, what both have is written, and
 * the rest of the program's is set to 0.  All other structs keep their size
 * (docs/design.md, "Structs of the interface").
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

/* X(name, number, text).  The enum, the names and the texts are generated from this
 * list.  Negative numbers are errors. */
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

/* The enumerator's spelling, and one short text.  Never NULL ("unknown status").
 * Callable from anywhere. */
BATON_API const char *baton_status_name(enum baton_status status);
BATON_API const char *baton_status_text(enum baton_status status);

/* Why this thread's last refused call was refused, in one sentence: the argument, its
 * value, what is allowed.  "" if none was refused.  Valid until the next refusal. */
BATON_API const char *baton_last_error(void);

/* "0.1.0": the version of the library that is running. */
BATON_API const char *baton_version(void);

/* ---- what the library finds --------------------------------------------- */

/* Where the value of an environment variable comes from. */
enum baton_variable_source {
	BATON_VARIABLE_UNSET,       /* it is not set, or empty */
	BATON_VARIABLE_ENVIRONMENT, /* the environment */
	BATON_VARIABLE_REFUSED /* the environment has a value that is not allowed, and is ignored */
};

/* All texts live as long as the library, and none is NULL. */
struct baton_variable_info {
	size_t size;           /* of this struct; set before the call */
	const char *name;      /* "BATON_LOG" */
	const char *values;    /* what it takes: "none, error, warning", "1 to 64", "a file" */
	const char *otherwise; /* what holds where it is not set: a value, or words */
	const char *meaning;   /* what it is for, in a sentence or two */
	const char *value;     /* what holds in this process; of BATON_SECRET not the secret */
	enum baton_variable_source source;
	uint32_t reserved;
};

/* One of the environment variables that the library reads, from index 0 on.  The library reads them
 * once per process: in this call, if it has not read them before.  Fill *info_p as baton_comm_query does.  Callable from anywhere.
 * Returns BATON_OK, INVALID (index is out of range; NULL; a size that no version of the struct has). */
BATON_API enum baton_status baton_variable(size_t index,
                                           struct baton_variable_info *info_p);

/* All texts live as long as the library, and none is NULL. */
struct baton_library_info {
	size_t size;         /* of this struct; set before the call */
	const char *name;    /* "Baton", "MPI", "CUDA driver", "NCCL", "NVTX" */
	const char *built;   /* what was built in for it: "Open MPI 4.1.4"; "": it was left out.  Of
	                      * Baton: the compiler */
	const char *version; /* of what was found at run time; "": nothing was */
	const char *path;    /* the file that was found; "": none */
	const char *why_not; /* one sentence on why it cannot be used; "": it can */
};

/* Baton itself (index 0), and then each library that it uses where that is present.  The call searches for
 * the library as the first communicator that needs it would: it loads the library, and starts CUDA's driver
 * (cuInit); it does not start MPI.  Fill *info_p as baton_comm_query does.  Returns BATON_OK, INVALID (index is out of
 * range; NULL; a size that no version of the struct has). */
BATON_API enum baton_status baton_library(size_t index,
                                          struct baton_library_info *info_p);

/* ---- types -------------------------------------------------------------- */

/* A stream: a cudaStream_t/CUstream itself, or a host stream.  NULL is CUDA's legacy
 * default stream, or the process's default host stream.  Host streams belong to the
 * process: any communicator on the host device may use them. */
typedef struct CUstream_st *baton_stream;

/* A request handle: slot and generation.  A handle that was released gives
 * BATON_ERR_STALE; it never refers to a later operation. */
typedef uint64_t baton_request;
#define BATON_REQUEST_NULL ((baton_request)0)

/* A message that baton_probe has found: as a request's handle.  0 is none. */
typedef uint64_t baton_message;

struct baton_comm;   /* one rank's end of a communicator */
struct baton_queue;  /* a completion queue */
struct baton_window; /* memory of each rank that the other ranks may write */
struct baton_plan;   /* operations that are recorded once and launched many times */

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
	BATON_DEVICE_AUTO, /* the host, unless the environment has BATON_DEVICE=cuda */
	BATON_DEVICE_HOST,
	BATON_DEVICE_CUDA /* BATON_ERR_UNSUPPORTED without NVIDIA's driver or a GPU */
};

/* What moves the bytes. */
enum baton_transport {
	/* MPI under a launcher or beside MPI, else local; between processes without MPI, near, or
	 * NCCL on BATON_DEVICE_CUDA.  On that device with BATON_TRANSPORT=nccl in the environment:
	 * NCCL over any of them. */
	BATON_TRANSPORT_AUTO,
	BATON_TRANSPORT_LOCAL, /* ranks are threads of one process */
	BATON_TRANSPORT_MPI,
	BATON_TRANSPORT_NCCL, /* over one of the others; memory of GPUs only */
	/* Ranks are processes of one node without MPI, or threads of such: memory that they share. */
	BATON_TRANSPORT_NEAR
};

/* Which thread makes progress while no thread of the program is inside Baton.  (A function has the
 * name too: in C++ the type is `enum baton_progress`.) */
enum baton_progress {
	/* The engine's thread where the transport allows it: everywhere, but over MPI
	 * only at MPI_THREAD_MULTIPLE. */
	BATON_PROGRESS_AUTO,
	/* As AUTO.  The program also promises to make no MPI calls while
	 * operations are pending; MPI_THREAD_SERIALIZED then suffices. */
	BATON_PROGRESS_THREAD,
	/* None.  Progress is made only inside baton_test*, _wait*, _finish*, _progress,
	 * _queue_poll and _stream_synchronize/_query.  The program must not wait by
	 * calls of the device (cudaStreamSynchronize). */
	BATON_PROGRESS_CALLS
};

/* ---- communicators ------------------------------------------------------ */

#define BATON_REQUESTS_MAX_DEFAULT 4096u
#define BATON_REQUESTS_MAX_LIMIT (1u << 20)
#define BATON_SIGNALS_MAX_DEFAULT 16
#define BATON_SIGNALS_LIMIT 1024
#define BATON_CONTEXTS_MAX_DEFAULT 4
#define BATON_CONTEXTS_LIMIT 64
#define BATON_NCCL_LANES_LIMIT 64
#define BATON_NCCL_CTAS_LIMIT 64
#define BATON_TENSORS_MAX_DEFAULT 4096u
#define BATON_TENSORS_LIMIT 65536u

struct baton_comm_options {
	size_t size; /* of this struct; the initialiser sets it */
	enum baton_device device;
	enum baton_transport transport;
	/* Size of the request pool: operations that are pending, or whose request
	 * is not released.  1 to BATON_REQUESTS_MAX_LIMIT, 0 for the default. */
	uint32_t requests_max;
	enum baton_progress progress;
	/* Default deadline of operations, counted from arming.  Also the time
	 * limit of baton_comm_destroy, baton_comm_create_id,
	 * baton_window_register and baton_window_deregister, and of a creation's wait
	 * for the CUDA driver (10 s if not given; not less than half a second).  0 or
	 * negative: no limit. */
	int64_t timeout_ns;
	/* Signal indices and contexts: 1 to BATON_SIGNALS_LIMIT and 1 to
	 * BATON_CONTEXTS_LIMIT, 0 for the default.  The same on all ranks.  Each
	 * (rank, index, context) has a counter, of 56 bytes. */
	int signals_max;
	int contexts_max;
	/* On BATON_DEVICE_CUDA: which device, by the CUDA driver's numbers.  -1: the
	 * one of the calling thread's current context; without one, this rank's number
	 * on its node modulo the number of devices.  Ranks may differ. */
	int cuda_device;
	/* Memory for lists of tensors that are sent or received: as many tensors may be
	 * pending, of all lists together.  Both this number and the tensors of each list
	 * count as the next multiple of 8.  1 to BATON_TENSORS_LIMIT, 0 for the default.  224
	 * bytes for each, taken by the first call. */
	uint32_t tensors_max;
	/* On BATON_TRANSPORT_NCCL: the most communicators of NCCL for messages between
	 * ranks (lanes), 1 to BATON_NCCL_LANES_LIMIT, the same on all ranks.  0: as many as
	 * are of use.  With fewer than that, sends and receives wait for each other
	 * (BATON_CAP_DIRECTIONS is off). */
	int nccl_lanes;
	/* On BATON_TRANSPORT_NCCL: the most CTAs of a kernel of each lane, 1 to
	 * BATON_NCCL_CTAS_LIMIT, the same on all ranks; NCCL takes the next power of two.
	 * More move large messages faster; each takes a multiprocessor while its kernel waits,
	 * and memory for each peer.  0: all lanes together keep at most half of the GPU's. */
	int nccl_ctas;
	bool timestamps; /* fill the *_ns fields of completions */
	/* Checked mode: the types of the two sides of each send and receive are compared, and a
	 * receive of another type than the message's ends in MISMATCH, with nothing written; its
	 * send ends in OK.  Without it, types only say how long elements are: 2 of int32 receive
	 * 1 of float64.  Lengths are compared alike in both: a message may be shorter than its
	 * receive, and a longer one ends in TRUNCATED.  Lists of tensors are always compared.
	 * On BATON_TRANSPORT_NCCL nothing is compared without it, and with it lengths are too, before
	 * NCCL is called: where type or length differ both sides end in MISMATCH.  Deadlines and
	 * baton_cancel then end one operation alone, and lists of tensors and plain messages are
	 * in one order, at the cost of a round trip of the nodes for each message.
	 * All ranks or none; also by BATON_CHECK=1 in the environment. */
	bool check;
	/* On BATON_TRANSPORT_NCCL, without `check`: lists of tensors, which need one more
	 * communicator of NCCL, connected to all ranks.  All ranks or none; also by
	 * BATON_NCCL_LISTS=1 in the environment.  Elsewhere lists need nothing. */
	bool nccl_lists;
	unsigned char reserved[5];
};
/* clang-format off */
#define BATON_COMM_OPTIONS_INIT                                               \
	{ sizeof(struct baton_comm_options), BATON_DEVICE_AUTO,               \
	  BATON_TRANSPORT_AUTO, 0, BATON_PROGRESS_AUTO, 0, 0, 0, -1, 0, 0, 0, \
	  false, false, false, { 0 } }
/* clang-format on */

/*
 * Create this process's rank of a communicator over all processes of the job.  options may
 * be NULL.  Under mpirun, or srun with PMI, the job is the MPI world.  If the program has
 * not initialised MPI, Baton does, at MPI_THREAD_MULTIPLE, and finalises it at exit, in the
 * same process, unless a peer's process has died, MPI has failed, or the exit status is not 0
 * after an abort or a break (docs/semantics.md, "Lifetimes").
 *
 * Without MPI, RANK, WORLD_SIZE and MASTER_ADDR of the environment, with BATON_PORT and
 * BATON_SECRET, name the job.  Its messages go through memory that the ranks share, so all are
 * of one node (BATON_TRANSPORT_NEAR); on BATON_DEVICE_CUDA they go by NCCL, unless that
 * transport is asked for.  A process started alone is a world of one on the local transport.
 *
 * Collective over the job; blocks until all ranks have called.  Returns BATON_OK; INVALID
 * (options; if the ranks disagree, on all ranks); UNSUPPORTED (the device or transport is
 * missing; on all ranks, if some cannot share memory: baton_last_error says what to do); NOMEM;
 * AGAIN (4095 communicators exist); MPI; NCCL; CUDA; SYSTEM; TIMEOUT (CUDA); without MPI also
 * TIMEOUT, PEER.
 */
BATON_API enum baton_status
baton_comm_create(const struct baton_comm_options *options,
                  struct baton_comm **comm_p);

/*
 * Create all ranks of a local communicator: comms[0..size-1], for any threads of this
 * process (usually one thread a rank).  size is 1 to 4095.  Each rank is destroyed by
 * itself.  Not collective.  Returns BATON_OK, INVALID, UNSUPPORTED (BATON_TRANSPORT_MPI,
 * or NCCL without CUDA; a missing device), NOMEM, AGAIN, CUDA, NCCL, SYSTEM, TIMEOUT (CUDA).
 */
BATON_API enum baton_status
baton_comm_create_local(int size, const struct baton_comm_options *options,
                        struct baton_comm *comms[]);

/* Identifies a communicator to be created: bytes to be passed to the other ranks.  They
 * contain a secret: whoever has them can join. */
struct baton_unique_id {
	unsigned char bytes[128];
};

/* Make a fresh id.  From then on this process listens, where BATON_INTERFACE says, for ranks of other
 * processes (for its last 64 ids that no communicator has used).  Returns BATON_OK, INVALID (also
 * a BATON_INTERFACE that this node has not), SYSTEM. */
BATON_API enum baton_status
baton_unique_id_create(struct baton_unique_id *id_p);

/*
 * Create rank `rank` of `size` of the communicator that *id identifies.  The ranks are
 * threads, of the process that made the id (one at least) and of others.  In several
 * processes their messages go as without MPI above: through memory that they share, on one
 * node, or by NCCL.  Each calls once with its own rank; the call blocks until all have called,
 * for at most the options' timeout_ns (or five minutes, once one of another process has).  An
 * id serves one communicator.  Returns BATON_OK; INVALID (arguments; a rank given twice; ranks
 * that disagree on the size or the options, but for device, cuda_device and tensors_max; options
 * that are refused on one rank end the creation on all, and the id is spent); UNSUPPORTED (as
 * baton_comm_create; BATON_TRANSPORT_MPI, and BATON_TRANSPORT_LOCAL in several processes);
 * TIMEOUT (a rank did not call; all waiting ranks return it, and the id cannot be used again;
 * CUDA); PEER (a rank of another process has ended, or nobody listens for the id); NCCL; NOMEM;
 * AGAIN; CUDA; SYSTEM.
 */
BATON_API enum baton_status
baton_comm_create_id(int size, int rank, const struct baton_unique_id *id,
                     const struct baton_comm_options *options,
                     struct baton_comm **comm_p);

/* The color of a rank that takes part in baton_comm_split and gets no communicator, as any negative one. */
#define BATON_COLOR_NONE (-1)

/*
 * Make communicators from comm: split, one of the ranks of each color, in the order of their keys, and
 * ranks of one key in comm's order; dup, one of all ranks in comm's order.  A new one has requests, signals,
 * windows, plans and errors of its own, and lives on when comm is aborted or destroyed, and the other way
 * round.  A rank of a negative color takes part, and *comm_p becomes NULL.
 *
 * options: those of the new one, on all ranks of it, as for baton_comm_create_id over several processes and
 * baton_comm_create_mpi over MPI; NULL: those that comm was created with, on the same device.
 *
 * Collective over comm, in one order with its other collective calls; blocks until all ranks have called, and
 * those of the color have made their ends.  What is pending on comm goes on.  comm's timeout_ns limits the
 * wait for the other ranks' calls; when it has passed comm breaks, as in baton_window_register.  Of ranks of
 * one process it limits the wait for the others' ends too, which breaks nothing.
 *
 * Returns BATON_OK; INVALID (comm; comm_p is NULL or the options are refused on some rank: on all ranks;
 * inside a group; ranks make different collective calls; another thread of this rank is in one); UNSUPPORTED
 * (BATON_CAP_SIGNALS is off; options); NOMEM (of some rank: on all); the error that broke comm; and as
 * baton_comm_create: on all ranks of the color.
 */
BATON_API enum baton_status
baton_comm_split(struct baton_comm *comm, int color, int key,
                 const struct baton_comm_options *options,
                 struct baton_comm **comm_p);
BATON_API enum baton_status
baton_comm_dup(struct baton_comm *comm, const struct baton_comm_options *options,
               struct baton_comm **comm_p);

/*
 * Collective over the ranks.  On the local transport, and after an abort, it is local.  It
 * waits, for at most the options' timeout_ns, until this rank's operations have ended, no
 * stream has work of the communicator (launched functions, joins, and work behind another
 * communicator's), and all ranks have called (not after an abort).  Once it is broken, also
 * by a rank of this node that is gone, it waits at most a second for an asynchronous
 * device.
 *
 * Returns BATON_OK: the communicator is gone, handles of its requests are STALE (NULL
 * is BATON_OK too); BUSY, before any communication: it has a queue, a plan, a window or memory
 * of baton_mem_alloc; TIMEOUT: it is not freed, and may be destroyed again, or aborted
 * and destroyed (once all ranks have called, it takes no operations any more: INVALID);
 * INVALID.  No other call on it may run at the same time.
 */
BATON_API enum baton_status baton_comm_destroy(struct baton_comm *comm);

/*
 * Local.  Before it returns, every pending operation of this rank ends in ABORTED and the
 * streams that wait for them go on (NCCL: those that wait for one that is LENT, when its
 * stream has passed it).  Launched functions still run, and a baton_stream_wait
 * for another communicator's request still waits.  Later operations are refused with
 * ABORTED.  Peers are not told; their operations end by their own deadlines (in PEER:
 * between processes without MPI, and on one node over MPI where near carries messages, when
 * this rank is destroyed; otherwise on one node over MPI, when it finalises MPI, at exit too).
 * Returns BATON_OK (also if it was aborted before), INVALID.
 */
BATON_API enum baton_status baton_comm_abort(struct baton_comm *comm);

/* BATON_OK, or what broke the communicator: ABORTED (by baton_comm_abort, or because MPI was
 * finalised); TIMEOUT (the deadline of an operation that cannot end alone, or of a
 * collective call for windows); PEER (a rank is gone); an error of transport or device.
 * What was pending ends with the same status.  INVALID for NULL. */
BATON_API enum baton_status baton_comm_status(const struct baton_comm *comm);

/* What broke it: native call, code and text; "" if nothing did.  Valid until destroy. */
BATON_API const char *baton_comm_error(const struct baton_comm *comm);

/* Write one line for each pending operation to the descriptor: kind, peer, tag or
 * index, bytes, stream, state, age, what it waits for.  From any thread, also while
 * another drives.  If another hangs, in MPI for example, each line says that it may be
 * out of date.  With BATON_DUMP_ON=SIGUSR2 in the environment, that signal dumps all
 * communicators to standard error.  Returns BATON_OK, INVALID, NOMEM, SYSTEM. */
BATON_API enum baton_status baton_comm_dump(struct baton_comm *comm, int fd);

/* For a program that calls NCCL itself on the GPU of a communicator with the NCCL transport:
 * NCCL takes one thread at a time for a GPU.  lock: waits for a call of NCCL that Baton is in;
 * until unlock, Baton makes no call of NCCL for that GPU but those that free communicators, which launch
 * nothing.  Between the two, on one thread, make whole groups of NCCL, no call that waits
 * for the GPU, and no call of Baton that enqueues or waits.  Returns BATON_OK; INVALID (unlock:
 * this thread does not hold the lock; lock: it holds the lock already); AGAIN (another thread holds
 * the lock, and has not released it within the communicator's timeout_ns, or 60 s); UNSUPPORTED (another
 * transport). */
BATON_API enum baton_status baton_comm_lock_device(struct baton_comm *comm);
BATON_API enum baton_status baton_comm_unlock_device(struct baton_comm *comm);

/* The number of this rank; -1 for NULL.  Callable from anywhere. */
BATON_API int baton_comm_rank(const struct baton_comm *comm);
BATON_API int baton_comm_size(const struct baton_comm *comm);

/* Capabilities of a pair of device and transport. */
#define BATON_CAP_TAGS (1u << 0)       /* tags other than 0, independent */
#define BATON_CAP_DIRECTIONS (1u << 1) /* sends and receives independent */
#define BATON_CAP_SHORT (1u << 2)      /* messages shorter than the receive */
#define BATON_CAP_TRUNCATION (1u << 3) /* longer ones end in TRUNCATED */
#define BATON_CAP_CANCEL (1u << 4)     /* one operation can end alone */
#define BATON_CAP_SELF (1u << 5)       /* send to oneself without a group */
#define BATON_CAP_SIGNALS (1u << 6)    /* signal and wait_signal */
#define BATON_CAP_WINDOWS (1u << 7)    /* windows and put_signal */
#define BATON_CAP_TENSORS (1u << 8)    /* send_tensors and recv_tensors */
#define BATON_CAP_ANY_SOURCE (1u << 9) /* receives from BATON_ANY_SOURCE */
#define BATON_CAP_ANY_TAG (1u << 10)   /* receives of BATON_ANY_TAG */

/* How puts and signals reach a peer.  The path to each peer is chosen once. */
#define BATON_WINDOW_PATH_DIRECT (1u << 0)  /* stores into memory that both map */
#define BATON_WINDOW_PATH_VMWRITE (1u << 1) /* process_vm_writev, then a store */
#define BATON_WINDOW_PATH_MESSAGE (1u << 2) /* messages, applied by the target */
#define BATON_WINDOW_PATH_NATIVE (1u << 3)  /* NCCL's one-sided calls, then a message */

/* What carries messages. */
#define BATON_MESSAGE_PATH_TRANSPORT (1u << 0) /* local, MPI or NCCL */
#define BATON_MESSAGE_PATH_NEAR (1u << 1)      /* memory that the ranks share */

struct baton_comm_info {
	size_t size; /* of this struct; set before the call */
	int rank;
	int ranks;
	enum baton_device device;
	enum baton_transport transport;
	const char *device_name;    /* "host", "cuda" */
	const char *transport_name; /* "local", "mpi", "nccl", "near" */
	/* Of the transport, with version and thread level: "Open MPI v4.1.4,
	 * MPI_THREAD_MULTIPLE".  Valid as long as the communicator. */
	const char *library;
	int tag_max; /* tags are 0 to tag_max */
	unsigned capabilities;
	uint32_t requests_max;
	bool engine_thread; /* the engine's own thread makes progress here */
	bool check;         /* checked mode: options.check, or BATON_CHECK=1 */
	unsigned char reserved[2];
	int signals_max;
	int contexts_max;
	/* BATON_WINDOW_PATH_*, or'ed: the paths of signals without data to all
	 * ranks, and of puts into all windows that are registered now
	 * (baton_window_path tells of one window and peer). */
	unsigned signal_paths;
	unsigned window_paths;
	int cuda_device; /* on BATON_DEVICE_CUDA: the CUDA driver's number of it; on another device
	                  * its own number, or -1 where it has none, as the host */
	int nccl_version; /* as NCCL has it: 23007 is 2.30.7; 0: NCCL moves nothing here */
	int nccl_lanes;   /* communicators of NCCL for messages between ranks */
	/* CTAs that a kernel of a lane has at most; 0: NCCL moves nothing here, or decides. */
	int nccl_ctas;
	/* One sentence on why NCCL does not move the messages; "" where it does. */
	const char *why_not_nccl;
	/* One sentence on why no stream carries out puts and signals by itself, and the engine
	 * all of them; "" where streams carry out those that they can. */
	const char *why_engine_puts;
	/* On BATON_DEVICE_CUDA: streams of the GPU that Baton knows of in this process (its own, NCCL's,
	 * a default one, and those of the program with operations on them), and the hardware
	 * queues that all streams share, for kernels and waits, and for copies.  With more
	 * streams than queues one that waits may hold up another.  0 on the host. */
	int cuda_streams;
	int cuda_queues;
	int cuda_copy_queues;
	unsigned message_paths; /* BATON_MESSAGE_PATH_*, or'ed: of messages to all ranks */
	/* By how much the GPU's free memory fell while NCCL's communicators were made and
	 * connected; what others took or gave back meanwhile is in it. */
	uint64_t nccl_bytes;
	/* One sentence on why some messages, or all, do not go through memory that the ranks share; ""
	 * where all do. */
	const char *why_not_near;
};

/* Fill *info_p, as far as both its size and the library's go, and the rest of its size with 0.
 * Returns BATON_OK, INVALID (NULL; a size that no version of the struct has). */
BATON_API enum baton_status baton_comm_query(const struct baton_comm *comm,
                                             struct baton_comm_info *info_p);

/* The BATON_MESSAGE_PATH_* of messages to and from that rank; 0 for NULL or a peer out of range. */
BATON_API unsigned baton_message_path(const struct baton_comm *comm, int peer);

/* ---- streams ------------------------------------------------------------ */

/* A stream on the communicator's device (CUDA: a non-blocking one).  CUDA programs may
 * use their own instead, of the device's primary context.  Returns BATON_OK, INVALID,
 * NOMEM, CUDA. */
BATON_API enum baton_status baton_stream_create(struct baton_comm *comm,
                                                baton_stream *stream_p);

/* Returns BATON_OK; BUSY while it has work; CUDA; INVALID for a stream that
 * baton_stream_create has not returned or that is gone. */
BATON_API enum baton_status baton_stream_destroy(struct baton_comm *comm,
                                                 baton_stream stream);

/*
 * Enqueue fn(arg) on the stream.  It runs once, on the stream's own thread, after all
 * earlier and before all later work of the stream.  fn may block and may call CUDA (it
 * sets a context first); it must not call Baton, and must return (no pthread_exit).  It
 * occupies a slot of the request pool until it returns.  Returns as baton_send; INVALID
 * inside a group; NOMEM, SYSTEM (the stream's thread, which its first function starts).
 */
BATON_API enum baton_status baton_stream_launch(struct baton_comm *comm,
                                                baton_stream stream,
                                                void (*fn)(void *arg),
                                                void *arg);

/*
 * Wait, making progress, until all work enqueued on the stream before this call is
 * done.  Returns BATON_OK, INVALID (also inside a group), or, once, the error of an
 * operation on this stream that no request observes: none was asked for, or it was
 * released before the operation ended.  The log names the operation.  Asynchronous
 * devices only: the error that broke the communicator, if the stream is not done a
 * second after that; CUDA; NOMEM.
 */
BATON_API enum baton_status baton_stream_synchronize(struct baton_comm *comm,
                                                     baton_stream stream);

/* Makes one pass of progress if there is work.  Returns BATON_OK if the stream has no
 * work left, else PENDING; INVALID; CUDA. */
BATON_API enum baton_status baton_stream_query(struct baton_comm *comm,
                                               baton_stream stream);

/* ---- operations --------------------------------------------------------- */

/* The stream goes on as soon as the operation is armed.  baton_stream_wait makes this
 * stream or another wait for its end. */
#define BATON_OP_DETACHED (1u << 0)

/* The peer of a receive: any rank, this one too.  The completion says which. */
#define BATON_ANY_SOURCE (-1)
/* The tag of a receive: any tag of the program's.  The completion says which. */
#define BATON_ANY_TAG (-1)

struct baton_op_options {
	size_t size;    /* of this struct; the initialiser sets it */
	unsigned flags; /* BATON_OP_* */
	uint32_t reserved;
	/* Deadline, counted from the moment of arming.  0: the communicator's;
	 * negative: none. */
	int64_t timeout_ns;
	uint64_t user_data; /* comes back in the completion */
	/* Deliver the completion here.  The call reserves an entry. */
	struct baton_queue *queue;
	/* The struct lies in baton_tensors_options: it never grows. */
	uint64_t reserved_more[3];
};
/* clang-format off */
#define BATON_OP_OPTIONS_INIT                                                 \
	{ sizeof(struct baton_op_options), 0, 0, 0, 0, NULL, { 0 } }
/* clang-format on */

/*
 * Send count elements to rank peer, or receive up to count elements from it, in stream
 * order.  Returns at once, without waiting for a peer or the device.  Messages match in
 * the order of the calls on each (communicator, peer, tag, direction).
 *
 * buffer      of the host, pinned or managed; of a device only on BATON_DEVICE_CUDA, where one
 *             that runs past its allocation (or what is mapped side by side) is INVALID.
 *             Must stay valid until the operation ends or, if its completion says
 *             BATON_COMPLETION_LENT, until that bit is cleared.  The program may
 *             read a send's buffer meanwhile, not write it.  NULL only with count 0.
 * count       0 sends a real message; count times the type's size fits in 63 bits.
 * peer, tag   0 to size-1 (self is legal), 0 to tag_max of baton_comm_query.  A receive's peer may be
 *             BATON_ANY_SOURCE (it takes a message of any rank, this one too), its tag BATON_ANY_TAG (of
 *             any tag), or both.  Rank and tag of the message are in the completion (-1 if it ended
 *             without one).  Until it has one, later receives that could take the same message wait;
 *             ranks have turns (docs/semantics.md, "Receives from any rank or of any tag").  Needs
 *             BATON_CAP_ANY_SOURCE, BATON_CAP_ANY_TAG.
 * options     NULL for the defaults.
 * request_p   NULL: no request.  An error is then logged, and the next
 *             baton_stream_synchronize of the stream returns it.
 *
 * Returns BATON_OK; INVALID; UNSUPPORTED (the transport has no such tags; it receives from no rank
 * or of no tag but a named one; the stream captures a graph); AGAIN (the request pool, the queue or the CUDA stream is full; on NCCL,
 * another thread has been in a call of NCCL for the GPU for timeout_ns of the options, or 60 s);
 * CUDA, NOMEM; the error that broke the communicator.  Ends in OK, TRUNCATED (longer than
 * the receive's buffer: its data is undefined, nothing is written past its end), TIMEOUT,
 * CANCELED, ABORTED, PEER, MPI, NCCL, CUDA, or MISMATCH (a receive that meets a list of tensors; in
 * checked mode one of another type, over NCCL both sides).
 */
BATON_API enum baton_status
baton_send(const void *buffer, size_t count, enum baton_datatype type, int peer,
           int tag, struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p);
BATON_API enum baton_status
baton_recv(void *buffer, size_t count, enum baton_datatype type, int peer,
           int tag, struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p);

/* What a message is that baton_probe has found. */
struct baton_message_info {
	size_t size;  /* of this struct; set before the call */
	size_t bytes; /* of the message; of a list of tensors, of these */
	int peer;     /* the rank that sent it */
	int tag;
	uint32_t tensors; /* of a list: how many */
	bool list;        /* it is a list of tensors: baton_recv_message_tensors */
	unsigned char reserved[3];
};

/*
 * Is there a message that a receive of this peer and tag, called now, would meet at once?  Then it is the caller's:
 * no receive and no probe meets it any more, its send can no longer be taken back (a cancel leaves it LENT, and the
 * message arrives), and baton_recv_message receives it, once.  So threads that probe one communicator do not take each other's messages.
 *
 * peer, tag  as of baton_recv, with BATON_ANY_SOURCE and BATON_ANY_TAG.
 * message_p  the handle.  It takes a slot of the request pool until a receive of it, which takes one of its own, is
 *            issued.  A probe finds nothing that would leave no slot for that.
 * info_p     what the message is; or NULL.
 *
 * A probe drives, with BATON_PROGRESS_CALLS too, and does not wait for a message; in a loop that finds nothing for long it
 * yields the core.  It finds none that an earlier receive could take, whether the
 * stream of that receive has reached it or not, nor one behind such a message of the same peer and tag.  Messages of
 * one peer and tag are found in the order of the sends; later receives meet those behind a message that was found.
 * No stream takes part: what the program has enqueued on streams counts as called.  When the process of a peer is gone,
 * what had come of it is found, and then probes end in PEER where a receive would: those that name it, and those of any
 * rank when all other ranks are gone, within 2 seconds or at the third probe.
 *
 * Returns BATON_OK; PENDING: there is none; INVALID (arguments; inside a group or the recording of a plan; over MPI at
 * MPI_THREAD_FUNNELED, on another thread than the main one); UNSUPPORTED (a peer whose messages go by NCCL, where
 * streams receive what the calls name);
 * AGAIN (fewer than two requests of the pool are free; nothing was found); NOMEM (the message stays where it is); PEER
 * (no more comes, as above; or a message was lost before its first part had come); the error that broke the communicator.
 */
BATON_API enum baton_status baton_probe(int peer, int tag,
                                        struct baton_comm *comm,
                                        baton_message *message_p,
                                        struct baton_message_info *info_p);

/*
 * Receive a message that a probe of comm has found, in stream order: as baton_recv, with the message in the place of
 * peer and tag, but that it waits for no earlier receive, and no later one for it.  The message has the
 * time until the stream gets there.  A receive of 0 bytes discards it, and ends in TRUNCATED if it has any.
 *
 * A call that returns an error, and a group that is void or abandoned, leave the message to be received.  A
 * receive that ends before its stream has reached it (cancel) discards it, as baton_comm_destroy does with
 * messages that nothing receives, also if it then times out; their sends end in OK, but after an abort or break
 * not by it.
 *
 * Returns as baton_recv; STALE: message is none, or was received; INVALID within the recording of a plan, which is
 * launched many times.  Ends as baton_recv; PEER also if the sender is gone with bytes that had not come.
 */
BATON_API enum baton_status
baton_recv_message(void *buffer, size_t count, enum baton_datatype type,
                   baton_message message, struct baton_comm *comm,
                   baton_stream stream, const struct baton_op_options *options,
                   baton_request *request_p);

/* A request that ends in OK when all earlier work of the stream is done, so that
 * threads, queues and other streams can wait for compute.  options: no flags and no
 * deadline (INVALID).  Returns as baton_send; INVALID inside a group. */
BATON_API enum baton_status
baton_record(struct baton_comm *comm, baton_stream stream,
             const struct baton_op_options *options, baton_request *request_p);

/*
 * A barrier of all ranks of comm, in stream order: it ends when the streams of all ranks have
 * reached theirs, and work behind it on its stream starts only then (unless it is detached).  Returns
 * at once.  All ranks make the same number of calls.  A rank's barriers take places in the order of
 * its calls, whichever streams they are on; each waits for the earlier ones, even if their streams
 * have not reached them.  Barriers are independent of the program's messages, tags and signals.
 *
 * A barrier that has not begun (its stream has not reached it, or an earlier one is under way) can end
 * early alone: it leaves the queue, and the next one of this rank takes its place.  One that has begun ends
 * early (deadline, cancel) for this rank alone, with BATON_COMPLETION_LENT and BATON_COMPLETION_BEGUN: its
 * stream goes on, and the other ranks count this rank as arrived.  It keeps its slot, and holds up later
 * barriers and a destroy, until all ranks have arrived.
 *
 * Returns as baton_send; UNSUPPORTED where BATON_CAP_SIGNALS is off.  Ends in OK, TIMEOUT, CANCELED,
 * ABORTED, PEER (the process of some rank is gone), MPI, CUDA, SYSTEM.  peer and tag of its completion are -1.
 */
BATON_API enum baton_status
baton_barrier(struct baton_comm *comm, baton_stream stream,
              const struct baton_op_options *options, baton_request *request_p);

/*
 * Begin and end a group on this thread.  Its operations take their places in the
 * matching order at their calls.  They are armed together, when every stream that the
 * group names has reached it; none waits for another, so an exchange cannot deadlock.
 * Each stream goes on when all operations of the group have completed or, if all are
 * detached, when the group is armed; a mixture is INVALID.  Groups nest: the outermost
 * end enqueues.  A refused operation voids the group: group_end returns the first
 * refusal, nothing was enqueued, and the group's request handles are STALE.
 * begin: BATON_OK, INVALID, AGAIN.  end: BATON_OK, INVALID (no group is open on this
 * thread), or the first refusal (baton_last_error has that call's sentence again).
 */
BATON_API enum baton_status baton_group_begin(struct baton_comm *comm);
BATON_API enum baton_status baton_group_end(struct baton_comm *comm);

/*
 * Leave a group of this thread, in the place of its end: nothing of it is enqueued, its request
 * handles are STALE, queues get no completion, and streams that wait for a member go on.  Within
 * another group, or the recording of a plan, that is void then: later calls in it are refused, and
 * its end returns CANCELED.  Returns BATON_OK (also for a group that a refusal has voided),
 * INVALID (no group is open on this thread).
 */
BATON_API enum baton_status baton_group_abandon(struct baton_comm *comm);

/* ---- tensor lists ------------------------------------------------------- */

#define BATON_TENSOR_RANK_MAX 8
#define BATON_TENSORS_MAX 4096u

/* A dense tensor: its elements are in row-major order, without gaps. */
struct baton_tensor {
	void *data;
	enum baton_datatype type;
	int rank; /* 0 (one element) to BATON_TENSOR_RANK_MAX */
	/* The dimensions, 0 or more; the library ignores those from rank on.  If one is
	 * 0 there are no elements. */
	int64_t shape[BATON_TENSOR_RANK_MAX];
};

/*
 * Where count tensors lie in one buffer, as ONNX Runtime places them: each begins at the next
 * multiple of 256 bytes, the first at 0, and behind the last there is no padding.
 *
 * tensors  the call ignores their data.  NULL only with count 0.
 * offsets  NULL, or an array of count elements that the call fills.
 *
 * Returns the bytes of the buffer; SIZE_MAX, and writes nothing, for tensors NULL, an invalid
 * type, rank or dimension, or if the bytes do not fit in 63 bits (baton_last_error).
 * Callable from anywhere.
 */
BATON_API size_t baton_tensors_layout(const struct baton_tensor *tensors,
                                      size_t count, size_t *offsets);

/* The peer may not be this rank itself (INVALID), as ONNX Runtime's Send and Recv have it. */
#define BATON_FORBID_SELF (1u << 0)

struct baton_tensors_options {
	struct baton_op_options op; /* op.size is that of this struct */
	unsigned flags;             /* BATON_FORBID_SELF */
	uint32_t reserved;
	/* Memory of the host, or NULL.  input_signal is read once the operation is armed: if it is
	 * false, the operation ends in INVALID, and nothing is sent or received.  *output_signal
	 * becomes true when the operation has ended in OK, and is left alone otherwise.  Both
	 * must stay valid until the end. */
	const bool *input_signal;
	bool *output_signal;
	/* Of a receive (a send is refused with them): memory for the tensors whose data is
	 * NULL. */
	void *arena;
	size_t arena_bytes;
	/* Of a receive.  Memory of the host; not NULL: fewer tensors may come than declared,
	 * and their number is written when it has ended in OK. */
	size_t *count_p;
};
/* clang-format off */
#define BATON_TENSORS_OPTIONS_INIT                                            \
	{ { sizeof(struct baton_tensors_options), 0, 0, 0, 0, NULL, { 0 } },  \
	  0, 0, NULL, NULL, NULL, 0, NULL }
/* clang-format on */

/*
 * Send count tensors to rank peer as one message that describes itself, or receive such a
 * message.  Enqueued as baton_send is, in one order with plain messages of the peer and tag;
 * on NCCL, unless in checked mode, in an order of lists alone.
 * No gaps between tensors are sent.  Needs BATON_CAP_TENSORS.
 *
 * tensors  up to BATON_TENSORS_MAX; NULL only with count 0, which is a message too.  The call
 *          copies it; their data must stay valid as a buffer of baton_send.
 *
 * A receive declares what may come:
 *
 *   data not NULL  the tensor goes there; type, rank and all dimensions must be given, and
 *                  the same must come.
 *   data NULL      it goes to the arena, in the order of the list, each at the next multiple of
 *                  256 bytes from the arena's beginning.  A dimension of -1 is open, and a rank of
 *                  -1 leaves type and shape open.
 *
 * If any data is NULL, the receive writes data, types, ranks and shapes of what has come to
 * tensors when it ends in OK, so they are open no more; tensors must stay valid until then, or until
 * it is LENT no more.  Memory that the same message is read from and written to must not overlap.
 *
 * Returns as baton_send; INVALID also for an invalid tensor (negative dimension, type,
 * rank, more than 63 bits of bytes), data NULL of a tensor with elements without an arena, unknown flags, an arena or
 * count_p of a send, signals or count_p in memory of a device, more tensors than tensors_max;
 * AGAIN also if the lists that are pending leave no memory for it; NOMEM: the first call allocates;
 * UNSUPPORTED: device or transport carry no lists (NCCL: options.nccl_lists).  Ends as baton_send; INVALID (input_signal
 * was false); MISMATCH: another number of tensors came, another tensor, a plain message, or a
 * header that is none (baton_request_error names the tensor, what was declared and what
 * came); TRUNCATED: the arena is too small, and the completion's bytes are what it needs.  After
 * MISMATCH and TRUNCATED the message is gone, its send has ended in OK, and the next message is
 * right.  A plain receive that meets a list ends in MISMATCH.  The completion's bytes are those of
 * the tensors.
 */
BATON_API enum baton_status
baton_send_tensors(const struct baton_tensor *tensors, size_t count, int peer,
                   int tag, struct baton_comm *comm, baton_stream stream,
                   const struct baton_tensors_options *options,
                   baton_request *request_p);
BATON_API enum baton_status
baton_recv_tensors(struct baton_tensor *tensors, size_t count, int peer, int tag,
                   struct baton_comm *comm, baton_stream stream,
                   const struct baton_tensors_options *options,
                   baton_request *request_p);

/* Receive a list of tensors that a probe has found: as baton_recv_tensors and baton_recv_message.  With `tensors` of
 * the info as many open tensors (rank -1, data NULL), and an arena of its bytes and 256 more for each, any list
 * is received. */
BATON_API enum baton_status
baton_recv_message_tensors(struct baton_tensor *tensors, size_t count,
                           baton_message message, struct baton_comm *comm,
                           baton_stream stream,
                           const struct baton_tensors_options *options,
                           baton_request *request_p);

/* ---- windows and signals ------------------------------------------------ */

/*
 * A signal adds one (baton_signal_add: more) to a 64-bit counter at the target, which never
 * decreases.  A communicator has one counter for each (source, signal_index, context).  A put
 * with signal first writes into the target's window.
 *
 * Visibility: once a wait or baton_signal_count sees a signal, its data and all puts
 * and signals issued before it to that peer in that context are visible.  Puts and
 * signals to one (peer, context) are issued in the order of the calls, so a small put
 * waits behind a large one unless they use different contexts.
 */

/*
 * Allocate memory for the fastest window path, zeroed and page-aligned: on the host,
 * anonymous shared memory; on BATON_DEVICE_CUDA, memory of the communicator's GPU, which
 * the host must not touch.  bytes is at least 1.  Not collective.  Free it before comm is
 * destroyed.  Returns BATON_OK, INVALID, UNSUPPORTED (the device or transport has no
 * windows), NOMEM (all pages are allocated here, none later), SYSTEM; ABORTED (NCCL over an
 * MPI that was finalised); CUDA; TIMEOUT (CUDA: the driver does not return while streams
 * wait; after timeout_ns, or 30 s).
 */
BATON_API enum baton_status baton_mem_alloc(struct baton_comm *comm,
                                            size_t bytes, void **pointer_p);

/* Free it, or NULL.  After an abort also where messages in it are LENT: waits a second at most for
 * copies that are under way.  Returns BATON_OK, INVALID (not from baton_mem_alloc of comm), BUSY
 * (a registered window lies in it). */
BATON_API enum baton_status baton_mem_free(struct baton_comm *comm,
                                           void *pointer);

/*
 * Register bytes bytes at base as this rank's part of a new window.  Any writable memory
 * that a send may have will do; that of baton_mem_alloc is fastest.  It must stay valid and
 * writable until the window is deregistered.  Sizes may differ between ranks, and 0 is
 * legal with any base.  Collective: all ranks call it, in one order with the other
 * collective calls, on one thread of a rank at a time.  Blocks until all have called, for
 * at most the communicator's timeout_ns.  Returns BATON_OK; INVALID (base NULL with bytes >
 * 0; a part that is half in memory of baton_mem_alloc; the ranks make different calls;
 * inside a group; beside another collective call of this rank); UNSUPPORTED (no windows
 * here, or the path that BATON_WINDOW_PATH forces does not reach some rank); NOMEM; SYSTEM;
 * CUDA; TIMEOUT and PEER, which break the communicator; the error that broke it before.
 * All ranks then fail with the same status.  Exception: a call inside a group, or beside
 * another collective call of this rank, fails alone and the peers keep waiting.
 */
BATON_API enum baton_status baton_window_register(void *base, size_t bytes,
                                                  struct baton_comm *comm,
                                                  struct baton_window **window_p);

/*
 * End the window.  Collective, as registering, except that NULL does nothing and that it
 * is local on a broken communicator.  Puts that have ended at their source are applied
 * first.  Returns BATON_OK: any further use of the pointer is undefined; BUSY, on all
 * ranks (some rank has a put of its own into the window that has not ended, or a plan that
 * names it), INVALID
 * (as registering) and NOMEM: the window is as before; TIMEOUT, PEER or another error
 * that broke the communicator during the call (ABORTED gives OK): call again.
 */
BATON_API enum baton_status baton_window_deregister(struct baton_window *window);

/* Bytes of that rank's part; 0 for NULL or a peer out of range. */
BATON_API size_t baton_window_size(const struct baton_window *window, int peer);

/* The BATON_WINDOW_PATH_* of this rank's puts to peer; 0 as above. */
BATON_API unsigned baton_window_path(const struct baton_window *window,
                                     int peer);

/* Why these puts take no faster path: words for a person, of which the text may change, valid until
 * the window is deregistered.  "" for the fastest path, and as above. */
BATON_API const char *baton_window_why(const struct baton_window *window,
                                       int peer);

/*
 * Put count elements into rank peer's part of the window, at an offset in bytes, then
 * signal.  Enqueued as baton_send.  It ends when local_buffer may be used again; the
 * data may arrive later.
 *
 * local_buffer  any memory; must stay valid as a send's buffer; NULL only with
 *               count 0, which signals alone.
 * peer          0 to size-1; self is legal, where the two may not overlap.
 * peer_window   of comm, and not being deregistered.
 * peer_window_offset_bytes  offset plus length must not exceed the *peer's* part.
 * signal_index, context     0 to signals_max-1, 0 to contexts_max-1; flags must be 0.
 *
 * A put that ends early (TIMEOUT, CANCELED, ABORTED) never signals, but part of its data
 * may be in the window.  Exception: one that a message carries, or that is on its stream
 * already (CUDA), ends LENT and may still arrive whole.  Returns as baton_send; NOMEM: the
 * first put to a peer allocates.  Ends in OK, TIMEOUT, CANCELED, ABORTED, PEER (that
 * process is gone), MPI, CUDA, SYSTEM.
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

/* A signal of several units, 1 to UINT32_MAX: the counter grows by `units` at once.  In all else as
 * baton_signal. */
BATON_API enum baton_status
baton_signal_add(int peer, int signal_index, int context, uint32_t units,
                 unsigned flags, struct baton_comm *comm, baton_stream stream,
                 const struct baton_op_options *options,
                 baton_request *request_p);
/*
 * Put without a signal: as baton_put_signal, in the queue of the same (peer, context), except that it
 * signals nothing.  A later signal in that queue makes the data visible to the target; baton_flush tells
 * this rank that the data is there.
 */
BATON_API enum baton_status
baton_put(const void *local_buffer, size_t count, enum baton_datatype type,
          int peer, struct baton_window *peer_window,
          size_t peer_window_offset_bytes, int context, unsigned flags,
          struct baton_comm *comm, baton_stream stream,
          const struct baton_op_options *options, baton_request *request_p);

/*
 * Flush: the operation ends when all puts that were enqueued on this stream before, to rank peer
 * or to all (BATON_ALL_PEERS), in any context, are visible at their targets, and gets and atomic
 * operations have ended.  Detached operations count too; a flush does not
 * wait for those of other streams.  It waits for signals of this one, and tells nothing about them.  The target's program need not call
 * anything where a put needs no call.  A flush with nothing to wait for ends within its call.  The data of
 * puts that ended early in an error may be missing; the flush waits for puts that are LENT.  A thread that has
 * seen the end may tell the target, by a message for example, which then sees the data.
 *
 * flags must be 0.  Enqueued as baton_send; returns as baton_wait_signal.  Ends in OK, TIMEOUT,
 * CANCELED, ABORTED, PEER (the process of a target is gone), MISMATCH (the target runs another version
 * of Baton), MPI, CUDA, SYSTEM.
 */
#define BATON_ALL_PEERS (-1)
BATON_API enum baton_status
baton_flush(int peer, unsigned flags, struct baton_comm *comm,
            baton_stream stream, const struct baton_op_options *options,
            baton_request *request_p);

/*
 * Get count elements out of rank peer's part of the window, from an offset in bytes on.  It has
 * its place in the queue of the puts to (peer, context): it reads what they have put before, and
 * later ones do not change what it reads.  It ends when the bytes are in local_buffer, visible as
 * those of a receive.  Arguments as of baton_put; local_buffer is written from the call until
 * the end, and while LENT.
 *
 * The target's program need not call anything where a put needs no call.  Ends as a put.  A get that
 * asks by a message and ends early is LENT until the target has answered, the target's end is known, or
 * the communicator breaks.  MISMATCH: the target has no such window.
 */
BATON_API enum baton_status
baton_get(void *local_buffer, size_t count, enum baton_datatype type, int peer,
          struct baton_window *peer_window, size_t peer_window_offset_bytes,
          int context, unsigned flags, struct baton_comm *comm,
          baton_stream stream, const struct baton_op_options *options,
          baton_request *request_p);

/*
 * Atomic operations on a 64-bit word of rank peer's part of the window, which is at a multiple of
 * 8 bytes of the address space.  Add: it grows by value (modulo 2^64).  Swap: it becomes desired
 * if it is expected.  *result_p becomes the old value, when the operation ends in OK;
 * it is memory of the host, and must stay valid as a receive's buffer; NULL: not stored.  Atomic to
 * all such operations of all ranks, and to atomic instructions on that word (`__atomic_*`, sequentially
 * consistent); not to puts and gets.  They have their place in the queue of (peer, context).
 *
 * Only where this rank's processor reaches the word: BATON_WINDOW_PATH_DIRECT, and memory of the host.
 * Elsewhere UNSUPPORTED, at the call.  Otherwise they return and end as a put.
 */
BATON_API enum baton_status
baton_fetch_add(uint64_t *result_p, uint64_t value, int peer,
                struct baton_window *peer_window,
                size_t peer_window_offset_bytes, int context, unsigned flags,
                struct baton_comm *comm, baton_stream stream,
                const struct baton_op_options *options,
                baton_request *request_p);
BATON_API enum baton_status
baton_compare_swap(uint64_t *result_p, uint64_t expected, uint64_t desired,
                   int peer, struct baton_window *peer_window,
                   size_t peer_window_offset_bytes, int context, unsigned flags,
                   struct baton_comm *comm, baton_stream stream,
                   const struct baton_op_options *options,
                   baton_request *request_p);

/* One counter, and how many signals to wait for. */
struct baton_wait_signal_desc {
	int op_count; /* at least 1 */
	int peer;     /* the source, 0 to size-1 */
	int signal_index;
	int context;
};

/*
 * Wait for signals.  The call assigns to the wait the next op_count units of each
 * counter that it names, signals that came early included; units of a counter named
 * twice add up.  The wait ends when every counter has reached its units, independently
 * of other waits.  A wait that ends early (TIMEOUT, CANCELED, ABORTED, PEER) returns its
 * units, and those of later waits shift down.  Waiting for signals that arrive by direct
 * stores costs no processor time.
 *
 * descs is copied; desc_count is 1 to BATON_WAIT_DESCS_MAX.  Returns as baton_send; AGAIN
 * also if all pending waits together name more counters than requests_max + size, INVALID
 * if this one alone does.  Ends as a put; PEER: a process that it waits for is gone.
 */
#define BATON_WAIT_DESCS_MAX 65536u
BATON_API enum baton_status
baton_wait_signal(size_t desc_count, const struct baton_wait_signal_desc *descs,
                  struct baton_comm *comm, baton_stream stream,
                  const struct baton_op_options *options,
                  baton_request *request_p);

/*
 * Wait for any of several counters.  The call assigns units as baton_wait_signal does.  The wait ends
 * when some counter has reached its units; these are used, and those of the other counters are given
 * back, so later waits of theirs shift down.  If several have, the first in the order of descs counts.
 *
 * descs    a counter may be named once.
 * index_p  memory of the host, or NULL: the descriptor whose units were used, written before the
 *          stream goes on and the request shows OK, and not written otherwise.  It must stay valid
 *          until the operation ends (in a plan: as a buffer).
 *
 * The completion's peer is the source of that counter.  Returns and ends as baton_wait_signal; it
 * ends in PEER when one of the processes is gone whose counter has not reached its units.
 */
BATON_API enum baton_status
baton_wait_signal_any(size_t desc_count,
                      const struct baton_wait_signal_desc *descs, int *index_p,
                      struct baton_comm *comm, baton_stream stream,
                      const struct baton_op_options *options,
                      baton_request *request_p);

/* Wait until a counter has this value or more: all signals that ever arrived, as
 * baton_signal_count tells.  It takes no units, and other waits do not see it.  A wait for value 0
 * ends at once.  Returns and ends as baton_wait_signal. */
BATON_API enum baton_status
baton_wait_signal_count(int peer, int signal_index, int context, uint64_t value,
                        struct baton_comm *comm, baton_stream stream,
                        const struct baton_op_options *options,
                        baton_request *request_p);

/* The value of one counter of this rank: all signals that ever arrived.  Receives
 * signals that come by message, but makes no other progress: a loop that needs its own
 * puts to move calls baton_progress.  Returns BATON_OK, INVALID, UNSUPPORTED, NOMEM. */
BATON_API enum baton_status baton_signal_count(struct baton_comm *comm, int peer,
                                               int signal_index, int context,
                                               uint64_t *count_p);

/* ---- plans -------------------------------------------------------------- */

/*
 * Begin and end the recording of a plan on this thread.  In between, sends, receives (of lists
 * of tensors too), signals, puts and waits for signals that the thread enqueues on comm, and the
 * groups that it begins and ends, are checked and kept, and nothing is enqueued.  They take no
 * request (request_p is NULL) and no queue.  baton_record, baton_stream_launch, _wait and
 * _synchronize, another plan, and the launch of one, are INVALID on comm in between.  Calls on other
 * communicators are enqueued as always, and not recorded.  A refused call voids the plan: the
 * end returns the first refusal, and makes no plan.  A plan may be empty.
 *
 * What the plan names must stay valid until it is destroyed: streams, buffers, the tensors of
 * receives that write them, signals of tensor lists.  Destroy the plan before comm, and before
 * deregistering a window that it names (BUSY otherwise).
 *
 * begin: BATON_OK, INVALID (also inside a group, or while a plan is recorded), NOMEM, the error
 * that broke comm.  end: BATON_OK; INVALID (this thread records no plan of comm); without a plan:
 * the first refusal (baton_last_error has that call's sentence again), INVALID (plan_p is NULL; a
 * group is open; a launch would take more than requests_max, tensors_max or a stream gives).
 */
BATON_API enum baton_status baton_plan_begin(struct baton_comm *comm);
BATON_API enum baton_status baton_plan_end(struct baton_comm *comm,
                                           struct baton_plan **plan_p);

/*
 * Enqueue all operations of the plan, as if the calls were made now, one after the other, groups
 * as groups, with no other thread's calls between them.  So the operations on one stream run in the order
 * of the plan.  Returns at once.  May be called again while operations of earlier launches are pending,
 * and by several threads at once.
 *
 * options     flags must be 0.  The deadline is that of the launch, counted from the moment when
 *             its first operation is armed (0: none); operations have their own too.
 * request_p   one request for the launch.  It ends when all operations have ended, in
 *             BATON_OK or as the first of the plan that did not; peer and tag of the completion are
 *             then that operation's (else -1), and bytes is the sum of those that ended in OK.  LENT
 *             while one of them is.  baton_cancel and the deadline end all that have not ended.
 *
 * A launch takes a slot of the request pool, and one for each operation and group.  Returns
 * as the calls would, AGAIN included: nothing was enqueued then.  A launch checks streams,
 * the memory of buffers and resources again, and no other argument.  Exception: if an asynchronous
 * device refuses an operation when earlier ones are already on their streams, these go on, the rest is
 * not enqueued, the call returns BATON_OK, and the request ends in the refusal.  INVALID
 * also for a plan that was destroyed, and inside a group or a recording of the plan's communicator.
 * (Inside those of another one it is enqueued at once, and is no part of them.)
 */
BATON_API enum baton_status
baton_plan_launch(struct baton_plan *plan, const struct baton_op_options *options,
                  baton_request *request_p);

/* Destroy the plan, or NULL.  Launches that are pending go on.  No other call on it may run.  Returns
 * BATON_OK, INVALID. */
BATON_API enum baton_status baton_plan_destroy(struct baton_plan *plan);

/* ---- requests ----------------------------------------------------------- */

enum baton_operation {
	BATON_OPERATION_SEND = 1,
	BATON_OPERATION_RECV = 2,
	BATON_OPERATION_RECORD = 3,
	BATON_OPERATION_SIGNAL = 4,
	BATON_OPERATION_PUT_SIGNAL = 5, /* also a put without one */
	BATON_OPERATION_WAIT_SIGNAL = 6,
	BATON_OPERATION_PLAN = 7, /* a launch of a plan */
	BATON_OPERATION_BARRIER = 8,
	BATON_OPERATION_WAIT_ANY = 9,   /* baton_wait_signal_any */
	BATON_OPERATION_WAIT_COUNT = 10, /* baton_wait_signal_count */
	BATON_OPERATION_GET = 11,
	BATON_OPERATION_FLUSH = 12,
	BATON_OPERATION_ATOMIC = 13
};

/* The operation ended early, but the transport could not cancel it.  It keeps the
 * buffer and the request's slot until a later baton_test shows this bit cleared, and
 * the message may still arrive. */
#define BATON_COMPLETION_LENT (1u << 0)
/* Of a barrier that ended early: it had begun, so the other ranks count this rank as arrived.  Such a barrier
 * is lent until all ranks have arrived; this bit stays. */
#define BATON_COMPLETION_BEGUN (1u << 1)

struct baton_completion {
	baton_request request;
	enum baton_status status; /* how it ended, or BATON_PENDING */
	int peer; /* -1 for a record, a wait for several, a receive from any rank without a message */
	int tag; /* of a send or receive; else, or of a receive of any tag without a message, -1 */
	int op;                   /* enum baton_operation */
	size_t bytes; /* sent, put or got, or what arrived (TRUNCATED: its length) */
	uint64_t user_data;
	unsigned flags; /* BATON_COMPLETION_* */
	uint32_t reserved;
	/* CLOCK_MONOTONIC; 0 unless the communicator keeps timestamps. */
	uint64_t enqueued_ns, armed_ns, completed_ns;
	/* The struct lies in the program's arrays: it never grows. */
	uint64_t reserved_more[3];
};

/*
 * For all calls below: completion_p may be NULL; a wait's timeout_ns is 0 to poll
 * and negative to wait for ever; arrays skip BATON_REQUEST_NULL; they make progress
 * if no other thread does.
 *
 * They return how the operation ended (BATON_OK, TRUNCATED, TIMEOUT, CANCELED, ABORTED,
 * PEER, MISMATCH, INVALID (input_signal), MPI, NCCL, CUDA, SYSTEM); BATON_PENDING while it
 * is pending (a wait: its timeout_ns passed, the operation goes on); STALE for a released
 * handle; INVALID for BATON_REQUEST_NULL or a member of a group that is open on this
 * thread.  *completion_p is written unless the result is STALE or INVALID.
 */

/* Repeatable; frees nothing. */
BATON_API enum baton_status baton_test(baton_request request,
                                       struct baton_completion *completion_p);

/* The calling thread waits. */
BATON_API enum baton_status baton_wait(baton_request request,
                                       int64_t timeout_ns,
                                       struct baton_completion *completion_p);

/* As baton_wait; at the end release the request and set *request_p to BATON_REQUEST_NULL. */
BATON_API enum baton_status baton_finish(baton_request *request_p,
                                         int64_t timeout_ns,
                                         struct baton_completion *completion_p);

/* The stream waits: its later work starts after the operation has ended, in success or
 * error.  Occupies a slot of comm's request pool.  The request may be released at once,
 * and may be of another communicator on the same device.  Returns BATON_OK, INVALID
 * (also inside a group), UNSUPPORTED (the stream captures a graph), STALE, AGAIN, CUDA,
 * NOMEM, or the error that broke comm. */
BATON_API enum baton_status baton_stream_wait(struct baton_comm *comm,
                                              baton_stream stream,
                                              baton_request request);

/* Wait until a request has ended.  *index_p is the lowest such index, and the return
 * value is that request's.  If all are BATON_REQUEST_NULL: BATON_OK, *index_p = count.
 * A stale handle: STALE, with its index. */
BATON_API enum baton_status baton_wait_any(const baton_request *requests,
                                           size_t count, int64_t timeout_ns,
                                           size_t *index_p,
                                           struct baton_completion *completion_p);

/* Wait until all have ended.  Returns BATON_OK if all ended in OK, else the status of the
 * lowest index that did not; PENDING: the time ran out; STALE, at once. */
BATON_API enum baton_status baton_wait_all(const baton_request *requests,
                                           size_t count, int64_t timeout_ns);

/* Write the indices of up to indices_max requests that have ended, lowest first, and
 * their number to *done_p.  Returns BATON_OK if there is one or if none is pending (0),
 * PENDING if none has ended, STALE (0, and indices[0] is the stale one), INVALID. */
BATON_API enum baton_status baton_test_some(const baton_request *requests,
                                            size_t count, size_t *indices,
                                            size_t indices_max, size_t *done_p);

/* As baton_wait_all; when all have ended, release all, and set the array to BATON_REQUEST_NULL.
 * completions is NULL, or count elements: of each request, and for a BATON_REQUEST_NULL one with
 * that request, BATON_OK, and peer and tag -1.  Unless all have ended (PENDING, STALE, INVALID)
 * nothing is released or written.  The array has each handle once. */
BATON_API enum baton_status baton_finish_all(baton_request *requests, size_t count,
                                             int64_t timeout_ns,
                                             struct baton_completion *completions);

/* Wait until a request has ended; then release up to max of those that have, lowest index first, and
 * set them to BATON_REQUEST_NULL.  Their indices, completions (max elements, or NULL) and number are
 * written.  Returns BATON_OK if all of these ended in OK or none is pending (0), else the status of
 * the first that did not.  With *done_p 0: PENDING (timeout_ns has passed), STALE (indices[0] is the
 * stale one).  INVALID. */
BATON_API enum baton_status
baton_finish_some(baton_request *requests, size_t count, int64_t timeout_ns,
                  size_t *indices, struct baton_completion *completions,
                  size_t max, size_t *done_p);

/* Request cancellation.  Then poll until the operation has ended, in CANCELED or as it
 * would have.  An operation that is not issued, a wait for signals and an unmatched
 * receive are always cancelled; a matched receive completes; a send, put, get or barrier
 * that is under way and cannot be cancelled ends in CANCELED with BATON_COMPLETION_LENT.
 * Returns BATON_OK (also if it has ended already); STALE; INVALID; UNSUPPORTED for a record,
 * for a put or signal that its stream carries out by itself (CUDA), and where one operation
 * cannot end alone (BATON_CAP_CANCEL). */
BATON_API enum baton_status baton_cancel(baton_request request);

/* Release the handle; a pending operation goes on, unobserved.  Sets *request_p to
 * BATON_REQUEST_NULL, which is accepted too.  Returns BATON_OK, STALE, INVALID. */
BATON_API enum baton_status baton_release(baton_request *request_p);

/* Why the operation failed, in one sentence, with the native call, code and text if
 * there is one; "" if it ended in OK or is pending.  Terminated, cut to size.  Returns
 * BATON_OK, STALE, INVALID, AGAIN (65535 streams wait for the request). */
BATON_API enum baton_status baton_request_error(baton_request request,
                                                char *text, size_t size);

/* How far it is. */
enum baton_request_state {
	BATON_STATE_CALLED = 1, /* its group is open, or the engine has not taken it from its call yet */
	BATON_STATE_QUEUED = 2, /* it has its place in the order of its queue; its stream has not reached it */
	BATON_STATE_ARMED = 3,  /* its stream has reached it; earlier operations of its queue come first */
	BATON_STATE_ISSUED = 4, /* the transport has it */
	BATON_STATE_ENDED = 5,
	BATON_STATE_LENT = 6 /* it has ended, and the transport keeps its buffer */
};

#define BATON_INFO_DETACHED (1u << 0)
#define BATON_INFO_GROUP (1u << 1)    /* a member of a group, or it was one */
#define BATON_INFO_CANCELED (1u << 2) /* baton_cancel was called, and the engine has not acted on it yet */
#define BATON_INFO_TENSORS (1u << 3)  /* a list of tensors */

struct baton_request_info {
	size_t size; /* of this struct; set before the call */
	baton_request request;
	int op;                          /* enum baton_operation */
	enum baton_request_state state;
	int peer;                        /* as the completion's */
	int tag;                         /* of a send or receive, else -1 */
	size_t bytes; /* to send or put, or that a receive has room for; of one of a list 0 */
	baton_stream stream;             /* NULL: the default stream, or none (a plan) */
	/* While it is pending: since it got its place (CALLED: since its call), to some milliseconds. */
	uint64_t age_ns;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none runs */
	uint64_t user_data;
	const void *buffer; /* of a send, receive, put or get; NULL for a list */
	/* Of a signal, a put, and a wait for one counter; else -1.  context: also of a put without a
	 * signal, a get, and an atomic operation. */
	int signal_index;
	int context;
	/* Of the launch of a plan: its operations, and how many have ended; else 0. */
	uint32_t operations;
	uint32_t operations_ended;
	enum baton_status status; /* how it ended, or BATON_PENDING */
	unsigned flags;           /* BATON_INFO_* */
};

/* What a request is and how far it is: what baton_comm_dump says of it, for programs.  Makes no
 * progress, and takes no lock: beside a thread that drives it may be a moment old.  Also for a member
 * of an open group.  Fills *info_p as baton_comm_query does.  Returns BATON_OK, STALE, INVALID, AGAIN
 * (65535 streams wait for the request). */
BATON_API enum baton_status baton_request_info(baton_request request,
                                               struct baton_request_info *info_p);

/* ---- completion queues -------------------------------------------------- */

/* A queue of completions with a file descriptor for epoll, libuv or io_uring.  Polling
 * costs O(completions).  entries, 1 to 2^20, bounds the operations that name the queue
 * and have not been polled.  Returns BATON_OK, INVALID, NOMEM, SYSTEM. */
BATON_API enum baton_status baton_queue_create(struct baton_comm *comm,
                                               size_t entries,
                                               struct baton_queue **queue_p);

/* Make progress, then take up to max completions, oldest first, and release their
 * requests.  Returns their number; 0 for a NULL queue or array. */
BATON_API size_t baton_queue_poll(struct baton_queue *queue,
                                  struct baton_completion *completions,
                                  size_t max);

/* A descriptor that polls readable once an armed queue has completions.  The queue
 * owns it: do not read or close it.  -1 for NULL. */
BATON_API int baton_queue_fd(struct baton_queue *queue);

/* Make the descriptor readable at the next completion, once.  Returns BATON_OK: sleep
 * in epoll; PENDING: there are completions already, poll first; INVALID; SYSTEM.  Where
 * the engine's thread may not drive, and the program has not asked for
 * BATON_PROGRESS_CALLS, the descriptor also becomes readable a millisecond later if
 * operations name the queue: poll, which makes progress, and arm again.  Over near it may also
 * become readable when a peer has moved something of another queue: poll and arm again then. */
BATON_API enum baton_status baton_queue_arm(struct baton_queue *queue);

/* Destroy the queue (or NULL), drop completions that were not polled, release their
 * requests.  Operations that name it go on, unobserved.  No other call on it may run. */
BATON_API void baton_queue_destroy(struct baton_queue *queue);

/* One bounded pass of progress, for programs with a loop of their own.  Returns the
 * number of events (0: nothing moved, or another thread drives). */
BATON_API size_t baton_progress(struct baton_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
