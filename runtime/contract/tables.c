/* SPDX-License-Identifier: BSD-3-Clause */
/* The descriptions of the tables, and the check, which is a loop.  Nothing here has state. */
#include "tables.h"

#include <assert.h>
#include <string.h>

#include "device.h"

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
	SLOT(batoni_library_ops, "memory.library.", leave),
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
	SLOT(batoni_sharing_ops, "memory.sharing.", share),
	SLOT(batoni_sharing_ops, "memory.sharing.", map),
	SLOT(batoni_sharing_ops, "memory.sharing.", unmap),
};

LEAF(batoni_sharing_ops, sharing, share);

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
	SLOT(batoni_memory_ops, "memory.", look),
	SLOT(batoni_memory_ops, "memory.", pinned_alloc),
	SLOT(batoni_memory_ops, "memory.", pinned_free),
	SLOT(batoni_memory_ops, "memory.", copy_start),
	SLOT(batoni_memory_ops, "memory.", copy_test),
	SLOT(batoni_memory_ops, "memory.", why),
	SLOT(batoni_memory_ops, "memory.", error_text),
	SLOT(batoni_memory_ops, "memory.", health),
};

ALL(batoni_memory_ops, memory, look);

static const struct batoni_part memory_parts[] = {
	{SLOT(batoni_memory_ops, "memory.", batches), false, NULL, &batches},
	{SLOT(batoni_memory_ops, "memory.", library), false, NULL, &library},
	{SLOT(batoni_memory_ops, "memory.", presence), false, NULL, &presence},
	{SLOT(batoni_memory_ops, "memory.", sharing), false, NULL, &sharing},
	{SLOT(batoni_memory_ops, "memory.", reach), false, NULL, &reach},
	{SLOT(batoni_memory_ops, "memory.", blocks), false, NULL, &blocks},
	{SLOT(batoni_memory_ops, "memory.", pins), false, NULL, &pins},
};

static const struct batoni_table memory = {
	.slots = memory_slots,
	.slots_n = COUNT(memory_slots),
	.parts = memory_parts,
	.parts_n = COUNT(memory_parts),
};

/* ---- what a device table points to ---- */

static const struct batoni_slot in_engine_slots[] = {
	SLOT(batoni_in_engine_ops, "in_engine.", launch_waits),
};

LEAF(batoni_in_engine_ops, in_engine, launch_waits);

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
	{SLOT(batoni_device_ops, "", memory), true, NULL, &memory},
	{SLOT(batoni_device_ops, "", in_engine), false, NULL, &in_engine},
	{SLOT(batoni_device_ops, "", marks), false, NULL, &marks},
	{SLOT(batoni_device_ops, "", events), false, "marks", &events},
	{SLOT(batoni_device_ops, "", bounds), false, NULL, &bounds},
	{SLOT(batoni_device_ops, "", shared_queues), false, NULL, &shared_queues},
	{SLOT(batoni_device_ops, "", handles), false, NULL, &handles},
	{SLOT(batoni_device_ops, "", puts), false, "marks", &stream_puts},
};

const struct batoni_table batoni_device_table = {
	.slots = device_slots,
	.slots_n = COUNT(device_slots),
	.parts = device_parts,
	.parts_n = COUNT(device_parts),
};

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
	const void *other = pointer_at(ops, &part->pointer);

	if (!other)
		return part->required ? part->pointer.name : NULL;
	if (part->with && !has_part(table, ops, part->with))
		return part->with;
	return batoni_table_missing(part->table, other);
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
