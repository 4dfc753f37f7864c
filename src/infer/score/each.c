/* Units at even steps over the corpora, distributed over data ranks by number. Called by methods of
 * uncertainty that fit something on text. */
#include "infer/score/each.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/score/scorer.h"
#include "infer/score/task/documents.h"
#include "infer/score/unit.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(BP_SCORE_EACH_GROUP == TASK_GROUP, "units are groups of a task's documents");

/* A rank's state while it processes its batches. */
typedef struct sampler {
    const bp_score_each *each;
    bp_score_rule rule;
    bool leads;        /* this rank reads corpora for its mesh->replica */
    bp_corpus *corpus; /* on a lead, like the following fields */
    bp_score_plan plan;
    bp_score_unit *unit;
    int64_t count;   /* units chosen; on all ranks */
    int64_t *scored; /* [count]: targets requested of each chosen unit */
    int32_t *inputs, *targets;
    int32_t *sources, *source_lengths; /* for pairs */
    int64_t done;                      /* tokens */
} sampler;

/* Data ranks take units in turn, and agree after each unit. */
static bp_err deal(const bp_score_each *each, int64_t units,
                   bp_err (*run)(void *context, int64_t unit), void *context)
{
    const bp_mesh *mesh = each->mesh;
    bp_err err = bp_agree(mesh->compute, each->begin ? each->begin(each->context, units) : BP_OK);

    for (int64_t first = 0; first < units && err == BP_OK; first += mesh->data_ranks) {
        if (first + mesh->data_rank < units)
            err = run(context, first + mesh->data_rank);
        if (err == BP_OK && each->poll && bp_comm_is_root(mesh->replica))
            err = each->poll(each->context);
        err = bp_agree(mesh->compute, err);
    }
    return err;
}

/* ---- which units ---- */

/* Chosen unit i of n, out of all. */
static int64_t unit_at(const sampler *self, int64_t i, int64_t n)
{
    return (int64_t)((2 * (__int128)i + 1) * self->plan.units / (2 * n));
}

/* scored[i] of n units; *sum of them. */
static bp_err count_scored(sampler *self, int64_t n, int64_t *sum)
{
    *sum = 0;
    self->scored = bp_realloc("infer.each", self->scored, n, sizeof(*self->scored));
    for (int64_t i = 0; i < n; i++) {
        bp_err err = bp_score_unit_load(self->unit, unit_at(self, i, n));

        if (err != BP_OK)
            return err;
        self->scored[i] = bp_score_unit_scored(self->unit);
        *sum += self->scored[i];
    }
    return BP_OK;
}

/* The fewest units that have the requested tokens, or all units; the last one is cut to the
 * request. */
static bp_err choose_units(sampler *self)
{
    int64_t units = self->plan.units, wanted = self->each->tokens, sum = 0;
    int64_t n = units;
    bp_err err = BP_OK;

    if (units == 0)
        return BP_OK;
    if (wanted > 0 && wanted < self->plan.inputs) /* inputs are as many as scored, or more */
        n = (int64_t)(((__int128)wanted * units + self->plan.inputs - 1) / self->plan.inputs);
    for (;; n = n + 1 + n / 16 < units ? n + 1 + n / 16 : units) {
        err = count_scored(self, n, &sum);
        if (err != BP_OK || n == units || sum >= wanted)
            break;
    }
    for (int64_t i = n - 1; err == BP_OK && wanted > 0 && sum > wanted; i--) {
        int64_t cut = sum - wanted < self->scored[i] ? sum - wanted : self->scored[i];

        self->scored[i] -= cut;
        sum -= cut;
    }
    self->count = n;
    return err;
}

/* ---- a unit's batches ---- */

/* Targets beyond the first `left` become -1; returns how many remain. */
static int64_t cut_targets(sampler *self, bp_model_batch *batch, int64_t left)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < batch->windows * batch->length; i++) {
        bool keeps = batch->targets[i] >= 0 && kept < left;

        self->targets[i] = keeps ? batch->targets[i] : -1;
        kept += keeps;
    }
    batch->targets = self->targets;
    self->done += kept;
    return kept;
}

/* A batch of a unit. */
typedef struct asked {
    int64_t unit;
    bp_model_batch batch;
} asked;

static bp_err answer(void *context, const void *what)
{
    const sampler *self = context;
    asked it = *(const asked *)what;

    if (!self->leads) { /* the lead's are in its unit */
        it.batch.inputs = self->inputs;
        it.batch.targets = self->targets;
        it.batch.sources = self->sources;
        it.batch.source_lengths = self->source_lengths;
        it.batch.segments = NULL; /* these would be the lead's pointers */
        it.batch.vectors = it.batch.source_vectors = NULL;
    }
    scorer_share_batch(self->each->mesh->replica, &it.batch);
    bp_heartbeat_progress();
    return self->each->batch(self->each->context, it.unit, &it.batch);
}

static bp_err lead_unit(sampler *self, bp_requests *requests, int64_t i)
{
    int64_t left = self->scored[i];
    bp_err err = bp_score_unit_load(self->unit, unit_at(self, i, self->count));

    for (int64_t b = 0; err == BP_OK && left > 0 && b < bp_score_unit_batches(self->unit); b++) {
        asked it = {.unit = i};

        err = bp_score_unit_batch(self->unit, b, &it.batch);
        if (err != BP_OK)
            break;
        left -= cut_targets(self, &it.batch, left);
        err = bp_request(requests, &it, sizeof it);
    }
    return err;
}

