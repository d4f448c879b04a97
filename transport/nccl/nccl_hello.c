/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first step of creation: what each rank has to know of all others, in one exchange, and what
 * follows from it.  From the same hellos all ranks come to the same decisions: whether there is a
 * transport, whether puts go by the library, and how many CTAs a kernel has, of which NCCL makes
 * the channels of a connection: they have to be the same on both sides.
 *
 * NCCL's own variables win over a configuration.  It reads files too (nccl.conf), and puts what they
 * say into the environment when it is first called; so they are read after such a call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "log.h"
#include "nccl_transport.h"

/* The version of the control messages of checked mode, and of lists in plain mode. */
#define CHECK_VERSION 2
/* Of the CUDA driver, for one-sided calls. */
#define DRIVER_LEAST 12050
/* NCCL's own for send and receive over NVLink. */
#define CTAS_MOST 32

size_t
batoni_nccl_hello_bytes(const struct batoni_nccl *nccl)
{
	return sizeof(struct batoni_nccl_hello) +
	       (size_t)(2 * nccl->bits + 1) * sizeof(ncclUniqueId);
}

ncclUniqueId *
batoni_nccl_lists_id(const struct batoni_nccl *nccl,
                     struct batoni_nccl_hello *hello)
{
	return &hello->ids[2 * nccl->bits];
}

/* The hellos lie behind each other: ids are bytes. */
struct batoni_nccl_hello *
batoni_nccl_hello_of(struct batoni_nccl *nccl, int rank)
{
	char *all = (char *)nccl->hellos;

	return (void *)(all + (size_t)rank * batoni_nccl_hello_bytes(nccl));
}

/* ---- this rank's ---- */

/* A number, as NCCL reads it; 0: there is none. */
static long
from_environment(const char *name)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 0) : 0;
}

static enum baton_status
refuse_order(void)
{
	return batoni_refuse(
		BATON_ERR_UNSUPPORTED,
		"NCCL_LAUNCH_ORDER_IMPLICIT=1 (in the environment, or NCCL's "
		"file of settings) has communicators of NCCL on one GPU wait for "
		"each other, and sends would wait for receives: unset it");
}

void
batoni_nccl_fill_hello(struct batoni_nccl *nccl)
{
	ncclResult_t result = nccl->api->get_unique_id(&nccl->alone);

	for (unsigned i = 0; i + 1 < nccl->lanes_n && nccl->base.rank == 0 &&
	                     result == BATONI_NCCL_SUCCESS;
	     i++)
		result = nccl->api->get_unique_id(&nccl->hello->ids[i]);
	if (nccl->has_lists && nccl->base.rank == 0 &&
	    result == BATONI_NCCL_SUCCESS)
		result = nccl->api->get_unique_id(
			batoni_nccl_lists_id(nccl, nccl->hello));
	if (result != BATONI_NCCL_SUCCESS)
		batoni_nccl_note(nccl, "ncclGetUniqueId", NULL, result);
	else if (from_environment("NCCL_LAUNCH_ORDER_IMPLICIT") != 0)
		nccl->mine = refuse_order();
	batoni_nccl_fill_word(nccl, &nccl->hello->word);
	nccl->hello->version = nccl->api->version;
	nccl->hello->lanes = (int32_t)nccl->lanes_n - 1;
	nccl->hello->check = nccl->config.check ? CHECK_VERSION : 0;
	nccl->hello->lists = nccl->has_lists ? CHECK_VERSION : 0;
	nccl->hello->puts = nccl->config.lower_slot &&
	                    batoni_config()->window_path ==
	                            BATON_WINDOW_PATH_NATIVE;
	nccl->hello->driver = nccl->device->driver_version;
	nccl->hello->ctas = nccl->config.ctas;
	nccl->hello->processors = nccl->device->processors;
	nccl->hello->card.has_bell =
		batoni_bell_name(&nccl->hello->card.bell);
}

/* ---- all ranks' ---- */

static enum baton_status
refuse_versions(int rank, int theirs, int first)
{
	char ours_text[32], theirs_text[32];

	batoni_nccl_version_text(first, ours_text, sizeof(ours_text));
	batoni_nccl_version_text(theirs, theirs_text, sizeof(theirs_text));
	return batoni_refuse(BATON_ERR_INVALID,
	                     "rank 0 has NCCL %s, and rank %d has %s: all ranks "
	                     "need the same",
	                     ours_text, rank, theirs_text);
}

static enum baton_status
refuse_checks(struct batoni_nccl *nccl, int rank)
{
	bool zero = batoni_nccl_hello_of(nccl, 0)->check != 0;
	bool both = zero && batoni_nccl_hello_of(nccl, rank)->check != 0;

	return batoni_refuse(BATON_ERR_INVALID,
	                     "rank %d is in checked mode (options->check, or "
	                     "BATON_CHECK=1), and rank %d %s: all ranks need the "
	                     "same",
	                     zero ? 0 : rank, zero ? rank : 0,
	                     both ? "has that of another version" : "is not");
}

