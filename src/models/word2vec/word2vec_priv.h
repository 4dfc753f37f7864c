/* What the files of word vectors share: their sizes, and the vocabulary. */
#pragma once

#include "base/rng.h"
#include "math/kernels/rows.h"
#include "models/forms.h"
#include "models/learner.h"
#include "models/word2vec/word2vec.h"

typedef enum w2v_mode { W2V_SKIPGRAM, W2V_CBOW } w2v_mode;
typedef enum w2v_output { W2V_NEGATIVE, W2V_HIERARCHICAL } w2v_output;

/* The family's own sizes. */
typedef struct w2v_sizes {
    int64_t mode, output, window, negative;
} w2v_sizes;
BP_OWN_SIZES(w2v_sizes)

#define W2V_COUNT_SPLIT   16777216.0F
#define W2V_WINDOW_MOST   100
#define W2V_NEGATIVE_MOST 100
#define W2V_CODE_BITS     32 /* approximate maximum bits of a word's code, for memory */

/** Floats of a row of all ranks together. */
static inline int64_t w2v_padded(const bp_model_shape *shape)
{
    return (shape->width + BP_ROW_LANES - 1) / BP_ROW_LANES * BP_ROW_LANES;
}

/** A cell of the table of the noise distribution, unigram counts^0.75: a uniform number below the
 * threshold means the first word, any other the second. */
typedef struct w2v_noise_cell {
    uint32_t threshold;
    int32_t ids[2];
} w2v_noise_cell;

/** Words by frequency, without those that did not occur and without the end of a document. */
typedef struct w2v_vocabulary {
    int64_t V, words; /* ids; and those that occur */
    int64_t total;    /* of all counts of words */
    int64_t *counts;  /* [V]; of the end of a document too */
    int32_t *ranked;  /* [words] ids, the most frequent first, ties by id */
    float *kept;      /* [V] the probability that an occurrence is used; 0 if it is not a word */
    /* Noise: the alias method over `ranked` (Walker 1977; Vose 1991). NULL with a tree. */
    w2v_noise_cell *noise; /* [words], by rank */
    /* The Huffman tree; NULL without one. The points of word id are those from code_start[id] to
     * before code_start[id + 1]. */
    int64_t *code_start; /* [V + 1] */
    int32_t *points;     /* inner nodes from the root on, numbered as they were made, from 0 */
    uint8_t *codes;      /* 1: on to the more frequent child */
} w2v_vocabulary;

/** From counts[V], of which it takes ownership (bp_alloc); eod_id -1: none. sample 0: all
 * occurrences are used. Owns: w2v_vocabulary_clear(). Errors: BP_ERR_FORMAT fewer than two words.
 */
bp_err w2v_vocabulary_make(w2v_vocabulary *out, int64_t *counts, const bp_model_shape *shape,
                           int64_t eod_id, double sample, const char *where);
void w2v_vocabulary_clear(w2v_vocabulary *vocabulary);
/** Bytes on each rank if all ids are words; approximate with a tree. */
size_t w2v_vocabulary_bytes(const bp_model_shape *shape);
/** The cell that a uniform number selects. */
static inline const w2v_noise_cell *w2v_noise_cell_at(const w2v_vocabulary *v, uint32_t place)
{
    return &v->noise[(uint64_t)place * (uint64_t)v->words >> 32];
}

extern const bp_learner_ops w2v_learner_ops;

extern const bp_option w2v_options[]; /* word2vec.* */
typedef struct w2v_keys {
    double sample; /* the other keys are sizes */
} w2v_keys;
static inline const w2v_keys *w2v_keys_of(const bp_config *config)
{
    return bp_config_bound(config, w2v_options);
}

/* vectors_read.c, vectors_write.c: the original tool's files (bp_model_family.text_*). */
bool w2v_vectors_is(const char *path);
bp_err w2v_vectors_write(const bp_model_family *family, bp_checkpoint *checkpoint,
                         const bp_tokenizer *tokenizer, const char *path);
bp_err w2v_vectors_read(const bp_model_family *family, bp_model_import *out, const char *path,
                        const bp_tokenizer *tokenizer);
