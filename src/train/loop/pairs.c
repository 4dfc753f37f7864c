/* Trainings on pairs, a source and its target: do the corpora have them, and do they fit? */
#include "train/loop/trainer_priv.h"

#include "base/log.h"

#include <inttypes.h>

/* Pairs of a corpus; those with a text that, with its end, is longer than the context. */
typedef struct pair_counts {
    int64_t pairs, longer;
} pair_counts;

static bp_err count_file(const trainer *self, bp_corpus_file *file, pair_counts *counts)
{
    const int64_t *segments, *starts, *documents;
    int64_t ends = self->facts.eod_id >= 0 ? 1 : 0, context = self->shape.context,
            count = bp_corpus_file_info(file)->documents;
    bp_err err = bp_corpus_file_segments(file, &segments, &starts);

    if (err == BP_OK)
        err = bp_corpus_file_doc_start(file, &documents);
    for (int64_t d = 0; err == BP_OK && d < count; d++) {
        int64_t first = segments ? segments[d] : 0, texts = segments ? segments[d + 1] - first : 1;

        if (texts != 2)
            return BP_FAIL(BP_ERR_CONFIG, "corpus.no_pairs",
                           "document %" PRId64 " has %" PRId64
                           " texts, but model.kind = %s learns from a source and its target: at "
                           "%s; make the corpus with bagpipe-data corpus --format pairs",
                           d, texts, self->shape.family->name, bp_corpus_file_path(file));
        int64_t source = starts[first + 1] - starts[first] + ends,
                target = documents[d + 1] - starts[first + 1];

        if (source == 0 || target == 0)
            return BP_FAIL(BP_ERR_FORMAT, "corpus.empty_side",
                           "a text of document %" PRId64
                           " has no token, and no token ends texts: at %s; leave the pair out",
                           d, bp_corpus_file_path(file));
        counts->longer += source > context || target > context;
    }
    counts->pairs += count;
    return err;
}

static bp_err check_corpus(const trainer *self, const bp_corpus *corpus, const char *key)
{
    pair_counts counts = {0};
    bp_err err = BP_OK;

    for (int64_t k = 0; corpus && err == BP_OK && k < bp_corpus_files(corpus); k++)
        err = count_file(self, bp_corpus_file_at(corpus, k), &counts);
    if (err != BP_OK || counts.longer == 0)
        return err;
    if (!bp_corpus_keys_of(self->config)->cut)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.long_pairs",
                       "%" PRId64 " of %" PRId64
                       " pairs have a text that is longer, with its end, than model.context = "
                       "%" PRId64 ": at %s; use a larger context, or corpus.cut=yes",
                       counts.longer, counts.pairs, self->shape.context, key);
    BP_WARN("corpus.cut_pairs",
            "%" PRId64 " of %" PRId64 " pairs are cut to model.context = %" PRId64 ": at %s",
            counts.longer, counts.pairs, self->shape.context, key);
    return BP_OK;
}

static bp_err check_pairs(const trainer *self)
{
    bp_err err = BP_OK;

    if (self->rules.start < 0)
        return BP_FAIL(BP_ERR_CONFIG, "model.no_start",
                       "targets begin with the end-of-document token, but the corpus has none: at "
                       "model.start_token; give it, or make the corpus with another tokenizer");
    if (self->rules.start >= self->facts.vocab_size)
        return BP_FAIL(BP_ERR_CONFIG, "model.no_start",
                       "model.start_token = %" PRId64 " is beyond the vocabulary of %" PRId64
                       ": at model.start_token; use one from 1 on",
                       self->rules.start + 1, self->facts.vocab_size);
    if (self->mesh->coordinates && bp_model_objective(&self->shape)->pairs)
        err = check_corpus(self, self->corpus, "corpus.train");
    if (err == BP_OK && self->mesh->coordinates && bp_model_objective(&self->shape)->pairs)
        err = check_corpus(self, self->valid_corpus, "corpus.valid");
    return err;
}

bp_err trainer_find_pair_rules(trainer *self)
{
    int64_t start = self->shape.family->start_token(&self->shape);

    self->rules.start = start >= 0 ? start : self->rules.eod;
    bp_err err = bp_agree(self->mesh->world, check_pairs(self));

    return err == BP_OK && bp_model_objective(&self->shape)->noises ? trainer_find_noise_rules(self)
                                                                    : err;
}
