/* SPDX-License-Identifier: BSD-3-Clause */
/* What a function writes to standard error in a process of its own, whose
 * environment nobody has read yet. */
#ifndef CAPTURED_H
#define CAPTURED_H

#include <stddef.h>

struct captured {
	size_t writes;
	size_t bytes;
	char text[4096]; /* all of it, terminated */
};

/* level: BATON_LOG in that process, or NULL for none. */
struct captured capture(const char *level, void (*fn)(void));

#endif
