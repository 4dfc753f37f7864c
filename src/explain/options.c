/* explain.*: the keys. */
#include "explain/explain.h"

#include "base/buffer.h"
#include "base/config/ignored.h"
#include "explain/method.h"

#include <stdio.h>
#include <string.h>

const bp_option bp_explain_options[] = {
    {BP_STRING_KEY("explain.model", NULL),
     .help = "CHECKPOINT (a step, imported or run folder, RUN/checkpoints/best)", .required = true,
     .at = BP_AT(bp_explain_keys, model)},
    {BP_STRING_KEY("explain.corpus", NULL),
     .help = "corpora whose predictions are explained: a file, a list with commas, or a glob",
     .required = BP_REQUIRED_ONE, .at = BP_AT(bp_explain_keys, corpus)},
    {BP_STRING_KEY("explain.texts", NULL),
     .help = "instead: a file of texts, a line each, or FILE.jsonl of objects with \"text\"; of "
             "models that read pairs outputs.jsonl of generate: each prompt with its text",
     .required = BP_REQUIRED_ONE, .at = BP_AT(bp_explain_keys, texts)},
    {BP_STRING_KEY("explain.methods", "gradient"),
     .help = "a list with commas of attention (where heads look), saliency (how long the gradient "
             "of log p(target) by each word vector is), gradient (times the vector), integrated "
             "(integrated gradients), contrast (both, of what sets a target off from another "
             "outcome), lens (what the head predicts after each layer), surrogate (LIME), shapley "
             "(Shapley values of words), counterfactual (what other tokens would change), "
             "faithfulness (what the prediction loses without what the others put first), sources "
             "(the nearest texts of a datastore), similarity (how alike a word's states are in all "
             "its contexts), projection (maps of states: principal components, t-SNE, UMAP), "
             "factors (what activations of MLPs have in common), memories (which positions set off "
             "each key of an MLP, and what its value predicts)",
     .at = BP_AT(bp_explain_keys, methods)},
    {BP_STRING_KEY("explain.target", NULL),
     .help =
         "what is explained: of models that write, at each token next (the one that follows) or "
         "best (the one that the model prefers); of masked models label (the token under the mask) "
         "or best; of tasks best, label (of the corpus), every class or tag, or one by its name. "
         "Not given: next; label, or best where the corpus itself holds masks; best",
     .at = BP_AT(bp_explain_keys, target)},
    {BP_STRING_KEY("explain.masks", NULL),
     .help =
         "of masked models: a JSON file with a list for each document of the positions among its "
         "tokens, from 0, that are masked together; [position, token id] is one that stays as it "
         "is, with its label. Not given: masks of the corpus, or each token is masked in turn",
     .at = BP_AT(bp_explain_keys, masks)},
    {BP_INT_KEY("explain.places", "64", 0, 1e6), .unit = "tokens",
     .help = "of masked models: the most tokens of a document that are masked in turn, at even "
             "steps; 0: all",
     .at = BP_AT(bp_explain_keys, positions)},
    {BP_STRING_KEY("explain.separators", NULL),
     .help = "of attention: ids, with commas, of the tokens that separate texts or sentences. Not "
             "given: those that end or divide texts, and the one before them",
     .at = BP_AT(bp_explain_keys, separators)},
    {BP_CHOICE_KEY("explain.baseline", "eod", "zero|eod|mask|pad"),
     .help = "of integrated: what an input without information is: a vector of zeros, or that of a "
             "token; special tokens of a text stay then",
     .at = BP_AT(bp_explain_keys, baseline)},
    {BP_INT_KEY("explain.examples", "20", 0, 1000), .unit = "documents",
     .help = "documents that get a page of their own", .at = BP_AT(bp_explain_keys, examples)},
    {BP_CHOICE_KEY("explain.choose", "first", "first|random|hardest"),
     .help = "which documents these are: the first, some by run.seed, or those whose targets have "
             "the smallest mean log-probability",
     .at = BP_AT(bp_explain_keys, choose)},
    {BP_INT_KEY("explain.context", "0", 0, 1e6), .unit = "tokens",
     .help = "the most inputs of a document, whose rest is left out; 0: the model's context, at "
             "most 1024",
     .at = BP_AT(bp_explain_keys, context)},
    {BP_INT_KEY("explain.steps", "50", 1, 1000),
     .help =
         "of integrated: points between baseline and input (Gauss-Legendre); of factors: updates",
     .at = BP_AT(bp_explain_keys, steps)},
    {BP_CHOICE_KEY("explain.removal", "delete", "delete|mask|pad"),
     .help = "of surrogate, shapley and faithfulness: words that are removed go, and the text "
             "closes up; or the token is put in the place of each of theirs",
     .at = BP_AT(bp_explain_keys, removal)},
    {BP_CHOICE_KEY("explain.features", "words", "words|tokens"),
     .help = "of surrogate and shapley: what is removed together, with all its occurrences",
     .at = BP_AT(bp_explain_keys, features)},
    {BP_INT_KEY("explain.group", "0", 0, 1e6), .unit = "words",
     .help = "of surrogate and shapley: this many words that follow one another are removed "
             "together; 0: each word, wherever it is",
     .at = BP_AT(bp_explain_keys, group)},
    {BP_INT_KEY("explain.samples", "500", 10, 1e7),
     .help = "of surrogate and shapley: texts that are made of each, or of each of its targets",
     .at = BP_AT(bp_explain_keys, samples)},
    {BP_INT_KEY("explain.most_words", "0", 0, 1e6), .unit = "words",
     .help = "of surrogate: at most this many words have a weight; 0: all",
     .at = BP_AT(bp_explain_keys, most_words)},
    {BP_CHOICE_KEY("explain.shapley", "auto", "auto|sampled|exact"),
     .help = "of shapley: exact takes all sets of words, of 12 at most; auto does so where they "
             "are no more than explain.samples",
     .at = BP_AT(bp_explain_keys, shapley)},
    {BP_INT_KEY("explain.flips", "5", 1, 1e5),
     .help = "of counterfactual: other tokens that are shown for each",
     .at = BP_AT(bp_explain_keys, flips)},
    {BP_INT_KEY("explain.edits", "5", 1, 16),
     .help = "of counterfactual: tokens of a text that the search for another prediction replaces, "
             "at most",
     .at = BP_AT(bp_explain_keys, edits)},
    {BP_INT_KEY("explain.beam", "4", 1, 1000),
     .help = "of counterfactual: texts that the search goes on with",
     .at = BP_AT(bp_explain_keys, beam)},
    {BP_REAL_KEY("explain.change", "0.5", 1e-9, 1e9),
     .help = "of counterfactual: how far the value of a regression must fall or rise to be another "
             "prediction",
     .at = BP_AT(bp_explain_keys, change)},
    {BP_STRING_KEY("explain.sets", NULL),
     .help = "of contrast_sets: the label of the corpus by which documents belong together, a text "
             "and edited versions of it; or FILE.json, a list with the name of each document's "
             "set, or null",
     .at = BP_AT(bp_explain_keys, sets)},
    {BP_STRING_KEY("explain.layers", NULL),
     .help = "of methods over states and activations: layers, 0 the embedding, as \"0,4-6,12\"; "
             "not set: all",
     .at = BP_AT(bp_explain_keys, layers)},
    {BP_STRING_KEY("explain.words", NULL),
     .help = "of similarity: words with commas, whose contexts are compared; of a corpus without "
             "tokenizer ids of tokens",
     .at = BP_AT(bp_explain_keys, words)},
    {BP_STRING_KEY("explain.datastore", NULL),
     .help = "of sources: training texts of the model: states.h5 of score.states=yes, of a task "
             "vectors.h5 of score.vectors",
     .at = BP_AT(bp_explain_keys, datastore)},
    {BP_INT_KEY("explain.neighbours", "15", 2, 1000),
     .help = "of similarity and sources: nearest neighbours that are listed; of projection: those "
             "of a point in UMAP's graph, itself counted",
     .at = BP_AT(bp_explain_keys, neighbours)},
    {BP_REAL_KEY("explain.perplexity", "30", 1, 1000),
     .help = "of projection: the effective number of neighbours of a point in t-SNE",
     .at = BP_AT(bp_explain_keys, perplexity)},
    {BP_INT_KEY("explain.factors", "10", 1, 1000),
     .help = "of factors: how many activations are taken apart into, at most the positions of a "
             "document",
     .at = BP_AT(bp_explain_keys, factors)},
    {BP_INT_KEY("explain.keys", "10", 1, 1000),
     .help = "of memories: the positions of the corpus that are listed for each key",
     .at = BP_AT(bp_explain_keys, keys)},
    {.key = NULL}};

