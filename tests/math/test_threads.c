/* Which cores the threads of a node's ranks are bound to. */
#include "bp_test.h"

#include "math/threads_priv.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static bp_core_claim claim_of(int first, int count, int threads, bool whole)
{
    bp_core_claim claim = {.threads = threads, .whole = whole, .may_bind = true};

    for (int k = 0; k < count; k++)
        bp_cores_add(&claim.mask, first + k);
    return claim;
}

/* All cores of these are beyond what a host has, so that none has a place: they go by number. */
#define FAR 3000

static void ranks_that_share_a_mask_take_disjoint_cores_in_order(void **state)
{
    bp_core_claim all[3];
    int cores[BP_CORES_MOST];

    (void)state;
    for (int r = 0; r < 3; r++)
        all[r] = claim_of(FAR, 12, 4, true);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(bp_core_choose(cores, all, 3, r), 4);
        for (int k = 0; k < 4; k++)
            assert_int_equal(cores[k], FAR + 4 * r + k);
    }
}

static void ranks_with_masks_of_their_own_stay_in_them(void **state)
{
    bp_core_claim all[2] = {claim_of(FAR, 4, 4, false), claim_of(FAR + 4, 4, 3, false)};
    int cores[BP_CORES_MOST];

    (void)state;
    assert_int_equal(bp_core_choose(cores, all, 2, 0), 4);
    assert_int_equal(cores[3], FAR + 3);
    assert_int_equal(bp_core_choose(cores, all, 2, 1), 3); /* workspace is left: it is ours alone */
    assert_int_equal(cores[0], FAR + 4);
}

static void nobody_is_bound_where_it_could_harm(void **state)
{
    bp_core_claim all[2];
    int cores[BP_CORES_MOST];

    (void)state;
    all[0] = all[1] = claim_of(FAR, 4, 3, false); /* more threads than cores */
    assert_int_equal(bp_core_choose(cores, all, 2, 0), 0);
    all[0] = all[1] = claim_of(FAR, 8, 3, true); /* another job may take the same cores */
    assert_int_equal(bp_core_choose(cores, all, 2, 1), 0);
    all[0] = claim_of(FAR, 4, 2, false); /* masks that overlap in part */
    all[1] = claim_of(FAR + 2, 4, 2, false);
    assert_int_equal(bp_core_choose(cores, all, 2, 0), 0);
    all[0] =
        claim_of(FAR, 4, 4, false); /* the user has said where threads run, or a quota is less */
    all[0].may_bind = false;
    assert_int_equal(bp_core_choose(cores, all, 1, 0), 0);
    all[0] = claim_of(FAR, 1, 2, false); /* fewer cores than threads */
    assert_int_equal(bp_core_choose(cores, all, 1, 0), 0);
}

static void cores_are_shared_out_fairly(void **state)
{
    bp_core_claim all[3] = {claim_of(0, 8, 0, false), claim_of(0, 8, 0, false),
                            claim_of(6, 4, 0, false)};

    (void)state;
    assert_true(bp_core_fair_share(all, 3, 0) > 3.66 && bp_core_fair_share(all, 3, 0) < 3.67);
    assert_true(bp_core_fair_share(all, 3, 2) > 2.66 && bp_core_fair_share(all, 3, 2) < 2.67);
}

static int allowed(void)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

static void a_bound_thread_can_be_widened_again(void **state)
{
    int before = bp_cores_count(bp_cores_of_process()), first = 0;
    bp_cores one = {{0}};

    (void)state;
    while (!bp_cores_has(bp_cores_of_process(), first))
        first++;
    assert_int_equal(before, allowed());
    bp_cores_add(&one, first);
    bp_cores_bind(&one);
    assert_int_equal(allowed(), 1);
    assert_int_equal(bp_cores_count(bp_cores_of_process()), before);
    bp_cores_widen();
    assert_int_equal(allowed(), before);
}

static void *step_aside(void *seen)
{
    int *found = seen;

    bp_cores_step_aside();
    found[0] = allowed();
    found[1] = getpriority(PRIO_PROCESS, (id_t)gettid());
    found[2] = sched_getscheduler(0);
    return NULL;
}

static void a_helper_steps_aside_within_the_cores_of_the_process(void **state)
{
    int before = bp_cores_count(bp_cores_of_process()), first = 0, found[3] = {0};
    bp_cores one = {{0}};
    pthread_t helper;

    (void)state;
    while (!bp_cores_has(bp_cores_of_process(), first))
        first++;
    bp_cores_add(&one, first);
    bp_cores_bind(&one);
    assert_int_equal(pthread_create(&helper, NULL, step_aside, found), 0);
    assert_int_equal(pthread_join(helper, NULL), 0);
    assert_int_equal(allowed(), 1); /* the creator stays where it is */
    bp_cores_widen();
    assert_int_equal(found[0], before);
    assert_int_equal(found[1], 19);
    assert_int_equal(found[2], SCHED_BATCH);
}

/* GNU's runtime ends the third thread of a team of two and makes another for the next team. */
static void threads_made_anew_leave_the_first_ones_core(void **state)
{
    int cores[3], count = 0;
    bool shares_a_core = false;

    (void)state;
    for (int core = 0; core < CPU_SETSIZE && count < 3; core++)
        if (bp_cores_has(bp_cores_of_process(), core))
            cores[count++] = core;
    if (count < 2)
        bp_test_skip("one core");
    if (count == 2)
        cores[2] = cores[1];
    omp_set_dynamic(0);
#pragma omp parallel num_threads(3)
    {
        bp_cores mine = bp_core_binding(cores, 3, omp_get_thread_num());
        bp_cores_bind(&mine);
    }
#pragma omp parallel num_threads(2)
    sched_yield();
#pragma omp parallel num_threads(3) reduction(|| : shares_a_core)
    if (omp_get_thread_num() > 0) {
        cpu_set_t set;
        bool got = sched_getaffinity(0, sizeof set, &set) == 0;
        shares_a_core = !got || (CPU_COUNT(&set) == 1 && CPU_ISSET(cores[0], &set));
    }
    bp_cores_widen();
    assert_false(shares_a_core);
}

static void lists_of_slurm_are_read(void **state)
{
    static const struct {
        const char *list;
        int least;
    } cases[] = {{"48", 48}, {"24(x2)", 24}, {"24(x2),12,36(x7)", 12}, {"x", 0},
                 {"", 0},    {NULL, 0},      {"8,99999", 0},           {"-3", 0}};
    int units;

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        assert_int_equal(bp_core_slurm_cpus(cases[k].list), cases[k].least);
    assert_true(bp_cores_allowed(&units) >= 1 && units <= sysconf(_SC_NPROCESSORS_CONF));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_a_mask_take_disjoint_cores_in_order),
        cmocka_unit_test(ranks_with_masks_of_their_own_stay_in_them),
        cmocka_unit_test(nobody_is_bound_where_it_could_harm),
        cmocka_unit_test(cores_are_shared_out_fairly),
        cmocka_unit_test(a_bound_thread_can_be_widened_again),
        cmocka_unit_test(a_helper_steps_aside_within_the_cores_of_the_process),
        cmocka_unit_test(lists_of_slurm_are_read),
        cmocka_unit_test(threads_made_anew_leave_the_first_ones_core),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
