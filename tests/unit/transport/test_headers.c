/* SPDX-License-Identifier: BSD-3-Clause */
/* Headers and grants of MPI and of staging: what their decoders accept, and what they refuse
 * that a peer could hurt this rank with. */
#include <string.h>

#include "run_tests.h"
#include "stage_header.h"

#ifdef BATONI_WITH_MPI
#include "mpi_header.h"

static const struct batoni_mpi_range tags = {1000, 2000};

static bool
mpi_header_passes(unsigned kind, uint64_t length, uint32_t tag, size_t n)
{
	struct batoni_mpi_header header, got;

	batoni_mpi_header_make(&header, kind, length, tag);
	return batoni_mpi_header_decode(&header, n, tags, &got);
}

START_TEST(an_mpi_header_names_a_tag_of_a_body)
{
	const size_t n = BATONI_MPI_HEADER_BYTES;

	ck_assert(mpi_header_passes(BATONI_MPI_HEADER_BODY, 0, 1000, n));
	ck_assert(mpi_header_passes(BATONI_MPI_HEADER_BODY, INT64_MAX, 1999, n));
	ck_assert(mpi_header_passes(BATONI_MPI_HEADER_WAITS, 5, 0xffffff, n));
	/* It is the index of what counts the bodies. */
	ck_assert(!mpi_header_passes(BATONI_MPI_HEADER_BODY, 5, 999, n));
	ck_assert(!mpi_header_passes(BATONI_MPI_HEADER_BODY, 5, 2000, n));
	ck_assert(!mpi_header_passes(BATONI_MPI_HEADER_BODY, 5, UINT32_MAX, n));
	ck_assert(!mpi_header_passes(BATONI_MPI_HEADER_WAITS, 5, 0x1000000, n));
	ck_assert(!mpi_header_passes(BATONI_MPI_HEADER_BODY, UINT64_MAX, 1000, n));
	ck_assert(!mpi_header_passes(0, 5, 1000, n));
	ck_assert(!mpi_header_passes(3, 5, 1000, n));
	ck_assert(!mpi_header_passes(BATONI_MPI_HEADER_BODY, 5, 1000, n - 1));
}
END_TEST

START_TEST(each_fixed_byte_of_an_mpi_header_counts)
{
	struct batoni_mpi_header header, got;

	for (size_t i = 0; i < BATONI_MPI_HEADER_BYTES; i++) {
		unsigned char *byte = (unsigned char *)&header + i;

		batoni_mpi_header_make(&header, BATONI_MPI_HEADER_BODY, 5, 1024);
		*byte ^= 0x80;
		/* The low bytes of a length and of a tag may be others.  (A type has its
		 * own test.) */
		ck_assert_int_eq(
			batoni_mpi_header_decode(&header,
		                                 BATONI_MPI_HEADER_BYTES, tags,
		                                 &got),
			(i >= 8 && i < 15) || i == 16);
	}
}
END_TEST

START_TEST(an_mpi_header_has_a_type_that_there_is)
{
	struct batoni_mpi_header header, got;

	batoni_mpi_header_make(&header, BATONI_MPI_HEADER_BODY, 5, 1024);
	ck_assert_uint_eq(header.type, 0);
	for (uint32_t type = 0; type < 300; type++) {
		header.type = type;
		ck_assert_int_eq(
			batoni_mpi_header_decode(&header,
		                                 BATONI_MPI_HEADER_BYTES, tags,
		                                 &got),
			type <= BATON_DATATYPE_COUNT);
	}
}
END_TEST

/* A first part whose list's header says that it has so many bytes. */
static bool
list_passes(unsigned kind, uint64_t length, uint32_t tag, uint32_t pieces,
            uint32_t described, size_t n)
{
	unsigned char bytes[4096] = {0};
	struct batoni_mpi_header header, got;
	size_t stated;

	batoni_mpi_header_make(&header, kind, length, tag);
	header.pieces = pieces;
	memcpy(bytes, &header, batoni_mpi_list_front(kind));
	for (unsigned i = 0; i < 4; i++)
		bytes[batoni_mpi_list_front(kind) + 12 + i] =
			(unsigned char)(described >> (8 * i));
	return batoni_mpi_list_decode(bytes, n, tags, &got, &stated) &&
	       stated == described;
}

