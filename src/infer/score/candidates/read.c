/* The file of choices, and what the model is fed for each. Called by choices.c at the start. */
#include "infer/score/candidates/candidates.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/documents/text_source.h"
#include "text/unicode/tally.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIELD "choices"

typedef struct reader {
    bp_candidates *out;
    const bp_score_plan *plan;
    const bp_tokenizer *tokenizer;
    bp_candidates_prefix prefix;
    bp_encoder *encoder;
    const char *path;
    int64_t row_capacity, row_count;
} reader;

/* A document's text, and what the model is fed of it. */
typedef struct context {
    char *text;
    size_t bytes, kept; /* without the white space at its end */
    bp_ids ids;         /* a prefix and the tokens of what is kept */
    int64_t tokens;     /* only of what is kept */
} context;

/* Bytes of the text without the white space at its end: Python's str.rstrip(). */
static size_t strip_end(const char *text, size_t bytes)
{
    bp_text_tally tally;
    size_t at = bytes;

    while (at > 0) {
        size_t begin = at - 1;

        while (begin > 0 && at - begin < 4 && ((unsigned char)text[begin] & 0xC0) == 0x80)
            begin--;
        tally = (bp_text_tally){0};
        bp_text_tally_add(&tally, text + begin, at - begin);
        if (!tally.ends_in_run || tally.invalid_bytes > 0)
            break;
        at = begin;
    }
    return at;
}

/* Does a document begin with what its corpus begins documents with (--bos)? */
static bool has_own_beginning(const reader *self, int64_t file, int64_t first)
{
    const bp_corpus_info *info = bp_corpus_file_info(bp_corpus_file_at(self->plan->corpus, file));

    return info->has_bos && info->roles[BP_ROLE_BOS] == first;
}

/* The document's tokens without its prefix, if it begins with one: *prefix, -1 where another takes
 * its place. */
static bp_err read_tokens(const reader *self, int64_t document, bp_ids *ids, int64_t *prefix)
{
    const bp_candidates_prefix *known = &self->prefix;
    bp_score_document place;
    bp_err err = bp_score_plan_document(self->plan, document, &place);
    int64_t first, text;

    *prefix = -1;
    if (err != BP_OK)
        return err;
    /* the plan may have taken one off already */
    first = self->plan->doc_start[place.file][document - self->plan->first_document[place.file]];
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
        err = bp_decode(self->tokenizer, ids.data, ids.count, &to->text, &to->bytes);
    bp_ids_clear(&ids);
    if (err != BP_OK)
        return err;
    to->kept = strip_end(to->text, to->bytes);
    if (prefix < 0)
        prefix = to->kept > 0 ? self->prefix.before : self->prefix.alone;
    if (prefix >= 0) {
        bp_ids_reserve(&to->ids, 1);
        to->ids.data[to->ids.count++] = (uint32_t)prefix;
    }
    to->tokens = -to->ids.count;
    if (to->kept > 0)
        err = bp_encode(self->encoder, to->text, to->kept, &to->ids);
    to->tokens += to->ids.count;
    return err;
}

/* The choice's tokens after the context's, to out->ids. */
static bp_err encode_choice(reader *self, const context *before, const json_t *text)
{
    bp_ids *ids = &self->out->ids, all = {0};
    bp_buffer whole = {0};
    int64_t tokens = before->tokens; /* that are not the choice's */
    bp_err err;

    bp_buffer_add(&whole, before->text, before->bytes);
    bp_buffer_add(&whole, json_string_value(text), json_string_length(text));
    err = bp_encode(self->encoder, whole.data, whole.bytes, &all);
    if (err == BP_OK && all.count <= tokens) { /* it has no token of its own */
        tokens = all.count = 0;
        err = bp_encode(self->encoder, whole.data + before->kept, whole.bytes - before->kept, &all);
    }
    if (err == BP_OK && all.count > tokens) {
        bp_ids_reserve(ids, all.count - tokens);
        memcpy(ids->data + ids->count, all.data + tokens,
               (size_t)(all.count - tokens) * sizeof *all.data);
        ids->count += all.count - tokens;
    }
    bp_buffer_clear(&whole);
    bp_ids_clear(&all);
    return err;
}

