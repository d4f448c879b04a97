/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What staging reads from a peer besides the program's bytes: the header of a message, and
 * grants (message.c says what they are for).  Their decoders accept what a rank of the same
 * version may send, and take any bytes.
 */
#ifndef BATONI_STAGE_HEADER_H
#define BATONI_STAGE_HEADER_H

#include <assert.h>

#include "shared.h"
#include "staging.h"

/* Of a plain message, and of a list of tensors. */
enum { HEADER_EAGER = 1, HEADER_ASKS, HEADER_LIST, HEADER_LIST_ASKS };
enum { GRANT_PIECES = 1, GRANT_DIRECT, GRANT_DROPS, GRANT_MAPPED };

/* At the front of every message. */
struct stage_header {
	uint32_t magic;
	uint16_t version;
	uint16_t kind;  /* HEADER_* */
	uint64_t length; /* of the program's bytes */
	uint64_t piece; /* the longest piece that the sender can send */
	uint32_t source; /* the sender's rank */
	uint32_t slot;   /* of the send */
	uint32_t host;   /* the sender's buffer is host memory */
	/* In checked mode, of a plain message of the program: its type, plus one.  Else 0. */
	uint32_t type;
	/* The length of the list's own header: it begins behind this one, and what is left of it
	 * comes in front of the pieces' bytes.  0: a plain message. */
	uint64_t list_bytes;
};

/* Behind the header of a plain message that asks, between processes of one node (mapped.c). */
struct stage_offer {
	/* Where its bytes are; `offered` may be 0. */
	struct batoni_offer block;
	uint64_t number; /* of that block in its process */
	uint64_t gone;   /* that of a block of the sender that is no more; 0: none */
};

static_assert(sizeof(struct stage_offer) == 232, "the wire format");

/* What a receiver answers, as often as needed, on the tag of the send's slot. */
struct stage_grant {
	uint32_t kind; /* GRANT_* */
	uint32_t slot; /* of the receive */
	uint64_t piece;   /* the length of all pieces but the last */
	uint64_t granted; /* so many pieces may be sent, in all */
};

static_assert(sizeof(struct stage_header) == BATONI_STAGING_HEADER_BYTES,
              "the wire format");

/* Fill in what every header has. */
void batoni_stage_header_init(struct stage_header *header);
/* n bytes have come, among `size` ranks, whose slots at staging are below `slots`.  False: they
 * are no header, or not followed by as many bytes as it says. */
bool batoni_stage_header_decode(const void *bytes, size_t n, int size,
                                uint32_t slots, struct stage_header *header);
/* n bytes are behind a header that was accepted, of a message of `length` bytes.  False: they are no
 * offer of as many. */
bool batoni_stage_offer_decode(const void *bytes, size_t n, uint64_t length,
                               struct stage_offer *offer);
/* What a grant has to agree with. */
struct stage_terms {
	uint32_t slots;   /* at staging, of the rank that has most */
	uint64_t length;  /* of what goes in pieces */
	uint64_t most;    /* the longest piece that this rank can send */
	uint64_t piece;   /* that was granted before; 0: nothing was */
	uint64_t granted; /* pieces, before */
	bool host;        /* this rank's buffer is host memory */
	bool list;        /* the peer may take no more after some pieces */
	bool offered;     /* the peer may have mapped this rank's buffer */
};

/* n bytes have come.  False: they are no grant of more. */
bool batoni_stage_grant_check(const struct stage_grant *grant, size_t n,
                              const struct stage_terms *terms);

#endif
