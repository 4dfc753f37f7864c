/* Experts on several ranks (bp_nn.expert): rows are sent to the ranks of their chosen experts, and
 * the outputs are sent back. Each expert works on the rows of one rank at a time, in their order,
 * so that its products are the same as on a rank that has all experts. Called by experts.c.
 *
 * In turn d a rank sends rows to the d-th rank after it and receives from the d-th rank before it,
 * in chunks. A chunk has consecutive experts whose rows do not exceed the sender's. So memory is
 * bounded for any routing, and no row is dropped.
 *
 * A step sends one chunk and computes one. The rows of the next step travel while this one
 * computes, and results travel back until all steps are done. Rows that stay are computed in two
 * halves: before the first rows have come, and while the last results travel. The order of products
 * depends on the counts of rows only, never on what comes first. */
#include "nn/transformer/experts_priv.h"

#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <string.h>

enum { SLOTS = 2, ROW_PARTS = 3, RESULT_PARTS = 2, TAG_ROWS = 401, TAG_RESULTS = 404 };

/* Rows that leave, or that came: [most][...]. */
typedef struct exchange_rows {
    bp_operand x, dy; /* dy, shares: of a backward pass */
    float *shares;
} exchange_rows;

/* Buffers and transfers of every second step. */
typedef struct slot {
    exchange_rows leave, come;
    float *y, *dshares; /* results of those that came; y: or gradients of x */
    bp_transfer sent[ROW_PARTS], coming[ROW_PARTS], given_back[RESULT_PARTS];
} slot;

typedef struct exchange_work {
    slot slots[SLOTS];
    bp_operand up, active, dactive, dup; /* of one expert */
    float *y, *dshares; /* [rows * k][C], [rows * k]: returned results, in the order of choices */
    bp_transfer (*returns)[RESULT_PARTS]; /* [E - own experts] those of each chunk that left */
} exchange_work;

typedef struct exchange {
    layer *of;
    const routing *routes;
    int at, ranks;
    bool backward;
    const bp_operand *from, *dfrom; /* this rank's rows, and gradients of experts' outputs */
    exchange_work work;
    int64_t left; /* chunks with rows that have left */
} exchange;

/* Experts [expert, expert + experts) of the receiving rank, and their rows. */
typedef struct chunk {
    int64_t expert, experts, rows;
} chunk;

typedef struct step {
    int turn, to, from;
    chunk leaves, comes;
} step;

static exchange_rows alloc_rows(const layer *self, bp_arena *arena, int64_t rows, bool backward)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    exchange_rows out = {.x = bp_operand_alloc(arena, gemm, rows, self->shape.C)};

    if (backward) {
        out.dy = bp_operand_alloc(arena, gemm, rows, self->shape.C);
        out.shares = bp_arena_floats(arena, rows);
    }
    return out;
}

static exchange_work alloc_work(const layer *self, bp_arena *arena, int64_t rows, int64_t most,
                                bool backward)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t C = self->shape.C, Fl = self->Fl, all = rows * self->shape.experts.chosen,
            chunks = self->shape.experts.count - self->own_experts;
    exchange_work work = {.up = bp_operand_alloc_apart(arena, gemm, most, 2 * Fl),
                          .active = bp_operand_alloc_apart(arena, gemm, most, Fl),
                          .y = bp_arena_floats(arena, all * C),
                          .returns = bp_arena_place(arena, chunks, sizeof *work.returns)};

    for (int k = 0; k < SLOTS; k++) {
        slot *one = &work.slots[k];

        one->leave = alloc_rows(self, arena, rows, backward);
        one->come = alloc_rows(self, arena, most, backward);
        one->y = bp_arena_floats(arena, most * C);
        if (backward)
            one->dshares = bp_arena_floats(arena, most);
    }
    if (!backward)
        return work;
    work.dactive = bp_operand_alloc_apart(arena, gemm, most, Fl);
    work.dup = bp_operand_alloc_apart(arena, gemm, most, 2 * Fl);
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

/* The next step, in order of turns; false after the last one. */
static bool next_step(const exchange *self, step *at)
{
    for (; at->turn < self->ranks; at->turn++) {
        at->to = (self->at + at->turn) % self->ranks;
        at->from = (self->at - at->turn + self->ranks) % self->ranks;
        at->leaves =
            next_chunk(self, counts_of(self->of, self->routes->leaving, at->to), &at->leaves);
        at->comes =
            next_chunk(self, counts_of(self->of, self->routes->coming, at->from), &at->comes);
        if (at->leaves.experts > 0 || at->comes.experts > 0)
            return true;
        at->leaves = at->comes = (chunk){0};
    }
    return false;
}

/* ---- messages ---- */

typedef struct message {
    void *data;
    int64_t bytes;
} message;

static int64_t row_bytes(const bp_operand *x, int64_t rows)
{
    return rows * x->stride *
           (int64_t)(x->form == BP_OPERAND_BF16 ? sizeof(uint16_t) : sizeof(float));
}

static int64_t float_bytes(int64_t count)
{
    return count * (int64_t)sizeof(float);
}

