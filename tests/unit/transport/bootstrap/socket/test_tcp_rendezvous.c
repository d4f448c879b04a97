/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How ranks of several processes come together: the proof of the secret, the headers, and the
 * rendezvous with those who apply.  Loops wait for what has to come, and have a limit that only a
 * hang reaches.  The transport after that: test_tcp.c.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "mem.h"
#include "run_tests.h"
#include "tcp.h"
#include "tcp_world.h"

/* ---- the proof ---- */

/* RFC 4231: 1, 2, and 6 with a key that is longer than a block. */
START_TEST(proofs_are_hmac_sha_256)
{
	static const char *const digests[] = {
		"b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
		"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
		"60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
	};
	unsigned char key[131], proof[BATONI_TCP_PROOF_BYTES];
	char text[2 * sizeof(proof) + 1];

	for (int i = 0; i < 3; i++) {
		if (i == 0) {
			memset(key, 0x0b, 20);
			batoni_tcp_hmac(key, 20, "Hi There", 8, proof);
		} else if (i == 1) {
			batoni_tcp_hmac("Jefe", 4,
			                "what do ya want for nothing?", 28,
			                proof);
		} else {
			memset(key, 0xaa, sizeof(key));
			batoni_tcp_hmac(key, sizeof(key),
			                "Test Using Larger Than Block-Size Key - "
			                "Hash Key First",
			                54, proof);
		}
		for (size_t j = 0; j < sizeof(proof); j++)
			snprintf(text + 2 * j, 3, "%02x", proof[j]);
		ck_assert_str_eq(text, digests[i]);
	}
}
END_TEST

/* ---- headers ---- */

static uint64_t dice = 0x9e3779b97f4a7c15u;

static uint64_t
roll(void)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return dice;
}

/* Change one to four bytes, mostly to what is at a bound. */
static void
spoil(unsigned char *bytes, size_t n)
{
	static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};

	for (uint64_t i = 0; i <= roll() % 4; i++)
		bytes[roll() % n] = roll() % 4 ? values[roll() % sizeof(values)]
		                               : (unsigned char)roll();
}

static const struct batoni_tcp_hello hello_0 = {.version = BATONI_TCP_VERSION,
                                                .rank = 1,
                                                .size = 3,
                                                .nonce = {1, 2, 3},
                                                .challenge = {4, 5}};

/* What is accepted is what the encoder writes. */
START_TEST(hellos_are_accepted_only_as_they_are_written)
{
	unsigned char good[BATONI_TCP_HELLO_BYTES], bad[sizeof(good)];
	unsigned char again[sizeof(good)];
	struct batoni_tcp_hello hello;
	int refused = 0;

	batoni_tcp_hello_encode(&hello_0, good);
	ck_assert(batoni_tcp_hello_decode(good, &hello));
	ck_assert_mem_eq(&hello, &hello_0, sizeof(hello));
	for (int i = 0; i < 20000; i++) {
		memcpy(bad, good, sizeof(bad));
		spoil(bad, sizeof(bad));
		if (!batoni_tcp_hello_decode(bad, &hello)) {
			refused++;
			continue;
		}
		if (hello.version != BATONI_TCP_VERSION)
			continue;
		ck_assert_uint_lt(hello.rank, hello.size);
		ck_assert_uint_le(hello.size, INT32_MAX);
		batoni_tcp_hello_encode(&hello, again);
		ck_assert_mem_eq(again, bad, sizeof(bad));
	}
	ck_assert_int_gt(refused, 1000);
}
END_TEST

