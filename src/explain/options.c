/* explain.*: the keys. */
#include "explain/explain.h"

#include "explain/method.h"

#include <string.h>

const bp_option bp_explain_options[] = {
    {.key = "explain.model",
     .type = BP_OPTION_STRING,
     .help = "CHECKPOINT (a step, imported or run folder, RUN/checkpoints/best)",
     .required = true,
     .at = BP_AT(bp_explain_keys, model)},
    {.key = "explain.corpus",
     .type = BP_OPTION_STRING,
     .help = "corpora whose predictions are explained: a file, a list with commas, or a glob",
     .required = true,
     .at = BP_AT(bp_explain_keys, corpus)},
    {.key = "explain.methods",
     .type = BP_OPTION_STRING,
     .value = "gradient",
     .help =
         "a list with commas of attention (where heads look), saliency (how long the gradient of "
         "log p(target) by each word "
         "vector is), gradient (times the vector), integrated (integrated gradients), lens (what "
         "the head predicts after each layer), similarity (how alike a word's states are in all "
         "its "
         "contexts), projection (maps of states: principal components, t-SNE, UMAP), factors (what "
         "activations of MLPs have in common), memories (which places set off each key of an MLP, "
         "and what its value predicts)",
     .at = BP_AT(bp_explain_keys, methods)},
    {.key = "explain.target",
     .type = BP_OPTION_CHOICE,
     .value = "next",
     .choices = "next|best",
     .help = "what is explained at each token: the probability of the one that follows, or of the "
             "one that the model prefers there",
     .at = BP_AT(bp_explain_keys, target)},
    {.key = "explain.baseline",
     .type = BP_OPTION_CHOICE,
     .value = "eod",
     .choices = "zero|eod|mask|pad",
     .help = "of integrated: what an input without information is: a vector of zeros, or that of a "
             "token; special tokens of a text stay then",
     .at = BP_AT(bp_explain_keys, baseline)},
    {.key = "explain.context",
     .type = BP_OPTION_INT,
     .value = "0",
     .min = 0,
     .max = 1e6,
     .unit = "tokens",
     .help = "the most inputs of a document, whose rest is left out; 0: the model's context, at "
             "most 1024",
     .at = BP_AT(bp_explain_keys, context)},
    {.key = "explain.steps",
     .type = BP_OPTION_INT,
     .value = "50",
     .min = 1,
     .max = 1000,
     .help = "of integrated: points between baseline and input (Gauss-Legendre); of factors: "
             "updates",
     .at = BP_AT(bp_explain_keys, steps)},
    {.key = "explain.layers",
     .type = BP_OPTION_STRING,
     .help = "of methods over states and activations: layers, 0 the embedding, as \"0,4-6,12\"; "
             "not set: all",
     .at = BP_AT(bp_explain_keys, layers)},
    {.key = "explain.words",
     .type = BP_OPTION_STRING,
     .help = "of similarity: words with commas, whose contexts are compared; of a corpus without "
             "tokenizer ids of tokens",
     .at = BP_AT(bp_explain_keys, words)},
    {.key = "explain.neighbours",
     .type = BP_OPTION_INT,
     .value = "15",
     .min = 2,
     .max = 1000,
     .help = "of similarity: nearest neighbours that are listed; of projection: those of a point "
             "in UMAP's graph, itself counted",
     .at = BP_AT(bp_explain_keys, neighbours)},
    {.key = "explain.perplexity",
     .type = BP_OPTION_REAL,
     .value = "30",
     .min = 1,
     .max = 1000,
     .help = "of projection: the effective number of neighbours of a point in t-SNE",
     .at = BP_AT(bp_explain_keys, perplexity)},
    {.key = "explain.factors",
     .type = BP_OPTION_INT,
     .value = "10",
     .min = 1,
     .max = 1000,
     .help = "of factors: how many activations are taken apart into, at most the places of a "
             "document",
     .at = BP_AT(bp_explain_keys, factors)},
    {.key = "explain.keys",
     .type = BP_OPTION_INT,
     .value = "10",
     .min = 1,
     .max = 1000,
     .help = "of memories: the places of the corpus that are listed for each key",
     .at = BP_AT(bp_explain_keys, keys)},
    {.key = NULL}};

/* Each name of the list once. */
static void check_methods(const char *list, bp_config *config)
{
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        const bp_explain_method *method = bp_explain_method_named(at, length);

        if (!method)
            bp_config_fault(config, "explain.no_method",
                            "there is no method '%.*s': at explain.methods; use some of those that "
                            "bagpipe explain --help lists",
                            (int)length, at);
        else if (bp_explain_position(list, method) != at)
            bp_config_fault(config, "explain.twice",
                            "%s is in the list twice: at explain.methods; leave one out",
                            method->name);
        at += length + (at[length] == ',');
    }
}

void bp_explain_check(bp_config *config)
{
    const char *methods = bp_explain_keys_of(config)->methods;

    if (methods)
        check_methods(methods, config);
}
