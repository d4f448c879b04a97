/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reasons of a hang.  Heads and their successors are chains, each of which ends in a circle or at a head without
 * a successor: these are told of, in sentences.
 */
#include "hang.h"

#include <stdlib.h>
#include <string.h>

#include <baton.h>

#define ENDS_MAX 256u /* reasons that are no circles */

/* "in communicator 2, ", whose ranks follow; "" where all have the same. */
static void
append_comm(const struct hang *h, char *text, size_t size, const struct head *head)
{
	size_t length = strlen(text);

	if (h->trace->comms_differ)
		snprintf(text + length, size - length, "in communicator %d, ",
		         head->op->of->comm_number);
}

/* "rank 2 waits in its receive of tag 7 from rank 0: rank 0 has ..." */
static void
append_head(const struct hang *h, char *text, size_t size, const struct head *head)
{
	size_t length;
	char what[128];

	append_comm(h, text, size, head);
	length = strlen(text);
	if (head->op->kind == TRACE_CLAIM) {
		snprintf(text + length, size - length,
		         "rank %d has found tag %d of rank %d by a probe and not "
		         "received it",
		         head->op->of->rank, head->op->tag, head->op->peer);
		return;
	}
	trace_what_there(head->op, what, sizeof(what));
	snprintf(text + length, size - length, "rank %d waits in its %s: %s",
	         head->op->of->rank, what, head->wait.why);
}

static void
add_reason(json_t *reasons, const char *kind, json_t *ranks, const char *text)
{
	json_t *reason = json_pack("{ss so ss}", "kind", kind, "ranks", ranks,
	                           "sentence", text), *other;
	size_t i;

	json_array_foreach(reasons, i, other)
	{
		if (json_equal(other, reason)) {
			json_decref(reason);
			return;
		}
	}
	json_array_append_new(reasons, reason);
}

/* A send and a receive between two ranks, each of which waits for the other's counterpart. */
static bool
differ_in_tags(const struct head *a, const struct head *b)
{
	return a->op->kind == BATON_OPERATION_SEND &&
	       b->op->kind == BATON_OPERATION_RECV && a->op->of->comm == b->op->of->comm &&
	       a->op->peer == b->op->of->rank && b->op->peer == a->op->of->rank &&
	       a->op->tag != b->op->tag && a->guessed && b->guessed;
}

/* A circle of two that is none, if their tags were meant to be one. */
static bool
tell_of_tags(const struct hang *h, json_t *reasons, size_t first)
{
	const struct head *send = &h->heads[first];
	const struct head *receive = &h->heads[send->next], *swap = send;
	char text[256] = "";
	size_t length;

	if (receive->next != first)
		return false;
	if (send->op->kind != BATON_OPERATION_SEND) {
		send = receive;
		receive = swap;
	}
	if (!differ_in_tags(send, receive))
		return false;
	append_comm(h, text, sizeof(text), send);
	length = strlen(text);
	snprintf(text + length, sizeof(text) - length,
	         "tags differ: rank %d sends to rank %d with tag %d, and rank %d "
	         "receives from rank %d with tag %d",
	         send->op->of->rank, send->op->peer, send->op->tag,
	         receive->op->of->rank, receive->op->peer, receive->op->tag);
	add_reason(reasons, "tags",
	           json_pack("[ii]", send->op->of->rank, receive->op->of->rank),
	           text);
	return true;
}

static void
tell_of_circle(struct hang *h, json_t *reasons, size_t first)
{
	json_t *ranks;
	char text[2048] = "a circle: ";
	bool guessed = false;
	size_t i = first, members = 0;

	if (tell_of_tags(h, reasons, first))
		return;
	ranks = json_array();
	do {
		struct head *head = &h->heads[i];

		if (members > 0)
			strncat(text, "; ", sizeof(text) - strlen(text) - 1);
		append_head(h, text, sizeof(text), head);
		if (head->op->of->life == TRACE_GONE)
			strncat(text, " (its process has ended)",
			        sizeof(text) - strlen(text) - 1);
		json_array_append_new(ranks, json_integer(head->op->of->rank));
		guessed = guessed || head->guessed;
		head->told = true;
		members++;
		i = head->next;
	} while (i != first);
	if (guessed)
		strncat(text,
		        " (a call that never came stands behind what its rank waits "
		        "in, if the program does)",
		        sizeof(text) - strlen(text) - 1);
	add_reason(reasons, "circle", ranks, text);
}

