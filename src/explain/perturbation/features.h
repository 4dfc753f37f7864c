/* Features of a document, removed as a unit: words with all their occurrences. Local: no MPI. */
#pragma once

#include "explain/method.h"

/** Features of a source, if there is one, come first. A word of the source and the same word of the
 * target are different features. */
typedef struct explain_features {
    int64_t count, source_count; /* of all features; of the source's */
    int32_t *of_place; /* [T] the feature of each place, numbered by first occurrence; -1: a special
                          token, not a feature */
    int32_t *of_source; /* [S] */
    int64_t S;
} explain_features;

/** Owns: explain_features_clear(). */
void explain_features_of(explain_features *out, const bp_explain_settings *settings,
                         const bp_explained *document);
void explain_features_clear(explain_features *features);
/** Features of the source, and at positions [0, length). */
int64_t explain_features_before(const explain_features *features, int64_t length);
/** kept[length + S]: 1 at positions of a set of features and positions without a feature; then the
 * source's positions. */
void explain_features_keep(uint8_t *kept, const explain_features *features, const uint8_t *set,
                           int64_t length);
/** to[length] and to_source[S]: at each place the value of its feature; 0 if it has none. */
void explain_features_spread(float *to, float *to_source, const explain_features *features,
                             const double *values, int64_t length);
/** The numbers of the features: to[T], to_source[S]; -1 if there is none. */
void explain_features_write(float *to, float *to_source, const explain_features *features,
                            int64_t T);
/** The place after the end of the word that begins at `place`. */
int64_t explain_features_end(const bp_explain_settings *settings, const bp_explained *document,
                             int64_t place);
