/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicators of the job: what a program gets here, who makes progress, and the side channel.
 *
 * A refusal is told to all ranks, so each collective creation is made by all or fails on all; what
 * is tried on a communicator is tried where there is one.
 */
#include "doctor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <baton.h>

#include "cuda.h"

#define PATIENCE_NS INT64_C(10000000000)
#define PATIENCE_MS 10000

/* ---- what the environment asks for ---- */

static void
check_refused(json_t *findings, const struct baton_variable_info *info)
{
	char mend[256];

	if (info->source != BATON_VARIABLE_REFUSED)
		return;
	snprintf(mend, sizeof(mend), "unset %s, or give it what it takes: %s",
	         info->name, info->values);
	doctor_find(findings, "environment", SLOW,
	            "what was asked for does not happen", mend,
	            "the value of %s is not allowed, and is ignored", info->name);
}

/* Baton looks at its length where ranks without MPI meet.  Its values are "16 to 4095 characters". */
static void
check_secret(json_t *findings, const struct baton_variable_info *info)
{
	const char *secret = getenv(info->name);
	size_t least = 0, most = 0;
	char mend[256];

	if (!secret || !*secret ||
	    sscanf(info->values, "%zu to %zu", &least, &most) != 2 ||
	    (strlen(secret) >= least && strlen(secret) <= most))
		return;
	snprintf(mend, sizeof(mend), "give %s what it takes: %s", info->name,
	         info->values);
	doctor_find(findings, "environment", SLOW, "jobs without MPI do not come up",
	            mend, "%s has %zu characters, and is refused", info->name,
	            strlen(secret));
}

/* Check the folder of BATON_TRACE as a communicator does. */
static void
check_trace(json_t *findings, const struct baton_variable_info *info)
{
	char within[4200];

	snprintf(within, sizeof(within), "%s/.", info->value);
	if (access(within, W_OK | X_OK) != 0)
		doctor_find(findings, "environment", SLOW,
		            "the ranks keep no trace",
		            "a directory that is there and writable, best in "
		            "/dev/shm",
		            "%s is %s: %s", info->name, info->value,
		            strerror(errno));
}

static void
check_variables(json_t *findings)
{
	struct baton_variable_info info = {.size = sizeof(info)};

	for (size_t i = 0; baton_variable(i, &info) == BATON_OK; i++) {
		check_refused(findings, &info);
		if (info.source != BATON_VARIABLE_ENVIRONMENT)
			continue;
		if (strcmp(info.name, "BATON_SECRET") == 0)
			check_secret(findings, &info);
		if (strcmp(info.name, "BATON_TRACE") == 0)
			check_trace(findings, &info);
	}
}

static void
check_communicator(json_t *findings, struct job *job)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	if (!job->comm) {
		doctor_find(findings, "communicator", BROKEN,
		            "programs that take the device and transport of the "
		            "environment do not start",
		            "what the sentence says; baton info shows what was "
		            "found",
		            "refused: %s", job->why_not);
		return;
	}
	baton_comm_query(job->comm, &info);
	doctor_find(findings, "communicator", GOOD, "", "",
	            "%d rank%s on %s over %s (%s)", info.ranks,
	            info.ranks == 1 ? "" : "s", info.device_name,
	            info.transport_name, info.library);
	if (strstr(info.why_not_near, "BATON_MESSAGE_PATH=mpi"))
		doctor_find(findings, "messages on one node", SLOW,
		            "they take MPI's way, and ranks that wait spin",
		            "unset BATON_MESSAGE_PATH", "not by shared memory: %s",
		            info.why_not_near);
}

/* ---- MPI ---- */

static void
check_mpi(json_t *findings, const struct baton_comm_info *info)
{
	struct baton_library_info mpi;

	if (!tool_find_library("MPI", &mpi))
		return;
	if (*mpi.why_not)
		doctor_find(findings, "MPI", *mpi.built ? BROKEN : GOOD,
		            "communicators over MPI are refused",
		            "what the sentence says", "%s", mpi.why_not);
	else if (info->transport != BATON_TRANSPORT_MPI)
		doctor_find(findings, "MPI", GOOD, "", "",
		            "%s; not started here (mpirun -np 2 baton doctor tries "
		            "it)",
		            mpi.version);
	else if (info->engine_thread)
		doctor_find(findings, "MPI", GOOD, "", "", "%s", info->library);
	else
		doctor_find(findings, "MPI", SLOW,
		            "nothing moves while the program computes",
		            "an MPI that gives MPI_THREAD_MULTIPLE (MPICH and Open "
		            "MPI of Debian do)",
		            "%s: the engine's thread may not call it",
		            info->library);
}

/* ---- progress ---- */

/* Sleep on the queue until the receive has ended; no call of Baton makes progress meanwhile, but the poll that
 * takes the completion.  False: it has not come in time. */
static bool
sleep_for_message(struct baton_queue *queue, struct baton_completion *done)
{
	struct pollfd ready = {.fd = baton_queue_fd(queue), .events = POLLIN};

	while (baton_queue_poll(queue, done, 1) == 0) {
		enum baton_status armed = baton_queue_arm(queue);

		if (armed == BATON_PENDING)
			continue;
		if (armed != BATON_OK || poll(&ready, 1, PATIENCE_MS) != 1)
			return false;
	}
	return done->status == BATON_OK;
}

