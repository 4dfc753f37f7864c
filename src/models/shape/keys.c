/* The keys of models: shared ones, and each family's own. */
#include "models/shape/sizes.h"
#include "models/stack/rotary.h"
#include "models/stack/variants.h"

#include <stdio.h>
#include <string.h>

static char kinds[512]; /* names of all families: "a|b" */
bp_option bp_model_options[BP_MODEL_KEYS_MOST];

/* A family has the keys that its sizes name. */
static const bp_option SHARED[] = {
    {"model.kind", BP_OPTION_CHOICE, "gpt", 0, 0, kinds, NULL,
     "family of models; --help model.kind=NAME shows the keys of one family", false,
     .at = BP_AT(bp_model_keys, kind)},
    {"model.layers", BP_OPTION_INT, NULL, 1, 10000, NULL, NULL,
     "transformer layers; needed unless model.init names a model", false},
    {"model.width", BP_OPTION_INT, NULL, 1, 1 << 20, NULL, NULL,
     "width of the hidden states; a multiple of model.heads unless model.head_width is given",
     false},
    {"model.heads", BP_OPTION_INT, NULL, 1, 1 << 16, NULL, NULL,
     "attention heads; a multiple of mesh.tensor", false},
    {"model.context", BP_OPTION_INT, NULL, 1, 1 << 24, NULL, "tokens",
     "longest context of the model", false, .at = BP_AT(bp_model_keys, context)},
    {"model.positions", BP_OPTION_INT, NULL, 1, 1 << 24, NULL, NULL,
     "rows of the table of learned positions; model.context if "
     "not given. Training may begin with a shorter model.context than later",
     false},
    {"model.kv_heads", BP_OPTION_INT, NULL, 1, 1 << 16, NULL, NULL,
     "heads of keys and values, which heads share in groups; model.heads if not given", false},
    {"model.head_width", BP_OPTION_INT, NULL, 1, 1 << 20, NULL, NULL,
     "width of a head; model.width over model.heads if not given", false},
    {"model.inner", BP_OPTION_INT, NULL, 1, 1 << 22, NULL, NULL,
     "inner width of the MLP; 4 times the width if not given", false},
    {"model.segments", BP_OPTION_INT, NULL, 1, 1 << 16, NULL, NULL,
     "kinds of segments that have an embedding; 2 if not given", false},
    {"model.window", BP_OPTION_INT, NULL, 0, 1 << 24, NULL, "tokens",
     "tokens that a token attends to, the last ones; 0: all, as if not given", false},
    {"model.norm_epsilon", BP_OPTION_REAL, NULL, 1e-12, 1, NULL, NULL,
     "what norms add to the mean square; 1e-5 if not given", false},
    {"model.rope_theta", BP_OPTION_REAL, NULL, 1, 1e12, NULL, NULL,
     "base of the rotary positions' wavelengths; 10000 if not given", false},
    {"model.rope_fraction", BP_OPTION_REAL, NULL, 1e-6, 1, NULL, NULL,
     "share of a head that positions turn; 0.25 if not given", false},
    {"model.rope_scaling", BP_OPTION_CHOICE, NULL, 0, 0, BP_ROPE_SCALINGS, NULL,
     "how frequencies are scaled for longer contexts (docs/training_reference.md); none if not "
     "given",
     false, .at = BP_AT(bp_model_keys, rope_scaling)},
    {"model.rope_factor", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "model.rope_scaling: by how much; yarn, longrope: model.context over "
     "model.rope_original_context if not given",
     false},
    {"model.rope_low_freq_factor", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "model.rope_scaling llama3: of fewer turns in the original context all is stretched; 1 if "
     "not given",
     false},
    {"model.rope_high_freq_factor", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "model.rope_scaling llama3: of more turns in the original context nothing is stretched; 4 if "
     "not given",
     false},
    {"model.rope_original_context", BP_OPTION_INT, NULL, 1, 1 << 24, NULL, "tokens",
     "model.rope_scaling llama3, yarn, dynamic, longrope: the context before it was stretched; but "
     "for llama3 model.context if not given",
     false},
    {"model.rope_beta_fast", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "model.rope_scaling yarn: of more turns in the original context nothing is stretched; 32 if "
     "not given",
     false},
    {"model.rope_beta_slow", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "model.rope_scaling yarn: of fewer turns in the original context all is stretched; 1 if not "
     "given",
     false},
    {"model.rope_truncate", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "model.rope_scaling yarn: the pairs with those turns are rounded outwards; yes if not given",
     false},
    {"model.rope_attention_factor", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "model.rope_scaling yarn and longrope: of cosines and sines; of model.rope_factor if not "
     "given",
     false},
    {"model.rope_mscale", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "model.rope_scaling yarn: with model.rope_mscale_all_dim, from which that factor follows then",
     false},
    {"model.rope_mscale_all_dim", BP_OPTION_REAL, NULL, 1e-3, 1e6, NULL, NULL,
     "model.rope_scaling yarn: see model.rope_mscale", false},
    {"model.rope_short_factors", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "model.rope_scaling longrope: a list 1,1.05,... of what frequencies are divided by in texts "
     "up "
     "to model.rope_original_context, one a pair",
     false},
    {"model.rope_long_factors", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "model.rope_scaling longrope: the same of longer texts", false},
    {"model.tied", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "the head is the token embedding; no if not given", false},
    {"model.attention_bias", BP_OPTION_BOOL, NULL, 0, 0, NULL, NULL,
     "queries, keys and values have biases; no if not given", false},
    {"model.dropout", BP_OPTION_REAL, "0", 0, 0.95, NULL, NULL,
     "dropped share of embeddings, attention and branches", false,
     .at = BP_AT(bp_model_keys, dropout)},
    {"model.init", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "CHECKPOINT whose weights to start from", false, .at = BP_AT(bp_model_keys, init)},
    {"adapter.kind", BP_OPTION_CHOICE, "none", 0, 0, "none|lora|bottleneck", NULL,
     "Transformers: weights of model.init stay as they are, and few parameters beside them are "
     "trained: lora adds products of low rank, bottleneck small networks after attention and MLP",
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
     "checkpoints hold only what is trained, and name the checkpoint of model.init, which has to "
     "stay where it is",
     false, .at = BP_AT(bp_model_keys, adapter.alone)},
    {"model.attention_activation", BP_OPTION_CHOICE, NULL, 0, 0, BP_VARIANT_ACTIVATIONS, NULL,
     "Transformers: what makes weights of scores; entmax15 gives low scores the weight 0 (Peters "
     "et al. 2019); softmax if not given",
     false},
    {"head.activation", BP_OPTION_CHOICE, NULL, 0, 0, BP_VARIANT_ACTIVATIONS, NULL,
     "what makes probabilities of logits; entmax15 has its own loss, and rules tokens out; softmax "
     "if not given",
     false},
    {"head.softmaxes", BP_OPTION_INT, NULL, 1, BP_HEAD_SOFTMAXES, NULL, NULL,
     "softmaxes that the head mixes, each of a state of its own (Yang et al. 2018); 1 if not given",
     false},
    {0}};