/* It waits for a rank whose process is gone, and its own is not. */
static bool
waits_for_gone(const struct hang *h, const struct head *head)
{
	const struct trace_rank *own = head->op->of, *peer;

	if (head->wait.peer < 0 || own->life == TRACE_GONE)
		return false;
	peer = h->trace->comms[own->comm].members[head->wait.peer];
	return peer && peer->life == TRACE_GONE;
}

/* Heads of one rank that wait for one peer in one way: one reason. */
struct end {
	const struct head *head; /* the first */
	size_t count;
};

static void
tell_of_end(const struct hang *h, json_t *reasons, const struct end *end)
{
	static const char *const kinds[] = {
		[TRACE_BEHIND] = "behind",       [TRACE_LATE] = "late",
		[TRACE_ABSENT] = "absent",       [TRACE_UNDER_WAY] = "under way",
		[TRACE_UNKNOWN] = "unknown",     [TRACE_PROGRAM] = "program"};
	const struct head *head = end->head;
	json_t *ranks = json_array();
	char text[1024] = "";
	size_t length;

	append_head(h, text, sizeof(text), head);
	length = strlen(text);
	if (end->count > 1)
		snprintf(text + length, sizeof(text) - length,
		         head->op->kind == TRACE_CLAIM
		                 ? "; and so %zu more of that tag"
		                 : "; and so do %zu more of its operations",
		         end->count - 1);
	length = strlen(text);
	if (waits_for_gone(h, head))
		snprintf(text + length, sizeof(text) - length,
		         "; the process of rank %d has ended", head->wait.peer);
	json_array_append_new(ranks, json_integer(head->op->of->rank));
	if (head->wait.peer >= 0 && head->wait.peer != head->op->of->rank)
		json_array_append_new(ranks, json_integer(head->wait.peer));
	add_reason(reasons, kinds[head->wait.cause], ranks, text);
}

static void
add_end(struct end *ends, size_t *count, const struct head *head)
{
	for (size_t i = 0; i < *count; i++) {
		const struct head *other = ends[i].head;

		if (other->op->of == head->op->of &&
		    other->op->kind == head->op->kind &&
		    (other->op->kind != TRACE_CLAIM || other->op->peer == head->op->peer) &&
		    other->wait.peer == head->wait.peer &&
		    other->wait.cause == head->wait.cause &&
		    (other->op->tag == head->op->tag ||
		     other->wait.cause == TRACE_UNDER_WAY)) {
			ends[i].count++;
			return;
		}
	}
	if (*count < ENDS_MAX)
		ends[(*count)++] = (struct end){head, 1};
}

/* What is under way may only be slow, and is no reason beside others. */
static void
tell_of_ends(const struct hang *h, json_t *reasons)
{
	json_t *under_way = json_array();
	struct end ends[ENDS_MAX];
	size_t count = 0;

	for (size_t i = 0; i < h->count; i++) {
		const struct head *head = &h->heads[i];

		if (head->listed && !head->told &&
		    (head->next == SIZE_MAX || head->wait.cause == TRACE_ABSENT))
			add_end(ends, &count, head);
	}
	for (size_t i = 0; i < count; i++) {
		if (ends[i].head->wait.cause != TRACE_UNDER_WAY)
			tell_of_end(h, reasons, &ends[i]);
	}
	for (size_t i = 0; json_array_size(reasons) == 0 && i < count; i++)
		tell_of_end(h, under_way, &ends[i]);
	json_array_extend(reasons, under_way);
	json_decref(under_way);
}

json_t *
trace_reasons(struct hang *h)
{
	json_t *reasons = json_array();

	for (size_t i = 0; i < h->count; i++) {
		size_t at = i;

		while (at != SIZE_MAX && h->heads[at].walk == 0) {
			h->heads[at].walk = i + 1;
			at = h->heads[at].next;
		}
		if (at != SIZE_MAX && h->heads[at].walk == i + 1)
			tell_of_circle(h, reasons, at);
	}
	tell_of_ends(h, reasons);
	return reasons;
}