START_TEST(replies_and_verdicts_are_accepted_only_as_they_are_written)
{
	const struct batoni_tcp_reply reply_0 = {.version = BATONI_TCP_VERSION,
	                                         .challenge = {7},
	                                         .proof = {8}};
	const struct batoni_tcp_verdict verdict_0 = {
		.word = BATONI_TCP_REFUSED,
		.status = BATON_ERR_INVALID,
		.why = "because"};
	unsigned char reply_good[BATONI_TCP_REPLY_BYTES];
	unsigned char verdict_good[BATONI_TCP_VERDICT_BYTES];
	struct batoni_tcp_reply reply;
	struct batoni_tcp_verdict verdict;
	int refused[2] = {0, 0};

	batoni_tcp_reply_encode(&reply_0, reply_good);
	batoni_tcp_verdict_encode(&verdict_0, verdict_good);
	ck_assert(batoni_tcp_reply_decode(reply_good, &reply));
	ck_assert_mem_eq(&reply, &reply_0, sizeof(reply));
	ck_assert(batoni_tcp_verdict_decode(verdict_good, &verdict));
	ck_assert_str_eq(verdict.why, "because");
	for (int i = 0; i < 20000; i++) {
		unsigned char bad[BATONI_TCP_VERDICT_BYTES];

		memcpy(bad, reply_good, sizeof(reply_good));
		spoil(bad, 16);
		if (batoni_tcp_reply_decode(bad, &reply))
			ck_assert_uint_lt(reply.answer, BATONI_TCP_ANSWERS);
		else
			refused[0]++;
		memcpy(bad, verdict_good, sizeof(verdict_good));
		spoil(bad, i % 2 ? sizeof(bad) : 16);
		if (!batoni_tcp_verdict_decode(bad, &verdict)) {
			refused[1]++;
			continue;
		}
		ck_assert_uint_lt(strlen(verdict.why), sizeof(verdict.why));
		if (verdict.word == BATONI_TCP_REFUSED)
			ck_assert_int_lt(verdict.status, 0);
	}
	ck_assert_int_gt(refused[0], 1000);
	ck_assert_int_gt(refused[1], 1000);
}
END_TEST

static const struct batoni_tcp_frame frames[] = {
	{.kind = BATONI_TCP_PART, .from = 1, .what = 5, .bytes = 64, .length = 64},
	{.kind = BATONI_TCP_PART, .from = 2, .what = BATONI_TCP_WHAT_LEAVE},
	{.kind = BATONI_TCP_ALL, .bytes = 64, .length = 3 * 64},
	{.kind = BATONI_TCP_ALL, .status = (uint32_t)BATON_ERR_INVALID, .bytes = 9},
	{.kind = BATONI_TCP_READY, .from = 1, .to = 2, .tag = 9, .slot = 3},
	{.kind = BATONI_TCP_DATA, .to = 2, .slot = 3, .bytes = 99, .length = 98},
	{.kind = BATONI_TCP_RETRACT, .from = 2, .slot = BATONI_SLOTS_LIMIT - 1},
	{.kind = BATONI_TCP_RETRACTED, .from = 2, .tag = INT32_MAX},
	{.kind = BATONI_TCP_BYE},
	{.kind = BATONI_TCP_ABORT, .from = 2, .what = 3},
	{.kind = BATONI_TCP_LEFT, .from = 2},
	{.kind = BATONI_TCP_GONE, .from = 2, .status = BATONI_TCP_LOST},
};

#define FRAMES (sizeof(frames) / sizeof(frames[0]))

START_TEST(frames_are_accepted_only_as_they_are_written)
{
	unsigned char good[BATONI_TCP_HEAD_BYTES], bad[sizeof(good)];
	unsigned char again[sizeof(good)];
	struct batoni_tcp_frame frame;
	int refused = 0;

	for (size_t i = 0; i < FRAMES; i++) {
		batoni_tcp_frame_encode(&frames[i], good);
		ck_assert(batoni_tcp_frame_decode(good, 3, &frame));
		batoni_tcp_frame_encode(&frame, again);
		ck_assert_mem_eq(again, good, sizeof(good));
		ck_assert_uint_eq(frame.length, frames[i].length);
		ck_assert_uint_eq(frame.what, frames[i].what);
		ck_assert_uint_eq(frame.bytes, frames[i].bytes);
		for (int j = 0; j < 5000; j++) {
			memcpy(bad, good, sizeof(bad));
			spoil(bad, sizeof(bad));
			if (!batoni_tcp_frame_decode(bad, 3, &frame)) {
				refused++;
				continue;
			}
			batoni_tcp_frame_encode(&frame, again);
			ck_assert_mem_eq(again, bad, sizeof(bad));
			ck_assert_uint_lt(frame.from, 3);
			ck_assert_uint_lt(frame.to, 3);
			ck_assert_uint_le(frame.length,
			                  3 * BATONI_TCP_PART_MAX);
		}
	}
	ck_assert_int_gt(refused, 10000);
}
END_TEST

