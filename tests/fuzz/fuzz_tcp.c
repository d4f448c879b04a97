/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel's hello, reply, verdict and frames.  The first byte chooses the decoder; the
 * second is the number of ranks of a frame.  What is accepted is read again from what the
 * encoder writes for it, and a frame's numbers are within their tables.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tcp.h"

enum { HELLO, REPLY, VERDICT, FRAME, DECODERS };

static void
seed(int decoder, const void *content, size_t n)
{
	unsigned char bytes[1024] = {(unsigned char)decoder, 4};

	memcpy(bytes + 2, content, n);
	fuzz_seed(bytes, n + 2);
}

void
seeds(void)
{
	const struct batoni_tcp_hello hello = {
		.version = BATONI_TCP_VERSION, .rank = 1, .size = 4};
	const struct batoni_tcp_reply reply = {.version = BATONI_TCP_VERSION};
	const struct batoni_tcp_verdict verdicts[] = {
		{.word = BATONI_TCP_ADMITTED},
		{.word = BATONI_TCP_GO, .status = 2},
		{.word = BATONI_TCP_REFUSED, .status = BATON_ERR_INVALID,
	         .why = "no"},
	};
	unsigned char bytes[512];

	batoni_tcp_hello_encode(&hello, bytes);
	seed(HELLO, bytes, BATONI_TCP_HELLO_BYTES);
	batoni_tcp_reply_encode(&reply, bytes);
	seed(REPLY, bytes, BATONI_TCP_REPLY_BYTES);
	for (size_t i = 0; i < 3; i++) {
		batoni_tcp_verdict_encode(&verdicts[i], bytes);
		seed(VERDICT, bytes, BATONI_TCP_VERDICT_BYTES);
	}
	for (uint32_t kind = 0; kind < 16; kind++) {
		const struct batoni_tcp_frame frame = {
			.kind = kind, .from = 1, .to = 2, .tag = 3, .slot = 4};

		batoni_tcp_frame_encode(&frame, bytes);
		seed(FRAME, bytes, BATONI_TCP_HEAD_BYTES);
	}
}

static void
hello_of(const unsigned char *bytes)
{
	unsigned char again[BATONI_TCP_HELLO_BYTES];
	struct batoni_tcp_hello hello;

	if (!batoni_tcp_hello_decode(bytes, &hello) ||
	    hello.version != BATONI_TCP_VERSION)
		return;
	CLAIM(hello.rank < hello.size && hello.size <= INT32_MAX);
	batoni_tcp_hello_encode(&hello, again);
	CLAIM(memcmp(again, bytes, sizeof(again)) == 0);
}

static void
reply_of(const unsigned char *bytes)
{
	unsigned char again[BATONI_TCP_REPLY_BYTES];
	struct batoni_tcp_reply reply;

	if (!batoni_tcp_reply_decode(bytes, &reply))
		return;
	CLAIM(reply.answer < BATONI_TCP_ANSWERS);
	batoni_tcp_reply_encode(&reply, again);
	CLAIM(memcmp(again, bytes, sizeof(again)) == 0);
}

static void
verdict_of(const unsigned char *bytes)
{
	struct batoni_tcp_verdict verdict, second;
	unsigned char again[BATONI_TCP_VERDICT_BYTES];

	if (!batoni_tcp_verdict_decode(bytes, &verdict))
		return;
	CLAIM(memchr(verdict.why, '\0', sizeof(verdict.why)) != NULL);
	batoni_tcp_verdict_encode(&verdict, again);
	CLAIM(batoni_tcp_verdict_decode(again, &second));
	CLAIM(second.word == verdict.word && second.status == verdict.status);
	CLAIM(strcmp(second.why, verdict.why) == 0);
}

static void
record_of(const unsigned char *bytes, int size)
{
	unsigned char again[BATONI_TCP_HEAD_BYTES];
	struct batoni_tcp_frame frame;

	if (!batoni_tcp_frame_decode(bytes, size, &frame))
		return;
	CLAIM(frame.from < (uint32_t)size && frame.to < (uint32_t)size);
	CLAIM(frame.kind != BATONI_TCP_DATA ||
	      (frame.length <= BATONI_TCP_MESSAGE_MAX &&
	       frame.slot < BATONI_SLOTS_LIMIT));
	batoni_tcp_frame_encode(&frame, again);
	CLAIM(memcmp(again, bytes, sizeof(again)) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static const size_t lengths[DECODERS] = {
		[HELLO] = BATONI_TCP_HELLO_BYTES,
		[REPLY] = BATONI_TCP_REPLY_BYTES,
		[VERDICT] = BATONI_TCP_VERDICT_BYTES,
		[FRAME] = BATONI_TCP_HEAD_BYTES,
	};
	unsigned char *copy;
	int decoder;

	if (n < 2)
		return 0;
	decoder = bytes[0] % DECODERS;
	if (n - 2 < lengths[decoder])
		return 0;
	copy = fuzz_copy(bytes + 2, lengths[decoder]);
	switch (decoder) {
	case HELLO:
		hello_of(copy);
		break;
	case REPLY:
		reply_of(copy);
		break;
	case VERDICT:
		verdict_of(copy);
		break;
	default:
		record_of(copy, 1 + bytes[1]);
	}
	free(copy);
	return 0;
}
