/* The family of n-gram models: counted, smoothed, and mapped from one file. */
#ifndef BP_MODELS_NGRAM_NGRAM_H
#define BP_MODELS_NGRAM_NGRAM_H

#include "models/family.h"

extern const bp_model_family bp_ngram_family;

#endif
