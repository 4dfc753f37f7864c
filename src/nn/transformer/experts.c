/* A mixture of experts as the MLP of a Transformer layer: one expert after the other, each over
 * the rows that chose it. expert_router.c chooses them, expert_exchange.c sends them to experts of
 * other ranks. Called by the other files of a layer.
 */
#include "nn/transformer/experts_priv.h"

#include <stdio.h>
#include <string.h>

/* ---- parameters and products ---- */

static bp_param *add_part(layer *self, int64_t e, const char *part, int64_t rows, int64_t columns,
                          int axis)
{
    int64_t at = self->block.nn->tensor_rank;
    char name[BP_PARAM_NAME], of[48];

    (void)snprintf(of, sizeof of, "mlp.experts.%lld.%s.weight", (long long)(self->first_expert + e),
                   part);
    return bp_group_add_matrix_part(self->shape.experts.weights, layer_param_name(name, self, of),
                                    rows, columns, axis == 0 ? INIT_STD : layer_residual_std(self),
                                    axis, at * self->Fl, self->Fl);
}

void experts_add_params(layer *self)
{
    const bp_expert_shape *shape = &self->shape.experts;
    int64_t ranks = bp_nn_experts(self->block.nn), C = self->shape.C, F = self->shape.F;
    char name[BP_PARAM_NAME];

    BP_ASSERT(shape->count % ranks == 0);
    self->own_experts = shape->count / ranks;
    self->first_expert = ranks > 1 ? self->block.nn->expert_rank * self->own_experts : 0;
    self->experts = bp_alloc("nn.layer", self->own_experts, sizeof *self->experts);
    bp_group_reserve(shape->weights, 3 * (int)self->own_experts);
    for (int64_t e = 0; e < self->own_experts; e++) {
        expert *one = &self->experts[e];

        bp_group_align(shape->weights, BP_NORM_BLOCK);
        one->up_weight = add_part(self, e, "gate", F, C, 0);
        (void)add_part(self, e, "up", F, C, 0);
        one->down_weight = add_part(self, e, "down", C, F, 1);
    }
    self->router =
        bp_group_add_matrix(shape->router, layer_param_name(name, self, "mlp.router.weight"),
                            shape->count, C, INIT_STD);
}

bp_err experts_bind(layer *self)
{
    bp_gemm *gemm = self->block.nn->gemm;
    int64_t C = self->shape.C;
    bp_err err = BP_OK;

    for (int64_t e = 0; e < self->own_experts && err == BP_OK; e++) {
        expert *one = &self->experts[e];

        err = bp_weight_new(&one->up, gemm, one->up_weight->value, 2 * self->Fl, C);
        if (err == BP_OK)
            err = bp_weight_new(&one->down, gemm, one->down_weight->value, C, self->Fl);
    }
    return err;
}

void experts_refresh(layer *self)
{
    for (int64_t e = 0; e < self->own_experts; e++) {
        bp_weight_refresh(self->experts[e].up);
        bp_weight_refresh(self->experts[e].down);
    }
}

void experts_free(layer *self)
{
    for (int64_t e = 0; self->experts && e < self->own_experts; e++) {
        bp_weight_free(&self->experts[e].up);
        bp_weight_free(&self->experts[e].down);
    }
    bp_free(self->experts);
}

void experts_add_products(const layer *self, int64_t rows, bp_product_bytes *bytes)
{
    for (int64_t e = 0; e < self->own_experts; e++) {
        bp_product_bytes_add(bytes, self->block.nn, rows, 2 * self->Fl, self->shape.C);
        bp_product_bytes_add(bytes, self->block.nn, rows, self->shape.C, self->Fl);
    }
}

/* ---- rows ---- */

static expert_forward_work alloc_forward(const layer *self, bp_arena *arena, const bp_pass *pass,
                                         const saved *kept)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    expert_forward_work work = {.x = bp_operand_alloc(arena, gemm, rows, self->shape.C),
                                .active = bp_operand_alloc_apart(arena, gemm, rows, self->Fl),
                                .y = bp_arena_floats(arena, rows * self->shape.C)};

    if (kept->up.rows == 0)
        work.up = bp_operand_alloc_apart(arena, gemm, rows, 2 * self->Fl);
    return work;
}

static expert_work alloc_backward(const layer *self, bp_arena *arena, const bp_pass *pass,
                                  const float *dout)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T, E = self->shape.experts.count, k = self->shape.experts.chosen;

    if (experts_travel(self))
        return (expert_work){.dbranch = layer_alloc_dbranch(self, arena, pass, dout),
                             .dshares = bp_arena_floats(arena, rows * k),
                             .dlogits = bp_arena_floats(arena, rows * E),
                             .norm = layer_alloc_norm(self, arena, rows, self->shape.C)};
    return (expert_work){.dbranch = layer_alloc_dbranch(self, arena, pass, dout),
                         .x = bp_operand_alloc(arena, gemm, rows, self->shape.C),
                         .active = bp_operand_alloc_apart(arena, gemm, rows, self->Fl),
                         .dactive = bp_operand_alloc_apart(arena, gemm, rows, self->Fl),
                         .dup = bp_operand_alloc_apart(arena, gemm, rows * k, 2 * self->Fl),
                         .dx = bp_arena_floats(arena, rows * self->shape.C),
                         .dshares = bp_arena_floats(arena, rows * k),
                         .dlogits = bp_arena_floats(arena, rows * E),
                         .norm = layer_alloc_norm(self, arena, rows, self->shape.C)};
}

