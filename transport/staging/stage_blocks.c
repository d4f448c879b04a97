/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of staging: tables, jobs, trials, closing.  The note is in stage_blocks.h. */
#include "stage_blocks.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "copies.h"
#include "log.h"
#include "mem.h"

/* Another process has so long to hand on a descriptor. */
#define HANDOVER_NS UINT64_C(5000000000)

enum baton_status
batoni_stage_maps_create(struct batoni_staging *stage, unsigned char *scratch)
{
	struct stage_maps *maps = batoni_alloc(1, sizeof(*maps));

	if (!maps)
		return BATON_ERR_NOMEM;
	batoni_list_init(&maps->offerings.blocks);
	batoni_list_init(&maps->mappings.blocks);
	batoni_list_init(&maps->jobs);
	batoni_list_init(&maps->trials);
	batoni_list_init(&maps->parting);
	maps->scratch = scratch;
	maps->withdrawals = batoni_withdrawals();
	stage->maps = maps;
	return BATON_OK;
}

/* ---- jobs ---- */

static enum baton_status
make_offering(struct stage_block *block)
{
	enum baton_status status =
		batoni_offer_make(block->device, block->memory, block->of.base,
	                          block->of.bytes, &block->offering,
	                          &block->offer);

	if (status != BATON_OK)
		return status;
	if (block->offer.offered && !block->offering.kept && !block->all) {
		batoni_offering_close(&block->offering);
		return batoni_refuse(
			BATON_ERR_UNSUPPORTED,
			"its owner must not free it while another process has it "
			"mapped (memory of cuMemAlloc and cudaMalloc); "
			"BATON_STAGING_MAPS=all promises that");
	}
	return block->offer.offered
	               ? BATON_OK
	               : batoni_refuse(BATON_ERR_UNSUPPORTED, "%s",
	                               block->offer.why);
}

/* No pidfd, so that the block is fetched by its secret.  The owner may close an offering before all have
 * fetched it, as it does when the memory is freed; the number of its descriptor may then be another
 * block's, and the descriptors of all blocks may be of one inode: what pidfd_getfd takes could be that
 * other block's. */
static enum baton_status
make_mapping(struct stage_block *block)
{
	enum baton_status status = batoni_mapping_take(
		block->device, block->memory, &block->offer, -1,
		batoni_real_ns() + HANDOVER_NS, &block->mapping, &block->base);

	if (status == BATON_OK)
		block->base -= block->offer.offset;
	return status;
}

static void
unmake(struct stage_block *block)
{
	if (block->foreign)
		batoni_mapping_give(block->device, block->mapping);
	else
		batoni_offering_close(&block->offering);
}

static struct stage_block *
of_job(struct batoni_job *job)
{
	return batoni_container_of(job, struct stage_block, job);
}

static void
run_job(struct batoni_job *job)
{
	struct stage_block *block = of_job(job);

	if (block->state == BLOCK_LEAVING) {
		unmake(block);
		return;
	}
	block->status = block->foreign ? make_mapping(block)
	                               : make_offering(block);
	if (block->status != BATON_OK)
		snprintf(block->why, sizeof(block->why), "%s",
		         baton_last_error());
}

/* The job was given up. */
static void
cleanup_job(struct batoni_job *job)
{
	struct stage_block *block = of_job(job);

	if (block->state == BLOCK_MAKING && block->status == BATON_OK)
		unmake(block);
	batoni_free(block);
}

static void
refuse_block(const struct batoni_staging *stage, struct stage_block *block,
             const char *why)
{
	block->state = BLOCK_REFUSED;
	if (block->foreign)
		batoni_log(BATONI_LOG_INFO,
		           "rank %d: messages from a block of %llu bytes of rank "
		           "%d's device go in pieces through pinned memory: %s",
		           stage->base.rank,
		           (unsigned long long)block->offer.bytes, block->peer,
		           why);
	else
		batoni_log(BATONI_LOG_INFO,
		           "rank %d: messages from the %zu bytes of device memory "
		           "at %p go in pieces through pinned memory: %s",
		           stage->base.rank, block->of.bytes,
		           (const void *)block->of.base, why);
}

/* Start the next job, if none runs.  One that has no thread is tried again later, or is the end of what
 * it was to make. */
static void
start_job(const struct batoni_staging *stage)
{
	struct stage_maps *maps = stage->maps;

	while (!maps->running && !batoni_list_empty(&maps->jobs)) {
		struct stage_block *block = batoni_container_of(
			maps->jobs.next, struct stage_block, turn);
		bool makes = block->state == BLOCK_QUEUED;

		if (makes)
			block->state = BLOCK_MAKING;
		block->withdrawals = batoni_withdrawals();
		block->job = (struct batoni_job){.run = run_job,
		                                 .cleanup = cleanup_job};
		if (batoni_job_start(&block->job) == 0)
			maps->running = block;
		else if (!makes)
			return;
		batoni_list_remove(&block->turn);
		if (!maps->running)
			refuse_block(stage, block, "there is no thread for it");
	}
}

