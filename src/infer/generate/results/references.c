/* Texts against references, one line per prompt: BLEU and chrF of the first text of each prompt,
 * and of each text alone. Called by setup.c before the first unit, and by outputs.c, on the
 * coordinator. */
#include "infer/generate/generator.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "job/report/outputs.h"
#include "text/unicode/characters.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define FILE_LIMIT ((int64_t)1 << 30)

enum { BLEU, CHRF, KINDS }; /* of generator.answers */

static bp_err add_reference(generator *self, int64_t k, const char *line, size_t bytes,
                            const char *path)
{
    if (!bp_text_is_utf8(line, bytes))
        return BP_FAIL(BP_ERR_FORMAT, "generate.bad_references",
                       "a reference is not valid UTF-8: at %s, line %" PRId64 "; convert the file",
                       path, k + 1);
    if (k < self->prompts.count)
        self->references[k] = (bp_line){line, bytes};
    return BP_OK;
}

/* The file of the prompts in the place of the other one. */
static void warn_of_sources(const generator *self, const char *path)
{
    const bp_prompts *prompts = &self->prompts;
    int64_t equal = 0;

    for (int64_t k = 0; k < prompts->count; k++) {
        const bp_line *one = &self->references[k];
        int64_t from = prompts->text_starts[k];

        equal += one->bytes > 0 && prompts->text_starts[k + 1] - from == (int64_t)one->bytes &&
                 memcmp(prompts->text.data + from, one->text, one->bytes) == 0;
    }
    if (2 * equal > prompts->count)
        BP_WARN("generate.prompts_as_references",
                "%" PRId64 " of %" PRId64 " references are the prompts themselves: at "
                "generate.references = %s; give what is right to write for them, unless that is "
                "to copy them",
                equal, prompts->count, path);
}

bp_err generator_read_references(generator *self)
{
    const char *path = bp_generate_keys_of(self->job->config)->references;
    int64_t count = 0;
    size_t bytes = 0, at;
    bp_err err = path ? bp_file_read(path, FILE_LIMIT, &self->reference_text, &bytes) : BP_OK;

    if (!path || err != BP_OK)
        return err;
    self->references = bp_alloc("generate.text", self->prompts.count, sizeof *self->references);
    self->measured = bp_alloc("generate.text", self->prompts.count, sizeof *self->measured);
    for (at = bp_mark_bytes(self->reference_text, bytes); at < bytes && err == BP_OK; count++) {
        const char *line = self->reference_text + at, *end = memchr(line, '\n', bytes - at);
        size_t length = end ? (size_t)(end - line) : bytes - at;

        at += length + 1;
        length -= length > 0 && line[length - 1] == '\r';
        err = add_reference(self, count, line, length, path);
    }
    if (err == BP_OK && count != self->prompts.count)
        err = BP_FAIL(BP_ERR_FORMAT, "generate.bad_references",
                      "there are %" PRId64 " references of %" PRId64 " prompts: at %s; give a line "
                      "for each prompt",
                      count, self->prompts.count, path);
    if (err == BP_OK)
        warn_of_sources(self, path);
    return err;
}

void generator_clear_references(generator *self)
{
    for (int k = 0; k < KINDS; k++)
        bp_text_answers_clear(&self->answers[k]);
    for (int k = 0; k < BP_CERTAINTIES; k++)
        bp_free(self->certainty[k]);
    bp_free(self->measured);
    bp_free(self->references);
    bp_free(self->reference_text);
}

/* The text as bagpipe-data metrics reads it: one line. Owns: text, bp_free(). */
static bp_line line_of(const json_t *line)
{
    const json_t *value = json_object_get(line, "text");
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    size_t bytes = json_is_string(value) ? json_string_length(value) : 0;
    char *copy = bp_alloc("generate.text", (int64_t)bytes + 1, 1);

    for (size_t k = 0; k < bytes; k++)
        copy[k] = text[k] == '\n' || text[k] == '\r' || text[k] == '\0' ? ' ' : text[k];
    return (bp_line){copy, bytes};
}

