/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of the engine share: one communicator over a scripted transport,
 * two streams, and a clock that stands still; and a gate, which holds the thread
 * that drives in a slot of the transport, with the driver's lock, until the test
 * lets it go.
 */
#ifndef SCRIPTED_WORLD_H
#define SCRIPTED_WORLD_H

#include "scripted_transport.h"

extern struct scripted transport;
extern struct baton_comm *comm; /* progress by calls alone, 16 requests */
extern baton_stream s, t;       /* a test that destroys one sets it to NULL */
extern uint64_t now;

/* Before and after each test; after it nothing may be left. */
void world_setup(void);
void world_teardown(void);

struct baton_op_options within(int64_t timeout_ns);
struct baton_op_options detached(void);

/* Let the transfer in flight end, and make a pass. */
void end_recv(int tag, enum baton_status status);
void end_send(int tag, enum baton_status status);
void assert_log(const char *log);
void assert_streams(enum baton_status of_s, enum baton_status of_t);
/* Nothing is held any more, on streams or in the pool. */
void assert_all_free(void);

struct gate {
	sem_t entered, go;
	atomic_bool closed; /* the next one that comes stops here */
};

extern struct gate gate;

/* A hook of the transport: stop at the gate if it is closed, and open it. */
void stop_at_gate(struct scripted *scripted, struct batoni_transfer *transfer);
/* A thread that makes one pass over the communicator and stops at the gate in the
 * middle of it.  Something must be in flight, and stop_at_gate its hook. */
pthread_t drive_into_gate(struct baton_comm *driven);
/* Let it go on, and wait for its end. */
void open_gate(pthread_t thread);

pthread_t thread_of(void *(*fn)(void *), void *arg);
/* Thread functions: one pass over a communicator; wait for a request's end. */
void *one_pass(void *arg);
void *wait_for(void *arg);
/* That thread has seen it end in OK. */
void assert_waited(pthread_t thread, baton_request *request);

#endif
