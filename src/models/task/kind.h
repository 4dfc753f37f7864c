/* What differs between kinds of tasks. Others than the files of this folder name no kind: they
 * read these fields. */
#ifndef BP_MODELS_TASK_KIND_H
#define BP_MODELS_TASK_KIND_H

#include <stdbool.h>
#include <stdint.h>

struct bp_block;
struct bp_model_shape;
struct bp_network;
struct bp_objective;

typedef struct bp_task_kind {
    const char *name;        /* in task.kind and checkpoints */
    const char *const *keys; /* of bp_task_options, those that it reads, besides task.kind;
                                NULL-ended */

    /* What is predicted. */
    bool whole_text;  /* one row a text, whose label is a column of the corpora */
    bool at_words;    /* one row a word */
    bool over_places; /* outcomes are the places of a text, for each of its ends */
    bool has_names;   /* outcomes are a softmax, with the names that labels have */
    bool is_value;    /* a number, without a distribution */
    int ends;         /* predictions of a row; outcomes of the head where they have no names */

    /* What users call it. */
    const char *texts;      /* "documents" */
    const char *labelled;   /* what has a label each: "documents" */
    const char *prediction; /* "document" */
    const char *outcome;    /* "class"; NULL: they have no names */
    const char *label;      /* what may be unknown: "label" */

    /* The network; NULL: it keeps the language model's head. Without new_head the pooled state is
     * all, and no checkpoint has such a head. */
    const struct bp_objective *objective;
    const struct bp_objective *with_words; /* beside the language model's loss; NULL: it can't be */
    struct bp_block *(*new_head)(struct bp_network *network, const struct bp_model_shape *shape);
    const struct bp_task_kind *of_one; /* what it is with one outcome; NULL: the same */
} bp_task_kind;

/** By the number that shapes have. */
const bp_task_kind *bp_task_kind_at(int64_t number);
/** NULL: no kind is called so. */
const bp_task_kind *bp_task_kind_named(const char *name);
int64_t bp_task_kind_number(const bp_task_kind *kind);

/** Is a text one of the classes that are named? */
static inline bool bp_task_kind_has_classes(const bp_task_kind *kind)
{
    return kind->whole_text && kind->has_names;
}

#endif
