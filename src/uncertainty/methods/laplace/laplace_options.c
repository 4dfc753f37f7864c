/* laplace.*: the keys. */
#include "uncertainty/methods/laplace/laplace.h"

#include "base/decimal.h"
#include "base/run_options.h"
#include "math/scalapack/distributed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MARGINAL "marginal"

const bp_option bp_laplace_options[] = {
    {.key = "laplace.tokens",
     .type = BP_OPTION_INT,
     .value = "100000",
     .min = 1,
     .max = 1e12,
     .unit = "tokens",
     .help = "of corpus.train, for the curvature: work units spread evenly over it, each token in "
             "them a target, end-of-document tokens too",
     .at = BP_AT(bp_laplace_keys, tokens)},
    {.key = "laplace.samples",
     .type = BP_OPTION_INT,
     .value = "8",
     .min = 1,
     .max = 4096,
     .help = "matrices drawn from the posterior of the last layer",
     .at = BP_AT(bp_laplace_keys, samples)},
    {.key = "laplace.prior",
     .type = BP_OPTION_STRING,
     .value = MARGINAL,
     .help = "prior precision: a positive number, or marginal (that of the largest likelihood)",
     .at = BP_AT(bp_laplace_keys, prior)},
    {.key = NULL}};

/* 0: of the largest marginal likelihood; negative: no such thing. */
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

bp_laplace_spec bp_laplace_spec_of(const bp_config *config)
{
    return (bp_laplace_spec){.tokens = bp_laplace_keys_of(config)->tokens,
                             .samples = bp_laplace_keys_of(config)->samples,
                             .tau = tau_of(bp_laplace_keys_of(config)->prior),
                             .seed = (uint64_t)bp_run_keys_of(config)->seed};
}
