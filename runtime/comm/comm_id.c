/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators whose ranks come one by one, with a unique id: threads of this process, and
 * of others.
 *
 * An id says which process made it, and has a key of the side channel (side.h): a nonce, a
 * secret, and the address at which this process listens from then on.  In that process the
 * first rank that calls opens a meeting; its thread *owns* the meeting, and serves the rendezvous
 * socket, if the id has one.  Ranks of other processes send their join requests there.
 *
 *   COMING --> MAKING               all ranks are of this process
 *          --> LINKING --> LINKED   some are not
 *   and when it fails before: --> OVER
 *
 * MAKING: the ranks have a board (bootstrap.h).  LINKING: the owner gives each rank of this
 * process its link to those of other processes.  From either each joins its bootstrap, and creates
 * its communicator over it on its own thread, beside the others (creation.c): opening a device
 * may take seconds, and what it does to its thread belongs there.
 *
 * If a rank times out or gives different options, the meeting fails on all ranks.  It also fails where a
 * rank's options are refused: a rank of another process still sends its join request, and tells the
 * others; one of this process ends the meeting, or spends the id where there is no meeting yet, so that
 * no rank waits for it.  The last rank to leave the meeting
 * frees it.  The ids of the last SPENT_MAX meetings are kept as tombstones, so that a late
 * rank is refused at once.
 *
 * Time: timeout_ns of the options.  Without one, ranks of this process wait for ever, and where
 * a rank of another process waits too, MEET_NS from its coming.
 *
 * meetings_lock guards all of it.  No communicator is prepared, started or discarded under
 * it, so that other meetings go on meanwhile, and the owner serves the rendezvous without it.  The
 * rendezvous belongs to the owner; other threads ring it, under the lock, while it is in the meeting.
 */
#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "comm.h"
#include "creation.h"
#include "log.h"
#include "mem.h"
#include "registry.h"

#define MEET_NS (UINT64_C(300) * 1000000000)

/* What an id's bytes are. */
struct token {
	char magic[8];
	unsigned char maker[16]; /* the process that made it, by a number drawn once */
	int32_t pid;             /* of that process, for messages */
	int32_t error;           /* why it does not listen: an errno code, or 0 */
	struct batoni_side_key key;
};

enum stage {
	COMING,  /* some rank has not called; the meeting is in the list `meetings` */
	LINKING,
	LINKED,
	MAKING,
	OVER
};

struct meeting {
	struct meeting *next;
	struct token token;
	int size, came, inside;
	int remote; /* of those that came: ranks of other processes */
	enum stage stage;
	enum baton_status status; /* OK, or why it fails */
	char why[256];            /* what all are told */
	struct batoni_comm_setup first; /* of the rank that opened it */
	struct batoni_rendezvous *rendezvous;      /* or NULL */
	struct batoni_board *board;    /* MAKING */
	/* By rank. */
	bool *here; /* has it called? */
	struct batoni_side_link *links; /* fd 0: it is of this process; -1: not */
};

static pthread_mutex_t meetings_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t meetings_changed; /* on CLOCK_MONOTONIC */
static pthread_once_t meetings_once = PTHREAD_ONCE_INIT;
static struct meeting *meetings; /* under meetings_lock */
static unsigned char maker[16];  /* immutable after meetings_init */

#define SPENT_MAX 1024u
static unsigned char spent[SPENT_MAX][16]; /* under meetings_lock */
static unsigned spent_next;                /* under meetings_lock */

static const struct batoni_side_ops *
side(void)
{
	return batoni_side_layer();
}

static bool
is_spent_locked(const struct token *token)
{
	for (unsigned i = 0; i < SPENT_MAX; i++) {
		if (memcmp(spent[i], token->key.nonce, sizeof(spent[i])) == 0)
			return true;
	}
	return false;
}

static bool
draw(void *bytes, size_t n)
{
	return getrandom(bytes, n, 0) == (ssize_t)n;
}

static void
meetings_init(void)
{
	batoni_cond_init(&meetings_changed);
	/* Without random numbers this process makes no id, and no other has this one. */
	if (!draw(maker, sizeof(maker)))
		memset(maker, 0, sizeof(maker));
}

