/* The parts of the Laplace approximation: factors, prior, samples. */
#pragma once

#include "io/checkpoint/head_samples.h"
#include "math/scalapack/distributed.h"
#include "uncertainty/methods/laplace/laplace.h"

/* ---- laplace_course.c: the progress of a fit ---- */

typedef enum laplace_step {
    LAPLACE_STATES,
    LAPLACE_FACTORS,
    LAPLACE_EIGEN,
    LAPLACE_SAMPLES,
    LAPLACE_STEPS
} laplace_step;

/** On one rank. All are local. */
typedef struct laplace_course {
    const bp_fit_listener *listener; /* on rank 0 of mesh->compute, may be NULL; NULL elsewhere */
    int64_t tokens, V, C, samples;   /* total work; tokens: approximate */
    laplace_step step;
    double began;                   /* of the step */
    double gram_work, gram_seconds; /* FLOPs and seconds of the factors' large products so far */
    bool stopped;
} laplace_course;

void laplace_course_step(laplace_course *course, laplace_step step);
/** `rows` tokens were added to the output factor in `seconds` seconds. */
void laplace_course_measure(laplace_course *course, double rows, double seconds);
/** Report the completed part of the step (0 to 1; unknown for LAPLACE_EIGEN) to the listener.
 * Errors: BP_ERR_STOPPED this rank was asked to stop. */
bp_err laplace_course_report(laplace_course *course, double share);
/** The same for bp_distributed_eigen: must this rank stop? */
bool laplace_course_stop(void *course);
/** The failure of a fit that was stopped. Errors: BP_ERR_STOPPED, always. */
bp_err laplace_course_stopped(void);

/* ---- laplace_factors.c ---- */

typedef struct laplace_factors {
    bp_grid *grid;          /* of mesh->compute */
    bp_distributed *input;  /* A [C][C], on and above the diagonal */
    bp_distributed *output; /* G [V][V], likewise */
    int64_t tokens;         /* over all ranks */
    double log_likelihood;  /* of them, per token */
} laplace_factors;

/** The input of a fit. */
typedef struct laplace_text {
    const char *corpus;
    const char *path; /* bp_score_each.path */
    int64_t tokens;   /* maximum; documents for a task */
    bool ends;        /* documents end with the end-of-document token, which is a target too */
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

/** Approximate peak bytes of this on a rank. Local. */
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
 * Errors:     those of bp_distributed_eigen (BP_ERR_STOPPED: everything on the grid is abandoned)
 *             and of bp_distributed_new.
 */
bp_err laplace_spectra_init(laplace_spectra *spectra, laplace_factors *factors,
                            laplace_course *course);
void laplace_spectra_clear(laplace_spectra *spectra);

/* ---- laplace_prior.c ---- */

/** Input for choosing the prior precision. The `size` ranks share the work of a sum over the
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
 * laplace_evidence_close. Errors: BP_ERR_SYSTEM, the same on all ranks, with nothing to close. */
bp_err laplace_evidence_open(laplace_evidence *evidence);
void laplace_evidence_close(laplace_evidence *evidence);

/** sum_ij N g_i a_j / (N g_i a_j + tau). Collective over evidence->comm, like the functions below.
 */
double laplace_effective_parameters(const laplace_evidence *evidence, double tau);
/** The part of the log evidence that depends on tau: all except the likelihood; see laplace.h. */
double laplace_log_evidence(const laplace_evidence *evidence, double tau);
/** The tau with the largest evidence, to 12 digits: the solution of tau |W|^2 = number of
 * effective parameters. It is unique: the right side falls with tau while the left side grows.
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

/** Bytes that writing them takes on rank 0 of the grid, without matrices. */
int64_t laplace_draw_bytes(int64_t C);
/** Draw all samples of `file` and write them: `file` is on rank 0 of the grid.
 *
 * Collective: over the grid's communicator, `comm`.
 * Errors:     those of bp_distributed_new and of bp_head_samples_write; BP_ERR_STOPPED: the same on
 *             all ranks.
 */
bp_err laplace_draw_samples(const laplace_draw *draw, MPI_Comm comm, bp_head_samples *file,
                            int64_t samples);
