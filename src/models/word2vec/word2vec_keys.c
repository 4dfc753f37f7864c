/* The keys of word vectors. Called by word2vec.c and word2vec_learner.c. */
#include "models/word2vec/word2vec_priv.h"

const bp_option w2v_options[] = {
    {.key = "word2vec.mode",
     .type = BP_OPTION_CHOICE,
     .choices = "skipgram|cbow",
     .help = "a word is predicted from each of its neighbours, or from the mean of all; skipgram "
             "if not given"},
    {.key = "word2vec.window",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = W2V_WINDOW_MOST,
     .unit = "words",
     .help = "neighbours at each side, at most: a number from 1 up to it is drawn for each word; 5 "
             "if not given"},
    {.key = "word2vec.output",
     .type = BP_OPTION_CHOICE,
     .choices = "negative|hierarchical",
     .help = "negative sampling, or a softmax along a Huffman tree; negative if not given"},
    {.key = "word2vec.negative",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = W2V_NEGATIVE_MOST,
     .unit = "words",
     .help = "noise words of a prediction; 5 if not given"},
    {.key = "word2vec.sample",
     .type = BP_OPTION_REAL,
     .min = 0,
     .max = 1,
     .at = BP_AT(w2v_keys, sample),
     .help = "more frequent words than this share are used in part; 0: all are; 1e-3 if not given"},
    {0}};
