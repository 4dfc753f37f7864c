/* The pieces of a SentencePiece model as tokenizer.json. */
#include "text/sentencepiece/sentencepiece.h"

#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/pipeline/pieces.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define MARK       "\xE2\x96\x81"
#define UNKNOWN    "<unk>"
#define MOST_BYTES 4096 /* of a piece of BPE */

/* What is made, token by token. */
typedef struct making {
    const bp_sentencepiece *model;
    const bp_sentencepiece_class *as;
    const char *name;
    json_t *vocab; /* {token: id} */
    json_t *added;
    json_t *scores, *hidden, *symbols; /* [ids] except for scores */
    json_t *keep;                      /* texts of symbols */
    int64_t unknown, before;           /* its id; how many tokens precede the pieces */
    bool has_bytes;
    float lowest, highest; /* scores of ordinary pieces */
} making;

static json_t *added_json(const char *text, int64_t id, bool special)
{
    return json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", text,
                     "single_word", 0, "lstrip", strcmp(text, "<mask>") == 0, "rstrip", 0,
                     "normalized", 0, "special", (int)special);
}

static bp_err add_token(making *m, const char *text, double score)
{
    int64_t id = (int64_t)json_object_size(m->vocab);

    if (json_object_get(m->vocab, text))
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.token_twice",
                       "the pieces %lld and %lld are both '%.80s': at %s",
                       (long long)json_integer_value(json_object_get(m->vocab, text)),
                       (long long)id, text, m->name);
    (void)json_object_set_new(m->vocab, text, json_integer(id));
    (void)json_array_append_new(m->scores, json_real(score));
    return BP_OK;
}

static bp_err add_special(making *m, const char *text)
{
    int64_t id = (int64_t)json_object_size(m->vocab);

    if (strcmp(text, UNKNOWN) == 0)
        m->unknown = id;
    (void)json_array_append_new(m->added, added_json(text, id, true));
    return add_token(m, text, 0);
}

/* A symbol's score grows with its length, so that it is taken (nearly) always. */
static double score_of(const making *m, const bp_sentencepiece_piece *piece)
{
    if (m->model->is_bpe || piece->type != BP_PIECE_USER_DEFINED)
        return (double)piece->score;
    return (double)((float)strlen(piece->text) * m->highest) - 0.1;
}

static bool is_named(const making *m, const bp_sentencepiece_piece *piece)
{
    return m->as->named && strncmp(piece->text, m->as->named, strlen(m->as->named)) == 0;
}

static bp_err add_piece(making *m, const bp_sentencepiece_piece *piece)
{
    json_int_t id = (json_int_t)json_object_size(m->vocab);

    switch (piece->type) {
    case BP_PIECE_UNKNOWN:
    case BP_PIECE_CONTROL:
        if (piece->type == BP_PIECE_UNKNOWN)
            m->unknown = id;
        (void)json_array_append_new(m->added, added_json(piece->text, id, !is_named(m, piece)));
        break;
    case BP_PIECE_USER_DEFINED:
        (void)json_array_append_new(m->added, added_json(piece->text, id, false));
        (void)json_object_set_new(json_array_get(m->added, json_array_size(m->added) - 1), BP_OURS,
                                  json_true());
        (void)json_array_append_new(m->symbols, json_integer(id));
        (void)json_array_append_new(m->keep, json_string(piece->text));
        break;
    case BP_PIECE_BYTE:
        m->has_bytes = true;
        (void)json_array_append_new(m->hidden, json_integer(id));
        break;
    case BP_PIECE_UNUSED:
        (void)json_array_append_new(m->hidden, json_integer(id));
        break;
    default:
        break;
    }
    return add_token(m, piece->text, score_of(m, piece));
}

static bp_err add_all(making *m)
{
    bp_err err = BP_OK;

    for (const char *const *text = m->as->before; text && *text && err == BP_OK; text++)
        err = add_special(m, *text);
    m->before = (int64_t)json_object_size(m->vocab);
    for (int64_t k = m->as->from; k < m->model->count && err == BP_OK; k++)
        err = add_piece(m, &m->model->pieces[k]);
    for (const char *const *text = m->as->after; text && *text && err == BP_OK; text++)
        err = add_special(m, *text);
    if (err == BP_OK && m->unknown < 0)
        err = BP_FAIL(BP_ERR_FORMAT, "vocabulary.no_unk", "no piece is the unknown one: at %s",
                      m->name);
    return err;
}

/* ---- BPE ---- */

typedef struct split {
    double score; /* of what is made */
    int64_t result, left, right;
} split;

static int compare_splits(const void *a, const void *b)
{
    const split *p = a, *q = b;

    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    if (p->result != q->result)
        return p->result < q->result ? -1 : 1;
    return p->left != q->left ? (p->left < q->left ? -1 : 1)
                              : (p->right > q->right) - (p->right < q->right);
}

