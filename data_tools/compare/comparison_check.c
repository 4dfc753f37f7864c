/* Are two score folders of the same texts, and what can be divided by? */
#include "base/mem.h"
#include "comparison.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void remark(comparison *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void remark(comparison *c, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    c->remarks = bp_realloc("tool.remarks", c->remarks, c->remark_count + 1, sizeof *c->remarks);
    c->remarks[c->remark_count++] = bp_strdup(text);
}

/* ---- the texts ---- */

static bp_err texts_differ(const comparison *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bp_err texts_differ(const comparison *c, const char *format, ...)
{
    char what[800];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return BP_FAIL(BP_ERR_FORMAT, "compare.other_texts",
                   "the texts differ: %s: at %s and %s; score the same texts with both models",
                   what, c->scores[0].given, c->scores[1].given);
}

static const char *tokenizer_of(const score_folder *scores)
{
    const char *hash = json_string_value(
        json_object_get(json_object_get(scores->summary, "convention"), "tokenizer_hash"));

    return hash ? hash : "";
}

bool comparison_has_hashes(const comparison *c)
{
    const score_folder *a = &c->scores[0], *b = &c->scores[1];

    return a->token_hash && b->token_hash && tokenizer_of(a)[0] != '\0' &&
           strcmp(tokenizer_of(a), tokenizer_of(b)) == 0;
}

static bp_err check_corpora(comparison *c)
{
    const score_folder *a = &c->scores[0], *b = &c->scores[1];

    for (int64_t k = 0; k < a->corpora && k < b->corpora; k++) {
        int64_t in_a = a->corpus_start[k + 1] - a->corpus_start[k];
        int64_t in_b = b->corpus_start[k + 1] - b->corpus_start[k];

        if (strcmp(a->corpus_names[k], b->corpus_names[k]) != 0 && comparison_same_content(c, k, k))
            remark(c, "corpus '%.200s' of A is '%.200s' in B, by its content", a->corpus_names[k],
                   b->corpus_names[k]);
        else if (strcmp(a->corpus_names[k], b->corpus_names[k]) != 0)
            return texts_differ(c, "corpus %" PRId64 " is '%.200s' in A and '%.200s' in B", k,
                                a->corpus_names[k], b->corpus_names[k]);
        if (in_a != in_b)
            return texts_differ(
                c, "corpus '%.200s' has %" PRId64 " documents in A and %" PRId64 " in B",
                a->corpus_names[k], in_a, in_b);
    }
    if (a->corpora != b->corpora)
        return texts_differ(c, "A has %" PRId64 " corpora and B %" PRId64, a->corpora, b->corpora);
    return BP_OK;
}

static const char *id_of(const score_folder *scores, int64_t d)
{
    return scores->ids + (size_t)d * scores->id_width;
}

/* "document 3 ('its id') of corpus 'news'", numbers from 0 in the corpus. */
#define DOCUMENT_BYTES 500
static const char *spell_document(char out[DOCUMENT_BYTES], const score_folder *scores, int64_t d)
{
    int64_t k = 0;

    while (d >= scores->corpus_start[k + 1])
        k++;
    (void)snprintf(out, DOCUMENT_BYTES, "document %" PRId64 " ('%.200s') of corpus '%.200s'",
                   d - scores->corpus_start[k], id_of(scores, d), scores->corpus_names[k]);
    return out;
}

static bp_err document_differs(const comparison *c, int64_t d, const char *what,
                               const int64_t *in_a, const int64_t *in_b)
{
    char document[DOCUMENT_BYTES];

    return texts_differ(c, "%s has %" PRId64 " %s in A and %" PRId64 " in B",
                        spell_document(document, &c->scores[0], d), in_a[d], what, in_b[d]);
}

/* What is not known (-1, an empty id) equals anything; so do ids of documents of equal tokens. */
static bp_err check_documents(comparison *c)
{
    const score_folder *a = &c->scores[0], *b = &c->scores[1];
    bool hashes = comparison_has_hashes(c), said = false;
    char document[DOCUMENT_BYTES];

    for (int64_t d = 0; d < a->documents; d++) {
        bool same = comparison_same_id(c, d);

        if (!same && !(hashes && a->token_hash[d] == b->token_hash[d]))
            return texts_differ(c, "%s in A is '%.200s' in B", spell_document(document, a, d),
                                id_of(b, d));
        if (!same && !said)
            remark(c,
                   "ids differ, first of %s, '%.200s' in B: documents are the same by their "
                   "tokens",
                   spell_document(document, a, d), id_of(b, d));
        said = said || !same;
        if (a->bytes[d] >= 0 && b->bytes[d] >= 0 && a->bytes[d] != b->bytes[d])
            return document_differs(c, d, "bytes", a->bytes, b->bytes);
        if (a->words[d] >= 0 && b->words[d] >= 0 && a->words[d] != b->words[d])
            return document_differs(c, d, "words", a->words, b->words);
    }
    return BP_OK;
}

/* ---- which tokens were scored ---- */

typedef struct convention {
    const char *name, *prefix, *tokenizer, *select;
    int64_t context, stride;
    int64_t order; /* each token is predicted from order - 1 of the context; 0: from all */
    bool end;
    bool whole_bytes, whole_words; /* all text was scored, and its bytes, its words are known */
    bool is_half;
} convention;

static bp_err convention_of(convention *out, const score_folder *scores)
{
    const json_t *all = json_object_get(scores->summary, "convention");
    const char *path = scores->summary_path;
    const json_t *select = json_object_get(all, "select");
    bp_err err = bp_json_get_string(all, "name", &out->name, path);

    if (err == BP_OK)
        err = bp_json_get_string(all, "prefix", &out->prefix, path);
    if (err == BP_OK)
        err = bp_json_get_string(all, "tokenizer_hash", &out->tokenizer, path);
    if (err == BP_OK)
        err = bp_json_get_int(all, "context", &out->context, path);
    if (err == BP_OK)
        err = bp_json_get_int(all, "stride", &out->stride, path);
    if (err == BP_OK)
        err = bp_json_get_bool(all, "end", &out->end, path);
    if (err != BP_OK)
        return err;
    out->order = json_integer_value(json_object_get(all, "order"));
    out->select = json_is_string(select) ? json_string_value(select) : "all";
    out->whole_bytes = json_is_integer(json_object_get(scores->summary, "bytes"));
    out->whole_words = json_is_integer(json_object_get(scores->summary, "words"));
    out->is_half = strcmp(out->name, "half") == 0;
    return BP_OK;
}

static void spell(char *out, size_t bytes, const convention *one, bool tokenizer)
{
    (void)snprintf(out, bytes,
                   "%s, context %" PRId64 ", stride %" PRId64 ", prefix %s, end %s%s%.8s",
                   one->name, one->context, one->stride, one->prefix, one->end ? "yes" : "no",
                   tokenizer ? ", tokenizer " : "", tokenizer ? one->tokenizer : "");
}

static bool score_the_same_tokens(const convention *a, const convention *b)
{
    return strcmp(a->tokenizer, b->tokenizer) == 0 && strcmp(a->prefix, b->prefix) == 0 &&
           a->end == b->end && a->is_half == b->is_half &&
           (!a->is_half || a->context == b->context);
}

/* The first document whose tokens, or whose numbers of them, differ; -1: none. */
static int64_t first_other(const comparison *c, const void *a, const void *b)
{
    const uint64_t *one = a, *other = b;

    for (int64_t d = 0; d < c->scores[0].documents; d++)
        if (one[d] != other[d])
            return d;
    return -1;
}

/* Counts that agree may be of other words. If a file names no tokenizer, other tokens may come of
 * another tokenizer: *same_tokens is false then, and the texts may be the same. */
static bp_err check_tokens(comparison *c, const convention *a, const convention *b,
                           bool *same_tokens)
{
    const score_folder *one = &c->scores[0], *other = &c->scores[1];
    char document[DOCUMENT_BYTES];
    int64_t d;

    *same_tokens = strcmp(a->tokenizer, b->tokenizer) == 0;
    c->evidence = EVIDENCE_COUNTS;
    if (!*same_tokens)
        return BP_OK;
    if (!one->token_hash || !other->token_hash) {
        remark(c,
               "%s an older version, which kept no hashes of tokens: only ids and counts show that "
               "the texts are the same",
               one->token_hash     ? "B is of"
               : other->token_hash ? "A is of"
                                   : "A and B are of");
        return BP_OK;
    }
    d = first_other(c, one->token_hash, other->token_hash);
    *same_tokens = d < 0;
    if (d < 0)
        c->evidence = EVIDENCE_TOKEN_HASH;
    if (d < 0 || a->tokenizer[0] == '\0')
        return BP_OK;
    if (score_the_same_tokens(a, b) && one->tokens[d] != other->tokens[d]) /* reported first */
        return document_differs(c, d, "scored tokens", one->tokens, other->tokens);
    return texts_differ(c,
                        "%s has other tokens in A (XXH3 %016" PRIx64 ") than in B (%016" PRIx64 ")",
                        spell_document(document, one, d), one->token_hash[d], other->token_hash[d]);
}

/* Documents that were not to be scored have no tokens, but bytes. They have to be the same ones. */
static bp_err choose_documents(comparison *c, const convention *a, const convention *b)
{
    const score_folder *one = &c->scores[0], *other = &c->scores[1];

    if (strcmp(a->select, b->select) != 0)
        return BP_FAIL(
            BP_ERR_FORMAT, "compare.other_selection",
            "score.select is %s in A and %s in B: at %s and %s; score the same documents "
            "with both",
            a->select, b->select, one->given, other->given);
    c->chosen = bp_alloc("tool.comparison", one->documents, sizeof *c->chosen);
    for (int64_t d = 0; d < one->documents; d++) {
        bool in_a = one->tokens[d] > 0, in_b = other->tokens[d] > 0;

        c->chosen[d] = strcmp(a->select, "all") == 0 || in_a || in_b;
        if (c->whole_bytes && in_a != in_b && one->bytes[d] != 0)
            return document_differs(c, d, "scored tokens", one->tokens, other->tokens);
    }
    return BP_OK;
}

static bp_err choose_per_text(comparison *c, const convention *a, const convention *b)
{
    bool tokenizers = strcmp(a->tokenizer, b->tokenizer) != 0;
    char one[200], other[200];

    spell(one, sizeof one, a, tokenizers);
    spell(other, sizeof other, b, tokenizers);
    if (!c->whole_bytes && !(a->whole_words && b->whole_words))
        return BP_FAIL(
            BP_ERR_FORMAT, "compare.other_tokens",
            "other tokens were scored in A (%s) than in B (%s), and not all text in both, "
            "or its bytes and words are not known: nothing can be compared: at %s and %s; "
            "score both with one convention",
            one, other, c->scores[0].given, c->scores[1].given);
    c->unit = c->whole_bytes ? UNIT_BYTE : UNIT_WORD;
    const char *name = comparison_unit_name(c->unit);
    if (tokenizers)
        remark(c,
               "compared per %s of text, since the tokenizers differ: perplexities per token do "
               "not compare",
               name);
    else
        remark(c,
               "other tokens were scored in A (%s) than in B (%s): compared per %s of text; "
               "perplexities per token do not compare",
               one, other, name);
    return BP_OK;
}

static bp_err choose_unit(comparison *c, const convention *a, const convention *b, bool same_tokens)
{
    int64_t d = first_other(c, c->scores[0].tokens, c->scores[1].tokens);
    bool unknown = a->tokenizer[0] == '\0';

    if (!same_tokens || !score_the_same_tokens(a, b) || (d >= 0 && unknown))
        return choose_per_text(c, a, b);
    if (d >= 0) /* one tokenizer makes other tokens only of another text */
        return document_differs(c, d, "scored tokens", c->scores[0].tokens, c->scores[1].tokens);
    return BP_OK;
}

/* ---- what differs ---- */

static void differ(comparison *c, const char *what, const char *a, const char *b)
{
    if (strcmp(a, b) == 0)
        return;
    c->differences = bp_realloc("tool.differences", c->differences, c->difference_count + 1,
                                sizeof *c->differences);
    c->differences[c->difference_count++] = (comparison_setting){what, bp_strdup(a), bp_strdup(b)};
}

static const char *spell_length(char *text, size_t bytes, int64_t length)
{
    if (length == 0)
        return "no limit";
    (void)snprintf(text, bytes, "%" PRId64, length);
    return text;
}

/* What a prediction reads at most. */
static const char *spell_context(char *text, size_t bytes, const convention *one)
{
    if (one->order == 0 || (one->context > 0 && one->context < one->order - 1))
        return spell_length(text, bytes, one->context);
    (void)snprintf(text, bytes, "%" PRId64 " (order %" PRId64 ")", one->order - 1, one->order);
    return text;
}

static void list_differences(comparison *c, const convention *a, const convention *b)
{
    char one[64], other[64];

    differ(c, "convention", a->name, b->name);
    differ(c, "context", spell_context(one, sizeof one, a), spell_context(other, sizeof other, b));
    if (a->stride != a->context || b->stride != b->context) /* else the context says it */
        differ(c, "stride", spell_length(one, sizeof one, a->stride),
               spell_length(other, sizeof other, b->stride));
    differ(c, "prefix", a->prefix, b->prefix);
    differ(c, "end", a->end ? "yes" : "no", b->end ? "yes" : "no");
    differ(c, "tokenizer", a->tokenizer[0] != '\0' ? a->tokenizer : "unknown",
           b->tokenizer[0] != '\0' ? b->tokenizer : "unknown");
}

/* Given what comes before a token, what surrounds it, or a source text: three questions. */
static const char *question_of(const convention *one)
{
    if (strncmp(one->name, "pll", 3) == 0)
        return "all other tokens around it";
    return strcmp(one->name, "pairs") == 0 ? "a source text" : "the tokens before it";
}

/* A code that does not spell the text is short of it: by the byte or word it looks better. */
static void check_spelling(comparison *c)
{
    for (int side = 0; side < 2; side++) {
        const char *lost = score_folder_lost(&c->scores[side]);

        if (!lost)
            continue;
        remark(c,
               "the tokens of %s do not spell the text (%s): figures a byte or a word look better "
               "than "
               "they are",
               side == 0 ? "A" : "B", lost);
        if (!c->no_verdict)
            c->no_verdict = "not all tokens spell the text, see the note";
    }
}

static void note_known(comparison *c)
{
    for (int side = 0; side < 2; side++) {
        char *known = score_folder_known(&c->scores[side]);

        if (known)
            remark(c, "%s: %s", side == 0 ? "A" : "B", known);
        bp_free(known);
    }
}

static bp_err check_questions(comparison *c, const convention *a, const convention *b)
{
    const char *in_a = question_of(a), *in_b = question_of(b);

    if (strcmp(a->name, b->name) != 0)
        c->no_verdict = "A and B were scored by two conventions";
    else if (a->end != b->end)
        c->no_verdict = "the ends of documents were scored on one side only";
    if (strcmp(in_a, in_b) == 0 || c->anyway)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "compare.not_comparable",
                   "A (%s) predicts each token given %s, B (%s) given %s: neither predicts better, "
                   "whatever the numbers: at %s and %s; --anyway prints them without a verdict",
                   a->name, in_a, b->name, in_b, c->scores[0].given, c->scores[1].given);
}

