/* The agreement of methods about which inputs matter. Jain and Wallace 2019, "Attention is not
 * Explanation". Called by gather.c. */
#include "explain/pages/words.h"

#include "base/mem.h"
#include "statistics/correlation.h"
#include "statistics/ratio.h"

#include <math.h>

#define LEAST_INPUTS 5  /* the fewest inputs of a target for a meaningful order */
#define MOST_TARGETS 64 /* of a document, evenly spaced: orders are sorted for each */

struct explain_agreement {
    int count; /* methods with a matrix */
    const bp_explain_method *of[EXPLAIN_MATRICES];
    const bp_explain_array *arrays[EXPLAIN_MATRICES];
    bp_ratio ratios[EXPLAIN_MATRICES][EXPLAIN_MATRICES];
    double *rows; /* [count][T] */
    int64_t capacity;
};

explain_agreement *explain_agreement_new(void)
{
    return bp_alloc("explain.agreement", 1, sizeof(explain_agreement));
}

void explain_agreement_free(explain_agreement **agreement)
{
    if (*agreement)
        bp_free((*agreement)->rows);
    bp_free(*agreement);
    *agreement = NULL;
}

/* For each method, its matrix of attributions. */
static int main_matrices(explain_matrix *out, const explain_matrix *matrices, int count)
{
    int found = 0;

    for (int m = 0; m < count; m++)
        if (explain_matrix_is_main(&matrices[m]))
            out[found++] = matrices[m];
    return found;
}

typedef struct pair_sum {
    double sum;
    int64_t targets;
} pair_sum;

/* Target k; magnitudes count, not signs. */
static void add_target(explain_agreement *self, const bp_explained *document, int64_t n,
                       const explain_matrix *matrices, int64_t k,
                       pair_sum sums[EXPLAIN_MATRICES][EXPLAIN_MATRICES])
{
    int64_t T = document->T;

    for (int m = 0; m < self->count; m++)
        for (int64_t t = 0; t < n; t++)
            self->rows[m * T + t] = fabs((double)explain_matrix_row(&matrices[m], document, k)[t]);
    for (int one = 0; one < self->count; one++)
        for (int other = one + 1; other < self->count; other++) {
            double r = bp_spearman(self->rows + one * T, self->rows + other * T, n);

            if (!isfinite(r))
                continue;
            sums[one][other].sum += r;
            sums[one][other].targets++;
        }
}

void explain_agreement_add(explain_agreement *self, const bp_explain_settings *settings,
                           const bp_explained *document, const explain_matrix *matrices, int count)
{
    explain_matrix main[EXPLAIN_MATRICES];
    pair_sum sums[EXPLAIN_MATRICES][EXPLAIN_MATRICES] = {0};
    int64_t K = document->K, step = (K + MOST_TARGETS - 1) / MOST_TARGETS;

    self->count = main_matrices(main, matrices, count);
    for (int m = 0; m < self->count; m++) {
        self->of[m] = main[m].method;
        self->arrays[m] = main[m].array;
    }
    if (self->count < 2)
        return;
    self->rows = bp_grow("explain.agreement", self->rows, &self->capacity,
                         self->count * document->T, sizeof *self->rows);
    for (int64_t k = 0; k < K; k += step)
        if (bp_explain_length(settings, document, k) >= LEAST_INPUTS)
            add_target(self, document, bp_explain_length(settings, document, k), main, k, sums);
    for (int one = 0; one < self->count; one++)
        for (int other = one + 1; other < self->count; other++)
            if (sums[one][other].targets > 0)
                bp_ratio_add(&self->ratios[one][other],
                             sums[one][other].sum / (double)sums[one][other].targets, 1);
}

json_t *explain_agreement_json(const explain_agreement *self)
{
    json_t *list = json_array();

    for (int one = 0; one < self->count; one++)
        for (int other = one + 1; other < self->count; other++) {
            const bp_ratio *ratio = &self->ratios[one][other];

            (void)json_array_append_new(
                list,
                json_pack("{ss ss so so sI}", "one",
                          explain_matrix_title(self->of[one], self->arrays[one]), "other",
                          explain_matrix_title(self->of[other], self->arrays[other]), "spearman",
                          bp_json_real(bp_ratio_mean(ratio)), "interval",
                          bp_explain_interval(ratio), "documents", (json_int_t)ratio->documents));
        }
    return list;
}
