/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tool for NVTX that keeps what it is told: a library of its own (nvtx_tool.c), which NVTX's
 * header loads by NVTX_INJECTION64_PATH, as it does Nsight Systems.  The test finds it by
 * nvtx_tool().
 */
#ifndef NVTX_TOOL_H
#define NVTX_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NVTX_TOOL_RANGES 512u

struct nvtx_tool_range {
	char name[96];
	uint64_t payload;
	/* When it began and ended, counted in events of all ranges, from 1; 0: not yet. */
	unsigned begun, ended;
};

struct nvtx_tool {
	char domain[32];
	unsigned events, wrong; /* wrong: ends of what had not begun, or had ended */
	size_t count;
	struct nvtx_tool_range ranges[NVTX_TOOL_RANGES];
};

/* What the symbol "nvtx_tool_seen" of the library is. */
extern struct nvtx_tool nvtx_tool_seen;

#endif
