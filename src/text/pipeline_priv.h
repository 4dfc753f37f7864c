/* Tokenizers of any form but the plain ones: added tokens, normalizers, pre-tokenizers, a model,
 * decoders. */
#ifndef BP_TEXT_PIPELINE_PRIV_H
#define BP_TEXT_PIPELINE_PRIV_H

#include "text/added_priv.h"
#include "text/decoder_priv.h"
#include "text/models_priv.h"
#include "text/normalizer_priv.h"
#include "text/pretokenizer_priv.h"
#include "text/tokenizer_priv.h"

#define BP_SPACE_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

typedef struct bp_pipeline {
    bp_normalizer normalizer;
    bp_pretokenizer pre;
    bp_added added;
    bp_decoder decoder;
    bp_pieces pieces;
    bool cuts_at_marks; /* no token goes on from another character to U+2581: a piece may be cut
                           before it, and the parts have the ids of the whole */
    char *source;       /* the text, as it came */
} bp_pipeline;

/** All of a tokenizer.json that is not plain. Errors: BP_ERR_FORMAT, `name` in the message. */
bp_err bp_pipeline_parse(bp_tokenizer **out, const json_t *root, const char *text, size_t bytes,
                         const char *name);
void bp_pipeline_free(bp_pipeline **pipeline);
/** Where documents may be cut. */
bp_cut bp_pipeline_cut(const bp_pipeline *pipeline);

/** The model of a pipeline's tokenizer: vocabulary, scores, merges. Errors: BP_ERR_FORMAT. */
bp_err bp_model_read(bp_tokenizer *tokenizer, json_t *model, const json_t *added, const char *name);
/** cls and sep of a "post_processor". Errors: BP_ERR_FORMAT one that is not known, by name; an id
 * beyond the vocabulary. */
bp_err bp_post_read(bp_tokenizer *tokenizer, const json_t *post, const char *name);

#endif
