/* How the members of an ensemble are made of one checkpoint: passes with dropout, models of dropped
 * weights, samples of the last layer. The methods of uncertainty (uncertainty/methods) fill these
 * tables; an ensemble knows no other way. */
#ifndef BP_INFER_ENSEMBLE_MEMBER_SAMPLER_H
#define BP_INFER_ENSEMBLE_MEMBER_SAMPLER_H

#include "models/network/network_model.h"

/** What differs from member to member. The rest exists once. */
typedef enum bp_member_kind {
    BP_MEMBER_WEIGHTS, /* the weights, as bp_member_sampler_ops.wish asks: a member is a model */
    BP_MEMBER_PASSES,  /* a run of the backbone */
    BP_MEMBER_HEADS    /* what becomes of the states: all members share one run of the backbone */
} bp_member_kind;

/** Members of one checkpoint. A method's own struct begins with this head. */
typedef struct bp_member_sampler {
    const struct bp_member_sampler_ops *ops;
    int64_t count; /* of members; 0: known once `open` was called */
} bp_member_sampler;

/** Where a member is made. */
typedef struct bp_member_place {
    bp_model *lm;
    int64_t member;
    bool last;       /* on the last pipeline stage, where logits are */
    int64_t dropout; /* out: `pass` of bp_model_ops.backbone; BP_MODEL_NO_DROPOUT at first */
    int64_t head;    /* out: `head` of bp_model_ops.logits; 0, the model's own, at first */
} bp_member_place;

/** Some rows of a member: scored places of windows, the same for all members. */
typedef struct bp_member_rows {
    int64_t member, rows;
    int64_t first_column, columns; /* this rank's part of the outcomes */
    const int64_t *places;         /* [rows] in the batch: window * length + position */
    int64_t first_slot, length;    /* of the batch */
} bp_member_rows;

/** What keys noise of row r, for any mesh and batches: its window among all that are scored (texts
 * of a task: among the documents), and its place in that. */
static inline int64_t bp_member_slot(const bp_member_rows *rows, int64_t r)
{
    return rows->first_slot + rows->places[r] / rows->length;
}
static inline int64_t bp_member_position(const bp_member_rows *rows, int64_t r)
{
    return rows->places[r] % rows->length;
}

/** A method's part in an ensemble. Only word, member, kind and identify are required. */
typedef struct bp_member_sampler_ops {
    const char *word;   /* of messages: "dropout" */
    const char *member; /* "pass": members are pass-000, pass-001, ... */
    bp_member_kind kind;
    /** Open files, before any weight is read. Collective over comm, of all computing ranks. Errors:
     * the same on all of them. */
    bp_err (*open)(bp_member_sampler *self, MPI_Comm comm);
    /** Is it made for the model that was found at `path`? Local. */
    bp_err (*check)(const bp_member_sampler *self, const bp_model_info *info, const char *path);
    /** What the members depend on besides the checkpoint, as text: part of the ensemble's
     * digest. */
    void (*identify)(const bp_member_sampler *self, char *text, size_t bytes);
    /** How the weights of a member are requested (BP_MEMBER_WEIGHTS). */
    void (*wish)(const bp_member_sampler *self, int64_t member, bp_model_wish *wish);
    /** Make a member, once its model is open. Local, on the ranks that have it. */
    bp_err (*add)(bp_member_sampler *self, bp_member_place *at);
    /** Change logits[rows][columns] of a member, as its head returns them. On the last pipeline
     * stage; no MPI. Such members do not continue sequences. */
    void (*logits)(const bp_member_sampler *self, const bp_member_rows *rows, float *logits);
    /** out[rows]: how far rows hidden[rows][width] of the member's states are from those of its
     * training (BP_EXTRA_DISTANCE). On the last pipeline stage; no MPI. */
    void (*distance)(bp_member_sampler *self, const float *hidden, int64_t rows, int64_t width,
                     float *out);
    /** What the members take on a rank of the last stage besides the model. */
    int64_t (*bytes)(const bp_member_sampler *self, const bp_model_memory *model,
                     const bp_mesh_shape *mesh);
    /** The ensemble is open, or could not be opened: close files. */
    void (*close)(bp_member_sampler *self);
    /** Free a sampler on the heap; NULL is accepted. */
    void (*free)(bp_member_sampler *self);
} bp_member_sampler_ops;

#endif
