/* The state of a running explanation. */
#ifndef BP_EXPLAIN_EXPLAIN_PRIV_H
#define BP_EXPLAIN_EXPLAIN_PRIV_H

#include "explain/collection.h"
#include "explain/explain.h"
#include "explain/memories.h"
#include "explain/texts.h"

#define EXPLAIN_METHODS 16
#define EXPLAIN_VALUES  "values" /* the folder of the parts of memory_units.c */

typedef struct explainer {
    bp_work_job *job;
    bp_explain_settings settings;
    const bp_explain_method *methods[EXPLAIN_METHODS]; /* in the order of bp_explain_methods */
    int count;
    int64_t layers, heads; /* of the model */
    explain_texts texts;   /* on leads and the coordinator */
    int64_t roles[BP_ROLES];
    char corpus_hash[BP_SHA256_HEX]; /* on all ranks */
    char key[BP_SHA256_HEX];
    int32_t *tokens;         /* [most + 1] of the document at hand */
    int32_t *best;           /* [most] of explain.target = best */
    float *log_p;            /* of some of its places, for that */
    float *results;          /* [floats] of the ranks that are no lead */
    char *kind;              /* of the model, on all ranks */
    bp_buffer shares;        /* of methods of the whole corpus; on leads */
    int64_t *chosen_layers;  /* of settings */
    bp_explain_word *words;  /* of settings */
    bp_triggers running;     /* of memories, of this lead's documents so far */
    bp_memory_reader reader; /* of its values */
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
static inline bp_explain_form explain_form(const explainer *self, int64_t T)
{
    return (bp_explain_form){T, self->layers, self->heads};
}

/** Bytes of a document's part without the shares of shares.c. */
static inline int64_t explain_results_bytes(const explainer *self, int64_t document)
{
    int64_t T = self->texts.places[document];
    const bp_explain_form form = explain_form(self, T);

    return (T + explain_floats(self, &form)) * (int64_t)sizeof(float);
}

/** Is there a method of the whole corpus? */
static inline bool explain_collects(const explainer *self)
{
    bool any = false;

    for (int k = 0; k < self->count; k++)
        any = any || self->methods[k]->collect;
    return any;
}

/** shares.c: shares of a document into self->shares; the file of method k, whose figures are
 * set. Errors: those of the methods. */
bp_err explain_collect(explainer *self, const bp_explained *document);
bp_err explain_merge_method(explainer *self, int k, bp_parts *parts, bp_h5 *h5, json_t *figures);

/** The places of keys, from all documents. Local. */
bp_err explain_triggers(const explainer *self, bp_parts *parts, bp_triggers *out);

/** memory_units.c: bp_work.units; memory for the documents of memories. */
const bp_work_units *explain_units(void *context, int index);
bp_err explain_prepare_memories(explainer *self);

/** words.c: explain.layers as settings->layers; explain.words as tokens, counted, and
 * whether there are tokens enough for the methods. Errors: BP_ERR_CONFIG; those of reading the
 * corpus. */
bp_err explain_find_layers(explainer *self);
bp_err explain_find_words(explainer *self);
void explain_clear_words(explainer *self);

/** bp_work_units.merge: METHOD.h5 and summary.json. Errors: those of parts and of writing. */
bp_err explain_merge(void *context, bp_parts *parts);

#endif
