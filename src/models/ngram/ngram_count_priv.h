/* Counting: each rank turns its share of the stream into sorted runs. */
#pragma once

#include "models/ngram/ngram_estimate_priv.h"

/** The settings of the keys. The vocabulary is the shape's. */
ngram_spec ngram_spec_of(const bp_config *config, const bp_model_shape *shape, int64_t eod_id);

/** Count the tokens that no run of `folder` holds yet, so that runs cover the whole stream. Stops
 * between two runs if a stop was requested.
 *
 * Collective: over counting->comm.
 * Owns:       *runs is the caller's, ngram_runs_free(): those of the whole stream, on all ranks.
 * Errors:     those of counting->read and ngram_run_write; BP_ERR_STOPPED: the same on all ranks.
 */
bp_err ngram_count_stream(ngram_run **runs, int64_t *count, const bp_counting *counting,
                          const ngram_spec *spec, const char *work);

/** items[tokens]: the n-grams that end at the first tokens of the stream. Local. Errors: those of
 * counting->read. */
bp_err ngram_read_sample(const bp_counting *counting, const ngram_spec *spec, int64_t tokens,
                         ngram_item *items);

/** counting->valid_loss, by the model's file `path`: of each token given those before it in its
 * document, and <s> before the first.
 *
 * Collective: over counting->comm; there are valid_tokens.
 * Errors:     those of ngram_file_open and counting->read_valid; BP_ERR_STOPPED: the same on all
 *             ranks. */
bp_err ngram_validate(bp_counting *counting, const char *path);

/** bp_counting_ops.plan. */
bp_err ngram_plan(const bp_counting *counting, int ranks);
/** bp_counting_ops.count. */
bp_err ngram_count(bp_counting *counting);
