/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of each header of the side channel.  Nothing here has state.  A decoder accepts
 * exactly what its encoder writes for some sender of the same version; everything else, of
 * any bytes, it refuses without reading beyond the header.
 */
#include <string.h>

#include "tcp.h"

static const unsigned char magic[8] = {'b', 'a', 't', 'o', 'n', 's', 'i', 'd'};
#define RECORD_MAGIC UINT32_C(0x72746162) /* "batr" */

static unsigned char *
put32(unsigned char *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		*at++ = (unsigned char)(value >> (8 * i));
	return at;
}

static unsigned char *
put64(unsigned char *at, uint64_t value)
{
	return put32(put32(at, (uint32_t)value), (uint32_t)(value >> 32));
}

static unsigned char *
write_bytes(unsigned char *at, const void *bytes, size_t n)
{
	memcpy(at, bytes, n);
	return at + n;
}

static uint32_t
get32(const unsigned char **at_p)
{
	uint32_t value = 0;

	for (int i = 0; i < 4; i++)
		value |= (uint32_t)*(*at_p)++ << (8 * i);
	return value;
}

static uint64_t
get64(const unsigned char **at_p)
{
	uint64_t low = get32(at_p);

	return low | (uint64_t)get32(at_p) << 32;
}

static void
get_raw(const unsigned char **at_p, void *bytes, size_t n)
{
	memcpy(bytes, *at_p, n);
	*at_p += n;
}

static bool
get_magic(const unsigned char **at_p)
{
	*at_p += sizeof(magic);
	return memcmp(*at_p - sizeof(magic), magic, sizeof(magic)) == 0;
}

/* ---- meeting ---- */

void
batoni_tcp_hello_encode(const struct batoni_tcp_hello *hello,
                        unsigned char bytes[BATONI_TCP_HELLO_BYTES])
{
	unsigned char *at = write_bytes(bytes, magic, sizeof(magic));

	at = put32(at, hello->version);
	at = put32(at, hello->rank);
	at = put32(at, hello->size);
	at = put32(at, 0);
	at = write_bytes(at, hello->nonce, sizeof(hello->nonce));
	write_bytes(at, hello->challenge, sizeof(hello->challenge));
}

bool
batoni_tcp_hello_decode(const unsigned char bytes[BATONI_TCP_HELLO_BYTES],
                        struct batoni_tcp_hello *hello)
{
	const unsigned char *at = bytes;

	if (!get_magic(&at))
		return false;
	hello->version = get32(&at);
	hello->rank = get32(&at);
	hello->size = get32(&at);
	/* Of another version, what follows may be anything. */
	if (hello->version != BATONI_TCP_VERSION)
		return true;
	if (get32(&at) != 0)
		return false;
	get_raw(&at, hello->nonce, sizeof(hello->nonce));
	get_raw(&at, hello->challenge, sizeof(hello->challenge));
	return hello->size <= INT32_MAX && hello->rank < hello->size;
}

void
batoni_tcp_reply_encode(const struct batoni_tcp_reply *reply,
                        unsigned char bytes[BATONI_TCP_REPLY_BYTES])
{
	unsigned char *at = write_bytes(bytes, magic, sizeof(magic));

	at = put32(at, reply->version);
	at = put32(at, reply->answer);
	at = write_bytes(at, reply->challenge, sizeof(reply->challenge));
	write_bytes(at, reply->proof, sizeof(reply->proof));
}

bool
batoni_tcp_reply_decode(const unsigned char bytes[BATONI_TCP_REPLY_BYTES],
                        struct batoni_tcp_reply *reply)
{
	const unsigned char *at = bytes;

	if (!get_magic(&at))
		return false;
	reply->version = get32(&at);
	reply->answer = get32(&at);
	get_raw(&at, reply->challenge, sizeof(reply->challenge));
	get_raw(&at, reply->proof, sizeof(reply->proof));
	return reply->answer < BATONI_TCP_ANSWERS;
}

void
batoni_tcp_verdict_encode(const struct batoni_tcp_verdict *verdict,
                          unsigned char bytes[BATONI_TCP_VERDICT_BYTES])
{
	unsigned char *at;

	memset(bytes, 0, BATONI_TCP_VERDICT_BYTES);
	at = write_bytes(bytes, magic, sizeof(magic));
	at = put32(at, verdict->word);
	at = put32(at, (uint32_t)verdict->status);
	write_bytes(at, verdict->why, strnlen(verdict->why, sizeof(verdict->why) - 1));
}

/* Is it a status that a creation may end in? */
static bool
is_error(int32_t status)
{
	return status <= BATON_ERR_INVALID && status >= BATON_ERR_SYSTEM;
}

bool
batoni_tcp_verdict_decode(const unsigned char bytes[BATONI_TCP_VERDICT_BYTES],
                          struct batoni_tcp_verdict *verdict)
{
	const unsigned char *at = bytes;

