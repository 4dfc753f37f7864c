/* The n-grams of each order of an ARPA file, and their conversion. Local: no MPI. */
#pragma once

#include "models/ngram/ngram_estimate_priv.h"

/** One line's n-gram: logarithms to base 10. */
typedef struct ngram_arpa_entry {
    float prob, left;
} ngram_arpa_entry;

typedef struct ngram_arpa_order {
    int64_t declared, count; /* n-grams that the header declares, and those that are kept */
    ngram_item *items;       /* by key in context order, once sorted; values: places in `entries` */
    ngram_arpa_entry *entries;
} ngram_arpa_order;

/** Sort the n-grams of orders 1 to spec->order, restore suffixes that were pruned away, and make
 * levels of all; ids and spec->vocab_size are known. `path` is for messages.
 *
 * Shapes:     of[NGRAM_ORDERS], from order 1 on; items may grow.
 * Owns:       *levels is the caller's, ngram_levels_clear(), after an error too.
 * Errors:     BP_ERR_FORMAT a duplicate n-gram, or one whose history is missing; BP_ERR_SYSTEM. */
bp_err ngram_arpa_fill(ngram_levels *levels, ngram_arpa_order *of, const ngram_spec *spec,
                       const char *path);
