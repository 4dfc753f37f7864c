/* From a configuration to a model, corpora and work units that are ready. Called by score.c before
 * its first unit. */
#include "infer/score/boundaries.h"
#include "infer/score/sets.h"

#include "base/buffer.h"
#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "infer/score/task/documents.h"
#include "infer/score/training_text.h"
#include "infer/score/unit.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/network/weights.h"
#include "models/open.h"
#include "run/run_compare.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the model ---- */

/* On the computing ranks: the model's distribution is mixed with that of its neighbours. */
static bp_err add_neighbours(scorer *self, bp_model **model)
{
    const bp_score_keys *keys = bp_score_keys_of(self->config);
    bp_neighbours_spec spec = {.path = keys->neighbours,
                               .k = keys->nearest,
                               .temperature = keys->temperature,
                               .weight = keys->weight,
                               .memory_bytes = keys->neighbours_memory,
                               .precision = bp_math_keys_of(self->config)->precision};
    bp_err err = bp_neighbours_new(model, *model, self->job->mesh, &spec);

    if (err == BP_OK)
        self->datastore = *bp_neighbours_datastore(*model);
    return err;
}

static bool asks_distributions(const scorer *self)
{
    const bp_score_keys *keys = bp_score_keys_of(self->config);

    return keys->boundaries || keys->entropy;
}

bp_err scorer_open_model(void *context, bp_model **out)
{
    scorer *self = context;
    const char *path = bp_score_keys_of(self->config)->model;
    const bp_mesh *mesh = self->job->mesh;
    bp_ensemble_spec spec = self->method ? *self->method : (bp_ensemble_spec){.path = path};
    bp_err err;

    spec.context = bp_config_is_set(self->config, "score.context")
                       ? bp_score_rule_keys_of(self->config)->context
                       : 0;
    if (spec.memory_bytes == 0)
        spec.memory_bytes = (size_t)bp_score_rule_keys_of(self->config)->memory;
    err = self->job->ensemble ? bp_ensemble_open(out, mesh, self->config, &spec)
                              : bp_model_open_wide(out, mesh, self->config, path, spec.context);
    if (err == BP_OK && bp_score_keys_of(self->config)->neighbours &&
        !bp_task_has_head(&(*out)->info.task))
        err = add_neighbours(self, out);
    if (err == BP_OK && asks_distributions(self) && !bp_task_has_head(&(*out)->info.task))
        err = bp_boundaries_new(out, *out, mesh, bp_score_keys_of(self->config)->boundaries,
                                bp_score_keys_of(self->config)->entropy,
                                (int64_t)bp_score_rule_keys_of(self->config)->memory);
    return err;
}

static void open_statistics(scorer *self)
{
    int from = self->mesh->dedicated ? 1 : 0;

    bp_bcast_bytes(&self->datastore, sizeof(self->datastore), from, self->mesh->world);
    bp_token_statistics_init(&self->statistics, &self->info);
    for (int64_t m = 0; self->model && m < self->info.members; m++)
        bp_token_statistics_name(&self->statistics, m, bp_ensemble_member_name(self->model, m),
                                 bp_ensemble_member_oob(self->model, m));
    bp_token_statistics_share(&self->statistics, from, self->mesh->world);
}

bp_err bp_score_check_corpus(const bp_corpus *corpus, const bp_model_info *model)
{
    const char *path = bp_corpus_file_path(bp_corpus_file_at(corpus, 0));
    const char *ours = bp_corpus_tokenizer_hash(corpus), *theirs = model->tokenizer_hash;
    int64_t vocab_size = bp_corpus_vocab_size(corpus), eod = bp_corpus_eod(corpus),
            words = !bp_task_has_head(&model->task) ? model->vocab_size : model->words;

    if (ours[0] && theirs[0] && !bp_tokenizer_same_hash(ours, theirs))
        return BP_FAIL(
            BP_ERR_FORMAT, "tokenizer.mismatch",
            "the tokenizer of the corpus is not that of the model, %s and %s: at %s; make "
            "the corpus with the model's tokenizer",
            ours, theirs, path);
    if (vocab_size > words)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                       "vocab_size of the corpus is more than the model's, %" PRId64 " and %" PRId64
                       ": at %s; make the corpus with the model's tokenizer",
                       vocab_size, words, path);
    if (eod >= 0 && model->eod_id >= 0 && eod != model->eod_id && !bp_ends_have(&model->ends, eod))
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.eod_mismatch",
                       "eod_id of the corpus is not that of the model, %" PRId64 " and %" PRId64
                       ": at %s; make the corpus with the model's tokenizer",
                       eod, model->eod_id, path);
    return BP_OK;
}

