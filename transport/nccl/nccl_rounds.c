/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the steps of creation are made of (nccl_open.c, nccl_windows_open.c): an exchange over
 * the lower transport; a piece of work inside NCCL; and the rounds of exchanges in which the
 * ranks tell each other how far their work is.  A rank's own state of a round is `mine`:
 * PENDING, OK, or an error, whose sentence goes with it.
 */
#include <stdio.h>

#include "clock.h"
#include "log.h"
#include "nccl_transport.h"

/* ---- lanes ---- */

ncclResult_t
batoni_nccl_state(struct batoni_nccl *nccl, bool used_only,
                  struct batoni_nccl_lane **lane_p)
{
	ncclResult_t worst = BATONI_NCCL_SUCCESS;

	for (unsigned i = 0; i < batoni_nccl_lanes_all(nccl); i++) {
		struct batoni_nccl_lane *lane = &nccl->lanes[i];
		ncclResult_t state, result;

		if (!lane->comm || (used_only && !lane->used))
			continue;
		result = nccl->api->comm_error(lane->comm, &state);
		if (result == BATONI_NCCL_SUCCESS)
			result = state;
		if (result == BATONI_NCCL_SUCCESS)
			continue;
		*lane_p = lane;
		worst = result;
		if (result != BATONI_NCCL_IN_PROGRESS)
			break;
	}
	return worst;
}

enum baton_status
batoni_nccl_stream_make(struct batoni_nccl *nccl, bool apart,
                        baton_stream *stream_p)
{
	const struct batoni_device_ops *ops = nccl->device->ops;

	if (apart && ops->shared_queues)
		return ops->shared_queues->stream_create_apart(nccl->device,
		                                               stream_p);
	if (!apart && ops->shared_queues)
		return ops->shared_queues->stream_create_waiting(nccl->device,
		                                                 stream_p);
	return ops->stream_create(nccl->device, stream_p);
}

void
batoni_nccl_configure(const struct batoni_nccl *nccl,
                      struct batoni_nccl_config *config)
{
	batoni_nccl_config_init(nccl->api, config);
	config->blocking = 0;
	if (nccl->ctas > 0)
		config->maxCTAs = nccl->ctas;
	/* An order of launches would have lanes wait for each other. */
	if (BATONI_NCCL_CONFIG_HAS(config, launchOrderImplicit))
		config->launchOrderImplicit = 0;
}

enum baton_status
batoni_nccl_await_lane(struct batoni_nccl *nccl, struct batoni_nccl_lane *lane)
{
	struct batoni_device *device = nccl->device;
	enum baton_status status;

	if (!lane->connected.object)
		return BATON_OK;
	nccl->config.driver_lock();
	status = device->ops->marks->mark_done(device, &lane->connected);
	if (status != BATON_OK && status != BATON_PENDING)
		batoni_refuse(status, "GPU %d cannot be used", device->number);
	nccl->config.driver_unlock();
	return status;
}

/* ---- what fails ---- */

void
batoni_nccl_note(struct batoni_nccl *nccl, const char *call,
                 const struct batoni_nccl_lane *lane, ncclResult_t result)
{
	char text[256];

	batoni_nccl_describe(nccl->api, lane ? lane->comm : NULL, result, text,
	                     sizeof(text));
	/* Its words for two ranks on one GPU do not say what to do. */
	nccl->mine = batoni_refuse(BATON_ERR_NCCL, "%s: %s%s", call, text,
	                           result == BATONI_NCCL_INVALID_USAGE
	                                   ? " (each rank needs a GPU of its "
	                                     "own: options.cuda_device)"
	                                   : "");
}

static void
note_timeout(struct batoni_nccl *nccl, const char *what)
{
	nccl->mine = batoni_refuse(BATON_ERR_TIMEOUT,
	                           "NCCL had not %s after %llu ms: a rank is "
	                           "missing, or its GPU is busy",
	                           what,
	                           (unsigned long long)(nccl->patience_ns /
	                                                1000000));
}

/* ---- rounds ---- */

