/* Windows of the three conventions: published vectors, and the original recipes as plain loops. */
#include "bp_test.h"

#include "infer/score/windows.h"

#define MOST 4096

/* A window as the recipes give it: what is fed, and which positions are scored, z[0] the prefix or
 * the first token. */
typedef struct plain_window {
    int64_t first, inputs; /* of what is fed */
    int64_t scored_first, scored;
} plain_window;

/* ---- lm-evaluation-harness ---- */

/* lm_eval/utils.py get_rolling_token_windows, statement by statement. token_list[i] is i and the
 * prefix -1, so a token is its place in z less one. */
static int64_t lm_eval_windows(plain_window *out, int64_t tokens, int64_t max_seq_len,
                               int64_t context_len)
{
    int64_t pred_len = max_seq_len - context_len + 1, predicted = 0, count = 0;
    int64_t first_seq_len = max_seq_len < tokens ? max_seq_len : tokens;

    if (tokens == 0)
        return 0;
    out[count++] = (plain_window){0, first_seq_len, 1, first_seq_len};
    predicted += first_seq_len;
    while (predicted < tokens) {
        int64_t window_pred_len = tokens - predicted < pred_len ? tokens - predicted : pred_len;
        int64_t window_end = predicted + window_pred_len;

        /* token_list[window_end - max_seq_len - 1 : window_end - 1] and the last window_pred_len */
        out[count++] = (plain_window){window_end - max_seq_len, max_seq_len,
                                      window_end - window_pred_len + 1, window_pred_len};
        predicted += window_pred_len;
    }
    return count;
}

/* ---- Hugging Face: for begin_loc in range(0, seq_len, stride): ... ---- */

static int64_t stride_windows(plain_window *out, int64_t seq_len, int64_t max_length,
                              int64_t stride)
{
    int64_t prev_end_loc = 0, count = 0;

    for (int64_t begin_loc = 0; begin_loc < seq_len; begin_loc += stride) {
        int64_t end_loc = begin_loc + max_length < seq_len ? begin_loc + max_length : seq_len;
        int64_t trg_len = end_loc - prev_end_loc;
        /* target_ids[:, :-trg_len] = -100; the model shifts, so the first of the window is no
         * target */
        int64_t scored_first = end_loc - trg_len;

        if (scored_first == begin_loc)
            scored_first++;
        out[count++] =
            (plain_window){begin_loc, end_loc - begin_loc, scored_first, end_loc - scored_first};
        prev_end_loc = end_loc;
        if (end_loc == seq_len)
            break;
    }
    return count;
}

/* ---- llama.cpp: whole chunks, first = n_ctx / 2, targets j + 1 for j in [first, n_ctx - 1) ----
 */

static int64_t half_windows(plain_window *out, int64_t tokens, int64_t n_ctx)
{
    int64_t count = 0;

    for (int64_t i = 0; i < tokens / n_ctx; i++) {
        int64_t first = n_ctx / 2, scored = 0;

        for (int64_t j = first; j < n_ctx - 1; j++)
            scored++;
        out[count++] = (plain_window){i * n_ctx, n_ctx, i * n_ctx + first + 1, scored};
    }
    return count;
}

/* A window of ours scores the same positions from the same tokens; a last input that only its
 * recipe feeds is allowed, since nothing is predicted from it. */
static void check_windows(const bp_score_rule *rule, int64_t line, const plain_window *want,
                          int64_t count)
{
    int64_t scored_to = 0;

    assert_int_equal(bp_score_window_count(rule, line), count);
    for (int64_t w = 0; w < count; w++) {
        bp_score_window got = bp_score_window_at(rule, line, w);
        int64_t scored_first = got.first + 1 + got.inputs - got.scored;

        assert_int_equal(got.first, want[w].first);
        assert_int_equal(got.inputs, want[w].inputs - (rule->convention != BP_SCORE_ROLLING));
        assert_int_equal(got.scored, want[w].scored);
        assert_true(got.inputs <= rule->context && got.scored <= got.inputs);
        if (got.scored == 0)
            continue;
        assert_int_equal(scored_first, want[w].scored_first);
        assert_true(scored_first > scored_to); /* each place at most once, in order */
        scored_to = scored_first + got.scored - 1;
        assert_true(scored_to < line);
    }
}

