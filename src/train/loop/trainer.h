/* A training at work, as loop, parts and ensemble share it. */
#ifndef BP_TRAIN_LOOP_TRAINER_H
#define BP_TRAIN_LOOP_TRAINER_H

#include "base/hash.h"
#include "base/json.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "io/checkpoint/snapshot.h"
#include "mesh/mailbox.h"
#include "mesh/node_memory.h"
#include "models/learner.h"
#include "models/task.h"
#include "run/run_folder.h"
#include "train/engine/engine.h"
#include "train/loop/options.h"
#include "train/loop/part.h"

#include <string.h>

/* What the leads know of the corpora, broadcast to all. Plain data: it travels as bytes. */
typedef struct corpus_facts {
    int64_t vocab_size, eod_id, tokens, valid_tokens;
    int64_t roles[BP_ROLES]; /* special tokens, -1: none; bos and first where documents begin with
                                it, or the model of model.init knows it */
    bp_ends ends;            /* tokens that end a text, where there are more than eod_id */
    int64_t documents, valid_documents; /* examples that are documents or runs; of valid_corpus */
    int64_t targets;     /* tokens of the targets of training pairs; 0: examples are no pairs */
    int64_t mixed_files; /* of training corpora with weights; 0: corpora without */
    char tokenizer_hash[BP_SHA256_HEX];
    char hash[BP_SHA256_HEX];       /* of the training corpora */
    char valid_hash[BP_SHA256_HEX]; /* of the validation corpora; "": none */
    bool has_valid;
    bool has_segments;       /* in all corpora: texts of tasks, or sentences */
    char unsegmented[256];   /* else the first file without them */
    bool has_pairs;          /* each document of corpus.train has two */
    bool has_lone_sentences; /* no training document has two */
    bool has_lone_document;  /* the training corpora have no second one */
} corpus_facts;

/* What a checkpoint keeps beside tensors. */
typedef struct progress {
    int64_t step;    /* steps done */
    int64_t updates; /* of them, those that updated */
    int64_t skipped; /* those with a gradient that was not finite */
    int64_t skipped_in_row;
    double best_valid_loss; /* infinity before the first validation */
    int64_t best_step;      /* where it was; 0: nowhere yet */
    int64_t stale;          /* validations since then */
    int64_t places[2]; /* with corpus.bucket, of all ranks' batches since the last metrics line, as
                          of the last checkpoint: computed (-1: not known), and those of examples */
    int64_t committed; /* the newest checkpoint's step; not kept */
} progress;

/* A checkpoint that is written while training goes on. */
typedef struct commit_async {
    bp_async_checkpoint *saving; /* NULL: there is none */
    int64_t step;
    bool best;
    double stood;        /* seconds that the ranks stood still for its begin */
    double busy_seconds; /* and of its helpers */
    /* Beside a dedicated coordinator, which writes for the ranks of its host: how far it is.
     * Sent once, when it has ended. */
    bool reported;
    bp_async_checkpoint_state coordinator;
} commit_async;

