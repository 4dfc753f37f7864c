/* Every smoothing's probabilities add up to 1 after every history, seen and unseen; the mapped
 * file gives what the search in memory gives; Katz's discounts satisfy both of his constraints. */
#include "bp_test.h"
#include "bp_test_mpi.h"

#include "base/files/fs.h"
#include "models/ngram/ngram_lookup_priv.h"
#include "models/ngram/ngram_write_priv.h"
#include "ngram_twin.h"

#define V      24 /* <unk> 0, never seen; 23 the end of a document */
#define TOKENS 900
#define RANDOM 400

static const struct {
    const char *name;
    ngram_smoothing smoothing;
    int64_t prune;
    double entropy;
} CASES[] = {{"kneser-ney", NGRAM_KNESER_NEY, 0},
             {"kneser-ney, by entropy", NGRAM_KNESER_NEY, 0, 1e-4},
             {"kneser-ney, by counts and entropy", NGRAM_KNESER_NEY, 1, 1e-4},
             {"katz, by entropy", NGRAM_KATZ, 0, 1e-4},
             {"witten-bell, by entropy", NGRAM_WITTEN_BELL, 0, 1e-4},
             {"kneser-ney, pruned", NGRAM_KNESER_NEY, 1},
             {"mle", NGRAM_MLE, 0},
             {"additive", NGRAM_ADDITIVE, 0},
             {"good-turing", NGRAM_GOOD_TURING, 0},
             {"katz", NGRAM_KATZ, 0},
             {"katz, pruned", NGRAM_KATZ, 1},
             {"witten-bell", NGRAM_WITTEN_BELL, 0},
             {"witten-bell, pruned", NGRAM_WITTEN_BELL, 1}};

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(state >> 33) % below;
}

/* Words whose frequency falls with their number, in short sentences. */
static void make_text(int32_t *tokens, int64_t count)
{
    state = 7;
    for (int64_t k = 0; k < count; k++)
        tokens[k] = draw(6) == 0 ? V - 1 : (int32_t)(1 + draw(1 + draw(V - 2)));
    tokens[count - 1] = V - 1;
}

static void make(ngram_twin *twin, int order, int at, const int32_t *tokens)
{
    *twin = (ngram_twin){.spec = {.order = order, .entropy = CASES[at].entropy}};
    twin->spec.rule = (ngram_rule){.smoothing = CASES[at].smoothing, .delta = 0.3, .katz_k = 5};
    for (int k = 3; k <= order; k++)
        twin->spec.prune[k] = CASES[at].prune;
    assert_int_equal(bp_dir_make(bp_test_path("counts")), BP_OK);
    bp_test_check_err(MPI_COMM_SELF, twin_make(twin, tokens, TOKENS, V, bp_test_path("counts")),
                      BP_OK);
}

static double sum_after(const ngram_twin *twin, const int32_t *history, int n)
{
    double sum = 0;

    for (int32_t w = 0; w < V; w++)
        sum += twin_probability(twin, history, n, w);
    return sum;
}

/* Histories of the text, whose first word may be <s>. */
static int history_at(const int32_t *tokens, int64_t end, int most, int32_t *history)
{
    int n = 0;

    while (n < most && end - n > 0 && tokens[end - n - 1] != V - 1)
        n++;
    for (int k = 0; k < n; k++)
        history[k] = tokens[end - n + k];
    if (n == most)
        return n;
    memmove(history + 1, history, (size_t)n * sizeof *history);
    history[0] = V;
    return n + 1;
}

