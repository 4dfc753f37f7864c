/* The nodes of a recurrent layer's cell that is a graph, position by position. States of a
 * position are contiguous, so that a node of a mixed cell reads all earlier nodes in one product.
 * Called by recurrent_layer.c and recurrent_decode.c. */
#include "nn/recurrent/recurrent_priv.h"

#include "base/err.h"
#include "math/kernels/kernels.h"

#include <math.h>
#include <string.h>

#define EPSILON 1e-5F /* of the batch normalisation */

/* Where node `i`, from 1 on, reads. */
static int first_of(const bp_cell_graph *graph, int i)
{
    return graph->mixed ? 0 : graph->node[i - 1].from;
}

static int edges_of(const bp_cell_graph *graph, int i)
{
    return graph->mixed ? i : 1;
}

/* Edges of the nodes before it. */
static int edges_before(const bp_cell_graph *graph, int i)
{
    return graph->mixed ? i * (i - 1) / 2 : i - 1;
}

int bp_cell_graph_edges(const bp_cell_graph *graph)
{
    return edges_before(graph, graph->nodes + 1);
}

/* The most that a node reads. */
static int most_edges(const bp_cell_graph *graph)
{
    return edges_of(graph, graph->nodes);
}

graph_states graph_alloc(const recurrent_layer *self, bp_arena *arena, int64_t B, int64_t T)
{
    const bp_cell_graph *graph = &self->shape.graph;
    int64_t H = self->shape.H, rows = T * B;
    graph_states out = {
        .B = B,
        .T = T,
        .node = bp_arena_floats(arena, rows * (graph->nodes + 1) * H),
        .sums = bp_arena_floats(arena, rows * bp_cell_graph_edges(graph) * 2 * H),
    };

    if (graph->mixed)
        out.rstd = bp_arena_floats(arena, T * (graph->nodes + 1) * H);
    return out;
}

graph_gradients graph_alloc_gradients(const recurrent_layer *self, bp_arena *arena, int64_t B,
                                      int64_t T)
{
    const bp_cell_graph *graph = &self->shape.graph;
    int64_t H = self->shape.H, most = most_edges(graph);
    graph_gradients out = {
        .node = bp_arena_floats(arena, (graph->nodes + 1) * B * H),
        .past = bp_arena_floats(arena, most * B * H),
        .read = bp_arena_floats(arena, T * most * B * H),
    };

    if (graph->mixed) /* doubles */
        out.scratch = (double *)(void *)bp_arena_floats(arena, 2 * bp_node_scratch(B));
    return out;
}

/* ---- positions ---- */

static float *node_at(const recurrent_layer *self, const graph_states *g, int64_t t, int i)
{
    return g->node + (t * (self->shape.graph.nodes + 1) + i) * g->B * self->shape.H;
}

/* The sums of node i's edges: those of all positions are contiguous. */
static float *sums_at(const recurrent_layer *self, const graph_states *g, int64_t t, int i)
{
    const bp_cell_graph *graph = &self->shape.graph;
    int64_t before = (int64_t)edges_before(graph, i) * g->T + t * edges_of(graph, i);

    return g->sums + before * g->B * 2 * self->shape.H;
}

static float *rstd_at(const recurrent_layer *self, const graph_states *g, int64_t t, int i)
{
    return g->rstd + (t * (self->shape.graph.nodes + 1) + i) * self->shape.H;
}

/* Edge e of node i at position t. */
static bp_node_edge edge_of(const recurrent_layer *self, const graph_states *g, int64_t t, int i,
                            int e)
{
    const bp_cell_graph *graph = &self->shape.graph;
    int64_t H = self->shape.H;
    bp_node_edge edge = {.H = H,
                         .state = node_at(self, g, t, first_of(graph, i) + e),
                         .sums = sums_at(self, g, t, i) + e * g->B * 2 * H};

    if (graph->mixed)
        memcpy(edge.share, self->shares[edges_before(graph, i) + e], sizeof edge.share);
    else
        edge.share[graph->node[i - 1].operation] = 1;
    return edge;
}

