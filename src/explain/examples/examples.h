/* Documents shown in detail: each has its own page (explain.examples, explain.choose), and if the
 * model has attention, the weights are kept. Local: no MPI, unless stated. */
#pragma once

#include "explain/texts/texts.h"

typedef struct explain_examples {
    int64_t count;
    int64_t *documents; /* [count] ascending */
    bool weights;       /* attention is among the methods, and the model has heads */
} explain_examples;

/** The rules of explain.choose. */
typedef enum explain_choice { EXPLAIN_FIRST, EXPLAIN_RANDOM, EXPLAIN_HARDEST } explain_choice;

/** Choose at most `most` of the documents with targets. hardness[documents], for EXPLAIN_HARDEST:
 * the largest are taken, the first of equal ones. Clear afterwards. */
void explain_examples_choose(explain_examples *out, explain_choice choice, int64_t most,
                             const explain_texts *texts, const double *hardness, uint64_t seed);
void explain_examples_clear(explain_examples *examples);
/** The number of a document's example; -1 if it is not an example. */
int64_t explain_examples_find(const explain_examples *examples, int64_t document);

/* ---- weights of attention (weights.c) ---- */

/** The most positions of an example for attention flow, which takes T^2 maximum flows. */
#define EXPLAIN_FLOW_POSITIONS 64
/** Floats of explain_weights_of; 0 for a document without targets. */
int64_t explain_weights_floats(const bp_explain_form *form);

/** The weights of one kind of attention among these floats. */
typedef struct explain_weights {
    bp_explain_attends of;
    int64_t kept;      /* per query and head: all, or for a long document the largest */
    int64_t values;    /* of.layers heads of.queries kept */
    int64_t first;     /* keys are at floats + first, weights `values` after them */
    const float *keys; /* [of.layers][heads][of.queries][kept] positions by descending weight, -1:
                          no more */
    const float *weights; /* the same shape */
} explain_weights;
/** All kinds, in the order of bp_explain_attentions, whose number it returns: the others have no
 * values. NULL floats: only the sizes. */
int explain_weights_in(explain_weights out[BP_EXPLAIN_ATTENTIONS], const float *floats,
                       const bp_explain_form *form);
/** flow[T][T] among these floats; NULL if the document is too long for it. */
const float *explain_flow_in(const float *floats, const bp_explain_form *form);

/** Compute the attention weights of a document, in a separate pass, and the flow.
 *
 * Collective: over mesh->model; floats are valid on all its ranks.
 * Errors:     BP_ERR_SYSTEM memory, those of the pass; the same on all ranks. */
bp_err explain_weights_of(float *floats, bp_model *model, const bp_explain_settings *settings,
                          const bp_explained *document);

/** flow[T][T]: the maximum flow from each place above the last layer to each input, through
 * capacities (A_l + I) / 2 between neighbouring layers; A = mean[layers][T][T].
 *
 * Errors:     BP_ERR_SYSTEM memory.
 * Source:     Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers"; Dinic 1970. */
bp_err explain_flow(float *flow, const float *mean, int64_t layers, int64_t T);
