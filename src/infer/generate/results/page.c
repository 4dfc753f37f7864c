/* generate/index.html: texts with their tokens coloured, from outputs.jsonl. Called by generate.c
 * after outputs.c, on the coordinator. */
#include "infer/generate/generator.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "job/report/outputs.h"
#include "job/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MOST   200  /* shown */
#define TOKENS_MOST  1000 /* of a text */
#define DARKEST_NATS 10.0 /* a token of probability e^-10 has the full colour */

static json_t *rounded(const char *format, double value)
{
    char *text = bp_sprintf(format, value);
    json_t *json = bp_json_string(text);

    bp_free(text);
    return json;
}

/* How dark: 0 to 1. */
static double shade(double value, double darkest)
{
    return value > darkest ? 1 : value > 0 && darkest > 0 ? value / darkest : 0;
}

static double entry(const json_t *line, const char *key, size_t i)
{
    const json_t *value = json_array_get(json_object_get(line, key), i);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The text of the next tokens, *taken of them; the number of a token without a text. */
static json_t *token_text(const generator *self, const int32_t *ids, int64_t count, int64_t *taken)
{
    bp_buffer text = {0};
    json_t *value;

    *taken = 1;
    if (!self->tokenizer ||
        bp_tokenizer_characters(self->tokenizer, ids, count, &text, taken) != BP_OK) {
        *taken = 1;
        text.bytes = 0;
        bp_buffer_printf(&text, "%s%d", self->tokenizer ? "" : " ", ids[0]);
    }
    value = bp_json_string(text.data ? text.data : "");
    bp_buffer_clear(&text);
    return value;
}

/* The title of a span: its tokens, the sum of their log-probabilities, and the largest mutual
 * information. It has several tokens if their bytes form one character. */
static void describe_span(bp_buffer *says, const json_t *line, const int32_t *ids, size_t i,
                          int64_t taken, double *logprob, double *information)
{
    *logprob = 0;
    *information = NAN;
    bp_buffer_printf(says, taken > 1 ? "tokens" : "token");
    for (size_t k = i; k < i + (size_t)taken; k++) {
        bp_buffer_printf(says, " %d", ids[k]);
        *logprob += entry(line, "logprobs", k);
        *information = fmax(*information, entry(line, "mutual_information", k));
    }
    bp_buffer_printf(says, ", log-probability %.3f, surprisal %.2f bits, probability %.3g",
                     *logprob, -*logprob / log(2), exp(*logprob));
    if (isfinite(*information))
        bp_buffer_printf(says, ", entropy %.4f, mutual information %.4f", entry(line, "entropy", i),
                         *information);
}

static json_t *span_of(const generator *self, const json_t *line, const int32_t *ids, size_t i,
                       size_t count, double darkest, int64_t *taken)
{
    json_t *text = token_text(self, &ids[i], (int64_t)(count - i), taken), *span;
    const char *shown = json_string_value(text);
    size_t bytes = strlen(shown);
    double logprob, information;
    bp_buffer says = {0};

    describe_span(&says, line, ids, i, *taken, &logprob, &information);
    span = json_pack("{s:s, s:b, s:b}", "says", says.data, "space",
                     self->tokenizer && strcmp(bp_tokenizer_kind(self->tokenizer), "word") == 0,
                     "line", bytes >= 2 && strcmp(shown + bytes - 2, "\\n") == 0);
    (void)json_object_set_new(span, "text", text);
    (void)json_object_set_new(span, "p", rounded("%.2f", shade(-logprob, DARKEST_NATS)));
    (void)json_object_set_new(span, "m", rounded("%.2f", shade(information, darkest)));
    bp_buffer_clear(&says);
    return span;
}

/* The text's cluster, and the figures of the clusters of its prompt; null if there are none. */
static json_t *meaning_of(const json_t *line)
{
    const json_t *entropy = json_object_get(line, "semantic_entropy");

    if (!json_is_number(entropy))
        return json_null();
    return json_pack("{s:O, s:o}", "cluster", json_object_get(line, "cluster"), "entropy",
                     rounded("%.3f", json_number_value(entropy)));
}

/* Why a text ended, in words. */
static const char *finish_of(const json_t *line)
{
    static const char *const WORDS[][2] = {{"length", "at the limit of tokens"},
                                           {"eod", "with the end of the document"},
                                           {"stop", "before a stop text"}};
    const char *finish = json_string_value(json_object_get(line, "finish"));

    for (size_t k = 0; finish && k < sizeof WORDS / sizeof WORDS[0]; k++)
        if (strcmp(finish, WORDS[k][0]) == 0)
            return WORDS[k][1];
    return finish ? finish : "";
}

/* The reference of the text's prompt, and its figures against it; null if there is none. */
static json_t *reference_of(const json_t *line)
{
    json_t *reference = json_object_get(line, "reference");

    if (!reference)
        return json_null();
    return json_pack("{s:O, s:o, s:o}", "text", reference, "bleu",
                     rounded("%.1f", bp_json_number(line, "sentence_bleu")), "chrf",
                     rounded("%.1f", bp_json_number(line, "sentence_chrf2")));
}

static json_t *text_of(const generator *self, const bp_output *of)
{
    const json_t *line = of->line;
    size_t count = json_array_size(of->tokens), shown;
    json_t *spans = json_array(), *text;
    int32_t ids[TOKENS_MOST];
    int64_t taken = 1;
    double darkest = 0, least = 0;

    shown = count < TOKENS_MOST ? count : TOKENS_MOST;
    for (size_t i = 0; i < shown; i++) {
        darkest = fmax(darkest, entry(line, "mutual_information", i));
        least = fmin(least, entry(line, "logprobs", i));
    }
    for (size_t i = 0; i < shown; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(of->tokens, i));
    for (size_t i = 0; i < shown; i += (size_t)taken)
        (void)json_array_append_new(spans, span_of(self, line, ids, i, shown, darkest, &taken));
    text = json_pack("{s:I, s:I, s:s, s:o, s:b, s:o*}", "index", (json_int_t)of->index, "count",
                     (json_int_t)count, "finish", finish_of(line), "spans", spans, "cut",
                     shown < count, "reference", reference_of(line));
    (void)json_object_set(text, "prompt", json_object_get(line, "prompt"));
    (void)json_object_set_new(
        text, "logprob", rounded("%.3f nats", json_number_value(json_object_get(line, "logprob"))));
    (void)json_object_set_new(text, "darkest", rounded("%.4f nats", darkest));
    (void)json_object_set_new(text, "least", rounded("%.2g", exp(least)));
    (void)json_object_set_new(text, "meaning", meaning_of(line));
    return text;
}

/* Is it one of those that the model is least sure of? */
static bool is_least_sure(const generator *self, int64_t number)
{
    const json_t *row;
    size_t k;

    for (int list = 0; list < 2; list++)
        json_array_foreach(self->least[list].rows, k,
                           row) if (json_integer_value(json_object_get(row, "number")) ==
                                    number) return true;
    return false;
}

/* The text of a line; `before`: the index of the line before, as far as it is known. */
static bp_err add_text(json_t *texts, const generator *self, const char *line_text, size_t bytes,
                       int64_t number, int64_t *before, const char *path)
{
    json_t *line = NULL, *text;
    bp_output one;
    bp_err err = bp_json_parse_texts(&line, line_text, bytes, path);

    if (err == BP_OK)
        err = bp_output_read(
            &one, line,
            number < TEXTS_MOST ? *before : json_integer_value(json_object_get(line, "index")),
            path, number + 1);
    if (err == BP_OK) {
        *before = one.index;
        text = text_of(self, &one);
        (void)json_object_set_new(text, "at", bp_least_sure_anchor(number));
        (void)json_object_set_new(
            text, "opens_later",
            json_boolean(number >= TEXTS_MOST && json_array_size(texts) == TEXTS_MOST));
        (void)json_array_append_new(texts, text);
    }
    json_decref(line);
    return err;
}

/* The first texts of outputs.jsonl, and after them those that the model is least sure of. */
static bp_err add_texts(json_t *texts, const generator *self, const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t capacity = 0;
    int64_t before = -1;
    bp_err err = file ? BP_OK : bp_fail_errno(BP_ERR_IO, "read", path);

    for (int64_t number = 0; err == BP_OK; number++) {
        ssize_t bytes = getline(&text, &capacity, file);

        if (bytes < 0)
            break;
        if (number < TEXTS_MOST || is_least_sure(self, number))
            err = add_text(texts, self, text, (size_t)bytes, number, &before, path);
    }
    free(text);
    if (file)
        (void)fclose(file); /* read only: nothing can be lost */
    return err;
}

static json_t *name_of(const char *name)
{
    bp_buffer out = {0};
    json_t *value;

    bp_text_escape(&out, name, strlen(name));
    value = bp_json_string(out.data ? out.data : "");
    bp_buffer_clear(&out);
    return value;
}

/* BLEU and chrF, if references are given. */
static void add_quality(json_t *page, const json_t *summary)
{
    static const struct {
        const char *key, *title;
    } SHOWN[] = {{"bleu", "BLEU"}, {"chrf2", "chrF2"}};
    const json_t *figures = json_object_get(summary, "figures");
    json_t *rows = figures ? json_array() : NULL;

    for (size_t k = 0; rows && k < sizeof SHOWN / sizeof SHOWN[0]; k++) {
        const json_t *one = json_object_get(figures, SHOWN[k].key);
        double low = json_number_value(json_object_get(one, "low")),
               high = json_number_value(json_object_get(one, "high"));
        bool has = json_is_number(json_object_get(one, "low"));
        json_t *row = json_pack("{s:s, s:o, s:b}", "name", SHOWN[k].title, "value",
                                rounded("%.2f", json_number_value(json_object_get(one, "value"))),
                                "interval", (int)has);

        (void)json_object_set_new(row, "low", rounded("%.2f", low));
        (void)json_object_set_new(row, "high", rounded("%.2f", high));
        if (has)
            (void)json_object_set_new(page, "intervals", json_true());
        (void)json_array_append_new(rows, row);
    }
    if (!rows)
        return;
    (void)json_object_set_new(page, "quality", rows);
    (void)json_object_set_new(page, "has_quality", json_true());
}

static double point_of(const json_t *curve, const char *key, size_t k)
{
    const json_t *value = json_array_get(json_object_get(curve, key), k);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* page.curve: BLEU of the surest texts against their share, if references are given. */
static bp_err add_curve(json_t *page, const json_t *summary)
{
    static const struct {
        const char *order, *title, *rows;
    } CURVES[] = {{"logprob", "by log-probability a token", "$logprob"},
                  {"mutual_information", "by mutual information a token", "$information"}};
    const json_t *coverage = json_object_get(summary, "coverage");
    json_t *variables = json_object(), *titles = json_array(), *drawn = json_object();
    bp_err err = BP_OK;

    for (size_t c = 0; c < sizeof CURVES / sizeof CURVES[0]; c++) {
        const json_t *curve = json_object_get(coverage, CURVES[c].order);
        size_t points = json_array_size(json_object_get(curve, "coverage"));
        bp_buffer rows = {0};

        for (size_t k = 0; k < points; k++)
            bp_buffer_printf(&rows, "%.6g,%.6g,%.6g,%.6g\n", point_of(curve, "coverage", k),
                             point_of(curve, "bleu", k), point_of(curve, "bleu_low", k),
                             point_of(curve, "bleu_high", k));
        (void)json_object_set_new(variables, CURVES[c].rows,
                                  bp_json_string(rows.data ? rows.data : "NaN,NaN,NaN,NaN\n"));
        if (points > 0)
            (void)json_array_append_new(titles, bp_json_string(CURVES[c].title));
        bp_buffer_clear(&rows);
    }
    if (json_array_size(titles) > 0 &&
        json_integer_value(json_object_get(summary, "prompts")) > 1) {
        (void)json_object_set(variables, "titles", titles);
        (void)json_object_set(variables, "prompts", json_object_get(summary, "prompts"));
        (void)json_object_set_new(
            variables, "whole",
            json_real(bp_json_number(json_object_get(json_object_get(summary, "figures"), "bleu"),
                                     "value")));
        err = bp_report_plot(drawn, "generate", variables, "coverage");
        (void)json_object_set(page, "curve", drawn);
    }
    json_decref(drawn);
    json_decref(titles);
    json_decref(variables);
    return err;
}

/* Where there are more texts than one. */
static void add_least_sure(json_t *page, const generator *self)
{
    static const char *const WORDS[] = {"perplexity", "mutual information"};
    json_t *lists = json_array();

    for (size_t k = 0; k < 2; k++)
        if (json_array_size(self->least[k].rows) > 1)
            (void)json_array_append_new(
                lists, json_pack("{s:s, s:O}", "by", WORDS[k], "rows", self->least[k].rows));
    (void)json_object_set_new(page, "has_least", json_boolean(json_array_size(lists) > 0));
    (void)json_object_set_new(page, "least", lists);
}

void generator_write_page(const generator *self)
{
    char *outputs = bp_path_join(self->job->folder, "outputs.jsonl");
    int64_t texts = json_integer_value(json_object_get(self->summary, "texts"));
    json_t *page = json_pack("{s:I, s:b, s:I, s:I, s:s, s:I, s:o}", "members",
                             (json_int_t)self->job->info.members, "ensemble",
                             self->job->info.members > 0, "step", (json_int_t)self->job->info.step,
                             "prompts", (json_int_t)self->plan.prompts, "strategy",
                             bp_generate_keys_of(self->job->config)->strategy, "count",
                             (json_int_t)texts, "texts", json_array());
    bp_err err = add_texts(json_object_get(page, "texts"), self, outputs);

    if (err == BP_OK)
        err = add_curve(page, self->summary);
    char *title =
        bp_sprintf("Texts by %s", bp_path_base(bp_generate_keys_of(self->job->config)->model));

    (void)json_object_set_new(page, "title", name_of(title));
    bp_free(title);
    (void)json_object_set_new(page, "model",
                              name_of(bp_generate_keys_of(self->job->config)->model));
    (void)json_object_set_new(
        page, "perplexity",
        rounded("%.4g", json_number_value(json_object_get(self->summary, "perplexity"))));
    add_quality(page, self->summary);
    add_least_sure(page, self);
    if (texts > TEXTS_MOST)
        (void)json_object_set_new(page, "first", json_integer(TEXTS_MOST));
    bp_work_write_page(self->job, "generate", page, err);
    bp_free(outputs);
}
