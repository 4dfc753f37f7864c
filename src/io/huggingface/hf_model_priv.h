/* The tensors of a model, theirs and ours, by its table. */
#pragma once

#include "io/huggingface/hf_model.h"

#define HF_PARTS BP_HF_PARTS
#define HF_NAME  96

/* One of theirs: it has `parts` of ours side by side, along its last dimension, or in runs of its
 * rows. */
typedef struct hf_tensor {
    char name[HF_NAME]; /* without the prefix */
    int dims;
    int64_t shape[2]; /* theirs */
    bool transposed;  /* a Conv1D weight */
    int parts;
    int64_t blocks; /* runs of rows, each with all parts one after the other; 0: side by side */
    int64_t part_rows[HF_PARTS]; /* in blocks: rows of each part in a run */
    int64_t middle;              /* theirs is [rows][middle][columns / middle]; 0: a matrix */
    int64_t pairs, head;         /* in each `head` of rows the first `pairs` are pairs; 0: none */
    char ours[HF_PARTS][HF_NAME];
    bool or_zero; /* if absent, its values are 0 */
} hf_tensor;

/** Tensors of a model. */
int64_t hf_tensor_count(const bp_hf_shape *shape);
/** Tensor k, in the order of their files. */
void hf_tensor_of(hf_tensor *out, const bp_hf_shape *shape, int64_t k);

/** Does the table's prefix never precede it? */
bool hf_name_is_bare(const bp_hf_table *table, const char *name);

/** The alias whose `name` ends this name, NULL if there is none; and this name with `other` for it.
 */
const bp_hf_alias *hf_alias_of(const bp_hf_table *table, const char *name);
void hf_other_name(char other[2 * HF_NAME], const bp_hf_alias *alias, const char *name);

/** Is the tensor written under a second name, too? */
bool hf_has_copy(char other[2 * HF_NAME], const bp_hf_shape *shape, const char *name);

/** Is the head the embedding? */
bool hf_is_tied(const bp_hf_shape *shape);

/** Is `name` (without the prefix) that of a tensor of the model? */
bool hf_name_is_known(const bp_hf_shape *shape, const char *name);
/** The layer of "h.12.attn.bias", the rest of the name in *rest, and the number of layers in
 * *layers; -1 for another kind of name. */
int64_t hf_layer_of(const bp_hf_shape *shape, const char *name, const char **rest, int64_t *layers);

/** Shape of part `part`, as ours; dims is theirs. */
void hf_part_shape(const hf_tensor *tensor, int part, int64_t shape[2]);
/** Its dimensions and extents in a file. */
int hf_file_shape(const hf_tensor *tensor, int64_t shape[3]);

/** Copy between theirs, [rows][columns] with columns = parts x width, and ours: part p as
 * [rows][width], or transposed as [width][rows]. A vector has one row. In blocks theirs are
 * [blocks][rows of all parts][columns], and part p [blocks][part_rows[p]][columns]. */
void hf_take_part(float *ours, const float *theirs, const hf_tensor *tensor, int part);
void hf_put_part(float *theirs, const float *ours, const hf_tensor *tensor, int part);
