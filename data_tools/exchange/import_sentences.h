/* Folders of sentence-transformers: a Hugging Face folder, and files that define how vectors of
 * texts are made from its states. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "sentence_map.h"
#include "text/tokenizer/tokenizer.h"

/** Read modules.json and the files that it names into "vectors" of a checkpoint's state: pool,
 * norm, context, map, and the text of a prompt as "prompt_text". *vectors is NULL if the folder is
 * not of sentence-transformers. *map: the values of a linear map (sentence_map_clear, also after an
 * error). *model: the folder of the model's own files (bp_free). Local. Errors:
 * BP_ERR_FORMAT a module or a value that changes vectors and that score.vectors lacks. */
bp_err import_sentences(json_t **vectors, sentence_map *map, char **model, const char *folder);
/** Set the prompt's ids, and refuse lowercasing that the tokenizer itself does not do. `tokenizer`
 * may be NULL. Errors: BP_ERR_FORMAT, those of bp_encode. */
bp_err import_sentences_encode(json_t *vectors, const bp_tokenizer *tokenizer, const char *folder);
/** Print one line about how vectors are made. */
void import_sentences_report(const json_t *vectors);
