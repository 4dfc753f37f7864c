/* The fixed binary tree over a step's micro-batches: the list is halved, the first floor(n/2) to
 * the left, down to one. With this order the bits are the same at any power-of-two number of data
 * ranks (src/train/README.md). */
#pragma once

#include <stdint.h>

/** How many subtrees are completed by leaf `leaf` of `count`: the number of times that the last two
 * partial sums are added. */
int bp_tree_merges(int64_t leaf, int64_t count);
/** Most partial sums held at once while leaves come in order: ceil(log2 count) + 1. */
int bp_tree_depth(int64_t count);
/** The tree's sum of x[count]. */
double bp_tree_sum(const double *x, int64_t count);
