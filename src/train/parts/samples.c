/* Texts that a training writes now and then: its current parameters continue a prompt after a step.
 * One copy of the model decodes; the others wait in the next step. Sampling does not change the
 * training. Called by jobs/ensemble.c, jobs/finetune.c and jobs/pretrain.c. */
#include "train/parts/list.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/rng.h"
#include "infer/generate/results/results.h"
#include "infer/generate/spell.h"
#include "infer/generate/units.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "models/network/network_model.h"
#include "train/loop/parts.h"
#include "train/loop/reports/report.h"
#include "train/parts/keys.h"

#include <inttypes.h>
#include <omp.h>
#include <string.h>

#define SHOWN_BYTES 400 /* of a text, in the log */

typedef struct sample_keys {
    int64_t every;
    const char *prompt;
    int64_t tokens;
    double temperature;
} sample_keys;

const bp_option training_samples_options[] = {
    {BP_INT_KEY("train.sample_every", "0", 0, 1e12), .unit = "steps",
     .help = "a text that the model writes, in samples.jsonl and the log; 0: none",
     .at = BP_AT(sample_keys, every)},
    {BP_STRING_KEY("train.sample_prompt", NULL),
     .help = "the text that samples go on from; not given: the end-of-document token",
     .at = BP_AT(sample_keys, prompt)},
    {BP_INT_KEY("train.sample_tokens", "64", 1, 1e6), .unit = "tokens",
     .help = "the most new tokens of a sample", .at = BP_AT(sample_keys, tokens)},
    {BP_REAL_KEY("train.sample_temperature", "0", 0, 1000),
     .help = "of samples: 0 takes the best token; else logits are divided by it and tokens drawn",
     .at = BP_AT(sample_keys, temperature)},
    {.key = NULL},
};

static const sample_keys *keys_of(const trainer *self)
{
    return bp_config_bound(self->config, training_samples_options);
}

/* One text at a time. Not made without train.sample_every. */
typedef struct sampling {
    bp_prompts prompt;       /* on all ranks, ids only */
    bp_search_spec rule;     /* its seed is the step's */
    bp_generate_plan plan;   /* of one sequence */
    bp_tokenizer *tokenizer; /* on the coordinator; NULL: not known */
    bp_model *model;         /* the engine's network; of the first data rank, as `unit` */
    bp_unit *unit;
} sampling;

static int64_t every(const trainer *self)
{
    return keys_of(self)->every;
}

/* ---- the prompt ---- */

/* The token that begins documents; else the token that ends the previous document. */
static bp_err begin_document(const trainer *self, bp_ids *ids)
{
    int64_t first = self->facts.roles[BP_ROLE_FIRST];
    uint32_t token = (uint32_t)(first >= 0 ? first : self->facts.eod_id);

    if (first < 0 && self->facts.eod_id < 0)
        return BP_FAIL(BP_ERR_CONFIG, "train.no_sample_prompt",
                       "train.sample_prompt is not given, and the corpus has no end-of-document "
                       "token that a text could begin with: at train.sample_prompt; give a text");
    bp_ids_reserve(ids, 1);
    ids->data[ids->count++] = token;
    return BP_OK;
}

static bp_err check_prompt(const trainer *self, const bp_ids *ids)
{
    if (ids->count == 0 || ids->count > bp_model_most_inputs(&self->shape))
        return BP_FAIL(BP_ERR_CONFIG, "train.bad_sample_prompt",
                       "the prompt has %" PRId64
                       " tokens: at train.sample_prompt; give a text of 1 to %" PRId64
                       " tokens, as model.context is",
                       ids->count, self->shape.context);
    for (int64_t k = 0; k < ids->count; k++)
        if ((int64_t)ids->data[k] >= self->shape.vocab_size)
            return BP_FAIL(BP_ERR_CONFIG, "train.bad_sample_prompt",
                           "the prompt has token %" PRIu32 ", but the model's vocabulary %" PRId64
                           " tokens: at train.sample_prompt; give another text",
                           ids->data[k], self->shape.vocab_size);
    return BP_OK;
}

/* On the coordinator. */
static bp_err read_prompt(const trainer *self, sampling *samples, bp_ids *ids)
{
    const char *text = keys_of(self)->prompt;
    bp_err err = BP_OK;

    if (text || self->data.tokenizer)
        err = keys_tokenizer(self, "train.sample_prompt", &samples->tokenizer);
    if (err == BP_OK)
        err = !text || self->facts.roles[BP_ROLE_FIRST] >= 0 ? begin_document(self, ids) : BP_OK;
    if (err == BP_OK && text)
        err = keys_encode(samples->tokenizer, text, ids);
    return err == BP_OK ? check_prompt(self, ids) : err;
}

/* Memory of a rank of this stage for decoding; 0 if the model can't decode. */
static bp_err decode_bytes(const trainer *self, const bp_mesh_shape *mesh, int stage,
                           int64_t capacity, int64_t *bytes)
{
    const bp_model_task task = {
        .mesh = mesh, .stage = stage, .groups = 1, .slots = 1, .capacity = capacity};
    bp_model_memory memory = {0};
    bp_err err = bp_model_estimate_shape(&memory, &self->shape, self->config, &task);

    *bytes = memory.decode_bytes;
    return err;
}