typedef struct trainer {
    bp_config *config;                    /* borrowed */
    const bp_pretrain_hooks *hooks;       /* borrowed; NULL: nobody listens */
    const bp_training_part *const *parts; /* borrowed; NULL ends them */
    void *own[TRAINING_PARTS_MAX];        /* what each has */
    bp_mesh *mesh;
    bp_mesh_shape mesh_shape;
    bp_engine_spec spec;
    bp_model_shape shape;
    corpus_facts facts;
    int64_t epoch_windows; /* W, without a bag */
    bp_run *run;           /* on every rank; only the coordinator touches files */
    float *constants;      /* shape.constants; NULL: nothing, or initial values are there */
    char *tokenizer;       /* on the coordinator: its text, kept in checkpoints; NULL: not known */
    bool leads;            /* reads the corpus for its model group */
    bp_corpus *corpus, *valid_corpus;
    bp_stream *stream, *valid_stream;
    bp_document_columns columns; /* what the objective asks of documents; {0}: nothing */
    bp_document_table
        *valid_table; /* of the valid stream, where examples are documents; on leads */
    bp_loader *loader;
    bp_engine *engine; /* NULL on a dedicated coordinator, and beside a learner */
    bp_learner
        *learner; /* of a family that has one (learning.c); NULL on a dedicated coordinator */
    bp_checkpoint *source; /* what to start from: the run's newest, or model.init; NULL: nothing */
    bool resumes;          /* it is the run's */
    json_t *base; /* of checkpoints of an adapter alone: its path and digest; NULL: they are whole
                   */
    char init_digest[BP_SHA256_HEX]; /* of the weights of model.init; "": none, or gone by now */
    bp_err report_err; /* on the coordinator: a metrics line that could not be written */
    char report_message[BP_ERR_LINE_BYTES]; /* why */
    bp_example_maker maker;                 /* of the objective, once the shape is known, */
    bp_example_rules rules;                 /* and what it goes by */
    int64_t *fits;     /* [micro-batches][BP_STREAMS] of a step with corpus.bucket; else NULL */
    int64_t places[2]; /* of this rank, not yet in progress.places */
    int64_t earlier_places; /* of progress.places[0]: those of earlier starts */
    void *examples;         /* for the examples of a step, of this data rank; validation's too */
    int32_t *window;        /* [maker.window] that validation reads; on leads */
    char *attachment;       /* of a model that is counted: its file; NULL: none yet */
    json_t *outcome_names;  /* of classes or tags, on all ranks; borrowed; NULL: there are none */
    bool adds_tensors;      /* a checkpoint that it begins with may lack tensors, which keep initial
                               values */
    double valid_accuracy;  /* of the last validation; NaN: not defined */
    double valid_f1;        /* of its entities; NaN: likewise */
    double valid_term[BP_TERMS]; /* its terms' means, */
    bool valid_asked[BP_TERMS];  /* where something was asked for */
    json_t *counted;             /* and what its checkpoint's state has besides; NULL: nothing */
    progress progress;
    bp_plan plan;
    bp_node_memory node;   /* the one that lacks most memory; ranks 0: it was not looked for */
    double gemm_peak;      /* FLOP/s of all ranks together; 0: not known */
    double gemm_cores;     /* while it was measured: the share of its cores that a rank had, the
                              least of all; 0: not known */
    bp_snapshot *snapshot; /* NULL: checkpoints are written while training waits */
    commit_async behind;
    bp_remover remover;        /* of the coordinator: old checkpoints that are being removed */
    bool leaves;               /* the training has ended by an error, */
    bool gives_up;             /* with no time for what is on its way to disk: all ranks agree */
    int64_t unreported_commit; /* of the coordinator: the last step whose commit the screen does not
                              show yet; 0: none */
    int64_t unreported_best;   /* the last of them that was the best so far; 0: none */
    bp_mailbox *box;           /* of reports to a dedicated coordinator; NULL: there is none */
    double commit_seconds;     /* of the last checkpoint, to its end; 0: none yet */
    double clock; /* of the last metrics line, moved on by validation and checkpoints */
    int64_t clock_step;
} trainer;

/* setup.c */
/** Mesh, corpora, shape, settings, all checked. Collective over world. plan: nothing is to be
 * trained, and one rank plans for the mesh that is asked for; NULL: a training. */
bp_err trainer_open(trainer *self, const bp_training_part *const *parts, MPI_Comm world,
                    bp_config *config, const bp_planned_world *plan);
/** math.precision: what the run began with, else what all ranks' CPUs can. Sets the key. Collective
 * over `comm`. Errors: BP_ERR_CONFIG bf16, asked for by the user, on a CPU without it (one that is
 * kept is refused by trainer_build: a finished run needs no CPU for it); those of bp_run_previous.
 */
bp_err trainer_precision(MPI_Comm comm, bp_config *config, bp_precision *out);
/** Makes the examples of a model whose longest stream has T places: shape.context in training,
 * fewer at the end of a validation. Local. */
static inline bp_example_maker trainer_maker(const trainer *self, int64_t T)
{
    return bp_model_objective(&self->shape)->maker(&self->shape, T, &self->rules);
}
/** Tokens of the stream from one example to the next. Local. */
static inline int64_t trainer_stride(const trainer *self)
{
    return self->maker.window - 1;
}
/** Engine, loader, GEMM peak. Collective over world. */
bp_err trainer_build(trainer *self);
void trainer_close(trainer *self);
/** Measures gemm_peak and gemm_cores of this process, for so many seconds. Local. */
void trainer_measure_peak(trainer *self, double seconds);
/** corpus.weights, one for each file of the corpus; NULL: it is not given. Free with bp_free().
 *  Local. Errors: BP_ERR_CONFIG there are not as many as files. */
bp_err trainer_weights(double **weights, const bp_config *config, const bp_corpus *corpus);
/** Does the training draw its documents? Local. */
static inline bool trainer_bags(const bp_config *config)
{
    return strcmp(bp_corpus_keys_of(config)->resample, "bag") == 0;
}
/** A bag is drawn from at least 2 documents; of few it varies little, which is warned of. Local.
 *  Errors: BP_ERR_FORMAT. */
