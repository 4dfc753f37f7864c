/* What a family of models is called in Hugging Face's folders: one table, by which a folder is read
 * and written. It is only data: sizes, settings that must be as they are, and which tensor is
 * which. */
#ifndef BP_IO_HUGGINGFACE_HF_TABLE_H
#define BP_IO_HUGGINGFACE_HF_TABLE_H

#include "base/config/json.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_HF_SIZES 40
#define BP_HF_PARTS 4
#define BP_HF_LISTS 3   /* of a model */
#define BP_HF_LIST  128 /* numbers of one */

/** A size, a number, a flag or a choice: `ours` is its name in the "model" object of a checkpoint
 * and in the rows below, `theirs` in config.json, "object.member" where it is in an object, or
 * deeper; `also`: another name (NULL: none), which is written too and not read. For example
 *
 *     {"kv_heads", "num_key_value_heads", NULL, BP_HF_COUNT, "heads", .absent = "8",
 *      .null_is = "heads"}
 *
 * is num_key_value_heads of config.json, 8 where that is not there and as many as heads where it is
 * null; a checkpoint's model without kv_heads has as many as heads. */
typedef enum bp_hf_type {
    BP_HF_COUNT,
    BP_HF_REAL,
    BP_HF_FLAG,
    BP_HF_CHOICE,
    BP_HF_PERIOD, /* a count n: theirs is a list with a word a layer, each n-th the second of
                     `words` (JSON), the others the first; `older` is the number itself */
    BP_HF_LAYERS, /* a list of layers, from 1 on, in bp_hf_shape.lists too: theirs is a list with a
                     word a layer, of these the second of `words` (JSON), of others the first;
                     without words the layers, from 0 on */
    BP_HF_REALS,  /* a list of numbers above 0, bp_hf_shape.lists; the size is how many they are */
    BP_HF_PAIRS, /* a list of pairs, theirs and ours a text "tanh:0,relu:1" (base/config/pairs.h) of
                    the words in `words`; bp_hf_shape.lists, and the size is how many they are */
    BP_HF_LABELS /* a count of classes: theirs is an object "0": NAME, "1": NAME..., whose names are
                    the member "labels" of ours */
} bp_hf_type;
typedef struct bp_hf_size {
    const char *ours, *theirs, *also;
    bp_hf_type type;
    const char *otherwise; /* what a checkpoint leaves out, and `theirs` NULL always is: a number,
                              or an expression as in rows; NULL: it must be there */
    const char *older;     /* other names for it, "a|b.c", that are only read; NULL: none */
    bool quiet;            /* not written into a checkpoint where it is `otherwise` */
    const char *plus;      /* of a count: theirs is ours plus this, an expression of sizes before
                              it; NULL: it is the same */
    const char *words;   /* of a flag: theirs is a word, the first where it is not set. Of a choice,
                            ours: "none|linear"; theirs are the same, but "default" for the first. Of
                            a choice that is the first, of numbers in its object that are 0, and of
                            what is quiet there, nothing is written, and null for the object */
    const char *absent;  /* where config.json lacks it: the default of transformers' class; NULL:
                            `otherwise` */
    const char *null_is; /* what null says there; NULL: nothing, it is refused, but of a flag, which
                            is not set */
    bool automatic;      /* of a count: "auto" says what it is where config.json lacks it */
    bool zero;           /* of a number: 0 is one as others are, not nothing */
    bool only_theirs;    /* never written into a checkpoint: others follow from it */
    const char *written; /* of a choice: their words, in the order of `words`, which are read too;
                            each is written, the first too. NULL: as `words` says */
    bool leads;          /* of a period: the first of each n layers is the other one, not the last;
                            `also` is the number */
    const char *or_none; /* of a count: theirs below 1 is 0, which is written as this; NULL: it is
                            refused */
} bp_hf_size;

