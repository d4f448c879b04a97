/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of tensors, for conformance cases: one message that describes itself, checked against what
 * the receiver declares, in one order with plain messages.  Tensors and arenas are in the memory
 * of the backend.
 */
#ifndef CONFORM_TENSOR_CASES_H
#define CONFORM_TENSOR_CASES_H

#include "harness.h"

#define CANARIES 64
#define CANARY 0xa5
#define LIST_MAX 16

/* Lists and plain messages meet.  Where lists have a path of their own they do not, and plain
 * messages cannot be canceled. */
#define ONE_PATH (BATON_CAP_TENSORS | BATON_CAP_CANCEL)

struct baton_tensor tensor(enum baton_datatype type, void *data, int rank,
                           int64_t a, int64_t b);
size_t bytes_of(const struct baton_tensor *one);
baton_request send_list(struct conform *c, const struct baton_tensor *tensors,
                        size_t n, int peer, int tag,
                        const struct baton_tensors_options *options);
baton_request recv_list(struct conform *c, struct baton_tensor *tensors,
                        size_t n, int peer, int tag,
                        const struct baton_tensors_options *options);
/* Give each tensor memory of its own, with canaries behind it, filled by seed + i or with
 * canaries. */
void give_memory(struct conform *c, struct baton_tensor *tensors, size_t n,
                 unsigned seed, bool fill);
void check_memory(struct conform *c, const struct baton_tensor *tensors,
                  size_t n, unsigned seed);
/* A tag that is not 0, where there are such. */
int some_tag(const struct conform *c, int tag);
/* Rank 0 sends the list, rank 1 declares the same. */
void pass_list(struct conform *c, const struct baton_tensor *list, size_t n,
               unsigned seed);
struct baton_tensor *thousand(struct conform *c);
unsigned char *new_arena(struct conform *c, size_t bytes);
void expect_failure(struct conform *c, baton_request *request_p,
                    enum baton_status status, const char *words);
void expect_mismatch(struct conform *c, baton_request *request_p,
                     const char *words);

#endif
