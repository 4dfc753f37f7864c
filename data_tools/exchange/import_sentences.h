/* Folders of sentence-transformers: a Hugging Face folder, and files that say how vectors of texts
 * are made of its states. */
#ifndef BP_DATA_TOOLS_IMPORT_SENTENCES_H
#define BP_DATA_TOOLS_IMPORT_SENTENCES_H

#include "base/config/json.h"
#include "base/err.h"
#include "text/tokenizer/tokenizer.h"

/** What modules.json and the files that it names say, as "vectors" of a checkpoint's state: pool,
 * norm, context, and the text of a prompt as "prompt_text". *vectors NULL: the folder is not one of
 * theirs. *model: the folder of the model's own files (bp_free). Local. Errors: BP_ERR_FORMAT a
 * module or a value that changes vectors and that score.vectors lacks. */
bp_err import_sentences(json_t **vectors, char **model, const char *folder);
/** Prompt's ids; and lowercasing that the tokenizer itself does not do is refused. `tokenizer`
 * NULL: there is none. Errors: BP_ERR_FORMAT, those of bp_encode. */
bp_err import_sentences_encode(json_t *vectors, const bp_tokenizer *tokenizer, const char *folder);
/** One line on standard output: how vectors are made. */
void import_sentences_report(const json_t *vectors);

#endif
