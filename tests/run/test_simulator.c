/* The coordinator's protocols under everything that goes wrong, by the thousand:
 *
 *     test_coordinator_simulator              some thousands of seeds, and every rule broken
 *         --seeds N [--first S]               the long run
 *         --break RULE --seeds N              how soon a broken rule is noticed
 *         --show SEED [--break RULE]          one history, line by line
 */
#include "bp_test.h"

#include "run/simulator/simulator.h"

static sim_world world; /* large */

static bool run_one(uint64_t seed, sim_break broken, FILE *trace)
{
    return sim_run(&world, seed, broken, trace) && sim_run_work(world.why, seed, broken, trace);
}

/* The first seed that fails; `end` when none does. */
static uint64_t first_failure(uint64_t first, uint64_t end, sim_break broken)
{
    for (uint64_t seed = first; seed < end; seed++)
        if (!run_one(seed, broken, NULL))
            return seed;
    return end;
}

static void show(uint64_t seed, sim_break broken)
{
    bool held = run_one(seed, broken, stdout);

    printf("seed %llu: %s\n", (unsigned long long)seed, held ? "all promises held" : world.why);
}

static void promises_hold_in_every_history(void **state)
{
    uint64_t end = 10000, failed = first_failure(0, end, BREAK_NOTHING);

    (void)state;
    if (failed < end)
        show(failed, BREAK_NOTHING);
    assert_int_equal(failed, end);
}

/* A simulator that notices nothing proves nothing. */
static void every_broken_rule_is_noticed(void **state)
{
    const uint64_t end = 30000; /* the hardest to notice takes some 9,000 */
    int unnoticed = 0;

    (void)state;
    for (sim_break broken = BREAK_NOTHING + 1; broken < BREAKS; broken++)
        if (first_failure(0, end, broken) == end) {
            print_error("no history of %d notices that this rule is broken: %s\n", (int)end,
                        SIM_BREAK_NAMES[broken]);
            unnoticed++;
        }
    assert_int_equal(unnoticed, 0);
}

static void same_seed_is_the_same_history(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        int64_t events;
        double now;

        assert_true(run_one(seed, BREAK_NOTHING, NULL));
        events = world.events;
        now = world.now;
        assert_true(run_one(seed, BREAK_NOTHING, NULL));
        assert_int_equal(world.events, events);
        assert_true(world.now == now);
    }
}

static sim_break break_of(const char *name)
{
    for (sim_break broken = BREAK_NOTHING; broken < BREAKS; broken++)
        if (strcmp(name, SIM_BREAK_NAMES[broken]) == 0)
            return broken;
    (void)fprintf(stderr, "there is no rule '%s'; rules are:", name);
    for (sim_break broken = BREAK_NOTHING + 1; broken < BREAKS; broken++)
        (void)fprintf(stderr, " %s", SIM_BREAK_NAMES[broken]);
    (void)fprintf(stderr, "\n");
    exit(64);
}

static int run_long(int argc, char **argv)
{
    uint64_t first = 0, seeds = 0, shown = 0, failed;
    sim_break broken = BREAK_NOTHING;
    bool shows = false;

    for (int k = 1; k + 1 < argc; k += 2) {
        if (strcmp(argv[k], "--seeds") == 0)
            seeds = strtoull(argv[k + 1], NULL, 10);
        else if (strcmp(argv[k], "--first") == 0)
            first = strtoull(argv[k + 1], NULL, 10);
        else if (strcmp(argv[k], "--break") == 0)
            broken = break_of(argv[k + 1]);
        else if (strcmp(argv[k], "--show") == 0)
            shown = strtoull(argv[k + 1], NULL, 10), shows = true;
    }
    if (shows) {
        show(shown, broken);
        return 0;
    }
    failed = first_failure(first, first + seeds, broken);
    if (failed < first + seeds) {
        printf("seed %llu, after %llu others: %s\n", (unsigned long long)failed,
               (unsigned long long)(failed - first), world.why);
        return 1;
    }
    printf("%llu seeds from %llu on: all promises held\n", (unsigned long long)seeds,
           (unsigned long long)first);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(promises_hold_in_every_history),
        cmocka_unit_test(every_broken_rule_is_noticed),
        cmocka_unit_test(same_seed_is_the_same_history),
    };

    return argc > 1 ? run_long(argc, argv) : BP_TEST_RUN(tests);
}
