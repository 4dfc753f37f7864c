/* The Laplace approximation over a model's last linear map, with Kronecker factors.
 *
 * With h the state before the vocabulary, W [V][C] the matrix, p = softmax(W h): the Hessian of the
 * loss of one token in W is (diag(p) - p p^T) (x) h h^T. Its mean over tokens is approximated by
 * G (x) A, where G = E[diag(p) - p p^T], A = E[h h^T]. The posterior of W over the N tokens of the
 * corpus, under a prior N(0, 1/tau), is then the Gaussian around W with precision
 * P = N G (x) A + tau I. The log evidence is
 *
 *     log p(D|M) ~ log p(D|W) + log p(W) + VC/2 log 2 pi - 1/2 log det P,
 *     log p(W) = -tau/2 |W|^2 + VC/2 log tau - VC/2 log 2 pi,
 *
 * so 2 pi cancels, and with G = U_G diag(g) U_G^T and A = U_A diag(a) U_A^T it is
 *
 *     log p(D|W) - tau/2 |W|^2 + VC/2 log tau - 1/2 sum_ij log(N g_i a_j + tau).
 *
 * N counts the tokens that a model is trained to predict: every token of the corpus, including
 * end-of-document tokens. G, A and the likelihood are means over some of these tokens
 * (laplace.tokens): whole work units of documents, spread evenly, each token with the document's
 * tokens before it (the first one with an end-of-document token) up to the model's context; log
 * p(D|W) is N times its mean. Without an end-of-document token, a document's first token has no
 * context and is not included.
 *
 * A sample is W + (I - 1 1^T / V) U_G (S o (U_G^T Z U_A)) U_A^T, S_ij = (N g_i a_j + tau)^(-1/2), Z
 * standard normal: P^(-1/2) by its symmetric root, without the mean over outcomes. That mean adds
 * one number to all logits of a state: no probability depends on it, G has no curvature there (G 1
 * = 0), and so it would have the prior's variance, however much the data say; only a log-sum-exp
 * of logits would show it. Signs of eigenvectors cancel in the root, and so does the choice of a
 * basis for coinciding eigenvalues. A tied matrix is untied by this: only its use as head is
 * sampled.
 *
 * Reproducibility: Z is a function of (seed, sample, element), and the tokens are a function only
 *                  of corpus, keys and model. So tau and the samples agree on all meshes to
 *                  rounding, but not in bits, because sums over ranks and eigenvectors have no
 *                  fixed order.
 *
 * Sources: Ritter, Botev and Barber 2018, "A scalable Laplace approximation for neural networks",
 * eq. 7 and 8; Daxberger et al. 2021 (arXiv:2106.14806), sections 2 and 3; the evidence: MacKay
 * 1992, "Bayesian interpolation", and Immer et al. 2021 (arXiv:2104.04975), eq. 4 and 5, as
 * laplace-torch's log_marginal_likelihood has it.
 */
#pragma once

#include "base/config/config.h"
#include "base/files/hash.h"
#include "mesh/mesh.h"
#include "models/model.h"
#include "uncertainty/methods/fit.h"

/** G has VOCAB x VOCAB elements: a larger vocabulary is refused. */
#define BP_LAPLACE_VOCAB_MAX 16384

extern const bp_option
    bp_laplace_method_options[]; /* laplace.tokens, laplace.samples, laplace.prior */

/** Values of bp_laplace_method_options (docs: --help). */
typedef struct bp_laplace_keys {
    int64_t tokens;
    int64_t samples;
    const char *prior;
} bp_laplace_keys;

static inline const bp_laplace_keys *bp_laplace_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_laplace_method_options);
}

/** Faults that need neither files nor ranks: laplace.prior is "marginal" or a positive number, and
 * the build has ScaLAPACK. They are added to the configuration's. Local. */
void bp_laplace_check(bp_config *config);

typedef struct bp_laplace_spec {
    int64_t tokens;  /* the most tokens for factors and likelihood */
    int64_t samples; /* number of samples */
    double tau;      /* prior precision; 0: the one with the largest marginal likelihood */
    uint64_t seed;   /* of Z */
} bp_laplace_spec;

/** laplace.* and run.seed of a checked configuration. */
bp_laplace_spec bp_laplace_spec_of(const bp_config *config);

typedef struct bp_laplace_report {
    bool reused;         /* the file existed: the following fields describe the fit that made it */
    int64_t tokens;      /* in the factors */
    int64_t data_tokens; /* N */
    double tau;
    double log_likelihood;       /* log p(D|W): N times the mean over `tokens` */
    double log_evidence;         /* as above */
    double effective_parameters; /* sum_ij N g_i a_j / (N g_i a_j + tau) */
    double factor_seconds, eigen_seconds, prior_seconds;
    double sample_seconds;      /* 0 if reused */
    char digest[BP_SHA256_HEX]; /* of the file of samples: over model, corpus, keys */
} bp_laplace_report;

/** Fit the approximation to the last linear map of a checkpoint on a training corpus, and write
 * samples of the matrix (io/checkpoint/head_samples.h) to `out_path`. A finished file with the same
 * digest is kept; any other is overwritten.
 *
 * `corpus` is one file, a list with commas, or a glob. mesh.members copies of the model share the
 * work. `listener` (may be NULL) is called on rank 0 of mesh->compute. A stop request of the
 * listener, or of bp_signals_stop_asked() on any rank, takes effect within a few seconds. In the
 * eigenproblem it takes effect within one second, and then the process can only end
 * (mesh/long_call.h).
 *
 * Collective: over mesh->compute; all arguments but `listener` are equal on its ranks. The report
 * is valid on all. Errors:     those of bp_model_open and bp_score_each_batch; BP_ERR_CONFIG a
 * model without a last linear map, a vocabulary of more than BP_LAPLACE_VOCAB_MAX, a build without
 *             ScaLAPACK; BP_ERR_FORMAT no token to score; BP_ERR_SOFTWARE factors that are not
 *             finite; BP_ERR_SYSTEM memory; BP_ERR_STOPPED stopped in time; those of
 *             bp_head_samples_create: the same on all ranks, and no incomplete file is left.
 */
bp_err bp_laplace_fit(const bp_mesh *mesh, const bp_config *config, const char *checkpoint,
                      const char *corpus, const bp_laplace_spec *spec, const char *out_path,
                      const bp_fit_listener *listener, bp_laplace_report *report);

/** Peak bytes of a fit on the fullest rank, without the model: the states of the tokens, and the
 * output factor with its eigenvectors and their workspace. The shape has been fitted. Local. */
int64_t bp_laplace_bytes(const bp_laplace_spec *spec, const bp_mesh_shape *shape,
                         int64_t vocab_size, int64_t width);

/** bp_laplace_fit for a model that is open. */
bp_err bp_laplace_fit_model(const bp_mesh *mesh, const bp_config *config, bp_model *model,
                            const char *corpus, const bp_laplace_spec *spec, const char *out_path,
                            const bp_fit_listener *listener, bp_laplace_report *report);