/* From the state before. */
static bp_node_edge entry_of(const recurrent_layer *self, const float *h, float *gates)
{
    return (bp_node_edge){
        .H = self->shape.H, .state = h, .sums = gates, .share = {[BP_NODE_TANH] = 1}};
}

/* ---- shares ---- */

void graph_refresh(recurrent_layer *self)
{
    const bp_cell_graph *graph = &self->shape.graph;

    for (int i = 0; i < graph->nodes; i++)
        bp_step_weight_refresh(self->node_maps[i]);
    for (int e = 0; graph->mixed && e < bp_cell_graph_edges(graph); e++) {
        const float *mix = self->mix->value + (int64_t)e * BP_NODE_OPERATIONS;
        double most = (double)mix[0], sum = 0;

        for (int k = 1; k < BP_NODE_OPERATIONS; k++)
            most = fmax(most, (double)mix[k]);
        for (int k = 0; k < BP_NODE_OPERATIONS; k++)
            sum += exp((double)mix[k] - most);
        for (int k = 0; k < BP_NODE_OPERATIONS; k++)
            self->shares[e][k] = (float)(exp((double)mix[k] - most) / sum);
    }
}

/* Through the softmax. */
static void give_mix(const recurrent_layer *self, const graph_gradients *to)
{
    const bp_cell_graph *graph = &self->shape.graph;

    for (int e = 0; e < bp_cell_graph_edges(graph); e++) {
        float *mix = self->mix->gradient + (int64_t)e * BP_NODE_OPERATIONS;
        double along = 0;

        for (int k = 0; k < BP_NODE_OPERATIONS; k++)
            along += (double)self->shares[e][k] * to->share[e][k];
        for (int k = 0; k < BP_NODE_OPERATIONS; k++)
            mix[k] += (float)((double)self->shares[e][k] * (to->share[e][k] - along));
    }
}

/* ---- forward ---- */

static void close_node(const recurrent_layer *self, const graph_states *g, int64_t t, int i)
{
    if (self->shape.graph.mixed)
        bp_batch_norm_forward(node_at(self, g, t, i), rstd_at(self, g, t, i), g->B, self->shape.H,
                              EPSILON);
}

void graph_forward(const recurrent_layer *self, const graph_states *g, const bp_cell_units *units,
                   int64_t t)
{
    const bp_cell_graph *graph = &self->shape.graph;
    int64_t H = self->shape.H, state = g->B * H;
    bp_node_edge entry = entry_of(self, units->h, units->gates);

    bp_add(units->gates, units->u, 2 * state);
    bp_zero(node_at(self, g, t, 0), (graph->nodes + 1) * state);
    bp_node_forward(node_at(self, g, t, 0), &entry, g->B);
    close_node(self, g, t, 0);
    for (int i = 1; i <= graph->nodes; i++) {
        bp_step_forward(sums_at(self, g, t, i), node_at(self, g, t, first_of(graph, i)),
                        self->node_maps[i - 1], NULL, edges_of(graph, i) * g->B);
        for (int e = 0; e < edges_of(graph, i); e++) {
            bp_node_edge edge = edge_of(self, g, t, i, e);

            bp_node_forward(node_at(self, g, t, i), &edge, g->B);
        }
        close_node(self, g, t, i);
    }
    memcpy(units->new_h, node_at(self, g, t, 1), (size_t)state * sizeof *units->new_h);
    for (int i = 2; i <= graph->nodes; i++)
        bp_add(units->new_h, node_at(self, g, t, i), state);
    bp_scale(units->new_h, 1 / (float)graph->nodes, state);
}

/* ---- backward ---- */

static void open_node(const recurrent_layer *self, const graph_states *g, const graph_gradients *to,
                      int64_t t, int i)
{
    int64_t H = self->shape.H;

    if (self->shape.graph.mixed)
        bp_batch_norm_backward(to->node + i * g->B * H, node_at(self, g, t, i),
                               rstd_at(self, g, t, i), g->B, H);
}

