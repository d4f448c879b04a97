/* SPDX-License-Identifier: BSD-3-Clause */
/* The version of all that ranks tell each other over MPI. */
#ifndef BATONI_MPI_VERSION_H
#define BATONI_MPI_VERSION_H

#include <stdint.h>

/* Ranks with different versions refuse each other at creation.  The version changes with
 * the format of what travels: raw messages, headers, bodies, grants, contributions and cards of creation,
 * terms, leave messages, and the one-sided layer's messages.  The terms that contain it at creation have
 * the same format in all versions. */
#define BATONI_MPI_WIRE_VERSION UINT32_C(16)

#endif
