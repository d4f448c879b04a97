/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BATON_TOOL_INFO_H
#define BATON_TOOL_INFO_H

#include <jansson.h>

/* Print the tree that info.c makes, for people. */
void info_print(const json_t *tree);

#endif