enum baton_status
baton_unique_id_create(struct baton_unique_id *id_p)
{
	struct token token = {.magic = "baton-id", .pid = getpid()};
	enum baton_status status;

	static_assert(sizeof(struct token) <= sizeof(id_p->bytes),
	              "a token fits in an id");
	BATONI_ENTER("baton_unique_id_create");
	if (!id_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_unique_id_create: id_p is NULL");
	pthread_once(&meetings_once, meetings_init);
	batoni_watch_forks();
	if (!draw(token.key.nonce, sizeof(token.key.nonce)) ||
	    !draw(token.key.secret, sizeof(token.key.secret)))
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "baton_unique_id_create: getrandom: %s",
		                     strerror(errno));
	memcpy(token.maker, maker, sizeof(maker));
	/* Threads of this process can meet without it. */
	status = side()->listen(&token.key, &token.error);
	if (status == BATON_ERR_INVALID)
		return status;
	if (status != BATON_OK)
		batoni_log(BATONI_LOG_INFO,
		           "baton_unique_id_create: the id is for this process "
		           "alone, which cannot listen for others: %s",
		           strerror(token.error));
	memset(id_p->bytes, 0, sizeof(id_p->bytes));
	memcpy(id_p->bytes, &token, sizeof(token));
	return BATON_OK;
}

/* ---- meetings ---- */

static void
meeting_free(struct meeting *meeting)
{
	batoni_free(meeting->here);
	batoni_free(meeting->links);
	batoni_free(meeting);
}

/* A rank alone needs no rendezvous, and where the process does not listen there is none. */
static enum baton_status
open_rendezvous(struct meeting *meeting)
{
	enum baton_status status;

	if (meeting->size == 1)
		return BATON_OK;
	status = side()->open(&meeting->token.key, meeting->size,
	                      &meeting->rendezvous);
	return status == BATON_ERR_UNSUPPORTED ? BATON_OK : status;
}

static struct meeting *
meeting_new(const struct token *token, int size,
            const struct batoni_comm_setup *setup)
{
	struct meeting *meeting = batoni_alloc(1, sizeof(*meeting));

	if (!meeting)
		return NULL;
	meeting->here = batoni_alloc((size_t)size, sizeof(*meeting->here));
	meeting->links = batoni_alloc((size_t)size, sizeof(*meeting->links));
	meeting->token = *token;
	meeting->size = size;
	if (!meeting->here || !meeting->links ||
	    open_rendezvous(meeting) != BATON_OK) {
		meeting_free(meeting);
		return NULL;
	}
	for (int rank = 0; rank < size; rank++)
		meeting->links[rank].fd = -1;
	meeting->first = *setup;
	meeting->next = meetings;
	meetings = meeting;
	return meeting;
}

static void
spend_locked(const struct token *token)
{
	memcpy(spent[spent_next++ % SPENT_MAX], token->key.nonce,
	       sizeof(spent[0]));
}

/* No rank can come any more. */
static void
meeting_close_locked(struct meeting *meeting, enum stage stage)
{
	struct meeting **link = &meetings;

	while (*link != meeting)
		link = &(*link)->next;
	*link = meeting->next;
	spend_locked(&meeting->token);
	meeting->stage = stage;
	pthread_cond_broadcast(&meetings_changed);
	if (meeting->rendezvous)
		side()->ring(meeting->rendezvous);
	else
		side()->unlisten(&meeting->token.key);
}

/* The first failure is what all ranks are told. */
static void
meeting_fail_locked(struct meeting *meeting, enum baton_status status,
                    const char *why)
{
	if (meeting->status != BATON_OK)
		return;
	meeting->status = status;
	snprintf(meeting->why, sizeof(meeting->why), "%s", why);
}

/* Have all come? */
static void
meeting_check_locked(struct meeting *meeting)
{
	if (meeting->came < meeting->size)
		return;
	if (meeting->remote == 0 &&
	    batoni_threads_layer()->open(meeting->size, &meeting->board) !=
	            BATON_OK)
		meeting_fail_locked(meeting, BATON_ERR_NOMEM, "out of memory");
	meeting_close_locked(meeting, meeting->remote               ? LINKING
	                              : meeting->status == BATON_OK ? MAKING
	                                                            : OVER);
}

