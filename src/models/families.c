/* The list of all families, and the keys of models. */
#include "models/family.h"

#include "models/bert/bert.h"
#include "models/electra/electra.h"
#include "models/elmo/elmo.h"
#include "models/feedforward/feedforward.h"
#include "models/gpt/gpt.h"
#include "models/gpt_neox/gpt_neox.h"
#include "models/llama/llama.h"
#include "models/ngram/ngram.h"
#include "models/recurrent/recurrent.h"
#include "models/seq2seq/seq2seq.h"
#include "models/variants.h"
#include "models/word2vec/word2vec.h"

#include <stdio.h>
#include <string.h>

#define MOST_FAMILIES 64

static const bp_model_family *families[MOST_FAMILIES] = {
    &bp_gpt_family,         &bp_llama_family, &bp_gpt_neox_family, &bp_bert_family,
    &bp_roberta_family,     &bp_rnn_family,   &bp_lstm_family,     &bp_gru_family,
    &bp_feedforward_family, &bp_ngram_family, &bp_word2vec_family, &bp_elmo_family,
    &bp_transformer_family, &bp_bart_family,  &bp_t5_family,       &bp_electra_family};

static char kinds[256]; /* names of all families, for model.kind */

__attribute__((constructor)) static void list_kinds(void)
{
    size_t used = 0;

    for (int k = 0; k < MOST_FAMILIES && families[k]; k++) {
        BP_ASSERT(used + strlen(families[k]->name) + 2 <= sizeof kinds);
        used += (size_t)snprintf(kinds + used, sizeof kinds - used, "%s%s", k ? "|" : "",
                                 families[k]->name);
    }
}