/* These are not sizes: every family has them. */
static const char *const OF_ALL[] = {"model.kind",      "model.dropout", "model.init",
                                     "adapter.kind",    "adapter.rank",  "adapter.scale",
                                     "adapter.targets", "adapter.alone"};

static const bp_model_family *const *families;

const bp_option *key_row(const bp_option *rows, const char *key)
{
    for (; rows && rows->key; rows++)
        if (strcmp(rows->key, key) == 0)
            return rows;
    return NULL;
}

static bool is_size(const bp_model_family *family, const char *key)
{
    for (const bp_model_size *size = family->sizes; size->name; size++) {
        char own[KEY_BYTES];

        size_key(own, family, size);
        if (strcmp(own, key) == 0)
            return true;
    }
    return false;
}

bool family_has_key(const bp_model_family *family, const char *key)
{
    for (size_t k = 0; k < sizeof OF_ALL / sizeof OF_ALL[0]; k++)
        if (strcmp(OF_ALL[k], key) == 0)
            return true;
    return key_row(family->keys, key) || is_size(family, key);
}

/* ---- the list of all ---- */

/* "llama, gpt_neox: " before the help of a row that fewer than half of all families use. */
static const char *help_of_shared(const bp_option *row, char *text, size_t bytes)
{
    size_t used = 0;
    int count = 0, all = 0;

    for (; families[all]; all++) {
        if (key_row(families[all]->keys, row->key) || !is_size(families[all], row->key))
            continue;
        used += (size_t)snprintf(text + used, used < bytes ? bytes - used : 0, "%s%s",
                                 count++ > 0 ? ", " : "", families[all]->name);
        BP_ASSERT(used < bytes);
    }
    if (count == 0 || 2 * count >= all)
        return row->help;
    used += (size_t)snprintf(text + used, bytes - used, ": %s", row->help);
    BP_ASSERT(used < bytes);
    return text;
}

