/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of parts as the library compiles it, with the line of barrier.h: it is linked in the
 * library's place. */
#include "barrier.h"

#include "../../runtime/parts.c"
