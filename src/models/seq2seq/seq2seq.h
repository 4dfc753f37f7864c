/* Encoder-decoders: the Transformer of 2017 and BART. Stream 1 is the source, which the encoder's
 * layers see in both directions up to its length; stream 0 is the target, which the decoder's
 * layers see causally, looking at the source. Source: Vaswani et al. 2017; Lewis et al. 2020. */
#ifndef BP_MODELS_SEQ2SEQ_SEQ2SEQ_H
#define BP_MODELS_SEQ2SEQ_SEQ2SEQ_H

#include "models/family.h"

/** Items of the activations, and streams of the batch. */
enum { BP_TARGET, BP_SOURCE };

/** Where their own sizes lie in bp_model_shape. */
enum {
    BP_SEQ2SEQ_ENCODERS, /* layers of the encoder, */
    BP_SEQ2SEQ_DECODERS, /* and of the decoder */
    BP_SEQ2SEQ_INNER,
    BP_SEQ2SEQ_HEAD_WIDTH,
    BP_SEQ2SEQ_START /* 1 + the id that targets begin with; 0: the end-of-document token's */
};
enum { BP_SEQ2SEQ_EPSILON };

extern const bp_model_family bp_transformer_family, bp_bart_family;
extern const bp_hf_table *const bp_transformer_huggingface[], *const bp_bart_huggingface[];

#endif
