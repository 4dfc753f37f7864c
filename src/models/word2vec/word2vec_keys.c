/* The keys of word vectors. Called by word2vec.c and word2vec_learner.c. */
#include "models/word2vec/word2vec_priv.h"

const bp_option w2v_options[] = {
    {BP_CHOICE_KEY("word2vec.mode", NULL, "skipgram|cbow"),
     .help = "a word is predicted from each of its neighbours, or from the mean of all; skipgram "
             "if not given"},
    {BP_INT_KEY("word2vec.window", NULL, 1, W2V_WINDOW_MOST), .unit = "words",
     .help = "neighbours at each side, at most: a number from 1 up to it is drawn for each word; 5 "
             "if not given"},
    {BP_CHOICE_KEY("word2vec.output", NULL, "negative|hierarchical"),
     .help = "negative sampling, or a softmax along a Huffman tree; negative if not given"},
    {BP_INT_KEY("word2vec.negative", NULL, 1, W2V_NEGATIVE_MOST), .unit = "words",
     .help = "noise words of a prediction; 5 if not given"},
    {BP_REAL_KEY("word2vec.sample", NULL, 0, 1),
     .help = "more frequent words than this share are used in part; 0: all are; 1e-3 if not given",
     .at = BP_AT(w2v_keys, sample)},
    {0}};
