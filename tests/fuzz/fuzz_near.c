/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages through shared memory (transport/near/), as they are, between three ranks of this process
 * (near_world.h).  Rank 1 sends to the others and receives from them, cancels and gives buffers up; between
 * any of its calls a peer writes: messages of any header and payload into a ring, any word into a
 * control, a state, the bits or the cells of any area.  The other ranks are told to do the same, so that
 * what is written meets transfers under way, by reading and by chunks.
 *
 * What rank 1 and the others send from lies in blocks, every second time, which receivers map: a mapping is a
 * copy that ends where the block does, and stays when its owner frees it.
 *
 * Nothing is written outside of a receive's buffer, which AddressSanitizer sees; each transfer ends
 * once; load and in-flight counts agree; a communicator breaks once, with PEER; every call returns;
 * and what is broken gives everything back but what a peer says it is reading.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/support/near_world.h"
#include "block.h"
#include "fuzz.h"
#include "thread.h"

enum {
	FUZZ_SLOTS = 8,
	LONGEST = 40000, /* of messages */
	COMMANDS_MOST = 300,
	/* Of unit.kind: in numbers of announcements that name a block. */
	BLOCK_BIT = 64,
	NAMES_BLOCK = 7 * (BATONI_RING_KINDS + 1)
};

static_assert((NAMES_BLOCK & BLOCK_BIT) &&
                      ((NAMES_BLOCK + BATONI_RING_KINDS) & BLOCK_BIT),
              "all kinds behind it name one");

enum command {
	SEND,
	RECV,
	TAKE,
	SCRAP,
	PASS,
	RUN,
	PUBLISH,
	POKE_CONTROL,
	POKE_STATE,
	POKE_RING,
	FILL,
	BREAK,
	COMMANDS
};

struct unit {
	uint8_t what, rank, slot, peer, kind, more;
};

static struct near_world world;
static struct slot {
	unsigned char *buffer; /* NULL: it is free */
	size_t bytes;
	struct batoni_shm_block block; /* if it lies in one */
	bool in_block;
} slots[NEAR_RANKS][FUZZ_SLOTS];
static unsigned jobs; /* every fifth one has no thread */

/* ---- what near needs of others ---- */

struct batoni_bell *
batoni_bell(void)
{
	static struct batoni_bell bell;

	return &bell;
}

void
batoni_bell_ring(struct batoni_bell *bell)
{
	(void)bell;
}

void
batoni_bell_call(struct batoni_bell *bell, const struct batoni_pipe *pipe_or_null)
{
	(void)bell;
	(void)pipe_or_null;
}

bool
batoni_pidfd_gone(int fd)
{
	(void)fd;
	return false;
}

bool
batoni_shm_populate(void *at, size_t bytes)
{
	(void)at;
	(void)bytes;
	return true;
}

void
batoni_shm_node(struct batoni_shm_name *name_p)
{
	(void)name_p;
}

void
batoni_shm_name(const struct batoni_shm *shm, struct batoni_shm_name *name_p)
{
	*name_p = (struct batoni_shm_name){.bytes = shm->bytes, .fd = shm->fd};
}

/* By the descriptor: a rank and a slot. */
enum baton_status
batoni_shm_map_to_read(const struct batoni_shm_name *name, void **base_p)
{
	int rank = name->fd / FUZZ_SLOTS;
	const struct slot *slot;

	CLAIM(name->bytes > 0);
	if (name->fd < 0 || rank >= NEAR_RANKS)
		return BATON_ERR_UNSUPPORTED;
	slot = &slots[rank][name->fd % FUZZ_SLOTS];
	if (!slot->in_block || slot->bytes != name->bytes)
		return BATON_ERR_UNSUPPORTED;
	*base_p = malloc(slot->bytes);
	if (!*base_p)
		exit(EXIT_FAILURE);
	memcpy(*base_p, slot->buffer, slot->bytes);
	return BATON_OK;
}

void
batoni_shm_unmap(void *base, size_t bytes)
{
	(void)bytes;
	free(base);
}

/* A job has ended before it is asked for the first time, or, where nobody waits for it, when it has started. */
int
batoni_job_start(struct batoni_job *job)
{
	if (++jobs % 5 == 0)
		return EAGAIN;
	if (job->given_up) {
		job->run(job);
		job->cleanup(job);
	}
	return 0;
}

