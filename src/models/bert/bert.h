/* BERT, RoBERTa and DistilBERT: encoders that see both directions, pretrained on masked words. */
#pragma once

#include "models/family.h"

/** Their own sizes, which the objective of masked words reads too. */
typedef struct bp_bert_sizes {
    int64_t boundary; /* 1: masked words are found from their spans' boundaries too */
    int64_t
        no_pooler; /* 1: no pooler and no next-sentence head, as always in roberta and distilbert */
} bp_bert_sizes;
BP_OWN_SIZES(bp_bert_sizes)

extern const bp_hf_table *const bp_bert_huggingface[], *const bp_roberta_huggingface[],
                                                           *const bp_distilbert_huggingface[];

/** Loss terms: masked words, whether a text's second part follows its first, and the masked words
 * from the boundaries of their spans. */
enum { BP_BERT_WORDS, BP_BERT_NEXT_SENTENCE, BP_BERT_BOUNDARY_WORDS };
/** Takes a shape whose sizes are filled in (bp_model_family.fill_defaults). */
static inline bool bp_bert_has_pooler(const bp_model_shape *shape)
{
    return bp_bert_sizes_of(shape)->no_pooler == 0;
}

/** A fault if the context is too short for a masked word. Local. */
void bp_masked_check_context(const bp_model_shape *shape, bp_config *config);
/** Members of bp_model_family for a stack that predicts masked words and has no pooler of its own.
 */
void bp_masked_fill_defaults(bp_model_shape *shape);
void bp_masked_check(const bp_model_shape *shape, int tensor_ranks, bp_config *config);
/** An example of masked words, in the first stream and the first term: bp_example_maker.make. */
void bp_masked_make(const bp_example_maker *self, const int32_t *tokens, int64_t step, int64_t slot,
                    bp_example *out);

/** Sizes of models with the head of a task, of BERT, RoBERTa and ELECTRA in Hugging Face's folders.
 * A single class is a value: one table reads both, and the number of labels distinguishes them. */
#define BP_BERT_TASK(kind, pool)                                                                   \
    {"task", NULL, NULL, BP_HF_CHOICE, kind, .words = "none|classes|regression|tags|spans"},       \
    {                                                                                              \
        "pool", NULL, NULL, BP_HF_CHOICE, pool, .words = "none|first|mean|last"                    \
    }
#define BP_BERT_LABELS                                                                             \
    {                                                                                              \
        "outcomes", "id2label", NULL, BP_HF_LABELS, "2"                                            \
    }
#define BP_BERT_ENDS                                                                               \
    {                                                                                              \
        "outcomes", NULL, NULL, BP_HF_COUNT, "2"                                                   \
    }
