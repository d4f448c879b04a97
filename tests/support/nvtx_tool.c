/* SPDX-License-Identifier: BSD-3-Clause */
#include "nvtx_tool.h"

#include <string.h>

#define NVTX_AS_SYSTEM_HEADER
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN struct nvtx_tool nvtx_tool_seen;
static char the_domain;

/* Ranges are drawn by one thread at a time (the driver), and read by the test when it has the
 * driver's word that all have ended: no lock. */
static nvtxDomainHandle_t
create(const char *name)
{
	strncpy(nvtx_tool_seen.domain, name, sizeof(nvtx_tool_seen.domain) - 1);
	return (nvtxDomainHandle_t)(void *)&the_domain;
}

static nvtxRangeId_t
tool_range_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
	struct nvtx_tool *seen = &nvtx_tool_seen;
	struct nvtx_tool_range *range = &seen->ranges[seen->count];

	if ((void *)domain != (void *)&the_domain ||
	    attributes->messageType != NVTX_MESSAGE_TYPE_ASCII ||
	    seen->count == NVTX_TOOL_RANGES) {
		seen->wrong++;
		return 0;
	}
	memset(range, 0, sizeof(*range));
	strncpy(range->name, attributes->message.ascii, sizeof(range->name) - 1);
	range->payload = attributes->payload.ullValue;
	range->begun = ++seen->events;
	return ++seen->count;
}

static void
tool_range_end(nvtxDomainHandle_t domain, nvtxRangeId_t id)
{
	struct nvtx_tool *seen = &nvtx_tool_seen;
	struct nvtx_tool_range *range = &seen->ranges[id - 1];

	if ((void *)domain != (void *)&the_domain || id == 0 ||
	    id > seen->count || range->ended)
		seen->wrong++;
	else
		range->ended = ++seen->events;
}

SHOWN int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

SHOWN int NVTX_API
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
	const NvtxExportTableCallbacks *table = get_table(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable functions = NULL;
	unsigned n = 0;

	if (!table || table->struct_size < sizeof(*table) ||
	    !table->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &n) ||
	    n <= NVTX_CBID_CORE2_DomainCreateA)
		return 0;
	*functions[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
	*functions[NVTX_CBID_CORE2_DomainRangeStartEx] =
		(NvtxFunctionPointer)tool_range_start;
	*functions[NVTX_CBID_CORE2_DomainRangeEnd] = (NvtxFunctionPointer)tool_range_end;
	return 1;
}
