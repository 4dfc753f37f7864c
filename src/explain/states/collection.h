/* Methods of the whole corpus (bp_explain_method.collect and merge): the data that documents leave
 * for them, and how they read it. */
#pragma once

#include "base/buffer.h"
#include "explain/method.h"
#include "job/parts.h"

/** The data of all documents, on the coordinator. */
struct bp_explain_collection {
    const bp_explain_settings *settings;
    int64_t documents;
    /** Reads the data of document d, borrowed until the next call; *bytes is 0 if it has no
     * predictions. Updates the heartbeat. Errors: those of bp_parts_read; BP_ERR_STOPPED. Local. */
    bp_err (*read)(const bp_explain_collection *all, int64_t document, const char **data,
                   size_t *bytes);
    /** The parts of the values of memories (memories.h); bp_parts_free(). Local. */
    bp_err (*open_values)(const bp_explain_collection *all, bp_parts **out);
    /** Called between two pieces of work: updates the heartbeat. `self` is this struct. Errors:
     * BP_ERR_STOPPED. Local. */
    bp_err (*look)(void *self);
    void *context;
};

/** Errors: BP_ERR_FORMAT a document's data has the wrong size. Local. */
bp_err bp_explain_damaged(int64_t document);

/** Words that select occurrences (explain.words): tokens that are one of `forms`. */
typedef struct bp_explain_word {
    char *text;
    int32_t *forms[2]; /* its tokens at the beginning of a text, and after a blank */
    int64_t lengths[2];
    int64_t occurrences; /* in the documents as they are read */
} bp_explain_word;

/* ---- states (states.c) ---- */

/** The states of a document's ordinary tokens, as collected. */
typedef struct bp_explain_states {
    int64_t n, C;
    const int32_t *positions, *tokens; /* [n] */
    const float *states;               /* [settings->layer_count][n][C] */
} bp_explain_states;

/** bp_explain_method.collect: states after the layers of explain.layers. */
bp_err bp_explain_collect_states(bp_model *model, const bp_explain_settings *settings,
                                 const bp_explained *document, bp_buffer *out);
/** bp_explain_method.floats for states. */
int64_t bp_explain_states_floats(const bp_explain_sizes *sizes);
/** Reads the collected states. Errors: those of `read`; BP_ERR_FORMAT. Local. */
bp_err bp_explain_read_states(const bp_explain_collection *all, int64_t document,
                              bp_explain_states *out);
/** bp_explain_method.lacks */
const char *bp_explain_lacks_layers(const bp_model_info *info);

/* ---- coefficients (coefficients.c) ---- */

/** coefficients[layers][T][keys] of a document. Collective over mesh->model. Errors: those of
 * bp_model_ops.coefficients. */
bp_err bp_explain_coefficients(bp_model *model, const bp_explain_settings *settings,
                               const bp_explained *document, float *coefficients);
/** bp_explain_method.lacks */
const char *bp_explain_lacks_keys(const bp_model_info *info);

/* ---- points and files ---- */

/** The points of a file: the ordinary tokens of the corpus, one after another. */
typedef struct bp_explain_points {
    int64_t n, C;
    int64_t *first;                          /* [documents + 1] */
    int32_t *documents, *positions, *tokens; /* [n] */
} bp_explain_points;
/** Errors: those of reading. Owns: _clear(), after an error too. */
bp_err bp_explain_points_find(bp_explain_points *out, const bp_explain_collection *all);
void bp_explain_points_clear(bp_explain_points *points);
/** point_document, point_place, point_token of the points `chosen` [count] (NULL: all). */
bp_err bp_explain_points_write(const bp_explain_points *points, bp_h5 *h5, const int64_t *chosen,
                               int64_t count);
/** states[count][C] of the points `chosen` (ascending), after layer number `at` of explain.layers.
 */
bp_err bp_explain_points_states(const bp_explain_points *points, const bp_explain_collection *all,
                                int64_t at, const int64_t *chosen, int64_t count, float *states);
/** For each point, the word of explain.words that its token belongs to; -1 if there is none. [n],
 * bp_free(). */
int32_t *bp_explain_points_words(const bp_explain_points *points,
                                 const bp_explain_settings *settings);

/** A table of `rows` x `columns`, as `name`. */
bp_err bp_explain_write_table(bp_h5 *h5, const char *name, bp_h5_type type, const void *data,
                              int64_t rows, int64_t columns);
/** The numbers of explain.layers, as `layer`. */
bp_err bp_explain_write_layers(bp_h5 *h5, const bp_explain_settings *settings);
