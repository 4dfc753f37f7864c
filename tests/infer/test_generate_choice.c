/* The choice of a token: sets against numpy, frequencies by chi-squared, penalties by hand. */
#include "bp_test.h"

#include "base/rng.h"
#include "infer/generate/search/choice.h"

#include <math.h>

#define PYTHON "/usr/bin/python3"

static const bp_choice_rule PLAIN = {
    .vocab_size = 8, .samples = true, .temperature = 1, .top_p = 1, .repetition_penalty = 1};

static double uniform(int64_t stream, int64_t index)
{
    bp_rng_key key = bp_rng_key_of(5, BP_RNG_TEST, 0, 0, stream);

    return bp_rng_uniform(&key, (uint64_t)index);
}

static void dump(const char *name, const void *data, size_t bytes)
{
    bp_test_expect(bp_file_write(bp_test_path(name), data, bytes), BP_OK);
}

static void sets_are_those_of_numpy(void **state)
{
    enum { ROWS = 1000, V = 211 };
    float *scores = bp_alloc("test", ROWS * V, sizeof *scores);
    double *rules = bp_alloc("test", ROWS * 3, sizeof *rules);
    double *found = bp_alloc("test", ROWS * V, sizeof *found), row[V];
    char *command;

    (void)state;
    for (int r = 0; r < ROWS; r++) {
        bp_choice_rule rule = PLAIN;
        bp_choice choice;

        rule.vocab_size = V;
        rule.temperature = 0.3 + 2 * uniform(1, r);
        rule.top_k = r % 3 == 0 ? 0 : 1 + (int64_t)(uniform(2, r) * V);
        rule.top_p = r % 5 == 0 ? 1 : 0.01 + 0.98 * uniform(3, r);
        rules[3 * r] = rule.temperature;
        rules[3 * r + 1] = (double)rule.top_k;
        rules[3 * r + 2] = rule.top_p;
        for (int v = 0; v < V; v++)
            row[v] = scores[r * V + v] = (float)(8 * uniform(4, r * V + v) - 4);
        bp_choice_init(&choice, &rule);
        bp_choice_candidates(&choice, row);
        for (int64_t k = 0; k < choice.count; k++)
            found[r * V + choice.candidates[k].token] = choice.candidates[k].probability;
        bp_choice_clear(&choice);
    }
    dump("scores", scores, ROWS * V * sizeof *scores);
    dump("rules", rules, ROWS * 3 * sizeof *rules);
    dump("found", found, ROWS * V * sizeof *found);
    command = bp_sprintf(PYTHON " %s/check_choice.py %s %d %d", BP_TEST_SCRIPTS, bp_test_folder(),
                         ROWS, V);
    assert_int_equal(system(command), 0);
    bp_free(command);
    bp_free(found);
    bp_free(rules);
    bp_free(scores);
}

/* Draws of 20,000 prompts, samples and positions in turn: independent, and as often as they should
 * be. With 7 degrees of freedom chi-squared is above 24.3 once in a thousand times; the draws are
 * fixed. */
static void draws_are_as_frequent_as_probabilities(void **state)
{
    enum { DRAWS = 20000, V = 8 };
    const float logits[V] = {0, 1, -1, 0.5F, 2, -0.5F, 1.5F, 0.2F};
    bp_choice_rule rule = PLAIN;
    bp_choice choice;
    double sum = 0;

    (void)state;
    rule.temperature = 1.3;
    for (int v = 0; v < V; v++)
        sum += exp(logits[v] / rule.temperature);
    bp_choice_init(&choice, &rule);
    for (int key = 0; key < 3; key++) {
        int64_t counts[V] = {0};
        double chi = 0;

        for (int64_t i = 0; i < DRAWS; i++) {
            bp_sequence none = {0};
            double u = bp_choice_uniform(1, key == 0 ? i : 3, key == 1 ? i : 3, key == 2 ? i : 3);

            counts[bp_choice_next(&choice, &none, logits, u)]++;
        }
        for (int v = 0; v < V; v++) {
            double expected = DRAWS * exp(logits[v] / rule.temperature) / sum;

            chi += (counts[v] - expected) * (counts[v] - expected) / expected;
        }
        assert_true(chi < 24.3);
        assert_true(chi > 0.5); /* nor too good */
    }
    bp_choice_clear(&choice);
}

static void draws_differ_by_seed_prompt_sample_and_position(void **state)
{
    double u = bp_choice_uniform(1, 2, 3, 4);

    (void)state;
    assert_true(u == bp_choice_uniform(1, 2, 3, 4));
    assert_true(u != bp_choice_uniform(2, 2, 3, 4));
    assert_true(u != bp_choice_uniform(1, 3, 3, 4));
    assert_true(u != bp_choice_uniform(1, 2, 4, 4));
    assert_true(u != bp_choice_uniform(1, 2, 3, 5));
    assert_true(bp_choice_uniform(1, 2, 3, 4) != bp_choice_uniform(1, 3, 2, 4));
}

static void the_smallest_temperature_is_a_number(void **state)
{
    const double scores[8] = {0, 1, -INFINITY, 2, 2, -0.5, 1.5, 0.2};
    bp_choice_rule rule = PLAIN;
    bp_choice choice;

    (void)state;
    rule.temperature = 5e-324;
    rule.top_k = 3;
    bp_choice_init(&choice, &rule);
    bp_choice_candidates(&choice, scores);
    assert_int_equal(choice.count, 3);
    assert_int_equal(bp_choice_draw(&choice, 0.4), 3);
    assert_int_equal(bp_choice_draw(&choice, 0.6), 4);
    assert_true(choice.candidates[2].probability == 0);
    bp_choice_clear(&choice);
}