/* ---- published vectors: tests/test_utils.py of lm-evaluation-harness, get_rolling_token_windows
 * v1 to v6 and empty ---- */

typedef struct vector {
    int64_t tokens, max_seq_len, context_len, count;
    struct {
        int64_t input_from, input_to; /* tokens fed, from and to; -100 is the prefix */
        int64_t pred_from, pred_to;
    } windows[24];
} vector;

static const vector published[] = {
    {34, 10, 1, 4, {{-100, 8, 0, 9}, {9, 18, 10, 19}, {19, 28, 20, 29}, {23, 32, 30, 33}}},
    {34,
     10,
     8,
     9,
     {{-100, 8, 0, 9},
      {2, 11, 10, 12},
      {5, 14, 13, 15},
      {8, 17, 16, 18},
      {11, 20, 19, 21},
      {14, 23, 22, 24},
      {17, 26, 25, 27},
      {20, 29, 28, 30},
      {23, 32, 31, 33}}},
    {30, 10, 1, 3, {{-100, 8, 0, 9}, {9, 18, 10, 19}, {19, 28, 20, 29}}},
    {9, 2, 1, 5, {{-100, 0, 0, 1}, {1, 2, 2, 3}, {3, 4, 4, 5}, {5, 6, 6, 7}, {6, 7, 8, 8}}},
    {0, 2, 1, 0, {{0}}},
};

static bp_score_rule rolling_rule(int64_t max_seq_len, int64_t context_len)
{
    return (bp_score_rule){.convention = BP_SCORE_ROLLING,
                           .context = max_seq_len,
                           .stride = max_seq_len - context_len + 1,
                           .prefix = true};
}

static void check_published(const vector *v)
{
    bp_score_rule rule = rolling_rule(v->max_seq_len, v->context_len);
    int64_t line = bp_score_line(&rule, v->tokens);

    assert_int_equal(bp_score_window_count(&rule, line), v->count);
    for (int64_t w = 0; w < v->count; w++) {
        bp_score_window got = bp_score_window_at(&rule, line, w);
        int64_t from = v->windows[w].input_from == -100 ? -1 : v->windows[w].input_from;

        /* token t is z[t + 1], the prefix z[0] */
        assert_int_equal(got.first, from + 1);
        assert_int_equal(got.first + got.inputs - 1, v->windows[w].input_to + 1);
        assert_int_equal(got.first + got.inputs - got.scored + 1, v->windows[w].pred_from + 1);
        assert_int_equal(got.first + got.inputs, v->windows[w].pred_to + 1);
    }
}

static void rolling_gives_the_published_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(published) / sizeof(published[0]); i++)
        check_published(&published[i]);
    /* v3 and v4: context_len 10 of 10, a window a token after the first */
    for (int64_t tokens = 30; tokens <= 34; tokens += 4) {
        vector v = {.tokens = tokens, .max_seq_len = 10, .context_len = 10, .count = tokens - 9};

        assert_true(v.count <= 25);
        for (int64_t w = 0; w < v.count && w < 24; w++) {
            v.windows[w].input_from = w == 0 ? -100 : w - 1;
            v.windows[w].input_to = w + 8;
            v.windows[w].pred_from = w == 0 ? 0 : w + 9;
            v.windows[w].pred_to = w + 9;
        }
        if (v.count == 25) { /* the last of v3: ([23 .. 32], [33]) */
            bp_score_rule rule = rolling_rule(10, 10);
            bp_score_window last = bp_score_window_at(&rule, 35, 24);

            assert_int_equal(bp_score_window_count(&rule, 35), 25);
            assert_int_equal(last.first, 24);
            assert_int_equal(last.inputs, 10);
            assert_int_equal(last.scored, 1);
        } else {
            check_published(&v);
        }
    }
}

