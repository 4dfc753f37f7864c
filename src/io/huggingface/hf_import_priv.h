/* An opened Hugging Face folder, shared by the files that open it. */
#pragma once

#include "base/buffer.h"
#include "io/huggingface/hf_model.h"
#include "io/huggingface/safetensors.h"

struct bp_hf_model {
    char *folder;
    json_t *config; /* read as config.json; NULL: the folder's */
    bp_hf_shape shape;
    bp_safetensors **files;
    int64_t file_count;
    bool named;    /* config.json names the table's class */
    bool nameless; /* it names no class */
    bool prefixed;
    char wrapper[64]; /* prefix removed from names: "_orig_mod.module." */
    bp_slice *slices; /* ours ... */
    int64_t *from;    /* ... and for each, the index of their tensor, and its part */
    int *part;
    int64_t slice_count;
    const char **left;    /* names of unknown tensors, */
    const char **ignored; /* and of known ones that are ignored */
    bp_hf_report report;
    float *theirs, *ours; /* the tensor fetched last */
    int64_t fetched;      /* index among theirs; -1 if none */
};

/* hf_files.c */
/** Read config.json into the shape. Errors: those of bp_json_load, hf_check_class and
 * hf_config_read. */
bp_err hf_read_config(bp_hf_model *model, const bp_hf_table *const *tables);
/** The same by a given table, whatever class is named. */
bp_err hf_read_config_by(bp_hf_model *model, const bp_hf_table *table);
/** Open model.safetensors, or each file that its index lists. Errors: BP_ERR_INPUT neither exists;
 * BP_ERR_FORMAT a bad index, or files that contradict it; those of bp_safetensors_open. */
bp_err hf_open_files(bp_hf_model *model);
/** Remove from names the prefixes that wrapping programs add. Errors: BP_ERR_FORMAT an adapter's
 * tensors, names that are no longer unique. */
bp_err hf_unwrap(bp_hf_model *model);
/** The tensor called `name` in full, and its file; NULL if there is none. */
const bp_safetensor *hf_find(const bp_hf_model *model, const char *name, bp_safetensors **file);

/* hf_tensors.c */
/** The name of a tensor without the table's prefix. Borrowed. */
const char *hf_without_prefix(const bp_hf_model *model, const char *name);
/** The tensor that a row of the table names, under its name or an older one; files may keep any one
 * of several tied tensors. NULL if there is none. */
const bp_safetensor *hf_find_theirs(const bp_hf_model *model, const char *name,
                                    bp_safetensors **file);
/** Divide the tensors without a row into ignored and unknown ones. Errors: BP_ERR_FORMAT an extra
 * layer, a head that differs from what it is tied to; those of reading. */
bp_err hf_sort_out(bp_hf_model *model);
