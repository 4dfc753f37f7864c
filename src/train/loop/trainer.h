/* The state of a training that its loop, its parts and ensembles share. What is done with it is in
 * the header of each file. */
#pragma once

#include "base/config/json.h"
#include "base/files/hash.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "io/checkpoint/snapshot.h"
#include "mesh/mailbox.h"
#include "mesh/node_memory.h"
#include "models/learner.h"
#include "models/task/task.h"
#include "run/run_folder.h"
#include "train/engine/engine.h"
#include "train/loop/hooks.h"
#include "train/loop/options.h"
#include "train/loop/part.h"

/* What the leads know of the corpora, broadcast to all. Plain data: sent as bytes. */
typedef struct corpus_facts {
    int64_t vocab_size, eod_id, tokens, valid_tokens;
    int64_t roles[BP_ROLES]; /* special tokens, -1 if absent; bos and first only if documents begin
                                with it, or the model of model.init has it */
    int64_t begin_id;        /* begins each document of the stream: the beginning-of-text token, or
                                the eod_id before it */
    bp_ends ends;            /* tokens that end a text, if there are others than eod_id */
    int64_t documents, valid_documents; /* examples that are documents or runs, of the training and
                                           validation corpora */
    int64_t epoch_windows;              /* examples of an epoch, without a bag */
    int64_t targets;     /* tokens of the targets of training pairs; 0: examples are not pairs */
    int64_t mixed_files; /* training files with weights; 0: no weights */
    char tokenizer_hash[BP_SHA256_HEX];
    char hash[BP_SHA256_HEX];       /* of the training corpora */
    char valid_hash[BP_SHA256_HEX]; /* of the validation corpora; "" without them */
    bool has_valid;
    bool has_segments;       /* in all corpora: texts of tasks, or sentences */
    char unsegmented[256];   /* else the first file without them */
    bool has_pairs;          /* each document of corpus.train has two */
    bool has_lone_sentences; /* no training document has two */
    bool has_lone_document;  /* the training corpora have no second one */
} corpus_facts;

/* What a training reads. Set on leads, and except for valid_table and loader on the coordinator;
 * NULL elsewhere. */
typedef struct training_data {
    bool leads; /* this rank reads the corpus for its copy of the model */
    bp_corpus *corpus, *valid_corpus;
    bp_stream *stream, *valid_stream;
    bp_document_table *valid_table; /* of the valid stream, where examples are documents */
    bp_loader *loader;
    char *tokenizer; /* on the coordinator: its text, kept in checkpoints; NULL: not known */
} training_data;

/* How examples are made, and the memory for those of a step. */
typedef struct training_examples {
    bp_example_maker maker;      /* of the objective, once the shape is known */
    bp_document_columns columns; /* what the objective asks of documents; {0}: nothing */
    void *buffer;                /* bp_batch_bytes of a step of this data rank; validation's too */
    int32_t *window;             /* [maker.window] tokens that validation reads; on leads */
    int64_t *fits;        /* [micro-batches][BP_STREAMS] of a step with corpus.bucket; else NULL */
    int64_t positions[2]; /* of this rank, not yet in progress.positions */
    int64_t filled;       /* likewise, of progress.filled */
} training_examples;

/* What a training starts from. */
typedef struct training_start {
    bp_checkpoint *source; /* the run's newest, or model.init; NULL without one, or once loaded */
    bool resumes;          /* source is the run's own checkpoint */
    bool adds_tensors;     /* source may lack tensors, which keep initial values */
    float *constants; /* shape.constants; NULL if there are none, or after initial values are set */
    json_t
        *base; /* of checkpoints with only an adapter: the model's path and digest; NULL: whole */
    json_t *forced;     /* of model.init: what texts must have; may be NULL */
    json_t *model_type; /* the model_type of the Hugging Face folders that had the weights; NULL if
                           no folder did */
    char init_digest[BP_SHA256_HEX]; /* of the weights of model.init; "" without it, or after it was
                                        removed */
} training_start;

