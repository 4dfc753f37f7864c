/* Strangers' files that a sandbox has found good: inspected once, by one rank. */
#ifndef BP_STORE_CORPUS_ADMIT_H
#define BP_STORE_CORPUS_ADMIT_H

#include <mpi.h>

/** What rank 0 of `comm` has found good so far need not be inspected on the others: rank 0 opens
 * its corpora first, all call this, then the others open theirs. A file that is another one on
 * another host is inspected there.
 *
 * Collective: over `comm`. */
void bp_corpus_admitted_share(MPI_Comm comm);

#endif