/* Each is good but for one number. */
START_TEST(frames_beyond_a_bound_are_refused)
{
	static const struct batoni_tcp_frame bad[] = {
		{.kind = 0},
		{.kind = BATONI_TCP_KINDS},
		{.kind = BATONI_TCP_BYE, .from = 3},
		{.kind = BATONI_TCP_READY, .to = 3},
		{.kind = BATONI_TCP_READY, .slot = BATONI_SLOTS_LIMIT},
		{.kind = BATONI_TCP_READY, .tag = 0x80000000u},
		{.kind = BATONI_TCP_READY, .length = 1},
		{.kind = BATONI_TCP_PART, .what = 1, .bytes = 8, .length = 9},
		{.kind = BATONI_TCP_PART, .what = 1},
		{.kind = BATONI_TCP_PART, .what = BATONI_TCP_WHAT_LEAVE,
		 .bytes = 1, .length = 1},
		{.kind = BATONI_TCP_PART, .what = 1,
		 .bytes = BATONI_TCP_PART_MAX + 1,
		 .length = BATONI_TCP_PART_MAX + 1},
		{.kind = BATONI_TCP_PART, .what = 1, .bytes = 8, .length = 8,
		 .status = 77},
		{.kind = BATONI_TCP_ALL, .bytes = 8, .length = 8},
		{.kind = BATONI_TCP_DATA, .bytes = 8, .length = 9},
		{.kind = BATONI_TCP_DATA, .bytes = BATONI_TCP_MESSAGE_MAX + 1,
		 .length = BATONI_TCP_MESSAGE_MAX + 1},
		{.kind = BATONI_TCP_GONE},
		{.kind = BATONI_TCP_GONE, .status = BATONI_TCP_LOST + 1},
		{.kind = BATONI_TCP_GONE, .status = BATONI_TCP_LOST, .what = 4},
		{.kind = BATONI_TCP_ABORT, .what = 4},
	};
	unsigned char bytes[BATONI_TCP_HEAD_BYTES];
	struct batoni_tcp_frame frame;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		batoni_tcp_frame_encode(&bad[i], bytes);
		ck_assert_msg(!batoni_tcp_frame_decode(bytes, 3, &frame),
		              "record %zu", i);
	}
}
END_TEST

/* ---- the rendezvous ---- */

static struct batoni_side_key key;
static struct batoni_rendezvous *rendezvous;
static bool here[8];
static int came;

static void
open_rendezvous(int size)
{
	int error;

	setenv("BATON_INTERFACE", "127.0.0.1", 1);
	batoni_tcp_random(key.nonce, sizeof(key.nonce));
	batoni_tcp_random(key.secret, sizeof(key.secret));
	ck_assert_int_eq(batoni_tcp_listen(&key, &error), BATON_OK);
	ck_assert_uint_eq(key.address.family, 4);
	ck_assert_uint_ne(key.address.port, 0);
	ck_assert_int_eq(batoni_tcp_open(&key, size, &rendezvous), BATON_OK);
	ck_assert_int_eq(batoni_tcp_open(&key, size, &rendezvous),
	                 BATON_ERR_UNSUPPORTED);
	here[0] = true;
	came = 1;
}

/* One poll_once; what has come is taken in. */
static enum baton_status
poll_once(void)
{
	char why[BATONI_SIDE_WHY_BYTES];
	enum baton_status status;
	int n;

	batoni_tcp_attend(rendezvous, batoni_real_ns() + SECOND / 1000);
	status = batoni_tcp_admit(rendezvous, here, &n, why);
	came += n;
	return status;
}

static bool
has_refused(const char *words)
{
	char text[400] = "";

	batoni_tcp_describe(rendezvous, text, sizeof(text));
	return strstr(text, words) != NULL;
}

static void
await_refusal(const char *words)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;

	while (!has_refused(words)) {
		ck_assert_int_eq(poll_once(), BATON_OK);
		pause_until(limit);
	}
}

static int
connect_raw(void)
{
	int fd = -1;

	ck_assert_int_eq(batoni_tcp_connect_to(&key.address, &fd), 0);
	return fd;
}

