/* SPDX-License-Identifier: BSD-3-Clause */
/* What launchers tell the processes that they start, as far as Baton has to know. */
#ifndef BATONI_LAUNCHER_H
#define BATONI_LAUNCHER_H

/* This process has become a world of one without asking for it, for this reason and
 * with this cure.  If a launcher has started several processes, that is hardly what
 * the program wants: warn, once.  Any thread. */
void batoni_warn_alone(const char *reason, const char *cure);

/* The number of this process among the launcher's processes on this node, from 0; -1: no
 * launcher tells.  Any thread. */
int batoni_launcher_host_rank(void);

#endif
