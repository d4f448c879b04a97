/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel's own header.  What it is for: runtime/contract/side.h.
 *
 *   proof.c      SHA-256 and HMAC
 *   wire.c       the bytes of each header
 *   address.c    which address to listen on; sockets
 *   rendezvous.c the listening side of a creation
 *   connect.c    the connecting side
 *   link.c       frames over a socket that does not block
 *   hub.c        the thread that relays
 *   tcp.c        the transport of one rank (rank.h)
 *   message.c    its small messages
 *   bootstrap.c  the bootstrap that it is, and the world of RANK and WORLD_SIZE
 *   opening.c    opening the transport over the bootstrap
 *
 * Topology: a star.  Each rank has one connection, to the *hub*: a thread in the listening
 * process, whose own ranks have a socket pair to it.  Reasons:
 *   - the address in an id, or MASTER_ADDR, is the only one that is known to be reachable; a
 *     mesh needs a listener, an address and a proof for each rank;
 *   - an exchange is one frame in and one out for each rank, and needs no tree: it carries a
 *     few KiB, some times in the life of a communicator;
 *   - every death is seen, by the hub, and told to all with the rank's number, whether
 *     or not the others talk to that rank.  In a mesh on demand a rank sees only the deaths
 *     of those that it is connected with;
 *   - a thread, not the driver, relays: what rank 1 and rank 2 tell each other must not
 *     wait until the process of rank 0 is inside Baton.  The thread sleeps in epoll_wait,
 *     and costs nothing while nothing comes.
 * The price: a message between ranks makes two hops, and the death of the hub's process is
 * that of the channel; but any death breaks the communicator.
 *
 * Threads.  A transport belongs to the driver, as all do; its socket does not block.  A hub
 * belongs to its thread, from its start to its end.  A rendezvous belongs to the thread that attends;
 * only its eventfd is written by others.  The table of listeners has a lock (address.c), under
 * which nothing else is taken.  So there is no lock order to keep.
 *
 * Bounds.  The length of a frame is bounded, by its kind (PART_MAX, MESSAGE_MAX).  A rank posts its
 * receives at the sender (READY), which sends a message only to one that is posted; so no rank
 * keeps messages that it has not asked for.  A receive from any rank is posted at all; what comes
 * beside the first message is kept, one of each rank.  A rank keeps at most `slots` READYs of
 * each peer.
 * The hub stops to read from a rank while more than RELAY_MAX bytes that came from it are not
 * written.
 *
 * The secret proves that the process that connects is of the job.  What follows is neither encrypted nor signed: as with NCCL's
 * and MPI's own traffic, the network has to be one that can be trusted.
 */
#ifndef BATONI_TCP_H
#define BATONI_TCP_H

#include <sys/socket.h>

#include "list.h"
#include "side.h"
#include "transport.h"

/* ---- proof.c ---- */

#define BATONI_TCP_PROOF_BYTES 32

/* HMAC-SHA-256. */
void batoni_tcp_hmac(const void *key, size_t key_bytes, const void *text,
                     size_t bytes, unsigned char proof[BATONI_TCP_PROOF_BYTES]);
/* In a time that does not depend on where they differ. */
bool batoni_tcp_same(const unsigned char *a, const unsigned char *b, size_t bytes);

/* ---- wire.c: all numbers little-endian ---- */

/* Of everything that is sent; others are refused. */
#define BATONI_TCP_VERSION 7u

#define BATONI_TCP_HELLO_BYTES 56
#define BATONI_TCP_REPLY_BYTES 64
#define BATONI_TCP_VERDICT_BYTES 256
#define BATONI_TCP_HEAD_BYTES 48

/* What the process that connects sends first. */
struct batoni_tcp_hello {
	uint32_t version, rank, size;
	unsigned char nonce[BATONI_SIDE_NONCE_BYTES];
	unsigned char challenge[16];
};

/* What it gets. */
enum batoni_tcp_answer {
	BATONI_TCP_PROVE,         /* the listener's proof and challenge are there */
	BATONI_TCP_OTHER_VERSION,
	BATONI_TCP_OTHER_ID,
	BATONI_TCP_ANSWERS
};

struct batoni_tcp_reply {
	uint32_t version, answer;
	unsigned char challenge[16];
	unsigned char proof[BATONI_TCP_PROOF_BYTES];
};

/* Then it sends its own proof, and gets verdicts: ADMITTED, when its proof is good, and GO,
 * when all have come; or REFUSED. */
enum batoni_tcp_word {
	BATONI_TCP_ADMITTED = 1,
	BATONI_TCP_GO,
	BATONI_TCP_REFUSED
};

struct batoni_tcp_verdict {
	uint32_t word;
	int32_t status; /* REFUSED: a baton_status; GO: the home rank */
	char why[BATONI_SIDE_WHY_BYTES];
};

void batoni_tcp_hello_encode(const struct batoni_tcp_hello *hello,
                             unsigned char bytes[BATONI_TCP_HELLO_BYTES]);
/* False: it is none. */
bool batoni_tcp_hello_decode(const unsigned char bytes[BATONI_TCP_HELLO_BYTES],
                             struct batoni_tcp_hello *hello);
