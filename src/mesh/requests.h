/* Requests from the first rank of a group to the others, which wait in a loop until it has no
 * more. The lead of a model has all its ranks compute batches this way. */
#pragma once

#include "base/err.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#define BP_REQUEST_BYTES 128 /* the most bytes of a request */

typedef struct bp_requests {
    MPI_Comm group; /* borrowed */
    /** Carry out a request, on all ranks of the group together; `what` are the bytes of
     * bp_request, aligned for any type. The ranks share larger data themselves. Errors: the same
     * on all ranks of the group. */
    bp_err (*answer)(void *context, const void *what);
    void *context;
    bool failed; /* a request failed: all ranks know, and wait for no other */
} bp_requests;

/** On the group's first rank: have all ranks answer. After an error no other request may follow.
 * Collective over the group, whose other ranks are in bp_requests_follow. Errors: those of
 * `answer`. */
bp_err bp_request(bp_requests *requests, const void *what, size_t bytes);
/** On the first rank, after the last request, whatever happened: the others go on. */
void bp_requests_end(bp_requests *requests);
/** On the other ranks: answer all requests. Errors: that of the last one. */
bp_err bp_requests_follow(bp_requests *requests);
