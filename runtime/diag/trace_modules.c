/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of modules of a trace: the executable and libraries that calls came from, so that an address
 * means something when the process is gone.
 *
 * An entry does not change once `modules_known` counts it, so a search takes no lock; adding an entry does.
 * The first call from a module adds it.  If a module was unloaded and another one has got its addresses,
 * calls from the second are taken for calls from the first.
 */
#include "trace_file.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGE_BITS 12

/* The address to find the module of, and the module that was found. */
struct search {
	uint64_t address;
	struct baton_trace_module *module; /* filled in */
};

static void
find_build_id(struct baton_trace_module *module, const char *notes, size_t bytes)
{
	size_t at = 0;

	while (bytes - at >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const void *)(notes + at);
		size_t name = (note->n_namesz + 3u) & ~(size_t)3;
		size_t id = (note->n_descsz + 3u) & ~(size_t)3;
		const char *text = notes + at + sizeof(*note);

		at += sizeof(*note) + name + id;
		if (at > bytes)
			return;
		if (note->n_type != NT_GNU_BUILD_ID || note->n_namesz != 4 ||
		    memcmp(text, "GNU", 4) != 0 ||
		    note->n_descsz > sizeof(module->build_id))
			continue;
		memcpy(module->build_id, text + name, note->n_descsz);
		module->build_id_bytes = note->n_descsz;
		return;
	}
}

static bool
is_code_of(const struct dl_phdr_info *info, uint64_t address,
           struct baton_trace_module *module)
{
	bool in = false;

	module->begin = UINT64_MAX;
	module->end = 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uint64_t from = info->dlpi_addr + part->p_vaddr;
		uint64_t to = from + part->p_memsz;

		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
			continue;
		in |= address >= from && address < to;
		if (from < module->begin)
			module->begin = from;
		if (to > module->end)
			module->end = to;
	}
	return in;
}

static void
name_module(struct baton_trace_module *module, const char *name)
{
	ssize_t n;

	if (name && *name) {
		snprintf(module->path, sizeof(module->path), "%s", name);
		return;
	}
	n = readlink("/proc/self/exe", module->path, sizeof(module->path) - 1);
	module->path[n > 0 ? n : 0] = '\0';
}

static int
examine_module(struct dl_phdr_info *info, size_t size, void *context)
{
	struct search *search = context;
	struct baton_trace_module *module = search->module;

	(void)size;
	if (!is_code_of(info, search->address, module))
		return 0;
	module->base = info->dlpi_addr;
	name_module(module, info->dlpi_name);
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type == PT_NOTE && module->build_id_bytes == 0)
			find_build_id(module,
			              (const char *)(info->dlpi_addr +
			                             part->p_vaddr),
			              part->p_memsz);
	}
	return 1;
}

static uint16_t
find_module(const struct batoni_trace *trace, uint64_t address, uint32_t from,
            uint32_t known)
{
	for (uint32_t i = from; i < known; i++) {
		const struct baton_trace_module *module = &trace->modules[i];

		if (address >= module->begin && address < module->end)
			return (uint16_t)(i + 1);
	}
	return 0;
}

static uint16_t
add_module(struct batoni_trace *trace, uint64_t address)
{
	struct baton_trace_header *header = trace->header;
	struct baton_trace_module module = {0};
	struct search search = {address, &module};
	uint16_t found;

	pthread_mutex_lock(&trace->modules_lock);
	found = find_module(trace, address, 0, header->modules_known);
	if (!found && header->modules_known < BATONI_TRACE_MODULES &&
	    dl_iterate_phdr(examine_module, &search)) {
		trace->modules[header->modules_known] = module;
		__atomic_store_n(&header->modules_known, header->modules_known + 1,
		                 __ATOMIC_RELEASE);
		found = (uint16_t)header->modules_known;
	}
	if (!found) {
		header->modules_missed++;
		atomic_store_explicit(&trace->stranger, address >> PAGE_BITS,
		                      memory_order_relaxed);
	}
	pthread_mutex_unlock(&trace->modules_lock);
	return found;
}

uint16_t
batoni_trace_module(struct batoni_trace *trace, const void *site,
                    uint64_t *offset_p)
{
	const uint64_t address = (uintptr_t)site;
	uint32_t known = __atomic_load_n(&trace->header->modules_known,
	                                 __ATOMIC_ACQUIRE);
	uint16_t found = find_module(trace, address, 0, known);

	if (unlikely(!found)) {
		if (!site || address >> PAGE_BITS ==
		                     atomic_load_explicit(&trace->stranger,
		                                          memory_order_relaxed))
			found = 0;
		else
			found = add_module(trace, address);
	}
	*offset_p = found ? address - trace->modules[found - 1].base : address;
	return found;
}
