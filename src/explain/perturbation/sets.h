/* The values of a document with sets of its features, for LIME and Shapley values. Collective over
 * settings->group. */
#pragma once

#include "explain/perturbation/features.h"
#include "explain/perturbation/surrogate.h"
#include "explain/perturbation/variants.h"

/** Sets of the features that one target depends on, or all targets of a document whose targets are
 * predicted at once. */
typedef struct explain_sets {
    explain_masks masks;
    int64_t outcomes; /* per set: explain_variants_outcomes */
    int64_t length;   /* inputs that it depends on */
    double *values;   /* [samples][outcomes]: explain_variants_value */
    double *of_one;   /* [samples] for explain_sets_of */
} explain_sets;

/** Allocate `samples` sets of the features before target k; masks.kept is 0. Owns:
 * explain_sets_clear(). Errors: BP_ERR_SYSTEM, on this rank only: the caller agrees on it. */
bp_err explain_sets_new(explain_sets *out, const bp_explain_settings *settings,
                        const bp_explained *document, const explain_features *features, int64_t k,
                        int64_t samples);
void explain_sets_clear(explain_sets *sets);
/** The key of a document's draws for target k: equal on all meshes. */
bp_rng_key explain_sets_key(const bp_explain_settings *settings, const bp_explained *document,
                            int64_t k);
/** Fills in `values`. Errors: those of explain_variants_end. */
bp_err explain_sets_run(explain_sets *sets, bp_model *model, const bp_explain_settings *settings,
                        const bp_explained *document, const explain_features *features, int64_t k);
/** values[samples] of one outcome; valid until the next call. */
const double *explain_sets_of(explain_sets *sets, int64_t outcome);
/** The next target after k: one run explains all at once, or one by one. */
static inline int64_t explain_sets_next(const bp_explain_settings *settings,
                                        const bp_explained *document, int64_t k)
{
    return explain_variants_at_once(settings, document) ? document->K : k + 1;
}