	if (!get_magic(&at))
		return false;
	verdict->word = get32(&at);
	verdict->status = (int32_t)get32(&at);
	get_raw(&at, verdict->why, sizeof(verdict->why));
	verdict->why[sizeof(verdict->why) - 1] = '\0';
	switch (verdict->word) {
	case BATONI_TCP_ADMITTED:
		return verdict->status == 0;
	case BATONI_TCP_GO:
		return verdict->status >= 0;
	case BATONI_TCP_REFUSED:
		return is_error(verdict->status);
	default:
		return false;
	}
}

void
batoni_tcp_prove(const struct batoni_side_key *key, char side,
                 const struct batoni_tcp_hello *hello,
                 const unsigned char challenge[16],
                 unsigned char proof[BATONI_TCP_PROOF_BYTES])
{
	unsigned char text[1 + BATONI_TCP_HELLO_BYTES + 16];

	text[0] = (unsigned char)side;
	batoni_tcp_hello_encode(hello, text + 1);
	memcpy(text + 1 + BATONI_TCP_HELLO_BYTES, challenge, 16);
	batoni_tcp_hmac(key->secret, sizeof(key->secret), text, sizeof(text),
	                proof);
}

/* ---- frames ---- */

void
batoni_tcp_frame_encode(const struct batoni_tcp_frame *frame,
                        unsigned char bytes[BATONI_TCP_HEAD_BYTES])
{
	unsigned char *at = put32(bytes, RECORD_MAGIC);

	at = put32(at, frame->kind);
	at = put32(at, frame->from);
	at = put32(at, frame->to);
	at = put32(at, frame->tag);
	at = put32(at, frame->slot);
	at = put32(at, frame->status);
	at = put32(at, frame->length);
	at = put64(at, frame->what);
	put64(at, frame->bytes);
}

static bool
is_statused(uint32_t status)
{
	return status == BATON_OK || is_error((int32_t)status);
}

/* A part has its bytes, or none: a leave, or a rank without memory. */
static bool
is_part(const struct batoni_tcp_frame *frame)
{
	bool leaves = frame->what == BATONI_TCP_WHAT_LEAVE;

	if (frame->what > BATONI_TCP_WHAT_LEAVE ||
	    frame->bytes > BATONI_TCP_PART_MAX ||
	    leaves != (frame->bytes == 0) || !is_statused(frame->status))
		return false;
	return frame->length ==
	       (frame->status == BATON_OK ? frame->bytes : 0);
}

static bool
is_all(const struct batoni_tcp_frame *frame, int size)
{
	if (frame->bytes > BATONI_TCP_PART_MAX || !is_statused(frame->status))
		return false;
	return frame->length == (frame->status == BATON_OK
	                                 ? frame->bytes * (uint64_t)size
	                                 : 0);
}

static bool
is_message(const struct batoni_tcp_frame *frame)
{
	return frame->slot < BATONI_SLOTS_LIMIT && frame->tag <= INT32_MAX &&
	       frame->length <= BATONI_TCP_MESSAGE_MAX &&
	       frame->length <= frame->bytes &&
	       frame->bytes <= BATONI_TCP_MESSAGE_MAX;
}

bool
batoni_tcp_frame_decode(const unsigned char bytes[BATONI_TCP_HEAD_BYTES],
                        int size, struct batoni_tcp_frame *frame)
{
	const unsigned char *at = bytes;

	if (get32(&at) != RECORD_MAGIC)
		return false;
	frame->kind = get32(&at);
	frame->from = get32(&at);
	frame->to = get32(&at);
	frame->tag = get32(&at);
	frame->slot = get32(&at);
	frame->status = get32(&at);
	frame->length = get32(&at);
	frame->what = get64(&at);
	frame->bytes = get64(&at);
	if (frame->from >= (uint32_t)size || frame->to >= (uint32_t)size)
		return false;
	switch (frame->kind) {
	case BATONI_TCP_PART:
		return is_part(frame);
	case BATONI_TCP_ALL:
		return is_all(frame, size);
	case BATONI_TCP_DATA:
		return is_message(frame);
	case BATONI_TCP_READY:
	case BATONI_TCP_RETRACT:
	case BATONI_TCP_RETRACTED:
		return frame->length == 0 && frame->tag <= INT32_MAX &&
		       frame->slot < BATONI_SLOTS_LIMIT;
	case BATONI_TCP_GONE:
		return frame->length == 0 && frame->what <= (uint64_t)size &&
		       frame->status >= BATONI_TCP_CLOSED &&
		       frame->status <= BATONI_TCP_LOST;
	case BATONI_TCP_ABORT:
		return frame->length == 0 && frame->what <= (uint64_t)size;
	case BATONI_TCP_BYE:
	case BATONI_TCP_LEFT:
		return frame->length == 0;
	default:
		return false;
	}
}
