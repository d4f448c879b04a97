/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that BATON_TRACE=DIR makes: what a rank of a communicator has done.  `baton trace` reads
 * them; this header is for other programs that do.
 *
 * A communicator has a file of its own in each of its ranks: DIR/baton-ID-cINDEX-rRANK.trace, with ID
 * the communicator's number in hexadecimal, which is the same in all of its ranks and in no other
 * communicator, and INDEX its number in its process.  The library never removes or reuses one: those of
 * earlier runs have other IDs.  The process writes it in place, through a mapping, so it is whole up to
 * the last operation however the process ends.  All numbers are in the byte order of the machine that
 * wrote them: a reader that finds `version` turned round is on another one.
 *
 *   struct baton_trace_header     at 0: who, when, clock, and where the tables are
 *   struct baton_trace_kind[]     what the kinds of operations are called
 *   struct baton_trace_path[]     what carries them
 *   struct baton_trace_module[]   the executable and libraries that calls came from
 *   struct baton_trace_round[]    what the ranks' clocks have in common
 *   struct baton_trace_counter[]  for each peer, tag and kind how many there were
 *   struct baton_trace_operation[] the ring
 *   struct baton_trace_operation[] `handed`: what is not in the ring yet
 *
 * A later version of the library may make structs longer, at their ends, and add tables; `version` then
 * stays.  So a reader takes the length of an entry from the table's `stride`, and what an older library
 * has not written as 0.
 *
 * A reader may look while the process writes.  Each number of 8 bytes or less is written by one store; the
 * ring says below how to see that a slot was given to another operation meanwhile.
 */
#ifndef BATON_TRACE_H
#define BATON_TRACE_H

#include <stdint.h>

#define BATON_TRACE_MAGIC "BATONTRC" /* 8 bytes, without an end */
#define BATON_TRACE_VERSION 2u

/* Where a table is. */
struct baton_trace_table {
	uint64_t offset; /* from the beginning of the file, in bytes; a multiple of 64 */
	uint32_t stride; /* bytes from one entry to the next */
	uint32_t count;  /* entries */
};

/* One moment by three clocks. */
struct baton_trace_reading {
	uint64_t ticks;        /* of the clock of the stamps; 0: not taken */
	uint64_t monotonic_ns; /* CLOCK_MONOTONIC */
	uint64_t real_ns;      /* CLOCK_REALTIME */
	uint64_t width;        /* the three were read within so many ticks */
};

/* baton_trace_header.state */
enum baton_trace_state {
	BATON_TRACE_MAKING = 0, /* its header is not complete: its communicator is being created */
	/* The communicator is in use; or its process has ended, in any way, without destroying it: then no
	 * process has `pid` and `process_start`. */
	BATON_TRACE_OPEN = 1,
	BATON_TRACE_CLOSED = 2 /* the communicator was destroyed at `ended` */
};

/* The clock of all stamps in the file. */
enum baton_trace_clock {
	/* The processor's time-stamp counter, of constant rate; on a node (`boot_id`) all
	 * processors and processes have the same. */
	BATON_TRACE_TSC = 1,
	/* CLOCK_MONOTONIC in nanoseconds, as last read: it is read once in a pass of the
	 * engine, and to the kernel's tick in between.  On a node all processes have the same. */
	BATON_TRACE_PASSES = 2
};

struct baton_trace_header {
	char magic[8];         /* BATON_TRACE_MAGIC */
	uint32_t version;      /* BATON_TRACE_VERSION */
	uint32_t header_bytes; /* of this struct, as the library that wrote it has it */
	uint64_t file_bytes;
	uint32_t state; /* enum baton_trace_state */
	uint32_t clock; /* enum baton_trace_clock */

	/* ---- rank and process ---- */
	uint64_t communicator;  /* ID of the file's name */
	uint64_t parent;        /* of the one that this was split from; 0: none, or it is not known */
	uint32_t index;         /* the communicator's number in its process */
	int32_t rank, size;
	int32_t pid;
	uint64_t process_start; /* of that pid, field 22 of /proc/PID/stat: another one has another */
	char boot_id[40];       /* of the node, as /proc/sys/kernel/random/boot_id has it; "": unknown */
	char host[64];          /* its name */
	char program[128];      /* the executable's path, cut at its end */
	char library[64];       /* baton_version() */
	char transport[32];     /* "mpi" */
	char device[32];        /* "host" */

