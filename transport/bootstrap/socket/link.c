/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames over a socket that does not block: the reading and the writing half of a
 * connection, which the hub and the transport of a rank share.
 *
 * Reading: the head, then `length` bytes to where `room` says, then `arrived`.  Writing: a queue
 * of frames.  A frame's bytes are copied, or belong to the queuer until `written`, which is
 * called once for each frame that has a tag, also when the link ends.
 *
 * A link that fails keeps its first error; nothing is read or written after it.  Its owner
 * closes it.  One thread at a time.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mem.h"
#include "tcp.h"

/* Read at one time, so that one link does not keep the thread. */
#define FRAMES_AT_ONCE 64

struct item {
	struct batoni_list_node link;
	unsigned char head[BATONI_TCP_HEAD_BYTES];
	const unsigned char *body;
	size_t length, sent;
	void *tag;
	unsigned char own[]; /* the body, if it was copied */
};

static struct item *
to_item(struct batoni_list_node *node)
{
	return batoni_container_of(node, struct item, link);
}

void
batoni_tcp_link_init(struct batoni_tcp_link *link, int fd, int size,
                     const struct batoni_tcp_link_ops *ops)
{
	*link = (struct batoni_tcp_link){.ops = ops, .fd = fd, .size = size};
	batoni_list_init(&link->out);
}

bool
batoni_tcp_link_queue(struct batoni_tcp_link *link,
                      const struct batoni_tcp_frame *frame, const void *bytes,
                      bool keep, void *tag)
{
	struct item *item = batoni_alloc(
		1, sizeof(*item) + (keep ? 0 : frame->length));

	if (!item)
		return false;
	batoni_tcp_frame_encode(frame, item->head);
	item->length = frame->length;
	item->tag = tag;
	item->body = keep ? bytes : item->own;
	if (!keep && frame->length)
		memcpy(item->own, bytes, frame->length);
	batoni_list_append(&link->out, &item->link);
	return true;
}

static void
fail_link(struct batoni_tcp_link *link, enum batoni_tcp_gone error, int code)
{
	if (link->error)
		return;
	link->error = error;
	link->code = code;
}

static void
drop_item(struct batoni_tcp_link *link, struct item *item)
{
	batoni_list_remove(&item->link);
	if (item->tag && link->ops->written)
		link->ops->written(link, item->tag,
		                   sizeof(item->head) + item->length);
	batoni_free(item);
}

/* ---- reading ---- */

/* Up to n bytes.  0: none now, or no more for ever. */
static size_t
take_bytes(struct batoni_tcp_link *link, void *to, size_t n)
{
	ssize_t got = recv(link->fd, to, n, MSG_DONTWAIT);

	if (got > 0)
		return (size_t)got;
	if (got == 0)
		fail_link(link, BATONI_TCP_CLOSED, 0);
	else if (errno == ECONNRESET || errno == EPIPE)
		fail_link(link, BATONI_TCP_CLOSED, errno);
	else if (errno != EAGAIN && errno != EINTR)
		fail_link(link, BATONI_TCP_LOST, errno);
	return 0;
}

/* True: a head is there, and room for its body. */
static bool
read_head(struct batoni_tcp_link *link)
{
	if (link->head_got == sizeof(link->head))
		return true;
	link->head_got += take_bytes(link, link->head + link->head_got,
	                             sizeof(link->head) - link->head_got);
	if (link->head_got < sizeof(link->head))
		return false;
	link->body_got = 0;
	if (!batoni_tcp_frame_decode(link->head, link->size, &link->frame)) {
		fail_link(link, BATONI_TCP_BROKE_RULES, 0);
		return false;
	}
	if (link->frame.length == 0)
		return true;
	link->body = link->ops->room(link, &link->frame);
	if (!link->body)
		fail_link(link, BATONI_TCP_BROKE_RULES, 0);
	return link->body != NULL;
}

static bool
read_body(struct batoni_tcp_link *link)
{
	size_t left = link->frame.length - link->body_got;

	if (left > 0)
		link->body_got += take_bytes(link, link->body + link->body_got, left);
	return link->body_got == link->frame.length;
}

size_t
batoni_tcp_link_read(struct batoni_tcp_link *link)
{
	size_t n = 0;

	while (!link->error && n < FRAMES_AT_ONCE && read_head(link) &&
	       read_body(link)) {
		link->head_got = 0;
		link->ops->arrived(link, &link->frame);
		n++;
	}
	return n;
}

/* ---- writing ---- */

/* One piece.  False: the socket takes no more now. */
static bool
write_some(struct batoni_tcp_link *link, struct item *item)
{
	size_t body = item->sent > sizeof(item->head)
	                      ? item->sent - sizeof(item->head)
	                      : 0;
	struct iovec parts[2];
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t n;

	parts[0].iov_base = item->head + (item->sent - body);
	parts[0].iov_len = sizeof(item->head) - (item->sent - body);
	parts[1].iov_base = (void *)(uintptr_t)(item->body + body);
	parts[1].iov_len = item->length - body;
	n = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0) {
		item->sent += (size_t)n;
		return true;
	}
	if (errno == ECONNRESET || errno == EPIPE)
		fail_link(link, BATONI_TCP_CLOSED, errno);
	else if (errno != EAGAIN && errno != EINTR)
		fail_link(link, BATONI_TCP_LOST, errno);
	return false;
}

bool
batoni_tcp_link_write(struct batoni_tcp_link *link)
{
	while (!link->error && !batoni_list_empty(&link->out)) {
		struct item *item = to_item(link->out.next);

		if (!write_some(link, item))
			return false;
		if (item->sent == sizeof(item->head) + item->length)
			drop_item(link, item);
	}
	return batoni_list_empty(&link->out);
}

void
batoni_tcp_link_fini(struct batoni_tcp_link *link)
{
	while (!batoni_list_empty(&link->out))
		drop_item(link, to_item(link->out.next));
	if (link->fd >= 0)
		close(link->fd);
	link->fd = -1;
}
