/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes of datatypes, for callers that have checked the type. */
#ifndef BATONI_DATATYPE_H
#define BATONI_DATATYPE_H

#include "baton.h"

/* Bytes of one element, by datatype; status.c. */
extern const unsigned char batoni_datatype_sizes[BATON_DATATYPE_COUNT];
/* "float32"; "unknown type" for any other number. */
const char *batoni_datatype_name(int type);

#endif