/* The id of an ordinary piece; -1 for others. */
static int64_t ordinary(const making *m, const char *text, size_t bytes)
{
    const json_t *id = json_object_getn(m->vocab, text, bytes);
    int64_t k = id ? json_integer_value(id) - m->before + m->as->from : -1;

    return k >= m->as->from && k < m->model->count && m->model->pieces[k].type == BP_PIECE_NORMAL
               ? json_integer_value(id)
               : -1;
}

typedef struct split_list {
    split *data;
    int64_t count, capacity;
} split_list;

/* Every pair of ordinary pieces that forms this one. */
static bp_err add_splits(split_list *list, const making *m, int64_t k)
{
    const bp_sentencepiece_piece *piece = &m->model->pieces[k];
    size_t bytes = strlen(piece->text);

    if (piece->type != BP_PIECE_NORMAL && piece->type != BP_PIECE_UNUSED)
        return BP_OK;
    if (bytes > MOST_BYTES) /* all its splits are looked up */
        return BP_FAIL(BP_ERR_FORMAT, "sentencepiece.unsupported",
                       "piece %lld of a model of BPE has %zu bytes, %d are possible: at %s; give a "
                       "tokenizer.json",
                       (long long)k, bytes, MOST_BYTES, m->name);
    for (size_t at = 1; at < bytes; at++) {
        split one = {(double)piece->score, m->before + k - m->as->from, -1, -1};

        if (((uint8_t)piece->text[at] & 0xC0) == 0x80)
            continue;
        one.left = ordinary(m, piece->text, at);
        one.right = one.left < 0 ? -1 : ordinary(m, piece->text + at, bytes - at);
        if (one.right < 0)
            continue;
        if (piece->type == BP_PIECE_UNUSED)
            return BP_FAIL(BP_ERR_FORMAT, "sentencepiece.unsupported",
                           "piece '%.80s' of a model of BPE is not used, but made on the way to "
                           "others, which is not done: at %s; give a tokenizer.json",
                           piece->text, m->name);
        list->data = bp_grow("text.merges", list->data, &list->capacity, list->count + 1,
                             sizeof *list->data);
        list->data[list->count++] = one;
    }
    return BP_OK;
}

static bp_err make_merges(json_t *merges, const making *m)
{
    split_list list = {0};
    const char **names =
        bp_alloc("text.merges", (int64_t)json_object_size(m->vocab), sizeof *names);
    const char *text;
    json_t *id;
    bp_err err = BP_OK;

    json_object_foreach(m->vocab, text, id) names[json_integer_value(id)] = text;
    for (int64_t k = m->as->from; k < m->model->count && err == BP_OK; k++)
        err = add_splits(&list, m, k);
    if (list.count > 0)
        qsort(list.data, (size_t)list.count, sizeof *list.data, compare_splits);
    for (int64_t k = 0; k < list.count && err == BP_OK; k++)
        (void)json_array_append_new(
            merges, json_pack("[s, s]", names[list.data[k].left], names[list.data[k].right]));
    bp_free(names);
    bp_free(list.data);
    return err;
}

static bp_err bpe_json(json_t **out, making *m)
{
    json_t *merges = json_array();
    bp_err err = make_merges(merges, m);

    *out =
        json_pack("{s:s, s:n, s:s, s:n, s:n, s:b, s:b, s:b, s:O, s:o, s:{s:O, s:O}}", "type", "BPE",
                  "dropout", "unk_token", "", "continuing_subword_prefix", "end_of_word_suffix",
                  "fuse_unk", 1, "byte_fallback", (int)m->has_bytes, "ignore_merges", 0, "vocab",
                  m->vocab, "merges", merges, BP_OURS, "scores", m->scores, "symbols", m->symbols);
    return err;
}

static json_t *unigram_json(const making *m)
{
    json_t *list = json_array(), *id;
    const char *text;

    json_object_foreach(m->vocab, text, id)(void) json_array_append_new(
        list, json_pack("[s, O]", text, json_array_get(m->scores, (size_t)json_integer_value(id))));
    return json_pack("{s:s, s:I, s:o, s:b, s:{s:f, s:O}}", "type", "Unigram", "unk_id",
                     (json_int_t)m->unknown, "vocab", list, "byte_fallback", (int)m->has_bytes,
                     BP_OURS, "unknown_score", (double)m->lowest - BP_UNKNOWN_PENALTY, "hidden",
                     m->hidden);
}

/* ---- the steps around the model ---- */

static void add_replace(json_t *list, const char *kind, const char *pattern, const char *content)
{
    (void)json_array_append_new(list, json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern",
                                                kind, pattern, "content", content));
}

static json_t *normalizer_json(const making *m)
{
    json_t *list = json_array();

    if (m->model->charsmap)
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:{s:O}}", "type", "Precompiled",
                                                    "precompiled_charsmap", m->model->charsmap,
                                                    BP_OURS, "keep", m->keep));
    if (m->model->remove_spaces) {
        add_replace(list, "Regex", " {2,}", " ");
        add_replace(list, "Regex", "\\A |[ " MARK "]+\\z", "");
    }
    if (m->model->dummy_prefix)
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s}", "type", "Prepend", "prepend", MARK));
    add_replace(list, "String", " ", MARK);
    return json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", list);
}

