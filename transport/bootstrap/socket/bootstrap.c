/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bootstrap by sockets, and the world of RANK and WORLD_SIZE.
 *
 * The bootstrap.  All ranks have links (rendezvous.c, connect.c).  An exchange is one of the side channel
 * (tcp.c), whose object is the bootstrap until the transport is open over it (opening.c).  A rank
 * that gives up closes its link, which the hub tells the others.
 *
 * The world.  RANK and WORLD_SIZE, which launchers set (torchrun, Kubernetes' training
 * operators), say which rank of how many this process is.  Rank 0 listens at BATON_PORT: on
 * the interface that BATON_INTERFACE names, else at MASTER_ADDR if that is an address of its
 * node, else on all; the others connect to MASTER_ADDR.  The secret is BATON_SECRET.
 * MASTER_PORT is another library's.  Creations follow each other on the same port: the
 * listener is closed before any rank is told to go on, and a rank that comes too early tries again.
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
#include "rank.h"

#define ADDRESSES_MAX 16
#define SECRET_LEAST 16
#define SIZE_MOST 4095

/* ---- the bootstrap ---- */

/* What the bootstrap has of its own. */
struct own {
	struct batoni_tcp *tcp;
	bool handed_over; /* the transport's owner closes it */
};

_Static_assert(sizeof(struct own) <= BATONI_BOOTSTRAP_BYTES, "it fits");

static struct own *
own_of(struct batoni_bootstrap *bootstrap)
{
	return (void *)bootstrap->own.bytes;
}

struct batoni_tcp *
batoni_tcp_of(struct batoni_bootstrap *bootstrap)
{
	return own_of(bootstrap)->tcp;
}

void
batoni_tcp_hand_over(struct batoni_bootstrap *bootstrap)
{
	own_of(bootstrap)->handed_over = true;
}

static const char *
why(const struct batoni_bootstrap *bootstrap)
{
	const struct own *own = (const void *)bootstrap->own.bytes;

	return own->tcp->why;
}

static enum baton_status
exchange(struct batoni_bootstrap *bootstrap, const void *mine, size_t bytes,
         const void **all_p)
{
	enum baton_status status = batoni_tcp_exchange_in_rounds(
		batoni_tcp_of(bootstrap), mine, bytes, all_p);

	return status == BATON_OK || status == BATON_PENDING
	               ? status
	               : batoni_refuse(status,
	                               "rank %d: the creation has failed: %s",
	                               bootstrap->rank,
	                               baton_status_text(status));
}

static void
close_bootstrap(struct batoni_bootstrap *bootstrap)
{
	const struct own *own = own_of(bootstrap);

	if (!own->handed_over)
		own->tcp->base.ops->close(&own->tcp->base, true);
}

static const struct batoni_bootstrap_ops ops = {
	.name = "socket",
	.exchange = exchange,
	.breaking = &(const struct batoni_breaking_ops){.why = why},
	.close = close_bootstrap,
};

static enum baton_status
join_link(int size, int rank, const struct batoni_side_link *link,
          int64_t timeout_ns, struct batoni_bootstrap *bootstrap)
{
	struct batoni_tcp *tcp;

	if (batoni_tcp_new(rank, size, link, &tcp) != BATON_OK)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "no memory for the side channel");
	*bootstrap = (struct batoni_bootstrap){
		.ops = &ops,
		.kind = BATONI_BOOTSTRAP_SOCKET,
		.rank = rank,
		.size = size,
		.within = 1,
		.strict = true,
		.patience_ns = timeout_ns > 0 ? (uint64_t)timeout_ns
		                              : (uint64_t)BATONI_TCP_PATIENCE_NS,
	};
	*own_of(bootstrap) = (struct own){.tcp = tcp};
	return BATON_OK;
}

const struct batoni_side_ops batoni_side_ops = {
	.listen = batoni_tcp_listen,
	.unlisten = batoni_tcp_unlisten,
	.open = batoni_tcp_open,
	.attend = batoni_tcp_attend,
	.ring = batoni_tcp_ring,
	.admit = batoni_tcp_admit,
	.link_all = batoni_tcp_link_all,
	.describe = batoni_tcp_describe,
	.close = batoni_tcp_close,
	.connect = batoni_tcp_connect,
	.join = join_link,
};

/* ---- the world ---- */

