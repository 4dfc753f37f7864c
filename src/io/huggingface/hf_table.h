/* The description of a family's Hugging Face folders: one table, for reading and writing. Only
 * data: sizes, required settings, and the mapping of tensors. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_HF_SIZES 40
#define BP_HF_PARTS 4
#define BP_HF_LISTS 3   /* of a model */
#define BP_HF_LIST  128 /* numbers of one */

/** A size, a number, a flag or a choice: `ours` is its name in the "model" object of a checkpoint
 * and in the rows below, `theirs` in config.json, "object.member" if it is in an object, or
 * deeper; `also`: another name (NULL: none), which is written too but not read. For example
 *
 *     {"kv_heads", "num_key_value_heads", NULL, BP_HF_COUNT, "heads", .absent = "8",
 *      .null_is = "heads"}
 *
 * is num_key_value_heads of config.json: 8 if absent, the number of heads if null; a checkpoint's
 * model without kv_heads has the number of heads. */
typedef enum bp_hf_type {
    BP_HF_COUNT,
    BP_HF_REAL,
    BP_HF_FLAG,
    BP_HF_CHOICE,
    BP_HF_PERIOD, /* a count n: theirs is a list with one word per layer, every n-th the second of
                     `words` (JSON), the others the first; `older` is the number itself */
    BP_HF_LAYERS, /* a list of layers, from 1 on, in bp_hf_shape.lists too: theirs is a list with
                     one word per layer: the second of `words` (JSON) for these, the first for
                     others; without words, the layers, from 0 on */
    BP_HF_REALS,  /* a list of numbers above 0, bp_hf_shape.lists; the size is their number */
    BP_HF_PAIRS, /* a list of pairs, theirs and ours a text "tanh:0,relu:1" (base/config/pairs.h) of
                    the words in `words`; bp_hf_shape.lists, and the size is their number */
    BP_HF_LABELS /* a count of classes: theirs is an object "0": NAME, "1": NAME..., whose names are
                    the member "labels" of ours */
} bp_hf_type;
typedef struct bp_hf_size {
    const char *ours, *theirs, *also;
    bp_hf_type type;
    const char *otherwise; /* the value if a checkpoint lacks it, or if `theirs` is NULL: a number,
                              or an expression as in rows; NULL: required */
    const char *older;     /* other names for it, "a|b.c", that are only read; NULL if none */
    bool quiet;            /* not written into a checkpoint if it equals `otherwise` */
    const char *plus;    /* of a count: theirs is ours plus this, an expression of sizes before it;
                            NULL: the same */
    const char *words;   /* of a flag: theirs is a word, the first where it is not set. Of a choice,
                            ours: "none|linear"; theirs are the same, but "default" for the first. In
                            an object, a choice that is the first, a 0 and a quiet member are each
                            omitted, and an object without members is null */
    const char *absent;  /* if config.json lacks it: transformers' default; NULL: `otherwise` */
    const char *null_is; /* the meaning of null; NULL: null is refused, except for a flag, which is
                            not set */
    bool automatic;      /* of a count: "auto" means the value used if config.json lacks it */
    bool zero;           /* of a number: 0 is a value, not absence */
    bool only_theirs;    /* never written into a checkpoint: other sizes are derived from it */
    const char *written; /* of a choice: their words, in the order of `words`, which are read too;
                            always written, also the first. NULL: as in `words` */
    bool leads; /* of a period: the first of each n layers differs, not the last; `also` is the
                   number */
    const char *or_none; /* of a count: theirs below 1 means 0, written as this; NULL: refused */
} bp_hf_size;

/** A count, and a number; `is` is the default of transformers' class. */
#define BP_HF_SIZE(ours, theirs, is)                                                               \
    {                                                                                              \
        ours, theirs, NULL, .absent = is                                                           \
    }
#define BP_HF_NUMBER(ours, theirs, is)                                                             \
    {                                                                                              \
        ours, theirs, NULL, BP_HF_REAL, is                                                         \
    }

/** A member of config.json ("object.member" of an object in it) for which this family supports only
 * one meaning. `is`: JSON values with '|' between, one of which it must be, if present; or
 * "4*width"; after a '*': a list, each element of which must be one. null is accepted if `is` has
 * null, false, {} or a list. The first is written, except for lists and members of objects. For
 * example
 *
 *     {"hidden_act", "\"silu\""}                  any other activation is refused
 *     {"layer_types", "*\"full_attention\""}      each layer has full attention */
typedef struct bp_hf_setting {
    const char *key, *is;
    const char *only_if; /* as of a row */
    const char *absent;  /* the default if absent, as `is`; NULL: the first of `is` */
} bp_hf_setting;

/** All layers, or by bp_hf_table.is_sparse: those with experts, those without. */
typedef enum bp_hf_layers { BP_HF_ALL, BP_HF_SPARSE, BP_HF_DENSE } bp_hf_layers;