	/* ---- time ---- */
	/* Measured when the first file of the process was made, to about 1 in 10000.  The two readings give
	 * a better one if they are far apart. */
	uint64_t ticks_per_second;
	struct baton_trace_reading first; /* when the file was made */
	/* Renewed while operations end, at most ten times a second, and at the end; read while it is being written
	 * its numbers may be of two moments, if `latest_number` is odd or changes meanwhile. */
	struct baton_trace_reading latest;
	uint64_t latest_number;
	uint64_t ended; /* CLOSED: the stamp of the communicator's end */

	/* ---- how it is ---- */
	int32_t status;      /* enum baton_status: what the communicator was broken by, or BATON_OK (0) */
	uint32_t reserved;   /* 0 */
	uint64_t broken;     /* the stamp of that; 0: it was not */
	char why[480];       /* the sentence of baton_comm_error; "": it was not */

	/* ---- tables ---- */
	struct baton_trace_table kinds, paths, modules, rounds, counters, operations;
	/* Entries that are filled in: those behind have no meaning yet. */
	uint32_t paths_known, modules_known;
	/* Calls of modules that did not fit into the table: their operations have module 0. */
	uint64_t modules_missed;
	/* Rounds so far.  Of more than `count` the last entry is the latest one. */
	uint64_t rounds_known;
	/* Counters that did not fit: they are counted in the last entry, whose `used` is 2. */
	uint64_t counters_missed;

	/* In a cache line of its own, since enqueuing threads add to it. */
	uint64_t reserved_more; /* 0 */
	/* Serials given out: 1 to this.  A few of them may not be used (yet), so this is about the number of
	 * operations: the library takes several at once. */
	uint64_t serials;
	/* What a thread has called while another one drives, until that one has seen it: then the ring has it. An
	 * entry of serial 0 is free.  An entry whose serial the ring has, too, is of a function that has not ended (then
	 * only `ran` means something), or of a group or launch that its thread has just handed over. */
	struct baton_trace_table handed;
	uint64_t reserved_line[5];
};

/* Entry k is kind k: BATON_OPERATION_* of baton.h, and, with higher numbers, what programs have no requests
 * of. */
struct baton_trace_kind {
	char name[24];       /* "send", "wait_signal"; "": there is none */
	uint32_t direction;  /* enum baton_trace_direction */
	uint32_t role;       /* enum baton_trace_role */
};

enum baton_trace_direction {
	BATON_TRACE_NONE = 0, /* it names no peer */
	BATON_TRACE_OUT = 1,  /* send, signal, put, get, atomic */
	BATON_TRACE_IN = 2    /* recv, wait_signal */
};

/* What its time is, in a summary of a stream. */
enum baton_trace_role {
	BATON_TRACE_TRANSFER = 0, /* it moves or awaits something */
	BATON_TRACE_POINT = 1,    /* a record: it takes no time */
	BATON_TRACE_FUNCTION = 2, /* baton_stream_launch: from armed to completed the stream computes */
	BATON_TRACE_JOIN = 3,     /* baton_stream_wait: from armed to completed its stream waits */
	BATON_TRACE_PARENT = 4,   /* a group, or a launch of a plan: it is on no stream (`parent`) */
	/* A message that a probe has found, from then until its receive is issued, or it is discarded (a status
	 * that is not OK): it is on no stream.  It is the match of a receive from then on. */
	BATON_TRACE_CLAIM = 5
};

struct baton_trace_path {
	char name[64]; /* "the MPI transport" */
};

struct baton_trace_module {
	uint64_t base;           /* what its addresses are counted from: an offset is what addr2line takes */
	uint64_t begin, end;     /* where its code was mapped */
	uint32_t build_id_bytes; /* 0: it has none */
	uint32_t reserved;       /* 0 */
	uint8_t build_id[32];
	char path[256];          /* cut at its end */
};

/* Something that all ranks of the communicator have done together: none has left it before all had
 * entered.  So for two ranks i and j, with E and L the stamps of the same round in the clock of each, the
 * clock of i is ahead of that of j by no more than L(i) - E(j), and by no less than E(i) - L(j).  Several
 * rounds narrow that down.  Ranks with the same boot_id and clock need none: their clocks are one. */
struct baton_trace_round {
	uint64_t number;       /* from 1 on; the same on all ranks of the communicator */
	uint64_t enter, leave; /* stamps; leave 0: not yet */
	uint64_t reserved;     /* 0 */
};

/* How many there were of one kind with one peer and tag, or signal.  Nothing is ever taken away.  Those that
 * wait, anywhere between call and end: called - moved - completed - failed. */
