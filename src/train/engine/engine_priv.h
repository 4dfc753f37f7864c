/* The engine: what a step and its checkpoints share. */
#pragma once

#include "train/engine/engine.h"
#include "train/engine/gradient.h"
#include "train/engine/spectral.h"
#include "train/engine/stage.h"
#include "train/optimizers/optimizer.h"

/* A part of the model, for a step or for evaluations (engine_part.c). */
typedef struct engine_part {
    bp_network *network;
    float *values;
    bp_stage *stage;
} engine_part;

struct bp_engine {
    bp_engine_spec spec;
    bp_model_shape shape;
    const bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    float *values;
    float *dropped; /* masked values, read by blocks; NULL: blocks read values */
    bool masked;    /* in a step */
    bp_stage *stage;
    engine_part *part; /* NULL: the whole model */
    bp_optimizer optimizer;
    bp_spectral *spectral; /* NULL: no weights are bounded */
    bp_async *async;       /* of mesh->data; its part is mesh->expert_data */
    bp_reduction reduction;
    int ready;             /* leading blocks whose parameters have arrived, with copies made */
    float *scratch;        /* of the reduction */
    int64_t slots;         /* of the batch, on this data rank */
    int carries;           /* carried states of the network that training keeps */
    float *carried;        /* their rows: all of one parity, all of the other, then the kept rows */
    int64_t step;          /* the last step, which left them */
    int64_t *expert_loads; /* [layers][experts] rows that chose each expert in the step; NULL if
                              there are no experts */
    bp_expert_load *layer_experts; /* [layers] */
    double *losses;                /* [terms][batch / micro_batch] by micro-batch in slot order */
    bp_corruption corruption;      /* the first one found */
};

/** Floats of what blocks carry, of one parity. Local. */
int64_t engine_carried_floats(const bp_engine *engine);
/** Waits for all parameters, for code that does not read them block by block. Collective over
 * mesh->data, like the functions below. */
void engine_await_parameters(bp_engine *engine);
/** Finishes all gathers into the parameters, for code that overwrites all of them. */
void engine_end_gathers(bp_engine *engine);
/** Call when all values are new, and equal on all ranks that hold them. */
void engine_begin_with_values(bp_engine *engine);

/** The gradient of a batch at the parameters as they are, in this data rank's shards; the step is
 * engine->step. Collective over mesh->member. */
void engine_gradient(bp_engine *engine, const bp_batch *batch, bool second_text,
                     bp_step_result *result);

/* ---- engine_part.c ---- */

/** bp_engine_take_part, when no part is selected and all parameters have arrived. Local. */
bp_err engine_make_part(bp_engine *engine, const bp_model_shape *shape);
void engine_drop_part(bp_engine *engine);
/** bp_stage_accumulate of the part: writes its gradients into the engine's, which are 0 elsewhere,
 * and starts their sums over data ranks. */
void engine_part_accumulate(bp_engine *engine, const bp_stage_step *step, double *loss_sums,
                            int64_t stride);

/* ---- expert_load.c ---- */

/** Rows by layer and expert. Local. */
int64_t engine_load_count(const bp_engine *engine);
/** How the rows of all micro-batches are distributed among experts, by layer and over all layers.
 * The sums over layers overwrite the loads of the first layer. Collective over mesh->data and
 * mesh->pipeline. */
void engine_measure_experts(bp_engine *engine, bp_step_result *result);