START_TEST(the_first_part_of_a_list_has_what_it_says)
{
	const unsigned all = BATONI_MPI_HEADER_LIST,
		       body = BATONI_MPI_HEADER_LIST_BODY,
		       waits = BATONI_MPI_HEADER_LIST_WAITS;

	/* 16 bytes, then 24 where there is a body. */
	ck_assert(list_passes(all, 69, 0, 0, 40, 61 + 64));
	ck_assert(list_passes(all, 70, 0, 0, 40, 61 + 128));
	ck_assert(list_passes(all, 1944, 0, 0, 40, 61 + 1984));
	ck_assert(list_passes(body, 5000, 1000, 1, 101, 61 + 64));
	ck_assert(list_passes(body, 5000, 1000, 1, 102, 61 + 128));
	ck_assert(list_passes(waits, 5000, 7, 2, 40, 61 + 64));
	ck_assert(list_passes(body, 0, 1999, 9, 3000, 61 + 1984));
	/* A payload that is not there, or that is elsewhere. */
	ck_assert(!list_passes(all, 70, 0, 0, 40, 61 + 64));
	ck_assert(!list_passes(all, 69, 0, 0, 40, 61 + 128));
	ck_assert(!list_passes(all, 1945, 0, 0, 40, 61 + 1984));
	ck_assert(!list_passes(all, UINT64_MAX, 0, 0, 40, 61 + 64));
	ck_assert(!list_passes(all, INT64_MAX, 0, 0, 40, 61 + 64));
	ck_assert(!list_passes(body, 24, 1000, 0, 40, 61 + 64));
	/* A list's header that is not there, or is none. */
	ck_assert(!list_passes(body, 5000, 1000, 1, 102, 61 + 64));
	ck_assert(!list_passes(body, 5000, 1000, 1, 23, 61 + 64));
	ck_assert(!list_passes(body, 5000, 1000, 1, UINT32_MAX, 61 + 1984));
	ck_assert(!list_passes(body, 5000, 1000, 1, 3000, 61 + 1984 - 64));
	ck_assert(!list_passes(all, 21, 0, 0, 40, 61));
	/* Tags. */
	ck_assert(!list_passes(body, 5000, 999, 1, 40, 61 + 64));
	ck_assert(!list_passes(body, 5000, 2000, 1, 40, 61 + 64));
	ck_assert(!list_passes(BATONI_MPI_HEADER_BODY, 5000, 1000, 1, 40, 61 + 64));
}
END_TEST

