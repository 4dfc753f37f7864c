/* A pipeline's model, read from tokenizer.json: vocabulary, scores, merges. */
#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/tokenizer/pipeline_load_priv.h"
#include "text/tokenizer/vocab_load_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CHARACTERS 100 /* of WordPiece's words, where the file does not say */

static bp_pieces *pieces_of(bp_tokenizer *tokenizer)
{
    return &tokenizer->pipeline->pieces;
}

/* A special token is never found in text by the model. */
static void add_whole(bp_tokenizer *tokenizer, bp_trie *trie, int64_t id, size_t skip)
{
    const bp_strmap_entry *entry = &tokenizer->names.entries[id];

    if (entry->value == 0 && entry->bytes > skip)
        bp_trie_add(trie, bp_strmap_key(&tokenizer->names, id) + skip, entry->bytes - skip,
                    (uint32_t)id);
}

/* The model's own tokens as pieces; added ones are found before it sees the text, or not at all.
 * `prefix` begins pieces within a word; NULL if there are none. */
static void add_pieces(bp_tokenizer *tokenizer, const json_t *model, const char *prefix)
{
    const json_t *vocab = json_object_get(model, "vocab");
    bp_pieces *pieces = pieces_of(tokenizer);
    size_t length = prefix ? strlen(prefix) : 0;

    for (int64_t id = 0; id < tokenizer->names.count; id++) {
        const char *name = bp_strmap_key(&tokenizer->names, id);
        size_t bytes = tokenizer->names.entries[id].bytes;

        if (!json_object_getn(vocab, name, bytes))
            continue;
        add_whole(tokenizer, &pieces->whole, id, 0);
        if (prefix && bytes >= length && memcmp(name, prefix, length) == 0)
            add_whole(tokenizer, &pieces->inner, id, length);
    }
}

static bp_err find_unknown(bp_tokenizer *tokenizer, const json_t *model, bool needed,
                           const char *name)
{
    const char *token;
    int64_t id;
    bp_err err = bp_load_optional(&token, model, "unk_token", name);

    if (err != BP_OK)
        return err;
    id = bp_tokenizer_id(tokenizer, token, strlen(token));
    if ((token[0] != '\0' || needed) && id < 0)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.no_unk",
                       "the unk_token \"%s\" is not in the vocabulary: at %s", token, name);
    pieces_of(tokenizer)->unknown = tokenizer->roles[BP_ROLE_UNKNOWN] = id;
    return BP_OK;
}

static bp_err find_byte_tokens(bp_tokenizer *tokenizer, const json_t *model, const char *name)
{
    bp_pieces *pieces = pieces_of(tokenizer);

    for (int byte = 0; byte < 256; byte++) {
        char token[8];

        snprintf(token, sizeof token, "<0x%02X>", (unsigned)byte);
        pieces->byte_ids[byte] = bp_tokenizer_id(tokenizer, token, strlen(token));
    }
    return bp_load_bool(&pieces->byte_fallback, model, "byte_fallback", false, name);
}

static void mark_special(bp_tokenizer *tokenizer, const json_t *added)
{
    const json_t *token;
    size_t k;

    json_array_foreach(added, k, token) if (json_is_true(json_object_get(token, "special")))
        tokenizer->names.entries[json_integer_value(json_object_get(token, "id"))]
            .value = 1;
}

static bp_err read_names(bp_tokenizer *tokenizer, json_t *model, const json_t *added,
                         const char *name)
{
    bp_err err = bp_read_vocab(tokenizer, json_object_get(model, "vocab"), added, name);

    if (err == BP_OK)
        mark_special(tokenizer, added);
    return err;
}

/* ---- U+2581 ---- */

static bool crosses_mark(const char *text, size_t bytes)
{
    const size_t length = strlen(BP_SPACE_MARK);
    const char *at = text, *end = text + bytes, *mark;

    while ((mark = memmem(at, (size_t)(end - at), BP_SPACE_MARK, length))) {
        if (mark > text && (mark < text + length || memcmp(mark - length, BP_SPACE_MARK, length)))
            return true;
        at = mark + length;
    }
    return false;
}

