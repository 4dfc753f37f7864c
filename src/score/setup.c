/* From a configuration to a model, corpora and work units that are ready. */
#include "score/scorer_priv.h"

#include "base/fs.h"
#include "base/mem.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "score/unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bp_err open_mesh(scorer *self, MPI_Comm world, bool alone)
{
    static const bp_mesh_shape one = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_mesh_shape *shape = &self->mesh_shape;
    int size = bp_comm_size(world);

    *shape = bp_mesh_shape_of(self->config);
    if (alone) {
        shape->data = shape->data > 0 ? shape->data : 1;
        shape->coordinator = BP_COORDINATOR_SHARED;
        size = shape->members * shape->pipeline * shape->data * shape->tensor;
    }
    bp_err err = bp_mesh_shape_fit(shape, size);
    if (err == BP_OK)
        err = bp_mesh_new(&self->mesh, world, alone ? &one : shape);
    if (err == BP_OK)
        self->leads = self->mesh->computes && bp_comm_is_root(self->mesh->ensemble);
    return err;
}

/* A run keeps the precision that its first start resolved; ranks on unlike CPUs take the least. */
static bp_err resolve_precision(scorer *self)
{
    bp_config *config = self->config;
    bp_precision precision = BP_F32;
    char *before = NULL;
    bp_err err = bp_run_previous(self->mesh->world, bp_config_string(config, "run.dir"),
                                 "math.precision", &before);

    if (err == BP_OK && before && strcmp(bp_config_string(config, "math.precision"), "auto") == 0)
        err = bp_config_set(config, "math.precision", before);
    bp_free(before);
    if (err == BP_OK)
        err = bp_math_precision(config, &precision);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    bool f32 = bp_all_max_int(precision == BP_F32, self->mesh->world) != 0;
    return bp_config_set(config, "math.precision", f32 ? "f32" : "bf16");
}

/* All ranks know the model, a dedicated coordinator too. */
static bp_err open_model(scorer *self)
{
    const bp_mesh *mesh = self->mesh;
    bp_err err = BP_OK;

    if (mesh->computes) {
        err = bp_lm_open(&self->lm, mesh, self->config,
                         bp_config_string(self->config, "score.model"));
        if (err == BP_OK)
            self->info = self->lm->info;
    }
    err = bp_agree(mesh->world, err);
    if (err != BP_OK)
        return err;
    bp_bcast_bytes(&self->info, sizeof(self->info), mesh->dedicated ? 1 : 0, mesh->world);
    self->info.kind = self->lm ? self->lm->info.kind : NULL; /* a pointer does not travel */
    return bp_agree(mesh->world, bp_score_channels_init(&self->channels, &self->info));
}

bp_err scorer_check_corpus(const bp_corpus *corpus, const bp_lm_info *model)
{
    const char *path = bp_corpus_file_path(bp_corpus_file_at(corpus, 0));
    const char *ours = bp_corpus_tokenizer_hash(corpus), *theirs = model->tokenizer_hash;
    int64_t vocab_size = bp_corpus_vocab_size(corpus), eod = bp_corpus_eod(corpus);

    if (ours[0] && theirs[0] && strcmp(ours, theirs) != 0)
        return BP_FAIL(
            BP_ERR_FORMAT,
            "the tokenizer of the corpus is not that of the model, %s and %s: at %s; make "
            "the corpus with the model's tokenizer",
            ours, theirs, path);
    if (vocab_size > model->vocab_size)
        return BP_FAIL(BP_ERR_FORMAT,
                       "vocab_size of the corpus is more than the model's, %" PRId64 " and %" PRId64
                       ": at %s; make the corpus with the model's tokenizer",
                       vocab_size, model->vocab_size, path);
    if (eod >= 0 && model->eod_id >= 0 && eod != model->eod_id)
        return BP_FAIL(BP_ERR_FORMAT,
                       "eod_id of the corpus is not that of the model, %" PRId64 " and %" PRId64
                       ": at %s; make the corpus with the model's tokenizer",
                       eod, model->eod_id, path);
    return BP_OK;
}

/* What was asked for, but has no meaning here. */
static void warn_of_settings(const scorer *self)
{
    const bp_config *config = self->config;

    if (bp_config_is_given(config, "score.prefix") && !self->rule.prefix &&
        strcmp(bp_config_string(config, "score.prefix"), "eod") == 0)
        bp_warn("score.prefix = eod is passed over: %s; the summary says \"none\"",
                self->rule.eod < 0 ? "neither corpus nor model names an end-of-document token"
                                   : "only score.convention = rolling has a prefix");
    if (bp_config_bool(config, "score.end") && !self->rule.end)
        bp_warn("score.end = yes is passed over: neither corpus nor model names an end-of-document "
                "token; the summary says false");
}

