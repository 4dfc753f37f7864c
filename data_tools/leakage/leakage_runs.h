/* The longest runs of tokens that short texts have in common with a corpus: a suffix automaton of
 * the texts, through which the corpus is read once. Local: no MPI.
 *
 * Source: Blumer et al. 1985, The smallest automaton recognizing the subwords of a text; of several
 * texts, each begins at the first state. */
#ifndef BP_DATA_TOOLS_LEAKAGE_RUNS_H
#define BP_DATA_TOOLS_LEAKAGE_RUNS_H

#include <stdint.h>

typedef struct run_state {
    int64_t link; /* the state of its longest suffix in another one; -1: the first state has none */
    int32_t length; /* of its longest text */
    int64_t edges;  /* the first of its list; -1: none */
} run_state;

typedef struct run_edge {
    int64_t from, to, next; /* next of the same state; from -1: free */
    int32_t token;
} run_edge;

/** {0}: of no text. */
typedef struct run_index {
    run_state *states; /* [count] */
    int32_t *found; /* [count]; NULL: nothing was read. The longest suffix of a state's texts in the
                       corpus so far */
    int64_t count, capacity, found_capacity;
    run_edge *edges; /* [mask + 1], by state and token */
    int64_t edge_count, mask;
} run_index;

/** All texts are added before anything is read. */
void run_index_add(run_index *index, const int32_t *tokens, int64_t count);
void run_index_clear(run_index *index);

/** A document of the corpus, whose runs end with it. */
void run_index_read(run_index *index, const int32_t *tokens, int64_t count);
/** After all documents (found[] may be the maxima of several ranks'). */
void run_index_finish(run_index *index);

/** The longest run of an added text that the corpus has, and where it begins in the text. */
int64_t run_index_longest(const run_index *index, const int32_t *tokens, int64_t count,
                          int64_t *start);

#endif
