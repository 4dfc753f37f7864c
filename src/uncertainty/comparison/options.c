/* uncertainty.*: the keys, and their checks that need no file. */
#include "uncertainty/uncertainty.h"

#include "job/work.h"
#include "uncertainty/comparison/comparison.h"

#include <string.h>

const bp_option bp_uncertainty_options[] = {
    {BP_STRING_KEY("uncertainty.models", NULL),
     .help = "NAME=FOLDER, NAME=FOLDER: CHECKPOINTs or ensembles" BP_UNCERTAINTY_METHODS_HELP
             "; NAME=FILE.csv or .npy: predictions of others",
     .required = true, .at = BP_AT(bp_uncertainty_keys, models)},
    {BP_STRING_KEY("uncertainty.in_domain", NULL),
     .help = "corpora, or CORPUS:label=value, that are like the training text", .required = true,
     .at = BP_AT(bp_uncertainty_keys, in_domain)},
    {BP_STRING_KEY("uncertainty.shifted", NULL),
     .help = "corpora that are not, each to be detected: CORPUS, CORPUS:label=value, NAME=...",
     .at = BP_AT(bp_uncertainty_keys, shifted)},
    {BP_INT_KEY("uncertainty.passes", "8", 1, 100000),
     .help = "passes of a model with :dropout or :dropconnect; 2 or more are of use",
     .at = BP_AT(bp_uncertainty_keys, passes)},
    {BP_INT_KEY("uncertainty.resamples", "1000", 100, 1000000),
     .help = "resamples of the documents for 95 % intervals",
     .at = BP_AT(bp_uncertainty_keys, resamples)},
    {BP_STRING_KEY("uncertainty.cluster", NULL),
     .help = "a label of the documents: those that share its value, such as passages of one book, "
             "are resampled together",
     .at = BP_AT(bp_uncertainty_keys, cluster)},
    {BP_STRING_KEY("uncertainty.coverages", "50, 80, 90"),
     .help =
         "percentages of the surest predictions for which accuracy is reported, with its interval",
     .at = BP_AT(bp_uncertainty_keys, coverages)},
    {BP_INT_KEY("uncertainty.temper_tokens", "100000", 1, 1e12), .unit = "tokens",
     .help = "tokens of corpus.valid that the temperature is fitted to and conformal sets are "
             "calibrated on; without corpus.valid there are neither",
     .at = BP_AT(bp_uncertainty_keys, temper_tokens)},
    {BP_REAL_KEY("uncertainty.coverage", "0.9", 0, 0.9999),
     .help = "of conformal sets, which are calibrated on corpus.valid; 0: no sets",
     .at = BP_AT(bp_uncertainty_keys, coverage)},
    {BP_REAL_KEY("uncertainty.raps_penalty", "0.01", 0, 1),
     .help = "of raps sets, for each rank beyond uncertainty.raps_rank",
     .at = BP_AT(bp_uncertainty_keys, raps_penalty)},
    {BP_INT_KEY("uncertainty.raps_rank", "0", 0, 1e9),
     .help = "ranks of raps sets without a penalty; 0: chosen on a fifth of corpus.valid",
     .at = BP_AT(bp_uncertainty_keys, raps_rank)},
    {BP_STRING_KEY("corpus.valid", NULL),
     .help = "validation text: the temperature of each method is fitted to it, and its conformal "
             "sets are calibrated on it",
     .at = BP_AT(bp_uncertainty_keys, valid)},
    {BP_STRING_KEY("corpus.train", NULL),
     .help = "the training text: for :laplace and :mahalanobis",
     .at = BP_AT(bp_uncertainty_keys, train)},
    {.key = NULL}};

static void add_fault(bp_config *config, bp_err err)
{
    if (err != BP_OK)
        bp_config_fault_err(config);
}

static bool has_way(const comparison_methods *methods, const bp_uncertainty_method *way)
{
    for (int64_t k = 0; k < methods->count; k++)
        if (methods->items[k].way == way)
            return true;
    return false;
}

static bool fits_any(const comparison_methods *methods)
{
    for (int64_t k = 0; k < methods->count; k++)
        if (methods->items[k].way->fit)
            return true;
    return false;
}

bool comparison_keeps_bits(const bp_config *config, const char *key, const char *before,
                           const char *now)
{
    comparison_methods methods = {0};
    bool fits =
        comparison_methods_parse(&methods, bp_uncertainty_keys_of(config)->models) == BP_OK &&
        fits_any(&methods);

    comparison_methods_clear(&methods);
    return bp_work_keeps_bits(config, key, before, now) && !(fits && strcmp(key, "mesh.data") == 0);
}

void bp_uncertainty_check(bp_config *config)
{
    const char *shifted = bp_uncertainty_keys_of(config)->shifted;
    comparison_methods methods = {0};
    comparison_groups groups = {0};
    comparison_coverages coverages = {0};

    add_fault(config, comparison_methods_parse(&methods, bp_uncertainty_keys_of(config)->models));
    if (methods.count > 0 && comparison_first_model(&methods) < 0)
        add_fault(config, BP_FAIL(BP_ERR_CONFIG, "predictions.no_model",
                                  "there are predictions only: at uncertainty.models; add a model, "
                                  "which tells what they are predictions of"));
    for (const bp_uncertainty_method *const *way = bp_uncertainty_methods; *way; way++)
        if ((*way)->check && has_way(&methods, *way))
            (*way)->check(config);
    comparison_methods_clear(&methods);
    add_fault(config,
              comparison_groups_parse(&groups, "uncertainty.in_domain",
                                      bp_uncertainty_keys_of(config)->in_domain, "in_domain"));
    comparison_groups_clear(&groups);
    add_fault(config,
              comparison_coverages_parse(&coverages, bp_uncertainty_keys_of(config)->coverages));
    if (shifted)
        add_fault(config, comparison_groups_parse(&groups, "uncertainty.shifted", shifted, NULL));
    comparison_groups_clear(&groups);
}
