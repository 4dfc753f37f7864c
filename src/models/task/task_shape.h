/* What a model's shape and its checkpoints hold of a task, and what a task needs to know of a
 * family. */
#ifndef BP_MODELS_TASK_TASK_SHAPE_H
#define BP_MODELS_TASK_TASK_SHAPE_H

#include "base/config/json.h"
#include "base/err.h"
#include "models/task/kind.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_TASK_FEATURES_MAX   16384
#define BP_TASK_SEPARATORS_MAX 2

/** Part of a model's shape; plain data. All 0: a language model. */
typedef struct bp_task_shape {
    int64_t kind;     /* the number of a bp_task_kind */
    int64_t outcomes; /* classes, tags; 1 of a regression, 2 of spans (where they begin and end) */
    double precision; /* classes: of the Dirichlet that training asks for; 0: outcomes are those of
                         a softmax */
    double smoothing; /* of that Dirichlet, the share of each class that is not the text's */
    int64_t pool;     /* bp_pool */
    bool dense;       /* the state of a last place goes through a pooler (bp_backbone.dense); not in
                         checkpoints of earlier versions */
    bool begins;      /* texts begin with what the model's tokenizer puts before them (the role
                         "first"); of families without a pooler, not of earlier versions */
    int64_t separators; /* between two texts; 0: one. RoBERTa's and BART's of other programs have
                           two */
    bool unframed; /* texts have no end after them, and two have no separator between them: a causal
                      model's last state is that of its last token, as in other programs; with
                      separators that many tokens of what begins texts are between two */
    bool unbiased; /* the head is a linear map without a bias */
    bool one_segment; /* both texts of a pair are of segment 0 */
    int64_t frozen;   /* for training: this many of the first blocks keep their values */
    double lm_weight; /* for training: of the language model's loss beside the task's; 0: none */
    int64_t features; /* classes: random features of a Gaussian process (SNGP); 0: a linear map */
    double length_scale, prior; /* of its kernel; the precision of its weights' prior */
    bool fitted;                /* its covariance is that of the model's weights */
    double bound;               /* for training: of the hidden weights' spectral norms; 0: none */
    bool pooler_only;           /* of these weights only the pooler's has it */
} bp_task_shape;

struct bp_block;
struct bp_network;
struct bp_model_shape;

/** The part of a family's network that comes before any head. */
typedef struct bp_backbone {
    int blocks;       /* this many of the family's first ones, */
    int layers_from;  /* and its layers from this one on */
    const char *norm; /* which the family's head begins with; NULL: none */
    bool tied;        /* the words that follow a text have the embedding's matrix, after this norm
                         by the layer: a task can keep that head beside its own */
    bool rms, no_norm_bias;
    float epsilon;
    /** What each row that a task's head reads goes through, with dropout of this stream of masks
     * after it; NULL: nothing. */
    struct bp_block *(*transform)(struct bp_network *network, const struct bp_model_shape *shape,
                                  int64_t mask);
    float cap, scale;  /* of these words' logits (bp_head_shape); 0: none */
    bool pooler;       /* a text's first state goes through a pooler, or through what transforms;
                          else its last one is taken */
    bool gelu, relu;   /* the pooler's activation, in place of tanh */
    bool dense;        /* that last state goes through a pooler too, as in Hugging Face's
                          encoder-decoders that classify */
    int64_t segments;  /* that it distinguishes */
    double head_flops; /* of the family's train_flops those of the blocks after them */
} bp_backbone;

static inline const bp_task_kind *bp_task_kind_of(const bp_task_shape *task)
{
    return bp_task_kind_at(task->kind);
}

static inline const char *bp_task_name(int64_t kind)
{
    return bp_task_kind_at(kind)->name;
}

/** Is it the head of a task, in place of a language model's? */
static inline bool bp_task_has_head(const bp_task_shape *task)
{
    return bp_task_kind_of(task)->objective != NULL;
}

/** The bp_pool that a checkpoint calls so; BP_POOL_NONE: none. */
int64_t bp_task_pool_named(const char *name);

/** Do both put the same around texts? */
static inline bool bp_task_is_framed_as(const bp_task_shape *one, const bp_task_shape *other)
{
    return one->begins == other->begins && one->separators == other->separators &&
           one->unframed == other->unframed && one->one_segment == other->one_segment;
}

/** Are outcomes a softmax of one linear map? True for a language model. */
static inline bool bp_task_is_softmax(const bp_task_shape *task)
{
    return !bp_task_has_head(task) || bp_task_kind_of(task)->has_names;
}
/** "task", "outcomes", "pool", and "dense", "begins", "unframed", "unbiased", "one_segment" and
 * "separators" where they are, for a prior
 * network "dirichlet", and for a Gaussian process "sngp", of the "model" object of a checkpoint;
 * nothing for a language model. Errors of reading: BP_ERR_FORMAT. */
void bp_task_to_json(json_t *model, const bp_task_shape *task);
bp_err bp_task_from_json(bp_task_shape *task, const json_t *model, const char *where);

#endif
