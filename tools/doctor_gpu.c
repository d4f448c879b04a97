/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs: what CUDA's driver can do for Baton, and whether NCCL's communicators come up. */
#include "doctor.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <baton.h>

#include "cuda.h"

#define PATIENCE_NS INT64_C(60000000000)

/* What is tried on each GPU: tool_gpu_try of cuda.h. */
static const struct {
	enum gpu_feature feature;
	const char *name, *good, *costs, *mend;
} features[] = {
	{GPU_STREAM_WORDS, "stream memory operations", "a stream stores 64 bits",
         "streams wait by host functions, and puts go by the engine",
         "a GPU of compute capability 7.0 or later, and a driver of CUDA 12 or "
         "later"},
	{GPU_VIRTUAL_MEMORY, "virtual memory", "memory for other processes is created",
         "baton_mem_alloc takes memory that other processes map more slowly, or not "
         "at all",
         "a driver and a container that allow cuMemCreate with descriptors"},
	{GPU_HOST_REGISTRATION, "host registration", "memory of the host is registered",
         "streams do not store into counters and windows of the host",
         "ulimit -l unlimited, and a container that allows cuMemHostRegister"},
};

static void
check_gpu(json_t *findings, int gpu)
{
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
		char name[64], why[256] = "";

		snprintf(name, sizeof(name), "GPU %d, %s", gpu, features[i].name);
		if (tool_gpu_try(gpu, features[i].feature, why, sizeof(why)))
			doctor_find(findings, name, GOOD, "", "", "%s",
			            features[i].good);
		else
			doctor_find(findings, name, SLOW, features[i].costs,
			            features[i].mend, "%s", why);
	}
}

#define AT_A_TIME 2

/* One rank of each communicator; NULL: there is none. */
struct ends {
	struct baton_comm *comms[AT_A_TIME];
};

/* On a thread of each rank: NCCL waits in it for the others. */
static void *
destroy_ends(void *argument)
{
	struct ends *ends = argument;

	for (int i = 0; i < AT_A_TIME; i++) {
		if (baton_comm_destroy(ends->comms[i]) == BATON_OK)
			continue;
		baton_comm_abort(ends->comms[i]);
		baton_comm_destroy(ends->comms[i]);
	}
	return NULL;
}

/* Create two communicators of NCCL at a time over all ranks; a rank that is alone does so over two threads
 * with a GPU each, or over one.  Return OK, or why a creation failed. */
static enum baton_status
try_nccl(const struct job *job)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct ends ends[2] = {{{NULL, NULL}}, {{NULL, NULL}}};
	int threads = tool_gpus() > 1 ? 2 : 1;
	enum baton_status status = BATON_OK;
	pthread_t second;

	options.device = BATON_DEVICE_CUDA;
	options.transport = BATON_TRANSPORT_NCCL;
	options.timeout_ns = PATIENCE_NS;
	for (int i = 0; i < AT_A_TIME && status == BATON_OK; i++) {
		struct baton_comm *made[2] = {NULL, NULL};

		status = job->size > 1
		                 ? baton_comm_create(&options, &made[0])
		                 : baton_comm_create_local(threads, &options, made);
		ends[0].comms[i] = made[0];
		ends[1].comms[i] = made[1];
	}
	if (pthread_create(&second, NULL, destroy_ends, &ends[1]) != 0)
		return BATON_ERR_SYSTEM;
	destroy_ends(&ends[0]);
	pthread_join(second, NULL);
	return status;
}

static void
check_nccl(json_t *findings, const struct job *job, bool gpus)
{
	struct baton_library_info nccl;
	enum baton_status status;

	if (!tool_find_library("NCCL", &nccl))
		return;
	/* Ranks may differ in what they have: all call, or the others would wait. */
	status = job->size > 1 || (gpus && !*nccl.why_not)
	                 ? try_nccl(job)
	                 : BATON_ERR_UNSUPPORTED;
	if (status == BATON_OK)
		doctor_find(findings, "NCCL", GOOD, "", "",
		            "NCCL %s: two communicators come up", nccl.version);
	else if (!gpus)
		doctor_find(findings, "NCCL", GOOD, "", "",
		            "not tried, as there is no GPU");
	else
		doctor_find(findings, "NCCL", SLOW,
		            "messages of device memory go through memory of the host",
		            "NCCL 2.28 or later (pip install nvidia-nccl-cu12), and a "
		            "GPU for each rank",
		            "%s",
		            *nccl.why_not ? nccl.why_not
		            : *baton_last_error() ? baton_last_error()
		                                  : baton_status_text(status));
}

void
doctor_gpu(json_t *findings, struct job *job)
{
	struct baton_library_info driver;
	int gpus = tool_gpus();

	if (!tool_find_library("CUDA driver", &driver))
		return;
	if (*driver.why_not)
		doctor_find(findings, "CUDA driver", GOOD, "", "",
		            "none that can be used, so memory of the host alone: %s",
		            driver.why_not);
	else
		doctor_find(findings, "CUDA driver", GOOD, "", "",
		            "CUDA %s, %d GPU%s", driver.version, gpus,
		            gpus == 1 ? "" : "s");
	for (int gpu = 0; gpu < gpus; gpu++)
		check_gpu(findings, gpu);
	if (job->host)
		check_nccl(findings, job, gpus > 0);
}
