/* The job of score.questions (job/work.h runs it): units of choices (../candidates/choices.h), and
 * their merge. */
#include "infer/score/questions/questions.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "infer/ensemble/ensemble.h"
#include "infer/ensemble/model_tokenizer.h"
#include "infer/score/keys.h"
#include "infer/score/questions/questions_priv.h"
#include "infer/score/scorer.h"
#include "infer/score/unit.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/network/weights.h"
#include "models/open.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- before there is a mesh ---- */

/* bp_work_memory.rank: a batch of rows of the context's length, and one row that is decoded. */
static bp_err estimate_rank(const void *context, const bp_work_models *models,
                            const bp_work_place *place, bp_rank_memory *out)
{
    int64_t asked = bp_score_rule_keys_of(models->config)->context,
            most = bp_model_state_context(models->states[0]);
    bp_work_model_bytes bytes;

    (void)context;
    most = asked > 0 ? asked : most < BP_SCORE_BATCH_TOKENS ? most : BP_SCORE_BATCH_TOKENS;
    if (most <= 0)
        return BP_ERR_FORMAT;
    if (!place->computes)
        return BP_OK;
    bp_err err = bp_work_model_bytes_of(&bytes, models,
                                        &(bp_model_task){.mesh = place->mesh,
                                                         .stage = place->stage,
                                                         .windows = bp_score_batch_windows(most),
                                                         .length = most,
                                                         .groups = 1,
                                                         .slots = 1,
                                                         .capacity = most},
                                        place->member);
    if (err != BP_OK)
        return err;
    out->node_bytes += bytes.node;
    out->own_bytes += bytes.weights + bytes.work + (models->ensemble ? bytes.decode : 0) +
                      chooser_bytes(most, BP_MODEL_MEMBER + models->members,
                                    models->ensemble ? 0 : bytes.widest.vocab_size);
    if (place->stage == place->mesh->pipeline - 1 && models->ensemble)
        out->own_bytes += bp_ensemble_work_bytes(
            &bytes.widest, place->mesh, models->members, bp_score_batch_tokens(most),
            bp_score_rule_keys_of(models->config)->memory, false);
    return BP_OK;
}

static bp_err describe(void *context, MPI_Comm world, bp_work_memory *out)
{
    const questions *self = context;

    (void)world;
    out->model = bp_score_keys_of(self->job->config)->model;
    out->remedy = "use a smaller score.context";
    out->rank = estimate_rank;
    return BP_OK;
}

static bp_err open_model(void *context, bp_model **out)
{
    const questions *self = context;
    const bp_config *config = self->job->config;
    const bp_score_rule_keys *rule = bp_score_rule_keys_of(config);
    const char *path = bp_score_keys_of(config)->model;
    const bp_ensemble_spec spec = {
        .path = path, .context = rule->context, .memory_bytes = (size_t)rule->memory};

    return self->job->ensemble
               ? bp_ensemble_open(out, self->job->mesh, config, &spec)
               : bp_model_open_wide(out, self->job->mesh, config, path, rule->context);
}

/* ---- inputs ---- */

static bp_err check_model(const questions *self)
{
    const bp_model_info *info = &self->job->info;
    const char *path = bp_score_keys_of(self->job->config)->model;

    if (bp_task_has_head(&info->task))
        return BP_FAIL(BP_ERR_CONFIG, "task.unused_key",
                       "score.questions is of language models, and score.model has the head of a "
                       "task, %s: at %s; score a corpus with labels",
                       bp_task_name(info->task.kind), path);
    if (info->masks || info->reads_source)
        return BP_FAIL(BP_ERR_CONFIG, "score.other_convention",
                       "score.questions asks what follows a text, which only causal models "
                       "answer: at score.model = %s; take a causal model",
                       path);
    if (self->context <= info->context)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "score.context_too_long",
                   "score.context = %" PRId64 " is more than the model's %" PRId64
                   ": at score.context; use %" PRId64 " or less",
                   self->context, info->context, info->context);
}

/* A token as text, for the page; NULL: there is none. */
static bp_err name_token(char **name, const bp_tokenizer *tokenizer, int64_t id)
{
    bp_buffer text = {0};
    bp_err err = id < 0 ? BP_OK : bp_tokenizer_token_bytes(tokenizer, id, &text);

    if (err == BP_OK && id >= 0) {
        bp_buffer_add(&text, "", 1);
        *name = bp_buffer_take(&text);
    }
    bp_buffer_clear(&text);
    return err;
}

