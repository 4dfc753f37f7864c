/* Non-negative factors of a matrix: X ~ W H, by multiplicative updates, W first. Called by
 * factors.c. */
#pragma once

#include <mpi.h>
#include <stdint.h>

/** X is divided into blocks of columns; one rank has each block and its part of H. W is on all
 * ranks. Sums over columns add block sums in the order of blocks: the same bytes at any number of
 * ranks. */
typedef struct bp_factorisation {
    MPI_Comm group;
    int64_t n, k;           /* rows, factors */
    int64_t blocks, width;  /* of columns */
    const double *const *x; /* [blocks] of [n][width]; NULL if another rank's */
    double *w;              /* [n][k] */
    double *const *h;       /* [blocks] of [k][width]; NULL if another rank's */
    double *work;           /* bp_factorise_work() doubles */
} bp_factorisation;

int64_t bp_factorise_work(int64_t n, int64_t k, int64_t blocks, int64_t width);
/** W o (X Ht) / (W H Ht), then H o (Wt X) / (Wt W H) with the new W; a denominator of 0 is 2^-23.
 * Collective over the group. Source: Lee and Seung 2001, "Algorithms for Non-negative Matrix
 * Factorization". */
void bp_factorise_step(const bp_factorisation *self);
/** |X - W H|^2 / 2. Collective over the group. */
double bp_factorise_objective(const bp_factorisation *self);
