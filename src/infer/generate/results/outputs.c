/* outputs.jsonl and summary.json, from the parts. Called by generate.c at the end, on the
 * coordinator. */
#include "infer/generate/generator.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/sort.h"
#include "infer/generate/entailment.h"
#include "infer/generate/results/results.h"
#include "infer/generate/spell.h"
#include "models/network/weights.h"
#include "statistics/semantic.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Warns if there are many prompts, and far fewer different texts: one of so many prompts. Of texts
 * of a few tokens, such as answers, there are few in any case. */
enum { MANY_PROMPTS = 20, FEW_TEXTS = 5, FEW_SHORT_TEXTS = 20, SHORT = 4 };

/* Totals of the texts. */
typedef struct sums {
    int64_t texts, tokens, finished[3];
    double logprob, entropy, information;
    int64_t prompts; /* with clusters of meaning */
    double semantic, discrete, clusters;
} sums;

typedef struct writer {
    generator *self;
    bp_draft draft;
    sums sums;
    int64_t lines;             /* made so far */
    bp_buffer prompts, texts;  /* hashes of tokens: of each prompt with texts, and of each text */
    bp_entailment *entailment; /* NULL if meanings are not requested */
} writer;

/* ---- text ---- */

/* If masks were filled in: the whole text. */
static bp_err add_filled(json_t *line, const generator *self, int64_t index,
                         const bp_search_text *of)
{
    const int32_t *ids = bp_prompts_ids(&self->prompts, index);
    int64_t length = bp_prompts_length(&self->prompts, index), used = 0;
    int32_t *all = bp_alloc("generate.text", length + of->count, sizeof *all);
    char *text = NULL;
    size_t bytes = 0;
    bp_err err;

    for (int64_t k = 0; k < length; k++)
        all[k] = ids[k] == self->plan.fill.mask ? of->tokens[used++] : ids[k];
    while (used < of->count)
        all[length++] = of->tokens[used++];
    err = bp_spell(self->tokenizer, all, length, &text, &bytes);
    if (err == BP_OK)
        (void)json_object_set_new(line, "text", bp_spell_json(text, bytes));
    bp_free(text);
    bp_free(all);
    return err;
}

/* Up to the end token, or to the first stop text; null without a tokenizer. */
static bp_err add_text(json_t *line, const generator *self, const bp_search_text *of)
{
    int64_t count = of->count - (of->finish == BP_FINISH_EOD), stop = -1;
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = BP_OK;

    if (self->tokenizer)
        err = bp_spell(self->tokenizer, of->tokens, count, &text, &bytes);
    if (text && of->finish == BP_FINISH_STOP)
        stop = bp_stops_find(&self->stops, text, bytes);
    if (err == BP_OK)
        (void)json_object_set_new(line, "text",
                                  bp_spell_json(text, stop >= 0 ? (size_t)stop : bytes));
    bp_free(text);
    return err;
}

/* As given; for ids their text, null without a tokenizer. */
static bp_err add_prompt(json_t *line, const generator *self, int64_t index)
{
    const bp_prompts *prompts = &self->prompts;
    int64_t from = prompts->text_starts[index];
    size_t bytes = (size_t)(prompts->text_starts[index + 1] - from);
    const char *given = bytes > 0 ? prompts->text.data + from : NULL;
    char *decoded = NULL;
    bp_err err = BP_OK;

    if (!given && self->tokenizer && !bp_prompts_left_out(prompts, index))
        err = bp_spell(self->tokenizer, bp_prompts_ids(prompts, index),
                       bp_prompts_length(prompts, index), &decoded, &bytes);
    if (err == BP_OK)
        (void)json_object_set_new(line, "prompt", bp_spell_json(given ? given : decoded, bytes));
    bp_free(decoded);
    return err;
}

/* ---- a line ---- */

static json_t *reals(const double *values, int64_t count)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < count; i++)
        (void)json_array_append_new(list, json_real(values[i]));
    return list;
}

static json_t *statistic(const bp_search_text *text, int which)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < text->count; i++)
        (void)json_array_append_new(
            list, json_real((double)text->statistics[i * BP_DECODE_STATISTICS + which]));
    return list;
}

/* The model's certainty about the whole text; null for a text without tokens, and if there are no
 * entropies (parts of an older program, and texts filled in). */
