/* Shared by the files of a layer's experts: the rows of an expert, forward and backward, and their
 * way to experts of other ranks. */
#pragma once

#include "math/gemm/operand_pass.h"
#include "nn/transformer/transformer_priv.h"

/* Scratch of the experts' forward pass. The rows of an expert, up to all of them: */
typedef struct expert_forward_work {
    bp_operand x, active, up; /* [rows][C], [rows][Fl], [rows][2 Fl] where it is not kept */
    float *y;                 /* [rows][C] */
} expert_forward_work;

/* And of their backward pass; with experts on several ranks only for this rank's rows. */
typedef struct expert_work {
    bp_operand dbranch;
    bp_operand x, active, dactive; /* of one expert */
    bp_operand dup;                /* [rows * k][2 Fl] of all */
    float *dx;                     /* [rows][C] of one expert */
    float *dshares, *dlogits;      /* [rows][k], [rows][E] */
    norm_work norm;
} expert_work;

/* Choices of consecutive experts, in the order of routing. */
typedef struct choices {
    const int32_t *order; /* [count] */
    int64_t first, count;
} choices;

/* The input rows of one expert, and its results. */
typedef struct expert_rows {
    bp_operand x, up, active; /* [n][C], [n][2 Fl], [n][Fl] */
    bp_operand dactive, dup;
} expert_rows;

/* Their shares, and the gradients of shares: at `order`; NULL: consecutive. */
typedef struct expert_shares {
    const int32_t *order;
    const float *values;
    float *gradients;
} expert_shares;

/* expert_rows.c */
/** Those of `count` experts from e on. */
choices choices_of(const routing *routes, int64_t e, int64_t count);
/** Gathers the rows of `from` that made the choices into the first rows of `to`. */
bp_operand experts_take_rows(const layer *self, const bp_operand *to, const bp_operand *from,
                             const choices *of);
/** to[row] += y[i], times its share if given: each row occurs once. */
void experts_add_rows(const layer *self, float *to, const float *y, const choices *of,
                      const float *shares);
/** Own expert e: rows->up and rows->active of rows->x; and y = its output. */
void expert_forward_up(layer *self, int64_t e, const expert_rows *rows);
void expert_forward(layer *self, int64_t e, const expert_rows *rows, float *y);
/** Gradients of its shares and of down, of its up in rows->dup, and dx of its input, from dy of
 * its output before the share is applied. rows->active is changed. */
void expert_backward(layer *self, int64_t e, const expert_rows *rows, const bp_operand *dy,
                     const expert_shares *shares, float *dx);
/** Gradients of weights of an expert that no row chose. */
void expert_clear_fresh(bp_param *weights, int count);

/* expert_exchange.c: experts on several ranks. Collective over nn->expert. */
void exchange_plan(const layer *self, bp_arena *arena, int64_t rows, bool backward);
/** branch += the output of the experts for the rows of `normed`. */
void exchange_forward(layer *self, bp_pass *pass, const saved *kept, const bp_operand *normed,
                      float *branch);
/** From work->dbranch: gradients of all weights of own experts, work->dshares, and
 * work->norm.dnormed of this rank's rows, which is 0 on entry. */
void exchange_backward(layer *self, bp_pass *pass, const saved *kept, const expert_work *work);