static void find_cuts(bp_tokenizer *tokenizer, bool all)
{
    bool crosses = bp_tokenizer_id(tokenizer, BP_SPACE_MARK, strlen(BP_SPACE_MARK)) < 0;

    for (int64_t id = 0; all && id < tokenizer->names.count && !crosses; id++)
        crosses =
            tokenizer->names.entries[id].value == 0 &&
            crosses_mark(bp_strmap_key(&tokenizer->names, id), tokenizer->names.entries[id].bytes);
    crosses = crosses || pieces_of(tokenizer)->symbols.slots;
    for (int64_t k = 0; k < tokenizer->merges.count && !crosses; k++) {
        uint32_t id = tokenizer->merges.list[k].result;

        crosses =
            crosses_mark(bp_strmap_key(&tokenizer->names, id), tokenizer->names.entries[id].bytes);
    }
    tokenizer->pipeline->cuts_at_marks = !crosses && !tokenizer->ignore_merges &&
                                         !pieces_of(tokenizer)->prefix &&
                                         !pieces_of(tokenizer)->suffix;
}

/* ---- BPE ---- */

static int compare_pairs(const void *a, const void *b)
{
    const bp_merge *p = a, *q = b;

    if (p->left != q->left)
        return p->left < q->left ? -1 : 1;
    return (p->right > q->right) - (p->right < q->right);
}

/* Merges whose results have equal scores have the same rank; they are sorted by scores. */
static bp_err group_merges(bp_tokenizer *tokenizer, const json_t *scores, bp_merge *list,
                           int64_t count, const char *name)
{
    int64_t *groups = bp_alloc("text.merges", count + 1, sizeof *groups), group = 0;
    double before = INFINITY;

    tokenizer->merges.groups = groups;
    for (int64_t k = 0; k < count; k++) {
        const json_t *value = json_array_get(scores, list[k].result);
        double score = json_number_value(value);

        if (!json_is_number(value) || score > before)
            return BP_FAIL(BP_ERR_FORMAT, "merges.bad_scores",
                           "merge %lld is not in the order of scores: at %s", (long long)k, name);
        if (score < before)
            groups[group++] = k;
        before = score;
    }
    groups[group] = count;
    for (int64_t g = 0; g < group; g++)
        qsort(list + groups[g], (size_t)(groups[g + 1] - groups[g]), sizeof *list, compare_pairs);
    return BP_OK;
}

/* Pieces that are never cut: ids in a list. */
static bp_err take_symbols(bp_tokenizer *tokenizer, const json_t *ids, const char *name)
{
    const json_t *one;
    size_t k;

    json_array_foreach(ids, k, one)
    {
        json_int_t id = json_is_integer(one) ? json_integer_value(one) : -1;

        if (id < 0 || id >= tokenizer->names.count)
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.bad_id",
                           "\"symbols\" has an id beyond the vocabulary: at %s", name);
        add_whole(tokenizer, &pieces_of(tokenizer)->symbols, id, 0);
    }
    return BP_OK;
}

static bp_err read_merges(bp_tokenizer *tokenizer, const json_t *model, const char *name)
{
    const json_t *merges = json_object_get(model, "merges"),
                 *ours = json_object_get(model, BP_OURS);
    bp_merge *list = NULL;
    bp_err err = bp_read_merges(tokenizer, merges, &list, name);

    if (err == BP_OK && ours)
        err = group_merges(tokenizer, json_object_get(ours, "scores"), list,
                           (int64_t)json_array_size(merges), name);
    if (err == BP_OK)
        err = take_symbols(tokenizer, json_object_get(ours, "symbols"), name);
    if (err != BP_OK) {
        bp_free(list);
        return err;
    }
    return bp_tokenizer_take_merges(tokenizer, list, (int64_t)json_array_size(merges),
                                    tokenizer->pipeline->pre.byte_level, name);
}

/* The prefix and suffix of a word's characters in the vocabulary: prefix of all but the first,
 * suffix of the last. */
