/* The state of training an ensemble, shared by the files of this folder. */
#pragma once

#include "data/corpus.h"
#include "run/run_folder.h"
#include "train/ensemble/ensemble.h"
#include "train/loop/pretrain.h"

struct corpus_facts; /* train/loop/trainer.h */

#define ENSEMBLE_NAME_BYTES 16

typedef struct ensemble {
    bp_config *config; /* borrowed */
    const bp_ensemble_jobs *jobs;
    bp_mesh_shape shape; /* fitted: shape.members groups of ranks, each trains one member */
    bp_mesh *mesh;       /* the groups along its data axis, a group's ranks along its tensor axis */
    int64_t members;     /* M */
    int64_t steps;       /* of a member; known once the ensemble's own run is opened */
    bool bags;           /* members draw documents */
    bool reseeds;        /* each member has its own seed */
    bool auto_precision; /* math.precision was left to the machine */
    bp_run *run;         /* the ensemble's own folder; on every rank */
} ensemble;

/* ensemble_keys.c */
/** Fills an ensemble from its configuration, without mesh and run. Local. */
void ensemble_fill(ensemble *self, bp_config *config, const bp_ensemble_jobs *jobs);
/** Does ensemble.json list the best checkpoints? Local. */
bool ensemble_lists_best(const bp_config *config);
/** Does its family count (an n-gram model) instead of training by gradients? Local. */
bool ensemble_counts(const bp_config *config);
/** Do its members have the head of a task? */
bool ensemble_has_task(const ensemble *self);

/* ensemble_plan.c */
/** Sets self->steps, the steps of a member: epochs of all bags are as long as those of the corpus
 * without a bag. Collective over self->mesh->world. Errors: those of bp_trainer_open: the same on
 * all ranks. */
bp_err ensemble_find_steps(ensemble *self);
/** Checks that the ranks of all groups fit into the nodes' memory. Collective over
 * self->mesh->world. Errors: BP_ERR_SYSTEM they do not: the same on all ranks. */
bp_err ensemble_check_memory(const ensemble *self, const struct corpus_facts *facts);
/** The newest step of the member that is farthest; -1 if no member has begun. Local. */
int64_t ensemble_farthest(const ensemble *self);

/* ensemble_member.c */
/** "m03": two digits, more where there are more than 100 members. */
void ensemble_name(const ensemble *self, int64_t member, char out[ENSEMBLE_NAME_BYTES]);
/** RUN/members/m03, or what is in it ("": itself). Free with bp_free(). */
char *ensemble_member_path(const ensemble *self, int64_t member, const char *inside);
/** A member's configuration, derived from the ensemble's. Local. Errors: BP_ERR_CONFIG a seed
 *  beyond its range. Free with bp_config_free(). */
bp_err ensemble_member_config(const ensemble *self, int64_t member, bp_config **out);
/** With corpus.weights: the bag of every member has a window of each file that has a weight, so
 * that no member fails without it after others have trained for hours. Local. Errors:
 * BP_ERR_FORMAT, with the member's name; BP_ERR_CONFIG; BP_ERR_SYSTEM. */
bp_err ensemble_check_bags(const ensemble *self, bp_corpus *corpus);
/** The newest step that it has committed, by name; -1 without a commit. Local. */
int64_t ensemble_member_step(const ensemble *self, int64_t member);
/** Did its run end before its last step because of train.patience? Local. */
bool ensemble_member_ended_early(const ensemble *self, int64_t member);
/** Its best validation loss so far; NaN without one. Local. */
double ensemble_member_valid_loss(const ensemble *self, int64_t member);
/** False of a regression, whose loss has the unit of its numbers, squared. */
bool ensemble_losses_are_nats(const ensemble *self);
/** Is it complete: trained, and if it is bagged, scored with its current weights? Local. */
bool ensemble_member_is_whole(const ensemble *self, int64_t member);
/** Train one member to its last step, and score its out-of-bag documents. Continues where an
 * earlier start ended. *oob on the group's root: their perplexity; NaN without a bag or without
 * out-of-bag documents. Collective over `group`. Errors: those of bp_pretrain and bp_score. */
bp_err ensemble_member_run(const ensemble *self, MPI_Comm group, int64_t member,
                           const bp_pretrain_hooks *hooks, double *oob);
/** Removes out-of-bag scores, which are invalid once training goes on. Local, on the group's root.
 * Errors: those of bp_dir_remove. */
bp_err ensemble_member_forget_scores(const ensemble *self, int64_t member);

/* ensemble_metrics.c: the members' metrics.jsonl gathered into the ensemble's. Local, on the
 * coordinator.
 *
 * The file has a line for each step for which all members have a line; those that diverged may lack
 * it, and those that ended early (train.patience) after their last line. A member's lines are read
 * from its own file as far as they are final: up to its newest checkpoint while it waits, further
 * once it has begun. So the file is a function of the members' files. */
typedef struct ensemble_metrics ensemble_metrics;
bp_err ensemble_metrics_new(ensemble_metrics **out, const ensemble *self);
void ensemble_metrics_free(ensemble_metrics **metrics);
/** A member resumes from `step`: its later lines are new. */
bp_err ensemble_metrics_started(ensemble_metrics *metrics, int64_t member, int64_t step);
/** A member has all its lines. */
typedef enum ensemble_end {
    ENSEMBLE_TRAINED,
    ENSEMBLE_ENDED_EARLY,
    ENSEMBLE_DIVERGED
} ensemble_end;
/** Warns where the metrics of a member that is trained are gone. Local. */
void ensemble_metrics_look(const ensemble *self, int64_t member);
void ensemble_metrics_ended(ensemble_metrics *metrics, int64_t member, ensemble_end how);
/** Write the lines that are complete by now. Errors: BP_ERR_IO, BP_ERR_SYSTEM, BP_ERR_BUSY;
 * BP_ERR_FORMAT a member's file holds a line that is not one of metrics. */
bp_err ensemble_metrics_flush(ensemble_metrics *metrics);

/* ensemble_scheduler.c: members are handed out to groups, which report on them */
typedef struct ensemble_scheduler ensemble_scheduler;
/** Collective over self->mesh->world. Errors: BP_ERR_SYSTEM; those of a run's journal. */
bp_err ensemble_scheduler_new(ensemble_scheduler **out, ensemble *self);
/** Collective over self->mesh->world. */
void ensemble_scheduler_free(ensemble_scheduler **scheduler);
/** Train members until all are done. Collective over self->mesh->world. Errors: all but
 *  BP_ERR_SOFTWARE of ensemble_member_run; the same on all ranks. */
bp_err ensemble_scheduler_run(ensemble_scheduler *scheduler);
/** After ensemble_scheduler_run, which gave `err`: complete metrics.jsonl, and if all went well
 * write ensemble.json and report the state of the members. Local, on the coordinator. Errors:
 * `err`, with its message; BP_ERR_SOFTWARE members diverged; BP_ERR_STOPPED some were not trained;
 * BP_ERR_IO... of the files. */
bp_err ensemble_scheduler_conclude(ensemble_scheduler *scheduler, bp_err err);