static void warn_of_prefix(const scorer *self)
{
    const bp_score_rule_keys *keys = bp_score_rule_keys_of(self->config);
    const bp_score_rule *rule = &self->rule;
    bool bos = strcmp(keys->prefix, "bos") == 0;

    if (bp_config_is_given(self->config, "score.prefix") && !rule->prefix && !rule->every &&
        !bp_score_keys_of(self->config)->candidates && strcmp(keys->prefix, "none") != 0)
        BP_WARN("config.unused_key", "score.prefix = %s is ignored: %s; the summary says \"none\"",
                keys->prefix,
                rule->convention != BP_SCORE_ROLLING
                    ? "only score.convention = rolling has a prefix"
                : bos ? "neither model nor corpus names a beginning-of-text token"
                      : "neither corpus nor model names an end-of-document token");
    if (keys->prefix_every && !rule->every)
        BP_WARN("config.unused_key", "score.prefix_every = yes is ignored: %s",
                bp_score_masks(rule->convention) || rule->convention == BP_SCORE_PAIRS
                    ? "only causal models have a prefix"
                    : "there is no prefix");
}

/* Only documents out of a bag? */
static bool selects(const scorer *self)
{
    return strcmp(bp_score_keys_of(self->config)->select, "all") != 0;
}

/* Warns about keys that have no meaning here. */
static void warn_of_settings(const scorer *self)
{
    static const char *const of_neighbours[] = {"neighbours.k", "neighbours.temperature",
                                                "neighbours.weight", "neighbours.memory"};
    const bp_config *config = self->config;

    for (size_t k = 0; k < sizeof of_neighbours / sizeof of_neighbours[0]; k++)
        if (bp_config_is_given(config, of_neighbours[k]) && !bp_score_keys_of(config)->neighbours)
            BP_WARN("config.unused_key", "%s has no effect without score.neighbours; leave it out",
                    of_neighbours[k]);

    if (self->mesh->coordinates && self->info.trained_context > 0 &&
        self->rule.context > self->info.trained_context)
        BP_WARN("model.untrained_positions",
                "the model was last trained in windows of %" PRId64
                " tokens, and its positions after them may have no training: at score.context = "
                "%" PRId64 "; use %" PRId64 " or less, or train on in such windows (model.init)",
                self->info.trained_context, self->rule.context, self->info.trained_context);
    if ((self->info.boundaries || self->info.entropy) && !bp_score_keys_of(config)->tokens)
        BP_WARN("config.unused_key",
                "score.%s has no effect on tables without score.tokens; set score.tokens=yes",
                self->info.boundaries ? "boundaries" : "entropy");
    if (bp_config_is_given(config, "corpus.cluster") && !selects(self) && !self->method)
        BP_WARN("config.unused_key",
                "corpus.cluster has no effect without score.select=out_of_bag: for intervals over "
                "clusters set score.cluster");
    warn_of_prefix(self);
    if (bp_config_is_given(config, "score.cut") && self->rule.convention != BP_SCORE_PAIRS)
        BP_WARN("config.unused_key",
                "score.cut has no effect on a model that reads no source; leave it out");
    if (bp_score_rule_keys_of(config)->end && !self->rule.end)
        BP_WARN("config.unused_key", "score.end = yes is ignored: %s; the summary says false",
                bp_score_masks(self->rule.convention)
                    ? "of a masked model only the text is scored"
                    : "neither corpus nor model names an end-of-document token");
}

/* The run of the model may have drawn its bag by another label: then documents of the bag are
 * scored as if they were out of it. Nothing is known of a model that is no run. On the coordinator.
 */
static void warn_of_bag(const scorer *self)
{
    const char *model = bp_score_keys_of(self->config)->model,
               *label = bp_score_keys_of(self->config)->bag_cluster;
    run_pairs pairs = {0};
    bp_err err = bp_run_pairs_read(&pairs, model);
    const char *resample = err == BP_OK ? bp_run_pairs_find(&pairs, "corpus.resample") : NULL,
               *drawn = err == BP_OK ? bp_run_pairs_find(&pairs, "corpus.cluster") : NULL;

    label = label ? label : "";
    drawn = drawn ? drawn : "";
    if (resample && strcmp(resample, "bag") == 0 && strcmp(drawn, label) != 0)
        BP_WARN("score.other_bag",
                "the bag of %s has corpus.cluster = %s, but here it is %s, so documents of the bag "
                "may be scored: at score.select; give corpus.cluster of that run",
                model, drawn[0] ? drawn : "none", label[0] ? label : "none");
    bp_run_pairs_clear(&pairs);
}