static bp_err check_family(const trainer *self)
{
    static const bp_mesh_shape ONE = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    const bp_model_family *family = self->shape.family;
    int64_t bytes = 0;
    bool causal = !family->counting && bp_model_objective(&self->shape) == &bp_objective_causal;
    bp_err err = causal ? decode_bytes(self, &ONE, 0, 1, &bytes) : BP_OK;

    if (err == BP_OK && bytes == 0)
        err = BP_FAIL(BP_ERR_CONFIG, "model.not_causal",
                      "a model of kind %s does not continue sequences: at train.sample_every; "
                      "leave it out, or take another model.kind",
                      family->name);
    if (err == BP_OK && self->mesh->expert_ranks > 1)
        err = BP_FAIL(BP_ERR_CONFIG, "mesh.expert_samples",
                      "one data rank writes texts, and with mesh.expert = %d it lacks experts: at "
                      "train.sample_every; leave it out, or mesh.expert at 1",
                      self->mesh->expert_ranks);
    return err;
}

static void share_prompt(const trainer *self, bp_prompts *prompt, bp_ids *ids)
{
    int64_t count = ids->count;

    bp_bcast_bytes(&count, sizeof count, 0, self->mesh->world);
    bp_ids_reserve(ids, count - ids->count);
    ids->count = count;
    bp_bcast_bytes(ids->data, count * (int64_t)sizeof *ids->data, 0, self->mesh->world);
    prompt->count = 1;
    prompt->starts = bp_alloc("train.samples", 2, sizeof *prompt->starts);
    prompt->starts[1] = prompt->longest = count;
    prompt->ids = *ids;
}

static bp_err open_samples(trainer *self, void **own)
{
    *own = every(self) > 0 ? bp_alloc("train.samples", 1, sizeof(sampling)) : NULL;
    return BP_OK;
}

/* Checks the prompt, the rule, and that the model can decode. */
static bp_err ready(trainer *self, void *own)
{
    const sample_keys *keys = keys_of(self);
    sampling *samples = own;
    bp_ids ids = {0};
    bp_err err;

    if (!samples)
        return BP_OK;
    err = check_family(self);
    if (err == BP_OK && self->mesh->coordinates)
        err = read_prompt(self, samples, &ids);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK) {
        bp_ids_clear(&ids);
        return err;
    }
    share_prompt(self, &samples->prompt, &ids);
    samples->rule = (bp_search_spec){.choice = {.vocab_size = self->shape.vocab_size,
                                                .samples = keys->temperature > 0,
                                                .temperature = keys->temperature,
                                                .top_p = 1,
                                                .repetition_penalty = 1},
                                     .texts = 1,
                                     .end = self->facts.eod_id,
                                     .ends = self->facts.ends};
    samples->plan = bp_generate_plan_of(&samples->rule, 1, samples->prompt.longest, 1, keys->tokens,
                                        bp_model_most_inputs(&self->shape), 1);
    return BP_OK;
}

static bp_err bytes_of(const trainer *self, const void *own, const bp_mesh_shape *mesh, int stage,
                       size_t *bytes)
{
    const sampling *samples = own;
    int64_t V = self->shape.vocab_size, decoding = 0;
    bp_err err;

    if (every(self) == 0)
        return BP_OK;
    err = decode_bytes(self, mesh, stage, samples ? samples->plan.capacity : 0, &decoding);
    *bytes = (size_t)decoding;
    if (stage == mesh->pipeline - 1)
        *bytes +=
            (size_t)(2 * V) * sizeof(float) + (size_t)(omp_get_max_threads() * bp_choice_bytes(V));
    return err;
}

/* ---- writing ---- */

/* Allocates caches of keys and values. */
static bp_err begin(trainer *self, void *own)
{
    sampling *samples = own;
    bp_err err = BP_OK;

    if (samples && self->mesh->computes && self->mesh->data_rank == 0) {
        samples->model = bp_model_view(self->mesh, bp_engine_network(self->engine), &self->shape);
        err = bp_unit_new(&samples->unit, &(bp_unit_spec){.mesh = self->mesh,
                                                          .model = samples->model,
                                                          .rule = &samples->rule,
                                                          .prompts = &samples->prompt,
                                                          .plan = &samples->plan});
    }
    return bp_agree(self->mesh->world, err);
}

static void close_samples(void *own)
{
    sampling *samples = own;

    bp_unit_free(&samples->unit);
    bp_model_free(&samples->model);
    bp_prompts_clear(&samples->prompt);
    bp_tokenizer_free(&samples->tokenizer);
    bp_free(samples);
}

