/* A training at work, as the files of this folder share it. */
#ifndef BP_TRAIN_LOOP_TRAINER_PRIV_H
#define BP_TRAIN_LOOP_TRAINER_PRIV_H

#include "base/hash.h"
#include "base/json.h"
#include "data/loader.h"
#include "infer/generate/units.h"
#include "io/checkpoint/snapshot.h"
#include "mesh/mailbox.h"
#include "mesh/node_memory.h"
#include "models/learner.h"
#include "models/task.h"
#include "run/run_folder.h"
#include "train/engine/engine.h"
#include "train/loop/options.h"

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

/* train.sample_*: one text at a time (sampling.c). Without train.sample_every all is empty. */
typedef struct sampling {
    bp_prompts prompt;       /* on all ranks, ids alone */
    bp_search_spec rule;     /* its seed is the step's */
    bp_generate_plan plan;   /* of one sequence */
    bp_tokenizer *tokenizer; /* on the coordinator; NULL: not known */
    bp_model *lm;            /* the engine's network; of the first data rank, as `unit` */
    bp_unit *unit;
} sampling;

/* What a fine-tuning has besides (fine_tuning.c). */
typedef struct fine_tuning {
    json_t *names;         /* of classes or tags, on all ranks; NULL: the task has none */
    const char **outcomes; /* [outcome_count] the same, for columns; NULL: not on this rank */
    bool has_entities;     /* tags of words name some */
    char *column;          /* on leads and the coordinator; NULL: the task needs none */
    /* Of corpus.train without a bag, on the coordinator: */
    int64_t documents, documents_cut, tokens_cut;
    double padding;       /* the share of places that hold none of their tokens */
    int64_t windows;      /* of spans: examples of them, */
    int64_t answers_lost; /* and answers that no window holds */
    bool unanswered;      /* some questions have no answer; on leads and the coordinator */
} fine_tuning;

typedef struct teacher_states teacher_states;
/* distill.layers, as all ranks know them (teacher_states.c). Plain data. */
typedef struct teacher_layers {
    int64_t columns;             /* of the teacher's states */
    int block[BP_STATE_MATCHES]; /* of the teacher, that leaves what a layer learns from; */
    int from[BP_STATE_MATCHES];  /* the pipeline stage that has it, */
    int to[BP_STATE_MATCHES];    /* and the one that has the layer */
    int64_t layer[BP_STATE_MATCHES], of[BP_STATE_MATCHES]; /* the model's; the teacher's */
    int count;
} teacher_layers;

typedef struct trainer {
    bp_config *config;              /* borrowed */
    const bp_pretrain_hooks *hooks; /* borrowed; NULL: nobody listens */
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
    bool *continues;    /* of the rules, where whole words are masked; else NULL */
    int32_t *separator; /* of the rules, between a source and its target; else NULL */
    int32_t *sentinels; /* of the rules, where noise needs them; else NULL */
    int64_t *fits;      /* [micro-batches][BP_STREAMS] of a step with corpus.bucket; else NULL */
    int64_t places[2];  /* of this rank, not yet in progress.places */
    int64_t earlier_places; /* of progress.places[0]: those of earlier starts */
    void *examples;         /* for the examples of a step, of this data rank; validation's too */
    int32_t *window;        /* [maker.window] that validation reads; on leads */
    char *attachment;       /* of a model that is counted: its file; NULL: none yet */
    fine_tuning *task;      /* NULL: a language model is trained */
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
    sampling samples;
    struct teacher *teacher;            /* teacher.c; NULL: there is none */
    int64_t teacher_bytes;              /* that it takes on a rank, about */
    teacher_layers taught;              /* distill.layers; count 0: none */
    char teacher_digest[BP_SHA256_HEX]; /* of its members' weights; "": there is none */
    bp_mailbox *box;       /* of reports to a dedicated coordinator; NULL: there is none */
    double commit_seconds; /* of the last checkpoint, to its end; 0: none yet */
    double clock;          /* of the last metrics line, moved on by validation and checkpoints */
    int64_t clock_step;
    /* tracing.c */
    char *trace_path;             /* of this start's timeline; on the coordinator; NULL: none */
    int64_t trace_begin;          /* the step that this start goes on from */
    int64_t trace_first;          /* the first step that is profiled; 0: none yet */
    int64_t trace_origin;         /* nanoseconds of this rank's clock, when tracing began */
    int64_t clock_offset;         /* to be added, to have rank 0's */
    double peak_flops, bandwidth; /* FLOP/s and bytes/s of this rank; 0: not measured */
} trainer;

