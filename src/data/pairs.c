/* Checks, before training, that documents are pairs and fit the model. */
#include "data/pairs.h"

#include <inttypes.h>

bp_err bp_pairs_count(bp_corpus_file *file, const bp_pairs_rule *rule, bp_pair_counts *counts)
{
    const int64_t *segments, *starts, *documents;
    int64_t count = bp_corpus_file_info(file)->documents;
    bp_err err = bp_corpus_file_segments(file, &segments, &starts);

    if (err == BP_OK)
        err = bp_corpus_file_doc_start(file, &documents);
    for (int64_t d = 0; err == BP_OK && d < count; d++) {
        int64_t first = segments ? segments[d] : 0, texts = segments ? segments[d + 1] - first : 1;

        if (texts != 2)
            return BP_FAIL(BP_ERR_CONFIG, "corpus.no_pairs",
                           "document %" PRId64 " has %" PRId64
                           " texts, but %s reads a source and its target: at "
                           "%s; make the corpus with bagpipe-data corpus --format pairs",
                           d, texts, rule->between < 0 ? "an encoder-decoder" : "task.kind = text",
                           bp_corpus_file_path(file));
        int64_t source = starts[first + 1] - starts[first] + rule->ends,
                target = documents[d + 1] - starts[first + 1],
                capacity = rule->context - (rule->between < 0 ? 0 : rule->between - 1);

        if (source == 0 || target == 0)
            return BP_FAIL(BP_ERR_FORMAT, "corpus.empty_side",
                           "a text of document %" PRId64
                           " has no token, and no token ends texts: at %s; leave the pair out",
                           d, bp_corpus_file_path(file));
        counts->longer += rule->between < 0
                              ? source > rule->context || target > rule->context
                              : source - rule->ends + rule->between + target - 1 > rule->context;
        counts->targets += target < capacity ? target : capacity;
    }
    counts->pairs += count;
    return err;
}
