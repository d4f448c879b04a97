/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creation over the side channel, and the world of RANK and WORLD_SIZE.
 *
 * Creation.  All ranks have links (door.c, knock.c).  Each opens its transport and tells
 * the others its plan, or why its options were refused; each compares them all.  Then each
 * prepares its communicator, and tells the others whether it has it.  Then each maps the
 * memory of the others on its host (peers.c), and the native transport is opened over this
 * one.  A failure on one rank is so told to all, with its sentence.  Exchanges are polled
 * without the driver lock between two looks, and have a time limit.  A rank that gives up
 * closes its link, which the hub tells the others.
 *
 * What a communicator moves has to go by NCCL: plans of the host, and of another transport,
 * are refused here.
 *
 * The world.  RANK and WORLD_SIZE, which launchers set (torchrun, Kubernetes' training
 * operators), say which rank of how many this process is.  Rank 0 listens at BATON_PORT: on
 * the interface that BATON_INTERFACE names, else at MASTER_ADDR if that is an address of its
 * host, else on all; the others connect to MASTER_ADDR.  The secret is BATON_SECRET.
 * MASTER_PORT is another library's.  Creations follow each other on the same port: the
 * listener is closed before anybody is told to go on, and a rank that comes too early tries again.
 *
 * The thread that creates; no state between calls.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"
#include "log.h"
#include "mem.h"
#include "tcp.h"

#define WHAT_PLAN ((uint64_t)0x7463700001)
#define WHAT_MADE ((uint64_t)0x7463700002)
#define WHAT_CARD ((uint64_t)0x7463700003)
#define WHAT_MAPPED ((uint64_t)0x7463700004)
#define ADDRESSES_MAX 16
#define SECRET_LEAST 16
#define SIZE_LIMIT 4096

/* ---- creation ---- */

/* What the ranks compare; the names are for messages. */
enum compared {
	VERSION,
	TRANSPORT,
	SIGNALS,
	CONTEXTS,
	REQUESTS,
	TIMEOUT,
	PROGRESS,
	TIMESTAMPS,
	LANES,
	CTAS,
	LISTS,
	COMPARED
};

static const char *const names[COMPARED] = {
	[VERSION] = "the version of Baton (the number is its wire format's)",
	[TRANSPORT] = "options.transport",
	[SIGNALS] = "options.signals_max",
	[CONTEXTS] = "options.contexts_max",
	[REQUESTS] = "options.requests_max",
	[TIMEOUT] = "options.timeout_ns",
	[PROGRESS] = "options.progress",
	[TIMESTAMPS] = "options.timestamps",
	[LANES] = "options.nccl_lanes",
	[CTAS] = "options.nccl_ctas",
	[LISTS] = "options.nccl_lists",
};

struct offer {
	int64_t status;
	int64_t values[COMPARED];
	char why[BATONI_SIDE_WHY_BYTES];
};

struct creation {
	const struct batoni_builder *builder;
	struct batoni_comm_plan plan;
	int rank;
	struct batoni_tcp *tcp;
	struct baton_comm *comm;
	uint64_t patience_ns, limit_ns;
	struct offer mine, *all;
};

static void
fill(struct creation *creation)
{
	const struct batoni_comm_plan *plan = &creation->plan;
	int64_t *values = creation->mine.values;

	values[VERSION] = BATONI_TCP_VERSION;
	values[TRANSPORT] = plan->transport;
	values[SIGNALS] = plan->signals_max;
	values[CONTEXTS] = plan->contexts_max;
	values[REQUESTS] = plan->requests_max;
	values[TIMEOUT] = plan->timeout_ns;
	values[PROGRESS] = plan->progress;
	values[TIMESTAMPS] = plan->timestamps;
	values[LANES] = plan->nccl_lanes;
	values[CTAS] = plan->nccl_ctas;
	values[LISTS] = plan->nccl_lists;
}

/* This rank has failed, and the sentence is in baton_last_error. */
static void
note(struct creation *creation, enum baton_status status)
{
	creation->mine.status = status;
	snprintf(creation->mine.why, sizeof(creation->mine.why), "%s",
	         baton_last_error());
}

