/* Exchange of rows between ranks, also more than INT_MAX. */
#pragma once

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/** in[r]: the value sent from rank r to this one, out[r]: from this one to rank r. Returns the sum
 * of in.
 *
 * Collective: over `comm`. Shapes: in[size], out[size]. */
int64_t ngram_exchange_counts(int64_t *in, const int64_t *out, MPI_Comm comm);

/** Rows of `bytes` bytes: out_counts[r] of them go to rank r, in the order of ranks, and
 * in_counts[r] come from it. Ranks that have nothing for each other exchange no message, so a rank
 * sends as many as it has rows, or one to each other rank.
 *
 * Collective: over `comm`. Shapes: in[sum of in_counts], out[sum of out_counts]. */
void ngram_exchange_rows(void *in, const int64_t *in_counts, const void *out,
                         const int64_t *out_counts, size_t bytes, MPI_Comm comm);
