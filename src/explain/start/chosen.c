/* explain.layers and explain.words: the layers, and the tokens of words; checks that there are
 * enough tokens. Called by explain.c and load.c, once. */
#include "explain/explainer.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- layers ---- */

static bp_err refuse_layers(const explainer *self, const char *list)
{
    return BP_FAIL(BP_ERR_CONFIG, "explain.no_layer",
                   "'%s' is no list of layers of this model, which are 0 (the embedding) to "
                   "%" PRId64 ": at explain.layers; write numbers and ranges with commas, as "
                   "0,2-4",
                   list, (int64_t)self->settings.info->layers);
}

/* "4" or "4-6" at *at, which moves after it. */
static bool read_range(const char **at, int64_t range[2])
{
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    range[0] = range[1] = strtoll(*at, &end, 10);
    if (*end == '-') {
        if (end[1] < '0' || end[1] > '9')
            return false;
        range[1] = strtoll(end + 1, &end, 10);
    }
    *at = end;
    return *end == '\0' || *end == ',';
}

bp_err explain_find_layers(explainer *self)
{
    const char *list = self->settings.keys->layers;
    bool *chosen = bp_alloc("explain.layers", self->settings.info->layers + 1, sizeof *chosen),
         fits = true;
    int64_t count = 0, range[2];

    self->chosen_layers =
        bp_alloc("explain.layers", self->settings.info->layers + 1, sizeof *self->chosen_layers);
    for (const char *at = list; fits && at && *at; at += *at == ',') {
        fits = read_range(&at, range) && range[0] <= range[1] &&
               range[1] <= self->settings.info->layers;
        for (int64_t l = range[0]; fits && l <= range[1]; l++)
            chosen[l] = true;
        fits = fits && (*at == '\0' || at[1] != '\0');
    }
    for (int64_t l = 0; l <= self->settings.info->layers; l++)
        if (!list || chosen[l])
            self->chosen_layers[count++] = l;
    bp_free(chosen);
    self->settings.layers = self->chosen_layers;
    self->settings.layer_count = count;
    for (int k = 0; k < self->count && fits; k++) /* the embedding has no MLP */
        fits = !self->methods[k]->of_keys || count == 0 || self->chosen_layers[count - 1] > 0;
    return fits && count > 0 ? BP_OK : refuse_layers(self, list);
}

/* ---- words ---- */

static void add_form(bp_explain_word *word, int f, const uint32_t *ids, int64_t count)
{
    word->forms[f] = bp_alloc("explain.words", count, sizeof **word->forms);
    word->lengths[f] = count;
    for (int64_t k = 0; k < count; k++)
        word->forms[f][k] = (int32_t)ids[k];
}

/* Is it the first form? Some tokenizers leave blanks out. */
static bool is_form(const bp_explain_word *word, const uint32_t *ids, int64_t count)
{
    bool same = count == word->lengths[0];

    for (int64_t k = 0; k < count && same; k++)
        same = word->forms[0][k] == (int32_t)ids[k];
    return same;
}

/* The word as a text, and after a blank. */
static bp_err encode(bp_explain_word *word, bp_encoder *encoder)
{
    char *after = bp_sprintf(" %s", word->text);
    const char *const texts[] = {word->text, after};
    bp_err err = BP_OK;

    for (int f = 0; f < 2 && err == BP_OK; f++) {
        bp_ids ids = {0};

        err = bp_encode(encoder, texts[f], strlen(texts[f]), &ids);
        if (err == BP_OK && !(f == 1 && is_form(word, ids.data, ids.count)))
            add_form(word, f, ids.data, ids.count);
        bp_ids_clear(&ids);
    }
    bp_free(after);
    return err;
}

static bp_err encode_all(explainer *self, const char *json, size_t bytes)
{
    bp_tokenizer *tokenizer = NULL;
    bp_encoder *encoder = NULL;
    bp_err err = bp_tokenizer_parse(&tokenizer, json, bytes, "the corpus's tokenizer");

    if (err == BP_OK)
        err = bp_encoder_new(&encoder, tokenizer);
    for (int64_t w = 0; w < self->settings.word_count && err == BP_OK; w++)
        err = encode(&self->chosen_words[w], encoder);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
    return err;
}

