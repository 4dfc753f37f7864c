/* Searches over a model that is a table: beams of full width are exhaustive search, narrower ones
 * follow the rules, step by step. */
#include "bp_test.h"

#include "base/rng.h"
#include "infer/generate/search/search.h"

#include <math.h>

enum { V = 7, T = 5, ALL = 16807 /* 7^5 */ };

/* log p(v | the tokens so far): of any sequence, by a hash of it. */
static void table_row(float *logits, const int32_t *tokens, int64_t count)
{
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, count, 0, 0);
    uint64_t place = 1;

    for (int64_t i = 0; i < count; i++)
        place = place * (V + 1) + (uint64_t)tokens[i];
    for (uint64_t v = 0; v < V; v++)
        logits[v] = (float)(4 * bp_rng_uniform(&key, place * V + v));
}

static double log_sum(const float *logits)
{
    double sum = 0;

    for (int v = 0; v < V; v++)
        sum += exp(logits[v]);
    return log(sum);
}

/* A search to its end; what slots were fed is kept, as a decoder keeps it. */
static bp_search *search_all(const bp_search_spec *spec, int64_t tokens, int64_t *steps)
{
    static const int32_t prompt[] = {2, 5};
    enum { PROMPT = 2 };
    int64_t K = bp_search_slots(spec);
    int32_t *fed = bp_alloc("test", K * (PROMPT + T), sizeof *fed);
    int32_t *before = bp_alloc("test", K * (PROMPT + T), sizeof *before);
    float *logits = bp_alloc("test", K * V, sizeof *logits);
    double *log_sums = bp_alloc("test", K, sizeof *log_sums);
    bp_search_rows rows = {.logits = logits, .log_sums = log_sums};
    bp_search_next next;
    bp_search *search;
    bp_choice choice;

    bp_choice_init(&choice, &spec->choice);
    bp_search_new(&search, spec, prompt, PROMPT, 0, tokens, false);
    memcpy(fed, prompt, sizeof prompt);
    table_row(logits, fed, PROMPT);
    log_sums[0] = log_sum(logits);
    *steps = 0;
    while (++*steps, bp_search_step(search, &choice, &rows, &next)) {
        int64_t count = PROMPT + *steps;

        memcpy(before, fed, (size_t)(K * (PROMPT + T)) * sizeof *fed);
        for (int64_t k = 0; k < K; k++) {
            int32_t *mine = fed + k * (PROMPT + T);

            if (!next.counts[k])
                continue;
            memcpy(mine, before + next.parents[k] * (PROMPT + T),
                   (size_t)(count - 1) * sizeof *mine);
            mine[count - 1] = next.tokens[k];
            table_row(logits + k * V, mine, count);
            log_sums[k] = log_sum(logits + k * V);
        }
    }
    bp_choice_clear(&choice);
    bp_free(log_sums);
    bp_free(logits);
    bp_free(before);
    bp_free(fed);
    return search;
}

static bp_search_spec beam_spec(int64_t beams, int64_t texts, double penalty, int64_t end)
{
    return (bp_search_spec){
        .choice = {.vocab_size = V, .temperature = 1, .top_p = 1, .repetition_penalty = 1},
        .beams = beams,
        .texts = texts,
        .length_penalty = penalty,
        .end = end};
}

/* ---- exhaustive search ---- */

typedef struct found {
    double score;
    int32_t tokens[T];
    int64_t count;
} found;

static int by_score(const void *a, const void *b)
{
    const found *x = a, *y = b;

    return x->score > y->score ? -1 : x->score < y->score;
}

/* All texts that go on from `one`. */
static void enumerate(found *all, int64_t *count, found one, double penalty, int64_t end)
{
    int32_t whole[2 + T] = {2, 5};
    float logits[V];
    double sum;

    if (one.count == T || (one.count > 0 && one.tokens[one.count - 1] == end)) {
        one.score /= pow((double)one.count, penalty);
        all[(*count)++] = one;
        return;
    }
    memcpy(whole + 2, one.tokens, sizeof one.tokens);
    table_row(logits, whole, 2 + one.count);
    sum = log_sum(logits);
    for (int32_t v = 0; v < V; v++) {
        found next = one;

        next.tokens[next.count++] = v;
        next.score += logits[v] - sum;
        enumerate(all, count, next, penalty, end);
    }
}

