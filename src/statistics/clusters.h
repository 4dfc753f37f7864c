/* Clusters of documents that depend on each other, such as passages of one book, and are drawn
 * together in resamples. Local: no MPI. */
#pragma once

#include <stdint.h>

/** local[count]: the number of each document's cluster among those of `documents`, from 0 in the
 * order in which they first occur (NULL: not wanted). Returns how many there are.
 *
 * Shapes:     cluster[all documents], numbers from 0; NULL: each document is one.
 *             documents[count], indices into cluster; NULL: 0, 1, ... count - 1. */
int64_t bp_clusters_of(int64_t *local, const int64_t *cluster, const int64_t *documents,
                       int64_t count);

/** Replace values[documents] by their sums over clusters of local[documents], of which there are
 * `clusters`: values[clusters]; in document order. */
void bp_clusters_sum(double *values, const int64_t *local, int64_t documents, int64_t clusters);
