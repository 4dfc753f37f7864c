/* Attention flow: maximum flows through the graph of layers, by Dinic's algorithm. Every path from
 * a place above to an input has one edge a layer, or goes back through a residual edge. Called by
 * weights.c. */
#include "explain/examples/examples.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"

#include <string.h>

#define LEAST 1e-12 /* smallest residual capacity used */

/* Node (l, i) is l T + i; layer `layers` is above. Capacities from (l + 1, i) to (l, j). */
typedef struct graph {
    int64_t layers, T;
    const double *whole; /* [layers][T][T] */
    double *left;        /* [layers][T][T] down; */
    double *back;        /* the same edges up */
    int64_t *level, *next, *queue;
} graph;

/* Edge e of a node: [0, T) down to place e, [T, 2 T) up. NULL if there is none. */
static double *edge_of(const graph *self, int64_t node, int64_t e, int64_t *to)
{
    int64_t T = self->T, l = node / T, i = node % T, j = e % T;

    if (e < T && l > 0) {
        *to = (l - 1) * T + j;
        return self->left + ((l - 1) * T + i) * T + j;
    }
    if (e >= T && l < self->layers) {
        *to = (l + 1) * T + j;
        return self->back + (l * T + j) * T + i;
    }
    return NULL;
}

static double *reverse_of(const graph *self, int64_t node, int64_t e)
{
    int64_t T = self->T, l = node / T, i = node % T, j = e % T;

    return e < T ? self->back + ((l - 1) * T + i) * T + j : self->left + (l * T + j) * T + i;
}

/* Distances from `source` in the residual graph; returns whether `sink` is reached. */
static bool find_levels(graph *self, int64_t source, int64_t sink)
{
    int64_t nodes = (self->layers + 1) * self->T, first = 0, end = 1, to = 0;

    for (int64_t n = 0; n < nodes; n++)
        self->level[n] = -1;
    self->level[source] = 0;
    self->queue[0] = source;
    while (first < end) {
        int64_t node = self->queue[first++];

        for (int64_t e = 0; e < 2 * self->T; e++) {
            const double *left = edge_of(self, node, e, &to);

            if (!left || *left <= LEAST || self->level[to] >= 0)
                continue;
            self->level[to] = self->level[node] + 1;
            self->queue[end++] = to;
        }
    }
    return self->level[sink] >= 0;
}

/* Send the most possible from `node` to `sink` along one path of levels. */
static double push(graph *self, int64_t node, int64_t sink, double most)
{
    int64_t to = 0;

    if (node == sink)
        return most;
    for (; self->next[node] < 2 * self->T; self->next[node]++) {
        int64_t e = self->next[node];
        double *left = edge_of(self, node, e, &to), pushed;

        if (!left || *left <= LEAST || self->level[to] != self->level[node] + 1)
            continue;
        pushed = push(self, to, sink, most < *left ? most : *left);
        if (pushed <= 0)
            continue;
        *left -= pushed;
        *reverse_of(self, node, e) += pushed;
        return pushed;
    }
    return 0;
}

static double flow_between(graph *self, int64_t source, int64_t sink)
{
    size_t bytes = (size_t)(self->layers * self->T * self->T) * sizeof(double);
    double all = 0, pushed;

    memcpy(self->left, self->whole, bytes);
    memset(self->back, 0, bytes);
    while (find_levels(self, source, sink)) {
        memset(self->next, 0, (size_t)((self->layers + 1) * self->T) * sizeof *self->next);
        while ((pushed = push(self, source, sink, 1)) > 0)
            all += pushed;
    }
    return all;
}

bp_err explain_flow(float *flow, const float *mean, int64_t layers, int64_t T)
{
    int64_t cells = layers * T * T, nodes = (layers + 1) * T;
    double *capacities = bp_try_alloc("explain.flow", 3 * cells, sizeof *capacities);
    int64_t *lists = bp_alloc("explain.flow", 3 * nodes, sizeof *lists);
    graph self = {layers,
                  T,
                  capacities,
                  capacities + cells,
                  capacities + 2 * cells,
                  lists,
                  lists + nodes,
                  lists + 2 * nodes};

    if (!capacities) {
        bp_free(lists);
        return bp_fail_memory("capacities of attention", 3 * cells, sizeof *capacities);
    }
    for (int64_t c = 0; c < cells; c++)
        capacities[c] = (double)mean[c] / 2 + (c / T % T == c % T ? 0.5 : 0);
    for (int64_t i = 0; i < T; i++) {
        bp_heartbeat_progress();
        for (int64_t j = 0; j < T; j++)
            flow[i * T + j] = (float)flow_between(&self, layers * T + i, j);
    }
    bp_free(lists);
    bp_free(capacities);
    return BP_OK;
}
