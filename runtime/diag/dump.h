/* SPDX-License-Identifier: BSD-3-Clause */
/* Dumps that a signal asks for (BATON_DUMP_ON); baton_comm_dump is public. */
#ifndef BATONI_DUMP_H
#define BATONI_DUMP_H

/* From now on dump at the signal, if the environment asks for that.  Any thread, any number of
 * times. */
void batoni_dump_start(void);
/* A communicator was removed from the table: wait until no dump reads it. */
void batoni_dump_await(void);

#endif
