/* The task's part of a model's shape and checkpoints, and the properties of a family that a task
 * needs. */
#pragma once

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
    int64_t outcomes; /* classes, tags; 1 for a regression, 2 for spans (start and end) */
    double precision; /* classes: of the Dirichlet that is the training target; 0: a softmax */
    double smoothing; /* share of that Dirichlet for each class that is not the text's */
    int64_t pool;     /* bp_pool */
    bool dense;  /* the state of the last place goes through a pooler (bp_backbone.dense); absent
                    from older checkpoints */
    bool begins; /* texts begin with the tokenizer's token of the role "first"; only in families
                    without a pooler, and not in older checkpoints */
    int64_t separators; /* between two texts; 0: one. RoBERTa and BART of other programs have two */
    bool unframed;      /* no token after texts, and no separator between two: a causal model's last
                           state is that of its last token, as in other programs. With `separators`, that
                           many "first" tokens separate two texts */
    bool unbiased;      /* the head is a linear map without a bias; so is a vector's map */
    int64_t vector;   /* of vectors: the number of the map after pooling (models/task/vectors.h); 0:
                         none */
    bool one_segment; /* both texts of a pair have segment 0 */
    int64_t padding;  /* 1 + the token that other programs take for padding wherever it ends a text:
                         the last tokens that are it are not read; -1: they know none; 0: none */
    int64_t frozen;   /* for training: number of first blocks that keep their values */
    double lm_weight; /* for training: weight of the language model's loss added to the task's; 0:
                         none */
    int64_t features; /* classes: random features of a Gaussian process (SNGP); 0: a linear map */
    double length_scale, prior; /* of its kernel; the precision of its weights' prior */
    bool fitted;                /* its covariance was fitted to the model's weights */
    double bound;     /* for training: bound on the hidden weights' spectral norms; 0: none */
    bool pooler_only; /* only the pooler's weight has the bound */
} bp_task_shape;

struct bp_block;
struct bp_network;
struct bp_model_shape;

/** The part of a family's network that comes before any head. */
typedef struct bp_backbone {
    int blocks;       /* number of the family's first blocks, */
    int layers_from;  /* and its layers from this one on */
    const char *norm; /* first norm of the family's head; NULL: none */
    bool tied;        /* the next-word head is this norm and the embedding's matrix: a task can
                         keep that head in addition to its own */
    bool rms, no_norm_bias;
    float epsilon;
    /** The block before a task's head, followed by dropout with this stream of masks; NULL: none.
     */
    struct bp_block *(*transform)(struct bp_network *network, const struct bp_model_shape *shape,
                                  int64_t mask);
    float cap, scale; /* of the next-word logits (bp_head_shape); 0: none */
    bool pooler; /* a text's first state goes through a pooler or `transform`; else its last state
                    is used */
    bool gelu, relu; /* the pooler's activation, in place of tanh */
    bool dense; /* the last state goes through a pooler too, as in Hugging Face's encoder-decoders
                   that classify */
    int64_t segments;  /* number of segments that it distinguishes */
    double head_flops; /* the part of the family's train_flops after these blocks */
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

/** The bp_pool of this name in checkpoints; BP_POOL_NONE if unknown. */
int64_t bp_task_pool_named(const char *name);

/** 1 + the token that is not read at the end of a text; 0: none. */
static inline int64_t bp_task_trimmed(const bp_task_shape *task)
{
    return task->padding > 0 ? task->padding : 0;
}

/** Do both put the same tokens around texts, and read the same ones? */
static inline bool bp_task_is_framed_as(const bp_task_shape *one, const bp_task_shape *other)
{
    return one->begins == other->begins && one->separators == other->separators &&
           one->unframed == other->unframed && one->one_segment == other->one_segment &&
           bp_task_trimmed(one) == bp_task_trimmed(other);
}

/** Are outcomes a softmax of one linear map? True for a language model. */
static inline bool bp_task_is_softmax(const bp_task_shape *task)
{
    return !bp_task_has_head(task) || bp_task_kind_of(task)->has_names;
}
/** "task", "outcomes", "pool", and "dense", "begins", "unframed", "unbiased", "one_segment",
 * "padding" and "separators" where they apply, for a prior network "dirichlet", and for a Gaussian
 * process "sngp", in the "model" object of a checkpoint; nothing for a language model. Errors of
 * reading: BP_ERR_FORMAT. */
void bp_task_to_json(json_t *model, const bp_task_shape *task);
bp_err bp_task_from_json(bp_task_shape *task, const json_t *model, const char *where);
