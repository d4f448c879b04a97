/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Structs of the public header that begin with their size, between a program and a library
 * of different ages.  Such a struct only grows, at its end.  It has no padding, and 0 is
 * the default of every field that it grows by.  So of two versions of a struct the shorter
 * one is the beginning of the longer one, and both are read by these rules, which are those
 * of Linux's sched_setattr() and clone3():
 *
 *   taken (options)  what the program's struct lacks has its default; what the library's
 *                    lacks has to be 0, and so have reserved fields.
 *   given (infos)    what both have is written; the rest of the program's becomes 0.
 *
 * A size that no version can have, below `smallest` or above BATONI_SIZED_MAX, is refused: the
 * program has not set it.
 */
#ifndef BATONI_SIZED_H
#define BATONI_SIZED_H

#include <stddef.h>
#include <stdint.h>

#include <baton.h>

/* More than any such struct will have, so that a size that was not set does no harm. */
#define BATONI_SIZED_MAX 1024u
#define BATONI_SIZED_RESERVED 3

/* One such struct, as this library has it. */
struct batoni_sized {
	const char *name;      /* as sentences call it: "options" */
	const char *size_name; /* "options->size" */
	const char *advice;    /* how to set the size */
	size_t smallest;
	size_t bytes;
	const void *defaults; /* the whole struct, if it is taken */
	/* Fields that have to be 0, in order; the rest of the array is 0. */
	struct batoni_reserved {
		size_t at, bytes;
	} reserved[BATONI_SIZED_RESERVED];
};

/* The bytes of a struct that ends with this field. */
#define BATONI_SIZED_UNTIL(type, field)                                       \
	(offsetof(type, field) + sizeof(((type *)NULL)->field))
#define BATONI_RESERVED(type, field)                                          \
	{offsetof(type, field), sizeof(((type *)NULL)->field)}

/* The program's struct as this library's: `from` itself, or *room, filled.  NULL: it is refused as
 * INVALID, with a sentence.  call: how sentences begin, or NULL. */
const void *batoni_sized_take(const struct batoni_sized *sized, const char *call,
                              const void *from, void *room);

/* Is the size of the program's struct one that batoni_sized_give takes?  OK, INVALID. */
enum baton_status batoni_sized_check(const struct batoni_sized *sized,
                                     const char *call, const void *to);

/* Fill the program's struct from this library's, but for its size.  OK, INVALID. */
enum baton_status batoni_sized_give(const struct batoni_sized *sized,
                                    const char *call, const void *from, void *to);

#endif