static void add_certainty(json_t *line, const bp_search_text *text, bool ensemble)
{
    double logprob = 0, least = NAN, entropy = 0, information = 0, count = (double)text->count;

    for (int64_t i = 0; i < text->count; i++) {
        const float *of = text->statistics ? text->statistics + i * BP_DECODE_STATISTICS : NULL;

        logprob += text->logprobs[i];
        least = fmin(least, text->logprobs[i]);
        entropy += of ? (double)of[BP_DECODE_ENTROPY] : NAN;
        information += of ? (double)of[BP_DECODE_MUTUAL_INFORMATION] : NAN;
    }
    (void)json_object_set_new(line, "perplexity", bp_json_real(exp(-logprob / count)));
    (void)json_object_set_new(line, "least_probability", bp_json_real(exp(least)));
    (void)json_object_set_new(line, "mean_entropy", bp_json_real(entropy / count));
    if (ensemble)
        (void)json_object_set_new(line, "sequence_mutual_information",
                                  bp_json_real(count > 0 ? information : NAN));
}

static void add_figures(json_t *line, const bp_search_text *text, bool ensemble, sums *all)
{
    json_t *tokens = json_array();
    double logprob = 0;

    for (int64_t i = 0; i < text->count; i++) {
        logprob += text->logprobs[i];
        (void)json_array_append_new(tokens, json_integer(text->tokens[i]));
        if (text->statistics) {
            all->entropy += (double)text->statistics[i * BP_DECODE_STATISTICS + BP_DECODE_ENTROPY];
            all->information +=
                (double)text->statistics[i * BP_DECODE_STATISTICS + BP_DECODE_MUTUAL_INFORMATION];
        }
    }
    (void)json_object_set_new(line, "tokens", tokens);
    (void)json_object_set_new(line, "logprob", json_real(logprob));
    (void)json_object_set_new(line, "logprobs", reals(text->logprobs, text->count));
    (void)json_object_set_new(line, "finish", bp_json_string(bp_finish_name(text->finish)));
    add_certainty(line, text, ensemble);
    if (text->statistics && ensemble) {
        (void)json_object_set_new(line, "entropy", statistic(text, BP_DECODE_ENTROPY));
        (void)json_object_set_new(line, "mutual_information",
                                  statistic(text, BP_DECODE_MUTUAL_INFORMATION));
    }
    all->texts++;
    all->tokens += text->count;
    all->finished[text->finish]++;
    all->logprob += logprob;
}

static bp_err write_object(writer *to, const json_t *line)
{
    char *dumped = bp_json_line(line);
    bp_err err = bp_draft_write(&to->draft, dumped, strlen(dumped));

    bp_free(dumped);
    return err;
}

/* The line of a text. Owns: *line, after an error too. */
static bp_err make_line(writer *to, int64_t index, const bp_search_text *text, json_t **line)
{
    bp_err err;

    *line = json_object();
    (void)json_object_set_new(*line, "index", json_integer((json_int_t)index));
    err = add_prompt(*line, to->self, index);
    if (err == BP_OK)
        err = to->self->plan.fill.rounds > 0 ? add_filled(*line, to->self, index, text)
                                             : add_text(*line, to->self, text);
    if (err == BP_OK) {
        add_figures(*line, text, to->self->job->info.members > 0, &to->sums);
        err = generator_note_text(to->self, index, *line);
        for (int by_members = 0; by_members < 2; by_members++)
            bp_least_sure_note(&to->self->least[by_members], *line, to->lines, by_members == 1);
    }
    to->lines++;
    return err;
}

/* A skipped source. */
static bp_err write_left_out(writer *to, int64_t index)
{
    const generator *self = to->self;
    char *says =
        bp_sprintf("the source has %" PRId64 " tokens, more than the model's context of %" PRId64,
                   self->job->info.context + self->prompts.excess[index], self->job->info.context);
    json_t *line = json_pack("{s:I}", "index", (json_int_t)index);
    bp_err err = add_prompt(line, self, index);

    to->lines++;
    if (err == BP_OK) {
        json_t *rest = json_pack("{s:n, s:[], s:n, s:[], s:s, s:s, s:n, s:n, s:n}", "text",
                                 "tokens", "logprob", "logprobs", "finish", "error", "error", says,
                                 "perplexity", "least_probability", "mean_entropy");

        (void)json_object_update(line, rest);
        if (self->job->info.members > 0)
            (void)json_object_update_new(line, json_pack("{s:n, s:[], s:[]}",
                                                         "sequence_mutual_information", "entropy",
                                                         "mutual_information"));
        json_decref(rest);
        err = write_object(to, line);
    }
    bp_free(says);
    json_decref(line);
    return err;
}

