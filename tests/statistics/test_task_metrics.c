/* Entities of tags, and answers; test_oracles.py has scikit-learn's and scipy's figures of classes
 * and numbers. */
#include "bp_test.h"

#include "statistics/correlation.h"
#include "statistics/task_metrics.h"

#include <math.h>

enum { MOST = 12 };

/* A line of tags with blanks between, split in place. */
static int64_t split(const char *tags[MOST], char *line)
{
    int64_t n = 0;

    for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
        tags[n++] = word;
    return n;
}

static bp_entity_counts compare(const char *label, const char *predicted)
{
    char lines[2][256];
    const char *tags[2][MOST];

    (void)snprintf(lines[0], sizeof lines[0], "%s", label);
    (void)snprintf(lines[1], sizeof lines[1], "%s", predicted);
    int64_t n = split(tags[0], lines[0]);
    assert_int_equal(split(tags[1], lines[1]), n);
    return bp_entities_compare(tags[0], tags[1], n);
}

static void expect(const char *label, const char *predicted, int64_t labelled, int64_t found,
                   int64_t right)
{
    bp_entity_counts got = compare(label, predicted);

    if (got.labelled != labelled || got.predicted != found || got.right != right)
        fail_msg("%s | %s: %lld, %lld, %lld entities", label, predicted, (long long)got.labelled,
                 (long long)got.predicted, (long long)got.right);
}

static void entities_are_those_of_conlleval(void **state)
{
    (void)state;
    expect("B-PER I-PER O B-LOC", "B-PER I-PER O B-LOC", 2, 2, 2);
    expect("B-PER I-PER O B-LOC", "B-PER O O B-LOC", 2, 2, 1);         /* too short */
    expect("B-PER O O B-LOC", "B-PER I-PER O B-LOC", 2, 2, 1);         /* too long */
    expect("B-PER I-PER", "B-LOC I-LOC", 1, 1, 0);                     /* another type */
    expect("B-PER I-PER", "B-PER I-LOC", 1, 2, 0);                     /* the type changes */
    expect("B-PER B-PER", "B-PER I-PER", 2, 1, 0);                     /* two, or one */
    expect("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC", 2, 2, 2);     /* IOB1 and IOB2 */
    expect("S-PER B-LOC E-LOC", "B-PER B-LOC I-LOC", 2, 2, 2);         /* IOBES */
    expect("U-PER B-LOC L-LOC U-X", "S-PER B-LOC E-LOC S-X", 3, 3, 3); /* BILOU */
    expect("S-PER S-PER", "S-PER E-PER", 2, 2, 2);
    expect("B-LOC I-LOC I-LOC", "B-LOC E-LOC E-LOC", 1, 2, 0);
    expect("O B-PER I-PER", "O O O", 1, 0, 0);
    expect("O O", "I-PER I-PER", 0, 1, 0);
    expect("NN VB", "NN NN", 0, 0, 0); /* parts of speech: none */
    assert_int_equal(compare("NN VB", "NN NN").tags_right, 1);
    expect("", "", 0, 0, 0);
}

/* The entities as a list, found by another way: from each token the run that belongs to it. */
typedef struct found {
    int64_t first, end;
    char type;
} found;

static int64_t list_entities(found *out, const char *const *tags, int64_t n)
{
    int64_t count = 0;

    for (int64_t k = 0; k < n; k++) {
        if (tags[k][0] == 'O')
            continue;
        int64_t end = k + 1;
        while (tags[end - 1][0] != 'E' && tags[end - 1][0] != 'S' && end < n &&
               (tags[end][0] == 'I' || tags[end][0] == 'E') && tags[end][2] == tags[k][2])
            end++;
        out[count++] = (found){k, end, tags[k][2]};
        k = end - 1;
    }
    return count;
}

