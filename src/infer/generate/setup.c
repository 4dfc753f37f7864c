/* From a configuration to a model, prompts and work units that are ready. Called by generate.c
 * before its first unit. */
#include "infer/generate/generator.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "infer/ensemble/model_tokenizer.h"
#include "infer/generate/entailment.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/network/weights.h"
#include "models/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* For an ensemble's mixture. */
#define MIXTURE_BYTES ((size_t)1 << 30)

/* ---- what continues ---- */

static bool fills(const generator *self)
{
    return strcmp(bp_generate_keys_of(self->job->config)->strategy, "fill") == 0;
}

bp_err generator_open_model(void *context, bp_model **out)
{
    const generator *self = context;
    const char *path = bp_generate_keys_of(self->job->config)->model;
    const bp_ensemble_spec spec = {.path = path, .memory_bytes = MIXTURE_BYTES};
    bp_err err = self->job->ensemble
                     ? bp_ensemble_open(out, self->job->mesh, self->job->config, &spec)
                     : bp_model_open(out, self->job->mesh, self->job->config, path);

    if (err != BP_OK)
        return err;
    const bp_model_info *info = &(*out)->info;
    if (bp_task_has_head(&info->task))
        return BP_FAIL(BP_ERR_CONFIG, "generate.of_task",
                       "the model has the head of a task, %s, and writes no text: at "
                       "generate.model = %s; score it",
                       bp_task_name(info->task.kind), path);
    if (fills(self) && (!info->masks || self->job->ensemble))
        err = BP_FAIL(
            BP_ERR_CONFIG, "generate.no_masks",
            "generate.strategy = fill fills in masks, which %s of kind %s does not have: at "
            "generate.model = %s; name one model of masked words",
            self->job->ensemble ? "an ensemble" : "a model", info->kind, path);
    if (err == BP_OK && !fills(self) && info->masks && !self->job->ensemble)
        err = BP_FAIL(BP_ERR_CONFIG, "model.not_causal",
                      "generate.strategy = %s continues text, and a model of kind %s fills in "
                      "masks: at generate.strategy; use fill, or name a causal model",
                      bp_generate_keys_of(self->job->config)->strategy, info->kind);
    if (err == BP_OK && !fills(self) && !(*out)->ops->decode)
        err = BP_FAIL(BP_ERR_CONFIG, "model.not_causal",
                      "generate does not decode models of kind %s: at generate.model = %s; name a "
                      "causal network",
                      info->kind, path);
    return err;
}

/* ---- the tokenizer ---- */

/* On all ranks: the rank that chooses looks for stop texts. */
static bp_err open_tokenizer(generator *self)
{
    return bp_model_tokenizer_open(&self->tokenizer, self->job->config,
                                   bp_generate_keys_of(self->job->config)->model, &self->job->info,
                                   self->job->mesh->world);
}

static bp_err open_stops(generator *self)
{
    const char *list = bp_generate_keys_of(self->job->config)->stop;
    bp_err err = list ? bp_stops_read(&self->stops, list) : BP_OK;

    if (err == BP_OK && list && !self->tokenizer)
        err = BP_FAIL(BP_ERR_CONFIG, "generate.no_tokenizer",
                      "generate.stop needs a tokenizer, and the model brings none: at "
                      "tokenizer.path; set it");
    if (err == BP_OK && list)
        err = bp_stops_use(&self->stops, self->tokenizer);
    self->rule.stops = list ? &self->stops : NULL;
    return bp_agree(self->job->mesh->world, err);
}

