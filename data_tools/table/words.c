/* From tokens to words. */
#include "words.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "io/h5/user_block.h"
#include "scores.h"
#include "text/documents/text_source.h"
#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BOUNDARIES "boundary_logprob"

/* ---- opening ---- */

static bp_err find_file(char **path, const char *folder)
{
    static const char *const insides[] = {"score/tokens.h5", "tokens.h5"};

    for (int k = 0; k < 2; k++) {
        *path = bp_path_join(folder, insides[k]);
        if (bp_path_exists(*path))
            return BP_OK;
        bp_free(*path);
        *path = NULL;
    }
    return BP_FAIL(
        BP_ERR_INPUT, "scores.no_tokens",
        "there are no log-probabilities of tokens: at %s; name the run folder of bagpipe "
        "score with score.tokens=yes, on a corpus of the texts",
        folder);
}

static bp_err open_file(scored_words *words, const char *folder)
{
    char *path;
    bp_user_block block;
    bp_err err = find_file(&path, folder);

    if (err != BP_OK)
        return err;
    err = bp_user_block_verify(&block, path); /* before HDF5 sees it */
    if (err == BP_OK)
        err = bp_user_block_expect(&block, "score-tokens", 1, path);
    if (err == BP_OK)
        err = bp_h5_open(&words->h5, path);
    if (err == BP_OK && !bp_h5_has(words->h5, "doc_start"))
        err =
            BP_FAIL(BP_ERR_FORMAT, "scores.no_token_ids",
                    "the file is of an older version, without the ids of its tokens: at %s; score "
                    "again",
                    path);
    if (err == BP_OK)
        err = score_tokenizer_load(&words->tokenizer, words->h5);
    if (err == BP_OK && !words->tokenizer)
        err =
            BP_FAIL(BP_ERR_FORMAT, "scores.no_tokenizer",
                    "the scored corpus keeps no tokenizer, so there are no words: at %s; make the "
                    "corpus with --tokenizer",
                    path);
    bp_free(path);
    return err;
}

static bp_err read_documents(scored_words *words)
{
    bp_h5_shape starts, ids;
    bp_err err = bp_h5_shape_of(words->h5, "doc_start", &starts);

    if (err == BP_OK)
        err = bp_h5_shape_of(words->h5, "doc_id", &ids);
    if (err == BP_OK && (!ids.is_text || ids.dims != 1 || starts.is_text || starts.dims != 1 ||
                         starts.count != ids.count + 1))
        err = BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                      "damaged: 'doc_start' is not as scores have it: at %s; score again",
                      bp_h5_path(words->h5));
    if (err != BP_OK)
        return err;
    words->documents = ids.count;
    words->id_bytes = ids.width;
    words->start = bp_alloc("tool.words", ids.count + 1, sizeof *words->start);
    words->ids = bp_alloc("tool.words", ids.count, ids.width);
    err = bp_h5_read(words->h5, "doc_start", BP_H5_I64, 0, words->start, ids.count + 1);
    if (err == BP_OK)
        err = bp_h5_read_text(words->h5, "doc_id", ids.width, 0, words->ids, ids.count);
    return err;
}

bp_err scored_words_open(scored_words *words, const char *folder)
{
    bp_err err;

    *words = (scored_words){0};
    err = open_file(words, folder);
    if (err == BP_OK)
        err = read_documents(words);
    if (err != BP_OK)
        return err;
    words->boundaries = bp_h5_has(words->h5, BOUNDARIES);
    words->entropy = bp_h5_has(words->h5, "entropy")         ? "entropy"
                     : bp_h5_has(words->h5, "total_entropy") ? "total_entropy" /* an ensemble's */
                                                             : NULL;
    words->unknown = bp_tokenizer_role(words->tokenizer, BP_ROLE_UNKNOWN);
    words->continues =
        bp_alloc("tool.words", bp_tokenizer_size(words->tokenizer), sizeof *words->continues);
    words->special =
        bp_alloc("tool.words", bp_tokenizer_size(words->tokenizer), sizeof *words->special);
    for (int role = 0; role < BP_ROLES; role++) {
        int64_t id = bp_tokenizer_role(words->tokenizer, (bp_role)role);

        if (id >= 0 && role != BP_ROLE_UNKNOWN)
            words->special[id] = true;
    }
    return bp_tokenizer_word_parts(words->tokenizer, words->continues);
}

