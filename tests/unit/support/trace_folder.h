/* SPDX-License-Identifier: BSD-3-Clause */
/* A folder in /tmp for the traces of a test, which BATON_TRACE names. */
#ifndef TRACE_FOLDER_H
#define TRACE_FOLDER_H

extern char trace_folder[];

/* Once in a process. */
void trace_folder_make(void);
unsigned trace_folder_count(void); /* of its files */
/* With its files. */
void trace_folder_remove(void);

#endif
