/* SPDX-License-Identifier: BSD-3-Clause */
#include "library.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static_assert(sizeof(void (*)(void)) == sizeof(void *),
              "dlsym returns functions as void *");

void
batoni_library_once(struct batoni_library *library, void (*load)(void))
{
	int cancel_state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	pthread_once(&library->once, load);
	pthread_setcancelstate(cancel_state, NULL);
}

void
batoni_library_refuse(struct batoni_library *library, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(library->refusal, sizeof(library->refusal), format, arguments);
	va_end(arguments);
}

const char *
batoni_library_read(void *table, const struct batoni_symbol symbols[], size_t n,
                    void *(*find)(void *context, size_t i), void *context)
{
	const char *missing = NULL;

	for (size_t i = 0; i < n; i++) {
		void *address = find(context, i);

		memcpy((char *)table + symbols[i].offset, &address,
		       sizeof(address));
		if (!address && !symbols[i].optional && !missing)
			missing = symbols[i].name;
	}
	return missing;
}
