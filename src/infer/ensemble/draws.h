/* How the members of an ensemble are made of one checkpoint: passes with dropout, models of dropped
 * weights, samples of the last layer. The methods of uncertainty (uncertainty/methods) fill these
 * tables; an ensemble knows no other way. */
#ifndef BP_INFER_ENSEMBLE_DRAWS_H
#define BP_INFER_ENSEMBLE_DRAWS_H

#include "models/network_model.h"

/** What differs from member to member. The rest exists once. */
typedef enum bp_draws_kind {
    BP_DRAWS_OF_WEIGHTS, /* the weights, as bp_draws_ops.wish asks: a member is a model */
    BP_DRAWS_OF_PASSES,  /* a run of the backbone */
    BP_DRAWS_OF_HEADS    /* what becomes of the states: all members share one run of the backbone */
} bp_draws_kind;

/** Members of one checkpoint. A method's own struct begins with this head. */
typedef struct bp_draws {
    const struct bp_draws_ops *ops;
    int64_t count; /* of members; 0: known once `open` was called */
} bp_draws;

/** Where a member is made. */
typedef struct bp_draw_place {
    bp_model *lm;
    int64_t member;
    bool last;       /* on the last pipeline stage, where logits are */
    int64_t dropout; /* out: `pass` of bp_model_ops.backbone; BP_MODEL_NO_DROPOUT at first */
    int64_t head;    /* out: `head` of bp_model_ops.logits; 0, the model's own, at first */
} bp_draw_place;

/** Some rows of a member: scored places of windows, the same for all members. */
typedef struct bp_draw_rows {
    int64_t member, rows;
    int64_t first_column, columns; /* this rank's part of the outcomes */
    const int64_t *places;         /* [rows] in the batch: window * length + position */
    int64_t first_slot, length;    /* of the batch */
} bp_draw_rows;

/** What keys noise of row r, for any mesh and batches: its window among all that are scored (texts
 * of a task: among the documents), and its place in that. */
static inline int64_t bp_draw_slot(const bp_draw_rows *rows, int64_t r)
{
    return rows->first_slot + rows->places[r] / rows->length;
}
static inline int64_t bp_draw_position(const bp_draw_rows *rows, int64_t r)
{
    return rows->places[r] % rows->length;
}

/** A method's part in an ensemble. Only word, member, kind and identify are required. */
typedef struct bp_draws_ops {
    const char *word;   /* of messages: "dropout" */
    const char *member; /* "pass": members are pass-000, pass-001, ... */
    bp_draws_kind kind;
    /** Open files, before any weight is read. Collective over comm, of all computing ranks. Errors:
     * the same on all of them. */
    bp_err (*open)(bp_draws *self, MPI_Comm comm);
    /** Is it made for the model that was found at `path`? Local. */
    bp_err (*check)(const bp_draws *self, const bp_model_info *info, const char *path);
    /** What the members depend on besides the checkpoint, as text: part of the ensemble's
     * digest. */
    void (*identify)(const bp_draws *self, char *text, size_t bytes);
    /** How the weights of a member are requested (BP_DRAWS_OF_WEIGHTS). */
    void (*wish)(const bp_draws *self, int64_t member, bp_model_wish *wish);
    /** Make a member, once its model is open. Local, on the ranks that have it. */
    bp_err (*add)(bp_draws *self, bp_draw_place *at);
    /** Change logits[rows][columns] of a member, as its head returns them. On the last pipeline
     * stage; no MPI. Such members do not continue sequences. */
    void (*logits)(const bp_draws *self, const bp_draw_rows *rows, float *logits);
    /** out[rows]: how far rows hidden[rows][width] of the member's states are from those of its
     * training (BP_EXTRA_DISTANCE). On the last pipeline stage; no MPI. */
    void (*distance)(bp_draws *self, const float *hidden, int64_t rows, int64_t width, float *out);
    /** What the members take on a rank of the last stage besides the model. */
    int64_t (*bytes)(const bp_draws *self, const bp_model_memory *model, const bp_mesh_shape *mesh);
    /** The ensemble is open, or could not be opened: close files. */
    void (*close)(bp_draws *self);
    /** Frees draws on the heap; NULL is accepted. */
    void (*free)(bp_draws *self);
} bp_draws_ops;

#endif