/* The tokens that frame and mask a text. */
static bp_err find_fill_rule(generator *self)
{
    static const bp_role NEEDED[] = {BP_ROLE_CLS, BP_ROLE_SEP, BP_ROLE_MASK};
    bp_fill_rule *rule = &self->plan.fill;
    int64_t *const to[] = {&rule->cls, &rule->sep, &rule->mask};
    bp_err err = BP_OK;

    if (!fills(self))
        return BP_OK;
    rule->rounds = bp_generate_keys_of(self->job->config)->rounds;
    rule->remask = bp_generate_keys_of(self->job->config)->remask;
    for (size_t k = 0; k < 3 && err == BP_OK; k++) {
        *to[k] = self->tokenizer ? bp_tokenizer_role(self->tokenizer, NEEDED[k]) : -1;
        if (*to[k] < 0)
            err = BP_FAIL(BP_ERR_CONFIG, "generate.no_special_token",
                          "generate.strategy = fill needs a token for '%s', and %s: at "
                          "tokenizer.path; set the tokenizer that the model was trained with",
                          bp_role_name(NEEDED[k]),
                          self->tokenizer ? "the tokenizer has none" : "there is no tokenizer");
    }
    return bp_agree(self->job->mesh->world, err);
}

/* Reserved positions of the context: two for framing tokens, and one to fill in, unless the prompt
 * has a mask. */
static int64_t reserved(const generator *self)
{
    return fills(self) ? 3 : 0;
}

/* ---- prompts ---- */

static bp_err read_prompts(generator *self)
{
    const bp_generate_keys *keys = bp_generate_keys_of(self->job->config);
    const bp_prompts_spec spec = {
        .path = keys->prompts,
        .template_path = keys->template_path,
        .tokenizer = self->tokenizer,
        .vocab_size = self->job->info.vocab_size,
        .context = self->job->info.context,
        .reserved = reserved(self),
        .mask = fills(self) ? self->plan.fill.mask : -1,
        .are_sources = self->job->info.reads_source,
        .cut = keys->cut,
        .end = self->job->info.eod_id,
        .first =
            self->before >= 0 ? self->before : generator_first(self->job->config, &self->job->info),
        .after = self->after,
        .before_ids = self->before < 0 && strcmp(keys->prefix, "auto") != 0};
    bp_prompts *prompts = &self->prompts;
    bp_buffer all = {0};
    bp_err err = bp_prompts_read(prompts, &spec);

    if (err == BP_OK) {
        size_t starts = (size_t)(prompts->count + 1) * sizeof *prompts->starts;

        bp_buffer_add(&all, prompts->starts, starts);
        bp_buffer_add(&all, prompts->ids.data,
                      (size_t)prompts->ids.count * sizeof *prompts->ids.data);
        bp_buffer_add(&all, prompts->text_starts, starts);
        bp_buffer_add(&all, prompts->text.data, prompts->text.bytes);
        if (prompts->too_long > 0)
            bp_buffer_add(&all, prompts->excess, (size_t)prompts->count * sizeof *prompts->excess);
        bp_sha256_of(all.data, all.bytes, self->prompts_hash);
    }
    bp_buffer_clear(&all);
    return err;
}

/* Ids to all ranks, texts stay with the root. */
static void share_prompts(generator *self)
{
    MPI_Comm world = self->job->mesh->world;
    bp_prompts *prompts = &self->prompts;
    bool root = bp_comm_is_root(world);
    int64_t sizes[3] = {prompts->count, prompts->ids.count, prompts->longest};

    bp_bcast_bytes(sizes, sizeof sizes, 0, world);
    if (!root) {
        prompts->count = sizes[0];
        prompts->longest = sizes[2];
        prompts->starts = bp_alloc("generate.prompts", sizes[0] + 1, sizeof *prompts->starts);
        bp_ids_reserve(&prompts->ids, sizes[1]);
        prompts->ids.count = sizes[1];
    }
    bp_bcast_bytes(prompts->starts, (sizes[0] + 1) * (int64_t)sizeof *prompts->starts, 0, world);
    bp_bcast_bytes(prompts->ids.data, sizes[1] * (int64_t)sizeof *prompts->ids.data, 0, world);
    bp_bcast_bytes(self->prompts_hash, BP_SHA256_HEX, 0, world);
    if (!self->job->info.reads_source)
        return;
    if (!root) {
        prompts->excess = bp_alloc("generate.prompts", sizes[0] + 1, sizeof *prompts->excess);
        prompts->cut = bp_generate_keys_of(self->job->config)->cut;
    }
    bp_bcast_bytes(prompts->excess, sizes[0] * (int64_t)sizeof *prompts->excess, 0, world);
}