void scored_words_clear(scored_words *words)
{
    bp_free(words->words);
    bp_free(words->owner);
    bp_buffer_clear(&words->text);
    bp_free(words->ids);
    bp_free(words->start);
    bp_free(words->special);
    bp_free(words->continues);
    bp_tokenizer_free(&words->tokenizer);
    bp_h5_drop(&words->h5);
    *words = (scored_words){0};
}

/* ---- a document ---- */

/* What the text has got since is of this token. */
static void own(scored_words *words, int64_t token)
{
    int64_t bytes = (int64_t)words->text.bytes;

    if (bytes > words->owner_capacity) {
        words->owner_capacity = 2 * bytes;
        words->owner =
            bp_realloc("tool.words", words->owner, words->owner_capacity, sizeof *words->owner);
    }
    while (words->owned < bytes)
        words->owner[words->owned++] = token;
}

static bool is_special(const scored_words *words, int64_t id)
{
    return id < 0 || id >= bp_tokenizer_size(words->tokenizer) || words->special[id];
}

/* The bytes of all tokens; a blank of no token parts what does not continue a word. */
static bp_err spell_text(scored_words *words, const int64_t *ids, int64_t count)
{
    bool pieces = strcmp(bp_tokenizer_kind(words->tokenizer), "wordpiece") == 0;
    bp_err err = BP_OK;

    words->text.bytes = 0;
    words->owned = 0;
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        bool special = is_special(words, ids[k]), joins = !special && words->continues[ids[k]];
        size_t before;

        if (!joins) {
            bp_buffer_add(&words->text, " ", 1);
            own(words, -1);
        }
        if (special)
            continue;
        before = words->text.bytes;
        err = bp_tokenizer_spell(words->tokenizer, ids[k], &words->text);
        if (pieces && joins && words->text.bytes - before > 2 &&
            memcmp(words->text.data + before, "##", 2) == 0) {
            memmove(words->text.data + before, words->text.data + before + 2,
                    words->text.bytes - before - 2);
            words->text.bytes -= 2;
        }
        own(words, k);
    }
    return err;
}

/* The character at a byte, and its length; of an invalid byte 0 and 1. */
static size_t character_at(const scored_words *words, size_t at, uint32_t *c)
{
    size_t length =
        bp_utf8_decode((const uint8_t *)words->text.data + at, words->text.bytes - at, c);

    *c = length > 0 ? *c : 0;
    return length > 0 ? length : 1;
}

/* Bytes of one of a list of characters that the text ends with; 0: none. */
static size_t last_of(const char *const *list, size_t count, const char *text, size_t bytes)
{
    for (size_t k = 0; k < count; k++) {
        size_t n = strlen(list[k]);

        if (bytes >= n && memcmp(text + bytes - n, list[k], n) == 0)
            return n;
    }
    return 0;
}

/* Does the word end a sentence? *marks: it has nothing but marks that end one or close. */
static bool ends_sentence(const char *text, size_t bytes, bool *marks)
{
    static const char *const closing[] = {"\"", "'", ")", "]", "\u201d", "\u2019", "\u00bb"};
    static const char *const ends[] = {".", "!", "?", "\u2026", "\u3002", "\uff01", "\uff1f"};
    size_t n, rest = bytes;
    bool ended;

    while ((n = last_of(closing, sizeof closing / sizeof closing[0], text, rest)) > 0)
        rest -= n;
    n = last_of(ends, sizeof ends / sizeof ends[0], text, rest);
    ended = n > 0 && !(text[rest - 1] == '.' && bp_sentence_abbreviates(text, 0, rest - 1));
    while ((n = last_of(ends, sizeof ends / sizeof ends[0], text, rest)) > 0 ||
           (n = last_of(closing, sizeof closing / sizeof closing[0], text, rest)) > 0)
        rest -= n;
    *marks = rest == 0;
    return ended;
}

