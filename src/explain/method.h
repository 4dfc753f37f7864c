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
#include "statistics/ratio.h"

/** What words are, for methods that remove them. */
typedef struct bp_explain_words {
    const bool *parts;   /* [words of the model] does a token go on with the word before it? NULL:
                            each token is a word */
    const int32_t *same; /* [words of the model] the first token of the same text but for a space
                            before it; NULL: they differ */
} bp_explain_words;

#define BP_EXPLAIN_SHARES 5 /* of inputs that are removed, of faithfulness */

typedef struct bp_explain_collection bp_explain_collection; /* states/collection.h */
struct bp_explain_word;

/** What methods are told, equal on all ranks but for `counts` and `last`. */
typedef struct bp_explain_settings {
    const bp_model_info *info;
    MPI_Comm group;          /* mesh->model */
    struct bp_work_job *job; /* of bp_explain_step */
    bool last;               /* this rank is of the last pipeline stage */
    int64_t most;            /* places of a document, or of its source */
    int64_t batch;           /* places of a batch */
    bool best;               /* explain.target = best */
    int64_t steps;           /* of a path from the baseline */
    int64_t baseline;        /* the token whose vector is that of every ordinary one; -1: zeros */
    const int64_t *roles;    /* [BP_ROLES] special tokens of the corpus; -1: there is none */
    int64_t lead;            /* the token before a text; -1: none */
    int64_t eod;             /* that ends documents; -1: none */
    const char *separators;  /* explain.separators; NULL: not given */
    const bp_explain_keys *keys;
    uint64_t seed;
    bp_explain_words words;
    int64_t removal;    /* the token in the place of what is removed; -1: nothing is */
    const char **ranks; /* methods of bp_explained.rankings, in their order */
    int64_t ranks_count;
    bool counts;           /* in a sum over the group: tensor ranks have the same states */
    const int64_t *layers; /* [layer_count] of explain.layers, ascending, of 0 to info->layers */
    int64_t layer_count;
    const struct bp_explain_word
        *chosen_words; /* [word_count] of explain.words, on the coordinator */
    int64_t word_count;
    struct explain_nearest *nearest; /* of sources: nearest/nearest.h */
    struct bp_triggers *running;     /* of memories, on leads */
    int64_t unit;                    /* the document at hand */
} bp_explain_settings;

/** What a method says of how much each input counts: values[K][T], or [T][T] by place. */
typedef struct bp_explain_ranking {
    const float *values;
    bool by_place;
} bp_explain_ranking;

/** A document: what the model reads of it, and K predictions that are explained. */
typedef struct bp_explained {
    int64_t number;          /* of the document in the corpora */
    int64_t K, T, S;         /* predictions; inputs; of an encoder-decoder places of its source */
    const int32_t *inputs;   /* [T] */
    const int32_t *segments; /* [T]; NULL: it has none */
    const int32_t *sources;  /* [S] */
    const int32_t *targets;  /* [K]: what is explained: the next token, or the one that the model
                                prefers */
    const int32_t *places;   /* [K]: target k is predicted at this input; of a causal model K = T
                                and places[k] = k. Of a task as bp_model_batch.targets */
    int64_t set, label;      /* of contrast_sets: the set that it is of, and its class; -1: none */
    int64_t hides;           /* the token that is at a target's place while it is explained: texts
                                are masked in turn; -1: inputs are read as they are */
    const int32_t *foils;    /* [K][bp_explain_foils] of bp_explain_contrast; else not filled */
    const bp_explain_ranking *rankings; /* of the methods that ran before */
} bp_explained;