/* Those of A, or of B if A was scored without: the texts are the same, and so are their clusters.
 */
static void take_clusters(comparison *c)
{
    const char *in_a = score_folder_cluster(&c->scores[0]),
               *in_b = score_folder_cluster(&c->scores[1]);
    const score_folder *from = &c->scores[in_a ? 0 : 1];

    if (!in_a && !in_b)
        return;
    c->cluster = score_folder_cluster(from);
    c->clusters = score_folder_clusters(from);
    differ(c, "score.cluster", in_a ? in_a : "none", in_b ? in_b : "none");
    if (!in_a || !in_b || strcmp(in_a, in_b) != 0)
        remark(c, "intervals are over the clusters of %s, documents with one value of '%.100s'",
               in_a ? "A" : "B", c->cluster);
}

/* ---- labels ---- */

static bool same_value(const score_label *a, const score_label *b, int64_t d)
{
    int64_t one = a->codes[d], other = b->codes[d];

    return one < 0 || other < 0 ? one == other : strcmp(a->values[one], b->values[other]) == 0;
}

/* Groups are those of A's labels; a label that B has otherwise is not one. */
static void check_labels(comparison *c)
{
    score_folder *a = &c->scores[0], *b = &c->scores[1];
    char document[DOCUMENT_BYTES];

    for (int64_t k = 0; k < a->label_count; k++) {
        score_label *one = &a->labels[k];
        const score_label *other = score_folder_label(b, one->name);
        int64_t d = 0;

        while (other && d < a->documents && same_value(one, other, d))
            d++;
        if (other && d == a->documents)
            continue;
        if (!other)
            remark(c, "label '%.200s' is only in A: left out", one->name);
        else
            remark(c, "label '%.200s' differs, first for %s: left out", one->name,
                   spell_document(document, a, d));
        for (d = 0; d < a->documents; d++)
            one->codes[d] = -1;
    }
    for (int64_t k = 0; k < b->label_count; k++)
        if (!score_folder_label(a, b->labels[k].name))
            remark(c, "label '%.200s' is only in B: left out", b->labels[k].name);
}

bp_err comparison_check(comparison *c)
{
    convention a, b;
    bool same_tokens;
    bp_err err;

    c->unit = UNIT_TOKEN;
    comparison_match_corpora(c);
    err = check_corpora(c);
    if (err == BP_OK)
        err = check_documents(c);
    if (err == BP_OK)
        err = convention_of(&a, &c->scores[0]);
    if (err == BP_OK)
        err = convention_of(&b, &c->scores[1]);
    if (err == BP_OK) {
        c->whole_bytes = a.whole_bytes && b.whole_bytes;
        list_differences(c, &a, &b);
        err = check_questions(c, &a, &b);
        note_known(c);
    }
    if (err == BP_OK)
        err = choose_documents(c, &a, &b);
    if (err == BP_OK)
        err = check_tokens(c, &a, &b, &same_tokens);
    if (err == BP_OK)
        err = choose_unit(c, &a, &b, same_tokens);
    if (err == BP_OK && c->unit != UNIT_TOKEN)
        check_spelling(c);
    if (err == BP_OK) {
        take_clusters(c);
        check_labels(c);
    }
    return err;
}