/* One exchange; `all` NULL: no memory for it.  OK, or why there was none. */
static enum baton_status
exchange_bytes(struct creation *creation, uint64_t what, const void *mine,
               size_t bytes, void *all)
{
	const struct batoni_builder *builder = creation->builder;
	struct batoni_transport *transport = batoni_tcp_transport(creation->tcp);
	enum baton_status status = BATON_PENDING;

	creation->limit_ns = batoni_real_ns() + creation->patience_ns;
	builder->driver_take();
	for (unsigned tries = 0;; tries++) {
		status = transport->ops->exchange(transport, what, mine, bytes,
		                                  all);
		if (status != BATON_PENDING ||
		    batoni_real_ns() >= creation->limit_ns)
			break;
		builder->driver_yield(tries);
	}
	builder->driver_leave();
	if (status == BATON_PENDING)
		return batoni_refuse(BATON_ERR_TIMEOUT,
		                     "rank %d: the other ranks came, but one of "
		                     "them has not gone on for %llu ms",
		                     creation->rank,
		                     (unsigned long long)(creation->patience_ns /
		                                          1000000));
	if (status != BATON_OK)
		batoni_refuse(status, "rank %d: the creation has failed: %s",
		              creation->rank,
		              *batoni_tcp_why(creation->tcp)
		                      ? batoni_tcp_why(creation->tcp)
		                      : baton_status_text(status));
	return status;
}

static enum baton_status
exchange(struct creation *creation, uint64_t what)
{
	return exchange_bytes(creation, what, &creation->mine,
	                      sizeof(creation->mine), creation->all);
}

/* The memory that the ranks share. */
static enum baton_status
meet(struct creation *creation)
{
	const size_t size = (size_t)creation->plan.size;
	struct batoni_tcp_card *card, *cards;
	unsigned char *mapped;
	enum baton_status status;
	size_t bytes;

	if (!batoni_tcp_shares(creation->tcp))
		return BATON_OK;
	bytes = batoni_tcp_card(creation->tcp, &card);
	cards = card ? batoni_alloc(size, bytes) : NULL;
	mapped = cards ? batoni_alloc(size + 1, size) : NULL;
	status = exchange_bytes(creation, WHAT_CARD, card, bytes,
	                        mapped ? cards : NULL);
	if (status == BATON_OK) {
		batoni_tcp_meet(creation->tcp, cards, mapped);
		status = exchange_bytes(creation, WHAT_MAPPED, mapped, size,
		                        mapped + size);
	}
	if (status == BATON_OK)
		batoni_tcp_met(creation->tcp, mapped + size);
	batoni_free(mapped);
	batoni_free(cards);
	batoni_free(card);
	return status;
}

/* The lowest rank that has failed is what all are told. */
static enum baton_status
find_failed(const struct creation *creation)
{
	for (int rank = 0; rank < creation->plan.size; rank++) {
		const struct offer *offer = &creation->all[rank];

		if (offer->status == BATON_OK)
			continue;
		if (rank == creation->rank)
			return batoni_refuse(batoni_error_told(offer->status),
			                     "%.*s", (int)sizeof(offer->why) - 1,
			                     offer->why);
		return batoni_refuse(batoni_error_told(offer->status),
		                     "rank %d could not create its end of the "
		                     "communicator: %.*s",
		                     rank, (int)sizeof(offer->why) - 1,
		                     offer->why);
	}
	return BATON_OK;
}

static enum baton_status
compare(struct creation *creation)
{
	const struct offer *first = &creation->all[0];
	enum baton_status status;

	/* Of another version, the other values may be anything. */
	for (int i = 0; i < COMPARED; i++) {
		for (int rank = 1; rank < creation->plan.size; rank++) {
			const struct offer *offer = &creation->all[rank];

			if (offer->values[i] == first->values[i] ||
			    offer->status != BATON_OK ||
			    first->status != BATON_OK)
				continue;
			return batoni_refuse(BATON_ERR_INVALID,
			                     "%s is not the same on all ranks: "
			                     "%lld on rank 0, %lld on rank %d",
			                     names[i],
			                     (long long)first->values[i],
			                     (long long)offer->values[i], rank);
		}
		status = i == VERSION ? find_failed(creation) : BATON_OK;
		if (status != BATON_OK)
			return status;
	}
	return BATON_OK;
}

