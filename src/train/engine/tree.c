/* The gradient tree: when partial sums over micro-batches are added, so that bits do not depend on
 * the number of data ranks. Pure. Called by stage.c. */
#include "train/engine/tree.h"

int bp_tree_merges(int64_t leaf, int64_t count)
{
    int64_t low = 0, high = count;
    int merges = 0;

    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        merges += leaf == high - 1;
        if (leaf < middle)
            high = middle;
        else
            low = middle;
    }
    return merges;
}

int bp_tree_depth(int64_t count)
{
    int depth = 1;

    for (; count > 1; count -= count / 2) /* the left half's sum is kept for the right one */
        depth++;
    return depth;
}

double bp_tree_sum(const double *x, int64_t count)
{
    if (count <= 1)
        return count == 1 ? x[0] : 0;
    return bp_tree_sum(x, count / 2) + bp_tree_sum(x + count / 2, count - count / 2);
}
