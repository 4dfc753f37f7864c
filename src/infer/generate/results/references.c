/* Texts against references, one line per prompt: BLEU and chrF of the first text of each prompt.
 * Called by setup.c before the first unit, and by outputs.c, on the coordinator. */
#include "infer/generate/generator.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/unicode/characters.h"

#include <inttypes.h>
#include <string.h>

#define FILE_LIMIT ((int64_t)1 << 30)

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

bp_err generator_read_references(generator *self)
{
    const char *path = bp_generate_keys_of(self->job->config)->references;
    int64_t count = 0;
    size_t bytes = 0, at;
    bp_err err = path ? bp_file_read(path, FILE_LIMIT, &self->reference_text, &bytes) : BP_OK;

    if (!path || err != BP_OK)
        return err;
    self->references = bp_alloc("generate.text", self->prompts.count, sizeof *self->references);
    self->written = bp_alloc("generate.text", self->prompts.count, sizeof *self->written);
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
    return err;
}

void generator_clear_references(generator *self)
{
    for (int64_t k = 0; self->written && k < self->prompts.count; k++)
        bp_free((char *)self->written[k].text);
    bp_free(self->written);
    bp_free(self->references);
    bp_free(self->reference_text);
}

void generator_note_text(generator *self, int64_t index, const json_t *line)
{
    const json_t *value = json_object_get(line, "text");
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    size_t bytes = json_is_string(value) ? json_string_length(value) : 0;
    char *copy;

    if (!self->written || self->written[index].text)
        return;
    copy = bp_alloc("generate.text", (int64_t)bytes + 1, 1);
    for (size_t k = 0; k < bytes; k++) /* a text is one line, as in bagpipe-data metrics */
        copy[k] = text[k] == '\n' || text[k] == '\r' || text[k] == '\0' ? ' ' : text[k];
    self->written[index] = (bp_line){copy, bytes};
}

/* The figures of one metric, into `to`. */
static bp_err estimate(json_t *to, const generator *self, const bp_metric *metric,
                       const bp_text_answers *answers)
{
    bp_figure figures[BP_METRIC_FIGURES];
    bp_err err = bp_metric_estimate(figures, metric, answers, answers->documents,
                                    (uint64_t)bp_run_keys_of(self->job->config)->seed);
    json_t *all = err == BP_OK ? bp_metric_json(metric, figures) : NULL;

    if (all)
        (void)json_object_update(to, all);
    json_decref(all);
    return err;
}

bp_err generator_measure_texts(generator *self, json_t *summary)
{
    const bp_line *references[] = {self->references};
    bp_text_pairs pairs = {self->prompts.count, 1, self->written, references};
    bp_text_answers bleu = {0}, chrf = {0};
    json_t *figures;
    bp_err err;

    if (!self->references)
        return BP_OK;
    figures = json_object();
    for (int64_t k = 0; k < self->prompts.count; k++)
        if (!self->written[k].text)
            self->written[k] = (bp_line){bp_strdup(""), 0};
    err = bp_bleu_count(&bleu, &pairs, BP_WORDS_13A);
    if (err == BP_OK)
        err = estimate(figures, self, &bp_metric_bleu, &bleu);
    if (err == BP_OK)
        err = bp_chrf_count(&chrf, &pairs);
    if (err == BP_OK)
        err = estimate(figures, self, &bp_metric_chrf, &chrf);
    (void)json_object_set_new(summary, "figures", figures);
    bp_text_answers_clear(&bleu);
    bp_text_answers_clear(&chrf);
    return err;
}
