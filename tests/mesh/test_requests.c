/* Requests of a group's first rank: every rank answers each of them once, and all leave together.
 */
#include "bp_test_mpi.h"

#include "mesh/collective.h"
#include "mesh/requests.h"

#define WORLD MPI_COMM_WORLD

typedef struct asked {
    int64_t number;
    double value;
} asked;

typedef struct answers {
    int64_t count, sum; /* on this rank */
    double values;
    int64_t fails_at; /* the number that fails on all ranks; 0: none */
} answers;

static bp_err answer(void *context, const void *what)
{
    answers *self = context;
    const asked *one = what;

    self->count++;
    self->sum += bp_all_sum_int(one->number, WORLD); /* the ranks are here together */
    self->values += one->value;
    return one->number == self->fails_at ? BP_FAIL(BP_ERR_SOFTWARE, "training.diverged",
                                                   "not finite: at request %d", (int)one->number)
                                         : BP_OK;
}

/* Requests 1 to `count`, or to the first that fails. */
static bp_err ask(bp_requests *requests, int64_t count)
{
    bp_err err = BP_OK;

    if (!bp_comm_is_root(WORLD))
        return bp_requests_follow(requests);
    for (int64_t k = 1; k <= count && err == BP_OK; k++)
        err = bp_request(requests, &(asked){k, 0.5 * (double)k}, sizeof(asked));
    bp_requests_end(requests);
    return err;
}

static void every_rank_answers_each_request_once(void **state)
{
    answers mine = {0};
    bp_requests requests = {.group = WORLD, .answer = answer, .context = &mine};

    (void)state;
    bp_test_check_err(WORLD, ask(&requests, 4), BP_OK);
    bp_test_check(WORLD, mine.count == 4 && mine.sum == 10 * bp_comm_size(WORLD));
    bp_test_check(WORLD, mine.values == 5.0);
    bp_test_check_err(WORLD, ask(&requests, 0), BP_OK); /* nothing is asked for */
    bp_test_check(WORLD, mine.count == 4);
}

static void request_that_fails_is_the_last(void **state)
{
    answers mine = {.fails_at = 2};
    bp_requests requests = {.group = WORLD, .answer = answer, .context = &mine};

    (void)state;
    bp_test_check_err(WORLD, ask(&requests, 4), BP_ERR_SOFTWARE);
    bp_test_message_has("[training.diverged]");
    bp_test_check(WORLD, mine.count == 2);
    mine = (answers){0};
    bp_test_check_err(WORLD, ask(&requests, 3), BP_OK); /* the next unit */
    bp_test_check(WORLD, mine.count == 3);
}

/* What fails on the first rank alone, between two requests, lets the others go on. */
static void lead_that_fails_alone_ends_it(void **state)
{
    answers mine = {0};
    bp_requests requests = {.group = WORLD, .answer = answer, .context = &mine};
    bp_err err;

    (void)state;
    if (bp_comm_is_root(WORLD)) {
        err = bp_request(&requests, &(asked){1, 0}, sizeof(asked));
        if (err == BP_OK)
            err = BP_FAIL(BP_ERR_IO, "file.io_error", "can't read");
        bp_requests_end(&requests);
    } else {
        err = bp_requests_follow(&requests);
    }
    bp_test_check(WORLD, mine.count == 1 && (err == BP_OK || bp_comm_is_root(WORLD)));
    bp_test_check_err(WORLD, bp_agree(WORLD, err), BP_ERR_IO);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_answers_each_request_once),
        cmocka_unit_test(request_that_fails_is_the_last),
        cmocka_unit_test(lead_that_fails_alone_ends_it),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
