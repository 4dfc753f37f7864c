/* The methods and corpora of a comparison: the lists of a configuration, as text and as files. */
#pragma once

#include "base/config/config.h"
#include "base/err.h"
#include "base/files/hash.h"
#include "models/task/task_shape.h"
#include "uncertainty/methods/list.h"

#include <stdbool.h>
#include <stdint.h>

#define COMPARISON_NAME_BYTES 64 /* name of a method or a shift, used in file names */

typedef struct comparison_method {
    char *name;
    char *path; /* a CHECKPOINT or an ensemble */
    const bp_uncertainty_method *way;
} comparison_method;

typedef struct comparison_methods {
    comparison_method *items;
    int64_t count;
} comparison_methods;

/** The `way` of a method whose predictions come from another program; its path is the file of
 * predictions. */
extern const bp_uncertainty_method comparison_predictions;
static inline bool comparison_is_predictions(const comparison_method *method)
{
    return method->way == &comparison_predictions;
}
/** The first method that is a model; -1 if there is none. */
int64_t comparison_first_model(const comparison_methods *methods);

/** Parse `NAME=FOLDER, NAME=FOLDER:WORD`, where WORD names a method, and NAME=FILE or NAME:FILE of
 * predictions (.csv, .npy).
 *
 * Local. Clear after an error too.
 * Errors:     BP_ERR_CONFIG an item without a name or a folder, an unknown word after ':', a name
 *             that can't name a file, the same name twice.
 */
bp_err comparison_methods_parse(comparison_methods *methods, const char *text);
void comparison_methods_clear(comparison_methods *methods);
/** bp_run_spec.keeps_bits of a comparison: that of scoring, except that fits of methods agree only
 * to rounding at any number of ranks. */
bool comparison_keeps_bits(const bp_config *config, const char *key, const char *before,
                           const char *now);

/** Documents: of all files of a corpus, or only those with one value of a label. */
typedef struct comparison_part {
    char *corpus; /* a file or a glob */
    char *label;  /* NULL: all documents */
    char *value;
} comparison_part;

/** Parts with one name. */
typedef struct comparison_group {
    char *name;
    comparison_part *parts;
    int64_t part_count;
    bool named; /* named by the user */
    /* indices among all scored documents, ascending; set by comparison_corpora_open */
    int64_t *documents;
    int64_t document_count;
} comparison_group;

typedef struct comparison_groups {
    comparison_group *items;
    int64_t count;
} comparison_groups;

/** Parse `CORPUS, CORPUS:label=value, NAME=CORPUS, NAME=CORPUS:label=value`.
 *
 * `key` is for messages. A part without a name is a separate group, named after its label's value
 * or its file. Parts with the same given name are one group. `whole` (a name): all parts are one
 * group.
 *
 * Local; only checks whether an item, as written, is a file. Clear after an error too.
 * Errors:     BP_ERR_CONFIG an empty item or part of one, a group's name twice.
 */
bp_err comparison_groups_parse(comparison_groups *groups, const char *key, const char *text,
                               const char *whole);
void comparison_groups_clear(comparison_groups *groups);

/** Is a corpus a glob? A name that exists is a file. */
bool comparison_is_glob(const char *corpus);

/* ---- files ---- */

/** All corpora of a comparison, each file once. */
typedef struct comparison_corpora {
    char **paths;
    int64_t files;
    char *list; /* the paths with commas: score.corpus */
    int64_t documents;
    int64_t vocab_size;
    char tokenizer_hash[BP_SHA256_HEX]; /* "" if unknown */
    char hash[BP_SHA256_HEX];           /* of the content, in order */
} comparison_corpora;

/** Find the files of all groups and list the documents of each. A glob without a given name becomes
 * one group per file.
 *
 * Local. Clear after an error too.
 * Errors:     those of bp_corpus_open; BP_ERR_INPUT a glob that matches nothing; BP_ERR_FORMAT an
 *             unknown label or value (with the existing ones), a group of fewer than 2 documents;
 *             BP_ERR_CONFIG a document that is both in the domain and shifted, two groups or
 *             corpora of one name.
 */
bp_err comparison_corpora_open(comparison_corpora *corpora, comparison_groups *in_domain,
                               comparison_groups *shifted);
void comparison_corpora_clear(comparison_corpora *corpora);

