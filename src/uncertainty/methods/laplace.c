/* :laplace, samples of a Laplace approximation over the last layer (laplace/laplace.h): its keys,
 * its checks, and its row of the table. Called by jobs/uncertainty.c. */
#include "uncertainty/methods/laplace/laplace.h"

#include "base/config/decimal.h"
#include "base/config/run_options.h"
#include "base/log.h"
#include "data/corpus.h"
#include "math/scalapack/distributed.h"
#include "uncertainty/methods/list.h"
#include "uncertainty/methods/samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MARGINAL    "marginal"
#define LITTLE_TEXT 10000 /* tokens */

const bp_option bp_laplace_method_options[] = {
    {BP_INT_KEY("laplace.tokens", "100000", 1, 1e12), .unit = "tokens",
     .help = "of corpus.train, for the curvature: work units spread evenly over it, each token in "
             "them a target, end-of-document tokens too",
     .at = BP_AT(bp_laplace_keys, tokens)},
    {BP_INT_KEY("laplace.samples", "8", 1, 4096),
     .help = "matrices drawn from the posterior of the last layer",
     .at = BP_AT(bp_laplace_keys, samples)},
    {BP_STRING_KEY("laplace.prior", MARGINAL),
     .help = "prior precision: a positive number, or marginal (that of the largest likelihood)",
     .at = BP_AT(bp_laplace_keys, prior)},
    {.key = NULL}};

/* 0: the prior of the largest marginal likelihood; negative: invalid. */
static double tau_of(const char *text)
{
    double tau;

    if (strcmp(text, MARGINAL) == 0)
        return 0;
    return bp_decimal(&tau, text, strlen(text)) && tau > 0 ? tau : -1;
}

void bp_laplace_check(bp_config *config)
{
    const char *text = bp_laplace_keys_of(config)->prior;

    if (tau_of(text) < 0)
        bp_config_fault(config, "laplace.bad_prior",
                        "laplace.prior = %s is neither a positive number nor 'marginal': at "
                        "laplace.prior; use marginal",
                        text);
    if (!bp_distributed_library())
        bp_config_fault(config, "build.no_scalapack",
                        "this build has no ScaLAPACK, which the Laplace approximation "
                        "needs: install it (Debian: libscalapack-openmpi-dev), and build "
                        "anew");
}

static void check(bp_config *config)
{
    if (!bp_config_is_set(config, "corpus.train"))
        bp_config_fault(config, "laplace.no_corpus",
                        "a model with :laplace, but no corpus.train: at "
                        "uncertainty.models; name the corpus that it was trained on");
    bp_laplace_check(config);
}

bp_laplace_spec bp_laplace_spec_of(const bp_config *config)
{
    return (bp_laplace_spec){.tokens = bp_laplace_keys_of(config)->tokens,
                             .samples = bp_laplace_keys_of(config)->samples,
                             .tau = tau_of(bp_laplace_keys_of(config)->prior),
                             .seed = (uint64_t)bp_run_keys_of(config)->seed};
}

/* ---- models ---- */

static bp_err suits(const bp_method_case *at)
{
    const bp_task_shape *task = at->task;

    if (!bp_task_is_softmax(task) || task->precision > 0)
        return BP_FAIL(
            BP_ERR_CONFIG, "laplace.no_softmax",
            "the head of method %s is not a softmax over outcomes, of which :laplace is an "
            "approximation, but %s: at %s; leave :laplace out",
            at->name,
            task->precision > 0                     ? "a Dirichlet"
            : bp_task_kind_of(task)->over_positions ? "one over positions"
                                                    : "a value",
            at->path);
    if (task->features > 0)
        return BP_FAIL(BP_ERR_CONFIG, "sngp.no_laplace",
                       "the model of method %s has a Gaussian process, whose covariance is "
                       "Laplace's already: at %s; leave :laplace out",
                       at->name, at->path);
    if (at->outcomes > BP_LAPLACE_VOCAB_MAX)
        return BP_FAIL(BP_ERR_CONFIG, "laplace.vocabulary_too_large",
                       "method %s has a vocabulary of %" PRId64
                       ", but :laplace takes %d at most: at %s; leave it out",
                       at->name, at->outcomes, BP_LAPLACE_VOCAB_MAX, at->path);
    return BP_OK;
}

static void warn(const bp_method_case *at)
{
    const char *corpus = bp_corpus_keys_of(at->config)->train;
    int64_t tokens = bp_laplace_keys_of(at->config)->tokens;
    bool less = at->train_tokens < tokens;

    if (at->trained_on[0] && at->train_hash[0] && strcmp(at->trained_on, at->train_hash) != 0)
        BP_WARN("laplace.other_corpus",
                "method %s was trained on another corpus than corpus.train, to which its Laplace "
                "approximation is fitted: at %s; name the corpus of its training",
                at->name, corpus);
    if (!bp_task_has_head(at->task) && (less ? at->train_tokens : tokens) < LITTLE_TEXT)
        BP_WARN("laplace.few_tokens",
                "the Laplace approximation of method %s is fitted to %" PRId64
                " tokens, fewer than %d, and says little: at %s; %s",
                at->name, less ? at->train_tokens : tokens, LITTLE_TEXT,
                less ? corpus : "laplace.tokens", less ? "take more text" : "raise it");
}

/* ---- the fit, and its samples ---- */

/* unit: what the fit is from, "token" or "document". */
static void describe(bp_fit_report *report, const bp_laplace_report *found, const char *unit)
{
    *report = (bp_fit_report){.reused = found->reused,
                              .seconds = found->factor_seconds + found->eigen_seconds +
                                         found->prior_seconds,
                              .count = 3,
                              .figures = {{"prior_precision", found->tau},
                                          {"effective_parameters", found->effective_parameters},
                                          {"log_evidence", found->log_evidence}}};
    (void)snprintf(report->summary, sizeof report->summary,
                   "prior precision %.4g, %.0f effective parameters, log evidence %.6g, from "
                   "%" PRId64 " %ss",
                   found->tau, found->effective_parameters, found->log_evidence, found->tokens,
                   unit);
}

static bp_err fit_samples(const bp_method_case *at, const bp_method_fit *fit, bp_fit_report *report)
{
    bp_laplace_spec spec = bp_laplace_spec_of(at->config);
    bp_laplace_report found = {0};
    bp_err err =
        bp_laplace_fit(fit->mesh, fit->config, at->path, bp_corpus_keys_of(at->config)->train,
                       &spec, at->fitted, fit->listener, &found);

    describe(report, &found, bp_task_kind_of(at->task)->prediction);
    return err;
}

static int64_t fit_bytes(const bp_method_case *at, const bp_mesh_shape *shape)
{
    bp_laplace_spec spec = bp_laplace_spec_of(at->config);

    return bp_laplace_bytes(&spec, shape, at->outcomes, at->width);
}

static bp_member_sampler *new_sampler(const bp_method_case *at)
{
    return bp_sampled_heads_new(at->fitted, bp_laplace_keys_of(at->config)->samples);
}

static void print_plan(const bp_method_case *at, int64_t bytes)
{
    bp_log("  %" PRId64 " samples repeat its last layer that many times; the fit before takes %.1f "
           "MiB on a rank besides the model",
           bp_laplace_keys_of(at->config)->samples, (double)bytes / 1048576);
}

const bp_uncertainty_method bp_laplace_method = {.word = "laplace",
                                                 .check = check,
                                                 .suits = suits,
                                                 .warn = warn,
                                                 .sampler = new_sampler,
                                                 .fit = fit_samples,
                                                 .fit_bytes = fit_bytes,
                                                 .print_plan = print_plan};