/* What can fail on this rank. */
static void
prepare(struct creation *creation)
{
	const struct batoni_builder *builder = creation->builder;
	enum baton_status status;

	creation->plan.requests_most = creation->plan.requests_max;
	creation->plan.stages = creation->plan.onesided;
	creation->plan.direct = false;
	creation->plan.message_max = BATONI_TCP_MESSAGE_MAX;
	status = builder->prepare(&creation->plan, &creation->comm);
	if (status == BATON_OK) {
		const struct batoni_transport_config config =
			builder->transport_config(&creation->plan,
			                          creation->comm);

		status = batoni_tcp_alloc(creation->tcp, &config);
		if (status != BATON_OK)
			batoni_refuse(status,
			              "no memory for the side channel of %d "
			              "ranks",
			              creation->plan.size);
	}
	if (status != BATON_OK)
		note(creation, status);
}

static enum baton_status
make(struct creation *creation, struct baton_comm **comm_p)
{
	const struct batoni_builder *builder = creation->builder;
	struct batoni_transport *transport = batoni_tcp_transport(creation->tcp);
	enum baton_status status = exchange(creation, WHAT_PLAN);

	if (status == BATON_OK)
		status = compare(creation);
	if (status == BATON_OK) {
		prepare(creation);
		status = exchange(creation, WHAT_MADE);
	}
	if (status == BATON_OK)
		status = find_failed(creation);
	if (status == BATON_OK)
		status = meet(creation);
	if (status == BATON_OK)
		status = builder->open_native(creation->comm, &transport);
	if (status == BATON_OK) {
		builder->start(creation->comm, transport);
		*comm_p = creation->comm;
		return BATON_OK;
	}
	if (status == BATON_ERR_PEER && *batoni_tcp_why(creation->tcp))
		batoni_refuse(status, "rank %d: the creation has failed: %s",
		              creation->rank, batoni_tcp_why(creation->tcp));
	transport = batoni_tcp_transport(creation->tcp);
	builder->driver_take();
	transport->ops->close(transport, true);
	builder->driver_leave();
	if (creation->comm)
		builder->discard(creation->comm);
	return status;
}

/* Only NCCL moves anything here. */
static enum baton_status
check_plan(struct batoni_comm_plan *plan)
{
	if (plan->device == BATON_DEVICE_CUDA &&
	    (plan->transport == BATON_TRANSPORT_AUTO ||
	     plan->transport == BATON_TRANSPORT_NCCL)) {
		plan->transport = BATON_TRANSPORT_NCCL;
		return BATON_OK;
	}
	if (plan->device == BATON_DEVICE_CUDA)
		return batoni_refuse(
			BATON_ERR_UNSUPPORTED,
			"the ranks are in several processes without MPI: messages "
			"go by BATON_TRANSPORT_NCCL (or _AUTO) alone; with MPI they "
			"go by BATON_TRANSPORT_MPI");
	return batoni_refuse(
		BATON_ERR_UNSUPPORTED,
		"the ranks are in several processes without MPI, which carries "
		"memory of the host between them: start the program by mpirun, or "
		"use BATON_DEVICE_CUDA, whose memory NCCL carries");
}

static enum baton_status
tcp_create(const struct batoni_builder *builder,
           const struct batoni_comm_plan *plan, enum baton_status refused,
           int rank, const struct batoni_side_link *link,
           struct baton_comm **comm_p)
{
	struct creation creation = {.builder = builder,
	                            .plan = *plan,
	                            .rank = rank,
	                            .mine.status = refused};
	enum baton_status status;