/* For a corpus without tokenizer: ids. */
static bp_err read_ids(explainer *self)
{
    for (int64_t w = 0; w < self->settings.word_count; w++) {
        char *end;
        uint32_t id = (uint32_t)strtoul(self->chosen_words[w].text, &end, 10);

        if (*end != '\0' || self->chosen_words[w].text[0] < '0' ||
            self->chosen_words[w].text[0] > '9')
            return BP_FAIL(BP_ERR_CONFIG, "explain.no_tokenizer",
                           "the corpus brings no tokenizer, by which '%s' would be tokens: at "
                           "explain.words; name ids of tokens",
                           self->chosen_words[w].text);
        add_form(&self->chosen_words[w], 0, &id, 1);
    }
    return BP_OK;
}

static void split(explainer *self, const char *list)
{
    for (const char *at = list; *at; at += *at == ',') {
        size_t length = strcspn(at, ",");

        if (length > 0) {
            self->chosen_words =
                bp_realloc("explain.words", self->chosen_words, self->settings.word_count + 1,
                           sizeof *self->chosen_words);
            self->chosen_words[self->settings.word_count++].text =
                bp_sprintf("%.*s", (int)length, at);
        }
        at += length;
    }
    self->settings.chosen_words = self->chosen_words;
}

static int64_t count_forms(const bp_explain_word *word, const int32_t *tokens, int64_t T)
{
    int64_t count = 0;

    for (int64_t t = 0; t < T; t++)
        for (int f = 0; f < 2; f++)
            count +=
                word->lengths[f] > 0 && t + word->lengths[f] <= T &&
                memcmp(tokens + t, word->forms[f], (size_t)word->lengths[f] * sizeof *tokens) == 0;
    return count;
}

/* Occurrences of words, and ordinary tokens. */
static bp_err count(explainer *self, int64_t *points)
{
    explain_reading read;
    bp_err err = BP_OK;

    explain_reading_new(&read, &self->texts);
    for (int64_t d = 0; d < self->texts.documents && err == BP_OK; d++) {
        if (d % 1024 == 0)
            bp_heartbeat_progress();
        read.document = (bp_explained){0};
        if (self->texts.sizes[d].K > 0)
            err = explain_texts_read(&self->texts, d, &read);
        for (int64_t w = 0; w < self->settings.word_count && err == BP_OK; w++)
            self->chosen_words[w].occurrences +=
                count_forms(&self->chosen_words[w], read.document.inputs, read.document.T);
        for (int64_t t = 0; t < read.document.T; t++)
            *points += !bp_explain_is_special(&self->settings, read.document.inputs[t]);
    }
    explain_reading_clear(&read);
    return err;
}

static bp_err find_forms(explainer *self)
{
    char *json = NULL;
    size_t bytes = 0;
    bp_err err = bp_corpus_file_tokenizer(bp_corpus_file_at(self->texts.corpus, 0), &json, &bytes);

    split(self, self->settings.keys->words);
    if (err == BP_OK)
        err = json ? encode_all(self, json, bytes) : read_ids(self);
    bp_free(json);
    return err;
}

static bp_err check_points(const explainer *self, int64_t points)
{
    for (int k = 0; k < self->count; k++) {
        const bp_explain_method *method = self->methods[k];
        int64_t needs = method->needs_points ? method->needs_points(self->settings.keys) : 0;

        if (points < needs)
            return BP_FAIL(BP_ERR_CONFIG, "explain.few_points",
                           "%s needs %" PRId64 " ordinary tokens at least, and the corpus has "
                           "%" PRId64 ": at explain.corpus; use more documents, or a smaller "
                           "explain.neighbours or explain.perplexity",
                           method->name, needs, points);
    }
    return BP_OK;
}

bp_err explain_find_chosen(explainer *self)
{
    bool asks = self->settings.keys->words != NULL;
    int64_t points = 0;
    bp_err err = asks ? find_forms(self) : BP_OK;

    for (int k = 0; k < self->count; k++)
        asks = asks || self->methods[k]->needs_points;
    if (err == BP_OK && asks)
        err = count(self, &points);
    for (int64_t w = 0; w < self->settings.word_count && err == BP_OK; w++)
        if (self->chosen_words[w].occurrences == 0)
            err = BP_FAIL(BP_ERR_CONFIG, "explain.no_word",
                          "'%s' is nowhere in the documents as they are read: at explain.words; "
                          "leave it out, or spell it as they do",
                          self->chosen_words[w].text);
    return err == BP_OK && asks ? check_points(self, points) : err;
}

void explain_clear_chosen(explainer *self)
{
    for (int64_t w = 0; w < self->settings.word_count; w++) {
        bp_free(self->chosen_words[w].text);
        bp_free(self->chosen_words[w].forms[0]);
        bp_free(self->chosen_words[w].forms[1]);
    }
    bp_free(self->chosen_words);
}