/* The gradients of its sums take their place. */
static void backward_node(const recurrent_layer *self, const graph_states *g, graph_gradients *to,
                          int64_t t, int i)
{
    const bp_cell_graph *graph = &self->shape.graph;
    int64_t state = g->B * self->shape.H;
    int first = first_of(graph, i), edges = edges_of(graph, i);
    float *from = to->node + first * state;

    open_node(self, g, to, t, i);
    for (int e = 0; e < edges; e++) {
        bp_node_edge edge = edge_of(self, g, t, i, e);
        bool asked = graph->mixed && self->mix->gradient;

        bp_node_backward(
            &(bp_node_gradients){.state = from + e * state,
                                 .sums = edge.sums,
                                 .share = asked ? to->share[edges_before(graph, i) + e] : NULL,
                                 .scratch = to->scratch},
            to->node + i * state, &edge, g->B);
    }
    bp_step_backward(to->past, sums_at(self, g, t, i), self->node_maps[i - 1], edges * g->B);
    bp_add(from, to->past, edges * state);
}

void graph_backward(const recurrent_layer *self, const graph_states *g, graph_gradients *to,
                    const bp_cell_units *units, const bp_cell_gradients *out, int64_t t)
{
    const bp_cell_graph *graph = &self->shape.graph;
    int64_t state = g->B * self->shape.H;
    bp_node_edge entry = entry_of(self, units->h, units->gates);

    bp_scale(out->dh, 1 / (float)graph->nodes, state);
    bp_zero(to->node, state);
    for (int i = 1; i <= graph->nodes; i++)
        memcpy(to->node + i * state, out->dh, (size_t)state * sizeof *to->node);
    for (int i = graph->nodes; i >= 1; i--)
        backward_node(self, g, to, t, i);
    open_node(self, g, to, t, 0);
    bp_zero(out->dh, state);
    bp_node_backward(&(bp_node_gradients){.state = out->dh, .sums = out->da}, to->node, &entry,
                     g->B);
}

/* The inputs of node i at all positions, contiguous. */
static void gather(const recurrent_layer *self, const graph_states *g, float *read, int i)
{
    int64_t floats = edges_of(&self->shape.graph, i) * g->B * self->shape.H;

    for (int64_t t = 0; t < g->T; t++)
        memcpy(read + t * floats, node_at(self, g, t, first_of(&self->shape.graph, i)),
               (size_t)floats * sizeof *read);
}

void graph_backward_weights(const recurrent_layer *self, const graph_states *g,
                            const graph_gradients *to)
{
    const bp_cell_graph *graph = &self->shape.graph;
    int64_t H = self->shape.H;

    if (graph->mixed && self->mix->gradient)
        give_mix(self, to);
    for (int i = 1; i <= graph->nodes && self->nodes->gradient; i++) {
        gather(self, g, to->read, i);
        bp_linear_backward_weight(self->block.nn->gemm, self->nodes->gradient + (i - 1) * 2 * H * H,
                                  NULL, sums_at(self, g, 0, i), to->read,
                                  g->T * edges_of(graph, i) * g->B, 2 * H, H);
    }
}

/* ---- weights ---- */

bp_err graph_bind(recurrent_layer *self)
{
    int64_t H = self->shape.H;
    bp_err err = BP_OK;

    for (int i = 0; i < self->shape.graph.nodes && err == BP_OK; i++)
        err = bp_step_weight_new(&self->node_maps[i], self->block.nn->gemm,
                                 self->nodes->value + i * 2 * H * H, 2 * H, H);
    return err;
}

void graph_free(recurrent_layer *self)
{
    for (int i = 0; i < BP_CELL_NODES; i++)
        bp_step_weight_free(&self->node_maps[i]);
}

void graph_products(const recurrent_layer *self, const bp_extent *most, bp_product_bytes *bytes)
{
    const bp_cell_graph *graph = &self->shape.graph;
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t H = self->shape.H, rows = most_edges(graph) * most->B;
    bp_product_bytes weights = {0};
    size_t step = bp_step_scratch_bytes(gemm, rows, 2 * H, H);

    /* the products of weights' gradients, over all positions */
    bp_product_bytes_add(&weights, self->block.nn, rows * most->T[self->block.stream], 2 * H, H);
    bytes->copies += (size_t)graph->nodes * bp_step_copy_bytes(gemm, 2 * H, H);
    step = step > weights.scratch ? step : weights.scratch;
    bytes->scratch = step > bytes->scratch ? step : bytes->scratch;
}