static bp_err read_set(questions *self, const bp_tokenizer *tokenizer)
{
    const bp_model_info *info = &self->job->info;
    bool as_texts = strcmp(self->prefix, "auto") == 0;
    int64_t alone = scorer_find_lead(self->prefix, info->eod_id, info, -1);
    const bp_questions_spec spec = {.path = bp_score_keys_of(self->job->config)->questions,
                                    .tokenizer = tokenizer,
                                    .prefix = {.before = as_texts ? bp_model_first(info) : alone,
                                               .alone = alone,
                                               .bos = bp_model_bos(info)},
                                    .context = self->context};
    bp_err err =
        as_texts ? bp_tokenizer_check_first(tokenizer, spec.prefix.before, "score.prefix") : BP_OK;

    if (err == BP_OK)
        err = name_token(&self->lead[0], tokenizer, spec.prefix.before);
    if (err == BP_OK)
        err = name_token(&self->lead[1], tokenizer, alone);
    if (err == BP_OK)
        err = bp_question_set_read(&self->set, &spec);
    if (err == BP_OK)
        bp_question_set_hash(&self->set, self->hash);
    return err;
}

static void warn(const questions *self)
{
    const bp_candidates *rows = &self->set.rows;
    const char *path = bp_score_keys_of(self->job->config)->questions;

    if (rows->unscored > 0)
        BP_WARN("choices.unscored",
                "%" PRId64 " of %" PRId64 " texts have no log-probability, being empty or longer "
                "than score.context = %" PRId64 ": at %s; their lines say null",
                rows->unscored, self->set.options, self->context, path);
    if (self->set.cut > 0)
        BP_WARN("questions.cut",
                "%" PRId64 " of %" PRId64 " texts have more than score.context = %" PRId64
                " tokens, context and continuation, and lose their beginning: at %s",
                self->set.cut, self->set.options, self->context, path);
}

/* On leads and the coordinator: all read the file. */
static bp_err load(questions *self)
{
    bp_work_job *job = self->job;
    const bp_config *config = job->config;
    bp_tokenizer *tokenizer = NULL;
    bp_err err = bp_model_tokenizer_open(&tokenizer, config, bp_score_keys_of(config)->model,
                                         &job->info, job->mesh->world);

    if (err == BP_OK && !tokenizer)
        err = BP_FAIL(BP_ERR_CONFIG, "questions.no_tokenizer",
                      "score.questions needs a tokenizer, and the model brings none: at "
                      "tokenizer.path; set it");
    if (err == BP_OK && (job->leads || job->mesh->coordinates))
        err = read_set(self, tokenizer);
    bp_tokenizer_free(&tokenizer);
    err = bp_agree(job->mesh->world, err);
    bp_bcast_bytes(self->hash, BP_SHA256_HEX, 0, job->mesh->world);
    return err;
}

/* ---- units ---- */

static bp_err prepare(void *context)
{
    return chooser_prepare(&((questions *)context)->chooser);
}

static bp_err run_unit(void *context, int64_t unit, bp_buffer *out, bool *stopped)
{
    return chooser_run(&((questions *)context)->chooser, unit, out, stopped);
}

static bp_err answer(void *context, const void *what)
{
    return chooser_answer(&((questions *)context)->chooser, what);
}

static int64_t count_texts(const void *context, int64_t unit)
{
    return chooser_amount(&((const questions *)context)->chooser, unit);
}

static void release(void *context)
{
    chooser_release(&((questions *)context)->chooser);
}

/* ---- the merge ---- */

