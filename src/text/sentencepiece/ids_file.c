/* The ids of pieces from a vocab.json beside the model, as in Marian's folders: two models, of
 * sources and of targets, with one vocabulary. */
#include "text/sentencepiece/sentencepiece.h"

#include "base/config/json.h"
#include "base/mem.h"

#include <string.h>

#define FILE_LIMIT_BYTES ((int64_t)256 << 20)

static char *copy_of(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = bp_alloc("text.pieces", (int64_t)bytes, 1);

    memcpy(copy, text, bytes);
    return copy;
}

/* ">>fra<<": the language to write. */
static bool is_language(const char *text)
{
    size_t bytes = strlen(text);

    return bytes > 4 && strncmp(text, ">>", 2) == 0 && strcmp(text + bytes - 2, "<<") == 0;
}

static bp_piece_type type_of(const char *text, const bp_sentencepiece_piece *known)
{
    if (strcmp(text, "<unk>") == 0)
        return BP_PIECE_UNKNOWN;
    if (strcmp(text, "</s>") == 0 || strcmp(text, "<pad>") == 0 || is_language(text))
        return BP_PIECE_CONTROL;
    return known ? known->type : BP_PIECE_UNUSED;
}

static bp_err take(bp_sentencepiece_piece *list, int64_t count, const char *text,
                   const json_t *value, const json_t *places, const bp_sentencepiece *model,
                   const char *path)
{
    const json_t *place = json_object_get(places, text);
    const bp_sentencepiece_piece *known = place ? &model->pieces[json_integer_value(place)] : NULL;
    int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;

    if (id < 0 || id >= count)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.bad_id",
                       "token \"%s\" has no id from 0 to %lld: at %s", text, (long long)count - 1,
                       path);
    if (list[id].text)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.id_twice",
                       "tokens \"%s\" and \"%s\" both have id %lld: at %s", list[id].text, text,
                       (long long)id, path);
    list[id] =
        (bp_sentencepiece_piece){copy_of(text), known ? known->score : 0, type_of(text, known)};
    return BP_OK;
}

/* {piece: its place in the model} */
static json_t *places_of(const bp_sentencepiece *model)
{
    json_t *places = json_object();

    for (int64_t k = 0; k < model->count; k++)
        (void)json_object_set_new(places, model->pieces[k].text, json_integer(k));
    return places;
}

static int64_t count_lost(const bp_sentencepiece *model, const json_t *vocab)
{
    int64_t lost = 0;

    for (int64_t k = 0; k < model->count; k++)
        lost += model->pieces[k].type == BP_PIECE_NORMAL &&
                !json_object_get(vocab, model->pieces[k].text);
    return lost;
}

/* Give the pieces the ids of a vocab.json, {"piece": id}; its tokens that are not pieces are never
 * found in text, except <unk>, </s>, <pad> and languages, ">>fra<<". *lost: number of ordinary
 * pieces without an id, which are removed.
 *
 * Errors: BP_ERR_FORMAT ids that are not a numbering, and those of bp_json_load; the model does
 * not change.
 */
static bp_err number_pieces(bp_sentencepiece *model, const char *path, int64_t *lost)
{
    json_t *vocab = NULL, *places = places_of(model), *value;
    bp_sentencepiece numbered = *model;
    const char *text;
    bp_err err = bp_json_load(&vocab, path, FILE_LIMIT_BYTES);

    if (err == BP_OK && (!json_is_object(vocab) || json_object_size(vocab) == 0))
        err = BP_FAIL(BP_ERR_FORMAT, "vocabulary.missing", "there are no tokens: at %s", path);
    numbered.count = numbered.capacity = (int64_t)json_object_size(vocab);
    numbered.pieces = bp_alloc("text.pieces", numbered.count + 1, sizeof *numbered.pieces);
    if (err == BP_OK)
        json_object_foreach(vocab, text, value)
        {
            if (err == BP_OK)
                err = take(numbered.pieces, numbered.count, text, value, places, model, path);
        }
    *lost = err == BP_OK ? count_lost(model, vocab) : 0;
    for (int64_t k = 0; k < (err == BP_OK ? model->count : numbered.count); k++)
        bp_free((err == BP_OK ? model : &numbered)->pieces[k].text);
    bp_free((err == BP_OK ? model : &numbered)->pieces);
    if (err == BP_OK)
        *model = numbered;
    json_decref(vocab);
    json_decref(places);
    return err;
}

bp_err bp_sentencepiece_marian(bp_tokenizer **out, const char *path, const char *vocab,
                               int64_t *lost)
{
    bp_sentencepiece model = {0};
    char *text = NULL;
    bp_err err = bp_sentencepiece_load(&model, path);

    *out = NULL;
    *lost = 0;
    if (err == BP_OK)
        err = number_pieces(&model, vocab, lost);
    if (err == BP_OK)
        err = bp_sentencepiece_json(&text, &model,
                                    &(bp_sentencepiece_class){.end = "</s>", .named = ">>"}, vocab);
    if (err == BP_OK)
        err = bp_tokenizer_parse(out, text, strlen(text), vocab);
    bp_free(text);
    bp_sentencepiece_clear(&model);
    return err;
}
