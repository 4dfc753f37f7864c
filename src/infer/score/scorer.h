/* The state of a running scoring job. */
#pragma once

#include "infer/ensemble/ensemble.h"
#include "infer/neighbours/neighbours.h"
#include "infer/score/keys.h"
#include "infer/score/plan.h"
#include "infer/score/tables/merge.h"
#include "infer/score/tables/summary.h"
#include "infer/score/training_text.h"
#include "job/work.h"

#define SCORE_SETS_MOST  8
#define SCORE_FILES_MOST 16

typedef struct score_set score_set; /* sets.h */

/* A rank's state for units of windows. */
typedef struct score_windows {
    bp_work_units units;
    struct bp_score_unit *unit;        /* on a lead */
    int32_t *inputs, *targets;         /* a follower's copy of the batch, */
    int32_t *sources, *source_lengths; /* and for pairs */
    float *values;                     /* [statistics][a batch] */
    float *keys;                       /* [a batch][columns]; NULL if none are requested */
    int64_t batches;                   /* seen by this rank */
} score_windows;

typedef struct scorer {
    bp_work_job *job;
    bp_config *config;  /* borrowed */
    bp_mesh *mesh;      /* this field to `folder` are copied from job (scorer_open) */
    bool leads;         /* this rank leads a mesh->replica: it reads corpora and writes parts */
    bp_model *model;    /* NULL on a dedicated coordinator */
    bp_model_info info; /* on all ranks (`kind` on the computing ones) */
    const char *folder; /* RUN/score */
    const bp_ensemble_spec *method; /* borrowed; NULL: from score.model */
    bool planned;                   /* by --plan, which a study does for each method */
    bp_datastore_info datastore;    /* of score.neighbours; on all ranks */
    bp_token_statistics statistics; /* on all ranks; names on the coordinator and computing ranks */
    bp_corpus *corpus;              /* on leads and the coordinator, as the plan */
    char corpus_hash[BP_SHA256_HEX]; /* on all ranks */
    bp_score_rule rule;              /* on all ranks, except lead, eod, prefix, every and end */
    bp_score_plan plan;
    score_windows windows;
    const score_set *const *sets;        /* of units; NULL until corpora are open */
    void *own[SCORE_SETS_MOST];          /* their states (scorer_own) */
    struct bp_score_memory_spec *memory; /* from scorer_describe */
    uint8_t *begins;         /* [vocab_size] of score.boundaries, on ranks that read; else NULL */
    char key[BP_SHA256_HEX]; /* names the work in part files */
    int64_t unscored;        /* text tokens, on the coordinator, at the end */
    bp_known_text known;     /* on the coordinator */
    const char *predicted;   /* the label that a task predicts; NULL: none */
    int64_t *clusters;       /* [documents] of score.cluster, on the coordinator; NULL: none */
    json_t *summary;         /* on the coordinator, at the end */
    bool page;               /* leave one */
} scorer;

/** Set score.context and score.stride by the model's context; does not set lead, eod, prefix, every
 * and end. Errors: BP_ERR_CONFIG. */
bp_err bp_score_resolve(bp_config *config, const bp_model_info *model, bp_score_rule *rule);
/** The token that score.prefix = `prefix` names; -1 if there is none. corpus_bos: "bos" for a model
 * that has no such token. */
int64_t scorer_find_lead(const char *prefix, int64_t eod, const bp_model_info *model,
                         int64_t corpus_bos);
/** Set lead, eod, prefix, every and end, by the end-of-document token (-1: none) and the
 * beginning-of-text token of the model or, if score.prefix requests one, of the corpus. */
void bp_score_resolve_ends(const bp_config *config, int64_t eod, int64_t corpus_bos,
                           const bp_model_info *model, bp_score_rule *rule);

/** The special tokens of a masked model's windows. Errors: BP_ERR_CONFIG a token is missing. */
bp_err scorer_resolve_specials(const bp_corpus *corpus, bp_score_rule *rule);

/** Check that the corpus's token ids are the model's. Errors: BP_ERR_FORMAT. */
bp_err bp_score_check_corpus(const bp_corpus *corpus, const bp_model_info *model);

/** bp_work.describe, .open_model, .open and .close (memory.c, setup.c). */
bp_err scorer_describe(void *self, MPI_Comm world, bp_work_memory *out);
bp_err scorer_open_model(void *self, bp_model **out);
bp_err scorer_open(void *self);
void scorer_close(void *self);
/** The part of scorer_open after mesh and model exist (tests make their own): corpora, plan, and
 * sets of units. Collective over world. */
bp_err scorer_open_corpora(scorer *self);

/** Refuse keys of language models if score.model has the head of a task. Not for a study's methods,
 * which set some of these keys. Local. Errors: BP_ERR_CONFIG. */
bp_err scorer_check_task(const bp_config *config, const bp_model_info *model);
/** Faults of score.states and score.mix with this model; keys NULL: for another job that scores.
 * Local. */
void scorer_states_check(bp_config *config, const bp_score_keys *keys, const bp_model_info *model);
/** score.states for a model that returns keys: units of windows compute them. */
bool scorer_asks_keys(const scorer *self);

/** Send the arrays of a lead's batch to the other ranks of its group (mesh->replica), which know
 * the sizes and pass their buffers. Collective over group. */
void scorer_share_batch(MPI_Comm group, const bp_model_batch *batch);

/** bp_work.units, for the requested sets (sets.h). */
const bp_work_units *scorer_units(void *self, int index);

/** The standard error of a group's perplexity over its documents, or clusters of them; NaN of so
 * few that it is not to be relied on: they have no interval either. */
double scorer_error_of(const json_t *figures);

#define SCORER_INTERVAL_BYTES 64
/** "95 % interval 0.1 to 0.2" of a figure of summary.json, or the statement that it has none; in
 * `text`. */
const char *scorer_interval(char text[SCORER_INTERVAL_BYTES], const json_t *of);

/** Number the clusters of score.cluster, if given. On leads and the coordinator, after the corpora
 * are open. Errors: those of bp_corpus_clusters. */
bp_err scorer_find_clusters(scorer *self);
/** "cluster" and "clusters" of a summary, if score.cluster is given: its label, and how many there
 * are among the documents that are measured. */
void scorer_record_clusters(const scorer *self, json_t *summary, int64_t clusters);
/** {"label", "clusters"} of a page, from the summary; null without score.cluster. New reference. */
json_t *scorer_page_cluster(const scorer *self);
/** Log over what the intervals are. */
void scorer_report_clusters(const scorer *self);

/** Has a label rows on the screen? Not one with a value for every few documents, such as the items
 * of an experiment or the sources of passages. */
bool scorer_shows_label(int64_t values, int64_t documents);
/** Print the figures. */
void scorer_report(const scorer *self);
/** A sentence, without its full stop, about unknown words and text that the tokenizer drops; NULL
 * if the tokens spell the text. Owns: the caller's. */
char *scorer_spelling(const json_t *summary);