static bp_err read_affixes(bp_tokenizer *tokenizer, const json_t *model, const char *name)
{
    bp_pieces *pieces = pieces_of(tokenizer);
    const char *prefix, *suffix;
    bp_err err = bp_load_optional(&prefix, model, "continuing_subword_prefix", name);

    if (err == BP_OK)
        err = bp_load_optional(&suffix, model, "end_of_word_suffix", name);
    if (err != BP_OK)
        return err;
    pieces->prefix = prefix[0] == '\0' ? NULL : bp_strdup(prefix);
    pieces->suffix = suffix[0] == '\0' ? NULL : bp_strdup(suffix);
    tokenizer->merge_prefix_bytes = strlen(prefix);
    return BP_OK;
}

static bp_err read_bpe(bp_tokenizer *tokenizer, json_t *model, const json_t *added,
                       const char *name)
{
    bp_err err = bp_check_bpe_settings(model, name);

    if (err == BP_OK)
        err = read_names(tokenizer, model, added, name);
    if (err == BP_OK)
        err = find_unknown(tokenizer, model, false, name);
    if (err == BP_OK)
        err = find_byte_tokens(tokenizer, model, name);
    if (err == BP_OK)
        err = bp_load_bool(&pieces_of(tokenizer)->fuse_unknown, model, "fuse_unk", false, name);
    if (err == BP_OK)
        err = bp_load_bool(&tokenizer->ignore_merges, model, "ignore_merges", false, name);
    if (err == BP_OK)
        err = read_affixes(tokenizer, model, name);
    if (err == BP_OK)
        err = read_merges(tokenizer, model, name);
    if (err == BP_OK)
        add_pieces(tokenizer, model, NULL);
    if (err == BP_OK && !tokenizer->pipeline->pre.byte_level)
        find_cuts(tokenizer, false);
    return err;
}

/* ---- Unigram ---- */

/* {token: id} of a list of [token, score], so that it is read as other vocabularies are. A token
 * that is there twice has its last id, as in Hugging Face's library. */
static bp_err list_to_vocab(const json_t *list, json_t **vocab, const char *name)
{
    const json_t *row;
    size_t k;

    *vocab = json_object();
    json_array_foreach(list, k, row)
    {
        const json_t *token = json_array_get(row, 0), *score = json_array_get(row, 1);

        if (json_array_size(row) != 2 || !json_is_string(token) || !json_is_number(score))
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.bad_piece",
                           "piece %zu is not a token with its score: at %s", k, name);
        if (!isfinite(json_number_value(score)))
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.bad_piece",
                           "the score of piece %zu, \"%s\", is %g: at %s", k,
                           json_string_value(token), json_number_value(score), name);
        if (json_object_set_new(*vocab, json_string_value(token), json_integer((json_int_t)k)) != 0)
            return bp_fail_memory("a vocabulary", (int64_t)k, 1);
    }
    return BP_OK;
}

static bp_err read_scored_names(bp_tokenizer *tokenizer, const json_t *list, const json_t *added,
                                const char *name)
{
    json_t *vocab = NULL;
    bp_err err = list_to_vocab(list, &vocab, name);

    if (err == BP_OK)
        err = bp_read_vocab(tokenizer, vocab, added, name);
    if (err == BP_OK)
        mark_special(tokenizer, added);
    json_decref(vocab);
    return err;
}

/* [tokens]: is it a piece that no text has? By a list of ids in "bagpipe"; the caller's. */
static bool *hidden_of(const bp_tokenizer *tokenizer, const json_t *ours)
{
    bool *hidden = bp_alloc("text.scores", tokenizer->names.count, sizeof *hidden);
    const json_t *one;
    size_t k;

    json_array_foreach(json_object_get(ours, "hidden"), k, one)
    {
        json_int_t id = json_is_integer(one) ? json_integer_value(one) : -1;

        if (id >= 0 && id < tokenizer->names.count)
            hidden[id] = true;
    }
    return hidden;
}

