/* The differences between kinds of tasks. Files outside of this folder name no kind: they read
 * these fields. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct bp_block;
struct bp_model_shape;
struct bp_network;
struct bp_objective;

typedef struct bp_task_kind {
    const char *name;        /* in task.kind and checkpoints */
    const char *const *keys; /* its keys of bp_task_options, besides task.kind; ends with NULL */

    /* What is predicted. */
    bool whole_text;     /* one row per text, whose label is a column of the corpora */
    bool at_words;       /* one row per word */
    bool over_positions; /* outcomes are the positions of a text, for each of its ends */
    bool has_names;      /* outcomes are a softmax, named after labels */
    bool is_value;       /* a number, without a distribution */
    int ends;            /* predictions of a row; outcomes of the head if they have no names */

    /* Words for users. */
    const char *texts;      /* "documents" */
    const char *labelled;   /* the labelled items: "documents" */
    const char *prediction; /* "document" */
    const char *outcome;    /* "class"; NULL if they have no names */
    const char *label;      /* an item that may be unknown: "label" */

    /* The network; NULL: it keeps the language model's head. Without new_head the output is the
     * pooled state, and no checkpoint has a head. */
    const struct bp_objective *objective;
    const struct bp_objective *with_words; /* plus the language model's loss; NULL: unsupported */
    struct bp_block *(*new_head)(struct bp_network *network, const struct bp_model_shape *shape);
    const struct bp_task_kind *of_one; /* the kind to use with a single outcome; NULL: the same */
} bp_task_kind;

/** The kind with this number in shapes. */
const bp_task_kind *bp_task_kind_at(int64_t number);
/** The kind of this name; NULL if there is none. */
const bp_task_kind *bp_task_kind_named(const char *name);
int64_t bp_task_kind_number(const bp_task_kind *kind);

/** Does a text belong to one of the named classes? */
static inline bool bp_task_kind_has_classes(const bp_task_kind *kind)
{
    return kind->whole_text && kind->has_names;
}
