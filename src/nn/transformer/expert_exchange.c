/* Experts on several ranks (bp_nn.expert): rows are sent to the ranks of their chosen experts, and
 * the outputs are sent back. Each expert works on the rows of one rank at a time, in their order,
 * so that its products are the same as on a rank that has all experts. Called by experts.c.
 *
 * Ranks exchange in turns: in turn d a rank sends rows to the d-th rank after it and receives from
 * the d-th rank before it, in chunks. A chunk has consecutive experts whose rows do not exceed the
 * sender's. So memory is bounded for any routing, and no row is dropped. */
#include "nn/transformer/experts_priv.h"

#include "mesh/collective.h"
#include "mesh/mesh.h"

enum { TAG_X = 401, TAG_DY, TAG_SHARES, TAG_Y, TAG_DSHARES };

/* Scratch for a chunk of this rank's rows and for a received one; [most][...] each. */
typedef struct exchange_work {
    bp_operand x, dy, x_come, dy_come;
    float *shares, *shares_come, *dshares_come, *y_come; /* y: or gradients of x */
    bp_operand up, active, dactive, dup;                 /* of one expert */
    float *y, *dshares; /* [rows * k][C], [rows * k]: returned results, in the order of choices */
} exchange_work;

typedef struct exchange {
    layer *of;
    const routing *routes;
    int at, ranks;
    bool backward;
    const bp_operand *from, *dfrom; /* this rank's rows, and gradients of experts' outputs */
    exchange_work work;
} exchange;

/* Experts [expert, expert + experts) of the receiving rank, and their rows. */
typedef struct chunk {
    int64_t expert, experts, rows;
} chunk;

static exchange_work alloc_work(const layer *self, bp_arena *arena, int64_t rows, int64_t most,
                                bool backward)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t C = self->shape.C, Fl = self->Fl, all = rows * self->shape.experts.chosen;
    exchange_work work = {.x = bp_operand_alloc(arena, gemm, rows, C),
                          .x_come = bp_operand_alloc(arena, gemm, most, C),
                          .y_come = bp_arena_floats(arena, most * C),
                          .up = bp_operand_alloc_apart(arena, gemm, most, 2 * Fl),
                          .active = bp_operand_alloc_apart(arena, gemm, most, Fl),
                          .y = bp_arena_floats(arena, all * C)};

    if (!backward)
        return work;
    work.dy = bp_operand_alloc(arena, gemm, rows, C);
    work.dy_come = bp_operand_alloc(arena, gemm, most, C);
    work.dactive = bp_operand_alloc_apart(arena, gemm, most, Fl);
    work.dup = bp_operand_alloc_apart(arena, gemm, most, 2 * Fl);
    work.shares = bp_arena_floats(arena, rows);
    work.shares_come = bp_arena_floats(arena, most);
    work.dshares_come = bp_arena_floats(arena, most);
    work.dshares = bp_arena_floats(arena, all);
    return work;
}

void exchange_plan(const layer *self, bp_arena *arena, int64_t rows, bool backward)
{
    (void)alloc_work(self, arena, rows, rows, backward);
}

static int32_t *counts_of(const layer *self, int32_t *counts, int64_t rank)
{
    return counts + rank * (self->own_experts + 1);
}

/* Sends all ranks the number of rows for each of their experts. */
static void exchange_counts(const layer *self, const routing *routes, int64_t rows)
{
    const bp_nn *nn = self->block.nn;
    int each = bp_mpi_count(self->own_experts + 1);

    for (int64_t r = 0; r < nn->expert_ranks; r++) {
        int32_t *leaving = counts_of(self, routes->leaving, r);

        for (int64_t e = 0; e < self->own_experts; e++) {
            const int32_t *first = routes->first + r * self->own_experts + e;

            leaving[e] = first[1] - first[0];
        }
        leaving[self->own_experts] = (int32_t)rows;
    }
    BP_MPI_WAIT("all_to_all", MPI_Alltoall(routes->leaving, each, MPI_INT32_T, routes->coming, each,
                                           MPI_INT32_T, nn->expert));
}

/* The maximum of rows over ranks. */
static int64_t most_rows(const layer *self, const routing *routes)
{
    int64_t most = 0;

    for (int64_t r = 0; r < self->block.nn->expert_ranks; r++)
        if (counts_of(self, routes->coming, r)[self->own_experts] > most)
            most = counts_of(self, routes->coming, r)[self->own_experts];
    return most;
}

/* The chunk after `last`; without experts at the end. */
static chunk next_chunk(const exchange *self, const int32_t *counts, const chunk *last)
{
    int64_t own = self->of->own_experts;
    chunk next = {.expert = last->expert + last->experts};

    while (next.expert + next.experts < own &&
           next.rows + counts[next.expert + next.experts] <= counts[own]) {
        next.rows += counts[next.expert + next.experts];
        next.experts++;
    }
    return next;
}

/* ---- messages ---- */

/* Transfers in flight of one chunk in each direction. */
typedef struct flight {
    bp_transfer x, dy, shares, y, dshares;                          /* sent */
    bp_transfer x_come, dy_come, shares_come, y_back, dshares_back; /* received */
} flight;

