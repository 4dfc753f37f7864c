/* Methods of explanation: a table, with one file per method. To add a method: a file in methods/,
 * its lines in methods.c and in the help of explain.methods (options.c), its tests and its section
 * in docs/explanation.md. */
#pragma once

#include "base/buffer.h"
#include "explain/keys.h"
#include "io/h5/h5.h"
#include "mesh/collective.h"
#include "models/model.h"
#include "statistics/ratio.h"

/** The words of the model, for methods that remove them. */
typedef struct bp_explain_words {
    const bool *parts;   /* [words of the model] the token continues the word before it; NULL: each
                            token is a word */
    const int32_t *same; /* [words of the model] the first token with the same text apart from a
                            leading space; NULL: all differ */
} bp_explain_words;

#define BP_EXPLAIN_SHARES 5 /* fractions of inputs removed, for faithfulness */

typedef struct bp_explain_collection bp_explain_collection; /* states/collection.h */
struct bp_explain_word;

/** The settings of methods, equal on all ranks except `counts` and `last`. */
typedef struct bp_explain_settings {
    const bp_model_info *info;
    MPI_Comm group;          /* mesh->model */
    struct bp_work_job *job; /* of bp_explain_step */
    bool last;               /* this rank is on the last pipeline stage */
    int64_t most;            /* positions of a document, or of its source */
    int64_t batch;           /* positions of a batch */
    bool best;               /* explain.target = best */
    int64_t steps;           /* steps of a path from the baseline */
    int64_t baseline; /* the token whose vector replaces that of each ordinary token; -1: zeros */
    const int64_t *roles;   /* [BP_ROLES] special tokens of the corpus; -1 if there is none */
    int64_t lead;           /* the token before a text; -1 if there is none */
    int64_t eod;            /* that ends documents; -1 if there is none */
    const char *separators; /* explain.separators; NULL if not set */
    const bp_explain_keys *keys;
    uint64_t seed;
    bp_explain_words words;
    int64_t removal;    /* the token that replaces removed ones; -1 if there is none */
    const char **ranks; /* methods of bp_explained.rankings, in their order */
    int64_t ranks_count;
    bool counts;           /* in a sum over the group, because tensor ranks have the same states */
    const int64_t *layers; /* [layer_count] of explain.layers, ascending, in 0 to info->layers */
    int64_t layer_count;
    const struct bp_explain_word
        *chosen_words; /* [word_count] of explain.words, on the coordinator */
    int64_t word_count;
    struct explain_nearest *nearest; /* for the method sources: nearest/nearest.h */
    struct bp_triggers *running;     /* for the method memories, on leads */
    int64_t unit;                    /* the current document */
    bool *broken;                    /* of it: bp_explain_look */
} bp_explain_settings;

/** A method's attributions of the inputs: values[K][T], or [T][T] by place. */
typedef struct bp_explain_ranking {
    const float *values;
    bool by_place;
} bp_explain_ranking;

/** A document: the model's inputs, and K predictions to explain. */
typedef struct bp_explained {
    int64_t number;  /* of the document in the corpora */
    int64_t K, T, S; /* predictions; inputs; for an encoder-decoder, positions of the source */
    const int32_t *inputs;    /* [T] */
    const int32_t *segments;  /* [T]; NULL if it has none */
    const int32_t *sources;   /* [S] */
    const int32_t *targets;   /* [K]: the outcome explained: the next token, or the preferred one */
    const int32_t *positions; /* [K]: target k is predicted at this input; for a causal model K = T
                              and positions[k] = k. For a task as bp_model_batch.targets */
    /* for contrast_sets: */
    int64_t set, of;       /* its set, -1 if it has none; the document that it is a window of */
    double value;          /* of a regression: the corpus's; NaN if there is none */
    const int32_t *labels; /* [K] the corpus's outcome of each target; -1 if it is not known */
    int64_t hides; /* the token at a target's place while it is explained (positions are masked in
                      turn); -1: inputs are read as they are */
    const int32_t *foils; /* [K][bp_explain_foils] of bp_explain_contrast; else not filled */
    const bp_explain_ranking *rankings; /* of earlier methods */
} bp_explained;