/* setup.c */
/** Mesh, corpora, shape, settings, all checked. Collective over world. plan: nothing is to be
 * trained, and one rank plans for the mesh that is asked for; NULL: a training. */
bp_err trainer_open(trainer *self, MPI_Comm world, bp_config *config, const bp_planned_world *plan);
/** math.precision: what the run began with, else what all ranks' CPUs can. Sets the key. Collective
 * over `comm`. Errors: BP_ERR_CONFIG bf16, asked for by the user, on a CPU without it (one that is
 * kept is refused by trainer_build: a finished run needs no CPU for it); those of bp_run_previous.
 */
bp_err trainer_precision(MPI_Comm comm, bp_config *config, bp_precision *out);
/** Makes the examples of a model whose longest stream has T places: shape.context in training,
 * fewer at the end of a validation. Local. */
bp_example_maker trainer_maker(const trainer *self, int64_t T);
/** Tokens of the stream from one example to the next. Local. */
static inline int64_t trainer_stride(const trainer *self)
{
    return self->maker.window - 1;
}
/** rules.c: self->rules, from keys and corpus. Collective over world. Errors: BP_ERR_CONFIG: the
 *  same on all ranks. */
bp_err trainer_find_rules(trainer *self);
/** Engine, loader, GEMM peak. Collective over world. */
bp_err trainer_build(trainer *self);
void trainer_close(trainer *self);
/** Measures gemm_peak and gemm_cores of this process, for so many seconds. Local. */
void trainer_measure_peak(trainer *self, double seconds);
/** corpus.weights, one for each file of the corpus; NULL: it is not given. Free with bp_free().
 *  Local. Errors: BP_ERR_CONFIG there are not as many as files. */
bp_err trainer_weights(double **weights, const bp_config *config, const bp_corpus *corpus);
/** Does the training draw its documents? Local. */
bool trainer_bags(const bp_config *config);
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

/* noise.c */
/** self->shape.objective, by train.objective or by what the corpora are; sets the key where the
 * family has a choice. Collective over world. Errors: BP_ERR_CONFIG: the same on all ranks. */
bp_err trainer_find_objective(trainer *self);
/** Rules of an objective of noise. Collective over world. Errors: BP_ERR_CONFIG a noise that there
 * is not, or that needs a token or sentences that are not there: the same on all ranks. */
bp_err trainer_find_noise_rules(trainer *self);

/* pairs.c */
/** Rules of an objective of pairs, whose corpora have them, none longer than the context unless
 * corpus.cut allows it (a warning counts those). Collective over world. Errors: BP_ERR_CONFIG,
 * BP_ERR_FORMAT: the same on all ranks. */
bp_err trainer_find_pair_rules(trainer *self);
/** rules.start, of an encoder-decoder. Errors: BP_ERR_CONFIG there is no such token. Local. */
bp_err trainer_find_start(trainer *self);

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

/* posterior.c */
/** A fault of a sampler of the posterior whose objective has no fixed number of targets. */
void trainer_check_posterior(const trainer *self);
/** What of the optimizer's rule depends on the data: their number, for a sampler of the posterior;
 * its old list of samples is removed. Local. Errors: BP_ERR_IO, on the coordinator. */
bp_err trainer_set_posterior(trainer *self);
/** At the end of a sampler's training: ensemble.json lists the checkpoints that are kept.
 * Collective over world. Errors: those of bp_ensemble_list_save: the same on all ranks. */
bp_err trainer_keep_samples(trainer *self);
/** The same of a run that is finished already, where it was killed between its last checkpoint and
 * the list. Before the run takes changed settings. Collective over world. Errors: also those of
 * bp_run_previous: the same on all ranks. */
bp_err trainer_keep_samples_of_finished(trainer *self);

/* text_task.c */
/** Is it task.kind=text? Its examples are pairs; a checkpoint is a language model's. Local. */
bool trainer_writes_text(const trainer *self);
/** Its objective. Errors: BP_ERR_CONFIG a family that writes none, keys of other tasks. Local. */
bp_err trainer_text_shape(trainer *self);
/** The separator of a causal model. Collective over world. Errors: BP_ERR_CONFIG no tokenizer, no
 * end token, a separator that it does not know: the same on all ranks. */
bp_err trainer_text_rules(trainer *self);
/** task.json, on the coordinator. Errors: those of writing a file. */
bp_err trainer_text_begin(const trainer *self);