const bp_option bp_model_options[] = {
    {"model.kind", BP_OPTION_CHOICE, "gpt", 0, 0, kinds, NULL, "family of models", false,
     .at = BP_AT(bp_model_keys, kind)},
    {"model.layers", BP_OPTION_INT, NULL, 1, 10000, NULL, NULL,
     "transformer layers; needed unless model.init names a model", false,
     .at = BP_AT(bp_model_keys, layers)},
    {"model.width", BP_OPTION_INT, NULL, 1, 1 << 20, NULL, NULL,
     "width of the hidden states; a multiple of model.heads unless model.head_width is given",
     false, .at = BP_AT(bp_model_keys, width)},
    {"model.heads", BP_OPTION_INT, NULL, 1, 1 << 16, NULL, NULL,
     "attention heads; a multiple of mesh.tensor", false, .at = BP_AT(bp_model_keys, heads)},
    {"model.context", BP_OPTION_INT, NULL, 1, 1 << 24, NULL, "tokens",
     "longest context of the model", false, .at = BP_AT(bp_model_keys, context)},
    {"model.positions", BP_OPTION_INT, NULL, 1, 1 << 24, NULL, NULL,
     "gpt, bert, roberta, electra, bart: rows of the table of learned positions; model.context if "
     "not given. Training may begin with a shorter model.context than later",
     false, .at = BP_AT(bp_model_keys, positions)},
    {"model.encoder_layers", BP_OPTION_INT, NULL, 1, 10000, NULL, NULL,
     "transformer, bart, t5: layers of the encoder; model.layers if not given", false,
     .at = BP_AT(bp_model_keys, encoder_layers)},
    {"model.decoder_layers", BP_OPTION_INT, NULL, 1, 10000, NULL, NULL,
     "transformer, bart, t5: layers of the decoder; model.layers if not given", false,
     .at = BP_AT(bp_model_keys, decoder_layers)},
    {"model.start_token", BP_OPTION_INT, NULL, 1, 1LL << 31, NULL, NULL,
     "transformer, bart, t5: the token that targets begin with, by its row of the vocabulary from "
     "1 "
     "on (Hugging Face's decoder_start_token_id + 1); the end-of-document token if not given, of "
     "t5 "
     "1, its padding",
     false, .at = BP_AT(bp_model_keys, start_token)},
    {"model.kv_heads", BP_OPTION_INT, NULL, 1, 1 << 16, NULL, NULL,
     "llama: heads of keys and values, which heads share in groups; model.heads if not given",
     false, .at = BP_AT(bp_model_keys, kv_heads)},
    {"model.head_width", BP_OPTION_INT, NULL, 1, 1 << 20, NULL, NULL,
     "width of a head; model.width over model.heads if not given", false,
     .at = BP_AT(bp_model_keys, head_width)},
    {"model.inner", BP_OPTION_INT, NULL, 1, 1 << 22, NULL, NULL,
     "inner width of the MLP; 4 times the width if not given, of llama 8/3 of it, up to a multiple "
     "of 64",
     false, .at = BP_AT(bp_model_keys, inner)},
    {"model.segments", BP_OPTION_INT, NULL, 1, 1 << 16, NULL, NULL,
     "bert, roberta, electra: kinds of segments that have an embedding; 2 if not given, of roberta "
     "1",
     false, .at = BP_AT(bp_model_keys, segments)},
    {"model.pooler", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "bert: there is a head that predicts whether a text's second part follows its first; yes if "
     "not "
     "given",
     false, .at = BP_AT(bp_model_keys, pooler)},
    {"model.boundary", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "bert, roberta: masked words are found from the states beside their spans too, SpanBERT's "
     "boundary objective; no if not given",
     false, .at = BP_AT(bp_model_keys, boundary)},
    {"model.first_position", BP_OPTION_INT, NULL, 1, 1 << 24, NULL, NULL,
     "roberta: row of the position table of a text's first token, Hugging Face's pad_token_id + 1; "
     "2 if not given",
     false, .at = BP_AT(bp_model_keys, first_position)},
    {"model.window", BP_OPTION_INT, NULL, 0, 1 << 24, NULL, "tokens",
     "llama: tokens that a token attends to, the last ones; 0: all, as if not given", false,
     .at = BP_AT(bp_model_keys, window)},
    {"model.norm_epsilon", BP_OPTION_REAL, NULL, 1e-12, 1, NULL, NULL,
     "what norms add to the mean square; 1e-5 if not given, of bert and electra 1e-12, of t5 1e-6",
     false, .at = BP_AT(bp_model_keys, norm_epsilon)},
    {"model.rope_theta", BP_OPTION_REAL, NULL, 1, 1e12, NULL, NULL,
     "llama, gpt_neox: base of the rotary positions' wavelengths; 10000 if not given", false,
     .at = BP_AT(bp_model_keys, rope_theta)},
    {"model.rope_fraction", BP_OPTION_REAL, NULL, 1e-6, 1, NULL, NULL,
     "gpt_neox: share of a head that positions turn; 0.25 if not given", false,
     .at = BP_AT(bp_model_keys, rope_fraction)},
    {"model.rope_scaling", BP_OPTION_CHOICE, NULL, 0, 0, "none|linear|llama3", NULL,
     "llama: how wavelengths are stretched for longer contexts; none if not given", false,
     .at = BP_AT(bp_model_keys, rope_scaling)},
    {"model.rope_factor", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "llama, rope_scaling linear and llama3: by how much", false,
     .at = BP_AT(bp_model_keys, rope_factor)},
    {"model.rope_low_freq_factor", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "llama, rope_scaling llama3: of fewer turns in the original context all is stretched; 1 if "
     "not given",
     false, .at = BP_AT(bp_model_keys, rope_low_freq_factor)},
    {"model.rope_high_freq_factor", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "llama, rope_scaling llama3: of more turns in the original context nothing is stretched; 4 if "
     "not given",
     false, .at = BP_AT(bp_model_keys, rope_high_freq_factor)},
    {"model.rope_original_context", BP_OPTION_INT, NULL, 1, 1 << 24, NULL, "tokens",
     "llama, rope_scaling llama3: the context before it was stretched", false,
     .at = BP_AT(bp_model_keys, rope_original_context)},
    {"model.tied", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "the head is the token embedding; if not given yes of gpt, bert and roberta, no of others",
     false, .at = BP_AT(bp_model_keys, tied)},
    {"model.attention_bias", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "llama: queries, keys and values have biases; no if not given", false,
     .at = BP_AT(bp_model_keys, attention_bias)},
    {"model.gated", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "t5: the MLP is down(gelu(gate) up), version 1.1's; no: down(relu(up)); yes if not given",
     false, .at = BP_AT(bp_model_keys, gated)},
    {"model.relative_buckets", BP_OPTION_INT, NULL, 4, 1 << 16, NULL, NULL,
     "t5: groups of distances between tokens that attention distinguishes; 32 if not given", false,
     .at = BP_AT(bp_model_keys, relative_buckets)},
    {"model.relative_distance", BP_OPTION_INT, NULL, 3, 1 << 24, NULL, "tokens",
     "t5: distances from this one on are one group, above half of model.relative_buckets; 128 if "
     "not given",
     false, .at = BP_AT(bp_model_keys, relative_distance)},
    {"model.embedding", BP_OPTION_INT, NULL, 1, 1 << 20, NULL, NULL,
     "rnn, lstm, gru, feedforward: width of the word vectors; model.width if not given. elmo: of a "
     "character's vector; 16 if not given. electra: of token embeddings; model.width if not given",
     false, .at = BP_AT(bp_model_keys, embedding)},
    {"model.generator_layers", BP_OPTION_INT, NULL, 1, 10000, NULL, NULL,
     "electra: layers of the generator; model.layers if not given", false,
     .at = BP_AT(bp_model_keys, generator_layers)},
    {"model.generator_width", BP_OPTION_INT, NULL, 1, 1 << 20, NULL, NULL,
     "electra: width of the generator; a quarter of model.width if not given", false,
     .at = BP_AT(bp_model_keys, generator_width)},
    {"model.generator_heads", BP_OPTION_INT, NULL, 1, 1 << 16, NULL, NULL,
     "electra: heads of the generator, a multiple of mesh.tensor; a quarter of model.heads if not "
     "given",
     false, .at = BP_AT(bp_model_keys, generator_heads)},
    {"model.generator_inner", BP_OPTION_INT, NULL, 1, 1 << 22, NULL, NULL,
     "electra: inner width of the generator's MLP; 4 times its width if not given", false,
     .at = BP_AT(bp_model_keys, generator_inner)},
    {"model.part", BP_OPTION_CHOICE, NULL, 0, 0, BP_ELECTRA_PARTS, NULL,
     "electra: what of it there is; both if not given", false, .at = BP_AT(bp_model_keys, part)},
    {"model.order", BP_OPTION_INT, NULL, 2, 1000, NULL, "tokens",
     "feedforward: a token is predicted from so many less one before it; 5 if not given", false,
     .at = BP_AT(bp_model_keys, network_order)},
    {"model.direct", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "feedforward: word vectors are connected to the head directly too; no if not given", false,
     .at = BP_AT(bp_model_keys, direct)},
    {"model.char_filters", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "elmo: convolutions over a word's characters, WIDTH:COUNT with commas (1:32,2:32,3:64)", false,
     .at = BP_AT(bp_model_keys, char_filters)},
    {"model.char_activation", BP_OPTION_CHOICE, NULL, 0, 0, "relu|tanh", NULL,
     "elmo: of the convolutions; relu if not given", false,
     .at = BP_AT(bp_model_keys, char_activation)},
    {"model.highway", BP_OPTION_INT, NULL, 1, 8, NULL, NULL,
     "elmo: highway layers behind the convolutions; 2 if not given", false,
     .at = BP_AT(bp_model_keys, highway)},
    {"model.projection", BP_OPTION_INT, NULL, 1, 1 << 20, NULL, NULL,
     "elmo: width of word vectors and of the states of each direction, at most model.width, which "
     "are the LSTMs' units; model.width if not given",
     false, .at = BP_AT(bp_model_keys, projection)},
    {"model.skip", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "elmo: the input of each LSTM but the first is added to its output; yes if not given", false,
     .at = BP_AT(bp_model_keys, skip)},
    {"model.cell_clip", BP_OPTION_REAL, NULL, 1e-6, 1e9, NULL, NULL,
     "elmo: cells are kept within so much of 0; 3 if not given", false,
     .at = BP_AT(bp_model_keys, cell_clip)},
    {"model.projection_clip", BP_OPTION_REAL, NULL, 1e-6, 1e9, NULL, NULL,
     "elmo: projected states are kept within so much of 0; 3 if not given", false,
     .at = BP_AT(bp_model_keys, projection_clip)},
    {"model.parallel_residual", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "gpt_neox: attention and MLP read the same, and are added together; yes if not given", false,
     .at = BP_AT(bp_model_keys, parallel_residual)},
    {"model.dropout", BP_OPTION_REAL, "0", 0, 0.95, NULL, NULL,
     "dropped share of embeddings, attention and branches", false,
     .at = BP_AT(bp_model_keys, dropout)},
    {"model.init", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "CHECKPOINT whose weights to start from", false, .at = BP_AT(bp_model_keys, init)},
    {"adapter.kind", BP_OPTION_CHOICE, "none", 0, 0, "none|lora|bottleneck", NULL,
     "Transformers: weights of model.init stay as they are, and few parameters beside them are "
     "trained: lora adds products of low rank, bottleneck small networks behind attention and MLP",
     false, .at = BP_AT(bp_model_keys, adapter.kind)},
    {"adapter.rank", BP_OPTION_INT, "8", 1, 1 << 16, NULL, NULL,
     "lora: of what is added to a weight; bottleneck: its width", false,
     .at = BP_AT(bp_model_keys, adapter.rank)},
    {"adapter.scale", BP_OPTION_REAL, "16", 1e-6, 1e6, NULL, NULL,
     "lora: a weight becomes W + (scale / rank) B A", false,
     .at = BP_AT(bp_model_keys, adapter.scale)},
    {"adapter.targets", BP_OPTION_STRING, "q,v", 0, 0, NULL, NULL,
     "lora: weights that are adapted, of q,k,v,out (attention), up (with its gate) and down (MLP)",
     false, .at = BP_AT(bp_model_keys, adapter.targets)},
    {"adapter.alone", BP_OPTION_BOOL, "no", 0, 0, NULL, NULL,
     "checkpoints hold what is trained alone, and name the checkpoint of model.init, which has to "
     "stay where it is",
     false, .at = BP_AT(bp_model_keys, adapter.alone)},
    {"model.attention_activation", BP_OPTION_CHOICE, NULL, 0, 0, BP_VARIANT_ACTIVATIONS, NULL,
     "Transformers: what makes weights of scores; entmax15 gives low scores the weight 0 (Peters "
     "et al. 2019); softmax if not given",
     false, .at = BP_AT(bp_model_keys, attention_activation)},
    {"head.activation", BP_OPTION_CHOICE, NULL, 0, 0, BP_VARIANT_ACTIVATIONS, NULL,
     "what makes probabilities of logits; entmax15 has its own loss, and rules tokens out; softmax "
     "if not given",
     false, .at = BP_AT(bp_model_keys, head_activation)},
    {"head.softmaxes", BP_OPTION_INT, NULL, 1, BP_HEAD_SOFTMAXES, NULL, NULL,
     "softmaxes that the head mixes, each of a state of its own (Yang et al. 2018); 1 if not given",
     false, .at = BP_AT(bp_model_keys, softmaxes)},
    {"ngram.order", BP_OPTION_INT, NULL, 1, 7, NULL, "words",
     "ngram: of the longest n-grams; 5 if not given", false, .at = BP_AT(bp_model_keys, order)},
    {"ngram.smoothing", BP_OPTION_CHOICE, NULL, 0, 0,
     "kneser-ney|mle|additive|good-turing|katz|witten-bell", NULL,
     "ngram: kneser-ney (modified, interpolated) if not given; mle, additive and good-turing have "
     "no back-off",
     false, .at = BP_AT(bp_model_keys, smoothing)},
    {"ngram.delta", BP_OPTION_REAL, NULL, 1e-9, 1e9, NULL, NULL,
     "ngram, additive: what is added to each count; 1 if not given", false,
     .at = BP_AT(bp_model_keys, delta)},
    {"ngram.katz_k", BP_OPTION_INT, NULL, 1, 31, NULL, NULL,
     "ngram, katz and good-turing: counts up to it are discounted, of single words those of 1; 7 "
     "if not given",
     false, .at = BP_AT(bp_model_keys, katz_k)},
    {"ngram.prune", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "ngram: n-grams seen so often or less are left out: a number an order (0,0,1), the last one "
     "for all longer ones too; 0 if not given",
     false, .at = BP_AT(bp_model_keys, prune)},
    {"ngram.prune_entropy", BP_OPTION_REAL, NULL, 0, 1, NULL, NULL,
     "ngram: n-grams are left out whose removal alone makes the perplexity higher by less than so "
     "much, relatively: 1e-8 for example; 0 if not given",
     false, .at = BP_AT(bp_model_keys, prune_entropy)},
    {"ngram.memory", BP_OPTION_BYTES, NULL, 1 << 20, 1e15, NULL, "bytes",
     "ngram: of a rank, for n-grams that are sorted at a time; the rest is spilled to RUN/counts; "
     "1 "
     "GiB if not given",
     false, .at = BP_AT(bp_model_keys, memory)},
    {"word2vec.mode", BP_OPTION_CHOICE, NULL, 0, 0, "skipgram|cbow", NULL,
     "word2vec: a word is predicted from each of its neighbours, or from the mean of all; skipgram "
     "if not given",
     false, .at = BP_AT(bp_model_keys, mode)},
    {"word2vec.window", BP_OPTION_INT, NULL, 1, 100, NULL, "words",
     "word2vec: neighbours at each side, at most: a number from 1 up to it is drawn for each word; "
     "5 if not given",
     false, .at = BP_AT(bp_model_keys, reach)},
    {"word2vec.output", BP_OPTION_CHOICE, NULL, 0, 0, "negative|hierarchical", NULL,
     "word2vec: negative sampling, or a softmax along a Huffman tree; negative if not given", false,
     .at = BP_AT(bp_model_keys, output)},
    {"word2vec.negative", BP_OPTION_INT, NULL, 1, 100, NULL, "words",
     "word2vec: noise words of a prediction; 5 if not given", false,
     .at = BP_AT(bp_model_keys, negative)},
    {"word2vec.sample", BP_OPTION_REAL, NULL, 0, 1, NULL, NULL,
     "word2vec: more frequent words than this share are used in part; 0: all are; 1e-3 if not "
     "given",
     false, .at = BP_AT(bp_model_keys, sample)},
    {NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false},
};