/* ---- distinct texts ---- */

static void note_hash(bp_buffer *hashes, const int32_t *ids, int64_t count)
{
    uint64_t hash = bp_xxh3(ids, (size_t)count * sizeof *ids);

    bp_buffer_add(hashes, &hash, sizeof hash);
}

/* Sorts them. */
static int64_t count_distinct(bp_buffer *hashes)
{
    uint64_t *all = (uint64_t *)(void *)hashes->data;
    size_t count = hashes->bytes / sizeof *all;
    int64_t distinct = count > 0;

    if (count > 0)
        qsort(all, count, sizeof *all, bp_by_uint64);
    for (size_t k = 1; k < count; k++)
        distinct += all[k] != all[k - 1];
    return distinct;
}

/* A model that has hardly learned writes one text for all prompts. */
static int64_t find_distinct(writer *to)
{
    int64_t prompts = count_distinct(&to->prompts), texts = count_distinct(&to->texts);
    int64_t few = to->sums.tokens <= SHORT * to->sums.texts ? FEW_SHORT_TEXTS : FEW_TEXTS;

    if (prompts >= MANY_PROMPTS && texts * few <= prompts)
        BP_WARN("generate.same_texts",
                "%" PRId64 " distinct prompts have only %" PRId64 " distinct text%s: at %s; if the "
                "prompts do not ask for that, the model has learned too little: train it longer",
                prompts, texts, texts == 1 ? "" : "s",
                bp_generate_keys_of(to->self->job->config)->model);
    bp_buffer_clear(&to->prompts);
    bp_buffer_clear(&to->texts);
    return texts;
}

/* ---- clusters of meaning ---- */

/* The texts of a prompt, each after its prompt if requested. */
typedef struct meanings {
    bp_entailment *entailment;
    char *prompt;
    char **texts;
    bp_err err;
} meanings;

/* bp_semantic_same: each entails the other; true for equal texts. */
static bool means_same(void *context, int64_t one, const int64_t *others, int64_t count, bool *same)
{
    meanings *self = context;
    const char **texts = bp_alloc("generate.text", 4 * count, sizeof *texts);
    bool *holds = bp_alloc("generate.text", 2 * count, sizeof *holds);

    for (int64_t k = 0; k < count; k++) {
        texts[2 * k] = texts[2 * count + 2 * k + 1] = self->texts[one];
        texts[2 * k + 1] = texts[2 * count + 2 * k] = self->texts[others[k]];
    }
    bp_heartbeat_progress();
    self->err = bp_entailment_ask(self->entailment, self->prompt, texts, texts + 2 * count,
                                  2 * count, holds);
    for (int64_t k = 0; k < count; k++)
        same[k] = strcmp(self->texts[one], self->texts[others[k]]) == 0 ||
                  (holds[2 * k] && holds[2 * k + 1]);
    bp_free(holds);
    bp_free(texts);
    return self->err == BP_OK;
}

static char *prompt_of(const writer *to, const json_t *line)
{
    const char *prompt = json_string_value(json_object_get(line, "prompt"));
    bool before = bp_generate_keys_of(to->self->job->config)->entails_prompt && prompt;

    return bp_sprintf("%s%s", before ? prompt : "", before ? " " : "");
}

static char *meaning_of(const char *prompt, const json_t *line)
{
    const char *text = json_string_value(json_object_get(line, "text"));

    return bp_sprintf("%s%s", prompt, text ? text : "");
}