/** The kinds of results of a method for a document. */
typedef enum bp_explain_shape {
    BP_EXPLAIN_BY_TARGET, /* [K] */
    BP_EXPLAIN_BY_INPUT, /* [K][T] by target and input; 0 for inputs that the target does not depend
                            on */
    BP_EXPLAIN_BY_SOURCE,           /* [K][S] by target and place of the source */
    BP_EXPLAIN_BY_POSITIONS,        /* [T][T] by place and input */
    BP_EXPLAIN_BY_SOURCE_POSITIONS, /* [S][S] */
    BP_EXPLAIN_BY_FOIL,             /* [K][foils] */
    BP_EXPLAIN_BY_FOIL_INPUT,       /* [K][foils][T] */
    BP_EXPLAIN_BY_FOIL_SOURCE,      /* [K][foils][S] */
    BP_EXPLAIN_BY_LAYER,            /* [K][layers + 1] by target and layer, the embedding first */
    BP_EXPLAIN_TOPS,                /* [K][layers + 1][BP_EXPLAIN_TOP] ids */
    BP_EXPLAIN_NEIGHBOURS,          /* [K][explain.neighbours] */
    BP_EXPLAIN_CURVES,              /* [K][settings->ranks_count + 1][BP_EXPLAIN_SHARES] */
    BP_EXPLAIN_BY_PLACE,            /* [T] by input */
    BP_EXPLAIN_BY_SOURCE_PLACE,     /* [S] by place of the source */
    BP_EXPLAIN_FLIPS,               /* [T][explain.flips] by input */
    BP_EXPLAIN_SOURCE_FLIPS,        /* [S][explain.flips] by place of the source */
    BP_EXPLAIN_BY_HEAD,             /* [layers][heads], once per document */
    BP_EXPLAIN_BY_SOURCE_HEAD, /* [source_layers][heads] of the encoder of an encoder-decoder */
    BP_EXPLAIN_BY_CROSS_HEAD,  /* [layers][heads] of attention to a source */
    BP_EXPLAIN_EDITS,          /* [explain.edits] */
    BP_EXPLAIN_BY_OUTCOME,     /* [outcomes] of classes */
    BP_EXPLAIN_BY_DOCUMENT,    /* one value */
    BP_EXPLAIN_BY_PAIR,        /* one value, for a document with a source */
    BP_EXPLAIN_SHAPES
} bp_explain_shape; /* from BY_HEAD on, values are per document and of one size */
#define BP_EXPLAIN_TOP 5
typedef struct bp_explain_array {
    const char *name; /* of its dataset; NULL ends the list */
    bp_explain_shape shape;
} bp_explain_array;
#define BP_EXPLAIN_ARRAYS  32
#define BP_EXPLAIN_MISSING 4

/** Input of memory planning: sizes of a model, and the most positions of a document. */
typedef struct bp_explain_sizes {
    int64_t T, C, V, layers, keys, factors, triggers;
} bp_explain_sizes;

typedef struct bp_explain_method {
    const char *name;  /* in explain.methods, and in its file NAME.h5 */
    const char *title; /* a heading of pages */
    const char *help;  /* a predicate of the method: "is ..." */
    bool averages; /* a mean over the members of an ensemble is meaningful; else each member has its
                      own results and figures */
    bool backward; /* it needs gradients or the weights themselves: not for 8-bit weights */
    bool of_one;   /* it works on one model, not on an ensemble; so do methods with `collect` */
    bp_explain_array arrays[BP_EXPLAIN_ARRAYS];
    const char *missing[BP_EXPLAIN_MISSING]; /* arrays with NaN where something does not exist,
                                                besides those by head, flips and curves. NaN in the
                                                others comes of a broken model */
    bool changes;                            /* it uses changed inputs */
    const char *ranks; /* the array of attributions of inputs; NULL if there is none */
    /** Why the method cannot explain the model; NULL if it can. Local. */
    const char *(*lacks)(const bp_model_info *info);
    /** The results of one document: to[k], which follow each other, for `arrays[k]`. Collective
     * over mesh->model; results are valid on all its ranks. Errors: BP_ERR_SYSTEM memory; the same
     * on all ranks. */
    bp_err (*run)(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to);
    /** Adds a document to the figures over the corpus, a JSON object. Local. NULL if there are
     * none. */
    void (*add)(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at);
    /** Converts the sums to the figures of summary.json. Local. NULL if the sums are the
     * figures. */
    void (*finish)(json_t *figures);

    /* For methods of the whole corpus: instead of `run` and the members after it. */

    /** Appends a document's data for `merge` to `out` (NULL on ranks that do not lead): whole
     * floats or 32-bit integers. Methods with the same `collect` share it. Collective over
     * mesh->model. Errors: as `run`. */
    bp_err (*collect)(bp_model *model, const bp_explain_settings *settings,
                      const bp_explained *document, bp_buffer *out);
    /** Writes the file and the figures. Local, on the coordinator. Errors: those of writing, of
     * `read`, and of its computations. */
    bp_err (*merge)(const bp_explain_collection *all, bp_h5 *h5, json_t *figures);
    /** The least number of ordinary tokens of the corpus. Local. NULL: 0. */
    int64_t (*needs_points)(const bp_explain_keys *keys);
    bool of_keys; /* it explains MLPs, so the embedding is excluded */
    /** The memory that `merge` takes for this many tokens, in bytes. Local. */
    int64_t (*merge_bytes)(const bp_explain_settings *settings, int64_t tokens);
    /** The memory that `collect` takes for a document, in floats. Local. */
    int64_t (*floats)(const bp_explain_sizes *sizes);
} bp_explain_method;

