/* SPDX-License-Identifier: BSD-3-Clause */
#include "found.h"

#include <dlfcn.h>
#include <string.h>

const char *
batoni_file_of(void (*function)(void))
{
	Dl_info info;
	void *address;

	memcpy(&address, &function, sizeof(address));
	/* The loader keeps the name as long as the library. */
	return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}
