/* Examples of masked models: what is masked, how often, and that nothing but seed, member, step,
 * slot and place decides it. */
#include "bp_test.h"

#include "models/bert/bert.h"
#include "models/list.h"

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
    bp_example_maker maker;
    int32_t values[2 * T], window[N + 1];

    bp_bert_sizes_in(&shape)->no_pooler = 1; /* as filled in */
    maker = bp_objective_masked.maker(&shape, T, rules);
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

/* 15 % are masked, of these 80 % by the mask and 10 % by any token; all positions alike. */
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

/* ---- pairs ---- */

enum { MOST = 400, FIRST_OTHER = 500 }; /* tokens of a run; those of another begin with this id */

/* A run of sentences of the given lengths, whose tokens count up from `first`. */
typedef struct run {
    bp_document document;
    int32_t tokens[MOST];
    int64_t starts[8];
} run;

static void make_run(run *out, int32_t first, const int64_t *lengths, int64_t sentences)
{
    out->document = (bp_document){.tokens = out->tokens, .starts = out->starts, .is_run = true};
    out->starts[0] = 0;
    for (int64_t s = 0; s < sentences; s++)
        out->starts[s + 1] = out->starts[s] + lengths[s];
    out->document.segments = sentences;
    out->document.count = out->starts[sentences];
    for (int64_t t = 0; t < out->document.count; t++)
        out->tokens[t] = first + (int32_t)t;
}

typedef struct seen {
    int32_t text[T]; /* with masked words put back */
    int32_t target;
    int64_t length, side[2]; /* tokens of the sides, */
    int32_t first[2];        /* and their first ones */
    int64_t scored;
} seen;

static seen see_pair(const bp_example_rules *rules, const bp_document *document, int64_t step,
                     int64_t slot)
{
    bp_model_shape shape = {.family = &bp_bert_family, .context = T};
    bp_example_maker maker = bp_objective_masked.maker(&shape, T, rules);
    static int32_t values[3 * T + 2];
    seen out = {0};

    assert_true(maker.feed == BP_FEED_RUNS && maker.window == T - 3);
    assert_int_equal(bp_batch_bytes(&maker.form, 1), sizeof values);
    memset(values, 0x55, sizeof values);
    bp_example_make_document(&maker, document, step, slot, values, 1, 0);
    bp_batch batch = bp_batch_over(&maker.form, 1, values);
    const int32_t *segments = batch.stream[0].segments, *words = batch.term[0].targets;

    out.length = batch.stream[0].lengths[0];
    out.target = batch.term[BP_BERT_NEXT_SENTENCE].targets[0];
    for (int64_t t = 0; t < T; t++) {
        out.text[t] = words[t] >= 0 ? words[t] : batch.stream[0].inputs[t];
        out.scored += words[t] >= 0;
        if (t >= out.length)
            assert_true(out.text[t] == rules->pad && words[t] < 0 && segments[t] == 0);
    }
    assert_int_equal(out.text[0], CLS);
    for (int64_t t = 1, side = 0; t < out.length; t++) {
        assert_int_equal(segments[t], side);
        if (out.text[t] == SEP) {
            assert_true(words[t] < 0);
            side++;
            continue;
        }
        if (out.side[side]++ == 0)
            out.first[side] = out.text[t];
        else
            assert_int_equal(out.text[t], out.text[t - 1] + 1);
    }
    assert_int_equal(out.text[out.length - 1], SEP);
    assert_int_equal(out.length, out.side[0] + out.side[1] + 3);
    return out;
}

static bool begins_sentence(const run *r, int32_t token)
{
    for (int64_t s = 0; s < r->document.segments; s++)
        if (r->tokens[r->starts[s]] == token)
            return true;
    return false;
}

static bool ends_sentence(const run *r, int32_t token)
{
    return begins_sentence(r, token + 1) || token == r->tokens[r->document.count - 1];
}

/* Where all fits: the first side is whole sentences and ends anywhere that it may, the second
 * begins with a sentence; half of the second ones follow. Lengths do not say which: of each first
 * side the second ones that follow are as long as the others, and cut as often within a sentence.
 */
