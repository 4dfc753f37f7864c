/* The state of a running explanation. */
#pragma once

#include "explain/examples/examples.h"
#include "explain/keys.h"
#include "explain/states/collection.h"
#include "explain/states/memories.h"
#include "explain/texts/texts.h"
#include "explain/texts/words.h"
#include "io/checkpoint/ensemble_file.h"
#include "job/work.h"

#define EXPLAIN_METHODS 32
#define EXPLAIN_VALUES  "values" /* folder of the parts of states/memory_units.c */

typedef struct explainer {
    bp_work_job *job;
    bp_explain_settings settings;
    const bp_explain_method *methods[EXPLAIN_METHODS]; /* in the order of bp_explain_methods */
    int count;
    explain_texts texts;
    explain_target target; /* requested; texts.wish.target is the resolved one */
    bool prefers;          /* a method, or the target, needs the outcomes that the model prefers */
    int64_t roles[BP_ROLES];
    char corpus_hash[BP_SHA256_HEX];    /* on all ranks */
    char datastore_hash[BP_SHA256_HEX]; /* of explain.datastore; "" if there is none */
    char masks_hash[BP_SHA256_HEX];     /* of explain.masks; "" if there is none */
    char sets_hash[BP_SHA256_HEX];      /* of the file of explain.sets; "" if there is none */
    char key[BP_SHA256_HEX];
    explain_reading read;  /* the current document */
    float *log_p;          /* for some of its positions, with explain.target = best */
    int64_t members;       /* of an ensemble, explained one after another; 0: one model */
    bp_ensemble_list list; /* of them, on the coordinator */
    float *results; /* [1 + members][floats] of the current document: the model's or the mean, then
                       the members'; then the weights of an example, and 1 if it is broken */
    bool broken;    /* the current document has values that are not finite */
    explain_words words;
    const char *ranks[EXPLAIN_METHODS]; /* of bp_explain_settings */
    bp_explain_ranking rankings[EXPLAIN_METHODS];
    explain_examples examples; /* after they are chosen, on leads and the coordinator */
    bool chosen;
    bp_work_units choice;          /* of explain.choose = hardest: how hard each document is */
    char *missing;                 /* an earlier page that is missing; NULL if there is none */
    char *kind;                    /* of the model, on all ranks */
    bp_buffer shares;              /* for methods of the whole corpus; on leads */
    int64_t *chosen_layers;        /* of settings */
    bp_explain_word *chosen_words; /* of settings */
    bp_triggers running;           /* for memories, from this lead's documents so far */
    bp_memory_reader reader;       /* of its values */
    bp_work_units value_units;
    json_t *summary; /* on the coordinator, at the end */
} explainer;

/** Floats of all methods' results of a document. */
static inline int64_t explain_floats(const explainer *self, const bp_explain_form *form)
{
    int64_t floats = 0;

    for (int k = 0; k < self->count; k++)
        floats += bp_explain_floats(self->methods[k], form);
    return floats;
}
/** Of a document. */
static inline bp_explain_form explain_form(const explainer *self, const bp_explained *document)
{
    return bp_explain_form_with(&self->settings, document);
}

/* start/setup.c: setup for methods that change inputs */
/** Set up keys, and methods that rank inputs; the mesh is known. Local. */
void explain_setup(explainer *self);
/** On leads and the coordinator, after texts are opened. Errors: BP_ERR_CONFIG a token that does
 * not exist, or a document with too many words for all sets; those of reading. */
bp_err explain_setup_load(explainer *self);
/** Broadcast rank 0's words and tokens to all ranks. Collective over mesh->world. */
void explain_setup_share(explainer *self);
/** Offset of its array of `ranks` in a document's results. */
void explain_setup_rank(explainer *self, const bp_explain_method *method,
                        const bp_explain_form *form, const float *results);
