/* Recurrent cells: runs of units are shared over threads. */
#include "math/kernels/cells.h"

#include "math/loops/loops.h"

#define RUN      128 /* units that a thread takes at once */
#define PARALLEL 4096

static const int64_t GATES[] = {[BP_CELL_RNN] = 1, [BP_CELL_LSTM] = 4, [BP_CELL_GRU] = 3};

static float *place_of(float *x, int64_t place)
{
    return x ? x + place : x;
}

static const float *at_const(const float *x, int64_t place)
{
    return x ? x + place : x;
}

/* Run k of all rows: units [*first of row *row, ...). */
static bp_cell_units run_of(const bp_cell_units *all, int64_t gates, int64_t k, int64_t *state,
                            int64_t *sums)
{
    int64_t H = all->H, runs = (H + RUN - 1) / RUN, row = k / runs, first = k % runs * RUN;

    *state = row * H + first;
    *sums = row * gates * H + first;
    return (bp_cell_units){.H = H,
                           .n = first + RUN < H ? RUN : H - first,
                           .gates = all->gates + *sums,
                           .u = at_const(all->u, *sums),
                           .h = at_const(all->h, *state),
                           .c = at_const(all->c, *state),
                           .new_h = place_of(all->new_h, *state),
                           .new_c = place_of(all->new_c, *state),
                           .kept = place_of(all->kept, *state),
                           .clip = all->clip};
}

void bp_cell_forward(bp_recurrent_cell cell, const bp_cell_units *of, int64_t rows)
{
    const bp_loops *loops = bp_loops_best();
    void (*const FORWARD[])(const bp_cell_units *) = {
        [BP_CELL_RNN] = loops->rnn_forward,
        [BP_CELL_LSTM] = loops->lstm_forward,
        [BP_CELL_GRU] = loops->gru_forward,
    };
    int64_t runs = rows * ((of->H + RUN - 1) / RUN);

#pragma omp parallel for schedule(static) if (rows * of->H > PARALLEL)
    for (int64_t k = 0; k < runs; k++) {
        int64_t state, sums;
        bp_cell_units run = run_of(of, GATES[cell], k, &state, &sums);

        FORWARD[cell](&run);
    }
}

void bp_cell_backward(bp_recurrent_cell cell, const bp_cell_units *of, const bp_cell_gradients *to,
                      int64_t rows)
{
    const bp_loops *loops = bp_loops_best();
    void (*const BACKWARD[])(const bp_cell_units *, const bp_cell_gradients *) = {
        [BP_CELL_RNN] = loops->rnn_backward,
        [BP_CELL_LSTM] = loops->lstm_backward,
        [BP_CELL_GRU] = loops->gru_backward,
    };
    int64_t runs = rows * ((of->H + RUN - 1) / RUN);

#pragma omp parallel for schedule(static) if (rows * of->H > PARALLEL)
    for (int64_t k = 0; k < runs; k++) {
        int64_t state, sums;
        bp_cell_units run = run_of(of, GATES[cell], k, &state, &sums);

        BACKWARD[cell](&run, &(bp_cell_gradients){.da = to->da + sums,
                                                  .du = place_of(to->du, sums),
                                                  .dh = to->dh + state,
                                                  .dc = place_of(to->dc, state)});
    }
}

void bp_tanh(float *y, const float *x, int64_t n)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (n > PARALLEL)
    for (int64_t first = 0; first < n; first += PARALLEL)
        loops->tanh(y + first, x + first, first + PARALLEL < n ? PARALLEL : n - first);
}
