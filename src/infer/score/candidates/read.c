/* The file of choices, and the model's inputs for each. Called by choices.c at the start. */
#include "infer/score/candidates/candidates.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/documents/text_source.h"
#include "text/tokenizer/continuation.h"

#include <inttypes.h>
#include <string.h>

#define FIELD "choices"

typedef struct reader {
    bp_candidates *out;
    const bp_score_plan *plan;
    const bp_tokenizer *tokenizer;
    bp_candidates_prefix prefix;
    bp_encoder *encoder;
    const char *path;
} reader;

/* A document's text, and the model's inputs made from it. */
typedef struct context {
    char *text;
    bp_context_text of;
    bp_ids ids; /* a prefix, and the tokens of the text without the white space at its end */
} context;

/* Does a document begin with its corpus's --bos token? */
static bool has_own_beginning(const reader *self, int64_t file, int64_t first)
{
    const bp_corpus_info *info = bp_corpus_file_info(bp_corpus_file_at(self->plan->corpus, file));

    return info->has_bos && info->roles[BP_ROLE_BOS] == first;
}

/* The document's tokens without its prefix, if it begins with one: *prefix, -1 if another one
 * replaces it. */
static bp_err read_tokens(const reader *self, int64_t document, bp_ids *ids, int64_t *prefix)
{
    const bp_candidates_prefix *known = &self->prefix;
    bp_score_document place;
    bp_err err = bp_score_plan_document(self->plan, document, &place);
    const int64_t *start;
    int64_t first, text;

    *prefix = -1;
    if (err == BP_OK)
        err = bp_document_starts_at(self->plan->starts, place.file,
                                    document - self->plan->first_document[place.file], &start);
    if (err != BP_OK)
        return err;
    first = start[0]; /* the plan may have removed a prefix already */
    text = place.text + (place.start - first);
    bp_ids_reserve(ids, text + 1);
    ids->count = text;
    err = bp_corpus_file_read(bp_corpus_file_at(self->plan->corpus, place.file), first, text,
                              (int32_t *)ids->data);
    bool own = err == BP_OK && text > 0 && has_own_beginning(self, place.file, ids->data[0]);
    if (err == BP_OK && text > 0 &&
        (own || known->bos == (int64_t)ids->data[0] || known->before == (int64_t)ids->data[0])) {
        *prefix = own && known->before >= 0 ? -1 : (int64_t)ids->data[0];
        ids->count--;
        memmove(ids->data, ids->data + 1, (size_t)ids->count * sizeof *ids->data);
    }
    return err;
}

static bp_err read_context(const reader *self, int64_t document, context *to)
{
    bp_ids ids = {0};
    int64_t prefix;
    bp_err err = read_tokens(self, document, &ids, &prefix);

    if (err == BP_OK)
        err = bp_decode(self->tokenizer, ids.data, ids.count, &to->text, &to->of.bytes);
    to->of.text = to->text;
    ids.count = 0;
    if (err == BP_OK)
        err = bp_context_text_encode(&to->of, self->encoder, &ids);
    if (err == BP_OK && prefix < 0)
        prefix = to->of.kept > 0 ? self->prefix.before : self->prefix.alone;
    bp_ids_reserve(&to->ids, ids.count + 1);
    if (prefix >= 0)
        to->ids.data[to->ids.count++] = (uint32_t)prefix;
    if (ids.count > 0)
        memcpy(to->ids.data + to->ids.count, ids.data, (size_t)ids.count * sizeof *ids.data);
    to->ids.count += ids.count;
    bp_ids_clear(&ids);
    return err;
}

static bp_err add_choice(reader *self, int64_t document, const context *before, const json_t *text)
{
    bp_ids *ids = &self->out->ids;
    const bp_candidate_row row = {
        .document = document, .first = ids->count, .bytes = (int64_t)json_string_length(text)};
    int64_t fed = before->ids.count; /* before the choice */
    bp_err err = BP_OK;

    bp_ids_reserve(ids, fed);
    if (fed > 0)
        memcpy(ids->data + ids->count, before->ids.data, (size_t)fed * sizeof *ids->data);
    ids->count += fed;
    if (row.bytes > 0)
        err = bp_continuation_encode(self->encoder, &before->of, json_string_value(text),
                                     (size_t)row.bytes, ids);
    if (err == BP_OK)
        bp_candidates_add(self->out, &row, fed, self->plan->rule.context);
    return err;
}