/** Warn about Shapley values that too few texts leave undetermined. On the coordinator. */
void explain_setup_report(const explainer *self);
/** The additional memory of changed texts, in floats. Local. */
int64_t explain_setup_floats(const explainer *self, const bp_config *config,
                             const bp_explain_form *form, int64_t width);
/** Choose the examples, unless already chosen; explain.choose = hardest uses the parts of
 * self->choice. Local, on leads and the coordinator. Errors: those of parts. */
bp_err explain_choose(explainer *self);
/** Broadcast the document that the lead has read, and whether it is an example, to all ranks of its
 * group. Collective over mesh->model. */
void explain_share_document(explainer *self, bool *example);
/** Fills in self->choice (choice.c). */
void explain_choice_units(explainer *self);
/** Floats of a unit: all methods' results, the weights of an example, and whether it is broken. */
static inline int64_t explain_unit_floats(const explainer *self, const bp_explain_form *form,
                                          bool example)
{
    return (1 + self->members) * explain_floats(self, form) +
           (example && self->examples.weights && form->K > 0 ? explain_weights_floats(form) : 0) +
           (form->K > 0);
}
/** bp_explain_look at the current document's results. Local (results/finite.c). */
void explain_look_at_results(const explainer *self, const bp_explain_form *form);

/* examples.h5 (results/weights_file.c), written front to back. */
#define EXPLAIN_EXAMPLES_FILE "examples.h5"
typedef struct explain_weights_file {
    bp_h5_draft draft;
    int64_t values[BP_EXPLAIN_ATTENTIONS], flows; /* written so far */
} explain_weights_file;
/** Errors: those of bp_h5_create and of writing; no file is made for examples without weights. End
 * after an error too. */
bp_err explain_weights_file_begin(explain_weights_file *file, const explainer *self);
bp_err explain_weights_file_add(explain_weights_file *file, const float *floats,
                                const bp_explain_form *form);
bp_err explain_weights_file_commit(explain_weights_file *file);
void explain_weights_file_end(explain_weights_file *file);

/** Names of the classes or tags of a model; NULL if it has none. Local, on ranks that read. */
const char *const *explain_outcomes(const explainer *self);
/** Bytes of a document's part without the shares of shares.c. */
static inline int64_t explain_results_bytes(const explainer *self, int64_t document)
{
    const explain_sizes *sizes = &self->texts.sizes[document];
    const bp_explained of = {.K = sizes->K, .T = sizes->T, .S = sizes->S};
    const bp_explain_form form = explain_form(self, &of);
    bool example = explain_examples_find(&self->examples, document) >= 0;

    return (sizes->K + explain_unit_floats(self, &form, example)) * (int64_t)sizeof(float);
}

/** Is a method of the whole corpus requested? */
static inline bool explain_collects(const explainer *self)
{
    bool any = false;

    for (int k = 0; k < self->count; k++)
        any = any || self->methods[k]->collect;
    return any;
}

/** states/shares.c: adds the shares of a document to self->shares; writes the file of method k and
 * sets its figures. Errors: those of the methods. */
bp_err explain_collect(explainer *self, const bp_explained *document);
bp_err explain_merge_method(explainer *self, int k, bp_parts *parts, bp_h5 *h5, json_t *figures);

/** Collect the positions of keys from all documents. Local. */
bp_err explain_triggers(const explainer *self, bp_parts *parts, bp_triggers *out);

/** states/memory_units.c: bp_work.units, and memory for the documents of memories. */
const bp_work_units *explain_units(void *context, int index);
bp_err explain_prepare_memories(explainer *self);

/** start/chosen.c: explain.layers as settings->layers; explain.words as tokens, with counts; checks
 * that there are enough tokens for the methods. Errors: BP_ERR_CONFIG; those of reading the
 * corpus. */
bp_err explain_find_layers(explainer *self);
bp_err explain_find_chosen(explainer *self);
void explain_clear_chosen(explainer *self);

/** bp_work_units.merge: METHOD.h5 and summary.json. Errors: those of parts and of writing. */
bp_err explain_merge(void *context, bp_parts *parts);