static enum baton_status
meeting_join_locked(struct meeting *meeting, int size, int rank,
                    const struct batoni_comm_setup *setup)
{
	const char *differs = batoni_setups_differ(&meeting->first, setup);
	enum baton_status status = BATON_OK;

	if (rank < meeting->size && meeting->here[rank])
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: rank %d of this id is "
		                     "taken",
		                     rank);
	if (meeting->size != size)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "baton_comm_create_id: size is %d; "
		                       "another rank of this id said %d",
		                       size, meeting->size);
	else if (differs)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "baton_comm_create_id: %s is not that of "
		                       "another rank of this id",
		                       differs);
	if (status != BATON_OK) {
		meeting_fail_locked(meeting, status,
		                    "the ranks disagree on the size or the "
		                    "options");
		meeting_close_locked(meeting, OVER);
		return status;
	}
	meeting->here[rank] = true;
	meeting->links[rank].fd = 0;
	meeting->inside++;
	meeting->came++;
	meeting_check_locked(meeting);
	return BATON_OK;
}

/* ---- waiting for all ranks ---- */

static void
meeting_late_locked(struct meeting *meeting, uint64_t waited_ns)
{
	char why[sizeof(meeting->why)];

	batoni_side_late(meeting->here, meeting->size, waited_ns, why, sizeof(why));
	if (meeting->rendezvous)
		side()->describe(meeting->rendezvous, why, sizeof(why));
	meeting_fail_locked(meeting, BATON_ERR_TIMEOUT, why);
	meeting_close_locked(meeting, OVER);
}

/* Admit the ranks of other processes that have come. */
static void
meeting_admit_locked(struct meeting *meeting)
{
	char why[BATONI_SIDE_WHY_BYTES];
	int n;
	enum baton_status status =
		side()->admit(meeting->rendezvous, meeting->here, &n, why);

	meeting->came += n;
	meeting->remote += n;
	if (status == BATON_OK) {
		meeting_check_locked(meeting);
		return;
	}
	meeting_fail_locked(meeting, status, why);
	meeting_close_locked(meeting, OVER);
}

static void
meeting_link_locked(struct meeting *meeting, int home)
{
	enum baton_status status =
		side()->link_all(meeting->rendezvous, home, meeting->links);

	if (status != BATON_OK)
		meeting_fail_locked(meeting, status,
		                    "no memory or no descriptors to connect the "
		                    "ranks");
	meeting->stage = status == BATON_OK ? LINKED : OVER;
	pthread_cond_broadcast(&meetings_changed);
}

/* This process has waited for a while: log for which ranks. */
static void
meeting_tell_locked(struct meeting *meeting, struct batoni_side_wait *wait)
{
	uint64_t now_ns = batoni_real_ns();
	char text[sizeof(meeting->why)];

	if (meeting->stage != COMING || !batoni_side_tells(wait, now_ns))
		return;
	batoni_side_late(meeting->here, meeting->size, now_ns - wait->begun_ns,
	                 text, sizeof(text));
	if (meeting->rendezvous)
		side()->describe(meeting->rendezvous, text, sizeof(text));
	batoni_log(BATONI_LOG_WARN, "baton_comm_create_id waits: %s", text);
}

/* The owner: serve until all have come, or the meeting has failed. */
static void
meeting_own_locked(struct meeting *meeting, int rank, int64_t timeout_ns)
{
	uint64_t patience_ns = (uint64_t)timeout_ns;
	uint64_t begun_ns = batoni_real_ns();
	struct batoni_side_wait wait = {begun_ns, 0};
	struct batoni_rendezvous *rendezvous = meeting->rendezvous;

	while (meeting->stage == COMING) {
		uint64_t until_ns = patience_ns ? begun_ns + patience_ns
		                                : UINT64_MAX;
		uint64_t tell_ns = batoni_side_tell_at(&wait);

		pthread_mutex_unlock(&meetings_lock);
		side()->attend(rendezvous, until_ns < tell_ns ? until_ns : tell_ns);
		pthread_mutex_lock(&meetings_lock);
		if (meeting->stage != COMING)
			break;
		meeting_admit_locked(meeting);
		meeting_tell_locked(meeting, &wait);
		if (meeting->remote && !patience_ns)
			patience_ns = batoni_real_ns() - begun_ns + MEET_NS;
		if (meeting->stage == COMING && batoni_real_ns() >= until_ns)
			meeting_late_locked(meeting, patience_ns);
	}
	if (meeting->stage == LINKING)
		meeting_link_locked(meeting, rank);
	meeting->rendezvous = NULL;
	side()->close(rendezvous, meeting->status, meeting->why);
}

/* The others, and the owner where there is no rendezvous.  Where there is one, the owner's time
 * limit holds for all, since it came first. */