static void probabilities_add_up_to_one(void **unused)
{
    int32_t tokens[TOKENS], history[NGRAM_ORDER_MOST + 1];

    (void)unused;
    make_text(tokens, TOKENS);
    for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++)
        for (int order = 1; order <= 4; order++) {
            ngram_twin twin;

            make(&twin, order, (int)c, tokens);
            for (int64_t end = 0; end < TOKENS; end++) {
                int n = history_at(tokens, end, order - 1, history);

                if (fabs(sum_after(&twin, history, n) - 1) > 1e-9)
                    fail_msg("%s of order %d: %.12g after token %d", CASES[c].name, order,
                             sum_after(&twin, history, n), (int)end);
            }
            for (int k = 0; k < RANDOM; k++) { /* most of them were never seen */
                for (int j = 0; j < order - 1; j++)
                    history[j] = (int32_t)draw(V - 1);
                double sum = sum_after(&twin, history, order - 1);

                if (CASES[c].smoothing == NGRAM_MLE && sum == 0)
                    continue;
                if (fabs(sum - 1) > 1e-9)
                    fail_msg("%s of order %d: %.12g", CASES[c].name, order, sum);
            }
            ngram_levels_clear(&twin.levels);
        }
}

static void check_walk(const ngram_twin *twin, const ngram_file *file, const int32_t *tokens)
{
    float all[V];
    ngram_state at = ngram_start(file);

    for (int64_t end = 0; end < TOKENS; end++) {
        int32_t history[NGRAM_ORDER_MOST + 1];
        int n = history_at(tokens, end, file->order - 1, history);

        ngram_distribution(file, at, all);
        for (int32_t w = 0; w < V; w++) {
            double p = twin_probability(twin, history, n, w), found;
            ngram_state next = at;

            found = ngram_step(file, &next, (uint32_t)w, NULL);
            if (p == 0 ? !NGRAM_IS_ZERO(found) : fabs(found - log10(p)) > 1e-5)
                fail_msg("order %d, token %d: %.9g where %.9g is right", file->order, (int)end,
                         found, log10(p));
            assert_true(fabs((double)all[w] - found * M_LN10) < 1e-4 * fabs((double)all[w]) + 1e-5);
        }
        (void)ngram_step(file, &at, (uint32_t)tokens[end], NULL);
        if (tokens[end] == V - 1)
            at = ngram_start(file);
    }
}

static void the_file_gives_what_was_estimated(void **unused)
{
    int32_t tokens[TOKENS];
    const char *path = bp_test_path("model.bin");

    (void)unused;
    make_text(tokens, TOKENS);
    for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++)
        for (int order = 1; order <= 4; order++) {
            ngram_twin twin;
            ngram_file file;

            make(&twin, order, (int)c, tokens);
            bp_test_check_err(MPI_COMM_SELF,
                              ngram_write(path, MPI_COMM_SELF, &twin.spec, &twin.levels, "test"),
                              BP_OK);
            bp_test_check_err(MPI_COMM_SELF, ngram_file_open(&file, path), BP_OK);
            check_walk(&twin, &file, tokens);
            ngram_file_close(&file);
            ngram_levels_clear(&twin.levels);
        }
}

#define PIECES 40

/* Inputs whose targets are mostly the next ones, else others or none; documents end in between. */
static void one_after_another(const ngram_file *file, const ngram_sequence *of, float *values)
{
    ngram_state at = of->state;

    for (int64_t k = 0; k < of->length; k++) {
        ngram_state next;

        if (of->inputs[k] == of->eod)
            at = ngram_start(file);
        else
            (void)ngram_step(file, &at, (uint32_t)of->inputs[k], NULL);
        next = at;
        values[k] = NAN;
        if (of->targets[k] >= 0)
            values[k] = (float)(ngram_step(file, &next, (uint32_t)of->targets[k], NULL) * M_LN10);
    }
}

