/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parts of `baton trace` share: the operations of all ranks, in memory.
 *
 * read.c reads the files (baton_trace.h has their format) and trusts none of their bytes.
 * match.c puts all on one clock and joins the two sides of each message.  The others only
 * look: summary.c, perfetto.c, svg.c, and hang.c.
 */
#ifndef BATON_TOOL_TRACE_H
#define BATON_TOOL_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include <baton_trace.h>

/* Kinds beside those of enum baton_operation: by their role. */
enum { TRACE_FUNCTION = 64, TRACE_JOIN, TRACE_CLAIM, TRACE_OTHER };

/* Stamps are nanoseconds since the first one of the trace, on one clock (clock.c; before that
 * they are as in the file). */
#define TRACE_NEVER INT64_MAX

/* What counters are of: one side of what goes from one rank to another. */
enum trace_side {
	TRACE_SEND,
	TRACE_RECV,
	TRACE_SIGNAL, /* units of signals, with puts or without */
	TRACE_WAIT,   /* units that waits took */
	TRACE_BARRIER,
	TRACE_NO_SIDE
};

/* One of the counters that a wait waits for. */
struct trace_term {
	int peer, tag, context;
	uint64_t units;
	uint64_t number; /* of signals that are to have come, over all; 0: not known */
	struct trace_op *match; /* the signal that it ended with */
};

struct trace_op {
	const struct trace_rank *of;
	int kind;    /* enum baton_operation, TRACE_* */
	int status;  /* enum baton_status; BATON_PENDING: it has not ended */
	int peer;    /* -1: several, none, or any, of which no message came */
	int tag;     /* of a message, or the index of a signal; -1 */
	int context; /* of a signal or put; -1 */
	unsigned flags;  /* BATON_TRACE_* */
	unsigned path;   /* what carried it: trace_path */
	uint64_t bytes;  /* moved, or to be moved */
	uint64_t units;  /* of a signal; of a receive of a claim 0; of others 1 */
	uint64_t serial;
	uint64_t order;  /* of the calls of its rank, from 1 */
	/* The how-many-th of its queue, from 1; of a signal its last unit.  0: not known, or it has left. */
	uint64_t number;
	uint64_t stream, parent; /* parent: the serial of its group or launch; 0 */
	size_t row;     /* index of trace->rows; SIZE_MAX: it is on no stream */
	int64_t enqueued, armed, issued, ended; /* TRACE_NEVER: it did not come so far */
	/* The other side of a message; of a wait the signal that completed its units; of a barrier that of the rank that
	 * came last, if all came; or NULL. */
	struct trace_op *match;
	/* Of a receive of a message that a probe has found: that claim.  Of a claim: its latest receive.  Or NULL. */
	struct trace_op *found;
	uint64_t found_serial; /* the claim's; 0 */
	/* Of a baton_stream_wait: the serial of what it waits for, 0: not known, and the index of that one's communicator. */
	uint64_t joined_serial, joined_index;
	struct trace_term *terms; /* of a wait for signals */
	size_t terms_count;
	bool fresh;    /* the engine has not seen it, so no counter counts it */
	unsigned lane; /* lanes.c */
	size_t drawn;  /* scratch of those that draw */
	char site[80]; /* the call: "program+0x1234", or "" */
};

/* A counter: how many there were over the whole life of the communicator. */
struct trace_queue {
	enum trace_side side;
	int peer; /* -1: receives from any rank that have met no message; barriers */
	int tag;  /* index of a signal */
	int context;
	uint64_t called;  /* of signals: units */
	uint64_t ended;   /* in OK */
	uint64_t pending; /* operations; so below */
	uint64_t failed;  /* of those that the ring has lost, once numbers.c is through */
	bool counted;     /* the file has the counter; else it is made of the operations */
	bool unknown; /* numbers of its operations are not known */
	uint64_t numbered; /* scratch of match.c */
};