static void
meeting_wait_locked(struct meeting *meeting, int64_t timeout_ns)
{
	const uint64_t limit_ns = batoni_real_ns() + (uint64_t)timeout_ns;

	while (meeting->stage == COMING || meeting->stage == LINKING) {
		bool limited = timeout_ns && !meeting->rendezvous;

		if (!batoni_cond_wait(&meetings_changed, &meetings_lock,
		                      limited ? limit_ns : UINT64_MAX) &&
		    meeting->stage == COMING)
			meeting_late_locked(meeting, (uint64_t)timeout_ns);
	}
}

/* ---- making the communicators ---- */

/* All ranks are of this process. */
static enum baton_status
create_on_board(struct batoni_board *board, int rank, const struct batoni_comm_setup *setup,
                struct baton_comm **comm_p)
{
	struct batoni_creation creation;

	batoni_creation_begin(&creation, setup, BATON_OK);
	creation.call = "baton_comm_create_id";
	batoni_threads_layer()->join(board, rank, &creation.bootstrap);
	return batoni_creation_run(&creation, comm_p);
}

/* Some ranks are of other processes.  `within` ranks are of this one, and `before` of them come
 * before this rank.  `refused`: OK, or the setup was refused, with a sentence. */
static enum baton_status
make_linked(const struct batoni_side_link *link, int rank, int before, int within,
            const struct batoni_comm_setup *setup, enum baton_status refused,
            struct baton_comm **comm_p)
{
	struct batoni_creation creation;
	enum baton_status status;

	batoni_creation_begin(&creation, setup, refused);
	status = side()->join(setup->size, rank, link, setup->timeout_ns,
	                      &creation.bootstrap);
	if (status != BATON_OK)
		return batoni_creation_missed(&creation, status);
	creation.bootstrap.before = before;
	creation.bootstrap.within = within;
	return batoni_creation_run(&creation, comm_p);
}

/* All ranks have come, or the meeting has failed.  `asked`: by the options or the environment.
 * Gives up meetings_lock meanwhile. */
static enum baton_status
meeting_end(struct meeting *meeting, int rank, struct batoni_comm_setup setup,
            enum baton_transport asked, struct baton_comm **comm_p)
{
	const struct batoni_side_link link = meeting->links[rank];
	struct batoni_board *board = meeting->board;
	int before = 0, within = meeting->size - meeting->remote;
	enum stage stage = meeting->stage;
	enum baton_status status;

	if (stage == OVER)
		return batoni_refuse(meeting->status, "baton_comm_create_id: %s",
		                     meeting->why);
	for (int i = 0; i < rank; i++)
		before += meeting->links[i].fd >= 0;
	pthread_mutex_unlock(&meetings_lock);
	if (stage == LINKED) {
		setup.transport = asked;
		status = make_linked(&link, rank, before, within, &setup,
		                     BATON_OK, comm_p);
	} else {
		status = create_on_board(board, rank, &setup, comm_p);
	}
	pthread_mutex_lock(&meetings_lock);
	return status;
}

static struct meeting *
meeting_find_locked(const struct token *token)
{
	struct meeting *meeting = meetings;

	while (meeting && memcmp(&meeting->token, token, sizeof(*token)) != 0)
		meeting = meeting->next;
	return meeting;
}

/* The others wait in vain for a rank of this process; `why` tells them. */
static void
call_off(const struct token *token, enum baton_status refused, const char *why)
{
	struct meeting *meeting;

	pthread_mutex_lock(&meetings_lock);
	meeting = meeting_find_locked(token);
	if (meeting) {
		meeting_fail_locked(meeting, refused, why);
		meeting_close_locked(meeting, OVER);
	} else if (!is_spent_locked(token)) {
		spend_locked(token);
		side()->unlisten(&token->key);
	}
	pthread_mutex_unlock(&meetings_lock);
}

/* Under meetings_lock, which is given up on the way. */
static enum baton_status
meet_by_id(int size, int rank, const struct token *token,
           const struct batoni_comm_setup *setup, enum baton_transport asked,
           struct baton_comm **comm_p)
{
	struct meeting *meeting = meeting_find_locked(token);
	enum baton_status status;
	bool owns = false;

