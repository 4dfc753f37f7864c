/* Trainings on pairs, a source and its target: checks that the corpora have them, and that they
 * fit. Called by task.c. */
#include "train/parts/pairs.h"

#include "base/log.h"
#include "data/pairs.h"
#include "train/parts/list.h"

#include <inttypes.h>

static bp_err check_corpus(const trainer *self, const bp_corpus *corpus, const char *key,
                           int64_t *targets)
{
    const bp_pairs_rule rule = {
        self->shape.context, self->facts.eod_id >= 0,
        self->shape.family->source ? -1 : self->rules.separator_count + self->rules.begins};
    bp_pair_counts counts = {0};
    bp_err err = BP_OK;

    for (int64_t k = 0; corpus && err == BP_OK && k < bp_corpus_files(corpus); k++)
        err = bp_pairs_count(bp_corpus_file_at(corpus, k), &rule, &counts);
    *targets = counts.targets;
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

static bp_err check_corpora(trainer *self)
{
    int64_t of_valid;
    bp_err err = BP_OK;

    if (self->mesh->coordinates)
        err = check_corpus(self, self->data.corpus, "corpus.train", &self->facts.targets);
    if (err == BP_OK && self->mesh->coordinates)
        err = check_corpus(self, self->data.valid_corpus, "corpus.valid", &of_valid);
    return err;
}

bp_err pairs_find_start(trainer *self)
{
    int64_t start = self->shape.family->source->start_token(&self->shape);

    self->rules.start = start >= 0 ? start : self->rules.eod;
    if (self->rules.start < 0)
        return BP_FAIL(BP_ERR_CONFIG, "model.no_start",
                       "targets begin with the end-of-document token, but the corpus has none: at "
                       "model.start_token; give it, or make the corpus with another tokenizer");
    if (self->rules.start >= self->facts.vocab_size)
        return BP_FAIL(BP_ERR_CONFIG, "model.no_start",
                       "model.start_token = %" PRId64 " is beyond the vocabulary of %" PRId64
                       ": at model.start_token; use one from 1 on",
                       self->rules.start + 1, self->facts.vocab_size);
    return BP_OK;
}

static bp_err rules(trainer *self, void *own)
{
    bool reads_source = self->shape.family->source != NULL;
    const bp_objective *objective = bp_model_objective(&self->shape);
    bp_err err = BP_OK;

    (void)own;
    if (!objective || (!objective->pairs && !objective->noises))
        return BP_OK;
    self->rules.start = self->rules.eod;
    if (reads_source)
        err = pairs_find_start(self);
    if (err == BP_OK && (!reads_source || objective->pairs))
        err = check_corpora(self);
    return bp_agree(self->mesh->world, err);
}

const bp_training_part training_pairs = {.name = "pairs", .at = {[PART_RULES] = rules}};
