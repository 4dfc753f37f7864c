/* The groups of documents for which scores are reported: all, a corpus, a value of a label. */
#pragma once

#include "scores.h"

typedef enum score_scope { SCOPE_ALL, SCOPE_CORPUS, SCOPE_LABEL } score_scope;

typedef struct score_group {
    score_scope scope;
    const char *name,
        *value; /* of the corpus; of the label and its value; NULL if there is none; borrowed */
    const int64_t *documents; /* [count], ascending */
    int64_t count;
} score_group;

/** Replace each column's values[count] of documents by their sums over clusters, in the order in
 * which they first occur: documents of one number in cluster[count] (NULL: each is one). Returns
 * how many there are. */
int64_t score_clusters_sum(double *const *columns, int width, const int64_t *cluster,
                           int64_t count);

/** "all", "corpus", "label". */
const char *score_scope_name(score_scope scope);

/** Call `each` for all groups in this order, until one fails; its error is the result. The group is
 * valid only during the call. */
bp_err score_groups_each(const score_folder *scores,
                         bp_err (*each)(void *self, const score_group *group), void *self);