/* On the ranks of mesh->replica, together. A lead's failures are agreed on afterwards. */
static bp_err run_unit(void *context, int64_t i)
{
    sampler *self = context;
    bp_requests requests = {.group = self->each->mesh->replica, .answer = answer, .context = self};

    if (!self->leads)
        return bp_requests_follow(&requests);
    bp_err err = lead_unit(self, &requests, i);

    bp_requests_end(&requests);
    return err;
}

/* ---- before and after ---- */

static bp_err open_corpus(sampler *self, const bp_config *config)
{
    const bp_model_info *model = self->each->model;
    bp_err err = bp_corpus_open(&self->corpus, self->each->corpus);

    if (err == BP_OK)
        err = bp_score_check_corpus(self->corpus, model);
    if (err != BP_OK)
        return err;
    int64_t eod = bp_corpus_eod(self->corpus);
    bp_score_resolve_ends(config, eod >= 0 ? eod : model->eod_id,
                          bp_corpus_roles(self->corpus)[BP_ROLE_BOS], model, &self->rule);
    err = scorer_resolve_specials(self->corpus, &self->rule);
    if (err != BP_OK)
        return err;
    err = bp_score_plan_init(&self->plan, self->corpus, &self->rule, NULL, BP_SCORE_UNIT_INPUTS);
    if (err == BP_OK)
        err = bp_score_unit_new(&self->unit, &self->plan, 1);
    return err == BP_OK ? choose_units(self) : err;
}

static bp_err open_sampler(sampler *self)
{
    static const bp_option *const tables[] = {bp_score_rule_options, NULL};
    const bp_config *given = self->each->config;
    bp_config *config = NULL; /* takes the resolved values */
    bp_err err = given ? bp_config_derive(&config, given, tables, tables)
                       : bp_config_new(&config, tables, tables);

    if (err == BP_OK) /* the rule, except for what depends on the end-of-document token */
        err = bp_score_resolve(config, self->each->model, &self->rule);
    err = bp_agree(self->each->mesh->compute, err);

    if (err == BP_OK && self->leads)
        err = open_corpus(self, config);
    bp_config_free(&config);
    err = bp_agree(self->each->mesh->compute, err);
    if (err != BP_OK)
        return err;
    int64_t tokens = bp_score_batch_tokens(bp_score_piece_inputs(&self->rule));
    self->inputs = bp_alloc("infer.each", self->leads ? 0 : tokens, sizeof(*self->inputs));
    self->targets = bp_alloc("infer.each", tokens, sizeof(*self->targets));
    if (self->each->model->reads_source && !self->leads) {
        self->sources = bp_alloc("infer.each", tokens, sizeof(*self->sources));
        self->source_lengths =
            bp_alloc("infer.each", BP_SCORE_BATCH_TOKENS, sizeof(*self->source_lengths));
    }
    bp_bcast_bytes(&self->count, sizeof(self->count), 0, self->each->mesh->replica);
    return BP_OK;
}

/* ---- of a task: a unit is a group of documents ---- */

typedef struct group_sampler {
    const bp_score_each *each;
    task_documents documents;
} group_sampler;

static bp_err run_group(void *context, int64_t g)
{
    group_sampler *self = context;
    bp_model_batch batch;
    bp_err err = task_documents_group(&self->documents, g, -1, &batch);

    bp_heartbeat_progress();
    return err == BP_OK ? self->each->batch(self->each->context, g, &batch) : err;
}

static bp_err each_document(const bp_score_each *each, int64_t *count)
{
    MPI_Comm compute = each->mesh->compute;
    bp_corpus *corpus = NULL;
    group_sampler self = {.each = each};
    bool leads = bp_comm_is_root(each->mesh->replica);
    bp_err err = leads ? bp_corpus_open(&corpus, each->corpus) : BP_OK;

    if (err == BP_OK && leads)
        err = bp_score_check_corpus(corpus, each->model);
    err = bp_agree(compute, err);
    if (err == BP_OK)
        err = bp_task_documents_open(&self.documents,
                                     &(task_documents_spec){.mesh = each->mesh,
                                                            .model = each->model,
                                                            .path = each->path,
                                                            .corpus = corpus,
                                                            .wanted = each->tokens,
                                                            .config = each->config},
                                     compute);
    if (err == BP_OK)
        err = deal(each, task_documents_groups(&self.documents), run_group, &self);
    if (count)
        *count = self.documents.rows * task_documents_ends(&self.documents);
    bp_task_documents_clear(&self.documents);
    bp_corpus_close(&corpus);
    return err;
}

/* ---- all of it ---- */

bp_err bp_score_each_batch(const bp_score_each *each, int64_t *tokens)
{
    sampler self = {.each = each, .leads = bp_comm_is_root(each->mesh->replica)};
    bp_err err;

    if (bp_task_has_head(&each->model->task))
        return each_document(each, tokens);
    err = open_sampler(&self);
    if (err == BP_OK)
        err = deal(each, self.count, run_unit, &self);
    if (tokens)
        *tokens = bp_all_sum_int(self.done, each->mesh->compute);
    bp_free(self.source_lengths);
    bp_free(self.sources);
    bp_free(self.targets);
    bp_free(self.inputs);
    bp_free(self.scored);
    bp_score_unit_free(&self.unit);
    bp_score_plan_clear(&self.plan);
    bp_corpus_close(&self.corpus);
    return err;
}
