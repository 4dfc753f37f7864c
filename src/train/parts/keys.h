/* Keys of parts: keys that do not apply to a training, and keys that need a tokenizer. */
#pragma once

#include "text/tokenizer/tokenizer.h"
#include "train/loop/trainer.h"

/** Refuses keys of a table that begin with `section`, of another objective. Local. Errors:
 * BP_ERR_CONFIG. */
bp_err keys_refuse(const trainer *self, const bp_option *table, const char *section);

/** The tokenizer of the run, which `key` needs. Local, on the coordinator. Owns: *out is the
 * caller's, bp_tokenizer_free(); NULL on failure. Errors: BP_ERR_CONFIG the corpus brings none;
 * those of bp_tokenizer_parse. */
bp_err keys_tokenizer(const trainer *self, const char *key, bp_tokenizer **out);

/** Appends the tokens of a text. Local. Errors: those of bp_encoder_new and bp_encode. */
bp_err keys_encode(const bp_tokenizer *tokenizer, const char *text, bp_ids *ids);
