/* BERT's tokenizer.json: its special tokens, normalizer, and the text around a vocabulary. */
#pragma once

#include "base/config/json.h"

#include <stdbool.h>

#define BP_BERT_SPECIALS 5
extern const char *const bp_bert_specials[BP_BERT_SPECIALS]; /* [PAD] [UNK] [CLS] [SEP] [MASK] */
#define BP_BERT_PREFIX "##"                                  /* of a piece that continues a word */

/** BertNormalizer: clean text, separated Chinese characters, and with `lowercase` lower case
 * without accents. New reference. */
json_t *bp_bert_normalizer_json(bool lowercase);
/** BertPreTokenizer. New reference. */
json_t *bp_bert_pretokenizer_json(void);
/** {"id", "content", ...} of a special token. New reference. */
json_t *bp_bert_special_json(const char *name, int64_t id);
/** All of tokenizer.json. `vocab` ({token: id}) has the special tokens; it and `added` stay the
 * caller's. New reference; NULL if out of memory. */
json_t *bp_bert_json(json_t *vocab, json_t *added, bool lowercase);