static void add_word(scored_words *words, size_t at, size_t bytes, int64_t characters)
{
    const scored_word *last = words->word_count > 0 ? &words->words[words->word_count - 1] : NULL;
    bool marks, ends = ends_sentence(words->text.data + at, bytes, &marks);
    int64_t sentence = last ? last->sentence + (words->ended && !marks) : 1;

    words->ended = ends || (marks && last && words->ended);
    if (words->word_count == words->word_capacity) {
        words->word_capacity = 2 * words->word_capacity + 64;
        words->words =
            bp_realloc("tool.words", words->words, words->word_capacity, sizeof *words->words);
    }
    words->words[words->word_count++] = (scored_word){
        .at = at, .bytes = bytes, .sentence = sentence, .characters = characters, .entropy = NAN};
}

static void find_words(scored_words *words)
{
    size_t begin = 0, length;
    int64_t characters = 0;

    words->word_count = 0;
    for (size_t at = 0; at < words->text.bytes; at += length) {
        uint32_t c;

        length = character_at(words, at, &c);
        if (!bp_character_is_space(c)) {
            characters++;
            continue;
        }
        if (characters > 0)
            add_word(words, begin, at - begin, characters);
        begin = at + length;
        characters = 0;
    }
    if (characters > 0)
        add_word(words, begin, words->text.bytes - begin, characters);
}

/* For the tokens of a document. */
typedef struct scored_tokens {
    int64_t count;
    const float *logprob, *boundary, *entropy; /* NULL: not known */
} scored_tokens;

/* What is known of token k before it is read: that a word begins there; 0 of one that a text begins
 * with, and no blank. */
static double begin_of(const scored_words *words, int64_t id, const scored_tokens *of, int64_t k)
{
    return of->boundary && !words->continues[id] ? (double)of->boundary[k] : 0;
}

/* A token belongs to the word of its first byte that is not white space; one that is all white
 * space to the next word. */
static void add_logprobs(scored_words *words, const int64_t *ids, const scored_tokens *of)
{
    int64_t before = -1; /* the last token that was added */

    for (int64_t w = 0; w < words->word_count; w++) {
        scored_word *word = &words->words[w];

        for (size_t at = word->at; at < word->at + word->bytes; at++) {
            int64_t token = words->owner[at];

            for (int64_t k = before + 1; k <= token; k++) {
                if (!is_special(words, ids[k])) {
                    if (word->pieces++ == 0) {
                        word->ends -= begin_of(words, ids[k], of, k);
                        word->entropy = of->entropy ? (double)of->entropy[k] : NAN;
                    }
                    word->logprob += (double)of->logprob[k];
                    word->unknown = word->unknown || ids[k] == words->unknown;
                }
            }
            before = token > before ? token : before;
        }
        word->ends +=
            of->boundary && before + 1 < of->count ? (double)of->boundary[before + 1] : NAN;
    }
}

bp_err scored_words_read(scored_words *words, int64_t document)
{
    int64_t first = words->start[document], count = words->start[document + 1] - first;
    int64_t *ids = bp_alloc("tool.words", count, sizeof *ids);
    float *logprob = bp_alloc("tool.words", count, sizeof *logprob),
          *boundary = bp_alloc("tool.words", count, sizeof *boundary),
          *entropy = bp_alloc("tool.words", count, sizeof *entropy);
    scored_tokens of = {count, logprob, words->boundaries ? boundary : NULL,
                        words->entropy ? entropy : NULL};
    bp_err err = bp_h5_read(words->h5, "tokens", BP_H5_I64, first, ids, count);

    if (err == BP_OK)
        err = bp_h5_read(words->h5, "logprob", BP_H5_F32, first, logprob, count);
    if (err == BP_OK && words->boundaries)
        err = bp_h5_read(words->h5, BOUNDARIES, BP_H5_F32, first, boundary, count);
    if (err == BP_OK && words->entropy)
        err = bp_h5_read(words->h5, words->entropy, BP_H5_F32, first, entropy, count);
    if (err == BP_OK)
        err = spell_text(words, ids, count);
    if (err == BP_OK) {
        find_words(words);
        add_logprobs(words, ids, &of);
    }
    bp_free(entropy);
    bp_free(boundary);
    bp_free(logprob);
    bp_free(ids);
    return err;
}