static void take_scores(bp_tokenizer *tokenizer, const json_t *list, const json_t *ours)
{
    bp_pieces *pieces = pieces_of(tokenizer);
    bool *hidden = hidden_of(tokenizer, ours);
    const json_t *row;
    double lowest = 0;
    size_t k;

    pieces->scores = bp_alloc("text.scores", tokenizer->names.count, sizeof *pieces->scores);
    json_array_foreach(list, k, row)
    {
        double score = json_number_value(json_array_get(row, 1));

        pieces->scores[k] = score;
        lowest = k == 0 || score < lowest ? score : lowest;
        if ((int64_t)k != pieces->unknown && !hidden[k])
            add_whole(tokenizer, &pieces->whole, (int64_t)k, 0);
    }
    pieces->unknown_score = json_is_number(json_object_get(ours, "unknown_score"))
                                ? json_number_value(json_object_get(ours, "unknown_score"))
                                : lowest - BP_UNKNOWN_PENALTY;
    bp_free(hidden);
}

static bp_err read_unigram(bp_tokenizer *tokenizer, json_t *model, const json_t *added,
                           const char *name)
{
    const json_t *list = json_object_get(model, "vocab"), *unk = json_object_get(model, "unk_id");
    bp_pieces *pieces = pieces_of(tokenizer);
    int64_t count = (int64_t)json_array_size(list);
    bp_err err;

    if (count == 0)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.missing", "the vocabulary is %s: at %s",
                       json_is_array(list) ? "empty" : "missing", name);
    if (!json_is_integer(unk) || json_integer_value(unk) < 0 || json_integer_value(unk) >= count)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.no_unk",
                       "\"unk_id\" is not an id of the %lld pieces: at %s", (long long)count, name);
    err = read_scored_names(tokenizer, list, added, name);
    if (err == BP_OK)
        err = find_byte_tokens(tokenizer, model, name);
    if (err == BP_OK)
        err = bp_load_bool(&pieces->fuse_unknown, model, "fuse_unk", true, name);
    if (err != BP_OK)
        return err;
    pieces->unknown = tokenizer->roles[BP_ROLE_UNKNOWN] = json_integer_value(unk);
    take_scores(tokenizer, list, json_object_get(model, BP_OURS));
    find_cuts(tokenizer, true);
    return BP_OK;
}

/* ---- WordPiece and WordLevel ---- */

static bp_err read_wordpiece(bp_tokenizer *tokenizer, json_t *model, const json_t *added,
                             const char *name)
{
    bp_pieces *pieces = pieces_of(tokenizer);
    const char *prefix = !json_object_get(model, "continuing_subword_prefix")
                             ? "##"
                             : bp_load_string(model, "continuing_subword_prefix");
    bp_err err = read_names(tokenizer, model, added, name);

    pieces->most_characters = MOST_CHARACTERS;
    if (err == BP_OK)
        err = find_unknown(tokenizer, model, true, name);
    if (err == BP_OK && json_object_get(model, "max_input_chars_per_word"))
        err = bp_json_get_int(model, "max_input_chars_per_word", &pieces->most_characters, name);
    if (err == BP_OK)
        add_pieces(tokenizer, model, prefix);
    return err;
}

static bp_err read_word_level(bp_tokenizer *tokenizer, json_t *model, const json_t *added,
                              const char *name)
{
    bp_err err = read_names(tokenizer, model, added, name);

    if (err == BP_OK)
        err = find_unknown(tokenizer, model, true, name);
    if (err == BP_OK)
        add_pieces(tokenizer, model, NULL);
    return err;
}

bp_err bp_model_read(bp_tokenizer *tokenizer, json_t *model, const json_t *added, const char *name)
{
    bp_err err = bp_check_added(added, name);

    if (err == BP_OK && tokenizer->kind != BP_KIND_BPE && tokenizer->pipeline->pre.byte_level)
        return bp_load_refuse("the pre-tokenizer ByteLevel with the model",
                              bp_load_string(model, "type"), name);
    if (err != BP_OK)
        return err;
    switch (tokenizer->kind) {
    case BP_KIND_BPE:
        return read_bpe(tokenizer, model, added, name);
    case BP_KIND_UNIGRAM:
        return read_unigram(tokenizer, model, added, name);
    case BP_KIND_WORDPIECE:
        return read_wordpiece(tokenizer, model, added, name);
    default:
        return read_word_level(tokenizer, model, added, name);
    }
}