/* A corpus without an end-of-document token leaves it to the model. */
static bp_err load_corpus(scorer *self)
{
    bp_err err = bp_corpus_open(&self->corpus, bp_score_keys_of(self->config)->corpus);
    bp_stream_spec bag = {.corpus = self->corpus,
                          .bag = true,
                          .seed = (uint64_t)bp_run_keys_of(self->config)->seed,
                          .member = bp_score_keys_of(self->config)->member,
                          .cluster = bp_score_keys_of(self->config)->bag_cluster};

    if (err == BP_OK)
        err = bp_score_check_corpus(self->corpus, &self->info);
    if (err == BP_OK)
        err = bp_score_check_names(self->corpus);
    if (err != BP_OK)
        return err;
    int64_t eod = bp_corpus_eod(self->corpus);
    bp_score_resolve_ends(self->config, eod >= 0 ? eod : self->info.eod_id,
                          bp_corpus_roles(self->corpus)[BP_ROLE_BOS], &self->info, &self->rule);
    warn_of_settings(self);
    if (self->mesh->coordinates && selects(self))
        warn_of_bag(self);
    if (self->mesh->coordinates && !self->method && !self->planned && !selects(self) &&
        !bp_score_keys_of(self->config)->states) /* a datastore may well be of the training text */
        self->known = bp_training_text_warn(bp_score_keys_of(self->config)->model, self->corpus);
    err = scorer_find_clusters(self);
    if (err == BP_OK)
        err = scorer_resolve_specials(self->corpus, &self->rule);
    if (err != BP_OK)
        return err;
    memcpy(self->corpus_hash, bp_corpus_hash(self->corpus), BP_SHA256_HEX);
    err =
        bp_score_plan_init(&self->plan, self->corpus, &self->rule, selects(self) ? &bag : NULL, 0);
    self->plan.may_be_zero = self->info.may_be_zero;
    if (err == BP_OK && self->mesh->coordinates && self->plan.too_long > 0)
        BP_WARN("score.too_long",
                "%" PRId64 " of %" PRId64
                " pairs have a source or target that is longer, with its end, than score.context "
                "= %" PRId64 ": at score.corpus; %s",
                self->plan.too_long, self->plan.scored, self->rule.context,
                self->rule.cut ? "they are cut" : "they are not scored, score.cut=yes cuts them");
    return err;
}

/* Do documents of a corpus begin with a token (--bos) other than the prefix, which the prefix
 * replaces? */
static bool replaces_beginnings(const scorer *self)
{
    bool replaces = false;

    for (int64_t k = 0; self->rule.lead >= 0 && k < bp_corpus_files(self->corpus); k++) {
        const bp_corpus_info *info = bp_corpus_file_info(bp_corpus_file_at(self->corpus, k));

        replaces = replaces || (info->has_bos && info->roles[BP_ROLE_BOS] != self->rule.lead);
    }
    return replaces && self->rule.prefix;
}

/* The name of the work: everything that determines a result's bits, except the machine. */
static void make_key(scorer *self)
{
    const bp_score_rule *rule = &self->rule;
    const bp_score_keys *keys = bp_score_keys_of(self->config);
    const bp_score_rule_keys *asked = bp_score_rule_keys_of(self->config);
    bp_buffer text = {0};

    bp_buffer_printf(
        &text, "4 %s %s %" PRId64 " %s %" PRId64 " %" PRId64 " %" PRId64 " %d %d %d %s %d %d %d %d",
        self->corpus_hash, self->info.digest, self->statistics.count,
        bp_score_convention_name(rule->convention), rule->context, rule->stride, rule->eod,
        rule->prefix, rule->end, bp_score_keys_of(self->config)->tokens,
        bp_math_keys_of(self->config)->precision, self->mesh->members, self->mesh->tensor_ranks,
        (int)self->plan.unit_inputs, BP_SCORE_BATCH_TOKENS);
    if (bp_weights_are_q8(self->config))
        bp_buffer_printf(&text, " q8");
    if (rule->lead != rule->eod || rule->every)
        bp_buffer_printf(&text, " behind %" PRId64 " %d", rule->lead, rule->every);
    if (replaces_beginnings(self))
        bp_buffer_printf(&text, " in place of beginnings");
    if (rule->piece > 0)
        bp_buffer_printf(&text, " pieces of %" PRId64, rule->piece);
    if (rule->convention == BP_SCORE_PAIRS)
        bp_buffer_printf(&text, " from %" PRId64 " %d", rule->start, rule->cut);
    if (asked->span_stride > 0 || asked->answer_tokens > 0)
        bp_buffer_printf(&text, " spans %" PRId64 " %" PRId64, asked->span_stride,
                         asked->answer_tokens);
    if (keys->neighbours)
        bp_buffer_printf(&text, " neighbours %s %" PRId64 " %.17g %.17g", self->datastore.hash,
                         keys->nearest, keys->temperature, keys->weight);
    if (bp_task_has_head(&self->info.task))
        bp_buffer_printf(&text, " rows of a task 1 %s of %d",
                         self->method ? "outcomes" : "predictions", TASK_GROUP);
    if (self->method && self->info.extras != 0)
        bp_buffer_printf(&text, " with %x", self->info.extras);
    if (self->info.sets && self->method->sets) {
        const bp_conformal_rule *sets = self->method->sets;

        bp_buffer_printf(&text, " sets %.17g %.17g %.17g %.17g %" PRId64, sets->threshold[0],
                         sets->threshold[1], sets->threshold[2], sets->penalty, sets->free);
    }
    if (self->info.tempered && self->method)
        bp_buffer_printf(&text, " at temperature %.17g", self->method->temperature);
    if (self->info.boundaries)
        bp_buffer_printf(&text, " and boundaries 1");
    if (self->info.entropy)
        bp_buffer_printf(&text, " and entropy");
    if (scorer_asks_keys(self))
        bp_buffer_printf(&text, " and keys");
    if (selects(self))
        bp_buffer_printf(&text, " out of bag %" PRId64 " %" PRId64,
                         bp_run_keys_of(self->config)->seed,
                         bp_score_keys_of(self->config)->member);
    if (selects(self) && keys->bag_cluster)
        bp_buffer_printf(&text, " of clusters of %s", keys->bag_cluster);
    bp_sha256_of(text.data, text.bytes, self->key);
    bp_buffer_clear(&text);
}

