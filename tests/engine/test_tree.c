/* The gradient tree and the schedules: what their order of additions and of micro-batches promises.
 */
#include "engine/schedule.h"
#include "engine/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static double leaf_value(int64_t k)
{
    return (k % 3 ? 1.0 : -1.0) * (double)(k + 1) * (k % 5 ? 1e-9 : 1e7);
}

/* Halving the list by recursion, straight from the text of the contract. */
static double halve(int64_t first, int64_t count)
{
    if (count == 1)
        return leaf_value(first);
    return halve(first, count / 2) + halve(first + count / 2, count - count / 2);
}

static void stack_of_partial_sums_is_the_recursive_tree(void **state)
{
    (void)state;
    for (int64_t count = 1; count <= 130; count++) {
        double stack[16], leaves[130];
        int top = 0, most = 0;

        for (int64_t k = 0; k < count; k++) {
            leaves[k] = stack[top++] = leaf_value(k);
            most = top > most ? top : most;
            for (int merges = bp_tree_merges(k, count); merges > 0; merges--) {
                top--;
                stack[top - 1] += stack[top];
            }
        }
        assert_int_equal(top, 1);
        assert_true(stack[0] == halve(0, count));
        assert_true(bp_tree_sum(leaves, count) == halve(0, count));
        assert_int_equal(most, bp_tree_depth(count));
    }
}

static void halves_of_a_list_are_its_data_ranks(void **state)
{
    double leaves[48];

    (void)state;
    for (int64_t k = 0; k < 48; k++)
        leaves[k] = leaf_value(k);
    double two = bp_tree_sum(leaves, 24) + bp_tree_sum(leaves + 24, 24);
    assert_true(two == bp_tree_sum(leaves, 48));
}

/* Runs a schedule of all stages as messages would: a stage waits for its neighbour's activation or
 * gradient. */
static void run_schedule(bp_schedule schedule, int stages, int64_t micro_batches)
{
    bp_action actions[4][32];
    int64_t at[4] = {0}, forward_done[4] = {0}, backward_done[4] = {0};
    bool moved = true;

    for (int s = 0; s < stages; s++)
        bp_schedule_fill(actions[s], schedule, s, stages, micro_batches);
    while (moved) {
        moved = false;
        for (int s = 0; s < stages; s++) {
            if (at[s] == 2 * micro_batches)
                continue;
            bp_action a = actions[s][at[s]];
            bool ready = a.backward ? (s == stages - 1 ? forward_done[s] > a.micro_batch
                                                       : backward_done[s + 1] > a.micro_batch)
                                    : (s == 0 || forward_done[s - 1] > a.micro_batch);
            if (!ready)
                continue;
            assert_int_equal(a.micro_batch, a.backward ? backward_done[s] : forward_done[s]);
            *(a.backward ? &backward_done[s] : &forward_done[s]) += 1;
            assert_true(forward_done[s] - backward_done[s] <=
                        bp_schedule_slots(schedule, s, stages, micro_batches));
            at[s]++;
            moved = true;
        }
    }
    for (int s = 0; s < stages; s++)
        assert_int_equal(at[s], 2 * micro_batches);
}

static void schedules_end_and_hold_no_more_than_their_slots(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 4; stages++)
        for (int64_t g = 1; g <= 16; g++) {
            run_schedule(BP_GPIPE, stages, g);
            run_schedule(BP_1F1B, stages, g);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stack_of_partial_sums_is_the_recursive_tree),
        cmocka_unit_test(halves_of_a_list_are_its_data_ranks),
        cmocka_unit_test(schedules_end_and_hold_no_more_than_their_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