	if (refused == BATON_OK)
		refused = check_plan(&creation.plan);
	if (refused != BATON_OK)
		note(&creation, refused);
	fill(&creation);
	creation.patience_ns = plan->timeout_ns > 0
	                               ? (uint64_t)plan->timeout_ns
	                               : (uint64_t)BATONI_TCP_PATIENCE_NS;
	if (creation.plan.device_config.host_rank < 0)
		creation.plan.device_config.host_rank = rank;
	status = batoni_tcp_new(rank, plan->size, link, &creation.tcp);
	if (status != BATON_OK)
		return batoni_refuse(status, "no memory for the side channel");
	creation.all = batoni_alloc((size_t)plan->size, sizeof(*creation.all));
	status = make(&creation, comm_p);
	batoni_free(creation.all);
	return status;
}

const struct batoni_side_ops batoni_side_ops = {
	.listen = batoni_tcp_listen,
	.unlisten = batoni_tcp_unlisten,
	.open = batoni_tcp_open,
	.attend = batoni_tcp_attend,
	.ring = batoni_tcp_ring,
	.admit = batoni_tcp_admit,
	.seat = batoni_tcp_seat,
	.describe = batoni_tcp_describe,
	.close = batoni_tcp_close,
	.knock = batoni_tcp_knock,
	.create = tcp_create,
};

/* ---- the world ---- */

/* False: it is no decimal number below the limit. */
static bool
number(const char *text, long limit, int *number_p)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (!*text || *end || errno || value < 0 || value >= limit ||
	    strspn(text, "0123456789") != strlen(text))
		return false;
	*number_p = (int)value;
	return true;
}

static const char *
variable(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

/* A job of one process needs nobody else.  One of RANK and WORLD_SIZE alone may be some other
 * program's; with a variable of Baton's own for the purpose it is a mistake, which `create`
 * tells. */
static bool
present(void)
{
	const bool ours = batoni_config()->port != 0 || *batoni_config()->secret;
	const bool rank = *variable("RANK"), size = *variable("WORLD_SIZE");

	return (ours ? rank || size : rank && size) &&
	       strcmp(variable("WORLD_SIZE"), "1") != 0;
}

struct job {
	int rank, size;
	struct batoni_side_key key;
	struct batoni_side_address addresses[ADDRESSES_MAX];
	int addresses_n;
};

static enum baton_status
read_names(struct job *job)
{
	const char *rank = variable("RANK"), *size = variable("WORLD_SIZE");

	if (!*rank || !*size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s is set in the environment, and %s is not: "
		                     "a job without MPI needs RANK (0 to WORLD_SIZE "
		                     "- 1) and WORLD_SIZE (how many processes)",
		                     *rank ? "RANK" : "WORLD_SIZE",
		                     *rank ? "WORLD_SIZE" : "RANK");
	if (!number(size, SIZE_LIMIT, &job->size) || job->size == 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "WORLD_SIZE is \"%.40s\" in the environment; "
		                     "it takes 1 to %d",
		                     size, SIZE_LIMIT - 1);
	if (!number(rank, job->size, &job->rank))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "RANK is \"%.40s\" in the environment; with "
		                     "WORLD_SIZE %d it takes 0 to %d",
		                     rank, job->size, job->size - 1);
	return BATON_OK;
}

/* What is missing, or NULL. */
static const char *
missing(void)
{
	if (!*variable("MASTER_ADDR"))
		return "MASTER_ADDR (the host of rank 0)";
	if (batoni_config()->port == 0 && *variable("BATON_PORT"))
		return "a BATON_PORT of 1 to 65535";
	if (batoni_config()->port == 0)
		return "BATON_PORT (a free port of that host; MASTER_PORT belongs "
		       "to another library)";
	if (strlen(batoni_config()->secret) < SECRET_LEAST)
		return *batoni_config()->secret
		               ? "a BATON_SECRET of 16 to 4095 characters"
		               : "BATON_SECRET (16 to 4095 characters, the same for "
				 "all ranks, and of no other job)";
	return NULL;
}