void batoni_tcp_reply_encode(const struct batoni_tcp_reply *reply,
                             unsigned char bytes[BATONI_TCP_REPLY_BYTES]);
bool batoni_tcp_reply_decode(const unsigned char bytes[BATONI_TCP_REPLY_BYTES],
                             struct batoni_tcp_reply *reply);
void batoni_tcp_verdict_encode(const struct batoni_tcp_verdict *verdict,
                               unsigned char bytes[BATONI_TCP_VERDICT_BYTES]);
bool batoni_tcp_verdict_decode(
	const unsigned char bytes[BATONI_TCP_VERDICT_BYTES],
	struct batoni_tcp_verdict *verdict);

/* What both sides prove: the listener with 'L', the process that connects with 'C'. */
void batoni_tcp_prove(const struct batoni_side_key *key, char side,
                      const struct batoni_tcp_hello *hello,
                      const unsigned char challenge[16],
                      unsigned char proof[BATONI_TCP_PROOF_BYTES]);

/* After GO: frames, each a head and `length` bytes. */
enum batoni_tcp_kind {
	BATONI_TCP_PART = 1,  /* to the hub: this rank's part of an exchange (what, bytes); status:
	                       * it has memory for the whole */
	BATONI_TCP_ALL,       /* from the hub: status, and if OK all parts */
	BATONI_TCP_READY,     /* a receive is posted in `slot`: tag, bytes it takes */
	BATONI_TCP_DATA,      /* for that slot: the message; bytes: its whole length */
	BATONI_TCP_RETRACT,   /* take the READY of this slot back */
	BATONI_TCP_RETRACTED, /* it was taken back; no answer: DATA is on its way */
	BATONI_TCP_BYE,       /* to the hub: this rank has left, and closes */
	BATONI_TCP_ABORT,     /* to the hub: it closes after an abort; what: the rank that it has seen
	                       * to be gone before, plus one, or 0 */
	BATONI_TCP_LEFT,      /* from the hub: rank `from` has said BYE */
	BATONI_TCP_GONE,      /* from the hub: it is gone, status: enum batoni_tcp_gone; what: as of
	                       * its ABORT */
	BATONI_TCP_KINDS
};

enum batoni_tcp_gone {
	BATONI_TCP_CLOSED = 1, /* its process has ended, or closed the connection */
	BATONI_TCP_ABORTED,
	BATONI_TCP_BROKE_RULES,
	BATONI_TCP_NO_MEMORY,  /* of the hub, for this rank */
	BATONI_TCP_LOST        /* the network reports an error */
};

#define BATONI_TCP_MESSAGE_MAX 4096u
#define BATONI_TCP_PART_MAX 65536u
/* The `what` of a leave; those of exchanges are below. */
#define BATONI_TCP_WHAT_LEAVE ((uint64_t)1 << 63)

struct batoni_tcp_frame {
	uint32_t kind, from, to, tag, slot, status, length;
	uint64_t what, bytes;
};

void batoni_tcp_frame_encode(const struct batoni_tcp_frame *frame,
                             unsigned char bytes[BATONI_TCP_HEAD_BYTES]);
/* False: it is none, or one of its numbers is beyond what a communicator of `size` ranks
 * has.  ALL may be as long as the parts of all ranks. */
bool batoni_tcp_frame_decode(const unsigned char bytes[BATONI_TCP_HEAD_BYTES],
                             int size, struct batoni_tcp_frame *frame);

/* ---- address.c ---- */

/* Room for "[address]:port". */
#define BATONI_TCP_TEXT_BYTES 64

void batoni_tcp_address_from(const struct sockaddr *from,
                             struct batoni_side_address *address);
void batoni_tcp_address_text(const struct batoni_side_address *address, char *text,
                             size_t size);
/* The address of this node that others are given: of the interface, or the address, that
 * BATON_INTERFACE names, or the best.  0, or an errno code. */
int batoni_tcp_address_choose(struct batoni_side_address *address_p);
/* After a listen that failed.  OK: BATON_INTERFACE is not the reason; INVALID: it names what this
 * node has not, and batoni_refuse has said so, and what there is. */
enum baton_status batoni_tcp_check_interface(const char *call);
/* family 0: of every interface.  Port 0: any; *address is filled in.  *fd_p, or an errno
 * code. */
int batoni_tcp_listen_on(struct batoni_side_address *address, int *fd_p);
/* Begin to connect; the socket does not block.  0, or an errno code. */
int batoni_tcp_connect_to(const struct batoni_side_address *address, int *fd_p);
/* Of a connection of the side channel: no delay, keepalive. */
void batoni_tcp_tune(int fd);
/* The addresses of a host's name; blocks (getaddrinfo).  Returns how many. */
int batoni_tcp_resolve(const char *host, uint16_t port,
                       struct batoni_side_address addresses[], int most,
                       const char **why_p);
/* False: the kernel gives none (errno). */
bool batoni_tcp_random(void *bytes, size_t n);

/* ---- rendezvous.c ---- */

