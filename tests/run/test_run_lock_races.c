/* One owner a run folder, however many start at once, whatever comes between two of their calls. */
#include "run/lock_contenders.h"

/* What others do between a challenger's look and its link(2). */
static void (*meanwhile)(const char *run);
static const char *meanwhile_run;

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    void (*now)(const char *) = meanwhile;

    meanwhile = NULL;
    if (now != NULL)
        now(meanwhile_run);
    return __real_link(from, to);
}

/* A challenger of a dead owner is refused, since others did `what` meanwhile. Its run. */
static const char *challenge_and_lose(const char *name, void (*what)(const char *run))
{
    const char *run = fresh(name);
    run_lock *lock;

    write_owner(run, 1, began_at_another_time);
    meanwhile_run = run;
    meanwhile = what;
    bp_test_expect(run_lock_take(&lock, run, 0.2), BP_ERR_BUSY);
    assert_null(meanwhile);
    return run;
}

static void two_others_follow(const char *run)
{
    write_owner(run, 3, as_it_is);
    assert_int_equal(unlink(owner_path(run, 1)), 0);
}

/* It saw number 1 dead, and slept; 2 and 3 have come, and 2 is gone again. */
static void slow_challenger_does_not_win_a_number_that_was_passed(void **state)
{
    const char *run = challenge_and_lose("slow", two_others_follow);

    (void)state;
    assert_false(bp_path_exists(owner_path(run, 2)));
    assert_true(bp_path_exists(owner_path(run, 3)));
}

static void one_follows_and_sweeps(const char *run)
{
    char folder[PATH_MAX], **names;
    int64_t count;

    write_owner(run, 2, as_it_is);
    (void)snprintf(folder, sizeof folder, "%s/lock", run);
    bp_test_expect(bp_dir_list(folder, &names, &count), BP_OK);
    for (int64_t k = 0; k < count; k++) {
        char *path = bp_path_join(folder, names[k]);

        if (strncmp(names[k], "claim-", 6) == 0)
            assert_int_equal(unlink(path), 0);
        bp_free(path);
    }
    bp_names_free(&names, count);
}

static void challenger_whose_draft_was_swept_is_refused(void **state)
{
    (void)state;
    (void)challenge_and_lose("swept", one_follows_and_sweeps);
}

#define CONTENDERS 4

/* Of those that start at once exactly one gets it, and the others are refused. */
static void race(const char *run)
{
    contender list[CONTENDERS];
    int start, hold, winners = 0, losers = 0;

    start_contenders(run, list, CONTENDERS, &start, &hold);
    assert_int_equal(close(start), 0);
    for (int k = 0; k < CONTENDERS; k++) {
        char word = hear(&list[k]);

        winners += word == 'w';
        losers += word == 'l';
    }
    assert_int_equal(winners, 1);
    assert_int_equal(losers, CONTENDERS - 1);
    assert_int_equal(close(hold), 0); /* all end; the winner without a release, as a killed one */
    for (int k = 0; k < CONTENDERS; k++)
        assert_int_equal(waitpid(list[k].pid, NULL, 0), list[k].pid);
}

static void of_starts_at_once_exactly_one_wins(void **state)
{
    const char *run = fresh("races");

    (void)state;
    for (int k = 0; k < 20; k++)
        race(run); /* a free lock first, then one of a dead owner each time */
    for (int k = 0; k < 20; k++) {
        take_soon(run); /* a released one */
        race(run);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_challenger_does_not_win_a_number_that_was_passed),
        cmocka_unit_test(challenger_whose_draft_was_swept_is_refused),
        cmocka_unit_test(of_starts_at_once_exactly_one_wins),
    };
    return BP_TEST_RUN(tests);
}
