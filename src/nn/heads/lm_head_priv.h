/* Shared by the files of the vocabulary's head. */
#pragma once

#include "nn/core/layers.h"
#include "nn/heads/dirichlet_rows_priv.h"
#include "nn/heads/distill.h"
#include "nn/heads/entmax_rows_priv.h"
#include "nn/heads/sampled_softmax_priv.h"
#include "nn/heads/softmax_mixture_priv.h"

typedef struct lm_head {
    bp_block block;
    bp_head_shape shape;
    bp_param *wte, *gain, *bias;
    bp_weight *vocabulary;    /* wte as a linear map; NULL if this rank has no rows of it */
    softmax_mixture *mixture; /* NULL: there is one softmax */
    sampled_softmax *sampled; /* the sampled part that training computes; NULL: all */
    entmax_rows rows;         /* of ENTMAX_ROWS rows, whose distributions are asked for, where */
    void *rows_memory;
} lm_head;
#define ENTMAX_ROWS 64

/** Memory for the distributions of rows. */
void lm_head_make_rows(lm_head *self);

/** The input of the vocabulary's matrix; mean and rstd are kept for backward unless NULL. Local. */
void lm_head_norm_rows(const lm_head *self, const bp_operand *to, const float *hidden, float *mean,
                       float *rstd);

/* ---- lm_head_chunk.c: a chunk of rows, since all logits at once would not fit ---- */

/* Memory of one chunk of rows. In a mixture of softmaxes the vocabulary has K rows for each. */
typedef struct head_chunk {
    int64_t rows;
    float *logits;      /* [rows K][V here], */
    int64_t stride;     /* this many floats apart */
    float *max;         /* [2][rows K] for the whole vocabulary, and for this rank's part */
    double *sums;       /* [2][rows K]: of exp(logit - max), and the target's logit */
    double *all;        /* [rows] of all logits, with label smoothing */
    double *prior;      /* [rows] losses of a prior network's training */
    float *weight;      /* [rows K] */
    mixture_rows mixed; /* where K > 1 */
    entmax_rows sparse; /* instead of max and sums, for entmax */
    int32_t *own;       /* [rows] columns of targets if outcomes are sampled; else NULL */
    int64_t found;      /* the most of: */
    int32_t *targets, *positions; /* [found] for the gathered scored rows and their sources: the
                                     target's number, */
    int32_t *rows_of;             /* and the row's */
} head_chunk;
typedef struct head_chunk_size {
    int64_t rows, found;
    bool training;
    bool elsewhere; /* the logits have their own memory */
} head_chunk_size;

/** K: rows that the vocabulary has for one of the head. */
int64_t head_softmaxes(const lm_head *self);
/** Columns of logits here. */
int64_t head_columns(const lm_head *self, bool training);
/** The most columns of a tensor rank: equal on all ranks, as chunks of rows must be. */
int64_t head_largest_share(const lm_head *self);
/** The fewest, those of the last rank. */
int64_t head_least_share(const lm_head *self);
/** The row stride of float32 logits, or of dlogits as products read them. */
int64_t head_stride(const lm_head *self, bool training, bp_operand_form form);
/** The most of a tensor rank in training without sampled outcomes. */
int64_t head_largest_stride(const lm_head *self, bp_operand_form form);
/** Training keeps the gradients of logits in bf16, for products of more rows than a chunk has. */
bool head_keeps_gradient(const lm_head *self);
/** Rows of this many bytes that a chunk holds. */
int64_t head_rows_of(int64_t bytes, int64_t row_bytes);
/** The most rows of a chunk for `rows` or fewer, for the memory plan; grows with `rows`. */
int64_t head_chunk_rows_most(const lm_head *self, int64_t rows, bool training);
/** Chunks of equal size, at most `most` rows: a short one costs the products as much. */
int64_t head_equal_rows(int64_t rows, int64_t most);
head_chunk head_chunk_alloc(const lm_head *self, bp_arena *arena, const head_chunk_size *size);

const int32_t *head_targets(const lm_head *self, const bp_pass *pass);
int64_t head_target_count(const lm_head *self, const bp_pass *pass);
/** All are outcomes, or -1. */
void head_check_targets(const lm_head *self, const bp_pass *pass);
/** Are outcomes the softmax of one row of logits? */
bool head_is_plain(const lm_head *self);
/** Is a teacher's distribution a part of the loss? */
bool head_has_teacher(const lm_head *self, const bp_pass *pass);
/** Label smoothing of training's targets; not applied to a text's probability. */
bp_smoothing head_smoothing(const lm_head *self, const bp_pass *pass);
/** Find scored targets from *at on, at most c->found, and move *at past them; returns how many.
 * One or more targets per place belong to that place's row, a target per example to the row of its
 * first place. */
int64_t head_chunk_find(const lm_head *self, const bp_pass *pass, head_chunk *c, int64_t *at);

/** The input of the vocabulary's matrix for `rows` rows of a mixture. */
bp_operand head_states(const lm_head *self, const head_chunk *c, int64_t rows);
bp_logit_rows head_logit_rows(const lm_head *self, const head_chunk *c, const int32_t *targets,
                              int64_t rows);
/** Logits of this rank's part of the vocabulary. */
void head_chunk_logits(const lm_head *self, const head_chunk *c, const bp_operand *states);
/** The logits, and the softmax statistics of the first `rows` over the whole vocabulary.
 * Collective over nn->tensor, as head_chunk_loss. */
void head_chunk_forward(const lm_head *self, head_chunk *c, const bp_operand *normed,
                        const int32_t *targets, int64_t rows, int64_t step);
/** log p(target) of row r of `rows` that went forward. */
double head_chunk_logprob(const lm_head *self, const head_chunk *c, int64_t rows, int64_t r);
/** Label smoothing: the sums of all logits of rows, which head_chunk_loss takes. Collective over
 * nn->tensor. */
void head_chunk_sums(const lm_head *self, const bp_pass *pass, const head_chunk *c, int64_t rows);
/** Add the loss in row order. */
void head_chunk_loss(const lm_head *self, bp_pass *pass, const head_chunk *c,
                     const int32_t *targets, int64_t rows);

/** One item that it reads, as this rank has it. */
size_t head_item_bytes(const lm_head *self, const bp_pass *pass);
/** The head with its second item and term. */
lm_head head_second(const lm_head *self);

/* ---- lm_head_backward.c ---- */

/** Scratch of training, and training. */
size_t lm_head_backward_bytes(const lm_head *self, const bp_pass *pass);
void lm_head_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved);
/** Rows of the largest product. */
int64_t lm_head_backward_rows(const lm_head *self, const bp_pass *pass);
