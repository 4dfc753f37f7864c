/* What is removed of a document together: words with all their occurrences. Local: no MPI. */
#ifndef BP_EXPLAIN_FEATURES_H
#define BP_EXPLAIN_FEATURES_H

#include "explain/method.h"

typedef struct explain_features {
    int64_t count;
    int32_t *of_place; /* [T] the feature of each place, in the order in which they come first;
                          -1: a special token, which is none */
} explain_features;

/** Owns: explain_features_clear(). */
void explain_features_of(explain_features *out, const bp_explain_settings *settings,
                         const bp_explained *document);
void explain_features_clear(explain_features *features);
/** Features at places [0, length). */
int64_t explain_features_before(const explain_features *features, int64_t length);
/** kept[length]: the places that a set of features has, and those of no feature. */
void explain_features_keep(uint8_t *kept, const explain_features *features, const uint8_t *set,
                           int64_t length);
/** to[length]: at each place the value of its feature; 0: it has none. */
void explain_features_spread(float *to, const explain_features *features, const double *values,
                             int64_t length);

#endif