bool
batoni_job_await(struct batoni_job *job, uint64_t until_ns)
{
	if (until_ns == 0 && jobs % 3 == 0)
		return false;
	if (!job->done)
		job->run(job);
	job->done = true;
	return true;
}

bool
batoni_job_finish(struct batoni_job *job, uint64_t until_ns)
{
	if (batoni_job_await(job, until_ns))
		return true;
	job->run(job);
	job->cleanup(job);
	return false;
}

uint64_t
batoni_real_ns(void)
{
	return 0;
}

/* What a rank sends can be read; no other address is there. */
enum baton_status
batoni_vm_read(pid_t pid, uint64_t address, void *to, size_t bytes)
{
	CLAIM(pid != 0);
	for (int rank = 0; rank < NEAR_RANKS; rank++) {
		for (int i = 0; i < FUZZ_SLOTS; i++) {
			const struct slot *slot = &slots[rank][i];
			uint64_t begin = (uintptr_t)slot->buffer;

			if (slot->buffer && address >= begin &&
			    address - begin <= slot->bytes &&
			    bytes <= slot->bytes - (address - begin)) {
				memmove(to, slot->buffer + (address - begin),
				        bytes);
				return BATON_OK;
			}
		}
	}
	return address % 2 ? BATON_ERR_INVALID : BATON_ERR_UNSUPPORTED;
}

enum baton_status
batoni_vm_read_parts(pid_t pid, const struct iovec *parts, const struct iovec *to,
                     size_t n)
{
	enum baton_status status = BATON_OK;

	for (size_t i = 0; i < n && status == BATON_OK; i++)
		status = batoni_vm_read(pid, (uintptr_t)parts[i].iov_base,
		                        to[i].iov_base, to[i].iov_len);
	return status;
}

/* ---- the ranks ---- */

static void
free_buffer(struct slot *slot)
{
	if (slot->in_block && batoni_shm_block_remove(&slot->block))
		batoni_shm_block_say_gone(slot->block.name.serial);
	slot->in_block = false;
	free(slot->buffer);
	slot->buffer = NULL;
}

static void
put_in_block(int rank, uint32_t at)
{
	struct slot *slot = &slots[rank][at];
	const struct batoni_shm shm = {
		.base = slot->buffer,
		.bytes = slot->bytes,
		.fd = rank * FUZZ_SLOTS + (int)at,
	};

	if (batoni_shm_block_add(&slot->block, &shm) != BATON_OK)
		exit(EXIT_FAILURE);
	slot->in_block = true;
}

/* Buffers of what has ended are its owner's again. */
static void
free_ended(void)
{
	for (int rank = 0; rank < NEAR_RANKS; rank++) {
		for (uint32_t i = 0; i < FUZZ_SLOTS; i++) {
			struct slot *slot = &slots[rank][i];

			if (world.ranks[rank].ends[i] == BATON_PENDING)
				continue;
			free_buffer(slot);
		}
	}
}

static size_t
length_of(const struct unit *unit)
{
	static const size_t lengths[] = {0, 1, 16, 17, 100, 8192, 8193, 16385};

	return unit->more < 128 ? lengths[unit->more % 8]
	                        : (size_t)unit->more * LONGEST / 255;
}

static void
issue_slot(const struct unit *unit, int rank, uint32_t at, bool sends)
{
	int peer = unit->peer % NEAR_RANKS;
	int tag = unit->kind % 3;
	size_t bytes = length_of(unit);
	struct slot *slot = &slots[rank][at];

	if (slot->buffer || world.ranks[rank].broken != BATON_OK)
		return;
	/* Of hidden ones, the last is received from any rank. */
	if (unit->kind >= 200)
		tag = world.ranks[rank].transport->hidden_tag + unit->kind % 3;
	if (tag == INT32_MAX && !sends)
		peer = rank;
	slot->bytes = bytes;
	slot->buffer = malloc(bytes ? bytes : 1);
	if (!slot->buffer)
		exit(EXIT_FAILURE);
	memset(slot->buffer, unit->slot, bytes);
	if (sends && bytes && unit->kind % 2 == 0)
		put_in_block(rank, at);
	if (sends)
		near_send(&world, rank, at, peer, tag, slot->buffer, bytes);
	else
		near_recv(&world, rank, at, peer, tag, slot->buffer, bytes);
}

