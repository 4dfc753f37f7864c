/* Tokens sorted once by a score, so that a resample of documents needs no sort of its own. Local:
 * no MPI. */
#pragma once

#include "base/err.h"

#include <stdint.h>

/** Tokens in ascending order of `score`; ties in the order in which they were given. */
typedef struct bp_token_order {
    int64_t tokens;
    float *score;
    float *nll;        /* 0 if no NLL was given */
    uint32_t *owner;   /* 2 document + correct */
    int64_t documents; /* number of documents */
    int64_t *lengths;  /* [documents]: their numbers of tokens */
} bp_token_order;

/** The tokens to sort. */
typedef struct bp_token_table {
    int64_t tokens, documents;
    const float *score;           /* [tokens]; NaN: left out */
    const unsigned char *correct; /* [tokens]: 0 or 1 */
    const float *nll;             /* [tokens], or NULL */
    const int64_t *doc_start;     /* [documents + 1]: tokens of each document; NULL: one document */
} bp_token_table;

/** Owns:       *out is the caller's, bp_token_order_free().
 *  Errors:     BP_ERR_SYSTEM memory. */
bp_err bp_token_order_new(bp_token_order **out, const bp_token_table *table);

/** The total of tokens if each document counts counts[document] times (NULL: once). */
int64_t bp_token_order_total(const bp_token_order *order, const int32_t *counts);

/** How often the token at a place counts. */
static inline int64_t bp_token_order_weight(const bp_token_order *order, const int32_t *counts,
                                            int64_t place)
{
    return !counts ? 1 : counts[order->owner[place] >> 1];
}
void bp_token_order_free(bp_token_order **order);