static void list_kinds(void)
{
    size_t used = 0;

    for (int k = 0; families[k]; k++) {
        BP_ASSERT(used + strlen(families[k]->name) + 2 <= sizeof kinds);
        used += (size_t)snprintf(kinds + used, sizeof kinds - used, "%s%s", k ? "|" : "",
                                 families[k]->name);
    }
}

void keys_list(const bp_model_family *const *of)
{
    static char texts[sizeof SHARED / sizeof SHARED[0]][512];
    int count = 0;

    families = of;
    list_kinds();
    memset(bp_model_options, 0, sizeof bp_model_options);
    for (; SHARED[count].key; count++) {
        bp_model_options[count] = SHARED[count];
        bp_model_options[count].help =
            help_of_shared(&SHARED[count], texts[count], sizeof texts[count]);
    }
    for (; *of; of++)
        for (const bp_option *row = (*of)->keys; row && row->key; row++) {
            if (key_row(bp_model_options, row->key))
                continue;
            BP_ASSERT(count < BP_MODEL_KEYS_MOST - 1);
            bp_model_options[count] = *row;
            bp_model_options[count++].at = 0; /* that is a place in the family's own struct */
        }
}

/* ---- help ---- */

/* Is it a shared key that the family has and does not document itself? */
static bool shows(const bp_model_family *family, const char *key)
{
    if (strncmp(key, "adapter.", strlen("adapter.")) == 0)
        return shape_has_adapters(family);
    return family_has_key(family, key) && !key_row(family->keys, key);
}

/* Families that have one table are one group. */
static void add_group(bp_key_group *groups, const bp_model_family *family)
{
    size_t used;

    while (groups->rows && groups->rows != family->keys)
        groups++;
    if (!groups->rows)
        *groups = (bp_key_group){.head = "model.kind =", .rows = family->keys};
    used = strlen(groups->head);
    (void)snprintf(groups->head + used, sizeof groups->head - used, "%s %s",
                   groups->head[used - 1] == '=' ? "" : ",", family->name);
}

void bp_model_help_keys(bp_option shared[BP_MODEL_KEYS_MOST],
                        bp_key_group groups[BP_MODEL_FAMILIES_MOST], const char *kind)
{
    int count = 0;

    memset(groups, 0, BP_MODEL_FAMILIES_MOST * sizeof *groups);
    for (const bp_model_family *const *at = families; *at; at++) {
        if (kind && strcmp((*at)->name, kind) != 0)
            continue;
        if ((*at)->keys)
            add_group(groups, *at);
        for (int k = 0; kind && SHARED[k].key; k++)
            if (shows(*at, SHARED[k].key))
                shared[count++] = SHARED[k];
    }
    for (; !kind && SHARED[count].key; count++)
        shared[count] = bp_model_options[count];
    shared[count] = (bp_option){.key = NULL};
}
