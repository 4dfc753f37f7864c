/* The work of a group of centre words: products of vectors, each with a label. */
#pragma once

#include "models/word2vec/word2vec_priv.h"

/** Centre words whose gradients are taken at the same weights, and summed. */
#define W2V_GROUP 32

/** One prediction: the mean of inputs [first_input, end_input) is multiplied by the rows of targets
 * [first_target, end_target). skipgram: one input; cbow: the words of the window. */
typedef struct w2v_unit {
    int32_t first_input, end_input;
    int32_t first_target, end_target;
} w2v_unit;

typedef struct w2v_group {
    w2v_unit *units;
    int32_t *inputs;  /* rows of the input table */
    int32_t *targets; /* rows of the output table */
    uint8_t *labels;
    int64_t unit_count, input_count, target_count;
    int64_t centres;
    int64_t unit_capacity, target_capacity; /* the most for W2V_GROUP centres */
} w2v_group;

/** Allocate for W2V_GROUP centres; ends the program when out of memory. Owns: w2v_group_clear(). */
void w2v_group_init(w2v_group *group, const bp_model_shape *shape, const w2v_vocabulary *words);
/** Bytes of a group and the learner's buffers for it, with rows of this many bytes; approximate
 * with a tree. */
size_t w2v_group_bytes(const bp_model_shape *shape, size_t row_bytes);
void w2v_group_clear(w2v_group *group);
void w2v_group_empty(w2v_group *group);

/** The occurrences of one example that are used. */
typedef struct w2v_text {
    int32_t *words;     /* [T] ids */
    int32_t *positions; /* [T] in the example */
    int32_t *sentences; /* [T] numbers; windows stay within one */
    int64_t count;
} w2v_text;

/** The occurrences of tokens[T] that are used, by draws of `key`. */
void w2v_text_read(w2v_text *text, const int32_t *tokens, int64_t T, int64_t eod_id,
                   const w2v_vocabulary *words, const bp_rng_key *key);

/** Append the example's word number `at` as a centre, with its window and noise. */
void w2v_group_add(w2v_group *group, const w2v_text *text, int64_t at, const bp_model_shape *shape,
                   const w2v_vocabulary *words, const bp_rng_key *key);
