/* ELECTRA: a generator that fills in masked tokens, and a discriminator that finds those that were
 * replaced, trained together. */
#pragma once

#include "models/family.h"
#include "models/forms.h"

/** Its own sizes. */
typedef struct bp_electra_sizes {
    int64_t embedding, generator_layers, generator_width, generator_heads, generator_inner;
    int64_t part; /* bp_electra_part */
} bp_electra_sizes;
BP_OWN_SIZES(bp_electra_sizes)
/** Which part a model has: a folder of Hugging Face has one of the two. */
typedef enum bp_electra_part {
    BP_ELECTRA_BOTH,
    BP_ELECTRA_GENERATOR,
    BP_ELECTRA_DISCRIMINATOR
} bp_electra_part;
#define BP_ELECTRA_PARTS "both|generator|discriminator"

extern const bp_hf_table *const bp_electra_huggingface[];

/** Loss terms: masked tokens, which the generator finds; positions, of which the discriminator
 * predicts whether they hold the text's token. */
enum { BP_ELECTRA_WORDS, BP_ELECTRA_REPLACED };
#define BP_ELECTRA_WEIGHT 50 /* of the discriminator's loss: Clark et al. 2020, section 3 */

/** Examples of masked models; the second term's targets are the text's own tokens. */
extern const bp_objective bp_objective_replaced;

/** bp_model_family.half, bp_folder_form.is and .read: folders with generator/ and discriminator/,
 * each in Hugging Face's format. */
json_t *bp_electra_half(const bp_model_shape *shape, int half, const char **name);
bool bp_electra_folder_is(const char *path);
bp_err bp_electra_folder_read(const bp_model_family *family, bp_model_folder *out, const char *path,
                              const bp_tokenizer *tokenizer);
