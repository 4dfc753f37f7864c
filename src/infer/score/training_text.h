/* Is scored text known from training, or of another form than the training text? */
#pragma once

#include "base/config/json.h"
#include "data/corpus.h"

/** Scored text that a warning says is in the training text; all 0: none. */
typedef struct bp_known_text {
    int64_t documents, of; /* of all */
    double share;          /* of all tokens */
} bp_known_text;

/** Warn if `corpus` is the text that the model at `path` (a checkpoint, or the first member of an
 * ensemble) was trained on, if documents of it are, or if tokens of it never occur there. The
 * training text is that of the run's config.ini, if its file still has the content that the
 * checkpoint names, and both texts have at most BP_TRAINING_TEXT_TOKENS tokens; else only equal
 * corpora are found. Also warn if documents are ten times as long
 * as those of the training text, or a tenth, and of short documents of a model whose training
 * carried its state over documents, since scoring begins each with the zero state.
 *
 * Returns what was warned of, for the results.
 * Local: called where the corpus was opened, on one rank. What can't be read is not compared. */
bp_known_text bp_training_text_warn(const char *path, bp_corpus *corpus);
/** Add `training_text` to a summary, if a warning was given. */
void bp_training_text_record(json_t *summary, const bp_known_text *known);

/** Reading so many takes about a second. */
#define BP_TRAINING_TEXT_TOKENS (INT64_C(32) << 20)