/** A member of config.json ("object.member" of an object in it) that this family computes with one
 * meaning only. `is`: JSON values with
 * '|' between, of which it must be one, if it is there; or "4*width"; after a '*':
 * a list, and each of its elements must. null is taken where `is` has null, false, {} or a list.
 * The first is written, but of lists and members of objects. For example
 *
 *     {"hidden_act", "\"silu\""}                  any other activation is refused
 *     {"layer_types", "*\"full_attention\""}      each layer has full attention */
typedef struct bp_hf_setting {
    const char *key, *is;
    const char *only_if; /* as of a row */
    const char *absent;  /* what it is where it is not there, as `is`; NULL: the first of `is` */
} bp_hf_setting;

/** All layers, or by bp_hf_table.is_sparse: those with experts, those without. */
typedef enum bp_hf_layers { BP_HF_ALL, BP_HF_SPARSE, BP_HF_DENSE } bp_hf_layers;

/** One of their tensors: `parts` of ours are in it side by side, along its last dimension; with
 * `blocks` along its first: its rows are `blocks` runs, in each of which the parts follow one
 * another. A '*' in names is a layer's number; rows that follow each other with the same text
 * before it are a layer's. Extents are "width", "3*width", "2", "kv_heads*width/heads",
 * "context+2"; columns NULL: a vector. For example, of GPT-2 and of Mixtral:
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
    const char
        *only_if; /* a flag that must be set, "!FLAG": that must not; NULL: it is always there */
    const char *blocks;                 /* an extent, "heads"; NULL: parts are side by side */
    const char *part_rows[BP_HF_PARTS]; /* with blocks: rows of each part in a run; NULL: all have
                                           as many */
    const char *middle; /* of a matrix: an extent of theirs between rows and columns; ours have both
                           in one, theirs last. NULL: none */
    const char *first_columns; /* of layer 0, where it has others; NULL: as they all */
    const char *layers;        /* a size: how many layers there are; NULL: "layers" */
    bool only_first;           /* only layer 0 has it */
    const char *of_layers;     /* a list of layers (BP_HF_LAYERS) that have it; "!LIST": the others
                                  have; NULL: all */
    bool not_first;            /* all but layer 0 have it */
    const char *pairs, *head;  /* extents: of each `head` of its rows the first `pairs` are pairs
                                  side by side, (0, 1), (2, 3)..., where ours have the first numbers
                                  of all pairs and then the second ones; NULL: as ours */
    bool or_zero;              /* where it is not there its values are 0 */
    const char *experts; /* a size: theirs and ours have a '#', and each number below it stands
                            there. Such rows of a layer that follow each other go expert by
                            expert; NULL: there is no '#' */
    bp_hf_layers in;     /* which layers have it */
} bp_hf_row;

/** An end of tensors' names, and what older files have instead of it. */
typedef struct bp_hf_alias {
    const char *name, *older;
} bp_hf_alias;

