/* The longest runs of tokens that short texts have in common with a corpus: a suffix automaton of
 * the texts, through which the corpus is read once. Local: no MPI.
 *
 * Source: Blumer et al. 1985, The smallest automaton recognizing the subwords of a text; for
 *         several texts, each begins at the first state. */
#pragma once

#include <stdint.h>

typedef struct run_state {
    int64_t link;   /* the state of its longest suffix in another state; -1 for the first state */
    int32_t length; /* length of its longest text */
    int64_t edges;  /* the first of its list; -1 if it is empty */
} run_state;

typedef struct run_edge {
    int64_t from, to, next; /* next of the same state; from -1: a free entry */
    int32_t token;
} run_edge;

/** {0}: without texts. */
typedef struct run_index {
    run_state *states; /* [count] */
    int32_t *found;    /* [count]; NULL before reading. The longest suffix of a state's texts in the
                          corpus so far */
    int64_t count, capacity, found_capacity;
    run_edge *edges; /* [mask + 1], by state and token */
    int64_t edge_count, mask;
} run_index;

/** Add a text. All texts must be added before reading. */
void run_index_add(run_index *index, const int32_t *tokens, int64_t count);
void run_index_clear(run_index *index);

/** Read a document of the corpus; runs end with it. */
void run_index_read(run_index *index, const int32_t *tokens, int64_t count);
/** Call after all documents (found[] may be the maxima over several ranks). */
void run_index_finish(run_index *index);

/** The longest run of an added text in the corpus, and its offset in the text. */
int64_t run_index_longest(const run_index *index, const int32_t *tokens, int64_t count,
                          int64_t *start);
