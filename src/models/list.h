/* All families of models, in the order in which help and faults name them. */
#pragma once

#include "models/family.h"

/** A file of the family's folder defines bp_NAME_family. */
#define BP_FAMILY_LIST(FAMILY)                                                                     \
    FAMILY(gpt)                                                                                    \
    FAMILY(llama)                                                                                  \
    FAMILY(gpt_neox)                                                                               \
    FAMILY(bert)                                                                                   \
    FAMILY(roberta)                                                                                \
    FAMILY(distilbert)                                                                             \
    FAMILY(rnn)                                                                                    \
    FAMILY(lstm)                                                                                   \
    FAMILY(gru)                                                                                    \
    FAMILY(feedforward)                                                                            \
    FAMILY(ngram)                                                                                  \
    FAMILY(word2vec)                                                                               \
    FAMILY(elmo)                                                                                   \
    FAMILY(transformer)                                                                            \
    FAMILY(bart)                                                                                   \
    FAMILY(marian)                                                                                 \
    FAMILY(mbart)                                                                                  \
    FAMILY(m2m_100)                                                                                \
    FAMILY(t5)                                                                                     \
    FAMILY(electra)                                                                                \
    FAMILY(mamba2)                                                                                 \
    FAMILY(qwen3)                                                                                  \
    FAMILY(olmo2)                                                                                  \
    FAMILY(gemma2)                                                                                 \
    FAMILY(smollm3)                                                                                \
    FAMILY(granite)                                                                                \
    FAMILY(opt)                                                                                    \
    FAMILY(openai_gpt)                                                                             \
    FAMILY(gptj)                                                                                   \
    FAMILY(bloom)                                                                                  \
    FAMILY(gemma3)                                                                                 \
    FAMILY(phi3)                                                                                   \
    FAMILY(granite_hybrid)                                                                         \
    FAMILY(bamba)                                                                                  \
    FAMILY(mixtral)                                                                                \
    FAMILY(olmoe)                                                                                  \
    FAMILY(qwen3_moe)                                                                              \
    FAMILY(modernbert)                                                                             \
    FAMILY(deberta)                                                                                \
    FAMILY(cell)                                                                                   \
    FAMILY(mpnet)                                                                                  \
    FAMILY(t5_encoder)

#define BP_FAMILY_DECLARE(name) extern const bp_model_family bp_##name##_family;
BP_FAMILY_LIST(BP_FAMILY_DECLARE)
