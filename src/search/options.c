/* search.*: the keys. */
#include "search/options.h"

const bp_option bp_nas_options[] = {
    {BP_CHOICE_KEY("search.method", "random", "random|evolution|ranked|differentiable"),
     .help = "how trials are found: drawn; by mutation and crossover of the best; ranked: drawn, "
             "and by evolution along a ranking that is learned from pairs (RankNAS); "
             "differentiable: by gradients, a recurrent cell (DARTS)",
     .at = BP_AT(bp_nas_keys, method)},
    {BP_STRING_KEY("search.space", NULL),
     .help = "keys with the values to choose from: model.layers=2,4; model.inner=256,512",
     .at = BP_AT(bp_nas_keys, space)},
    {BP_STRING_KEY("search.limit", NULL),
     .help = "what models are admitted, a list with commas of tokens_per_second>=N (of a forward "
             "pass of one rank, measured), parameters<=N and bytes<=N (of parameters, float32)",
     .at = BP_AT(bp_nas_keys, limit)},
    {BP_INT_KEY("search.trials", "16", 1, 100000), .unit = "trials",
     .help = "how many models are tried", .at = BP_AT(bp_nas_keys, trials)},
    {BP_INT_KEY("search.final", "3", 0, 1000), .unit = "trials",
     .help = "this many of the best are trained from scratch for train.steps; 0: none",
     .at = BP_AT(bp_nas_keys, final)},
    {BP_INT_KEY("search.steps", "0", 0, 1e12), .unit = "steps",
     .help = "of a trial that trains from scratch; 0: as many as train.steps says",
     .at = BP_AT(bp_nas_keys, steps)},
    {BP_BOOL_KEY("search.shared", "no"),
     .help = "trials of random and evolution are scored with shared weights, not trained from "
             "scratch; ranked always does",
     .at = BP_AT(bp_nas_keys, shared)},
    {BP_INT_KEY("search.shared_steps", "0", 0, 1e12), .unit = "steps",
     .help = "of training shared weights; 0: as many as train.steps says",
     .at = BP_AT(bp_nas_keys, shared_steps)},
    {BP_CHOICE_KEY("search.ranker", "linear", "linear|boosted"),
     .help = "what ranked learns: a linear function of features, or boosted trees, which find "
             "optima within the space and need more trials",
     .at = BP_AT(bp_nas_keys, ranker)},
    {BP_INT_KEY("search.population", "8", 2, 100000), .unit = "trials",
     .help = "of a generation of evolution; the best quarter of a population are parents",
     .at = BP_AT(bp_nas_keys, population)},
    {BP_REAL_KEY("search.mutation", "0.3", 0, 1),
     .help = "the probability that a mutation draws a key anew",
     .at = BP_AT(bp_nas_keys, mutation)},
    {BP_REAL_KEY("search.crossover", "0.5", 0, 1),
     .help = "the share of children that have two parents; the others are mutations of one",
     .at = BP_AT(bp_nas_keys, crossover)},
    {.key = NULL}};
