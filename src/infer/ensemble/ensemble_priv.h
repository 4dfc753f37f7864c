/* Internals of an ensemble: which rank has which member, and the work of a batch. */
#pragma once

#include "base/mem.h"
#include "infer/ensemble/ensemble.h"
#include "math/kernels/mixture.h"
#include "mesh/collective.h"
#include "statistics/conformal.h"

/** One run of a model's backbone; its members share the states. */
typedef struct ensemble_backbone {
    bp_model *model; /* borrowed from ensemble.models */
    int64_t pass, width;
} ensemble_backbone;

typedef struct ensemble_member {
    char *name;
    double oob;
    int64_t backbone, head; /* where the member is on this rank; backbone -1: on other ranks */
} ensemble_member;

/** Rows whose conformal sets are found at once. */
#define ENSEMBLE_SET_ROWS 64
typedef struct ensemble_sets ensemble_sets; /* workspace: ensemble_sets.c */
/** What is known about a row. */
typedef struct ensemble_set_row {
    bp_conformal_target target;
    int64_t lac;                 /* outcomes in the set of lac */
    bp_conformal_set grouped[2]; /* the same for aps and raps */
} ensemble_set_row;

/** Powers of a row at another temperature: the sums of p^b and p^(2b). */
#define ENSEMBLE_POWERS 2
/** Memory of a batch, an arena that grows. On ranks of other stages only `positions` and
 * `targets`. */
typedef struct ensemble_work {
    int64_t rows;               /* scored tokens of the batch */
    int64_t first_slot, length; /* of the batch */
    int64_t *positions;         /* [rows] in the batch */
    int32_t *targets;           /* [rows] */
    float *states;              /* [windows * length][largest width] of one backbone */
    float *hidden;              /* [backbones][rows filled][width], contiguous */
    int64_t chunk;              /* rows whose distributions are in memory at once */
    float *logits;              /* [members][chunk][columns here] */
    float *own, *outgoing;      /* [chunk][vocab_count]; where members meet across ranks */
    bp_member_row *known;       /* [members, filled up to whole rounds][chunk] */
    float *max;                 /* [chunk] of one member; then of the mixture */
    double *sums;               /* [2][chunk] */
    bp_mixture_row *mixed;      /* [chunk] */
    double *totals;             /* [chunk][3] of the mixture, over all ranks */
    double *spread;        /* [chunk] for a prior network: the Dirichlet's differential entropy */
    int32_t *tops;         /* [chunk] */
    bp_scaled_row *powers; /* [chunk][BP_TEMPERATURE_POINTS], or of another temperature
                              [chunk][ENSEMBLE_POWERS], where requested */
    ensemble_sets *sets;   /* where requested, and [chunk] of the sets found */
    ensemble_set_row *set_rows;
    float *mixture;          /* [chunk][vocab_count] log p, in decoding; */
    bp_decoding **decodings; /* [backbones], and in scoring NULL */
} ensemble_work;

typedef struct ensemble {
    bp_model model;
    const bp_mesh *mesh;        /* borrowed */
    bp_member_sampler *sampler; /* borrowed; NULL if the members are listed */
    size_t memory_bytes;        /* of the distributions */
    bp_conformal_rule sets;     /* if info.sets */
    double beta;                /* if info.tempered: 1 / temperature */
    ensemble_member *members;
    int64_t member_count;
    int64_t rounds;    /* each of mesh->members members */
    bp_model **models; /* [model_count] those on this rank */
    int64_t model_count;
    ensemble_backbone *backbones; /* [backbone_count] those that run on this rank */
    int64_t backbone_count;
    int64_t widest; /* width of all members' models */
    int64_t column_first,
        columns; /* the part of the vocabulary whose members' values this rank combines */
    bp_transfer *receiving, *sending; /* [rounds][mesh->members], [mesh->members] of slices */
    char *memory;
    size_t memory_size_bytes;
} ensemble;

extern const bp_model_ops ensemble_ops;

/** Bytes of one row of all members' distributions; the maximum over ranks. */
size_t ensemble_row_bytes(const ensemble *self);

/** Columns of `count` that rank r of `size` combines over members: [*first, *first + result). */
int64_t ensemble_columns(int64_t count, int r, int size, int64_t *first);

/** The number of windows of the batch, starting at `first`, whose hidden states of all members fit
 * in memory_bytes too; at least 1. Equal on all ranks. */
void ensemble_take_part(const ensemble *self, const bp_model_batch *batch, int64_t first,
                        bp_model_batch *part);