static void rolling_is_the_harness_for_all_small_cases(void **state)
{
    (void)state;
    static plain_window want[MOST];

    for (int64_t C = 1; C <= 9; C++) {
        for (int64_t S = 1; S <= C; S++) {
            bp_score_rule rule = rolling_rule(C, C - S + 1);
            bp_score_rule bare = rule;

            bare.prefix = false;
            for (int64_t n = 0; n <= 40; n++) {
                int64_t count = lm_eval_windows(want, n, C, C - S + 1);

                check_windows(&rule, bp_score_line(&rule, n), want, count);
                /* without a prefix x[0] takes its place: one token less to predict */
                check_windows(&bare, bp_score_line(&bare, n + 1), want, count);
            }
            assert_int_equal(bp_score_window_count(&bare, 0), 0);
        }
    }
}

static void stride_is_hugging_faces_recipe_for_all_small_cases(void **state)
{
    (void)state;
    static plain_window want[MOST];

    for (int64_t C = 2; C <= 9; C++) {
        for (int64_t S = 1; S <= C; S++) {
            bp_score_rule rule = {.convention = BP_SCORE_STRIDE, .context = C, .stride = S};

            for (int64_t n = 0; n <= 40; n++)
                check_windows(&rule, n, want, stride_windows(want, n, C, S));
        }
    }
}

static void half_is_llama_cpps_loop_for_all_small_cases(void **state)
{
    (void)state;
    static plain_window want[MOST];

    for (int64_t C = 3; C <= 12; C++) {
        bp_score_rule rule = {.convention = BP_SCORE_HALF, .context = C, .stride = C};

        for (int64_t n = 0; n <= 60; n++)
            check_windows(&rule, n, want, half_windows(want, n, C));
    }
}

static void example_of_the_contract_is_one_window_of_40(void **state)
{
    (void)state;
    bp_score_rule rule = {.convention = BP_SCORE_ROLLING, .context = 40, .stride = 40};
    int64_t line = bp_score_line(&rule, 41);
    bp_score_window window = bp_score_window_at(&rule, line, 0);

    assert_int_equal(bp_score_window_count(&rule, line), 1);
    assert_int_equal(window.first, 0);
    assert_int_equal(window.inputs, 40);
    assert_int_equal(window.scored, 40);
}

static void line_holds_prefix_and_end(void **state)
{
    (void)state;
    bp_score_rule rule = {.convention = BP_SCORE_ROLLING, .context = 8, .stride = 8};

    assert_int_equal(bp_score_line(&rule, 5), 5);
    rule.prefix = true;
    assert_int_equal(bp_score_line(&rule, 5), 6);
    rule.end = true;
    assert_int_equal(bp_score_line(&rule, 5), 7);
    assert_int_equal(bp_score_window_count(&rule, bp_score_line(&rule, 0)),
                     1); /* an empty document's end */
}

static void more_text_never_means_fewer_windows(void **state)
{
    (void)state;
    for (int convention = 0; convention < 3; convention++) {
        for (int64_t S = 1; S <= 7; S++) {
            bp_score_rule rule = {
                .convention = (bp_score_convention)convention, .context = 7, .stride = S};

            for (int64_t n = 0; n < 100; n++)
                assert_true(bp_score_window_count(&rule, n + 1) >= bp_score_window_count(&rule, n));
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rolling_gives_the_published_vectors),
        cmocka_unit_test(rolling_is_the_harness_for_all_small_cases),
        cmocka_unit_test(stride_is_hugging_faces_recipe_for_all_small_cases),
        cmocka_unit_test(half_is_llama_cpps_loop_for_all_small_cases),
        cmocka_unit_test(example_of_the_contract_is_one_window_of_40),
        cmocka_unit_test(line_holds_prefix_and_end),
        cmocka_unit_test(more_text_never_means_fewer_windows),
    };
    return BP_TEST_RUN(tests);
}