/** (*cluster)[documents]: documents of one number share the value of `label`, in whichever file.
 * Documents without a value, and those of files without the label, have a number of their own.
 *
 * Local. Owns: *cluster is the caller's, bp_free(); NULL after an error.
 * Errors:     those of bp_corpus_open; BP_ERR_FORMAT a document of the domain is in a file without
 *             the label (with the existing ones). */
bp_err comparison_corpora_cluster(int64_t **cluster, const comparison_corpora *corpora,
                                  const comparison_group *in_domain, const char *label);

/** Warn if corpora (NULL: none) that train or calibrate have values of the label of clusters that
 * the domain has too: other passages of the same books. Local. */
void comparison_corpora_warn_of_clusters(const comparison_corpora *corpora,
                                         const comparison_group *in_domain, const char *label,
                                         const char *train, const char *valid);

/** Metadata of the models, from their manifests, without the weights. */
typedef struct comparison_metadata {
    int64_t context;                    /* the smallest; 0: unknown */
    int64_t vocab_size, width;          /* 0: unknown */
    bp_task_shape task;                 /* kind 0: a language model */
    char classes_hash[BP_SHA256_HEX];   /* hash of their names; "" if there are none */
    char tokenizer_hash[BP_SHA256_HEX]; /* "": unknown */
    char corpus_hash[BP_SHA256_HEX];    /* of the training text; "" if unknown, or members differ */
    char chosen_by[BP_SHA256_HEX]; /* hash of the validation text, for a checkpoint (a member's)
                                      that was chosen by it: the best one, which is not known to
                                      be the newest; else "" */
    bool ensemble;
    int64_t members;
    int64_t rows;         /* of predictions of others; 0: of a model */
    double train_seconds; /* sums of `seconds` in metrics.jsonl, up to the checkpoint, or of the
                             whole run if it was chosen; NaN if a model has none */
    char digest[BP_SHA256_HEX]; /* of the manifests; "": unknown */
} comparison_metadata;

/** Read the metadata of a method's CHECKPOINT, or of all members of its ensemble. Does not report
 * damaged ones: opening them does.
 *
 * Local.
 * Errors:     BP_ERR_INPUT a folder that is missing or has no checkpoint; those of
 *             bp_ensemble_list_load; BP_ERR_CONFIG a method of an ensemble; BP_ERR_FORMAT members
 *             of different tokenizers, vocabularies or tasks.
 */
bp_err comparison_read_metadata(comparison_metadata *metadata, const comparison_method *method);

/** Names of a model's classes or tags: of its CHECKPOINT, or of its ensemble's first member.
 *
 * Local. Owns: *names [*count] are the caller's, bp_names_free(); NULL, 0 if there are none.
 * Errors: those of bp_ensemble_list_load and bp_checkpoint_read_metadata. */
bp_err comparison_read_classes(char ***names, int64_t *count, const char *path);
/** The same for predictions: their members, and the task of `model`, with which they are compared,
 * and which is at `path`.
 *
 * Local. Errors: those of bp_predictions_read and comparison_read_classes; BP_ERR_CONFIG a task
 * without outcomes. */
bp_err comparison_read_predictions(comparison_metadata *metadata, const comparison_method *method,
                                   const comparison_metadata *model, const char *path);

/** Are both language models, or models of one task with the same classes? */
bool comparison_same_task(const comparison_metadata *one, const comparison_metadata *other);
/** Number of outcomes of a prediction: classes, or words. */
static inline int64_t comparison_outcomes(const comparison_metadata *metadata)
{
    return !bp_task_has_head(&metadata->task) ? metadata->vocab_size : metadata->task.outcomes;
}

/** uncertainty.coverages: shares of the most certain predictions, in percent, ascending. */
#define COMPARISON_COVERAGES 8 /* maximum */
typedef struct comparison_coverages {
    int count, percent[COMPARISON_COVERAGES];
} comparison_coverages;
/** Errors: BP_ERR_CONFIG not such a list. */
bp_err comparison_coverages_parse(comparison_coverages *out, const char *text);

/** A name that is valid in file names: letters of [A-Za-z0-9._-], others become '_', and the first
 * is not '.'. Shorter than COMPARISON_NAME_BYTES. Free with bp_free(). */
char *comparison_safe_name(const char *name);

/** The next item of a list with commas, blanks around it cut: *text moves on; *item is a new string
 * (bp_free). false: no item is left. */
bool comparison_next_item(const char **text, char **item);
