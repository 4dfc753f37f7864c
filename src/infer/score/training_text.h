/* Is scored text known from training, or of another form than the training text? */
#ifndef BP_INFER_SCORE_TRAINING_TEXT_H
#define BP_INFER_SCORE_TRAINING_TEXT_H

#include "data/corpus.h"

/** Warn if `corpus` is the text that the model at `path` (a checkpoint, or the first member of an
 * ensemble) was trained on, if documents of it are, or if tokens of it never occur there. The
 * training text is that of the run's config.ini, if its file still has the content that the
 * checkpoint names, and both texts have at most BP_TRAINING_TEXT_TOKENS tokens; else only equal
 * corpora are found. Also warn if documents are ten times as long
 * as those of the training text, or a tenth, and of short documents of a model whose training
 * carried its state over documents, since scoring begins each with the zero state.
 *
 * Local: called where the corpus was opened, on one rank. What can't be read is not compared. */
void bp_training_text_warn(const char *path, bp_corpus *corpus);

/** Reading so many takes about a second. */
#define BP_TRAINING_TEXT_TOKENS (INT64_C(32) << 20)

#endif