/* An earlier program used units of BP_SCORE_UNIT_INPUTS for all works; a score begun by it
 * continues with those. Collective; rank 0 looks. */
static bp_err keep_units(scorer *self)
{
    int64_t usual = self->plan.unit_inputs, inputs = usual;
    bp_err err = BP_OK;

    if (bp_comm_is_root(self->mesh->world) && usual < BP_SCORE_UNIT_INPUTS) {
        self->plan.unit_inputs = BP_SCORE_UNIT_INPUTS;
        make_key(self);
        if (bp_parts_has(bp_path_in(self->folder, "parts").text, self->key))
            inputs = BP_SCORE_UNIT_INPUTS;
        self->plan.unit_inputs = usual;
        make_key(self);
    }
    bp_bcast_bytes(&inputs, sizeof inputs, 0, self->mesh->world);
    if ((self->leads || self->mesh->coordinates) && inputs != usual) {
        err = bp_score_plan_cut(&self->plan, inputs);
        make_key(self);
    }
    return bp_agree(self->mesh->world, err);
}

/* Send it to ranks that read no corpus. */
static void share_boundaries(scorer *self)
{
    int64_t V = self->info.vocab_size;

    if (!self->begins)
        self->begins = bp_alloc("score.boundaries", V, sizeof *self->begins);
    bp_bcast_bytes(self->begins, V, 0, self->mesh->world);
    if (self->model)
        bp_boundaries_use(self->model, self->begins);
}

bp_err scorer_open_corpora(scorer *self)
{
    const bp_mesh *mesh = self->mesh;
    bp_err err = self->method ? BP_OK : scorer_check_task(self->config, &self->info);

    if (err == BP_OK)
        err = bp_score_resolve(self->config, &self->info, &self->rule);
    if (err == BP_OK && (self->leads || mesh->coordinates))
        err = load_corpus(self);
    if (err == BP_OK && (self->leads || mesh->coordinates))
        make_key(self);
    if (err == BP_OK && self->info.boundaries && (self->leads || mesh->coordinates))
        err = bp_boundaries_of(&self->begins, self->corpus, self->info.vocab_size);
    err = bp_agree(mesh->world, err);
    if (err == BP_OK && self->info.boundaries)
        share_boundaries(self);
    if (err == BP_OK)
        err = keep_units(self);
    if (err == BP_OK)
        bp_bcast_bytes(self->corpus_hash, BP_SHA256_HEX, 0, mesh->world);
    self->sets = scorer_sets;
    return err == BP_OK ? scorer_open_sets(self) : err;
}

bp_err scorer_open(void *context)
{
    scorer *self = context;
    bp_work_job *job = self->job;

    self->mesh = job->mesh;
    self->leads = job->leads;
    self->model = job->model;
    self->info = job->info;
    self->folder = job->folder;
    open_statistics(self);
    return scorer_open_corpora(self);
}

void scorer_close(void *context)
{
    scorer *self = context;

    scorer_close_sets(self);
    bp_free(self->memory);
    bp_free(self->begins);
    bp_free(self->clusters);
    json_decref(self->summary);
    bp_token_statistics_clear(&self->statistics);
    bp_score_plan_clear(&self->plan);
    bp_corpus_close(&self->corpus);
}