static int64_t row_bytes(const bp_operand *x, int64_t rows)
{
    return rows * x->stride *
           (int64_t)(x->form == BP_OPERAND_BF16 ? sizeof(uint16_t) : sizeof(float));
}

static int64_t float_bytes(int64_t count)
{
    return count * (int64_t)sizeof(float);
}

static void receive(exchange *self, flight *under_way, int from, int64_t rows)
{
    const exchange_work *work = &self->work;
    MPI_Comm comm = self->of->block.nn->expert;

    bp_recv_start(&under_way->x_come, work->x_come.data, row_bytes(&work->x_come, rows), from,
                  TAG_X, comm);
    if (!self->backward)
        return;
    bp_recv_start(&under_way->dy_come, work->dy_come.data, row_bytes(&work->dy_come, rows), from,
                  TAG_DY, comm);
    bp_recv_start(&under_way->shares_come, work->shares_come, float_bytes(rows), from, TAG_SHARES,
                  comm);
}

/* Sends a chunk, and posts the receive of its results in their place. */
static void send(exchange *self, flight *under_way, int to, const choices *of)
{
    const exchange_work *work = &self->work;
    MPI_Comm comm = self->of->block.nn->expert;
    int64_t C = self->of->shape.C;

    bp_recv_start(&under_way->y_back, work->y + of->first * C, float_bytes(of->count * C), to,
                  TAG_Y, comm);
    if (self->backward)
        bp_recv_start(&under_way->dshares_back, work->dshares + of->first, float_bytes(of->count),
                      to, TAG_DSHARES, comm);
    bp_send_start(&under_way->x, work->x.data, row_bytes(&work->x, of->count), to, TAG_X, comm);
    if (!self->backward)
        return;
    bp_send_start(&under_way->dy, work->dy.data, row_bytes(&work->dy, of->count), to, TAG_DY, comm);
    bp_send_start(&under_way->shares, work->shares, float_bytes(of->count), to, TAG_SHARES, comm);
}

static void give_back(exchange *self, flight *under_way, int from, int64_t rows)
{
    const exchange_work *work = &self->work;
    MPI_Comm comm = self->of->block.nn->expert;

    bp_send_start(&under_way->y, work->y_come, float_bytes(rows * self->of->shape.C), from, TAG_Y,
                  comm);
    if (self->backward)
        bp_send_start(&under_way->dshares, work->dshares_come, float_bytes(rows), from, TAG_DSHARES,
                      comm);
}

static void await_rows(flight *under_way)
{
    bp_wait(&under_way->x_come);
    bp_wait(&under_way->dy_come);
    bp_wait(&under_way->shares_come);
}

static void await_all(flight *under_way)
{
    bp_transfer *const all[] = {&under_way->x,      &under_way->dy,           &under_way->shares,
                                &under_way->y_back, &under_way->dshares_back, &under_way->y,
                                &under_way->dshares};

    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        bp_wait(all[k]);
}

/* ---- products ---- */

/* Rows for this rank's experts, and the destination of results. */
typedef struct given {
    const bp_operand *x, *dy;
    const float *shares;
    float *y, *dshares;
} given;

/* The weight gradients to which rows of rank `source` add. */
static void open_source(const exchange *self, bp_param *weights, int count, int source)
{
    int64_t apart = self->of->shape.experts.weights->source_floats;

    for (int k = 0; apart > 0 && k < count; k++) {
        weights[k].gradient += source * apart;
        weights[k].fresh = true;
    }
}

static void close_source(const exchange *self, bp_param *weights, int count, int source)
{
    for (int k = 0; k < count; k++)
        if (weights[k].gradient)
            weights[k].gradient -= source * self->of->shape.experts.weights->source_floats;
}

static void backward_one(exchange *self, int64_t e, int64_t first, const expert_rows *rows,
                         const given *from)
{
    layer *of = self->of;
    int64_t n = rows->x.rows;
    bp_operand dy = bp_operand_part(from->dy, first, n);

    expert_forward_up(of, e, rows);
    expert_backward(of, e, rows, &dy,
                    &(expert_shares){NULL, from->shares + first, from->dshares + first},
                    from->y + first * of->shape.C);
    bp_nn_backward_weight(of->block.nn, of->experts[e].up_weight, 2, &rows->dup, &rows->x);
}

static void run_expert(exchange *self, int64_t e, int64_t first, int64_t n, const given *from)
{
    const exchange_work *work = &self->work;
    expert *one = &self->of->experts[e];
    expert_rows rows = {.x = bp_operand_part(from->x, first, n),
                        .up = bp_operand_part(&work->up, 0, n),
                        .active = bp_operand_part(&work->active, 0, n)};

    if (self->backward) {
        rows.dactive = bp_operand_part(&work->dactive, 0, n);
        rows.dup = bp_operand_part(&work->dup, 0, n);
    }
    if (n == 0 && self->backward) {
        expert_clear_fresh(one->up_weight, 2);
        expert_clear_fresh(one->down_weight, 1);
    } else if (self->backward) {
        backward_one(self, e, first, &rows, from);
    } else if (n > 0) {
        expert_forward(self->of, e, &rows, from->y + first * self->of->shape.C);
    }
}

