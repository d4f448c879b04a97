/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the ranks of a communicator meet: a segment of shared memory, by its name. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nsim.h"

static struct nsim_map *maps; /* lock */

static void
name_of(const char *id, char name[NSIM_ID + 8])
{
	snprintf(name, NSIM_ID + 8, "/%s", id);
}

static struct nsim_segment *
map_segment(const char *id, size_t bytes)
{
	char name[NSIM_ID + 8];
	void *at = MAP_FAILED;
	int fd;

	name_of(id, name);
	fd = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return NULL;
	/* The first one makes it long; for the others nothing changes. */
	if (ftruncate(fd, (off_t)bytes) == 0)
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

static struct nsim_map *
find_locked(const char *id)
{
	struct nsim_map *map = maps;

	while (map && strcmp(map->id, id) != 0)
		map = map->next;
	return map;
}

static struct nsim_map *
new_map_locked(const char *id, size_t bytes)
{
	struct nsim_segment *segment = map_segment(id, bytes);
	struct nsim_map *map;

	if (!segment)
		return NULL;
	map = nsim_alloc(1, sizeof(*map));
	snprintf(map->id, sizeof(map->id), "%s", id);
	map->segment = segment;
	map->bytes = bytes;
	map->next = maps;
	maps = map;
	return map;
}

ncclResult_t
nsim_map_open(const char *id, int ranks, struct nsim_map **map_p)
{
	size_t bytes = sizeof(struct nsim_segment) +
	               (size_t)(ranks * ranks) * sizeof(struct nsim_link);
	struct nsim_map *map;
	int before = 0;

	pthread_mutex_lock(&nsim_lock);
	map = find_locked(id);
	if (!map)
		map = new_map_locked(id, bytes);
	if (map)
		map->refs++;
	pthread_mutex_unlock(&nsim_lock);
	if (!map)
		return nsim_error(BATONI_NCCL_SYSTEM_ERROR,
		                  "no shared memory: %s", strerror(errno));
	if (!atomic_compare_exchange_strong(&map->segment->ranks, &before,
	                                    ranks) && before != ranks) {
		nsim_violation("ranks of one communicator give %d and %d ranks",
		               before, ranks);
		nsim_map_close(map, before);
		return BATONI_NCCL_INVALID_ARGUMENT;
	}
	*map_p = map;
	return BATONI_NCCL_SUCCESS;
}

void
nsim_map_close(struct nsim_map *map, int ranks)
{
	struct nsim_map **at = &maps;
	char name[NSIM_ID + 8];

	pthread_mutex_lock(&nsim_lock);
	if (--map->refs == 0) {
		while (*at != map)
			at = &(*at)->next;
		*at = map->next;
		/* Else the last to join did it. */
		name_of(map->id, name);
		if (atomic_load(&map->segment->joined) < ranks)
			shm_unlink(name);
		munmap(map->segment, map->bytes);
		free(map);
	}
	pthread_mutex_unlock(&nsim_lock);
}

struct nsim_link *
nsim_link(ncclComm_t comm, int source, int target)
{
	return &comm->map->segment->links[source * comm->ranks + target];
}

/* ---- who is there ---- */

/* Ranks of one host see each other's GPUs.  NCCL_HOSTID is NCCL's own variable. */
static uint64_t
this_host(void)
{
	const char *given = getenv("NCCL_HOSTID");
	char name[128] = "";

	gethostname(name, sizeof(name) - 1);
	return given ? nsim_hash(given, strlen(given), 1)
	             : nsim_hash(name, strlen(name), 2);
}

bool
nsim_join(ncclComm_t comm)
{
	struct nsim_segment *segment = comm->map->segment;
	struct nsim_member *member = &segment->members[comm->rank];
	char name[NSIM_ID + 8];
	int nobody = 0;

	if (!atomic_compare_exchange_strong(&member->pid, &nobody, getpid()))
		return false;
	atomic_store(&member->device, comm->device);
	atomic_store(&member->host, this_host());
	nsim_say(comm, NSIM_THERE);
	if (atomic_fetch_add(&segment->joined, 1) + 1 == comm->ranks) {
		name_of(comm->id, name);
		shm_unlink(name);
		atomic_fetch_add(&segment->joined, 1);
	}
	return true;
}

bool
nsim_all_joined(ncclComm_t comm)
{
	return atomic_load(&comm->map->segment->joined) > comm->ranks;
}

static bool
may_share(void)
{
	const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

	return nsim_set.duplicates ||
	       (nsim_set.version >= 23000 && allowed && strcmp(allowed, "1") == 0);
}

bool
nsim_shares_gpu(ncclComm_t comm)
{
	struct nsim_member *members = comm->map->segment->members;

	if (may_share())
		return false;
	for (int i = 0; i < comm->ranks; i++) {
		for (int j = 0; j < i; j++) {
			if (members[i].device == members[j].device &&
			    members[i].host == members[j].host)
				return true;
		}
	}
	return false;
}

void
nsim_say(ncclComm_t comm, enum nsim_presence presence)
{
	atomic_store_explicit(&comm->map->segment->members[comm->rank].presence,
	                      presence, memory_order_release);
}

bool
nsim_lost_peer(ncclComm_t comm)
{
	for (int i = 0; i < comm->ranks; i++) {
		struct nsim_member *member = &comm->map->segment->members[i];
		unsigned presence = atomic_load(&member->presence);

		if (presence == NSIM_GONE ||
		    (presence == NSIM_THERE && kill(member->pid, 0) < 0 &&
		     errno == ESRCH))
			return true;
	}
	return false;
}

/* ---- collectives ---- */

void
nsim_exchange_give(ncclComm_t comm, unsigned number, int colour, int key)
{
	struct nsim_exchange *slot =
		&comm->map->segment->exchanges[number % NSIM_EXCHANGES];

	atomic_store(&slot->colour[comm->rank], colour);
	atomic_store(&slot->key[comm->rank], key);
	atomic_fetch_add(&slot->arrived, 1);
}

/* A slot is used again only after a collective that all have left. */
const struct nsim_exchange *
nsim_exchange_look(ncclComm_t comm, unsigned number)
{
	struct nsim_exchange *slot =
		&comm->map->segment->exchanges[number % NSIM_EXCHANGES];
	unsigned round = number / NSIM_EXCHANGES + 1;

	return atomic_load(&slot->arrived) >= round * (unsigned)comm->ranks
	               ? slot
	               : NULL;
}
