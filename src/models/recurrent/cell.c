/* The cell of a recurrent model that is a graph: which operation each node has, and where it reads.
 */
#include "models/recurrent/recurrent.h"

#include <math.h>

/* The meaning of an operation's word, minus one: bp_cell_operation, and after it BP_CELL_MIXED. */
#define MIXED BP_NODE_OPERATIONS

const bp_option bp_cell_keys[] = {
    {BP_INT_KEY("model.embedding", NULL, 1, 1 << 20),
     .help = "width of the word vectors; model.width if not given"},
    {BP_STRING_KEY("model.cell", NULL),
     .help = "the cell's nodes, each OPERATION:NODE that it reads, 0 being the entry; operations "
             "are none, tanh, relu, sigmoid, identity; mixed:8 is 8 nodes of all operations of all "
             "nodes before them, for a search; DARTS' published cell if not given"},
    {0}};

/* The cell that Liu, Simonyan and Yang 2019 found on the Penn Treebank with second-order steps. */
static const struct {
    bp_cell_operation operation;
    int from;
} PUBLISHED[] = {{BP_NODE_SIGMOID, 0},  {BP_NODE_RELU, 1}, {BP_NODE_RELU, 1},
                 {BP_NODE_IDENTITY, 1}, {BP_NODE_TANH, 2}, {BP_NODE_SIGMOID, 5},
                 {BP_NODE_TANH, 3},     {BP_NODE_RELU, 5}};

void bp_cell_fill_default(bp_model_shape *shape)
{
    int64_t *nodes = bp_recurrent_sizes_in(shape)->cell;

    for (size_t k = 0; k < sizeof PUBLISHED / sizeof *PUBLISHED && nodes[k] == 0; k++)
        nodes[k] = bp_pair_of((int64_t)PUBLISHED[k].operation + 1, PUBLISHED[k].from);
}

bp_cell_graph bp_cell_graph_of(const bp_model_shape *shape)
{
    const int64_t *nodes = bp_recurrent_sizes_of(shape)->cell;
    bp_cell_graph graph = {0};

    if (bp_pair_first(nodes[0]) - 1 == MIXED)
        return (bp_cell_graph){.mixed = true, .nodes = (int)bp_pair_second(nodes[0])};
    for (; graph.nodes < BP_CELL_NODES && nodes[graph.nodes] != 0; graph.nodes++) {
        graph.node[graph.nodes].operation =
            (bp_cell_operation)(bp_pair_first(nodes[graph.nodes]) - 1);
        graph.node[graph.nodes].from = (int)bp_pair_second(nodes[graph.nodes]);
    }
    return graph;
}

const char *bp_cell_fault(const bp_model_shape *shape)
{
    const int64_t *nodes = bp_recurrent_sizes_of(shape)->cell;

    if (bp_pair_first(nodes[0]) - 1 == MIXED)
        return bp_pair_second(nodes[0]) < 1 || bp_pair_second(nodes[0]) > BP_CELL_NODES
                   ? "mixed:N has N nodes, 1 to 16"
               : nodes[1] != 0      ? "mixed:N stands alone"
               : shape->layers != 1 ? "a mixed cell is searched in one layer: model.layers is 1"
                                    : NULL;
    for (int k = 0; k < BP_CELL_NODES && nodes[k] != 0; k++)
        if (bp_pair_first(nodes[k]) - 1 == MIXED || bp_pair_second(nodes[k]) > k)
            return "node K, from 1 on, reads one of 0 to K - 1, and no node of many is mixed";
    return NULL;
}

/* The best operation of an edge, except "none"; *share: its share of all. */
static int best_of(const double *weights, double *share)
{
    double sum = 0;
    int best = BP_NODE_NONE + 1;

    for (int k = BP_NODE_NONE + 2; k < BP_NODE_OPERATIONS; k++)
        best = weights[k] > weights[best] ? k : best;
    for (int k = 0; k < BP_NODE_OPERATIONS; k++)
        sum += exp(weights[k] - weights[best]);
    *share = 1 / sum;
    return best;
}

void bp_cell_derive(const bp_cell_graph *graph, const double *weights, char cell[BP_CELL_TEXT])
{
    int64_t nodes[BP_CELL_NODES] = {0};

    for (int i = 0, edge = 0; i < graph->nodes; i++) {
        double most = -1;

        for (int from = 0; from <= i; from++, edge++) {
            double share;
            int operation = best_of(weights + (ptrdiff_t)edge * BP_NODE_OPERATIONS, &share);

            if (share > most)
                nodes[i] = bp_pair_of(operation + 1, from);
            most = fmax(most, share);
        }
    }
    bp_pairs_write(cell, BP_CELL_TEXT, nodes, graph->nodes, BP_CELL_WORDS);
}