static void
receive_raw(int fd, void *bytes, size_t n)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;
	char *at = bytes;

	while (n > 0) {
		ssize_t got = recv(fd, at, n, 0);

		if (got > 0) {
			at += got;
			n -= (size_t)got;
			continue;
		}
		ck_assert_int_ne((int)got, 0);
		poll_once();
		pause_until(limit);
	}
}

/* A rank of ours, on a thread of its own. */
struct client {
	pthread_t thread;
	struct batoni_side_key key;
	int size, rank;
	int64_t timeout_ns;
	enum baton_status status;
	struct batoni_side_link link;
	char why[300];
};

static void *
client_main(void *argument)
{
	struct client *client = argument;

	client->status = batoni_tcp_connect(&client->key, client->size, client->rank,
	                                    client->timeout_ns, &client->link);
	snprintf(client->why, sizeof(client->why), "%s", baton_last_error());
	return NULL;
}

static void
invite(struct client *client, int size, int rank)
{
	*client = (struct client){.key = key,
	                          .size = size,
	                          .rank = rank,
	                          .timeout_ns = (int64_t)LIMIT_NS,
	                          .link.fd = -1};
}

static void
begin(struct client *client)
{
	ck_assert_int_eq(pthread_create(&client->thread, NULL, client_main, client),
	                 0);
}

static void
end_client(struct client *client, enum baton_status status, const char *words)
{
	pthread_join(client->thread, NULL);
	ck_assert_msg(client->status == status, "%d: %s", client->status,
	              client->why);
	ck_assert_msg(strstr(client->why, words) != NULL, "%s", client->why);
}

static void
await_all(int size)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;

	while (came < size) {
		ck_assert_int_eq(poll_once(), BATON_OK);
		pause_until(limit);
	}
}

/* All are here: the ranks of this process, whose links are made, and the client. */
static void
link_and_close(struct batoni_side_link links[], int size)
{
	for (int i = 0; i < size; i++)
		links[i].fd = i == 0 ? 0 : -1;
	ck_assert_int_eq(batoni_tcp_link_all(rendezvous, 0, links), BATON_OK);
	batoni_tcp_close(rendezvous, BATON_OK, "");
}

/* As a rank of ours does, up to ADMITTED. */
static int
come_in(int size, int rank)
{
	struct batoni_tcp_hello hello = {.version = BATONI_TCP_VERSION,
	                                 .rank = (uint32_t)rank,
	                                 .size = (uint32_t)size};
	unsigned char bytes[BATONI_TCP_VERDICT_BYTES];
	unsigned char proof[BATONI_TCP_PROOF_BYTES];
	struct batoni_tcp_verdict verdict;
	struct batoni_tcp_reply reply;
	int fd = connect_raw();

	memcpy(hello.nonce, key.nonce, sizeof(hello.nonce));
	batoni_tcp_hello_encode(&hello, bytes);
	send_raw(fd, bytes, BATONI_TCP_HELLO_BYTES);
	receive_raw(fd, bytes, BATONI_TCP_REPLY_BYTES);
	ck_assert(batoni_tcp_reply_decode(bytes, &reply));
	batoni_tcp_prove(&key, 'C', &hello, reply.challenge, proof);
	send_raw(fd, proof, sizeof(proof));
	receive_raw(fd, bytes, BATONI_TCP_VERDICT_BYTES);
	ck_assert(batoni_tcp_verdict_decode(bytes, &verdict));
	ck_assert_uint_eq(verdict.word, BATONI_TCP_ADMITTED);
	return fd;
}

/* The rendezvous still serves who is right. */
static void
end_in_order(void)
{
	struct batoni_side_link links[2];
	struct client client;

	invite(&client, 2, 1);
	begin(&client);
	await_all(2);
	link_and_close(links, 2);
	end_client(&client, BATON_OK, "");
	ck_assert_int_eq(client.link.home, 0);
	close(links[0].fd);
	close(client.link.fd);
	await_no_hub();
}

START_TEST(who_has_the_secret_comes_in)
{
	open_rendezvous(2);
	end_in_order();
}
END_TEST