struct baton_trace_counter {
	int32_t peer;    /* -1: a receive from any rank; a wait or flush of several; a barrier */
	int32_t tag;     /* of messages; of the others the signal's index, or -1: none, or several */
	int16_t context; /* of signals and puts; -1: it has none */
	uint8_t kind;    /* entry of the table of kinds */
	uint8_t used;    /* 0: the entry is free; 1; 2: it counts what did not fit, with peer and tag -2 */
	uint32_t reserved; /* 0 */
	/* A message that a probe has found counts as a receive when it is found, and its receive does not. */
	uint64_t called;
	uint64_t completed; /* in BATON_OK */
	uint64_t failed;    /* in any other status */
	/* Of receives from any rank: they have met a message, and are counted as called, once
	 * more, with the rank that it is of. */
	uint64_t moved;
	uint64_t bytes;  /* of those that have ended: sent or received */
	/* Of those that were called: signals that they add, or that they await (of wait_signal, each takes
	 * that many; of wait_signal_count, the highest value). */
	uint64_t signals;
};

/* baton_trace_operation.state, as in baton.h enum baton_request_state. */
/* baton_trace_operation.flags */
#define BATON_TRACE_DETACHED 1u
#define BATON_TRACE_STREAM_ISSUED 2u /* it was put on its stream at the call: armed is later than issued */
#define BATON_TRACE_GROUPED 4u       /* of a group */
#define BATON_TRACE_PLANNED 8u       /* of a launch of a plan: user_data and call site are the launch's */
#define BATON_TRACE_TENSORS 16u      /* a message that is a list of tensors */
/* It was issued within its call.  What ends within a call, whichever operation it is, and has moved less than 4096
 * bytes, has the stamp of that call's beginning as `completed`. */
#define BATON_TRACE_DIRECT 32u
/* The operations with the serials after this one, as far as `parent` is this serial and TERM is set, say what
 * this one awaits beside. */
#define BATON_TRACE_TERMS 64u
#define BATON_TRACE_TERMS_CUT 128u /* and there are more than those */
/* No operation: one of several counters that the operation `parent` awaits.  It has serial, parent, peer,
 * signal, context and signals. */
#define BATON_TRACE_TERM 256u
#define BATON_TRACE_LENT 512u /* it has ended, and what carried it kept its buffer */
/* A receive from any rank: `peer` is the one whose message it has met. */
#define BATON_TRACE_ANY_SOURCE 1024u
/* A receive of a message that a probe has found: `signals` is the serial of that message. */
#define BATON_TRACE_FOUND 2048u
/* A baton_stream_wait: `signals` is the serial of the operation whose end it waits for, and `user_data` the `index` of
 * that one's communicator in this process. */
#define BATON_TRACE_JOINED 4096u

/* An operation.  Its slot is that of its serial: (serial - 1) % count.  A slot belongs to the operation whose
 * serial it has: the library writes what is new about an operation only while its slot has its serial.
 *
 * A reader of a live file loads `serial` (acquire), then the rest, then `serial` again; another one then: the
 * slot was given to a later operation meanwhile.  Serial 0: it was never used, or is being given. */
struct baton_trace_operation {
	uint64_t serial;
	/* Stamps; 0: it has not got there (or went from one to the next but one). */
	uint64_t enqueued;  /* the call */
	uint64_t armed;     /* its stream had come to it */
	uint64_t issued;    /* the path had it */
	uint64_t completed; /* its request was complete */
	uint64_t done_bytes; /* completed: sent or received */
	uint8_t state;       /* enum baton_request_state */
	uint8_t kind;        /* entry of the table of kinds */
	uint8_t path;        /* entry of the table of paths; 255: it needs none */
	int8_t status;       /* enum baton_status; BATON_PENDING (1): it has not ended */
	uint16_t flags;      /* BATON_TRACE_* */
	uint16_t module;     /* entry of the table of modules, plus 1; 0: not known */
	uint64_t bytes;      /* to send; the room of a receive */

	uint64_t stream;     /* the handle of its stream; 0: the default one, or it is on none */
	uint64_t offset;     /* of the call in its module: where it returns to; without a module its address */
	uint64_t user_data;  /* of the options; JOINED: an index */
	uint64_t parent;     /* the serial of its group or of the launch of a plan; 0: none */
	uint64_t signals;    /* signals that it adds or awaits; 0: none.  FOUND, JOINED: a serial */
	int32_t peer;        /* -1: of several, or none, or a receive from any rank that has met no message */
	int32_t tag;         /* of messages; -1: it has none */
	int32_t signal;      /* the signal's index; -1: it has none, or several */
	int32_t context;     /* of signals and puts; -1: it has none */
	/* In `handed`, of a function: when its stream came to it, so when it was armed; 0: not yet.  In the ring 0. */
	uint64_t ran;
};

#endif
