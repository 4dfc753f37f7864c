/* The words and vectors of a checkpoint. Called by vectors_write.c. */
#include "models/word2vec/vectors.h"

#include "base/mem.h"
#include "math/kernels/rows.h"
#include "models/shape/shape_json.h"
#include "models/word2vec/word2vec_priv.h"
#include "models/words/words.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct bp_word_vectors {
    int64_t V, C, padded, count;
    float *values, *counts; /* [V][padded], [V][2] */
    int32_t *ids;           /* [count] */
    int64_t *places;        /* [V]; -1: none */
    bp_strmap words;        /* of ids */
};

static bp_err load(bp_word_vectors *self, bp_checkpoint *checkpoint)
{
    int64_t blocks = self->padded / BP_ROW_LANES;
    bp_slice slices[] = {
        {.name = BP_WORD2VEC_INPUT,
         .dims = 3,
         .shape = {self->V, blocks, BP_ROW_LANES},
         .extent = {self->V, blocks, BP_ROW_LANES}},
        {.name = BP_WORD2VEC_COUNTS, .dims = 2, .shape = {self->V, 2}, .extent = {self->V, 2}}};
    bp_err err;

    self->values = bp_try_alloc("vectors.values", self->V * self->padded, sizeof *self->values);
    self->counts = bp_try_alloc("vectors.counts", 2 * self->V, sizeof *self->counts);
    if (!self->values || !self->counts)
        return bp_fail_memory("the vectors", self->V * self->padded, sizeof *self->values);
    slices[0].data = self->values;
    slices[1].data = self->counts;
    err = bp_checkpoint_load(checkpoint, slices, 2);
    if (err == BP_OK && !bp_are_finite(self->values, self->V * self->padded))
        err = BP_FAIL(BP_ERR_FORMAT, "vectors.not_finite",
                      "a vector has a value that is not finite: at %s; train again",
                      bp_checkpoint_folder(checkpoint));
    return err;
}

static double count_of(const bp_word_vectors *self, int64_t id)
{
    return (double)self->counts[2 * id] * (double)W2V_COUNT_SPLIT +
           (double)self->counts[2 * id + 1];
}

static bool has_value(const bp_word_vectors *self, int64_t id)
{
    for (int64_t k = 0; k < self->padded; k++)
        if (self->values[id * self->padded + k] != 0)
            return true;
    return false;
}

typedef struct counted_id {
    double count;
    int32_t id;
} counted_id;

static int by_count(const void *a, const void *b)
{
    const counted_id *x = a, *y = b;

    return x->count != y->count ? (x->count > y->count ? -1 : 1)
                                : (x->id > y->id) - (x->id < y->id);
}

/* Imported vectors have no counts. */
static void list_words(bp_word_vectors *self, int64_t eod_id)
{
    counted_id *list = bp_alloc("vectors.list", self->V, sizeof *list);
    bool counted = false;

    for (int64_t id = 0; id < self->V; id++)
        counted = counted || count_of(self, id) > 0;
    for (int64_t id = 0; id < self->V; id++)
        if (counted ? count_of(self, id) > 0 : has_value(self, id))
            list[self->count++] =
                (counted_id){id == eod_id ? INFINITY : count_of(self, id), (int32_t)id};
    qsort(list, (size_t)self->count, sizeof *list, by_count);
    self->ids = bp_alloc("vectors.ids", self->count, sizeof *self->ids);
    self->places = bp_alloc("vectors.places", self->V, sizeof *self->places);
    for (int64_t id = 0; id < self->V; id++)
        self->places[id] = -1;
    for (int64_t k = 0; k < self->count; k++) {
        self->ids[k] = list[k].id;
        self->places[list[k].id] = k;
    }
    bp_free(list);
}

bp_err bp_word_vectors_open(bp_word_vectors **out, const bp_model_family *family,
                            bp_checkpoint *checkpoint, const bp_tokenizer *tokenizer)
{
    const json_t *state = bp_checkpoint_state(checkpoint);
    const char *folder = bp_checkpoint_folder(checkpoint);
    bp_word_vectors *self = bp_alloc("vectors", 1, sizeof *self);
    bp_model_shape shape;
    int64_t eod_id = -1;
    const char *kind = NULL;
    bp_err err = bp_json_get_string(json_object_get(state, "model"), "kind", &kind, folder);

    if (err == BP_OK && strcmp(kind, family->name) != 0)
        err = BP_FAIL(BP_ERR_CONFIG, "vectors.other_kind",
                      "the model is of kind %s and has no word vectors: at %s; take one of "
                      "word2vec",
                      kind, folder);
    if (err == BP_OK)
        err = bp_model_shape_read_as(&shape, family, state, folder);
    if (err == BP_OK)
        err = bp_json_get_int(state, "eod_id", &eod_id, folder);
    if (err == BP_OK) {
        self->V = shape.vocab_size;
        self->C = shape.width;
        self->padded = w2v_padded(&shape);
        err = load(self, checkpoint);
    }
    if (err == BP_OK)
        err = bp_words_of_ids(&self->words, tokenizer, self->V, eod_id);
    if (err == BP_OK)
        list_words(self, eod_id);
    else
        bp_word_vectors_free(&self);
    *out = self;
    return err;
}

void bp_word_vectors_free(bp_word_vectors **vectors)
{
    bp_word_vectors *self = *vectors;

    *vectors = NULL;
    if (!self)
        return;
    bp_strmap_clear(&self->words);
    bp_free(self->values);
    bp_free(self->counts);
    bp_free(self->ids);
    bp_free(self->places);
    bp_free(self);
}

int64_t bp_word_vectors_count(const bp_word_vectors *vectors)
{
    return vectors->count;
}

int64_t bp_word_vectors_width(const bp_word_vectors *vectors)
{
    return vectors->C;
}

int64_t bp_word_vectors_padded(const bp_word_vectors *vectors)
{
    return vectors->padded;
}

const char *bp_word_vectors_word(const bp_word_vectors *vectors, int64_t k)
{
    return bp_strmap_key(&vectors->words, vectors->ids[k]);
}

const float *bp_word_vectors_at(const bp_word_vectors *vectors, int64_t k)
{
    return vectors->values + vectors->ids[k] * vectors->padded;
}

int64_t bp_word_vectors_find(const bp_word_vectors *vectors, const char *word)
{
    const bp_strmap_entry *entry = bp_strmap_find(&vectors->words, word, strlen(word));
    int64_t id = entry ? entry - vectors->words.entries : vectors->V;

    return id < vectors->V ? vectors->places[id] : -1; /* <s> is not a word */
}

void bp_word_vectors_normalise(bp_word_vectors *vectors)
{
    for (int64_t id = 0; id < vectors->V; id++) {
        float *v = vectors->values + id * vectors->padded;
        double sum = 0;

        for (int64_t k = 0; k < vectors->C; k++)
            sum += (double)v[k] * (double)v[k];
        for (int64_t k = 0; k < vectors->C && sum > 0; k++)
            v[k] = (float)((double)v[k] / sqrt(sum));
    }
}

void bp_word_vectors_products(const bp_word_vectors *vectors, const float *with, float *products)
{
    bp_row_dots(products, with,
                &(bp_row_list){.table = vectors->values,
                               .width = vectors->padded,
                               .lanes = BP_ROW_LANES,
                               .ids = vectors->ids,
                               .count = vectors->count});
}