/* The counts of a document become those of prompt `index`. */
static void keep_counts(bp_text_answers *all, int64_t index, const bp_text_answers *one,
                        int64_t prompts)
{
    if (!all->counts)
        *all = (bp_text_answers){prompts, one->width,
                                 bp_alloc("generate.text", prompts * one->width, sizeof(double))};
    memcpy(all->counts + index * one->width, one->counts, (size_t)one->width * sizeof *one->counts);
}

static void keep_certainty(generator *self, int64_t index, const json_t *line)
{
    for (int k = 0; k < BP_CERTAINTIES; k++) {
        double value = bp_output_certainty(line, k);

        if (!self->certainty[k] && !isnan(value)) {
            self->certainty[k] =
                bp_alloc("generate.text", self->prompts.count, sizeof *self->certainty[k]);
            for (int64_t d = 0; d < self->prompts.count; d++)
                self->certainty[k][d] = -INFINITY; /* without a text */
        }
        if (!isnan(value))
            self->certainty[k][index] = value;
    }
}

bp_err generator_note_text(generator *self, int64_t index, json_t *line)
{
    static const struct {
        const bp_metric *metric;
        const char *key;
        int figure; /* of a text alone */
    } OF[KINDS] = {{&bp_metric_bleu, "sentence_bleu", 1}, {&bp_metric_chrf, "sentence_chrf2", 0}};
    bp_err err = BP_OK;

    if (!self->references)
        return BP_OK;
    const bp_line reference = self->references[index], *list[] = {&reference};
    bp_line written = line_of(line);
    const bp_text_pairs pair = {1, 1, &written, list};
    bool is_first = !self->measured[index];

    self->measured[index] = true;
    if (is_first)
        keep_certainty(self, index, line);
    (void)json_object_set_new(line, "reference", json_stringn(reference.text, reference.bytes));
    for (int k = 0; k < KINDS && err == BP_OK; k++) {
        bp_text_answers one = {0};
        double values[BP_METRIC_FIGURES];

        err = k == BLEU ? bp_bleu_count(&one, &pair, BP_WORDS_13A) : bp_chrf_count(&one, &pair);
        if (err == BP_OK) {
            OF[k].metric->figures(values, NULL, &one);
            (void)json_object_set_new(line, OF[k].key, bp_json_real(values[OF[k].figure]));
        }
        if (err == BP_OK && is_first)
            keep_counts(&self->answers[k], index, &one, self->prompts.count);
        bp_text_answers_clear(&one);
    }
    bp_free((char *)written.text);
    return err;
}

/* The figures of one metric, into `to`. */
static bp_err estimate(json_t *to, const generator *self, const bp_metric *metric,
                       const bp_text_answers *answers, uint64_t seed)
{
    bp_figure figures[BP_METRIC_FIGURES];
    bp_err err = bp_metric_estimate(figures, metric, answers, self->prompts.count, seed);
    json_t *all = err == BP_OK ? bp_metric_json(metric, figures) : NULL;

    if (all)
        (void)json_object_update(to, all);
    json_decref(all);
    return err;
}

bp_err generator_measure_texts(generator *self, json_t *summary)
{
    uint64_t seed = (uint64_t)bp_run_keys_of(self->job->config)->seed;
    json_t *figures = json_object(), *coverage = NULL, *nothing = json_object();
    bp_err err = BP_OK;

    for (int64_t k = 0; self->references && k < self->prompts.count && err == BP_OK; k++)
        if (!self->measured[k]) /* its source was too long */
            err = generator_note_text(self, k, nothing);
    if (self->references && err == BP_OK)
        err = estimate(figures, self, &bp_metric_bleu, &self->answers[BLEU], seed);
    if (self->references && err == BP_OK)
        err = estimate(figures, self, &bp_metric_chrf, &self->answers[CHRF], seed);
    if (self->references && err == BP_OK)
        err = bp_metric_coverage(&coverage, &bp_metric_bleu, &self->answers[BLEU],
                                 (const double *const *)self->certainty, self->prompts.count, seed);
    if (self->references)
        (void)json_object_set(summary, "figures", figures);
    if (coverage)
        (void)json_object_set_new(summary, "coverage", coverage);
    json_decref(nothing);
    json_decref(figures);
    return err;
}