static void
take_transfer(int rank, uint32_t at, bool scraps)
{
	if (!slots[rank][at].buffer)
		return;
	if (near_take(&world, rank, at) == BATON_ERR_BUSY && scraps &&
	    world.ranks[rank].transfers[at].direction == BATONI_RECV)
		CLAIM(near_scrap(&world, rank, at) == BATON_OK);
}

static void
pass(int rank)
{
	if (near_pairs(&world, rank)->broken)
		CLAIM(near_pass(&world, rank) == 0);
	else
		near_pass(&world, rank);
}

/* ---- what a peer writes ---- */

static uint32_t
word_of(const struct unit *unit)
{
	static const uint32_t words[] = {0, 1, 2, 3, 2047, 2048, UINT32_MAX,
	                                 NEAR_SLOTS};

	return unit->kind < 128 ? words[unit->kind % 8] : unit->more;
}

struct payload {
	union {
		uint32_t words[6];
		struct near_announcement what;
	};
};

/* Numbers that are near to those of transfers under way. */
static void
fill_payload(const struct unit *unit, int from, int to, struct payload *payload)
{
	const struct slot *source = &slots[from][unit->slot % FUZZ_SLOTS];
	uint32_t *words = payload->words;
	uint32_t slot = unit->more % (FUZZ_SLOTS + 1);
	uint32_t theirs = slot == FUZZ_SLOTS ? NEAR_SLOTS : slot;

	words[0] = theirs;
	words[1] = slot < FUZZ_SLOTS
	                   ? near_node_of(&world, to, slot)->generation
	                   : unit->slot;
	words[2] = unit->slot % FUZZ_SLOTS;
	words[3] = unit->more / 16;
	words[4] = slot < FUZZ_SLOTS ? (uint32_t)slots[to][slot].bytes
	                             : unit->kind;
	words[5] = unit->more == 255;
	/* A block that is there, or one that differs a little. */
	if (unit->kind & BLOCK_BIT) {
		payload->what.address = (uintptr_t)source->buffer;
		payload->what.block = source->block.name;
		payload->what.block.serial += unit->more % 4 == 1;
		payload->what.block.base += unit->more % 8 == 2 ? unit->more : 0;
		payload->what.block.bytes -= unit->more % 8 == 3 ? unit->more : 0;
		payload->what.block.fd += unit->more % 16 == 4;
	}
	if (unit->kind % (BATONI_RING_KINDS + 1) == BATONI_RING_GONE) {
		words[0] = unit->more % 2 ? (uint32_t)source->block.name.serial : 0;
		words[1] = 0;
	}
}

static void
publish(const struct unit *unit, int from, int to)
{
	struct batoni_ring_out *out = &near_pairs(&world, from)->peers[to].out;
	struct batoni_ring_head head = {
		.kind = (uint8_t)(unit->kind % (BATONI_RING_KINDS + 1)),
		.tag = unit->more % 3,
		.type = unit->slot == 255 ? 200 : 0,
		.cells = 1,
		.length = length_of(unit),
	};
	struct payload payload = {.words = {0}};

	if (head.kind == BATONI_RING_DONE || head.kind == BATONI_RING_GONE)
		head.length = 8;
	if (head.kind == BATONI_RING_GRANT)
		head.length = 24;
	if (head.kind != BATONI_RING_ANNOUNCE)
		head.cells = (uint16_t)batoni_ring_cells(head.length % 8209);
	if ((head.kind == BATONI_RING_ANNOUNCE ||
	     head.kind == BATONI_RING_LIST_ANNOUNCE) && (unit->kind & BLOCK_BIT))
		head.cells = BATONI_RING_BLOCK_CELLS;
	if (unit->slot == 254)
		head.cells = unit->more;
	if (unit->slot == 253)
		head.length = UINT64_MAX - unit->more;
	/* As a peer that counts, so that it stays a ring. */
	if (!batoni_ring_has_room(out, head.cells))
		return;
	fill_payload(unit, from, to, &payload);
	batoni_ring_copy_in(out, 0, &payload, sizeof(payload));
	batoni_ring_publish(out, &head);
	batoni_ring_call(out);
}