/* Each name of the list once. */
static void check_methods(const char *list, bp_config *config)
{
    bp_buffer names = {0};

    for (const bp_explain_method *const *known = bp_explain_methods; *known; known++)
        bp_buffer_printf(&names, "%s%s", names.bytes > 0 ? ", " : "", (*known)->name);
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        const bp_explain_method *method = bp_explain_method_named(at, length);

        if (!method)
            bp_config_fault(config, "explain.no_method",
                            "there is no method '%.*s': at explain.methods; use some of %s",
                            (int)length, at, names.data);
        else if (bp_explain_position(list, method) != at)
            bp_config_fault(config, "explain.twice",
                            "%s is in the list twice: at explain.methods; leave one out",
                            method->name);
        at += length + (at[length] == ',');
    }
    bp_buffer_clear(&names);
}

/* Is there a method with attributions of inputs? */
static bool ranks_inputs(const char *list)
{
    for (const bp_explain_method *const *method = bp_explain_methods; *method; method++)
        if ((*method)->ranks && bp_explain_position(list, *method))
            return true;
    return false;
}

/* Comma-separated numbers. */
static void check_separators(const char *list, bp_config *config)
{
    for (const char *at = list; *at;) {
        size_t digits = strspn(at, "0123456789");

        if (digits == 0 || digits > 9 || (at[digits] && at[digits] != ',')) {
            bp_config_fault(config, "explain.bad_separators",
                            "'%s' is no list of token ids: at explain.separators; give numbers "
                            "with commas",
                            list);
            return;
        }
        at += digits + (at[digits] == ',');
    }
}

