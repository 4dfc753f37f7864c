/* Points on a page: principal components, t-SNE, UMAP, and how well a map keeps neighbours. All
 * compute in double, by rows and with sums in a fixed order: the same bytes with any number of
 * threads. Local, unless stated. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/** Called periodically; updates the heartbeat. A result other than BP_OK ends the work, which
 * returns it. */
typedef struct bp_map_watch {
    bp_err (*look)(void *context);
    void *context;
} bp_map_watch;

/** n points in C dimensions. */
typedef struct bp_map_points {
    int64_t n, C;
    const double *x; /* [n][C] */
    bp_map_watch watch;
} bp_map_points;

/* ---- principal components (principal.c) ---- */

typedef struct bp_principal {
    int64_t keep;      /* directions */
    double *mean;      /* [C] */
    double *variance;  /* [C] over n - 1, descending */
    double *direction; /* [keep][C], the entry of the largest magnitude positive */
    double *score;     /* [n][keep] */
} bp_principal;
/** By ScaLAPACK on this rank only, so that bytes are equal on all meshes.
 *
 * Owns: bp_principal_clear(), after an error too. Errors: those of math/scalapack. */
bp_err bp_principal_of(bp_principal *out, const bp_map_points *points, int64_t keep);
void bp_principal_clear(bp_principal *principal);

/* ---- neighbours (near.c) ---- */

/** The nearest neighbours of each point except itself, by distance, the first of equal ones. */
typedef struct bp_near {
    int64_t n, k;
    int32_t *point;   /* [n][k] */
    double *distance; /* [n][k] */
} bp_near;
/** k < n. Owns: bp_near_clear(), after an error too. Errors: BP_ERR_SYSTEM, those of the watch. */
bp_err bp_near_of(bp_near *out, const bp_map_points *points, int64_t k);
void bp_near_clear(bp_near *near);

/** How well `maps` of two columns keep the k nearest neighbours of the points: trustworthiness
 * counts false neighbours on the map, continuity neighbours that the map loses; 1 is best. 3 k + 1
 * < 2 n. Errors: BP_ERR_SYSTEM, those of the watch. Source: Venna and Kaski 2001. */
typedef struct bp_map_quality {
    const double *y; /* [n][2] */
    double trustworthiness, continuity;
} bp_map_quality;
bp_err bp_map_qualities(bp_map_quality *maps, int count, const bp_map_points *points, int64_t k);

/* ---- sparse symmetric matrices ---- */

typedef struct bp_edges {
    int64_t n;
    int64_t *first; /* [n + 1] */
    int32_t *to;    /* [first[n]] ascending in a row */
    double *weight;
} bp_edges;
/** The union of a row's weights to its neighbours w[n][k] with the transposed ones: (w + w')/(2 n),
 * or w + w' - w w' (fuzzy). Owns: bp_edges_clear(). */
void bp_edges_of(bp_edges *out, const bp_near *near, const double *w, bool fuzzy);
void bp_edges_clear(bp_edges *edges);

/* ---- t-SNE (tsne.c) ---- */

/** P, from the nearest neighbours: beta[n] (may be NULL) are 1 / (2 sigma^2) such that the entropy
 * of a row is ln(perplexity). Source: van der Maaten and Hinton 2008. */
void bp_tsne_affinities(bp_edges *out, double *beta, const bp_near *near, double perplexity);

typedef struct bp_tsne_phase {
    int64_t steps;
    double momentum, exaggeration;
} bp_tsne_phase;
typedef struct bp_tsne {
    const bp_edges *p;
    double theta; /* of Barnes and Hut: cells narrower than theta x their distance act as one point;
                     0: all pairs */
    double rate;
    bp_map_watch watch;
    double *y; /* [n][2] start, and result */
} bp_tsne;
/** gradient[n][2] of KL(exaggeration P | Q), and the divergence for P itself. Errors:
 * BP_ERR_SYSTEM.
 * Source: van der Maaten 2014, "Accelerating t-SNE using Tree-Based Algorithms". */
bp_err bp_tsne_gradient(const bp_tsne *tsne, double exaggeration, double *gradient,
                        double *divergence);
/** Run phases one after another, with gains. *divergence is that of the result. */
bp_err bp_tsne_run(const bp_tsne *tsne, const bp_tsne_phase *phases, int count, double *divergence);

/* ---- UMAP (umap.c) ---- */

/** The fuzzy graph of k - 1 nearest neighbours; rho[n], sigma[n] (may be NULL). Source: McInnes et
 * al. 2018. */
void bp_umap_graph(bp_edges *out, double *rho, double *sigma, const bp_near *near);
/** Lay out a graph, starting from y[n][2], with draws keyed by `seed`. Errors: those of the
 * watch. */
bp_err bp_umap_lay_out(double *y, const bp_edges *graph, uint64_t seed, const bp_map_watch *watch);
