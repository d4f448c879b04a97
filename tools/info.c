/* SPDX-License-Identifier: BSD-3-Clause */
/* `baton info`: the report as a tree.  info_text.c prints it for people. */
#include "info.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <baton.h>

#include "cuda.h"
#include "job.h"
#include "tool.h"

static json_t *
libraries(void)
{
	struct baton_library_info info = {.size = sizeof(info)};
	json_t *all = json_array();

	for (size_t i = 0; baton_library(i, &info) == BATON_OK; i++)
		json_array_append_new(
			all, json_pack("{ss ss ss ss ss}", "name", info.name,
		                       "built", info.built, "version",
		                       info.version, "path", info.path,
		                       "why_not", info.why_not));
	return all;
}

static json_t *
devices(void)
{
	json_t *all = json_array();
	int count = tool_gpus();

	for (int gpu = 0; gpu < count; gpu++) {
		json_t *reaches = json_array();
		char name[256];

		tool_gpu_name(gpu, name, sizeof(name));
		for (int other = 0; other < count; other++) {
			if (other != gpu && tool_gpu_reaches(gpu, other))
				json_array_append_new(reaches,
				                      json_integer(other));
		}
		json_array_append_new(
			all,
			json_pack("{si ss sI si so}", "number", gpu, "name", name,
		                  "bytes", (json_int_t)tool_gpu_bytes(gpu),
		                  "compute_capability",
		                  tool_gpu_generation(gpu), "reaches", reaches));
	}
	return all;
}

static const char *
source_name(enum baton_variable_source source)
{
	switch (source) {
	case BATON_VARIABLE_UNSET:
		return "not set";
	case BATON_VARIABLE_ENVIRONMENT:
		return "environment";
	case BATON_VARIABLE_REFUSED:
		return "refused";
	}
	return "";
}

static json_t *
variables(void)
{
	struct baton_variable_info info = {.size = sizeof(info)};
	json_t *all = json_array();

	for (size_t i = 0; baton_variable(i, &info) == BATON_OK; i++)
		json_array_append_new(
			all, json_pack("{ss ss ss ss ss ss}", "name", info.name,
		                       "value", info.value, "source",
		                       source_name(info.source), "default",
		                       info.otherwise, "values", info.values,
		                       "meaning", info.meaning));
	return all;
}

/* ---- a communicator ---- */

/* "near"; where the messages go by the transport, its name. */
static const char *
message_path_name(struct baton_comm *comm, int peer,
                  const struct baton_comm_info *info)
{
	return baton_message_path(comm, peer) == BATON_MESSAGE_PATH_NEAR
	               ? "near"
	               : info->transport_name;
}

static const char *
put_path_name(unsigned path)
{
	switch (path) {
	case BATON_WINDOW_PATH_DIRECT:
		return "direct";
	case BATON_WINDOW_PATH_VMWRITE:
		return "vmwrite";
	case BATON_WINDOW_PATH_MESSAGE:
		return "message";
	case BATON_WINDOW_PATH_NATIVE:
		return "native";
	default:
		return "-";
	}
}

/* Collective: a window of the memory that puts reach fastest, for as long as `paths` and `why` are
 * filled. */
static void
put_paths(struct baton_comm *comm, const struct baton_comm_info *info,
          json_t *paths, json_t *why)
{
	struct baton_window *window = NULL;
	void *memory = NULL;

	if (info->capabilities & BATON_CAP_WINDOWS) {
		/* Ranks that got no memory register as well: else the others wait. */
		baton_mem_alloc(comm, 1, &memory);
		baton_window_register(memory, 1, comm, &window);
	}
	for (int peer = 0; peer < info->ranks; peer++) {
		json_array_append_new(paths, json_string(put_path_name(
						     baton_window_path(window, peer))));
		if (window)
			json_array_append_new(
				why, json_string(baton_window_why(window, peer)));
	}
	baton_window_deregister(window);
	baton_mem_free(comm, memory);
}

/* One rank's part of the report. */
static json_t *
rank_tree(struct job *job)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	json_t *messages = json_array(), *puts = json_array(), *why = json_array();
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	if (!job->comm || baton_comm_query(job->comm, &info) != BATON_OK) {
		json_decref(messages);
		json_decref(puts);
		json_decref(why);
		return json_pack("{si ss si ss}", "rank", job->rank, "host", host,
		                 "process", (int)getpid(), "refused",
		                 job->why_not);
	}
	for (int peer = 0; peer < info.ranks; peer++)
		json_array_append_new(messages,
		                      json_string(message_path_name(
					      job->comm, peer, &info)));
	put_paths(job->comm, &info, puts, why);
	return json_pack(
		"{si ss si si ss si ss ss sb si ss ss ss so so so}", "rank",
		info.rank, "host", host, "process", (int)getpid(), "ranks",
		info.ranks, "device", info.device_name, "cuda_device",
		info.cuda_device, "transport", info.transport_name, "library",
		info.library, "engine_thread", info.engine_thread,
		"nccl_version", info.nccl_version, "why_not_near",
		info.why_not_near, "why_not_nccl", info.why_not_nccl,
		"why_engine_puts", info.why_engine_puts, "messages", messages,
		"puts", puts, "why_not_faster_puts", why);
}

static const char doc[] =
	"Print what this Baton is and what it finds: compiler and libraries, GPUs, the paths between "
	"the ranks, and the environment variables, each with its value, where that comes from, and "
	"its default."
	"\v"
	"Exit status: 0; 2, if no communicator can be made here as the environment asks, or the "
	"report lacks ranks; 64 for bad arguments.";

int
info_main(int argc, char **argv)
{
	struct tool_arguments arguments;
	json_t *ranks, *tree;
	struct job job;
	int status = 0;

	tool_parse(argc, argv, doc, &arguments);
	job_open(&job);
	ranks = job_gather(&job, rank_tree(&job));
	if (ranks) {
		status = !job.comm || *job.why_alone ? TOOL_BROKEN : 0;
		tree = json_pack("{so so so ss so}", "libraries", libraries(),
		                 "devices", devices(), "ranks", ranks,
		                 "ranks_missing", job.why_alone, "variables",
		                 variables());
		if (arguments.json)
			tool_print_json(tree);
		else
			info_print(tree);
		json_decref(tree);
	}
	fflush(stdout);
	job_tell_printed(&job);
	if (job_is_cut_off(&job, "info"))
		status = TOOL_BROKEN;
	job_close(&job);
	return status;
}