static void sides_of_pairs_are_sentences(void **state)
{
    enum { PAIRS = 4000 };
    static const int64_t lengths[] = {5, 7, 3, 9}, others[] = {8, 4, 6};
    bp_example_rules rules = rules_of();
    run own, other;
    int64_t random = 0, ends[3] = {0}, starts[3] = {0}, number[3][2] = {{0}};
    double sum[3][2] = {{0}}, squares[3] = {0};

    (void)state;
    rules.pairs = true;
    rules.pad = 1;
    make_run(&own, FIRST, lengths, 4);
    make_run(&other, FIRST_OTHER, others, 3);
    own.document.other = &other.document;
    for (int64_t slot = 0; slot < PAIRS; slot++) {
        seen e = see_pair(&rules, &own.document, 1, slot);
        const run *second = e.target == 1 ? &other : &own;

        assert_int_equal(e.first[0], FIRST);
        assert_int_equal(e.scored, (int)floor(0.15 * (double)(e.side[0] + e.side[1]) + 0.5));
        assert_true(ends_sentence(&own, FIRST + (int32_t)e.side[0] - 1));
        assert_true(begins_sentence(second, e.first[1]));
        if (e.target == 0)
            assert_int_equal(e.first[1], FIRST + e.side[0]);
        assert_in_range(e.first[1] + e.side[1] - second->tokens[0], 1, second->document.count);
        random += e.target;
        for (int k = 0; k < 3; k++) {
            bool is_here = own.starts[k + 1] == e.side[0];

            ends[k] += is_here;
            number[k][e.target] += is_here;
            sum[k][e.target] += is_here ? (double)e.side[1] : 0;
            squares[k] += is_here ? (double)(e.side[1] * e.side[1]) : 0;
            starts[k] += e.target == 1 && other.tokens[other.starts[k]] == e.first[1];
        }
    }
    assert_true(fabs((double)random - PAIRS / 2.0) < 5 * sqrt(PAIRS / 4.0));
    for (int k = 0; k < 3; k++) { /* within five standard deviations */
        double mean = (sum[k][0] + sum[k][1]) / (double)ends[k];
        double variance = squares[k] / (double)ends[k] - mean * mean;
        double apart = sum[k][0] / (double)number[k][0] - sum[k][1] / (double)number[k][1];

        assert_true(fabs((double)ends[k] - PAIRS / 3.0) < 5 * sqrt(PAIRS * 2 / 9.0));
        assert_true(starts[k] > 0 && variance > 1);
        assert_true(fabs(apart) < 5 * sqrt(4 * variance / (double)ends[k]));
    }
}

/* The longer side loses tokens, at both ends; nothing but seed, member, step and slot decides it.
 */
static void pairs_are_cut_to_the_context(void **state)
{
    static const int64_t lengths[] = {100, 60}, others[] = {50, 200};
    bp_example_rules rules = rules_of();
    run own, other;
    double front = 0, cut = 0;

    (void)state;
    rules.pairs = true;
    make_run(&own, FIRST, lengths, 2);
    make_run(&other, FIRST_OTHER, others, 2);
    own.document.other = &other.document;
    for (int64_t slot = 0; slot < 200; slot++) {
        seen e = see_pair(&rules, &own.document, 3, slot);
        seen again = see_pair(&rules, &own.document, 3, slot);

        assert_memory_equal(&e, &again, sizeof e);
        assert_int_equal(e.length, T);
        assert_in_range(e.side[1], 1, e.side[0] + 1);
        front += e.first[0] - FIRST;
        cut += 100 - (double)e.side[0];
    }
    assert_true(fabs(front - cut / 2) < 5 * sqrt(cut / 4)); /* half of them at the front */
}

static void a_side_may_be_missing(void **state)
{
    static const int64_t one[] = {9}, two[] = {4, 5}, none[] = {0};
    bp_example_rules rules = rules_of();
    run own, other;
    seen e;

    (void)state;
    rules.pairs = true;
    make_run(&own, FIRST, one, 1);
    e = see_pair(&rules, &own.document, 1, 1); /* no other document, and nothing that follows */
    assert_true(e.target == -1 && e.side[0] == 9 && e.side[1] == 0);
    make_run(&other, FIRST_OTHER, two, 2);
    own.document.other = &other.document;
    e = see_pair(&rules, &own.document, 1, 1); /* nothing follows: always another one */
    assert_true(e.target == 1 && e.side[0] == 9);
    own.document.other = NULL;
    make_run(&own, FIRST, two, 2);
    e = see_pair(&rules, &own.document, 1, 1); /* no other: always what follows */
    assert_true(e.target == 0 && e.side[0] == 4 && e.side[1] == 5);
    make_run(&own, FIRST, none, 1);
    e = see_pair(&rules, &own.document, 1, 1); /* an empty document */
    assert_true(e.target == -1 && e.length == 3 && e.scored == 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(shares_are_those_asked_for),
                                              cmocka_unit_test(masks_are_a_function_of_their_key),
                                              cmocka_unit_test(whole_words_are_masked_whole),
                                              cmocka_unit_test(spans_are_runs),
                                              cmocka_unit_test(sides_of_pairs_are_sentences),
                                              cmocka_unit_test(pairs_are_cut_to_the_context),
                                              cmocka_unit_test(a_side_may_be_missing)};

    return BP_TEST_RUN(tests);
}