/** Grow the ensemble's block of memory to the bytes that `arena` has counted, and restart `arena`
 * in it. The contents are lost. Errors: BP_ERR_SYSTEM, the same on all ranks. Collective over
 * mesh->replica. */
bp_err ensemble_reserve(ensemble *self, bp_arena *arena);
/** Space for n objects in the arena; an arena without a base only counts them. */
static inline void *ensemble_take(bp_arena *arena, int64_t n, size_t size)
{
    return bp_arena_floats(arena,
                           (int64_t)(((size_t)n * size + sizeof(float) - 1) / sizeof(float)));
}

/** Work for a batch, with its scored tokens gathered. Collective over mesh->replica. Errors:
 * BP_ERR_SYSTEM, the same on all ranks. */
bp_err ensemble_prepare(ensemble *self, ensemble_work *work, const bp_model_batch *batch,
                        bool temperature);

/** Lay out the work for this many rows decoded at once, all with hidden states; an arena without a
 * base only counts it. */
void ensemble_lay_out_rows(const ensemble *self, ensemble_work *work, int64_t rows,
                           bp_arena *arena);

/** Compute work->hidden of all backbones on this rank. Collective over mesh->replica. Errors:
 * BP_ERR_SYSTEM, the same on all ranks. */
bp_err ensemble_run_backbones(ensemble *self, ensemble_work *work, const bp_model_batch *batch);

/** Combine rows [first, first + rows) of all members: fills work->logits, known, mixed, totals, and
 * the mixture's max and tops, over the whole vocabulary. On the last stage; collective over
 * mesh->tensor and mesh->across. */
void ensemble_mix(ensemble *self, ensemble_work *work, int64_t first, int64_t rows);

/** The input of ensemble_mix. */
bp_mixture ensemble_mixture(const ensemble *self, const ensemble_work *work, int64_t first,
                            int64_t rows);

/** log of the mean of the members' probabilities of row r's target, by log-sum-exp in member order,
 * and the variance of their logs. */
double ensemble_target_logprob(const bp_mixture *in, int64_t r, double *variance);

/** values[k * stride], k counted from BP_MODEL_TEMPERED_LOGPROB, of a distribution whose largest
 * log-probability is `most`, given the sums of exp(b (log p - most)) and of exp(2b (log p - most)).
 */
void ensemble_fill_tempered(float *values, int64_t stride, double beta, double most, double logprob,
                            const double sums[ENSEMBLE_POWERS]);

/** For the last pipeline stage, where logits are. */
bool ensemble_is_last(const ensemble *self);

void ensemble_free(bp_model *model);

/* ensemble_sets.c */
void ensemble_sets_lay_out(ensemble_work *work, int64_t columns, bp_arena *arena);
/** Fill work->set_rows for the rows that ensemble_mix has mixed. On the last stage; collective over
 * mesh->tensor and mesh->across. */
void ensemble_find_sets(ensemble *self, ensemble_work *work, const bp_mixture *all);
/** The statistics of a row: values[statistic * stride]. */
void ensemble_fill_sets(float *values, int64_t stride, const ensemble_set_row *row);

/* ensemble_temperature.c */
/** Fill work->powers for the rows that ensemble_mix has mixed. On the last stage; collective over
 * mesh->tensor and mesh->across. */
void ensemble_find_powers(ensemble *self, ensemble_work *work, const bp_mixture *in);

/* ensemble_texts.c */
/** Do the models lack a softmax over outcomes (regressions, or answers)? */
bool ensemble_is_of_texts(const ensemble *self);
/** `distribution` for such an ensemble; log_p or values may be NULL. Collective over mesh->replica.
 * Errors: BP_ERR_SYSTEM, the same on all ranks. */
bp_err ensemble_run_texts(ensemble *self, const bp_model_batch *batch, float *log_p, float *values);
/** As bp_ensemble_add_scaled, for models that find spans. */
bp_err ensemble_add_scaled_spans(ensemble *self, const bp_model_batch *batch, bp_scaled_sums *sums);

/* ensemble_decode.c: see bp_model_ops. */
bp_err ensemble_decode_new(bp_decoding **out, bp_model *model, int groups, int64_t slots,
                           int64_t capacity);
void ensemble_decode_free(bp_decoding *decoding);
void ensemble_decode_reset(bp_decoding *decoding, int group);
void ensemble_decode_sources(bp_decoding *decoding, int group, const bp_decode_sources *sources);
void ensemble_decode(bp_decoding *decoding, int group, const bp_decode_step *step, float *logits,
                     float *statistics);
int64_t ensemble_decode_bytes(const bp_model *model, int groups, int64_t slots, int64_t capacity);
