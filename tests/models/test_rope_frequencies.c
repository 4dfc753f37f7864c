/* Scaled wavelengths of rotary positions, by their properties; test_rope.py has them by numpy. */
#include "bp_test.h"

#include "math/kernels/kernels.h"
#include "models/stack/rotary.h"

#include <math.h>

enum { ROTATED = 128 };

static const double TURN = 2 * 3.14159265358979323846;

static bp_rope rope_of(bp_rope_scaling scaling)
{
    return (bp_rope){.theta = 500000,
                     .rotated = ROTATED,
                     .scaling = scaling,
                     .factor = 8,
                     .low_freq_factor = 1,
                     .high_freq_factor = 4,
                     .original_context = 8192};
}

static double frequency_of(const bp_rope *rope, int64_t pair)
{
    double all[ROTATED / 2];

    bp_rope_frequencies(all, rope, 1);
    return all[pair];
}

static void plain_ones_fall_from_1_by_equal_factors(void **state)
{
    bp_rope rope = rope_of(BP_ROPE_PLAIN);
    double step = frequency_of(&rope, 1);

    (void)state;
    assert_true(frequency_of(&rope, 0) == 1);
    assert_true(fabs(pow(step, ROTATED / 2) * rope.theta - 1) < 1e-9);
    for (int64_t i = 0; i < ROTATED / 2; i++)
        assert_true(fabs(frequency_of(&rope, i) / pow(step, (double)i) - 1) < 1e-12);
}

static void linear_scaling_divides_all_by_the_factor(void **state)
{
    bp_rope plain = rope_of(BP_ROPE_PLAIN), linear = rope_of(BP_ROPE_LINEAR);

    (void)state;
    for (int64_t i = 0; i < ROTATED / 2; i++)
        assert_true(fabs(frequency_of(&linear, i) * 8 / frequency_of(&plain, i) - 1) < 1e-12);
}

/* What turns often within the original context stays, what turns less than once is divided, and
 * between them the share falls with the frequency, without a jump. */
static void llama3_scaling_divides_long_wavelengths_alone(void **state)
{
    bp_rope plain = rope_of(BP_ROPE_PLAIN), scaled = rope_of(BP_ROPE_LLAMA3);
    double last = 1;
    int kept = 0, between = 0, divided = 0;

    (void)state;
    for (int64_t i = 0; i < ROTATED / 2; i++) {
        double f = frequency_of(&plain, i), turns = 8192 * f / TURN,
               share = frequency_of(&scaled, i) / f;

        assert_true(share <= last && share >= 1.0 / 8);
        if (turns >= 4)
            kept += share == 1;
        else if (turns <= 1)
            divided += fabs(share * 8 - 1) < 1e-12;
        else
            between += fabs(share - (1 + (turns - 1) / 3 * 7) / 8) < 1e-12;
        last = share;
    }
    assert_int_equal(kept + between + divided, ROTATED / 2);
    assert_true(kept > 0 && between > 0 && divided > 0);
}

static bool is_table_of(const bp_rotary *table, const bp_rope *rope, int64_t length)
{
    double frequencies[ROTATED / 2];
    bool equal = true;

    bp_rope_frequencies(frequencies, rope, length);
    for (int64_t t = 0; t < table->T; t++)
        for (int64_t i = 0; i < table->half; i++)
            equal = equal &&
                    table->cosine[t * table->half + i] == (float)cos((double)t * frequencies[i]);
    return equal;
}

/* In any order, and again: what was made stays. */
static void tables_of_several_lengths_are_kept(void **state)
{
    bp_rope rope = {.theta = 10000,
                    .rotated = ROTATED,
                    .scaling = BP_ROPE_DYNAMIC,
                    .factor = 3,
                    .original_context = 8};
    const bp_rotary *face, *made[200];
    bp_nn nn = {.tensor_ranks = 1};
    bp_network *network;

    (void)state;
    bp_network_new(&network, &nn, 1, 1);
    bp_network_add_rotary(network, &rope, 1, 300);
    face = bp_network_rotary(network, 0);
    for (int round = 0; round < 2; round++)
        for (int64_t length = 9; length < 9 + 20; length++) {
            const bp_rotary *table = face->of_length(face, length);

            assert_true(is_table_of(table, &rope, length));
            assert_true(round == 0 || table == made[length]);
            made[length] = table;
        }
    for (int64_t length = 30; length < 200; length++) /* more than are kept */
        assert_true(is_table_of(face->of_length(face, length), &rope, length));
    assert_true(is_table_of(face->of_length(face, 9), &rope, 9));
    assert_ptr_equal(face->of_length(face, 8), face);
    bp_network_free(&network);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_ones_fall_from_1_by_equal_factors),
        cmocka_unit_test(linear_scaling_divides_all_by_the_factor),
        cmocka_unit_test(llama3_scaling_divides_long_wavelengths_alone),
        cmocka_unit_test(tables_of_several_lengths_are_kept),
    };
    return BP_TEST_RUN(tests);
}