/* What of a row is fed and scored: the last tokens, as many as fit. */
static void fit_row(const reader *self, bp_candidate_row *row)
{
    int64_t most = self->plan->rule.context + 1;

    if (row->scored == row->count) /* the first token follows nothing */
        row->scored--;
    if (row->scored < 1 || row->scored > most - 1)
        row->scored = row->count = 0;
    if (row->count > most) {
        row->first += row->count - most;
        row->count = most;
    }
}

static bp_err add_choice(reader *self, int64_t document, const context *before, const json_t *text)
{
    bp_ids *ids = &self->out->ids;
    bp_candidate_row row = {
        .document = document, .first = ids->count, .bytes = (int64_t)json_string_length(text)};
    int64_t fed = before->ids.count; /* before the choice */
    bp_err err = BP_OK;

    bp_ids_reserve(ids, fed);
    if (fed > 0)
        memcpy(ids->data + ids->count, before->ids.data, (size_t)fed * sizeof *ids->data);
    ids->count += fed;
    if (row.bytes > 0)
        err = encode_choice(self, before, text);
    if (err != BP_OK)
        return err;
    row.count = ids->count - row.first;
    row.scored = row.count - fed;
    fit_row(self, &row);
    self->out->unscored += row.scored == 0;
    if (self->row_count == self->row_capacity) {
        self->row_capacity = 2 * self->row_capacity + 64;
        self->out->rows = bp_realloc("score.candidates", self->out->rows, self->row_capacity,
                                     sizeof *self->out->rows);
    }
    self->out->rows[self->row_count++] = row;
    return BP_OK;
}

static bp_err read_answer(const json_t *object, size_t choices, int64_t *answer)
{
    const json_t *value = json_object_get(object, "answer");

    *answer = json_is_integer(value) ? json_integer_value(value) : -1;
    if (value && !json_is_null(value) && (*answer < 0 || *answer >= (int64_t)choices))
        return BP_FAIL(BP_ERR_FORMAT, "choices.bad_answer",
                       "\"answer\" is no number of a choice, from 0 to %zu", choices - 1);
    return BP_OK;
}

static bp_err add_document(reader *self, const json_t *object, int64_t document)
{
    const json_t *choices = json_object_get(object, FIELD);
    context before = {0};
    bp_err err = BP_OK;

    if (!json_is_array(choices))
        return BP_FAIL(BP_ERR_FORMAT, "choices.not_a_list", "\"" FIELD "\" is no list of texts");
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
                  : BP_FAIL(BP_ERR_FORMAT, "choices.no_text", "choice %zu is no text", k);
    }
    self->out->first[document + 1] = self->row_count;
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

void bp_candidates_hash(const bp_candidates *candidates, char out[BP_SHA256_HEX])
{
    int64_t rows = candidates->first[candidates->documents];
    bp_buffer all = {0};

    bp_buffer_add(&all, candidates->answer,
                  (size_t)candidates->documents * sizeof *candidates->answer);
    bp_buffer_add(&all, candidates->rows, (size_t)rows * sizeof *candidates->rows);
    bp_buffer_add(&all, candidates->ids.data,
                  (size_t)candidates->ids.count * sizeof *candidates->ids.data);
    bp_sha256_of(all.data ? all.data : "", all.bytes, out);
    bp_buffer_clear(&all);
}

void bp_candidates_clear(bp_candidates *candidates)
{
    bp_free(candidates->first);
    bp_free(candidates->answer);
    bp_free(candidates->rows);
    bp_ids_clear(&candidates->ids);
    *candidates = (bp_candidates){0};
}
