/* The MLPs of layers as memories: which places of the corpus set off each key, and what its value
 * predicts. Local, but for what is said. */
#ifndef BP_EXPLAIN_STATES_MEMORIES_H
#define BP_EXPLAIN_STATES_MEMORIES_H

#include "explain/states/collection.h"

/** A place with a large coefficient. */
typedef struct bp_trigger {
    float value; /* of a list of the negative ends its opposite */
    int32_t document, place;
    int32_t next; /* the token that follows there; -1: none is known */
} bp_trigger;

/** The k largest of each list, above 0, falling: of equal ones the first of the corpus. */
typedef struct bp_triggers bp_triggers;
struct bp_triggers {
    int64_t lists, k;
    bp_trigger *list; /* [lists][k] */
    int32_t *counts;  /* [lists] */
};
/** Errors: BP_ERR_SYSTEM. Owns: bp_triggers_clear(), after an error too. */
bp_err bp_triggers_new(bp_triggers *out, int64_t lists, int64_t k);
void bp_triggers_clear(bp_triggers *triggers);
/** Is it among the k largest so far, and now one of them? Where it is not, it is not among those of
 * a larger corpus either. */
bool bp_triggers_add(bp_triggers *triggers, int64_t list, const bp_trigger *trigger);

/** What lists there are: of each key of each MLP that explain.layers names, or its two ends. */
typedef struct bp_memory_form {
    int64_t layers, keys, ends; /* MLPs that are looked at; keys of each; 1, or gated 2 */
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

/* ---- what values predict (memory_values.c): units of BP_MEMORY_KEYS keys of a layer ---- */

#define BP_MEMORY_KEYS 64
static inline int64_t bp_memory_units(const bp_memory_form *form)
{
    return form->layers * ((form->keys + BP_MEMORY_KEYS - 1) / BP_MEMORY_KEYS);
}
/** Of a key, as a unit's part has it; and after it the rank of the next token of each of its k
 * triggers; 0: it has none. */
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
/** A unit's part, to `out` (NULL on ranks that are no lead). Collective over settings->group. */
void bp_memory_read(bp_memory_reader *reader, bp_model *lm, int64_t unit, bp_buffer *out);

#endif