void
batoni_block_queue(const struct batoni_staging *stage, struct stage_block *block,
                   enum block_state state)
{
	block->state = state;
	batoni_list_remove(&block->turn);
	batoni_list_append(&stage->maps->jobs, &block->turn);
	start_job(stage);
}

/* ---- tables ---- */

static struct stage_table *
table_of(const struct batoni_staging *stage, const struct stage_block *block)
{
	return block->foreign ? &stage->maps->mappings : &stage->maps->offerings;
}

struct stage_block *
batoni_block_find(const struct stage_table *table, int peer, uint64_t number)
{
	struct batoni_list_node *at = table->blocks.next;

	while (at != &table->blocks && (stage_block_of(at)->of.number != number ||
	                                stage_block_of(at)->peer != peer))
		at = at->next;
	return at == &table->blocks ? NULL : stage_block_of(at);
}

void
batoni_block_touch(struct stage_table *table, struct stage_block *block)
{
	batoni_list_remove(&block->link);
	batoni_list_append(&table->blocks, &block->link);
}

/* It is in no table: unmake what there is of it, now or behind what is under way. */
static void
let_go(const struct batoni_staging *stage, struct stage_block *block)
{
	switch (block->state) {
	case BLOCK_QUEUED:
		batoni_list_remove(&block->turn);
		batoni_free(block);
		break;
	case BLOCK_REFUSED:
		if (block->mapping)
			batoni_block_queue(stage, block, BLOCK_LEAVING);
		else
			batoni_free(block);
		break;
	case BLOCK_MAKING:
	case BLOCK_TRYING:
		block->dropped = true;
		break;
	case BLOCK_READY:
		block->dropped = true;
		if (block->users == 0)
			batoni_block_queue(stage, block, BLOCK_LEAVING);
		else
			batoni_list_append(&stage->maps->parting, &block->turn);
		break;
	case BLOCK_LEAVING:
		break;
	}
}

void
batoni_block_drop(const struct batoni_staging *stage, struct stage_block *block)
{
	struct stage_maps *maps = stage->maps;

	table_of(stage, block)->n--;
	batoni_list_remove(&block->link);
	if (!block->foreign)
		maps->gone[maps->gone_n++ % GONE_MAX] = block->of.number;
	let_go(stage, block);
}

/* Room for one more.  False: all are in use. */
static bool
make_room(const struct batoni_staging *stage, struct stage_table *table)
{
	struct batoni_list_node *at = table->blocks.next;

	if (table->n < BLOCKS_MAX)
		return true;
	while (at != &table->blocks && (stage_block_of(at)->users > 0 ||
	                                stage_block_of(at)->state < BLOCK_READY))
		at = at->next;
	if (at == &table->blocks)
		return false;
	batoni_block_drop(stage, stage_block_of(at));
	return true;
}

struct stage_block *
batoni_block_add(const struct batoni_staging *stage, struct stage_table *table)
{
	struct stage_block *block =
		make_room(stage, table) ? batoni_alloc(1, sizeof(*block)) : NULL;

	if (!block)
		return NULL;
	block->device = stage->device;
	block->memory = stage->memory;
	block->all = stage->config.maps_all;
	block->offering.fd = -1;
	block->peer = -1;
	batoni_list_init(&block->turn);
	batoni_list_append(&table->blocks, &block->link);
	table->n++;
	return block;
}

/* ---- what is under way ---- */

/* A mapping that is not to be used; its block stays in the table. */
static void
give_mapping(const struct batoni_staging *stage, struct stage_block *block)
{
	struct stage_block *leaves = batoni_alloc(1, sizeof(*leaves));

	/* Without memory it stays mapped until the block goes. */
	if (!leaves)
		return;
	*leaves = *block;
	batoni_list_init(&leaves->link);
	batoni_list_init(&leaves->turn);
	block->mapping = NULL;
	batoni_block_queue(stage, leaves, BLOCK_LEAVING);
}

/* The trial of the first one has ended; why: NULL, or that it was refused. */
static void
end_trial(const struct batoni_staging *stage, const char *why)
{
	struct stage_maps *maps = stage->maps;
	struct stage_block *block = batoni_container_of(
		maps->trials.next, struct stage_block, turn);

	maps->stands = false;
	batoni_list_remove(&block->turn);
	block->state = BLOCK_READY;
	if (block->dropped) {
		batoni_block_queue(stage, block, BLOCK_LEAVING);
	} else if (why) {
		refuse_block(stage, block, why);
		give_mapping(stage, block);
	}
}

static size_t
test_trial(const struct batoni_staging *stage)
{
	struct stage_maps *maps = stage->maps;
	const struct stage_block *block = batoni_container_of(
		maps->trials.next, const struct stage_block, turn);
	struct batoni_fault fault;
	enum baton_status status;

	if (maps->stands) {
		status = stage->memory->copy_test(stage->device, &maps->trial);
	} else {
		status = stage->memory->copy_start(
			stage->device, maps->scratch, block->base, 1,
			stage->device->number, &maps->trial);
		maps->stands = status == BATON_OK;
		if (maps->stands || status == BATON_ERR_AGAIN)
			status = BATON_PENDING;
	}
	if (status == BATON_PENDING)
		return 0;
	stage->memory->why(stage->device, &fault);
	end_trial(stage, status == BATON_OK ? NULL : fault.text);
	return 1;
}

