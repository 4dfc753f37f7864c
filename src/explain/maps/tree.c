/* The tree of tree.h: points are added one after another, in their order. */
#include "explain/maps/tree.h"

#include "base/mem.h"

#include <math.h>

#define DEPTH 48 /* of cells; deeper, points of a cell are not separated */

static int quarter_of(const bp_tree_cell *cell, const double *point)
{
    return (point[0] > cell->x) + 2 * (point[1] > cell->y);
}

static bp_err add_cell(bp_tree *tree, double x, double y, double width)
{
    if (tree->count == tree->capacity) {
        int64_t capacity = 2 * tree->capacity + 64;
        bp_tree_cell *cells = bp_try_realloc("explain.tree", tree->cells, capacity, sizeof *cells);

        if (!cells)
            return bp_fail_memory("a tree of points", capacity, sizeof *cells);
        tree->cells = cells;
        tree->capacity = capacity;
    }
    tree->cells[tree->count++] = (bp_tree_cell){.x = x, .y = y, .width = width, .leaf = true};
    return BP_OK;
}

/* *at becomes the child of cell *at that contains a point. */
static bp_err descend(bp_tree *tree, int64_t *at, const double *point)
{
    const bp_tree_cell *cell = &tree->cells[*at];
    int quarter = quarter_of(cell, point);
    double half = cell->width / 4;
    bp_err err = BP_OK;

    if (cell->child[quarter] == 0) {
        err = add_cell(tree, cell->x + (quarter & 1 ? half : -half),
                       cell->y + (quarter & 2 ? half : -half), cell->width / 2);
        if (err == BP_OK)
            tree->cells[*at].child[quarter] = (int32_t)(tree->count - 1);
    }
    if (err == BP_OK)
        *at = tree->cells[*at].child[quarter];
    return err;
}

static void count_in(bp_tree_cell *cell, const double *sum, int64_t count)
{
    cell->sum[0] += sum[0];
    cell->sum[1] += sum[1];
    cell->count += count;
}

/* A leaf's points go one cell down. */
static bp_err part(bp_tree *tree, int64_t at)
{
    const bp_tree_cell old = tree->cells[at];
    const double point[] = {old.sum[0] / (double)old.count, old.sum[1] / (double)old.count};
    int64_t below = at;
    bp_err err = descend(tree, &below, point);

    if (err != BP_OK)
        return err;
    count_in(&tree->cells[below], old.sum, old.count);
    tree->cells[at].leaf = false;
    return BP_OK;
}

static bool is_at(const bp_tree_cell *leaf, const double *point)
{
    return leaf->sum[0] == point[0] * (double)leaf->count &&
           leaf->sum[1] == point[1] * (double)leaf->count;
}

static bp_err add_point(bp_tree *tree, const double *point)
{
    bp_err err = BP_OK;
    int64_t at = 0;

    for (int depth = 0; err == BP_OK; depth++) {
        bp_tree_cell *cell = &tree->cells[at];
        bool ends = cell->leaf && (cell->count == 0 || depth == DEPTH || is_at(cell, point));

        if (!ends && cell->leaf)
            err = part(tree, at);
        count_in(&tree->cells[at], point, 1);
        if (ends || err != BP_OK)
            break;
        err = descend(tree, &at, point);
    }
    return err;
}

bp_err bp_tree_of(bp_tree *tree, const double *y, int64_t n)
{
    double least[2] = {INFINITY, INFINITY}, most[2] = {-INFINITY, -INFINITY};
    bp_err err;

    for (int64_t k = 0; k < 2 * n; k++) {
        least[k % 2] = fmin(least[k % 2], y[k]);
        most[k % 2] = fmax(most[k % 2], y[k]);
    }
    *tree = (bp_tree){0};
    err = add_cell(tree, (least[0] + most[0]) / 2, (least[1] + most[1]) / 2,
                   fmax(most[0] - least[0], most[1] - least[1]) * (1 + 1e-9) + 1e-300);
    for (int64_t i = 0; i < n && err == BP_OK; i++)
        err = add_point(tree, y + 2 * i);
    return err;
}

void bp_tree_clear(bp_tree *tree)
{
    bp_free(tree->cells);
}

/* Is point i below this cell? Follows the path on which it was added. */
static double visit(const bp_tree *tree, int64_t at, const double *own, bool inside, double theta,
                    double force[2])
{
    const bp_tree_cell *cell = &tree->cells[at];
    int64_t others = cell->count - (inside && cell->leaf);
    double sum = 0;

    if (others == 0)
        return 0;
    double x = (cell->sum[0] - (inside && cell->leaf ? own[0] : 0)) / (double)others,
           y = (cell->sum[1] - (inside && cell->leaf ? own[1] : 0)) / (double)others,
           dx = own[0] - x, dy = own[1] - y, square = dx * dx + dy * dy;

    if (cell->leaf || (!inside && cell->width * cell->width < theta * theta * square)) {
        double q = 1 / (1 + square);

        force[0] += (double)others * q * q * dx;
        force[1] += (double)others * q * q * dy;
        return (double)others * q;
    }
    for (int k = 0; k < 4; k++)
        if (cell->child[k] > 0)
            sum += visit(tree, cell->child[k], own, inside && quarter_of(cell, own) == k, theta,
                         force);
    return sum;
}

double bp_tree_repel(const bp_tree *tree, const double *y, int64_t i, double theta, double force[2])
{
    force[0] = force[1] = 0;
    return visit(tree, 0, y + 2 * i, true, theta, force);
}