static bp_err read_answer(const json_t *object, size_t choices, int64_t *answer)
{
    const json_t *value = json_object_get(object, "answer");

    *answer = json_is_integer(value) ? json_integer_value(value) : -1;
    if (value && !json_is_null(value) && (*answer < 0 || *answer >= (int64_t)choices))
        return BP_FAIL(BP_ERR_FORMAT, "choices.bad_answer",
                       "\"answer\" is not a number of a choice, from 0 to %zu", choices - 1);
    return BP_OK;
}

static bp_err add_document(reader *self, const json_t *object, int64_t document)
{
    const json_t *choices = json_object_get(object, FIELD);
    context before = {0};
    bp_err err = BP_OK;

    if (!json_is_array(choices))
        return BP_FAIL(BP_ERR_FORMAT, "choices.not_a_list", "\"" FIELD "\" is not a list of texts");
    if (json_array_size(choices) < 1)
        return BP_FAIL(BP_ERR_FORMAT, "choices.not_a_list",
                       "\"" FIELD "\" is an empty list; it has one text at least");
    err = read_answer(object, json_array_size(choices), &self->out->answer[document]);
    if (err == BP_OK)
        err = read_context(self, document, &before);
    for (size_t k = 0; err == BP_OK && k < json_array_size(choices); k++) {
        const json_t *text = json_array_get(choices, k);

        err = json_is_string(text)
                  ? add_choice(self, document, &before, text)
                  : BP_FAIL(BP_ERR_FORMAT, "choices.no_text", "choice %zu is not a text", k);
    }
    bp_ids_clear(&before.ids);
    bp_free(before.text);
    return err;
}

static bp_err at_line(bp_err err, const char *path, int64_t line)
{
    if (err != BP_ERR_FORMAT)
        return err;
    return bp_err_wrap(err, "%s: at %s:%" PRId64 "; correct the line", bp_err_text(), path, line);
}

static bp_err add_line(reader *self, const char *line, size_t bytes, int64_t document)
{
    json_error_t where;
    static const char *const keys[] = {FIELD, "answer"};
    json_t *object =
        bp_json_members(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, keys, 2, &where);
    bp_err err;

    if (!object)
        err = BP_FAIL(BP_ERR_FORMAT, "json.invalid", "not valid JSON in UTF-8 (%s), column %d",
                      where.text, where.column);
    else if (document >= self->plan->documents)
        err = BP_FAIL(BP_ERR_FORMAT, "choices.too_many_lines",
                      "the corpora have %" PRId64 " documents, and this is a line more",
                      self->plan->documents);
    else
        err = add_document(self, object, document);
    json_decref(object);
    return at_line(err, self->path, document + 1);
}

static bp_err add_lines(reader *self, const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes;
    int64_t document = 0;
    bp_err err = BP_OK;

    while (at < end && err == BP_OK) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);

        err = add_line(self, at, length, document++);
        at += length + 1;
    }
    if (err == BP_OK && document < self->plan->documents)
        err = BP_FAIL(BP_ERR_FORMAT, "choices.too_few_lines",
                      "there are choices for %" PRId64 " documents, and the corpora have %" PRId64
                      ": at %s; write a line for each",
                      document, self->plan->documents, self->path);
    return err;
}

bp_err bp_candidates_read(bp_candidates *candidates, const char *path, const bp_score_plan *plan,
                          const bp_tokenizer *tokenizer, const bp_candidates_prefix *prefix)
{
    reader self = {
        .out = candidates, .plan = plan, .tokenizer = tokenizer, .prefix = *prefix, .path = path};
    char *text = NULL;
    size_t bytes = 0, mark;
    bp_err err = bp_file_read(path, INT64_C(1) << 30, &text, &bytes);

    *candidates = (bp_candidates){.documents = plan->documents};
    candidates->first =
        bp_alloc("score.candidates", plan->documents + 1, sizeof *candidates->first);
    candidates->answer = bp_alloc("score.candidates", plan->documents, sizeof *candidates->answer);
    if (err == BP_OK)
        err = bp_encoder_new(&self.encoder, tokenizer);
    if (err == BP_OK) {
        mark = bp_mark_bytes(text, bytes);
        err = add_lines(&self, text + mark, bytes - mark);
    }
    bp_encoder_free(&self.encoder);
    bp_free(text);
    return err;
}
