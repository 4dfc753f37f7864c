/* Requests from the first rank of a group to the others: a broadcast each. */
#include "mesh/requests.h"

#include "mesh/collective.h"

#include <stdalign.h>
#include <string.h>

typedef struct message {
    alignas(max_align_t) char what[BP_REQUEST_BYTES];
    bool more; /* false: it is the end */
} message;

bp_err bp_request(bp_requests *requests, const void *what, size_t bytes)
{
    message one = {.more = true};

    BP_ASSERT(bytes <= sizeof one.what && !requests->failed);
    memcpy(one.what, what, bytes);
    bp_bcast_bytes(&one, sizeof one, 0, requests->group);
    bp_err err = requests->answer(requests->context, one.what);

    requests->failed = err != BP_OK;
    return err;
}

void bp_requests_end(bp_requests *requests)
{
    message end = {.more = false};

    if (!requests->failed)
        bp_bcast_bytes(&end, sizeof end, 0, requests->group);
    requests->failed = false;
}

bp_err bp_requests_follow(bp_requests *requests)
{
    message one = {.more = true};
    bp_err err = BP_OK;

    while (err == BP_OK) {
        bp_bcast_bytes(&one, sizeof one, 0, requests->group);
        if (!one.more)
            break;
        err = requests->answer(requests->context, one.what);
    }
    return err;
}