static void without_temperature_the_best_is_taken(void **state)
{
    const float logits[8] = {0, 1, -1, 2, 2, -0.5F, 1.5F, 0.2F};
    bp_choice_rule rule = PLAIN;
    bp_choice choice;
    bp_sequence none = {0};

    (void)state;
    rule.samples = false;
    bp_choice_init(&choice, &rule);
    assert_int_equal(bp_choice_next(&choice, &none, logits, 0.99), 3); /* the lower of two */
    bp_choice_clear(&choice);
}

/* ---- penalties ---- */

static void penalise(const bp_choice_rule *rule, const int32_t *tokens, int64_t prompt,
                     int64_t count, double *scores)
{
    bp_choice choice;

    bp_choice_init(&choice, rule);
    bp_choice_penalise(&choice, &(bp_sequence){tokens, prompt, count}, scores);
    for (int64_t v = 0; v < rule->vocab_size; v++) /* the next call finds it clean */
        assert_int_equal(choice.seen[v], 0);
    bp_choice_clear(&choice);
}

static void repetition_counts_prompt_and_output_once(void **state)
{
    const int32_t tokens[] = {1, 1, 2, 3};
    double scores[8] = {4, 4, -4, 0, 5, 6, 7, 8};
    const double expected[8] = {4, 2, -8, 0, 5, 6, 7, 8};
    bp_choice_rule rule = PLAIN;

    (void)state;
    rule.repetition_penalty = 2;
    penalise(&rule, tokens, 2, 4, scores);
    for (int v = 0; v < 8; v++)
        assert_true(scores[v] == expected[v]);
}

static void presence_and_frequency_count_the_output_alone(void **state)
{
    const int32_t tokens[] = {0, 0, 1, 2, 2, 2};
    double scores[8] = {0};
    const double expected[8] = {0, -1.25, -1.75, 0, 0, 0, 0, 0};
    bp_choice_rule rule = PLAIN;

    (void)state;
    rule.presence_penalty = 1;
    rule.frequency_penalty = 0.25;
    penalise(&rule, tokens, 2, 6, scores);
    for (int v = 0; v < 8; v++)
        assert_true(scores[v] == expected[v]);
}

static void repetition_comes_before_presence(void **state)
{
    const int32_t tokens[] = {7, 1};
    double scores[8] = {0, 4, 0, 0, 0, 0, 0, 4};
    bp_choice_rule rule = PLAIN;

    (void)state;
    rule.repetition_penalty = 2;
    rule.presence_penalty = 1;
    penalise(&rule, tokens, 1, 2, scores);
    assert_true(scores[1] == 1); /* not (4 - 1) / 2 */
    assert_true(scores[7] == 2);
}

/* Every token that would make an n-gram for the second time, found by looking at all pairs. */
static bool repeats(const int32_t *tokens, int64_t count, int64_t n, int32_t next)
{
    for (int64_t i = 0; i + n <= count; i++) {
        bool same = tokens[i + n - 1] == next;

        for (int64_t j = 0; j < n - 1; j++)
            same = same && tokens[i + j] == tokens[count - (n - 1) + j];
        if (same)
            return true;
    }
    return false;
}

static void ngrams_are_banned_that_were_there(void **state)
{
    enum { COUNT = 30 };
    int32_t tokens[COUNT];
    int64_t banned = 0;

    (void)state;
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (int32_t)(uniform(9, i) * 3);
    for (int64_t n = 1; n <= 4; n++)
        for (int64_t count = 0; count <= COUNT; count++) {
            double scores[8] = {0};
            bp_choice_rule rule = PLAIN;

            rule.no_repeat_ngram = n;
            penalise(&rule, tokens, count / 2, count, scores);
            for (int32_t v = 0; v < 8; v++) {
                assert_int_equal(scores[v] < 0, repeats(tokens, count, n, v));
                banned += scores[v] < 0;
            }
        }
    assert_true(banned > 100);
}

static void no_token_left_is_said(void **state)
{
    const int32_t tokens[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const float logits[8] = {0};
    bp_choice_rule rule = PLAIN;
    bp_choice choice;

    (void)state;
    rule.no_repeat_ngram = 1;
    bp_choice_init(&choice, &rule);
    assert_int_equal(bp_choice_next(&choice, &(bp_sequence){tokens, 1, 8}, logits, 0.5), -1);
    assert_int_equal(bp_choice_next(&choice, &(bp_sequence){tokens, 1, 7}, logits, 0.5), 7);
    bp_choice_clear(&choice);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_those_of_numpy),
        cmocka_unit_test(draws_are_as_frequent_as_probabilities),
        cmocka_unit_test(draws_differ_by_seed_prompt_sample_and_position),
        cmocka_unit_test(the_smallest_temperature_is_a_number),
        cmocka_unit_test(without_temperature_the_best_is_taken),
        cmocka_unit_test(repetition_counts_prompt_and_output_once),
        cmocka_unit_test(presence_and_frequency_count_the_output_alone),
        cmocka_unit_test(repetition_comes_before_presence),
        cmocka_unit_test(ngrams_are_banned_that_were_there),
        cmocka_unit_test(no_token_left_is_said)};

    return BP_TEST_RUN(tests);
}
