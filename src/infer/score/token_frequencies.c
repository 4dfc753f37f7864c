/* Tokens of scored text that a model has not learned, for the training text lacks them or has them
 * in another form. Called by training_text.c. */
#include "infer/score/token_frequencies.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/printable.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/plain_words.h"

#include <inttypes.h>
#include <string.h>

#define UNSEEN_LEAST 0.01  /* of the scored tokens, that the training text lacks, or */
#define FORM_LEAST   0.001 /* one of them, such as the line break; */
#define FORM_TIMES   5     /* one that occurs less often may just be a rare word */
#define MARK_LEAST   0.002 /* of the scored tokens: one mark, */
#define MARKS_LEAST  0.01  /* and all that are */
#define MARK_RARER   10    /* times rarer in the training text, which is */
#define MARK_LENGTH  10    /* a mark is looked for where this many would be expected */
#define MARKS_NAMED  3

/* ---- how tokens are spelled ---- */

typedef struct speller {
    bp_corpus *corpus;
    bp_tokenizer *tokenizer; /* NULL: not known */
} speller;

static speller speller_of(bp_corpus *corpus)
{
    bp_corpus_file *file = bp_corpus_file_at(corpus, 0);
    speller out = {.corpus = corpus};
    char *json = NULL;
    size_t bytes = 0;

    if (bp_corpus_file_tokenizer(file, &json, &bytes) == BP_OK && json)
        (void)bp_tokenizer_parse(&out.tokenizer, json, bytes, bp_corpus_file_path(file));
    bp_free(json);
    return out;
}

/* Its bytes in a text; none if they are not known. */
static void spell(const speller *self, int64_t token, bp_buffer *text)
{
    text->bytes = 0;
    if (self->tokenizer && bp_tokenizer_spell(self->tokenizer, token, text) != BP_OK)
        text->bytes = 0;
}

/* A token as it is in a text. bp_free(). */
static char *name_of(const speller *self, int64_t token)
{
    bp_buffer text = {0}, shown = {0};
    char *name;

    spell(self, token, &text);
    bp_printable_add(&shown, text.data, text.bytes, "");
    name = token == bp_corpus_eod(self->corpus) ? bp_strdup("the end of a document")
           : memchr(text.bytes > 0 ? text.data : "", '\n', text.bytes) ? bp_strdup("the line break")
           : text.bytes > 0 ? bp_sprintf("'%s'", shown.data)
                            : bp_sprintf("%" PRId64, token);
    bp_buffer_clear(&shown);
    bp_buffer_clear(&text);
    return name;
}

static bool is_line_break(const speller *self, int64_t token)
{
    bp_buffer text = {0};

    spell(self, token, &text);
    bool is = text.bytes > 0 && memchr(text.data, '\n', text.bytes);
    bp_buffer_clear(&text);
    return is;
}

/* Only punctuation, symbols or white space. */
static bool is_mark(const speller *self, int64_t token, bp_buffer *text, bp_buffer *word)
{
    size_t at = 0;

    spell(self, token, text);
    word->bytes = 0;
    return token != bp_corpus_eod(self->corpus) && text->bytes > 0 &&
           !bp_plain_word(text->data, text->bytes, &at, word);
}

/* ---- what is not learned ---- */

static double share(int64_t part, int64_t of)
{
    return of > 0 ? (double)part / (double)of : 0;
}

/* Common in scored text, and much rarer in the training text. */
static bool is_rarer(const bp_token_frequencies *c, int64_t token)
{
    double here = share(c->scored[token], c->tokens),
           there = share(c->trained[token], c->trained_tokens);

    return c->scored[token] >= FORM_TIMES && here >= MARK_LEAST && here >= MARK_RARER * there &&
           here * (double)c->trained_tokens >= MARK_LENGTH;
}

typedef struct marks {
    int64_t tokens;            /* all of them */
    int64_t most[MARKS_NAMED]; /* the commonest, -1: none */
} marks;