/** One of their tensors: it has `parts` of ours side by side, along its last dimension; with
 * `blocks` along its first: its rows are `blocks` runs, each with all parts in sequence. A '*' in
 * names is a layer's number; consecutive rows with the same text before it belong to one layer.
 * Extents are "width", "3*width", "2", "kv_heads*width/heads", "context+2"; columns NULL: a
 * vector. For example, for GPT-2 and for Mixtral:
 *
 *     {"h.*.attn.c_attn.weight", "width", "3*width", true, 3,
 *      {"h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"}}
 *
 * theirs is [width][3 width], transposed, with three of ours side by side;
 *
 *     {"layers.*.block_sparse_moe.experts.#.w1.weight", "inner", "width", false, 1,
 *      {"h.*.mlp.experts.#.gate.weight"}, .experts = "experts", .in = BP_HF_SPARSE}
 *
 * one of ours an expert of each layer that has experts. */
typedef struct bp_hf_row {
    const char *theirs, *rows, *columns;
    bool transposed; /* theirs are [in][out] */
    int parts;
    const char *ours[BP_HF_PARTS];
    const char *only_if; /* a flag that must be set, or not set ("!FLAG"); NULL: always present */
    const char *blocks;  /* an extent, "heads"; NULL: parts are side by side */
    const char *part_rows[BP_HF_PARTS]; /* with blocks: rows of each part in a run; NULL: all have
                                           as many */
    const char *middle; /* of a matrix: an extent of theirs between rows and columns; ours have both
                           in one, theirs last. NULL if none */
    const char *first_columns; /* of layer 0, if different; NULL: the same */
    const char *layers;        /* a size: the number of layers; NULL: "layers" */
    bool only_first;           /* only layer 0 has it */
    const char *of_layers;     /* a list of layers (BP_HF_LAYERS) that have it; "!LIST": the other
                                  layers; NULL: all */
    bool not_first;            /* all but layer 0 have it */
    const char *pairs, *head;  /* extents: in each `head` of its rows the first `pairs` are adjacent
                                  pairs, (0, 1), (2, 3)...; ours have the first elements of all
                                  pairs, then the second ones. NULL: as ours */
    bool or_zero;              /* if absent, its values are 0 */
    const char *experts; /* a size: names have a '#', for each number below it. Such rows of a layer
                            are ordered expert by expert; NULL: no '#' */
    bp_hf_layers in;     /* which layers have it */
} bp_hf_row;

/** Rows that map one of their tensors to one of ours: only if a flag is set, always, a vector, a
 * weight with its bias, a norm with its bias; and the head where it is not the embedding. */
#define BP_HF_IF(flag, theirs, rows, columns, ours)                                                \
    {                                                                                              \
        theirs, rows, columns, false, 1, {ours}, .only_if = flag                                   \
    }
#define BP_HF_MATRIX(theirs, rows, columns, ours) BP_HF_IF(NULL, theirs, rows, columns, ours)
#define BP_HF_VECTOR(theirs, rows, ours)          BP_HF_IF(NULL, theirs, rows, NULL, ours)
#define BP_HF_LINEAR(theirs, rows, columns, ours)                                                  \
    BP_HF_MATRIX(theirs ".weight", rows, columns, ours ".weight"),                                 \
        BP_HF_VECTOR(theirs ".bias", rows, ours ".bias")
#define BP_HF_LAYER_NORM(theirs, ours)                                                             \
    BP_HF_VECTOR(theirs ".weight", "width", ours ".gain"),                                         \
        BP_HF_VECTOR(theirs ".bias", "width", ours ".bias")
#define BP_HF_UNTIED(theirs) BP_HF_IF("!tied", theirs, "vocab_size", "width", "head")

/** An end of tensors' names, and another one that files have for it. Where a file has both, `name`
 * is read, and the other must equal it; but of a bias that `computes` under the other name, this
 * one is read: transformers 5 saves both, and they differ if the head is not tied. Such a head is
 * written with both names. */
typedef struct bp_hf_alias {
    const char *name, *other;
    bool computes;
} bp_hf_alias;

