/* SPDX-License-Identifier: BSD-3-Clause */
/* The windows of the random load: those that its workers put into, and those that
 * come and go beside them. */
#include "worker.h"

#include <stdlib.h>
#include <string.h>

/* Of baton_mem_alloc, which on a GPU is memory that the worker cannot look at. */
static bool
may_be_ours(const struct worker *w)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	return baton_comm_query(w->comm, &info) == BATON_OK &&
	       info.device == BATON_DEVICE_HOST;
}

static unsigned char *
memory_take(struct worker *w, size_t bytes, bool ours)
{
	void *base = NULL;

	if (!ours)
		base = malloc(bytes + 1);
	else if (baton_mem_alloc(w->comm, bytes + 1, &base) != BATON_OK)
		fail(w, -1, "mem_alloc of %zu bytes", bytes);
	if (!base)
		abort();
	return base;
}

static void
memory_give(struct worker *w, unsigned char *base, bool ours)
{
	if (!ours)
		free(base);
	else if (baton_mem_free(w->comm, base) != BATON_OK)
		fail(w, -1, "mem_free");
}

/* NULL where a path is forced that does not reach this memory. */
static struct baton_window *
window_of(struct worker *w, unsigned char *base, size_t bytes)
{
	struct baton_window *window = NULL;
	enum baton_status status =
		baton_window_register(base, bytes, w->comm, &window);

	if (status != BATON_OK &&
	    (status != BATON_ERR_UNSUPPORTED || !getenv("BATON_WINDOW_PATH")))
		fail(w, -1, "register gave %s", baton_status_name(status));
	return window;
}

static void
window_end(struct worker *w, struct baton_window *window)
{
	enum baton_status status = baton_window_deregister(window);

	if (status != BATON_OK)
		fail(w, -1, "deregister gave %s", baton_status_name(status));
}

void
windows_open(struct worker *w, struct windows *windows)
{
	size_t bytes = part_bytes(w->options, w->size);

	for (int i = 0; i < 2; i++) {
		windows->base[i] =
			memory_take(w, bytes, i == 0 && may_be_ours(w));
		memset(windows->base[i], UNTOUCHED, bytes);
		windows->window[i] = window_of(w, windows->base[i], bytes);
	}
}

void
windows_close(struct worker *w, struct windows *windows)
{
	for (int i = 0; i < 2; i++) {
		window_end(w, windows->window[i]);
		memory_give(w, windows->base[i], i == 0 && may_be_ours(w));
	}
}

static void
put_and_look(struct worker *w, int round, struct baton_window *window,
             const unsigned char *base, int to, int from)
{
	size_t bytes = baton_window_size(window, to);
	struct baton_wait_signal_desc desc = { 1, from, index_of(w, 0),
	                                      0 };
	unsigned char *out = malloc(bytes + 1);
	baton_request put = 0, wait = 0;
	enum baton_status status;

	if (!out)
		abort();
	fill(out, bytes, (unsigned)(round + to));
	status = baton_put_signal(out, bytes, BATON_UINT8, to, window, 0,
	                          desc.signal_index, desc.context, 0, w->comm,
	                          w->streams[0], NULL, &put);
	if (status == BATON_OK)
		status = baton_wait_signal(1, &desc, w->comm, w->streams[1],
		                           NULL, &wait);
	if (status == BATON_OK)
		status = baton_finish(&wait, -1, NULL);
	if (status == BATON_OK)
		status = baton_finish(&put, -1, NULL);
	if (status != BATON_OK)
		fail(w, round, "a short window's put gave %s",
		     baton_status_name(status));
	check_filled(w, round, base, baton_window_size(window, w->rank),
	             (unsigned)(round + w->rank));
	free(out);
}

void
windows_come_and_go(struct worker *w, int round)
{
	uint64_t common = mix(w->options->seed, w->number, round, -8);
	int shift = (int)(draw(&common) % (uint32_t)w->size);
	bool ours = draw(&common) % 2 && may_be_ours(w);
	size_t bytes = draw_bytes(&w->own);
	unsigned char *base = memory_take(w, bytes, ours);
	struct baton_window *window = window_of(w, base, bytes);

	if (window)
		put_and_look(w, round, window, base, (w->rank + shift) % w->size,
		             (w->rank + w->size - shift) % w->size);
	window_end(w, window);
	memory_give(w, base, ours);
}
