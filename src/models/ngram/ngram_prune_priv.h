/* Pruning by entropy (ngram.prune_entropy). */
#pragma once

#include "models/ngram/ngram_estimate_priv.h"

/** Take out n-grams of two words and more whose separate removal increases the model's perplexity
 * by a relative amount below spec->entropy; recomputes back-off weights. An n-gram that a longer
 * one begins or ends with stays while that one stays. The model backs off.
 *
 * Collective: over counting->comm.
 * Errors:     BP_ERR_SYSTEM memory; BP_ERR_STOPPED a stop was requested: the same on all ranks.
 * Source:     Stolcke 1998, "Entropy-based Pruning of Backoff Language Models", section 3; a
 *             history's probability is the model's own, and that of <s> is that of </s>, as in
 *             SRILM. */
bp_err ngram_prune(ngram_levels *levels, const bp_counting *counting, const ngram_spec *spec);
