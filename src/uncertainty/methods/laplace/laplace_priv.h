/* The parts of the Laplace approximation: factors, prior, samples. */
#ifndef BP_UNCERTAINTY_METHODS_LAPLACE_LAPLACE_PRIV_H
#define BP_UNCERTAINTY_METHODS_LAPLACE_LAPLACE_PRIV_H

#include "io/checkpoint/head_samples.h"
#include "math/scalapack/distributed.h"
#include "uncertainty/methods/laplace/laplace.h"

/* ---- laplace_course.c: how far a fit is ---- */

typedef enum laplace_step {
    LAPLACE_STATES,
    LAPLACE_FACTORS,
    LAPLACE_EIGEN,
    LAPLACE_SAMPLES,
    LAPLACE_STEPS
} laplace_step;

/** On one rank. All are local. */
typedef struct laplace_course {
    const bp_fit_listener *listener; /* on rank 0 of mesh->compute; NULL: none, and elsewhere */
    int64_t tokens, V, C, samples;   /* what is to be done; tokens: about */
    laplace_step step;
    double began;                   /* of the step */
    double gram_work, gram_seconds; /* of the factors' large products so far: FLOPs */
    bool stopped;
} laplace_course;

void laplace_course_step(laplace_course *course, laplace_step step);
/** `rows` tokens were added to the output factor in `seconds` seconds. */
void laplace_course_measure(laplace_course *course, double rows, double seconds);
/** So much of the step is done (0 to 1; of LAPLACE_EIGEN nobody knows). The listener receives it.
 * Errors: BP_ERR_STOPPED this rank was asked to stop. */
bp_err laplace_course_report(laplace_course *course, double share);
/** The same for bp_distributed_eigen: is this rank to stop? */
bool laplace_course_stop(void *course);
/** The failure of a fit that was stopped. Errors: BP_ERR_STOPPED, always. */
bp_err laplace_course_stopped(void);

/* ---- laplace_factors.c ---- */

typedef struct laplace_factors {
    bp_grid *grid;          /* of mesh->compute */
    bp_distributed *input;  /* A [C][C], on and above the diagonal */
    bp_distributed *output; /* G [V][V], likewise */
    int64_t tokens;         /* over all ranks */
    double log_likelihood;  /* of them, a token */
} laplace_factors;

/** What a fit reads. */
typedef struct laplace_text {
    const char *corpus;
    const char *path; /* bp_score_each.path */
    int64_t tokens;   /* at most; of a task documents */
    bool ends;        /* its documents end with the end-of-document token, a target as any other */
} laplace_text;

/** Both factors over targets of a corpus: whole work units, spread evenly.
 *
 * Collective: over mesh->compute.
 * Owns:       the factors are the caller's, laplace_factors_clear(), after an error too.
 * Errors:     those of bp_score_each_batch and of bp_grid_new; BP_ERR_FORMAT no target;
 *             BP_ERR_SYSTEM memory; BP_ERR_STOPPED: the same on all ranks.
 */
bp_err laplace_factors_init(laplace_factors *factors, const bp_mesh *mesh, bp_model *model,
                            const laplace_text *text, laplace_course *course);
/** Collective over mesh->compute. */
void laplace_factors_clear(laplace_factors *factors);

/** Bytes that this takes on a rank at its peak, about. Local. */
int64_t laplace_factors_bytes(int64_t tokens, const bp_mesh_shape *shape, int64_t vocab_size,
                              int64_t width);

/* ---- laplace_posterior.c ---- */

/** The factors' eigenvalues, none of them negative, and eigenvectors in rows. */
typedef struct laplace_spectra {
    int64_t V, C;
    double *output_values, *input_values; /* [V], [C], on all ranks */
    bp_distributed *output_vectors, *input_vectors;
} laplace_spectra;

/** Decompose the factors, which are freed.
 *
 * Collective: over the grid's communicator. Clear after an error too.
 * Errors:     those of bp_distributed_eigen (BP_ERR_STOPPED: all is abandoned that is on the grid),
 *             of bp_distributed_new.
 */
bp_err laplace_spectra_init(laplace_spectra *spectra, laplace_factors *factors,
                            laplace_course *course);
void laplace_spectra_clear(laplace_spectra *spectra);

/* ---- laplace_prior.c ---- */

/** What decides on the prior precision. `rank` and `size` share the work of a sum over the
 * spectrum. */
typedef struct laplace_evidence {
    const double *output_values, *input_values; /* [V], [C] */
    int64_t V, C;
    double data_tokens;    /* N */
    double weights_square; /* |W|^2 */
    MPI_Comm comm;         /* whose ranks share the sums */
    double *rows;          /* scratch of laplace_evidence_open */
} laplace_evidence;

/** Make the scratch of the sums below. Collective over evidence->comm. Owns: evidence->rows, until
 * laplace_evidence_close. Errors: BP_ERR_SYSTEM, the same on all ranks, and nothing to close. */
bp_err laplace_evidence_open(laplace_evidence *evidence);
void laplace_evidence_close(laplace_evidence *evidence);

/** sum_ij N g_i a_j / (N g_i a_j + tau). Collective over evidence->comm, as what follows. */
double laplace_effective_parameters(const laplace_evidence *evidence, double tau);
/** What of the log evidence depends on tau: all but the likelihood, as laplace.h has it. */
double laplace_log_evidence(const laplace_evidence *evidence, double tau);
/** The tau of the largest evidence, to 12 digits: where tau |W|^2 is the number of effective
 * parameters, which falls with tau while the other side grows: there is one.
 *
 * Errors:     BP_ERR_CONFIG a matrix of zeros, or no curvature at all: no tau is the best.
 * Source:     MacKay 1992, "Bayesian interpolation", eq. 4.2 to 4.6.
 */
bp_err laplace_best_tau(double *tau, const laplace_evidence *evidence);

/* ---- laplace_posterior.c ---- */

typedef struct laplace_draw {
    const laplace_spectra *spectra;
    bp_grid *grid;
    const float *weights; /* W [V][C], on rank 0 of the grid */
    double data_tokens, tau;
    uint64_t seed;
    laplace_course *course;
} laplace_draw;

/** What writing them takes besides matrices, on rank 0 of the grid. */
int64_t laplace_draw_bytes(int64_t C);
/** Draw all samples of `file` and write them: rank 0 of the grid has the file.
 *
 * Collective: over the grid's communicator, `comm`.
 * Errors:     those of bp_distributed_new and of bp_head_samples_write; BP_ERR_STOPPED: the same on
 *             all ranks.
 */
bp_err laplace_draw_samples(const laplace_draw *draw, MPI_Comm comm, bp_head_samples *file,
                            int64_t samples);

#endif