static void random_tags_have_the_entities_of_a_list(void **state)
{
    static const char *const TAGS[] = {"O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "O"};
    uint32_t random = 1;
    int64_t rights = 0;

    (void)state;
    for (int round = 0; round < 4000; round++) {
        const char *tags[2][MOST];
        found lists[2][MOST];
        int64_t n = 1 + round % MOST, right = 0;

        for (int64_t k = 0; k < 2 * n; k++) {
            random = random * 1664525u + 1013904223u;
            tags[k % 2][k / 2] =
                k % 2 == 1 && random >> 29 < 5 ? tags[0][k / 2] : TAGS[(random >> 16) % 9];
        }
        int64_t counts[2] = {list_entities(lists[0], tags[0], n),
                             list_entities(lists[1], tags[1], n)};
        for (int64_t i = 0; i < counts[0]; i++)
            for (int64_t j = 0; j < counts[1]; j++)
                right += lists[0][i].first == lists[1][j].first &&
                         lists[0][i].end == lists[1][j].end && lists[0][i].type == lists[1][j].type;
        bp_entity_counts got = bp_entities_compare(tags[0], tags[1], n);
        assert_int_equal(got.labelled, counts[0]);
        assert_int_equal(got.predicted, counts[1]);
        assert_int_equal(got.right, right);
        rights += right;
    }
    assert_true(rights > 4000);
}

static void figures_of_tags_are_of_all_sentences(void **state)
{
    const bp_entity_counts counts[2] = {{4, 2, 2, 10, 8}, {2, 3, 1, 5, 4}};
    const bp_tag_answers answers = {2, counts};
    const int32_t second[2] = {0, 2};
    double got[4];

    (void)state;
    bp_metric_tags.figures(got, NULL, &answers);
    assert_float_equal(got[0], 3 / 5.0, 1e-15);
    assert_float_equal(got[1], 3 / 6.0, 1e-15);
    assert_float_equal(got[2], 6 / 11.0, 1e-15);
    assert_float_equal(got[3], 12 / 15.0, 1e-15);
    bp_metric_tags.figures(got, second, &answers);
    assert_float_equal(got[0], 1 / 3.0, 1e-15);
    assert_float_equal(got[2], 2 / 5.0, 1e-15);
}

static void answers_without_words_are_equal_to_none_else(void **state)
{
    (void)state;
    assert_true(bp_answer_f1(0, 0, 0) == 1);
    assert_true(bp_answer_f1(0, 3, 0) == 0);
    assert_true(bp_answer_f1(0, 0, 3) == 0);
    assert_float_equal(bp_answer_f1(2, 3, 4), 4 / 7.0, 1e-15);
}

static void one_document_has_no_interval(void **state)
{
    const double one[1] = {1}, half[1] = {0.5};
    bp_figure figures[2];
    bp_figure_pair pairs[2];

    (void)state;
    bp_test_expect(
        bp_metric_estimate(figures, &bp_metric_spans, &(bp_span_answers){1, one, half}, 1, 1),
        BP_OK);
    assert_true(figures[1].value == 0.5 && isnan(figures[1].interval.low));
    bp_test_expect(bp_metric_compare(pairs, &bp_metric_spans, &(bp_span_answers){1, one, half},
                                     &(bp_span_answers){1, half, half}, 1, 1),
                   BP_OK);
    assert_true(pairs[0].difference.value == 0.5 && isnan(pairs[0].p_value));
}

static void a_value_that_is_nan_has_no_rank(void **state)
{
    const double x[] = {3, NAN, 1, 2, NAN}, y[] = {1, 2, 3, 4, 5};
    const int32_t once[] = {1, 1, 1, 1, 1};
    int64_t order_x[5], order_y[5];

    (void)state;
    assert_true(isnan(bp_spearman(x, y, 5)) && isnan(bp_spearman(y, x, 5)));
    bp_order_of(order_x, x, 5);
    bp_order_of(order_y, y, 5);
    assert_true(isnan(bp_spearman_counted(x, y, order_x, order_y, once, 5)));
    assert_true(bp_spearman(y, y, 5) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entities_are_those_of_conlleval),
        cmocka_unit_test(random_tags_have_the_entities_of_a_list),
        cmocka_unit_test(figures_of_tags_are_of_all_sentences),
        cmocka_unit_test(answers_without_words_are_equal_to_none_else),
        cmocka_unit_test(one_document_has_no_interval),
        cmocka_unit_test(a_value_that_is_nan_has_no_rank),
    };

    return BP_TEST_RUN(tests);
}