/** What a method leaves of a document. */
typedef enum bp_explain_shape {
    BP_EXPLAIN_BY_TARGET,        /* [K] */
    BP_EXPLAIN_BY_INPUT,         /* [K][T] by target and input: those that it does not read are 0 */
    BP_EXPLAIN_BY_SOURCE,        /* [K][S] by target and place of the source */
    BP_EXPLAIN_BY_PLACES,        /* [T][T] by place and input */
    BP_EXPLAIN_BY_SOURCE_PLACES, /* [S][S] */
    BP_EXPLAIN_BY_FOIL,          /* [K][foils] */
    BP_EXPLAIN_BY_FOIL_INPUT,    /* [K][foils][T] */
    BP_EXPLAIN_BY_FOIL_SOURCE,   /* [K][foils][S] */
    BP_EXPLAIN_BY_LAYER,         /* [K][layers + 1] by target and layer, the embedding first */
    BP_EXPLAIN_TOPS,             /* [K][layers + 1][BP_EXPLAIN_TOP] ids */
    BP_EXPLAIN_NEIGHBOURS,       /* [K][explain.neighbours] */
    BP_EXPLAIN_CURVES,           /* [K][settings->ranks_count + 1][BP_EXPLAIN_SHARES] */
    BP_EXPLAIN_BY_PLACE,         /* [T] by input */
    BP_EXPLAIN_BY_SOURCE_PLACE,  /* [S] by place of the source */
    BP_EXPLAIN_FLIPS,            /* [T][explain.flips] by input */
    BP_EXPLAIN_SOURCE_FLIPS,     /* [S][explain.flips] by place of the source */
    BP_EXPLAIN_BY_HEAD,          /* [layers][heads], once a document */
    BP_EXPLAIN_BY_SOURCE_HEAD,   /* [source_layers][heads] of an encoder-decoder's encoder */
    BP_EXPLAIN_BY_CROSS_HEAD,    /* [layers][heads] of attention to a source */
    BP_EXPLAIN_EDITS,            /* [explain.edits] */
    BP_EXPLAIN_BY_OUTCOME,       /* [outcomes] of classes */
    BP_EXPLAIN_BY_DOCUMENT,      /* one value */
    BP_EXPLAIN_BY_PAIR,          /* one value, of a document with a source */
    BP_EXPLAIN_SHAPES
} bp_explain_shape; /* from BY_HEAD on values are once a document, of one size */
#define BP_EXPLAIN_TOP 5
typedef struct bp_explain_array {
    const char *name; /* of its dataset; NULL: no more */
    bp_explain_shape shape;
} bp_explain_array;
#define BP_EXPLAIN_ARRAYS 32

/** By which memory is planned: of a model, and the most places of a document. */
typedef struct bp_explain_sizes {
    int64_t T, C, V, layers, keys, factors, triggers;
} bp_explain_sizes;

