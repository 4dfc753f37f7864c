/* Reading a SentencePiece model: a message of Protocol Buffers, of which a few fields are read.
 * Source: google/sentencepiece, src/sentencepiece_model.proto; protobuf.dev, "Encoding". */
#include "text/sentencepiece/sentencepiece.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "text/unicode/unicode.h"

#include <math.h>
#include <openssl/evp.h>
#include <string.h>

#define FILE_LIMIT_BYTES ((int64_t)256 << 20)
#define MOST_PIECES      ((int64_t)1 << 22)
#define REMEDY           "get the file again"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { UNIGRAM = 1, BPE = 2, WORD = 3, CHAR = 4 };

typedef struct message {
    const uint8_t *at, *end, *start; /* start: of the file */
    const char *name;
} message;

typedef struct field {
    uint32_t number, wire;
    uint64_t value; /* of VARINT, FIXED32 and FIXED64 */
    message inside; /* of BYTES */
} field;

static bp_err refuse(const message *m, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "sentencepiece.damaged",
                   "not a sound model of SentencePiece: %s at byte %lld: at %s; " REMEDY, what,
                   (long long)(m->at - m->start), m->name);
}

static bp_err take_varint(message *m, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (m->at == m->end)
            return refuse(m, "it ends within a number");
        *out |= (uint64_t)(*m->at & 0x7F) << shift;
        if (!(*m->at++ & 0x80))
            return BP_OK;
    }
    return refuse(m, "a number has more than 64 bits");
}

static bp_err take_fixed(message *m, size_t bytes, uint64_t *out)
{
    if ((size_t)(m->end - m->at) < bytes)
        return refuse(m, "it ends within a number");
    *out = 0;
    for (size_t k = 0; k < bytes; k++)
        *out |= (uint64_t)m->at[k] << (8 * k);
    m->at += bytes;
    return BP_OK;
}

static bp_err take_field(message *m, field *out)
{
    uint64_t key = 0, length = 0;
    bp_err err = take_varint(m, &key);

    *out = (field){.number = (uint32_t)(key >> 3), .wire = (uint32_t)(key & 7)};
    if (err == BP_OK && (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF))
        return refuse(m, "a field has no number");
    if (err != BP_OK)
        return err;
    switch (out->wire) {
    case VARINT:
        return take_varint(m, &out->value);
    case FIXED64:
        return take_fixed(m, 8, &out->value);
    case FIXED32:
        return take_fixed(m, 4, &out->value);
    case BYTES:
        err = take_varint(m, &length);
        if (err == BP_OK && length > (uint64_t)(m->end - m->at))
            return refuse(m, "a field is longer than what is left");
        if (err != BP_OK)
            return err;
        out->inside = (message){m->at, m->at + length, m->start, m->name};
        m->at += length;
        return BP_OK;
    default:
        return refuse(m, "a field is of an unknown kind");
    }
}

/* The fields of a message, each to `take`. */
typedef bp_err take_function(bp_sentencepiece *model, field *f);

static bp_err take_all(bp_sentencepiece *model, message m, take_function *take)
{
    bp_err err = BP_OK;
    field f;

    while (m.at < m.end && err == BP_OK) {
        err = take_field(&m, &f);
        if (err == BP_OK)
            err = take(model, &f);
    }
    return err;
}

static bp_err fail_kind(const char *what, const char *name)
{
    return BP_FAIL(BP_ERR_FORMAT, "sentencepiece.unsupported",
                   "the model of SentencePiece has %s, which is not read: at %s; give a "
                   "tokenizer.json",
                   what, name);
}

/* ---- pieces ---- */

static bool is_text(const uint8_t *text, size_t bytes)
{
    uint32_t c;

    for (size_t at = 0, length; at < bytes; at += length) {
        length = bp_utf8_decode(text + at, bytes - at, &c);
        if (length == 0 || c == 0)
            return false;
    }
    return bytes > 0;
}

static bp_err take_piece_field(bp_sentencepiece *model, field *f)
{
    bp_sentencepiece_piece *piece = &model->pieces[model->count - 1];
    uint32_t bits = (uint32_t)f->value;
    size_t bytes = (size_t)(f->inside.end - f->inside.at);

    if (f->number == 1 && f->wire == BYTES) {
        if (!is_text(f->inside.at, bytes))
            return refuse(&f->inside, "a piece is empty, or no text in UTF-8,");
        bp_free(piece->text);
        piece->text = bp_sprintf("%.*s", (int)bytes, (const char *)f->inside.at);
    } else if (f->number == 2 && f->wire == FIXED32) {
        memcpy(&piece->score, &bits, sizeof bits);
    } else if (f->number == 3 && f->wire == VARINT) {
        piece->type = f->value > BP_PIECE_BYTE ? 0 : (bp_piece_type)f->value;
    }
    return BP_OK;
}