/* Only documents out of a bag? */
static bool selects(const scorer *self)
{
    return strcmp(bp_config_string(self->config, "score.select"), "all") != 0;
}

/* A corpus that does not tell its end-of-document token leaves it to the model. */
static bp_err load_corpus(scorer *self)
{
    bp_err err = bp_corpus_open(&self->corpus, bp_config_string(self->config, "score.corpus"));
    bp_stream_spec bag = {.corpus = self->corpus,
                          .bag = true,
                          .seed = (uint64_t)bp_config_int(self->config, "run.seed"),
                          .member = bp_config_int(self->config, "run.member")};

    if (err == BP_OK)
        err = scorer_check_corpus(self->corpus, &self->info);
    if (err == BP_OK)
        err = bp_score_check_names(self->corpus);
    if (err != BP_OK)
        return err;
    int64_t eod = bp_corpus_eod(self->corpus);
    scorer_resolve_eod(self->config, eod >= 0 ? eod : self->info.eod_id, &self->rule);
    warn_of_settings(self);
    memcpy(self->corpus_hash, bp_corpus_hash(self->corpus), BP_SHA256_HEX);
    return bp_score_plan_init_without(&self->plan, self->corpus, &self->rule,
                                      selects(self) ? &bag : NULL);
}

/* The name of the work: whatever a result's bits depend on, but for the machine. */
static bp_err make_key(scorer *self)
{
    const bp_score_rule *rule = &self->rule;
    char *text = bp_sprintf(
        "2 %s %s %" PRId64 " %s %" PRId64 " %" PRId64 " %" PRId64 " %d %d %d %s %d %d %d %d",
        self->corpus_hash, self->info.digest, self->channels.count,
        bp_score_convention_name(rule->convention), rule->context, rule->stride, rule->eod,
        rule->prefix, rule->end, bp_config_bool(self->config, "score.tokens"),
        bp_config_string(self->config, "math.precision"), self->mesh->members, self->mesh->tensors,
        BP_SCORE_UNIT_INPUTS, BP_SCORE_BATCH_TOKENS);
    if (text && selects(self)) {
        char *all = text;

        text = bp_sprintf("%s out of bag %" PRId64 " %" PRId64, all,
                          bp_config_int(self->config, "run.seed"),
                          bp_config_int(self->config, "run.member"));
        bp_free(all);
    }
    bp_err err = text ? bp_sha256_of(text, strlen(text), self->key)
                      : BP_FAIL(BP_ERR_SYSTEM, "no memory for the name of the work");

    bp_free(text);
    return err;
}

bp_err scorer_open_corpora(scorer *self)
{
    const bp_mesh *mesh = self->mesh;
    const char *run_dir = bp_config_string(self->config, "run.dir");
    bp_err err = scorer_resolve(self->config, &self->info, &self->rule);

    if (err == BP_OK && (self->leads || mesh->coordinates)) {
        err = load_corpus(self);
        if (err == BP_OK)
            err = make_key(self);
    }
    self->folder = bp_path_join(run_dir, "score");
    self->parts_folder = bp_path_join(run_dir, "score/parts");
    if (err == BP_OK && (!self->folder || !self->parts_folder))
        err = BP_FAIL(BP_ERR_SYSTEM, "no memory for the names of the score files");
    err = bp_agree(mesh->world, err);
    if (err == BP_OK)
        bp_bcast_bytes(self->corpus_hash, BP_SHA256_HEX, 0, mesh->world);
    return err;
}

bp_err scorer_open(scorer *self, MPI_Comm world, bp_config *config, bool alone)
{
    *self = (scorer){.config = config};
    bp_math_set_threads(bp_math_threads_for(world, (int)bp_config_int(config, "math.threads")));

    bp_err err = bp_agree(world, open_mesh(self, world, alone));
    if (err == BP_OK)
        err = resolve_precision(self);
    if (err == BP_OK)
        err = open_model(self);
    if (err == BP_OK)
        err = scorer_open_corpora(self);
    return err;
}

void scorer_close(scorer *self)
{
    json_decref(self->summary);
    bp_score_channels_clear(&self->channels);
    bp_free(self->parts_folder);
    bp_free(self->folder);
    bp_score_plan_clear(&self->plan);
    bp_corpus_close(&self->corpus);
    bp_lm_free(&self->lm);
    bp_mesh_free(&self->mesh);
}
