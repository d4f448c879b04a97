/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomic operations on a word of a window: by this rank's processor, on memory of the host that it
 * has mapped (put_calls.c refuses all others).  All ranks that change the word do so in this way, so
 * the operations of all of them are atomic to each other, and to atomic instructions of the
 * programs.  Each is sequentially consistent.
 *
 * They have their place in their channel, and end when they are carried out.  The driver only.
 */
#include "carry.h"

#include <string.h>

void
batoni_atomic_carry_out(char *part, const struct batoni_transfer *transfer,
                        const struct batoni_pending *put)
{
	uint64_t *word = (uint64_t *)(void *)(part + put->put.offset);
	uint64_t before = put->put.operands[0];

	if (put->put.task == BATONI_TASK_ADD)
		before = __atomic_fetch_add(word, put->put.operands[0],
		                            __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n(word, &before, put->put.operands[1],
		                            false, __ATOMIC_SEQ_CST,
		                            __ATOMIC_SEQ_CST);
	if (transfer->buffer)
		memcpy(transfer->buffer, &before, sizeof(before));
}