static bp_err save(questions *self, const question_results *results,
                   const question_metrics *metrics)
{
    const bp_config *config = self->job->config;
    const char *folder = self->job->folder;
    char *path = bp_path_join(folder, "summary.json");
    json_t *figures = question_figures(&self->set, metrics, (uint64_t)bp_run_keys_of(config)->seed);
    bp_err err = question_lines_write(results, metrics, folder);

    self->summary =
        json_pack("{ss si s{ss} s{sI ss ss} ss sI sI}", "format", "bagpipe-questions", "version", 1,
                  "model", "digest", self->job->info.digest, "convention", "context",
                  (json_int_t)(self->context < BP_MODEL_UNLIMITED ? self->context : 0), "prefix",
                  self->prefix, "precision", bp_math_keys_of(config)->precision, "questions_sha256",
                  self->hash, "texts", (json_int_t)self->set.options, "unscored",
                  (json_int_t)self->set.rows.unscored);
    bp_weights_record(self->summary, config);
    (void)json_object_update(self->summary, figures);
    if (err == BP_OK && strcmp(bp_score_keys_of(config)->questions_form, "lm-eval") == 0)
        err = question_harness_write(results, metrics, self->summary, self->job);
    if (err == BP_OK)
        err = bp_json_save(path, self->summary);
    if (err == BP_OK)
        question_page_write(self, results, metrics);
    json_decref(figures);
    bp_free(path);
    return err;
}

static bp_err merge(void *context, bp_parts *parts)
{
    questions *self = context;
    const chooser *c = &self->chooser;
    int64_t rows = self->set.rows.count, count = self->set.count;
    choice_result *of = bp_alloc("score.questions", rows, sizeof *of);
    double *of_members = bp_alloc("score.questions", rows * c->members + 1, sizeof *of_members);
    question_metrics *metrics = bp_alloc("score.questions", count, sizeof *metrics);
    const question_results results = {
        .set = &self->set, .rows = of, .of_members = of_members, .members = c->members};
    bp_err err = chooser_take(c, parts, of, of_members);

    for (int64_t k = 0; err == BP_OK && k < count; k++)
        question_measure(&metrics[k], &results, k);
    if (err == BP_OK)
        err = save(self, &results, metrics);
    bp_free(metrics);
    bp_free(of_members);
    bp_free(of);
    return err;
}

/* ---- the job ---- */

static bp_err open_job(void *context)
{
    questions *self = context;
    bp_work_job *job = self->job;
    bool reads = job->leads || job->mesh->coordinates;
    int64_t asked = bp_score_rule_keys_of(job->config)->context,
            whole = job->model && chooser_gives_whole(job->model);

    char cut[CHOOSER_KEY_BYTES];

    self->context = asked > 0 ? asked : job->info.context;
    self->prefix = bp_score_rule_keys_of(job->config)->prefix;
    bp_err err = check_model(self);

    if (err == BP_OK)
        err = load(self);
    if (err != BP_OK)
        return err;
    self->chooser = (chooser){.job = job,
                              .all = &self->set.rows,
                              .statistics = job->info.statistics,
                              .members = job->info.members,
                              .whole = bp_all_max_int(whole, job->mesh->world) > 0};
    bp_work_key(self->key, "questions 1 %s %s %s %s %" PRId64 " %d %d %s", job->info.digest,
                self->hash, bp_math_keys_of(job->config)->precision, self->prefix, self->context,
                job->mesh_shape.tensor, job->mesh_shape.members, chooser_key(cut, &self->chooser));
    if (reads) {
        chooser_cut(&self->chooser);
        if (job->mesh->coordinates)
            warn(self);
    }
    job->units = (bp_work_units){.key = self->key,
                                 .count = self->chooser.count,
                                 .mesh_keys = "mesh.tensor, mesh.members",
                                 .again = "scored",
                                 .amount = (double)self->set.rows.count,
                                 .noun = "texts",
                                 .speed_digits = 1,
                                 .prepare = prepare,
                                 .run = run_unit,
                                 .answer = answer,
                                 .amount_of = count_texts,
                                 .release = release,
                                 .merge = merge};
    return BP_OK;
}

static void identify(const void *context, bp_run_identity *out)
{
    const questions *self = context;

    *out = (bp_run_identity){"score.questions", self->hash};
}

static void say(const void *context)
{
    const questions *self = context;

    bp_log("asking %" PRId64 " questions: %" PRId64 " texts in %" PRId64 " work units",
           self->set.count, self->set.rows.count, self->chooser.count);
}

static json_t *started(const void *context)
{
    const questions *self = context;

    return json_pack("{sI sI}", "questions", (json_int_t)self->set.count, "texts",
                     (json_int_t)self->set.rows.count);
}