typedef struct bp_explain_method {
    const char *name; /* of explain.methods, and of its file NAME.h5 */
    const char *help; /* the method being the subject: "is ..." */
    bool averages;    /* the mean of the members of an ensemble means something; else each member
                         has results and figures of its own */
    bool backward;    /* it goes backward, or reads the weights themselves: not in 8 bits */
    bool of_one;      /* it is of one model: an ensemble has none. So are those with `collect` */
    bp_explain_array arrays[BP_EXPLAIN_ARRAYS];
    bool changes;      /* it looks at changed inputs */
    const char *ranks; /* the array that says how much each input counts; NULL: none does */
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
    bp_explain_gradient, bp_explain_integrated, bp_explain_contrast, bp_explain_surrogate,
    bp_explain_shapley, bp_explain_counterfactual, bp_explain_faithfulness, bp_explain_sources,
    bp_explain_contrast_sets, bp_explain_similarity, bp_explain_projection, bp_explain_factors,
    bp_explain_memories;
/** All, NULL-ended. */
extern const bp_explain_method *const bp_explain_methods[];
const bp_explain_method *bp_explain_method_named(const char *name, size_t length);
/** What the job leaves: summary.json, and NAME.h5 of each method. NULL-ended. */
extern const char *const bp_explain_files[];
/** Where a list with commas names it first; NULL: nowhere. */
const char *bp_explain_position(const char *list, const bp_explain_method *method);

/** What the sizes of results depend on: of a document, and of the model. */
typedef struct bp_explain_form {
    int64_t K, T, S;
    int64_t layers, heads, source_layers, foils, outcomes;
    int64_t flips, edits, curves; /* of a place; of a document; of a target */
    int64_t neighbours;           /* of a target */
} bp_explain_form;
/** The outcomes that a target is held against by contrast: of a text's class all others, else one.
 * Local. */
int64_t bp_explain_foils(const bp_model_info *info);
/** All of it. */
bp_explain_form bp_explain_form_with(const bp_explain_settings *settings,
                                     const bp_explained *document);
bp_explain_form bp_explain_form_of(const bp_model_info *info, const bp_explained *document);
/** Values of an array for a document. Local. */
int64_t bp_explain_values(const bp_explain_array *array, const bp_explain_form *form);
/** Of all arrays together; 0 for a document without targets. Local. */
int64_t bp_explain_floats(const bp_explain_method *method, const bp_explain_form *form);
/** at[k]: where array k begins in a document's results. Local. */
void bp_explain_lay_out(const float *at[BP_EXPLAIN_ARRAYS], const bp_explain_method *method,
                        const bp_explain_form *form, const float *results);
/** The same of results that are written. */
void bp_explain_lay_out_to(float *at[BP_EXPLAIN_ARRAYS], const bp_explain_method *method,
                           const bp_explain_form *form, float *results);
/** Is it the token before texts, or one of the special tokens of the corpus, which are no words?
 * Local. */
bool bp_explain_is_special(const bp_explain_settings *settings, int32_t token);
/** Does it separate texts, or sentences, for the shares of attention (explain.separators)? Local.
 */
bool bp_explain_separates(const bp_explain_settings *settings, int32_t token);
/** Does a model predict from the inputs up to a place alone? Local. */
bool bp_explain_is_causal(const bp_model_info *info);
/** Between two batches of a document: it moves the heartbeat, has the coordinator answer
 * questions, and asks whether to stop. Collective over settings->group. Errors: BP_ERR_STOPPED
 * stop here: the same on all its ranks; the method returns it, and the unit is done again. */
bp_err bp_explain_step(const bp_explain_settings *settings);
/** The inputs that a model reads for target k: those of a causal one end at its place. Local. */
int64_t bp_explain_length(const bp_explain_settings *settings, const bp_explained *document,
                          int64_t k);

/** The document as one window, with its targets: targets[T], source_length[1] are filled and stay
 * the caller's. Local. */
bp_model_batch bp_explain_whole(const bp_explained *document, int32_t *targets,
                                int32_t *source_length);

/* ---- means over the corpus (results/means.c) ---- */

/** Adds a document to the list `name`: means[k] for k < count, each the mean of `weight`
 * values; 0: none, and means are not read. Local. */
void bp_explain_add(json_t *figures, const char *name, int64_t count, const float *means,
                    double weight);
/** After what a document adds: intervals are by documents. Local. */
void bp_explain_end_document(json_t *figures);
/** bp_explain_method.finish of figures that are such lists: the means of all values, and
 * figures.intervals by the same names. Local. */
void bp_explain_means(json_t *figures);
/** [low, high] of 95 %, or null of few documents. New reference. */
json_t *bp_explain_interval(const bp_ratio *ratio);

/* ---- what methods that go backward have in common (differentiate.c) ---- */

/** Word vectors of a document. */
typedef struct bp_explain_vectors {
    int64_t E;
    float *own;  /* [T][E] of its inputs */
    float *base; /* [T][E] of the baseline: where it is the input's own, an attribution is 0 */
    float *source_own, *source_base; /* [S][E]; NULL: there is no source */
    float *hidden, *hidden_base;     /* [E] of the token that hides targets; NULL: none does */
    int64_t hides;                   /* the place that has them now; -1: none */
} bp_explain_vectors;
/** Collective over mesh->model. Owns: bp_explain_vectors_clear(), after an error too. Errors:
 * BP_ERR_SYSTEM: the same on all ranks. */
bp_err bp_explain_vectors_of(bp_explain_vectors *out, bp_model *lm,
                             const bp_explain_settings *settings, const bp_explained *document);
/** Have the place of target k read what hides it, where something does; the place before reads its
 * own vector again. Local. */
void bp_explain_hide(bp_explain_vectors *vectors, const bp_explained *document, int64_t k);
void bp_explain_vectors_clear(bp_explain_vectors *vectors);

/** bp_explain_method.lacks: entmax goes backward by a loss of its own. */
const char *bp_explain_lacks_gradients(const bp_model_info *info);

/** Windows of a document for one target each, side by side. */
typedef struct bp_explain_batch {
    bp_model_batch batch;      /* of `windows` windows of `length` places */
    int32_t *inputs, *targets; /* [capacity] places */
    int32_t *segments;         /* [capacity] */
    int32_t *sources;          /* [capacity] places of sources */
    int32_t *source_lengths;   /* [capacity] */
    float *vectors;            /* [capacity][E] for the caller; batch.vectors is NULL or this */
    float *gradients;          /* [capacity][E] */
    float *source_vectors, *source_gradients; /* [capacity][E], of a model that reads a source */
    float *values;                            /* [capacity] */
    int64_t capacity;
} bp_explain_batch;
/** Errors: BP_ERR_SYSTEM, on this rank alone: the caller agrees on it. Owns: _free(). */
bp_err bp_explain_batch_new(bp_explain_batch *out, const bp_explain_settings *settings);
void bp_explain_batch_free(bp_explain_batch *batch);
/** Windows of `length` places each, and the document's source, that a batch has; 1 at least. */
int64_t bp_explain_batch_windows(const bp_explain_batch *batch, const bp_explained *document,
                                 int64_t length);
/** Windows from `first` on, `each` of a target. */
typedef struct bp_explain_run {
    int64_t first, each;
    bool again; /* the batch has all of them several times */
} bp_explain_run;
/** How many of them go into a batch, and the inputs of each: no target needs what comes after it.
 * Windows are as long as the longest. That loses no more than another batch does, which reads all
 * weights again, or, of a batch that has them several times, goes forward for itself. Local. */
int64_t bp_explain_batch_fill(const bp_explain_batch *batch, const bp_explain_settings *settings,
                              const bp_explained *document, bp_explain_run run, int64_t *length);
/** Window `w` reads the document up to place `length`, and its one target is target k. */
void bp_explain_batch_set(bp_explain_batch *batch, const bp_explained *document, int64_t w,
                          int64_t k, int64_t length);

#endif
