/* Chooses the documents that are examples. Called by explain.c. */
#include "explain/examples/examples.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/sort.h"

#include <stdlib.h>

typedef struct candidate {
    double order; /* the smallest are taken, the first of equal ones */
    int64_t document;
} candidate;

static int by_order(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (x->order < y->order || x->order > y->order)
        return x->order < y->order ? -1 : 1;
    return x->document < y->document ? -1 : x->document > y->document;
}

void explain_examples_choose(explain_examples *out, explain_choice choice, int64_t most,
                             const explain_texts *texts, const double *hardness, uint64_t seed)
{
    int64_t documents = texts->documents;
    candidate *all = bp_alloc("explain.examples", documents, sizeof *all);
    bp_rng_key key = bp_rng_key_of(seed, BP_RNG_SHUFFLE, 0, 0, 0);
    int64_t found = 0;

    for (int64_t d = 0; d < documents; d++)
        if (texts->sizes[d].K > 0)
            all[found++] =
                (candidate){choice == EXPLAIN_HARDEST  ? -hardness[d]
                            : choice == EXPLAIN_RANDOM ? bp_rng_uniform(&key, (uint64_t)d)
                                                       : 0,
                            d};
    qsort(all, (size_t)found, sizeof *all, by_order);
    out->count = found < most ? found : most;
    out->documents = bp_alloc("explain.examples", out->count, sizeof *out->documents);
    for (int64_t k = 0; k < out->count; k++)
        out->documents[k] = all[k].document;
    qsort(out->documents, (size_t)out->count, sizeof *out->documents, bp_by_int64);
    bp_free(all);
}

void explain_examples_clear(explain_examples *examples)
{
    bp_free(examples->documents);
    *examples = (explain_examples){0};
}

int64_t explain_examples_find(const explain_examples *examples, int64_t document)
{
    const int64_t *found = examples->count > 0
                               ? bsearch(&document, examples->documents, (size_t)examples->count,
                                         sizeof document, bp_by_int64)
                               : NULL;

    return found ? found - examples->documents : -1;
}
