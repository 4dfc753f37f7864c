/* The steps of a tokenizer that is not plain: added tokens, normalizers, pre-tokenizers, a model,
 * decoders. */
#pragma once

#include "text/pipeline/added.h"
#include "text/pipeline/decoder.h"
#include "text/pipeline/normalizer.h"
#include "text/pipeline/pieces.h"
#include "text/pipeline/pretokenizer.h"
#include "text/unicode/cut.h"

#define BP_SPACE_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

typedef struct bp_pipeline {
    bp_normalizer normalizer;
    bp_pretokenizer pre;
    bp_added added;
    bp_decoder decoder;
    bp_pieces pieces;
    bool cuts_at_marks; /* no token continues from another character to U+2581: a piece may be cut
                           before it without changing ids */
    char *source;       /* the original text */
} bp_pipeline;

void bp_pipeline_free(bp_pipeline **pipeline);
/** Where documents may be cut. */
bp_cut bp_pipeline_cut(const bp_pipeline *pipeline);