START_TEST(an_mpi_grant_names_a_slot_and_a_tag)
{
	const struct batoni_mpi_range slots = {0, 64};
	static const struct {
		struct batoni_mpi_grant grant;
		bool passes;
	} cases[] = {
		{{0, 1000}, true},        {{63, 1999}, true},
		{{64, 1000}, false},      {{UINT32_MAX, 1000}, false},
		{{0, 999}, false},        {{0, 2000}, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct batoni_mpi_grant got;
		size_t n = sizeof(got);

		ck_assert_int_eq(batoni_mpi_grant_decode(&cases[i].grant, n,
		                                         tags, slots, &got),
		                 cases[i].passes);
		ck_assert(!batoni_mpi_grant_decode(&cases[i].grant, n - 1, tags,
		                                   slots, &got));
	}
}
END_TEST
#endif

enum { RANKS = 4, SLOTS = 100, EAGER = 10 };

static struct stage_header
eager_header(void)
{
	struct stage_header header;

	batoni_stage_header_init(&header);
	header.kind = HEADER_EAGER;
	header.length = EAGER;
	header.piece = 1;
	header.source = RANKS - 1;
	header.slot = SLOTS - 1;
	return header;
}

static bool
passes(const struct stage_header *header, size_t behind)
{
	unsigned char bytes[sizeof(*header) + 64] = {0};
	struct stage_header got;

	memcpy(bytes, header, sizeof(*header));
	return batoni_stage_header_decode(bytes, sizeof(*header) + behind, RANKS,
	                                  SLOTS, &got);
}

START_TEST(a_staged_message_has_the_bytes_that_its_header_says)
{
	struct stage_header header = eager_header(), got;

	ck_assert(passes(&header, EAGER));
	ck_assert(!passes(&header, EAGER - 1));
	ck_assert(!passes(&header, EAGER + 1));
	header.length = UINT64_MAX;
	ck_assert(!passes(&header, EAGER));
	header = eager_header();
	header.kind = HEADER_ASKS;
	ck_assert(passes(&header, 0));
	ck_assert(!passes(&header, EAGER));
	header.length = 0; /* it would make pieces of nothing */
	ck_assert(!passes(&header, 0));
	ck_assert(!batoni_stage_header_decode(&header, sizeof(header) - 1, RANKS,
	                                      SLOTS, &got));
}
END_TEST

START_TEST(a_staged_header_is_of_a_rank_and_a_slot)
{
	struct stage_header header = eager_header();

	header.source = RANKS;
	ck_assert(!passes(&header, EAGER));
	header = eager_header();
	header.slot = SLOTS;
	ck_assert(!passes(&header, EAGER));
	header = eager_header();
	header.piece = 0;
	ck_assert(!passes(&header, EAGER));
	header = eager_header();
	header.kind = 5;
	ck_assert(!passes(&header, EAGER));
	header.kind = 0;
	ck_assert(!passes(&header, EAGER));
	header = eager_header();
	header.magic++;
	ck_assert(!passes(&header, EAGER));
	header = eager_header();
	header.version++;
	ck_assert(!passes(&header, EAGER));
}
END_TEST

START_TEST(a_staged_header_has_a_type_that_there_is)
{
	struct stage_header header = eager_header();

	header.type = BATON_DATATYPE_COUNT;
	ck_assert(passes(&header, EAGER));
	header.type++;
	ck_assert(!passes(&header, EAGER));
	header.type = UINT32_MAX;
	ck_assert(!passes(&header, EAGER));
	/* A list has those of its tensors. */
	header.type = 1;
	header.kind = HEADER_LIST;
	header.list_bytes = 40;
	ck_assert(!passes(&header, 40 + EAGER));
	header.type = 0;
	ck_assert(passes(&header, 40 + EAGER));
}
END_TEST

/* The list's header is there whole; or some of it, and it or the payload goes on in pieces. */
START_TEST(a_staged_list_has_the_bytes_that_its_header_says)
{
	struct stage_header header = eager_header();

	/* A plain message has no such header. */
	header.list_bytes = 40;
	ck_assert(!passes(&header, EAGER));
	header.kind = HEADER_ASKS;
	ck_assert(!passes(&header, 0));
	header.kind = HEADER_LIST;
	ck_assert(passes(&header, 40 + EAGER));
	ck_assert(!passes(&header, 40 + EAGER - 1));
	ck_assert(!passes(&header, EAGER));
	header.length = INT64_MAX;
	ck_assert(!passes(&header, 40 + EAGER));
	header.kind = HEADER_LIST_ASKS;
	ck_assert(passes(&header, 40));
	ck_assert(passes(&header, 24));
	ck_assert(!passes(&header, 23));
	ck_assert(!passes(&header, 41));
	/* Nothing would go in pieces. */
	header.length = 0;
	ck_assert(!passes(&header, 40));
	ck_assert(passes(&header, 39));
	header.list_bytes = 23;
	ck_assert(!passes(&header, 23));
	header.list_bytes = 1 << 20;
	ck_assert(!passes(&header, 40));
	header.list_bytes = 0;
	ck_assert(!passes(&header, 40));
}
END_TEST

START_TEST(an_offer_is_of_bytes_in_its_block)
{
	struct stage_offer offer, out;

	memset(&offer, 0, sizeof(offer));
	/* Neither a block nor one that is no more. */
	ck_assert(!batoni_stage_offer_decode(&offer, sizeof(offer), 100, &out));
	offer.gone = 7;
	ck_assert(batoni_stage_offer_decode(&offer, sizeof(offer), 100, &out));
	ck_assert_uint_eq(out.gone, 7);
	offer.block.offered = 1;
	offer.block.bytes = 1000;
	offer.block.offset = 900;
	ck_assert(!batoni_stage_offer_decode(&offer, sizeof(offer), 100, &out));
	offer.number = 3;
	ck_assert(batoni_stage_offer_decode(&offer, sizeof(offer), 100, &out));
	ck_assert(!batoni_stage_offer_decode(&offer, sizeof(offer), 101, &out));
	ck_assert(!batoni_stage_offer_decode(&offer, sizeof(offer) - 1, 100,
	                                     &out));
	offer.block.offset = UINT64_MAX - 50;
	ck_assert(!batoni_stage_offer_decode(&offer, sizeof(offer), 100, &out));
	offer.block.offset = 0;
	offer.block.offered = 2;
	ck_assert(!batoni_stage_offer_decode(&offer, sizeof(offer), 100, &out));
	offer.block.offered = 1;
	offer.block.status = BATON_ERR_CUDA;
	ck_assert(!batoni_stage_offer_decode(&offer, sizeof(offer), 100, &out));
}
END_TEST

START_TEST(a_staged_grant_is_for_pieces_that_there_are)
{
	static const struct {
		struct stage_grant grant;
		struct stage_terms terms;
		bool passes;
	} cases[] = {
		{{GRANT_PIECES, 5, 40, 3}, {SLOTS, 100, 64, 0, 0, false, false, false}, true},
		{{GRANT_PIECES, 5, 40, 3}, {SLOTS, 100, 64, 40, 2, false, false, false}, true},
		{{GRANT_DROPS, 5, 0, 0}, {SLOTS, 100, 64, 0, 0, false, false, false}, true},
		{{GRANT_DIRECT, 5, 0, 0}, {SLOTS, 100, 64, 0, 0, true, false, false}, true},
		/* More pieces than there are, none more, none at all. */
		{{GRANT_PIECES, 5, 40, 4}, {SLOTS, 100, 64, 0, 0, false, false, false}, false},
		{{GRANT_PIECES, 5, 40, 2},
		 {SLOTS, 100, 64, 40, 2, false, false, false}, false},
		{{GRANT_PIECES, 5, 0, 1}, {SLOTS, 100, 64, 0, 0, false, false, false}, false},
		/* Longer than a chunk; another length than before. */
		{{GRANT_PIECES, 5, 65, 1}, {SLOTS, 100, 64, 0, 0, false, false, false}, false},
		{{GRANT_PIECES, 5, 41, 3},
		 {SLOTS, 100, 64, 40, 2, false, false, false}, false},
		/* In place, from memory that the transport does not reach. */
		{{GRANT_DIRECT, 5, 0, 0}, {SLOTS, 100, 64, 0, 0, false, false, false}, false},
		/* A list is declined after pieces; nothing else is. */
		{{GRANT_DROPS, 5, 0, 0}, {SLOTS, 100, 64, 40, 2, false, true, false}, true},
		{{GRANT_DIRECT, 5, 0, 0}, {SLOTS, 100, 64, 40, 2, true, true, false}, false},
		/* Another kind in the middle. */
		{{GRANT_DROPS, 5, 0, 0}, {SLOTS, 100, 64, 40, 2, true, false, false}, false},
		{{GRANT_DROPS, SLOTS, 0, 0},
		 {SLOTS, 100, 64, 0, 0, true, false, false}, false},
		/* One copy has ended: of what was offered, and has no pieces. */
		{{GRANT_MAPPED, 5, 0, 0},
		 {SLOTS, 100, 64, 0, 0, false, false, true}, true},
		{{GRANT_MAPPED, 5, 0, 0},
		 {SLOTS, 100, 64, 0, 0, false, false, false}, false},
		{{GRANT_MAPPED, 5, 0, 0},
		 {SLOTS, 100, 64, 40, 2, false, false, true}, false},
		{{0, 5, 40, 3}, {SLOTS, 100, 64, 0, 0, true, false, false}, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct stage_grant *grant = &cases[i].grant;

		ck_assert_msg(batoni_stage_grant_check(grant, sizeof(*grant),
		                                       &cases[i].terms) ==
		                      cases[i].passes,
		              "case %zu", i);
		ck_assert(!batoni_stage_grant_check(grant, sizeof(*grant) - 1,
		                                    &cases[i].terms));
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
#ifdef BATONI_WITH_MPI
		an_mpi_header_names_a_tag_of_a_body,
		each_fixed_byte_of_an_mpi_header_counts,
		an_mpi_header_has_a_type_that_there_is,
		the_first_part_of_a_list_has_what_it_says,
		an_mpi_grant_names_a_slot_and_a_tag,
#endif
		a_staged_message_has_the_bytes_that_its_header_says,
		a_staged_header_is_of_a_rank_and_a_slot,
		a_staged_header_has_a_type_that_there_is,
		a_staged_list_has_the_bytes_that_its_header_says,
		an_offer_is_of_bytes_in_its_block,
		a_staged_grant_is_for_pieces_that_there_are,
	};

	return RUN_TESTS("headers", tests);
}