static json_t *decoder_json(const making *m)
{
    json_t *list = json_array();

    add_replace(list, "String", MARK, " ");
    if (m->has_bytes)
        (void)json_array_append_new(list, json_pack("{s:s}", "type", "ByteFallback"));
    (void)json_array_append_new(list, json_pack("{s:s}", "type", "Fuse"));
    if (m->model->dummy_prefix)
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip",
                                                    "content", " ", "start", 1, "stop", 0));
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", list);
}

static void add_frame(json_t *list, const char *kind, const char *id, int segment)
{
    if (id)
        (void)json_array_append_new(
            list, json_pack("{s:{s:s, s:i}}", kind, "id", id, "type_id", segment));
}

static void name_frame(json_t *specials, const making *m, const char *token)
{
    if (token)
        (void)json_object_set_new(specials, token,
                                  json_pack("{s:s, s:[O], s:[s]}", "id", token, "ids",
                                            json_object_get(m->vocab, token), "tokens", token));
}

static json_t *post_json(const making *m)
{
    const char *begin = m->as->begin, *end = m->as->end;
    json_t *single = json_array(), *pair = json_array(), *specials = json_object();

    if (begin && !json_object_get(m->vocab, begin))
        begin = NULL;
    if (end && !json_object_get(m->vocab, end))
        end = NULL;
    for (int two = 0; two < 2; two++) {
        json_t *list = two ? pair : single;

        add_frame(list, "SpecialToken", begin, 0);
        add_frame(list, "Sequence", "A", 0);
        add_frame(list, "SpecialToken", end, 0);
        if (two) {
            add_frame(list, "SpecialToken", begin && end ? end : begin, 0);
            add_frame(list, "Sequence", "B", 0);
            add_frame(list, "SpecialToken", end, 0);
        }
    }
    name_frame(specials, m, begin);
    name_frame(specials, m, end);
    if (!begin && !end) {
        json_decref(single);
        json_decref(pair);
        json_decref(specials);
        return json_null();
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair",
                     pair, "special_tokens", specials);
}

static void find_range(making *m)
{
    m->lowest = FLT_MAX;
    m->highest = -FLT_MAX;
    for (int64_t k = 0; k < m->model->count; k++) {
        float score = m->model->pieces[k].score;

        if (m->model->pieces[k].type != BP_PIECE_NORMAL)
            continue;
        m->lowest = score < m->lowest ? score : m->lowest;
        m->highest = score > m->highest ? score : m->highest;
    }
}

static char *whole_text(const making *m, json_t *model)
{
    json_t *root = json_pack("{s:s, s:n, s:n, s:O, s:o, s:n, s:o, s:o, s:o}", "version", "1.0",
                             "truncation", "padding", "added_tokens", m->added, "normalizer",
                             normalizer_json(m), "pre_tokenizer", "post_processor", post_json(m),
                             "decoder", decoder_json(m), "model", model);
    char *text = root ? bp_json_text(root) : NULL;

    json_decref(root);
    return text;
}

bp_err bp_sentencepiece_json(char **out, const bp_sentencepiece *model,
                             const bp_sentencepiece_class *as, const char *name)
{
    making m = {.model = model,
                .as = as,
                .name = name,
                .vocab = json_object(),
                .added = json_array(),
                .scores = json_array(),
                .hidden = json_array(),
                .symbols = json_array(),
                .keep = json_array(),
                .unknown = -1};
    json_t *json = NULL;
    bp_err err;

    *out = NULL;
    find_range(&m);
    err = m.lowest > m.highest ? BP_FAIL(BP_ERR_FORMAT, "vocabulary.missing",
                                         "there are no ordinary pieces: at %s", name)
                               : add_all(&m);
    if (err == BP_OK && model->is_bpe)
        err = bpe_json(&json, &m);
    else if (err == BP_OK)
        json = unigram_json(&m);
    if (err == BP_OK) {
        if (model->is_bpe) { /* the unknown token by its name */
            const char *text;
            json_t *id;

            json_object_foreach(m.vocab, text, id) if (json_integer_value(id) == m.unknown)(void)
                json_object_set_new(json, "unk_token", json_string(text));
        }
        *out = whole_text(&m, json);
        err = *out ? BP_OK : bp_fail_memory("a tokenizer", model->count, 1);
    } else {
        json_decref(json);
    }
    json_decref(m.vocab);
    json_decref(m.added);
    json_decref(m.scores);
    json_decref(m.hidden);
    json_decref(m.symbols);
    json_decref(m.keep);
    return err;
}

bp_err bp_sentencepiece_tokenizer(bp_tokenizer **out, const char *path,
                                  const bp_sentencepiece_class *as)
{
    bp_sentencepiece model;
    char *text = NULL;
    bp_err err = bp_sentencepiece_load(&model, path);

    *out = NULL;
    if (err == BP_OK)
        err = bp_sentencepiece_json(&text, &model, as, path);
    if (err == BP_OK)
        err = bp_tokenizer_parse(out, text, strlen(text), path);
    bp_free(text);
    bp_sentencepiece_clear(&model);
    return err;
}