enum trace_life {
	TRACE_RUNS,
	TRACE_GONE,      /* without having destroyed the communicator */
	TRACE_DESTROYED, /* it has destroyed the communicator */
	TRACE_ELSEWHERE  /* not known: it is of another node, or of before this one was booted */
};

/* One file: a rank of a communicator. */
struct trace_rank {
	char file[256];
	struct baton_trace_header header; /* its texts are printable, and have an end */
	size_t run;  /* which one of those in the folder */
	size_t comm; /* index of trace->comms */
	int rank;
	enum trace_life life; /* of its process */
	uint64_t began; /* its communicator, by the wall's clock, in nanoseconds */
	uint64_t lost; /* operations that were overwritten in the ring */
	struct trace_op *ops; /* by order */
	size_t ops_count;
	struct trace_term *terms; /* of all operations */
	struct trace_queue *queues;
	size_t queues_count;
	struct baton_trace_round *rounds;
	size_t rounds_count;
	struct baton_trace_path *paths; /* their names are printable, and have an end; so below */
	size_t paths_count;
	struct baton_trace_module *modules;
	size_t modules_count;
	/* clock.c */
	int64_t offset_ns, error_ns; /* error_ns -1: not known */
	int64_t first, last;         /* stamps */
	int64_t now; /* when the files were read; TRACE_NEVER: its process does not run here */
	/* names.c */
	int comm_number; /* of its communicator */
	/* Its number in the largest communicator of its process, where that has one rank of each; and the number of
	 * that communicator. */
	int name, name_comm;
	int place; /* its number among all, and that of its rows */
};

struct trace_comm {
	uint64_t id;
	int size;
	struct trace_rank **members; /* [size]; NULL: its file is missing */
	int number; /* names.c: from 1; that of the first one, if it has the same ranks */
};

/* A stream of a rank of a process. */
struct trace_row {
	const struct trace_rank *of; /* one of those that use it */
	int place;                   /* number of the rank among all */
	int stream;                  /* number within its rank, in the order of use */
	uint64_t handle;
	int64_t first; /* stamp */
	size_t was;    /* scratch of clock.c */
};

struct trace {
	struct trace_rank *ranks; /* by communicator and rank */
	size_t ranks_count;
	struct trace_comm *comms; /* the largest first */
	size_t comms_count;
	struct trace_row *rows;
	size_t rows_count;
	bool comms_differ;   /* there are communicators of other ranks than the first one */
	size_t places_count; /* ranks: those that have rows, then the others */
	int64_t last;   /* stamp */
	json_t *checks; /* sentences: what is wrong with the files, or to be known of them */
	bool incomplete; /* of a file, or a part of one, nothing is known */
};

/* ---- read.c ---- */

/* Read a file's bytes.  NULL, or why it is no rank's ("is shorter than its header"); then, and in the
 * end, trace_rank_fini frees what there is.  *damaged_p: operations that were left out. */
const char *trace_decode(struct trace_rank *rank, const unsigned char *bytes,
                         size_t size, size_t *damaged_p);
void trace_rank_fini(struct trace_rank *rank);

/* ---- files.c ---- */

/* Read the files of one run in the folder: of the latest, or of the one that has this communicator.  What
 * cannot be read is left out, and `checks` says why.  False: there is nothing, and a sentence was printed. */
