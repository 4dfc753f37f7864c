/* Clusters of meaning: the greedy algorithm on relations that are and are not transitive, and the
 * entropies of the clusters. */
#include "bp_test.h"

#include "statistics/semantic.h"

#include <math.h>
#include <string.h>

/* same[one][other], and how often a row was asked for. */
typedef struct relation {
    const char *rows[6];
    int asked;
    bool fails;
} relation;

static bool ask(void *context, int64_t one, const int64_t *others, int64_t count, bool *same)
{
    relation *self = context;

    for (int64_t k = 0; k < count; k++)
        same[k] = self->rows[one][others[k]] == '1';
    self->asked += (int)count;
    return !self->fails;
}

static void texts_join_the_first_cluster_whose_first_text_is_the_same(void **state)
{
    relation of = {{"1", "01", "101", "0111", "00001", "000011"}, 0, false};
    const int64_t want[] = {0, 1, 0, 1, 2, 2};
    int64_t cluster[6];

    (void)state;
    assert_int_equal(bp_semantic_clusters(cluster, 6, ask, &of), 3);
    assert_memory_equal(cluster, want, sizeof want);
    assert_int_equal(of.asked, 0 + 1 + 2 + 2 + 2 + 3); /* first texts of clusters alone */
}

/* 2 is the same as 1, and 1 is not as 0: 2 is compared with the first of a cluster only. */
static void a_relation_need_not_be_transitive(void **state)
{
    relation of = {{"1", "11", "011", NULL, NULL, NULL}, 0, false};
    int64_t cluster[3];

    (void)state;
    assert_int_equal(bp_semantic_clusters(cluster, 3, ask, &of), 2);
    assert_true(cluster[0] == 0 && cluster[1] == 0 && cluster[2] == 1);
}

static void what_can_not_be_found_out_ends_it(void **state)
{
    relation of = {{"1", "01", NULL, NULL, NULL, NULL}, 0, true};
    int64_t cluster[2];

    (void)state;
    assert_int_equal(bp_semantic_clusters(cluster, 2, ask, &of), -1);
    assert_int_equal(bp_semantic_clusters(cluster, 1, ask, &of), 1);
}

static void near(double got, double want)
{
    assert_true(fabs(got - want) < 1e-12);
}

static void entropies_are_those_of_normalised_lengths_and_of_counts(void **state)
{
    const int64_t cluster[] = {0, 1, 0, 2}, tokens[] = {2, 1, 4, 0};
    const double logprob[] = {2 * log(0.5), log(0.25), 4 * log(0.125), log(0.125)};
    const double p[] = {0.625, 0.25, 0.125};
    double want = 0;

    (void)state;
    for (int c = 0; c < 3; c++)
        want -= p[c] * log(p[c]);
    near(bp_semantic_entropy(cluster, 3, logprob, tokens, 4), want);
    near(bp_semantic_entropy(cluster, 3, NULL, NULL, 4), 1.5 * log(2));
    near(bp_semantic_entropy((const int64_t[]){0, 0}, 1, logprob, tokens, 2), 0);
    const double far[] = {-5000, -5000}; /* no underflow */
    near(bp_semantic_entropy(cluster, 2, far, (const int64_t[]){1, 1}, 2), log(2));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_join_the_first_cluster_whose_first_text_is_the_same),
        cmocka_unit_test(a_relation_need_not_be_transitive),
        cmocka_unit_test(what_can_not_be_found_out_ends_it),
        cmocka_unit_test(entropies_are_those_of_normalised_lengths_and_of_counts),
    };
    return BP_TEST_RUN(tests);
}