/* What a checkpoint keeps beside tensors. */
typedef struct progress {
    int64_t step;    /* steps done */
    int64_t updates; /* of them, those that updated */
    int64_t skipped; /* those with a gradient that was not finite */
    int64_t skipped_in_row;
    double best_valid_loss; /* infinity before the first validation */
    int64_t best_step;      /* its step; 0: no validation yet */
    int64_t stale;          /* validations since then */
    int64_t positions[2];   /* with corpus.bucket, positions of all ranks' batches since the last
                            metrics   line, as of the last checkpoint: computed (-1: not known), and
                            those of   examples */
    int64_t filled; /* of examples with padding: tokens of all ranks' batches since step 1 without
                       it, as of the last metrics line or checkpoint; -1: not known */
    int64_t committed; /* the newest checkpoint's step; not kept */
} progress;

/* What a training is estimated to take. */
typedef struct training_estimate {
    bp_plan plan;        /* of the rank that takes most memory, in bytes */
    bp_node_memory node; /* the one that lacks most memory; ranks 0: not searched */
    double peak;         /* FLOP/s of all ranks together; 0: not known */
    double cores;        /* while that was measured: the share of its cores that a rank had, the
                            least of all; 0: not known */
} training_estimate;

/* A checkpoint that is written while training goes on. */
typedef struct commit_async {
    bp_async_checkpoint *writes; /* NULL without one */
    int64_t step;
    bool best;
    double stalled_seconds; /* for which its begin delayed the ranks */
    double busy_seconds;    /* of its helpers */
    /* On a dedicated coordinator, which writes for the ranks of its host: its progress was sent.
     * Sent once, when its part has ended. */
    bool reported;
    bp_async_checkpoint_state coordinator;
} commit_async;

/* Checkpoints of a training (commit.h). */
typedef struct training_commits {
    bp_snapshot *snapshot; /* NULL: they are written while training waits */
    commit_async pending;
    double seconds;     /* the duration of the last checkpoint; 0: none yet */
    bp_remover remover; /* on the coordinator: old checkpoints that are being removed */
} training_commits;

/* Lines of a training, on their way to the coordinator (report.h). */
typedef struct training_reports {
    bp_mailbox *box; /* to a dedicated coordinator; NULL without one */
    bp_err err;      /* on the coordinator: a metrics line that could not be written */
    char message[BP_ERR_LINE_BYTES]; /* why */
    double clock;              /* of the last metrics line, moved on by time that is not training
                                  (seconds) */
    int64_t clock_step;        /* of that line */
    int64_t earlier_positions; /* of progress.positions[0]: those of earlier starts */
    int64_t unreported; /* on the coordinator: the step of the last commit, which the screen does
                           not show yet; 0: none */
    int64_t unreported_best; /* of the last of them that was the best so far; 0: none */
} training_reports;

typedef struct trainer {
    bp_config *config;                    /* borrowed */
    const bp_pretrain_hooks *hooks;       /* borrowed; NULL without a job around the training */
    const bp_training_part *const *parts; /* borrowed; NULL ends them */
    void *own[TRAINING_PARTS_MAX];        /* the object of each part */
    bp_mesh *mesh;
    bp_mesh_shape mesh_shape;
    bp_engine_spec spec;
    bp_model_shape shape;
    bp_example_rules rules; /* the rules of examples */
    json_t *outcome_names; /* names of classes or tags, on all ranks; borrowed; NULL without them */
    corpus_facts facts;
    training_data data;
    training_examples examples;
    bp_run *run;         /* on every rank; only the coordinator touches files */
    bp_engine *engine;   /* NULL on a dedicated coordinator, and beside a learner */
    bp_learner *learner; /* of a family that has one; NULL on a dedicated coordinator */
    training_start start;
    training_estimate estimate;
    progress progress;
    training_commits commits;
    training_reports reports;
} trainer;

/** Are examples texts of any length, which padding makes as long as the context? Local. */
static inline bool trainer_pads(const trainer *self)
{
    return self->examples.maker.feed != BP_FEED_WINDOWS;
}

/** Is the model counted rather than trained by gradients? Local. */
static inline bool trainer_counts(const trainer *self)
{
    return self->shape.family && self->shape.family->counting;
}

/** The learner that replaces the engine (learning.h); NULL for networks and counted models.
 * Local. */
static inline const bp_learner_ops *trainer_learner(const trainer *self)
{
    return self->shape.family ? self->shape.family->learner : NULL;
}
