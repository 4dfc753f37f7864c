/* What a family of models is called in Hugging Face's folders: one table, by which a folder is read
 * and written. It is data alone: sizes, settings that must be as they are, and which tensor is
 * which. */
#ifndef BP_IO_HUGGINGFACE_HF_TABLE_H
#define BP_IO_HUGGINGFACE_HF_TABLE_H

#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_HF_SIZES 16
#define BP_HF_PARTS 3

/** A size, a number or a flag: `ours` is its name in the "model" object of a checkpoint and in the
 * rows below, `theirs` in config.json; `also`: another name that folders may have (NULL: none),
 * which is written too. */
typedef enum bp_hf_type { BP_HF_COUNT, BP_HF_REAL, BP_HF_FLAG } bp_hf_type;
typedef struct bp_hf_size {
    const char *ours, *theirs, *also;
    bp_hf_type type;
    const char *otherwise; /* where it is not there, or null: a number, or a size; NULL: it must be.
                                     `theirs` NULL: it is always this */
} bp_hf_size;

/** A member of config.json that this family computes with one meaning only. `is`: JSON values with
 * '|' between, of which it must be one, if it is there and not null; or "4*width". The first is
 * written. */
typedef struct bp_hf_setting {
    const char *key, *is;
} bp_hf_setting;

/** One of their tensors: `parts` of ours lie in it side by side, along its last dimension. A '*' in
 * names is a layer's number; rows that follow each other with the same text before it are a
 * layer's. Extents are "width", "3*width", "2",
 * "kv_heads*width/heads"; columns NULL: a vector. */
typedef struct bp_hf_row {
    const char *theirs, *rows, *columns;
    bool transposed; /* theirs are [in][out] */
    int parts;
    const char *ours[BP_HF_PARTS];
    const char
        *only_if; /* a flag that must be set, "!FLAG": that must not; NULL: it is always there */
} bp_hf_row;

struct bp_hf_shape;
typedef struct bp_hf_table {
    const char *kind;         /* of ours: model.kind */
    const char *model_type;   /* of config.json */
    const char *architecture; /* that config.json names when written */
    const char *prefix;       /* that names of tensors may have; written; "": none */
    const char *first;        /* a tensor that is always there, which tells whether they have it */
    const char *head, *tied;  /* a tensor that may be there, equal to another; NULL: none */
    const bp_hf_size *sizes;  /* ended by NULL */
    const bp_hf_setting *settings; /* ended by NULL */
    const bp_hf_row *rows;         /* in the order of files; ended by NULL */
    const char *const *buffers;    /* what follows a layer's number in names of no parameters; ended
                                      by NULL */
    const char *more;              /* members of config.json that are written besides: JSON */
    /** Sizes that do not go together (their names in config.json are told). Errors: BP_ERR_FORMAT.
     */
    bp_err (*check)(const struct bp_hf_shape *shape, const char *path);
} bp_hf_table;

/** The sizes of one model. */
typedef struct bp_hf_shape {
    const bp_hf_table *table;
    double sizes[BP_HF_SIZES]; /* in the table's order; flags 0 or 1 */
    int64_t eos_id;            /* eos_token_id of config.json; -1: none */
} bp_hf_shape;

/** A size by our name, or an extent as above; a name that the table has not is a bug. */
int64_t bp_hf_size_of(const bp_hf_shape *shape, const char *name);

#endif
