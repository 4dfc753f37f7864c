/* The texts to explain, the data that only their readers have, and the key of parts. Called by
 * explain.c, after checks.c. */
#include "explain/start/start.h"

#include "explain/nearest/nearest.h"

#include "base/config/run_options.h"
#include "base/files/hash.h"
#include "base/log.h"
#include "infer/ensemble/model_tokenizer.h"
#include "math/math.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The baseline's token. */
static bp_err find_baseline(explainer *self)
{
    const char *name = bp_explain_keys_of(self->job->config)->baseline;
    int64_t eod = bp_corpus_eod(self->texts.corpus);
    const struct {
        const char *name;
        int64_t token;
    } ROWS[] = {
        {"eod", eod}, {"mask", self->roles[BP_ROLE_MASK]}, {"pad", self->roles[BP_ROLE_PAD]}};

    self->settings.baseline = -1;
    for (size_t k = 0; k < sizeof ROWS / sizeof ROWS[0]; k++)
        if (strcmp(name, ROWS[k].name) == 0)
            self->settings.baseline = ROWS[k].token;
    if (self->settings.baseline >= 0 || strcmp(name, "zero") == 0 ||
        !bp_explain_position(bp_explain_keys_of(self->job->config)->methods,
                             &bp_explain_integrated))
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "explain.no_token",
                   "neither model nor corpus names a token for '%s': at explain.baseline; use "
                   "explain.baseline=zero, or make the corpus with a tokenizer that has one",
                   name);
}

/* Only readers know it. */
static bp_err find_facts(explainer *self)
{
    const bp_corpus *corpus = self->texts.corpus;
    bp_err err;

    memcpy(self->corpus_hash, bp_corpus_hash(corpus), BP_SHA256_HEX);
    memcpy(self->roles, bp_corpus_roles(corpus), sizeof self->roles);
    self->settings.lead = self->texts.plan.rule.lead;
    self->settings.eod = bp_corpus_eod(corpus);
    if (self->job->mesh->coordinates && self->texts.cut > 0)
        BP_WARN("explain.cut_documents",
                "%" PRId64 " of %" PRId64 " documents have more than the %" PRId64
                " inputs that are read, and only their beginning is explained: at explain.corpus; "
                "cut them before, or use another explain.context",
                self->texts.cut, self->texts.documents, self->texts.wish.most);
    if (self->job->mesh->coordinates && self->texts.lone)
        BP_WARN("explain.lone_sets",
                "no two documents belong to one set, so that contrast_sets has no figures: at "
                "explain.sets = %s; give a label or a list in which a text and its versions have "
                "the same name",
                self->texts.wish.sets);
    err = find_baseline(self);
    if (err == BP_OK && self->job->mesh->coordinates)
        err = explain_find_chosen(self);
    return err == BP_OK ? explain_setup_load(self) : err;
}

/* The tokenizer for explain.texts, on all ranks; NULL if there is a corpus. */
static bp_err open_tokenizer(const explainer *self, bp_tokenizer **out)
{
    const bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    bp_err err = keys->texts ? bp_model_tokenizer_open(out, job->config, keys->model, &job->info,
                                                       job->mesh->world)
                             : BP_OK;

    if (err == BP_OK && keys->texts && !*out)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.no_tokenizer",
                      "explain.texts needs a tokenizer, and the model brings none: at "
                      "tokenizer.path; set it");
    return bp_agree(job->mesh->world, err);
}

bp_err explain_load(explainer *self, bool reads)
{
    bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    bp_tokenizer *tokenizer = NULL;
    bp_err err = open_tokenizer(self, &tokenizer);

    if (err != BP_OK) {
        bp_tokenizer_free(&tokenizer);
        return err;
    }
    const explain_wish wish = {
        .corpus = keys->corpus,
        .texts = keys->texts,
        .tokenizer = tokenizer,
        .model = keys->model,
        .info = &job->info,
        .most = self->settings.most,
        .target = self->target,
        .outcome = keys->target,
        .masks = keys->masks,
        .positions = keys->positions,
        .sets = bp_explain_position(keys->methods, &bp_explain_contrast_sets) ? keys->sets : NULL};
    int64_t shared[3];

    err = explain_texts_open(&self->texts, &wish, job->mesh, reads);
    bp_tokenizer_free(&tokenizer);

    if (err == BP_OK)
        err = bp_agree(job->mesh->world, reads ? find_facts(self) : BP_OK);
    bp_bcast_bytes(self->corpus_hash, BP_SHA256_HEX, 0, job->mesh->world);
    bp_bcast_bytes(self->roles, sizeof self->roles, 0, job->mesh->world);
    memcpy(shared, (int64_t[]){self->settings.lead, self->settings.baseline, self->settings.eod},
           sizeof shared);
    bp_bcast_bytes(shared, sizeof shared, 0, job->mesh->world);
    self->settings.lead = shared[0];
    self->settings.baseline = shared[1];
    self->settings.eod = shared[2];
    return err;
}

bp_err explain_open_datastore(explainer *self)
{
    bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    int64_t bytes;
    bp_err err = BP_OK;

    if (!bp_explain_position(keys->methods, &bp_explain_sources))
        return BP_OK;
    const explain_nearest_spec spec = {keys->datastore, keys->model, keys->context,
                                       keys->neighbours};
    if (job->model)
        err = explain_nearest_open(&self->settings.nearest, job->mesh, job->config, job->model,
                                   &spec);
    if (err == BP_OK && job->mesh->coordinates)
        err = bp_sha256_of_file(keys->datastore, self->datastore_hash, &bytes);
    err = bp_agree(job->mesh->world, err);
    bp_bcast_bytes(self->datastore_hash, BP_SHA256_HEX, 0, job->mesh->world);
    return err;
}

void explain_make_key(explainer *self)
{
    const bp_explain_settings *s = &self->settings;
    const bp_explain_keys *keys = s->keys;
    char names[BP_EXPLAIN_ARRAYS * EXPLAIN_METHODS] = "";

    for (int k = 0; k < self->count; k++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s,",
                 self->methods[k]->name);
    bp_work_key(self->key,
                "explain 4 %s %s %s %" PRId64 " %" PRId64 " %d %d %s %s %" PRId64 " %" PRId64
                " %" PRId64 " %" PRId64 " %s %d %" PRId64 " %s %s %" PRId64 " %" PRId64 " %" PRId64
                " %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s %s %s %" PRId64 " %" PRId64
                " %" PRId64 " %s %.17g %s%s",
                self->corpus_hash, self->job->info.digest, names, s->most, s->batch,
                (int)self->target, self->texts.outcome, self->masks_hash,
                s->separators ? s->separators : "-",
                bp_explain_keys_of(self->job->config)->positions, s->steps, s->baseline, s->lead,
                bp_math_keys_of(self->job->config)->precision, self->job->mesh->tensor_ranks,
                bp_run_keys_of(self->job->config)->seed, s->keys->removal, s->keys->features,
                s->keys->group, s->keys->samples, s->keys->most_words, s->keys->shapley,
                s->keys->flips, s->keys->edits, s->keys->beam, s->keys->examples, s->keys->choose,
                keys->layers ? keys->layers : "", keys->words ? keys->words : "", keys->factors,
                keys->keys, keys->neighbours, self->datastore_hash, keys->change,
                keys->sets ? keys->sets : "", self->sets_hash);
}