static enum baton_status
read_job(struct job *job)
{
	const char *lacks, *why = "", *host = variable("MASTER_ADDR");
	enum baton_status status = read_names(job);

	if (status != BATON_OK)
		return status;
	lacks = missing();
	if (lacks)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "RANK and WORLD_SIZE say that this is rank %d "
		                     "of %d processes, and no MPI connects them: "
		                     "Baton's side channel needs %s in the "
		                     "environment; or start the program by mpirun, "
		                     "or ask for BATON_TRANSPORT_LOCAL",
		                     job->rank, job->size, lacks);
	batoni_tcp_hmac(batoni_config()->secret, strlen(batoni_config()->secret),
	                "baton side channel", 18, job->key.secret);
	job->addresses_n = batoni_tcp_resolve(host,
	                                      (uint16_t)batoni_config()->port,
	                                      job->addresses, ADDRESSES_MAX,
	                                      &why);
	if (job->addresses_n > 0)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_SYSTEM, "MASTER_ADDR is \"%.100s\": %s",
	                     host, why);
}

/* A host's own name is loopback on it (127.0.1.1 in Debian's /etc/hosts), and another address
 * for the others. */
static bool
leads_elsewhere(const struct batoni_side_address *address)
{
	static const unsigned char loopback_6[16] = {[15] = 1};
	const char *host = variable("MASTER_ADDR");
	bool loopback = address->family == 4
	                        ? address->bytes[0] == 127
	                        : memcmp(address->bytes, loopback_6, 16) == 0;

	return loopback && strcmp(host, "localhost") != 0 &&
	       strspn(host, "0123456789.:") != strlen(host);
}

/* Where BATON_INTERFACE says; else at an address of MASTER_ADDR that is one of this host's;
 * else everywhere: a name that leads here by another way. */
static int
listen_at(const struct job *job, int *fd_p)
{
	struct batoni_side_address at = {.family = 0};
	int error;

	if (*batoni_config()->interface) {
		error = batoni_tcp_address_choose(&at);
		at.port = (uint16_t)batoni_config()->port;
		return error ? error : batoni_tcp_listen_on(&at, fd_p);
	}
	for (int i = 0; i < job->addresses_n; i++) {
		at = job->addresses[i];
		if (leads_elsewhere(&at))
			break;
		error = batoni_tcp_listen_on(&at, fd_p);
		if (error != EADDRNOTAVAIL)
			return error;
	}
	at = (struct batoni_side_address){.family = 0};
	at.port = (uint16_t)batoni_config()->port;
	return batoni_tcp_listen_on(&at, fd_p);
}

static enum baton_status
refuse_late(struct batoni_door *door, const bool here[], int size,
            int64_t timeout_ns)
{
	char text[400];

	batoni_side_late(here, size, (uint64_t)timeout_ns, text, sizeof(text));
	batoni_tcp_describe(door, text, sizeof(text));
	batoni_tcp_close(door, BATON_ERR_TIMEOUT, text);
	return batoni_refuse(BATON_ERR_TIMEOUT, "%s", text);
}

/* It is a while that rank 0 waits: for these ranks. */
static void
tell_of_waiting(const struct job *job, const struct batoni_door *door,
                const bool here[], struct batoni_side_wait *wait)
{
	uint64_t now_ns = batoni_real_ns();
	char text[400];

	if (!batoni_side_tells(wait, now_ns))
		return;
	batoni_side_late(here, job->size, now_ns - wait->begun_ns, text,
	                 sizeof(text));
	batoni_tcp_describe(door, text, sizeof(text));
	batoni_log(BATONI_LOG_WARN, "rank 0 waits at port %u: %s",
	           batoni_config()->port, text);
}

/* Rank 0, until all have come.  Owns the door. */
static enum baton_status
gather(const struct job *job, struct batoni_door *door, bool here[],
       struct batoni_side_link links[], int64_t timeout_ns)
{
	char why[BATONI_SIDE_WHY_BYTES];
	enum baton_status status = BATON_OK;
	struct batoni_side_wait wait = {batoni_real_ns(), 0};
	uint64_t limit;
	int came = 1, n;