extern const bp_explain_method bp_explain_attention, bp_explain_lens, bp_explain_saliency,
    bp_explain_gradient, bp_explain_integrated, bp_explain_contrast, bp_explain_surrogate,
    bp_explain_shapley, bp_explain_counterfactual, bp_explain_faithfulness, bp_explain_sources,
    bp_explain_contrast_sets, bp_explain_similarity, bp_explain_projection, bp_explain_factors,
    bp_explain_memories;
/** All methods, NULL-ended. */
extern const bp_explain_method *const bp_explain_methods[];
const bp_explain_method *bp_explain_method_named(const char *name, size_t length);
/** The job's files: summary.json, and NAME.h5 of each method. NULL-ended. */
extern const char *const bp_explain_files[];
/** Its first place in a comma-separated list; NULL if it is not in the list. */
const char *bp_explain_position(const char *list, const bp_explain_method *method);

/** The sizes of a document and of the model that determine the sizes of results. */
typedef struct bp_explain_form {
    int64_t K, T, S;
    int64_t layers, heads, source_layers, foils, outcomes;
    int64_t flips, edits, curves; /* per place; per document; per target */
    int64_t neighbours;           /* per target */
} bp_explain_form;
/** The number of outcomes that contrast compares a target with: for a text's class all others, else
 * one. Local. */
int64_t bp_explain_foils(const bp_model_info *info);
/** Sets all of it. */
bp_explain_form bp_explain_form_with(const bp_explain_settings *settings,
                                     const bp_explained *document);
bp_explain_form bp_explain_form_of(const bp_model_info *info, const bp_explained *document);
/** Number of values of an array for a document. Local. */
int64_t bp_explain_values(const bp_explain_array *array, const bp_explain_form *form);
/** The same for all arrays together; 0 for a document without targets. Local. */
int64_t bp_explain_floats(const bp_explain_method *method, const bp_explain_form *form);
/** The layers of an array by head; 0 for other arrays. Local. */
int64_t bp_explain_head_layers(const bp_explain_array *array, const bp_model_info *info);
/** One kind of attention of a model: its layers have a query at each place of one text, and keys at
 * the positions of the same or of another. */
typedef struct bp_explain_attends {
    const char *prefix; /* of the names of its datasets */
    const char *what;   /* of bp_probed */
    bool in_source;     /* its layers are the encoder's: bp_model_info.first_source_layer */
    int64_t layers, queries, keys;
} bp_explain_attends;
#define BP_EXPLAIN_ATTENTIONS 3
/** The kinds for a document: of the text to itself, of its source to itself, and of the text to the
 * source. Returns their number: 1 without a source, when the others have no queries or keys. Local.
 */
int bp_explain_attentions(bp_explain_attends out[BP_EXPLAIN_ATTENTIONS],
                          const bp_explain_form *form);
/** at[k]: the offset of array k in a document's results. Local. */
void bp_explain_lay_out(const float *at[BP_EXPLAIN_ARRAYS], const bp_explain_method *method,
                        const bp_explain_form *form, const float *results);
/** The same for results that are written. */
void bp_explain_lay_out_to(float *at[BP_EXPLAIN_ARRAYS], const bp_explain_method *method,
                           const bp_explain_form *form, float *results);
/** Is it the token before texts, or one of the corpus's special tokens, which are not words?
 * Local. */
bool bp_explain_is_special(const bp_explain_settings *settings, int32_t token);
/** Does it separate texts, or sentences, for the shares of attention (explain.separators)? Local.
 */
bool bp_explain_separates(const bp_explain_settings *settings, int32_t token);
/** Does the model predict only from the inputs up to a place? Local. */
bool bp_explain_is_causal(const bp_model_info *info);
/** Called between two batches of a document: updates the heartbeat, lets the coordinator answer
 * requests, and checks for a stop request. Collective over settings->group. Errors: BP_ERR_STOPPED,
 * the same on all its ranks: the method returns it, and the unit is repeated later. */
bp_err bp_explain_step(const bp_explain_settings *settings);
/** The inputs that a model reads for target k: those of a causal model end at the target's place.
 * Local. */
