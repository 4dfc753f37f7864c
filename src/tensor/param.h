/* Parameters: named slices of logical tensors, in groups that are reduced and updated together. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define BP_PARAM_NAME   96
#define BP_PARAM_DIMS   2
#define BP_GROUP_PARAMS 64 /* default capacity of a group */

typedef enum bp_init {
    BP_INIT_ZERO,
    BP_INIT_ONE,
    BP_INIT_NORMAL,
    BP_INIT_UNIFORM,
    BP_INIT_CONSTANT, /* init_std */
    BP_INIT_IDENTITY, /* of a matrix */
    BP_INIT_GIVEN     /* bp_param.given */
} bp_init;

/** This rank's slice of one logical tensor: rows (and columns) offset .. offset + extent of shape.
 */
typedef struct bp_param {
    char name[BP_PARAM_NAME]; /* of the logical tensor, with global layer numbers:
                                 "h.3.attn.q.weight" */
    int dims;
    int64_t shape[BP_PARAM_DIMS], offset[BP_PARAM_DIMS], extent[BP_PARAM_DIMS];
    bool decays;        /* matrices and embeddings: weight decay applies */
    bool product_first; /* backward's first contribution to the gradient is a
                           matrix product, which can write it: no zeros are needed
                           before */
    bool of_head;       /* a head's vocabulary: the last block of a model may add to its gradient */
    bool values_read;   /* not only products read its values: an embedding */
    bool fresh; /* the gradient's content is ignored: the next product overwrites it instead of
                   adding to it (bp_params_take_fresh) */
    bp_init init;
    float init_std;     /* standard deviation of BP_INIT_NORMAL; bound of BP_INIT_UNIFORM */
    const float *given; /* [shape] for BP_INIT_GIVEN; borrowed; NULL: zeros */
    bool from_one;      /* a gain is 1 + its value: blocks read bp_param_gain */
    float *gain;        /* [extent] for such a gain, set by bp_network_refresh */
    int64_t place;      /* of its first element in the group */
    float *value;       /* [extent], set by bp_network_bind_values */
    float *gradient;    /* [extent], set by bp_network_bind_gradients; NULL where nothing trains,
                           or the group is frozen */
} bp_param;

/** Parameters that are contiguous in memory (except for bp_group_align): fused products rely on
 * it. */
typedef struct bp_group {
    bp_param *params; /* [capacity], fixed from the first one on: pointers stay valid */
    int count, capacity;
    bool replicated; /* equal on all tensor ranks: layer norms, biases after a row split, positions.
                        Their gradients include only this rank's rows (bp_nn_rows): where rows are
                        shared out, the engine sums them over tensor ranks */
    bool
        tied; /* held by the first and by the last pipeline stage: gradients are summed over both */
    int common; /* above 0: every run of blocks of every pipeline stage has a copy, and this number
                   identifies the copies: gradients are summed over all of them */
    bool partial; /* replicated, and each tensor rank has a part of its gradients, of all rows: the
                     engine always sums them over tensor ranks */
    int sources;  /* for experts: the ranks whose positions they receive; 0 for other groups */
    int64_t source_floats; /* distance in floats between the gradients of one source and the
                              next, kept apart until they are summed; 0: a single gradient */
    bool added;            /* an adapter's: the initial model need not have it */
    bool passing;          /* only for training: the initial model never has it */
    bool frozen;           /* never updated: no gradients and no moments */
    bool searched;  /* an architecture's, with the moments of its own rule: it has gradients, but is
                       frozen in steps of training (bp_engine_search) */
    bool kept;      /* held by another checkpoint, which saved checkpoints name: not saved */
    bool published; /* among the ranks that hold these values (within one data rank's copy), this
                       one counts and saves them */
    int64_t depth;  /* layers from here to the model's head, for optimizer.layer_decay */
    int block; /* the first of the network's blocks that reads it, and the last that adds to its
                  gradient */
    int64_t floats; /* of all params */
    int64_t place;  /* in the network's flat memory */
    int64_t padded; /* floats it takes there */
} bp_group;

/** A gain as norms read it. */
static inline const float *bp_param_gain(const bp_param *param)
{
    return param->from_one ? param->gain : param->value;
}

/** Number of gradients that a group keeps. */
static inline int bp_group_sums(const bp_group *group)
{
    return group->source_floats > 0 ? group->sources : 1;
}

/** Reserve capacity for `count` params, if the group has no capacity yet. */
void bp_group_reserve(bp_group *group, int count);
/** Frees the params. */
void bp_group_clear(bp_group *group);

/** Start the next param at a multiple of this many floats, so that no block of sums spans two
 * params. */
void bp_group_align(bp_group *group, int64_t multiple);

/** Elements of the slice. */
int64_t bp_param_floats(const bp_param *param);

/** Append a vector, or a matrix, whole. The pointer stays valid. */
bp_param *bp_group_add_vector(bp_group *group, const char *name, int64_t n, bp_init init);
bp_param *bp_group_add_matrix(bp_group *group, const char *name, int64_t rows, int64_t columns,
                              float init_std);

/** The same, but only [first, first + count) along `axis`: this tensor rank's share. */
bp_param *bp_group_add_vector_part(bp_group *group, const char *name, int64_t n, int64_t first,
                                   int64_t count);
bp_param *bp_group_add_matrix_part(bp_group *group, const char *name, int64_t rows, int64_t columns,
                                   float init_std, int axis, int64_t first, int64_t count);

/** Whether the next product writes the gradients of `count` contiguous params; only once. */
bool bp_params_take_fresh(bp_param *params, int count);

/** Initial values, a function of (seed, tensor name, place in the whole tensor): the same for every
 * split. */
void bp_param_initialise(bp_param *param, uint64_t seed);
