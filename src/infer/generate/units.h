/* Prompts cut into work units, and one unit continued. */
#ifndef BP_INFER_GENERATE_UNITS_H
#define BP_INFER_GENERATE_UNITS_H

#include "base/buffer.h"
#include "infer/generate/prompts.h"
#include "infer/generate/search.h"
#include "models/model.h"

/** A unit is a run of `unit_prompts` prompts: a function of their number and the keys alone. Its
 * prompts are shared out in order to groups, which keep the stages of a pipeline busy. */
typedef struct bp_generate_plan {
    int64_t prompts, units, unit_prompts;
    int groups;
    int64_t group_prompts, slots; /* of a group at most */
    int64_t room;                 /* positions that a sequence may fill */
    int64_t tokens;               /* new ones of a text, at most */
    int64_t context;              /* of the model */
    bool reads_source;            /* prompts are sources, and texts begin with `start` */
    int32_t start;
} bp_generate_plan;

/** `sequences` side by side where a prompt has no more of its own, `stages` of the pipeline.
 * longest: of the prompts. */
bp_generate_plan bp_generate_plan_of(const bp_search_spec *rule, int64_t prompts, int64_t longest,
                                     int64_t sequences, int64_t tokens, int64_t context,
                                     int stages);
/** New tokens that a prompt of this length may get: so many that all but the last fit the context
 * behind it. */
int64_t bp_generate_room(const bp_generate_plan *plan, int64_t length);

typedef struct bp_unit_spec {
    const bp_mesh *mesh;
    bp_model *lm;
    const bp_search_spec *rule;
    const bp_prompts *prompts; /* equal on all ranks of mesh->ensemble, as all else */
    const bp_generate_plan *plan;
    /** Called on the rank that leads mesh->ensemble behind each step of a group; true: stop. */
    bool (*look)(void *context);
    void *context;
} bp_unit_spec;

typedef struct bp_unit bp_unit;

/** Memory of units that follow each other. `spec` is copied; what it names is borrowed.
 *
 * Collective: over mesh->ensemble. Owns: *out is the caller's, bp_unit_free().
 * Errors:     those of bp_model_decode_new, the same on all ranks of mesh->ensemble. */
bp_err bp_unit_new(bp_unit **out, const bp_unit_spec *spec);
void bp_unit_free(bp_unit **unit);

/** Continue the prompts of unit `number`. On the rank that leads mesh->ensemble `result` gets what
 * came of it (read by bp_result_prompt and bp_result_text, in results.h); elsewhere it stays as it
 * is.
 *
 * *stopped: `look` asked for it, and nothing is in `result`; equal on all ranks.
 *
 * Collective: over mesh->ensemble.
 * Errors:     BP_ERR_SOFTWARE a log-probability that is not finite: the same on all its ranks. */
bp_err bp_unit_run(bp_unit *unit, int64_t number, bp_buffer *result, bool *stopped);

#endif
