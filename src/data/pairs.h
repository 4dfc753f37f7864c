/* Corpora of pairs: a document's first text is a source, its second one the target. Local: no MPI.
 */
#pragma once

#include "io/corpus/corpus_file.h"

/** What a model requires of pairs. */
typedef struct bp_pairs_rule {
    int64_t context; /* the most tokens of a text, including its end */
    bool ends;       /* an end-of-document token follows each text */
    int64_t between; /* both texts are in one stream, with this many tokens between them; -1:
                        separate streams */
} bp_pairs_rule;

/** The number of pairs; of pairs with a text that, with its end, is longer than the context; and of
 * target tokens (ends included) that fit into the context. */
typedef struct bp_pair_counts {
    int64_t pairs, longer, targets;
} bp_pair_counts;

/** Add a file's pairs to *counts.
 *
 * Errors: BP_ERR_CONFIG a document that is not a pair; BP_ERR_FORMAT an empty text, if texts have
 * no end token; those of reading the file.
 */
bp_err bp_pairs_count(bp_corpus_file *file, const bp_pairs_rule *rule, bp_pair_counts *counts);