bp_err trainer_check_bag(const bp_corpus *corpus);
/** bp_run_spec.keeps_bits of a training: no sum gets another order (docs/architecture.md, "What a
 *  resume may change"). */
bool trainer_keeps_bits(const bp_config *config, const char *key, const char *before,
                        const char *now);
/** bp_run_spec.may_change of a training, and of an ensemble: pretrain lacks the keys that it alone
 *  has. */
extern const char *const trainer_may_change[];

/* memory.c */
/** The ranks of each node fit into its memory; what is found stays in `node`. Collective over
 * world. Errors: BP_ERR_SYSTEM they do not, with the keys that would: the same on all ranks. */
bp_err trainer_check_memory(trainer *self);
/** The stage that takes most memory, and what it takes. */
bp_err trainer_plan(const trainer *self, bp_plan *plan, int *stage);

/* documents.c */
/** What examples are made of, for people: "windows". */
const char *trainer_examples_name(const trainer *self);
/** The documents (or runs of sentences) of a stream. Local. Errors: those of bp_document_table_new.
 */
bp_err trainer_open_table(const trainer *self, bp_stream *stream, bp_document_table **out);
/** epoch_windows and the facts of documents, where examples are documents or runs of sentences. On
 * the coordinator. Errors: those of bp_document_table_new. */
bp_err trainer_count_documents(trainer *self);
/** The table that validation reads. Local, on leads. Errors: as above. */
bp_err trainer_open_documents(trainer *self);

/* duration.c */
/** What depends on the stream and the shape: the windows of an epoch, where train.epochs is given
 * the steps, the memory of loader. Collective over world. */
void trainer_find_steps(trainer *self);
/** Lines for people where train.epochs or corpus.weights is given. On the coordinator. */
void trainer_say_steps(const trainer *self);
/** A line for people where a training that has done `step` steps of so many before has more of them
 *  now, and its rate decays: over all of them. Local. */
void trainer_say_stretch(const bp_rate *rate, int64_t step, int64_t steps_before);
/** Is nothing left to do: all steps are done, or validations found no new best for train.patience
 * of them? */
bool trainer_is_done(const trainer *self);
/** Count a validation; true: its loss is the least so far. */
bool trainer_take_validation(trainer *self, double loss);
/** Before the run is closed, with nothing left to do: why it ended, where it did not do all steps.
 *  Collective over world; with an event unless the run was reported as finished before. Errors:
 * those of bp_run_event: the same on all ranks. */
bp_err trainer_end(trainer *self);

/* counting.c */
/** Is the model counted, not trained by gradients? Local. */
static inline bool trainer_counts(const trainer *self)
{
    return self->shape.family && self->shape.family->count;
}
/** Count the stream, and commit the model as step 1. Collective over world. Errors: those of
 *  bp_model_family.count and trainer_commit; BP_ERR_FORMAT an empty corpus, or one whose documents
 *  do not end: the same on all ranks. */
bp_err trainer_count(trainer *self);
/** Print what that will come to. Collective over world. Errors: those of
 *  bp_model_family.count_plan. */
bp_err trainer_count_plan(trainer *self);

/* learning.c: what a learner does in the place of the engine */
/** The family's; NULL: it is a network, or counted. Local. */
const bp_learner_ops *trainer_learner(const trainer *self);
/** The learner; of a training that begins, with the stream read. On the ranks that compute, before
 * there is a loader. Collective over compute. Errors: those of bp_learner_ops.new and .study. */
bp_err trainer_learner_open(trainer *self);
/** Load `source`, or draw initial values. Collective over world. Errors: those of
 * bp_checkpoint_load, bp_checkpoint_check_digests and bp_learner_ops.loaded. */
bp_err trainer_learner_load(trainer *self);
/** One step, of all slots of the batch. A loss that is not finite ends the training: the vectors
 * have been updated with it. Collective over compute. Errors: BP_ERR_SOFTWARE: the same on all
 * ranks. */
bp_err trainer_learn(trainer *self, const bp_batch *batch, bp_step_result *result);
/** Is what a checkpoint would hold finite? A step's last update may have spoilt it. Collective over
 * compute. Errors: BP_ERR_SOFTWARE: the same on all ranks. */
bp_err trainer_learner_check(trainer *self);
/** Slots of the batch that a data rank reads. Local. */
int64_t trainer_slots(const trainer *self, const bp_engine_spec *spec, int datas);

/* steps.c */
/** All steps to the last. Collective over compute (a dedicated coordinator is in report_serve).
 *  Errors: those of bp_pretrain; the same on all ranks. */
bp_err trainer_run(trainer *self);

/* digest.c */
/** Check the bits of weights and moments now, on all ranks (bp_engine_check). Collective over
 *  compute. Errors: those of trainer_say_corruption. */