void experts_plan(const layer *self, bp_arena *arena, const bp_pass *pass, const saved *kept,
                  bool backward)
{
    if (backward)
        (void)alloc_backward(self, arena, pass, NULL);
    else if (!experts_travel(self))
        (void)alloc_forward(self, arena, pass, kept);
    if (experts_travel(self))
        exchange_plan(self, arena, pass->B * pass->T, backward);
}

/* ---- forward ---- */

static void forward_one(layer *self, int64_t e, const choices *of, const expert_forward_work *work,
                        const saved *kept, const bp_operand *normed)
{
    expert_rows rows = {.x = experts_take_rows(self, &work->x, normed, of),
                        .up = kept->up.rows > 0 ? bp_operand_part(&kept->up, of->first, of->count)
                                                : bp_operand_part(&work->up, 0, of->count),
                        .active = bp_operand_part(&work->active, 0, of->count)};

    expert_forward(self, e, &rows, work->y);
}

void experts_forward(layer *self, bp_pass *pass, const saved *kept, const bp_operand *normed,
                     float *branch)
{
    size_t mark = pass->scratch->used_bytes;

    router_forward(self, &kept->routes, normed);
    bp_zero(branch, normed->rows * self->shape.C);
    if (experts_travel(self)) {
        exchange_forward(self, pass, kept, normed, branch);
        return;
    }
    expert_forward_work work = alloc_forward(self, pass->scratch, pass, kept);
    for (int64_t e = 0; e < self->shape.experts.count; e++) {
        choices of = choices_of(&kept->routes, e, 1);

        if (of.count == 0)
            continue;
        forward_one(self, e, &of, &work, kept, normed);
        experts_add_rows(self, branch, work.y, &of, kept->routes.shares);
    }
    pass->scratch->used_bytes = mark;
}

void experts_assist(layer *self, bp_arena *scratch)
{
    size_t mark = scratch->used_bytes;
    bp_pass none = {.scratch = scratch};
    saved kept = {.routes = router_alloc(self, scratch, 0)};
    bp_operand normed = bp_operand_alloc(scratch, self->block.nn->gemm, 0, self->shape.C);

    memset(kept.routes.first, 0, (size_t)(self->shape.experts.count + 1) * sizeof(int32_t));
    exchange_forward(self, &none, &kept, &normed, NULL);
    scratch->used_bytes = mark;
}

/* ---- backward ---- */

static void backward_one(layer *self, int64_t e, const choices *of, const expert_work *work,
                         const saved *kept)
{
    bp_operand dy = experts_take_rows(self, &work->x, &work->dbranch, of);
    expert_rows rows = {.active = bp_operand_part(&work->active, 0, of->count),
                        .dactive = bp_operand_part(&work->dactive, 0, of->count),
                        .up = bp_operand_part(&kept->up, of->first, of->count),
                        .dup = bp_operand_part(&work->dup, of->first, of->count)};
    expert_shares shares = {of->order, kept->routes.shares, work->dshares};

    expert_backward(self, e, &rows, &dy, &shares, work->dx);
    experts_add_rows(self, work->norm.dnormed, work->dx, of, NULL);
}

/* All gradients but those of the weights of gates and up, for which it fills work->dup. */
static void backward_here(layer *self, const expert_work *work, const saved *kept)
{
    for (int64_t e = 0; e < self->shape.experts.count; e++) {
        choices of = choices_of(&kept->routes, e, 1);

        if (of.count > 0)
            backward_one(self, e, &of, work, kept);
        else
            expert_clear_fresh(self->experts[e].down_weight, 1);
    }
}

static void backward_up(layer *self, const expert_work *work, const saved *kept)
{
    for (int64_t e = 0; e < self->shape.experts.count; e++) {
        choices of = choices_of(&kept->routes, e, 1);
        bp_operand dup = bp_operand_part(&work->dup, of.first, of.count), x;

        if (of.count == 0) {
            expert_clear_fresh(self->experts[e].up_weight, 2);
            continue;
        }
        x = experts_take_rows(self, &work->x, &work->norm.normed, &of);
        bp_nn_backward_weight(self->block.nn, self->experts[e].up_weight, 2, &dup, &x);
    }
}

void experts_backward(layer *self, bp_pass *pass, const saved *kept, const float *dout, float *dh,
                      const float *balance)
{
    size_t mark = pass->scratch->used_bytes;
    expert_work work = alloc_backward(self, pass->scratch, pass, dout);
    int64_t rows = pass->B * pass->T;

    layer_open_residual(self, pass, kept, &work.dbranch, NULL, dout, MLP);
    bp_zero(work.norm.dnormed, rows * self->shape.C);
    if (experts_travel(self))
        exchange_backward(self, pass, kept, &work);
    else
        backward_here(self, &work, kept);
    balance_add(self, pass, kept, balance);
    /* all of it is linear: each tensor rank has its part of dlogits; one rank adds the loss's */
    router_backward(self, pass, kept, work.dlogits, work.dshares,
                    self->block.nn->tensor_rank == 0 ? balance : NULL);
    router_backward_input(self, work.norm.dnormed, work.dlogits, rows);
    layer_backward_norm(self, pass, MLP, kept, &work.norm, dh);
    router_backward_weight(self, work.dlogits, &work.norm.normed);
    if (!experts_travel(self))
        backward_up(self, &work, kept);
    pass->scratch->used_bytes = mark;
}
