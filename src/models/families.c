/* The list of all families. */
#include "models/family.h"

#include "models/bamba/bamba.h"
#include "models/bert/bert.h"
#include "models/bloom/bloom.h"
#include "models/deberta/deberta.h"
#include "models/electra/electra.h"
#include "models/elmo/elmo.h"
#include "models/feedforward/feedforward.h"
#include "models/forms.h"
#include "models/gemma2/gemma2.h"
#include "models/gemma3/gemma3.h"
#include "models/gpt/gpt.h"
#include "models/gpt_neox/gpt_neox.h"
#include "models/gptj/gptj.h"
#include "models/granite/granite.h"
#include "models/granite_hybrid/granite_hybrid.h"
#include "models/llama/llama.h"
#include "models/mamba2/mamba2.h"
#include "models/mixtral/mixtral.h"
#include "models/modernbert/modernbert.h"
#include "models/mpnet/mpnet.h"
#include "models/ngram/ngram.h"
#include "models/olmo2/olmo2.h"
#include "models/olmoe/olmoe.h"
#include "models/openai_gpt/openai_gpt.h"
#include "models/opt/opt.h"
#include "models/phi3/phi3.h"
#include "models/qwen3/qwen3.h"
#include "models/qwen3_moe/qwen3_moe.h"
#include "models/recurrent/recurrent.h"
#include "models/seq2seq/seq2seq.h"
#include "models/shape/sizes.h"
#include "models/smollm3/smollm3.h"
#include "models/task/causal_classes.h"
#include "models/word2vec/word2vec.h"

#include <string.h>

static const bp_model_family *families[BP_MODEL_FAMILIES_MOST] = {
    &bp_gpt_family,         &bp_llama_family,       &bp_gpt_neox_family,
    &bp_bert_family,        &bp_roberta_family,     &bp_distilbert_family,
    &bp_rnn_family,         &bp_lstm_family,        &bp_gru_family,
    &bp_feedforward_family, &bp_ngram_family,       &bp_word2vec_family,
    &bp_elmo_family,        &bp_transformer_family, &bp_bart_family,
    &bp_marian_family,      &bp_mbart_family,       &bp_m2m_100_family,
    &bp_t5_family,          &bp_electra_family,     &bp_mamba2_family,
    &bp_qwen3_family,       &bp_olmo2_family,       &bp_gemma2_family,
    &bp_smollm3_family,     &bp_granite_family,     &bp_opt_family,
    &bp_openai_gpt_family,  &bp_gptj_family,        &bp_bloom_family,
    &bp_gemma3_family,      &bp_phi3_family,        &bp_granite_hybrid_family,
    &bp_bamba_family,       &bp_mixtral_family,     &bp_olmoe_family,
    &bp_qwen3_moe_family,   &bp_modernbert_family,  &bp_deberta_family,
    &bp_cell_family,        &bp_mpnet_family,       &bp_t5_encoder_family};

/* Derived from the list: the values of model.kind, and all keys. */
__attribute__((constructor)) static void list_all(void)
{
    keys_list(families);
}

const bp_model_family *bp_model_family_find(const char *name)
{
    for (int k = 0; families[k]; k++)
        if (strcmp(families[k]->name, name) == 0)
            return families[k];
    return NULL;
}

const bp_model_family *bp_model_family_benched(bool counted)
{
    for (int k = 0; families[k]; k++)
        if (families[k]->benched && (families[k]->counting != NULL) == counted)
            return families[k];
    return NULL;
}

const bp_model_family *bp_model_family_of_text(const char *path)
{
    for (int k = 0; families[k]; k++)
        if (families[k]->text_form && families[k]->text_form->is(path))
            return families[k];
    return NULL;
}

const bp_model_family *bp_model_family_of_folder(const char *path)
{
    for (int k = 0; families[k]; k++)
        if (families[k]->folder && families[k]->folder->is(path))
            return families[k];
    return NULL;
}

const bp_hf_table *const *bp_model_huggingface_tables(void)
{
    static const bp_hf_table *tables[4 * BP_MODEL_FAMILIES_MOST];
    static int listed, count;

    for (; families[listed]; listed++) /* one may be registered later */
        for (int t = 0; families[listed]->huggingface && families[listed]->huggingface[t]; t++) {
            const bp_hf_table *table = families[listed]->huggingface[t];

            tables[count++] = table;
            count += bp_causal_classes(&tables[count], table);
            BP_ASSERT(count + BP_CAUSAL_CLASSES + 1 < 4 * BP_MODEL_FAMILIES_MOST);
        }
    tables[count] = NULL;
    return tables;
}

void bp_model_family_register(const bp_model_family *family)
{
    int count = 0;

    while (families[count])
        count++;
    BP_ASSERT(count < BP_MODEL_FAMILIES_MOST - 1); /* room for the final NULL */
    families[count] = family;
    list_all();
}
