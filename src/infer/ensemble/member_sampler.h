/* How an ensemble makes its members from one checkpoint: passes with dropout, models with dropped
 * weights, samples of the last layer. The uncertainty methods (uncertainty/methods) fill these
 * tables. */
#pragma once

#include "models/network/network_model.h"

/** What differs between members; the rest is shared. */
typedef enum bp_member_kind {
    BP_MEMBER_WEIGHTS, /* the weights, as bp_member_sampler_ops.wish requests: a member is a model
                        */
    BP_MEMBER_PASSES,  /* a run of the backbone */
    BP_MEMBER_HEADS    /* the processing of the states: all members share one run of the backbone */
} bp_member_kind;

/** Members of one checkpoint. A method's own struct begins with this head. */
typedef struct bp_member_sampler {
    const struct bp_member_sampler_ops *ops;
    int64_t count; /* number of members; 0 until `open` sets it */
} bp_member_sampler;

/** Where a member is made. */
typedef struct bp_member_place {
    bp_model *model;
    int64_t member;
    bool last;       /* on the last pipeline stage, where logits are */
    int64_t dropout; /* out: `pass` of bp_model_ops.backbone; initially BP_MODEL_NO_DROPOUT */
    int64_t head;    /* out: `head` of bp_model_ops.logits; initially 0, the model's own */
} bp_member_place;

/** Some rows of a member: scored positions of windows, the same for all members. */
typedef struct bp_member_rows {
    int64_t member, rows;
    int64_t first_column, columns; /* this rank's part of the outcomes */
    const int64_t *positions;      /* [rows] in the batch: window * length + position */
    int64_t first_slot, length;    /* of the batch */
} bp_member_rows;

/** Key of the noise of row r, the same for any mesh and batches: the index of its window among all
 * scored windows (for a task's texts: of its document), and its place in the window. */
static inline int64_t bp_member_slot(const bp_member_rows *rows, int64_t r)
{
    return rows->first_slot + rows->positions[r] / rows->length;
}
static inline int64_t bp_member_position(const bp_member_rows *rows, int64_t r)
{
    return rows->positions[r] % rows->length;
}

/** The operations of a method. Only word, member, kind and identify are required. */
typedef struct bp_member_sampler_ops {
    const char *word;   /* for messages: "dropout" */
    const char *member; /* "pass": members are pass-000, pass-001, ... */
    bp_member_kind kind;
    /** Open files, before any weight is read. Collective over comm, of all computing ranks. Errors:
     * the same on all of them. */
    bp_err (*open)(bp_member_sampler *self, MPI_Comm comm);
    /** Was it made for the model at `path`? Local. */
    bp_err (*check)(const bp_member_sampler *self, const bp_model_info *info, const char *path);
    /** What the members depend on in addition to the checkpoint, as text: part of the ensemble's
     * digest. */
    void (*identify)(const bp_member_sampler *self, char *text, size_t bytes);
    /** How the weights of a member are requested (BP_MEMBER_WEIGHTS). */
    void (*wish)(const bp_member_sampler *self, int64_t member, bp_model_wish *wish);
    /** Make a member after its model is opened. Local, on the ranks that have it. */
    bp_err (*add)(bp_member_sampler *self, bp_member_place *at);
    /** Change logits[rows][columns] of a member, as its head returns them. On the last pipeline
     * stage; no MPI. Such members do not continue sequences. */
    void (*logits)(const bp_member_sampler *self, const bp_member_rows *rows, float *logits);
    /** out[rows]: the distance of rows hidden[rows][width] of the member's states from those of its
     * training (BP_EXTRA_DISTANCE). On the last pipeline stage; no MPI. */
    void (*distance)(bp_member_sampler *self, const float *hidden, int64_t rows, int64_t width,
                     float *out);
    /** Bytes of the members on a rank of the last stage, without the model. */
    int64_t (*bytes)(const bp_member_sampler *self, const bp_model_memory *model,
                     const bp_mesh_shape *mesh);
    /** Close files; called when the ensemble is open, or could not be opened. */
    void (*close)(bp_member_sampler *self);
    /** Free a sampler on the heap; NULL is accepted. */
    void (*free)(bp_member_sampler *self);
} bp_member_sampler_ops;