/* Does prompt k have masks to fill in? */
static bool has_masks(const generator *self, int64_t k)
{
    bool any = false;

    for (int64_t i = 0; fills(self) && i < bp_prompts_length(&self->prompts, k); i++)
        any = any || bp_prompts_ids(&self->prompts, k)[i] == self->plan.fill.mask;
    return any;
}

static void warn_of_prompts(const generator *self)
{
    const char *prefix = bp_generate_keys_of(self->job->config)->prefix;
    int64_t cut = 0;

    if (strcmp(prefix, "none") != 0 && strcmp(prefix, "auto") != 0 &&
        generator_first(self->job->config, &self->job->info) < 0)
        BP_WARN("config.unused_key", "generate.prefix = %s is ignored: %s", prefix,
                self->job->info.masks || self->job->info.reads_source
                    ? "only causal models have a prefix"
                    : "the model has no such token");

    if (bp_config_is_given(self->job->config, "generate.cut") && !self->job->info.reads_source)
        BP_WARN("config.unused_key",
                "generate.cut has no effect on a model that reads no source; leave it out");
    if (self->prompts.not_utf8 > 0)
        BP_WARN("text.not_utf8",
                "%" PRId64 " of %" PRId64 " prompts have bytes that are not valid UTF-8: the first "
                "at %s, line %" PRId64 "; convert the file to UTF-8",
                self->prompts.not_utf8, self->prompts.count,
                bp_generate_keys_of(self->job->config)->prompts, self->prompts.invalid_line);
    if (self->prompts.too_long > 0)
        BP_WARN("generate.too_long",
                "%" PRId64 " of %" PRId64 " sources have more tokens, with their end, than the "
                "model's context of %" PRId64 ": at generate.prompts; %s",
                self->prompts.too_long, self->prompts.count, self->job->info.context,
                self->prompts.cut ? "they are cut"
                                  : "their lines in outputs.jsonl say so, generate.cut=yes cuts "
                                    "them");

    for (int64_t k = 0; k < self->prompts.count; k++)
        cut += !has_masks(self, k) &&
               bp_generate_tokens_left(&self->plan, bp_prompts_length(&self->prompts, k)) <
                   self->plan.tokens;
    if (cut > 0)
        BP_WARN("generate.cut_short",
                "%" PRId64 " of %" PRId64 " prompts have less than generate.tokens = %" PRId64
                " left to the model's context of %" PRId64 "%s: their texts end there",
                cut, self->prompts.count, self->plan.tokens, self->job->info.context,
                fills(self) ? ", two of which frame a text" : "");
}

/* Before a text is written. */
static bp_err check_measures(const generator *self)
{
    const bp_generate_keys *keys = bp_generate_keys_of(self->job->config);
    const char *key = keys->entails      ? "generate.entails"
                      : keys->references ? "generate.references"
                                         : NULL;
    MPI_Comm world = self->job->mesh->world;
    bp_err err = BP_OK;

    if (key && !self->tokenizer)
        err = BP_FAIL(
            BP_ERR_CONFIG, "generate.no_tokenizer",
            "%s needs texts, and the model brings no tokenizer: at tokenizer.path; set it", key);
    if (err == BP_OK && keys->entails && bp_comm_is_root(world))
        err = bp_entailment_check(keys->entails);
    return bp_agree(world, err);
}