static void full_width_is_exhaustive_search(void **state)
{
    static const double penalties[] = {0, 0.6, 1, 2};
    found *all = bp_alloc("test", ALL, sizeof *all);

    (void)state;
    for (int k = 0; k < 8; k++) {
        int64_t count = 0, end = k < 4 ? -1 : 4, steps, texts = 300;
        bp_search_spec spec = beam_spec(ALL, texts, penalties[k % 4], end);
        bp_search *search;

        enumerate(all, &count, (found){0}, penalties[k % 4], end);
        qsort(all, (size_t)count, sizeof *all, by_score);
        search = search_all(&spec, T, &steps);
        assert_int_equal(bp_search_texts(search), texts);
        for (int64_t i = 0; i < texts; i++) {
            bp_search_text text = bp_search_text_at(search, i);

            assert_int_equal(text.count, all[i].count);
            assert_memory_equal(text.tokens, all[i].tokens,
                                (size_t)text.count * sizeof *text.tokens);
            assert_true(fabs(text.score - all[i].score) < 1e-9);
        }
        bp_search_free(&search);
    }
    bp_free(all);
}

/* ---- narrow ones ---- */

static void one_beam_is_greedy(void **state)
{
    bp_search_spec beam = beam_spec(1, 1, 1, -1), greedy = beam_spec(0, 1, 1, -1);
    int64_t steps;
    bp_search *a = search_all(&beam, T, &steps), *b = search_all(&greedy, T, &steps);
    bp_search_text x = bp_search_text_at(a, 0), y = bp_search_text_at(b, 0);

    (void)state;
    assert_int_equal(steps, T);
    assert_int_equal(x.count, T);
    assert_int_equal(y.count, T);
    assert_memory_equal(x.tokens, y.tokens, T * sizeof *x.tokens);
    for (int i = 0; i < T; i++)
        assert_true(x.logprobs[i] == y.logprobs[i]);
    assert_int_equal(x.finish, BP_FINISH_LENGTH);
    bp_search_free(&a);
    bp_search_free(&b);
}

/* The rules of the search written down anew, with plain lists. */
static int64_t plain_beams(found *closed, int64_t beams, double penalty, int64_t end)
{
    found live[8], ranked[8 * V], next[8];
    int64_t live_count = 1, closed_count = 0;

    live[0] = (found){0};
    for (int64_t n = 1; n <= T; n++) {
        int64_t count = 0, next_count = 0;

        for (int64_t b = 0; b < live_count; b++) {
            int32_t whole[2 + T] = {2, 5};
            float logits[V];

            memcpy(whole + 2, live[b].tokens, sizeof live[b].tokens);
            table_row(logits, whole, 2 + live[b].count);
            for (int32_t v = 0; v < V; v++) {
                ranked[count] = live[b];
                ranked[count].score += logits[v] - log_sum(logits);
                ranked[count].tokens[ranked[count].count++] = v;
                count++;
            }
        }
        qsort(ranked, (size_t)count, sizeof *ranked, by_score);
        for (int64_t r = 0; r < 2 * beams && r < count && next_count < beams; r++)
            if (ranked[r].tokens[n - 1] != end) {
                next[next_count++] = ranked[r];
            } else if (r < beams) {
                closed[closed_count] = ranked[r];
                closed[closed_count++].score /= pow((double)n, penalty);
                qsort(closed, (size_t)closed_count, sizeof *closed, by_score);
                closed_count = closed_count > beams ? beams : closed_count;
            }
        memcpy(live, next, sizeof live);
        live_count = next_count;
        if (closed_count == beams &&
            closed[beams - 1].score >= ranked[0].score / pow((double)n, penalty))
            return closed_count;
    }
    for (int64_t b = 0; b < live_count; b++) {
        closed[closed_count] = live[b];
        closed[closed_count++].score /= pow((double)T, penalty);
    }
    qsort(closed, (size_t)closed_count, sizeof *closed, by_score);
    return closed_count > beams ? beams : closed_count;
}

