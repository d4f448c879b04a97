/* SPDX-License-Identifier: BSD-3-Clause */
/* Dumps that a signal asks for (BATON_DUMP_ON); baton_comm_dump is public. */
#ifndef BATONI_DUMP_H
#define BATONI_DUMP_H

/* If the environment asks for them: have them made from now on.  Any thread, any
 * number of times. */
void batoni_dump_start(void);
/* A communicator is not in the table any more: wait until no dump reads it. */
void batoni_dump_await(void);

#endif