	if (timeout_ns <= 0)
		timeout_ns = BATONI_TCP_PATIENCE_NS;
	limit = batoni_real_ns() + (uint64_t)timeout_ns;
	here[0] = true;
	for (int rank = 1; rank < job->size; rank++)
		links[rank].fd = -1;
	while (came < job->size && status == BATON_OK) {
		if (batoni_real_ns() >= limit)
			return refuse_late(door, here, job->size, timeout_ns);
		batoni_tcp_attend(door, limit < batoni_side_tell_at(&wait)
		                                ? limit
		                                : batoni_side_tell_at(&wait));
		status = batoni_tcp_admit(door, here, &n, why);
		came += n;
		if (status == BATON_OK && came < job->size)
			tell_of_waiting(job, door, here, &wait);
	}
	if (status == BATON_OK) {
		status = batoni_tcp_seat(door, 0, links);
		snprintf(why, sizeof(why),
		         "no memory or no descriptors for the side channel");
	}
	batoni_tcp_close(door, status, why);
	return status == BATON_OK ? status
	                          : batoni_refuse(status, "%s", why);
}

static enum baton_status
hold_door(const struct job *job, int64_t timeout_ns,
          struct batoni_side_link *link_p)
{
	struct batoni_side_link *links;
	struct batoni_door *door;
	enum baton_status status = BATON_ERR_NOMEM;
	int fd = -1, error = listen_at(job, &fd);
	bool *here;

	if (error && batoni_tcp_check_interface("rank 0") != BATON_OK)
		return BATON_ERR_INVALID;
	if (error)
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "rank 0 cannot listen at port %u of "
		                     "MASTER_ADDR (%s): %s; BATON_PORT and "
		                     "BATON_INTERFACE name another place",
		                     batoni_config()->port,
		                     variable("MASTER_ADDR"), strerror(error));
	links = batoni_alloc((size_t)job->size, sizeof(*links));
	here = batoni_alloc((size_t)job->size, sizeof(*here));
	if (!links || !here)
		close(fd);
	else
		status = batoni_tcp_open_on(fd, &job->key, job->size, &door);
	if (status != BATON_OK)
		batoni_refuse(status, "no memory for %d ranks", job->size);
	else
		status = gather(job, door, here, links, timeout_ns);
	if (status == BATON_OK)
		*link_p = links[0];
	batoni_free(links);
	batoni_free(here);
	return status;
}

/* plan NULL: the options were refused on this rank, with the sentence in baton_last_error. */
static enum baton_status
create_world(const struct batoni_builder *builder,
             const struct batoni_comm_plan *plan, struct baton_comm **comm_p)
{
	struct batoni_comm_plan sized = {.size = 0};
	char why[BATONI_SIDE_WHY_BYTES];
	struct batoni_side_link link;
	enum baton_status status;
	struct job job = {.rank = 0};

	snprintf(why, sizeof(why), "%s", baton_last_error());
	status = read_job(&job);
	if (plan)
		sized = *plan;
	sized.size = job.size;
	if (status == BATON_OK)
		status = job.rank == 0
		                 ? hold_door(&job, sized.timeout_ns, &link)
		                 : batoni_tcp_knock_at(
					   &job.key, job.addresses,
					   job.addresses_n, job.size, job.rank,
					   sized.timeout_ns, true, &link);
	if (!plan) {
		batoni_refuse(BATON_ERR_INVALID, "%s", why);
		if (status != BATON_OK)
			return BATON_ERR_INVALID;
	} else if (status != BATON_OK) {
		return status;
	}
	return tcp_create(builder, &sized, plan ? BATON_OK : BATON_ERR_INVALID,
	                  job.rank, &link, comm_p);
}

static enum baton_status
create_over(const struct batoni_builder *builder, const void *parent,
            const struct baton_comm_options *options, struct baton_comm **comm_p)
{
	(void)builder;
	(void)parent;
	(void)options;
	(void)comm_p;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "the side channel makes no communicator over another");
}

const struct batoni_world batoni_world_tcp = {
	.id = BATON_TRANSPORT_NCCL,
	.present = present,
	.create = create_world,
	.create_over = create_over,
};
