/* An opened Hugging Face folder, as the files that open it share it. */
#ifndef BP_IO_HUGGINGFACE_HF_IMPORT_PRIV_H
#define BP_IO_HUGGINGFACE_HF_IMPORT_PRIV_H

#include "base/buffer.h"
#include "io/huggingface/hf_model.h"
#include "io/huggingface/safetensors.h"

struct bp_hf_model {
    char *folder;
    json_t *config; /* what is read as config.json; NULL: the folder's */
    bp_hf_shape shape;
    bp_safetensors **files;
    int64_t file_count;
    bool named;    /* config.json names the table's class */
    bool nameless; /* it names none */
    bool prefixed;
    char wrapper[64]; /* what was taken off names: "_orig_mod.module." */
    bp_slice *slices; /* ours ... */
    int64_t *from;    /* ... and of each, which of theirs it is in, and as which part */
    int *part;
    int64_t slice_count;
    const char **left;    /* names of those that nobody knows, */
    const char **ignored; /* and of those that are known not to be ours */
    bp_hf_report report;
    float *theirs, *ours; /* the tensor fetched last */
    int64_t fetched;      /* which of theirs that is; -1: none */
};

/* hf_files.c */
/** Read config.json into the shape. Errors: those of bp_json_load, hf_check_class and
 * hf_config_read. */
bp_err hf_read_config(bp_hf_model *model, const bp_hf_table *const *tables);
/** The same by one table, whatever class is named. */
bp_err hf_read_config_by(bp_hf_model *model, const bp_hf_table *table);
/** Open model.safetensors, or each file that its index lists. Errors: BP_ERR_INPUT there is
 * neither; BP_ERR_FORMAT a bad index, or files that contradict it; those of bp_safetensors_open. */
bp_err hf_open_files(bp_hf_model *model);
/** Take off names what programs that wrap a model add to them. Errors: BP_ERR_FORMAT an adapter's
 * tensors, names that are no longer unique. */
bp_err hf_unwrap(bp_hf_model *model);
/** The tensor called `name` in full, and its file; NULL: there is none. */
const bp_safetensor *hf_find(const bp_hf_model *model, const char *name, bp_safetensors **file);

/* hf_tensors.c */
/** The name of a tensor without the table's prefix. Borrowed. */
const char *hf_without_prefix(const bp_hf_model *model, const char *name);
/** The tensor that a row of the table names, under its name or an older one; files may keep any one
 * of several tied tensors. NULL: there is none. */
const bp_safetensor *hf_find_theirs(const bp_hf_model *model, const char *name,
                                    bp_safetensors **file);
/** Is the head the embedding? */
bool hf_is_tied(const bp_hf_shape *shape);
/** Sort all tensors that no row names into those that are ignored and those that are left. Errors:
 * BP_ERR_FORMAT a layer too many, a head that differs from what it is tied to; those of reading. */
bp_err hf_sort_out(bp_hf_model *model);

#endif
