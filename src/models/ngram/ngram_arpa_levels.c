/* N-grams of an ARPA file as levels in context order, with the missing suffixes. Called by
 * ngram_arpa_read.c. */
#include "models/ngram/ngram_arpa_levels_priv.h"

#include "base/mem.h"

#include <math.h>

#define ABOVE_ONE 1.00001 /* a probability above it is not rounding */

/* All orders of a file. */
typedef struct arpa_orders {
    ngram_arpa_order *of;
    const ngram_spec *spec;
    const char *path; /* for messages */
} arpa_orders;

/* ---- context order, and missing suffixes ---- */

static bp_err sort_order(arpa_orders *self, int order)
{
    ngram_arpa_order *of = &self->of[order];
    ngram_item *scratch = bp_try_alloc("ngram.arpa", of->count, sizeof *scratch);

    if (!scratch)
        return bp_fail_memory("n-grams to be sorted", of->count, sizeof *scratch);
    ngram_sort(of->items, scratch, of->count, self->spec->bits * order);
    bp_free(scratch);
    for (int64_t k = 1; k < of->count; k++)
        if (ngram_compare_items(&of->items[k - 1], &of->items[k]) == 0)
            return BP_FAIL(BP_ERR_FORMAT, "arpa.twice",
                           "an n-gram of order %d is there twice: at %s; make the "
                           "file anew",
                           order, self->path);
    return BP_OK;
}