static void check_pieces(const ngram_file *file, const int32_t *tokens)
{
    ngram_sequence pieces[PIECES];
    float values[TOKENS], expected[TOKENS];
    int32_t targets[TOKENS];
    int64_t count = 0;

    for (int64_t k = 0; k < TOKENS; k++)
        targets[k] = draw(9) == 0                      ? -1
                     : draw(9) == 0 || k + 1 == TOKENS ? (int32_t)draw(V)
                                                       : tokens[k + 1];
    one_after_another(file, &(ngram_sequence){tokens, targets, NULL, TOKENS, 0, V - 1, {0}},
                      expected);
    for (int64_t at = 0; at < TOKENS; count++) {
        int64_t now = 1 + draw(TOKENS / PIECES * 2), back = file->order - 1;

        back = at < back ? at : back;
        now = now > TOKENS - at || count == PIECES - 1 ? TOKENS - at : now;
        pieces[count] = (ngram_sequence){.inputs = tokens + at - back,
                                         .targets = targets + at - back,
                                         .values = values + at - back,
                                         .length = back + now,
                                         .first = back,
                                         .eod = V - 1};
        at += now;
    }
    ngram_walk(file, pieces, count);
    for (int64_t k = 0; k < TOKENS; k++)
        assert_true(targets[k] < 0 ? isnan(values[k]) : values[k] == expected[k]);
}

static void the_file_gives_the_same_side_by_side(void **unused)
{
    int32_t tokens[TOKENS];
    const char *path = bp_test_path("model.bin");

    (void)unused;
    make_text(tokens, TOKENS);
    for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++)
        for (int order = 1; order <= 4; order++) {
            ngram_twin twin;
            ngram_file file;

            make(&twin, order, (int)c, tokens);
            bp_test_check_err(MPI_COMM_SELF,
                              ngram_write(path, MPI_COMM_SELF, &twin.spec, &twin.levels, "test"),
                              BP_OK);
            bp_test_check_err(MPI_COMM_SELF, ngram_file_open(&file, path), BP_OK);
            for (int round = 0; round < 20; round++)
                check_pieces(&file, tokens);
            ngram_file_close(&file);
            ngram_levels_clear(&twin.levels);
        }
}

/* Katz 1987: all that is taken off is Good-Turing's estimate of what was not seen, n1; and it is in
 * proportion to what Good-Turing takes off, 1 - r-star / r. */
static void katz_discounts_satisfy_both_constraints(void **unused)
{
    int64_t n[NGRAM_COUNTS] = {0, 900, 310, 150, 90, 60, 43, 32, 25, 20};
    ngram_rule rule = {.smoothing = NGRAM_KATZ, .katz_k = 7};
    char warning[400];
    double taken = 0, common = 0;

    (void)unused;
    ngram_rule_fit(&rule, 3, n, warning, sizeof warning);
    assert_string_equal(warning, "");
    for (int r = 1; r <= 7; r++) {
        double star = (double)(r + 1) * (double)n[r + 1] / (double)n[r];
        double share = (1 - rule.ratio[3][r]) / (1 - star / r);

        taken += (double)(n[r] * r) * (1 - rule.ratio[3][r]);
        common = r == 1 ? share : common;
        assert_true(fabs(share - common) < 1e-12);
    }
    assert_true(fabs(taken - (double)n[1]) < 1e-9);
}

static void counts_of_counts_that_give_no_discount_are_reported(void **unused)
{
    int64_t none[NGRAM_COUNTS] = {0, 5, 0, 1}, rising[NGRAM_COUNTS] = {0, 2, 9, 1, 1};
    ngram_rule rule = {.smoothing = NGRAM_KNESER_NEY, .katz_k = 7};
    char warning[400];

    (void)unused;
    ngram_rule_fit(&rule, 2, none, warning, sizeof warning);
    assert_non_null(strstr(warning, "n1 = 5, n2 = 0, n3 = 1, n4 = 0"));
    assert_true(rule.discount[2][1] == 0.5 && rule.discount[2][2] == 1 &&
                rule.discount[2][3] == 1.5);
    rule.smoothing = NGRAM_KATZ;
    ngram_rule_fit(&rule, 2, rising, warning, sizeof warning);
    assert_non_null(strstr(warning, "n1 = 2, n2 = 9"));
    assert_true(rule.ratio[2][1] == 1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_add_up_to_one),
        cmocka_unit_test(the_file_gives_what_was_estimated),
        cmocka_unit_test(the_file_gives_the_same_side_by_side),
        cmocka_unit_test(katz_discounts_satisfy_both_constraints),
        cmocka_unit_test(counts_of_counts_that_give_no_discount_are_reported),
    };

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
