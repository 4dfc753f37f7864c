/* N-grams: sorted lists, and what they have in common. For BLEU, chrF and ROUGE. */
#include "base/files/hash.h"
#include "base/mem.h"
#include "base/sort.h"
#include "text_metrics/words_priv.h"

#include <stdlib.h>

void bp_grams_of(bp_grams *grams, const bp_words *words, int64_t order)
{
    grams->count = words->count >= order ? words->count - order + 1 : 0;
    grams->list =
        bp_grow("metrics.grams", grams->list, &grams->capacity, grams->count, sizeof *grams->list);
    for (int64_t k = 0; k < grams->count; k++)
        grams->list[k] = bp_xxh3(words->list + k, (size_t)order * sizeof *words->list);
    if (grams->count > 0)
        qsort(grams->list, (size_t)grams->count, sizeof *grams->list, bp_by_uint64);
}

void bp_grams_clear(bp_grams *grams)
{
    bp_free(grams->list);
    *grams = (bp_grams){0};
}

static int64_t count_of(const bp_grams *grams, uint64_t gram)
{
    int64_t low = 0, high = grams->count, first;

    while (low < high) {
        int64_t middle = (low + high) / 2;

        if (grams->list[middle] < gram)
            low = middle + 1;
        else
            high = middle;
    }
    for (first = low; low < grams->count && grams->list[low] == gram; low++)
        ;
    return low - first;
}

int64_t bp_grams_common(const bp_grams *hypothesis, const bp_grams *references, int64_t count)
{
    int64_t common = 0;

    for (int64_t first = 0, end; first < hypothesis->count; first = end) {
        int64_t most = 0;

        for (end = first;
             end < hypothesis->count && hypothesis->list[end] == hypothesis->list[first]; end++)
            ;
        for (int64_t r = 0; r < count; r++) {
            int64_t here = count_of(&references[r], hypothesis->list[first]);

            most = here > most ? here : most;
        }
        common += most < end - first ? most : end - first;
    }
    return common;
}