static void
poke_control(const struct unit *unit, int in, int of)
{
	struct batoni_ring_control *control = batoni_ring_control(
		&world.layout, world.ranks[in].area, of);
	_Atomic uint32_t *words[] = {&control->taken, &control->matched,
	                             &control->warmth, &control->hungry,
	                             &control->scan};

	if (unit->slot % 8 < 5)
		atomic_store(words[unit->slot % 8], word_of(unit));
	else
		atomic_store(batoni_ring_bits(world.ranks[in].area, 0),
		             unit->kind == 255 ? UINT64_MAX : unit->kind);
}

static void
poke_state(const struct unit *unit, int in)
{
	uint32_t slot = unit->slot % FUZZ_SLOTS;

	atomic_store(batoni_ring_state(&world.layout, world.ranks[in].area, slot),
	             (uint64_t)near_node_of(&world, in, slot)->generation << 8 |
	                     unit->kind % 8);
}

/* A word where the reader looks next, or a little behind. */
static void
poke_ring(const struct unit *unit, int in, int of)
{
	struct batoni_ring_in *ring = &near_pairs(&world, in)->peers[of].in;
	uint64_t word = (uint64_t)unit->kind | (uint64_t)(unit->slot & 1) << 8 |
	                (uint64_t)unit->more << 16;

	atomic_store(batoni_ring_word(ring->cells, ring->next + unit->slot / 64),
	             word);
	atomic_fetch_or(batoni_ring_bits(world.ranks[in].area, of),
	                UINT64_C(1) << of);
}

/* The lower transport says that a rank is gone. */
static void
break_lower(int rank)
{
	struct batoni_path *lower = &world.ranks[rank].lower.messages;

	if (world.ranks[rank].broken == BATON_OK)
		lower->upcalls->broken(lower->upcalls, BATON_ERR_PEER, NULL, 0, "gone");
}

/* Messages of one cell, until no more goes. */
static void
send_until_full(int rank, int peer, uint32_t at)
{
	static unsigned char byte[1];

	if (slots[rank][at].buffer || world.ranks[rank].broken != BATON_OK)
		return;
	while (near_send(&world, rank, at, peer, 1, byte, 1) == BATON_OK)
		;
	/* Its buffer is read, at most. */
	slots[rank][at].bytes = 1;
	slots[rank][at].buffer = malloc(1);
	if (!slots[rank][at].buffer)
		exit(EXIT_FAILURE);
}

static void
obey(const struct unit *unit)
{
	int rank = unit->rank % NEAR_RANKS, peer = unit->peer % NEAR_RANKS;
	uint32_t at = unit->slot % FUZZ_SLOTS;

	switch ((enum command)(unit->what % COMMANDS)) {
	case SEND:
	case RECV:
		issue_slot(unit, rank, at, unit->what % COMMANDS == SEND);
		break;
	case TAKE:
	case SCRAP:
		take_transfer(rank, at, unit->what % COMMANDS == SCRAP);
		break;
	case PASS:
		pass(rank);
		break;
	case RUN:
		for (int i = 0; i < 2 * NEAR_RANKS; i++)
			pass(i % NEAR_RANKS);
		break;
	case PUBLISH:
		publish(unit, rank, peer);
		break;
	case POKE_CONTROL:
		poke_control(unit, rank, peer);
		break;
	case POKE_STATE:
		poke_state(unit, rank);
		break;
	case POKE_RING:
		poke_ring(unit, rank, peer);
		break;
	case FILL:
		send_until_full(rank, peer, at);
		break;
	case BREAK:
		break_lower(rank);
		break;
	case COMMANDS:
		break;
	}
	free_ended();
}

/* ---- input ---- */

