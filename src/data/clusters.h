/* Clusters of documents of a corpus: those that share a label's value, such as passages of one
 * book. Local: no MPI. */
#pragma once

#include "data/corpus.h"

/** labels[files]: the label `name` of each file; codes NULL: the file has none. Errors: those of
 * bp_corpus_file_label; BP_ERR_FORMAT a code without a value. */
bp_err bp_corpus_find_label(bp_corpus_label *labels, bp_corpus *corpus, const char *name);

/** (*cluster)[documents of the corpus]: documents of one number share the value of `label`, in
 * whichever file. Documents without a value, and those of files without the label, have a number of
 * their own.
 *
 * Shapes:     documents[count], ascending: those whose files need the label; NULL: all do.
 * Owns:       *cluster is the caller's, bp_free(); NULL after an error.
 * Errors:     those above; BP_ERR_FORMAT a needed file lacks the label (with the existing ones);
 *             BP_ERR_SYSTEM memory. */
bp_err bp_corpus_clusters(int64_t **cluster, bp_corpus *corpus, const char *label,
                          const int64_t *documents, int64_t count);
