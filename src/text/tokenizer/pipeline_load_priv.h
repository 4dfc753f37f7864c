/* Tokenizers of any form but the plain ones, read. */
#pragma once

#include "text/pipeline/pipeline.h"
#include "text/tokenizer/tokenizer_parts.h"

/** All of a tokenizer.json that is not plain. Errors: BP_ERR_FORMAT, `name` in the message. */
bp_err bp_pipeline_parse(bp_tokenizer **out, const json_t *root, const char *text, size_t bytes,
                         const char *name);
/** The model of a pipeline's tokenizer: vocabulary, scores, merges. Errors: BP_ERR_FORMAT. */
bp_err bp_model_read(bp_tokenizer *tokenizer, json_t *model, const json_t *added, const char *name);
/** cls and sep of a "post_processor". Errors: BP_ERR_FORMAT one that is not known, by name; an id
 * beyond the vocabulary. */
bp_err bp_post_read(bp_tokenizer *tokenizer, const json_t *post, const char *name);