bool trace_read(struct trace *trace, const char *folder, uint64_t run);
void trace_free(struct trace *trace);
/* Add a sentence to the checks. */
void trace_check(struct trace *trace, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* To standard error: nothing is left, and the checks say why. */
void trace_print_checks(const struct trace *trace);
/* Memory, zeroed; without any the process ends with a sentence. */
void *trace_alloc(size_t count, size_t size);

/* ---- runs.c ---- */

/* Keep the files of one run, and group them. */
bool trace_choose_run(struct trace *trace, const char *folder, uint64_t run);
/* Are they of one process? */
bool trace_same_process(const struct trace_rank *a, const struct trace_rank *b);

/* ---- clock.c ---- */

void trace_clocks(struct trace *trace);
/* All operations.  The caller frees the array. */
struct trace_op **trace_all(const struct trace *trace, size_t *count_p);
int trace_order(long long a, long long b);

/* ---- names.c ---- */

void trace_names(struct trace *trace);
/* "rank 3"; of a process that is not in the first communicator "rank 0 of communicator 2". */
void trace_name(const struct trace_rank *rank, char *text, size_t size);
/* What a reader has to know of communicators that have other ranks than the first one, sentence by sentence from
 * 0 on.  False: there are no more. */
bool trace_comm_sentence(const struct trace *trace, size_t n, char *text, size_t size);

/* ---- rows.c ---- */

void trace_rows(struct trace *trace);

/* ---- numbers.c ---- */

void trace_number(struct trace_rank *rank);
/* NULL: the rank has none such. */
struct trace_queue *trace_queue(const struct trace_rank *rank,
                                enum trace_side side, int peer, int tag,
                                int context);
/* It has its number in its queue for good: it has a message, or still waits for one. */
bool trace_keeps_place(const struct trace_op *op);

/* ---- match.c ---- */

void trace_match(struct trace *trace);
enum trace_side trace_side(const struct trace_op *op);
/* It moves bytes between ranks, or waits for other ranks. */
bool trace_is_transfer(const struct trace_op *op);
/* When it ended, or the trace. */
int64_t trace_until(const struct trace *trace, const struct trace_op *op);
/* From its arming to its end, and 1 at least, so that it is seen. */
int64_t trace_length(const struct trace *trace, const struct trace_op *op);
/* From when on both sides of a message were there: until then the one that came first waited. */
int64_t trace_moving(const struct trace *trace, const struct trace_op *op);

/* ---- words.c ---- */

/* "send", "recv", ..., "function". */
const char *trace_kind(int kind);
/* "near"; "" where nothing carried it, or it is not known. */
const char *trace_path(const struct trace_op *op);
/* "receive of tag 7 from rank 0"; in one that has other ranks than the first one "... in communicator 2". */
void trace_what(const struct trace_op *op, char *text, size_t size);
/* Without the communicator. */
void trace_what_there(const struct trace_op *op, char *text, size_t size);
/* "12.3 us" */
void trace_time(double ns, char *text, size_t size);

/* ---- what is written ---- */

/* The part of the trace that drawings show. */
struct trace_view {
	int64_t begin, end;
};

/* lanes.c: operations that overlap on a row lie in lanes, one above the other. */
#define TRACE_LANES_MAX 256u

struct trace_lanes {
	struct trace_op **ops; /* that the view shows, by row, lane and begin */
	size_t count;
	unsigned *row_lanes; /* [rows]: how many; 0: the row is not shown */
	size_t rows_left_out; /* of those that have something in the view */
};
/* Of each rank show up to so many rows: the busiest; in each up to so many lanes. */
void trace_lanes_init(struct trace_lanes *lanes, const struct trace *trace,
                      const struct trace_view *view, size_t rows_max,
                      unsigned lanes_max);
void trace_lanes_fini(struct trace_lanes *lanes);

/* False: the file cannot be written, and a sentence was printed. */
bool trace_perfetto(const struct trace *trace, const struct trace_view *view,
                    const char *path);
bool trace_svg(const struct trace *trace, const struct trace_view *view,
               const char *path);
bool trace_html(const struct trace *trace, const struct trace_view *view,
                const json_t *report, const char *path);

/* Members of the report, which are printed as they are, or as text. */
json_t *trace_summary(const struct trace *trace);
void trace_summary_print(const json_t *report, FILE *file);
json_t *trace_hang(const struct trace *trace);
void trace_hang_print(const json_t *report, FILE *file);

#endif
