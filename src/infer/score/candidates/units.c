/* score.candidates: its file and its units. Called by score.c. */
#include "infer/score/candidates/units_priv.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

/* ---- the file ---- */

/* That of the corpora, else of tokenizer.path. */
static bp_err open_tokenizer(bp_tokenizer **out, const scorer *self)
{
    const bp_corpus *corpus = self->corpus;
    const char *path = bp_run_keys_of(self->config)->tokenizer_path;
    const char *hash = bp_corpus_tokenizer_hash(corpus);
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = BP_OK;

    for (int64_t k = 0; err == BP_OK && !text && k < bp_corpus_files(corpus); k++)
        err = bp_corpus_file_tokenizer(bp_corpus_file_at(corpus, k), &text, &bytes);
    if (err == BP_OK && text)
        err = bp_tokenizer_parse(out, text, bytes, "the corpus's tokenizer");
    else if (err == BP_OK && path)
        err = bp_tokenizer_load(out, path);
    else if (err == BP_OK)
        err = BP_FAIL(BP_ERR_CONFIG, "choices.no_tokenizer",
                      "score.candidates needs a tokenizer, and the corpora keep none: at "
                      "tokenizer.path; set it");
    if (err == BP_OK && hash[0] && !bp_tokenizer_same_hash(hash, bp_tokenizer_hash(*out)))
        err = BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                      "the tokenizer is not that of the corpora, %s and %s: at %s; give the "
                      "corpora's",
                      bp_tokenizer_hash(*out), hash, path);
    bp_free(text);
    return err;
}

/* With score.prefix = auto what the model's tokenizer puts before a text; a context without text is
 * the prefix of a document. */
static bp_err read_choices(scorer *self, const char *path, const bp_tokenizer *tokenizer)
{
    const char *key = bp_score_rule_keys_of(self->config)->prefix;
    bool as_texts = strcmp(key, "auto") == 0;
    int64_t lead = self->rule.lead;
    const bp_candidates_prefix prefix = {.before = as_texts ? bp_model_first(&self->info) : lead,
                                         .alone = lead,
                                         .bos = bp_model_bos(&self->info)};
    bp_err err =
        as_texts ? bp_tokenizer_check_first(tokenizer, prefix.before, "score.prefix") : BP_OK;

    return err == BP_OK
               ? bp_candidates_read(&self->candidates, path, &self->plan, tokenizer, &prefix)
               : err;
}

bp_err scorer_open_candidates(scorer *self)
{
    const char *path = bp_score_keys_of(self->config)->candidates;
    bp_tokenizer *tokenizer = NULL;
    bp_err err;

    if (!path)
        return BP_OK;
    if (self->info.masks || self->info.reads_source)
        return BP_FAIL(BP_ERR_CONFIG, "score.other_convention",
                       "score.candidates asks what follows a text, which only causal models "
                       "answer: at score.candidates; leave it out, or take a causal model");
    err = open_tokenizer(&tokenizer, self);
    if (err == BP_OK)
        err = read_choices(self, path, tokenizer);
    bp_tokenizer_free(&tokenizer);
    if (err == BP_OK && self->mesh->coordinates && self->candidates.unscored > 0)
        BP_WARN("choices.unscored",
                "%" PRId64 " of %" PRId64 " choices have no log-probability, being empty or longer "
                "than score.context = %" PRId64 ": at %s; their lines say null",
                self->candidates.unscored, self->candidates.first[self->candidates.documents],
                self->rule.context, path);
    if (err == BP_OK)
        bp_candidates_hash(&self->candidates, self->candidates_hash);
    return err;
}

/* ---- units ---- */

static chooser *of(void *context)
{
    return &((scorer *)context)->candidate_units->chooser;
}

static bp_err prepare(void *context)
{
    return chooser_prepare(of(context));
}

static bp_err run_unit(void *context, int64_t unit, bp_buffer *out, bool *stopped)
{
    return chooser_run(of(context), unit, out, stopped);
}

static bp_err answer(void *context, const void *what)
{
    return chooser_answer(of(context), what);
}

static int64_t count_choices(const void *context, int64_t unit)
{
    return chooser_amount(&((const scorer *)context)->candidate_units->chooser, unit);
}

static void release(void *context)
{
    chooser_release(of(context));
}

const bp_work_units *scorer_candidates(scorer *self)
{
    candidate_units *c = self->candidate_units;

    if (!c) {
        c = self->candidate_units = bp_alloc("score.candidates", 1, sizeof *c);
        c->chooser = (chooser){
            .job = self->job, .all = &self->candidates, .statistics = self->statistics.count};
        if (self->leads || self->mesh->coordinates) {
            bp_work_key(c->key, "candidates 1 %s %s", self->key, self->candidates_hash);
            chooser_cut(&c->chooser);
        }
    }
    c->units = (bp_work_units){
        .parts = "candidates-parts",
        .key = c->key,
        .count = c->chooser.count,
        .mesh_keys = "mesh.tensor, mesh.members",
        .again = "scored",
        .amount = c->chooser.starts ? (double)c->chooser.starts[c->chooser.count] : 0,
        .noun = "choices",
        .prepare = prepare,
        .run = run_unit,
        .answer = answer,
        .amount_of = count_choices,
        .release = release,
        .merge = candidates_merge};
    return &c->units;
}

void scorer_clear_candidates(scorer *self)
{
    if (self->candidate_units)
        chooser_clear(&self->candidate_units->chooser);
    bp_free(self->candidate_units);
    bp_candidates_clear(&self->candidates);
}