void bp_explain_check(bp_config *config)
{
    const char *methods = bp_explain_keys_of(config)->methods;

    if (methods)
        check_methods(methods, config);
    if (methods && bp_explain_position(methods, &bp_explain_faithfulness) && !ranks_inputs(methods))
        bp_config_fault(config, "explain.nothing_ranked",
                        "faithfulness measures what other methods put first, and the list has none "
                        "of them: at explain.methods; add gradient, say");
    if (bp_explain_keys_of(config)->separators)
        check_separators(bp_explain_keys_of(config)->separators, config);
}

/* Keys that only some methods use: these. */
static const struct {
    const char *key, *methods;
} OF_METHODS[] = {{"explain.separators", "attention"},
                  {"explain.baseline", "integrated"},
                  {"explain.steps", "integrated,factors"},
                  {"explain.removal", "surrogate,shapley,faithfulness"},
                  {"explain.features", "surrogate,shapley"},
                  {"explain.group", "surrogate,shapley"},
                  {"explain.samples", "surrogate,shapley"},
                  {"explain.most_words", "surrogate"},
                  {"explain.shapley", "shapley"},
                  {"explain.flips", "counterfactual"},
                  {"explain.edits", "counterfactual"},
                  {"explain.beam", "counterfactual"},
                  {"explain.change", "counterfactual"},
                  {"explain.sets", "contrast_sets"},
                  {"explain.layers", "similarity,projection,factors,memories"},
                  {"explain.words", "similarity"},
                  {"explain.neighbours", "similarity,projection,sources"},
                  {"explain.perplexity", "projection"},
                  {"explain.factors", "factors"},
                  {"explain.keys", "memories"}};
enum { KEYS_OF_METHODS = sizeof OF_METHODS / sizeof *OF_METHODS };

/* Is one of the methods of the list `some` in the list `chosen`? */
static bool has_any(const char *chosen, const char *some)
{
    for (const bp_explain_method *const *method = bp_explain_methods; *method; method++)
        if (bp_explain_position(some, *method) && bp_explain_position(chosen, *method))
            return true;
    return false;
}

void bp_explain_warn(const bp_config *config)
{
    const char *chosen = bp_explain_keys_of(config)->methods;
    bp_unused_key rows[KEYS_OF_METHODS + 1] = {0};
    char why[KEYS_OF_METHODS][96];

    for (int k = 0; k < KEYS_OF_METHODS; k++) {
        (void)snprintf(why[k], sizeof why[k], "only %s of explain.methods use it",
                       OF_METHODS[k].methods);
        rows[k] =
            (bp_unused_key){OF_METHODS[k].key, !has_any(chosen, OF_METHODS[k].methods), why[k]};
    }
    bp_warn_of_unused(config, rows);
}