/* Figures of the lines of one prompt. */
static bp_err add_meanings(writer *to, json_t *lines)
{
    int64_t n = (int64_t)json_array_size(lines), clusters;
    meanings self = {.entailment = to->entailment,
                     .prompt = prompt_of(to, json_array_get(lines, 0)),
                     .texts = bp_alloc("generate.text", n, sizeof(char *))};
    int64_t *cluster = bp_alloc("generate.text", n, sizeof *cluster);
    int64_t *tokens = bp_alloc("generate.text", n, sizeof *tokens);
    double *logprob = bp_alloc("generate.text", n, sizeof *logprob);

    for (int64_t k = 0; k < n; k++) {
        const json_t *line = json_array_get(lines, (size_t)k);

        self.texts[k] = meaning_of(self.prompt, line);
        tokens[k] = (int64_t)json_array_size(json_object_get(line, "tokens"));
        logprob[k] = json_number_value(json_object_get(line, "logprob"));
    }
    clusters = bp_semantic_clusters(cluster, n, means_same, &self);
    if (clusters > 0) {
        double semantic = bp_semantic_entropy(cluster, clusters, logprob, tokens, n),
               discrete = bp_semantic_entropy(cluster, clusters, NULL, NULL, n);

        for (int64_t k = 0; k < n; k++)
            (void)json_object_update_new(
                json_array_get(lines, (size_t)k),
                json_pack("{s:I, s:o, s:o}", "cluster", (json_int_t)cluster[k], "semantic_entropy",
                          bp_json_real(semantic), "semantic_entropy_discrete",
                          bp_json_real(discrete)));
        to->sums.prompts++;
        to->sums.semantic += semantic;
        to->sums.discrete += discrete;
        to->sums.clusters += (double)clusters;
    }
    bp_names_free(&self.texts, n);
    bp_free(self.prompt);
    bp_free(logprob);
    bp_free(tokens);
    bp_free(cluster);
    return self.err;
}

static bp_err write_prompt(writer *to, bp_result_reader *reader, int64_t index)
{
    int64_t texts = 0;
    json_t *lines = json_array();
    bp_err err = bp_result_prompt(reader, &texts);

    for (int64_t k = 0; err == BP_OK && k < texts; k++) {
        bp_search_text text;
        json_t *line = NULL;

        err = bp_result_text(reader, &text);
        if (err == BP_OK && !bp_prompts_left_out(&to->self->prompts, index)) {
            if (k == 0)
                note_hash(&to->prompts, bp_prompts_ids(&to->self->prompts, index),
                          bp_prompts_length(&to->self->prompts, index));
            note_hash(&to->texts, text.tokens, text.count);
            err = make_line(to, index, &text, &line);
            (void)json_array_append_new(lines, line);
        }
        bp_result_text_clear(&text);
    }
    if (err == BP_OK && to->entailment && json_array_size(lines) > 0)
        err = add_meanings(to, lines);
    for (size_t k = 0; err == BP_OK && k < json_array_size(lines); k++)
        err = write_object(to, json_array_get(lines, k));
    json_decref(lines);
    if (err == BP_OK && bp_prompts_left_out(&to->self->prompts, index))
        err = write_left_out(to, index);
    return err;
}

static bp_err write_unit(writer *to, const bp_part_result *part)
{
    const bp_generate_plan *plan = &to->self->plan;
    int64_t first = part->unit * plan->unit_prompts;
    bp_result_reader reader = {part->data, part->data + part->bytes};
    bp_err err = BP_OK;

    for (int64_t k = 0; err == BP_OK && k < plan->unit_prompts && first + k < plan->prompts; k++)
        err = write_prompt(to, &reader, first + k);
    return err;
}

/* How the texts were made, without path, time, host or rank. */
static json_t *rule_json(const generator *self)
{
    const bp_generate_keys *keys = bp_generate_keys_of(self->job->config);
    json_t *rule = json_pack(
        "{s:s, s:I, s:I, s:f, s:f, s:f, s:I}", "strategy", keys->strategy, "tokens",
        (json_int_t)keys->tokens, "samples", (json_int_t)keys->samples, "repetition_penalty",
        keys->repetition_penalty, "presence_penalty", keys->presence_penalty, "frequency_penalty",
        keys->frequency_penalty, "no_repeat_ngram", (json_int_t)keys->no_repeat_ngram);

    if (strcmp(keys->strategy, "sample") == 0) {
        (void)json_object_set_new(rule, "temperature", json_real(keys->temperature));
        (void)json_object_set_new(rule, "top_k", json_integer((json_int_t)keys->top_k));
        (void)json_object_set_new(rule, "top_p", json_real(keys->top_p));
        (void)json_object_set_new(rule, "seed", json_integer((json_int_t)self->rule.choice.seed));
    }
    if (self->plan.fill.rounds > 0)
        (void)json_object_set_new(rule, "rounds", json_integer((json_int_t)keys->rounds));
    if (self->rule.beams > 0) {
        (void)json_object_set_new(rule, "beams", json_integer((json_int_t)keys->beams));
        (void)json_object_set_new(rule, "length_penalty", json_real(keys->length_penalty));
    }
    (void)json_object_set_new(rule, "stop", keys->stop ? bp_json_string(keys->stop) : json_null());
    (void)json_object_set_new(rule, "end", json_integer((json_int_t)self->rule.end));
    if (self->rule.ends.count > 1) {
        json_t *ends = json_array();

        for (int k = 0; k < self->rule.ends.count; k++)
            (void)json_array_append_new(ends, json_integer((json_int_t)self->rule.ends.ids[k]));
        (void)json_object_set_new(rule, "ends", ends);
    }
    (void)json_object_set_new(
        rule, "prefix",
        json_integer((json_int_t)generator_first(self->job->config, &self->job->info)));
    return rule;
}

