/* Examples of masked models: what is masked, how often, and that nothing but seed, member, step,
 * slot and place decides it. */
#include "bp_test.h"

#include "models/bert/bert.h"

#include <math.h>
#include <string.h>

enum { T = 66, N = T - 2, VOCABULARY = 1000, CLS = 2, SEP = 3, MASK = 4, EOD = 5, FIRST = 10 };

static bp_example_rules rules_of(void)
{
    return (bp_example_rules){.seed = 3,
                              .vocab_size = VOCABULARY,
                              .cls = CLS,
                              .sep = SEP,
                              .mask = MASK,
                              .eod = EOD,
                              .rate = 0.15,
                              .keep = 0.1,
                              .random = 0.1};
}

typedef struct example {
    int32_t inputs[T], targets[T], text[N];
} example;

/* A text of `step` and `slot`, with the end of a document in it, which a tokenizer may have a token
 * of its own for. */
static void make(example *out, const bp_example_rules *rules, int64_t step, int64_t slot)
{
    bp_model_shape shape = {.family = &bp_roberta_family, .context = T};
    bp_example_maker maker = bp_objective_masked.maker(&shape, T, rules);
    int32_t values[2 * T], window[N + 1];

    assert_int_equal(maker.window, N + 1);
    assert_int_equal(bp_batch_bytes(&maker.form, 1), sizeof values);
    for (int i = 0; i < N + 1; i++)
        window[i] = FIRST + (int32_t)((i * 37 + slot) % (VOCABULARY - FIRST));
    window[20] = slot % 2 ? SEP : EOD;
    memcpy(out->text, window, sizeof out->text);
    bp_example_make(&maker, window, step, slot, values, 1, 0);
    memcpy(out->inputs, values, sizeof out->inputs);
    memcpy(out->targets, values + T, sizeof out->targets);
}

static int scored_of(const example *e)
{
    int scored = 0;

    assert_int_equal(e->inputs[0], CLS);
    assert_int_equal(e->inputs[T - 1], SEP);
    assert_true(e->targets[0] == -1 && e->targets[T - 1] == -1);
    assert_true(e->targets[21] == -1 && e->inputs[21] == e->text[20]);
    for (int i = 0; i < N; i++) {
        bool asked = e->targets[1 + i] >= 0;

        assert_int_equal(asked ? e->targets[1 + i] : e->inputs[1 + i], e->text[i]);
        scored += asked;
    }
    return scored;
}

/* 15 % are masked, of these 80 % by the mask and 10 % by any token; all places alike. */
static void shares_are_those_asked_for(void **state)
{
    enum { TEXTS = 4000 };
    bp_example_rules rules = rules_of();
    int64_t masks = 0, stays = 0, others = 0, all = 0;
    int at[N] = {0};
    example e;

    (void)state;
    for (int slot = 0; slot < TEXTS; slot++) {
        make(&e, &rules, 1, slot);
        assert_int_equal(scored_of(&e), (int)floor(0.15 * (N - 1) + 0.5));
        for (int i = 0; i < N; i++) {
            bool asked = e.targets[1 + i] >= 0;

            at[i] += asked;
            all += asked;
            masks += asked && e.inputs[1 + i] == MASK;
            stays += asked && e.inputs[1 + i] == e.text[i];
            others += asked && e.inputs[1 + i] != MASK && e.inputs[1 + i] != e.text[i];
        }
    }
    /* within five standard deviations */
    assert_true(fabs((double)masks - 0.8 * (double)all) < 5 * sqrt(0.16 * (double)all));
    assert_true(fabs((double)stays - 0.1 * (double)all) < 5 * sqrt(0.09 * (double)all));
    assert_true(fabs((double)others - 0.1 * (double)all) < 5 * sqrt(0.09 * (double)all));
    for (int i = 0; i < N; i++) {
        double p = i == 20 ? 0 : (double)all / TEXTS / (N - 1);

        assert_true(fabs(at[i] - TEXTS * p) <= 5 * sqrt(TEXTS * p * (1 - p)));
    }
}

static bool same(const example *a, const example *b)
{
    return memcmp(a->inputs, b->inputs, sizeof a->inputs) == 0 &&
           memcmp(a->targets, b->targets, sizeof a->targets) == 0;
}

static void masks_are_a_function_of_their_key(void **state)
{
    bp_example_rules rules = rules_of(), other = rules_of(), member = rules_of();
    example one, again, step, seed, of_member;

    (void)state;
    other.seed = 4;
    member.member = 1;
    make(&one, &rules, 5, 2);
    make(&again, &rules, 5, 2);
    make(&step, &rules, 6, 2);
    make(&seed, &other, 5, 2);
    make(&of_member, &member, 5, 2);
    assert_true(same(&one, &again));
    assert_false(same(&one, &step));
    assert_false(same(&one, &seed));
    assert_false(same(&one, &of_member));
}

/* Every third token begins a word. */
static void whole_words_are_masked_whole(void **state)
{
    bool continues[VOCABULARY];
    bp_example_rules rules = rules_of();
    int words = 0, first = 0;
    example e;

    (void)state;
    for (int v = 0; v < VOCABULARY; v++)
        continues[v] = v > FIRST && v % 3 != 0;
    rules.continues = continues;
    for (int slot = 0; slot < 200; slot++) {
        make(&e, &rules, 1, slot);
        assert_in_range(scored_of(&e), 1, 15);
        for (int i = 1; i < N; i++)
            if (i != 20 && i != 21 && continues[e.text[i]]) {
                assert_true((e.targets[1 + i] >= 0) == (e.targets[i] >= 0));
                words += e.targets[1 + i] >= 0;
            }
        first += continues[e.text[21]] && e.targets[22] >= 0; /* a text's first token begins */
    }
    assert_true(words > 200);
    assert_true(first > 5);
}

/* Their mean length: that of a geometric distribution with p = 1/3 that ends at 10, cut short by
 * other spans, by ends, and by the share that is asked for. */
static void spans_are_runs(void **state)
{
    bp_example_rules rules = rules_of();
    int64_t tokens = 0, runs = 0, longest = 0;
    example e;

    (void)state;
    rules.span = 3;
    rules.random = rules.keep = 0;
    for (int slot = 0; slot < 2000; slot++) {
        int64_t run = 0;

        make(&e, &rules, 1, slot);
        tokens += scored_of(&e);
        for (int i = 0; i < T; i++) {
            run = e.targets[i] >= 0 ? run + 1 : 0;
            runs += run == 1;
            longest = run > longest ? run : longest;
            assert_true((e.targets[i] >= 0) == (e.inputs[i] == MASK));
        }
    }
    assert_int_equal(tokens, 2000 * (int64_t)floor(0.15 * (N - 1) + 0.5));
    assert_true((double)tokens / (double)runs > 2.0 && (double)tokens / (double)runs < 4.0);
    assert_in_range(longest, 8, 10);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(shares_are_those_asked_for),
                                              cmocka_unit_test(masks_are_a_function_of_their_key),
                                              cmocka_unit_test(whole_words_are_masked_whole),
                                              cmocka_unit_test(spans_are_runs)};

    return BP_TEST_RUN(tests);
}
