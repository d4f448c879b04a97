/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * THE LIST of kinds of operations.  A new kind is a line here, and a file that defines its table
 * (core/kind.h).  The numbers of those that programs see are theirs.
 */
#ifndef BATONI_KINDS_H
#define BATONI_KINDS_H

#include "kind.h"

/* Lines of a program that has kinds of its own, and links a parts.c with them (tests/parts). */
#ifndef BATONI_KINDS_MORE
#define BATONI_KINDS_MORE(KIND)
#endif

#define BATONI_KINDS(KIND)                                                    \
	KIND(SEND, BATON_OPERATION_SEND, batoni_kind_send)                    \
	KIND(RECV, BATON_OPERATION_RECV, batoni_kind_recv)                    \
	KIND(RECORD, BATON_OPERATION_RECORD, batoni_kind_record)              \
	KIND(SIGNAL, BATON_OPERATION_SIGNAL, batoni_kind_signal)              \
	KIND(PUT, BATON_OPERATION_PUT_SIGNAL, batoni_kind_put)                \
	KIND(WAIT, BATON_OPERATION_WAIT_SIGNAL, batoni_kind_wait)             \
	KIND(PLAN, BATON_OPERATION_PLAN, batoni_kind_plan) /* a launch */     \
	KIND(BARRIER, BATON_OPERATION_BARRIER, batoni_kind_barrier)           \
	KIND(WAIT_ANY, BATON_OPERATION_WAIT_ANY, batoni_kind_wait_any)        \
	KIND(WAIT_COUNT, BATON_OPERATION_WAIT_COUNT, batoni_kind_wait_count)  \
	KIND(GET, BATON_OPERATION_GET, batoni_kind_get)                       \
	KIND(FLUSH, BATON_OPERATION_FLUSH, batoni_kind_flush)                 \
	KIND(ATOMIC, BATON_OPERATION_ATOMIC, batoni_kind_atomic)              \
	/* A function on the stream; a stream that waits for another operation's \
	 * word; the common word of a group's members. */                     \
	KIND(LAUNCH, BATON_OPERATION_ATOMIC + 1, batoni_kind_launch)             \
	KIND(JOIN, BATON_OPERATION_ATOMIC + 2, batoni_kind_join)                 \
	KIND(GROUP, BATON_OPERATION_ATOMIC + 3, batoni_kind_group)               \
	/* A message that a probe has found. */                                \
	KIND(MESSAGE, BATON_OPERATION_ATOMIC + 4, batoni_kind_message)           \
	BATONI_KINDS_MORE(KIND)

#define BATONI_KIND_NUMBER(kind, number, table) BATONI_KIND_##kind = (number),
enum batoni_op_kind { BATONI_KINDS(BATONI_KIND_NUMBER) };
#undef BATONI_KIND_NUMBER

#define BATONI_KIND_TABLE(kind, number, table)                                \
	extern const struct batoni_kind table;
BATONI_KINDS(BATONI_KIND_TABLE)
#undef BATONI_KIND_TABLE

#endif
