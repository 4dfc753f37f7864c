/* The state of a search, shared by the frame's files. */
#pragma once

#include "base/config/json.h"
#include "base/files/hash.h"
#include "run/run_folder.h"
#include "search/limit.h"
#include "search/methods/method.h"
#include "search/methods/ranker.h"
#include "search/options.h"
#include "search/space.h"

struct trainer; /* train/loop/trainer.h */

struct nas {
    bp_config *config; /* borrowed */
    const bp_nas_jobs *jobs;
    const nas_method *method;
    nas_space space;
    nas_limit limit;
    bp_mesh_shape shape; /* fitted: shape.members groups of ranks */
    bp_mesh *mesh;       /* train/loop/groups.h */
    bp_run *run;
    int64_t vocab_size;
    char corpus_hash[BP_SHA256_HEX], valid_hash[BP_SHA256_HEX];
    nas_trial *trials; /* [count] */
    int64_t count, capacity;
    struct trainer *shared; /* its engine has the shared weights, within nas_with_shared; NULL
                               without them, or on a dedicated coordinator */
    bool is_shared;         /* trials are scored by shared weights, */
    double shared_flops;    /* FLOPs of their training; 0 without them, */
    double score_flops;     /* and of scoring the trials with them */
    int64_t done;           /* trials that this start has trained or scored */
    const char *doing;      /* for `bagpipe status` */
    nas_ranker ranker;      /* of search.method=ranked; 0 features: nothing was learned */
    json_t *known;          /* trials of earlier starts, an array; equal on all ranks */
    json_t *speeds;         /* tokens a second by settings; equal on all ranks */
};

/* nas.c */
/** RUN/search/NAME. Free with bp_free(). */
char *nas_path(const nas *self, const char *name);
/** "t0003". */
#define NAS_NAME_BYTES 16
void nas_trial_name(int64_t k, char out[NAS_NAME_BYTES]);
/** The number of possible models. */
double nas_models(const nas *self);

/* trials.c */
/** Set the current activity for `bagpipe status`: a string literal. On the coordinator; a no-op
 * elsewhere. */
void nas_begin(nas *self, const char *doing);
/** Read RUN/search/trials.json, if it exists. Collective over mesh->world. Errors: BP_ERR_FORMAT it
 * is damaged; those of bp_json_load_plain: the same on all ranks. */
bp_err nas_recall(nas *self);
/** Write it. Collective over mesh->world. Errors: those of bp_json_save: the same on all ranks. */
bp_err nas_keep(nas *self);
/** The same after an operation that ended with `err`; also saves after a stop. Returns `err`, or
 * the failure of nas_keep. Collective. */
bp_err nas_keep_after(nas *self, bp_err err);
/** Call `work` for trials list[0..count), dealt to groups, on all ranks of a group; then make the
 * trials equal on all ranks, and save them. Collective, Errors: of nas_score. */
bp_err nas_deal(nas *self, const int64_t *list, int64_t count, nas_scorer work, void *context);
/** The trials in their order, best first: order[count]. Local. */
void nas_order(const nas *self, int64_t *order);
/** The value by which a trial is ordered. */
static inline double nas_key(const nas_trial *trial)
{
    return trial->order == trial->order ? trial->order : trial->score;
}

/* speed.c */
/** Tokens a second of a forward pass of a model, measured only on this rank. Local. Errors:
 * BP_ERR_SYSTEM memory. */
bp_err nas_measure(const nas *self, const char *settings, const bp_model_shape *shape, double *out);

/* finals.c */
/** Train the best search.final trials from scratch. Collective over mesh->world. Errors: those of
 * nas_deal. */
bp_err nas_train_finals(nas *self);
/** The number of the best trial: of those trained from scratch, if any, else of all; -1 if there is
 * none. */
int64_t nas_winner(const nas *self);

/* results.c */
extern const char *const nas_result_names[]; /* in RUN/search; NULL-ended */
/** Write them. On the coordinator. Errors: those of files. */
bp_err nas_write_results(nas *self);

/* page.c */
/** Write index.html from summary.json's values. On the coordinator. A failure is a warning. */
void nas_write_page(const nas *self, const json_t *summary);
