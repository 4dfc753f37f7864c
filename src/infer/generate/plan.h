/* Prompts cut into work units. */
#pragma once

#include "infer/generate/prompts/prompts.h"
#include "infer/generate/search/search.h"
#include "models/model.h"

/** Iterated filling (fill.h): its rounds, 0 for other strategies, and its special tokens. */
typedef struct bp_fill_rule {
    int64_t rounds, cls, sep, mask;
    bool remask; /* the least probable tokens are masked again */
} bp_fill_rule;

/** A unit is a run of `unit_prompts` prompts: a function of only their number and the keys. Its
 * prompts are distributed in order to groups, which keep the stages of a pipeline busy. */
typedef struct bp_generate_plan {
    int64_t prompts, units, unit_prompts;
    int groups;
    int64_t group_prompts, slots; /* maximum of a group */
    int64_t capacity;             /* positions that a sequence may fill */
    int64_t tokens;               /* maximum of new tokens of a text */
    int64_t context;              /* the model's, less positions reserved for other tokens */
    bool reads_source;            /* prompts are sources, and texts begin with `start` */
    int32_t start;
    bp_fill_rule fill;
} bp_generate_plan;

/** `sequences`: side by side, unless a prompt has more of its own; `stages`: of the pipeline;
 * longest: the longest prompt. */
bp_generate_plan bp_generate_plan_of(const bp_search_spec *rule, int64_t prompts, int64_t longest,
                                     int64_t sequences, int64_t tokens, int64_t context,
                                     int stages);
/** The most new tokens for a prompt of this length: the free positions in the context after it,
 * plus one. */
int64_t bp_generate_tokens_left(const bp_generate_plan *plan, int64_t length);

typedef struct bp_unit_spec {
    const bp_mesh *mesh;
    bp_model *model;
    const bp_search_spec *rule;
    const bp_prompts *prompts; /* equal on all ranks of mesh->replica, like all fields */
    const bp_generate_plan *plan;
    /** Called after each step of a group, on the rank that leads mesh->replica; true: stop. */
    bool (*stop_asked)(void *context);
    void *context;
} bp_unit_spec;