enum baton_status
batoni_nccl_exchange(struct batoni_nccl *nccl, uint64_t what, const void *mine,
                     size_t bytes, void *all)
{
	struct batoni_transport *lower = nccl->lower;
	uint64_t now = batoni_real_ns();
	enum baton_status status;

	if (nccl->exchange_limit_ns == 0)
		nccl->exchange_limit_ns = now + 2 * nccl->patience_ns;
	nccl->config.driver_lock();
	status = lower->ops->exchanging->exchange(lower, what, mine, bytes, all);
	nccl->config.driver_unlock();
	if (status == BATON_OK)
		nccl->exchange_limit_ns = 0;
	if (status == BATON_PENDING && now > nccl->exchange_limit_ns)
		return batoni_refuse(BATON_ERR_TIMEOUT,
		                     "rank %d: another rank did not come to create "
		                     "the NCCL transport",
		                     lower->rank);
	if (status != BATON_OK && status != BATON_PENDING)
		batoni_refuse(status,
		              "rank %d: the %s transport could not carry what the "
		              "ranks tell each other: %s",
		              lower->rank, lower->ops->name,
		              baton_status_text(status));
	return status;
}

void
batoni_nccl_fill_word(const struct batoni_nccl *nccl, struct batoni_nccl_word *word)
{
	word->status = nccl->mine;
	snprintf(word->why, sizeof(word->why), "%s",
	         nccl->mine < BATON_OK ? baton_last_error() : "");
}

enum baton_status
batoni_nccl_refuse_failed(int rank, const struct batoni_nccl_word *word)
{
	return batoni_refuse(batoni_error_told(word->status),
	                     "rank %d could not create its end of the NCCL "
	                     "transport: %.*s",
	                     rank, (int)sizeof(word->why), word->why);
}

/* What a round has brought: OK, all ranks are done; PENDING; an error. */
static enum baton_status
judge_rounds(const struct batoni_nccl *nccl)
{
	enum baton_status status = BATON_OK;

	for (int i = 0; i < nccl->base.size; i++) {
		if (batoni_nccl_has_failed(&nccl->words[i]))
			return batoni_nccl_refuse_failed(i, &nccl->words[i]);
		if (nccl->words[i].status == BATON_PENDING)
			status = BATON_PENDING;
	}
	return status;
}

/* `mine` becomes PENDING: it goes on in NCCL; OK, or an error: it is over. */
static void
check_work(struct batoni_nccl *nccl, const struct batoni_nccl_work *work)
{
	struct batoni_nccl_lane *lane = NULL;
	struct batoni_memory_guard guard;
	ncclResult_t result = BATONI_NCCL_SUCCESS;

	if (nccl->limit_ns == 0)
		nccl->limit_ns = batoni_real_ns() + nccl->patience_ns;
	nccl->mine = batoni_nccl_enter(nccl, &guard, nccl->limit_ns);
	if (nccl->mine == BATON_ERR_AGAIN)
		note_timeout(nccl, work->done);
	if (nccl->mine != BATON_OK)
		return;
	if (!nccl->begun) {
		nccl->begun = true;
		result = work->begin(nccl);
	}
	if (result == BATONI_NCCL_SUCCESS || result == BATONI_NCCL_IN_PROGRESS)
		result = batoni_nccl_state(nccl, false, &lane);
	if (result != BATONI_NCCL_SUCCESS && result != BATONI_NCCL_IN_PROGRESS)
		batoni_nccl_note(nccl, work->call, lane, result);
	batoni_nccl_leave(nccl, &guard);
	if (result == BATONI_NCCL_IN_PROGRESS)
		nccl->mine = BATON_PENDING;
	else if (result == BATONI_NCCL_SUCCESS && work->end)
		nccl->mine = work->end(nccl);
	if (nccl->mine == BATON_PENDING && batoni_real_ns() > nccl->limit_ns)
		note_timeout(nccl, work->done);
}

enum baton_status
batoni_nccl_tell(struct batoni_nccl *nccl, uint64_t what, const ncclUniqueId *id)
{
	enum baton_status status;

	/* In a round a rank says one thing. */
	if (!nccl->in_round) {
		batoni_nccl_fill_word(nccl, &nccl->says);
		if (id && nccl->mine == BATON_OK)
			nccl->says.id = *id;
	}
	nccl->in_round = true;
	status = batoni_nccl_exchange(nccl, what, &nccl->says,
	                              sizeof(nccl->says), nccl->words);
	nccl->in_round = status == BATON_PENDING;
	nccl->judged = status == BATON_OK;
	return status == BATON_OK ? judge_rounds(nccl) : status;
}

enum baton_status
batoni_nccl_do_work(struct batoni_nccl *nccl, const struct batoni_nccl_work *work)
{

	if (!nccl->in_round && (!nccl->begun || nccl->mine == BATON_PENDING))
		check_work(nccl, work);
	return batoni_nccl_tell(nccl, work->what, NULL);
}