static enum baton_status
refuse_lists(struct batoni_nccl *nccl, int rank)
{
	bool zero = batoni_nccl_hello_of(nccl, 0)->lists != 0;

	if (zero && batoni_nccl_hello_of(nccl, rank)->lists != 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "ranks 0 and %d send lists of tensors in ways "
		                     "that differ: all ranks need the same version "
		                     "of Baton, or none may ask for them",
		                     rank);
	return batoni_refuse(BATON_ERR_INVALID,
	                     "rank %d asks for lists of tensors "
	                     "(options.nccl_lists, or BATON_NCCL_LISTS=1 in the "
	                     "environment), and rank %d does not: all ranks need "
	                     "the same",
	                     zero ? 0 : rank, zero ? rank : 0);
}

/* Why the ranks have no puts by the library: "", they have them. */
static void
find_lack(struct batoni_nccl *nccl, char *why, size_t size)
{
	const struct batoni_nccl_api *api = nccl->api;

	why[0] = '\0';
	if (!api->put_signal || !api->signal || !api->wait_signal) {
		snprintf(why, size,
		         "this NCCL has no one-sided calls, which came with "
		         "2.29.2");
		return;
	}
	for (int i = 0; i < nccl->base.size && !*why; i++) {
		int32_t driver = batoni_nccl_hello_of(nccl, i)->driver;

		if (driver > 0 && driver < DRIVER_LEAST)
			snprintf(why, size,
			         "NCCL's one-sided calls need a CUDA driver of "
			         "12.5 or later, and rank %d's is of %d.%d",
			         i, driver / 1000, driver % 1000 / 10);
	}
}

/* Puts by the library are for ranks of different nodes, or forced.  All ranks decide alike. */
static void
decide_on_puts(struct batoni_nccl *nccl)
{
	const struct batoni_nccl_hello *first = batoni_nccl_hello_of(nccl, 0);
	bool apart = false, forced = false;
	char lacks[sizeof(nccl->why_no_puts)];

	for (int i = 0; i < nccl->base.size; i++) {
		const struct batoni_nccl_hello *hello =
			batoni_nccl_hello_of(nccl, i);

		forced |= hello->puts;
		apart |= !hello->card.has_bell || !first->card.has_bell ||
		         memcmp(hello->card.bell.node, first->card.bell.node,
		                sizeof(first->card.bell.node)) != 0;
	}
	find_lack(nccl, lacks, sizeof(lacks));
	nccl->wants_puts = nccl->config.lower_slot && !*lacks &&
	                   (apart || forced);
	if (!nccl->wants_puts)
		snprintf(nccl->why_no_puts, sizeof(nccl->why_no_puts), "%s",
		         *lacks ? lacks
		                : "all ranks are on one node, so that NCCL's "
		                  "one-sided calls were not prepared");
}

/*
 * A kernel that waits for its peer keeps its multiprocessors.  Those of all lanes leave half of
 * the smallest GPU to the program, so that each can begin while all others wait.  NCCL's send
 * and receive take a power of two, and round up to one.
 */
static void
decide_on_ctas(struct batoni_nccl *nccl)
{
	unsigned kernels = nccl->lanes_n + nccl->has_lists;
	int32_t processors = INT32_MAX;
	int ctas = 1;

	nccl->ctas = (int)from_environment("NCCL_MAX_CTAS");
	if (nccl->ctas <= 0)
		nccl->ctas = nccl->config.ctas;
	if (nccl->ctas > 0)
		return;
	for (int i = 0; i < nccl->base.size; i++) {
		int32_t of = batoni_nccl_hello_of(nccl, i)->processors;

		processors = of < processors ? of : processors;
	}
	while (ctas < CTAS_MOST &&
	       2 * (unsigned)ctas * kernels <= (unsigned)processors / 2)
		ctas *= 2;
	nccl->ctas = processors > 0 ? ctas : 0;
}

enum baton_status
batoni_nccl_check_hellos(struct batoni_nccl *nccl)
{
	const struct batoni_nccl_hello *first = batoni_nccl_hello_of(nccl, 0);

	for (int i = 0; i < nccl->base.size; i++) {
		const struct batoni_nccl_hello *hello =
			batoni_nccl_hello_of(nccl, i);

		if (hello->word.status != BATON_OK)
			return batoni_nccl_refuse_failed(i, &hello->word);
		if (hello->check != first->check)
			return refuse_checks(nccl, i);
		if (hello->lists != first->lists)
			return refuse_lists(nccl, i);
		if (hello->version != first->version)
			return refuse_versions(i, hello->version,
			                       first->version);
		if (hello->lanes != first->lanes)
			return batoni_refuse(
				BATON_ERR_INVALID,
				"options.nccl_lanes (or BATON_NCCL_LANES in the "
				"environment) gives %d lanes on rank 0 and %d on "
				"rank %d: all ranks need the same",
				first->lanes, hello->lanes, i);
		if (hello->ctas != first->ctas)
			return batoni_refuse(
				BATON_ERR_INVALID,
				"options.nccl_ctas is %d on rank 0 and %d on "
				"rank %d: all ranks need the same",
				first->ctas, hello->ctas, i);
		batoni_nccl_peer_meet(nccl, i, &hello->card);
	}
	decide_on_puts(nccl);
	decide_on_ctas(nccl);
	return BATON_OK;
}
