/* Word vectors by prediction of neighbouring words (Mikolov et al. 2013). */
#pragma once

#include "models/family.h"

/** The tensors of a checkpoint, vectors as [V][blocks][BP_ROW_LANES]: column c of the width is in
 * block c / BP_ROW_LANES, and the padding of the last block is 0. */
#define BP_WORD2VEC_INPUT  "input.weight"  /* the word vectors */
#define BP_WORD2VEC_OUTPUT "output.weight" /* of words, or of inner nodes of the Huffman tree */
#define BP_WORD2VEC_COUNTS "counts"        /* [V][2]: a word's count, / 2^24 and % 2^24 */