struct bp_hf_shape;
typedef struct bp_hf_table {
    const char *kind;          /* of ours: model.kind */
    const char *model_type;    /* of config.json */
    const char *architecture;  /* that config.json names when written; of several tables of a
                                  model_type the one that it names is read by, else the first */
    const char *identified_by; /* a tensor that no other table of the model_type has: where it is,
                            the folder is read by this one, whatever it names; NULL: none */
    const char *prefix;        /* that names of tensors may have; written; "": none */
    const char *first;         /* a tensor that is always there, if they have the prefix */
    const char *head, *tied;   /* a tensor that may be there, equal to another; NULL: none */
    const bp_hf_size *sizes;   /* ended by NULL */
    const bp_hf_setting *settings; /* ended by NULL */
    const bp_hf_row *rows;         /* in the order of files; ended by NULL */
    const char *const *buffers;    /* names of no parameters: what follows a layer's number, or
                                      whole ones; ended by NULL */
    const char *const *harmless;   /* keys of config.json that change no number, besides those of
                                      any model; ended by NULL; NULL: none */
    bool (*is_sparse)(const struct bp_hf_shape *shape, int64_t layer); /* NULL: all are */
    const char *more; /* members of config.json that are written besides: JSON */
    /** Sizes that follow from others, after config.json is read (else before it is `written`);
     * NULL: none do. */
    void (*derive)(struct bp_hf_shape *shape, bool written);
    /** Refuses sizes that do not go together, by their names in config.json. Errors:
     * BP_ERR_FORMAT. */
    bp_err (*check)(const struct bp_hf_shape *shape, const char *path);
    const char *members;     /* of ours, of a model with the head of a task: how published ones read
                                pairs of texts. JSON; NULL: as all do */
    const char *const *bare; /* beginnings of the head's names, which the prefix never precedes;
                                ended by NULL; NULL: none */
    const char *const *unread; /* of these, heads that no class of transformers reads: they are left
                                  out, and a folder that has only them is of a base class; ended by
                                  NULL; NULL: none */
    const char *const *twins;  /* other names of the tied tensor, besides the head's, that files may
                                  have in its place; ended by NULL; NULL: none */
    const bp_hf_alias *older;  /* ended by NULL; NULL: none */
    const char *stem;          /* what names of its classes begin with, "GPTNeoX"; NULL: that of the
                                  architecture before "For", "LMHead" or "MT" */
    const char *const *classes; /* other names of its class, ended by NULL; NULL: none */
    bool scores;      /* of a causal stack with a stem: a class has the head of a text, "score" */
    const char *tags; /* and one that of tokens, which is called so; NULL: none has */
    bool unbiased;    /* the head of a task has no bias */
} bp_hf_table;

/** The sizes of one model. */
typedef struct bp_hf_shape {
    const bp_hf_table *table;
    double sizes[BP_HF_SIZES];             /* in the table's order; flags 0 or 1 */
    double lists[BP_HF_LISTS][BP_HF_LIST]; /* of the table's sizes that are one, in their order */
    int64_t eos_id;                        /* eos_token_id of config.json; -1: none */
    int64_t bos_id;                        /* of export: bos_token_id; -1: it is eos_id */
    const json_t *end_ids; /* of export: a list that is eos_token_id; NULL: eos_id is */
    int64_t pad_id;        /* of export: pad_token_id; -1: it is not known */
    const json_t *forced;  /* of export: members of config.json, borrowed; NULL: none */
    bool headless;         /* of a base class, which has none of the tensors in `bare` */
    json_t *labels;        /* names of classes; NULL: none, or they are numbers */
} bp_hf_shape;

/** A size by our name, or an extent as above; a name that the table has not is a bug. */
int64_t bp_hf_size_of(const bp_hf_shape *shape, const char *name);
/** The same, of numbers that may not be whole. */
double bp_hf_value_of(const bp_hf_shape *shape, const char *name);
/** Does the table have a size of this name? And set it; nothing where it has none. */
bool bp_hf_has_size(const bp_hf_table *table, const char *name);
void bp_hf_set_size(bp_hf_shape *shape, const char *name, double value);
/** Is layer `number`, from 0, in the list of this name (BP_HF_LAYERS)? */
bool bp_hf_list_has(const bp_hf_shape *shape, const char *name, int64_t number);
/** The list of size k, which is one: [sizes[k]]. */
const double *bp_hf_list_of(const bp_hf_shape *shape, int k);
/** A count divides another one, both by our names; "heads" divide "width", for bp_hf_table.check.
 * Errors: BP_ERR_FORMAT, with their names in config.json. */
bp_err bp_hf_check_divides(const bp_hf_shape *shape, const char *count, const char *other,
                           const char *path);
bp_err bp_hf_check_heads(const bp_hf_shape *shape, const char *path);
/** Is size k written into a checkpoint? */
bool bp_hf_is_given(const bp_hf_shape *shape, int k);

#endif
