/* The corpora of a training. */
#pragma once

#include "train/loop/trainer.h"

#include <string.h>

/** Opens `data` on leads and the coordinator (except loader and valid_table), and fills `facts` on
 * all ranks.
 *
 * Collective: over world.
 * Errors:     those of bp_corpus_open, bp_stream_new and bp_tokenizer_load; BP_ERR_CONFIG
 *             corpus.weights; BP_ERR_FORMAT corpora or a tokenizer that do not fit together: the
 *             same on all ranks. */
bp_err trainer_open_corpora(trainer *self);
/** Closes what is open in `data`, except the loader. Local. */
void trainer_close_corpora(trainer *self);

/** corpus.weights. Local.
 *
 * Shapes:     (*weights)[bp_corpus_files(corpus)]; NULL: the key is not given.
 * Owns:       *weights is the caller's, bp_free().
 * Errors:     BP_ERR_CONFIG their number differs from the number of files. */
bp_err bp_trainer_weights(double **weights, const bp_config *config, const bp_corpus *corpus);

/** Does the training draw its documents? Local. */
static inline bool trainer_bags(const bp_config *config)
{
    return strcmp(bp_corpus_keys_of(config)->resample, "bag") == 0;
}
/** Log how many clusters are in the bag; warn of a corpus.cluster that draws nothing. On the
 * coordinator. */
void trainer_say_clusters(const trainer *self);
/** A bag needs at least 2 documents. Warns if there are few, or few clusters of the label `cluster`
 * (NULL: none), since bags then vary little. Local. Errors: BP_ERR_FORMAT; those of
 * bp_corpus_clusters. */
bp_err bp_trainer_check_bag(bp_corpus *corpus, const char *cluster);