	if (!meeting && is_spent_locked(token))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: the id is spent: its "
		                     "ranks have met, or given up");
	if (!meeting) {
		meeting = meeting_new(token, size, setup);
		owns = meeting && meeting->rendezvous;
	}
	if (!meeting) {
		/* Ranks of other processes need not wait for their time. */
		side()->unlisten(&token->key);
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "baton_comm_create_id: out of memory");
	}
	status = meeting_join_locked(meeting, size, rank, setup);
	if (status != BATON_OK)
		return status;
	if (owns)
		meeting_own_locked(meeting, rank, setup->timeout_ns);
	else
		meeting_wait_locked(meeting, setup->timeout_ns);
	status = meeting_end(meeting, rank, *setup, asked, comm_p);
	if (--meeting->inside == 0)
		meeting_free(meeting);
	return status;
}

/* The id is of another process, which listens.  refused: this rank's options were; the others
 * are told. */
static enum baton_status
visit(int size, int rank, const struct token *token,
      const struct batoni_comm_setup *setup, enum baton_status refused,
      struct baton_comm **comm_p)
{
	struct batoni_side_link link;
	enum baton_status status;
	char why[BATONI_SENTENCE_BYTES];

	if (token->key.address.family == 0)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "baton_comm_create_id: the id was made by "
		                     "process %d, which could not listen for others "
		                     "(%s): BATON_INTERFACE names an interface or an "
		                     "address of its node",
		                     (int)token->pid, strerror(token->error));
	snprintf(why, sizeof(why), "%s", baton_last_error());
	status = side()->connect(&token->key, size, rank, setup->timeout_ns, &link);
	if (refused != BATON_OK)
		batoni_refuse(refused, "%s", why);
	if (status != BATON_OK)
		return refused != BATON_OK ? refused : status;
	return make_linked(&link, rank, 0, 1, setup, refused, comm_p);
}

static bool
is_token(const struct token *token)
{
	return memcmp(token->magic, "baton-id", sizeof(token->magic)) == 0;
}

/* `refused`: OK, or the setup was, with a sentence. */
static enum baton_status
create_by_token(int size, int rank, const struct token *token,
                struct batoni_comm_setup setup, enum baton_status refused,
                struct baton_comm **comm_p)
{
	enum baton_status status = refused;
	enum baton_transport asked;

	pthread_once(&meetings_once, meetings_init);
	setup.size = size;
	if (memcmp(token->maker, maker, sizeof(maker)) != 0)
		return visit(size, rank, token, &setup, status, comm_p);
	asked = setup.transport;
	if (status == BATON_OK)
		status = batoni_local_transport("baton_comm_create_id", size,
		                                &setup);
	if (status != BATON_OK) {
		call_off(token, status,
		         "the options of another rank were refused");
		return status;
	}
	pthread_mutex_lock(&meetings_lock);
	status = meet_by_id(size, rank, token, &setup, asked, comm_p);
	pthread_mutex_unlock(&meetings_lock);
	return status;
}

enum baton_status
batoni_comm_create_by_id(int size, int rank, const struct baton_unique_id *id,
                         const struct batoni_comm_setup *setup,
                         struct baton_comm **comm_p)
{
	struct token token;

	memcpy(&token, id->bytes, sizeof(token));
	if (!is_token(&token))
		return batoni_refuse(BATON_ERR_PEER,
		                     "rank 0 has sent bytes that are no id");
	return create_by_token(size, rank, &token, *setup, BATON_OK, comm_p);
}

void
batoni_comm_forget_id(const struct baton_unique_id *id)
{
	struct token token;

	memcpy(&token, id->bytes, sizeof(token));
	call_off(&token, BATON_ERR_PEER, "the rank that made the id has given up");
}

enum baton_status
baton_comm_create_id(int size, int rank, const struct baton_unique_id *id,
                     const struct baton_comm_options *options,
                     struct baton_comm **comm_p)
{
	struct batoni_comm_setup setup = {.size = 0};
	enum baton_status status;
	struct token token;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_create_id");
	if (!id || !comm_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: %s is NULL",
		                     id ? "comm_p" : "id");
	status = batoni_local_size("baton_comm_create_id", size);
	if (status != BATON_OK)
		return status;
	if (rank < 0 || rank >= size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: rank is %d; ranks "
		                     "are 0 to %d",
		                     rank, size - 1);
	memcpy(&token, id->bytes, sizeof(token));
	if (!is_token(&token))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_id: id was not made by "
		                     "baton_unique_id_create");
	status = batoni_comm_setup(options, &setup);
	return create_by_token(size, rank, &token, setup, status, comm_p);
}