static void
end_job(const struct batoni_staging *stage)
{
	struct stage_maps *maps = stage->maps;
	struct stage_block *block = maps->running;
	bool made = block->state == BLOCK_MAKING && block->status == BATON_OK;

	maps->running = NULL;
	if (made && block->dropped) {
		batoni_block_queue(stage, block, BLOCK_LEAVING);
	} else if (block->dropped || block->state == BLOCK_LEAVING) {
		batoni_free(block);
	} else if (!made) {
		refuse_block(stage, block, block->why);
	} else if (block->foreign) {
		block->state = BLOCK_TRYING;
		batoni_list_append(&maps->trials, &block->turn);
	} else {
		batoni_offering_list(&block->offering, &block->of);
		block->state = BLOCK_READY;
		/* Its memory may have been freed before it was in the list. */
		if (batoni_withdrawals() != block->withdrawals)
			batoni_block_drop(stage, block);
	}
}

size_t
batoni_stage_maps_test(struct batoni_staging *stage)
{
	struct stage_maps *maps = stage->maps;
	size_t events = 0;

	if (maps->running && batoni_job_await(&maps->running->job, 0)) {
		end_job(stage);
		events++;
	}
	start_job(stage);
	if (!batoni_list_empty(&maps->trials))
		events += test_trial(stage);
	return events;
}

/* ---- closing ---- */

/* Copies may go on there for ever. */
static void
leave_mapped(struct stage_block *block)
{
	batoni_mapping_abandon(block->mapping);
	batoni_free(block);
}

static void
empty_table(const struct batoni_staging *stage, struct stage_table *table)
{
	while (!batoni_list_empty(&table->blocks))
		batoni_block_drop(stage, stage_block_of(table->blocks.next));
}

/* Those that messages still have.  read: copies out of them go on. */
static void
part(const struct batoni_staging *stage, bool read)
{
	struct batoni_list_node *parting = &stage->maps->parting;

	while (!batoni_list_empty(parting)) {
		struct stage_block *block = batoni_container_of(
			parting->next, struct stage_block, turn);

		if (!read) {
			batoni_block_queue(stage, block, BLOCK_LEAVING);
			continue;
		}
		batoni_list_remove(&block->turn);
		leave_mapped(block);
	}
}

static bool
end_trials(const struct batoni_staging *stage)
{
	struct stage_maps *maps = stage->maps;
	bool all = true;

	if (maps->stands)
		all = batoni_copy_await(stage->device, &maps->trial,
		                        stage->base.patience);
	if (!all) {
		struct stage_block *block = batoni_container_of(
			maps->trials.next, struct stage_block, turn);

		batoni_list_remove(&block->turn);
		leave_mapped(block);
		maps->stands = false;
	}
	while (!batoni_list_empty(&maps->trials))
		end_trial(stage, NULL);
	return all;
}

/* The job that runs is waited for as long as the patience lasts.  False: it leaves by itself. */
static bool
await_job(const struct batoni_staging *stage)
{
	const struct batoni_patience *patience = stage->base.patience;
	struct stage_maps *maps = stage->maps;

	for (unsigned tries = 0; !batoni_job_await(&maps->running->job, 0) &&
	                         batoni_real_ns() < patience->until_ns;
	     tries++)
		patience->yield(tries);
	if (batoni_job_finish(&maps->running->job, 0)) {
		end_job(stage);
		return true;
	}
	maps->running = NULL;
	return false;
}

bool
batoni_stage_maps_leave(struct batoni_staging *stage)
{
	struct stage_maps *maps = stage->maps;

	empty_table(stage, &maps->mappings);
	batoni_stage_maps_test(stage);
	return !maps->running && batoni_list_empty(&maps->jobs) &&
	       batoni_list_empty(&maps->trials) &&
	       batoni_list_empty(&maps->parting);
}

/* There is no thread for it. */
static void
unmake_here(struct stage_maps *maps)
{
	struct stage_block *block = batoni_container_of(
		maps->jobs.next, struct stage_block, turn);

	batoni_list_remove(&block->turn);
	unmake(block);
	batoni_free(block);
}

bool
batoni_stage_maps_close(struct batoni_staging *stage, bool read)
{
	struct stage_maps *maps = stage->maps;
	bool all;

	if (!maps)
		return true;
	/* Whatever is made from here on is unmade. */
	empty_table(stage, &maps->offerings);
	empty_table(stage, &maps->mappings);
	part(stage, read);
	all = end_trials(stage);
	while (maps->running || !batoni_list_empty(&maps->jobs)) {
		if (!maps->running)
			start_job(stage);
		if (maps->running)
			all &= await_job(stage);
		else if (!batoni_list_empty(&maps->jobs))
			unmake_here(maps);
	}
	batoni_free(maps);
	stage->maps = NULL;
	return all;
}
