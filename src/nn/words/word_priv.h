/* The inside of the block that computes word vectors from characters. */
#pragma once

#include "nn/core/layers.h"

#define WORD_HIGHWAYS 8

/* A linear map with a bias, of the highway layers and the projection. */
typedef struct word_map {
    bp_param *weight, *bias;
    bp_weight *map;
} word_map;

typedef struct words {
    bp_block block;
    bp_word_shape shape;
    int64_t F;    /* filters of all widths */
    int64_t rows; /* V + 1: the words, and the start of a text */
    int64_t end;  /* the word that is the end of a text; -1 if there is no such word */
    bp_param *characters, *char_embed;
    struct {
        bp_param *weight, *bias;
        bp_weight *map;
    } cnn[BP_WORD_FILTERS];
    word_map carry[WORD_HIGHWAYS], transform[WORD_HIGHWAYS], projection;
    float *vectors; /* [rows][P] for a forward-only network: computed BP_HEAD_ROW_CLASS words at a
                       time, */
    bool *made;     /* when one of them is met first */
} words;

/* The convolutions, over the whole of a word, of `count` words. features[count][F] after the
 * activation; where[count][F], if kept, is the character at which the largest value of each filter
 * begins. */
void words_convolve(const words *self, bp_arena *scratch, const int32_t *ids, int64_t count,
                    float *features, uint8_t *where);
/* The same backward: dfeatures[count][F] is overwritten; gradients of filters and of characters'
 * vectors are added to, word by word. Each filter depends on only one place of a word. */
void words_convolve_backward(const words *self, bp_arena *scratch, const int32_t *ids,
                             int64_t count, const float *features, const uint8_t *where,
                             float *dfeatures);
/* What these take of the scratch. */
size_t words_convolution_bytes(const words *self);
size_t words_convolution_backward_bytes(const words *self, int64_t count);
bp_product_bytes words_convolution_products(const words *self);