enum baton_status batoni_tcp_listen(struct batoni_side_key *key, int *error_p);
void batoni_tcp_unlisten(const struct batoni_side_key *key);
enum baton_status batoni_tcp_open(const struct batoni_side_key *key, int size,
                                  struct batoni_rendezvous **rendezvous_p);
/* The rendezvous of a listener that is in no table; owns it. */
enum baton_status batoni_tcp_open_on(int listener, const struct batoni_side_key *key,
                                     int size, struct batoni_rendezvous **rendezvous_p);
void batoni_tcp_attend(struct batoni_rendezvous *rendezvous, uint64_t until_ns);
void batoni_tcp_ring(struct batoni_rendezvous *rendezvous);
enum baton_status batoni_tcp_admit(struct batoni_rendezvous *rendezvous, bool here[], int *n_p,
                                   char why[BATONI_SIDE_WHY_BYTES]);
enum baton_status batoni_tcp_link_all(struct batoni_rendezvous *rendezvous, int home,
                                      struct batoni_side_link links[]);
void batoni_tcp_describe(const struct batoni_rendezvous *rendezvous, char *text, size_t size);
void batoni_tcp_close(struct batoni_rendezvous *rendezvous, enum baton_status status,
                      const char *why);
/* For tests: how long one that applicants may take to prove itself; 0: the default. */
void batoni_tcp_applicant_ns(uint64_t ns);

/* ---- connect.c ---- */

enum baton_status batoni_tcp_connect(const struct batoni_side_key *key, int size, int rank,
                                     int64_t timeout_ns,
                                     struct batoni_side_link *link_p);
/* The same with one of several addresses.  again: a listener that is not there yet may
 * come. */
enum baton_status
batoni_tcp_connect_at(const struct batoni_side_key *key,
                      const struct batoni_side_address addresses[], int n, int size,
                      int rank, int64_t timeout_ns, bool again,
                      struct batoni_side_link *link_p);

/* How long a creation waits for the other ranks if the options do not say. */
#define BATONI_TCP_PATIENCE_NS (INT64_C(300) * 1000000000)

/* ---- link.c ---- */

struct batoni_tcp_link;

struct batoni_tcp_link_ops {
	/* The head of a frame has come: where its `length` bytes go (not asked if it is
	 * 0).  NULL: the link is to be given up (link->error). */
	unsigned char *(*room)(struct batoni_tcp_link *link,
	                       const struct batoni_tcp_frame *frame);
	/* The whole has come. */
	void (*arrived)(struct batoni_tcp_link *link,
	                const struct batoni_tcp_frame *frame);
	/* A frame that was queued is written, or dropped with the link. */
	void (*written)(struct batoni_tcp_link *link, void *tag, size_t bytes);
};

struct batoni_tcp_link {
	const struct batoni_tcp_link_ops *ops;
	int fd;   /* -1: closed */
	int size; /* ranks of the communicator */
	unsigned char head[BATONI_TCP_HEAD_BYTES];
	size_t head_got, body_got;
	struct batoni_tcp_frame frame;
	unsigned char *body;
	struct batoni_list_node out;
	/* Why it can go on no longer; 0: it is sound. */
	enum batoni_tcp_gone error;
	int code; /* LOST: an errno code */
};

void batoni_tcp_link_init(struct batoni_tcp_link *link, int fd, int size,
                          const struct batoni_tcp_link_ops *ops);
/* Queue a frame.  `bytes` are copied; or, if `keep`, stay where they are until `written`.
 * False: no memory. */
bool batoni_tcp_link_queue(struct batoni_tcp_link *link,
                           const struct batoni_tcp_frame *frame,
                           const void *bytes, bool keep, void *tag);
/* Read what is there, up to some frames.  Returns how many came. */
size_t batoni_tcp_link_read(struct batoni_tcp_link *link);
/* Write what goes.  True: nothing is left. */
bool batoni_tcp_link_write(struct batoni_tcp_link *link);
/* Drop what is queued, and close. */
void batoni_tcp_link_fini(struct batoni_tcp_link *link);

/* ---- hub.c ---- */

/* Start the thread that relays between these, fds[rank], which it takes over if it returns OK.
 * local[rank]: the rank is of this process; the others are told to GO.  OK; NOMEM, SYSTEM:
 * no rank was told. */
enum baton_status batoni_tcp_hub_start(int size, int home, const int fds[],
                                       const bool local[]);
/* For tests: how many hubs run. */
int batoni_tcp_hubs(void);

/* ---- tcp.c ---- */

struct batoni_tcp;

/* Takes the link over in any case.  OK, NOMEM. */
enum baton_status batoni_tcp_new(int rank, int size,
                                 const struct batoni_side_link *link,
                                 struct batoni_tcp **tcp_p);
/* Memory for transfers, and the segment.  OK; NOMEM, SYSTEM, with a sentence. */
enum baton_status batoni_tcp_alloc(struct batoni_tcp *tcp,
                                   const struct batoni_transport_config *config);
struct batoni_transport *batoni_tcp_transport(struct batoni_tcp *tcp);

#endif
