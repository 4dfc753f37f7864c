/* score.candidates: its file and its units. A set of sets.h. */
#include "infer/score/candidates/units_priv.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <string.h>

/* ---- the file ---- */

/* The tokenizer of the corpora, else of tokenizer.path. */
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

/* With score.prefix = auto the tokens that the model's tokenizer puts before a text; a context
 * without text is the prefix of a document. */
static bp_err read_choices(const scorer *self, bp_candidates *out, const char *path,
                           const bp_tokenizer *tokenizer)
{
    const char *key = bp_score_rule_keys_of(self->config)->prefix;
    bool as_texts = strcmp(key, "auto") == 0;
    int64_t lead = self->rule.lead;
    const bp_candidates_prefix prefix = {.before = as_texts ? bp_model_first(&self->info) : lead,
                                         .alone = lead,
                                         .bos = bp_model_bos(&self->info)};
    bp_err err =
        as_texts ? bp_tokenizer_check_first(tokenizer, prefix.before, "score.prefix") : BP_OK;

    return err == BP_OK ? bp_candidates_read(out, path, &self->plan, tokenizer, &prefix) : err;
}

static bp_err read_file(const scorer *self, candidate_units *own)
{
    const char *path = bp_score_keys_of(self->config)->candidates;
    const bp_candidates *all = &own->all;
    bp_tokenizer *tokenizer = NULL;
    bp_err err;

    if (self->info.masks || self->info.reads_source)
        return BP_FAIL(BP_ERR_CONFIG, "score.other_convention",
                       "score.candidates asks what follows a text, which only causal models "
                       "answer: at score.candidates; leave it out, or take a causal model");
    err = open_tokenizer(&tokenizer, self);
    if (err == BP_OK)
        err = read_choices(self, &own->all, path, tokenizer);
    bp_tokenizer_free(&tokenizer);
    if (err == BP_OK && self->mesh->coordinates && all->unscored > 0)
        BP_WARN("choices.unscored",
                "%" PRId64 " of %" PRId64 " choices have no log-probability, being empty or longer "
                "than score.context = %" PRId64 ": at %s; their lines say null",
                all->unscored, all->first[all->documents], self->rule.context, path);
    if (err == BP_OK)
        bp_candidates_hash(all, own->hash);
    return err;
}

/* ---- units ---- */

static chooser *of(const void *context)
{
    return &((candidate_units *)scorer_own(context, &score_candidates_set))->chooser;
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
    return chooser_amount(of(context), unit);
}

static void release(void *context)
{
    chooser_release(of(context));
}

static bp_err merge(void *context, bp_parts *parts)
{
    return candidates_merge(context, scorer_own(context, &score_candidates_set), parts);
}

static const bp_work_units *units(scorer *self)
{
    candidate_units *own = scorer_own(self, &score_candidates_set);

    own->units = (bp_work_units){
        .parts = "candidates-parts",
        .key = own->key,
        .count = own->chooser.count,
        .mesh_keys = "mesh.tensor, mesh.members",
        .again = "scored",
        .amount = own->chooser.starts ? (double)own->chooser.starts[own->chooser.count] : 0,
        .noun = "choices",
        .prepare = prepare,
        .run = run_unit,
        .answer = answer,
        .amount_of = count_choices,
        .release = release,
        .merge = merge};
    return &own->units;
}

/* ---- the set ---- */

static bool is_asked(const scorer *self)
{
    return bp_score_keys_of(self->config)->candidates && !bp_task_has_head(&self->info.task);
}

static bp_err open_set(scorer *self, void **out)
{
    bool reads = self->leads || self->mesh->coordinates;
    candidate_units *own = *out = bp_alloc("score.candidates", 1, sizeof *own);
    bp_err err = bp_agree(self->mesh->world, reads ? read_file(self, own) : BP_OK);

    own->chooser =
        (chooser){.job = self->job, .all = &own->all, .statistics = self->statistics.count};
    if (err == BP_OK)
        bp_bcast_bytes(own->hash, BP_SHA256_HEX, 0, self->mesh->world);
    if (err == BP_OK && reads) {
        bp_work_key(own->key, "candidates 1 %s %s", self->key, own->hash);
        chooser_cut(&own->chooser);
    }
    return err;
}

static void close_set(void *state)
{
    candidate_units *own = state;

    json_decref(own->figures);
    chooser_clear(&own->chooser);
    bp_candidates_clear(&own->all);
    bp_free(own);
}

static void summarise(const scorer *self, json_t *summary)
{
    const candidate_units *own = scorer_own(self, &score_candidates_set);

    if (own->figures)
        (void)json_object_set(summary, "candidates", own->figures);
}

static bp_run_identity identify(const scorer *self)
{
    return (bp_run_identity){"score.candidates",
                             ((candidate_units *)scorer_own(self, &score_candidates_set))->hash};
}

const score_set score_candidates_set = {
    .is_asked = is_asked,
    .files = (const score_file[]){{.name = "candidates.jsonl"}, {0}},
    .open = open_set,
    .close = close_set,
    .units = units,
    .summarise = summarise,
    .identify = identify,
};
