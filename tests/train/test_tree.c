/* The gradient tree and the schedules: what their order of additions and of micro-batches promises.
 */
#include "train/engine/schedule.h"
#include "train/engine/tree.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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

enum { STAGES = 8, CHUNKS = 4, MICRO_BATCHES = 32, ACTIONS = 2 * CHUNKS * MICRO_BATCHES };

/* A stage as messages move it: a send ends when the neighbour has posted its receive. */
typedef struct simulated {
    bp_action actions[ACTIONS];
    int64_t at;
    bool computed; /* the action's result waits to be sent */
    double clock;
    int64_t taken[2], sent[2]; /* messages by direction */
    double sent_at[2][ACTIONS], posted_at[2][ACTIONS];
    bp_action messages[2][ACTIONS]; /* what was sent, as its receiver knows it */
    int64_t forward_done[CHUNKS], backward_done[CHUNKS];
} simulated;

static simulated world[STAGES];

static int neighbour(const bp_pipeline *pipeline, int stage, bool previous)
{
    return (stage + (previous ? pipeline->stages - 1 : 1)) % pipeline->stages;
}

/* Its input has come: it was made before, and is what the stage expects next. */
static bool receive(const bp_pipeline *pipeline, int stage, const bp_action *action)
{
    simulated *self = &world[stage];
    int d = action->backward;
    const simulated *from = &world[neighbour(pipeline, stage, !action->backward)];
    int64_t j = self->taken[d];

    if (!bp_action_receives(pipeline, stage, action))
        return true;
    if (from->sent[d] <= j)
        return false;
    assert_int_equal(from->messages[d][j].chunk, action->chunk);
    assert_int_equal(from->messages[d][j].micro_batch, action->micro_batch);
    if (from->sent_at[d][j] > self->clock)
        self->clock = from->sent_at[d][j];
    self->taken[d]++;
    self->posted_at[d][j + BP_RECEIVES_AHEAD] = self->clock;
    return true;
}

/* There is capacity for its result: an earlier one has been taken. */
static bool send(const bp_pipeline *pipeline, int stage, const bp_action *action)
{
    simulated *self = &world[stage];
    int d = action->backward, to_stage = neighbour(pipeline, stage, action->backward);
    const simulated *to = &world[to_stage];
    int64_t j = self->sent[d], before = j - BP_SENDS_IN_FLIGHT;

    if (!bp_action_sends(pipeline, stage, action))
        return true;
    if (before >= 0 && to->taken[d] + BP_RECEIVES_AHEAD <= before)
        return false;
    if (before >= 0 && to->posted_at[d][before] > self->clock)
        self->clock = to->posted_at[d][before];
    self->sent_at[d][j] = self->clock;
    self->messages[d][j] = *action;
    if (!action->backward && to_stage == 0)
        self->messages[d][j].chunk++;
    if (action->backward && stage == 0)
        self->messages[d][j].chunk--;
    self->sent[d]++;
    return true;
}

/* In each chunk micro-batches go forward and backward in order, and no more are kept than slots. */
static void compute(const bp_pipeline *pipeline, int stage, const bp_action *action)
{
    simulated *self = &world[stage];
    int c = action->chunk;

    assert_int_equal(action->micro_batch,
                     action->backward ? self->backward_done[c] : self->forward_done[c]);
    *(action->backward ? &self->backward_done[c] : &self->forward_done[c]) += 1;
    assert_true(self->backward_done[c] <= self->forward_done[c]);
    assert_true(self->forward_done[c] - self->backward_done[c] <=
                bp_schedule_slots(pipeline, stage, c));
    self->clock += (action->backward ? 2.0 : 1.0) / pipeline->chunks;
    self->computed = true;
}

static bool move(const bp_pipeline *pipeline, int stage)
{
    simulated *self = &world[stage];
    const bp_action *action = &self->actions[self->at];

    if (self->at == bp_schedule_actions(pipeline))
        return false;
    if (!self->computed) {
        if (!receive(pipeline, stage, action))
            return false;
        compute(pipeline, stage, action);
    }
    if (!send(pipeline, stage, action))
        return false;
    self->computed = false;
    self->at++;
    return true;
}

/* Runs a schedule on all stages; what the slowest one takes beyond the micro-batches' own time, of
 * which forward is 1 and backward 2. */
static double bubble(bp_schedule schedule, int stages, int chunks, int64_t micro_batches)
{
    bp_pipeline pipeline = {schedule, stages, chunks, micro_batches};
    double most = 0;
    bool moved = true;

    memset(world, 0, sizeof world);
    for (int s = 0; s < stages; s++)
        bp_schedule_fill(world[s].actions, &pipeline, s);
    while (moved) {
        moved = false;
        for (int s = 0; s < stages; s++)
            moved = move(&pipeline, s) || moved;
    }
    for (int s = 0; s < stages; s++) {
        assert_int_equal(world[s].at, bp_schedule_actions(&pipeline));
        most = world[s].clock > most ? world[s].clock : most;
    }
    return most - 3.0 * (double)micro_batches;
}

static void schedules_end_and_hold_no_more_than_their_slots(void **state)
{
    (void)state;
    for (int stages = 1; stages <= STAGES; stages++)
        for (int64_t g = 1; g <= 16; g++) {
            (void)bubble(BP_GPIPE, stages, 1, g);
            (void)bubble(BP_1F1B, stages, 1, g);
        }
}

/* Chunks divide the time in which stages wait for the pipeline to fill and to run empty. */
static void interleaved_chunks_divide_the_bubble(void **state)
{
    (void)state;
    for (int stages = 2; stages <= STAGES; stages++)
        for (int chunks = 2; chunks <= CHUNKS; chunks++)
            for (int64_t g = stages; g <= MICRO_BATCHES; g += stages) {
                double one = bubble(BP_1F1B, stages, 1, g);
                double many = bubble(BP_INTERLEAVED, stages, chunks, g);

                assert_true(fabs(one - 3.0 * (stages - 1)) < 1e-9);
                assert_true(fabs(many - one / chunks) < 1e-9);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stack_of_partial_sums_is_the_recursive_tree),
        cmocka_unit_test(halves_of_a_list_are_its_data_ranks),
        cmocka_unit_test(schedules_end_and_hold_no_more_than_their_slots),
        cmocka_unit_test(interleaved_chunks_divide_the_bubble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
