/* What is compared on what: the lists of a configuration, as text and as files. */
#ifndef BP_ANALYSIS_UNCERTAINTY_STUDY_PRIV_H
#define BP_ANALYSIS_UNCERTAINTY_STUDY_PRIV_H

#include "base/config.h"
#include "base/err.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

#define STUDY_NAME_BYTES 64 /* of a method or a shift, which name files */

typedef enum study_way { STUDY_PLAIN, STUDY_DROPOUT, STUDY_LAPLACE } study_way;

typedef struct study_method {
    char *name;
    char *path; /* a CHECKPOINT or an ensemble */
    study_way way;
} study_method;

typedef struct study_methods {
    study_method *items;
    int64_t count;
} study_methods;

/** Parse `NAME=FOLDER, NAME=FOLDER:dropout, NAME=FOLDER:laplace`.
 *
 * Local. Clear after an error too.
 * Errors:     BP_ERR_CONFIG an item without a name or a folder, an unknown word behind ':', a name
 *             that can't name a file, the same name twice; BP_ERR_SYSTEM.
 */
bp_err study_methods_parse(study_methods *methods, const char *text);
void study_methods_clear(study_methods *methods);
/** bp_run_spec.keeps_bits of a study: that of scoring, but samples of a Laplace approximation agree
 * to rounding at any number of ranks. */
bool study_keeps_bits(const bp_config *config, const char *key, const char *before,
                      const char *now);
const char *study_way_name(study_way way); /* "plain", "dropout", "laplace" */

/** Documents: of all files of a corpus, or those of them with one value of a label. */
typedef struct study_part {
    char *corpus; /* a file or a glob */
    char *label;  /* NULL: all documents */
    char *value;
} study_part;

/** Parts under one name. */
typedef struct study_group {
    char *name;
    study_part *parts;
    int64_t part_count;
    bool named; /* by the user */
    /* of all that is scored, ascending; by study_corpora_open */
    int64_t *documents;
    int64_t document_count;
} study_group;

typedef struct study_groups {
    study_group *items;
    int64_t count;
} study_groups;

/** Parse `CORPUS, CORPUS:label=value, NAME=CORPUS, NAME=CORPUS:label=value`.
 *
 * `key` is for messages. Without a name a part is a group of its own, named after its label's value
 * or its file; parts of one given name are one group. `whole` (a name): all are one group.
 *
 * Local; looks only whether an item, as it stands, is a file. Clear after an error too.
 * Errors:     BP_ERR_CONFIG an empty item or part of one, a group's name twice; BP_ERR_SYSTEM.
 */
bp_err study_groups_parse(study_groups *groups, const char *key, const char *text,
                          const char *whole);
void study_groups_clear(study_groups *groups);

/** Does a corpus stand for the files that match it? A name that exists is a file. */
bool study_is_glob(const char *corpus);

/* ---- files ---- */

/** All corpora of a study, each file once. */
typedef struct study_corpora {
    char **paths;
    int64_t files;
    char *list; /* the paths with commas: score.corpus */
    int64_t documents;
    int64_t vocab_size;
    char tokenizer_hash[BP_SHA256_HEX]; /* "": not told */
    char hash[BP_SHA256_HEX];           /* of the content, in order */
} study_corpora;

/** Find the files of all groups and list the documents of each. Groups that a glob names without a
 * name of its own become one a file.
 *
 * Local. Clear after an error too.
 * Errors:     those of bp_corpus_open; BP_ERR_INPUT a glob that matches nothing; BP_ERR_FORMAT an
 *             unknown label or value (with those that there are), a group of fewer than 2
 *             documents; BP_ERR_CONFIG a document that is in the domain and shifted, two groups or
 *             corpora of one name; BP_ERR_SYSTEM.
 */
bp_err study_corpora_open(study_corpora *corpora, study_groups *in_domain, study_groups *shifted);
void study_corpora_clear(study_corpora *corpora);

/** What the models are, as far as their manifests tell without the weights. */
typedef struct study_peek {
    int64_t context;                    /* the smallest; 0: not told */
    int64_t vocab_size, width;          /* 0: not told */
    char tokenizer_hash[BP_SHA256_HEX]; /* "": not told */
    char corpus_hash[BP_SHA256_HEX];    /* of the training text; "": not told, or of an ensemble */
    bool ensemble;
    int64_t members;
    double train_seconds;       /* sums of `seconds` in metrics.jsonl; NaN: a model without */
    char digest[BP_SHA256_HEX]; /* of the manifests; "": not told */
} study_peek;

/** Look at a method's CHECKPOINT, or at all members of its ensemble. Damaged ones are left to those
 * that open them.
 *
 * Local.
 * Errors:     BP_ERR_INPUT a folder that is missing or holds no checkpoint; those of
 *             bp_ensemble_list_load; BP_ERR_CONFIG dropout or Laplace of an ensemble; BP_ERR_FORMAT
 *             members of different tokenizers or vocabularies; BP_ERR_SYSTEM.
 */
bp_err study_peek_at(study_peek *peek, const study_method *method);

/** A name that is a file's too: letters of [A-Za-z0-9._-], others become '_', and the first is not
 * '.'. Shorter than STUDY_NAME_BYTES. Free with bp_free(). */
char *study_safe_name(const char *name);

/** The next item of a list with commas, blanks around it cut: *text moves on; *item is a new string
 * (bp_free). false: no item is left. Errors: BP_ERR_SYSTEM, *item NULL. */
bool study_next_item(const char **text, char **item);

#endif
