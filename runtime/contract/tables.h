/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of the contracts as data: which slots each has, and which other tables it points
 * to.  A table has at most a dozen slots, all of them required.  What is optional is a table of
 * its own, which another one points to: it is there whole, or the pointer is NULL.  A call site
 * asks for the pointer, once, and never for a slot.
 *
 * A new slot is a line in tables.c, which does not compile without it.
 */
#ifndef BATONI_TABLES_H
#define BATONI_TABLES_H

#include <stdbool.h>
#include <stddef.h>

#define BATONI_SLOTS_MOST 12u

struct batoni_slot {
	const char *name; /* "marks.mark" */
	size_t at;        /* of the pointer, in the table */
};

enum batoni_part_needed {
	BATONI_PART_MAY,    /* it may be left out */
	BATONI_PART_MUST,   /* it may not */
	BATONI_PART_UNLESS, /* it may, where `other` is there (that both are is not found) */
	BATONI_PART_WITH    /* it may; where it is there, so must `other` be */
};

/* Another table, that a table points to. */
struct batoni_part {
	struct batoni_slot pointer;
	enum batoni_part_needed needed;
	const char *other; /* as `needed` says; of the same table */
	const struct batoni_table *table;
};

struct batoni_table {
	const struct batoni_slot *slots;
	size_t slots_n;
	const struct batoni_part *parts;
	size_t parts_n;
};

/* The first slot that is NULL and may not be, by name; NULL: the table at `ops` is complete, and
 * all that it points to.  Any thread. */
const char *batoni_table_missing(const struct batoni_table *table,
                                 const void *ops);

/* struct batoni_device_ops, and the tables that it points to; and so on. */
extern const struct batoni_table batoni_device_table;
extern const struct batoni_table batoni_path_table;
extern const struct batoni_table batoni_transport_table;
extern const struct batoni_table batoni_onesided_table;
extern const struct batoni_table batoni_opening_table;
extern const struct batoni_table batoni_bootstrap_table;

#endif
