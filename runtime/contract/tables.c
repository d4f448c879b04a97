/* SPDX-License-Identifier: BSD-3-Clause */
/* The descriptions of the tables, and the check, which is a loop.  Nothing here has state. */
#include "tables.h"

#include <assert.h>
#include <string.h>

#include "device.h"
#include "onesided.h"
#include "opening.h"

typedef void (*slot_fn)(void);

static_assert(sizeof(slot_fn) == sizeof(void *), "a slot is as long as a pointer");

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A slot of struct `type`, by the table's name in front. */
#define SLOT(type, in, slot) {in #slot, offsetof(struct type, slot)}

/* The slots of the struct, which are its last members, are all in `name`_slots, and are no more
 * than a dozen. */
#define ALL(type, name, first)                                                \
	static_assert(sizeof(struct type) - offsetof(struct type, first) ==   \
	                      COUNT(name##_slots) * sizeof(slot_fn),          \
	              "a slot of " #type " is not described");                \
	static_assert(COUNT(name##_slots) <= BATONI_SLOTS_MOST,               \
	              #type " has too many slots")

#define TABLE(name)                                                           \
	const struct batoni_table batoni_##name##_table = {                   \
		.slots = name##_slots,                                        \
		.slots_n = COUNT(name##_slots),                               \
		.parts = name##_parts,                                        \
		.parts_n = COUNT(name##_parts)}

#define LEAF(type, name, first)                                               \
	ALL(type, name, first);                                               \
	static const struct batoni_table name = {                             \
		.slots = name##_slots, .slots_n = COUNT(name##_slots)}

/* ---- what a memory table points to ---- */

static const struct batoni_slot batches_slots[] = {
	SLOT(batoni_batch_ops, "memory.batches.", copies_start),
};

LEAF(batoni_batch_ops, batches, copies_start);

static const struct batoni_slot library_slots[] = {
	SLOT(batoni_library_ops, "memory.library.", enter),
	SLOT(batoni_library_ops, "memory.library.", exit),
	SLOT(batoni_library_ops, "memory.library.", flush),
	SLOT(batoni_library_ops, "memory.library.", available),
};

LEAF(batoni_library_ops, library, enter);

static const struct batoni_slot presence_slots[] = {
	SLOT(batoni_presence_ops, "memory.presence.", present),
	SLOT(batoni_presence_ops, "memory.presence.", owner),
};

LEAF(batoni_presence_ops, presence, present);

static const struct batoni_slot sharing_slots[] = {
	SLOT(batoni_sharing_ops, "memory.sharing.", identify),
	SLOT(batoni_sharing_ops, "memory.sharing.", share),
	SLOT(batoni_sharing_ops, "memory.sharing.", map),
	SLOT(batoni_sharing_ops, "memory.sharing.", unmap),
};

LEAF(batoni_sharing_ops, sharing, identify);

static const struct batoni_slot reach_slots[] = {
	SLOT(batoni_reach_ops, "memory.reach.", reaches),
};

LEAF(batoni_reach_ops, reach, reaches);

static const struct batoni_slot blocks_slots[] = {
	SLOT(batoni_block_ops, "memory.blocks.", block_alloc),
	SLOT(batoni_block_ops, "memory.blocks.", block_free),
};

LEAF(batoni_block_ops, blocks, block_alloc);

static const struct batoni_slot pins_slots[] = {
	SLOT(batoni_pin_ops, "memory.pins.", pin),
	SLOT(batoni_pin_ops, "memory.pins.", unpin),
};

LEAF(batoni_pin_ops, pins, pin);

/* ---- a device's memory ---- */

static const struct batoni_slot memory_slots[] = {
	SLOT(batoni_memory_ops, "memory.", inspect),
	SLOT(batoni_memory_ops, "memory.", pinned_alloc),
	SLOT(batoni_memory_ops, "memory.", pinned_free),
	SLOT(batoni_memory_ops, "memory.", copy_start),
	SLOT(batoni_memory_ops, "memory.", copy_test),
	SLOT(batoni_memory_ops, "memory.", why),
	SLOT(batoni_memory_ops, "memory.", error_text),
	SLOT(batoni_memory_ops, "memory.", health),
};

ALL(batoni_memory_ops, memory, inspect);

static const struct batoni_part memory_parts[] = {
	{SLOT(batoni_memory_ops, "memory.", batches), BATONI_PART_MAY, NULL, &batches},
	{SLOT(batoni_memory_ops, "memory.", library), BATONI_PART_MAY, NULL, &library},
	{SLOT(batoni_memory_ops, "memory.", presence), BATONI_PART_MAY, NULL, &presence},
	{SLOT(batoni_memory_ops, "memory.", sharing), BATONI_PART_MAY, NULL, &sharing},
	{SLOT(batoni_memory_ops, "memory.", reach), BATONI_PART_MAY, NULL, &reach},
	{SLOT(batoni_memory_ops, "memory.", blocks), BATONI_PART_MAY, NULL, &blocks},
	{SLOT(batoni_memory_ops, "memory.", pins), BATONI_PART_MAY, NULL, &pins},
};

static const struct batoni_table memory = {
	.slots = memory_slots,
	.slots_n = COUNT(memory_slots),
	.parts = memory_parts,
	.parts_n = COUNT(memory_parts),
};

/* ---- what a device table points to ---- */

static const struct batoni_slot in_engine_slots[] = {
	SLOT(batoni_in_engine_ops, "in_engine.", takes_now),
	SLOT(batoni_in_engine_ops, "in_engine.", launch_waits),
};

LEAF(batoni_in_engine_ops, in_engine, takes_now);

static const struct batoni_slot marks_slots[] = {
	SLOT(batoni_mark_ops, "marks.", mark),
	SLOT(batoni_mark_ops, "marks.", mark_done),
	SLOT(batoni_mark_ops, "marks.", mark_drop),
};

LEAF(batoni_mark_ops, marks, mark);

static const struct batoni_slot events_slots[] = {
	SLOT(batoni_event_ops, "events.", follow),
	SLOT(batoni_event_ops, "events.", mark_follow),
};

LEAF(batoni_event_ops, events, follow);

static const struct batoni_slot bounds_slots[] = {
	SLOT(batoni_bound_ops, "bounds.", begin),
	SLOT(batoni_bound_ops, "bounds.", commit),
	SLOT(batoni_bound_ops, "bounds.", holds),
};

LEAF(batoni_bound_ops, bounds, begin);

static const struct batoni_slot shared_queues_slots[] = {
	SLOT(batoni_shared_queue_ops, "shared_queues.", stream_create_apart),
	SLOT(batoni_shared_queue_ops, "shared_queues.", stream_create_waiting),
	SLOT(batoni_shared_queue_ops, "shared_queues.", crowd),
	SLOT(batoni_shared_queue_ops, "shared_queues.", foreign_streams),
	SLOT(batoni_shared_queue_ops, "shared_queues.", wait),
	SLOT(batoni_shared_queue_ops, "shared_queues.", behind),
};

LEAF(batoni_shared_queue_ops, shared_queues, stream_create_apart);

static const struct batoni_slot handles_slots[] = {
	SLOT(batoni_handle_ops, "handles.", stops_others),
	SLOT(batoni_handle_ops, "handles.", names),
};

LEAF(batoni_handle_ops, handles, stops_others);

static const struct batoni_slot stream_puts_slots[] = {
	SLOT(batoni_stream_put_ops, "puts.", why_no_puts),
	SLOT(batoni_stream_put_ops, "puts.", stream_number),
	SLOT(batoni_stream_put_ops, "puts.", stream_put),
};

LEAF(batoni_stream_put_ops, stream_puts, why_no_puts);

/* ---- a device ---- */

static const struct batoni_slot device_slots[] = {
	SLOT(batoni_device_ops, "", current),
	SLOT(batoni_device_ops, "", open),
	SLOT(batoni_device_ops, "", close),
	SLOT(batoni_device_ops, "", stream_create),
	SLOT(batoni_device_ops, "", stream_destroy),
	SLOT(batoni_device_ops, "", stream_is_ours),
	SLOT(batoni_device_ops, "", stream_check),
	SLOT(batoni_device_ops, "", stream_idle),
	SLOT(batoni_device_ops, "", enqueue),
	SLOT(batoni_device_ops, "", release),
	SLOT(batoni_device_ops, "", words_alloc),
	SLOT(batoni_device_ops, "", words_free),
};

ALL(batoni_device_ops, device, current);

static const struct batoni_part device_parts[] = {
	{SLOT(batoni_device_ops, "", memory), BATONI_PART_MUST, NULL, &memory},
	{SLOT(batoni_device_ops, "", in_engine), BATONI_PART_MAY, NULL, &in_engine},
	{SLOT(batoni_device_ops, "", marks), BATONI_PART_MAY, NULL, &marks},
	{SLOT(batoni_device_ops, "", events), BATONI_PART_WITH, "marks", &events},
	{SLOT(batoni_device_ops, "", bounds), BATONI_PART_MAY, NULL, &bounds},
	{SLOT(batoni_device_ops, "", shared_queues), BATONI_PART_MAY, NULL, &shared_queues},
	{SLOT(batoni_device_ops, "", handles), BATONI_PART_MAY, NULL, &handles},
	{SLOT(batoni_device_ops, "", puts), BATONI_PART_WITH, "marks", &stream_puts},
};

TABLE(device);

/* ---- what a path table points to ---- */

static const struct batoni_slot host_issued_slots[] = {
	SLOT(batoni_host_issued_ops, "path.host_issued.", issue),
	SLOT(batoni_host_issued_ops, "path.host_issued.", take_back),
};

LEAF(batoni_host_issued_ops, host_issued, issue);

static const struct batoni_slot stream_issued_slots[] = {
	SLOT(batoni_stream_issued_ops, "path.stream_issued.", enqueue),
};

LEAF(batoni_stream_issued_ops, stream_issued, enqueue);

static const struct batoni_slot serving_slots[] = {
	SLOT(batoni_serving_ops, "path.serving.", serves),
	SLOT(batoni_serving_ops, "path.serving.", connect),
};

LEAF(batoni_serving_ops, serving, serves);

static const struct batoni_slot taking_slots[] = {
	SLOT(batoni_taking_ops, "path.taking.", takes),
};

LEAF(batoni_taking_ops, taking, takes);

static const struct batoni_slot checking_slots[] = {
	SLOT(batoni_checking_ops, "path.checking.", accepts),
	SLOT(batoni_checking_ops, "path.checking.", explain),
};

LEAF(batoni_checking_ops, checking, accepts);

static const struct batoni_slot placing_slots[] = {
	SLOT(batoni_placing_ops, "path.placing.", place),
	SLOT(batoni_placing_ops, "path.placing.", unplace),
};

LEAF(batoni_placing_ops, placing, place);

static const struct batoni_slot scrapping_slots[] = {
	SLOT(batoni_scrapping_ops, "path.scrapping.", scrap),
};

LEAF(batoni_scrapping_ops, scrapping, scrap);

static const struct batoni_slot awaiting_slots[] = {
	SLOT(batoni_awaiting_ops, "path.awaiting.", await),
};

LEAF(batoni_awaiting_ops, awaiting, await);

static const struct batoni_slot unmatched_slots[] = {
	SLOT(batoni_unmatched_ops, "path.unmatched.", expect),
	SLOT(batoni_unmatched_ops, "path.unmatched.", find),
	SLOT(batoni_unmatched_ops, "path.unmatched.", hold),
	SLOT(batoni_unmatched_ops, "path.unmatched.", meet),
};

LEAF(batoni_unmatched_ops, unmatched, expect);

static const struct batoni_slot deferring_slots[] = {
	SLOT(batoni_deferring_ops, "path.deferring.", flush),
};

LEAF(batoni_deferring_ops, deferring, flush);

static const struct batoni_slot aborting_slots[] = {
	SLOT(batoni_aborting_ops, "path.aborting.", abort),
};

LEAF(batoni_aborting_ops, aborting, abort);

static const struct batoni_slot closing_slots[] = {
	SLOT(batoni_closing_ops, "path.closing.", close),
};

LEAF(batoni_closing_ops, closing, close);

/* ---- a path ---- */

static const struct batoni_slot path_slots[] = {
	SLOT(batoni_path_ops, "path.", test),
};

ALL(batoni_path_ops, path, test);

static const struct batoni_part path_parts[] = {
	{SLOT(batoni_path_ops, "path.", host_issued), BATONI_PART_UNLESS, "path.stream_issued",
	 &host_issued},
	{SLOT(batoni_path_ops, "path.", stream_issued), BATONI_PART_UNLESS, "path.host_issued",
	 &stream_issued},
	{SLOT(batoni_path_ops, "path.", serving), BATONI_PART_MAY, NULL, &serving},
	{SLOT(batoni_path_ops, "path.", taking), BATONI_PART_WITH, "path.stream_issued", &taking},
	{SLOT(batoni_path_ops, "path.", taking), BATONI_PART_WITH, "path.serving", &taking},
	{SLOT(batoni_path_ops, "path.", checking), BATONI_PART_MAY, NULL, &checking},
	{SLOT(batoni_path_ops, "path.", placing), BATONI_PART_MAY, NULL, &placing},
	{SLOT(batoni_path_ops, "path.", scrapping), BATONI_PART_WITH, "path.host_issued",
	 &scrapping},
	{SLOT(batoni_path_ops, "path.", awaiting), BATONI_PART_WITH, "path.host_issued",
	 &awaiting},
	{SLOT(batoni_path_ops, "path.", unmatched), BATONI_PART_WITH, "path.host_issued",
	 &unmatched},
	{SLOT(batoni_path_ops, "path.", deferring), BATONI_PART_WITH, "path.host_issued",
	 &deferring},
	{SLOT(batoni_path_ops, "path.", aborting), BATONI_PART_MAY, NULL, &aborting},
	{SLOT(batoni_path_ops, "path.", closing), BATONI_PART_MAY, NULL, &closing},
};

TABLE(path);

/* ---- a transport ---- */

static const struct batoni_slot exchanging_slots[] = {
	SLOT(batoni_exchanging_ops, "exchanging.", exchange),
};

LEAF(batoni_exchanging_ops, exchanging, exchange);

static const struct batoni_slot settling_slots[] = {
	SLOT(batoni_settling_ops, "settling.", settle),
};

LEAF(batoni_settling_ops, settling, settle);

static const struct batoni_slot clearing_slots[] = {
	SLOT(batoni_clearing_ops, "clearing.", clear),
};

LEAF(batoni_clearing_ops, clearing, clear);

static const struct batoni_slot locking_slots[] = {
	SLOT(batoni_locking_ops, "locking.", lock),
};

LEAF(batoni_locking_ops, locking, lock);

static const struct batoni_slot texts_slots[] = {
	SLOT(batoni_text_ops, "texts.", error_text),
};

LEAF(batoni_text_ops, texts, error_text);

static const struct batoni_slot deriving_slots[] = {
	SLOT(batoni_deriving_ops, "deriving.", derive),
};

LEAF(batoni_deriving_ops, deriving, derive);

static const struct batoni_slot transport_slots[] = {
	SLOT(batoni_transport_ops, "", leave),
	SLOT(batoni_transport_ops, "", close),
};

ALL(batoni_transport_ops, transport, leave);

static const struct batoni_part transport_parts[] = {
	{SLOT(batoni_transport_ops, "", exchanging), BATONI_PART_MAY, NULL, &exchanging},
	{SLOT(batoni_transport_ops, "", settling), BATONI_PART_MAY, NULL, &settling},
	{SLOT(batoni_transport_ops, "", clearing), BATONI_PART_MAY, NULL, &clearing},
	{SLOT(batoni_transport_ops, "", locking), BATONI_PART_MAY, NULL, &locking},
	{SLOT(batoni_transport_ops, "", texts), BATONI_PART_MAY, NULL, &texts},
	{SLOT(batoni_transport_ops, "", deriving), BATONI_PART_MAY, NULL, &deriving},
};

TABLE(transport);

/* ---- the one-sided layer ---- */

static const struct batoni_slot beside_slots[] = {
	SLOT(batoni_beside_ops, "beside.", targets),
	SLOT(batoni_beside_ops, "beside.", signal),
	SLOT(batoni_beside_ops, "beside.", hold),
	SLOT(batoni_beside_ops, "beside.", drop),
};

LEAF(batoni_beside_ops, beside, targets);

static const struct batoni_slot onesided_slots[] = {
	SLOT(batoni_onesided_ops, "", open),
	SLOT(batoni_onesided_ops, "", start),
	SLOT(batoni_onesided_ops, "", message_done),
	SLOT(batoni_onesided_ops, "", describe),
	SLOT(batoni_onesided_ops, "", counter),
	SLOT(batoni_onesided_ops, "", units),
	SLOT(batoni_onesided_ops, "", forget),
	SLOT(batoni_onesided_ops, "", alive),
	SLOT(batoni_onesided_ops, "", drain),
	SLOT(batoni_onesided_ops, "", leave),
	SLOT(batoni_onesided_ops, "", close),
};

ALL(batoni_onesided_ops, onesided, open);

static const struct batoni_part onesided_parts[] = {
	{SLOT(batoni_onesided_ops, "", beside), BATONI_PART_MUST, NULL, &beside},
};

TABLE(onesided);

/* ---- creation ---- */

static const struct batoni_slot starting_slots[] = {
	SLOT(batoni_starting_ops, "starting.", started),
};

LEAF(batoni_starting_ops, starting, started);

static const struct batoni_slot opening_slots[] = {
	SLOT(batoni_opening_ops, "", check),
	SLOT(batoni_opening_ops, "", reach),
	SLOT(batoni_opening_ops, "", agree),
	SLOT(batoni_opening_ops, "", step),
	SLOT(batoni_opening_ops, "", give_up),
};

ALL(batoni_opening_ops, opening, check);

static const struct batoni_part opening_parts[] = {
	{SLOT(batoni_opening_ops, "", starting), BATONI_PART_MAY, NULL, &starting},
};

TABLE(opening);

static const struct batoni_slot breaking_slots[] = {
	SLOT(batoni_breaking_ops, "breaking.", why),
};

LEAF(batoni_breaking_ops, breaking, why);

static const struct batoni_slot bootstrap_slots[] = {
	SLOT(batoni_bootstrap_ops, "", exchange),
	SLOT(batoni_bootstrap_ops, "", close),
};

ALL(batoni_bootstrap_ops, bootstrap, exchange);

static const struct batoni_part bootstrap_parts[] = {
	{SLOT(batoni_bootstrap_ops, "", breaking), BATONI_PART_MAY, NULL, &breaking},
};

TABLE(bootstrap);

/* ---- the check ---- */

static const void *
pointer_at(const void *ops, const struct batoni_slot *slot)
{
	const void *pointer;

	memcpy(&pointer, (const char *)ops + slot->at, sizeof(pointer));
	return pointer;
}

/* Is the table's part of this name there? */
static bool
has_part(const struct batoni_table *table, const void *ops, const char *name)
{
	for (size_t i = 0; i < table->parts_n; i++) {
		const struct batoni_slot *pointer = &table->parts[i].pointer;

		if (strcmp(pointer->name, name) == 0)
			return pointer_at(ops, pointer) != NULL;
	}
	return false;
}

static const char *
part_missing(const struct batoni_table *table, const struct batoni_part *part,
             const void *ops)
{
	const void *at = pointer_at(ops, &part->pointer);

	bool has_other = part->other && has_part(table, ops, part->other);

	if (!at && part->needed == BATONI_PART_MUST)
		return part->pointer.name;
	if (!at && part->needed == BATONI_PART_UNLESS && !has_other)
		return part->pointer.name;
	if (!at)
		return NULL;
	if (part->needed == BATONI_PART_WITH && !has_other)
		return part->other;
	return batoni_table_missing(part->table, at);
}

const char *
batoni_table_missing(const struct batoni_table *table, const void *ops)
{
	const char *missing = NULL;

	for (size_t i = 0; i < table->slots_n; i++) {
		if (!pointer_at(ops, &table->slots[i]))
			return table->slots[i].name;
	}
	for (size_t i = 0; i < table->parts_n && !missing; i++)
		missing = part_missing(table, &table->parts[i], ops);
	return missing;
}