/* Of the first n rows. Returns the number of messages. */
static int row_messages(message *out, const exchange *self, const exchange_rows *rows, int64_t n)
{
    out[0] = (message){rows->x.data, row_bytes(&rows->x, n)};
    out[1] = (message){rows->dy.data, row_bytes(&rows->dy, n)};
    out[2] = (message){rows->shares, float_bytes(n)};
    return n == 0 ? 0 : self->backward ? ROW_PARTS : 1;
}

static int result_messages(message *out, const exchange *self, float *y, float *dshares, int64_t n)
{
    out[0] = (message){y, float_bytes(n * self->of->shape.C)};
    out[1] = (message){dshares, float_bytes(n)};
    return n == 0 ? 0 : self->backward ? RESULT_PARTS : 1;
}

static void send(const exchange *self, bp_transfer *under_way, const message *all, int count,
                 int to, int tag)
{
    for (int k = 0; k < count; k++)
        bp_send_start(&under_way[k], all[k].data, all[k].bytes, to, tag + k,
                      self->of->block.nn->expert);
}

static void receive(const exchange *self, bp_transfer *under_way, const message *all, int count,
                    int from, int tag)
{
    for (int k = 0; k < count; k++)
        bp_recv_start(&under_way[k], all[k].data, all[k].bytes, from, tag + k,
                      self->of->block.nn->expert);
}

static void await(bp_transfer *under_way, int count)
{
    for (int k = 0; k < count; k++)
        bp_wait(&under_way[k]);
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
        bp_transfers_move(self->of->block.nn->expert);
    }
}

/* ---- steps ---- */

static void pack(const exchange *self, const exchange_rows *to, const choices *of)
{
    (void)experts_take_rows(self->of, &to->x, self->from, of);
    if (!self->backward)
        return;
    (void)experts_take_rows(self->of, &to->dy, self->dfrom, of);
    for (int64_t i = 0; i < of->count; i++)
        to->shares[i] = self->routes->shares[of->order[i]];
}

/* Own experts [first, end) compute the rows of this rank, which `rows` has room for. */
static void run_own(exchange *self, slot *room, int64_t first, int64_t end)
{
    const exchange_work *work = &self->work;

    await(room->sent, ROW_PARTS);
    for (int64_t e = first; e < end; e++) {
        choices rows = choices_of(self->routes, self->of->first_expert + e, 1);
        const given own = {&room->leave.x, &room->leave.dy, room->leave.shares,
                           work->y + rows.first * self->of->shape.C,
                           self->backward ? work->dshares + rows.first : NULL};

        pack(self, &room->leave, &rows);
        run_chunk(self, self->at, &(chunk){e, 1, rows.count}, &own);
    }
}

/* Starts the transfers of a step; the results of its rows come to their place. */
static void begin_step(exchange *self, slot *in, const step *of)
{
    exchange_work *work = &self->work;
    choices rows = choices_of(self->routes, of->to * self->of->own_experts + of->leaves.expert,
                              of->leaves.experts);
    message parts[ROW_PARTS];
    int count = row_messages(parts, self, &in->come, of->comes.rows);

    receive(self, in->coming, parts, count, of->from, TAG_ROWS);
    await(in->sent, ROW_PARTS); /* those of the step before the last */
    if (rows.count == 0)
        return;
    count = result_messages(parts, self, work->y + rows.first * self->of->shape.C,
                            self->backward ? work->dshares + rows.first : NULL, rows.count);
    memset(work->returns[self->left], 0, sizeof *work->returns);
    receive(self, work->returns[self->left++], parts, count, of->to, TAG_RESULTS);
    pack(self, &in->leave, &rows);
    count = row_messages(parts, self, &in->leave, rows.count);
    send(self, in->sent, parts, count, of->to, TAG_ROWS);
}

static void run_step(exchange *self, slot *in, const step *of)
{
    const given come = {&in->come.x, &in->come.dy, in->come.shares, in->y, in->dshares};
    message parts[RESULT_PARTS];
    int count = result_messages(parts, self, in->y, in->dshares, of->comes.rows);

    await(in->given_back, RESULT_PARTS);
    await(in->coming, ROW_PARTS);
    run_chunk(self, of->from, &of->comes, &come);
    send(self, in->given_back, parts, count, of->from, TAG_RESULTS);
}

static void run_all(exchange *self)
{
    slot *slots = self->work.slots;
    int64_t own = self->of->own_experts;
    step now, next = {.turn = 1};
    bool more = next_step(self, &next);
    int k = 0;

    if (more)
        begin_step(self, &slots[k], &next);
    run_own(self, &slots[!k], 0, own / 2);
    for (; more; k = !k) {
        now = next;
        more = next_step(self, &next);
        if (more)
            begin_step(self, &slots[!k], &next);
        run_step(self, &slots[k], &now);
    }
    run_own(self, &slots[k], own / 2, own);
}

static void run(exchange *self, bp_arena *arena, int64_t rows)
{
    layer *of = self->of;

    self->at = of->block.nn->expert_rank;
    self->ranks = of->block.nn->expert_ranks;
    self->work = alloc_work(of, arena, rows, most_rows(of, self->routes), self->backward);
    run_all(self);
    for (int64_t k = 0; k < self->left; k++)
        await(self->work.returns[k], RESULT_PARTS);
    for (int k = 0; k < SLOTS; k++) {
        await(self->work.slots[k].sent, ROW_PARTS);
        await(self->work.slots[k].given_back, RESULT_PARTS);
    }
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
