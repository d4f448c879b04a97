/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SHA-256 (FIPS 180-4) and HMAC (RFC 2104): what the side channel proves a secret with.
 *
 * Of its own: the library needs one function, a few times in the life of a communicator.
 * libcrypto has it, but its headers would have to be there to build Baton, programs would
 * load 5 MB more, and its soname changes between distributions, which a Baton that was built on
 * one would meet on another; libsodium is not installed by default.  There is nothing here
 * that has to be kept up: no protocol, no parsing, no memory.  unit.tcp compares it with the
 * vectors of RFC 4231.
 */
#include <string.h>

#include "tcp.h"

#define BLOCK 64

struct sha256 {
	uint32_t state[8];
	uint64_t bytes;
	unsigned char block[BLOCK];
};

static const uint32_t rounds[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
	0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
	0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
	0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t
rotate(uint32_t x, unsigned n)
{
	return x >> n | x << (32 - n);
}

/* The message schedule of the block. */
static void
expand(const unsigned char block[BLOCK], uint32_t w[64])
{
	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)block[4 * i] << 24 |
		       (uint32_t)block[4 * i + 1] << 16 |
		       (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
	for (int i = 16; i < 64; i++) {
		uint32_t a = w[i - 15], b = w[i - 2];

		w[i] = w[i - 16] + w[i - 7] +
		       (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
		       (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
	}
}

static void
compress(struct sha256 *sha)
{
	uint32_t w[64], v[8];

	expand(sha->block, w);
	memcpy(v, sha->state, sizeof(v));
	for (int i = 0; i < 64; i++) {
		uint32_t e = v[4], a = v[0];
		uint32_t t1 = v[7] +
		              (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
		              ((e & v[5]) ^ (~e & v[6])) + rounds[i] + w[i];
		uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
		              ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 7 * sizeof(*v));
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		sha->state[i] += v[i];
}

static void
sha256_begin(struct sha256 *sha)
{
	static const uint32_t first[8] = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	};

	memcpy(sha->state, first, sizeof(first));
	sha->bytes = 0;
}

static void
sha256_add(struct sha256 *sha, const void *text, size_t bytes)
{
	const unsigned char *from = text;

	for (size_t i = 0; i < bytes; i++) {
		sha->block[sha->bytes++ % BLOCK] = from[i];
		if (sha->bytes % BLOCK == 0)
			compress(sha);
	}
}

static void
sha256_finish(struct sha256 *sha, unsigned char digest[BATONI_TCP_PROOF_BYTES])
{
	const uint64_t bits = sha->bytes * 8;
	const unsigned char one = 0x80, zero = 0;
	unsigned char length[8];

	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char)(bits >> (56 - 8 * i));
	sha256_add(sha, &one, 1);
	while (sha->bytes % BLOCK != BLOCK - sizeof(length))
		sha256_add(sha, &zero, 1);
	sha256_add(sha, length, sizeof(length));
	for (int i = 0; i < BATONI_TCP_PROOF_BYTES; i++)
		digest[i] = (unsigned char)(sha->state[i / 4] >>
		                            (24 - 8 * (i % 4)));
}

/* The key, or its digest, with each byte changed by `with`. */
static void
begin_keyed(struct sha256 *sha, const unsigned char key[BLOCK],
            unsigned char with)
{
	unsigned char changed[BLOCK];

	for (int i = 0; i < BLOCK; i++)
		changed[i] = key[i] ^ with;
	sha256_begin(sha);
	sha256_add(sha, changed, sizeof(changed));
}

void
batoni_tcp_hmac(const void *key, size_t key_bytes, const void *text,
                size_t bytes, unsigned char proof[BATONI_TCP_PROOF_BYTES])
{
	unsigned char padded[BLOCK] = {0};
	struct sha256 sha;

	if (key_bytes <= BLOCK) {
		memcpy(padded, key, key_bytes);
	} else {
		sha256_begin(&sha);
		sha256_add(&sha, key, key_bytes);
		sha256_finish(&sha, padded);
	}
	begin_keyed(&sha, padded, 0x36);
	sha256_add(&sha, text, bytes);
	sha256_finish(&sha, proof);
	begin_keyed(&sha, padded, 0x5c);
	sha256_add(&sha, proof, BATONI_TCP_PROOF_BYTES);
	sha256_finish(&sha, proof);
}

bool
batoni_tcp_same(const unsigned char *a, const unsigned char *b, size_t bytes)
{
	unsigned char differ = 0;

	for (size_t i = 0; i < bytes; i++)
		differ |= a[i] ^ b[i];
	return differ == 0;
}