/* The place of a key among those of an order; -1 if it is not there. */
static int64_t find_key(const ngram_arpa_order *of, ngram_key key)
{
    int64_t low = 0, high = of->count;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (ngram_item_key(&of->items[middle]) < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < of->count && ngram_item_key(&of->items[low]) == key ? low : -1;
}

static ngram_key suffix_of(ngram_key key, int order, int bits)
{
    return key & (((ngram_key)1 << (bits * (order - 1))) - 1);
}

/* Restores suffixes that were pruned away, since links lead to them. Their probability is that of
 * backing off (NaN until then), so the model does not change. Orders from the highest down. */
static bp_err add_suffixes(arpa_orders *self, int order)
{
    ngram_arpa_order *below = &self->of[order - 1];
    const ngram_arpa_order *of = &self->of[order];
    int64_t missing = 0, sorted = below->count;
    ngram_item *items;

    for (int64_t k = 0; k < of->count; k++)
        missing +=
            find_key(below, suffix_of(ngram_item_key(&of->items[k]), order, self->spec->bits)) < 0;
    if (missing == 0)
        return BP_OK;
    items = bp_try_realloc("ngram.arpa", below->items, sorted + missing, sizeof *items);
    if (!items)
        return bp_fail_memory("the n-grams", sorted + missing, sizeof *items);
    below->items = items;
    for (int64_t k = 0, added = 0; k < of->count; k++) {
        ngram_key key = suffix_of(ngram_item_key(&of->items[k]), order, self->spec->bits);
        ngram_arpa_order known = {.count = sorted, .items = items};

        if (find_key(&known, key) < 0)
            items[sorted + added++] = ngram_item_of(key, -1);
    }
    below->count += missing;
    ngram_item *scratch = bp_try_alloc("ngram.arpa", below->count, sizeof *scratch);
    if (!scratch)
        return bp_fail_memory("n-grams to be sorted", below->count, sizeof *scratch);
    ngram_sort(items, scratch, below->count, self->spec->bits * (order - 1));
    bp_free(scratch);
    sorted = 0; /* several n-grams may lack the same suffix */
    for (int64_t k = 0; k < below->count; k++)
        if (sorted == 0 || ngram_compare_items(&items[sorted - 1], &items[k]) != 0)
            items[sorted++] = items[k];
    below->count = sorted;
    return BP_OK;
}

/* ---- levels ---- */

static bp_err alloc_level(ngram_level *level, int64_t count)
{
    level->count = count;
    level->key = bp_try_alloc("ngram.levels", count, sizeof *level->key);
    level->prob = bp_try_alloc("ngram.levels", count, sizeof *level->prob);
    level->left = bp_try_alloc("ngram.levels", count, sizeof *level->left);
    level->begin = bp_try_alloc("ngram.levels", count + 1, sizeof *level->begin);
    level->link = bp_try_alloc("ngram.levels", count, sizeof *level->link);
    return level->key && level->prob && level->left && level->begin && level->link
               ? BP_OK
               : bp_fail_memory("the n-grams' probabilities", count, 5 * sizeof(double));
}

/* All ids have a node, also those missing from the file. */
static bp_err fill_words(const arpa_orders *self, ngram_levels *levels)
{
    ngram_level *level = &levels->of[1];
    bp_err err = alloc_level(level, self->spec->vocab_size + 1);

    for (int64_t id = 0; err == BP_OK && id < level->count; id++)
        level->left[id] = 1; /* probabilities are 0 */
    for (int64_t k = 0; err == BP_OK && k < self->of[1].count; k++) {
        const ngram_item *item = &self->of[1].items[k];
        int64_t id = (int64_t)ngram_item_key(item) - 1;

        level->prob[id] = pow(10, (double)self->of[1].entries[item->value].prob);
        level->left[id] = pow(10, (double)self->of[1].entries[item->value].left);
    }
    levels->total[1] = level->count;
    return err;
}

/* The place of a history, of the order below; -1: it is missing. */
static int64_t place_of(const arpa_orders *self, int order, ngram_key key)
{
    if (order == 1)
        return (int64_t)key - 1;
    return find_key(&self->of[order], key);
}

static bp_err fill_order(const arpa_orders *self, ngram_levels *levels, int order)
{
    const ngram_arpa_order *of = &self->of[order];
    ngram_level *level = &levels->of[order], *below = &levels->of[order - 1];
    int64_t next = 0;
    bp_err err = alloc_level(level, of->count);

    for (int64_t k = 0; k < of->count && err == BP_OK; k++) {
        const ngram_item *item = &of->items[k];
        ngram_key key = ngram_item_key(item);
        int64_t history = place_of(self, order - 1, key >> self->spec->bits);

        if (history < 0)
            return BP_FAIL(BP_ERR_FORMAT, "arpa.no_history",
                           "an n-gram of order %d has a history that is not an n-gram, so that its "
                           "back-off is missing: at %s; make the file anew",
                           order, self->path);
        level->key[k] = key;
        level->link[k] = place_of(self, order - 1, suffix_of(key, order, self->spec->bits));
        level->prob[k] = item->value < 0 ? below->left[history] * below->prob[level->link[k]]
                                         : pow(10, (double)of->entries[item->value].prob);
        if (level->prob[k] > ABOVE_ONE)
            return BP_FAIL(BP_ERR_FORMAT, "arpa.above_one",
                           "backing off gives an n-gram of order %d, which a longer one ends with, "
                           "a probability of %g: at %s; make the file anew",
                           order, level->prob[k], self->path);
        level->left[k] = item->value < 0 ? 1 : pow(10, (double)of->entries[item->value].left);
        for (; next <= history; next++)
            below->begin[next] = k;
    }
    for (; err == BP_OK && next <= below->count; next++)
        below->begin[next] = of->count;
    levels->total[order] = of->count;
    return err;
}

bp_err ngram_arpa_fill(ngram_levels *levels, ngram_arpa_order *of, const ngram_spec *spec,
                       const char *path)
{
    arpa_orders all = {of, spec, path}, *self = &all;
    int order = spec->order;
    bp_err err = BP_OK;

    for (int k = 1; k <= order && err == BP_OK; k++)
        err = sort_order(self, k);
    for (int k = order; k > 2 && err == BP_OK; k--)
        err = add_suffixes(self, k);
    if (err == BP_OK)
        err = fill_words(self, levels);
    for (int k = 2; k <= order && err == BP_OK; k++)
        err = fill_order(self, levels, k);
    return err;
}