int64_t bp_explain_length(const bp_explain_settings *settings, const bp_explained *document,
                          int64_t k);

/** The document as one window, with its targets: targets[T], source_length[1] are filled and stay
 * the caller's. Local. */
bp_model_batch bp_explain_whole(const bp_explained *document, int32_t *targets,
                                int32_t *source_length);

/** Notes the current document if one of its values is not finite: what the model computes, for
 * methods of the whole corpus. Local (results/finite.c). */
void bp_explain_look(const bp_explain_settings *settings, const float *values, int64_t count);

/* ---- means over the corpus (results/means.c) ---- */

/** Adds a document to the list `name`: means[k] for k < count, each the mean of `weight` values;
 * weight 0: no values, and means is not read. Local. */
void bp_explain_add(json_t *figures, const char *name, int64_t count, const float *means,
                    double weight);
/** Called after a document's additions: intervals are over documents. Local. */
void bp_explain_end_document(json_t *figures);
/** bp_explain_method.finish for figures that are such lists: the means of all values, and
 * figures.intervals with the same names. Local. */
void bp_explain_means(json_t *figures);
/** The 95 % interval [low, high], or null for few documents. New reference. */
json_t *bp_explain_interval(const bp_ratio *ratio);

/* ---- shared by methods that need gradients (differentiate.c) ---- */

/** Word vectors of a document. */
typedef struct bp_explain_vectors {
    int64_t E;
    float *own;  /* [T][E] of its inputs */
    float *base; /* [T][E] of the baseline; if it is the input's own vector, the attribution is 0 */
    float *source_own, *source_base; /* [S][E]; NULL if there is no source */
    float *hidden, *hidden_base; /* [E] of the token that hides targets; NULL if there is none */
    int64_t hides;               /* the place that has them now; -1 if there is none */
} bp_explain_vectors;
/** Collective over mesh->model. Owns: bp_explain_vectors_clear(), after an error too. Errors:
 * BP_ERR_SYSTEM: the same on all ranks. */
bp_err bp_explain_vectors_of(bp_explain_vectors *out, bp_model *model,
                             const bp_explain_settings *settings, const bp_explained *document);
/** Put the hiding vector, if there is one, at the place of target k, and restore the vector at the
 * previous place. Local. */
void bp_explain_hide(bp_explain_vectors *vectors, const bp_explained *document, int64_t k);
void bp_explain_vectors_clear(bp_explain_vectors *vectors);

/** bp_explain_method.lacks: entmax has its own loss for the backward pass. */
const char *bp_explain_lacks_gradients(const bp_model_info *info);

/** Windows of a document for one target each, side by side. */
typedef struct bp_explain_batch {
    bp_model_batch batch;      /* of `windows` windows of `length` positions */
    int32_t *inputs, *targets; /* [capacity] positions */
    int32_t *segments;         /* [capacity] */
    int32_t *sources;          /* [capacity] positions of sources */
    int32_t *source_lengths;   /* [capacity] */
    float *vectors;            /* [capacity][E] for the caller; batch.vectors is NULL or this */
    float *gradients;          /* [capacity][E] */
    float *source_vectors, *source_gradients; /* [capacity][E], for a model that reads a source */
    float *values;                            /* [capacity] */
    int64_t capacity;
} bp_explain_batch;
/** Errors: BP_ERR_SYSTEM, on this rank only: the caller agrees on it. Owns: _free(). */
bp_err bp_explain_batch_new(bp_explain_batch *out, const bp_explain_settings *settings);
void bp_explain_batch_free(bp_explain_batch *batch);
/** The number of windows of `length` positions, with the document's source, in a batch; at least 1.
 */
int64_t bp_explain_batch_windows(const bp_explain_batch *batch, const bp_explained *document,
                                 int64_t length);
/** Windows from `first` on, `each` per target. */
typedef struct bp_explain_run {
    int64_t first, each;
    bool again; /* the batch repeats all of them */
} bp_explain_run;
/** The number of them that fit in a batch, and the inputs of each; no target needs inputs after it.
 * All windows are as long as the longest. The padding costs no more than another batch, which reads
 * all weights again or, if windows are repeated, needs another forward pass. Local. */
int64_t bp_explain_batch_fill(const bp_explain_batch *batch, const bp_explain_settings *settings,
                              const bp_explained *document, bp_explain_run run, int64_t *length);
/** Make window `w` read the document up to place `length`, with target k as its only target. */
void bp_explain_batch_set(bp_explain_batch *batch, const bp_explained *document, int64_t w,
                          int64_t k, int64_t length);
