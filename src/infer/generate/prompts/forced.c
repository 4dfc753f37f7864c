/* Tokens that texts must have: those of a model's files, of generate.first and .last, and the tags
 * of languages. Called by setup.c. */
#include "infer/generate/generator.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "x" is a tag by itself, or within marks: M2M-100's, or OPUS-MT's. */
static const char *const MARKS[][2] = {{"", ""}, {"__", "__"}, {">>", "<<"}};
enum { IN_A_SOURCE = 2 }; /* the marks of a target's tag that is put before the source */

static int64_t id_of(const generator *self, const char *name)
{
    return self->tokenizer ? bp_tokenizer_id(self->tokenizer, name, strlen(name)) : -1;
}

/* The token of generate.first or .last, which is not auto; -1 if there is none. */
static bp_err find_token(int64_t *out, const generator *self, const char *key, const char *word)
{
    char *end;
    int64_t number = strtoll(word, &end, 10);

    *out = -1;
    if (strcmp(word, "none") == 0)
        return BP_OK;
    *out = *word != '\0' && *end == '\0' ? number : id_of(self, word);
    if (*out < 0 || *out >= self->job->info.vocab_size)
        return BP_FAIL(
            BP_ERR_CONFIG, "generate.no_token",
            "%s = %s is neither a name of the tokenizer's tokens nor an id below %" PRId64
            ": at %s; give one of them, auto or none",
            key, word, self->job->info.vocab_size, key);
    return BP_OK;
}

/* *marks: the marks of the tag. */
static bp_err find_language(int64_t *out, int *marks, const generator *self, const char *key,
                            const char *word)
{
    if (!self->job->info.reads_source)
        return BP_FAIL(BP_ERR_CONFIG, "generate.no_source",
                       "%s = %s, and the model reads no source: at %s; leave it out", key, word,
                       key);
    for (*marks = 0; *marks < 3; ++*marks) {
        bp_buffer name = {0};

        bp_buffer_printf(&name, "%s%s%s", MARKS[*marks][0], word, MARKS[*marks][1]);
        *out = id_of(self, name.data);
        bp_buffer_clear(&name);
        if (*out >= 0)
            return BP_OK;
    }
    return BP_FAIL(BP_ERR_CONFIG, "generate.no_language",
                   "%s = %s: the tokenizer has no token %s, __%s__ or >>%s<<%s: at %s; give one "
                   "that it has",
                   key, word, word, word, word, self->tokenizer ? "" : ", as there is none", key);
}

/* The template of a post-processor, or of one of several; NULL if it has none. Borrowed. */
static const json_t *template_of(const json_t *processor)
{
    const json_t *one, *found = json_object_get(processor, "single");
    size_t k;

    json_array_foreach(json_object_get(processor, "processors"), k, one)
    {
        found = found ? found : json_object_get(one, "single");
    }
    return found;
}

/* Does a template put a language's tag after the text and its end, as mBART's of 25 languages?
 * NLLB's files do so too, but its program does not. */
static bool tag_follows(const generator *self)
{
    if (!self->job->info.tags_follow)
        return false;
    char *text = bp_tokenizer_text(self->tokenizer);
    json_t *root = json_loads(text, 0, NULL);
    const json_t *part;
    bool follows = false, in_text = false;
    size_t k;

    json_array_foreach((json_t *)template_of(json_object_get(root, "post_processor")), k, part)
    {
        const char *name =
            json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));

        in_text = in_text || json_object_get(part, "Sequence");
        follows = follows || (in_text && name && id_of(self, name) != self->job->info.eod_id);
    }
    json_decref(root);
    bp_free(text);
    return follows;
}

/* Tags: the source's before it and the target's as first token; or the source's after it and the
 * target's instead of the start token; or the target's before the source. */
static bp_err find_languages(generator *self)
{
    const bp_generate_keys *keys = bp_generate_keys_of(self->job->config);
    int64_t source = -1, target = -1;
    int marks = 0;
    bp_err err = BP_OK;

    if (keys->source_language)
        err =
            find_language(&source, &marks, self, "generate.source_language", keys->source_language);
    if (err == BP_OK && keys->language)
        err = find_language(&target, &marks, self, "generate.language", keys->language);
    if (err != BP_OK || (source < 0 && target < 0))
        return err;
    if (target >= 0 && marks == IN_A_SOURCE) {
        self->before = target;
    } else if (tag_follows(self)) {
        self->after = source;
        self->start = target >= 0 ? target : self->start;
    } else {
        self->before = source;
        self->forced.has_first = self->forced.has_first || target >= 0;
        self->forced.first = target >= 0 ? target : self->forced.first;
    }
    return BP_OK;
}

bp_err generator_find_forced(generator *self)
{
    const bp_generate_keys *keys = bp_generate_keys_of(self->job->config);
    bp_forced *forced = &self->forced;
    bp_err err = BP_OK;

    *forced = self->job->info.forced;
    self->start = self->job->info.start_token;
    self->before = self->after = -1;
    if (strcmp(keys->first, "auto") != 0) {
        err = find_token(&forced->first, self, "generate.first", keys->first);
        forced->has_first = forced->first >= 0;
    }
    if (err == BP_OK && strcmp(keys->last, "auto") != 0) {
        err = find_token(&forced->last, self, "generate.last", keys->last);
        forced->has_last = forced->last >= 0;
    }
    if (err == BP_OK)
        err = find_languages(self);
    self->rule.choice.forced =
        forced->has_first || forced->has_last || forced->never.count > 0 ? forced : NULL;
    return err;
}

void generator_name_forced(const generator *self, bp_buffer *out)
{
    const bp_forced *forced = self->rule.choice.forced;

    if (forced && forced->has_first)
        bp_buffer_printf(out, " first %" PRId64, forced->first);
    if (forced && forced->has_last)
        bp_buffer_printf(out, " last %" PRId64, forced->last);
    for (int k = 0; forced && k < forced->never.count; k++)
        bp_buffer_printf(out, " never %" PRId64, forced->never.ids[k]);
    if (self->start != self->job->info.start_token)
        bp_buffer_printf(out, " start %" PRId64, self->start);
}
