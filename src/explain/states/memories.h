/* The MLPs of layers as memories: which positions of the corpus activate each key, and what its
 * value predicts. Local, unless stated. */
#pragma once

#include "explain/states/collection.h"

/** A place with a large coefficient. */
typedef struct bp_trigger {
    float value; /* for a list of the negative ends, its negation */
    int32_t document, place;
    int32_t next; /* the token that follows; -1 if unknown */
} bp_trigger;

/** The k largest of each list, above 0, descending; the first in the corpus of equal ones. */
typedef struct bp_triggers bp_triggers;
struct bp_triggers {
    int64_t lists, k;
    bp_trigger *list; /* [lists][k] */
    int32_t *counts;  /* [lists] */
};
/** Errors: BP_ERR_SYSTEM. Owns: bp_triggers_clear(), after an error too. */
bp_err bp_triggers_new(bp_triggers *out, int64_t lists, int64_t k);
void bp_triggers_clear(bp_triggers *triggers);
/** Insert it if it is among the k largest so far; returns whether it is. If not, it is not among
 * those of a larger corpus either. */
bool bp_triggers_add(bp_triggers *triggers, int64_t list, const bp_trigger *trigger);

/** The lists: one for each key of each MLP of explain.layers, or one for each of its two ends. */
typedef struct bp_memory_form {
    int64_t layers, keys, ends; /* MLPs used; keys of each; 1, or 2 if gated */
    int64_t *layer;             /* [layers] from 0 on */
} bp_memory_form;
/** Owns: bp_memory_form_clear(). */
bp_memory_form bp_memory_form_of(const bp_explain_settings *settings);
void bp_memory_form_clear(bp_memory_form *form);
static inline int64_t bp_memory_lists(const bp_memory_form *form)
{
    return form->layers * form->keys * form->ends;
}

/** The triggers of all documents. Errors: those of reading, BP_ERR_SYSTEM. Owns: _clear(), after an
 * error too. */
bp_err bp_memory_triggers(bp_triggers *out, const bp_explain_collection *all);

/* ---- predictions of values (memory_values.c): units of BP_MEMORY_KEYS keys of a layer ---- */

#define BP_MEMORY_KEYS 64
static inline int64_t bp_memory_units(const bp_memory_form *form)
{
    return form->layers * ((form->keys + BP_MEMORY_KEYS - 1) / BP_MEMORY_KEYS);
}
/** The record of a key in a unit's part, followed by the rank of the next token of each of its k
 * triggers; 0 if there is none. */
typedef struct bp_memory_value {
    int32_t top[BP_EXPLAIN_TOP];
    float log_p; /* of the first */
} bp_memory_value;

typedef struct bp_memory_reader {
    const bp_explain_settings *settings;
    bp_memory_form form;
    bp_triggers triggers; /* on leads */
    float *rows, *part, *logits, *scratch, *none;
} bp_memory_reader;
/** Memory for units. Errors: BP_ERR_SYSTEM. Owns: bp_memory_reader_clear(), after an error too. */
bp_err bp_memory_reader_new(bp_memory_reader *out, const bp_explain_settings *settings);
void bp_memory_reader_clear(bp_memory_reader *reader);
/** Append a unit's part to `out` (NULL on ranks that do not lead). Collective over
 * settings->group. */
void bp_memory_read(bp_memory_reader *reader, bp_model *model, int64_t unit, bp_buffer *out);
