/* SPDX-License-Identifier: BSD-3-Clause */
#include "harness_onesided.h"

#include <stdlib.h>
#include <string.h>

/* ---- signals ------------------------------------------------------------ */

void
conform_signal_to(struct conform *c, int peer, int index, int context)
{
	conform_status(c, "baton_signal", BATON_OK,
	               baton_signal(peer, index, context, 0, c->comm, c->stream,
	                            NULL, NULL));
}

baton_request
conform_signal_on(struct conform *c, int peer, int index, int context,
                  baton_stream stream, const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	conform_status(c, "baton_signal", BATON_OK,
	               baton_signal(peer, index, context, 0, c->comm, stream,
	                            options, &request));
	return request;
}

baton_request
conform_wait_for(struct conform *c, int peer, int units, int index, int context,
                 baton_stream stream, const struct baton_op_options *options)
{
	struct baton_wait_signal_desc desc = { units, peer, index, context };
	baton_request request = BATON_REQUEST_NULL;

	conform_status(c, "baton_wait_signal", BATON_OK,
	               baton_wait_signal(1, &desc, c->comm, stream, options,
	                                 &request));
	return request;
}

bool
conform_await(struct conform *c, int peer, int units, int index, int context)
{
	baton_request request = conform_wait_for(c, peer, units, index, context,
	                                         c->stream, NULL);

	return conform_finish(c, BATON_OK, &request, NULL);
}

uint64_t
conform_count(struct conform *c, int peer, int index, int context)
{
	uint64_t count = UINT64_MAX;

	conform_status(c, "baton_signal_count", BATON_OK,
	               baton_signal_count(c->comm, peer, index, context,
	                                  &count));
	return count;
}

void
conform_counts(struct conform *c, int peer, int index, int context,
               uint64_t want)
{
	int64_t begin = conform_begin();

	while (conform_count(c, peer, index, context) < want &&
	       conform_still(c, begin))
		;
	conform_equal(c, "the count",
	              (long long)conform_count(c, peer, index, context),
	              (long long)want);
}

/* ---- windows ------------------------------------------------------------ */

bool
conform_register(struct conform *c, struct conform_part *part)
{
	enum baton_status status = baton_window_register(
		part->base, part->bytes, c->comm, &part->window);

	if (status == BATON_ERR_UNSUPPORTED && getenv("BATON_WINDOW_PATH")) {
		conform_true(c, "the refusal has a sentence",
		             baton_last_error()[0] != '\0');
		c->skip = "the forced path does not reach this memory";
		return false;
	}
	return conform_status(c, "baton_window_register", BATON_OK, status) &&
	       conform_true(c, "a window", part->window != NULL);
}

void
conform_give(struct conform *c, struct conform_part *part)
{
	if (part->alloced)
		conform_status(c, "baton_mem_free", BATON_OK,
		               baton_mem_free(c->comm, part->base));
	part->base = NULL;
}

void
conform_take(struct conform *c, struct conform_part *part, size_t bytes,
             enum conform_kind usual)
{
	enum conform_kind kind = conform_next_kind(c, &c->windows, usual);
	void *base = NULL;

	memset(part, 0, sizeof(*part));
	if (bytes == 0)
		return;
	if (kind == CONFORM_KIND_ALLOC)
		conform_status(c, "baton_mem_alloc", BATON_OK,
		               baton_mem_alloc(c->comm, bytes, &base));
	else
		base = conform_alloc_kind(c, kind, bytes);
	part->base = base;
	part->bytes = base ? bytes : 0;
	part->alloced = kind == CONFORM_KIND_ALLOC && base;
}

bool
conform_open(struct conform *c, struct conform_part *part, size_t bytes)
{
	conform_take(c, part, bytes, CONFORM_KIND_ALLOC);
	if (conform_register(c, part))
		return true;
	conform_give(c, part);
	return false;
}

bool
conform_open_private(struct conform *c, struct conform_part *part, size_t bytes)
{
	const bool host = c->backend->traits & CONFORM_HOST_BUFFERS;

	conform_take(c, part, bytes,
	             host ? CONFORM_KIND_HOST : CONFORM_KIND_DEVICE);
	if (conform_register(c, part))
		return true;
	conform_give(c, part);
	return false;
}

void
conform_close(struct conform *c, struct conform_part *part)
{
	conform_status(c, "baton_window_deregister", BATON_OK,
	               baton_window_deregister(part->window));
	conform_give(c, part);
}

baton_request
conform_put(struct conform *c, const void *data, size_t bytes, int peer,
            struct baton_window *window, size_t offset, int index, int context,
            baton_stream stream, const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	conform_status(c, "baton_put_signal", BATON_OK,
	               baton_put_signal(data, bytes, BATON_UINT8, peer, window,
	                                offset, index, context, 0, c->comm,
	                                stream, options, &request));
	return request;
}
