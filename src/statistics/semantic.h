/* Texts that answer one prompt, clustered by meaning, and the entropy of the clusters. Local: no
 * MPI. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** same[k]: do text `one` and text others[k] mean the same? Returns false if it can't decide, which
 * ends the clustering. */
typedef bool (*bp_semantic_same)(void *context, int64_t one, const int64_t *others, int64_t count,
                                 bool *same);

/** cluster[n]: each text in the order given joins the first cluster whose first text means the
 * same, or begins one. Returns the number of clusters; -1 if `same` failed.
 *
 * Source:     Kuhn, Gal and Farquhar 2023 (arXiv:2302.09664), algorithm 1. */
int64_t bp_semantic_clusters(int64_t *cluster, int64_t n, bp_semantic_same same, void *context);

/** Entropy of the clusters, in nats: - sum_c p_c log p_c, p_c in proportion to the sum over the
 * cluster's texts of exp(logprob[k] / tokens[k]); logprob NULL: to their number.
 *
 * Source:     Kuhn et al. 2023, section 4, with lengths normalised (Malinin and Gales 2021); the
 *             probabilities of clusters sum to 1, and the discrete variant, are those of Farquhar
 *             et al. 2024 (Nature 630). */
double bp_semantic_entropy(const int64_t *cluster, int64_t clusters, const double *logprob,
                           const int64_t *tokens, int64_t n);
