/* SPDX-License-Identifier: BSD-3-Clause */
#include "sized.h"

#include <string.h>

#include "log.h"

/* Of the program's struct. */
static size_t
size_of(const void *theirs)
{
	size_t size;

	memcpy(&size, theirs, sizeof(size));
	return size;
}

/* The first byte that is not 0, or `to`. */
static size_t
first_set(const void *theirs, size_t from, size_t to)
{
	const unsigned char *bytes = theirs;

	while (from < to && bytes[from] == 0)
		from++;
	return from;
}

static enum baton_status
check_size(const struct batoni_sized *sized, const char *call, size_t size)
{
	/* All are aligned as their size is, so this is that of no struct. */
	if (size >= sized->smallest && size <= BATONI_SIZED_MAX &&
	    size % sizeof(size_t) == 0)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s%s%s is %zu; this library's is %zu, and it takes "
	                     "multiples of %zu from %zu to %u (%s)",
	                     call ? call : "", call ? ": " : "",
	                     sized->size_name, size, sized->bytes,
	                     sizeof(size_t), sized->smallest, BATONI_SIZED_MAX,
	                     sized->advice);
}

static enum baton_status
check_reserved(const struct batoni_sized *sized, const char *call,
               const void *theirs, size_t size)
{
	for (size_t i = 0; i < BATONI_SIZED_RESERVED; i++) {
		size_t at = sized->reserved[i].at;
		size_t end = at + sized->reserved[i].bytes;
		size_t set;

		/* An older struct may end before it, or within it. */
		end = end < size ? end : size;
		set = at < end ? first_set(theirs, at, end) : end;
		if (set < end)
			return batoni_refuse(
				BATON_ERR_INVALID,
				"%s%s*%s is not 0 at byte %zu, which is "
				"reserved here: it was not initialised (%s), or "
				"asks for what a later version has",
				call ? call : "", call ? ": " : "", sized->name,
				set, sized->advice);
	}
	return BATON_OK;
}

static enum baton_status
check_rest(const struct batoni_sized *sized, const char *call,
           const void *theirs, size_t size)
{
	size_t set = size > sized->bytes ? first_set(theirs, sized->bytes, size)
	                                 : size;

	if (set == size)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s%s%s is %zu, this library's is %zu, and *%s is not "
	                     "0 at byte %zu: it asks for what a later version has",
	                     call ? call : "", call ? ": " : "",
	                     sized->size_name, size, sized->bytes, sized->name,
	                     set);
}

const void *
batoni_sized_take(const struct batoni_sized *sized, const char *call,
                  const void *from, void *room)
{
	size_t size = size_of(from);

	if (check_size(sized, call, size) != BATON_OK ||
	    check_reserved(sized, call, from, size) != BATON_OK ||
	    check_rest(sized, call, from, size) != BATON_OK)
		return NULL;
	if (size == sized->bytes)
		return from;
	memcpy(room, sized->defaults, sized->bytes);
	memcpy(room, from, size < sized->bytes ? size : sized->bytes);
	memcpy(room, &sized->bytes, sizeof(sized->bytes));
	return room;
}

enum baton_status
batoni_sized_check(const struct batoni_sized *sized, const char *call, const void *to)
{
	return check_size(sized, call, size_of(to));
}

enum baton_status
batoni_sized_give(const struct batoni_sized *sized, const char *call,
                  const void *from, void *to)
{
	size_t size = size_of(to);
	size_t both = size < sized->bytes ? size : sized->bytes;
	enum baton_status status = check_size(sized, call, size);
	/* The size is the program's. */
	const size_t head = sizeof(size);

	if (status != BATON_OK)
		return status;
	memcpy((char *)to + head, (const char *)from + head, both - head);
	memset((char *)to + both, 0, size - both);
	return BATON_OK;
}
