/* What a process tells of itself, as a watchdog's thread reads it. */
#include "bp_test.h"

#include "base/process/heartbeat.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static bp_heartbeat now(void)
{
    bp_heartbeat heartbeat;

    bp_heartbeat_read(&heartbeat);
    return heartbeat;
}

static void phase_step_and_progress_are_reported(void **state)
{
    int64_t before = now().progress;
    bp_phase outer = bp_heartbeat_phase(BP_PHASE_STEP);

    bp_heartbeat_step(41);
    assert_int_equal(now().phase, BP_PHASE_STEP);
    assert_int_equal(now().step, 41);
    assert_int_equal(now().progress, before + 2);
    bp_heartbeat_progress();
    assert_int_equal(now().progress, before + 3);
    assert_int_equal(bp_heartbeat_phase(BP_PHASE_CHECKPOINT), BP_PHASE_STEP);
    assert_int_equal(bp_heartbeat_phase(outer), BP_PHASE_CHECKPOINT);
}

static void every_phase_has_a_name_of_its_own(void **state)
{
    for (int k = 0; k < BP_PHASES; k++)
        for (int j = 0; j < k; j++)
            assert_string_not_equal(bp_phase_name((bp_phase)k), bp_phase_name((bp_phase)j));
}

static void outer_collective_counts(void **state)
{
    int64_t before = now().collectives, progress = now().progress;

    assert_false(now().waits);
    bp_heartbeat_enter("agree");
    bp_heartbeat_enter("all_reduce");
    assert_true(now().waits);
    assert_string_equal(now().collective, "agree");
    bp_heartbeat_leave();
    assert_true(now().waits);
    bp_heartbeat_leave();
    assert_false(now().waits);
    assert_string_equal(now().collective, "agree"); /* the last one */
    assert_int_equal(now().collectives, before + 1);
    assert_int_equal(now().progress, progress + 2);
}

/* A reader never sees progress go back, nor a collective that nobody entered. */
static atomic_bool ended;
static atomic_int nonsense;

static void *read_on(void *unused)
{
    int64_t last = 0;

    (void)unused;
    while (!atomic_load(&ended)) {
        bp_heartbeat heartbeat = now();

        if (heartbeat.progress < last || (strcmp(heartbeat.collective, "agree") != 0 &&
                                          strcmp(heartbeat.collective, "bcast") != 0))
            atomic_fetch_add(&nonsense, 1);
        last = heartbeat.progress;
    }
    return NULL;
}

static void reader_beside_a_writer_sees_whole_values(void **state)
{
    pthread_t reader;

    assert_int_equal(pthread_create(&reader, NULL, read_on, NULL), 0);
    for (int k = 0; k < 200000; k++) {
        bp_heartbeat_step(k);
        bp_heartbeat_enter(k % 2 == 0 ? "agree" : "bcast");
        bp_heartbeat_leave();
    }
    atomic_store(&ended, true);
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_int_equal(atomic_load(&nonsense), 0);
    assert_int_equal(now().step, 199999);
}

static void *wait_beside(void *unused)
{
    (void)unused;
    bp_heartbeat_beside();
    bp_heartbeat_enter("bcast");
    return NULL;
}

static void wait_of_a_helper_is_not_the_ranks(void **state)
{
    int64_t collectives;
    pthread_t helper;

    bp_heartbeat_enter("agree");
    bp_heartbeat_leave();
    collectives = now().collectives;
    assert_int_equal(pthread_create(&helper, NULL, wait_beside, NULL), 0);
    assert_int_equal(pthread_join(helper, NULL), 0);
    assert_false(now().waits);
    assert_int_equal(now().collectives, collectives);
    assert_string_equal(now().collective, "agree");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(phase_step_and_progress_are_reported),
        cmocka_unit_test(every_phase_has_a_name_of_its_own),
        cmocka_unit_test(outer_collective_counts),
        cmocka_unit_test(reader_beside_a_writer_sees_whole_values),
        cmocka_unit_test(wait_of_a_helper_is_not_the_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