/* Bytes that are no hello: whoever sends them is sent away, and nobody else is harmed. */
START_TEST(garbage_is_sent_away)
{
	static const char *const texts[] = {
		"GET / HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n12345678",
		"batonsid................................................",
		"SSH-2.0-OpenSSH_9.6\r\n.........................................",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
		"\xff\xff\xff\xff\xff\xff\xff\xff",
	};

	open_rendezvous(2);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char words[80];
		int fd = connect_raw();

		send_raw(fd, texts[i], strlen(texts[i]));
		snprintf(words, sizeof(words), "; connections that were refused: %zu",
		         i + 1);
		await_refusal(words);
		close(fd);
	}
	ck_assert_int_eq(came, 1);
	end_in_order();
}
END_TEST

START_TEST(hellos_that_do_not_fit_are_sent_away)
{
	static const struct {
		int what;
		const char *words;
	} cases[] = {
		{0, "another version"},
		{1, "another id"},
		{2, "does not speak"}, /* rank 3 of 3 */
		{3, "another secret"}, /* a proof of zeros */
		{4, "closed before it proved"},
	};

	open_rendezvous(2);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned char bytes[BATONI_TCP_HELLO_BYTES];
		unsigned char reply[BATONI_TCP_REPLY_BYTES];
		unsigned char zeros[BATONI_TCP_PROOF_BYTES] = {0};
		struct batoni_tcp_hello hello = {.version = BATONI_TCP_VERSION,
		                                 .rank = 1,
		                                 .size = 2};
		int fd = connect_raw();

		memcpy(hello.nonce, key.nonce, sizeof(hello.nonce));
		if (cases[i].what == 0)
			hello.version++;
		if (cases[i].what == 1)
			hello.nonce[3] ^= 1;
		if (cases[i].what == 2)
			hello.rank = 3;
		batoni_tcp_hello_encode(&hello, bytes);
		send_raw(fd, bytes, sizeof(bytes));
		if (cases[i].what > 2)
			receive_raw(fd, reply, sizeof(reply));
		if (cases[i].what == 3)
			send_raw(fd, zeros, sizeof(zeros));
		if (cases[i].what == 4)
			close(fd);
		await_refusal(cases[i].words);
		if (cases[i].what != 4)
			close(fd);
	}
	ck_assert_int_eq(came, 1);
	end_in_order();
}
END_TEST

START_TEST(who_says_nothing_is_sent_away_in_time)
{
	int fd;

	batoni_tcp_applicant_ns(SECOND / 1000);
	open_rendezvous(2);
	fd = connect_raw();
	send_raw(fd, "b", 1);
	await_refusal("in time");
	close(fd);
	batoni_tcp_applicant_ns(0);
	end_in_order();
}
END_TEST

/* More than have a place: the oldest makes way. */
START_TEST(a_crowd_does_not_keep_others_out)
{
	enum { CROWD = 100 };
	int fds[CROWD];

	open_rendezvous(2);
	for (int i = 0; i < CROWD; i++)
		fds[i] = connect_raw();
	await_refusal("too many");
	end_in_order();
	for (int i = 0; i < CROWD; i++)
		close(fds[i]);
}
END_TEST

START_TEST(another_secret_is_told)
{
	struct client client;

	open_rendezvous(2);
	invite(&client, 2, 1);
	client.key.secret[0] ^= 1;
	begin(&client);
	await_refusal("closed before it proved");
	end_client(&client, BATON_ERR_INVALID, "another secret");
	end_in_order();
}
END_TEST

START_TEST(a_rank_that_is_taken_is_told)
{
	struct client twice;

	open_rendezvous(2);
	invite(&twice, 2, 0);
	begin(&twice);
	await_refusal("rank 0 is taken");
	end_client(&twice, BATON_ERR_INVALID, "rank 0 is taken");
	end_in_order();
}
END_TEST

START_TEST(another_size_ends_the_creation_for_all)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;
	struct client first, other;

	open_rendezvous(3);
	invite(&first, 3, 1);
	begin(&first);
	await_all(2);
	invite(&other, 4, 2);
	begin(&other);
	while (poll_once() != BATON_ERR_INVALID)
		pause_until(limit);
	batoni_tcp_close(rendezvous, BATON_ERR_INVALID, "the sizes differ");
	end_client(&first, BATON_ERR_INVALID, "the sizes differ");
	end_client(&other, BATON_ERR_INVALID, "has size 4; another rank said 3");
	await_no_hub();
}
END_TEST

