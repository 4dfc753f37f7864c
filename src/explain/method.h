/* Methods of explanation: a table, a file a method. A new one is a file in methods/, its lines
 * in methods.c and in the help of explain.methods (options.c), its tests and its section in
 * docs/explanation.md. */
#ifndef BP_EXPLAIN_METHOD_H
#define BP_EXPLAIN_METHOD_H

#include "base/buffer.h"
#include "explain/keys.h"
#include "io/h5/h5.h"
#include "mesh/collective.h"
#include "models/model.h"

typedef struct bp_explain_collection bp_explain_collection; /* explain/collection.h */
struct bp_explain_word;

/** What methods are told, equal on all ranks but for `counts` and `last`. */
typedef struct bp_explain_settings {
    const bp_model_info *info;
    const bp_explain_keys *keys;
    bool counts;           /* in a sum over the group: tensor ranks have the same states */
    const int64_t *layers; /* [layer_count] of explain.layers, ascending, of 0 to info->layers */
    int64_t layer_count;
    const struct bp_explain_word *words; /* [word_count] of explain.words, on the coordinator */
    int64_t word_count;
    struct bp_triggers *running; /* of memories, on leads */
    int64_t unit;                /* the document at hand */
    MPI_Comm group;              /* mesh->model */
    bool last;                   /* this rank is of the last pipeline stage */
    int64_t most;                /* places of a document */
    int64_t batch;               /* places of a batch */
    bool best;                   /* explain.target = best */
    int64_t steps;               /* of a path from the baseline */
    int64_t baseline;     /* the token whose vector is that of every ordinary one; -1: zeros */
    const int64_t *roles; /* [BP_ROLES] special tokens of the corpus; -1: there is none */
    int64_t lead;         /* the token before a text; -1: none */
} bp_explain_settings;

/** A document: the model reads T inputs, and after place k it predicts the k-th target. */
typedef struct bp_explained {
    int64_t T;
    const int32_t *inputs;  /* [T] */
    const int32_t *targets; /* [T]: what is explained: the next token, or the one that the model
                               prefers */
} bp_explained;

/** What a method leaves of a document. */
typedef enum bp_explain_shape {
    BP_EXPLAIN_BY_TARGET,  /* [T] */
    BP_EXPLAIN_BY_INPUT,   /* [T][T] by target and input: a target's sources come before it, the
                              others are 0 */
    BP_EXPLAIN_BY_LAYER,   /* [T][layers + 1] by target and layer, the embedding first */
    BP_EXPLAIN_TOPS,       /* [T][layers + 1][BP_EXPLAIN_TOP] ids */
    BP_EXPLAIN_BY_HEAD,    /* [layers][heads], once a document */
    BP_EXPLAIN_BY_DOCUMENT /* one value */
} bp_explain_shape;
#define BP_EXPLAIN_TOP 5
typedef struct bp_explain_array {
    const char *name; /* of its dataset; NULL: no more */
    bp_explain_shape shape;
} bp_explain_array;
#define BP_EXPLAIN_ARRAYS 10

/** By which memory is planned: of a model, and the most places of a document. */
typedef struct bp_explain_sizes {
    int64_t T, C, V, layers, keys, factors, triggers;
} bp_explain_sizes;

typedef struct bp_explain_method {
    const char *name; /* of explain.methods, and of its file NAME.h5 */
    const char *help; /* the method being the subject: "is ..." */
    bp_explain_array arrays[BP_EXPLAIN_ARRAYS];
    /** NULL: the model can be explained so; else why not. Local. */
    const char *(*lacks)(const bp_model_info *info);
    /** The results of one document, in the order of `arrays`, one after another. Collective over
     * mesh->model; results are valid on all its ranks. Errors: BP_ERR_SYSTEM memory; the same on
     * all ranks. */
    bp_err (*run)(bp_model *lm, const bp_explain_settings *settings, const bp_explained *document,
                  float *results);
    /** Adds a document to the figures over the corpus, a JSON object. Local. NULL: there are
     * none. */
    void (*add)(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *results);
    /** Makes of the sums what summary.json has. Local. NULL: they are it. */
    void (*finish)(json_t *figures);

    /* Of the whole corpus: in the place of `run` and all after it. */

    /** What a document leaves for `merge`, added to `out` (NULL on ranks that are no lead): whole
     * floats or 32-bit integers. Methods with the same `collect` share it. Collective over
     * mesh->model. Errors: as `run`. */
    bp_err (*collect)(bp_model *lm, const bp_explain_settings *settings,
                      const bp_explained *document, bp_buffer *out);
    /** Writes the file and the figures. Local, on the coordinator. Errors: those of writing, of
     * `read`, and of what it computes. */
    bp_err (*merge)(const bp_explain_collection *all, bp_h5 *h5, json_t *figures);
    /** The ordinary tokens that the corpus must have at least. Local. NULL: none. */
    int64_t (*needs_points)(const bp_explain_keys *keys);
    bool of_keys; /* it is about MLPs: the embedding has none */
    /** The memory that `merge` takes for so many tokens, in bytes. Local. */
    int64_t (*merge_bytes)(const bp_explain_settings *settings, int64_t tokens);
    /** The memory that `collect` takes for a document, in floats. Local. */
    int64_t (*floats)(const bp_explain_sizes *sizes);
} bp_explain_method;