struct bp_hf_shape;
typedef struct bp_hf_table {
    const char *kind;          /* of ours: model.kind */
    const char *model_type;    /* of config.json */
    const char *architecture;  /* written to config.json; of several tables with a model_type, the
                                  one that config.json names is used, else the first */
    const char *identified_by; /* a tensor that no other table of the model_type has: if present,
                                  this table is used, whatever class is named; NULL: none */
    const char *prefix; /* optional prefix of tensor names; written, except by a base class and on
                           names in `bare`; "": none */
    const char *first;  /* a tensor that always exists, to detect the prefix */
    const char *head, *tied;       /* an optional tensor, equal to another; NULL if none */
    const bp_hf_size *sizes;       /* ended by NULL */
    const bp_hf_setting *settings; /* ended by NULL */
    const bp_hf_row *rows;         /* in the order of files; ended by NULL */
    const char *const *buffers; /* names that are not parameters: the part after a layer's number,
                                   or whole names; ended by NULL */
    const char *const
        *constants; /* names of buffers that classes compute with, by which a file must
                       have the values of `constant`; ended by NULL; NULL if none */
    double (*constant)(const struct bp_hf_shape *shape, int64_t row, int64_t column);
    const char *const *harmless; /* keys of config.json without effect, in addition to those of any
                                    model; ended by NULL; NULL if none */
    bool (*is_sparse)(const struct bp_hf_shape *shape, int64_t layer); /* NULL: all are */
    const char *more; /* additional members written to config.json: JSON */
    /** Computes derived sizes, after config.json is read (else before it is `written`); may be
     * NULL. */
    void (*derive)(struct bp_hf_shape *shape, bool written);
    /** Refuses invalid combinations of sizes, by their names in config.json. Errors: BP_ERR_FORMAT.
     */
    bp_err (*check)(const struct bp_hf_shape *shape, const char *path);
    const char *members; /* our members for a model with a task's head: how published models read
                            pairs of texts. JSON; NULL: the default */
    const char *const *bare; /* starts of the head's names, which never have the prefix; ended by
                                NULL; NULL if none */
    const char *const
        *unread; /* those of heads that no class of transformers reads: not imported; a folder
                    whose only heads are such is a base class's; ended by NULL; NULL if none */
    const char *const *twins; /* further names, besides the head's, that files may use for the tied
                                 tensor, or for copies of it; ended by NULL; NULL if none */
    const bp_hf_alias *aliases; /* ended by NULL; NULL: none */
    const char *stem; /* the prefix of its classes' names, "GPTNeoX"; NULL: that of the architecture
                         before "For", "LMHead" or "MT" */
    const char *const *classes; /* other names of its class, ended by NULL; NULL: none */
    bool scores;      /* of a causal stack with a stem: a class has the head of a text, "score" */
    const char *tags; /* and the name of a class with the head of tokens; NULL if there is none */
    bool unbiased;    /* the head of a task has no bias */
    bool headless;    /* of a class without a head */
    bool trims;       /* of a class that reads a text's last token that is not pad_token_id */
    const char *pad;  /* of a causal stack: pad_token_id where config.json has no such key; NULL:
                         none */
    const char *instead; /* transformers has no class for it: kinds that it has; NULL: it has one */
} bp_hf_table;

/** The sizes of one model. */
typedef struct bp_hf_shape {
    const bp_hf_table *table;
    double sizes[BP_HF_SIZES];             /* in the table's order; flags 0 or 1 */
    double lists[BP_HF_LISTS][BP_HF_LIST]; /* of the table's sizes that are lists, in their order */
    int64_t eos_id;                        /* eos_token_id of config.json; -1 if none */
    int64_t bos_id;                        /* of export: bos_token_id; -1: eos_id */
    const json_t *end_ids;                 /* for export: a list for eos_token_id; NULL: eos_id */
    int64_t pad_id;       /* pad_token_id: of export, and of a table that `trims`; -1 if unknown */
    bool no_pad;          /* pad_token_id is null */
    const json_t *forced; /* of export: members of config.json, borrowed; NULL if none */
    bool headless;        /* a base class, without the tensors in `bare` */
    json_t *labels;       /* names of classes; NULL: none, or they are numbers */
} bp_hf_shape;

/** A size by our name, or an extent as above; a name missing from the table is a bug. */
int64_t bp_hf_size_of(const bp_hf_shape *shape, const char *name);
/** The same as a real number. */
double bp_hf_value_of(const bp_hf_shape *shape, const char *name);
/** Does the table have a size of this name? And set it, if it has. */
bool bp_hf_has_size(const bp_hf_table *table, const char *name);
void bp_hf_set_size(bp_hf_shape *shape, const char *name, double value);
/** Is layer `number`, from 0, in the list of this name (BP_HF_LAYERS)? */
bool bp_hf_list_has(const bp_hf_shape *shape, const char *name, int64_t number);
/** The list of size k, which must be a list: [sizes[k]]. */
const double *bp_hf_list_of(const bp_hf_shape *shape, int k);
/** Check that one count divides another, both by our names, like "heads" and "width", for
 * bp_hf_table.check. Errors: BP_ERR_FORMAT, with their names in config.json. */
bp_err bp_hf_check_divides(const bp_hf_shape *shape, const char *count, const char *other,
                           const char *path);
bp_err bp_hf_check_heads(const bp_hf_shape *shape, const char *path);
/** Is size k written into a checkpoint? */
bool bp_hf_is_given(const bp_hf_shape *shape, int k);
/** Append size k for people, "width 64": a token's id by its name in config.json, a choice by its
 * word. Local. */
void bp_hf_size_text(bp_buffer *out, const bp_hf_shape *shape, int k);
