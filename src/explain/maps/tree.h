/* A tree of squares over points on a map (Barnes and Hut 1986): distant points act as one. Called
 * by tsne.c. */
#pragma once

#include "explain/maps/maps.h"

typedef struct bp_tree_cell {
    double x, y, width; /* its centre, and its side */
    double sum[2];      /* of its points */
    int64_t count;      /* of its points */
    int32_t child[4];   /* 0 if there is none */
    bool leaf;          /* its points are at one place, or too close to separate */
} bp_tree_cell;
typedef struct bp_tree {
    bp_tree_cell *cells; /* the first is the root */
    int64_t count, capacity;
} bp_tree;
/** Build the tree of y[n][2]. Owns: bp_tree_clear(), after an error too. Errors: BP_ERR_SYSTEM. */
bp_err bp_tree_of(bp_tree *tree, const double *y, int64_t n);
void bp_tree_clear(bp_tree *tree);
/** force[2] = the sum over other points of q^2 (y_i - y); returns the sum of q = 1 / (1 + d^2).
 */
double bp_tree_repel(const bp_tree *tree, const double *y, int64_t i, double theta,
                     double force[2]);