static bp_err open_prompts(generator *self)
{
    const bp_generate_keys *keys = bp_generate_keys_of(self->job->config);
    MPI_Comm world = self->job->mesh->world;
    bp_err err = bp_comm_is_root(world) ? read_prompts(self) : BP_OK;

    if (err == BP_OK && bp_comm_is_root(world))
        err = generator_read_references(self);
    err = bp_agree(world, err);
    if (err != BP_OK)
        return err;
    share_prompts(self);
    int64_t longest = self->job->info.reads_source ? 1 : self->prompts.longest;
    bp_fill_rule fill = self->plan.fill;
    self->plan = bp_generate_plan_of(&self->rule, self->prompts.count, longest, keys->batch,
                                     keys->tokens, self->job->info.context - reserved(self),
                                     self->job->mesh->computes ? self->job->mesh->pipeline_ranks
                                                               : self->job->mesh_shape.pipeline);
    self->plan.fill = fill;
    self->plan.reads_source = self->job->info.reads_source;
    self->plan.start = (int32_t)self->start;
    warn_of_prompts(self);
    return BP_OK;
}

/* The name of the work: everything that determines a result's bits, except the machine. */
static void make_key(generator *self)
{
    const bp_search_spec *rule = &self->rule;
    const bp_choice_rule *choice = &rule->choice;
    const char *stop = bp_generate_keys_of(self->job->config)->stop;
    bp_buffer text = {0};

    bp_buffer_printf(
        &text,
        "generate 1 %s %s %d %.17g %" PRId64 " %.17g %.17g %.17g %.17g %" PRId64 " %" PRIu64
        " %" PRId64 " %" PRId64 " %.17g %" PRId64 " %" PRId64 " %" PRId64 " %s %d %d %d %s",
        self->prompts_hash, self->job->info.digest, choice->samples, choice->temperature,
        choice->top_k, choice->top_p, choice->repetition_penalty, choice->presence_penalty,
        choice->frequency_penalty, choice->no_repeat_ngram, choice->seed, rule->beams, rule->texts,
        rule->length_penalty, rule->end, self->plan.tokens, self->plan.unit_prompts,
        bp_math_keys_of(self->job->config)->precision, self->job->mesh_shape.members,
        self->job->mesh_shape.pipeline, self->job->mesh_shape.tensor, stop ? stop : "");
    if (self->plan.fill.rounds > 0)
        bp_buffer_printf(&text, " fill %" PRId64 "%s", self->plan.fill.rounds,
                         self->plan.fill.remask ? " again" : "");
    if (bp_weights_are_q8(self->job->config))
        bp_buffer_printf(&text, " q8");
    for (int k = 1; k < rule->ends.count; k++)
        bp_buffer_printf(&text, " or %" PRId64, rule->ends.ids[k]);
    generator_name_forced(self, &text);
    bp_sha256_of(text.data, text.bytes, self->key);
    bp_buffer_clear(&text);
}

bp_err generator_open(void *context)
{
    generator *self = context;
    bp_err err;

    self->rule = generator_rule(self->job->config, &self->job->info);
    err =
        bp_agree(self->job->mesh->world, generator_check_rule(self->job->config, &self->job->info));
    if (err == BP_OK)
        err = open_tokenizer(self);
    if (err == BP_OK)
        err = bp_agree(self->job->mesh->world, generator_find_forced(self));
    if (err == BP_OK)
        err = open_stops(self);
    if (err == BP_OK)
        err = find_fill_rule(self);
    if (err == BP_OK)
        err = check_measures(self);
    if (err == BP_OK)
        err = open_prompts(self);
    if (err == BP_OK)
        make_key(self);
    return err;
}

void generator_close(void *context)
{
    generator *self = context;

    json_decref(self->summary);
    generator_clear_references(self);
    for (int k = 0; k < 2; k++)
        bp_least_sure_clear(&self->least[k]);
    bp_prompts_clear(&self->prompts);
    bp_stops_clear(&self->stops);
    bp_tokenizer_free(&self->tokenizer);
}
