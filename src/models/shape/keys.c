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
    {BP_CHOICE_KEY("model.kind", "gpt", kinds),
     .help = "family of models; --help model.kind=NAME shows the keys of one family",
     .at = BP_AT(bp_model_keys, kind)},
    {BP_INT_KEY("model.layers", NULL, 1, 10000),
     .help = "transformer layers; needed unless model.init names a model"},
    {BP_INT_KEY("model.width", NULL, 1, 1 << 20),
     .help =
         "width of the hidden states; a multiple of model.heads unless model.head_width is given"},
    {BP_INT_KEY("model.heads", NULL, 1, 1 << 16),
     .help = "attention heads; a multiple of mesh.tensor"},
    {BP_INT_KEY("model.context", NULL, 1, 1 << 24), .unit = "tokens",
     .help = "longest context of the model", .at = BP_AT(bp_model_keys, context)},
    {BP_INT_KEY("model.positions", NULL, 1, 1 << 24),
     .help = "rows of the table of learned positions; model.context if not given. Training may "
             "begin with a shorter model.context than later"},
    {BP_INT_KEY("model.kv_heads", NULL, 1, 1 << 16),
     .help = "heads of keys and values, which heads share in groups; model.heads if not given"},
    {BP_INT_KEY("model.head_width", NULL, 1, 1 << 20),
     .help = "width of a head; model.width over model.heads if not given"},
    {BP_INT_KEY("model.inner", NULL, 1, 1 << 22),
     .help = "inner width of the MLP; 4 times the width if not given"},
    {BP_INT_KEY("model.segments", NULL, 1, 1 << 16),
     .help = "kinds of segments that have an embedding; 2 if not given"},
    {BP_INT_KEY("model.window", NULL, 0, 1 << 24), .unit = "tokens",
     .help = "tokens that a token attends to, the last ones; 0: all, as if not given"},
    {BP_REAL_KEY("model.norm_epsilon", NULL, 1e-12, 1),
     .help = "what norms add to the mean square; 1e-5 if not given"},
    {BP_REAL_KEY("model.rope_theta", NULL, 1, 1e12),
     .help = "base of the rotary positions' wavelengths; 10000 if not given"},
    {BP_REAL_KEY("model.rope_fraction", NULL, 1e-6, 1),
     .help = "share of a head that positions turn; 0.25 if not given"},
    {BP_CHOICE_KEY("model.rope_scaling", NULL, BP_ROPE_SCALINGS),
     .help = "how frequencies are scaled for longer contexts (docs/training_reference.md); none if "
             "not given",
     .at = BP_AT(bp_model_keys, rope_scaling)},
    {BP_REAL_KEY("model.rope_factor", NULL, 1e-3, 1e6),
     .help = "model.rope_scaling: by how much; yarn, longrope: model.context over "
             "model.rope_original_context if not given"},
    {BP_REAL_KEY("model.rope_low_freq_factor", NULL, 1e-3, 1e6),
     .help = "model.rope_scaling llama3: of fewer turns in the original context all is stretched; "
             "1 if not given"},
    {BP_REAL_KEY("model.rope_high_freq_factor", NULL, 1e-3, 1e6),
     .help = "model.rope_scaling llama3: of more turns in the original context nothing is "
             "stretched; 4 if not given"},
    {BP_INT_KEY("model.rope_original_context", NULL, 1, 1 << 24), .unit = "tokens",
     .help = "model.rope_scaling llama3, yarn, dynamic, longrope: the context before it was "
             "stretched; but for llama3 model.context if not given"},
    {BP_REAL_KEY("model.rope_beta_fast", NULL, 1e-3, 1e6),
     .help = "model.rope_scaling yarn: of more turns in the original context nothing is stretched; "
             "32 if not given"},
    {BP_REAL_KEY("model.rope_beta_slow", NULL, 1e-3, 1e6),
     .help = "model.rope_scaling yarn: of fewer turns in the original context all is stretched; 1 "
             "if not given"},
    {BP_BOOL_KEY("model.rope_truncate", NULL),
     .help = "model.rope_scaling yarn: the pairs with those turns are rounded outwards; yes if not "
             "given"},
    {BP_REAL_KEY("model.rope_attention_factor", NULL, 1e-3, 1e6),
     .help = "model.rope_scaling yarn and longrope: of cosines and sines; of model.rope_factor if "
             "not given"},
    {BP_REAL_KEY("model.rope_mscale", NULL, 1e-3, 1e6),
     .help = "model.rope_scaling yarn: with model.rope_mscale_all_dim, from which that factor "
             "follows then"},
    {BP_REAL_KEY("model.rope_mscale_all_dim", NULL, 1e-3, 1e6),
     .help = "model.rope_scaling yarn: see model.rope_mscale"},
    {BP_STRING_KEY("model.rope_short_factors", NULL),
     .help = "model.rope_scaling longrope: a list 1,1.05,... of what frequencies are divided by in "
             "texts up to model.rope_original_context, one a pair"},
    {BP_STRING_KEY("model.rope_long_factors", NULL),
     .help = "model.rope_scaling longrope: the same of longer texts"},
    {BP_BOOL_KEY("model.tied", NULL), .help = "the head is the token embedding; no if not given"},
    {BP_BOOL_KEY("model.attention_bias", NULL),
     .help = "queries, keys and values have biases; no if not given"},
    {BP_REAL_KEY("model.dropout", "0", 0, 0.95),
     .help = "dropped share of embeddings, attention and branches",
     .at = BP_AT(bp_model_keys, dropout)},
    {BP_STRING_KEY("model.init", NULL), .help = "CHECKPOINT whose weights to start from",
     .at = BP_AT(bp_model_keys, init)},
    {BP_CHOICE_KEY("adapter.kind", "none", "none|lora|bottleneck"),
     .help = "Transformers: weights of model.init stay as they are, and few parameters beside them "
             "are trained: lora adds products of low rank, bottleneck small networks after "
             "attention and MLP",
     .at = BP_AT(bp_model_keys, adapter.kind)},
    {BP_INT_KEY("adapter.rank", "8", 1, 1 << 16),
     .help = "lora: of what is added to a weight; bottleneck: its width",
     .at = BP_AT(bp_model_keys, adapter.rank)},
    {BP_REAL_KEY("adapter.scale", "16", 1e-6, 1e6),
     .help = "lora: a weight becomes W + (scale / rank) B A",
     .at = BP_AT(bp_model_keys, adapter.scale)},
    {BP_STRING_KEY("adapter.targets", "q,v"),
     .help = "lora: weights that are adapted, of q,k,v,out (attention), up (with its gate) and "
             "down (MLP)",
     .at = BP_AT(bp_model_keys, adapter.targets)},
    {BP_BOOL_KEY("adapter.alone", "no"),
     .help = "checkpoints hold only what is trained, and name the checkpoint of model.init, which "
             "has to stay where it is",
     .at = BP_AT(bp_model_keys, adapter.alone)},
    {BP_CHOICE_KEY("model.attention_activation", NULL, BP_VARIANT_ACTIVATIONS),
     .help = "Transformers: what makes weights of scores; entmax15 gives low scores the weight 0 "
             "(Peters et al. 2019); softmax if not given"},
    {BP_CHOICE_KEY("head.activation", NULL, BP_VARIANT_ACTIVATIONS),
     .help = "what makes probabilities of logits; entmax15 has its own loss, and rules tokens out; "
             "softmax if not given"},
    {BP_INT_KEY("head.softmaxes", NULL, 1, BP_HEAD_SOFTMAXES),
     .help = "softmaxes that the head mixes, each of a state of its own (Yang et al. 2018); 1 if "
             "not given"},
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