static void narrow_beams_follow_the_rules(void **state)
{
    static const double penalties[] = {-1, 0, 0.6, 1, 2};
    int64_t early = 0, steps;

    (void)state;
    for (int64_t beams = 1; beams <= 4; beams++)
        for (int k = 0; k < 5; k++)
            for (int32_t end = -1; end < V; end++) {
                bp_search_spec spec = beam_spec(beams, beams, penalties[k], end);
                bp_search *search = search_all(&spec, T, &steps);
                found closed[16];
                int64_t count = plain_beams(closed, beams, penalties[k], end);

                early += steps < T;
                assert_int_equal(bp_search_texts(search), count);
                for (int64_t i = 0; i < count; i++) {
                    bp_search_text text = bp_search_text_at(search, i);
                    double sum = 0;

                    assert_int_equal(text.count, closed[i].count);
                    assert_memory_equal(text.tokens, closed[i].tokens,
                                        (size_t)text.count * sizeof *text.tokens);
                    assert_true(fabs(text.score - closed[i].score) < 1e-9);
                    assert_int_equal(text.finish == BP_FINISH_EOD,
                                     text.tokens[text.count - 1] == end);
                    for (int64_t j = 0; j < text.count; j++)
                        sum += text.logprobs[j];
                    assert_true(fabs(sum / pow((double)text.count, penalties[k]) - text.score) <
                                1e-9);
                }
                bp_search_free(&search);
            }
    assert_true(early > 5); /* some rows stop before the last step */
}

static void penalties_change_beams_but_not_what_is_returned(void **state)
{
    bp_search_spec spec = beam_spec(3, 3, 0, -1);
    int64_t steps;
    bp_search *search;

    (void)state;
    spec.choice.no_repeat_ngram = 1; /* no token twice; 2 and 5 are the prompt's */
    search = search_all(&spec, T, &steps);
    assert_int_equal(bp_search_texts(search), 3);
    for (int64_t i = 0; i < 3; i++) {
        bp_search_text text = bp_search_text_at(search, i);
        int32_t whole[2 + T] = {2, 5};

        memcpy(whole + 2, text.tokens, sizeof whole - 2 * sizeof *whole);
        for (int a = 0; a < 2 + T; a++)
            for (int b = 0; b < a; b++)
                assert_int_not_equal(whole[a], whole[b]);
        for (int j = 0; j < T; j++) {
            float logits[V];

            table_row(logits, whole, 2 + j);
            assert_true(fabs(text.logprobs[j] - (logits[text.tokens[j]] - log_sum(logits))) < 1e-9);
        }
    }
    bp_search_free(&search);
}

static void no_token_left_ends_a_search(void **state)
{
    int64_t steps;

    (void)state;
    for (int64_t beams = 0; beams <= 3; beams += 3) {
        bp_search_spec spec = beam_spec(beams, 1, 1, -1);
        bp_search *search;

        spec.choice.no_repeat_ngram = 1;
        search = search_all(&spec, V, &steps); /* five tokens are left */
        assert_int_equal(bp_search_texts(search), 1);
        assert_int_equal(bp_search_text_at(search, 0).count, V - 2);
        assert_int_equal(bp_search_text_at(search, 0).finish, BP_FINISH_LENGTH);
        bp_search_free(&search);
    }
}

static void samples_are_independent_of_each_other(void **state)
{
    bp_search_spec one = beam_spec(0, 1, 1, 4), four = beam_spec(0, 4, 1, 4);
    int64_t steps, different = 0;
    bp_search *a, *b;

    (void)state;
    one.choice.samples = four.choice.samples = true;
    a = search_all(&one, T, &steps);
    b = search_all(&four, T, &steps);
    assert_int_equal(bp_search_texts(b), 4);
    for (int64_t k = 0; k < 4; k++) {
        bp_search_text x = bp_search_text_at(a, 0), y = bp_search_text_at(b, k);
        bool same = x.count == y.count &&
                    memcmp(x.tokens, y.tokens, (size_t)x.count * sizeof *x.tokens) == 0;

        assert_true(same || k > 0);
        different += !same;
    }
    assert_true(different >= 2);
    bp_search_free(&a);
    bp_search_free(&b);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_width_is_exhaustive_search),
        cmocka_unit_test(one_beam_is_greedy),
        cmocka_unit_test(narrow_beams_follow_the_rules),
        cmocka_unit_test(penalties_change_beams_but_not_what_is_returned),
        cmocka_unit_test(no_token_left_ends_a_search),
        cmocka_unit_test(samples_are_independent_of_each_other)};

    return BP_TEST_RUN(tests);
}