static void report_task(const char *name, const json_t *figures)
{
    static const char *const SHOWN[] = {"acc", "acc_norm", "acc_mutual", "perplexity"};
    bp_buffer line = {0};

    bp_buffer_printf(&line, "%-16s %7" PRId64 " questions", name,
                     (int64_t)json_integer_value(json_object_get(figures, "questions")));
    for (size_t k = 0; k < sizeof SHOWN / sizeof SHOWN[0]; k++) {
        double low = bp_json_number(json_object_get(figures, SHOWN[k]), "low");

        if (!isnan(bp_json_number(json_object_get(figures, SHOWN[k]), "value")))
            bp_buffer_printf(&line, "  %s %.4g", SHOWN[k],
                             bp_json_number(json_object_get(figures, SHOWN[k]), "value"));
        if (!isnan(low))
            bp_buffer_printf(&line, " (%.4g to %.4g)", low,
                             bp_json_number(json_object_get(figures, SHOWN[k]), "high"));
    }
    bp_log("%.*s", (int)line.bytes, line.data);
    bp_buffer_clear(&line);
}

static void warn_of_ties(const json_t *all)
{
    int64_t ties = json_integer_value(json_object_get(all, "ties"));

    if (ties > 0)
        BP_WARN("questions.ties",
                "%" PRId64 " of %" PRId64
                " questions have best options that are equally probable, and the first of them is "
                "taken, as lm-evaluation-harness does: at score.questions; if each counts as a "
                "part of a right answer, acc is %.4g instead of %.4g (acc_ties_shared): report "
                "that",
                ties, (int64_t)json_integer_value(json_object_get(all, "questions")),
                json_number_value(json_object_get(all, "acc_ties_shared")),
                bp_json_number(json_object_get(all, "acc"), "value"));
}

static void report(const void *context)
{
    const questions *self = context;
    json_t *tasks = json_object_get(self->summary, "tasks"), *figures;
    const char *name;

    json_object_foreach(tasks, name, figures) report_task(name, figures);
    if (json_object_size(tasks) > 1)
        report_task("all", json_object_get(self->summary, "all"));
    warn_of_ties(json_object_get(self->summary, "all"));
}

static void close(void *context)
{
    questions *self = context;

    bp_free(self->lead[0]);
    bp_free(self->lead[1]);
    json_decref(self->summary);
    chooser_clear(&self->chooser);
    bp_question_set_clear(&self->set);
}

static const char *const FILES[] = {"questions.jsonl", "summary.json", "results.json", NULL};

static bool writes(const void *context, const char *file)
{
    const questions *self = context;

    return strcmp(file, "results.json") != 0 ||
           strcmp(bp_score_keys_of(self->job->config)->questions_form, "lm-eval") == 0;
}

static const bp_work QUESTIONS = {.name = "score",
                                  .shares_experts = true,
                                  .self_bytes = sizeof(questions),
                                  .model_key = "score.model",
                                  .results = "answers",
                                  .files = FILES,
                                  .writes = writes,
                                  .page = "questions",
                                  .describe = describe,
                                  .open_model = open_model,
                                  .open = open_job,
                                  .identify = identify,
                                  .say = say,
                                  .started = started,
                                  .report = report,
                                  .close = close};

/* Keys that have no meaning with it. */
static bp_err check_keys(const bp_config *config)
{
    static const char *const OTHERS[] = {
        "score.corpus",      "score.candidates",   "score.vectors",    "score.vectors_norm",
        "score.select",      "score.tokens",       "score.states",     "score.mix",
        "score.mix_scale",   "score.neighbours",   "score.convention", "score.stride",
        "score.end",         "score.prefix_every", "score.cut",        "run.member",
        "task.stride",       "task.answer_tokens", "neighbours.k",     "neighbours.temperature",
        "neighbours.weight", "score.boundaries",   "score.entropy",    "score.cluster"};

    for (size_t k = 0; k < sizeof OTHERS / sizeof OTHERS[0]; k++)
        if (bp_config_departs(config, OTHERS[k]))
            return BP_FAIL(BP_ERR_CONFIG, "questions.other_key",
                           "%s is given, and score.questions asks questions and scores no corpus: "
                           "at %s; leave one of them out",
                           OTHERS[k], OTHERS[k]);
    return BP_OK;
}

bp_err bp_questions(MPI_Comm world, bp_config *config, const bp_planned_world *plan)
{
    bp_err err = check_keys(config);

    return err == BP_OK ? bp_work_start(&QUESTIONS, world, config, plan) : err;
}
