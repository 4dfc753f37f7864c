/* Sorting tokens by a score, for risk.c, detection.c and pages. */
#include "statistics/token_order.h"

#include "base/mem.h"

#include <stdlib.h>

typedef struct keyed_token {
    float score;
    uint32_t owner;
    int64_t token;
} keyed_token;

static int compare_tokens(const void *a, const void *b)
{
    const keyed_token *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

static int64_t gather(keyed_token *keyed, const bp_token_table *table)
{
    int64_t n = 0, document = 0;

    for (int64_t i = 0; i < table->tokens; i++) {
        while (table->doc_start && i >= table->doc_start[document + 1])
            document++;
        if (table->score[i] == table->score[i]) /* NaN is not */
            keyed[n++] = (keyed_token){table->score[i],
                                       2 * (uint32_t)document + (table->correct[i] != 0), i};
    }
    return n;
}

static void fill(bp_token_order *order, const keyed_token *keyed, const float *nll)
{
    for (int64_t i = 0; i < order->tokens; i++) {
        order->score[i] = keyed[i].score;
        order->owner[i] = keyed[i].owner;
        order->nll[i] = nll ? nll[keyed[i].token] : 0;
        order->lengths[keyed[i].owner >> 1]++;
    }
}

bp_err bp_token_order_new(bp_token_order **out, const bp_token_table *table)
{
    keyed_token *keyed = bp_try_alloc("statistics.sort", table->tokens, sizeof *keyed);
    bp_token_order *order = bp_try_alloc("statistics.order", 1, sizeof *order);

    *out = NULL;
    BP_ASSERT(table->documents < INT32_MAX);
    if (keyed && order) {
        order->tokens = gather(keyed, table);
        order->documents = table->doc_start ? table->documents : 1;
        order->score = bp_try_alloc("statistics.order", order->tokens, sizeof *order->score);
        order->nll = bp_try_alloc("statistics.order", order->tokens, sizeof *order->nll);
        order->owner = bp_try_alloc("statistics.order", order->tokens, sizeof *order->owner);
        order->lengths = bp_try_alloc("statistics.order", order->documents, sizeof *order->lengths);
    }
    if (!order || !order->score || !order->nll || !order->owner || !order->lengths) {
        bp_free(keyed);
        bp_token_order_free(&order);
        return bp_fail_memory("tokens in order", table->tokens, sizeof *keyed);
    }
    qsort(keyed, (size_t)order->tokens, sizeof *keyed, compare_tokens);
    fill(order, keyed, table->nll);
    bp_free(keyed);
    *out = order;
    return BP_OK;
}

int64_t bp_token_order_total(const bp_token_order *order, const int32_t *counts)
{
    int64_t total = 0;

    if (!counts)
        return order->tokens;
    for (int64_t d = 0; d < order->documents; d++)
        total += counts[d] * order->lengths[d];
    return total;
}

void bp_token_order_free(bp_token_order **order)
{
    if (!*order)
        return;
    bp_free((*order)->lengths);
    bp_free((*order)->owner);
    bp_free((*order)->nll);
    bp_free((*order)->score);
    bp_free(*order);
    *order = NULL;
}