START_TEST(one_that_gives_up_ends_the_creation)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;
	struct client other;
	int fd;

	open_rendezvous(4);
	invite(&other, 4, 1);
	begin(&other);
	await_all(2);
	fd = come_in(4, 2);
	ck_assert_int_eq(came, 3);
	close(fd);
	while (poll_once() != BATON_ERR_PEER)
		pause_until(limit);
	batoni_tcp_close(rendezvous, BATON_ERR_PEER, "rank 2 has given up");
	end_client(&other, BATON_ERR_PEER, "rank 2 has given up");
	await_no_hub();
}
END_TEST

START_TEST(who_waits_too_long_is_told)
{
	struct client client;

	open_rendezvous(2);
	invite(&client, 2, 1);
	client.timeout_ns = (int64_t)SECOND / 50;
	begin(&client);
	/* Nobody attends. */
	end_client(&client, BATON_ERR_TIMEOUT, "does not answer");
	end_in_order();
}
END_TEST

static void *
client_by_two(void *argument)
{
	struct client *client = argument;
	struct batoni_side_address addresses[2] = {client->key.address,
	                                           client->key.address};

	/* Nobody listens there. */
	addresses[0].bytes[3] = 77;
	client->status = batoni_tcp_connect_at(&client->key, addresses, 2,
	                                       client->size, client->rank,
	                                       client->timeout_ns, false,
	                                       &client->link);
	return NULL;
}

START_TEST(another_address_of_the_host_is_tried)
{
	struct batoni_side_link links[2];
	struct client client;

	open_rendezvous(2);
	invite(&client, 2, 1);
	ck_assert_int_eq(pthread_create(&client.thread, NULL, client_by_two,
	                                &client),
	                 0);
	await_all(2);
	link_and_close(links, 2);
	end_client(&client, BATON_OK, "");
	close(links[0].fd);
	close(client.link.fd);
	await_no_hub();
}
END_TEST

START_TEST(a_listener_that_is_gone_is_told)
{
	struct client client;
	int error;

	open_rendezvous(2);
	batoni_tcp_close(rendezvous, BATON_OK, "");
	invite(&client, 2, 1);
	begin(&client);
	end_client(&client, BATON_ERR_PEER, "cannot connect to 127.0.0.1");
	/* The oldest of too many makes way, and its place is closed. */
	ck_assert_int_eq(batoni_tcp_listen(&key, &error), BATON_OK);
	batoni_tcp_unlisten(&key);
	batoni_tcp_unlisten(&key);
	ck_assert_int_eq(batoni_tcp_open(&key, 2, &rendezvous), BATON_ERR_UNSUPPORTED);
}
END_TEST

/* ---- how a wait is told of ---- */

/* A process that stood still for a while tells once, and the next time is ahead. */
START_TEST(times_that_were_missed_are_told_of_once)
{
	struct batoni_side_wait wait = {7 * SECOND, 0};

	ck_assert(!batoni_side_tells(&wait, 10 * SECOND - 1));
	ck_assert_uint_eq(batoni_side_tell_at(&wait), 10 * SECOND);
	ck_assert(batoni_side_tells(&wait, 107 * SECOND));
	ck_assert_uint_eq(batoni_side_tell_at(&wait), (7 + 192) * SECOND);
	ck_assert(!batoni_side_tells(&wait, 198 * SECOND));
	ck_assert(batoni_side_tells(&wait, UINT64_MAX - 1));
	ck_assert_uint_eq(batoni_side_tell_at(&wait), UINT64_MAX);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		times_that_were_missed_are_told_of_once,
		proofs_are_hmac_sha_256,
		hellos_are_accepted_only_as_they_are_written,
		replies_and_verdicts_are_accepted_only_as_they_are_written,
		frames_are_accepted_only_as_they_are_written,
		frames_beyond_a_bound_are_refused,
		who_has_the_secret_comes_in,
		garbage_is_sent_away,
		hellos_that_do_not_fit_are_sent_away,
		who_says_nothing_is_sent_away_in_time,
		a_crowd_does_not_keep_others_out,
		another_secret_is_told,
		a_rank_that_is_taken_is_told,
		another_size_ends_the_creation_for_all,
		one_that_gives_up_ends_the_creation,
		who_waits_too_long_is_told,
		another_address_of_the_host_is_tried,
		a_listener_that_is_gone_is_told,
	};

	return RUN_TESTS("tcp_rendezvous", tests);
}