static void take(marks *m, const bp_token_frequencies *c, int64_t token)
{
    m->tokens += c->scored[token];
    for (int k = 0; k < MARKS_NAMED; k++) {
        int64_t other = m->most[k];

        if (other >= 0 && c->scored[other] >= c->scored[token])
            continue;
        m->most[k] = token;
        token = other;
        if (token < 0)
            break;
    }
}

static marks find_marks(const bp_token_frequencies *c, const speller *spelling)
{
    marks out = {.most = {-1, -1, -1}};
    bp_buffer text = {0}, word = {0};

    for (int64_t v = 0; v < c->vocab_size; v++)
        if (is_rarer(c, v) && is_mark(spelling, v, &text, &word))
            take(&out, c, v);
    bp_buffer_clear(&text);
    bp_buffer_clear(&word);
    return out;
}

static void warn_of_marks(const bp_token_frequencies *c, const marks *m, const speller *spelling,
                          const char *of, const char *training)
{
    bp_buffer list = {0};

    for (int k = 0; k < MARKS_NAMED && m->most[k] >= 0; k++) {
        char *name = name_of(spelling, m->most[k]);

        bp_buffer_printf(&list, "%s%s is %.2g %% here and %.2g %% there", k > 0 ? ", " : "", name,
                         100 * share(c->scored[m->most[k]], c->tokens),
                         100 * share(c->trained[m->most[k]], c->trained_tokens));
        bp_free(name);
    }
    BP_WARN(
        "score.other_punctuation",
        "punctuation or white space%s is much rarer in the training text %s: of the tokens %.*s: "
        "at score.corpus; the model has hardly seen it so: bring texts of one kind to one form, "
        "marks apart from words or attached, lines joined or not",
        of, training, (int)list.bytes, list.data);
    bp_buffer_clear(&list);
}

/* Tokens that the training text lacks: how many, and the commonest. */
static int64_t count_unseen(const bp_token_frequencies *c, int64_t *most)
{
    int64_t unseen = 0;

    *most = -1;
    for (int64_t v = 0; v < c->vocab_size; v++) {
        if (c->trained[v] > 0 || c->scored[v] == 0)
            continue;
        unseen += c->scored[v];
        *most = *most < 0 || c->scored[v] > c->scored[*most] ? v : *most;
    }
    return *most >= 0 && c->scored[*most] >= FORM_TIMES &&
                   (share(unseen, c->tokens) >= UNSEEN_LEAST ||
                    share(c->scored[*most], c->tokens) >= FORM_LEAST)
               ? unseen
               : 0;
}

void bp_token_frequencies_warn(const bp_token_frequencies *counts, bp_corpus *corpus,
                               const char *of, const char *training)
{
    speller spelling = speller_of(corpus);
    int64_t most, unseen = count_unseen(counts, &most);
    marks m = find_marks(counts, &spelling);

    bool of_marks = m.tokens > unseen || (unseen > 0 && m.tokens == unseen &&
                                          !is_line_break(&spelling, most)); /* else --format */

    if (of_marks && share(m.tokens, counts->tokens) >= MARKS_LEAST) {
        warn_of_marks(counts, &m, &spelling, of, training);
    } else if (unseen > 0) {
        char *name = name_of(&spelling, most);

        BP_WARN("score.untrained_tokens",
                "%" PRId64 " tokens%s, %.3g %%, never occur in the training text %s, most often "
                "token %s (%" PRId64 " times): at score.corpus; the model has not learned their "
                "probabilities. Names and words of another text are such; if it is a matter of "
                "form, make "
                "both corpora of documents of one form (bagpipe-data corpus --format), with "
                "punctuation and marks of one form",
                unseen, of, 100 * share(unseen, counts->tokens), training, name,
                counts->scored[most]);
        bp_free(name);
    }
    bp_tokenizer_free(&spelling.tokenizer);
}