const bp_model_family *bp_model_family_find(const char *name)
{
    for (int k = 0; k < MOST_FAMILIES && families[k]; k++)
        if (strcmp(families[k]->name, name) == 0)
            return families[k];
    return NULL;
}

const bp_model_family *bp_model_family_of_text(const char *path)
{
    for (int k = 0; k < MOST_FAMILIES && families[k]; k++)
        if (families[k]->text_is && families[k]->text_is(path))
            return families[k];
    return NULL;
}

const bp_model_family *bp_model_family_of_folder(const char *path)
{
    for (int k = 0; k < MOST_FAMILIES && families[k]; k++)
        if (families[k]->folder_is && families[k]->folder_is(path))
            return families[k];
    return NULL;
}

const bp_hf_table *const *bp_model_huggingface_tables(void)
{
    static const bp_hf_table *tables[2 * MOST_FAMILIES];
    int count = 0;

    for (int k = 0; k < MOST_FAMILIES && families[k]; k++)
        for (int t = 0; families[k]->huggingface && families[k]->huggingface[t]; t++)
            tables[count++] = families[k]->huggingface[t];
    tables[count] = NULL;
    return tables;
}

void bp_model_family_register(const bp_model_family *family)
{
    int count = 0;

    while (count < MOST_FAMILIES && families[count])
        count++;
    BP_ASSERT(count < MOST_FAMILIES);
    families[count] = family;
    list_kinds();
}