/* gaussian_process.c: sngp.*. Without sngp.features they do nothing */
/** What of a task's shape a Gaussian process has. Local. Errors: BP_ERR_CONFIG a build without
 * ScaLAPACK, fewer features than classes, more classes than the width, a key of another method. */
bp_err trainer_sngp_shape(const trainer *self, bp_task_shape *task);
/** The most that trainer_sngp_fit takes on a rank. Local. */
size_t trainer_sngp_bytes(const trainer *self, const bp_mesh_shape *mesh);
/** Before a checkpoint of a new best, or of the end: the covariance of the weights, which the
 * network has until trainer_sngp_forget. Collective over mesh->compute. Errors: those of reading
 * the corpus; BP_ERR_SYSTEM memory; BP_ERR_SOFTWARE a precision that is not positive definite: the
 * same on all ranks. */
bp_err trainer_sngp_fit(trainer *self, bool best);
/** Local. */
void trainer_sngp_forget(trainer *self);
/** Whether the checkpoint at hand has it, for its state. Local. */
void trainer_sngp_mark(trainer *self, bool best);

/* fine_tuning_survey.c */
/** Looks through the documents: what is cut is counted, a class with one document warned of. On the
 * coordinator. Errors: BP_ERR_FORMAT a document without a token; those of reading. */
bp_err trainer_task_survey(trainer *self);

/* fine_tuning.c */
/** Classes or tags, and the columns of documents, where the configuration asks for a task.
 * Collective over world. Errors: those of bp_corpus_column, bp_corpus_classes and bp_corpus_tags;
 * BP_ERR_FORMAT all documents have one class: the same on all ranks. */
bp_err trainer_task_open(trainer *self);
void trainer_task_close(trainer *self);
/** The task's head in the shape, once that is found. Collective over world. Errors: BP_ERR_CONFIG a
 * family without a backbone, too many frozen layers; BP_ERR_FORMAT the checkpoint has another
 * task's head: the same on all ranks. */
bp_err trainer_task_shape(trainer *self);
/** What examples of a task are made by. Local. Errors: BP_ERR_CONFIG a special token is missing. */
bp_err trainer_find_task_rules(trainer *self);
/** optimizer.warmup, where it is not given, once the steps are known. Collective over world. */
bp_err trainer_task_warmup(trainer *self);
/** The name of a class or tag. Local. */
const char *trainer_task_outcome(const trainer *self, int64_t k);
/** task.json, and lines for people. On the coordinator. Errors: those of bp_json_save. */
bp_err trainer_task_begin(trainer *self);
/** What a checkpoint's state has of a task. Local. */
void trainer_task_put_state(const trainer *self, json_t *state);
/** Of slices to load those that `source` has; the others are reported. Local. */
int64_t trainer_task_keep_known(const trainer *self, bp_slice *slices, int64_t count);

/* counting.c */
/** Is the model counted, not trained by gradients? Local. */
bool trainer_counts(const trainer *self);
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

/* trainer.c */
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

/* sampling.c */
/** The prompt, the rule, and whether the model can. Nothing without train.sample_every. Collective
 * over world. Errors: BP_ERR_CONFIG a family that can't continue text, no tokenizer, a prompt of no
 * token, of more than the context, or of one that the model lacks; those of bp_tokenizer_parse: the
 * same on all ranks. */
bp_err trainer_samples_open(trainer *self);
/** What a rank of a stage takes for it: 0 without samples. Local. Errors: those of
 * bp_model_estimate. */
bp_err trainer_samples_bytes(const trainer *self, const bp_mesh_shape *mesh, int stage,
                             size_t *bytes);
/** Caches of keys and values, once parameters have their values. Collective over mesh->model of the
 * first data rank. Errors: BP_ERR_SYSTEM: the same on its ranks. */
bp_err trainer_samples_begin(trainer *self);
void trainer_samples_close(trainer *self);
/** Behind progress.step: write a text if it is due, and report it to the coordinator. What fails is
 * a warning. Collective over mesh->model of the first data rank; others return at once. */
void trainer_sample(trainer *self);
/** A line of samples.jsonl, and of the log. On the coordinator. Errors: those of bp_run_sample and
 * bp_spell. */
bp_err trainer_take_sample(trainer *self, const json_t *value);

/* teacher.c: distill.*. Without distill.model they do nothing */
/** The teacher fits the model. Collective over world. Errors: BP_ERR_CONFIG another vocabulary, a
 * shorter context, a model without soft targets; those of bp_ensemble_list_load and
 * bp_checkpoint_read_metadata: the same on all ranks. */