static json_t *summary_of(const generator *self, const sums *all, int64_t distinct,
                          const bp_entailment *entailment)
{
    double tokens = all->tokens > 0 ? (double)all->tokens : 1;
    json_t *summary = json_pack(
        "{s:I, s:I, s:I, s:{s:I, s:I, s:I}, s:o, s:o}", "prompts", (json_int_t)self->plan.prompts,
        "texts", (json_int_t)all->texts, "tokens", (json_int_t)all->tokens, "finish", "length",
        (json_int_t)all->finished[BP_FINISH_LENGTH], "eod",
        (json_int_t)all->finished[BP_FINISH_EOD], "stop", (json_int_t)all->finished[BP_FINISH_STOP],
        "nll_nats", bp_json_real(-all->logprob), "perplexity",
        bp_json_real(all->tokens > 0 ? exp(-all->logprob / tokens) : NAN));

    (void)json_object_set_new(summary, "distinct", json_integer((json_int_t)distinct));
    if (self->job->info.reads_source)
        (void)json_object_set_new(
            summary, "left_out",
            json_integer((json_int_t)(self->prompts.cut ? 0 : self->prompts.too_long)));
    if (self->job->info.members > 0) {
        (void)json_object_set_new(summary, "entropy", bp_json_real(all->entropy / tokens));
        (void)json_object_set_new(summary, "mutual_information",
                                  bp_json_real(all->information / tokens));
    }
    if (entailment) {
        double prompts = all->prompts > 0 ? (double)all->prompts : NAN;

        (void)json_object_update_new(
            summary, json_pack("{s:o, s:o, s:o, s:o}", "semantic_entropy",
                               bp_json_real(all->semantic / prompts), "semantic_entropy_discrete",
                               bp_json_real(all->discrete / prompts), "clusters",
                               bp_json_real(all->clusters / prompts), "entails",
                               bp_entailment_json(entailment)));
    }
    (void)json_object_set_new(summary, "rule", rule_json(self));
    (void)json_object_set_new(summary, "prompts_hash", bp_json_string(self->prompts_hash));
    (void)json_object_set_new(summary, "tokenizer_hash",
                              self->tokenizer ? bp_json_string(bp_tokenizer_hash(self->tokenizer))
                                              : json_null());
    (void)json_object_set_new(summary, "model",
                              json_pack("{s:s, s:I, s:I}", "digest", self->job->info.digest, "step",
                                        (json_int_t)self->job->info.step, "members",
                                        (json_int_t)self->job->info.members));
    bp_weights_record(summary, self->job->config);
    return summary;
}

bp_err generator_write_outputs(generator *self, bp_parts *parts)
{
    char *outputs = bp_path_join(self->job->folder, "outputs.jsonl");
    char *summary = bp_path_join(self->job->folder, "summary.json");
    writer to = {.self = self};
    bp_part_result part = {0};
    const char *entails = bp_generate_keys_of(self->job->config)->entails;
    bp_err err = BP_OK;

    if (entails)
        err = bp_entailment_open(&to.entailment, entails);
    if (err == BP_OK)
        err = bp_draft_open(&to.draft, outputs);
    if (err == BP_OK) {
        while (bp_parts_next(parts, &part, &err))
            err = write_unit(&to, &part);
        err = bp_draft_end(&to.draft, err);
    }
    if (err == BP_OK) {
        if (to.entailment)
            bp_entailment_warn(to.entailment);
        self->summary = summary_of(self, &to.sums, find_distinct(&to), to.entailment);
        err = generator_measure_texts(self, self->summary);
    }
    if (err == BP_OK)
        err = bp_json_save(summary, self->summary);
    bp_entailment_free(&to.entailment);
    bp_free(summary);
    bp_free(outputs);
    return err;
}