extern const bp_explain_method bp_explain_attention, bp_explain_lens, bp_explain_saliency,
    bp_explain_gradient, bp_explain_integrated, bp_explain_similarity, bp_explain_projection,
    bp_explain_factors, bp_explain_memories;
/** All, NULL-ended. */
extern const bp_explain_method *const bp_explain_methods[];
const bp_explain_method *bp_explain_method_named(const char *name, size_t length);
/** What the job leaves: summary.json, and NAME.h5 of each method. NULL-ended. */
extern const char *const bp_explain_files[];
/** Where a list with commas names it first; NULL: nowhere. */
const char *bp_explain_position(const char *list, const bp_explain_method *method);

/** What the sizes of results depend on. */
typedef struct bp_explain_form {
    int64_t T, layers, heads; /* of a document; of the model */
} bp_explain_form;
/** Does an array have rows by document, and not by target? */
static inline bool bp_explain_is_of_document(const bp_explain_array *array)
{
    return array->shape == BP_EXPLAIN_BY_HEAD || array->shape == BP_EXPLAIN_BY_DOCUMENT;
}
/** Values of an array for a document. Local. */
int64_t bp_explain_values(const bp_explain_array *array, const bp_explain_form *form);
/** Of all arrays together; 0 for a document without targets. Local. */
int64_t bp_explain_floats(const bp_explain_method *method, const bp_explain_form *form);
/** Is it the token before texts, or one of the special tokens of the corpus, which are no words?
 * Local. */
bool bp_explain_is_special(const bp_explain_settings *settings, int32_t token);

/* ---- means over the corpus (means.c) ---- */

/** Adds a document to the list `name`: means[k] for k < count, each the mean of `weight`
 * values; 0: none, and means are not read. Local. */
void bp_explain_add(json_t *figures, const char *name, int64_t count, const float *means,
                    double weight);
/** bp_explain_method.finish of figures that are such lists: the means of all values. Local. */
void bp_explain_means(json_t *figures);

/* ---- what methods that go backward have in common (differentiate.c) ---- */

/** Word vectors of a document. */
typedef struct bp_explain_vectors {
    int64_t E;
    float *own;  /* [T][E] of its inputs */
    float *base; /* [T][E] of the baseline: where it is the input's own, an attribution is 0 */
} bp_explain_vectors;
/** Collective over mesh->model. Owns: bp_explain_vectors_clear(), after an error too. Errors:
 * BP_ERR_SYSTEM: the same on all ranks. */
bp_err bp_explain_vectors_of(bp_explain_vectors *out, bp_model *lm,
                             const bp_explain_settings *settings, const bp_explained *document);
void bp_explain_vectors_clear(bp_explain_vectors *vectors);

/** bp_explain_method.lacks: entmax goes backward by a loss of its own. */
const char *bp_explain_lacks_gradients(const bp_model_info *info);

/** Windows of a document that end at one target each, side by side. */
typedef struct bp_explain_batch {
    bp_model_batch batch;      /* of `windows` windows of `length` places */
    int32_t *inputs, *targets; /* [capacity] places */
    float *vectors;            /* [capacity][E] for the caller; batch.vectors is NULL or this */
    float *gradients;          /* [capacity][E] */
    float *values;             /* [capacity] */
    int64_t capacity;
} bp_explain_batch;
/** Errors: BP_ERR_SYSTEM, on this rank alone: the caller agrees on it. Owns: _free(). */
bp_err bp_explain_batch_new(bp_explain_batch *out, const bp_explain_settings *settings);
void bp_explain_batch_free(bp_explain_batch *batch);
/** Windows of `length` places each that a batch has. */
int64_t bp_explain_batch_windows(const bp_explain_batch *batch, int64_t length);
/** Window `w` reads the document up to place `length`, and its one target is after `place`. */
void bp_explain_batch_set(bp_explain_batch *batch, const bp_explained *document, int64_t w,
                          int64_t place, int64_t length);

#endif