bp_err trainer_check_bits(trainer *self);
/** Some rank has found corruption (bp_engine_corruption): an event, and the error that names
 * tensor, step, rank and host. Collective over compute. Errors: BP_ERR_STOPPED, always: the last
 * checkpoint is good. */
bp_err trainer_say_corruption(trainer *self);

/* commit.c */
/** What this rank saves: none where it does not compute. Local. Owns: the slices are the caller's,
 *  bp_free(). */
bp_slice *trainer_slices_to_save(trainer *self, int64_t *count);
/** Commit the state of progress.step, if that is not done yet; best: let the link point at it. None
 *  is on its way. Collective over world. Errors: those of bp_checkpoint_save; BP_ERR_SOFTWARE the
 *  state is not finite; a metrics line before could not be written: the same on all ranks. */
bp_err trainer_commit(trainer *self, bool best);
/** The same, but it is written while training goes on: `behind` is on its way then. */
bp_err trainer_commit_begin(trainer *self, bool best);
/** Wait for the one on its way, and put it in place; give_up: it is not to be waited for.
 *  Collective over world. Errors: those of bp_checkpoint_finish. */
bp_err trainer_commit_finish(trainer *self, bool give_up);
/** A commit that no line on the screen has reported yet. On the coordinator. */
void trainer_log_commit(trainer *self);
/** Old checkpoints that were being removed are gone, or a warning says why not. Local. */
void trainer_sweep_end(trainer *self);
/** RUN/checkpoints. Free with bp_free(). */
char *trainer_checkpoints_folder(const trainer *self);

/* resume.c */
/** The model's shape: from the configuration, and from model.init, which is left open in `source`.
 *  Collective over world. Errors: those of bp_checkpoint_open_any. */
bp_err trainer_find_shape(trainer *self);
/** The run's newest checkpoint, if there is one, takes the place of model.init in `source`; fills
 *  progress. Collective over world. Errors: those of bp_checkpoint_newest. */
bp_err trainer_find_source(trainer *self);
/** The run goes on with the stream that it began with: the state's bag has this program's version.
 *  Local. Errors: BP_ERR_CONFIG. */
bp_err trainer_check_bag_version(const trainer *self);
/** Load `source`, or draw initial values. Collective over world. */
bp_err trainer_load(trainer *self);
/** Of checkpoints of an adapter alone (adapter.alone): what lies in the model that it adapts is
 * left out of them. After the engine is there, before anything is loaded. Local. */
void trainer_save_beside(trainer *self);

/* validation.c: collective over compute */
bp_err trainer_validate(trainer *self, double *loss);

/* report.c */
typedef enum report_kind {
    REPORT_METRIC = 1,
    REPORT_EVENT,
    REPORT_COMMIT,
    REPORT_FINISH, /* of the checkpoint on its way */
    REPORT_END,
    /* To compute's root: */
    MAIL_STOP,        /* a bp_stop */
    MAIL_WRITTEN,     /* the coordinator's bp_async_checkpoint_state */
    REPORT_PART = 100 /* and on: of each part */
} report_kind;
void report_send(trainer *self, report_kind kind,
                 json_t *value); /* from compute's root; steals the reference */
/** How far the checkpoint on its way is, as far as this rank knows: its own part, and on compute's
 * root that of a dedicated coordinator. */
bp_async_checkpoint_state report_written(trainer *self);
/** Pass to compute's root the stop request that a dedicated coordinator alone received. Between
 * them all reports are sent; a rank that computes ends report_serve by the end. Collective over
 * world. */
void report_begin(trainer *self);
void report_end(trainer *self);
/** A line that is no checkpoint's. On the coordinator. */
bp_err report_handle(trainer *self, report_kind kind, const json_t *value);
/** A lost metrics line ends the job before its next commit; a lost event is worth a warning. */
void report_note_failure(trainer *self, report_kind kind, bp_err err);
/** A metrics line that could not be written: its failure, reported again. On the coordinator. */
bp_err report_lost(const trainer *self);
/** With corpus.bucket: progress.places has what all ranks have counted. Collective over mesh->data.
 */
void report_gather_places(trainer *self);
void report_step(trainer *self, const bp_step_result *result, const double *valid_loss);

/* serve.c */
/** A dedicated coordinator's loop, to the end. Errors: those of trainer_commit. */
bp_err report_serve(trainer *self);

/* plan_text.c */
void plan_print(const trainer *self, const bp_plan *plan, int stage);
/** The highest peak of all ranks beside the plan. Collective over world. */
void plan_print_peak(const trainer *self);

#endif