static const char *
variable(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

/* A job of one process needs no other.  One of RANK and WORLD_SIZE alone may be some other
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
	uint32_t number;

	if (!*rank || !*size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s is set in the environment, and %s is not: "
		                     "a job without MPI needs RANK (0 to WORLD_SIZE "
		                     "- 1) and WORLD_SIZE (how many processes)",
		                     *rank ? "RANK" : "WORLD_SIZE",
		                     *rank ? "WORLD_SIZE" : "RANK");
	if (!batoni_number_read(size, 1, SIZE_MOST, &number))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "WORLD_SIZE is \"%.40s\" in the environment; "
		                     "it takes 1 to %d",
		                     size, SIZE_MOST);
	job->size = (int)number;
	if (!batoni_number_read(rank, 0, (unsigned long)job->size - 1, &number))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "RANK is \"%.40s\" in the environment; with "
		                     "WORLD_SIZE %d it takes 0 to %d",
		                     rank, job->size, job->size - 1);
	job->rank = (int)number;
	return BATON_OK;
}

/* What is missing, or NULL. */
static const char *
missing(void)
{
	if (!*variable("MASTER_ADDR"))
		return "MASTER_ADDR (the node of rank 0)";
	if (batoni_config()->port == 0 && *variable("BATON_PORT"))
		return "a BATON_PORT of 1 to 65535";
	if (batoni_config()->port == 0)
		return "BATON_PORT (a free port of that node; MASTER_PORT belongs "
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

/* A node's own name is loopback on it (127.0.1.1 in Debian's /etc/hosts), and another address
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

/* Where BATON_INTERFACE says; else at an address of MASTER_ADDR that is one of this node's;
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
refuse_late(struct batoni_rendezvous *rendezvous, const bool here[], int size,
            int64_t timeout_ns)
{
	char text[400];

	batoni_side_late(here, size, (uint64_t)timeout_ns, text, sizeof(text));
	batoni_tcp_describe(rendezvous, text, sizeof(text));
	batoni_tcp_close(rendezvous, BATON_ERR_TIMEOUT, text);
	return batoni_refuse(BATON_ERR_TIMEOUT, "%s", text);
}

/* It is a while that rank 0 waits: for these ranks. */
static void
tell_of_waiting(const struct job *job, const struct batoni_rendezvous *rendezvous,
                const bool here[], struct batoni_side_wait *wait)
{
	uint64_t now_ns = batoni_real_ns();
	char text[400];

	if (!batoni_side_tells(wait, now_ns))
		return;
	batoni_side_late(here, job->size, now_ns - wait->begun_ns, text,
	                 sizeof(text));
	batoni_tcp_describe(rendezvous, text, sizeof(text));
	batoni_log(BATONI_LOG_WARN, "rank 0 waits at port %u: %s",
	           batoni_config()->port, text);
}

/* Rank 0, until all have come.  Owns the rendezvous. */
static enum baton_status
gather(const struct job *job, struct batoni_rendezvous *rendezvous, bool here[],
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
			return refuse_late(rendezvous, here, job->size, timeout_ns);
		batoni_tcp_attend(rendezvous, limit < batoni_side_tell_at(&wait)
		                                      ? limit
		                                      : batoni_side_tell_at(&wait));
		status = batoni_tcp_admit(rendezvous, here, &n, why);
		came += n;
		if (status == BATON_OK && came < job->size)
			tell_of_waiting(job, rendezvous, here, &wait);
	}
	if (status == BATON_OK) {
		status = batoni_tcp_link_all(rendezvous, 0, links);
		snprintf(why, sizeof(why),
		         "no memory or no descriptors for the side channel");
	}
	batoni_tcp_close(rendezvous, status, why);
	return status == BATON_OK ? status
	                          : batoni_refuse(status, "%s", why);
}

static enum baton_status
hold_rendezvous(const struct job *job, int64_t timeout_ns,
                struct batoni_side_link *link_p)
{
	struct batoni_side_link *links;
	struct batoni_rendezvous *rendezvous;
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
		status = batoni_tcp_open_on(fd, &job->key, job->size, &rendezvous);
	if (status != BATON_OK)
		batoni_refuse(status, "no memory for %d ranks", job->size);
	else
		status = gather(job, rendezvous, here, links, timeout_ns);
	if (status == BATON_OK)
		*link_p = links[0];
	batoni_free(links);
	batoni_free(here);
	return status;
}

static enum baton_status
join_world(const struct batoni_engine_calls *engine, int64_t timeout_ns,
           struct batoni_bootstrap *bootstrap)
{
	struct batoni_side_link link;
	struct job job = {.rank = 0};
	enum baton_status status = read_job(&job);

	(void)engine;
	if (status == BATON_OK)
		status = job.rank == 0
		                 ? hold_rendezvous(&job, timeout_ns, &link)
		                 : batoni_tcp_connect_at(
					   &job.key, job.addresses,
					   job.addresses_n, job.size, job.rank,
					   timeout_ns, true, &link);
	return status == BATON_OK ? join_link(job.size, job.rank, &link,
	                                      timeout_ns, bootstrap)
	                          : status;
}

const struct batoni_world batoni_world_tcp = {
	.id = BATON_TRANSPORT_NEAR, /* or the device's own */
	.present = present,
	.join = join_world,
};