void
seeds(void)
{
	/* A long message, read or by chunks; with its send taken back; scrapped. */
	SEED(0, {SEND, 0, 1, 1, 0, 250}, {RECV, 1, 2, 0, 0, 250}, {RUN}, {RUN});
	SEED(1, {SEND, 0, 1, 1, 0, 250}, {RECV, 1, 2, 0, 0, 250}, {RUN}, {RUN},
	     {RUN});
	SEED(1, {SEND, 0, 1, 1, 0, 250}, {RUN}, {TAKE, 0, 1}, {RECV, 1, 2, 0, 0, 250},
	     {RUN});
	SEED(1, {RECV, 1, 2, 0, 0, 250}, {SEND, 0, 1, 1, 0, 250}, {PASS, 1},
	     {SCRAP, 1, 2}, {RUN}, {RUN});
	/* Short ones, a full ring, counts that cannot be. */
	SEED(0, {SEND, 0, 1, 1, 0, 5}, {RECV, 1, 2, 0, 0, 5}, {RUN});
	SEED(0, {FILL, 0, 1, 1}, {RECV, 1, 2, 0, 1, 5}, {RUN}, {RUN});
	SEED(0, {FILL, 0, 1, 1}, {POKE_CONTROL, 1, 0, 0, 6}, {RUN});
	/* Of any rank. */
	SEED(0, {RECV, 1, 2, 1, 202, 5}, {SEND, 0, 1, 1, 202, 5}, {RUN});
	/* From a block: mapped at the second one, which another one of the same slot follows; scrapped. */
	SEED(0, {SEND, 0, 1, 1, 0, 250}, {RECV, 1, 2, 0, 0, 250}, {RUN},
	     {SEND, 0, 1, 1, 0, 250}, {SEND, 0, 2, 1, 0, 250},
	     {RECV, 1, 2, 0, 0, 250}, {RECV, 1, 3, 0, 0, 250}, {PASS, 1},
	     {SCRAP, 1, 3}, {RUN}, {RUN});
	SEED(0, {SEND, 0, 1, 1, 0, 250}, {RECV, 1, 2, 0, 0, 250}, {RUN},
	     {SEND, 0, 1, 1, 0, 250}, {TAKE, 0, 1}, {RECV, 1, 2, 0, 0, 250},
	     {SEND, 0, 1, 1, 0, 240}, {RUN}, {RUN});
	/* Written by hand, with a block that is there, and some that are not. */
	for (uint8_t more = 0; more < 8; more++)
		SEED(0, {SEND, 0, 1, 1, 0, 250}, {RECV, 1, 2, 0, 0, 250},
		     {PUBLISH, 0, 1, 1, NAMES_BLOCK + BATONI_RING_ANNOUNCE, more}, {RUN},
		     {RECV, 1, 3, 0, (uint8_t)(more % 3), 250},
		     {PUBLISH, 0, 1, 1, NAMES_BLOCK + BATONI_RING_LIST_ANNOUNCE, more},
		     {RUN}, {PUBLISH, 0, 1, 1, BATONI_RING_GONE, more}, {RUN});
	/* Written by hand: each kind, with a receive or a send for it. */
	for (uint8_t kind = 0; kind <= BATONI_RING_KINDS; kind++)
		SEED(1, {RECV, 1, 2, 0, 0, 250}, {SEND, 1, 1, 0, 0, 250},
		     {PUBLISH, 0, 1, 1, kind, 1}, {PUBLISH, 0, 2, 1, kind, 2},
		     {RUN}, {BREAK, 1}, {TAKE, 1, 1}, {TAKE, 1, 2});
	for (uint8_t word = 0; word < 8; word++)
		SEED(0, {SEND, 0, 1, 1, 0, 250}, {POKE_STATE, 0, 1, 0, word},
		     {RECV, 1, 2, 0, 0, 250}, {RUN}, {TAKE, 0, 1});
	SEED(0, {RECV, 1, 2, 0, 0, 250}, {POKE_RING, 1, 0, 0, 4, 2}, {RUN});
}

static void
finish(void)
{
	near_close_all(&world, true);
	for (int rank = 0; rank < NEAR_RANKS; rank++) {
		CLAIM(world.ranks[rank].broken == BATON_OK ||
		      world.ranks[rank].broken == BATON_ERR_PEER);
		for (int i = 0; i < FUZZ_SLOTS; i++)
			free_buffer(&slots[rank][i]);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct unit unit;

	if (n == 0)
		return 0;
	near_open(&world, bytes[0] % 2 ? NEAR_BY_CHUNKS : NEAR_READ, bytes[0] & 2);
	bytes++;
	n--;
	for (int i = 0; n >= sizeof(unit) && i < COMMANDS_MOST; i++) {
		memcpy(&unit, bytes, sizeof(unit));
		obey(&unit);
		bytes += sizeof(unit);
		n -= sizeof(unit);
	}
	finish();
	return 0;
}