/* A chunk of rank `source`. */
static void run_chunk(exchange *self, int source, const chunk *of, const given *from)
{
    const int32_t *counts = counts_of(self->of, self->routes->coming, source);
    int64_t first = 0;

    for (int64_t e = of->expert; e < of->expert + of->experts; e++) {
        expert *one = &self->of->experts[e];

        if (self->backward) {
            open_source(self, one->up_weight, 2, source);
            open_source(self, one->down_weight, 1, source);
        }
        run_expert(self, e, first, counts[e], from);
        if (self->backward) {
            close_source(self, one->up_weight, 2, source);
            close_source(self, one->down_weight, 1, source);
        }
        first += counts[e];
    }
}

/* ---- turns ---- */

/* Gathers the rows of an outgoing chunk. */
static void pack(exchange *self, const choices *of)
{
    exchange_work *work = &self->work;

    (void)experts_take_rows(self->of, &work->x, self->from, of);
    if (!self->backward)
        return;
    (void)experts_take_rows(self->of, &work->dy, self->dfrom, of);
    for (int64_t i = 0; i < of->count; i++)
        work->shares[i] = self->routes->shares[of->order[i]];
}

/* This rank's rows go to its own experts. */
static void run_own(exchange *self, const chunk *of, const choices *rows)
{
    const exchange_work *work = &self->work;
    const given own = {&work->x, &work->dy, work->shares, work->y + rows->first * self->of->shape.C,
                       self->backward ? work->dshares + rows->first : NULL};

    run_chunk(self, self->at, of, &own);
}

static void run_turn(exchange *self, int d)
{
    const exchange_work *work = &self->work;
    const given come = {&work->x_come, &work->dy_come, work->shares_come, work->y_come,
                        work->dshares_come};
    int to = (self->at + d) % self->ranks, from = (self->at - d + self->ranks) % self->ranks;
    int64_t first = to * self->of->own_experts;
    chunk leaves = {0}, comes = {0};

    for (;;) {
        flight under_way = {0};

        leaves = next_chunk(self, counts_of(self->of, self->routes->leaving, to), &leaves);
        comes = next_chunk(self, counts_of(self->of, self->routes->coming, from), &comes);
        if (leaves.experts == 0 && comes.experts == 0)
            return;
        choices rows = choices_of(self->routes, first + leaves.expert, leaves.experts);

        pack(self, &rows);
        if (d == 0) {
            run_own(self, &leaves, &rows);
            continue;
        }
        if (comes.rows > 0)
            receive(self, &under_way, from, comes.rows);
        if (rows.count > 0)
            send(self, &under_way, to, &rows);
        await_rows(&under_way);
        run_chunk(self, from, &comes, &come);
        if (comes.rows > 0)
            give_back(self, &under_way, from, comes.rows);
        await_all(&under_way);
    }
}

static void run(exchange *self, bp_arena *arena, int64_t rows)
{
    layer *of = self->of;

    self->at = of->block.nn->expert_rank;
    self->ranks = of->block.nn->expert_ranks;
    self->work = alloc_work(of, arena, rows, most_rows(of, self->routes), self->backward);
    for (int d = 0; d < self->ranks; d++)
        run_turn(self, d);
}

void exchange_forward(layer *self, bp_pass *pass, const saved *kept, const bp_operand *normed,
                      float *branch)
{
    size_t mark = pass->scratch->used_bytes;
    exchange all = {.of = self, .routes = &kept->routes, .from = normed};

    exchange_counts(self, &kept->routes, pass->B * pass->T);
    run(&all, pass->scratch, pass->B * pass->T);
    for (int64_t e = 0; e < self->shape.experts.count; e++) {
        choices of = choices_of(&kept->routes, e, 1);

        experts_add_rows(self, branch, all.work.y + of.first * self->shape.C, &of,
                         kept->routes.shares);
    }
    pass->scratch->used_bytes = mark;
}

void exchange_backward(layer *self, bp_pass *pass, const saved *kept, const expert_work *work)
{
    const routing *routes = &kept->routes;
    size_t mark = pass->scratch->used_bytes;
    exchange all = {.of = self,
                    .routes = routes,
                    .backward = true,
                    .from = &work->norm.normed,
                    .dfrom = &work->dbranch};
    int64_t rows = pass->B * pass->T;

    layer_fill_normed(self, pass, MLP, kept, &work->norm.normed);
    run(&all, pass->scratch, rows);
    for (int64_t e = 0; e < self->shape.experts.count; e++) {
        choices of = choices_of(routes, e, 1);

        experts_add_rows(self, work->norm.dnormed, all.work.y + of.first * self->shape.C, &of,
                         NULL);
    }
    for (int64_t i = 0; i < rows * self->shape.experts.chosen; i++)
        work->dshares[routes->order[i]] = all.work.dshares[i];
    pass->scratch->used_bytes = mark;
}