static bp_err take_piece(bp_sentencepiece *model, const message *m)
{
    bp_sentencepiece_piece *piece;
    bp_err err;

    if (model->count == MOST_PIECES)
        return refuse(m, "it has more pieces than any known");
    model->pieces = bp_grow("text.pieces", model->pieces, &model->capacity, model->count + 1,
                            sizeof *model->pieces);
    piece = &model->pieces[model->count++];
    *piece = (bp_sentencepiece_piece){.type = BP_PIECE_NORMAL};
    err = take_all(model, *m, take_piece_field);
    if (err == BP_OK && (!piece->text || !isfinite(piece->score) || piece->type < BP_PIECE_NORMAL ||
                         piece->type > BP_PIECE_BYTE))
        err = refuse(m, "a piece has no text, no finite score or no known type,");
    return err;
}

/* ---- settings ---- */

/* TrainerSpec: what kind of model it is, and the ids of its special pieces. */
static bp_err take_trainer(bp_sentencepiece *model, field *f)
{
    int64_t *const ids[] = {&model->bos, &model->eos, &model->pad};

    if (f->wire != VARINT)
        return BP_OK;
    if (f->number == 3 && f->value != UNIGRAM && f->value != BPE)
        return fail_kind(f->value == WORD ? "whole words" : "characters", f->inside.name);
    if (f->number == 3)
        model->is_bpe = f->value == BPE;
    if (f->number == 24 && f->value != 0)
        return fail_kind("spaces at the ends of words (treat_whitespace_as_suffix)",
                         f->inside.name);
    if (f->number >= 41 && f->number <= 43)
        *ids[f->number - 41] = (int64_t)f->value;
    return BP_OK;
}

/* NormalizerSpec. */
static bp_err take_normalizer(bp_sentencepiece *model, field *f)
{
    size_t bytes = (size_t)(f->inside.end - f->inside.at);

    if (f->number == 2 && f->wire == BYTES && bytes > 0) {
        bp_free(model->charsmap);
        model->charsmap = bp_alloc("text.charsmap", 4 * ((int64_t)bytes / 3 + 2), 1);
        (void)EVP_EncodeBlock((uint8_t *)model->charsmap, f->inside.at, (int)bytes);
    }
    if (f->wire != VARINT)
        return BP_OK;
    if (f->number == 3)
        model->dummy_prefix = f->value != 0;
    if (f->number == 4)
        model->remove_spaces = f->value != 0;
    return f->number == 5 && f->value == 0
               ? fail_kind("spaces that stay spaces (escape_whitespaces)", f->inside.name)
               : BP_OK;
}

static bp_err take_denormalizer(bp_sentencepiece *model, field *f)
{
    (void)model;
    return f->number == 2 && f->wire == BYTES && f->inside.at < f->inside.end
               ? fail_kind("a normalization of what is decoded (denormalizer_spec)", f->inside.name)
               : BP_OK;
}

static bp_err take_part(bp_sentencepiece *model, field *f)
{
    if (f->wire != BYTES)
        return BP_OK;
    switch (f->number) {
    case 1:
        return take_piece(model, &f->inside);
    case 2:
        return take_all(model, f->inside, take_trainer);
    case 3:
        return take_all(model, f->inside, take_normalizer);
    case 5:
        return take_all(model, f->inside, take_denormalizer);
    default:
        return BP_OK;
    }
}

bp_err bp_sentencepiece_parse(bp_sentencepiece *out, const void *data, size_t bytes,
                              const char *name)
{
    message m = {data, (const uint8_t *)data + bytes, data, name};
    bp_err err;

    *out = (bp_sentencepiece){
        .dummy_prefix = true, .remove_spaces = true, .bos = 1, .eos = 2, .pad = -1};
    err = take_all(out, m, take_part);
    if (err == BP_OK && out->count == 0)
        err = refuse(&m, "there are no pieces");
    for (int k = 0; k < 3 && err == BP_OK; k++) {
        int64_t *id = k == 0 ? &out->bos : k == 1 ? &out->eos : &out->pad;

        if (*id >= out->count || *id < 0)
            *id = -1;
    }
    if (err != BP_OK)
        bp_sentencepiece_clear(out);
    return err;
}

bp_err bp_sentencepiece_load(bp_sentencepiece *out, const char *path)
{
    char *data;
    size_t bytes;
    bp_err err = bp_file_read(path, FILE_LIMIT_BYTES, &data, &bytes);

    *out = (bp_sentencepiece){0};
    if (err == BP_OK)
        err = bp_sentencepiece_parse(out, data, bytes, path);
    bp_free(data);
    return err;
}

void bp_sentencepiece_clear(bp_sentencepiece *model)
{
    for (int64_t k = 0; k < model->count; k++)
        bp_free(model->pieces[k].text);
    bp_free(model->pieces);
    bp_free(model->charsmap);
    *model = (bp_sentencepiece){0};
}