/* The message about a text to the coordinator. */
static json_t *line_of(int64_t step, const bp_search_text *text)
{
    json_t *tokens = json_array();
    double logprob = 0;

    for (int64_t i = 0; i < text->count; i++) {
        (void)json_array_append_new(tokens, json_integer(text->tokens[i]));
        logprob += text->logprobs[i];
    }
    return json_pack("{s:I, s:o, s:o, s:s}", "step", (json_int_t)step, "tokens", tokens, "logprob",
                     bp_json_real(logprob), "finish", bp_finish_name(text->finish));
}

/* On compute's root. */
static bp_err send_result(trainer *self, const bp_buffer *result)
{
    bp_result_reader reader = {result->data, result->data + result->bytes};
    bp_search_text text = {0};
    int64_t texts = 0;
    bp_err err = bp_result_prompt(&reader, &texts);

    if (err == BP_OK)
        err = bp_result_text(&reader, &text);
    if (err == BP_OK)
        bp_part_report(self, &training_samples, line_of(self->progress.step, &text));
    bp_result_text_clear(&text);
    return err;
}

/* On the copy of the model of the first data rank. A failure is a warning. */
static bp_err write_text(trainer *self, void *own)
{
    sampling *samples = own;
    int64_t step = self->progress.step;
    bp_phase before = bp_heartbeat_phase(BP_PHASE_VALIDATE);
    bp_buffer result = {0};
    double began = bp_clock_now();
    bool stopped;
    bp_err err;

    if (samples && samples->unit && step % every(self) == 0) {
        bp_rng_key key = bp_rng_key_of(self->spec.seed, BP_RNG_GENERATE, 0, step, 1);

        (void)bp_engine_network(self->engine); /* all parameters are there */
        samples->rule.choice.seed = bp_rng_u64(&key, 0);
        err = bp_unit_run(samples->unit, 0, &result, &stopped);
        if (bp_comm_is_root(self->mesh->model)) {
            if (err == BP_OK && !stopped)
                err = send_result(self, &result);
            if (err != BP_OK) /* the training reports whether it has diverged */
                bp_warn_failure("no sample of step %" PRId64 ": %s", step, bp_err_text());
        }
        bp_buffer_clear(&result);
        bp_heartbeat_step(step);
        report_pause(self, bp_clock_now() - began);
    }
    (void)bp_heartbeat_phase(before);
    return BP_OK;
}

/* ---- on the coordinator ---- */

/* The new tokens of a line, without the end token. */
static bp_err spell(const sampling *samples, const json_t *line, char **text, size_t *bytes)
{
    const json_t *list = json_object_get(line, "tokens");
    int64_t count = (int64_t)json_array_size(list);
    int32_t *tokens = bp_alloc("train.samples", count + 1, sizeof *tokens);
    bp_err err = BP_OK;

    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    if (count > 0 && bp_search_ends(&samples->rule, tokens[count - 1]))
        count--;
    if (samples->tokenizer)
        err = bp_spell(samples->tokenizer, tokens, count, text, bytes);
    bp_free(tokens);
    return err;
}

static void log_text(const trainer *self, int64_t step, const char *text, size_t bytes)
{
    const char *prompt = keys_of(self)->prompt;
    bp_buffer shown = {0};

    if (prompt)
        bp_text_escape(&shown, prompt, strlen(prompt));
    bp_buffer_add(&shown, "|", 1);
    bp_text_escape(&shown, text, bytes < SHOWN_BYTES ? bytes : SHOWN_BYTES);
    bp_log("sample of step %" PRId64 ": %s%s", step, shown.data, bytes > SHOWN_BYTES ? "..." : "");
    bp_buffer_clear(&shown);
}

/* A line of samples.jsonl, and of the log. */
static bp_err receive(trainer *self, void *own, const json_t *value)
{
    const char *prompt = keys_of(self)->prompt;
    int64_t step = json_integer_value(json_object_get(value, "step"));
    json_t *line = json_object();
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = spell(own, value, &text, &bytes);

    (void)json_object_set(line, "step", json_object_get(value, "step"));
    (void)json_object_set_new(line, "prompt", bp_spell_json(prompt, prompt ? strlen(prompt) : 0));
    (void)json_object_set_new(line, "text", bp_spell_json(text, bytes));
    (void)json_object_update(line, (json_t *)value); /* which is not changed */
    if (err == BP_OK)
        err = bp_run_sample(self->run, line);
    if (err == BP_OK && text)
        log_text(self, step, text, bytes);
    bp_free(text);
    json_decref(line);
    return err;
}

static void describe_run(const trainer *self, const void *own, bp_run_spec *spec)
{
    (void)self;
    spec->samples = own != NULL;
}

static const char *const MAY_CHANGE[] = {"train.sample_*", NULL};

const bp_training_part training_samples = {
    .name = "samples",
    .may_change = MAY_CHANGE,
    .memory = "keys and values of a text that the model writes",
    .open = open_samples,
    .describe_run = describe_run,
    .bytes = bytes_of,
    .at = {[PART_READY] = ready, [PART_BEGIN] = begin, [PART_STEPPED] = write_text},
    .receive = receive,
    .close = close_samples,
};