/* A message around the ring of the ranks: from the one before, to the next. */
static bool
ring(struct baton_comm *comm, struct baton_queue *queue, int rank, int size)
{
	struct baton_op_options taken = BATON_OP_OPTIONS_INIT;
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	struct baton_completion done = {0};
	baton_request sent = BATON_REQUEST_NULL, received;
	int from = (rank + size - 1) % size, number = -1;
	bool came;

	taken.queue = queue;
	taken.timeout_ns = detached.timeout_ns = PATIENCE_NS;
	taken.flags = detached.flags = BATON_OP_DETACHED;
	if (baton_recv(&number, 1, BATON_INT32, from, 1, comm, NULL, &taken,
	               &received) != BATON_OK)
		return false;
	if (baton_send(&rank, 1, BATON_INT32, (rank + 1) % size, 1, comm, NULL,
	               &detached, &sent) != BATON_OK)
		return false;
	came = sleep_for_message(queue, &done) && number == from;
	baton_finish(&sent, PATIENCE_NS, NULL);
	return came;
}

static void
check_progress(json_t *findings, struct baton_comm *comm,
               const struct baton_comm_info *info)
{
	int rank = info->rank, size = info->ranks;
	unsigned paths = baton_message_path(comm, (rank + size - 1) % size);
	const char *path = paths == BATON_MESSAGE_PATH_NEAR ? "shared memory"
	                                                    : info->transport_name;
	struct baton_queue *queue = NULL;
	bool came = baton_queue_create(comm, 4, &queue) == BATON_OK &&
	            ring(comm, queue, rank, size);

	if (!came)
		doctor_find(findings, "progress", BROKEN,
		            "programs that sleep until a message comes hang",
		            "BATON_LOG=debug and baton_comm_dump tell what it waits "
		            "for",
		            "a message over %s did not come while the thread slept",
		            path);
	else if (!info->engine_thread)
		doctor_find(findings, "progress", SLOW,
		            "transfers stand still while the program computes",
		            "an MPI that gives MPI_THREAD_MULTIPLE",
		            "a message over %s comes when the program calls Baton",
		            path);
	else
		doctor_find(findings, "progress", GOOD, "", "",
		            "a message over %s came while the thread slept", path);
	baton_queue_destroy(queue);
}

/* ---- the side channel: TCP, by which processes without MPI find each other ---- */

/* What rank 0 has made for all to meet by. */
struct meeting {
	struct baton_unique_id id;
	char refused[512]; /* why it has made none; "" */
};

static void
keep_reason(char *text, size_t size, enum baton_status status)
{
	snprintf(text, size, "%s",
	         *baton_last_error() ? baton_last_error()
	                             : baton_status_text(status));
}

/* All ranks meet by an id.  Ranks of several nodes have met when they are told that they share no
 * memory.  Why they have not met, or "". */
static void
try_side_channel(struct job *job, char *why, size_t size)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct meeting meeting = {0};
	struct baton_comm *comm = NULL;
	enum baton_status status = BATON_OK;

	*why = '\0';
	options.device = BATON_DEVICE_HOST;
	options.timeout_ns = PATIENCE_NS;
	if (job->rank == 0)
		status = baton_unique_id_create(&meeting.id);
	if (status != BATON_OK)
		keep_reason(meeting.refused, sizeof(meeting.refused), status);
	if (!job_share(job, &meeting, sizeof(meeting))) {
		snprintf(why, size, "%s", job->why_alone);
		return;
	}
	if (*meeting.refused) {
		snprintf(why, size, "%s", meeting.refused);
		return;
	}
	status = baton_comm_create_id(job->size, job->rank, &meeting.id, &options,
	                              &comm);
	if (status != BATON_OK && status != BATON_ERR_UNSUPPORTED)
		keep_reason(why, size, status);
	baton_comm_destroy(comm);
}

static void
check_side_channel(json_t *findings, struct job *job)
{
	char why[512];

	try_side_channel(job, why, sizeof(why));
	if (!*why)
		doctor_find(findings, "side channel", GOOD, "", "",
		            job->size == 1 ? "this process can listen; mpirun -np 2 "
		                             "baton doctor tries to connect"
		                           : "the ranks connect by TCP");
	else
		doctor_find(findings, "side channel", SLOW,
		            "jobs without MPI, and NCCL among them, do not come up",
		            "BATON_INTERFACE=eth0 (the interface by which the nodes "
		            "reach each other), and a firewall that lets their TCP "
		            "pass",
		            "the ranks do not connect by TCP: %s", why);
}

void
doctor_job(json_t *findings, struct job *job)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	check_variables(findings);
	check_communicator(findings, job);
	if (!job->host || baton_comm_query(job->host, &info) != BATON_OK)
		return;
	check_mpi(findings, &info);
	check_progress(findings, job->host, &info);
	check_side_channel(findings, job);
}