bp_err trainer_teacher_check(trainer *self);
/** Open it. Collective over mesh->member. Errors: those of bp_model_open. */
bp_err trainer_teacher_open(trainer *self);
/** Broadcast which teacher was opened. Collective over world. */
void trainer_teacher_share(trainer *self);
/** A training that goes on has the teacher that it began with. Local. Errors: BP_ERR_CONFIG. */
bp_err trainer_teacher_check_same(const trainer *self);
/** What it says of a step's batch, before the step. Collective over mesh->compute. Errors:
 * BP_ERR_SYSTEM: the same on all ranks. */
bp_err trainer_teach(trainer *self, const bp_batch *batch);
void trainer_teacher_close(trainer *self);

/* teacher_states.c: distill.layers. Without it they do nothing */
/** Reads the key. Local. Errors: BP_ERR_CONFIG. */
bp_err teacher_states_read(trainer *self);
/** A teacher of this shape has what it asks for: fills in the rest of self->taught. Local. Errors:
 * BP_ERR_CONFIG. */
bp_err teacher_states_find(trainer *self, const bp_model_shape *theirs);
/** All ranks know the same as rank 0 of world, and the model's shape has it. Collective over world.
 */
void teacher_states_share(trainer *self);
/** Bytes of states on a stage. */
int64_t teacher_states_bytes(const trainer *self, int stage);
/** Memory for a batch's states, and the teacher shows them. Local. Errors: BP_ERR_SYSTEM. */
bp_err teacher_states_open(teacher_states **out, const trainer *self);
/** The probe that takes the states of later passes, whose first window is `window` of the batch;
 * NULL: none are asked for. */
struct bp_probe *teacher_states_probe(teacher_states *states, int64_t window);
/** What the teacher's stages have taken goes to those of the model's layers. Collective over
 * mesh->pipeline. */
void teacher_states_send(teacher_states *states);
/** States of a match from row `row` of the batch on. */
const float *teacher_states_at(const teacher_states *states, int match, int64_t row);
void teacher_states_close(teacher_states **states);

/* report.c */
typedef enum report_kind {
    REPORT_METRIC = 1,
    REPORT_EVENT,
    REPORT_SAMPLE,
    REPORT_COMMIT,
    REPORT_FINISH, /* of the checkpoint on its way */
    REPORT_END
} report_kind;
void report_send(trainer *self, report_kind kind,
                 json_t *value);    /* from compute's root; steals the reference */
bp_err report_serve(trainer *self); /* a dedicated coordinator's loop */
/** How far the checkpoint on its way is, as far as this rank knows: its own part, and on compute's
 * root that of a dedicated coordinator. */
bp_async_checkpoint_state report_written(trainer *self);
/** Pass to compute's root the stop request that a dedicated coordinator alone received. Between
 * them all reports are sent; a rank that computes ends report_serve by the end. Collective over
 * world. */
void report_begin(trainer *self);
void report_end(trainer *self);
bp_err report_handle(trainer *self, report_kind kind, const json_t *value);
/** A metrics line that could not be written: its failure, reported again. On the coordinator. */
bp_err report_lost(const trainer *self);
/** With corpus.bucket: progress.places has what all ranks have counted. Collective over mesh->data.
 */
void report_gather_places(trainer *self);
void report_step(trainer *self, const bp_step_result *result, const double *valid_loss);

/* tracing.c */
/** Capacity for events of the timeline that train.trace takes on each rank; 0 without it. Local. */
int64_t trainer_trace_events(const trainer *self);
/** Begin what train.trace and train.profile ask for, before trainer_build. Collective over world.
 *  Errors: BP_ERR_CREATE, BP_ERR_DENIED the file of train.trace; BP_ERR_SYSTEM. */
bp_err trainer_trace_open(trainer *self);
/** A step begins. Local. */
void trainer_trace_step(trainer *self);
/** Gather, print, write. Collective over world. Errors: BP_ERR_IO, BP_ERR_CREATE, BP_ERR_DENIED,
 *  BP_ERR_SYSTEM: the same on all ranks. */
bp_err trainer_trace_close(trainer *self);

/* plan_text.c */
void plan_print(const trainer *self, const bp_plan *plan, int stage);
/** The highest peak of all ranks beside the plan. Collective over world. */
void plan_print_peak(const trainer *self);

#endif
